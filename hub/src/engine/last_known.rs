//! What placement knew of each SyncTarget when it was read last. A SyncTarget that cannot be read at a start of the hub takes part
//! with that, whether or not it has an agent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tideline_common::wire::v1::Decommission;
use tideline_common::{Digest, TargetId};

use crate::clean::Labels;
use crate::placement::Target;

/// One SyncTarget as it was read last: some 200 bytes, and as much as its labels. There are as many as SyncTargets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastKnown {
    /// The SyncTarget's name.
    #[serde(default)]
    pub name: String,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unschedulable: bool,
    #[serde(default)]
    pub decommission: Decommission,
}

impl LastKnown {
    pub(super) fn of(target: &Target) -> Self {
        let Target { id: _, name, labels, unschedulable, decommission } = target;
        Self {
            name: name.to_string(),
            labels: labels.clone(),
            unschedulable: *unschedulable,
            decommission: *decommission,
        }
    }

    pub(super) fn target(&self, id: TargetId) -> Target {
        let Self { name, labels, unschedulable, decommission } = self.clone();
        Target { id, name: name.into(), labels, unschedulable, decommission }
    }

    fn digest(&self) -> Digest {
        Digest::of(&serde_json::to_vec(self).expect("it has only strings and numbers"))
    }
}

/// All of them, and what of them is not persisted yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Inventory {
    known: BTreeMap<TargetId, Known>,
    unsaved: BTreeMap<TargetId, Option<LastKnown>>,
}

#[derive(Clone, Debug)]
enum Known {
    /// To an earlier run, and not read in this one.
    Before(LastKnown),
    /// Read in this run: placement has it, and this is what tells a change.
    Now(Digest),
}

impl Inventory {
    pub(super) fn new(known: BTreeMap<TargetId, LastKnown>) -> Self {
        let known = known.into_iter().map(|(target, known)| (target, Known::Before(known))).collect();
        Self { known, unsaved: BTreeMap::new() }
    }

    /// It was read.
    pub(super) fn seen(&mut self, target: TargetId, known: LastKnown) {
        let digest = known.digest();
        let same = match self.known.insert(target, Known::Now(digest)) {
            Some(Known::Before(former)) => former == known,
            Some(Known::Now(former)) => former == digest,
            None => false,
        };
        if !same {
            self.unsaved.insert(target, Some(known));
        }
    }

    /// It is there no more.
    pub(super) fn gone(&mut self, target: TargetId) {
        if self.known.remove(&target).is_some() {
            self.unsaved.insert(target, None);
        }
    }

    /// What an earlier run knew of it, where this one has not read it.
    pub(super) fn before(&self, target: TargetId) -> Option<&LastKnown> {
        match self.known.get(&target)? {
            Known::Before(known) => Some(known),
            Known::Now(_) => None,
        }
    }

    /// The target that had this name in an earlier run, and was not read in this one.
    pub(super) fn named(&self, name: &str) -> Option<TargetId> {
        self.known.keys().copied().find(|target| self.before(*target).is_some_and(|known| known.name == name))
    }

    pub(super) fn contains(&self, target: TargetId) -> bool {
        self.known.contains_key(&target)
    }

    pub(super) fn targets(&self) -> impl Iterator<Item = TargetId> {
        self.known.keys().copied()
    }

    pub(super) fn is_saved(&self) -> bool {
        self.unsaved.is_empty()
    }

    /// What is to be written, and deleted where there is none.
    pub(super) fn take_unsaved(&mut self) -> BTreeMap<TargetId, Option<LastKnown>> {
        std::mem::take(&mut self.unsaved)
    }
}

#[cfg(test)]
mod tests;
