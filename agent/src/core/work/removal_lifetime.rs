//! Where a removal comes from, and where it goes: it is put, and forgotten once the hub knows that it is done.

use std::sync::Arc;

use tideline_common::wire::v1::Decommission;
use tideline_common::{Entry, Monotonic, ObjectKey, Tombstone};

use crate::core::Core;
use crate::core::decide::approve::is_approved_in_advance;
use crate::core::decide::remove::wave_of;
use crate::core::interface::write::{AppliedRecord, RemovalPolicy, Write};
use crate::core::model::removal::{Cause, Moved, Removal};

impl Core {
    /// A source is to be gone from its key. Where that is known already, what the hub says outdoes what was said before.
    pub(in crate::core) fn put_removal(
        &mut self,
        tombstone: Tombstone,
        policy: RemovalPolicy,
        former: Option<&Entry>,
        cause: Cause,
    ) {
        let key = &tombstone.key;
        let assigned = self.model.desired.get(key);
        if self.model.is_assigned_again(&tombstone) && matches!(policy, RemovalPolicy::Absence(_)) {
            self.model.disk.write(Write::Removed(tombstone));
            return;
        }
        let counts = assigned.is_none();
        if let Some(removal) = self.model.removals.get_mut(&tombstone) {
            if cause == Cause::Unassigned {
                removal.unassign(policy);
            }
            let open = !removal.is_done();
            // It may have been assigned again meanwhile, and does not count then.
            if counts && open && cause == Cause::Unassigned && !is_approved_in_advance(&self.model, &tombstone) {
                self.guards.fuse.ask(tombstone);
            }
            return;
        }
        self.model.kinds.refer(key, former.map_or(&Arc::default(), |entry| &entry.version));
        let record = self.model.objects.at(key).record.as_ref();
        let recorded = record.filter(|record| record.source == tombstone.source).and_then(|record| record.wave);
        let wave = former.map(|entry| entry.wave).or(recorded).unwrap_or_else(|| wave_of(&key.kind));
        let mut removal = Removal::new(cause, policy, wave, former);
        self.work.enqueue_removal(&mut removal, &tombstone);
        self.model.removals.insert(tombstone.clone(), removal);
        if counts && !is_approved_in_advance(&self.model, &tombstone) {
            self.guards.fuse.ask(tombstone);
        }
    }

    /// A source that was missing is assigned again, and nothing says that it was ever unassigned.
    pub(in crate::core) fn void_removal(&mut self, tombstone: &Tombstone) {
        self.model.disk.write(Write::Removed(tombstone.clone()));
        self.forget_removal(tombstone);
    }

    /// The hub knows that the removal is done, or it is void.
    pub(in crate::core) fn forget_removal(&mut self, tombstone: &Tombstone) {
        if let Some(mut removal) = self.model.removals.remove(tombstone) {
            self.work.dequeue_removal(&mut removal, tombstone);
            if removal.is_finalizing() {
                self.work.finalized(None, removal.wave());
            }
            self.model.kinds.unrefer(&tombstone.key);
        }
        self.guards.fuse.withdraw(tombstone);
        self.reporting.reports.forget_removed(tombstone);
        self.reporting.reports.forget_overtaken(tombstone);
        self.forget_if_empty(&tombstone.key);
    }

    /// No object of the source has its key any more.
    pub(in crate::core) fn removal_done(&mut self, now: Monotonic, tombstone: &Tombstone) {
        let Some(removal) = self.model.removals.get_mut(tombstone) else { return };
        if removal.end() == Moved::OutOfFinalizing {
            self.work.finalized(Some(now), removal.wave());
        }
        self.work.dequeue_removal(removal, tombstone);
        self.guards.fuse.withdraw(tombstone);
        // It was used: an object that reappears there needs another one.
        self.guards.approvals.withdraw(tombstone);
        let key = &tombstone.key;
        let assigned = self.model.desired.get(key).is_some();
        // An orphaned object is not the one that the journal knows, whatever is assigned to its key.
        let forgotten = |record: &AppliedRecord| record.source == tombstone.source && (!assigned || record.orphaning);
        if self.model.objects.at(key).record.as_ref().is_some_and(forgotten) {
            self.model.clear_record(key);
        }
        if !assigned && let Some(object) = self.model.objects.get_mut(key) {
            object.presence.clear_unshown();
        }
        if self.model.is_assigned_again(tombstone) {
            // Earlier reports were of the time before, and the hub may not have believed them.
            if let Some(object) = self.model.objects.get_mut(key) {
                object.told = None;
            }
            self.reporting.reports.say_anew(key);
            self.dirty(key, now);
            self.guards.gates.update(&self.model, key);
            return self.reporting.reports.overtaken(tombstone.clone(), now);
        }
        if let Some(object) = self.model.objects.get_mut(key)
            && object.happened(&tombstone.source).is_some()
        {
            self.guards.ran.remember(&mut self.model, key);
            if let Some(object) = self.model.objects.get_mut(key) {
                object.terminal = None;
            }
            self.model.disk.write(Write::Sent { key: key.clone() });
        }
        self.reporting.reports.removed(tombstone.clone(), now);
    }

