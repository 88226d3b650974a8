//! What every target should hold: persisted, numbered, and read page by page.
//!
//! ```text
//! placement ──Change──▶ plan ──▶ Batch ──(the edge writes it)──▶ commit ──▶ TargetView ──▶ link
//!                        ▲                                         │
//!                        └── state in memory ◀── load(records) ────┘
//! ```
//!
//! The ledger does no I/O. [`Ledger::plan`] says which records to write, the edge writes them, and only then
//! [`Ledger::commit`] makes them visible. There is one writer: a batch that was planned before another was committed is
//! refused.
//!
//! **Records** hold a source at a destination with all of its targets as bitmaps, so that one change of one object is one or two writes on
//! however many targets it is. See `record` for the layout.
//!
//! **Batches larger than one store commit** are written in chunks, in order. The first chunk announces the revision in the
//! head record, the last one confirms it; bodies and tombstones precede the sources that need them, and deletions come
//! last. A crash in between leaves a mixture of two good states, each record whole. It is recognised by the announced
//! revision, which then becomes that of every target: no agent has seen it, so none sees one revision with two digests.
//! Placement is level-triggered and brings the rest.
//!
//! **After a load** every target is at the ledger's revision. That is never below what an agent was told, and the digests
//! say that nothing changed.
//!
//! **Segments and ids** tell this history from any other in which the same numbers were counted: see `history`. Each start
//! writes a batch of its own for it, before anybody is answered ([`Ledger::begin_run`]).
//!
//! **One destination, several sources.** Per target, the source that is admitted first holds the destination, and that is
//! persisted. The others wait ([`SourceView::waiting`]) and take over in the revision in which the holder goes. A source
//! recreated in its place inherits. An implied namespace gives way to any explicit one. No tombstone is made where another
//! source holds the destination: the agent marks its object anew.
//!
//! **Tombstones** carry the prune policy that was last in force, for the agent may have been away by then, and speak for
//! their destination: a target has one for each at most. What is assigned again there ends it, unless what stood there was to
//! be let go of: then it stays until the target has said that it knows, and what stands there counts as adopted.
//!
//! **What an agent does not understand** is withheld from it: its entry says so, and nothing else, in pages, digests and the
//! log alike (`missing_capabilities`). So a set is told in one way at one revision, and an upgrade is a commit that releases the rest.
//!
//! **What is kept.** Where one change unassigns more than goes without asking, claims keep their targets as they were. What
//! is kept is in the set, and belongs to nobody: whatever wants its place gets it, and what wants it again has it.

mod batch;
mod broken;
mod chunks;
mod claim;
mod codec;
mod commit;
mod happened;
mod history;
mod log;
mod missing_capabilities;
mod page;
mod pages;
mod places;
mod plan;
mod record;
mod removals;
mod retention;
mod slot;
mod tombstones;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use roaring::RoaringBitmap;
use tideline_common::{
    Capabilities, Capability, Entry, Epoch, GroupKind, ObjectKey, ReportClass, Revision, Shown, SourceRef, SpaceName,
    TargetId, Uid,
};

use crate::placement::{Assignment, GroupResource, PlacementId, SourceId};

use crate::clean::Destination;

pub use crate::bitmap::TargetIndex;
pub use batch::{Batch, Committed, StaleBatch};
pub use broken::{Absence, Missing, Restored, TargetContinuity, Void};
pub use chunks::{CHUNK_BYTES_MAX, CHUNK_OPS_MAX, Write, chunked};
pub use claim::Body;
pub use codec::{Error, KEY_PREFIX, SCHEMA};
pub use happened::DEPARTED_MAX;
pub use history::{Fresh, Lineage, REVISION_IDS_MAX, Segment};
pub use log::{LOG_BYTES_MAX, LOG_ENTRIES_MAX};
pub use page::{PageData, TargetView};
pub use places::{Place, PlaceChange};
pub use record::{BODY_PART_BYTES_MAX, restored};
pub use retention::Retention;

use broken::{Broken, Voids};
use claim::{Claim, ClaimId};
use commit::TargetState;
use happened::Happened;
use history::History;
use log::Log;
use missing_capabilities::MissingCapabilities;
use pages::Pages;
use removals::{Known, Removals};
use tombstones::Tombstones;

