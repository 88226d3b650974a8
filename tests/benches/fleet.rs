//! What a hub costs that has many agents, and how long anybody waits.
//!
//! The hub is a process of the binary in TIDELINE_BIN_DIR with the settings it ships with. The agents are in a process of their
//! own, each with a connection, keys and a session: they speak the link as the real one does, and have no clusters.

#[path = "fleet/agent.rs"]
mod agent;
#[path = "shared/apply.rs"]
mod apply;
#[path = "shared/connect.rs"]
mod connect;
#[path = "shared/filling.rs"]
mod filling;
#[path = "shared/gate.rs"]
mod gate;
#[path = "shared/hub_process.rs"]
mod hub_process;
#[path = "fleet/load.rs"]
mod load;
#[path = "fleet/wire.rs"]
mod wire;

use std::env;
use std::fs;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Parser, Subcommand};
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::{Api, Client};
use serde_json::{Value, from_value, json};
use tideline_common::Digest;
use tideline_tests::{Binaries, Process, Scratch, ask_health, eventually_ok, free_port};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::agent::{Told, micros};
use crate::apply::apply;
use crate::connect::connect;
use crate::filling::{CONFIG_MAP_BYTES, FILLING, apply_all, padded};
use crate::hub_process::{Hub, Probes, mebibytes, read};
use crate::load::{Given, Load};

/// Longest until all agents are at rest, or have a change.
const WHOLE_MAX: Duration = Duration::from_mins(10);
/// Until idle time is measured.
const SETTLING: Duration = Duration::from_secs(30);
const GROUP: &str = "bench-group";
/// Changes that are made, each after the last has reached everybody.
const CHANGES: usize = 5;

/// Measures a hub with many agents
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    process: Option<Part>,
    #[arg(long, default_value_t = 1_000)]
    agents: usize,
    /// Groups of agents; each has objects of its own
    #[arg(long, default_value_t = 1)]
    groups: usize,
    /// ConfigMaps of 1 KB that every agent of a group has
    #[arg(long, default_value_t = 100)]
    objects: usize,
    /// Seconds in which nothing happens
    #[arg(long, default_value_t = 60)]
    idle: u64,
}

/// What this process is, if not the bench.
#[derive(Subcommand)]
enum Part {
    /// The process that has the agents
    Agents(Load),
}

/// The process that has the agents.
struct Agents {
    process: Process,
    tells: u16,
    count: u64,
}

