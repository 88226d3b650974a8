//! Objects that were made of placed ones at their targets (ReplicaSets, Pods, Jobs, EndpointSlices), as counts that add up.
//!
//! A [`Tally`] is of one target and one resource, a [`Sum`] of any number of targets. Adding is associative and commutative;
//! the caller must not add a target twice ([`Rollup`](crate::rollup::Rollup) does not).

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::freshness::Freshness;
use crate::limits::{ASSOCIATED_REASONS_MAX, ASSOCIATED_WORST_MAX};

/// The reason under which those are counted that would be one too many.
const OTHER: &str = "Other";
/// Reasons in one line for a person.
const REASONS_NAMED: usize = 3;

/// Kinds that are followed if a Placement asks for them, by the name of the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AssociatedKind {
    ReplicaSets,
    Pods,
    Jobs,
    EndpointSlices,
    /// A resource that this build does not follow.
    #[serde(other)]
    Unknown,
}

impl AssociatedKind {
    pub const ALL: [Self; 4] = [Self::ReplicaSets, Self::Pods, Self::Jobs, Self::EndpointSlices];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReplicaSets => "replicasets",
            Self::Pods => "pods",
            Self::Jobs => "jobs",
            Self::EndpointSlices => "endpointslices",
            Self::Unknown => "unknown",
        }
    }
}

impl std::fmt::Display for AssociatedKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How far one of them is, in the words that Kubernetes has for Pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// A Pod that does not run yet, a ReplicaSet that lacks replicas, a Job without a Pod, a slice of which no endpoint
    /// is ready.
    Pending,
    Running,
    Succeeded,
    Failed,
    /// It is meant to do nothing: a ReplicaSet of no replicas, a suspended Job, a slice without endpoints.
    Idle,
    #[default]
    #[serde(other)]
    Unknown,
}

impl Phase {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Idle => "Idle",
            Self::Unknown => "Unknown",
        }
    }
}

/// Counts of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tally {
    pub total: u64,
    /// … that are ready.
    pub ready: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub phases: BTreeMap<Phase, u64>,
    /// Why some of them wait or failed, in the words of kubelet or controller.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub reasons: BTreeMap<String, u64>,
    /// Restarts of the containers of those that are there.
    #[serde(skip_serializing_if = "is_zero")]
    pub restarts: u64,
    /// Endpoints in slices.
    #[serde(skip_serializing_if = "is_zero")]
    pub endpoints: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub endpoints_ready: u64,
}

impl Tally {
    /// The counts as they may be shown if their target is not heard from: the objects exist, and their state is unknown.
    /// Failures stay counted.
    #[must_use]
    pub fn seen_as(&self, freshness: Freshness) -> Self {
        match freshness {
            Freshness::Fresh => self.clone(),
            Freshness::Stale | Freshness::Unheard => Self {
                ready: 0,
                endpoints_ready: 0,
                phases: (self.total > 0).then_some((Phase::Unknown, self.total)).into_iter().collect(),
                ..self.clone()
            },
        }
    }

    /// Counts at most [`ASSOCIATED_REASONS_MAX`] reasons by name, those that are most often; all others as one.
    pub fn bound_reasons(&mut self) {
        if self.reasons.len() <= ASSOCIATED_REASONS_MAX {
            return;
        }
        let mut reasons: Vec<_> = std::mem::take(&mut self.reasons).into_iter().collect();
        reasons.sort_by(|(one, few), (other, many)| many.cmp(few).then_with(|| one.cmp(other)));
        for (_, count) in reasons.split_off(ASSOCIATED_REASONS_MAX - 1) {
            add(&mut self.reasons, OTHER, count);
        }
        for (reason, count) in reasons {
            add(&mut self.reasons, &reason, count);
        }
    }

