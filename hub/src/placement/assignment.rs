use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use tideline_common::wire::v1::{Decommission, TerminalFact};
use tideline_common::{
    ApplyPolicy, ApproveDeletions, Capabilities, Digest, Impersonation, ObjectKey, Revision, SourceRef, SpaceName,
    TargetId, Tombstone, Uid, Version,
};

use crate::clean::{Destination, Input, place_at};
use crate::history_change::HistoryChange;

/// What a space serves objects under: the unit of listing, and of completeness.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupResource {
    /// Empty for the core group.
    pub group: Arc<str>,
    /// The plural, as in URLs: `deployments`.
    pub resource: Arc<str>,
}

impl GroupResource {
    pub fn new(group: impl Into<Arc<str>>, resource: impl Into<Arc<str>>) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }

    pub fn is(&self, group: &str, resource: &str) -> bool {
        &*self.group == group && &*self.resource == resource
    }
}

impl fmt::Display for GroupResource {
    /// `deployments.apps`, `configmaps`: as kubectl writes resources.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// One object of one space, for as long as it lives: recreated under the same name it is another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SourceId {
    pub space: SpaceName,
    pub resource: GroupResource,
    pub uid: Uid,
}

/// Whose a choice of targets is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlacementId {
    /// Every Placement of this name: one that is deleted and created again goes on with the choice.
    Named { space: SpaceName, name: Arc<str> },
    /// The Placement with this UID, as ledgers have it whose schema is below 6.
    Former { space: SpaceName, uid: Uid },
}

/// The resolved fact for one source: what is to be kept where, merged from everything that assigns it.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    pub id: SourceId,
    pub source: SourceRef,
    /// Its place in the space; that at a target is the variant's [`Assignment::key_of`].
    pub key: ObjectKey,
    /// The API version to speak of the key's group.
    pub version: Arc<str>,
    pub generation: i64,
    pub wave: i32,
    pub impersonate: Option<Arc<Impersonation>>,
    /// Over sets of targets that are disjoint at each destination, in a stable order.
    pub variants: Vec<Variant>,
}

impl Assignment {
    /// The destination key of one of its variants.
    pub fn key_of(&self, variant: &Variant) -> ObjectKey {
        place_at(&self.key, &variant.destination)
    }

    /// The targets that it is assigned to, by what its namespace is called there.
    pub fn targets_by_destination(&self) -> BTreeMap<Destination, RoaringBitmap> {
        let mut by_destination = BTreeMap::<_, RoaringBitmap>::new();
        for variant in &self.variants {
            *by_destination.entry(variant.destination.clone()).or_default() |= &variant.targets;
        }
        by_destination
    }

    /// Every target that it is assigned to.
    pub fn targets(&self) -> RoaringBitmap {
        self.variants.iter().fold(RoaringBitmap::new(), |all, variant| all | &variant.targets)
    }
}

/// One form of an assigned object and the targets that get it so. Targets are the ledger's dense indexes.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    pub destination: Destination,
    pub policy: Arc<ApplyPolicy>,
    pub input: Input,
    /// A namespace that is there only because something in it is.
    pub implied: bool,
    pub targets: RoaringBitmap,
}

impl Variant {
    /// Whether a person is asked before many of its kind are unassigned at once.
    pub(crate) fn asks(&self) -> bool {
        !self.implied && self.policy.approve_deletions == ApproveDeletions::Ask
    }

    /// Variants are kept in this order, so that equal assignments compare equal.
    pub(crate) fn order(&self) -> (Destination, bool, Digest, Digest) {
        (self.destination.clone(), self.implied, self.policy.digest(), self.input.digest)
    }
}

/// What the ledger is told: each says how one thing is now, never what to add to it.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The source is assigned so, and only so.
    Assign(Box<Assignment>),
    /// The source is assigned nowhere.
    Remove(SourceId),
    /// A Placement with `numberOfTargets` has chosen these targets; none forgets the choice.
    Choose { placement: PlacementId, chosen: RoaringBitmap },
    /// A target is to have an index; no change if it has one.
    Register(TargetId),
    /// The target is gone, and all that was assigned to it, confirmed or not.
    Forget(TargetId),
    /// The target, which has accepted the set of this version, says that a removal is done.
    Confirm(TargetId, Version, Tombstone),
    /// It says that it knows: what stands where this was to be let go of counts as adopted.
    Overtaken(TargetId, Version, Tombstone),
    /// The target says that this happened there once, and must not happen again.
    Happened(TargetId, TerminalFact),
    /// The agent of the target was another's, at which this happened once.
    Inherit(TargetId, Vec<TerminalFact>),
    /// A person says, in these words, that what may have run at a target before history was lost is to run there. The same
    /// words mean nothing a second time.
    LetRun(TargetId, String),
    /// A person approved the unassignments that were held at this revision: they are done.
    Release(Revision),
    /// Somebody takes the target out of service. To be said with all changes until it is gone: what leaves it then was
    /// asked for, so it neither counts nor waits, and what waited there goes. Where all is to be kept it is let go of, also by an
    /// agent that hears of it when the target is in service again.
    Retire(TargetId, Decommission),
    /// All is to be kept at the target from now on: what it was told to delete, and has not, is to be let go of.
    LetGo(TargetId),
    /// The agent of the target understands this, and no more: what needs more is withheld from it.
    Understands(TargetId, Capabilities),
    /// What is known of other histories, and was accepted of them, is otherwise.
    History(HistoryChange),
}
