//! What the agent counts.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::cluster::Recorded;
use crate::core::{
    Answer, ConcurrencyReading, CoreStats, Created, Deleted, Inspected, LinkFailure, NotDone, Op, OpResult, Orphaned,
    OwnershipTransferred, PatrolTally, Request,
};

/// A label value that is one of a fixed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct LabelValue(&'static str);

impl EncodeLabelValue for LabelValue {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        EncodeLabelValue::encode(&self.0, encoder)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LinkLabels {
    request: LabelValue,
    outcome: LabelValue,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PatrolLabels {
    state: LabelValue,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    operation: LabelValue,
    outcome: LabelValue,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabels {
    outcome: LabelValue,
}

/// Clones share their counters.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    link_requests: Family<LinkLabels, Counter>,
    hub_answered: Gauge,
    accepted_revision: Gauge,
    objects_assigned: Gauge,
    removals: Gauge,
    operations: Family<OperationLabels, Counter>,
    persist_seconds: Histogram,
    persist_failures: Counter,
    journal_bytes: Gauge,
    journal_writable: Gauge,
    kinds_watched: Gauge,
    kinds_forbidden: Gauge,
    events: Family<EventLabels, Counter>,
    concurrency_limit: Gauge,
    concurrency_decreases: Counter,
    patrols: Counter,
    patrol_objects: Family<PatrolLabels, Gauge>,
    patrol_findings: Family<PatrolLabels, Counter>,
    cluster_answers: Gauge,
    frozen: Gauge,
    unknown_to_hub: Gauge,
    leading: Gauge,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            link_requests: Family::default(),
            hub_answered: Gauge::default(),
            accepted_revision: Gauge::default(),
            objects_assigned: Gauge::default(),
            removals: Gauge::default(),
            operations: Family::default(),
            // From a flash disk's half millisecond to the eight seconds of a worn SD card.
            persist_seconds: Histogram::new(exponential_buckets(0.000_5, 4.0, 8)),
            persist_failures: Counter::default(),
            journal_bytes: Gauge::default(),
            journal_writable: Gauge::default(),
            kinds_watched: Gauge::default(),
            kinds_forbidden: Gauge::default(),
            events: Family::default(),
            concurrency_limit: Gauge::default(),
            concurrency_decreases: Counter::default(),
            patrols: Counter::default(),
            patrol_objects: Family::default(),
            patrol_findings: Family::default(),
            cluster_answers: Gauge::default(),
            frozen: Gauge::default(),
            unknown_to_hub: Gauge::default(),
            leading: Gauge::default(),
        };
        let registry = registry.sub_registry_with_prefix("tideline_agent");
        registry.register("link_requests", "Requests to the hub, by how they ended", metrics.link_requests.clone());
        registry.register(
            "hub_answered_timestamp_seconds",
            "When the hub answered last, in seconds since 1970; 0 if it has not since the start",
            metrics.hub_answered.clone(),
        );
        registry.register("accepted_revision", "The set that is kept", metrics.accepted_revision.clone());
        registry.register("objects_assigned", "Objects in that set", metrics.objects_assigned.clone());
        registry.register(
            "removals",
            "Removals that are under way, held, or not known to the hub yet",
            metrics.removals.clone(),
        );
        registry.register("operations", "Operations on the cluster, by how they ended", metrics.operations.clone());
        registry.register("persist_seconds", "Time until a batch was on disk", metrics.persist_seconds.clone());
        registry.register("persist_failures", "Batches that did not reach the disk", metrics.persist_failures.clone());
        registry.register("journal_bytes", "Size of the journal on disk", metrics.journal_bytes.clone());
        registry.register(
            "journal_writable",
            "0 while the journal takes no writes: its disk is full, read-only or failing",
            metrics.journal_writable.clone(),
        );
        metrics.journal_writable(true);
        registry.register("kinds_watched", "Kinds that are watched", metrics.kinds_watched.clone());
        registry.register(
            "kinds_forbidden",
            "Kinds for which the API server refused the agent a read or a write",
            metrics.kinds_forbidden.clone(),
        );
        registry.register("events", "Events on objects of the cluster, by what became of them", metrics.events.clone());
        registry.register(
            "concurrency_limit",
            "Operations that may be under way at the API server at once; it follows what that bears",
            metrics.concurrency_limit.clone(),
        );
        registry.register(
            "concurrency_decreases",
            "How often that limit was halved: the API server throttled, or did not answer",
            metrics.concurrency_decreases.clone(),
        );
        registry.register("patrols", "Patrols that ended", metrics.patrols.clone());
        registry.register("patrol_objects", "Objects, as the last patrol counted them", metrics.patrol_objects.clone());
        registry.register("patrol_findings", "What patrols found, by what it was", metrics.patrol_findings.clone());
        registry.register(
            "cluster_answers",
            "0 while the API server of the cluster does not answer",
            metrics.cluster_answers.clone(),
        );
        metrics.cluster_answers(true);
        registry.register(
            "frozen",
            "1 while the agent changes nothing: another holds its identity, the hub has shut it out, or a newer version wrote it",
            metrics.frozen.clone(),
        );
        registry.register(
            "unknown_to_hub",
            "1 while the hub does not know this agent's target: what was accepted is kept, and nothing is removed",
            metrics.unknown_to_hub.clone(),
        );
        registry.register("leading", "1 if this replica keeps the cluster, 0 if it stands by", metrics.leading.clone());
        metrics
    }

