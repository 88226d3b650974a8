//! Which targets have an agent that does not understand what. An agent that has not said anything yet is told nothing, so
//! that it counts as one that understands all.

use std::collections::{BTreeMap, BTreeSet};

use roaring::RoaringBitmap;
use tideline_common::{Capabilities, Capability};

use super::TargetIndex;

#[derive(Clone, Debug, Default)]
pub(super) struct MissingCapabilities {
    by_capability: BTreeMap<Capability, RoaringBitmap>,
}

impl MissingCapabilities {
    /// The agent of a target understands this, and no more.
    pub(super) fn set(&mut self, target: TargetIndex, understands: &Capabilities) {
        self.forget(target);
        for missing in understands.missing() {
            self.by_capability.entry(missing).or_default().insert(target);
        }
    }

    pub(super) fn forget(&mut self, target: TargetIndex) {
        self.by_capability.retain(|_, targets| {
            targets.remove(target);
            !targets.is_empty()
        });
    }

    /// What the agent of a target does not understand.
    pub(super) fn of(&self, target: TargetIndex) -> BTreeSet<Capability> {
        let lacking = self.by_capability.iter().filter(|(_, targets)| targets.contains(target));
        lacking.map(|(capability, _)| *capability).collect()
    }

    /// Whether it lacks any of these.
    pub(super) fn lacks(&self, target: TargetIndex, needs: &BTreeSet<Capability>) -> bool {
        let targets = |needed| self.by_capability.get(needed);
        needs.iter().filter_map(targets).any(|targets| targets.contains(target))
    }

    /// Targets that lack any of these.
    pub(super) fn any_of(&self, needs: &BTreeSet<Capability>) -> RoaringBitmap {
        let targets = needs.iter().filter_map(|needed| self.by_capability.get(needed));
        targets.fold(RoaringBitmap::new(), |all, targets| all | targets)
    }

    /// Those of some targets that lack any of these, by what they lack of them.
    pub(super) fn by_lack(
        &self,
        needs: &BTreeSet<Capability>,
        targets: &RoaringBitmap,
    ) -> Vec<(BTreeSet<Capability>, RoaringBitmap)> {
        let mut parts = vec![(BTreeSet::new(), self.any_of(needs) & targets)];
        for (needed, lacking) in needs.iter().filter_map(|needed| Some((needed, self.by_capability.get(needed)?))) {
            for (lack, part) in std::mem::take(&mut parts) {
                let (with, without) = (&part & lacking, part - lacking);
                let more = lack.iter().chain([needed]).copied().collect();
                parts.extend([(more, with), (lack, without)].into_iter().filter(|(_, part)| !part.is_empty()));
            }
        }
        parts
    }

    /// Whether an agent that understands this, and no more, is told what it is to be told.
    pub(super) fn is_told_to(&self, target: TargetIndex, understands: &Capabilities) -> bool {
        self.of(target) == understands.missing()
    }
}
