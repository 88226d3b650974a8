//! Removals, from the queue to the gate and back to the queue.
//!
//! ```text
//!  queue ─▶ begin_removal ─▶ may_delete ── Delete ─▶ fuse ─▶ operation ─▶ the object is gone, or finalizes
//!   ▲                         │  │  │ └── Orphan ──────────▶ operation ─▶ it is let go of
//!   │                         │  │  └──── Read, Inspect ───▶ operation, and judged again with what that found
//!   │                         │  └─────── Forget ──────────▶ done, for nothing of its source is there
//!   └────── retry_removal ◀── Hold, Wait
//! ```

use std::sync::Arc;
use std::time::Duration;

use tideline_common::wire::v1::Terminal;
use tideline_common::{Monotonic, ObjectKey, Reason, Tombstone};

use super::conclude::RETRY;
use super::in_flight::Purpose;
use super::queue::Next;
use crate::core::Core;
use crate::core::decide::approve::is_approved_in_advance;
use crate::core::decide::fuse::Passage;
use crate::core::decide::plan::{ILLEGIBLE, is_made_once};
use crate::core::decide::remove::{Evidence, Ground, Inspection, Verdict, may_delete};
use crate::core::decide::set_back::NAMESPACE_SET_BACK;
use crate::core::interface::effect::{Effects, Op};
use crate::core::interface::write::{AppliedRecord, RemovalPolicy, Write};
use crate::core::model::disk::Then;
use crate::core::model::object::{Me, Object};
use crate::core::model::removal::{Moved, Removal};
use crate::core::model::seen::Seen;

/// The result of a live read that was made for a removal.
#[derive(Debug)]
pub(in crate::core) enum LiveRead {
    /// It was not read.
    Nothing,
    /// This exists, and holds that.
    Inside(Inspection, Box<Seen>),
    /// This exists, whatever lists and watches say.
    There(Box<Seen>),
}

impl Core {
    /// Has every removal of a key judged now that is not done.
    pub(in crate::core) fn enqueue_removals(&mut self, key: &ObjectKey) {
        self.enqueue_removals_that(key, |removal| !removal.is_done());
    }

    /// Queues the removals that found an operation under way; not those that wait for their retry.
    pub(in crate::core) fn resume_removals(&mut self, key: &ObjectKey) {
        self.enqueue_removals_that(key, |removal| !removal.is_done() && !removal.is_backing_off());
    }

    fn enqueue_removals_that(&mut self, key: &ObjectKey, are_due: impl Fn(&Removal) -> bool) {
        let due = self.model.removals_of(key).filter(|(_, removal)| are_due(removal));
        for tombstone in due.map(|(tombstone, _)| tombstone.clone()).collect::<Vec<_>>() {
            if let Some(removal) = self.model.removals.get_mut(&tombstone) {
                self.work.enqueue_removal(removal, &tombstone);
            }
        }
    }

    /// The removal whose turn it is. Those before it that wait for a wave leave the queue until it is over.
    pub(in crate::core) fn next_removal(&mut self, now: Monotonic) -> Option<Tombstone> {
        loop {
            let tombstone = self.work.first_removal(now)?;
            if let Some(what) = self.gate_of(&tombstone) {
                self.removal_waits_for_wave(now, &tombstone, what);
                continue;
            }
            match self.work.next_removal(&mut self.model.removals) {
                Next::Admitted(tombstone) => return Some(tombstone),
                // Its webhooks are asked about deletions, too.
                Next::Stuck(tombstone) => self.retry_removal(now, &tombstone, None),
                Next::None => return None,
            }
        }
    }

    /// For which wave a removal waits, if it does. What was deleted already waits for none.
    fn gate_of(&mut self, tombstone: &Tombstone) -> Option<String> {
        if self.model.removals.get(tombstone).is_some_and(Removal::is_finalizing) {
            return None;
        }
        self.guards.gates.holds_removal(&self.model, tombstone)
    }

