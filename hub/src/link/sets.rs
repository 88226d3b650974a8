use tideline_common::wire::v1::{ApprovedHeld, ApprovedPage};
use tideline_common::{
    Capabilities, Capability, Digest, EntryState, Monotonic, ObjectKey, Reason, Revision, Shown, TargetId, Version,
};

use super::core::{SetInfo, SetPage, Sets};
use crate::ledger::{Ledger, TargetContinuity};
use crate::removal_guards::Approvals;

/// What the link tells agents: their sets, and what was approved.
#[derive(Clone, Copy, Debug)]
pub struct LedgerView<'a> {
    pub ledger: &'a Ledger,
    pub approvals: &'a Approvals,
}

impl Sets for LedgerView<'_> {
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

    fn has_shown_later(&self, target: TargetId, shown: Shown) -> bool {
        self.ledger.has_shown_later(target, shown)
    }

    fn is_told_to(&self, target: TargetId, understands: &Capabilities) -> bool {
        self.ledger.is_told_to(target, understands)
    }

    fn names(&self, target: TargetId, key: &ObjectKey, input: Digest) -> bool {
        self.ledger.target(target).is_some_and(|view| view.body(key, input).is_some())
    }

    fn approved(&self, now: Monotonic, target: TargetId, held: &ApprovedHeld) -> Option<ApprovedPage> {
        let view = self.ledger.target(target);
        self.approvals.page(now, target, held, |approval, removal| {
            let entry = view.and_then(|view| view.entry(&removal.key));
            entry.is_some() || self.ledger.void(approval).is_some_and(|void| void.covers(&removal.key))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tideline_common::{ApplyPolicy, GroupKind, RevisionId, SegmentId, SourceRef, SpaceName, Tombstone};
    use uuid::Uuid;

    use super::*;
    use crate::clean::Input;
    use crate::ledger::Fresh;
    use crate::placement::{Assignment, Change, GroupResource, SourceId, Variant};
    use crate::removal_guards::Approval;

    fn target() -> TargetId {
        "11111111-1111-4111-8111-111111111111".parse().expect("a UUID")
    }

    fn fresh(now: Monotonic) -> Fresh {
        let (revision, segment) = (RevisionId::from_uuid(Uuid::new_v4()), SegmentId::from_uuid(Uuid::new_v4()));
        Fresh { now, revision, segment }
    }

    fn config_map(name: &str) -> ObjectKey {
        ObjectKey::new(GroupKind::new("", "ConfigMap"), "shop", name)
    }

    fn assign(name: &str, uid: &str) -> Change {
        let (key, resource, space) = (config_map(name), GroupResource::new("", "configmaps"), SpaceName::root());
        let policy = Arc::new(ApplyPolicy::default());
        let input = Input::new("{}");
        Change::Assign(Box::new(Assignment {
            id: SourceId { space: space.clone(), resource, uid: uid.parse().expect("a UID") },
            source: SourceRef {
                space,
                uid: uid.parse().expect("a UID"),
                namespace: key.namespace.clone(),
                name: key.name.clone(),
            },
            key,
            version: "v1".into(),
            generation: 0,
            wave: 0,
            impersonate: None,
            variants: vec![Variant { destination: None, policy, input, implied: false, targets: [0].into() }],
        }))
    }

    /// An agent removes what stands there, whatever source that is of, until it has heard of the set that has another.
    #[test]
    fn no_removal_is_told_from_a_place_where_something_is_assigned_again_of_any_source() {
        let now = Monotonic::START;
        let mut ledger = Ledger::default();
        for changes in [vec![Change::Register(target())], vec![assign("same", "s1"), assign("other", "s2")]] {
            let batch = ledger.plan(fresh(now), changes);
            ledger.commit(batch).expect("there is one writer");
        }
        let removal = |name| Tombstone { key: config_map(name), source: "s1".parse().expect("a UID") };
        let removals = ["same", "other", "gone"].map(removal).into();
        let approval =
            Approval { target: target(), expires: 1, until: Monotonic::from_millis(1_000), removals, releases: false };
        let mut approvals = Approvals::default();
        let _ = approvals.put(now, "approval".parse().expect("a UID"), approval);
        let _ = approvals.end_listing();
        let desk = LedgerView { ledger: &ledger, approvals: &approvals };
        let page = desk.approved(now, target(), &ApprovedHeld::default()).expect("it holds nothing yet");
        assert_eq!((page.removals, page.count), (vec![removal("gone")], 3));
    }
}
