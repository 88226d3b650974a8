//! Where in the spaces it shows what becomes of destinations.

use std::collections::BTreeSet;

use tideline_common::{ObjectKey, SpaceName};

use super::Ledger;
use super::batch::Batch;
use crate::limits::COMMIT_PLACES_MAX;

impl Ledger {
    /// The places of all sources that have or had something to do with a destination. None where an older hub did not say whose
    /// it was.
    pub fn places_at(&self, key: &ObjectKey) -> Option<Vec<(SpaceName, ObjectKey)>> {
        let claims = self.slots.claims(key).iter().map(|claim| Some(&claim.source));
        let removals = self.tombstones.at(key).into_iter().flatten().map(|(_, removal)| removal.origin.as_ref());
        claims
            .chain(removals)
            .map(|source| source.map(|source| (source.space.clone(), source.key(&key.kind))))
            .collect()
    }

    /// The same of many.
    pub(super) fn places_at_all(&self, keys: &BTreeSet<ObjectKey>) -> Option<BTreeSet<(SpaceName, ObjectKey)>> {
        let mut all = BTreeSet::new();
        for key in keys {
            all.extend(self.places_at(key)?);
        }
        Some(all)
    }

    /// The destinations of which something becomes by a batch that is not committed yet. None for any: of what agents
    /// understand it depends what is told of all that they have, and of more than so many nobody reads one by one.
    pub(super) fn destinations_of(&self, batch: &Batch) -> Option<BTreeSet<ObjectKey>> {
        let Batch { claims, slots, tombstones, understands, forgotten, .. } = batch;
        let many = claims.len().max(slots.len()).max(tombstones.len()) > COMMIT_PLACES_MAX;
        if many || !understands.is_empty() || !forgotten.is_empty() {
            return None;
        }
        let former = claims.keys().filter_map(|id| self.claims.get(id)).map(|claim| claim.key.clone());
        let next = claims.values().flatten().map(|claim| claim.key.clone());
        let slots = slots.iter().map(|(key, ..)| key.clone());
        let removed = tombstones.keys().map(|(key, _)| key.clone());
        Some(former.chain(next).chain(slots).chain(removed).collect())
    }
}
