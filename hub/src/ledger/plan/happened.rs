//! What happened once at targets, and what targets are to keep, as a batch leaves it.

use std::collections::{BTreeMap, BTreeSet};

use roaring::RoaringBitmap;
use tideline_common::wire::v1::{Terminal, TerminalFact};
use tideline_common::{ObjectKey, PrunePolicy, TargetId, Uid};

use super::super::happened::outlives_assignment;
use super::super::slot::Difference;
use super::super::tombstones::Tombstones;
use super::super::{DEPARTED_MAX, Happened, TargetIndex, holder};
use super::{Draft, staged};

impl Draft<'_> {
    /// Targets keep what they have. Their agents may not have heard yet what they were to delete.
    pub(super) fn let_go(&mut self) {
        if self.keeps.is_empty() {
            return;
        }
        for (key, by_source) in self.ledger.tombstones.places() {
            for (source, known) in by_source {
                let deletes = deleted_at(known) & &self.keeps;
                if deletes.is_empty() {
                    continue;
                }
                if let Some(tombstones) =
                    staged(&mut self.tombstones, self.ledger.tombstones.places(), key).get_mut(source)
                {
                    tombstones.remove(&deletes);
                    tombstones.put((PrunePolicy::LEAST, self.next), deletes.clone());
                    *self.news.entry(key.clone()).or_default() |= deletes;
                }
            }
        }
    }

    /// Of what is assigned there, and of what is to be removed there that it ran; what is said of anything else comes late.
    /// What is `inherited` was true before anything was assigned there, and nobody but the hub has it from the agent: it is kept
    /// for what may be assigned there later, as placement does after the target was registered. Only of what has left there
    /// again, it says nothing any more. Its tombstone shows that, for the hub inherits no more once the agent has come, and before
    /// that nobody confirms a removal; and what its agent removed by approval without a tombstone, it says.
    pub(super) fn happened(&mut self, target: TargetId, fact: TerminalFact, inherited: bool) {
        let Some(index) = self.ledger.index_of(target).or(self.registered.get(&target).copied()) else { return };
        let TerminalFact { key, source_uid, fact } = fact;
        let held = holder(self.ledger.slots.claims(&key), index);
        let assigned = held.is_some_and(|(claim, _)| claim.id.source.uid == source_uid);
        let left_at = |by_source: &BTreeMap<Uid, Tombstones>| Some(by_source.get(&source_uid)?.at(index)?.1);
        let left = self.ledger.tombstones.at(&key).and_then(left_at);
        let ran = fact == Terminal::Finished && left.is_some();
        // Assigned again it is created again, and its agent has not said yet that it knows of that.
        let open = self.tombstones.get(&key).map_or(left, left_at);
        let made = matches!(fact, Terminal::CreatedOnce | Terminal::Started);
        let early = made && open.is_some() && !inherited;
        let said = ran
            || if inherited {
                assigned || open.is_none() || outlives_assignment(fact)
            } else {
                assigned && fact.happened()
            };
        if said && !early && fact != Terminal::Unknown {
            let there = staged(&mut self.happened, &self.ledger.happened, &key);
            let happened = there.entry(source_uid).or_default();
            if happened.hear(index, fact, inherited) {
                // What is inherited for later counts as having left now: of what is remembered so, the oldest is forgotten first.
                let left = left.or((inherited && !assigned).then_some(self.next));
                happened.left = happened.left.max(left.unwrap_or_default());
                self.news.entry(key).or_default().insert(index);
            }
        }
    }

    /// A person accepted that history was lost. What was assigned by then and runs once may have run in the history that is
    /// lost, and its agent may have lost the memory of it too.
    pub(super) fn doubt_what_ran(&mut self) {
        for claim in self.ledger.claims.values().filter(|claim| claim.runs_once()) {
            let there = staged(&mut self.happened, &self.ledger.happened, &claim.key);
            let happened = there.entry(claim.id.source.uid.clone()).or_default();
            let mut doubtful = claim.targets() - happened.of(Terminal::Finished) - happened.of(Terminal::Started);
            doubtful -= claim.made_once() & happened.of(Terminal::CreatedOnce);
            happened.note_all(&doubtful, Terminal::MayHaveRun);
            *self.news.entry(claim.key.clone()).or_default() |= doubtful;
        }
    }

    /// A person says, in these words, that what may have run at a target is to run there: of what is assigned there by then.
    pub(super) fn let_run(&mut self, target: TargetId, word: &str) {
        let Some(index) = self.ledger.index_of(target) else { return };
        if !self.broken.let_run(self.ledger, target, word) {
            return;
        }
        let doubted = |happened: &Happened| happened.at(index) == Some(Terminal::MayHaveRun);
        let all = self.ledger.happened.iter().chain(&self.happened);
        let keys: BTreeSet<_> =
            all.filter(|(_, there)| there.values().any(doubted)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            let held = holder(self.ledger.slots.claims(&key), index).map(|(claim, _)| &claim.id.source.uid);
            let there = staged(&mut self.happened, &self.ledger.happened, &key);
            let happened = held.and_then(|source| there.get_mut(source)).filter(|happened| doubted(happened));
            if let Some(happened) = happened {
                happened.note(index, Terminal::Released);
                self.news.entry(key).or_default().insert(index);
            }
        }
    }

    /// Of more sources that are gone than are remembered, those that left first run again if they come back.
    pub(super) fn forget_the_departed(&mut self) {
        let many = self.ledger.departed.len().saturating_sub(DEPARTED_MAX);
        let back: BTreeSet<_> = self.slots.iter().filter(|_| many > 0).map(|(slot, ..)| slot).collect();
        for (_, key, source) in self.ledger.departed.keys().take(many) {
            let there = staged(&mut self.happened, &self.ledger.happened, key);
            if let Some(happened) = there.get_mut(source).filter(|_| !back.contains(key)) {
                *happened = Happened::default();
            }
        }
    }

    /// Its agent has said what it did about a removal: a Job that had started, and that it does not say to have finished, begins
    /// anew if it comes back.
    pub(super) fn forget_started(&mut self, key: &ObjectKey, source: &Uid, targets: &RoaringBitmap) {
        if self.ledger.happened.contains_key(key) || self.happened.contains_key(key) {
            let there = staged(&mut self.happened, &self.ledger.happened, key);
            if let Some(happened) = there.get_mut(source) {
                happened.forget(&(happened.of(Terminal::Started) & targets));
            }
        }
    }

    /// Its agent removed what was never assigned there under this hub: it begins anew if it comes.
    pub(super) fn forget_inherited(&mut self, key: &ObjectKey, source: &Uid, index: TargetIndex) {
        let assigned =
            holder(self.ledger.slots.claims(key), index).is_some_and(|(claim, _)| claim.id.source.uid == *source);
        let begins_anew = |happened: &Happened| happened.at(index).is_some_and(|fact| !outlives_assignment(fact));
        let known = self.ledger.happened.get(key).and_then(|there| there.get(source));
        if !assigned && known.is_some_and(begins_anew) {
            let there = staged(&mut self.happened, &self.ledger.happened, key);
            there.entry(source.clone()).or_default().leave(&RoaringBitmap::from_iter([index]), self.next);
        }
    }

    /// Of sources that are not assigned where they were.
    pub(super) fn forget_what_happened(&mut self, key: &ObjectKey, difference: &Difference) {
        if !self.ledger.happened.contains_key(key) && !self.happened.contains_key(key) {
            return;
        }
        let there = staged(&mut self.happened, &self.ledger.happened, key);
        for (source, targets) in difference.left.iter().chain(&difference.handed_over) {
            let targets = targets & &self.valid;
            if let Some(happened) = there.get_mut(source).filter(|_| !targets.is_empty()) {
                happened.leave(&targets, self.next);
            }
        }
    }
}

/// The targets that are to delete it.
fn deleted_at(tombstones: &Tombstones) -> RoaringBitmap {
    let deletes = tombstones.policies().filter(|((policy, _), _)| !policy.orphans());
    deletes.fold(RoaringBitmap::new(), |all, (_, targets)| all | targets)
}
