//! Hubs that lost some or all of their data, and have the keys that their agents know.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::Value;
use tideline_tests::{Scratch, eventually_ok, require_binaries, require_kubernetes};

use super::{Identity, Site, TARGET, names};
use crate::objects::{ROLLUP, api};
use crate::processes::{NAMESPACE, SOON};

/// What `history show` says of what clusters know and this hub does not.
async fn breaks(site: &Site) -> Result<Vec<Value>> {
    let shown: Value = serde_json::from_str(&site.hub.tells(&["history", "show", "--output", "json"]).await?)?;
    shown["breaks"].as_array().cloned().with_context(|| shown.to_string())
}

/// Waits until the agent has shown a set that this hub does not know.
async fn agent_showed(site: &Site) -> Result<()> {
    eventually_ok(SOON, "the agent to say what it knows", async || {
        let breaks = breaks(site).await?;
        ensure!(breaks.iter().any(|it| it["cause"] == "SetUnknown" && it["target"] == TARGET), "{breaks:?}");
        anyhow::Ok(())
    })
    .await
}

fn says_lost(target: &Value) -> bool {
    target["status"]["conditions"].to_string().contains("HistoryLost")
}

/// Accepts, and waits until the deletions that nothing explains are held: just these.
async fn accepts_and_holds(site: &Site, held: &[&str]) -> Result<()> {
    site.hub.tells(&["history", "accept", "--yes"]).await?;
    eventually_ok(SOON, "what nothing explains to be held", async || {
        let list = site.hub.tells(&["approve-deletions", TARGET, "--list", "--output", "json"]).await?;
        let list: Value = serde_json::from_str(&list)?;
        let deletions = list["deletions"].as_array().with_context(|| list.to_string())?;
        let waits = |name: &&str| {
            let object = format!("\"{name}\"");
            deletions.iter().any(|it| it["object"].to_string().contains(&object) && it["reason"] == "HistoryLost")
        };
        let config_maps = deletions.iter().filter(|it| it["object"].to_string().contains("ConfigMap")).count();
        ensure!(held.iter().all(waits) && config_maps == held.len(), "{list}");
        anyhow::Ok(())
    })
    .await
}

/// Deletes a source, and waits until the hub has taken it from its target.
async fn deletes(site: &Site, name: &str) -> Result<()> {
    let space = site.hub.client("default").await?;
    Api::<ConfigMap>::namespaced(space.clone(), NAMESPACE).delete(name, &DeleteParams::default()).await?;
    let rollups = api(&space, ROLLUP.0, ROLLUP.1, Some(NAMESPACE));
    eventually_ok(SOON, "the removal to be decided", async || {
        let rollup = rollups.get(&format!("configmap.{name}")).await?;
        ensure!(rollup.data["counts"]["expected"] == 0, "{rollup:?}");
        anyhow::Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_restored_from_a_backup_says_so_and_removes_nothing_before_a_person_accepts() -> Result<()> {
    let (assets, binaries) = (require_kubernetes!(), require_binaries!());
    let mut site = Site::start(&assets, &binaries, Identity::InDirectory, &names("web", 3)).await?;
    let saved = Scratch::new("backup")?;
    let file = saved.join("hub.backup").display().to_string();
    site.hub.does(&["backup", &file], &site.hub.data_dir()).await?;
    site.delivers("web-later").await?;
    let before = site.uids().await?;
    site.hub.stop().await?;

    let restored = site.hub.keep_data_in("restored");
    let said = site.hub.does(&["restore", &file], &restored).await?;
    ensure!(said.contains("history accept"), "{said}");
    site.hub.resume().await?;
    let log = site.hub.process.log();
    ensure!(log.contains("This hub was restored from a backup of"), "{log}");
    let status = site.hub.tells(&["status"]).await?;
    ensure!(status.contains("HISTORY IS BROKEN") && status.contains("restored from a backup"), "{status}");
    agent_showed(&site).await?;
    ensure!(breaks(&site).await?.iter().any(|it| it["cause"] == "Restored"), "both are shown");
    site.target_shows("that history was lost", says_lost).await?;

    // An object that this hub knows, and that is unassigned now, stays as well; for the time being.
    deletes(&site, "web-002").await?;
    site.agent.process.kill()?;
    site.agent.resume()?;
    site.agent.is_ready().await?;
    site.target_shows("that history was lost", says_lost).await?;
    assert_eq!(site.uids().await?, before);

    accepts_and_holds(&site, &["web-002", "web-later"]).await?;
    site.delivers("web-after").await?;
    site.keeps(&before).await?;
    site.hub.tells(&["approve-deletions", TARGET, "--yes"]).await?;
    eventually_ok(SOON, "what a person approved to go", async || {
        let left: Vec<_> = site.uids().await?.into_keys().collect();
        ensure!(left == ["web-000", "web-001", "web-after"], "{left:?}");
        anyhow::Ok(())
    })
    .await?;
    ensure!(breaks(&site).await?.is_empty(), "it is settled");
    site.agent.runs()
}

/// Leaves the hub nothing but its identity.
fn forgets(former: &Path, data_dir: &Path) -> Result<()> {
    fs::create_dir(data_dir)?;
    let file = data_dir.join("identity.json");
    fs::copy(former.join("identity.json"), &file)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_with_an_empty_store_learns_from_the_agent_that_takes_its_token_and_deletes_nothing() -> Result<()> {
    let (assets, binaries) = (require_kubernetes!(), require_binaries!());
    let mut site = Site::start(&assets, &binaries, Identity::InSecret, &names("web", 3)).await?;
    let before = site.uids().await?;
    let former = site.hub.data_dir();
    site.hub.stop().await?;
    let emptied = site.hub.keep_data_in("emptied");
    forgets(&former, &emptied)?;
    site.hub.resume().await?;
    site.agent.says_of_itself("unknown-to-hub", SOON).await?;
    site.agent.says("UnknownToHub").await?;
    // As without a hub: deleted objects are recreated, and nothing is removed.
    site.placed().delete("web-000", &DeleteParams::default()).await?;
    site.has(before.len()).await?;
    let before = site.uids().await?;

    // The token that it enrolled with is still there, of the same hub; only a new one lets it in.
    ensure!(site.hub.targets().await?.is_empty(), "nobody is known here");
    site.hub.token_file(TARGET).await?;
    agent_showed(&site).await?;
    site.target_shows("that history was lost", says_lost).await?;
    site.keeps(&before).await?;

    // The same objects, created again, take over their keys; what is not created again waits for an approval.
    site.hub.place_config_maps().await?;
    site.hub.makes_all(&names("web", 2)).await?;
    accepts_and_holds(&site, &["web-002"]).await?;
    site.delivers("web-after").await?;
    let uid = site.sync_target_uid().await?;
    eventually_ok(Duration::from_mins(2), "every mark to name the new SyncTarget", async || {
        let marked = site.marked(&uid).await?;
        ensure!(marked == before.len() + 1, "{marked}");
        anyhow::Ok(())
    })
    .await?;
    site.keeps(&before).await?;
    site.agent.goes_on(SOON).await
}
