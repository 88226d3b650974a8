//! What is known of one removal.

use std::sync::Arc;

use tideline_common::wire::v1::{Decommission, DecommissionReport};
use tideline_common::{Digest, Monotonic, ObjectKey, PrunePolicy, Reason, Tombstone, Version};

use super::Model;
use super::change::Change;
use crate::core::interface::write::{AppliedRecord, RemovalPolicy, Write};

/// A removal under way.
#[derive(Debug, Default)]
pub(in crate::core) struct Removal {
    pub(in crate::core) cause: Cause,
    pub(in crate::core) wave: i32,
    pub(in crate::core) version: Option<Arc<str>>,
    /// Names the policy that the set had last for it, if that is still known: whose gates it waits for.
    pub(in crate::core) last: Option<Digest>,
    pub(in crate::core) policy: RemovalPolicy,
    /// Which removal of this source it is: the set in which it was taken out, as its tombstone says.
    pub(in crate::core) left: Option<Version>,
    pub(in crate::core) failures: u32,
    pub(in crate::core) retry_at: Option<Monotonic>,
    pub(in crate::core) state: RemovalState,
}

impl Removal {
    /// Whether it ends when it was looked at once more.
    pub(in crate::core) fn is_spared(&self) -> bool {
        self.cause == Cause::Spared && self.state != RemovalState::Done
    }
}

/// Why something is to be removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::core) enum Cause {
    /// It is not assigned any more: the hub says so, or a set of the same epoch lacks it. The journal keeps that until
    /// the removal is done.
    #[default]
    Unassigned,
    /// Nothing explains that it is in no set, and a person has approved its removal. Ends with the approval.
    Approved,
    /// Nothing explains that it is in no set, and the cluster goes out of service. Ends if it stays in service.
    Retired,
    /// Was `Retired`, and the cluster is in service again. One live read shows what was already done; then it ends.
    Spared,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::core) enum RemovalState {
    #[default]
    Waiting,
    /// A wave is to be ready before it goes; which, for people.
    WaitingForWave(String),
    /// The last look or try came to this.
    Held(Reason, String),
    /// Deletion was accepted.
    Finalizing,
    /// Done; the hub is to be told, and the journal forgets it when the hub knows.
    Done,
}

/// How old what the journal says of removals may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum JournalAge {
    /// The hub has said in this run what the target is to hold.
    Current,
    /// Nobody has: the data directory may have been set back, and a removal in it may be of years ago.
    Unknown,
    /// Not yet, and the journal is older than the cluster: a later one applied what is there.
    SetBack,
}

/// Of what is to be let go of, whatever was said of it before.
pub(in crate::core) const ORPHAN: RemovalPolicy = RemovalPolicy::Tombstone(PrunePolicy::LEAST);

/// Where the tombstones of a place begin: no UID is shorter than one character.
pub(in crate::core) fn before_all_of(key: &ObjectKey) -> Tombstone {
    Tombstone { key: key.clone(), source: "\u{0}".parse().expect("it is one byte long") }
}

impl Model {
    /// The removals under way for one key.
    pub(in crate::core) fn removals_of(&self, key: &ObjectKey) -> impl Iterator<Item = (&Tombstone, &Removal)> {
        let key = key.clone();
        self.removals.range(before_all_of(&key)..).take_while(move |(tombstone, _)| tombstone.key == key)
    }

    pub(in crate::core) fn open_removals_of(&self, key: &ObjectKey) -> impl Iterator<Item = (&Tombstone, &Removal)> {
        let any = (!self.removals.is_empty()).then(|| self.removals_of(key));
        any.into_iter().flatten().filter(|(_, removal)| removal.state != RemovalState::Done)
    }

    /// Removals that were to orphan the object under this key, and had not when something was assigned to it again.
    pub(in crate::core) fn overtaken(&self, key: &ObjectKey) -> impl Iterator<Item = (&Tombstone, &Removal)> {
        self.open_removals_of(key).filter(|(_, removal)| removal.policy.orphans())
    }

    pub(in crate::core) fn is_overtaken(&self, key: &ObjectKey) -> bool {
        self.overtaken(key).next().is_some()
    }

    pub(in crate::core) fn is_assigned_again(&self, tombstone: &Tombstone) -> bool {
        self.assigns(&tombstone.key, &tombstone.source)
    }

    pub(in crate::core) fn is_spared(&self, removal: &Tombstone) -> bool {
        self.removals.get(removal).is_some_and(Removal::is_spared)
    }

    /// The removal of the object under the key, if that is of another source.
    pub(in crate::core) fn other_removal(&self, tombstone: &Tombstone) -> Option<(Tombstone, &Removal)> {
        let key = &tombstone.key;
        let source = self.left_over(key).filter(|source| *source != tombstone.source)?;
        let other = Tombstone { key: key.clone(), source };
        let removal = self.removals.get(&other)?;
        Some((other, removal))
    }

    pub(in crate::core) fn version_of(
        &self,
        tombstone: &Tombstone,
        removal: &Removal,
        record: Option<&AppliedRecord>,
    ) -> Arc<str> {
        let recorded = record.map(|record| Arc::clone(&record.version)).filter(|version| !version.is_empty());
        removal.version.clone().or(recorded).unwrap_or_else(|| self.kinds.version(&tombstone.key.kind))
    }

    /// A removal that was approved begins. Once it has, it is carried out like any other, whenever its approval ends.
    pub(in crate::core) fn begun(&mut self, removal: &Tombstone) {
        if self.removals.get(removal).is_some_and(|state| state.cause == Cause::Approved) {
            self.see_through(removal);
        }
    }

    /// From now on this removal needs no approval, in the journal too.
    pub(in crate::core) fn see_through(&mut self, removal: &Tombstone) {
        if let Some(state) = self.removals.get_mut(removal)
            && state.cause != Cause::Unassigned
        {
            state.cause = Cause::Unassigned;
            if self.decommission.keeps() {
                state.policy = ORPHAN;
            }
            self.disk.write(Write::Removing { tombstone: removal.clone(), policy: state.policy });
        }
    }

    /// Its progress; none for a cluster in service.
    pub(in crate::core) fn decommissioned(&self) -> Option<DecommissionReport> {
        let how = self.decommission;
        (how != Decommission::No).then_some(DecommissionReport { how, left: self.removals.len() as u64 })
    }

    /// Removals under way that were to orphan an object because all was to be kept, if the set says otherwise. They end as
    /// they would have if they had been done by then.
    pub(in crate::core) fn left_by_keeping(&self, change: &Change) -> Vec<Tombstone> {
        if !self.decommission.keeps() || change.decommission.keeps() {
            return Vec::new();
        }
        let orphans = |(tombstone, removal): &(&Tombstone, &Removal)| {
            let under_way = removal.cause != Cause::Retired && removal.state != RemovalState::Done;
            under_way && removal.policy != ORPHAN && !change.tombstones.contains_key(*tombstone)
        };
        self.removals.iter().filter(orphans).map(|(tombstone, _)| tombstone.clone()).collect()
    }
}