/// The state of everything that is assigned, and of every removal that is not confirmed. A copy shares with this all that
/// neither has changed since: whoever plans or reads has one, and nobody waits for anybody.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Batches committed since it was made or loaded; a batch names the one it follows.
    sequence: u64,
    revision: Revision,
    /// Counts sources as they are admitted: who came first.
    admissions: u64,
    next_target: TargetIndex,
    target_ids: Pages<TargetId, TargetIndex>,
    targets: Pages<TargetIndex, Arc<TargetState>>,
    /// The indexes in `targets`.
    registered: RoaringBitmap,
    claims: Pages<ClaimId, Arc<Claim>>,
    /// The claims of those that are called otherwise at targets, by the place of their source in its space.
    mapped: Pages<(SpaceName, ObjectKey), BTreeSet<ClaimId>>,
    /// Where the sources of claims are in their spaces, with how many claims each place has.
    places: Pages<(SpaceName, ObjectKey), u32>,
    /// Claims of which targets keep something that nothing wants any more.
    kept: Pages<ClaimId, ()>,
    /// Sources by destination and target, less implied namespaces.
    assigned: u64,
    slots: Slots,
    /// Variants that use each stored body.
    bodies: Pages<tideline_common::Digest, BodyUse>,
    tombstones: Removals,
    happened: Known<Happened>,
    /// What happened of sources that are not assigned any more, by when they left.
    departed: Pages<(Revision, ObjectKey, Uid), ()>,
    choices: BTreeMap<PlacementId, RoaringBitmap>,
    missing_capabilities: MissingCapabilities,
    retention: Retention,
    log: Log,
    history: History,
    broken: Broken,
    /// By the object that holds the approval.
    voids: Voids,
    /// Objects by which a person accepted that history was lost.
    heeded: BTreeSet<Uid>,
    /// Records that nothing refers to, left by a crash; the next batch deletes them.
    garbage: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug)]
struct BodyUse {
    variants: usize,
    parts: usize,
}

/// Destination keys with their claims, under dense numbers.
#[derive(Clone, Debug, Default)]
struct Slots {
    by_key: Pages<ObjectKey, u32>,
    slots: Pages<u32, Slot>,
    free: Vec<u32>,
    /// Where something needs what agents may not understand.
    needing: BTreeMap<Capability, RoaringBitmap>,
}

#[derive(Clone, Debug)]
struct Slot {
    key: ObjectKey,
    /// In the order of admission; empty only while it is free.
    claims: Vec<Arc<Claim>>,
}

impl Slots {
    fn claims(&self, key: &ObjectKey) -> &[Arc<Claim>] {
        self.by_key.get(key).map_or(&[], |index| &self.slots[index].claims)
    }

    fn get(&self, index: u32) -> &Slot {
        &self.slots[&index]
    }

    /// Where something needs any of these.
    fn needing<'c>(&self, any: impl IntoIterator<Item = &'c Capability>) -> RoaringBitmap {
        let needing = any.into_iter().filter_map(|capability| self.needing.get(capability));
        needing.fold(RoaringBitmap::new(), |all, slots| all | slots)
    }
}

impl Slot {
    /// What is needed to understand all that is claimed here.
    fn needs(&self) -> impl Iterator<Item = Capability> {
        let forms = self.claims.iter().flat_map(|claim| &claim.forms);
        forms.filter_map(|form| form.needing.as_ref()).flat_map(|needing| needing.needs.iter().copied())
    }

    /// What `target` holds here.
    fn holder(&self, target: TargetIndex) -> Option<(&Claim, &claim::Form)> {
        holder(&self.claims, target)
    }
}

fn holder(claims: &[Arc<Claim>], target: TargetIndex) -> Option<(&Claim, &claim::Form)> {
    let claim = claims.iter().find(|claim| claim.held.contains(target))?;
    Some((claim, claim.form(target)?))
}

/// One source at one destination, as the ledger has it.
#[derive(Clone, Copy, Debug)]
pub struct SourceView<'a> {
    claim: &'a Claim,
}

