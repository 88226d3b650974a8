//! What a read of an object means, and any answer that shows one.
//!
//! What is earlier than what was seen is late, and says nothing; but an API server answers with what is stored when it is
//! asked. So an answer from before what had been seen by then shows that its store was set back, and that what was seen does
//! not stand any more.

use tideline_common::{Monotonic, ObjectKey};

use super::in_flight::{FollowUp, ReadFor, SeenVersion};
use crate::core::Core;
use crate::core::interface::observed::Observed;
use crate::core::interface::op_result::{Failure, OpResult};
use crate::core::model::live_status::Unread;
use crate::core::model::seen::Seen;

impl Core {
    /// An operation ended. `before` is what was seen of the object when it began.
    pub(in crate::core) fn may_be_set_back(
        &mut self,
        key: &ObjectKey,
        before: Option<&SeenVersion>,
        result: &OpResult,
    ) {
        if let Some((before, observed)) = before.zip(result.observed())
            && before.is_after(&Seen::from(observed))
            && let Some(object) = self.model.objects.get_mut(key)
        {
            object.set_back();
        }
    }

    /// A list shows an object as it was before what was seen. The list may be late, or the cluster was set back, as where it
    /// follows on watches that were lost with the API server: a read of what is assigned tells which.
    pub(in crate::core) fn may_be_late(&mut self, key: ObjectKey) {
        if self.model.desired.get(&key).is_some() {
            self.work.read(key, ReadFor::Write);
        }
    }

    /// Has a key read of which only the journal knows that there is an object.
    pub(in crate::core) fn look_for(&mut self, key: &ObjectKey) {
        if self.model.may_be_gone(key) {
            self.work.read(key.clone(), ReadFor::Absence);
        }
    }

    /// What the journal knows was looked for, and this stands there. What is gone is forgotten: nobody removed it, and it is not
    /// held. What only lost its label stays as it is known. It is not taken for seen, for no watch would tell of its end: the
    /// next pass looks for it again.
    fn looked_for(&mut self, now: Monotonic, key: &ObjectKey, there: Option<&Observed>) -> FollowUp {
        if let Some(object) = self.model.objects.get_mut(key) {
            object.work.succeed();
            object.live.status.was_read();
            let stands = object.record.as_ref().zip(there).is_some_and(|(record, there)| record.uid == there.uid);
            if !stands {
                self.model.clear_record_of_what_went(key);
            }
        }
        self.dirty(key, now);
        FollowUp::Concluded
    }

    /// An object was read. What is no news to its entry ends no wait of that: a status changes all the time, and what failed is
    /// read for its status each time that its failure is reported.
    pub(in crate::core) fn read(
        &mut self,
        now: Monotonic,
        key: &ObjectKey,
        what_for: ReadFor,
        result: Result<Option<Box<Observed>>, Failure>,
    ) -> FollowUp {
        let waits =
            what_for == ReadFor::Status && self.model.objects.get(key).is_some_and(|object| object.work.is_waiting());
        let news = match result {
            Ok(there) if what_for == ReadFor::Absence && self.model.may_be_gone(key) => {
                return self.looked_for(now, key, there.as_deref());
            }
            Ok(Some(observed)) => {
                // It decides nothing else, and nothing would show when it changes.
                let seen = Seen::from(&*observed);
                if !waits
                    && self.model.desired.get(key).is_some()
                    && let Some(object) = self.model.objects.get_mut(key)
                    // Something newer may have been heard before this answer.
                    && !object.seen().is_some_and(|newer| seen.is_older_than(newer))
                {
                    object.presence.probe(seen);
                }
                self.see_live(key, *observed)
            }
            Ok(None) => {
                let stood = self.model.objects.get(key).is_some_and(|object| object.seen().is_some());
                self.model.came_back_no_more(key);
                if self.model.desired.get(key).is_some()
                    && let Some(object) = self.model.objects.get_mut(key)
                {
                    object.doubt();
                }
                stood
            }
            Err(failure) => return self.read_failed(now, key, (what_for, waits), failure),
        };
        if let Some(object) = self.model.objects.get_mut(key) {
            object.live.status.was_read();
        }
        self.dirty(key, now);
        if waits && !news { FollowUp::Concluded } else { FollowUp::Requeue }
    }

    fn read_failed(
        &mut self,
        now: Monotonic,
        key: &ObjectKey,
        (what_for, waits): (ReadFor, bool),
        failure: Failure,
    ) -> FollowUp {
        if let Some(object) = self.model.objects.get_mut(key)
            && let Some(Unread { times, is_told }) = object.live.status.read_failed(object.told.is_some())
        {
            // That it stands as it should does not say that it can be read.
            object.work.fail_at_least(u32::from(times) - 1);
            if is_told {
                self.dirty(key, now);
            }
        }
        // The retry of its entry has the status read again.
        if waits {
            return FollowUp::Concluded;
        }
        let untried = self.model.objects.get(key).is_some_and(|object| !object.work.is_tried());
        if what_for != ReadFor::Write || !untried || self.model.desired.get(key).is_none() {
            return FollowUp::BackOff(failure.retry_after);
        }
        self.operation_failed(now, key, failure)
    }
}
