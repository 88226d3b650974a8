//! What the kubelet would do: Pods start after a moment, and end when they are asked to.

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStatus, Pod, PodCondition, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::step::{Doomed, Step};

/// What a Pod needs.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Next {
    Nothing,
    /// It is on its way up.
    Later,
    Now(Step),
}

pub(super) fn plan(pod: &Pod, started: bool, now: &Time) -> Next {
    if pod.metadata.deletion_timestamp.is_some() {
        return Next::Now(Step::DeletePod(Doomed::new(pod)));
    }
    if is_ready(pod) || is_finished(pod) {
        return Next::Nothing;
    }
    if !started {
        return Next::Later;
    }
    let mut running = pod.clone();
    running.status = Some(status(pod, now));
    Next::Now(Step::WritePodStatus(Box::new(running)))
}

pub(super) fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn status(pod: &Pod, now: &Time) -> PodStatus {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let running = ContainerState {
        running: Some(ContainerStateRunning { started_at: Some(now.clone()) }),
        ..ContainerState::default()
    };
    let statuses = containers.map(|container| {
        let image = container.image.clone().unwrap_or_default();
        ContainerStatus {
            name: container.name.clone(),
            image_id: image.clone(),
            image,
            ready: true,
            started: Some(true),
            state: Some(running.clone()),
            ..ContainerStatus::default()
        }
    });
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(|name| PodCondition {
        type_: name.to_owned(),
        status: "True".to_owned(),
        last_transition_time: Some(now.clone()),
        ..PodCondition::default()
    });
    PodStatus {
        phase: Some("Running".to_owned()),
        start_time: Some(now.clone()),
        conditions: Some(conditions.into()),
        container_statuses: Some(statuses.collect()),
        qos_class: pod.status.as_ref().and_then(|status| status.qos_class.clone()),
        ..PodStatus::default()
    }
}
