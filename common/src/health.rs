//! How well an object does: one table of rules by kind, after the conventions of kstatus
//! (sigs.k8s.io/cli-utils/pkg/kstatus) and the Kubernetes API conventions on `observedGeneration` and conditions.
//!
//! Where kstatus reads a clock (a Pod that was not scheduled for so long), the rules here do not: what they say follows from
//! the object alone. Where kstatus calls a running Job current, they say that it is not done.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::limits::MESSAGE_BYTES_MAX;
use crate::object::GroupKind;
use crate::terminal::Terminal;

mod autoscaling;
mod custom;
mod definitions;
mod excerpt;
mod jobs;
mod network;
mod pods;
mod replicas;
mod status;
mod storage;

use excerpt::Excerpt;
use status::{Object, Verdict};

/// How well an object does. Never ready by silence: no report is `Unknown`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Health {
    Ready,
    Progressing,
    Failed,
    #[default]
    #[serde(other)]
    Unknown,
}

/// What an object's own status says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assessment {
    pub health: Health,
    /// Why it is not ready, for people; at most [`MESSAGE_BYTES_MAX`] bytes.
    pub message: String,
    /// `.status.observedGeneration`, where the kind has one.
    pub observed_generation: Option<i64>,
    pub terminal: Option<Terminal>,
}

/// What is known of an object to be judged: of its metadata, and the text of its parts, of which only the fields are decoded
/// that the rule of its kind reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Subject<'a> {
    pub generation: Option<i64>,
    /// It has a deletionTimestamp.
    pub deleting: bool,
    pub spec: Option<&'a RawValue>,
    pub status: Option<&'a RawValue>,
}

/// How a kind is judged, and the fields that this reads of spec and status beside those that every rule may read.
struct Rule {
    judge: fn(Object<'_>) -> Verdict,
    spec: &'static [&'static str],
    status: &'static [&'static str],
}

impl Rule {
    const fn new(
        judge: fn(Object<'_>) -> Verdict,
        spec: &'static [&'static str],
        status: &'static [&'static str],
    ) -> Self {
        Self { judge, spec, status }
    }
}

/// What every rule may read of a status.
const COMMON: [&str; 2] = ["observedGeneration", "conditions"];
/// What the rules read that follow a phase.
const PHASE: &[&str] = &["phase", "message", "reason"];

/// The table. A kind that is not in it is judged by the conditions that kstatus agreed on; most have none, and then there
/// is nothing to wait for.
fn rule(kind: &GroupKind) -> Rule {
    match (&*kind.group, &*kind.kind) {
        ("apps", "Deployment") => Rule::new(
            replicas::deployment,
            &["replicas", "paused"],
            &["replicas", "updatedReplicas", "availableReplicas"],
        ),
        ("apps", "ReplicaSet") | ("", "ReplicationController") => {
            Rule::new(replicas::replica_set, &["replicas"], &["replicas", "readyReplicas", "availableReplicas"])
        }
        ("apps", "StatefulSet") => Rule::new(
            replicas::stateful_set,
            &["replicas", "updateStrategy"],
            &["replicas", "readyReplicas", "updatedReplicas"],
        ),
        ("apps", "DaemonSet") => Rule::new(
            replicas::daemon_set,
            &["updateStrategy"],
            &["desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled", "numberAvailable"],
        ),
        ("batch", "Job") => {
            Rule::new(jobs::job, &["suspend", "ttlSecondsAfterFinished"], &["active", "succeeded", "failed"])
        }
        ("batch", "CronJob") => Rule::new(jobs::cron_job, &["suspend"], &[]),
        ("", "Pod") => {
            Rule::new(pods::pod, &[], &["phase", "message", "reason", "initContainerStatuses", "containerStatuses"])
        }
        ("policy", "PodDisruptionBudget") => Rule::new(pods::disruption_budget, &[], &[]),
        ("", "PersistentVolumeClaim") => Rule::new(storage::claim, &[], PHASE),
        ("", "PersistentVolume") => Rule::new(storage::volume, &[], PHASE),
        ("", "Namespace") => Rule::new(definitions::namespace, &[], PHASE),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            Rule::new(definitions::custom_resource_definition, &[], &[])
        }
        ("apiregistration.k8s.io", "APIService") => Rule::new(definitions::api_service, &[], &[]),
        ("", "Service") => Rule::new(network::service, &["type"], &["loadBalancer"]),
        ("networking.k8s.io", "Ingress") => Rule::new(network::ingress, &[], &[]),
        ("autoscaling", "HorizontalPodAutoscaler") => Rule::new(autoscaling::horizontal_pod_autoscaler, &[], &[]),
        _ => Rule::new(custom::resource, &[], &[]),
    }
}

/// Judges an object. One without a status of its kind's schema is never ready, unless its kind has no status at all; nor is
/// one of which a field cannot be read that its rule reads.
pub fn assess(kind: &GroupKind, subject: Subject<'_>) -> Assessment {
    let Subject { generation, deleting, spec, status } = subject;
    let rule = rule(kind);
    let spec = Excerpt::of(spec, "spec", rule.spec);
    let status = Excerpt::of(status, "status", rule.status.iter().chain(&COMMON));
    let object =
        Object { generation, deleting, spec: &spec.fields, status: &status.fields, has_status: status.present };
    let verdict = if object.deleting {
        Verdict::progressing("it is being deleted")
    } else if object.is_behind() {
        Verdict::progressing("its controller has not seen the latest change")
    } else if let Some(why) = status.unread.as_ref().or(spec.unread.as_ref()) {
        Verdict::unreadable(why)
    } else {
        (rule.judge)(object)
    };
    let terminal = if kind.is("batch", "Job") { jobs::terminal(object) } else { None };
    // Of a Job that is being deleted, whoever deletes it records whether it had run.
    let terminal = terminal.filter(|fact| *fact != Terminal::Started || !object.deleting);
    let Verdict { health, mut message } = verdict;
    truncate(&mut message, MESSAGE_BYTES_MAX);
    Assessment { health, message, observed_generation: object.observed_generation(), terminal }
}

/// Whether objects of a kind say when they are ready before anything uses them. A claim may wait for its first consumer,
/// which is in a later wave: to wait for the claim would be to wait for ever.
pub fn is_ready_by_itself(kind: &GroupKind) -> bool {
    !kind.is("", "PersistentVolumeClaim")
}

/// Cuts `text` to at most `bytes`, between characters.
pub fn truncate(text: &mut String, bytes: usize) {
    text.truncate(text.floor_char_boundary(bytes));
}

#[cfg(test)]
mod tests;