/// What was used when something began.
struct Begun {
    at: Instant,
    micros: u64,
    hub: Duration,
    agents: Duration,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<ExitCode> {
    match gate::arguments::<Arguments>() {
        Some(Arguments { process: Some(Part::Agents(load)), .. }) => load::run(load).await?,
        Some(arguments) => measure(&arguments).await?,
        None => {}
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure(arguments: &Arguments) -> Result<()> {
    let Arguments { agents: count, groups, objects, idle, process: _ } = *arguments;
    let binaries = Binaries::locate()?.context(Binaries::MISSING)?;
    println!(
        "\na hub with {count} agents in groups of {}, of {objects} objects each; {}",
        count / groups.max(1),
        binaries.directory().display()
    );
    println!(
        "{:<38} {:>8} {:>8} {:>9} {:>9} {:>9} {:>12} {:>12} {:>12}",
        "", "s", "CPU s", "agents' s", "RSS MiB", "HWM MiB", "livez ms", "namespace ms", "rollup ms"
    );
    let hub = Hub::start(&binaries, Scratch::new("hub")?)?;
    let space = hub.ready().await?;
    let before = hub.begun(None)?;
    fill(&space, groups, objects).await?;
    let identities = targets(&connect(&hub.admin(), "root").await?, count, groups).await?;
    hub.row("objects, Placements and SyncTargets", &before, None, before.at.elapsed(), None).await?;

    let asked = ["/api/v1/namespaces/group-0".to_owned(), rollup(0)];
    let probes = hub.probes(&space, &asked);
    let before = hub.begun(None)?;
    let agents = Agents::start(&hub, &identities)?;
    agents.at_rest().await?;
    let whole = since(before.micros, agents.told().await?.rest_at);
    hub.row("first sync of all", &before, Some(&agents), whole, Some(&probes)).await?;
    counted(&space, count / groups).await?;
    hub.row("… until the first rollup is right", &before, Some(&agents), before.at.elapsed(), None).await?;
    drop(probes);

    sleep(SETTLING).await;
    let (before, polls) = (hub.begun(Some(&agents))?, agents.told().await?.polls);
    sleep(Duration::from_secs(idle)).await;
    hub.row("idle", &before, Some(&agents), before.at.elapsed(), None).await?;
    println!("  in which the agents polled {} times", agents.told().await?.polls - polls);

    for change in 0..CHANGES {
        let concerned = u64::try_from(count / groups)?;
        let probes = hub.probes(&space, &asked);
        let (before, bodies) = (hub.begun(Some(&agents))?, agents.told().await?.bodies);
        apply(&space, &config_map(0, 0, &change.to_string())).await?;
        eventually_ok(WHOLE_MAX, "all to have the change", async || {
            let got = agents.told().await?.bodies - bodies;
            ensure!(got >= concerned, "{got} of {concerned} have it");
            anyhow::Ok(())
        })
        .await?;
        let took = since(before.micros, agents.told().await?.body_at);
        agents.at_rest().await?;
        hub.row("a change, until the last body", &before, Some(&agents), took, Some(&probes)).await?;
    }

    for (what, resource) in [("the first page of all rollups", "rollups"), ("the first page of all reports", "reports")]
    {
        let before = hub.begun(Some(&agents))?;
        let list = read(&space, &format!("/apis/summary.tideline.dev/v1alpha1/{resource}?limit=500")).await?;
        let items = list.pointer("/items").and_then(Value::as_array).map_or(0, Vec::len);
        hub.row(&format!("{what}, {items}"), &before, Some(&agents), before.at.elapsed(), None).await?;
    }

    let before = hub.begun(Some(&agents))?;
    let (hub, begun) = hub.restart(&binaries).await?;
    let before = Begun { at: begun, micros: micros(), hub: Duration::ZERO, ..before };
    let space = hub.ready().await?;
    hub.row("restart, until it serves", &before, Some(&agents), begun.elapsed(), None).await?;
    let probes = hub.probes(&space, &asked);
    agents.at_rest().await?;
    counted(&space, count / groups).await?;
    hub.row("… until all agents and a rollup are right", &before, Some(&agents), begun.elapsed(), Some(&probes))
        .await?;
    let Told { failures, failure, .. } = agents.told().await?;
    println!("  connections that were made anew: {failures}; the last was lost by: {failure}");
    Ok(())
}

impl Hub {
    fn begun(&self, agents: Option<&Agents>) -> Result<Begun> {
        let agents = agents.map(|agents| agents.process.cpu_time()).transpose()?.unwrap_or_default();
        Ok(Begun { at: Instant::now(), micros: micros(), hub: self.process.cpu_time()?, agents })
    }

    async fn row(
        &self,
        what: &str,
        before: &Begun,
        agents: Option<&Agents>,
        took: Duration,
        probes: Option<&Probes>,
    ) -> Result<()> {
        let used = self.process.cpu_time()?.saturating_sub(before.hub);
        let agents = agents.map(|agents| agents.process.cpu_time()).transpose()?.unwrap_or_default();
        let waits = Probes::columns(probes).await;
        println!(
            "{what:<38} {:>8.2} {:>8.2} {:>9.2} {:>9.1} {:>9.1}{waits}",
            took.as_secs_f64(),
            used.as_secs_f64(),
            agents.saturating_sub(before.agents).as_secs_f64(),
            mebibytes(self.process.resident_bytes()?),
            mebibytes(self.process.peak_bytes()?),
        );
        Ok(())
    }
}

impl Agents {
    fn start(hub: &Hub, identities: &[Given]) -> Result<Self> {
        let (tells, file) = (free_port()?, hub.directory.join("identities.json"));
        fs::write(&file, serde_json::to_vec(identities)?)?;
        let mut command = Command::new(env::current_exe()?);
        command.arg("--bench").arg("agents").arg("--admin").arg(hub.admin());
        command.arg("--identities").arg(file).args(["--tells", &tells.to_string()]);
        let process = Process::spawn("agents", &mut command, &hub.directory.join("agents.log"))?;
        Ok(Self { process, tells, count: u64::try_from(identities.len())? })
    }

    async fn told(&self) -> Result<Told> {
        let (_, said) = ask_health(self.tells, "/").await?;
        Ok(serde_json::from_str(&said)?)
    }

    /// Waits until all hold what they were told last and have said so.
    async fn at_rest(&self) -> Result<()> {
        let rest = eventually_ok(WHOLE_MAX, "all agents to be at rest", async || {
            let told = self.told().await?;
            ensure!(told.at_rest == self.count, "{told:?}");
            anyhow::Ok(())
        });
        rest.await.with_context(|| self.process.log_tail())
    }
}

fn since(before: u64, after: u64) -> Duration {
    Duration::from_micros(after.saturating_sub(before))
}

/// Makes the objects of all groups, and what sends them out.
async fn fill(space: &Client, groups: usize, objects: usize) -> Result<()> {
    let namespace =
        |group| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("group-{group}")}});
    apply_all(space, &(0..groups).map(namespace).collect::<Vec<_>>(), FILLING).await?;
    let all = (0..groups).flat_map(|group| (0..objects).map(move |object| config_map(group, object, "")));
    apply_all(space, &all.collect::<Vec<_>>(), FILLING).await?;
    apply_all(space, &(0..groups).map(placement).collect::<Vec<_>>(), FILLING).await
}

