//! The Deployment controller: one ReplicaSet per template, the newest of them scaled up, and a status over all.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentCondition, DeploymentSpec, DeploymentStatus, ReplicaSet, ReplicaSetSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{Resource, ResourceExt};
use tideline_common::Digest;

use super::step::Step;
use super::suffix;

/// Numbers the templates that a Deployment had; on itself and on its ReplicaSets.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// Tells the Pods of one template from those of another.
const TEMPLATE_HASH: &str = "pod-template-hash";
/// Characters of the template's hash in names and labels, as in a real cluster.
const HASH_LENGTH: usize = 10;
/// Annotations that are about the Deployment itself; all others are copied to its ReplicaSets.
const NOT_COPIED: &[&str] = &["kubectl.kubernetes.io/last-applied-configuration", REVISION];

pub(super) fn plan(deployment: &Deployment, replica_sets: &[Arc<ReplicaSet>], now: &Time) -> Vec<Step> {
    let Some(spec) = &deployment.spec else { return Vec::new() };
    if deployment.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let hash = template_hash(spec);
    let name = format!("{}-{hash}", deployment.name_any());
    let new = replica_sets.iter().find(|it| it.name_any() == name).map(AsRef::as_ref);
    let old: Vec<&ReplicaSet> = replica_sets.iter().map(AsRef::as_ref).filter(|it| it.name_any() != name).collect();
    let latest = replica_sets.iter().map(|it| revision(it.as_ref())).max().unwrap_or(0);

    let mut steps = Vec::new();
    let wanted = spec.replicas.unwrap_or(1).max(0);
    let old_pods: i32 = old.iter().map(|it| it.status.as_ref().map_or(0, |status| status.replicas)).sum();
    let recreate = spec.strategy.as_ref().is_some_and(|it| it.type_.as_deref() == Some("Recreate"));
    let new_wanted = if recreate && old_pods > 0 { 0 } else { wanted };
    // A template that came back keeps its old number, which clients read as history only.
    let current = new.map_or(latest + 1, revision);
    match new {
        None => {
            let created = new_replica_set(deployment, spec, &hash, current, new_wanted);
            steps.push(Step::CreateReplicaSet(Box::new(created)));
        }
        Some(new) if replicas(new) != new_wanted => steps.push(scale(new, new_wanted)),
        Some(_) => {}
    }
    let new_serves = new.is_some_and(|new| available(new) >= wanted);
    if recreate || new_serves {
        steps.extend(old.iter().filter(|it| replicas(it) != 0).map(|it| scale(it, 0)));
    }
    if revision(deployment) != current {
        steps.push(Step::SetRevision {
            namespace: deployment.namespace().unwrap_or_default(),
            deployment: deployment.name_any(),
            revision: current,
        });
    }

    let status = status(deployment, spec, new, &old, &name, now);
    if deployment.status.as_ref() != Some(&status) {
        steps.push(Step::WriteDeploymentStatus(Box::new(Deployment { status: Some(status), ..deployment.clone() })));
    }
    steps
}

fn template_hash(spec: &DeploymentSpec) -> String {
    // Maps of the typed API are ordered, so that equal templates are equal bytes.
    let template = serde_json::to_vec(&spec.template).expect("an API type has only string keys");
    suffix(Digest::of(&template).as_bytes(), HASH_LENGTH)
}

fn revision(object: &impl Resource) -> i64 {
    object.annotations().get(REVISION).and_then(|revision| revision.parse().ok()).unwrap_or(0)
}

fn replicas(replica_set: &ReplicaSet) -> i32 {
    replica_set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// The Pods that are available, as far as the ReplicaSet's own controller has seen its latest change.
fn available(replica_set: &ReplicaSet) -> i32 {
    replica_set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
}

fn scale(replica_set: &ReplicaSet, replicas: i32) -> Step {
    Step::Scale {
        namespace: replica_set.namespace().unwrap_or_default(),
        replica_set: replica_set.name_any(),
        replicas,
    }
}

fn new_replica_set(
    deployment: &Deployment,
    spec: &DeploymentSpec,
    hash: &str,
    revision: i64,
    replicas: i32,
) -> ReplicaSet {
    let mut template = spec.template.clone();
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(TEMPLATE_HASH.to_owned(), hash.to_owned());
    let labels = labels.clone();
    let mut selector = LabelSelector { ..spec.selector.clone() };
    selector.match_labels.get_or_insert_default().insert(TEMPLATE_HASH.to_owned(), hash.to_owned());
    let mut annotations = deployment.annotations().clone();
    annotations.retain(|key, _| !NOT_COPIED.contains(&key.as_str()));
    annotations.insert(REVISION.to_owned(), revision.to_string());
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{}-{hash}", deployment.name_any())),
            namespace: deployment.namespace(),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: deployment.controller_owner_ref(&()).map(|mut owner| {
                owner.block_owner_deletion = Some(true);
                vec![owner]
            }),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: Some(replicas),
            selector,
            template: Some(template),
            min_ready_seconds: spec.min_ready_seconds,
        }),
        status: None,
    }
}

