//! The clusters are real: controllers act, kubectl works, and they can be broken and mended.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, from_value, json};
use tideline_tests::kubernetes::{Cluster, ClusterOptions};
use tideline_tests::{eventually, eventually_ok, require_kubernetes};

const SOON: Duration = Duration::from_secs(90);

#[tokio::test]
async fn controllers_turn_a_deployment_into_pods() -> Result<()> {
    let assets = require_kubernetes!();
    let options = ClusterOptions { controller_manager: true, ..ClusterOptions::default() };
    let cluster = Cluster::start(&assets, options).await?;

    let deployment: Deployment = from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "registry.example/web:1"}]},
            },
        },
    }))?;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "default");
    deployments.create(&PostParams::default(), &deployment).await?;

    let sets: Api<ReplicaSet> = Api::namespaced(cluster.client(), "default");
    let owner = eventually(SOON, "a ReplicaSet", async || {
        let owner = sets.list(&ListParams::default()).await.ok()?.items.pop()?.metadata.owner_references?;
        owner.into_iter().next()
    });
    assert_eq!(owner.await?.name, "web");
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "default");
    eventually(SOON, "two Pods", async || {
        (pods.list(&ListParams::default()).await.ok()?.items.len() == 2).then_some(())
    })
    .await?;
    eventually(SOON, "the Deployment's status", async || {
        let status = deployments.get("web").await.ok()?.status?;
        (status.observed_generation == Some(1) && status.replicas == Some(2)).then_some(())
    })
    .await
}

#[tokio::test]
async fn kubectl_and_server_are_the_pinned_release_and_survive_a_restart() -> Result<()> {
    let assets = require_kubernetes!();
    let mut cluster = Cluster::start(&assets, ClusterOptions::default()).await?;

    let kubectl = cluster.kubectl().clone();
    let versions: Value = serde_json::from_str(&kubectl.run(&["version", "-o", "json"]).await?)?;
    for side in ["clientVersion", "serverVersion"] {
        assert_eq!(versions[side]["gitVersion"], "v1.35.4", "{side}");
        assert_eq!((&versions[side]["major"], &versions[side]["minor"]), (&json!("1"), &json!("35")), "{side}");
    }

    let manifest = "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}";
    kubectl.run_with_input(&["apply", "--server-side", "-f", "-"], manifest).await?;
    let refused = kubectl.try_run(&["get", "namespace", "absent"], "").await?;
    assert_eq!(refused.code()?, 1);
    assert!(refused.stderr.contains("NotFound"), "{}", refused.stderr);

    let namespaces: Api<Namespace> = Api::all(cluster.client());
    cluster.stop_apiserver()?;
    assert!(namespaces.get("shop").await.is_err(), "a stopped API server answered");
    cluster.restart_apiserver().await?;
    namespaces.get("shop").await.context("what was written before the restart")?;

    cluster.pause()?;
    let silent = tokio::time::timeout(Duration::from_millis(500), namespaces.get("shop")).await;
    assert!(silent.is_err(), "a paused API server answered");
    cluster.resume()?;
    eventually_ok(SOON, "an answer after the pause", async || namespaces.get("shop").await).await?;
    Ok(())
}
