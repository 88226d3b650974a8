use serde_json::Value;

use super::status::{Object, Truth, Verdict};

/// What a container waits for that does not come by waiting: the kubelet goes on trying, and says this between tries.
const STUCK: [&str; 3] = ["CrashLoopBackOff", "ImagePullBackOff", "InvalidImageName"];

pub(super) fn pod(object: Object<'_>) -> Verdict {
    match object.status["phase"].as_str() {
        Some("Running") if stuck(object).is_none() => object.ready_as("Ready"),
        Some("Running" | "Pending") => stuck(object).unwrap_or_else(|| pending(object)),
        _ => object.ready_in(&["Succeeded"], &["Failed"]),
    }
}

fn pending(object: Object<'_>) -> Verdict {
    match object.condition("PodScheduled") {
        Some(condition) if condition.truth == Truth::False => Verdict::progressing(condition.message()),
        Some(_) | None => object.ready_in(&[], &[]),
    }
}

fn stuck(object: Object<'_>) -> Option<Verdict> {
    let lists = ["initContainerStatuses", "containerStatuses"].map(|list| object.status[list].as_array());
    let waiting = |container: &Value| {
        let reason = container["state"]["waiting"]["reason"].as_str().filter(|reason| STUCK.contains(reason))?;
        Some(Verdict::failed(format!("container {}: {reason}", container["name"].as_str().unwrap_or_default())))
    };
    lists.into_iter().flatten().flatten().find_map(waiting)
}

/// A budget is as it should be once the disruption controller has computed it. That its Pods are unwell is for what runs
/// them to say.
pub(super) fn disruption_budget(object: Object<'_>) -> Verdict {
    if object.observed_generation().is_none() {
        return Verdict::silent();
    }
    match object.fails("DisruptionAllowed") {
        Some(condition) if condition.reason == "SyncFailed" => Verdict::failed(condition.message()),
        Some(_) | None => Verdict::READY,
    }
}
