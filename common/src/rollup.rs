//! The mergeable summary of reported state over targets.
//!
//! A [`Rollup`] maps each target to its last report: the state of the object, and its associated objects. Counts are computed
//! from it. So merging is the union of maps where the newer report wins: associative, commutative, idempotent, and incremental
//! equals recomputed by construction.

use std::collections::BTreeMap;
use std::ops::{AddAssign, Mul};

use serde::{Deserialize, Serialize};

use crate::associated::{AssociatedKind, Sum, Tally};
pub use crate::freshness::Freshness;
use crate::health::Health;
use crate::wire::v1::Progress;

/// The state of one object at one target, from a report, joined with what is desired by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectStatus {
    pub progress: Progress,
    pub health: Health,
    /// The input that was applied is the one that is desired.
    pub current: bool,
    /// The target was heard from within its deadline, and its own view was in sync.
    pub fresh: Freshness,
}

/// Targets by how an object does there. Every field but `expected` counts a part of `expected`; `deleting` counts targets
/// on top of it, where the object is no longer assigned but not gone yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counts {
    /// Targets it is assigned to.
    pub expected: u64,
    /// … that have said anything about it.
    pub reported: u64,
    /// … that hold exactly what is desired now.
    pub applied: u64,
    /// … where it is applied, ready, and recently heard of.
    pub ready: u64,
    pub progressing: u64,
    pub failed: u64,
    pub withheld: u64,
    pub deleting: u64,
    /// … whose report is older than their deadline. They are in no other count but expected, reported and applied.
    pub stale: u64,
    /// … of which nothing is known.
    pub unknown: u64,
}

impl Counts {
    /// The counts of one assigned target: of a report, or of silence.
    pub fn of(standing: Option<ObjectStatus>) -> Self {
        let mut counts = Self { expected: 1, ..Self::default() };
        let Some(ObjectStatus { progress, health, current, fresh }) = standing else {
            counts.unknown = 1;
            return counts;
        };
        counts.reported = 1;
        counts.applied = u64::from(current && progress == Progress::Applied);
        match fresh {
            Freshness::Stale => counts.stale = 1,
            Freshness::Unheard => counts.unknown = 1,
            Freshness::Fresh => match (progress, health) {
                (Progress::Failed, _) | (Progress::Applied, Health::Failed) => counts.failed = 1,
                (Progress::Withheld, _) => counts.withheld = 1,
                (Progress::Applied, Health::Ready) if current => counts.ready = 1,
                (Progress::Applied, Health::Ready | Health::Progressing)
                | (Progress::Pending | Progress::Deleting | Progress::DeletionHeld, _) => counts.progressing = 1,
                (Progress::Applied, Health::Unknown) | (Progress::Unknown, _) => counts.unknown = 1,
            },
        }
        counts
    }

    /// The counts of one target from which its entry is withheld, whatever is reported there.
    pub fn withheld() -> Self {
        Self { expected: 1, withheld: 1, ..Self::default() }
    }

    /// The counts of one target where it is no longer assigned, and not gone.
    pub fn deleting() -> Self {
        Self { deleting: 1, ..Self::default() }
    }

    /// Every target it is assigned to, exactly once, and none besides: what the reader may rely on.
    pub fn is_consistent(&self) -> bool {
        let Self { expected, reported, applied, ready, progressing, failed, withheld, deleting: _, stale, unknown } =
            self;
        ready + progressing + failed + withheld + stale + unknown == *expected
            && reported <= expected
            && applied <= reported
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        let Self { expected, reported, applied, ready, progressing, failed, withheld, deleting, stale, unknown } =
            other;
        self.expected += expected;
        self.reported += reported;
        self.applied += applied;
        self.ready += ready;
        self.progressing += progressing;
        self.failed += failed;
        self.withheld += withheld;
        self.deleting += deleting;
        self.stale += stale;
        self.unknown += unknown;
    }
}

/// The counts of so many targets where an object does the same.
impl Mul<u64> for Counts {
    type Output = Self;

    fn mul(self, targets: u64) -> Self {
        let Self { expected, reported, applied, ready, progressing, failed, withheld, deleting, stale, unknown } = self;
        Self {
            expected: expected * targets,
            reported: reported * targets,
            applied: applied * targets,
            ready: ready * targets,
            progressing: progressing * targets,
            failed: failed * targets,
            withheld: withheld * targets,
            deleting: deleting * targets,
            stale: stale * targets,
            unknown: unknown * targets,
        }
    }
}

/// What one target says of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TargetReport {
    /// None is silence.
    pub standing: Option<ObjectStatus>,
    /// Its associated objects there.
    pub made: BTreeMap<AssociatedKind, Tally>,
}

/// The associated objects of one object over targets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MadeOver(pub BTreeMap<AssociatedKind, Sum>);

impl MadeOver {
    /// Adds what one target said. Each target is to be added once.
    pub fn add<'a>(&mut self, made: impl IntoIterator<Item = (AssociatedKind, &'a Tally)>, freshness: Freshness) {
        for (kind, tally) in made {
            *self.0.entry(kind).or_default() += &tally.seen_as(freshness);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl AddAssign<&Self> for MadeOver {
    fn add_assign(&mut self, Self(other): &Self) {
        for (kind, sum) in other {
            *self.0.entry(*kind).or_default() += sum;
        }
    }
}

/// The known state of one object over targets of type `T`.
///
/// What each target says carries the order (session, sequence) of the report it is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollup<T: Ord> {
    targets: BTreeMap<T, (TargetReport, u64)>,
}

impl<T: Ord> Default for Rollup<T> {
    fn default() -> Self {
        Self { targets: BTreeMap::new() }
    }
}

impl<T: Ord + Clone> Rollup<T> {
    /// Sets the report of a target; one that is older than the present one is dropped.
    pub fn set(&mut self, target: T, said: TargetReport, order: u64) {
        let slot = self.targets.entry(target).or_default();
        // Two words of one order are the same word; the tie is broken only so that merging commutes on any input.
        if (order, &said) > (slot.1, &slot.0) {
            *slot = (said, order);
        }
    }

    pub fn merge(&mut self, other: &Self) {
        for (target, (said, order)) in &other.targets {
            self.set(target.clone(), said.clone(), *order);
        }
    }

    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for (said, _) in self.targets.values() {
            counts += Counts::of(said.standing);
        }
        counts
    }

    /// Its associated objects. A target that does not report the object's state does not report these either.
    pub fn made(&self) -> MadeOver {
        let mut over = MadeOver::default();
        for (TargetReport { standing, made }, _) in self.targets.values() {
            if let Some(standing) = standing {
                over.add(made.iter().map(|(kind, tally)| (*kind, tally)), standing.fresh);
            }
        }
        over
    }
}

#[cfg(test)]
mod tests;
