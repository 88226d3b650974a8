//! What was ever so, on whichever line of history the hub is: the measure for deletions. And what people and other agents do
//! to a hub that was set back.

use std::collections::{BTreeMap, BTreeSet};

use tideline_common::limits::DESIRED_PAGE_ENTRIES_MAX;
use tideline_common::wire::v1::Decommission;
use tideline_common::{
    ApproveDeletions, Attestation, Monotonic, ObjectKey, PruneAdopted, RevisionId, Shown, TargetId, Tombstone, Uid,
    Unassignment, Version,
};
use tideline_hub::history_change::{Accepted, HistoryChange, Proof};
use tideline_hub::ledger::{Ledger, TargetContinuity};
use tideline_hub::link::core as link;
use tideline_hub::placement::Change;

use crate::hub::{Demand, Hub, approval_name, key};
use crate::ids::{OTHER_TARGET, parse};

/// One commit of any line of history, in the order in which they were made.
pub(crate) type CommitNumber = u64;

/// What is to become of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Intent {
    Keeps(Uid),
    /// The object is to stay, without our mark.
    Orphans,
    Empties,
}

/// For the one target with an agent. Not the hub's own memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    assigned: BTreeMap<ObjectKey, Uid>,
    /// Sources that were unassigned from their keys, in this line of history or in one that was lost.
    pub(crate) unassigned: BTreeSet<(ObjectKey, Uid)>,
    /// All that was ever assigned to a key: its object is removed, whichever source it is of, when nothing is assigned there
    /// any more.
    placed: BTreeMap<ObjectKey, BTreeSet<Uid>>,
    /// What a person approved, ever, and how many commits had been made by then.
    pub(crate) approved: BTreeMap<(ObjectKey, Uid), CommitNumber>,
    /// Everything that was ever placed with its deletion approved in advance.
    pub(crate) approved_in_advance: BTreeSet<(ObjectKey, Uid)>,
    /// Everything that was ever placed to be deleted though it was adopted.
    pub(crate) pruned_as_created: BTreeSet<(ObjectKey, Uid)>,
    /// Commits that were made, in every line of history.
    commits: CommitNumber,
    /// What people meant for each key, by the commit that says it.
    intents: BTreeMap<ObjectKey, BTreeMap<CommitNumber, Intent>>,
    /// The commits that a revision comes after.
    lines: BTreeMap<RevisionId, BTreeSet<CommitNumber>>,
    /// The commits that the agent knows of, or the hub that it took its last set from.
    known: BTreeSet<CommitNumber>,
    /// What the hub had heard of other agents when it first gave a set.
    answered: BTreeMap<(Version, RevisionId), BTreeSet<CommitNumber>>,
    /// The attestation that the agent of the other target has of its accepted set.
    other: Option<Attestation>,
}

impl History {
    /// Compares the set with the former one. `line` are the commits of the hub's disk.
    pub(crate) fn follow(&mut self, ledger: &Ledger, target: TargetId, line: &mut BTreeSet<CommitNumber>) {
        let view = ledger.target(target).expect("the target is registered");
        let placed = view.entries_with_policies().map(|(entry, policy)| {
            ((entry.key.clone(), entry.source.uid.clone()), policy.approve_deletions, policy.prune_adopted)
        });
        // A policy that changed in the commit that unassigns an object was never placed, and decides all the same.
        let gone = view.page(None, None, DESIRED_PAGE_ENTRIES_MAX).into_iter().flat_map(|page| page.tombstones);
        let gone = gone.map(|Unassignment { tombstone: Tombstone { key, source }, policy, at: _ }| {
            ((key, source), policy.approve_deletions, policy.prune_adopted)
        });
        for (removal, approve_deletions, prune_adopted) in placed.chain(gone) {
            if approve_deletions == ApproveDeletions::InAdvance {
                self.approved_in_advance.insert(removal.clone());
            }
            if prune_adopted == PruneAdopted::AsCreated {
                self.pruned_as_created.insert(removal);
            }
        }
        self.commits += 1;
        line.insert(self.commits);
        let now: BTreeMap<_, _> = view.entries().map(|entry| (entry.key.clone(), entry.source.uid.clone())).collect();
        let former = std::mem::replace(&mut self.assigned, now);
        for (key, uid) in &self.assigned {
            self.placed.entry(key.clone()).or_default().insert(uid.clone());
        }
        for (key, uid) in &former {
            match self.assigned.get(key) {
                Some(now) if now == uid => {}
                Some(_) => drop(self.unassigned.insert((key.clone(), uid.clone()))),
                None => self.unassigned.extend(self.placed[key].iter().map(|uid| (key.clone(), uid.clone()))),
            }
        }
        let changed: Vec<_> = former.keys().chain(self.assigned.keys()).collect();
        let changed: BTreeSet<_> =
            changed.into_iter().filter(|key| former.get(*key) != self.assigned.get(*key)).cloned().collect();
        if !changed.is_empty() {
            let page = view.page(None, None, 1_000);
            let tombstones = page.into_iter().flat_map(|page| page.tombstones);
            let orphaned: BTreeSet<_> =
                tombstones.filter(|gone| gone.policy.orphans()).map(|gone| gone.tombstone.key).collect();
            for key in changed {
                let intent = match self.assigned.get(&key) {
                    Some(source) => Intent::Keeps(source.clone()),
                    None if orphaned.contains(&key) => Intent::Orphans,
                    None => Intent::Empties,
                };
                self.intents.entry(key).or_default().insert(self.commits, intent);
            }
        }
        for target in [target, parse(OTHER_TARGET)] {
            let point = ledger.target(target).expect("it is registered").point();
            self.lines.entry(point.id).or_insert_with(|| line.clone());
        }
    }

