//! Data directories of a hub as they were written once, which every later version serves as they were.
//!
//! `TIDELINE_RECORD=1` has that of the present layout written anew first.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::{Api, Client};
use serde_json::{from_value, json};
use tideline_common::wire::v1::Terminal;
use tideline_hub::agents::{self, AgentState};
use tideline_tests::fleet::Hub;
use tideline_tests::{EmbeddedCluster, Scratch, eventually_ok};

use crate::crowds::tls;
use crate::harness::{NAMESPACE, place};
use crate::stolen_key::Thief;

const SOON: Duration = Duration::from_mins(1);
/// The rest of a hub's directory is made at each start.
const FILES: [&str; 3] = ["store.db", "identity.json", "written-by"];
/// The identity of the agent that keeps its cluster.
const AGENT: &str = "agent.json";
const NAMES: [&str; 3] = ["web-0", "web-1", "web-2"];
/// Both have run.
const JOBS: [&str; 2] = [PLACED, LEFT];
const PLACED: &str = "placed";
/// It is placed no more.
const LEFT: &str = "left";
const REVOKED: &str = "revoked";
const DELETED: &str = "deleted";

/// What is recorded now. It rises with each release that changes a layout, so that recordings of earlier ones stay.
const RECORDING: &str = "v1";

/// Where the recordings are, a directory each.
fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/hub")
}

fn resource(group: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1alpha1", kind))
}

fn dynamic(client: &Client, group: &str, kind: &str) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource(group, kind))
}

fn job(name: &str) -> Result<Job> {
    Ok(from_value(json!({
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "job", "image": "registry.example/job:1"}],
        }}},
    }))?)
}

