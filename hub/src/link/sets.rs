use tideline_common::wire::v1::{ApprovedHeld, ApprovedPage};
use tideline_common::{
    Capabilities, Capability, Digest, EntryState, Monotonic, ObjectKey, Reason, Revision, Shown, TargetId, Version,
};

use super::core::{SetInfo, SetPage, Sets};
use crate::approvals::Approvals;
use crate::ledger::{Ledger, TargetContinuity};

/// What the link tells agents: their sets, and what was approved.
#[derive(Clone, Copy, Debug)]
pub struct Desk<'a> {
    pub ledger: &'a Ledger,
    pub approvals: &'a Approvals,
}

impl Sets for Desk<'_> {
    fn info(&self, target: TargetId) -> Option<SetInfo> {
        let view = self.ledger.target(target)?;
        let (version, point, digest) = (view.version(), view.point(), view.digest());
        Some(SetInfo { version, point, digest, entries: view.len() as u64 })
    }

    fn page(
        &self,
        target: TargetId,
        since: Option<Revision>,
        after: Option<&ObjectKey>,
        limit: usize,
    ) -> Option<SetPage> {
        let view = self.ledger.target(target)?;
        let since = since.map(|revision| Version { epoch: view.epoch(), revision });
        let page = view.page(since, after, limit)?;
        // What is withheld is not run, so that nothing of it is to be known; and of what ran before its policy changed nothing
        // by an agent that does not know what that is.
        let understands = view.understands(Capability::RunOnce);
        let told = page.entries.iter().filter(|entry| entry.state != EntryState::Withheld(Reason::AgentTooOld));
        let terminal = told.filter(|_| understands).filter_map(|entry| view.happened(&entry.key)).collect();
        Some(SetPage {
            entries: page.entries,
            tombstones: page.tombstones,
            policies: page.policies,
            terminal,
            next: page.next,
        })
    }

    fn continuity(&self, target: TargetId, shown: Option<Shown>) -> TargetContinuity {
        self.ledger.continuity(target, shown)
    }

    fn is_told_to(&self, target: TargetId, understands: &Capabilities) -> bool {
        self.ledger.is_told_to(target, understands)
    }

    fn names(&self, target: TargetId, key: &ObjectKey, input: Digest) -> bool {
        self.ledger.target(target).is_some_and(|view| view.body(key, input).is_some())
    }

    fn approved(&self, now: Monotonic, target: TargetId, held: &ApprovedHeld) -> Option<ApprovedPage> {
        let view = self.ledger.target(target);
        self.approvals.page(now, target, held, |removal| {
            let entry = view.and_then(|view| view.entry(&removal.key));
            entry.is_some()
        })
    }
}
