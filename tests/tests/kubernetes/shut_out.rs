//! An agent that its hub refuses changes nothing, and resumes by itself when the cause has ended.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, from_value, json};
use tideline_common::Mark;
use tideline_hub::agents::{self, AgentState};
use tideline_tests::{Scratch, eventually_ok, require_kubernetes};

use crate::identity::{SYNC_TARGET, freezes};
use crate::objects::{CONFIG, SOON, api, api_cluster, apply, config, shows, shows_cluster};
use crate::site::{CONFIG_MAPS, Site, mark_of, of_app, value};

/// A frozen agent asks after one to two minutes; then come a session and a list of everything.
const ASKED_AGAIN: Duration = Duration::from_mins(3);
const NAMES: [&str; 3] = ["web-0", "web-1", "web-2"];

/// A site with three ConfigMaps.
async fn at_work(assets: &tideline_tests::kubernetes::Assets) -> Result<Site> {
    let site = Site::with_own_namespace(assets).await?;
    for name in NAMES {
        apply(&site.space, of_app("web", config(name, "1"))).await?;
    }
    site.place("web", CONFIG_MAPS, json!({})).await?;
    for name in NAMES {
        site.reported(&format!("configmap.{name}"), "Applied", None).await?;
    }
    Ok(site)
}

async fn uids(site: &Site) -> Result<BTreeMap<&'static str, String>> {
    let mut uids = BTreeMap::new();
    for name in NAMES {
        uids.insert(name, site.local_uid(CONFIG, name).await?);
    }
    Ok(uids)
}

async fn target_uid(site: &Site) -> Result<String> {
    api_cluster(&site.root, SYNC_TARGET.0, SYNC_TARGET.1).get("east").await?.uid().context("a UID")
}

/// Waits until every mark names the present SyncTarget.
async fn ownership_transferred(site: &Site) -> Result<()> {
    let target = target_uid(site).await?;
    eventually_ok(ASKED_AGAIN, "every mark to name the new SyncTarget", async || {
        for name in NAMES {
            let mark = mark_of(&site.local(CONFIG, name).await?)?;
            ensure!(mark.target.to_string() == target, "{name} is of {}", mark.target);
        }
        anyhow::Ok(())
    })
    .await
}