/// Relabels a Job, which is placed while it is of the application `web`.
async fn relabel(hub: &Hub, name: &str, app: &str) -> Result<()> {
    let patch = json!({"metadata": {"labels": {"app": app}}});
    let jobs = Api::<Job>::namespaced(hub.client("default").await?, NAMESPACE);
    jobs.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// Two Jobs run and are done; the hub has heard of it, and one is placed no more.
async fn run_jobs(hub: &Hub, cluster: &EmbeddedCluster) -> Result<()> {
    let space = hub.client("default").await?;
    let placement = from_value(json!({
        "apiVersion": "tideline.dev/v1alpha1", "kind": "Placement", "metadata": {"name": "jobs"},
        "spec": {
            "targets": [{"matchLabels": {"tier": "shop"}}],
            "objects": [{"apiGroup": "batch", "resources": ["jobs"], "objectSelectors": [{"matchLabels": {"app": "web"}}]}],
        },
    }))?;
    dynamic(&space, "tideline.dev", "Placement").create(&PostParams::default(), &placement).await?;
    let there = Api::<Job>::namespaced(cluster.client(), NAMESPACE);
    let reports =
        Api::<DynamicObject>::namespaced_with(space.clone(), NAMESPACE, &resource("summary.tideline.dev", "Report"));
    let done = json!({"status": {"succeeded": 1, "conditions": [
        {"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"},
    ]}});
    for name in JOBS {
        Api::<Job>::namespaced(space.clone(), NAMESPACE).create(&PostParams::default(), &job(name)?).await?;
        eventually_ok(SOON, name, async || there.get(name).await).await?;
        there.patch_status(name, &PatchParams::default(), &Patch::Merge(&done)).await?;
        eventually_ok(SOON, "the Job's end to be told", async || {
            let report = reports.get(&format!("job.batch.{name}.store")).await?;
            ensure!(report.data["health"] == "Ready", "{report:?}");
            Ok(())
        })
        .await?;
    }
    relabel(hub, LEFT, "none").await?;
    let gone = async || {
        ensure!(there.get_opt(LEFT).await?.is_none(), "it is there");
        ensure!(reports.get_opt(&format!("job.batch.{LEFT}.store")).await?.is_none(), "its removal is not confirmed");
        anyhow::Ok(())
    };
    eventually_ok(SOON, "the Job that is placed no more to be gone", gone).await
}

/// Agents of this hub that came, and were shut out.
async fn shut_out_agents(hub: &Hub, scratch: &Scratch) -> Result<()> {
    let root = hub.client("root").await?;
    for name in [REVOKED, DELETED] {
        let cluster = EmbeddedCluster::start(scratch.path(), name).await?;
        let mut agent = hub.agent(name, &[("tier", "none")], cluster.kubeconfig(), None).await?;
        eventually_ok(SOON, name, async || {
            let target = dynamic(&root, "tideline.dev", "SyncTarget").get(name).await?;
            ensure!(target.data["status"]["phase"] == "Ready", "{target:?}");
            anyhow::Ok(())
        })
        .await?;
        agent.stop().await?;
    }
    agents::revoke(&root, REVOKED).await?;
    agents::remove(&root, DELETED, true).await?;
    eventually_ok(SOON, "the hub to have heard of both", async || states(&root).await).await
}

/// The hub knows its agents as recorded.
async fn states(root: &Client) -> Result<()> {
    let listed = agents::list(root).await?;
    let states: BTreeMap<_, _> = listed.iter().map(|agent| (agent.name.as_str(), agent.state)).collect();
    let recorded =
        [("store", AgentState::Enrolled), (REVOKED, AgentState::Revoked), (DELETED, AgentState::Deleted)].into();
    ensure!(states == recorded, "{states:?}");
    // Refused agents are told so for ever: their keys are known.
    ensure!(listed.iter().all(|agent| !agent.fingerprint.is_empty()), "{listed:?}");
    Ok(())
}

/// A small hub: one agent that has three ConfigMaps, and has not confirmed yet that a fourth is gone; that ran a Job which is
/// placed, and one that is not any more; and two agents that were shut out.
async fn record() -> Result<()> {
    let scratch = Scratch::new("golden")?;
    let mut hub = Hub::start().await?;
    let cluster = EmbeddedCluster::start(scratch.path(), "store").await?;
    let mut agent = hub.agent("store", &[("tier", "shop")], cluster.kubeconfig(), None).await?;
    place(&hub.client("default").await?).await?;
    let sources = Api::<ConfigMap>::namespaced(hub.client("default").await?, NAMESPACE);
    for name in NAMES.into_iter().chain(["web-gone"]) {
        let object = from_value(json!({"metadata": {"name": name, "labels": {"app": "web"}}, "data": {"from": name}}))?;
        sources.create(&PostParams::default(), &object).await?;
    }
    let there = Api::<ConfigMap>::namespaced(cluster.client(), NAMESPACE);
    for name in NAMES.into_iter().chain(["web-gone"]) {
        eventually_ok(SOON, name, async || there.get(name).await).await?;
    }
    run_jobs(&hub, &cluster).await?;
    shut_out_agents(&hub, &scratch).await?;
    agent.stop().await?;
    sources.delete("web-gone", &DeleteParams::default()).await?;
    removals(&hub, 1).await?;
    hub.stop().await?;
    let recording = golden().join(RECORDING);
    let _none = fs::remove_dir_all(&recording);
    fs::create_dir_all(&recording)?;
    for file in FILES {
        keep(&hub.dir().join(file), &recording, file)?;
    }
    keep(&agent.data_dir().join("identity.json"), &recording, AGENT)
}

fn keep(file: &Path, recording: &Path, name: &str) -> Result<()> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&fs::read(file)?)?;
    Ok(fs::write(recording.join(format!("{name}.gz")), encoder.finish()?)?)
}

fn kept(recording: &Path, name: &str, to: &Path) -> Result<()> {
    let mut plain = Vec::new();
    GzDecoder::new(&*fs::read(recording.join(format!("{name}.gz")))?).read_to_end(&mut plain)?;
    Ok(fs::write(to, plain)?)
}