    /// What it is told to keep.
    pub(crate) fn assigned(&self) -> impl Iterator<Item = &ObjectKey> {
        self.assigned.keys()
    }

    /// The hub was set back: sources that it does not know any more were not unassigned.
    pub(crate) fn jump(&mut self, ledger: &Ledger, target: TargetId) {
        let view = ledger.target(target).expect("the target is registered");
        self.assigned = view.entries().map(|entry| (entry.key.clone(), entry.source.uid.clone())).collect();
    }

    pub(crate) fn approve(&mut self, key: &ObjectKey, source: &Uid) {
        self.approved.insert((key.clone(), source.clone()), self.commits);
    }

    /// The agent accepted a set: it can prove all commits before it.
    pub(crate) fn on_attestation(&mut self, word: Attestation) {
        self.known.extend(self.lines.get(&word.point.id).into_iter().flatten());
        self.known.extend(self.answered.get(&(word.version, word.point.id)).into_iter().flatten());
    }

    /// The hub gives a set, knowing of these commits.
    pub(crate) fn answered(&mut self, word: Attestation, heard: &BTreeSet<CommitNumber>) {
        self.answered.entry((word.version, word.point.id)).or_insert_with(|| heard.clone());
    }

    /// Nothing is deleted that is kept or orphaned by the newest intent known to any agent that this hub has heard; but a
    /// person may have approved its deletion since. Intent that nobody knows of was lost, or is news to them.
    pub(crate) fn check_deletion(&self, key: &ObjectKey, source: &Uid) {
        let Some((commit, intent)) = self.newest_known(key) else { return };
        let approved = self.approved.get(&(key.clone(), source.clone())).is_some_and(|at| at >= commit);
        assert!(
            approved || *intent == Intent::Empties,
            "{key} of {source} is deleted, and the newest intent that an agent knows of is {intent:?}"
        );
    }

    /// Of those that anybody knows of.
    fn newest_known(&self, key: &ObjectKey) -> Option<(&CommitNumber, &Intent)> {
        let mut newest_first = self.intents.get(key)?.iter().rev();
        newest_first.find(|(commit, _)| self.known.contains(commit))
    }

    /// Whether a person approved that the last source assigned there is removed: that counts for its key, whatever has it.
    pub(crate) fn is_place_approved(&self, key: &ObjectKey) -> bool {
        let since = self.newest_known(key).map_or(0, |(commit, _)| *commit);
        self.approved.iter().any(|((removal, _), at)| removal == key && *at >= since)
    }

    /// No approval is sent for a key to which a hub that has these commits assigned anything since it was given.
    pub(crate) fn check_approved(&self, removals: &[Tombstone], line: &BTreeSet<CommitNumber>) {
        for removal in removals {
            let since = self.approved[&(removal.key.clone(), removal.source.clone())];
            let mut later = self.intents.get(&removal.key).into_iter().flat_map(|all| all.range(since + 1..));
            assert!(
                !later.any(|(commit, _)| line.contains(commit)),
                "that {} of {} is deleted was approved before something else was assigned there, and is told",
                removal.key,
                removal.source
            );
        }
    }
}

