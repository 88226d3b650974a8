//! How well an object does: one table of rules per kind, after the conventions of kstatus
//! (sigs.k8s.io/cli-utils/pkg/kstatus) and the Kubernetes API conventions on `observedGeneration` and conditions.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits::MESSAGE_BYTES_MAX;
use crate::object::GroupKind;
use crate::wire::v1::Terminal;

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

/// Judges a whole object. One without a status of its kind's form is never ready, unless its kind has no status at all.
pub fn assess(kind: &GroupKind, object: &Value) -> Assessment {
    let status = Status(&object["status"]);
    let generation = object["metadata"]["generation"].as_i64();
    let observed_generation = status.0["observedGeneration"].as_i64();
    let spec = &object["spec"];
    let mut terminal = None;

    let behind = matches!((generation, observed_generation), (Some(wanted), Some(seen)) if seen < wanted);
    let verdict = if !object["metadata"]["deletionTimestamp"].is_null() {
        Verdict::progressing("it is being deleted")
    } else if behind {
        Verdict::progressing("its controller has not seen the latest change")
    } else {
        match (&*kind.group, &*kind.kind) {
            ("apps", "Deployment") => deployment(spec, status, observed_generation),
            ("apps", "ReplicaSet") => replicas(spec, status, observed_generation, "readyReplicas"),
            ("apps", "StatefulSet") => stateful_set(spec, status, observed_generation),
            ("apps", "DaemonSet") => daemon_set(status, observed_generation),
            ("batch", "Job") => {
                let verdict = job(spec, status);
                terminal = status.finished().then_some(Terminal::Finished);
                verdict
            }
            ("", "Pod") => pod(status),
            ("", "PersistentVolumeClaim") => phase(status, &["Bound"], &["Lost"]),
            ("", "Namespace") => phase(status, &["Active"], &[]),
            ("", "Service") => service(spec, status),
            ("policy", "PodDisruptionBudget") => disruption_budget(status),
            ("autoscaling", "HorizontalPodAutoscaler") => status.conditions_of("ScalingActive"),
            ("apiextensions.k8s.io", "CustomResourceDefinition") => custom_resource_definition(status),
            ("apiregistration.k8s.io", "APIService") => status.conditions_of("Available"),
            ("batch", "CronJob") | ("networking.k8s.io", "Ingress") => Verdict::READY,
            _ => status.generic(),
        }
    };
    let mut message = verdict.message;
    truncate(&mut message, MESSAGE_BYTES_MAX);
    Assessment { health: verdict.health, message, observed_generation, terminal }
}

/// Cuts `text` to at most `bytes`, between characters.
pub fn truncate(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        let end = (0..=bytes).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
    }
}

struct Verdict {
    health: Health,
    message: String,
}

impl Verdict {
    const READY: Self = Self { health: Health::Ready, message: String::new() };

    fn progressing(message: impl Into<String>) -> Self {
        Self { health: Health::Progressing, message: message.into() }
    }

    fn failed(message: impl Into<String>) -> Self {
        Self { health: Health::Failed, message: message.into() }
    }

    fn silent() -> Self {
        Self { health: Health::Unknown, message: "it has no status yet".to_owned() }
    }
}

#[derive(Clone, Copy)]
struct Status<'a>(&'a Value);

impl<'a> Status<'a> {
    fn count(self, field: &str) -> i64 {
        self.0[field].as_i64().unwrap_or(0)
    }

