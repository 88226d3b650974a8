//! How well an object does: one table of rules by kind, after the conventions of kstatus
//! (sigs.k8s.io/cli-utils/pkg/kstatus) and the Kubernetes API conventions on `observedGeneration` and conditions.
//!
//! Where kstatus reads a clock (a Pod that was not scheduled for so long), the rules here do not: what they say follows from
//! the object alone. Where kstatus calls a running Job current, they say that it is not done.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits::MESSAGE_BYTES_MAX;
use crate::object::GroupKind;
use crate::terminal::Terminal;

mod autoscaling;
mod custom;
mod definitions;
mod jobs;
mod network;
mod pods;
mod replicas;
mod status;
mod storage;

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

type Rule = fn(Object<'_>) -> Verdict;

/// The table. A kind that is not in it is judged by the conditions that kstatus agreed on; most have none, and then there
/// is nothing to wait for.
fn rule(kind: &GroupKind) -> Rule {
    match (&*kind.group, &*kind.kind) {
        ("apps", "Deployment") => replicas::deployment,
        ("apps", "ReplicaSet") | ("", "ReplicationController") => replicas::replica_set,
        ("apps", "StatefulSet") => replicas::stateful_set,
        ("apps", "DaemonSet") => replicas::daemon_set,
        ("batch", "Job") => jobs::job,
        ("batch", "CronJob") => jobs::cron_job,
        ("", "Pod") => pods::pod,
        ("policy", "PodDisruptionBudget") => pods::disruption_budget,
        ("", "PersistentVolumeClaim") => storage::claim,
        ("", "PersistentVolume") => storage::volume,
        ("", "Namespace") => definitions::namespace,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definitions::custom_resource_definition,
        ("apiregistration.k8s.io", "APIService") => definitions::api_service,
        ("", "Service") => network::service,
        ("networking.k8s.io", "Ingress") => network::ingress,
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::horizontal_pod_autoscaler,
        _ => custom::resource,
    }
}

/// Judges a whole object. One without a status of its kind's schema is never ready, unless its kind has no status at all.
pub fn assess(kind: &GroupKind, object: &Value) -> Assessment {
    let object = Object::new(object);
    let verdict = if object.is_deleting() {
        Verdict::progressing("it is being deleted")
    } else if object.is_behind() {
        Verdict::progressing("its controller has not seen the latest change")
    } else {
        rule(kind)(object)
    };
    let terminal = if kind.is("batch", "Job") { jobs::terminal(object) } else { None };
    // Of a Job that is being deleted, whoever deletes it records whether it had run.
    let terminal = terminal.filter(|fact| *fact != Terminal::Started || !object.is_deleting());
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
