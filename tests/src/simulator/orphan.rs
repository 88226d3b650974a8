//! What the garbage collector would delete: children whose controller is gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;

use super::step::{Doomed, Step};

/// Only controllers of kinds that are watched here are missed; children of all others are not ours.
pub(super) fn plan(deployments: &[Arc<Deployment>], replica_sets: &[Arc<ReplicaSet>], pods: &[Arc<Pod>]) -> Vec<Step> {
    let deployments = uids(deployments);
    let mut steps: Vec<_> = replica_sets
        .iter()
        .filter(|child| is_orphan(child.as_ref(), "Deployment", &deployments))
        .map(|child| Step::DeleteReplicaSet(Doomed::new(child.as_ref())))
        .collect();
    let replica_sets = uids(replica_sets);
    let pods = pods.iter().filter(|child| is_orphan(child.as_ref(), "ReplicaSet", &replica_sets));
    steps.extend(pods.map(|child| Step::DeletePod(Doomed::new(child.as_ref()))));
    steps
}

fn uids<K: Resource>(objects: &[Arc<K>]) -> BTreeSet<&str> {
    objects.iter().filter_map(|object| object.meta().uid.as_deref()).collect()
}

fn is_orphan(child: &impl Resource, kind: &str, alive: &BTreeSet<&str>) -> bool {
    let mut owners = child.meta().owner_references.iter().flatten();
    owners.any(|owner| {
        owner.controller == Some(true)
            && owner.kind == kind
            && owner.api_version == "apps/v1"
            && !alive.contains(owner.uid.as_str())
    })
}
