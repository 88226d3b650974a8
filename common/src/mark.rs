use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::ids::{HubId, TargetId, Uid};
use crate::object::{ObjectKey, SourceRef};
use crate::policy::{Prune, PruneAdopted};

/// The label on every local object of ours: its value is the target id. It scopes the agent's watches.
pub const MARK_LABEL: &str = "tideline.dev/agent";
/// The annotation that holds the [`Mark`].
pub const MARK_ANNOTATION: &str = "tideline.dev/source";

/// How an object came to be ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Origin {
    Created,
    /// It was there before; it is orphaned, not deleted, when it is no longer assigned.
    Adopted,
}

/// The identity on a local object: of which source it is a copy, and where it belongs.
///
/// It is read back from objects that anybody may have written, so it is a claim: see [`Mark::ownership`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// The layout; this build writes and reads 1.
    pub v: u32,
    pub hub: HubId,
    pub target: TargetId,
    pub source: SourceRef,
    /// The *local* identity that the mark was written for. A copy has another.
    #[serde(flatten)]
    pub local: ObjectKey,
    pub generation: i64,
    pub input: Digest,
    /// The policy it was applied under: with `input`, everything that decided what was written. Absent from marks of builds
    /// that did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Digest>,
    pub prune: Prune,
    #[serde(default)]
    pub prune_adopted: PruneAdopted,
    pub origin: Origin,
}

#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    #[error("cannot read the annotation {MARK_ANNOTATION}")]
    Decode(#[from] serde_json::Error),
    #[error("the annotation {MARK_ANNOTATION} has layout {0}; this build reads 1")]
    Layout(u32),
}

/// Former targets of one agent whose marks are its own. More SyncTargets than these, one after the other for one cluster, are
/// not made by mistake; the oldest is forgotten then.
pub const FORMERS_MAX: usize = 8;

/// The targets that an agent was before it was the one that it is, the latest last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Formers([Option<TargetId>; FORMERS_MAX]);

impl Formers {
    pub fn iter(&self) -> impl Iterator<Item = TargetId> {
        self.0.iter().flatten().copied()
    }

    pub fn contains(&self, target: TargetId) -> bool {
        self.0.contains(&Some(target))
    }

    /// With one more, which is the latest.
    #[must_use]
    pub fn with(&self, target: TargetId) -> Self {
        self.iter().filter(|former| *former != target).chain([target]).collect()
    }

    /// Without one, which the agent is again.
    #[must_use]
    pub fn without(&self, target: TargetId) -> Self {
        self.iter().filter(|former| *former != target).collect()
    }
}

impl FromIterator<TargetId> for Formers {
    fn from_iter<T: IntoIterator<Item = TargetId>>(targets: T) -> Self {
        let mut all: Vec<_> = targets.into_iter().collect();
        all.drain(..all.len().saturating_sub(FORMERS_MAX));
        let mut formers = Self::default();
        for (slot, target) in formers.0.iter_mut().zip(all) {
            *slot = Some(target);
        }
        formers
    }
}

/// The targets whose marks an agent takes for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub hub: HubId,
    pub target: TargetId,
    pub formers: Formers,
}

impl Owner {
    /// Whether marks of this target are its own.
    pub fn owns(&self, target: TargetId) -> bool {
        self.target == target || self.formers.contains(target)
    }
}

/// The owner of an object with a readable mark, seen from one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    Ours,
    /// Written for another key or target and carried here: by a controller that copies annotations, from a backup, by hand.
    /// Reported, never deleted, never counted.
    Copy,
    /// Written by another hub.
    Foreign,
}

impl Mark {
    /// The annotation's value: compact, stable JSON.
    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("a mark has only strings and numbers")
    }

    /// # Errors
    ///
    /// The text is no mark that this version can read.
    pub fn decode(text: &str) -> Result<Self, MarkError> {
        let mark: Self = serde_json::from_str(text)?;
        if mark.v != 1 {
            return Err(MarkError::Layout(mark.v));
        }
        Ok(mark)
    }

    /// Judges the claim of an object found at `found` by the agent that is `owner`.
    pub fn ownership(&self, owner: Owner, found: &ObjectKey) -> Ownership {
        if self.local != *found {
            Ownership::Copy
        } else if self.hub != owner.hub {
            Ownership::Foreign
        } else if !owner.owns(self.target) {
            // The same key in another cluster: restored from a backup there, unless two agents share a cluster.
            Ownership::Copy
        } else {
            Ownership::Ours
        }
    }

    pub fn source_uid(&self) -> &Uid {
        &self.source.uid
    }
}