    /// Judges a removal and begins what follows, if that is permitted: the agent may have been frozen since the last step.
    /// Then the removal waits in the queue.
    pub(in crate::core) fn begin_removal(
        &mut self,
        now: Monotonic,
        me: Me,
        tombstone: &Tombstone,
        found: LiveRead,
        out: &mut Effects,
    ) {
        let key = &tombstone.key;
        if !self.may_remove() {
            return;
        }
        let (inspection, live) = match found {
            LiveRead::Nothing => (None, None),
            LiveRead::Inside(inspection, seen) => (Some(inspection), Some(seen)),
            LiveRead::There(seen) => (None, Some(seen)),
        };
        if self.model.objects.get(key).is_some_and(|object| object.work.is_in_flight()) {
            // It ends as that does, and is taken up again then.
            return;
        }
        if self.lapses(now, tombstone) {
            return;
        }
        if self.model.is_set_back_at(key) {
            self.removal_is_held(now, tombstone, Reason::Unavailable, NAMESPACE_SET_BACK.to_owned());
            return self.retry_removal(now, tombstone, None);
        }
        if self.model.is_spared(tombstone) {
            return match live {
                Some(seen) => self.stays(now, tombstone, &seen),
                None => self.read_for_removal(now, tombstone, out),
            };
        }
        let (Some(removal), Some(object)) = (self.model.removals.get(tombstone), self.model.objects.get(key)) else {
            return;
        };
        // A removal that passed the fuse is taken up again when that is on disk.
        if removal.is_done() || self.guards.fuse.is_saving(tombstone) {
            return;
        }
        // Nor is it orphaned, or read again for that, before the journal has it.
        if object.unrecorded > 0 && object.record.as_ref().is_some_and(|record| record.orphaning) {
            return;
        }
        // An object read just now is not older than the journal, though the cluster may have been set back.
        let current = object.record.as_ref().zip(live.as_deref()).map(|(record, seen)| AppliedRecord {
            resource_version: Arc::clone(&seen.resource_version),
            ..record.clone()
        });
        let record = current.as_ref().or(object.record.as_ref());
        let entry = self.model.desired.get(key).map(|entry| &**entry);
        let verdict = may_delete(&Evidence {
            me,
            key,
            ground: Ground::Unassigned(&tombstone.source),
            entry,
            record,
            assigned: entry.and_then(|entry| self.model.policies.get(&entry.policy)).map(|policy| &**policy),
            policy: removal.policy(),
            applied: record.and_then(|record| self.model.policies.get(&record.policy)).map(|policy| &**policy),
            seen: live.as_deref().or(object.seen()),
            unshown: object.presence.is_unshown(),
            view: self.model.kinds.view(key),
            inspection,
            fresh: live.is_some(),
            journal: self.model.journal_age,
            leaves_too: self.model.other_removal(tombstone).is_some(),
            decommission: self.model.decommission,
        });
        let version = self.model.version_of(tombstone, removal, record);
        let impersonate = record.and_then(|record| record.impersonate.clone());
        let (wave, finalizing) = (removal.wave(), removal.is_finalizing());
        let judged = live.as_deref().or(object.seen());
        let replaced = record.zip(judged).is_some_and(|(record, judged)| record.uid != judged.uid);
        let purpose = Purpose::Remove { tombstone: tombstone.clone(), wave };
        let again = entry.is_some_and(|entry| entry.source.uid == tombstone.source);
        let void = again && matches!(removal.policy(), RemovalPolicy::Absence(_));
        let empty = live.is_none() && object.seen().is_none();
        if again && !void && removal.is_finalizing() && live.is_none() {
            // Its deletion was accepted: a list from before shows it as it was.
            return self.read_for_removal(now, tombstone, out);
        }
        if finalizing && replaced && matches!(verdict, Verdict::Delete(_) | Verdict::Orphan(_) | Verdict::Inspect) {
            // What finalized is gone. The deletion of what has its place is not accepted yet, and may wait for a wave.
            self.removal_waits(now, tombstone);
            if let Some(removal) = self.model.removals.get_mut(tombstone) {
                self.work.enqueue_removal(removal, tombstone);
            }
            return;
        }
        let verdict = self.sync.while_broken(verdict);
        match self.fused(now, tombstone, verdict) {
            Verdict::Orphan(authorised) if !self.records_orphaning(key) => drop(authorised),
            Verdict::Delete(authorised) | Verdict::Orphan(authorised) => {
                self.model.begun(tombstone);
                self.execute(now, key, purpose, authorised.op(version, impersonate), out);
                self.joins_its_wave(now, tombstone, Removal::begin);
            }
            Verdict::Read => self.read_for_removal(now, tombstone, out),
            Verdict::Inspect => {
                self.execute(now, key, purpose, Op::Inspect { key: key.clone(), version }, out);
                self.joins_its_wave(now, tombstone, Removal::look);
            }
            Verdict::TransferOwnership | Verdict::Wait => {
                // That too little is known says nothing against a deletion that was accepted.
                if !again && !finalizing {
                    self.removal_waits(now, tombstone);
                }
                // One that passed the fuse is taken up again when that is on disk.
                if live.is_some() && !self.guards.fuse.is_saving(tombstone) {
                    // What must happen first may take a while, and reading again would show no more.
                    self.retry_removal(now, tombstone, None);
                }
            }
            Verdict::Forget if void => self.forget_removal(tombstone),
            Verdict::Forget => {
                // The key is not free before the object of another source is gone. The removal of that is judged first:
                // reading the key for this one would delay it.
                let other = self.model.other_removal(tombstone).filter(|(_, removal)| !removal.is_done());
                if let Some((other, due)) = other.map(|(other, removal)| (other, !removal.is_backing_off())) {
                    self.removal_waits(now, tombstone);
                    if due && self.gate_of(&other).is_none() {
                        self.begin_removal(now, me, &other, LiveRead::Nothing, out);
                    }
                    let waits = self.model.removals.get(&other).is_some_and(|removal| !removal.is_done());
                    let idle = self.model.objects.get(key).is_some_and(|object| !object.work.is_in_flight());
                    if !waits {
                        // Its end has freed the key already.
                        self.enqueue_removals(key);
                    } else if live.is_some() && idle {
                        self.retry_removal(now, tombstone, None);
                    }
                    return;
                }
                if empty {
                    self.make_anew(tombstone);
                }
                self.removal_done(now, tombstone);
            }
            Verdict::Hold(Reason::Finalizing) => {
                self.removal_finalizes(now, tombstone);
                self.retry_removal(now, tombstone, None);
            }
            Verdict::Hold(reason) => {
                let message = if reason == Reason::AgentTooOld { ILLEGIBLE } else { "" };
                self.removal_is_held(now, tombstone, reason, message.to_owned());
                self.retry_removal(now, tombstone, None);
            }
        }
    }

