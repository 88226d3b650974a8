//! A change at the hub that takes too much from its targets at once.

use anyhow::{Context, Result, ensure};
use kube::api::ListParams;
use serde_json::{Value, json};
use tideline_hub::removals::held_unassignments::{self, HeldUnassignment};
use tideline_tests::{eventually_ok, require_kubernetes};

use crate::objects::{CONFIG, SOON, api, api_cluster, apply, config};
use crate::site::{CONFIG_MAPS, Site};

/// More than the hub lets pass unasked where there is little.
const MANY: usize = 120;

impl Site {
    async fn has(&self, app: &str, count: usize) -> Result<()> {
        let api = api(&self.local, CONFIG.0, CONFIG.1, Some("shop"));
        eventually_ok(SOON, &format!("{count} of {app}"), async || {
            let found = api.list(&ListParams::default().labels(&format!("app={app}"))).await?.items.len();
            ensure!(found == count, "there are {found}");
            anyhow::Ok(())
        })
        .await
    }

    async fn holds(&self, count: usize) -> Result<Vec<HeldUnassignment>> {
        eventually_ok(SOON, &format!("{count} to be held"), async || {
            let held = held_unassignments::held(&self.root).await?;
            ensure!(held.len() == count, "{} are", held.len());
            let spaces = api_cluster(&self.root, "tideline.dev/v1alpha1", "Space");
            let status = serde_json::to_value(spaces.get("default").await?)?["status"].take();
            let conditions = status["conditions"].as_array().context("conditions")?;
            let says_so = conditions.iter().any(|condition| condition["type"] == "UnassignmentsHeld");
            ensure!(says_so == (count > 0), "{status}");
            Ok(held)
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_unassigns_too_much_is_held_until_a_person_approves() -> Result<()> {
    let assets = require_kubernetes!();
    let mut site = Site::start(&assets).await?;
    for (app, count) in [("few", 3), ("many", MANY)] {
        for nth in 0..count {
            let mut object = config(&format!("{app}-{nth:03}"), "1");
            object["metadata"]["labels"] = json!({"app": app});
            apply(&site.space, object).await?;
        }
        site.place(app, CONFIG_MAPS, json!({})).await?;
        site.has(app, count).await?;
    }
    site.displace("few").await?;
    site.has("few", 0).await?;

    site.displace("many").await?;
    let held = site.holds(MANY).await?;
    assert!(held.iter().all(|held| held.targets.names == ["east"]));
    // All else goes on, and another run of the hub knows of it.
    site.pass_along("witness").await?;
    site.has("many", MANY).await?;
    site.hub.stop().await?;
    site.resume_hub().await?;
    site.pass_along("other").await?;
    let held = site.holds(MANY).await?;
    site.has("many", MANY).await?;

    let revisions = held.iter().map(|held| held.revision).collect();
    held_unassignments::approve(&site.root, &revisions).await?;
    site.holds(0).await?;
    // The cluster has a fuse of its own, for removals that its agent is ordered to do.
    let targets = api_cluster(&site.root, "tideline.dev/v1alpha1", "SyncTarget");
    eventually_ok(SOON, "the cluster to hold them", async || {
        let status: Value = serde_json::to_value(targets.get("east").await?)?["status"].take();
        ensure!(status["heldDeletions"] == MANY, "{status}");
        anyhow::Ok(())
    })
    .await?;
    site.has("many", MANY).await
}
