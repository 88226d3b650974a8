//! From one target to another: this agent was handed a SyncTarget that was created again, or enrolled anew. Objects that it
//! placed are its own under both.
//!
//! Every mark of a former target is to name the present one: that of an applied object is written with it; that of a held,
//! withheld or unassigned object, or of one being removed, is written by itself, as an apply is: not while the agent is
//! frozen, and through the same queue. Nothing else is changed, so that it needs neither to be assigned nor explained.
//!
//! Former targets are kept, up to their bound, also when none of their marks is left. A cluster that is set back has such
//! marks again, and a hub that is set back knows this agent by its former name alone; no other agent ever has them.
//!
//! An epoch is of one target, so nothing follows from comparing sets across the two: what the first set of the new target
//! lacks was not unassigned, removals under way end, and its revisions are not compared with those before. The accepted set is
//! kept until there is another.

use std::sync::Arc;

use tideline_common::wire::v1::Decommission;
use tideline_common::{Mark, Monotonic, ObjectKey};

use crate::core::Core;
use crate::core::decide::approve::Approvals;
use crate::core::interface::effect::{Effects, Marked, Op};
use crate::core::interface::observed::Observed;
use crate::core::interface::op_result::NotDone;
use crate::core::interface::write::{AppliedRecord, ChangeDetector, Enrolled, Write};
use crate::core::model::disk::Then;
use crate::core::model::seen::Seen;
use crate::core::work::in_flight::{FollowUp, Purpose};
use crate::core::work::queue::Next;

impl Core {
    /// Becomes this target, on disk with all that follows from it, and asks for a session as that target.
    pub(in crate::core) fn become_target(&mut self, now: Monotonic, enrolled: Enrolled, out: &mut Effects) {
        if self.model.target == Some(enrolled.target) {
            // With a new key.
            return self.open_session(out);
        }
        if let Some(former) = self.model.target {
            self.model.formers = self.model.formers.with(former).without(enrolled.target);
            self.sync.sets.leave();
            for tombstone in self.model.removals.keys().cloned().collect::<Vec<_>>() {
                self.void_removal(&tombstone);
            }
            self.guards.approvals = Approvals::default();
            if self.model.decommission != Decommission::No {
                self.model.decommission = Decommission::No;
                self.model.disk.write(Write::Decommission(Decommission::No));
            }
            // Nothing was reported as the new target yet.
            self.resend(now, out);
            self.sync.session.distrust();
            // Every mark is checked then, and names the new target.
            for key in self.model.objects.keys().cloned().collect::<Vec<_>>() {
                self.enqueue(&key);
            }
        }
        self.model.target = Some(enrolled.target);
        self.sync.session.switching();
        self.model.disk.write(Write::Enrolled(enrolled));
        self.model.disk.then(Then::Enrolled);
    }

    /// The new target is on disk. A set of the former target that was being written came before.
    pub(in crate::core) fn became_target(&mut self, out: &mut Effects) {
        self.sync.sets.leave();
        self.open_session(out);
    }

    pub(in crate::core) fn enqueue_mark(&mut self, key: &ObjectKey) {
        if self.model.formers_mark(key).is_some() {
            self.work.mark(key.clone());
        }
    }

    pub(in crate::core) fn next_mark(&mut self, now: Monotonic) -> Option<ObjectKey> {
        loop {
            match self.work.next_mark() {
                Next::Admitted(key) => return Some(key),
                Next::Stuck(key) => self.retry(now, &key, None),
                Next::None => return None,
            }
        }
    }

    /// Begins to rewrite a mark, if it still is a former target's.
    pub(in crate::core) fn begin_mark(&mut self, now: Monotonic, key: &ObjectKey, out: &mut Effects) {
        let Some((seen, mark)) = self.model.formers_mark(key) else { return };
        // Somebody may undo it, or refuse it: that the entry itself has nothing to do, as that of an implied namespace, ends
        // no wait.
        if self.waits_to_correct(now, key) || self.model.is_set_back_at(key) {
            return;
        }
        let (Some(target), Some(object)) = (self.model.target, self.model.objects.get(key)) else { return };
        let entry = self.model.desired.get(key);
        let (version, impersonate) = match (&object.record, entry) {
            (Some(record), _) => (Arc::clone(&record.version), record.impersonate.clone()),
            (None, Some(entry)) => (Arc::clone(&entry.version), entry.impersonate.clone()),
            (None, None) => (self.model.kinds.version(&key.kind), None),
        };
        drop(object);
        let marked = Marked {
            uid: seen.uid.clone(),
            generation: seen.generation,
            managed: seen.managed,
            mark: Arc::clone(&mark),
        };
        let mark = Arc::new(Mark { target, ..(*mark).clone() });
        let op = Op::ReTarget { key: key.clone(), version, seen: Box::new(marked), mark, impersonate };
        self.execute(now, key, Purpose::ReTarget(Box::new(seen)), op, out);
    }

    /// A mark was rewritten; before that the object was as `seen`.
    pub(in crate::core) fn mark_written(
        &mut self,
        now: Monotonic,
        key: &ObjectKey,
        seen: &Seen,
        result: Result<Box<Observed>, NotDone>,
    ) -> FollowUp {
        let observed = match result {
            Ok(observed) => observed,
            // The watch shows its successor.
            Err(NotDone::Stale) => return FollowUp::BackOff(None),
            Err(NotDone::Failed(failure)) => return FollowUp::BackOff(failure.retry_after),
        };
        let record = self.model.objects.get(key).and_then(|object| object.record.clone());
        let as_recorded = |record: &AppliedRecord| {
            // Whatever else reports a change reports this one too; then the object is evaluated.
            (&record.uid, record.managed) == (&seen.uid, seen.managed)
                && record.change_detector == ChangeDetector::Owner
        };
        if let Some(record) = record.filter(as_recorded) {
            // The mark is in another managedFields entry of ours by now, which is no change by anybody else.
            let (managed, resource_version) = (observed.managed, Arc::clone(&observed.resource_version));
            self.model.set_record(key, AppliedRecord { managed, resource_version, posted: true, ..record });
        }
        self.see_live(key, *observed);
        if let Some(object) = self.model.objects.get_mut(key) {
            object.work.succeed();
        }
        self.dirty(key, now);
        FollowUp::Requeue
    }
}

#[cfg(test)]
mod tests;
