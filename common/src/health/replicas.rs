//! Controllers that run a number of Pods. All of them write `observedGeneration`: without it they have not acted yet.

use super::status::{Object, Verdict};

/// The API server's `kubectl rollout status` and kstatus agree on the order: updated, old ones gone, available.
pub(super) fn deployment(object: Object<'_>) -> Verdict {
    if object.observed_generation().is_none() {
        return Verdict::silent();
    }
    if let Some(condition) = object.fails("Progressing").or_else(|| object.holds("ReplicaFailure")) {
        return Verdict::failed(condition.message());
    }
    let wanted = object.wanted();
    let (updated, total) = (object.count("updatedReplicas"), object.count("replicas"));
    if updated < wanted && object.spec["paused"] == true {
        return Verdict::progressing(format!("it is paused with {updated} of {wanted} replicas updated"));
    }
    Verdict::counted(updated, wanted, "replicas are updated")
        .or_else(|| old_ones(total, updated))
        .or_else(|| Verdict::counted(object.count("availableReplicas"), wanted, "replicas are available"))
        .unwrap_or(Verdict::READY)
}

pub(super) fn replica_set(object: Object<'_>) -> Verdict {
    if object.observed_generation().is_none() {
        return Verdict::silent();
    }
    if let Some(condition) = object.holds("ReplicaFailure") {
        return Verdict::failed(condition.message());
    }
    let wanted = object.wanted();
    Verdict::counted(object.count("readyReplicas"), wanted, "replicas are ready")
        .or_else(|| Verdict::counted(object.count("availableReplicas"), wanted, "replicas are available"))
        .or_else(|| surplus(object.count("replicas"), wanted))
        .unwrap_or(Verdict::READY)
}

/// With `OnDelete` a person decides when replicas are updated; with a partition, how many.
pub(super) fn stateful_set(object: Object<'_>) -> Verdict {
    if object.observed_generation().is_none() {
        return Verdict::silent();
    }
    let wanted = object.wanted();
    let strategy = &object.spec["updateStrategy"];
    let due = match strategy["type"].as_str() {
        Some("OnDelete") => 0,
        Some(_) | None => wanted - strategy["rollingUpdate"]["partition"].as_i64().unwrap_or(0),
    };
    Verdict::counted(object.count("readyReplicas"), wanted, "replicas are ready")
        .or_else(|| Verdict::counted(object.count("updatedReplicas"), due, "replicas are updated"))
        .or_else(|| surplus(object.count("replicas"), wanted))
        .unwrap_or(Verdict::READY)
}

pub(super) fn daemon_set(object: Object<'_>) -> Verdict {
    if object.observed_generation().is_none() {
        return Verdict::silent();
    }
    let wanted = object.count("desiredNumberScheduled");
    let on_delete = object.spec["updateStrategy"]["type"] == "OnDelete";
    let due = if on_delete { 0 } else { wanted };
    Verdict::counted(object.count("currentNumberScheduled"), wanted, "Pods are scheduled")
        .or_else(|| Verdict::counted(object.count("updatedNumberScheduled"), due, "Pods are updated"))
        .or_else(|| Verdict::counted(object.count("numberAvailable"), wanted, "Pods are available"))
        .unwrap_or(Verdict::READY)
}

fn old_ones(total: i64, updated: i64) -> Option<Verdict> {
    (total > updated).then(|| Verdict::progressing(format!("{} old replicas are still there", total - updated)))
}

fn surplus(total: i64, wanted: i64) -> Option<Verdict> {
    (total > wanted).then(|| Verdict::progressing(format!("{} replicas are still to go", total - wanted)))
}
