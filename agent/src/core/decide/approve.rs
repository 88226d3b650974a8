//! Removals that a person approved. The hub says which, for how long, and when an approval is withdrawn; the agent uses one
//! while the hub upholds it, and forgets it when it ends.
//!
//! An approval permits a deletion and does not trigger one: every removal must be authorised by [`may_delete`] as well. Only
//! where nothing says that an object was unassigned, because the hub lost that history or the object was restored, the
//! approval says so. There a person may also release it: it stays, without the mark.
//!
//! [`may_delete`]: super::remove::may_delete

use std::collections::BTreeMap;
use std::time::Duration;

use tideline_common::limits::DESIRED_OBJECTS_MAX;
use tideline_common::wire::v1::{ApprovedHeld, ApprovedPage, Decommission};
use tideline_common::{ApproveDeletions, Monotonic, ObjectKey, PrunePolicy, Tombstone};

use super::fuse::Permission;
use crate::core::interface::write::RemovalPolicy;
use crate::core::model::Model;
use crate::core::model::removal::{Cause, ORPHAN, Removal, before_all_of};

/// The list in force, as far as it has arrived. At most [`DESIRED_OBJECTS_MAX`] removals are taken from it: a target cannot
/// hold more.
#[derive(Debug, Default)]
pub(in crate::core) struct Approvals {
    arrived: ApprovedHeld,
    /// Approvals that are not used yet.
    open: BTreeMap<Tombstone, Approval>,
}

#[derive(Clone, Copy, Debug)]
struct Approval {
    /// Until when it may be used.
    until: Monotonic,
    /// The object is orphaned, not deleted.
    releases: bool,
}

impl Approval {
    fn policy(self) -> RemovalPolicy {
        if self.releases { ORPHAN } else { RemovalPolicy::default() }
    }
}

impl Approvals {
    /// The part of the list that is here, so that the hub sends the rest.
    pub(in crate::core) fn arrived(&self) -> ApprovedHeld {
        self.arrived
    }

    /// Takes a page and returns what is newly approved; none if the page is not the next one.
    pub(in crate::core) fn take(&mut self, now: Monotonic, page: ApprovedPage) -> Option<Vec<Tombstone>> {
        let ApprovedPage { list, offset, count, total: _, expires_seconds, removals, releases } = page;
        if list != self.arrived.list {
            *self = Self { arrived: ApprovedHeld { list, count: 0 }, open: BTreeMap::new() };
        } else if count == 0 {
            return None;
        }
        if offset != self.arrived.count {
            return None;
        }
        self.arrived.count += count;
        let until = now + Duration::from_secs(expires_seconds);
        let pages = [(&removals, false), (&releases, true)];
        for (removal, releases) in pages.into_iter().flat_map(|(part, how)| part.iter().map(move |it| (it, how))) {
            // A removal on both lists counts as released: that loses nothing.
            let known = self.open.get(removal).is_some_and(|known| known.releases);
            if self.open.len() < DESIRED_OBJECTS_MAX || self.open.contains_key(removal) {
                self.open.insert(removal.clone(), Approval { until, releases: releases || known });
            }
        }
        Some([removals, releases].concat())
    }

    /// Whether it may be deleted.
    fn covers(&self, now: Monotonic, removal: &Tombstone) -> bool {
        self.open.get(removal).is_some_and(|approval| now < approval.until && !approval.releases)
    }

    /// Whether it may be deleted or orphaned.
    pub(in crate::core) fn is_in_force_for(&self, now: Monotonic, removal: &Tombstone) -> bool {
        self.open.get(removal).is_some_and(|approval| now < approval.until)
    }

    /// It was used, ended, or is void: an object that is assigned again was not approved to be removed again.
    pub(in crate::core) fn withdraw(&mut self, removal: &Tombstone) {
        self.open.remove(removal);
    }

    /// Something is assigned there: whatever was approved there is void.
    pub(in crate::core) fn withdraw_at(&mut self, key: &ObjectKey) {
        if self.open.is_empty() {
            return;
        }
        let there = self.open.range(before_all_of(key)..).map(|(removal, _)| removal);
        for removal in there.take_while(|removal| removal.key == *key).cloned().collect::<Vec<_>>() {
            self.open.remove(&removal);
        }
    }

    /// All approvals are void, and any must be sent anew from now on.
    pub(in crate::core) fn void(&mut self) {
        *self = Self::default();
    }

    /// Who has approved this deletion, however many others there are.
    pub(in crate::core) fn permission(&self, model: &Model, now: Monotonic, removal: &Tombstone) -> Permission {
        if model.decommission == Decommission::Remove || is_approved_in_advance(model, removal) {
            Permission::InAdvance
        } else if self.covers(now, removal) {
            Permission::Approved
        } else {
            Permission::None
        }
    }

    /// A removal is newly approved: what is assigned needs none, and one that rests on its approval goes as that says.
    pub(in crate::core) fn apply(&mut self, model: &mut Model, removal: &Tombstone) {
        if model.desired.get(&removal.key).is_some() {
            self.withdraw(removal);
        }
        if let Some(approval) = self.open.get(removal)
            && let Some(state) = model.removals.get_mut(removal)
        {
            state.approve(approval.policy());
        }
    }

    /// The removal that may begin of an object that nothing says was unassigned: if it was approved, or if the cluster is to
    /// be emptied.
    pub(in crate::core) fn removal_of_left_over(
        &self,
        model: &Model,
        key: &ObjectKey,
    ) -> Option<(Tombstone, RemovalPolicy, Cause)> {
        let retired = model.decommission != Decommission::No;
        let asked = retired || !self.open.is_empty();
        if !asked || model.desired.get(key).is_some() || model.removals_of(key).next().is_some() {
            return None;
        }
        let removal = Tombstone { key: key.clone(), source: model.left_over(key)? };
        if retired {
            return Some((removal, RemovalPolicy::default(), Cause::Retired));
        }
        let policy = self.open.get(&removal)?.policy();
        Some((removal, policy, Cause::Approved))
    }
}

/// Whether the tombstone says so. Without one, the policy that the object was last written under and the one that the set had
/// last, if that is known.
pub(in crate::core) fn is_approved_in_advance(model: &Model, removal: &Tombstone) -> bool {
    let in_advance = |policy: PrunePolicy| policy.approve_deletions == ApproveDeletions::InAdvance;
    let last = match model.removals.get(removal).map(Removal::policy).unwrap_or_default() {
        RemovalPolicy::Tombstone(policy) => return in_advance(policy),
        RemovalPolicy::Absence(last) => last,
    };
    let object = model.objects.get(&removal.key);
    let record = object.as_ref().and_then(|object| object.record.as_ref());
    let applied = record.filter(|record| record.source == removal.source);
    let applied = applied.and_then(|record| model.policies.get(&record.policy));
    applied.is_some_and(|policy| in_advance(PrunePolicy::of(policy))) && last.is_none_or(in_advance)
}

#[cfg(test)]
pub(in crate::core) mod tests;
