//! The main job on two real clusters: objects out, state back, through loss, restart, drift and removal.

use anyhow::{Result, ensure};
use kube::api::{Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tideline_tests::fleet::{Agent, Hub};
use tideline_tests::kubernetes::{Cluster, ClusterOptions};
use tideline_tests::{eventually_ok, require_kubernetes};

use crate::objects::{
    CONFIG, DEPLOYMENT, ROLLUP, SOON, api, api_cluster, apply, config, deployment, gone, placement, shows,
};

struct World {
    hub: Hub,
    clusters: [Cluster; 2],
    agents: [Agent; 2],
}

impl World {
    async fn start(assets: &tideline_tests::kubernetes::Assets) -> Result<Self> {
        let options = |name: &str| ClusterOptions {
            name: name.to_owned(),
            controller_manager: true,
            ..ClusterOptions::default()
        };
        let (east, west, hub) = tokio::try_join!(
            Cluster::start(assets, options("east")),
            Cluster::start(assets, options("west")),
            Hub::start()
        )?;
        let first = hub.agent("east", &[("side", "east"), ("tier", "shop")], east.kubeconfig_path(), None).await?;
        let second = hub.agent("west", &[("side", "west"), ("tier", "shop")], west.kubeconfig_path(), None).await?;
        let space = hub.client("default").await?;
        apply(&space, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})).await?;
        Ok(Self { hub, clusters: [east, west], agents: [first, second] })
    }

    async fn space(&self) -> Result<Client> {
        self.hub.client("default").await
    }

    /// Waits until every cluster has an object that satisfies `check`.
    async fn both(&self, kind: (&str, &str), name: &str, what: &str, check: impl Fn(&Value) -> bool) -> Result<()> {
        for cluster in &self.clusters {
            shows(&cluster.client(), kind, name, what, &check).await?;
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_go_out_and_state_comes_back() -> Result<()> {
    let assets = require_kubernetes!();
    let world = World::start(&assets).await?;
    let space = world.space().await?;
    let everywhere = [("apps", "deployments"), ("", "configmaps")];
    apply(&space, placement("everywhere", &json!({"matchLabels": {"tier": "shop"}}), "web", &everywhere)).await?;
    apply(&space, placement("single", &json!({"matchLabels": {"side": "east"}}), "one", &everywhere)).await?;
    apply(&space, config("web", "1")).await?;
    apply(&space, deployment("web", 1)).await?;
    apply(&space, deployment("one", 2)).await?;

    world.both(CONFIG, "web", "the ConfigMap on both clusters", |object| object["data"]["value"] == "1").await?;
    world.both(DEPLOYMENT, "web", "the Deployment on both clusters", |object| object["spec"]["replicas"] == 1).await?;

    // A change follows, and no other object is written.
    let api = api(&world.clusters[0].client(), "v1", "ConfigMap", Some("shop"));
    let before = api.get("web").await?.resource_version();
    apply(&space, deployment("web", 2)).await?;
    world.both(DEPLOYMENT, "web", "two replicas on both", |object| object["spec"]["replicas"] == 2).await?;
    assert_eq!(api.get("web").await?.resource_version(), before);

    // An object on one target has that target's status, in terms of the source's generation.
    shows(&space, DEPLOYMENT, "one", "the exact status", |object| {
        object["status"]["replicas"] == 2 && object["status"]["observedGeneration"] == object["metadata"]["generation"]
    })
    .await?;
    // An object on many has a rollup.
    shows(&space, ROLLUP, "configmap.web", "a rollup of two", |rollup| {
        rollup["counts"]["expected"] == 2 && rollup["counts"]["ready"] == 2
    })
    .await?;
    shows(&space, ROLLUP, "deployment.apps.web", "a rollup of two", |rollup| rollup["counts"]["applied"] == 2).await
}

/// Waits until the status of an object without a namespace satisfies `check`.
async fn described(client: &Client, kind: &str, name: &str, what: &str, check: impl Fn(&Value) -> bool) -> Result<()> {
    let api = api_cluster(client, "tideline.dev/v1alpha1", kind);
    eventually_ok(SOON, what, async || {
        let object = serde_json::to_value(api.get(name).await?)?;
        ensure!(check(&object["status"]), "{object}");
        anyhow::Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_is_exact_for_one_target_and_never_blended_for_two() -> Result<()> {
    let assets = require_kubernetes!();
    let world = World::start(&assets).await?;
    let (root, space) = (world.hub.client("root").await?, world.space().await?);
    let resources = [("apps", "deployments")];
    let (one, both) = (json!({"matchLabels": {"side": "west"}}), json!({"matchLabels": {"tier": "shop"}}));
    let exact = |object: &Value| {
        object["status"]["replicas"] == 2 && object["status"]["observedGeneration"] == object["metadata"]["generation"]
    };
    apply(&space, deployment("web", 2)).await?;
    apply(&space, placement("web", &one, "web", &resources)).await?;
    shows(&space, DEPLOYMENT, "web", "the exact status", exact).await?;
    described(&space, "Placement", "web", "one target and one object", |status| {
        status["targets"] == 1 && status["objects"] == 1 && status["conditions"][0]["status"] == "True"
    })
    .await?;

    apply(&space, placement("web", &both, "web", &resources)).await?;
    shows(&space, ROLLUP, "deployment.apps.web", "a rollup of two", |rollup| rollup["counts"]["applied"] == 2).await?;
    let cleared = |object: &Value| object["status"]["replicas"].is_null();
    shows(&space, DEPLOYMENT, "web", "no status of one among two", cleared).await?;
    described(&space, "Placement", "web", "two targets", |status| status["targets"] == 2).await?;

    apply(&space, placement("web", &one, "web", &resources)).await?;
    shows(&space, DEPLOYMENT, "web", "the exact status of the one that is left", exact).await?;
    gone(&world.clusters[0].client(), DEPLOYMENT, "web").await?;

    let location = json!({
        "apiVersion": "tideline.dev/v1alpha1", "kind": "Location",
        "metadata": {"name": "shops"},
        "spec": {"instanceSelector": {"matchLabels": {"tier": "shop"}}},
    });
    apply(&root, location).await?;
    described(&root, "Location", "shops", "two targets", |status| status["targets"] == 2).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_is_reverted_and_removal_follows() -> Result<()> {
    let assets = require_kubernetes!();
    let world = World::start(&assets).await?;
    let space = world.space().await?;
    apply(&space, placement("everywhere", &json!({"matchLabels": {"tier": "shop"}}), "web", &[("", "configmaps")]))
        .await?;
    apply(&space, config("web", "1")).await?;
    world.both(CONFIG, "web", "the ConfigMap on both clusters", |object| object["data"]["value"] == "1").await?;

    // A managed field is reverted; a field of somebody else is kept.
    let east = world.clusters[0].client();
    let local = api(&east, "v1", "ConfigMap", Some("shop"));
    let edit = json!({"data": {"value": "edited", "other": "theirs"}});
    local.patch("web", &PatchParams::default(), &Patch::Merge(&edit)).await?;
    shows(&east, CONFIG, "web", "the edit to be reverted", |object| {
        object["data"]["value"] == "1" && object["data"]["other"] == "theirs"
    })
    .await?;

    // Deleted locally, it comes back as another object.
    let uid = local.get("web").await?.uid();
    local.delete("web", &kube::api::DeleteParams::default()).await?;
    shows(&east, CONFIG, "web", "the ConfigMap to come back", |object| {
        object["metadata"]["uid"].as_str() != uid.as_deref()
    })
    .await?;

    // The Placement goes, and with it the objects, but not the namespace.
    let placements = api_cluster(&space, "tideline.dev/v1alpha1", "Placement");
    placements.delete("everywhere", &kube::api::DeleteParams::default()).await?;
    for cluster in &world.clusters {
        gone(&cluster.client(), CONFIG, "web").await?;
        assert!(api_cluster(&cluster.client(), "v1", "Namespace").get_opt("shop").await?.is_some());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_restarted_without_its_hub_keeps_the_cluster_converged() -> Result<()> {
    let assets = require_kubernetes!();
    let mut world = World::start(&assets).await?;
    let space = world.space().await?;
    apply(&space, placement("everywhere", &json!({"matchLabels": {"tier": "shop"}}), "web", &[("", "configmaps")]))
        .await?;
    apply(&space, config("web", "1")).await?;
    world.both(CONFIG, "web", "the ConfigMap on both clusters", |object| object["data"]["value"] == "1").await?;

    world.hub.stop().await?;
    world.agents[0].stop().await?;
    let east = world.clusters[0].client();
    api(&east, "v1", "ConfigMap", Some("shop")).delete("web", &kube::api::DeleteParams::default()).await?;
    world.agents[0].resume();
    shows(&east, CONFIG, "web", "the ConfigMap to come back without the hub", |object| object["data"]["value"] == "1")
        .await?;

    // The hub comes back, and all goes on.
    world.hub.resume().await?;
    let space = world.space().await?;
    apply(&space, config("web", "2")).await?;
    world.both(CONFIG, "web", "the change after the outage", |object| object["data"]["value"] == "2").await
}
