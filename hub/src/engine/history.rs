use std::collections::BTreeSet;

use roaring::RoaringBitmap;
use tideline_common::wire::v1::Decommission;
use tideline_common::{Monotonic, ObjectKey, TargetId, Tombstone, Uid};
use tracing::{error, info};

use super::Engine;
use crate::history_break::{claim, say};
use crate::history_change::{Accepted, HistoryChange};
use crate::ledger::TargetContinuity;
use crate::link::core as link;
use crate::placement::Change;

impl Engine {
    /// A person accepts that history was lost, by this object. To be told again does no harm.
    pub fn history_accepted(&mut self, object: Uid, accepted: Accepted) {
        self.acceptances.extend([object.clone()]);
        self.accepted.push((object, accepted));
        self.accept_history();
    }

    /// Whoever is offered a target shows a set of this history: what was claimed there before is of no account.
    pub(super) fn claims_no_more(&mut self, target: TargetId) {
        let whole = |engine: &Self| {
            let continuity = engine.ledger.continuity(target, engine.link.shown_for_offer(target));
            matches!(continuity, TargetContinuity::Whole { .. })
        };
        if self.ledger.claimed(target).is_some() && whole(self) {
            self.changes.push(Change::History(HistoryChange::Unclaimed(target)));
        }
    }

    pub fn acceptance_gone(&mut self, object: Uid) {
        self.acceptances.remove(&object);
        self.changes.push(Change::History(HistoryChange::AcceptanceGone(object)));
    }

    /// The acceptance is there and cannot be read: that it was heeded is remembered.
    pub fn acceptance_unreadable(&mut self, object: Uid) {
        self.acceptances.insert(object);
    }

    /// The acceptances are read anew.
    pub fn acceptances_reset(&mut self) {
        self.acceptances.clear();
    }

    /// Every acceptance that there is was seen; what was not is gone.
    pub fn acceptances_listed(&mut self) {
        let gone = self.ledger.heeded().filter(|object| !self.acceptances.contains(*object)).cloned();
        let gone: Vec<_> = gone.map(|object| Change::History(HistoryChange::AcceptanceGone(object))).collect();
        self.changes.extend(gone);
    }

    /// At the start, and when that is otherwise, for whoever reads the log.
    pub(crate) fn say_history(&mut self) {
        let sentence = sentence_of(self);
        match &sentence {
            Some(sentence) if self.history_said.as_ref() != Some(sentence) => error!("{sentence}"),
            None if self.history_said.is_some() => info!("the history is accepted: sets go out again"),
            Some(_) | None => {}
        }
        self.history_said = sentence;
    }

    /// Why a target is told of no set, if it is so, and what to do.
    pub fn history_sentence(&self, target: TargetId) -> Option<String> {
        let said: Vec<_> = sentence_of(self).into_iter().chain(claim_of(self, target)).collect();
        (!said.is_empty()).then(|| said.join(" Besides, "))
    }

    /// Accepts what a person accepted, once it is known what was approved and said before.
    pub(super) fn accept_history(&mut self) {
        if !self.approvals.is_known() || !self.targets.is_known() {
            return;
        }
        for (object, accepted) in std::mem::take(&mut self.accepted) {
            // Also those that have no agent now: the one that comes must not be told what was perhaps taken back. And those that
            // cannot be read now: what they say once they can be read may be older than this accept.
            let leaving = self.targets.perhaps_leaving();
            let approvals = self.approvals.objects().cloned().collect();
            let accepted = Accepted { leaving, approvals, ..accepted };
            let accepted = Box::new(accepted);
            self.changes.push(Change::History(HistoryChange::Accept { object, accepted }));
        }
    }

    /// What is known of other histories, or was accepted of them, has changed, and concerns these targets.
    pub(super) fn history_changed(&mut self, now: Monotonic, concerned: &RoaringBitmap) {
        self.say_history();
        let targets: Vec<TargetId> = concerned.iter().filter_map(|index| self.ledger.target_at(index)).collect();
        self.dirty.targets.extend(&targets);
        for target in targets {
            self.tell_link(now, target);
        }
    }

