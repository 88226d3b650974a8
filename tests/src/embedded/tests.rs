use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use serde_json::json;

use super::EmbeddedCluster;
use crate::eventually_ok;

const LIMIT: Duration = Duration::from_secs(20);

async fn apply(client: &Client, replicas: i32, image: &str) -> Result<()> {
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": image}]},
            },
        },
    });
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.patch("web", &PatchParams::apply("test"), &Patch::Apply(deployment)).await?;
    Ok(())
}

/// Waits until the Deployment has exactly `pods` Pods, all available, and its own generation observed.
async fn rolled_out(client: &Client, pods: usize) -> Result<DeploymentStatus> {
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let found: Api<Pod> = Api::default_namespaced(client.clone());
    let wanted = i32::try_from(pods)?;
    eventually_ok(LIMIT, "the rollout", async || {
        let deployment = deployments.get("web").await?;
        let status = deployment.status.unwrap_or_default();
        ensure!(status.observed_generation == deployment.metadata.generation, "not observed: {status:?}");
        ensure!(status.updated_replicas == Some(wanted) && status.replicas == Some(wanted), "{status:?}");
        ensure!(status.available_replicas == Some(wanted), "not available: {status:?}");
        let found = found.list(&ListParams::default()).await?.items.len();
        ensure!(found == pods, "{found} Pods");
        Ok(status)
    })
    .await
}

#[tokio::test]
async fn a_deployment_lives_its_whole_life_on_an_embedded_cluster() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let cluster = EmbeddedCluster::start(directory.path(), "one").await?;
    let client = cluster.client();

    apply(&client, 2, "one").await?;
    rolled_out(&client, 2).await?;
    apply(&client, 3, "one").await?;
    rolled_out(&client, 3).await?;
    apply(&client, 3, "two").await?;
    let status = rolled_out(&client, 3).await?;
    let conditions: Vec<_> = status.conditions.iter().flatten().filter_map(|it| it.reason.as_deref()).collect();
    assert_eq!(conditions, ["MinimumReplicasAvailable", "NewReplicaSetAvailable"]);

    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let lost = pods.list(&ListParams::default()).await?.items.remove(0).metadata.name.unwrap_or_default();
    pods.delete(&lost, &DeleteParams::default()).await?;
    rolled_out(&client, 3).await?;

    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.delete("web", &DeleteParams::background()).await?;
    let sets: Api<ReplicaSet> = Api::default_namespaced(client.clone());
    eventually_ok(LIMIT, "the children to be gone", async || {
        let sets = sets.list(&ListParams::default()).await?.items.len();
        let pods = pods.list(&ListParams::default()).await?.items.len();
        ensure!((sets, pods) == (0, 0), "{sets} ReplicaSets and {pods} Pods are left");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn clusters_are_apart_and_ask_for_their_token() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let one = EmbeddedCluster::start(directory.path(), "one").await?;
    let two = EmbeddedCluster::start(directory.path(), "two").await?;
    let namespaces = |client: Client| Api::<Namespace>::all(client);
    let only_there: Namespace = serde_json::from_value(json!({"metadata": {"name": "there"}}))?;
    namespaces(one.client()).create(&PostParams::default(), &only_there).await?;
    assert!(namespaces(two.client()).get_opt("there").await?.is_none());
    let uid = |namespace: Namespace| namespace.metadata.uid;
    let kube_system = "kube-system";
    assert_ne!(
        uid(namespaces(one.client()).get(kube_system).await?),
        uid(namespaces(two.client()).get(kube_system).await?),
        "its UID is what tells clusters apart"
    );

    let kubeconfig = Kubeconfig::read_from(one.kubeconfig())?;
    let mut stranger = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    stranger.auth_info.token = Some("guess".to_owned().into());
    let refused = namespaces(Client::try_from(stranger)?).get("default").await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 401));
    Ok(())
}
