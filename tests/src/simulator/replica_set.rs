//! The ReplicaSet controller: as many Pods as asked for, and a status that says how many there are.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use tideline_common::Digest;

use super::step::{Doomed, Step};
use super::{pod, suffix};

/// Characters after the ReplicaSet's name, as in a real cluster.
const SUFFIX_LENGTH: usize = 5;

pub(super) fn plan(replica_set: &ReplicaSet, pods: &[Arc<Pod>]) -> Vec<Step> {
    if replica_set.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let mut active: Vec<&Pod> =
        pods.iter().map(AsRef::as_ref).filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect();
    // The last to go are those that serve.
    active.sort_by_key(|pod| (!pod::is_ready(pod), pod.name_any()));

    let wanted = wanted(replica_set);
    let mut steps: Vec<_> = active.iter().skip(wanted).map(|pod| Step::DeletePod(Doomed::new(*pod))).collect();
    let taken: BTreeSet<String> = pods.iter().map(|pod| pod.name_any()).collect();
    let missing = wanted.saturating_sub(active.len());
    steps.extend(
        names(replica_set)
            .filter(|name| !taken.contains(name))
            .take(missing)
            .map(|name| Step::CreatePod(Box::new(new_pod(replica_set, name)))),
    );

    let status = status(replica_set, &active);
    if replica_set.status.as_ref() != Some(&status) {
        steps.push(Step::WriteReplicaSetStatus(Box::new(ReplicaSet { status: Some(status), ..replica_set.clone() })));
    }
    steps
}

/// The number of Pods asked for, one where it is left out.
fn wanted(replica_set: &ReplicaSet) -> usize {
    let replicas = replica_set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    usize::try_from(replicas).unwrap_or(0)
}

/// The names of this ReplicaSet's Pods, in order, without end.
fn names(replica_set: &ReplicaSet) -> impl Iterator<Item = String> {
    let (name, uid) = (replica_set.name_any(), replica_set.uid().unwrap_or_default());
    (0_u64..).map(move |ordinal| {
        let digest = Digest::of(format!("{uid}/{ordinal}").as_bytes());
        format!("{name}-{}", suffix(digest.as_bytes(), SUFFIX_LENGTH))
    })
}

fn new_pod(replica_set: &ReplicaSet, name: String) -> Pod {
    let template = replica_set.spec.as_ref().and_then(|spec| spec.template.clone()).unwrap_or_default();
    let metadata = template.metadata.unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", replica_set.name_any())),
            name: Some(name),
            namespace: replica_set.namespace(),
            labels: metadata.labels,
            annotations: metadata.annotations,
            owner_references: replica_set.controller_owner_ref(&()).map(|mut owner| {
                owner.block_owner_deletion = Some(true);
                vec![owner]
            }),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

fn status(replica_set: &ReplicaSet, active: &[&Pod]) -> ReplicaSetStatus {
    let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let ready = count(active.iter().filter(|pod| pod::is_ready(pod)).count());
    // The real controller leaves zeros out.
    let unless_zero = |count: i32| (count > 0).then_some(count);
    ReplicaSetStatus {
        replicas: count(active.len()),
        fully_labeled_replicas: unless_zero(count(active.len())),
        ready_replicas: unless_zero(ready),
        available_replicas: unless_zero(ready),
        observed_generation: replica_set.metadata.generation,
        conditions: None,
        terminating_replicas: None,
    }
}
