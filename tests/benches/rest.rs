//! What an agent and a hub cost when nothing changes, and what the agent took until then.
//!
//! Both are processes of the binaries in TIDELINE_BIN_DIR, with the settings they ship with. The agent's requests are
//! counted in the audit log of its API server.

#[path = "shared/apply.rs"]
mod apply;
#[path = "shared/connect.rs"]
mod connect;
#[path = "shared/filling.rs"]
mod filling;
#[path = "shared/gate.rs"]
mod gate;
#[path = "shared/light.rs"]
mod light;
#[path = "shared/objects.rs"]
mod objects;
#[path = "shared/seen.rs"]
mod seen;
#[path = "shared/site.rs"]
mod site;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use tideline_tests::eventually_ok;
use tideline_tests::kubernetes::Request;
use tokio::time::sleep;

use crate::site::{Site, count, mebibytes, row, writes};

/// Longest until a single change is seen in the counts.
const CHANGE_MAX: Duration = Duration::from_secs(30);
/// Longest until a patrol, and how long none of its lists follows another once it is over.
const PATROL_MAX: Duration = Duration::from_mins(12);
const PATROL_OVER: Duration = Duration::from_secs(20);
/// Up to so many objects an agent at rest may take so many bytes of memory.
const GOALS: [(usize, u64); 3] = [(1_000, 12 << 20), (5_000, 16 << 20), (50_000, 40 << 20)];
/// Seconds, between two patrols, for five minutes.
const CPU_GOAL: f64 = 0.15;
/// Of all that the agent ever took, with so many objects.
const PEAK_GOAL: (usize, u64) = (50_000, 80_000_000);

/// Measures an agent and a hub at rest
#[derive(Parser)]
struct Arguments {
    /// Objects that the measured agent keeps; several numbers are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "1000,5000,50000")]
    objects: Vec<usize>,
    /// Agents of the hub
    #[arg(long, default_value_t = 100)]
    agents: usize,
    /// Seconds until things are at rest
    #[arg(long, default_value_t = 60)]
    settle: u64,
    /// Seconds that are measured
    #[arg(long, default_value_t = 300)]
    window: u64,
    /// Measure from the end of a patrol on, which the next one follows after five minutes at the earliest
    #[arg(long)]
    between_patrols: bool,
}

/// What has been used up to a moment.
struct Reading {
    agent_cpu: Duration,
    hub_cpu: Duration,
    revision: u64,
    requests: BTreeMap<String, Request>,
}

