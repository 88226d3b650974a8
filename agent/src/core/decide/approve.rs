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
use crate::core::Core;
use crate::core::interface::write::RemovalPolicy;
use crate::core::model::removal::{Cause, ORPHAN, before_all_of};

/// The list in force, as far as it has arrived. At most [`DESIRED_OBJECTS_MAX`] removals are taken from it: a target cannot
/// hold more.
#[derive(Debug, Default)]
pub(in crate::core) struct Approvals {
    held: ApprovedHeld,
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
    pub(in crate::core) fn held(&self) -> ApprovedHeld {
        self.held
    }

    /// Takes a page and returns what is newly approved; none if the page is not the next one.
    fn take(&mut self, now: Monotonic, page: ApprovedPage) -> Option<Vec<Tombstone>> {
        let ApprovedPage { list, offset, count, total: _, expires_seconds, removals, releases } = page;
        if list != self.held.list {
            *self = Self { held: ApprovedHeld { list, count: 0 }, open: BTreeMap::new() };
        } else if count == 0 {
            return None;
        }
        if offset != self.held.count {
            return None;
        }
        self.held.count += count;
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
    fn speaks_of(&self, now: Monotonic, removal: &Tombstone) -> bool {
        self.open.get(removal).is_some_and(|approval| now < approval.until)
    }

    /// It was used, ended, or is void: an object that is assigned again was not approved to be removed again.
    pub(in crate::core) fn strike(&mut self, removal: &Tombstone) {
        self.open.remove(removal);
    }

    /// Something is assigned there: whatever was approved there is void.
    pub(in crate::core) fn strike_at(&mut self, key: &ObjectKey) {
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
}

impl Core {
    /// The hub says what is approved. Returns whether that was news, so that there may be more.
    pub(in crate::core) fn approved(&mut self, now: Monotonic, page: ApprovedPage) -> bool {
        let Some(fresh) = self.guards.approvals.take(now, page) else { return false };
        for removal in fresh {
            if self.model.desired.get(&removal.key).is_some() {
                self.guards.approvals.strike(&removal);
            }
            if let Some(approval) = self.guards.approvals.open.get(&removal)
                && let Some(state) = self.model.removals.get_mut(&removal)
                && state.cause == Cause::Approved
            {
                state.policy = approval.policy();
            }
            // Removals of the key need not wait for their retry.
            self.enqueue(&removal.key);
            self.dirty(&removal.key, now);
        }
        true
    }

    /// Begins the removal of an object that nothing says was unassigned, if it was approved, or if the cluster is to be
    /// emptied.
    pub(in crate::core) fn take_up(&mut self, key: &ObjectKey) {
        let retired = self.model.decommission != Decommission::No;
        let asked = retired || !self.guards.approvals.open.is_empty();
        if !asked || self.model.desired.get(key).is_some() || self.model.removals_of(key).next().is_some() {
            return;
        }
        let Some(source) = self.model.left_over(key) else { return };
        let removal = Tombstone { key: key.clone(), source };
        if retired {
            self.put_removal(removal, RemovalPolicy::default(), None, Cause::Retired);
        } else if let Some(approval) = self.guards.approvals.open.get(&removal) {
            self.put_removal(removal, approval.policy(), None, Cause::Approved);
        }
    }

    /// Whether a removal that rests on its approval alone, or on the decommission, may not go on, because that has ended.
    pub(in crate::core) fn lapses(&mut self, now: Monotonic, removal: &Tombstone) -> bool {
        match self.model.removals.get(removal).map(|state| state.cause) {
            Some(Cause::Approved) if !self.guards.approvals.speaks_of(now, removal) => {
                self.guards.approvals.strike(removal);
                self.dirty(&removal.key, now);
                self.forget_removal(removal);
                true
            }
            Some(Cause::Retired) if self.model.decommission == Decommission::No => {
                self.spare(now, removal);
                true
            }
            Some(Cause::Approved | Cause::Retired | Cause::Spared | Cause::Unassigned) | None => false,
        }
    }

    /// Who has approved this deletion, however many others there are.
    pub(in crate::core) fn leave(&self, now: Monotonic, removal: &Tombstone) -> Permission {
        if self.model.decommission == Decommission::Remove || self.is_approved_in_advance(removal) {
            Permission::InAdvance
        } else if self.guards.approvals.covers(now, removal) {
            Permission::Approved
        } else {
            Permission::None
        }
    }

    /// Whether the tombstone says so. Without one, the policy that the object was last written under and the one that the set
    /// had last, if that is known.
    pub(in crate::core) fn is_approved_in_advance(&self, removal: &Tombstone) -> bool {
        let in_advance = |policy: PrunePolicy| policy.approve_deletions == ApproveDeletions::InAdvance;
        let last = match self.model.removals.get(removal).map(|state| state.policy).unwrap_or_default() {
            RemovalPolicy::Tombstone(policy) => return in_advance(policy),
            RemovalPolicy::Absence(last) => last,
        };
        let object = self.model.objects.get(&removal.key);
        let record = object.as_ref().and_then(|object| object.record.as_ref());
        let applied = record.filter(|record| record.source == removal.source);
        let applied = applied.and_then(|record| self.model.policies.get(&record.policy));
        applied.is_some_and(|policy| in_advance(PrunePolicy::of(policy))) && last.is_none_or(in_advance)
    }
}

#[cfg(test)]
pub(in crate::core) mod tests;
