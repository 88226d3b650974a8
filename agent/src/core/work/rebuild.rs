//! After the journal was lost: existing objects are recorded as they are, without a second write, where they can be proven to
//! be what would be written.
//!
//! | what is known | what it proves |
//! |---|---|
//! | the mark is the very one that would be written: target, source, place, generation, input, policy | the last write of ours that reached the object carried this body under this policy, for mark and body travel in one request |
//! | the label is there | the object will be watched |
//! | an entry of managedFields is ours | it was written by us here, and not restored or copied with the mark in it |
//! | one live look ([`Op::Compare`]): no field that we apply left our managedFields entry with another value | nobody has changed it since |
//!
//! A comparison is one GET; a second server-side apply would cost the API server eight times that, and start a write at every
//! object of every cluster whose agent moved. Without it, what was changed locally while there was no agent would become the
//! baseline for drift. What the comparison finds is left to the plan: the object is recorded without a hash of our entry,
//! which no object equals, so that it counts as drifted, and is corrected or reported as its policy says.
//!
//! [`Op::Compare`]: crate::core::Op::Compare

use tideline_common::{Entry, Monotonic, Origin, Reason};

use super::in_flight::FollowUp;
use crate::core::Core;
use crate::core::decide::plan;
use crate::core::decide::plan::record_of;
use crate::core::interface::op_result::{Compared, NotDone};
use crate::core::interface::write::AppliedRecord;
use crate::core::model::Model;
use crate::core::model::seen::Seen;

impl Core {
    /// The comparison of an object that the journal does not know ended.
    pub(in crate::core) fn verified(
        &mut self,
        now: Monotonic,
        entry: &Entry,
        origin: Origin,
        result: Result<Compared, NotDone>,
    ) -> FollowUp {
        let key = &entry.key;
        match result {
            Ok(Compared { observed, total, differences: _, local: _, at: _ }) => {
                let seen = Seen::from(&*observed);
                let template = observed.template;
                self.see_live(key, *observed);
                // Whether it was last posted or applied is not known, so the next apply checks.
                let record = AppliedRecord { template, ..record_of(entry, &seen, origin, true) };
                let managed = record.managed.filter(|_| total == 0);
                if is_still_right(&self.model, entry, origin, &seen) {
                    self.model.set_record(key, AppliedRecord { managed, ..record });
                }
                self.dirty(key, now);
                FollowUp::Requeue
            }
            Err(NotDone::Stale) => FollowUp::Stale,
            Err(NotDone::Failed(failure)) => {
                if failure.reason == Reason::BodyMissing {
                    self.body_is_missing(entry);
                }
                self.operation_failed(now, key, failure)
            }
        }
    }
}

/// Whether the ground for the comparison still holds: the set, and the mark of the object as it was read.
fn is_still_right(model: &Model, entry: &Entry, origin: Origin, seen: &Seen) -> bool {
    let current = model.desired.get(&entry.key).is_some_and(|current| **current == *entry);
    let policy = model.policies.get(&entry.policy);
    let mark = model.me().zip(policy).map(|(me, policy)| plan::mark_of(me, entry, policy, origin));
    current && mark.is_some() && seen.mark.as_deref() == mark.as_ref() && !seen.deleting
}