    /// The most frequent reasons in a few words, as in `2 ImagePullBackOff, 1 Unschedulable`; empty if there are none.
    pub fn why(&self) -> String {
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by(|(one, few), (other, many)| many.cmp(few).then_with(|| one.cmp(other)));
        let named = reasons.iter().take(REASONS_NAMED).map(|(reason, count)| format!("{count} {reason}"));
        let mut text = named.collect::<Vec<_>>().join(", ");
        if reasons.len() > REASONS_NAMED {
            text.push_str(", …");
        }
        text
    }
}

impl AddAssign<&Self> for Tally {
    fn add_assign(&mut self, other: &Self) {
        let Self { total, ready, phases, reasons, restarts, endpoints, endpoints_ready } = other;
        let sum = |to: &mut u64, from: &u64| *to = to.saturating_add(*from);
        sum(&mut self.total, total);
        sum(&mut self.ready, ready);
        for (phase, count) in phases {
            sum(self.phases.entry(*phase).or_default(), count);
        }
        for (reason, count) in reasons {
            add(&mut self.reasons, reason, *count);
        }
        sum(&mut self.restarts, restarts);
        sum(&mut self.endpoints, endpoints);
        sum(&mut self.endpoints_ready, endpoints_ready);
    }
}

fn add(reasons: &mut BTreeMap<String, u64>, reason: &str, count: u64) {
    if let Some(known) = reasons.get_mut(reason) {
        *known = known.saturating_add(count);
    } else {
        reasons.insert(reason.to_owned(), count);
    }
}

/// Counts of one resource over targets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sum {
    /// Targets that were added up.
    pub targets: u64,
    #[serde(flatten)]
    pub tally: Tally,
}

impl AddAssign<&Tally> for Sum {
    fn add_assign(&mut self, tally: &Tally) {
        self.targets = self.targets.saturating_add(1);
        self.tally += tally;
    }
}

impl AddAssign<&Self> for Sum {
    fn add_assign(&mut self, Self { targets, tally }: &Self) {
        self.targets = self.targets.saturating_add(*targets);
        self.tally += tally;
    }
}

/// The associated objects of one object at one target, of one resource: how many, and a few of the worst.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "MadeFields")]
pub struct Made {
    #[serde(flatten)]
    pub tally: Tally,
    /// At most [`ASSOCIATED_WORST_MAX`], the worst first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub worst: Vec<Example>,
}

/// What was made as it is read: see [`keyed`](crate::object::keyed).
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MadeFields {
    total: u64,
    ready: u64,
    phases: BTreeMap<Phase, u64>,
    reasons: BTreeMap<String, u64>,
    restarts: u64,
    endpoints: u64,
    endpoints_ready: u64,
    worst: Vec<Example>,
}

impl From<MadeFields> for Made {
    fn from(fields: MadeFields) -> Self {
        let MadeFields { total, ready, phases, reasons, restarts, endpoints, endpoints_ready, worst } = fields;
        Self { tally: Tally { total, ready, phases, reasons, restarts, endpoints, endpoints_ready }, worst }
    }
}

impl Made {
    /// Adds one that may be among the worst. Which are does not depend on the order in which they come.
    pub fn name(&mut self, example: Example) {
        let at = self.worst.partition_point(|known| known.badness() <= example.badness());
        if at < ASSOCIATED_WORST_MAX {
            self.worst.insert(at, example);
            self.worst.truncate(ASSOCIATED_WORST_MAX);
        }
    }
}

/// One of them, in the namespace of what it was made from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Example {
    pub name: String,
    pub phase: Phase,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "is_zero")]
    pub restarts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

impl Example {
    /// Smaller is worse; names decide between equals.
    fn badness(&self) -> (u8, std::cmp::Reverse<u64>, &str) {
        let rank = match (self.phase, &self.reason) {
            (Phase::Failed, _) => 0,
            (Phase::Pending | Phase::Running | Phase::Unknown, Some(_)) => 1,
            (Phase::Unknown, None) => 2,
            (Phase::Pending, None) => 3,
            (Phase::Running, None) => 4,
            (Phase::Succeeded | Phase::Idle, _) => 5,
        };
        (rank, std::cmp::Reverse(self.restarts), &self.name)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

#[cfg(test)]
pub(crate) mod tests;
