use super::status::{Object, Verdict};

/// Reasons of `ScalingActive` that only a person ends.
const MISCONFIGURED: [&str; 2] = ["InvalidSelector", "AmbiguousSelector"];

/// Without metrics it tells so in `ScalingActive`, as in the first minutes of every one; a target of zero replicas means
/// that somebody turned it off.
pub(super) fn horizontal_pod_autoscaler(object: Object<'_>) -> Verdict {
    if let Some(condition) = object.fails("AbleToScale") {
        return Verdict::progressing(condition.message());
    }
    match object.fails("ScalingActive") {
        Some(condition) if condition.reason == "ScalingDisabled" => Verdict::ready_but(condition.message()),
        Some(condition) if MISCONFIGURED.contains(&condition.reason) => Verdict::failed(condition.message()),
        Some(_) | None => object.ready_as("ScalingActive"),
    }
}
