use std::collections::BTreeSet;

use tideline_common::{ObjectKey, Revision, SourceRef, SpaceName, TargetId};

use super::Engine;
use crate::placement::Change;

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
    pub targets: Vec<TargetId>,
}

impl Engine {
    /// Everything that waits for a person to approve that it is unassigned.
    pub fn kept_sources(&self) -> impl Iterator<Item = KeptSource> {
        self.ledger.kept().map(|view| KeptSource {
            revision: view.kept_at(),
            source: view.source().clone(),
            key: view.place(),
            destination: view.key().clone(),
            targets: view.kept().iter().filter_map(|index| self.ledger.target_at(index)).collect(),
        })
    }

    /// A person approved what was held at these revisions. To be told again does no harm.
    pub fn release(&mut self, revisions: &BTreeSet<Revision>) {
        let held: BTreeSet<_> = self.ledger.kept().map(|view| view.kept_at()).collect();
        self.changes.extend(held.intersection(revisions).copied().map(Change::Release));
    }

    /// How many assignments of a space wait so.
    pub fn kept_in(&self, space: &SpaceName) -> u64 {
        let kept = self.ledger.kept().filter(|view| view.id().space == *space);
        kept.map(|view| view.kept().len()).sum()
    }

    /// The same of what one Placement selects.
    pub fn kept_of(&self, space: &SpaceName, placement: &str) -> u64 {
        let kept = self.ledger.kept().filter(|view| view.id().space == *space);
        let selected = kept.filter(|view| self.index.selects(placement, view.id(), &view.place()));
        selected.map(|view| view.kept().len()).sum()
    }
}
