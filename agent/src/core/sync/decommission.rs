//! Decommission: all our objects in the cluster are removed or orphaned, and then there is nothing to do.
//!
//! ```text
//!  in service ── an empty set that says so ──▶ Keep or Remove: a removal for all that is ours ──▶ nothing left: idle
//!       ▲                                                        │
//!       └──────────────── a set that does not say so ◀───────────┘
//! ```
//!
//! The journal records the decommission with the set that ordered it, so that neither a crash nor an absent hub ends it: our
//! objects are sought anew at each start. When the cluster is in service again, objects that nothing says were unassigned
//! stay; those that were due for orphaning are orphaned, and those to be removed for the decommission alone stay where the
//! cluster refused. The removals are the ordinary ones, in their order and through the one gate: nothing foreign is touched,
//! and nothing is deleted that holds foreign objects. Only the fuse lets all of them pass, because emptying the cluster was
//! asked for. Where all is to be kept, the gate orphans what it would delete.

use tideline_common::wire::v1::{Decommission, DecommissionReport};
use tideline_common::{Monotonic, Reason, Tombstone};

use crate::core::Core;
use crate::core::interface::effect::{Effect, Effects};
use crate::core::interface::op_result::{Failure, NotDone};
use crate::core::interface::write::AppliedRecord;
use crate::core::model::removal::{Cause, Removal};
use crate::core::model::seen::Seen;
use crate::core::work::result::Step;

impl Core {
    /// A set was accepted that says so.
    pub(in crate::core) fn decommission(&mut self, now: Monotonic, how: Decommission) {
        if self.model.decommission != how {
            self.model.decommission = how;
            if how == Decommission::No {
                let retired = self.model.removals.iter().filter(|(_, removal)| removal.cause() == Cause::Retired);
                for removal in retired.map(|(removal, _)| removal.clone()).collect::<Vec<_>>() {
                    // An operation in flight at this moment ends as the cluster answers.
                    if !self.is_removing(&removal) {
                        self.spare(now, &removal);
                    }
                }
            } else {
                self.model.removals.values_mut().for_each(Removal::retire);
            }
            // Held removals may go now, or their objects are orphaned.
            for key in self.model.objects.keys().cloned().collect::<Vec<_>>() {
                self.enqueue(&key);
            }
        }
    }

    /// Whether a step of this removal is under way.
    fn is_removing(&self, removal: &Tombstone) -> bool {
        let in_flight = self.model.objects.get(&removal.key).and_then(|object| object.work.in_flight());
        in_flight.and_then(|in_flight| self.work.removal_of(in_flight)) == Some(removal)
    }

    /// The cluster stays in service: this removal ends, and leaves nothing behind. Where part of it may have been done, before
    /// a restart or without an answer, it ends when that is known.
    pub(in crate::core) fn spare(&mut self, now: Monotonic, removal: &Tombstone) {
        let object = self.model.objects.get(&removal.key);
        let recorded = object
            .as_ref()
            .is_some_and(|object| object.record.as_ref().is_some_and(|record| record.source == removal.source));
        let seen = object.as_ref().and_then(|object| object.seen());
        let perhaps_gone = seen.is_none_or(|seen| seen.deleting);
        drop(object);
        match self.model.removals.get_mut(removal) {
            Some(state) if recorded && (perhaps_gone || state.failures() > 0) => {
                state.spare();
                self.enqueue_removals(&removal.key);
            }
            Some(_) | None => self.let_stand(now, removal),
        }
    }

    /// This was found under the key of an object that is to be spared.
    pub(in crate::core) fn stays(&mut self, now: Monotonic, removal: &Tombstone, seen: &Seen) {
        let record = self.model.objects.get(&removal.key).and_then(|object| object.record.clone());
        let is_done = |record: &AppliedRecord| {
            record.source == removal.source && seen.mark.is_none() && (record.orphaning || record.uid != seen.uid)
        };
        if record.as_ref().is_some_and(is_done) {
            return self.removal_done(now, removal);
        }
        if seen.deleting {
            self.model.see_through(removal);
            return self.enqueue(&removal.key);
        }
        if let Some(record) = record.filter(|record| record.orphaning && record.source == removal.source) {
            self.model.set_record(&removal.key, AppliedRecord { orphaning: false, ..record });
        }
        self.let_stand(now, removal);
        self.enqueue(&removal.key);
    }

    fn let_stand(&mut self, now: Monotonic, removal: &Tombstone) {
        let object = self.model.objects.get(&removal.key);
        let record = object.as_ref().and_then(|object| object.record.clone());
        let marked = object.as_ref().is_some_and(|object| object.seen().is_some_and(|seen| seen.mark.is_some()));
        drop(object);
        // It still bears its mark, and is not due for orphaning any more.
        if let Some(record) = record.filter(|record| record.orphaning && record.source == removal.source && marked) {
            self.model.set_record(&removal.key, AppliedRecord { orphaning: false, ..record });
        }
        self.dirty(&removal.key, now);
        self.forget_removal(removal);
    }

    /// The cluster has answered a step of this removal. A removal for the decommission alone becomes an ordinary one once it
    /// was accepted; refused, it ends where the cluster is in service again. Returns whether it goes on.
    pub(in crate::core) fn retires(
        &mut self,
        now: Monotonic,
        removal: &Tombstone,
        result: &Result<Step, NotDone>,
    ) -> bool {
        let failed = if let Err(NotDone::Failed(Failure { reason, .. })) = result { Some(*reason) } else { None };
        let unanswered = matches!(failed, Some(Reason::Unavailable | Reason::Throttled));
        match self.model.removals.get(removal).map(Removal::cause) {
            Some(Cause::Retired) => {}
            // It cannot be read: what the journal says counts.
            Some(Cause::Spared) if failed.is_some() && !unanswered => {
                self.let_stand(now, removal);
                return false;
            }
            Some(Cause::Spared | Cause::Approved | Cause::Unassigned) | None => return true,
        }
        match result {
            Ok(Step::Gone | Step::Finalizing | Step::Orphaned) => {
                self.model.see_through(removal);
                true
            }
            Ok(Step::Inspected { .. }) | Err(NotDone::Stale | NotDone::Failed(_)) => {
                let goes_on = self.model.decommission != Decommission::No;
                if !goes_on {
                    if let Some(state) = self.model.removals.get_mut(removal).filter(|_| unanswered) {
                        state.fail_at_least(1);
                    }
                    self.spare(now, removal);
                }
                goes_on
            }
        }
    }

    /// Begins the removal of every object of ours that nothing says was unassigned.
    pub(in crate::core) fn retire_all(&mut self) {
        if self.model.decommission != Decommission::No {
            for key in self.model.objects.keys().cloned().collect::<Vec<_>>() {
                self.take_up(&key);
            }
        }
    }

    /// Tells the edges when it begins, and when it ends.
    pub(in crate::core) fn tell_decommission(&mut self, out: &mut Effects) {
        let told =
            self.model.decommissioned().map(|report| DecommissionReport { left: u64::from(report.left > 0), ..report });
        if self.reporting.told_decommission != told {
            self.reporting.told_decommission = told;
            let in_service = DecommissionReport { how: Decommission::No, left: 0 };
            out.push(Effect::Decommissioned(self.model.decommissioned().unwrap_or(in_service)));
        }
    }
}

#[cfg(test)]
mod tests;