    /// The object is not known: it lost its label, or is another than an older list showed. So it is read, and judged once
    /// more.
    pub(in crate::core) fn read_for_removal(&mut self, now: Monotonic, tombstone: &Tombstone, out: &mut Effects) {
        let key = &tombstone.key;
        if !self.may_remove() {
            return;
        }
        let (Some(removal), Some(object)) = (self.model.removals.get(tombstone), self.model.objects.get(key)) else {
            return;
        };
        let version = self.model.version_of(tombstone, removal, object.record.as_ref());
        let purpose = Purpose::ReadForRemoval { tombstone: tombstone.clone(), wave: removal.wave() };
        drop(object);
        self.execute(now, key, purpose, Op::Get { key: key.clone(), version }, out);
        self.joins_its_wave(now, tombstone, Removal::look);
    }

    /// What is tried for the first time is waited for as long as if it were alone in its wave.
    fn joins_its_wave(&mut self, now: Monotonic, tombstone: &Tombstone, step: fn(&mut Removal) -> bool) {
        if let Some(removal) = self.model.removals.get_mut(tombstone)
            && step(removal)
        {
            self.work.joins_wave(now, removal.wave());
        }
    }

    /// An object that may not be taken over is orphaned if it was due for that. Without its label no watch shows it: a
    /// creation found it.
    pub(in crate::core) fn orphan_unseen(
        &mut self,
        now: Monotonic,
        me: Me,
        key: &ObjectKey,
        found: Option<Seen>,
        out: &mut Effects,
    ) {
        let unseen = self.model.objects.get(key).is_some_and(|object| object.seen().is_none());
        let due = self.model.overtaken(key).find(|(_, removal)| !removal.is_backing_off());
        let tombstone = due.map(|(tombstone, _)| tombstone.clone());
        if let (true, Some(found), Some(tombstone)) = (unseen, found, tombstone) {
            self.begin_removal(now, me, &tombstone, LiveRead::There(Box::new(found)), out);
        }
    }

