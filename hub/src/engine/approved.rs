use std::sync::Arc;

use tideline_common::wire::v1::ObjectReport;
use tideline_common::{Monotonic, ObjectKey, TargetId, Uid};

use super::Engine;
use crate::history_change::HistoryChange;
use crate::ledger::Void;
use crate::link::core as link;
use crate::placement::Change;
use crate::removal_guards::Approval;
use crate::summary::{TargetReports, Waiting};

impl Engine {
    /// The space shows an approval.
    pub fn approval_seen(&mut self, now: Monotonic, object: Uid, mut approval: Approval) {
        let target = approval.target;
        let void = self.ledger.void(&object);
        let left = approval.removals.iter().filter(|removal| !void.is_some_and(|void| void.covers(&removal.key)));
        approval.removals = left.cloned().collect();
        let changed = self.approvals.put(now, object.clone(), approval);
        self.void_what_is_over();
        self.step(now, link::Event::Approved(changed));
        self.assigned_before(target, object);
    }

    /// The space shows an approval that cannot be read. What was accepted or assigned meanwhile could not be struck from it, so
    /// that it is void from now on, also when it can be read again.
    pub fn approval_unreadable(&mut self, now: Monotonic, object: &Uid) {
        let changed = self.approvals.unreadable(object);
        self.void_what_is_over();
        self.step(now, link::Event::Approved(changed));
    }

    /// An approval is there of which nothing is known: none that was not seen is taken for gone.
    pub fn approval_unknown(&mut self) {
        self.approvals.saw_unknown();
    }

    /// Remembers it for later runs, which know nothing else of what is over.
    fn void_what_is_over(&mut self) {
        let over = self.approvals.take_over();
        let known = |approval: &Uid| self.ledger.void(approval) == Some(&Void::All);
        let over: Vec<_> = over.into_iter().filter(|approval| !known(approval)).collect();
        self.changes.extend(over.into_iter().map(|approval| Change::History(HistoryChange::Over(approval))));
    }

    pub fn approval_gone(&mut self, now: Monotonic, object: &Uid) {
        // Also where it is not written yet.
        if self.ledger.void(object).is_some() || self.approvals.is_over(object) {
            self.changes.push(Change::History(HistoryChange::ApprovalGone(object.clone())));
        }
        let changed = self.approvals.remove(object);
        self.step(now, link::Event::Approved(changed));
    }

    /// The approvals are read anew.
    pub fn approvals_reset(&mut self) {
        self.approvals.begin_listing();
    }

    /// Every approval that there is was seen.
    pub fn approvals_listed(&mut self, now: Monotonic) {
        // Nobody asks any more what is void of those that are gone.
        let gone = self.ledger.voided().filter(|approval| self.approvals.is_unseen(approval)).cloned();
        let gone: Vec<_> = gone.map(|approval| Change::History(HistoryChange::ApprovalGone(approval))).collect();
        self.changes.extend(gone);
        let changed = self.approvals.end_listing();
        self.step(now, link::Event::Approved(changed));
        self.accept_history();
    }

    pub(super) fn approvals_due(&mut self, now: Monotonic) {
        let changed = self.approvals.expire(now);
        self.void_what_is_over();
        if !changed.is_empty() {
            self.step(now, link::Event::Approved(changed));
        }
    }

    /// Whether a person has released anything at a target.
    pub fn releases_at(&self, target: TargetId) -> bool {
        self.approvals.releases_at(target)
    }

    /// How many removals at a target wait for a person; none if it has not reported to this run of the hub.
    pub fn waiting_for_approval(&self, target: TargetId) -> Option<Waiting> {
        self.summary.target(target).map(TargetReports::waiting)
    }

    /// Every removal that is held anywhere, for whatever reason, by target and then by key, behind one of them.
    pub fn held_deletions_after(
        &self,
        after: Option<(TargetId, &ObjectKey)>,
    ) -> impl Iterator<Item = (TargetId, &Arc<ObjectReport>)> {
        self.targets.iter_from(after.map(|(target, _)| target)).flat_map(move |(target, _)| {
            let after = after.filter(|(at, _)| *at == target).map(|(_, key)| key);
            let reports = self.summary.target(target).into_iter();
            reports.flat_map(move |reports| reports.held_after(after)).map(move |report| (target, report))
        })
    }
}
