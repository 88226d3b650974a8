//! Hubs that went back in time, at a real cluster: on a copy of their directory, and restored from a backup.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tideline_common::MARK_ANNOTATION;
use tideline_tests::{Binaries, Scratch, copy_directory, eventually_ok, require_binaries, require_kubernetes};

use crate::identity::SYNC_TARGET;
use crate::objects::{CONFIG, SOON, apply, config, gone, shows, shows_cluster};
use crate::site::{CONFIG_MAPS, Site, of_app};

const JOB: (&str, &str) = ("batch/v1", "Job");
const POD: (&str, &str) = ("v1", "Pod");

fn job() -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "once", "namespace": "shop", "labels": {"app": "once"}},
        "spec": {"ttlSecondsAfterFinished": 1, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "once", "image": "registry.example/once:1"}]}}},
    })
}

/// The Job `once` does its work, and its controller removes it after a second, while its agent watches.
pub(crate) async fn ends(site: &Site) -> Result<()> {
    runs_out(site).await?;
    site.reported("job.batch.once", "Applied", None).await
}

/// The same, watched or not.
pub(crate) async fn runs_out(site: &Site) -> Result<()> {
    let pods = site.locals(POD);
    let pod = eventually_ok(SOON, "its Pod", async || {
        let list = pods.list(&ListParams::default().labels("batch.kubernetes.io/job-name=once")).await?;
        list.items.first().map(ResourceExt::name_any).context("no Pod yet")
    })
    .await?;
    let done = json!({"status": {"phase": "Succeeded"}});
    pods.patch_status(&pod, &PatchParams::default(), &Patch::Merge(done)).await?;
    gone(&site.local, JOB, "once").await
}

/// The placed objects, by name: a recreated one has another UID.
async fn uids(site: &Site) -> Result<BTreeMap<String, Option<String>>> {
    let listed = site.locals(CONFIG).list(&ListParams::default()).await?.items;
    let placed = listed.into_iter().filter(|object| object.annotations().contains_key(MARK_ANNOTATION));
    Ok(placed.map(|object| (object.name_any(), object.uid())).collect())
}

async fn place_config_maps(site: &Site) -> Result<()> {
    site.place("web", CONFIG_MAPS, json!({})).await?;
    for name in ["web-0", "web-1"] {
        apply(&site.space, of_app("web", config(name, "1"))).await?;
    }
    for name in ["web-0", "web-1"] {
        shows(&site.local, CONFIG, name, "the ConfigMap", |_| true).await?;
    }
    Ok(())
}

async fn place_job(site: &Site) -> Result<()> {
    site.place("once", &[("batch", "jobs")], json!({})).await?;
    apply(&site.space, job()).await
}

async fn says_lost(site: &Site, lost: bool) -> Result<()> {
    shows_cluster(&site.root, SYNC_TARGET, "east", "whether history was lost", |it| {
        it["status"]["conditions"].to_string().contains("HistoryLost") == lost
    })
    .await
}

/// Runs a command of the hub's binary.
pub(crate) fn tell(binaries: &Binaries, site: &Site, arguments: &[&str]) -> Result<String> {
    let mut command = std::process::Command::new(binaries.hub());
    let done = command.args(arguments).env("TIDELINE_KUBECONFIG", site.hub.kubeconfig()).output()?;
    ensure!(done.status.success(), "{arguments:?}: {done:?}");
    Ok(String::from_utf8(done.stdout)?)
}

