//! How the processes live and end: health, SIGTERM, kill −9.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::ListParams;
use tideline_tests::{EmbeddedCluster, Relay, Scratch, ask_health, copy_directory, eventually_ok, require_binaries};

use crate::harness::{Agent, Hub, NAMESPACE, SOON, Site};

/// Kubernetes waits 30 s before it kills; a person waits less.
const END: Duration = Duration::from_secs(10);

/// A kubeconfig of the cluster by way of a wire.
fn through(wire: &Relay, cluster: &EmbeddedCluster, scratch: &Scratch) -> Result<PathBuf> {
    let text = fs::read_to_string(cluster.kubeconfig())?;
    let kubeconfig = scratch.join("behind-the-wire");
    fs::write(&kubeconfig, text.replace(&cluster.address().to_string(), &wire.address().to_string()))?;
    Ok(kubeconfig)
}

#[tokio::test]
async fn both_answer_whether_they_live_and_are_ready_and_what_they_count() -> Result<()> {
    let binaries = require_binaries!();
    let site = Site::start(&binaries).await?;
    for (port, metric) in [(site.hub.health, "tideline_hub_targets"), (site.agent.health, "tideline_agent_")] {
        for path in ["/livez", "/readyz"] {
            assert_eq!(ask_health(port, path).await?, (200, "ok\n".to_owned()), "{path}");
        }
        let (code, metrics) = ask_health(port, "/metrics").await?;
        ensure!(code == 200 && metrics.contains(metric) && metrics.ends_with("# EOF\n"), "{code}: {metrics}");
        assert_eq!(ask_health(port, "/other").await?.0, 404);
    }
    Ok(())
}

#[tokio::test]
async fn sigterm_ends_both_with_success_within_seconds() -> Result<()> {
    let binaries = require_binaries!();
    let mut site = Site::start(&binaries).await?;

    // The agent holds a poll open at the hub.
    site.hub.process.terminate()?;
    assert_eq!(site.hub.process.wait(END).await?.code(), Some(0), "the hub, with an agent that polls");
    // And has no hub to report to.
    site.agent.process.terminate()?;
    assert_eq!(site.agent.process.wait(END).await?.code(), Some(0), "the agent, without its hub");

    site.hub.resume().await?;
    site.agent.resume()?;
    site.agent.is_ready().await?;
    site.agent.process.terminate()?;
    assert_eq!(site.agent.process.wait(END).await?.code(), Some(0), "the agent, with its hub");
    Ok(())
}

#[tokio::test]
async fn an_agent_that_ends_in_the_middle_finishes_what_is_under_way_and_repeats_none_of_it() -> Result<()> {
    let binaries = require_binaries!();
    let scratch = Scratch::new("cluster")?;
    let cluster = EmbeddedCluster::start(scratch.path(), "cluster").await?;
    let wire = Relay::start(cluster.address()).await?;
    let kubeconfig = through(&wire, &cluster, &scratch)?;
    let hub = Hub::start(&binaries).await?;
    hub.place_config_maps().await?;
    let made: Vec<String> = (0..600).map(|number| format!("web-{number:03}")).collect();
    hub.makes_all(&made).await?;
    let mut agent = Agent::start(&binaries, &kubeconfig, &hub.token_file("store").await?)?;
    // Forty at a time take half a second, and all of them eight.
    wire.delay(Duration::from_millis(250));
    let there = Api::<ConfigMap>::namespaced(cluster.client(), NAMESPACE);
    let labelled = ListParams::default().labels("app=web");
    eventually_ok(SOON, "some of it", async || {
        let some = there.list(&labelled).await?.items.len();
        ensure!(some >= 40, "{some}");
        Ok(())
    })
    .await?;
    agent.process.terminate()?;
    assert_eq!(agent.process.wait(END).await?.code(), Some(0));
    let before = there.list(&labelled).await?.items;
    ensure!(before.len() < made.len(), "it ended only when all was done");

    wire.resume();
    agent.resume()?;
    let all = eventually_ok(SOON, "all of it", async || {
        let all = there.list(&labelled).await?.items;
        ensure!(all.len() == made.len(), "{}", all.len());
        Ok(all)
    })
    .await?;
    let (_, metrics) = ask_health(agent.health, "/metrics").await?;
    let value = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("tideline_agent_{name} ")));
        line.and_then(|value| value.parse::<u64>().ok()).with_context(|| format!("{name}: {metrics}"))
    };
    // With the namespace that is implied.
    assert_eq!(value("objects_assigned")?, 601);
    ensure!(value("accepted_revision")? > 0 && value("hub_answered_timestamp_seconds")? > 1_700_000_000, "{metrics}");
    assert_eq!(value("removals")?, 0);
    // The creation is in the journal, and an apply would have left its own entry.
    let applied = |object: &ConfigMap| {
        let managed = object.metadata.managed_fields.as_deref().unwrap_or_default();
        managed.iter().any(|entry| entry.operation.as_deref() == Some("Apply"))
    };
    assert_eq!(all.iter().filter(|object| applied(object)).count(), 0);
    for object in &before {
        let now = all.iter().find(|it| it.metadata.name == object.metadata.name);
        assert_eq!(now.map(|it| &it.metadata.resource_version), Some(&object.metadata.resource_version));
    }
    Ok(())
}

