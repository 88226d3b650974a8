use std::collections::BTreeMap;

use roaring::RoaringBitmap;
use tideline_common::wire::v1::Terminal;

use super::TargetIndex;

/// What happened once at targets, of one source at one destination, and must not happen there again: also where an agent
/// has lost its memory of it, and this hub was started anew since it was told.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Happened(BTreeMap<Terminal, RoaringBitmap>);

impl Happened {
    pub(super) fn new(facts: impl IntoIterator<Item = (Terminal, RoaringBitmap)>) -> Self {
        let mut happened = Self(facts.into_iter().collect());
        happened.tidy();
        happened
    }

    /// By fact, over disjoint and non-empty sets of targets.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Terminal, &RoaringBitmap)> {
        self.0.iter().map(|(fact, targets)| (*fact, targets))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn at(&self, target: TargetIndex) -> Option<Terminal> {
        self.iter().find(|(_, targets)| targets.contains(target)).map(|(fact, _)| fact)
    }

    /// The last fact is the one that counts.
    pub(super) fn note(&mut self, target: TargetIndex, fact: Terminal) {
        self.forget(&RoaringBitmap::from_iter([target]));
        self.0.entry(fact).or_default().insert(target);
    }

    pub(super) fn forget(&mut self, targets: &RoaringBitmap) {
        for there in self.0.values_mut() {
            *there -= targets;
        }
        self.tidy();
    }

    pub(super) fn restrict(&mut self, to: &RoaringBitmap) {
        for there in self.0.values_mut() {
            *there &= to;
        }
        self.tidy();
    }

    fn tidy(&mut self) {
        self.0.retain(|_, targets| !targets.is_empty());
    }
}