/// Puts the copy in the place of the hub's directory.
fn put_back(from: &Path, to: &Path) -> Result<()> {
    fs::remove_dir_all(to)?;
    copy_directory(from, to)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_ran_on_an_older_copy_for_a_while_has_changed_nothing() -> Result<()> {
    let assets = require_kubernetes!();
    let mut site = Site::with_own_namespace(&assets).await?;
    place_config_maps(&site).await?;
    place_job(&site).await?;
    shows(&site.local, JOB, "once", "the Job", |_| true).await?;
    site.hub.stop().await?;
    let (older, right) = (Scratch::new("older")?, Scratch::new("right")?);
    copy_directory(site.hub.data_dir(), older.path())?;
    site.resume_hub().await?;
    ends(&site).await?;
    apply(&site.space, of_app("web", config("web-2", "1"))).await?;
    apply(&site.space, of_app("web", config("web-0", "2"))).await?;
    shows(&site.local, CONFIG, "web-2", "what came later", |_| true).await?;
    shows(&site.local, CONFIG, "web-0", "the change", |it| it["data"]["value"] == "2").await?;
    site.reported("configmap.web-2", "Applied", None).await?;
    let before = uids(&site).await?;
    site.hub.stop().await?;
    copy_directory(site.hub.data_dir(), right.path())?;

    put_back(older.path(), site.hub.data_dir())?;
    site.resume_hub().await?;
    says_lost(&site, true).await?;
    // Somebody works on it, not knowing.
    apply(&site.space, of_app("web", config("web-1", "mistaken"))).await?;
    site.displace("once").await?;
    site.agent.stop().await?;
    site.agent.resume();
    says_lost(&site, true).await?;
    assert_eq!(uids(&site).await?, before);
    shows(&site.local, CONFIG, "web-1", "no mistake", |it| it["data"]["value"] == "1").await?;

    site.hub.stop().await?;
    put_back(right.path(), site.hub.data_dir())?;
    site.resume_hub().await?;
    site.pass_along("witness").await?;
    says_lost(&site, false).await?;
    let mut after = uids(&site).await?;
    after.remove("witness");
    assert_eq!(after, before, "nothing was deleted, and nothing made again");
    shows(&site.local, CONFIG, "web-0", "the right value", |it| it["data"]["value"] == "2").await?;
    ensure!(site.locals(JOB).get_opt("once").await?.is_none(), "the Job runs again");
    site.reported("job.batch.once", "Applied", None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_hub_deletes_nothing_and_runs_no_job_again_that_nobody_released() -> Result<()> {
    let (assets, binaries) = (require_kubernetes!(), require_binaries!());
    let mut site = Site::with_own_namespace(&assets).await?;
    place_config_maps(&site).await?;
    // Away, its agent cannot tell the hub before the backup that the Job was started.
    site.agent.stop().await?;
    place_job(&site).await?;
    site.expected("job.batch.once", 1).await?;
    let saved = Scratch::new("backup")?;
    let file = saved.path().join("hub.backup");
    let data_dir = |path: &Path| format!("--data-dir={}", path.display());
    let hub_file = file.display().to_string();
    tell(&binaries, &site, &["backup", &hub_file, &data_dir(site.hub.data_dir())])?;
    site.agent.resume();
    ends(&site).await?;
    apply(&site.space, of_app("web", config("web-2", "1"))).await?;
    site.reported("configmap.web-2", "Applied", None).await?;
    let before = uids(&site).await?;

    site.hub.stop().await?;
    let made = Scratch::new("restored")?;
    let kubeconfig = fs::read(site.hub.kubeconfig())?;
    tell(&binaries, &site, &["restore", &hub_file, &data_dir(&made.path().join("hub"))])?;
    put_back(&made.path().join("hub"), site.hub.data_dir())?;
    fs::write(site.hub.kubeconfig(), kubeconfig)?;
    // So is the agent's journal lost: neither remembers that the Job ran.
    site.agent.stop().await?;
    site.resume_hub().await?;
    site.agent.resume_elsewhere()?;
    says_lost(&site, true).await?;
    assert_eq!(uids(&site).await?, before);

    eventually_ok(SOON, "the history to be accepted", async || {
        tell(&binaries, &site, &["history", "accept", "--yes"])?;
        site.reported("job.batch.once", "Withheld", Some("MayHaveRun")).await
    })
    .await?;
    shows_cluster(&site.root, SYNC_TARGET, "east", "what waits for a person, and what to do", |it| {
        let conditions = it["status"]["conditions"].to_string();
        conditions.contains("release east --reason MayHaveRun") && conditions.contains("approve-deletions")
    })
    .await?;
    site.pass_along("witness").await?;
    let mut after = uids(&site).await?;
    after.remove("witness");
    assert_eq!(after, before, "nothing is deleted that nobody approved");
    ensure!(site.locals(JOB).get_opt("once").await?.is_none(), "the Job runs again");

    let release = ["release", "east", "--reason", "MayHaveRun"];
    let said = tell(&binaries, &site, &release)?;
    ensure!(said.contains("runs there now"), "{said}");
    shows(&site.local, JOB, "once", "the Job, released", |_| true).await?;
    ends(&site).await?;
    site.hub.stop().await?;
    site.resume_hub().await?;
    site.agent.stop().await?;
    site.agent.resume_elsewhere()?;
    site.pass_along("elsewhere").await?;
    ensure!(site.locals(JOB).get_opt("once").await?.is_none(), "it was released for once");
    let said = tell(&binaries, &site, &release)?;
    ensure!(said.contains("knows of nothing that is withheld"), "{said}");
    site.reported("job.batch.once", "Applied", None).await
}