    /// Tells the link what the inventory has of a target. That it leaves service was perhaps taken back by what was lost.
    pub(super) fn tell_link(&mut self, now: Monotonic, target: TargetId) {
        let Some(outline) = self.targets.get(target) else { return };
        // An annotation that was lost says nothing about where the agent may be.
        let remembered = || self.remembered(target)?.cluster.clone();
        let cluster = outline.record.cluster.clone().or_else(remembered);
        let unexplained = self.ledger.leaving_is_unexplained(target);
        let decommission = if unexplained { Decommission::No } else { outline.record.decommission };
        let holder = Box::new(self.targets.holder(target));
        self.step(now, link::Event::TargetKnown { target, cluster, holder, decommission });
    }

    /// Drops from these approvals what they do not approve any more.
    pub(super) fn void_approvals(&mut self, now: Monotonic, voided: &BTreeSet<Uid>) {
        let ledger = &self.ledger;
        let is_void =
            |approval: &Uid, removal: &Tombstone| ledger.void(approval).is_some_and(|void| void.covers(&removal.key));
        let changed = self.approvals.strike(voided, is_void);
        if !changed.is_empty() {
            self.step(now, link::Event::Approved(changed));
        }
    }

    /// Something is assigned at these targets: whatever was approved there is void where it is.
    pub(super) fn assigned_since(&mut self, targets: &[TargetId]) {
        let approvals = targets.iter().flat_map(|target| {
            let approvals = self.approvals.of(*target);
            approvals.map(|(approval, removals)| (approval.clone(), self.assigned_at(*target, removals)))
        });
        let void = approvals.filter(|(_, at)| !at.is_empty());
        let changes: Vec<_> = void.map(|(approval, at)| HistoryChange::Assigned { approval, at }).collect();
        self.changes.extend(changes.into_iter().map(Change::History));
    }

    /// An approval is seen: where something is assigned by now, it is void.
    pub(super) fn assigned_before(&mut self, target: TargetId, approval: Uid) {
        let at = self.assigned_at(target, self.approvals.removals(&approval));
        if !at.is_empty() {
            self.changes.push(Change::History(HistoryChange::Assigned { approval, at }));
        }
    }

    /// Of approvals, what these removals have done.
    pub(super) fn spent(&self, target: TargetId, removed: &[Tombstone]) -> Vec<HistoryChange> {
        if removed.is_empty() {
            return Vec::new();
        }
        let removed: BTreeSet<_> = removed.iter().collect();
        let spent = self.approvals.of(target).map(|(approval, removals)| {
            let void = self.ledger.void(approval);
            let is_void = |removal: &Tombstone| void.is_some_and(|void| void.covers(&removal.key));
            let done = removals.iter().filter(|removal| removed.contains(removal) && !is_void(removal));
            HistoryChange::Spent { approval: approval.clone(), at: done.map(|removal| removal.key.clone()).collect() }
        });
        spent.filter(|change| matches!(change, HistoryChange::Spent { at, .. } if !at.is_empty())).collect()
    }

    /// Where a target has something of what is approved to be removed.
    fn assigned_at(&self, target: TargetId, removals: &[Tombstone]) -> BTreeSet<ObjectKey> {
        let Some(view) = self.ledger.target(target) else { return BTreeSet::new() };
        let assigned = removals.iter().filter(|removal| view.entry(&removal.key).is_some());
        assigned.map(|removal| removal.key.clone()).collect()
    }
}

/// Why no target is told of a set, as every SyncTarget says it: without names and numbers, for what more becomes known
/// changes nothing for it, and would be written into all of them.
fn sentence_of(engine: &Engine) -> Option<String> {
    let unknown = engine.ledger.missing().any(|missing| missing.proven).then(|| {
        "Clusters were given sets that this hub does not know of; tideline-hub history show names them.".to_owned()
    });
    say(engine.ledger.restored().map(|restored| restored.made.as_str()), unknown)
}

/// What the agent of this target claims, if anything.
fn claim_of(engine: &Engine, target: TargetId) -> Option<String> {
    let claimed = engine.ledger.claimed(target)?;
    Some(claim(&engine.target_name(target), claimed.version))
}
