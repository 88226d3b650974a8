//! From one accepted set to the next: first in the journal, then in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use tideline_common::health::Health;
use tideline_common::wire::v1::{ObjectReport, Progress, Terminal, TerminalFact};
use tideline_common::{
    Digest, Entry, Monotonic, ObjectKey, Origin, Prune, PrunePolicy, Reason, Takeover, Tombstone, Uid, Version,
};

use crate::core::Core;
use crate::core::decide::remove::wave_of;
use crate::core::interface::effect::Effects;
use crate::core::interface::write::{AppliedRecord, RemovalPolicy, Write};
use crate::core::model::change::Change;
use crate::core::model::disk::Then;
use crate::core::model::removal::{Cause, ORPHAN, Removal, RemovalState};

/// Entries that came at once after which the maps by key are packed: a thousand leave some 70 KB of gaps.
const PACK_MIN: usize = 1_000;

impl Core {
    /// Writes the new set and everything that must survive with it, all or nothing.
    pub(in crate::core) fn begin_switch(&mut self, mut change: Box<Change>) {
        self.resolve_policies(&mut change);
        let Change { accepted, put, remove, policies, tombstones, left_at: _, terminal, decommission } = &*change;
        self.model.disk.write(Write::Accept {
            accepted: *accepted,
            put: put.clone(),
            remove: remove.clone(),
            policies: policies.clone(),
        });
        for (tombstone, policy) in tombstones {
            // The hub's answer about an earlier removal is not about this one.
            self.reporting.reports.forget_removed(tombstone);
            self.reporting.reports.forget_overtaken(tombstone);
            let known = self.model.removals.get(tombstone).filter(|removal| removal.state != RemovalState::Done);
            if known.is_none_or(|removal| removal.cause != Cause::Unassigned || removal.policy != *policy) {
                self.model.disk.write(Write::Removing { tombstone: tombstone.clone(), policy: *policy });
            }
        }
        if *decommission != self.model.decommission {
            self.model.disk.write(Write::Decommission(*decommission));
        }
        for tombstone in self.left_by_keeping(&change) {
            self.model.disk.write(Write::Removing { tombstone, policy: ORPHAN });
        }
        for removal in self.lapsed_by(&change) {
            self.model.disk.write(Write::Removed(removal));
        }
        for fact in terminal {
            self.note_told(fact);
            self.model.told_ahead.insert(fact.key.clone());
        }
        self.model.disk.then(Then::Switched(change));
    }

    /// The last policy for a key counts for each removal that is under way there. A policy from before something was assigned
    /// there again counts for its own source alone.
    fn resolve_policies(&self, change: &mut Change) {
        let mut resolved = Vec::new();
        let put = change.put.iter().map(|entry| (&entry.key, Some(&entry.source.uid)));
        let changes = put.chain(change.remove.iter().map(|key| (key, None)));
        let changes: BTreeMap<_, _> = changes.filter(|_| !change.tombstones.is_empty()).collect();
        for (told, policy) in &change.tombstones {
            if let RemovalPolicy::Tombstone(policy) = *policy {
                // The present entry was to adopt an object that was due for orphaning, and has not yet.
                let policy = match self.model.desired.get(&told.key).filter(|_| self.model.is_overtaken(&told.key)) {
                    Some(entry) => policy.overtaken(self.takeover_of(entry)),
                    None => policy,
                };
                let policy = self.as_it_was_found(&told.key, policy);
                let kept = || self.model.desired.get(&told.key).map(|entry| &entry.source.uid);
                let assigned = changes.get(&told.key).copied().unwrap_or_else(kept);
                let open = self.model.open_removals_of(&told.key).map(|(tombstone, _)| tombstone);
                resolved.extend(open.chain([told]).map(|tombstone| {
                    let replaced = assigned.is_some_and(|source| *source != tombstone.source) && !policy.orphans();
                    let policy =
                        if replaced { RemovalPolicy::Absence(Some(policy)) } else { RemovalPolicy::Tombstone(policy) };
                    (tombstone.clone(), policy)
                }));
            }
        }
        for entry in &change.put {
            for (tombstone, removal) in self.model.open_removals_of(&entry.key) {
                if let RemovalPolicy::Tombstone(policy) = removal.policy
                    && !policy.orphans()
                    && tombstone.source != entry.source.uid
                    && !change.tombstones.contains_key(tombstone)
                {
                    resolved.push((tombstone.clone(), RemovalPolicy::Absence(Some(policy))));
                }
            }
        }
        for (tombstone, policy) in &change.tombstones {
            // It was due for orphaning, and then was assigned and unassigned again.
            if let RemovalPolicy::Absence(last) = policy
                && self.model.removals.get(tombstone).is_some_and(|removal| removal.policy.orphans())
            {
                let by =
                    self.model.desired.get(&tombstone.key).map_or(Takeover::Never, |entry| self.takeover_of(entry));
                let last = last.unwrap_or(PrunePolicy::LEAST).overtaken(by);
                resolved.push((tombstone.clone(), RemovalPolicy::Absence(Some(last))));
            }
        }
        change.tombstones.extend(resolved);
    }