    /// Nothing was there that a removal could have orphaned.
    pub(in crate::core) fn nothing_overtaken(&mut self, now: Monotonic, key: &ObjectKey) {
        for tombstone in self.model.overtaken(key).map(|(tombstone, _)| tombstone.clone()).collect::<Vec<_>>() {
            self.removal_done(now, &tombstone);
        }
    }

    /// The journal has the record of an object. Whatever waited for that goes on.
    pub(in crate::core) fn recorded(&mut self, now: Monotonic, key: &ObjectKey) {
        if let Some(object) = self.model.objects.get_mut(key) {
            object.unrecorded = object.unrecorded.saturating_sub(1);
            let orphaned = object.unrecorded == 0 && object.record.as_ref().is_some_and(|record| record.orphaning);
            self.dirty(key, now);
            if orphaned {
                self.enqueue_removals(key);
            }
        }
    }

    /// What a creation may have left there is nobody's to remove.
    pub(in crate::core) fn forget_unshown(&mut self, key: &ObjectKey) {
        if let Some(object) = self.model.objects.get_mut(key) {
            object.presence.clear_unshown();
        }
        self.forget_if_empty(key);
    }

    /// Forgets a key of which nothing needs to be known.
    pub(in crate::core) fn forget_if_empty(&mut self, key: &ObjectKey) {
        let Some(object) = self.model.objects.get(key) else { return };
        let shown = object.seen().is_some() || object.presence.is_unshown();
        let known = object.record.is_some() || shown || object.work.is_in_flight() || self.model.restored.awaits(key);
        if !known
            && !self.model.told_ahead.contains(key)
            && self.model.desired.get(key).is_none()
            && self.model.removals_of(key).next().is_none()
        {
            if let Some(source) = object.unexplained.clone() {
                self.model.kinds.unrefer(key);
                self.reporting.reports.vanished(Tombstone { key: key.clone(), source });
            }
            let Some(object) = self.model.objects.get(key) else { return };
            if object.terminal.is_some() {
                drop(object);
                self.guards.ran.remember(&mut self.model, key);
                self.model.disk.write(Write::Sent { key: key.clone() });
            }
            self.model.came_back_no_more(key);
            self.dequeue(key);
            self.model.forbidden_kinds.clear(key);
            self.model.not_admitted.clear(key);
            self.model.objects.remove(key);
        }
    }

    /// Begins the removal of an object that nothing says was unassigned, if that may be.
    pub(in crate::core) fn take_up(&mut self, key: &ObjectKey) {
        if let Some((removal, policy, cause)) = self.guards.approvals.removal_of_left_over(&self.model, key) {
            self.put_removal(removal, policy, None, cause);
        }
    }

    /// Whether a removal that rests on its approval alone, or on the decommission, may not go on, because that has ended.
    pub(super) fn lapses(&mut self, now: Monotonic, removal: &Tombstone) -> bool {
        match self.model.removals.get(removal).map(Removal::cause) {
            Some(Cause::Approved) if !self.guards.approvals.is_in_force_for(now, removal) => {
                self.guards.approvals.withdraw(removal);
                self.dirty(&removal.key, now);
                self.forget_removal(removal);
                true
            }
            Some(Cause::Retired) if self.model.decommission == Decommission::No => {
                self.spare(now, removal);
                true
            }
            Some(Cause::Approved | Cause::Retired | Cause::Spared | Cause::Unassigned) | None => false,
        }
    }
}
