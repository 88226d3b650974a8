//! Decodes only the counted fields of objects: everything else is skipped while it is read.

use std::borrow::Cow;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::Resource;
use kube::api::PartialObjectMeta;
use serde::{Deserialize, Deserializer};
use tideline_common::associated::Phase;
use tideline_common::health::truncate;
use tideline_common::limits::ASSOCIATED_REASON_BYTES_MAX;
use tideline_common::{GroupKind, Uid};

use crate::core::{Associate, Condition, Owner};

/// Names the Service of a slice that it does not own: one that somebody made, or mirrored.
const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// What containers wait for in any case.
const USUAL: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// An object as it is read.
pub(super) trait PartialDecode: Resource<DynamicType = (), Scope = NamespaceResourceScope> {
    fn into_metadata(self) -> ObjectMeta;
    fn condition(&self) -> Condition;
}

/// The fields of metadata that are read. Those of `managedFields`, which are not, are most of it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PartialMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: PartialLabels,
    owner_references: Option<Vec<OwnerReference>>,
    deletion_timestamp: Option<Time>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PartialLabels {
    #[serde(rename = "kubernetes.io/service-name")]
    service: Option<String>,
}

fn partial_meta<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let PartialMeta { name, namespace, uid, resource_version, labels, owner_references, deletion_timestamp } =
        PartialMeta::deserialize(deserializer)?;
    let labels = labels.service.map(|service| [(SERVICE_NAME_LABEL.to_owned(), service)].into());
    Ok(ObjectMeta {
        name,
        namespace,
        uid,
        resource_version,
        labels,
        owner_references,
        deletion_timestamp,
        ..ObjectMeta::default()
    })
}

/// Says where a kind is found, for kube.
macro_rules! found_at {
    ($kind:ident, $group:literal, $plural:literal) => {
        impl Resource for $kind {
            type DynamicType = ();
            type Scope = NamespaceResourceScope;

            fn kind(&(): &()) -> Cow<'_, str> {
                stringify!($kind).into()
            }

            fn group(&(): &()) -> Cow<'_, str> {
                $group.into()
            }

            fn version(&(): &()) -> Cow<'_, str> {
                "v1".into()
            }

            fn plural(&(): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

found_at!(Pod, "", "pods");
found_at!(ReplicaSet, "apps", "replicasets");
found_at!(Job, "batch", "jobs");
found_at!(EndpointSlice, "discovery.k8s.io", "endpointslices");

/// The facts kept of an object. None for one without name or UID, which no API server sends.
pub(super) fn associate<K: PartialDecode>(object: K) -> Option<Associate> {
    let mut condition = object.condition();
    if object.meta().deletion_timestamp.is_some() {
        condition.reason = Some("Terminating".into());
    }
    taken(object.into_metadata(), condition)
}

/// The facts from metadata alone.
pub(super) fn link<K>(PartialObjectMeta { metadata, .. }: PartialObjectMeta<K>) -> Option<Associate> {
    taken(metadata, Condition::default())
}

fn taken(metadata: ObjectMeta, condition: Condition) -> Option<Associate> {
    let ObjectMeta { name, namespace, uid, owner_references, labels, .. } = metadata;
    let controller = owner_references.into_iter().flatten().find(|owner| owner.controller == Some(true));
    let service = || labels.and_then(|mut labels| labels.remove(SERVICE_NAME_LABEL));
    let owner = match controller {
        Some(OwnerReference { api_version, kind, name, uid, .. }) => {
            Some(Owner { kind: GroupKind::of(&api_version, kind), name, uid: Some(Uid::try_from(uid).ok()?) })
        }
        None => service().map(|name| Owner { kind: GroupKind::new("", "Service"), name, uid: None }),
    };
    let (uid, namespace) = (Uid::try_from(uid?).ok()?, namespace.unwrap_or_default());
    Some(Associate { uid, namespace, name: name?, owner, condition })
}

fn reason(mut text: String) -> Box<str> {
    truncate(&mut text, ASSOCIATED_REASON_BYTES_MAX);
    text.into()
}

/// One of `.status.conditions`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Aspect {
    #[serde(rename = "type")]
    name: String,
    status: String,
    reason: Option<String>,
}

/// The condition of a name that has a status.
fn aspect<'a>(aspects: &'a [Aspect], name: &str, status: &str) -> Option<&'a Aspect> {
    aspects.iter().find(|aspect| aspect.name == name && aspect.status == status)
}