    /// The policy for removing an object. One that would be orphaned because it was adopted, or is managed by others, is
    /// orphaned whatever is assigned to its key next, as if it had been created.
    fn as_it_was_found(&self, key: &ObjectKey, policy: PrunePolicy) -> PrunePolicy {
        let object = self.model.objects.get(key);
        let record = object.as_ref().and_then(|object| object.record.as_ref());
        let seen = object.as_ref().and_then(|object| object.seen());
        let origin = record.map(|record| record.origin).or(seen.and_then(|seen| Some(seen.mark.as_ref()?.origin)));
        let adopted = origin == Some(Origin::Adopted);
        let managed = !adopted && seen.is_some_and(|seen| seen.managed_elsewhere);
        if origin.is_some() && !policy.deletes(adopted, managed) {
            PrunePolicy { prune: Prune::Orphan, ..policy }
        } else {
            policy
        }
    }

    /// By what right an entry takes over foreign objects.
    fn takeover_of(&self, entry: &Entry) -> Takeover {
        let policy = self.model.policies.get(&entry.policy).map(|policy| policy.takeover);
        if entry.implied { Takeover::Always } else { policy.unwrap_or(Takeover::Never) }
    }

    pub(in crate::core) fn nothing_overtaken(&mut self, now: Monotonic, key: &ObjectKey) {
        for tombstone in self.model.overtaken(key).map(|(tombstone, _)| tombstone.clone()).collect::<Vec<_>>() {
            self.removal_done(now, &tombstone);
        }
    }

    /// The set is on disk: from now on it is the one in force.
    pub(in crate::core) fn switched(&mut self, now: Monotonic, change: Change, out: &mut Effects) {
        for removal in self.lapsed_by(&change) {
            self.forget_removal(&removal);
            self.dirty(&removal.key, now);
        }
        for removal in self.left_by_keeping(&change) {
            if let Some(removal) = self.model.removals.get_mut(&removal) {
                removal.policy = ORPHAN;
            }
        }
        let Change { accepted, put, remove, policies, tombstones, left_at, terminal, decommission } = change;
        let epoch = accepted.set.version.epoch;
        self.model.policies.extend(policies);
        self.sync.sets.accept(accepted);
        let many = put.len() >= PACK_MIN;
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
            if let Some(removal) = self.model.removals.get_mut(tombstone).filter(|it| it.state != RemovalState::Done) {
                removal.policy = *policy;
            }
        }
        let mut unnamed = Vec::new();
        for key in &remove {
            unnamed.extend(self.drop_entry(key));
            self.dirty(key, now);
        }
        for entry in put {
            let again = Tombstone { key: entry.key.clone(), source: entry.source.uid.clone() };
            unnamed.extend(self.put_entry(entry));
            if self.model.removals.get(&again).is_some_and(|removal| removal.state == RemovalState::Done) {
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
                removal.left = left;
            }
            self.enqueue(&key);
            self.dirty(&key, now);
        }
        // Without an authorised removal nobody reads the key, so what no list shows there is forgotten.
        for key in remove.iter().filter(|key| self.model.removals_of(key).next().is_none()).cloned().collect::<Vec<_>>()
        {
            self.forget_unshown(&key);
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
        if many {
            self.model.pack();
        }
        self.poll(now, out);
    }

    /// Stores an entry under its key. Returns the input that no entry names any more, if there is one.
    pub(in crate::core) fn put_entry(&mut self, entry: Arc<Entry>) -> Option<Digest> {
        let key = entry.key.clone();
        let unnamed = self.drop_entry_before(&key);
        let again = Tombstone { key: key.clone(), source: entry.source.uid.clone() };
        match self.model.removals.get(&again).map(|removal| removal.policy) {
            // Nothing says that it was ever unassigned.
            Some(RemovalPolicy::Absence(_)) => self.void_removal(&again),
            Some(RemovalPolicy::Tombstone(_)) => self.comes_back(&again),
            None => {}
        }
        self.guards.approvals.strike_at(&key);
        self.recall_run(&key, &again.source);
        self.model.kinds.refer(&key, &entry.version);
        self.model.kinds.speak(&key.kind, &entry.version);
        self.model.inputs.name(entry.input);
        self.work.untried(entry.wave);
        let object = self.model.objects.assign(&entry);
        object.work.assign();
        self.join_gates(&entry);
        self.model.desired.insert(entry);
        self.tell_gates(&key);
        self.tell_associates(&key);
        unnamed
    }