/// Opens a session as the recorded agent, and waits until it is told that both Jobs have run.
async fn knows_what_ran(hub: &Hub, recording: &Path, scratch: &Scratch) -> Result<()> {
    relabel(hub, LEFT, "web").await?;
    let identity = scratch.join("agent.json");
    kept(recording, AGENT, &identity)?;
    let mut agent = Thief::with(&identity, tls(&hub.kubeconfig(), hub.address()).await?).await?;
    let session = agent.opens().await?;
    eventually_ok(SOON, "the Jobs that ran", async || {
        let page = agent.is_told(session).await?;
        let ran = page.terminal.iter().filter(|it| it.fact == Terminal::Finished);
        let ran: BTreeSet<_> = ran.map(|it| it.key.name.to_string()).collect();
        ensure!(ran == JOBS.map(str::to_owned).into(), "{:?}", page.terminal);
        anyhow::Ok(())
    })
    .await
}

/// Waits until reports say that so many are to be removed.
async fn removals(hub: &Hub, count: usize) -> Result<()> {
    let reports = dynamic(&hub.client("default").await?, "summary.tideline.dev", "Report");
    eventually_ok(SOON, "the removals", async || {
        let listed = reports.list(&ListParams::default()).await?;
        let names: Vec<_> = listed.items.iter().map(|it| it.metadata.name.clone().unwrap_or_default()).collect();
        let gone = names.iter().filter(|name| name.contains("web-gone")).count();
        ensure!(gone == count, "{names:?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_golden_data_directory_of_a_hub_is_served_as_it_was() -> Result<()> {
    if std::env::var_os("TIDELINE_RECORD").is_some() {
        record().await?;
    }
    let recordings = fs::read_dir(golden())?.map(|recording| Ok(recording?.path()));
    let recordings: Vec<_> = recordings.collect::<std::io::Result<_>>()?;
    ensure!(recordings.contains(&golden().join(RECORDING)), "{recordings:?}");
    for recording in recordings {
        is_served(&recording).await.with_context(|| recording.display().to_string())?;
    }
    Ok(())
}

async fn is_served(recording: &Path) -> Result<()> {
    let mut hub = Hub::start().await?;
    hub.stop().await?;
    for file in fs::read_dir(hub.dir())? {
        let file = file?.path();
        if file.is_dir() { fs::remove_dir_all(file)? } else { fs::remove_file(file)? }
    }
    for file in FILES {
        kept(recording, file, &hub.dir().join(file))?;
    }
    hub.resume().await?;
    let target = dynamic(&hub.client("root").await?, "tideline.dev", "SyncTarget").get("store").await?;
    ensure!(target.data["status"]["agentVersion"].is_string(), "{target:?}");
    let space = hub.client("default").await?;
    let sources = Api::<ConfigMap>::namespaced(space.clone(), NAMESPACE).list(&ListParams::default()).await?;
    let data: BTreeMap<_, _> =
        sources.items.into_iter().filter_map(|it| Some((it.metadata.name?, it.data?["from"].clone()))).collect();
    ensure!(data == NAMES.map(|name| (name.to_owned(), name.to_owned())).into(), "{data:?}");
    let placement = dynamic(&space, "tideline.dev", "Placement").get("everywhere").await?;
    ensure!(placement.data["spec"]["objects"][0]["resources"][0] == "configmaps", "{placement:?}");
    // The ledger: assignments, and removals that are not confirmed.
    let rollups = dynamic(&space, "summary.tideline.dev", "Rollup");
    eventually_ok(SOON, "the rollups", async || {
        let listed = rollups.list(&ListParams::default()).await?;
        let names: Vec<_> = listed.items.iter().map(|it| it.metadata.name.clone().unwrap_or_default()).collect();
        ensure!(NAMES.iter().all(|name| names.iter().any(|it| it.contains(name))), "{names:?}");
        Ok(())
    })
    .await
    .context("what was assigned")?;
    removals(&hub, 1).await?;
    states(&hub.client("root").await?).await?;
    knows_what_ran(&hub, recording, &Scratch::new("golden-agent")?).await?;
    hub.stop().await
}
