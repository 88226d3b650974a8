//! Changes that nobody observes: the agent down, the hub away, the wire cut. All of it is corrected afterwards, without the
//! hub, and nothing is deleted.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use tideline_common::{MARK_ANNOTATION, MARK_LABEL};
use tideline_tests::{Condition, eventually_ok, require_kubernetes};

use crate::objects::{
    CONFIG, DEPLOYMENT, NAMESPACE, ROLLUP, SOON, api_cluster, apply, config, deployment, gone_cluster, shows,
};
use crate::site::{CONFIG_MAPS, Site, of_app, value};

/// The ConfigMaps at the target, less the cluster's own, with their UIDs.
async fn config_maps(site: &Site) -> Result<BTreeMap<String, Option<String>>> {
    let listed = site.locals(CONFIG).list(&ListParams::default()).await?.items;
    let own = |name: &String| name == "kube-root-ca.crt";
    Ok(listed.into_iter().map(|object| (object.name_any(), object.uid())).filter(|(name, _)| !own(name)).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_while_the_agent_was_down_are_corrected_without_the_hub() -> Result<()> {
    const NAMES: [&str; 4] = ["deleted", "stripped", "edited", "kept"];
    let assets = require_kubernetes!();
    let mut site = Site::start(&assets).await?;
    for name in NAMES {
        apply(&site.space, of_app("web", config(name, "1"))).await?;
    }
    apply(&site.space, deployment("web", 1)).await?;
    site.place("web", &[("", "configmaps"), ("apps", "deployments")], json!({})).await?;
    for object in
        NAMES.map(|name| format!("configmap.{name}")).iter().map(String::as_str).chain(["deployment.apps.web"])
    {
        site.reported(object, "Applied", None).await?;
    }
    let before = config_maps(&site).await?;
    let kept = site.local(CONFIG, "kept").await?;

    site.hub.stop().await?;
    site.agent.stop().await?;
    site.delete_local(CONFIG, "deleted").await?;
    let unmarked = json!({"labels": {MARK_LABEL: null}, "annotations": {MARK_ANNOTATION: null}});
    site.edit(CONFIG, "stripped", json!({"metadata": unmarked})).await?;
    site.edit(CONFIG, "edited", json!({"data": {"value": "edited"}})).await?;
    site.edit(DEPLOYMENT, "web", json!({"spec": {"replicas": 5}})).await?;
    site.preexisting(config("stranger", "theirs")).await?;
    site.agent.resume();

    shows(&site.local, CONFIG, "deleted", "what was deleted", |object| object["data"]["value"] == "1").await?;
    shows(&site.local, CONFIG, "edited", "the edit to be reverted", |object| object["data"]["value"] == "1").await?;
    shows(&site.local, DEPLOYMENT, "web", "the replicas", |object| object["spec"]["replicas"] == 1).await?;
    shows(&site.local, CONFIG, "stripped", "the mark", |object| {
        let metadata = &object["metadata"];
        metadata["labels"][MARK_LABEL].is_string() && metadata["annotations"][MARK_ANNOTATION].is_string()
    })
    .await?;
    // Nothing else was touched, and nothing was taken away.
    let mut expected = before;
    expected.insert("deleted".to_owned(), site.local(CONFIG, "deleted").await?.uid());
    expected.insert("stranger".to_owned(), site.local(CONFIG, "stranger").await?.uid());
    assert_eq!(config_maps(&site).await?, expected);
    assert_eq!(site.local(CONFIG, "kept").await?.resource_version(), kept.resource_version());

    // What changes under its eyes, still without the hub.
    site.edit(CONFIG, "kept", json!({"data": {"value": "edited"}})).await?;
    shows(&site.local, CONFIG, "kept", "the edit to be reverted", |object| object["data"]["value"] == "1").await?;

    // All at once, while it is away again.
    site.agent.stop().await?;
    api_cluster(&site.local, NAMESPACE.0, NAMESPACE.1).delete("shop", &DeleteParams::default()).await?;
    gone_cluster(&site.local, NAMESPACE, "shop").await?;
    site.agent.resume();
    for name in NAMES {
        shows(&site.local, CONFIG, name, "what went with its namespace", |object| object["data"]["value"] == "1")
            .await?;
    }
    shows(&site.local, DEPLOYMENT, "web", "the Deployment", |object| object["spec"]["replicas"] == 1).await?;

    // The hub gets reports of all of it.
    let before = config_maps(&site).await?;
    site.resume_hub().await?;
    apply(&site.space, of_app("web", config("kept", "2"))).await?;
    shows(&site.local, CONFIG, "kept", "the change after the outage", |object| object["data"]["value"] == "2").await?;
    site.reported("configmap.kept", "Applied", None).await?;
    assert_eq!(config_maps(&site).await?, before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_while_the_watch_was_cut_are_corrected() -> Result<()> {
    const NAMES: [&str; 3] = ["deleted", "edited", "replaced"];
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    for name in NAMES {
        apply(&site.space, of_app("web", config(name, "1"))).await?;
    }
    site.place("web", CONFIG_MAPS, json!({})).await?;
    for name in NAMES {
        site.reported(&format!("configmap.{name}"), "Applied", None).await?;
    }

    site.wire.cut();
    site.delete_local(CONFIG, "deleted").await?;
    site.edit(CONFIG, "edited", json!({"data": {"value": "edited"}})).await?;
    site.delete_local(CONFIG, "replaced").await?;
    let replaced = site.preexisting(config("replaced", "theirs")).await?;
    site.wire.resume();
    for name in NAMES {
        shows(&site.local, CONFIG, name, "it to be as desired", |object| object["data"]["value"] == "1").await?;
    }
    // What somebody put there unmanaged is taken over, as the policy says.
    let taken = site.local(CONFIG, "replaced").await?;
    assert_eq!((taken.uid(), value(&taken)), (replaced.uid(), &json!("1")));
    Ok(())
}

/// The agent asks its API server how it is every 45 s, and takes two questions in a row without an answer for silence:
/// each is waited for 10 s, and the second is asked 5 s after. What it says then, and the hub, takes seconds.
const SILENCE_NOTICED: Duration = Duration::from_secs(45 + 10 + 5 + 10 + 20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_hangs_is_noticed_and_what_happened_meanwhile_is_put_right() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::with_own_namespace(&assets).await?;
    site.place("web", CONFIG_MAPS, json!({})).await?;
    apply(&site.space, config("web", "1")).await?;
    let is = |field: &'static str| move |rollup: &serde_json::Value| rollup["counts"][field] == 1;
    shows(&site.space, ROLLUP, "configmap.web", "it to be ready", is("ready")).await?;
    let target = api_cluster(&site.root, "tideline.dev/v1alpha1", "SyncTarget");
    let phase = async || Ok::<_, anyhow::Error>(target.get("east").await?.data["status"]["phase"].clone());
    eventually_ok(SOON, "the target to be ready", async || {
        let phase = phase().await?;
        ensure!(phase == "Ready", "{phase}");
        anyhow::Ok(())
    })
    .await?;

    // Nothing is closed and nothing refused: no watch can tell this from a cluster in which nothing happens.
    site.wire.set(Condition::Stalled);
    site.delete_local(CONFIG, "web").await?;
    eventually_ok(SILENCE_NOTICED, "the agent to say so, and the hub", async || {
        let (readiness, phase) = (site.agent.readiness().await?, phase().await?);
        ensure!(readiness.contains("cluster"), "the agent: {readiness}");
        ensure!(phase == "Stale", "the target: {phase}");
        Ok(())
    })
    .await?;
    shows(&site.space, ROLLUP, "configmap.web", "it to be stale, and not ready", |rollup| {
        rollup["counts"]["stale"] == 1 && rollup["counts"]["ready"] == 0
    })
    .await?;

    site.wire.resume();
    shows(&site.local, CONFIG, "web", "what was deleted meanwhile", |_| true).await?;
    shows(&site.space, ROLLUP, "configmap.web", "it to be ready again", is("ready")).await?;
    eventually_ok(SOON, "all to be well", async || {
        let (readiness, phase) = (site.agent.readiness().await?, phase().await?);
        ensure!(readiness == "ok\n" && phase == "Ready", "{readiness}, {phase}");
        Ok(())
    })
    .await
}