    /// The object is assigned again: it is not deleted any more, and nothing holds its removal.
    pub(in crate::core) fn comes_back(&mut self, tombstone: &Tombstone) {
        self.guards.fuse.withdraw(tombstone);
        if let Some(removal) = self.model.removals.get_mut(tombstone) {
            removal.come_back();
        }
    }

    /// A create-only object was unassigned, is gone, and is assigned again: it is created once more.
    pub(in crate::core) fn make_anew(&mut self, tombstone: &Tombstone) {
        let Tombstone { key, source } = tombstone;
        let Some(entry) = self.model.desired.get(key).filter(|entry| entry.source.uid == *source) else { return };
        let policy = self.model.policies.get(&entry.policy);
        if !policy.is_some_and(|policy| is_made_once(entry, policy)) {
            return;
        }
        self.model.forget_fact(key, source, Terminal::CreatedOnce);
        let ours = |object: &Object| object.record.as_ref().is_some_and(|record| record.source == *source);
        if self.model.objects.get(key).is_some_and(|object| ours(&object)) {
            self.model.clear_record(key);
        }
        self.enqueue(key);
    }

    /// Whether the journal has it on disk that this object is due for orphaning. Once its mark is gone, nothing else tells it
    /// from an object whose mark was stripped by others, and which is deleted.
    fn records_orphaning(&mut self, key: &ObjectKey) -> bool {
        let Some(object) = self.model.objects.get(key) else { return true };
        let Some(record) = object.record.clone() else { return true };
        if !record.orphaning {
            self.model.set_record(key, AppliedRecord { orphaning: true, ..record });
            return false;
        }
        object.unrecorded == 0
    }