    pub(crate) fn answered(&self, request: &Request, result: &Result<Answer, LinkFailure>) {
        let request = match request {
            Request::Enrol(_) => "enrol",
            Request::Session(_) => "session",
            Request::Desired(_) => "desired",
            Request::Bodies(_) => "bodies",
            Request::Reported(_) => "reported",
        };
        if result.is_ok() {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.hub_answered.set(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        }
        let outcome = match result {
            Ok(_) => "answered",
            Err(LinkFailure::Refused(_)) => "refused",
            Err(LinkFailure::Unreachable { .. }) => "unreachable",
            Err(LinkFailure::NotTheHub { .. }) => "not_the_hub",
        };
        self.link_requests
            .get_or_create(&LinkLabels { request: LabelValue(request), outcome: LabelValue(outcome) })
            .inc();
    }

    pub(crate) fn keeps(&self, CoreStats { revision, assigned, removals }: CoreStats) {
        self.accepted_revision.set(i64::try_from(revision).unwrap_or(i64::MAX));
        self.objects_assigned.set(i64::try_from(assigned).unwrap_or(i64::MAX));
        self.removals.set(i64::try_from(removals).unwrap_or(i64::MAX));
    }

    pub(crate) fn executed(&self, op: &Op, result: &OpResult) {
        let operation = match op {
            Op::Create { .. } => "create",
            Op::DryRunCreate { .. } => "dry-run-create",
            Op::Apply { .. } => "apply",
            Op::TransferOwnership { .. } => "transfer-ownership",
            Op::ReTarget { .. } => "re-target",
            Op::Delete { .. } => "delete",
            Op::Orphan { .. } => "orphan",
            Op::Inspect { .. } => "inspect",
            Op::Get { .. } => "get",
            Op::Compare { .. } => "compare",
        };
        let outcome = match result {
            OpResult::Create(Ok(Created::Made(_)))
            | OpResult::Apply(Ok(_))
            | OpResult::TransferOwnership(Ok(OwnershipTransferred::Marked(_)))
            | OpResult::ReTarget(Ok(_))
            | OpResult::Orphan(Ok(Orphaned::Done))
            | OpResult::Get(Ok(Some(_))) => "Done",
            OpResult::Create(Ok(Created::Vanished { .. })) => "Vanished",
            OpResult::DryRunCreate(Ok(())) => "WouldBeCreated",
            OpResult::Create(Ok(Created::Exists(_))) => "Exists",
            OpResult::Delete(Ok(Deleted::Gone))
            | OpResult::Orphan(Ok(Orphaned::Gone))
            | OpResult::Inspect(Ok(Inspected::Gone))
            | OpResult::Get(Ok(None)) => "Gone",
            OpResult::TransferOwnership(Ok(OwnershipTransferred::Finalizing))
            | OpResult::Delete(Ok(Deleted::Finalizing)) => "Finalizing",
            OpResult::Inspect(Ok(Inspected::Holds { .. })) => "Inspected",
            OpResult::Compare(Ok(_)) => "Compared",
            OpResult::Apply(Err(NotDone::Stale))
            | OpResult::TransferOwnership(Err(NotDone::Stale))
            | OpResult::ReTarget(Err(NotDone::Stale))
            | OpResult::Delete(Err(NotDone::Stale))
            | OpResult::Orphan(Err(NotDone::Stale))
            | OpResult::Compare(Err(NotDone::Stale)) => "PreconditionFailed",
            OpResult::Create(Err(failure))
            | OpResult::DryRunCreate(Err(failure))
            | OpResult::Inspect(Err(failure))
            | OpResult::Get(Err(failure))
            | OpResult::Apply(Err(NotDone::Failed(failure)))
            | OpResult::TransferOwnership(Err(NotDone::Failed(failure)))
            | OpResult::ReTarget(Err(NotDone::Failed(failure)))
            | OpResult::Delete(Err(NotDone::Failed(failure)))
            | OpResult::Orphan(Err(NotDone::Failed(failure)))
            | OpResult::Compare(Err(NotDone::Failed(failure))) => failure.reason.as_str(),
        };
        self.operations
            .get_or_create(&OperationLabels { operation: LabelValue(operation), outcome: LabelValue(outcome) })
            .inc();
    }

    pub(crate) fn persisted(&self, took: Duration, success: bool, journal_bytes: u64) {
        self.persist_seconds.observe(took.as_secs_f64());
        if !success {
            self.persist_failures.inc();
        }
        self.journal_bytes.set(i64::try_from(journal_bytes).unwrap_or(i64::MAX));
    }

    pub(crate) fn journal_writable(&self, writable: bool) {
        self.journal_writable.set(i64::from(writable));
    }

    pub(crate) fn patrolled(&self, tally: &PatrolTally) {
        let PatrolTally {
            checked,
            unknown,
            withheld,
            failing,
            missing,
            drifted,
            unassigned,
            foreign,
            unseen,
            held,
            repaired,
        } = *tally;
        self.patrols.inc();
        let findings = [
            ("missing", missing),
            ("drifted", drifted),
            ("unassigned", unassigned),
            ("foreign", foreign),
            ("unseen", unseen),
            ("unknown", unknown),
            ("repaired", repaired),
        ];
        let states = [("checked", checked), ("withheld", withheld), ("failing", failing), ("held", held)];
        for (state, count) in states.into_iter().chain(findings) {
            let labels = PatrolLabels { state: LabelValue(state) };
            self.patrol_objects.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        for (state, count) in findings {
            self.patrol_findings.get_or_create(&PatrolLabels { state: LabelValue(state) }).inc_by(count);
        }
    }

    pub(crate) fn watching(&self, kinds: usize) {
        self.kinds_watched.set(i64::try_from(kinds).unwrap_or(i64::MAX));
    }

    pub(crate) fn told(&self, told: Recorded) {
        let outcome = match told {
            Recorded::Yes => "recorded",
            Recorded::No => "failed",
            Recorded::Dropped => "dropped",
        };
        self.events.get_or_create(&EventLabels { outcome: LabelValue(outcome) }).inc();
    }

    pub(crate) fn forbidden(&self, kinds: usize) {
        self.kinds_forbidden.set(i64::try_from(kinds).unwrap_or(i64::MAX));
    }

    /// `former` is the last state that was set.
    pub(crate) fn concurrency(&self, concurrency: ConcurrencyReading, former: ConcurrencyReading) {
        self.concurrency_limit.set(i64::try_from(concurrency.limit).unwrap_or(i64::MAX));
        self.concurrency_decreases.inc_by(concurrency.decreases.saturating_sub(former.decreases));
    }

    pub(crate) fn cluster_answers(&self, answers: bool) {
        self.cluster_answers.set(i64::from(answers));
    }

    pub(crate) fn leading(&self) {
        self.leading.set(1);
    }

    pub(crate) fn frozen(&self, frozen: bool) {
        self.frozen.set(frozen.into());
    }

    pub(crate) fn unknown_to_hub(&self, unknown: bool) {
        self.unknown_to_hub.set(unknown.into());
    }
}