#[tokio::test]
async fn a_hub_that_was_killed_serves_again_as_the_same_hub() -> Result<()> {
    let binaries = require_binaries!();
    let mut site = Site::start(&binaries).await?;
    site.hub.place_config_maps().await?;
    site.delivers("before").await?;
    let kubeconfig = fs::read_to_string(site.hub.kubeconfig())?;
    let targets = site.hub.identities().await?;

    site.hub.process.kill()?;
    site.hub.resume().await?;

    assert_eq!(fs::read_to_string(site.hub.kubeconfig())?, kubeconfig, "its address, authority and administrator");
    assert_eq!(site.hub.identities().await?, targets);
    site.delivers("after").await?;
    ensure!(site.agent.process.exit_status()?.is_none(), "the agent never noticed more than an absence");
    eventually_ok(SOON, "the target to be ready", async || {
        let targets = site.hub.targets().await?;
        ensure!(targets.iter().all(|target| target.phase == "Ready"), "{targets:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_hub_that_was_set_back_has_nothing_deleted_until_a_person_says_so() -> Result<()> {
    let binaries = require_binaries!();
    let mut site = Site::start(&binaries).await?;
    let there = Api::<ConfigMap>::namespaced(site.cluster.client(), NAMESPACE);
    let labelled = ListParams::default().labels("app=web");
    let names = async || {
        let all = there.list(&labelled).await?.items;
        Ok::<_, anyhow::Error>(all.into_iter().filter_map(|object| object.metadata.name).collect::<Vec<_>>())
    };
    let count = async |expected: usize| {
        eventually_ok(SOON, &format!("{expected} objects"), async || {
            let names = names().await?;
            ensure!(names.len() == expected, "{names:?}");
            Ok(())
        })
        .await
    };
    let many = |prefix: &str| (0..12).map(|number| format!("{prefix}-{number}")).collect::<Vec<_>>();
    site.hub.place_config_maps().await?;
    site.hub.makes_all(&many("kept")).await?;
    count(12).await?;

    site.hub.process.terminate()?;
    assert_eq!(site.hub.process.wait(END).await?.code(), Some(0));
    let backup = Scratch::new("backup")?;
    copy_directory(&site.hub.data_dir(), backup.path())?;
    site.hub.resume().await?;
    site.hub.makes_all(&many("later")).await?;
    count(24).await?;

    site.hub.process.kill()?;
    fs::remove_dir_all(site.hub.data_dir())?;
    copy_directory(backup.path(), &site.hub.data_dir())?;
    site.hub.resume().await?;
    // The agent shows what this hub does not know of, and keeps all of it until a person accepts that it is lost.
    eventually_ok(SOON, "the break to be shown", async || {
        let shown = site.hub.command(&["history", "show", "--output", "json"]).output()?;
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout)?;
        ensure!(shown["breaks"].as_array().is_some_and(|breaks| !breaks.is_empty()), "{shown}");
        Ok(())
    })
    .await?;
    assert_eq!(names().await?.len(), 24);
    let accepted = site.hub.command(&["history", "accept", "--yes"]).output()?;
    ensure!(accepted.status.success(), "{accepted:?}");
    let held = eventually_ok(SOON, "what nothing explains to be held, and said", async || {
        let list = site.hub.command(&["approve-deletions", "store", "--list", "--output", "json"]).output()?;
        let held = String::from_utf8(list.stdout)?;
        ensure!(held.matches("\"HistoryLost\"").count() >= 12, "{held}");
        Ok(held)
    })
    .await?;
    ensure!(held.contains("later-11") && !held.contains("kept-"), "{held}");
    let said = eventually_ok(SOON, "the SyncTarget to say so", async || {
        let target = site.hub.get("root", "SyncTarget", "store").await?;
        let conditions = target.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let of = |kind: &str| conditions.iter().find(|it| it["type"] == kind && it["status"] == "True");
        of("HistoryLost").and(of("DeletionsHeld")).cloned().with_context(|| format!("{conditions:?}"))
    })
    .await?;
    ensure!(said["reason"] == "HistoryLost", "{said}");
    // Not after a restart of the agent either.
    site.agent.process.kill()?;
    site.agent.resume()?;
    site.agent.is_ready().await?;
    site.delivers("kept-more").await?;
    assert_eq!(names().await?.len(), 25);

    let approved = site.hub.command(&["approve-deletions", "store", "--yes"]).output()?;
    ensure!(approved.status.success(), "{approved:?}");
    count(13).await?;
    ensure!(names().await?.iter().all(|name| name.starts_with("kept")));
    Ok(())
}

#[tokio::test]
async fn an_agent_that_was_killed_goes_on_as_the_same_target() -> Result<()> {
    let binaries = require_binaries!();
    let mut site = Site::start(&binaries).await?;
    site.hub.place_config_maps().await?;
    site.delivers("before").await?;
    let before = site.hub.identities().await?;

    site.agent.process.kill()?;
    site.agent.resume()?;
    site.delivers("after").await?;
    site.agent.is_ready().await?;
    assert_eq!(site.hub.identities().await?, before);
    Ok(())
}

#[tokio::test]
async fn an_agent_that_starts_before_its_cluster_waits_for_it_and_ends_when_it_is_asked_to() -> Result<()> {
    let binaries = require_binaries!();
    let scratch = Scratch::new("cluster")?;
    let cluster = EmbeddedCluster::start(scratch.path(), "cluster").await?;
    let wire = Relay::start(cluster.address()).await?;
    wire.cut();
    let kubeconfig = through(&wire, &cluster, &scratch)?;
    let hub = Hub::start(&binaries).await?;
    let token = hub.token_file("store").await?;

    // The cluster is not identified; or not even the agent, where its identity is in a Secret.
    let without_namespace = Agent::start(&binaries, &kubeconfig, &token)?;
    without_namespace.says("enrolment waits until").await?;
    let mut agent = Agent::start_with(&binaries, &kubeconfig, &token, &["--namespace", "default"])?;
    agent.says("only the Secret says who this agent is").await?;
    for agent in [&without_namespace, &agent] {
        ensure!(ask_health(agent.health, "/livez").await?.0 == 200, "it lives");
        let (code, body) = ask_health(agent.health, "/readyz").await?;
        ensure!(code == 503 && body.contains("cluster"), "/readyz says {code}: {body}");
    }
    ensure!(hub.targets().await?.is_empty(), "it enrols as an agent of some cluster");
    for mut agent in [without_namespace, std::mem::replace(&mut agent, Agent::start(&binaries, &kubeconfig, &token)?)] {
        agent.process.terminate()?;
        assert_eq!(agent.process.wait(SOON).await?.code(), Some(0));
    }

    agent.says("enrolment waits until").await?;
    wire.resume();
    agent.is_ready().await?;
    eventually_ok(SOON, "the hub to know the cluster", async || {
        let targets = hub.targets().await?;
        ensure!(targets.iter().any(|target| !target.kubernetes.is_empty()), "{targets:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn data_directories_are_their_owners_alone() -> Result<()> {
    let binaries = require_binaries!();
    let site = Site::start(&binaries).await?;
    let mode = |path: &Path| -> Result<u32> { Ok(fs::metadata(path)?.permissions().mode() & 0o777) };
    assert_eq!(mode(&site.hub.data_dir())?, 0o700, "it holds Secrets");
    assert_eq!(mode(&site.hub.kubeconfig())?, 0o600, "it is a password");
    assert_eq!(mode(&site.agent.data_dir())?, 0o700, "it holds Secrets");
    assert_eq!(mode(&site.agent.data_dir().join("identity.json"))?, 0o600, "it is a key");
    for file in fs::read_dir(site.hub.data_dir())? {
        let file = file?.path();
        assert_eq!(mode(&file)?, 0o600, "{}: no umask decides who reads it", file.display());
    }
    Ok(())
}