    /// Has a deletion pass the fuse, or wait. What else was decided is not the fuse's to hold.
    pub(in crate::core) fn fused(&mut self, now: Monotonic, tombstone: &Tombstone, verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::Delete(authorised) => {
                self.excuse_gated(now, tombstone);
                let permission = self.guards.approvals.permission(&self.model, now, tombstone);
                match self.guards.fuse.pass(now, tombstone, self.model.recorded, permission) {
                    Passage::Free => Verdict::Delete(authorised),
                    Passage::Once(number) => {
                        self.keep_passed(now, number, tombstone);
                        authorised.later()
                    }
                    Passage::Saving => authorised.later(),
                    Passage::Held => authorised.held(Reason::FuseHeld),
                }
            }
            Verdict::Orphan(authorised) => {
                self.guards.fuse.withdraw(tombstone);
                Verdict::Orphan(authorised)
            }
            Verdict::Inspect
            | Verdict::Read
            | Verdict::TransferOwnership
            | Verdict::Forget
            | Verdict::Hold(_)
            | Verdict::Wait => verdict,
        }
    }

    /// Of the removals that would be held with this one, puts aside those that wait for a wave: they are not to go yet.
    fn excuse_gated(&mut self, now: Monotonic, tombstone: &Tombstone) {
        if !self.guards.gates.hold_any() {
            return;
        }
        for other in self.guards.fuse.about_to_be_held(tombstone, self.model.recorded) {
            if other != *tombstone
                && let Some(what) = self.gate_of(&other)
            {
                self.removal_waits_for_wave(now, &other, what);
            }
        }
    }

    /// A wave that a removal waited for is over. Removals freed with it are judged with it.
    pub(in crate::core) fn resume_freed(&mut self, now: Monotonic, tombstone: &Tombstone) {
        let Some(removal) = self.model.removals.get(tombstone).filter(|removal| !removal.is_done()) else { return };
        if removal.waits_for_wave() {
            self.removal_waits(now, tombstone);
        }
        if self.model.desired.get(&tombstone.key).is_none() && !is_approved_in_advance(&self.model, tombstone) {
            self.guards.fuse.ask(tombstone.clone());
        }
        if let Some(removal) = self.model.removals.get_mut(tombstone) {
            self.work.enqueue_removal(removal, tombstone);
        }
    }

    /// Has the journal know what passed before that is used: a restart must not restart the hour.
    fn keep_passed(&mut self, now: Monotonic, number: u64, tombstone: &Tombstone) {
        let Some(wave) = self.model.removals.get(tombstone).map(Removal::wave) else { return };
        // It is under way, so that no lower wave begins.
        self.work.hold_wave(now, wave);
        self.model.disk.write(Write::Passed { number, tombstone: tombstone.clone() });
        self.model.disk.then(Then::Passed(tombstone.clone(), wave));
    }

    /// The journal has it that this removal passed the fuse.
    pub(in crate::core) fn passed(&mut self, now: Monotonic, tombstone: &Tombstone, wave: i32) {
        self.work.release_wave(now, wave);
        self.guards.fuse.saved(tombstone);
        self.resume_removals(&tombstone.key);
    }

    /// Has the journal know what the fuse holds, all of it in one batch: a restart lets none of it through.
    pub(in crate::core) fn keep_held(&mut self) {
        let (held, unheld) = self.guards.fuse.take_unkept();
        for tombstone in held {
            self.model.disk.write(Write::Held(tombstone));
        }
        for tombstone in unheld {
            self.model.disk.write(Write::Unheld(tombstone));
        }
    }

    /// Drops from the journal what counts no more, when it is written anyway.
    pub(in crate::core) fn forget_passed(&mut self, now: Monotonic) {
        if self.model.disk.is_asked() {
            for number in self.guards.fuse.take_lapsed(now) {
                self.model.disk.write(Write::Lapsed { number });
            }
        }
    }

    /// It has its turn, or what must come first is under way.
    pub(super) fn removal_waits(&mut self, now: Monotonic, tombstone: &Tombstone) {
        self.model.forbidden_kinds.clear(&tombstone.key);
        self.removal_moves(now, tombstone, Removal::wait);
    }

    /// It leaves the queue until that wave is over, and is not counted against the fuse.
    fn removal_waits_for_wave(&mut self, now: Monotonic, tombstone: &Tombstone, what: String) {
        self.model.forbidden_kinds.clear(&tombstone.key);
        self.guards.fuse.excuse(tombstone);
        if let Some(removal) = self.model.removals.get_mut(tombstone) {
            self.work.dequeue_removal(removal, tombstone);
        }
        self.removal_moves(now, tombstone, |removal| removal.wait_for_wave(what));
    }

    /// The object is being deleted, and waits for its finalizers.
    pub(super) fn removal_finalizes(&mut self, now: Monotonic, tombstone: &Tombstone) {
        self.model.forbidden_kinds.clear(&tombstone.key);
        self.guards.fuse.excuse(tombstone);
        self.removal_moves(now, tombstone, Removal::finalize);
    }

    /// The last look or try came to this. A removal that only failed is still to be done, and counts against the fuse.
    pub(super) fn removal_is_held(&mut self, now: Monotonic, tombstone: &Tombstone, reason: Reason, message: String) {
        let refusal = (reason == Reason::Forbidden).then_some(&*message);
        self.model.forbidden_kinds.heard(&tombstone.key, refusal);
        if reason == Reason::NotEmpty {
            self.guards.fuse.excuse(tombstone);
        } else if reason == Reason::HistoryLost {
            self.guards.fuse.pause(tombstone);
        }
        self.removal_moves(now, tombstone, |removal| removal.hold(reason, message));
    }

    fn removal_moves(&mut self, now: Monotonic, tombstone: &Tombstone, go: impl FnOnce(&mut Removal) -> Moved) {
        let Some(removal) = self.model.removals.get_mut(tombstone) else { return };
        match go(removal) {
            Moved::Nowhere => return,
            Moved::Elsewhere => {}
            Moved::IntoFinalizing => self.work.finalizes(now, removal.wave()),
            // It is judged otherwise by now, and is not gone.
            Moved::OutOfFinalizing => self.work.finalized(None, removal.wave()),
        }
        self.dirty(&tombstone.key, now);
    }

    /// Has a removal judged again after a while, longer each time.
    pub(in crate::core) fn retry_removal(
        &mut self,
        now: Monotonic,
        tombstone: &Tombstone,
        not_before: Option<Duration>,
    ) {
        let Some(removal) = self.model.removals.get_mut(tombstone) else { return };
        removal.fail();
        let wait = self.jitter.half(removal.failures(), RETRY.0, RETRY.1).max(not_before.unwrap_or_default());
        self.work.retry_removal(removal, tombstone, now + wait);
        let (failures, state) = (removal.failures(), removal.state().clone());
        self.reporting.kube_events.held(&self.model, now, &tombstone.key, failures, &state);
    }
}

#[cfg(test)]
mod tests;