impl<'a> SourceView<'a> {
    pub fn id(&self) -> &'a SourceId {
        &self.claim.id.source
    }

    pub fn source(&self) -> &'a SourceRef {
        &self.claim.source
    }

    /// The destination key, the same on every target.
    pub fn key(&self) -> &'a ObjectKey {
        &self.claim.key
    }

    /// What its namespace is called there, if it is called otherwise than in the space.
    pub fn destination(&self) -> &'a Destination {
        &self.claim.id.destination
    }

    /// The place of the source in its space.
    pub fn place(&self) -> ObjectKey {
        self.claim.place()
    }

    pub fn generation(&self) -> i64 {
        self.claim.forms.first().map_or(0, |form| form.entry.generation)
    }

    /// Every target that it is assigned to, as an object and not as an implied namespace. What a rollup expects.
    pub fn assigned(&self) -> RoaringBitmap {
        self.claim.explicit()
    }

    /// Targets where it holds its destination.
    pub fn held(&self) -> &'a RoaringBitmap {
        &self.claim.held
    }

    /// Targets where it is `Withheld(Conflict)`: another source holds the destination.
    pub fn waiting(&self) -> RoaringBitmap {
        self.claim.explicit() - &self.claim.held
    }

    /// Targets that keep it though nothing wants it there any more, until a person approves that it goes.
    pub fn kept(&self) -> &'a RoaringBitmap {
        &self.claim.kept
    }

    /// The revision that kept any of it last: what an approval names.
    pub fn kept_at(&self) -> Revision {
        self.claim.kept_at
    }

    /// Its entries with the targets that each is for.
    pub fn entries(&self) -> impl Iterator<Item = EntryView<'a>> + use<'a> {
        self.claim.forms.iter().map(|form| EntryView { form })
    }

    /// Whether the whole status is to come back from one of its targets.
    pub fn returns_status(&self, target: TargetIndex) -> bool {
        self.claim.form(target).is_some_and(|form| form.policy.report == ReportClass::Status)
    }

    /// What the agent of one of its targets does not understand, and would have to; empty where it is told.
    pub fn too_old_for(&self, ledger: &Ledger, target: TargetIndex) -> BTreeSet<Capability> {
        let needing = self.claim.form(target).and_then(|form| form.needing.as_ref());
        needing.map(|needing| &needing.needs & &ledger.missing_capabilities.of(target)).unwrap_or_default()
    }

    /// The assignment as it was made, as far as it is of this destination.
    pub fn assignment(&self) -> Assignment {
        self.claim.assignment()
    }
}

/// What a source is to be at some of its targets.
#[derive(Clone, Copy, Debug)]
pub struct EntryView<'a> {
    form: &'a claim::Form,
}

impl<'a> EntryView<'a> {
    pub fn entry(&self) -> &'a Entry {
        &self.form.entry
    }

    /// Whether its source holds the destination there or not.
    pub fn targets(&self) -> &'a RoaringBitmap {
        &self.form.targets
    }

    /// Those of some targets whose agents do not understand all that they would have to, by what that is.
    pub fn too_old(&self, ledger: &Ledger, targets: &RoaringBitmap) -> Vec<(BTreeSet<Capability>, RoaringBitmap)> {
        let needing = self.form.needing.as_ref();
        needing.map(|needing| ledger.missing_capabilities.by_lack(&needing.needs, targets)).unwrap_or_default()
    }
}

/// A removal that some target has not confirmed.
#[derive(Clone, Debug)]
pub struct RemovalView<'a> {
    pub key: &'a ObjectKey,
    pub source: &'a Uid,
    /// The source as it was when it left; none for a removal that an older hub wrote.
    pub origin: Option<&'a SourceRef>,
    /// Those that have nothing in its place again.
    pub targets: RoaringBitmap,
}

impl<'a> RemovalView<'a> {
    /// None where all targets have something in its place again.
    fn new((key, source, tombstones): (&'a ObjectKey, &'a Uid, &'a Tombstones), held: &RoaringBitmap) -> Option<Self> {
        let targets = tombstones.targets() - held;
        (!targets.is_empty()).then_some(Self { key, source, origin: tombstones.origin.as_ref(), targets })
    }
}

impl Ledger {
    /// The number of the last commit that changed any desired set.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Every segment of the history, in order; the last one is open.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = Segment> {
        self.history.segments(self.revision)
    }

    /// Whether what an agent shows is part of this history.
    pub fn lineage(&self, shown: Shown) -> Lineage {
        self.history.lineage(self.revision, shown)
    }

    /// A target is handed its set of a revision. Written with the next segment.
    pub fn handed(&mut self, target: TargetId, revision: Revision) {
        if let Some(index) = self.index_of(target) {
            self.history.handed(index, revision);
        }
    }

    /// The revision that a target was handed last.
    #[cfg(test)]
    pub(crate) fn handed_last(&self, target: TargetId) -> Option<Revision> {
        self.history.handed_last(self.index_of(target)?)
    }

    /// Whether the agent of a target showed a later set of this history before, as far as that was written.
    pub fn has_shown_later(&self, target: TargetId, shown: Shown) -> bool {
        let later = self.index_of(target).and_then(|index| self.history.confirmed_last(index));
        later.is_some_and(|later| later > shown.version.revision) && self.lineage(shown) == Lineage::Same
    }