fn config_map(group: usize, object: usize, value: &str) -> Value {
    let name = format!("config-{object:05}");
    let empty = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": format!("group-{group}"), "labels": {(GROUP): group.to_string()}},
        "data": {"value": value, "text": ""},
    });
    padded(empty, "/data/text", CONFIG_MAP_BYTES)
}

fn placement(group: usize) -> Value {
    let labels = json!({(GROUP): group.to_string()});
    json!({
        "apiVersion": "tideline.dev/v1alpha1",
        "kind": "Placement",
        "metadata": {"name": format!("group-{group}")},
        "spec": {
            "targets": [{"matchLabels": labels}],
            "objects": [{"apiGroup": "", "resources": ["configmaps"], "objectSelectors": [{"matchLabels": labels}]}],
        },
    })
}

/// Makes the SyncTargets, each with the key of its agent.
async fn targets(root: &Client, count: usize, groups: usize) -> Result<Vec<Given>> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("tideline.dev", "v1alpha1", "SyncTarget"));
    let targets: Api<DynamicObject> = Api::all_with(root.clone(), &resource);
    let made = stream::iter(0..count).map(async |index| {
        let seed = [Uuid::new_v4().into_bytes(), Uuid::new_v4().into_bytes()].concat();
        let seed = Digest::of(&seed);
        let key =
            STANDARD.encode(tideline_common::signature::SigningKey::from_seed(*seed.as_bytes()).public().as_bytes());
        let manifest = json!({
            "apiVersion": "tideline.dev/v1alpha1",
            "kind": "SyncTarget",
            "metadata": {
                "name": format!("site-{index:05}"),
                "labels": {(GROUP): (index % groups).to_string()},
                "annotations": {"tideline.dev/agent-key": key},
            },
            "spec": {},
        });
        let made = targets.create(&PostParams::default(), &from_value(manifest)?).await?;
        let target = made.metadata.uid.context("what was made has a UID")?.parse()?;
        anyhow::Ok(Given { target, seed })
    });
    made.buffered(FILLING).try_collect().await
}

/// The rollup of an object of the first group.
fn rollup(object: usize) -> String {
    format!("/apis/summary.tideline.dev/v1alpha1/namespaces/group-0/rollups/configmap.config-{object:05}")
}

/// Waits until all agents of the first group count in a rollup, and none of them is stale.
async fn counted(space: &Client, targets: usize) -> Result<()> {
    eventually_ok(WHOLE_MAX, "a rollup to be right", async || {
        let rollup = read(space, &rollup(0)).await?;
        let count = |of: &str| rollup.pointer(&format!("/counts/{of}")).and_then(Value::as_u64).unwrap_or_default();
        let (expected, stale) = (count("expected"), count("stale"));
        let told = count("applied") + count("failed");
        ensure!((expected, told, stale) == (targets as u64, targets as u64, 0), "{rollup}");
        anyhow::Ok(())
    })
    .await
}
