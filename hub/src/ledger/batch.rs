use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use roaring::RoaringBitmap;
use tideline_common::{Capabilities, Digest, ObjectKey, Revision, TargetId, Uid};

use super::broken;
use super::chunks::{Chunks, Write};
use super::claim::{Body, Claim, ClaimId};
use super::history::Advance;
use super::places::{Place, PlaceChange};
use super::slot::Difference;
use super::{BodyUse, Happened, TargetIndex, Tombstones};
use crate::placement::{PlacementId, SourceId};

/// Everything that a set of changes comes to, ready to be written and then committed.
#[derive(Clone, Debug)]
pub struct Batch {
    pub(super) follows: u64,
    pub(super) revision: Revision,
    pub(super) admissions: u64,
    pub(super) next_target: TargetIndex,
    pub(super) registered: Vec<(TargetId, TargetIndex)>,
    pub(super) forgotten: Vec<(TargetId, TargetIndex)>,
    /// What their agents understand, where that changes.
    pub(super) understands: BTreeMap<TargetIndex, (TargetId, Capabilities)>,
    /// Those of them that are told otherwise than before of what they have.
    pub(super) retold: RoaringBitmap,
    pub(super) choices: BTreeMap<PlacementId, RoaringBitmap>,
    /// Claims that changed; none where one is gone.
    pub(super) claims: BTreeMap<ClaimId, Option<Arc<Claim>>>,
    pub(super) slots: Vec<(ObjectKey, Vec<Arc<Claim>>, Difference)>,
    pub(super) tombstones: BTreeMap<(ObjectKey, Uid), Tombstones>,
    pub(super) happened: BTreeMap<(ObjectKey, Uid), Happened>,
    pub(super) bodies: BTreeMap<Digest, BodyUse>,
    /// Targets that say for the first time what happened once at a key: it is to be in the history of both sides.
    pub(super) news: BTreeMap<ObjectKey, RoaringBitmap>,
    pub(super) history: Advance,
    pub(super) broken: broken::Draft,
    pub(super) unwritten: Unwritten,
    /// Made when they are first asked for.
    pub(super) records: OnceLock<Chunks>,
    pub(super) unassigned: u64,
    pub(super) kept: u64,
    pub(super) too_large: Vec<(SourceId, ObjectKey)>,
}

impl Batch {
    /// The revision of the sets that it changes.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Sources that go from targets and leave their destination to nobody, as many as the targets that had them. Not
    /// counted is what was approved: in advance, or by a person.
    pub fn unassigned(&self) -> u64 {
        self.unassigned
    }

    /// Sources that are kept instead, for those are more than go without asking.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Sources, and where they are in their spaces, that stay assigned as they were: the record of what is wanted of them now
    /// is more than the store takes at once.
    pub fn too_large(&self) -> &[(SourceId, ObjectKey)] {
        &self.too_large
    }

    /// Lets go of the records, which are written: there may be a hundred megabytes of them.
    pub fn forget_records(&mut self) {
        self.records.take();
    }

    /// Whether there is nothing to write; committing it changes nothing.
    pub fn is_empty(&self) -> bool {
        let Unwritten { follows: _, bodies, dropped_bodies, gone, small, garbage: _ } = &self.unwritten;
        let claims = self.claims.values().flatten().next();
        let bodies = bodies.is_empty() && dropped_bodies.is_empty();
        let targets = self.registered.is_empty() && self.forgotten.is_empty();
        let places = gone.is_empty() && claims.is_none() && self.tombstones.is_empty() && self.happened.is_empty();
        bodies && targets && places && small.is_empty() && self.choices.is_empty() && self.history.is_empty()
    }
}

/// What a batch writes and does not say itself: what is known of it where it is planned. The records are made of both, and not
/// there: of fifty thousand objects that takes a second, in which nobody is to wait.
#[derive(Clone, Debug, Default)]
pub(super) struct Unwritten {
    /// The revision that the batch follows.
    pub(super) follows: Revision,
    pub(super) bodies: Vec<Arc<Body>>,
    /// In so many parts.
    pub(super) dropped_bodies: Vec<(Digest, usize)>,
    /// Claims that are gone, and where they were.
    pub(super) gone: Vec<(ObjectKey, ClaimId)>,
    /// Of other histories, and of targets whose agents understand something else than before.
    pub(super) small: Vec<Write>,
    pub(super) garbage: Vec<Vec<u8>>,
}

/// What a committed batch changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Committed {
    pub revision: Revision,
    /// Targets whose desired set or epoch changed: their long polls are to be answered.
    pub affected: RoaringBitmap,
    /// Sources whose assignments changed, and those that are gone.
    pub sources: Vec<SourceId>,
    /// Places in spaces of which something else is to be told; none for any.
    pub places: Option<BTreeMap<Place, PlaceChange>>,
    /// Targets that were given an index.
    pub registered: Vec<(TargetId, TargetIndex)>,
    pub forgotten: Vec<(TargetId, TargetIndex)>,
    /// What is known of other histories, or was accepted of them, changed: targets that this concerns.
    pub history: Option<RoaringBitmap>,
    /// Approvals of which more is void, or that are gone.
    pub voided: BTreeSet<Uid>,
}

/// Another batch was committed after this one was planned. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the batch follows commit {follows} of this process, which is at {at}")]
pub struct StaleBatch {
    pub follows: u64,
    pub at: u64,
}
