//! An agent's identity outlives the node that it ran on, and is no other agent's.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};
use tideline_common::MARK_ANNOTATION;
use tideline_tests::fleet::Agent;
use tideline_tests::kubernetes::{Cluster, ClusterOptions};
use tideline_tests::{Relay, eventually_ok, require_kubernetes};

use crate::objects::{CONFIG, NAMESPACE, SOON, api, api_cluster, apply, config, shows, shows_cluster};
use crate::site::{CONFIG_MAPS, Site, of_app, value};

pub(crate) const SYNC_TARGET: (&str, &str) = ("tideline.dev/v1alpha1", "SyncTarget");
const SECRET: &str = "tideline-agent-identity";

pub(crate) async fn freezes(agent: &Agent) -> Result<()> {
    eventually_ok(SOON, "the agent to freeze", async || {
        let says = agent.readiness().await?;
        ensure!(says.contains("frozen"), "{says}");
        anyhow::Ok(())
    })
    .await
}

/// The versions of the placed objects: every write makes another.
async fn versions(site: &Site) -> Result<BTreeMap<String, Option<String>>> {
    let listed = site.locals(CONFIG).list(&ListParams::default()).await?.items;
    let placed = listed.into_iter().filter(|object| object.annotations().contains_key(MARK_ANNOTATION));
    let mut versions: BTreeMap<_, _> = placed.map(|object| (object.name_any(), object.resource_version())).collect();
    let shop = api_cluster(&site.local, NAMESPACE.0, NAMESPACE.1).get("shop").await?;
    versions.insert("the namespace".to_owned(), shop.resource_version());
    Ok(versions)
}