/// Null where there are none, for some writers.
fn or_none<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pod {
    #[serde(deserialize_with = "partial_meta")]
    metadata: ObjectMeta,
    spec: PodSpec,
    status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSpec {
    node_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    phase: Phase,
    reason: Option<String>,
    #[serde(deserialize_with = "or_none")]
    conditions: Vec<Aspect>,
    #[serde(deserialize_with = "or_none")]
    init_container_statuses: Vec<Container>,
    #[serde(deserialize_with = "or_none")]
    container_statuses: Vec<Container>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    restart_count: u32,
    state: State,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    waiting: Option<Waiting>,
    terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Waiting {
    reason: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Terminated {
    reason: Option<String>,
    exit_code: i64,
}

impl PartialDecode for Pod {
    fn into_metadata(self) -> ObjectMeta {
        self.metadata
    }

    fn condition(&self) -> Condition {
        let status = &self.status;
        let containers = || status.init_container_statuses.iter().chain(&status.container_statuses);
        let restarts = containers().fold(0_u32, |sum, container| sum.saturating_add(container.restart_count));
        Condition {
            phase: status.phase,
            ready: aspect(&status.conditions, "Ready", "True").is_some(),
            reason: self.why().map(reason),
            restarts,
            node: self.spec.node_name.clone().filter(|node| !node.is_empty()).map(Into::into),
            ..Condition::default()
        }
    }
}

impl Pod {
    /// Why it does not do what it should, as the kubelet or the scheduler says.
    fn why(&self) -> Option<String> {
        let status = &self.status;
        let containers = || status.init_container_statuses.iter().chain(&status.container_statuses);
        let waiting = || containers().filter_map(|container| container.state.waiting.as_ref()?.reason.clone());
        let failed = || {
            let terminated = containers().filter_map(|container| container.state.terminated.as_ref());
            terminated.filter(|ended| ended.exit_code != 0).find_map(|ended| ended.reason.clone())
        };
        let unscheduled =
            || aspect(&status.conditions, "PodScheduled", "False").and_then(|aspect| aspect.reason.clone());
        status
            .reason
            .clone()
            .filter(|reason| !reason.is_empty())
            .or_else(|| waiting().find(|reason| !USUAL.contains(&reason.as_str())))
            .or_else(failed)
            .or_else(unscheduled)
            .or_else(|| waiting().next())
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReplicaSet {
    #[serde(deserialize_with = "partial_meta")]
    metadata: ObjectMeta,
    spec: ReplicaSetSpec,
    status: ReplicaSetStatus,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
struct ReplicaSetSpec {
    replicas: i64,
}

impl Default for ReplicaSetSpec {
    /// As Kubernetes has it.
    fn default() -> Self {
        Self { replicas: 1 }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReplicaSetStatus {
    ready_replicas: i64,
    #[serde(deserialize_with = "or_none")]
    conditions: Vec<Aspect>,
}

impl PartialDecode for ReplicaSet {
    fn into_metadata(self) -> ObjectMeta {
        self.metadata
    }

    fn condition(&self) -> Condition {
        let (wanted, ready) = (self.spec.replicas, self.status.ready_replicas);
        let phase = match wanted {
            0 => Phase::Idle,
            _ if ready >= wanted => Phase::Running,
            _ => Phase::Pending,
        };
        let failure = aspect(&self.status.conditions, "ReplicaFailure", "True");
        let why = failure.and_then(|failure| failure.reason.clone()).map(reason);
        Condition { phase, ready: phase == Phase::Running, reason: why, ..Condition::default() }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Job {
    #[serde(deserialize_with = "partial_meta")]
    metadata: ObjectMeta,
    spec: JobSpec,
    status: JobStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct JobSpec {
    suspend: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct JobStatus {
    active: i64,
    #[serde(deserialize_with = "or_none")]
    conditions: Vec<Aspect>,
}

impl PartialDecode for Job {
    fn into_metadata(self) -> ObjectMeta {
        self.metadata
    }

    fn condition(&self) -> Condition {
        let conditions = &self.status.conditions;
        let failed = aspect(conditions, "Failed", "True");
        let phase = if failed.is_some() {
            Phase::Failed
        } else if aspect(conditions, "Complete", "True").is_some() {
            Phase::Succeeded
        } else if self.spec.suspend == Some(true) {
            Phase::Idle
        } else if self.status.active > 0 {
            Phase::Running
        } else {
            Phase::Pending
        };
        let why = failed.and_then(|failed| failed.reason.clone()).map(reason);
        Condition { phase, ready: phase == Phase::Succeeded, reason: why, ..Condition::default() }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct EndpointSlice {
    #[serde(deserialize_with = "partial_meta")]
    metadata: ObjectMeta,
    #[serde(deserialize_with = "or_none")]
    endpoints: Vec<Endpoint>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Endpoint {
    conditions: EndpointConditions,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct EndpointConditions {
    /// Unknown is to be taken for true (discovery.k8s.io/v1).
    ready: Option<bool>,
}

impl PartialDecode for EndpointSlice {
    fn into_metadata(self) -> ObjectMeta {
        self.metadata
    }

    fn condition(&self) -> Condition {
        let count = |endpoints: usize| u32::try_from(endpoints).unwrap_or(u32::MAX);
        let ready = self.endpoints.iter().filter(|endpoint| endpoint.conditions.ready != Some(false)).count();
        let phase = match (self.endpoints.len(), ready) {
            (0, _) => Phase::Idle,
            (_, 0) => Phase::Pending,
            (_, _) => Phase::Running,
        };
        Condition {
            phase,
            ready: ready > 0,
            endpoints: count(self.endpoints.len()),
            endpoints_ready: count(ready),
            ..Condition::default()
        }
    }
}

#[cfg(test)]
mod tests;