async fn says(site: &Site, what: &str) -> Result<()> {
    eventually_ok(ASKED_AGAIN, "the agent to say how it stands", async || {
        let says = site.agent.readiness().await?;
        ensure!(says.contains(what), "{says}");
        anyhow::Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_target_deleted_by_mistake_is_made_again_and_adopted_and_every_object_stays() -> Result<()> {
    let assets = require_kubernetes!();
    let site = at_work(&assets).await?;
    let before = uids(&site).await?;
    let targets = api_cluster(&site.root, SYNC_TARGET.0, SYNC_TARGET.1);
    shows_cluster(&site.root, SYNC_TARGET, "east", "the agent at work", |it| it["status"]["phase"] == "Ready").await?;
    let refused = targets.delete("east", &DeleteParams::default()).await.err().context("its agent is at work")?;
    ensure!(refused.to_string().contains("targets revoke east"), "{refused}");
    agents::remove(&site.root, "east", true).await?;
    freezes(&site.agent).await?;
    // Nothing is put right meanwhile.
    site.edit(CONFIG, "web-0", json!({"data": {"value": "edited"}})).await?;
    // Nothing will say to the next one that this was unassigned.
    let sources = api(&site.space, CONFIG.0, CONFIG.1, Some("shop"));
    sources.delete("web-2", &DeleteParams::default()).await?;
    let kept = site.local(CONFIG, "web-2").await?;

    let again = json!({
        "apiVersion": SYNC_TARGET.0, "kind": SYNC_TARGET.1,
        "metadata": {"name": "east", "labels": {"tier": "shop"}}, "spec": {},
    });
    targets.create(&PostParams::default(), &from_value(again)?).await?;
    let agent = agents::adoptable(&site.root, "east", None).await?;
    ensure!(agent.deleted_by.as_deref() == Some("admin") && agent.cluster.is_some(), "{agent:?}");
    ensure!(site.local(CONFIG, "web-0").await?.data["data"]["value"] == "edited", "a frozen agent wrote something");
    agents::adopt(&site.root, "east", &agent).await?;
    let again = agents::adoptable(&site.root, "east", None).await?;
    ensure!(
        again.target == agent.target && again.state == AgentState::Adopted,
        "it is this SyncTarget's now: {again:?}"
    );

    ownership_transferred(&site).await?;
    shows(&site.local, CONFIG, "web-0", "the edit to be put right", |it| it["data"]["value"] == "1").await?;
    assert_eq!(uids(&site).await?, before);
    for name in &NAMES[..2] {
        site.reported(&format!("configmap.{name}"), "Applied", None).await?;
    }
    let held = site.local(CONFIG, "web-2").await?;
    assert_eq!(Mark { target: mark_of(&kept)?.target, ..mark_of(&held)? }, mark_of(&kept)?);
    ensure!(held.labels()["tideline.dev/agent"] == target_uid(&site).await?, "{held:?}");
    assert_eq!(value(&held), value(&kept));
    // It is watched as what it is now: nothing waits for the patrol.
    site.delete_local(CONFIG, "web-1").await?;
    shows(&site.local, CONFIG, "web-1", "what was deleted to be there again", |_| true).await?;
    // Objects that are unassigned from now on are removed.
    site.pass_along("witness").await?;
    site.settle("witness").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_forgot_its_targets_for_a_while_loses_none_of_them() -> Result<()> {
    let assets = require_kubernetes!();
    let mut site = at_work(&assets).await?;
    let before = uids(&site).await?;
    let aside = Scratch::new("hub-aside")?;
    site.hub.stop().await?;
    // The directory without the hub's data: only its identity is there.
    let directory = site.hub.data_dir().to_owned();
    let known = |from: &std::path::Path, to: &std::path::Path| -> Result<()> {
        for file in fs::read_dir(from)? {
            let file = file?;
            if file.file_name() != "identity.json" && file.file_type()?.is_file() {
                fs::rename(file.path(), to.join(file.file_name()))?;
            }
        }
        Ok(())
    };
    known(&directory, aside.path())?;
    site.resume_hub().await?;
    says(&site, "unknown-to-hub").await?;
    // It keeps what it has as without a hub.
    site.delete_local(CONFIG, "web-2").await?;
    shows(&site.local, CONFIG, "web-2", "what was deleted to be there again", |_| true).await?;
    site.hub.stop().await?;
    for file in fs::read_dir(&directory)? {
        let file = file?;
        if file.file_name() != "identity.json" && file.file_type()?.is_file() {
            fs::remove_file(file.path())?;
        }
    }
    known(aside.path(), &directory)?;
    site.resume_hub().await?;

    eventually_ok(ASKED_AGAIN, "the agent to go on", async || {
        let says = site.agent.readiness().await?;
        ensure!(!says.contains("unknown-to-hub"), "{says}");
        anyhow::Ok(())
    })
    .await?;
    site.pass_along("witness").await?;
    let after = uids(&site).await?;
    assert_eq!((&after["web-0"], &after["web-1"]), (&before["web-0"], &before["web-1"]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_agent_is_refused_at_once_and_goes_on_with_a_new_token_and_its_objects() -> Result<()> {
    let assets = require_kubernetes!();
    let site = at_work(&assets).await?;
    let before = uids(&site).await?;
    let target = target_uid(&site).await?;
    let key = agents::list(&site.root).await?[0].key.clone();
    // That a poll which is open ends with it is tested at the engine; here a poll's whole wait would fit.
    agents::revoke(&site.root, "east").await?;
    eventually_ok(SOON, "the agent to hear of it", async || {
        let says = site.agent.readiness().await?;
        ensure!(says.contains("frozen"), "{says}");
        anyhow::Ok(())
    })
    .await?;
    let phase = |phase: &'static str| move |it: &Value| it["status"]["phase"] == phase;
    shows_cluster(&site.root, SYNC_TARGET, "east", "that nobody speaks for it", phase("Revoked")).await?;
    let token = site.hub.token("east", &[]).await?;
    site.agent.give_token(&token)?;
    site.pass_along("witness").await?;
    shows_cluster(&site.root, SYNC_TARGET, "east", "the agent at work", phase("Ready")).await?;
    assert_eq!(target_uid(&site).await?, target, "it is the same SyncTarget");
    let now = agents::list(&site.root).await?[0].clone();
    ensure!(now.key.is_some() && now.key != key, "with a key of its own: {now:?}");
    assert_eq!(uids(&site).await?, before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_was_taken_from_a_sync_target_by_a_slip_is_the_agents_again_when_it_is_back() -> Result<()> {
    let assets = require_kubernetes!();
    let site = at_work(&assets).await?;
    let before = uids(&site).await?;
    let agent = agents::list(&site.root).await?[0].clone();
    let targets = api_cluster(&site.root, SYNC_TARGET.0, SYNC_TARGET.1);
    let set = async |key: Option<&String>| {
        let patch = json!({"metadata": {"annotations": {"tideline.dev/agent-key": key}}});
        targets.patch("east", &PatchParams::default(), &Patch::Merge(&patch)).await
    };
    set(None).await?;
    freezes(&site.agent).await?;
    let withdrawn = agents::list(&site.root).await?[0].clone();
    ensure!(withdrawn.state == agents::AgentState::Withdrawn && withdrawn.key == agent.key, "{withdrawn:?}");
    set(agent.key.as_ref()).await?;
    eventually_ok(ASKED_AGAIN, "the agent to go on", async || {
        let says = site.agent.readiness().await?;
        ensure!(!says.contains("frozen"), "{says}");
        anyhow::Ok(())
    })
    .await?;
    site.pass_along("witness").await?;
    let now = agents::list(&site.root).await?[0].clone();
    assert_eq!((now.state, now.key), (agents::AgentState::Enrolled, agent.key));
    assert_eq!(uids(&site).await?, before);
    Ok(())
}