fn status(
    deployment: &Deployment,
    spec: &DeploymentSpec,
    new: Option<&ReplicaSet>,
    old: &[&ReplicaSet],
    new_name: &str,
    now: &Time,
) -> DeploymentStatus {
    let all = || new.into_iter().chain(old.iter().copied()).filter_map(|it| it.status.as_ref());
    let total: i32 = all().map(|status| status.replicas).sum();
    let ready: i32 = all().filter_map(|status| status.ready_replicas).sum();
    let available: i32 = all().filter_map(|status| status.available_replicas).sum();
    let updated = new.and_then(|new| new.status.as_ref()).map_or(0, |status| status.replicas);
    let wanted = spec.replicas.unwrap_or(1).max(0);

    let served = available >= wanted - unavailable_max(spec, wanted);
    let complete = new.is_some() && updated == wanted && total == wanted && available >= wanted;
    let former = deployment.status.as_ref();
    // The real controller leaves zeros out.
    let unless_zero = |count: i32| (count > 0).then_some(count);
    DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: unless_zero(total),
        updated_replicas: unless_zero(updated),
        ready_replicas: unless_zero(ready),
        available_replicas: unless_zero(available),
        unavailable_replicas: unless_zero(total.max(wanted) - available),
        conditions: Some(vec![
            condition(former, &available_condition(served), now),
            condition(former, &progressing_condition(new.is_some(), complete, new_name), now),
        ]),
        collision_count: former.and_then(|status| status.collision_count),
        terminating_replicas: None,
    }
}

/// How many Pods may be missing while the Deployment still counts as available.
fn unavailable_max(spec: &DeploymentSpec, wanted: i32) -> i32 {
    let strategy = spec.strategy.as_ref();
    if strategy.is_some_and(|strategy| strategy.type_.as_deref() == Some("Recreate")) {
        return 0;
    }
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    match rolling.and_then(|rolling| rolling.max_unavailable.as_ref()) {
        Some(IntOrString::Int(count)) => (*count).min(wanted),
        Some(IntOrString::String(percent)) => share(wanted, percent.trim_end_matches('%').parse().unwrap_or(0)),
        // The default of the API.
        None => share(wanted, 25),
    }
}

/// Rounded down, as the real controller does.
fn share(of: i32, percent: i32) -> i32 {
    i32::try_from(i64::from(of) * i64::from(percent.clamp(0, 100)) / 100).unwrap_or(0)
}

struct Verdict {
    name: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

fn available_condition(served: bool) -> Verdict {
    let (status, reason, message) = if served {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    Verdict { name: "Available", status, reason, message: message.to_owned() }
}

fn progressing_condition(created: bool, complete: bool, name: &str) -> Verdict {
    let (reason, message) = if complete {
        ("NewReplicaSetAvailable", format!("ReplicaSet {name:?} has successfully progressed."))
    } else if created {
        ("ReplicaSetUpdated", format!("ReplicaSet {name:?} is progressing."))
    } else {
        ("NewReplicaSetCreated", format!("Created new replica set {name:?}"))
    };
    Verdict { name: "Progressing", status: "True", reason, message }
}

/// Keeps the former condition where it says the same, and the time of its last transition where only the reason is
/// new.
fn condition(former: Option<&DeploymentStatus>, verdict: &Verdict, now: &Time) -> DeploymentCondition {
    let former = former
        .and_then(|status| status.conditions.as_ref())
        .and_then(|conditions| conditions.iter().find(|condition| condition.type_ == verdict.name));
    let same_status = former.filter(|former| former.status == verdict.status);
    let same = same_status.filter(|former| {
        former.reason.as_deref() == Some(verdict.reason) && former.message.as_deref() == Some(&verdict.message)
    });
    if let Some(same) = same {
        return same.clone();
    }
    let transition = same_status.and_then(|former| former.last_transition_time.clone());
    DeploymentCondition {
        type_: verdict.name.to_owned(),
        status: verdict.status.to_owned(),
        reason: Some(verdict.reason.to_owned()),
        message: Some(verdict.message.clone()),
        last_transition_time: Some(transition.unwrap_or_else(|| now.clone())),
        last_update_time: Some(now.clone()),
    }
}