    fn drop_entry(&mut self, key: &ObjectKey) -> Option<Digest> {
        let unnamed = self.drop_entry_before(key);
        self.model.desired.remove(key);
        self.tell_associates(key);
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
        self.leave_gates(&former);
        self.model.kinds.unrefer(key);
        if self.model.objects.get(key).is_some_and(|object| !object.work.is_tried()) {
            self.work.tried(former.wave);
        }
        let input = former.input;
        self.model.inputs.unname(&input).then_some(input)
    }

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
                removal.cause = cause;
                removal.policy = policy;
            }
            let open = removal.state != RemovalState::Done;
            // It may have been assigned again meanwhile, and does not count then.
            if counts && open && cause == Cause::Unassigned && !self.is_approved_in_advance(&tombstone) {
                self.guards.fuse.ask(tombstone);
            }
            return;
        }
        let version = former.map(|entry| Arc::clone(&entry.version));
        self.model.kinds.refer(key, version.as_ref().unwrap_or(&Arc::default()));
        let record = self.model.objects.at(key).record.as_ref();
        let recorded = record.filter(|record| record.source == tombstone.source).and_then(|record| record.wave);
        let removal = Removal {
            cause,
            policy,
            last: former.map(|entry| entry.policy),
            wave: former.map(|entry| entry.wave).or(recorded).unwrap_or_else(|| wave_of(&key.kind)),
            version,
            ..Removal::default()
        };
        self.work.enqueue_removal(removal.wave, tombstone.clone());
        self.model.removals.insert(tombstone.clone(), removal);
        if counts && !self.is_approved_in_advance(&tombstone) {
            self.guards.fuse.ask(tombstone);
        }
    }

    /// A removal is asked for that was done, and the hub has not acknowledged it. If its source was assigned in between, which
    /// a tombstone of another set says, it is another removal; else the hub may not know that it was done.
    fn asked_again(&mut self, now: Monotonic, tombstone: &Tombstone, left: Option<Version>) {
        let done = self.model.removals.get(tombstone).filter(|removal| removal.state == RemovalState::Done);
        let Some(known) = done.map(|removal| removal.left) else { return };
        if left.is_none() || known != left {
            self.forget_removal(tombstone);
        } else if self.model.is_assigned_again(tombstone) {
            self.reporting.reports.overtaken(tombstone.clone(), now);
        } else {
            self.reporting.reports.removed(tombstone.clone(), now);
        }
    }

    /// A source that was missing is assigned again, and nothing says that it was ever unassigned.
    pub(in crate::core) fn void_removal(&mut self, tombstone: &Tombstone) {
        self.model.disk.write(Write::Removed(tombstone.clone()));
        self.forget_removal(tombstone);
    }

    /// The hub knows that the removal is done, or it is void.
    pub(in crate::core) fn forget_removal(&mut self, tombstone: &Tombstone) {
        if let Some(removal) = self.model.removals.remove(tombstone) {
            self.work.forget_removal(&removal, tombstone);
            if removal.state == RemovalState::Finalizing {
                self.work.finalized(removal.wave);
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
        if std::mem::replace(&mut removal.state, RemovalState::Done) == RemovalState::Finalizing {
            self.work.finalized(removal.wave);
        }
        self.work.wake_removal(removal, tombstone);
        self.guards.fuse.withdraw(tombstone);
        // It was used: an object that reappears there needs another one.
        self.guards.approvals.strike(tombstone);
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
            self.tell_gates(key);
            return self.reporting.reports.overtaken(tombstone.clone(), now);
        }
        if let Some(object) = self.model.objects.get_mut(key)
            && object.happened(&tombstone.source).is_some()
        {
            self.remember_run(key);
            if let Some(object) = self.model.objects.get_mut(key) {
                object.terminal = None;
            }
            self.model.disk.write(Write::Sent { key: key.clone() });
        }
        self.reporting.reports.removed(tombstone.clone(), now);
    }

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

    /// Remembers a terminal fact across restarts: the cluster may not show it any more by then. A finished Job stays finished,
    /// whatever is heard late.
    pub(in crate::core) fn note_terminal(&mut self, key: &ObjectKey, source_uid: Uid, fact: Terminal) {
        let known = self.model.objects.at(key).happened(&source_uid);
        if !fact.is_news_after(known) {
            return;
        }
        if known.is_none() {
            self.remember_run(key);
        }
        let object = self.model.objects.at(key);
        object.terminal = Some((source_uid.clone(), fact));
        self.model.disk.write(Write::Unsent(Box::new(ObjectReport {
            key: key.clone(),
            source_uid,
            progress: Progress::Applied,
            reason: None,
            message: String::new(),
            input: object.record.as_ref().map(|record| record.input),
            health: Health::Unknown,
            observed_generation: None,
            terminal: Some(fact),
            status: None,
        })));
    }

    /// What a creation may have left there is nobody's to remove.
    fn forget_unshown(&mut self, key: &ObjectKey) {
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
                self.remember_run(key);
                self.model.disk.write(Write::Sent { key: key.clone() });
            }
            self.model.came_back_no_more(key);
            self.dequeue(key);
            self.model.forbidden_kinds.clear(key);
            self.model.not_admitted.clear(key);
            self.model.objects.remove(key);
        }
    }
}
