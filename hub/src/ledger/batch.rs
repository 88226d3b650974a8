use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use roaring::RoaringBitmap;
use tideline_common::{Capabilities, Digest, ObjectKey, Revision, TargetId, Uid};

use super::broken;
use super::claim::{Claim, ClaimId};
use super::history::Advance;
use super::places::{Place, PlaceChange};
use super::slot::Difference;
use super::written::Unwritten;
use super::{BodyUse, Happened, TargetIndex, Tombstones};
use crate::placement::{PlacementId, SourceId};

/// Operations in one chunk. The store takes 100 in a commit.
pub const CHUNK_OPS_MAX: usize = 100;
/// Bytes of keys and values in one chunk. The store takes 1 MiB in a commit.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;

/// One record to write; none deletes it. Writing it twice does no harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub key: Vec<u8>,
    pub value: Option<Vec<u8>>,
}

impl Write {
    /// Of its key and its value.
    pub(super) fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Vec::len)
    }
}

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

    /// The records to write: each chunk at once, one after the other, all of them before [`Ledger::commit`]. After a
    /// failure the whole batch may be written again; until it is written and committed, nothing else may be.
    ///
    /// [`Ledger::commit`]: super::Ledger::commit
    pub fn chunks(&self) -> &[Vec<Write>] {
        &self.records().all
    }

    /// The same, in stages: the chunks of one may be written at once or in any order, a stage after the one before it.
    pub fn stages(&self) -> impl Iterator<Item = &[Vec<Write>]> {
        let chunks = self.records();
        let begins = std::iter::once(0).chain(chunks.ends.iter().copied());
        begins.zip(&chunks.ends).map(|(begin, end)| &chunks.all[begin..*end])
    }

    /// Lets go of the records, which are written: there may be a hundred megabytes of them.
    pub fn forget_records(&mut self) {
        self.records.take();
    }

    fn records(&self) -> &Chunks {
        self.records.get_or_init(|| self.write())
    }
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

/// What a batch writes: see [`Batch::stages`].
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    pub(super) all: Vec<Vec<Write>>,
    /// The number of chunks up to the end of each stage.
    ends: Vec<usize>,
}

impl Chunks {
    /// Of stages that each consist of groups: what is of one group is in one chunk. What `begins` says comes before all of
    /// them, unless one chunk holds it all; what `ends` says comes last.
    pub(super) fn of(begins: Write, stages: impl IntoIterator<Item = Vec<Vec<Write>>>, ends: Write) -> Self {
        let mut stages: Vec<_> = stages.into_iter().collect();
        stages.push(vec![vec![ends]]);
        let writes = || stages.iter().flatten().flatten();
        if !fits(writes().count(), writes().map(Write::bytes).sum()) {
            stages.insert(0, vec![vec![begins]]);
        }
        let mut chunks = Self::default();
        for groups in stages {
            chunks.add(chunked(groups));
        }
        chunks
    }

    /// What fits into the one chunk of the stage before needs no stage of its own: a chunk is written at once.
    fn add(&mut self, mut stage: Vec<Vec<Write>>) {
        let of_former = self.ends.last().map_or(0, |end| end - self.ends.iter().rev().nth(1).unwrap_or(&0));
        match (self.all.last_mut(), stage.as_mut_slice()) {
            (_, []) => {}
            (Some(former), [only]) if of_former == 1 && fits(former.len() + only.len(), size(former) + size(only)) => {
                former.append(only);
            }
            (_, _) => {
                self.all.append(&mut stage);
                self.ends.push(self.all.len());
            }
        }
    }
}

fn fits(ops: usize, bytes: usize) -> bool {
    ops <= CHUNK_OPS_MAX && bytes <= CHUNK_BYTES_MAX
}

/// Whether one chunk holds all of it.
pub(super) fn is_chunk(writes: &[Write]) -> bool {
    fits(writes.len(), size(writes))
}

fn size(writes: &[Write]) -> usize {
    writes.iter().map(Write::bytes).sum()
}

/// Splits writes, in order, into chunks that the store takes. What is of one group is in one chunk, unless that alone is too much.
pub fn chunked(groups: Vec<Vec<Write>>) -> Vec<Vec<Write>> {
    let mut chunks: Vec<Vec<Write>> = Vec::new();
    let mut filled = 0;
    for group in groups {
        let whole = size(&group);
        let mut apart = fits(group.len(), whole)
            && chunks.last().is_some_and(|chunk| !fits(chunk.len() + group.len(), filled + whole));
        for write in group {
            match chunks.last_mut() {
                Some(chunk) if !apart && fits(chunk.len() + 1, filled + write.bytes()) => {
                    filled += write.bytes();
                    chunk.push(write);
                }
                _ => {
                    filled = write.bytes();
                    chunks.push(vec![write]);
                    apart = false;
                }
            }
        }
    }
    chunks
}