/// Bytes.
struct Memory {
    agent: u64,
    agent_peak: u64,
    hub: u64,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<ExitCode> {
    if let Some(arguments) = gate::arguments::<Arguments>() {
        for objects in &arguments.objects {
            measure(*objects, &arguments).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure(objects: usize, arguments: &Arguments) -> Result<()> {
    let Arguments { agents, settle, window, .. } = arguments;
    let mut site = Site::start(objects).await?;
    let light = light::LightAgents::start(&site.admin(), agents.saturating_sub(1), &BTreeMap::new()).await?;
    site.admit_agent().await?;
    site.start_agent(&[])?;
    light::connected(&connect::connect(&site.admin(), "root").await?, *agents).await?;
    let synced = site.sync().await?;

    sleep(Duration::from_secs(*settle)).await;
    let agent = site.agent()?;
    let memory =
        Memory { agent: agent.resident_bytes()?, agent_peak: agent.peak_bytes()?, hub: site.hub()?.resident_bytes()? };
    if arguments.between_patrols {
        patrolled(&site).await?;
    }
    let before = reading(&site).await?;
    sleep(Duration::from_secs(*window)).await;
    let after = reading(&site).await?;
    light.check()?;
    wakes(&site, &after).await?;
    println!(
        "\nat rest for {window} s: an agent with {objects} objects, a hub with {agents} agents; {}",
        site.binaries().directory().display()
    );
    report(objects, synced, &memory, &before, &after);
    site.stop_agent().await?;
    site.stop_hub().await
}

/// Waits until a patrol begins, and until it is over: its two lists are ten seconds apart.
async fn patrolled(site: &Site) -> Result<()> {
    let lists = || anyhow::Ok(site.requests()?.values().filter(|request| request.verb == "list").count());
    let before = lists()?;
    eventually_ok(PATROL_MAX, "a patrol", async || {
        ensure!(lists()? > before, "nothing was listed");
        anyhow::Ok(())
    })
    .await?;
    loop {
        let so_far = lists()?;
        sleep(PATROL_OVER).await;
        if lists()? == so_far {
            return Ok(());
        }
    }
}

/// Makes one change, and fails unless it shows in the counts: only then does it mean anything that they were zero.
async fn wakes(site: &Site, before: &Reading) -> Result<()> {
    let mut manifest = site.shape.manifests().into_iter().next().context("there are objects")?;
    manifest["metadata"]["annotations"] = json!({"bench": "changed"});
    apply::apply(&site.space, &manifest).await?;
    eventually_ok(CHANGE_MAX, "a change to be counted", async || {
        let now = reading(site).await?;
        let new = now.requests.iter().filter(|(id, _)| !before.requests.contains_key(*id));
        ensure!(writes(new.map(|(_, request)| request)) > 0, "no write to the cluster");
        ensure!(now.revision > before.revision, "no write to the store");
        anyhow::Ok(())
    })
    .await
}

async fn reading(site: &Site) -> Result<Reading> {
    // Of any list: the store's, whatever was written last, the ledger included.
    let namespaces = Api::<Namespace>::all(site.space.clone()).list_metadata(&ListParams::default().limit(1)).await?;
    let revision = namespaces.metadata.resource_version.context("a list has a version")?.parse()?;
    Ok(Reading {
        agent_cpu: site.agent()?.cpu_time()?,
        hub_cpu: site.hub()?.cpu_time()?,
        revision,
        requests: site.requests()?,
    })
}

fn report(objects: usize, synced: Duration, memory: &Memory, before: &Reading, after: &Reading) {
    let new: Vec<_> = after.requests.iter().filter(|(id, _)| !before.requests.contains_key(*id)).collect();
    let new = || new.iter().map(|(_, request)| *request);
    let watched = after.requests.values().filter(|request| request.verb == "watch");
    let kinds = watched.map(|request| &request.resource).collect::<BTreeSet<_>>().len();
    let used = |from: Duration, to: Duration| to.saturating_sub(from).as_secs_f64();
    let goal = GOALS.iter().find(|(most, _)| objects <= *most).map(|(_, bytes)| mebibytes(*bytes));
    let peak_goal = (objects <= PEAK_GOAL.0).then(|| mebibytes(PEAK_GOAL.1));
    println!("{:<36} {:>10} {:>10} {:>8}", "", "measured", "goal", "of goal");
    row("agent VmRSS, MiB", mebibytes(memory.agent), goal);
    row("agent VmHWM since its start, MiB", mebibytes(memory.agent_peak), peak_goal);
    row("agent CPU, s", used(before.agent_cpu, after.agent_cpu), Some(CPU_GOAL));
    row("agent requests", count(new().count()), Some(count(2 * kinds + 10)));
    row("of them lists, as of patrols", count(new().filter(|request| request.verb == "list").count()), None);
    row("agent writes", count(writes(new())), Some(0.0));
    row("agent kinds watched", count(kinds), None);
    row("agent first sync, s", synced.as_secs_f64(), None);
    row("hub store writes", count(usize::try_from(after.revision - before.revision).unwrap_or(usize::MAX)), Some(0.0));
    row("hub VmRSS, MiB", mebibytes(memory.hub), None);
    row("hub CPU, s", used(before.hub_cpu, after.hub_cpu), None);
}
