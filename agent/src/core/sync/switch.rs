//! From one accepted set to the next: first in the journal, then in memory.

use std::sync::Arc;

use tideline_common::wire::v1::TerminalFact;
use tideline_common::{Digest, Entry, Monotonic, ObjectKey, Reason, Tombstone, Version};

use crate::core::Core;
use crate::core::decide::removal_policy::resolve_policies;
use crate::core::interface::effect::Effects;
use crate::core::interface::write::{RemovalPolicy, Write};
use crate::core::model::change::Change;
use crate::core::model::disk::Then;
use crate::core::model::removal::{Cause, ORPHAN, Removal};

/// Entries that came at once after which the maps by key are packed: a thousand leave some 70 KB of gaps.
const PACK_MIN: usize = 1_000;

impl Core {
    /// Writes the new set and everything that must survive with it, all or nothing.
    pub(in crate::core) fn begin_switch(&mut self, mut change: Box<Change>) {
        resolve_policies(&self.model, &mut change);
        let Change { accepted, put, remove, policies, tombstones, left_at: _, terminal, decommission } = &*change;
        self.model.disk.write(Write::Accept {
            accepted: Box::new(*accepted),
            put: put.clone(),
            remove: remove.clone(),
            policies: policies.clone(),
        });
        for (tombstone, policy) in tombstones {
            // The hub's answer about an earlier removal is not about this one.
            self.reporting.reports.forget_removed(tombstone);
            self.reporting.reports.forget_overtaken(tombstone);
            let known = self.model.removals.get(tombstone).filter(|removal| !removal.is_done());
            if known.is_none_or(|removal| removal.cause() != Cause::Unassigned || removal.policy() != *policy) {
                self.model.disk.write(Write::Removing { tombstone: tombstone.clone(), policy: *policy });
            }
        }
        if *decommission != self.model.decommission {
            self.model.disk.write(Write::Decommission(*decommission));
        }
        for tombstone in self.model.left_by_keeping(&change) {
            self.model.disk.write(Write::Removing { tombstone, policy: ORPHAN });
        }
        for removal in self.lapsed_by(&change) {
            self.model.disk.write(Write::Removed(removal));
        }
        for fact in terminal {
            self.guards.ran.note_told(&mut self.model, fact);
            self.model.told_ahead.insert(fact.key.clone());
        }
        self.model.disk.then(Then::Switched(change));
    }

    /// The set is on disk: from now on it is the one in force.
    pub(in crate::core) fn switched(&mut self, now: Monotonic, change: Change, out: &mut Effects) {
        for removal in self.lapsed_by(&change) {
            self.forget_removal(&removal);
            self.dirty(&removal.key, now);
        }
        for removal in self.model.left_by_keeping(&change) {
            if let Some(removal) = self.model.removals.get_mut(&removal) {
                removal.govern(ORPHAN);
            }
        }
        let Change { accepted, put, remove, policies, tombstones, left_at, terminal, decommission } = change;
        let epoch = accepted.set.version.epoch;
        self.model.policies.extend(policies);
        self.sync.sets.accept(accepted);
        let many = put.len().max(tombstones.len()) >= PACK_MIN;
        if std::mem::take(&mut self.model.lacks_bodies) {
            // The bodies came with this set, and no other event says so.
            let lacks = |key: &&ObjectKey| {
                let object = self.model.objects.get(key);
                object.is_some_and(|object| object.outcome.reason == Some(Reason::BodyMissing))
            };
            for key in self.model.objects.not_at_rest().filter(lacks).cloned().collect::<Vec<_>>() {
                self.enqueue(&key);
            }
        }
        let mut waves = Vec::with_capacity(tombstones.len());
        for Tombstone { key, .. } in tombstones.keys() {
            waves.push(self.model.desired.get(key).cloned());
        }
        for (tombstone, policy) in &tombstones {
            // New entries are judged by the policies of now.
            if let Some(removal) = self.model.removals.get_mut(tombstone) {
                removal.govern(*policy);
            }
        }
        let mut unnamed = Vec::new();
        for key in &remove {
            self.model.compact_if_many();
            unnamed.extend(self.drop_entry(key));
            self.dirty(key, now);
        }
        for entry in put {
            let again = Tombstone { key: entry.key.clone(), source: entry.source.uid.clone() };
            unnamed.extend(self.put_entry(entry));
            if self.model.removals.get(&again).is_some_and(Removal::is_done) {
                // It was removed while this was fetched.
                self.reporting.reports.overtaken(again.clone(), now);
            }
            let key = again.key;
            self.enqueue(&key);
            self.dirty(&key, now);
        }
        for ((tombstone, policy), former) in tombstones.into_iter().zip(waves) {
            let key = tombstone.key.clone();
            let left = left_at.get(&key).map(|revision| Version { epoch, revision: *revision });
            self.asked_again(now, &tombstone, left);
            self.put_removal(tombstone.clone(), policy, former.as_deref(), Cause::Unassigned);
            if let Some(removal) = self.model.removals.get_mut(&tombstone) {
                removal.set_left(left);
            }
            self.enqueue(&key);
            self.dirty(&key, now);
        }
        // Without an authorised removal nobody reads the key, so what no list shows there is forgotten.
        for key in remove.iter().filter(|key| self.model.removals_of(key).next().is_none()).cloned().collect::<Vec<_>>()
        {
            self.model.compact_if_many();
            self.forget_unshown(&key);
            self.look_for(&key);
        }
        // A released fact is not recorded anew.
        for TerminalFact { key, .. } in terminal {
            self.model.told_ahead.remove(&key);
            self.enqueue(&key);
            self.dirty(&key, now);
            self.forget_if_empty(&key);
        }
        self.decommission(now, decommission);
        self.history_whole(now);
        if self.sync.session.take_strays() {
            self.model.drop_bodies();
        } else {
            let unnamed = self.model.inputs.take_unnamed(unnamed);
            self.model.drop_inputs(unnamed);
        }
        self.model.drop_policies(self.work.policies_in_flight());
        if many {
            self.model.pack();
            self.work.pack();
        }
        self.poll(now, out);
    }