    /// The agent of a target shows what it has accepted. Written with the next segment.
    pub fn confirmed(&mut self, target: TargetId, shown: Shown) {
        let Some(index) = self.index_of(target) else { return };
        if self.lineage(shown) != Lineage::Same {
            return;
        }
        let revision = shown.version.revision;
        self.history.confirmed(index, revision);
        // A run on a copy of this store, which began later, may have given the present set under a later revision.
        if self.targets[&index].revision < revision
            && let Some(target) = self.targets.get_mut(&index)
        {
            Arc::make_mut(target).revision = revision;
        }
    }

    pub fn index_of(&self, target: TargetId) -> Option<TargetIndex> {
        self.target_ids.get(&target).copied()
    }

    pub fn target_at(&self, index: TargetIndex) -> Option<TargetId> {
        self.targets.get(&index).map(|state| state.id)
    }

    /// The numbers of all targets.
    pub fn registered(&self) -> &RoaringBitmap {
        &self.registered
    }

    /// Every registered target.
    pub fn targets(&self) -> impl Iterator<Item = (TargetId, TargetIndex)> + '_ {
        self.target_ids.iter().map(|(id, index)| (*id, *index))
    }

    pub fn target(&self, target: TargetId) -> Option<TargetView<'_>> {
        let index = self.index_of(target)?;
        Some(TargetView::new(self, index, &self.targets[&index]))
    }

    pub fn epoch(&self, target: TargetId) -> Option<Epoch> {
        self.target(target).map(|view| view.version().epoch)
    }

    /// One source, once for each destination.
    pub fn source<'a>(&'a self, id: &SourceId) -> impl Iterator<Item = SourceView<'a>> + use<'a> {
        self.claims_of(id).map(|claim| SourceView { claim })
    }

    fn claims_of<'a>(&'a self, id: &SourceId) -> impl Iterator<Item = &'a Claim> + use<'a> {
        let (claims, id) = (self.claims.range_from(Bound::Included(&first_of(id))), id.clone());
        claims.take_while(move |(claim, _)| claim.source == id).map(|(_, claim)| &**claim)
    }

    /// The source at a place of a space, once for each destination. Of one that was recreated and not taken over yet, all
    /// that were there.
    pub fn sources_from(&self, space: &SpaceName, place: &ObjectKey) -> impl Iterator<Item = SourceView<'_>> {
        let here = self.slots.claims(place).iter().map(|claim| &**claim);
        let here = here.filter(move |claim| claim.id.destination.is_none() && claim.id.source.space == *space);
        let mapped = self.mapped.get(&(space.clone(), place.clone())).into_iter().flatten();
        here.chain(mapped.map(|id| &*self.claims[id])).map(|claim| SourceView { claim })
    }

    /// How many sources are assigned anywhere, each counted once for each destination.
    pub fn sources_len(&self) -> usize {
        self.claims.len()
    }

    /// Every source that is assigned anywhere, in order, once for each destination.
    pub fn sources(&self) -> impl Iterator<Item = SourceView<'_>> {
        self.claims.values().map(|claim| SourceView { claim })
    }

    /// Sources of which targets keep something that nothing wants there any more, once for each destination.
    pub fn kept(&self) -> impl Iterator<Item = SourceView<'_>> {
        self.kept_after(None)
    }

    /// The same, by source and destination, behind one of them.
    pub fn kept_after(
        &self,
        after: Option<&(SourceId, Destination)>,
    ) -> impl Iterator<Item = SourceView<'_>> + use<'_> {
        let after = after.map(|(source, at)| ClaimId { source: source.clone(), destination: at.clone() });
        let behind = self.kept.range_from(after.as_ref().map_or(Bound::Unbounded, Bound::Excluded));
        behind.map(|(id, ())| SourceView { claim: &self.claims[id] })
    }

    /// How often any source is assigned to any target, less implied namespaces.
    pub fn assigned(&self) -> u64 {
        self.assigned
    }

    /// Every assignment as it was made: what the index goes on from after a restart.
    pub fn assignments(&self) -> Vec<Assignment> {
        let mut all: Vec<Assignment> = Vec::new();
        let parts = self.claims.values().map(|claim| claim.assignment());
        for part in parts.filter(|part| !part.variants.is_empty()) {
            match all.last_mut().filter(|whole| whole.id == part.id) {
                Some(whole) => {
                    let says = |of: &Assignment| (of.version.clone(), of.generation, of.wave, of.impersonate.clone());
                    if says(whole) != says(&part) {
                        // A crash has left them so. With a generation that no source has it is told anew, all of it.
                        whole.generation = -1;
                    }
                    whole.variants.extend(part.variants);
                }
                None => all.push(part),
            }
        }
        all
    }

    /// The first place of a space from here on that has sources or removals, less the removals that do not say whose they are.
    /// Each place may be that of an implied namespace alone.
    pub fn next_place(&self, space: &SpaceName, from: Bound<ObjectKey>) -> Option<&ObjectKey> {
        let from = match from {
            Bound::Included(key) => Bound::Included((space.clone(), key)),
            Bound::Excluded(key) => Bound::Excluded((space.clone(), key)),
            Bound::Unbounded => Bound::Included((space.clone(), ObjectKey::new(GroupKind::new("", ""), "", ""))),
        };
        let removed = self.tombstones.next_place(from.as_ref());
        let placed = self.places.range_from(from.as_ref()).next().map(|(place, _)| place);
        let here = [placed, removed].into_iter().flatten().filter(|(of, _)| of == space);
        here.map(|(_, place)| place).min()
    }

    /// The kinds that a space places anything of, and those of every removal that is not confirmed, each by one step.
    pub fn kinds_of(&self, space: &SpaceName) -> BTreeSet<&GroupKind> {
        let mut kinds = BTreeSet::new();
        let mut next = before(space, GroupResource::new("", ""));
        while let Some((id, claim)) =
            self.claims.range_from(Bound::Included(&next)).next().filter(|(id, _)| id.source.space == *space)
        {
            kinds.insert(&claim.key.kind);
            // Nothing sorts between a name and the same with a zero behind it.
            let GroupResource { group, resource } = &id.source.resource;
            next = before(space, GroupResource::new(group.clone(), format!("{resource}\0")));
        }
        let mut next = ObjectKey::new(GroupKind::new("", ""), "", "");
        while let Some((key, _)) = self.tombstones.places().range_from(Bound::Included(&next)).next() {
            kinds.insert(&key.kind);
            let behind = format!("{}\0", key.kind.kind);
            next = ObjectKey::new(GroupKind::new(key.kind.group.clone(), behind), "", "");
        }
        kinds
    }

    /// Whether the set of a target is told to an agent that understands this, and no more.
    pub fn is_told_to(&self, target: TargetId, understands: &Capabilities) -> bool {
        self.index_of(target).is_none_or(|index| self.missing_capabilities.is_told_to(index, understands))
    }

    /// The source that holds a destination of a target.
    pub fn holder(&self, target: TargetIndex, key: &ObjectKey) -> Option<SourceView<'_>> {
        holder(self.slots.claims(key), target).map(|(claim, _)| SourceView { claim })
    }

    /// Every removal that some target has not confirmed.
    pub fn removals(&self) -> impl Iterator<Item = RemovalView<'_>> {
        self.tombstones.places().iter().flat_map(|at| self.removals_at(at))
    }

    /// Those of the sources that were at a place of a space.
    pub fn removals_from(&self, space: &SpaceName, place: &ObjectKey) -> impl Iterator<Item = RemovalView<'_>> {
        self.tombstones.from(space, place).filter_map(|removal| self.removal(removal))
    }

    /// Those of which an older hub did not say whose they are.
    pub fn removals_unnamed(&self) -> impl Iterator<Item = RemovalView<'_>> {
        self.tombstones.unnamed().filter_map(|removal| self.removal(removal))
    }

    fn removal<'a>(&self, removal: (&'a ObjectKey, &'a Uid, &'a Tombstones)) -> Option<RemovalView<'a>> {
        RemovalView::new(removal, &slot::all_held(self.slots.claims(removal.0)))
    }

    fn removals_at<'a>(
        &'a self,
        (key, by_source): (&'a ObjectKey, &'a BTreeMap<Uid, Tombstones>),
    ) -> impl Iterator<Item = RemovalView<'a>> + use<'a> {
        let held = slot::all_held(self.slots.claims(key));
        by_source.iter().filter_map(move |(source, tombstones)| RemovalView::new((key, source, tombstones), &held))
    }

    /// What Placements with `numberOfTargets` have chosen.
    pub fn choices(&self) -> impl Iterator<Item = (&PlacementId, &RoaringBitmap)> {
        self.choices.iter()
    }
}

/// What sorts before every source of a resource.
fn before(space: &SpaceName, resource: GroupResource) -> ClaimId {
    let uid = Uid::try_from("\0".to_owned()).expect("it is one byte, and one is enough");
    first_of(&SourceId { space: space.clone(), resource, uid })
}

/// What sorts before every other claim of a source.
fn first_of(source: &SourceId) -> ClaimId {
    ClaimId { source: source.clone(), destination: None }
}

#[cfg(test)]
mod tests;