    /// The status and message of a condition.
    fn condition(self, kind: &str) -> Option<(&'a str, String)> {
        let condition = self.0["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)?;
        let text = |field: &str| condition[field].as_str().filter(|text| !text.is_empty());
        let message = match (text("reason"), text("message")) {
            (Some(reason), Some(message)) => format!("{reason}: {message}"),
            (Some(only), None) | (None, Some(only)) => only.to_owned(),
            (None, None) => format!("its condition {kind} says so"),
        };
        Some((condition["status"].as_str().unwrap_or("Unknown"), message))
    }

    /// The message of a condition that is true.
    fn holds(self, kind: &str) -> Option<String> {
        self.condition(kind).filter(|(status, _)| *status == "True").map(|(_, message)| message)
    }

    fn finished(self) -> bool {
        self.holds("Complete").is_some() || self.holds("Failed").is_some()
    }

    /// Ready as one condition says.
    fn conditions_of(self, kind: &str) -> Verdict {
        match self.condition(kind) {
            None => Verdict::silent(),
            Some(("True", _)) => Verdict::READY,
            Some((_, message)) => Verdict::progressing(message),
        }
    }

    /// Any kind: the conditions that kstatus agreed on. Without status and conditions there is nothing to wait for.
    fn generic(self) -> Verdict {
        if let Some(message) = self.holds("Stalled") {
            return Verdict::failed(message);
        }
        if let Some(message) = self.holds("Reconciling") {
            return Verdict::progressing(message);
        }
        for kind in ["Ready", "Available"] {
            match self.condition(kind) {
                None => {}
                Some(("True", _)) => return Verdict::READY,
                Some((_, message)) => return Verdict::progressing(message),
            }
        }
        Verdict::READY
    }
}

/// `.spec.replicas`, one where it is left out.
fn wanted(spec: &Value) -> i64 {
    spec["replicas"].as_i64().unwrap_or(1)
}

fn deployment(spec: &Value, status: Status<'_>, observed: Option<i64>) -> Verdict {
    if observed.is_none() {
        return Verdict::silent();
    }
    if let Some(("False", message)) = status.condition("Progressing") {
        return Verdict::failed(message);
    }
    if let Some(message) = status.holds("ReplicaFailure") {
        return Verdict::failed(message);
    }
    let wanted = wanted(spec);
    let (updated, total, available) =
        (status.count("updatedReplicas"), status.count("replicas"), status.count("availableReplicas"));
    if updated < wanted {
        Verdict::progressing(format!("{updated} of {wanted} replicas are updated"))
    } else if total > updated {
        Verdict::progressing(format!("{} old replicas are still there", total - updated))
    } else if available < wanted {
        Verdict::progressing(format!("{available} of {wanted} replicas are available"))
    } else {
        Verdict::READY
    }
}

fn replicas(spec: &Value, status: Status<'_>, observed: Option<i64>, field: &str) -> Verdict {
    if observed.is_none() {
        return Verdict::silent();
    }
    let (wanted, ready) = (wanted(spec), status.count(field));
    if ready < wanted {
        Verdict::progressing(format!("{ready} of {wanted} replicas are ready"))
    } else {
        Verdict::READY
    }
}

fn stateful_set(spec: &Value, status: Status<'_>, observed: Option<i64>) -> Verdict {
    let verdict = replicas(spec, status, observed, "readyReplicas");
    let on_delete = spec["updateStrategy"]["type"] == "OnDelete";
    if verdict.health != Health::Ready || on_delete {
        return verdict;
    }
    let partition = spec["updateStrategy"]["rollingUpdate"]["partition"].as_i64().unwrap_or(0);
    let (due, updated) = (wanted(spec) - partition, status.count("updatedReplicas"));
    if updated < due {
        Verdict::progressing(format!("{updated} of {due} replicas are updated"))
    } else {
        Verdict::READY
    }
}

fn daemon_set(status: Status<'_>, observed: Option<i64>) -> Verdict {
    if observed.is_none() {
        return Verdict::silent();
    }
    let wanted = status.count("desiredNumberScheduled");
    for (field, what) in [("updatedNumberScheduled", "updated"), ("numberAvailable", "available")] {
        let count = status.count(field);
        if count < wanted {
            return Verdict::progressing(format!("{count} of {wanted} Pods are {what}"));
        }
    }
    Verdict::READY
}

fn job(spec: &Value, status: Status<'_>) -> Verdict {
    if let Some(message) = status.holds("Failed") {
        return Verdict::failed(message);
    }
    if status.holds("Complete").is_some() {
        return Verdict::READY;
    }
    if spec["suspend"] == true {
        return Verdict::progressing("it is suspended");
    }
    if status.0.is_null() {
        return Verdict::silent();
    }
    Verdict::progressing(format!("{} Pods active, {} succeeded", status.count("active"), status.count("succeeded")))
}

fn pod(status: Status<'_>) -> Verdict {
    match status.0["phase"].as_str() {
        None => Verdict::silent(),
        Some("Succeeded") => Verdict::READY,
        Some("Failed") => Verdict::failed(status.0["message"].as_str().unwrap_or("it failed")),
        Some("Running") => status.conditions_of("Ready"),
        Some(phase) => Verdict::progressing(phase),
    }
}

fn phase(status: Status<'_>, good: &[&str], bad: &[&str]) -> Verdict {
    match status.0["phase"].as_str() {
        None => Verdict::silent(),
        Some(phase) if good.contains(&phase) => Verdict::READY,
        Some(phase) if bad.contains(&phase) => Verdict::failed(phase),
        Some(phase) => Verdict::progressing(phase),
    }
}

fn service(spec: &Value, status: Status<'_>) -> Verdict {
    let balanced = status.0["loadBalancer"]["ingress"].as_array().is_some_and(|ingress| !ingress.is_empty());
    if spec["type"] == "LoadBalancer" && !balanced {
        Verdict::progressing("it has no load balancer address yet")
    } else {
        Verdict::READY
    }
}

fn disruption_budget(status: Status<'_>) -> Verdict {
    if status.0["currentHealthy"].is_null() {
        return Verdict::silent();
    }
    let (healthy, wanted) = (status.count("currentHealthy"), status.count("desiredHealthy"));
    if healthy < wanted {
        Verdict::progressing(format!("{healthy} of {wanted} Pods are healthy"))
    } else {
        Verdict::READY
    }
}

fn custom_resource_definition(status: Status<'_>) -> Verdict {
    if let Some(("False", message)) = status.condition("NamesAccepted") {
        return Verdict::failed(message);
    }
    status.conditions_of("Established")
}

#[cfg(test)]
mod tests;
