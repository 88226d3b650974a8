//! Segments of other histories that the hub's own word has proven.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tideline_common::{Epoch, Revision, SegmentId, TargetId, Version};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Seen {
    pub(super) revision: Revision,
    pub(super) epoch: Epoch,
    pub(super) by: TargetId,
    pub(super) after: Revision,
    /// Up to where it is covered.
    pub(super) covered: Option<Version>,
}

impl Seen {
    pub(super) fn is_covered(&self) -> bool {
        self.covers(self.version())
    }

    /// The highest that was shown of each.
    pub(super) fn version(&self) -> Version {
        Version { epoch: self.epoch, revision: self.revision }
    }

    pub(super) fn covers(&self, version: Version) -> bool {
        self.covered.is_some_and(|covered| is_within(version, covered))
    }
}

/// An epoch does not make up for a revision, nor the other way around.
pub(super) fn is_within(version: Version, bound: Version) -> bool {
    version.revision <= bound.revision && version.epoch <= bound.epoch
}

/// All of them, with how many are not covered: every request asks whether any is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SeenSegments {
    by_id: BTreeMap<SegmentId, Seen>,
    uncovered: usize,
}

impl SeenSegments {
    pub(super) fn by_id(&self) -> &BTreeMap<SegmentId, Seen> {
        &self.by_id
    }

    pub(super) fn get(&self, segment: SegmentId) -> Option<&Seen> {
        self.by_id.get(&segment)
    }

    pub(super) fn put(&mut self, segment: SegmentId, seen: Seen) {
        self.uncovered += usize::from(!seen.is_covered());
        let former = self.by_id.insert(segment, seen);
        self.uncovered -= usize::from(former.is_some_and(|former| !former.is_covered()));
    }

    pub(super) fn are_covered(&self) -> bool {
        self.uncovered == 0
    }

    /// Those that are not covered, which are looked for only if there are any.
    pub(super) fn uncovered(&self) -> impl Iterator<Item = (&SegmentId, &Seen)> {
        let all = (!self.are_covered()).then_some(&self.by_id);
        all.into_iter().flatten().filter(|(_, seen)| !seen.is_covered())
    }
}

#[cfg(test)]
mod tests;
