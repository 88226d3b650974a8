use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use roaring::RoaringBitmap;
use tideline_common::{ObjectKey, Revision, SourceRef, SpaceName};

use super::Engine;
use crate::clean::Destination;
use crate::placement::{Change, SourceId};

/// One source that targets keep at one destination, though nothing wants it there any more.
#[derive(Clone, Debug)]
pub struct KeptSource {
    /// What an approval names.
    pub revision: Revision,
    pub source: SourceRef,
    /// The place in the space.
    pub key: ObjectKey,
    /// The place at the targets.
    pub destination: ObjectKey,
    pub targets: RoaringBitmap,
}

/// How many assignments targets keep though nothing wants them any more.
#[derive(Clone, Debug, Default)]
pub struct KeptCounts {
    spaces: BTreeMap<SpaceName, KeptInSpace>,
}

#[derive(Clone, Debug, Default)]
struct KeptInSpace {
    all: u64,
    /// Of what several select, in each of them.
    placements: BTreeMap<Arc<str>, u64>,
}

impl Engine {
    /// Everything that waits for a person to approve that it is unassigned, by source and destination, behind one of them.
    pub fn kept_sources_after(
        &self,
        after: Option<&(SourceId, Destination)>,
    ) -> impl Iterator<Item = ((SourceId, Destination), KeptSource)> {
        self.ledger.kept_after(after).map(|view| {
            let kept = KeptSource {
                revision: view.kept_at(),
                source: view.source().clone(),
                key: view.place(),
                destination: view.key().clone(),
                targets: view.kept().clone(),
            };
            ((view.id().clone(), view.destination().clone()), kept)
        })
    }

    /// A person approved what was held at these revisions. To be told again does no harm.
    pub fn release(&mut self, revisions: &BTreeSet<Revision>) {
        let held: BTreeSet<_> = self.ledger.kept().map(|view| view.kept_at()).collect();
        self.changes.extend(held.intersection(revisions).copied().map(Change::Release));
    }

    /// How many assignments wait so. One pass over them, however many Placements there are: the engine is locked
    /// meanwhile.
    pub fn kept_counts(&self) -> KeptCounts {
        let mut spaces: BTreeMap<SpaceName, KeptInSpace> = BTreeMap::new();
        for view in self.ledger.kept() {
            let (source, kept) = (view.id(), view.kept().len());
            let counts = spaces.entry(source.space.clone()).or_default();
            counts.all += kept;
            for placement in self.index.selecting(source, &view.place()) {
                *counts.placements.entry(placement.clone()).or_default() += kept;
            }
        }
        KeptCounts { spaces }
    }
}

impl KeptCounts {
    /// In a space.
    pub fn of_space(&self, space: &SpaceName) -> u64 {
        self.spaces.get(space).map_or(0, |counts| counts.all)
    }

    /// Of what one Placement selects.
    pub fn of_placement(&self, space: &SpaceName, placement: &str) -> u64 {
        self.spaces.get(space).and_then(|counts| counts.placements.get(placement)).copied().unwrap_or_default()
    }
}