impl Hub {
    /// Whether a person has something to accept.
    pub(crate) fn is_broken(&self) -> bool {
        self.up && (self.ledger.is_broken() || self.ledger.missing().next().is_some())
    }

    /// A person accepts everything that is known to be missing.
    pub(crate) fn accept_history(&mut self) {
        self.accepts += 1;
        self.told.accepted.clone_from(&self.disk.missing);
        let shown = self.ledger.missing().map(|missing| (missing.shown.point.segment, missing.shown.version)).collect();
        let leaving = (self.disk.decommission != Decommission::No).then(|| self.target());
        let approvals = self.disk.approvals.keys().map(|number| approval_name(*number)).collect();
        let restored = self.ledger.restored().map(|restored| restored.id.clone());
        let accepted = Accepted { shown, restored, leaving: leaving.into_iter().collect(), approvals };
        let object = parse(&format!("acceptance-{}", self.accepts));
        self.change([Change::History(HistoryChange::Accept { object, accepted: Box::new(accepted) })]);
    }

    /// A person releases Jobs that may have run before history was lost.
    pub(crate) fn let_run(&mut self) {
        self.releases += 1;
        self.change([Change::LetRun(self.target(), format!("release {}", self.releases))]);
    }

    /// The agent of the other target shows the attestation of its last set, and accepts the present one.
    pub(crate) fn hear_the_other(&mut self) {
        let target: TargetId = parse(OTHER_TARGET);
        let former = self.history.other.map(|word| word.shown());
        if let Some((word, shown)) = self.history.other.zip(former) {
            assert!(word.is_by(&key().public()), "the word is another's");
            self.disk.heard.extend(self.history.lines.get(&word.point.id).into_iter().flatten());
            if let TargetContinuity::Broken { recorded: false } = self.ledger.continuity(target, former) {
                let shown_by = self.history.lines.get(&word.point.id).into_iter().flatten();
                self.told.missing.extend(shown_by.filter(|commit| !self.disk.line.contains(commit)));
                let proof = Proof::OwnWord;
                self.change([Change::History(HistoryChange::Shown { target, shown, proof })]);
            }
        }
        let view = self.ledger.target(target).expect("it is registered");
        let (version, point) = (view.version(), view.point());
        let newer = former.is_none_or(|former| former.version < version);
        if newer && let TargetContinuity::Whole { .. } = self.ledger.continuity(target, former) {
            self.history.other = Some(Attestation::unsigned(target, Shown { version, point }).sign(&key()));
        }
    }

    /// What a batch about other histories and approvals leads to.
    pub(crate) fn history_committed(
        &mut self,
        now: Monotonic,
        history: bool,
        voided: &BTreeSet<Uid>,
        out: &mut Vec<Demand>,
    ) {
        if history {
            let known = self.known();
            self.step(now, known, out);
        }
        if !voided.is_empty() {
            self.strike_void(now, voided, out);
        }
        self.assigned_since();
    }

    /// Approvals for keys that are assigned by now are void, once that is written.
    pub(crate) fn assigned_since(&mut self) {
        let view = self.ledger.target(self.target()).expect("it is registered");
        let mut changes = Vec::new();
        for (approval, removals) in self.approvals.of(self.target()) {
            let assigned = removals.iter().filter(|removal| view.entry(&removal.key).is_some());
            let at: BTreeSet<_> = assigned.map(|removal| removal.key.clone()).collect();
            if !at.is_empty() {
                let approval = approval.clone();
                changes.push(Change::History(HistoryChange::Assigned { approval, at }));
            }
        }
        self.change(changes);
    }

    pub(crate) fn strike_void(&mut self, now: Monotonic, voided: &BTreeSet<Uid>, out: &mut Vec<Demand>) {
        let ledger = &self.ledger;
        let is_void =
            |approval: &Uid, removal: &Tombstone| ledger.void(approval).is_some_and(|void| void.covers(&removal.key));
        let changed = self.approvals.strike(voided, is_void);
        self.step(now, link::Event::Approved(changed), out);
    }
}
