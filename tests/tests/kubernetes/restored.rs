//! Objects that come back to a cluster with the mark that they had, though nothing assigns them any more.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, from_value, json};
use tideline_common::{MARK_ANNOTATION, MARK_LABEL};
use tideline_tests::{eventually_ok, require_binaries, require_kubernetes};

use crate::histories::tell;
use crate::identity::SYNC_TARGET;
use crate::objects::{CONFIG, DEPLOYMENT, SOON, api, apply, config, deployment, gone, shows, shows_cluster};
use crate::site::{CONFIG_MAPS, Site, of_app};

/// From one patrol of the agent to the next: the first comes within, and lists twice, ten seconds apart.
const PATROL: Duration = Duration::from_secs(5);

/// What a backup keeps of an object.
fn saved(object: &impl serde::Serialize) -> Result<Value> {
    let mut object = json!(object);
    let metadata = object["metadata"].as_object_mut().context("metadata")?;
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"] {
        metadata.remove(field);
    }
    Ok(object)
}

async fn says(site: &Site, held: u64, restored: bool) -> Result<()> {
    shows_cluster(&site.root, SYNC_TARGET, "east", &format!("{held} deletions that are held"), |it| {
        let conditions = it["status"]["conditions"].to_string();
        it["status"]["heldDeletions"].as_u64().unwrap_or_default() == held
            && conditions.contains("release NAME --reason Restored") == restored
            && !conditions.contains("HistoryLost")
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_restored_from_a_backup_is_held_until_a_person_releases_it_or_approves_its_deletion() -> Result<()> {
    let (assets, binaries) = (require_kubernetes!(), require_binaries!());
    let mut site = Site::with_own_namespace(&assets).await?;
    site.agent.stop().await?;
    site.agent.patrol = PATROL;
    site.agent.resume();
    site.place("web", CONFIG_MAPS, json!({})).await?;
    site.place("last", &[("apps", "deployments")], json!({})).await?;
    apply(&site.space, of_app("web", config("kept", "1"))).await?;
    apply(&site.space, of_app("web", config("back", "1"))).await?;
    apply(&site.space, of_app("last", deployment("last", 1))).await?;
    let mut backup = Vec::new();
    for (kind, name) in [(CONFIG, "back"), (DEPLOYMENT, "last")] {
        shows(&site.local, kind, name, "it", |_| true).await?;
        backup.push(saved(&site.local(kind, name).await?)?);
    }
    api(&site.space, CONFIG.0, CONFIG.1, Some("shop")).delete("back", &DeleteParams::default()).await?;
    // Nothing of its kind is left, so that nobody watches it any more.
    site.displace("last").await?;
    gone(&site.local, CONFIG, "back").await?;
    gone(&site.local, DEPLOYMENT, "last").await?;
    says(&site, 0, false).await?;
    for object in &backup {
        let (api_version, kind) =
            (object["apiVersion"].as_str().context("a version")?, object["kind"].as_str().context("a kind")?);
        site.locals((api_version, kind)).create(&PostParams::default(), &from_value(object.clone())?).await?;
    }
    says(&site, 2, true).await?;
    let uids = [site.local_uid(CONFIG, "back").await?, site.local_uid(DEPLOYMENT, "last").await?];
    // A restart changes nothing of what it is.
    site.agent.stop().await?;
    site.agent.resume();
    site.hub.stop().await?;
    site.resume_hub().await?;
    says(&site, 2, true).await?;
    eventually_ok(SOON, "both to be listed", async || {
        let listed = tell(&binaries, &site, &["approve-deletions", "east", "--list"])?;
        ensure!(listed.matches("Restored").count() >= 2 && listed.contains("Waiting for an approval: 2."), "{listed}");
        Ok(())
    })
    .await?;

    let said = tell(&binaries, &site, &["release", "east", "--yes"])?;
    ensure!(said.starts_with("Released: 2 objects at east."), "{said}");
    for (kind, name, uid) in [(CONFIG, "back", &uids[0]), (DEPLOYMENT, "last", &uids[1])] {
        shows(&site.local, kind, name, "it without a mark", |object| {
            let metadata = &object["metadata"];
            metadata["labels"][MARK_LABEL].is_null() && metadata["annotations"][MARK_ANNOTATION].is_null()
        })
        .await?;
        assert_eq!(&site.local_uid(kind, name).await?, uid);
    }
    says(&site, 0, false).await?;

    // One that comes back once more is deleted, for a person says so.
    site.delete_local(CONFIG, "back").await?;
    site.locals(CONFIG).create(&PostParams::default(), &from_value(backup[0].clone())?).await?;
    says(&site, 1, true).await?;
    tell(&binaries, &site, &["approve-deletions", "east", "--reason", "Restored", "--yes"])?;
    gone(&site.local, CONFIG, "back").await?;
    says(&site, 0, false).await?;
    let said = tell(&binaries, &site, &["release", "east"])?;
    ensure!(said.contains("Nothing waits at east"), "{said}");
    let last = site.local(DEPLOYMENT, "last").await?;
    ensure!(last.uid().as_ref() == Some(&uids[1]), "what was released is nobody's any more");
    Ok(())
}
