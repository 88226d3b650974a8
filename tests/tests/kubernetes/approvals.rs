//! Deletions that are held for being many, and what frees them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Client;
use kube::api::ListParams;
use serde_json::{Value, json};
use tideline_hub::removals::approve::{self, Action};
use tideline_tests::{eventually_ok, require_kubernetes};

use crate::objects::{CONFIG, SOON, api, api_cluster, apply, config, gone, shows};
use crate::site::{CONFIG_MAPS, Site};

const MANY: usize = 60;
const DAY: Duration = Duration::from_hours(24);

/// So many ConfigMaps of one application.
async fn write(space: &Client, app: &str, count: usize) -> Result<()> {
    for nth in 0..count {
        let mut object = config(&format!("{app}-{nth:02}"), "1");
        object["metadata"]["labels"] = json!({"app": app});
        apply(space, object).await?;
    }
    Ok(())
}

/// Waits until the cluster has so many of them.
async fn counts(local: &Client, app: &str, count: usize) -> Result<()> {
    let (version, kind) = CONFIG;
    let api = api(local, version, kind, Some("shop"));
    eventually_ok(SOON, &format!("{count} of {app}"), async || {
        let found = api.list(&ListParams::default().labels(&format!("app={app}"))).await?.items.len();
        ensure!(found == count, "there are {found}");
        anyhow::Ok(())
    })
    .await
}

/// Waits until the SyncTarget says that so many deletions are held.
async fn holds(root: &Client, count: usize) -> Result<()> {
    let targets = api_cluster(root, "tideline.dev/v1alpha1", "SyncTarget");
    eventually_ok(SOON, &format!("{count} held deletions"), async || {
        let status = serde_json::to_value(targets.get("east").await?)?["status"].take();
        let conditions = status["conditions"].as_array().context("conditions")?;
        let says_so = conditions.iter().any(|condition| condition["type"] == "DeletionsHeld");
        ensure!(status["heldDeletions"] == count && says_so == (count > 0), "{status}");
        anyhow::Ok(())
    })
    .await
}

async fn place(site: &Site, app: &str, count: usize, policy: Value) -> Result<()> {
    write(&site.space, app, count).await?;
    site.place(app, CONFIG_MAPS, policy).await?;
    counts(&site.local, app, count).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_deletions_go_and_many_go_when_a_person_approves_them() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;

    place(&site, "few", 3, json!({})).await?;
    site.displace("few").await?;
    counts(&site.local, "few", 0).await?;

    site.pass_along("witness").await?;
    place(&site, "many", MANY, json!({})).await?;
    site.displace("many").await?;
    holds(&site.root, MANY).await?;
    counts(&site.local, "many", MANY).await?;

    let held = approve::held(&site.root, "east").await?;
    let approvable = held.approvable(None)?;
    assert_eq!(approvable.len(), MANY);
    approve::approve(&site.root, &held, &approvable, Action::Delete, DAY).await?;
    // All the while there is something new.
    eventually_ok(SOON, "what was approved to be gone", async || {
        let revision = serde_json::to_value(
            api(&site.space, "v1", "ConfigMap", Some("shop")).get("witness").await?.metadata.resource_version,
        )?;
        apply(&site.space, config("witness", revision.as_str().unwrap_or_default())).await?;
        let label = ListParams::default().labels("app=many");
        let left = api(&site.local, "v1", "ConfigMap", Some("shop")).list(&label).await?.items.len();
        ensure!(left == 0, "{left} are left");
        anyhow::Ok(())
    })
    .await?;
    holds(&site.root, 0).await?;

    // New removals were not approved.
    shows(&site.local, CONFIG, "witness", "the witness", |_| true).await?;
    site.displace("witness").await?;
    holds(&site.root, 1).await?;
    let held = approve::held(&site.root, "east").await?;
    assert_eq!(held.approvable(None)?.iter().map(|held| &*held.object.name).collect::<Vec<_>>(), ["witness"]);
    shows(&site.local, CONFIG, "witness", "the witness", |_| true).await?;

    // Objects that were placed with an approval in advance need none, whatever went before.
    place(&site, "fleeting", MANY, json!({"approveDeletions": "InAdvance"})).await?;
    site.displace("fleeting").await?;
    counts(&site.local, "fleeting", 0).await?;

    approve::approve(&site.root, &held, &held.approvable(None)?, Action::Delete, DAY).await?;
    gone(&site.local, CONFIG, "witness").await
}