async fn kept(site: &Site) -> Result<Value> {
    let secret = api(&site.local, "v1", "Secret", Some("default")).get(SECRET).await?;
    let text = secret.data["data"]["identity.json"].as_str().context("an identity")?;
    let bytes = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text)?;
    Ok(serde_json::from_slice(&bytes)?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_on_another_node_is_the_same_one_and_writes_nothing_again() -> Result<()> {
    let assets = require_kubernetes!();
    let mut site = Site::with_own_namespace(&assets).await?;
    let names: Vec<_> = (0..12).map(|nth| format!("web-{nth:02}")).collect();
    for name in &names {
        apply(&site.space, of_app("web", config(name, "1"))).await?;
    }
    site.place("web", CONFIG_MAPS, json!({})).await?;
    for name in &names {
        site.reported(&format!("configmap.{name}"), "Applied", None).await?;
    }
    let target = api_cluster(&site.root, SYNC_TARGET.0, SYNC_TARGET.1).get("east").await?.uid();
    let seed = kept(&site).await?["identity"]["seed"].clone();
    let session = kept(&site).await?["identity"]["session"].clone();

    site.agent.stop().await?;
    let mut before = versions(&site).await?;
    site.edit(CONFIG, "web-00", json!({"data": {"value": "edited"}})).await?;
    site.delete_local(CONFIG, "web-01").await?;
    apply(&site.space, of_app("web", config("web-02", "2"))).await?;
    site.agent.resume_elsewhere()?;

    // Objects that differ are corrected, whoever changed them, and the others are left alone.
    shows(&site.local, CONFIG, "web-00", "the edit to be reverted", |it| it["data"]["value"] == "1").await?;
    shows(&site.local, CONFIG, "web-01", "what was deleted", |it| it["data"]["value"] == "1").await?;
    shows(&site.local, CONFIG, "web-02", "what changed", |it| it["data"]["value"] == "2").await?;
    for name in &names {
        site.reported(&format!("configmap.{name}"), "Applied", None).await?;
    }
    site.pass_along("witness").await?;
    let mut after = versions(&site).await?;
    for name in ["web-00", "web-01", "web-02"] {
        assert_ne!(before.remove(name), after.remove(name), "{name}");
    }
    after.remove("witness");
    assert_eq!(after, before, "nothing else was written");

    let record = api_cluster(&site.root, SYNC_TARGET.0, SYNC_TARGET.1).get("east").await?;
    assert_eq!(record.uid(), target);
    assert!(!record.data["status"]["conditions"].to_string().contains("Quarantined"), "{}", record.data["status"]);
    let now = kept(&site).await?;
    assert_eq!(now["identity"]["seed"], seed);
    assert_ne!(now["identity"]["session"], session, "{now}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_agents_with_one_secret_the_active_one_stays_active() -> Result<()> {
    let assets = require_kubernetes!();
    let mut site = Site::with_own_namespace(&assets).await?;
    site.pass_along("first").await?;
    let mut second = site.agent.twin(site.cluster.kubeconfig_path())?;
    second.resume();
    freezes(&second).await?;
    site.pass_along("second").await?;
    shows_cluster(&site.root, SYNC_TARGET, "east", "both of them", |it| {
        it["status"]["instances"].as_array().is_some_and(|instances| instances.len() == 2)
    })
    .await?;
    site.agent.stop().await?;
    second.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_identity_in_another_cluster_is_quarantined_and_touches_nothing() -> Result<()> {
    let assets = require_kubernetes!();
    let options = ClusterOptions { name: "copy".to_owned(), ..ClusterOptions::default() };
    let (site, other) = tokio::try_join!(Site::with_own_namespace(&assets), Cluster::start(&assets, options))?;
    site.pass_along("first").await?;
    let secrets = |client| api(client, "v1", "Secret", Some("default"));
    let secret = secrets(&site.local).get(SECRET).await?;
    apply(
        &other.client(),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": "default"},
            "type": "tideline.dev/identity", "data": secret.data["data"],
        }),
    )
    .await?;
    let mut copy = site.agent.twin(other.kubeconfig_path())?;
    copy.resume();
    freezes(&copy).await?;
    shows_cluster(&site.root, SYNC_TARGET, "east", "the quarantine", |it| {
        it["status"]["conditions"].to_string().contains("Quarantined")
    })
    .await?;
    // The one that enrolled is none the worse.
    site.pass_along("second").await?;
    assert!(api_cluster(&other.client(), NAMESPACE.0, NAMESPACE.1).get_opt("shop").await?.is_none());
    copy.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_directory_in_another_cluster_changes_nothing_there_even_without_the_hub() -> Result<()> {
    let assets = require_kubernetes!();
    let options = ClusterOptions { name: "other".to_owned(), ..ClusterOptions::default() };
    let (mut site, other) = tokio::try_join!(Site::with_own_namespace(&assets), Cluster::start(&assets, options))?;
    site.pass_along("first").await?;
    site.agent.stop().await?;
    site.hub.stop().await?;
    let nothing_there = async || {
        let shop = api_cluster(&other.client(), NAMESPACE.0, NAMESPACE.1).get_opt("shop").await?;
        ensure!(shop.is_none(), "{shop:?}");
        Ok(())
    };

    // Which cluster this is cannot be known at first either.
    let wire = Relay::start(other.address()).await?;
    wire.cut();
    site.lead_agent_to(&other, &wire)?;
    site.agent.resume();
    eventually_ok(SOON, "the agent to begin", async || site.agent.readiness().await).await?;
    wire.resume();
    eventually_ok(SOON, "the agent to see where it is", async || {
        let says = site.agent.readiness().await?;
        ensure!(says.contains("wrong-cluster"), "{says}");
        anyhow::Ok(())
    })
    .await?;
    nothing_there().await?;

    // It would have begun long before the hub is back and asked.
    site.resume_hub().await?;
    freezes(&site.agent).await?;
    nothing_there().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_whose_record_was_deleted_freezes_and_leaves_everything() -> Result<()> {
    let assets = require_kubernetes!();
    let mut site = Site::with_own_namespace(&assets).await?;
    site.pass_along("first").await?;
    let uid = site.local_uid(CONFIG, "first").await?;
    tideline_hub::agents::remove(&site.root, "east", true).await?;
    freezes(&site.agent).await?;
    // Also after a restart, and though another target of that name is made.
    site.agent.stop().await?;
    apply(
        &site.root,
        json!({
            "apiVersion": SYNC_TARGET.0, "kind": "SyncTarget",
            "metadata": {"name": "east", "labels": {"tier": "shop"}}, "spec": {},
        }),
    )
    .await?;
    site.agent.resume();
    freezes(&site.agent).await?;
    let left = site.local(CONFIG, "first").await?;
    assert_eq!((left.uid(), value(&left)), (Some(uid), &json!("1")));
    Ok(())
}
