//! What the controllers do to the cluster, one request each.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;

/// The user agent's part in managedFields, as the real controllers name themselves.
const FIELD_MANAGER: &str = "kube-controller-manager";

/// An object that is there now. Whatever bears its name later is spared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Doomed {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

impl Doomed {
    pub(super) fn new(object: &impl Resource) -> Self {
        Self {
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
        }
    }
}

/// One request. Objects whose status is written carry the resourceVersion that was read, so that nothing is written on an old
/// view.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    CreateReplicaSet(Box<ReplicaSet>),
    CreatePod(Box<Pod>),
    Scale { namespace: String, replica_set: String, replicas: i32 },
    SetRevision { namespace: String, deployment: String, revision: i64 },
    WriteDeploymentStatus(Box<Deployment>),
    WriteReplicaSetStatus(Box<ReplicaSet>),
    WritePodStatus(Box<Pod>),
    DeleteReplicaSet(Doomed),
    DeletePod(Doomed),
}

/// A step was refused, and no event will say when it is worth another try.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused;

impl Step {
    pub(super) async fn take(self, client: &Client) -> Result<(), Refused> {
        let what = self.description();
        match self.request(client).await {
            Ok(()) => Ok(()),
            // The view was old. What made it so is an event on its way.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => {
                tracing::debug!(%error, what, "the simulated controller was refused");
                Err(Refused)
            }
        }
    }

    async fn request(self, client: &Client) -> kube::Result<()> {
        let post = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let patch = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let deployments = |namespace: &str| Api::<Deployment>::namespaced(client.clone(), namespace);
        let replica_sets = |namespace: &str| Api::<ReplicaSet>::namespaced(client.clone(), namespace);
        let pods = |namespace: &str| Api::<Pod>::namespaced(client.clone(), namespace);
        match self {
            Self::CreateReplicaSet(it) => replica_sets(&namespace(&*it)).create(&post, &it).await.map(drop),
            Self::CreatePod(it) => pods(&namespace(&*it)).create(&post, &it).await.map(drop),
            Self::Scale { namespace, replica_set, replicas } => {
                let scaled = Patch::Merge(json!({"spec": {"replicas": replicas}}));
                replica_sets(&namespace).patch(&replica_set, &patch, &scaled).await.map(drop)
            }
            Self::SetRevision { namespace, deployment, revision } => {
                let annotations = json!({super::deployment::REVISION: revision.to_string()});
                let revised = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
                deployments(&namespace).patch_metadata(&deployment, &patch, &revised).await.map(drop)
            }
            Self::WriteDeploymentStatus(it) => {
                deployments(&namespace(&*it)).replace_status(&it.name_any(), &post, &it).await.map(drop)
            }
            Self::WriteReplicaSetStatus(it) => {
                replica_sets(&namespace(&*it)).replace_status(&it.name_any(), &post, &it).await.map(drop)
            }
            Self::WritePodStatus(it) => {
                pods(&namespace(&*it)).replace_status(&it.name_any(), &post, &it).await.map(drop)
            }
            Self::DeleteReplicaSet(it) => {
                replica_sets(&it.namespace).delete(&it.name, &at_once(it.uid)).await.map(drop)
            }
            Self::DeletePod(it) => pods(&it.namespace).delete(&it.name, &at_once(it.uid)).await.map(drop),
        }
    }

    fn description(&self) -> &'static str {
        match self {
            Self::CreateReplicaSet(_) => "create a ReplicaSet",
            Self::CreatePod(_) => "create a Pod",
            Self::Scale { .. } => "scale a ReplicaSet",
            Self::SetRevision { .. } => "set the revision of a Deployment",
            Self::WriteDeploymentStatus(_) => "write the status of a Deployment",
            Self::WriteReplicaSetStatus(_) => "write the status of a ReplicaSet",
            Self::WritePodStatus(_) => "write the status of a Pod",
            Self::DeleteReplicaSet(_) => "delete a ReplicaSet",
            Self::DeletePod(_) => "delete a Pod",
        }
    }
}

fn namespace(object: &impl Resource) -> String {
    object.namespace().unwrap_or_default()
}

/// There is no kubelet to wait for, and no garbage collector to leave the children to.
fn at_once(uid: String) -> DeleteParams {
    let preconditions = Preconditions { uid: Some(uid), resource_version: None };
    DeleteParams::background().grace_period(0).preconditions(preconditions)
}
