//! Where in the spaces it shows what becomes of destinations.

use std::collections::{BTreeMap, BTreeSet};

use roaring::RoaringBitmap;
use tideline_common::{ObjectKey, SourceRef, SpaceName};

use super::Ledger;

/// A place in a space.
pub type Place = (SpaceName, ObjectKey);

/// What became of what is shown at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlaceChange {
    /// It may read otherwise.
    Reads,
    /// Copies may be gone, or all of it.
    Diminished,
}

/// The targets that have or had a copy, by its place in the space and its destination.
type Copies = BTreeMap<(Place, ObjectKey), RoaringBitmap>;

impl Ledger {
    /// The places of all sources that have or had something to do with a destination. None where an older hub did not say whose
    /// it was.
    pub fn places_at(&self, key: &ObjectKey) -> Option<Vec<Place>> {
        self.sources_at(key).map(|source| source.map(|(source, _)| place(source, key))).collect()
    }

    /// What has or had something to do with a destination, with its targets.
    fn sources_at(&self, key: &ObjectKey) -> impl Iterator<Item = Option<(&SourceRef, RoaringBitmap)>> {
        let claims = self.slots.claims(key).iter().map(|claim| Some((&claim.source, claim.explicit())));
        let removals = self.tombstones.at(key).into_iter().flatten();
        claims.chain(removals.map(|(_, removal)| Some((removal.origin.as_ref()?, removal.targets()))))
    }

    pub(super) fn copies_at(&self, keys: &BTreeSet<ObjectKey>) -> Option<Copies> {
        let mut copies = Copies::new();
        for key in keys {
            for source in self.sources_at(key) {
                let (source, targets) = source?;
                *copies.entry((place(source, key), key.clone())).or_default() |= targets;
            }
        }
        Some(copies)
    }
}

fn place(source: &SourceRef, key: &ObjectKey) -> Place {
    (source.space.clone(), source.key(&key.kind))
}

/// What became of the places of these copies.
pub(super) fn changes(before: &Copies, after: &Copies) -> BTreeMap<Place, PlaceChange> {
    let none = RoaringBitmap::new();
    let mut changes: BTreeMap<Place, PlaceChange> = BTreeMap::new();
    for at in before.keys().chain(after.keys()) {
        let [former, present] = [before, after].map(|copies| copies.get(at).unwrap_or(&none));
        let change = if former.is_subset(present) { PlaceChange::Reads } else { PlaceChange::Diminished };
        let known = changes.entry(at.0.clone()).or_insert(change);
        *known = change.max(*known);
    }
    changes
}
