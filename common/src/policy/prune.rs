use serde::{Deserialize, Serialize};

use super::{ApplyPolicy, ApproveDeletions, Prune, PruneAdopted};

/// What was last said of what becomes of an object when it is no longer assigned. A tombstone carries it, since an agent may
/// have been away when it was said, or may have failed to write it into the object's mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrunePolicy {
    pub prune: Prune,
    #[serde(default, skip_serializing_if = "PruneAdopted::is_orphan")]
    pub prune_adopted: PruneAdopted,
    #[serde(default, skip_serializing_if = "ApproveDeletions::is_ask")]
    pub approve_deletions: ApproveDeletions,
    /// It was to be let go of before, was assigned again, and the target has confirmed neither: it counts as adopted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
}

impl PrunePolicy {
    /// What destroys least: it is let go of.
    pub const LEAST: Self = Self {
        prune: Prune::Orphan,
        prune_adopted: PruneAdopted::Orphan,
        approve_deletions: ApproveDeletions::Ask,
        adopted: false,
    };

    pub fn of(policy: &ApplyPolicy) -> Self {
        Self {
            prune: policy.prune,
            prune_adopted: policy.prune_adopted,
            approve_deletions: policy.approve_deletions,
            adopted: false,
        }
    }

    /// The less destructive value of each; what counts as adopted by either does so by both.
    #[must_use]
    pub fn least(self, other: Self) -> Self {
        Self {
            prune: self.prune.min(other.prune),
            prune_adopted: self.prune_adopted.min(other.prune_adopted),
            approve_deletions: self.approve_deletions.min(other.approve_deletions),
            adopted: self.adopted || other.adopted,
        }
    }

    /// Whether an object goes that was created, or adopted.
    pub fn deletes(self, adopted: bool) -> bool {
        let adopted = adopted || self.adopted;
        self.prune == Prune::Delete && (!adopted || self.prune_adopted == PruneAdopted::AsCreated)
    }

    /// Whether also an object stays that was created. What is assigned again in its place then finds something that is not
    /// ours, and adopts it.
    pub fn lets_go(self) -> bool {
        !self.deletes(false)
    }
}

impl PruneAdopted {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    fn is_orphan(&self) -> bool {
        *self == Self::Orphan
    }
}