    /// Stores an entry under its key. Returns the input that no entry names any more, if there is one.
    pub(in crate::core) fn put_entry(&mut self, entry: Arc<Entry>) -> Option<Digest> {
        let key = entry.key.clone();
        let unnamed = self.drop_entry_before(&key);
        let again = Tombstone { key: key.clone(), source: entry.source.uid.clone() };
        match self.model.removals.get(&again).map(Removal::policy) {
            // Nothing says that it was ever unassigned.
            Some(RemovalPolicy::Absence(_)) => self.void_removal(&again),
            Some(RemovalPolicy::Tombstone(_)) => self.comes_back(&again),
            None => {}
        }
        self.guards.approvals.withdraw_at(&key);
        self.guards.ran.recall(&mut self.model, &key, &again.source);
        self.model.kinds.refer(&key, &entry.version);
        self.model.kinds.speak(&key.kind, &entry.version);
        self.model.inputs.name(entry.input);
        self.work.untried(entry.wave);
        let object = self.model.objects.assign(&entry);
        object.work.assign();
        self.guards.gates.enter(&self.model, &entry);
        self.model.desired.insert(entry);
        self.guards.gates.update(&self.model, &key);
        self.reporting.associates.update(&self.model, &key);
        unnamed
    }

    fn drop_entry(&mut self, key: &ObjectKey) -> Option<Digest> {
        let unnamed = self.drop_entry_before(key);
        self.model.desired.remove(key);
        self.reporting.associates.update(&self.model, key);
        self.dequeue(key);
        if let Some(object) = self.model.objects.get_mut(key) {
            object.outcome = crate::core::model::object::Outcome::default();
        }
        self.forget_if_empty(key);
        unnamed
    }

    /// Undoes what an entry meant for other parts of the state.
    fn drop_entry_before(&mut self, key: &ObjectKey) -> Option<Digest> {
        let former = Arc::clone(self.model.desired.get(key)?);
        self.guards.gates.exit(&self.model, &former);
        self.model.kinds.unrefer(key);
        if self.model.objects.get(key).is_some_and(|object| !object.work.is_tried()) {
            self.work.tried(former.wave);
        }
        let input = former.input;
        self.model.inputs.unname(&input).then_some(input)
    }

    /// A removal is asked for that was done, and the hub has not acknowledged it. If its source was assigned in between, which
    /// a tombstone of another set says, it is another removal; else the hub may not know that it was done.
    fn asked_again(&mut self, now: Monotonic, tombstone: &Tombstone, left: Option<Version>) {
        let done = self.model.removals.get(tombstone).filter(|removal| removal.is_done());
        let Some(known) = done.map(Removal::left) else { return };
        if left.is_none() || known != left {
            self.forget_removal(tombstone);
        } else if self.model.is_assigned_again(tombstone) {
            self.reporting.reports.overtaken(tombstone.clone(), now);
        } else {
            self.reporting.reports.removed(tombstone.clone(), now);
        }
    }
}
