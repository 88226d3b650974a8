use serde::{Deserialize, Serialize};

use super::{ApplyPolicy, ApproveDeletions, Prune, PruneAdopted, Takeover};

/// The last policy for an object that is no longer assigned. A tombstone carries it, since an agent may have been offline when
/// it was set, or may have failed to write it into the object's mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrunePolicy {
    pub prune: Prune,
    #[serde(default, skip_serializing_if = "PruneAdopted::is_orphan")]
    pub prune_adopted: PruneAdopted,
    #[serde(default, skip_serializing_if = "ApproveDeletions::is_ask")]
    pub approve_deletions: ApproveDeletions,
    /// It was due for orphaning, was assigned again, and the target has confirmed neither: it counts as adopted, if the entry
    /// assigned since might have taken it over by this right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted: Option<Takeover>,
}

impl PrunePolicy {
    /// The least destructive policy: orphan.
    pub const LEAST: Self = Self {
        prune: Prune::Orphan,
        prune_adopted: PruneAdopted::Orphan,
        approve_deletions: ApproveDeletions::Ask,
        adopted: None,
    };

    pub fn of(policy: &ApplyPolicy) -> Self {
        Self {
            prune: policy.prune,
            prune_adopted: policy.prune_adopted,
            approve_deletions: policy.approve_deletions,
            adopted: None,
        }
    }

    /// The less destructive value of each; what counts as adopted by either does so by both.
    #[must_use]
    pub fn least(self, other: Self) -> Self {
        Self {
            prune: self.prune.min(other.prune),
            prune_adopted: self.prune_adopted.min(other.prune_adopted),
            approve_deletions: self.approve_deletions.min(other.approve_deletions),
            adopted: self.adopted.into_iter().chain(other.adopted).min(),
        }
    }

    /// The same for an object that was due for orphaning, and was assigned again by an entry with this right to take over.
    #[must_use]
    pub fn overtaken(self, by: Takeover) -> Self {
        Self { adopted: self.adopted.into_iter().chain([by]).min(), ..self }
    }

    /// The same where `earlier` was in force before, and the target has confirmed neither that nor the assignment since, which
    /// might have taken over by the right `by`. Only the target knows whether the object was adopted, or managed by others,
    /// and so stayed under `earlier`. An object that may have stayed is not destroyed by this.
    #[must_use]
    pub fn after(self, earlier: Self, by: Takeover) -> Self {
        if earlier.orphans() {
            self.overtaken(by)
        } else if let Some(before) = earlier.adopted {
            self.overtaken(by).overtaken(before)
        } else if !earlier.deletes(true, false) && by != Takeover::Always {
            Self { prune_adopted: PruneAdopted::Orphan, ..self }
        } else {
            self
        }
    }

    /// Whether an object goes that was created, or adopted. `managed` says whether something else manages it, so that it
    /// would have been taken over by force alone.
    pub fn deletes(self, adopted: bool, managed: bool) -> bool {
        let refused = match self.adopted {
            None | Some(Takeover::Always) => false,
            Some(Takeover::IfUnmanaged) => managed,
            Some(Takeover::Never) => true,
        };
        let adopted = adopted || self.adopted.is_some();
        self.prune == Prune::Delete && !refused && (!adopted || self.prune_adopted == PruneAdopted::AsCreated)
    }

    /// Whether an object that was created stays as well. An entry assigned to its key later finds an object that is not ours,
    /// and adopts it.
    pub fn orphans(self) -> bool {
        !self.deletes(false, false)
    }
}

impl PruneAdopted {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    fn is_orphan(&self) -> bool {
        *self == Self::Orphan
    }
}
