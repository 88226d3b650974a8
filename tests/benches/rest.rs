//! What an agent and a hub cost when nothing changes.
//!
//! Both are processes of the binaries in TIDELINE_BIN_DIR, with the settings they ship with. The agent's requests are
//! counted in the audit log of its API server.

#[path = "shared/gate.rs"]
mod gate;
#[path = "shared/light.rs"]
mod light;
#[path = "shared/objects.rs"]
mod objects;
#[path = "shared/seen.rs"]
mod seen;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;
use tideline_hub::token::{self, TokenRequest};
use tideline_tests::kubernetes::{Assets, Audit, Cluster, ClusterOptions, Request, acting_as};
use tideline_tests::{Binaries, Process, Scratch, eventually_ok, free_port};
use tokio::time::sleep;

use crate::objects::Shape;

const START: Duration = Duration::from_secs(30);
const SYNC_MAX: Duration = Duration::from_mins(10);
/// Of five objects, three are ConfigMaps and two are Deployments.
const PARTS: usize = 5;
const NAMESPACES: usize = 10;
const MEBIBYTE: f64 = 1_048_576.0;
/// The user that the agent is made to be, told apart from the administrator by impersonation.
const USER: &str = "bench-agent";
/// Longest until a single change is seen in the counts.
const CHANGE_MAX: Duration = Duration::from_secs(30);

/// Measures an agent and a hub at rest
#[derive(Parser)]
struct Arguments {
    /// Objects that the measured agent keeps
    #[arg(long, default_value_t = 1_000)]
    objects: usize,
    /// Agents of the hub
    #[arg(long, default_value_t = 100)]
    agents: usize,
    /// Seconds until things are at rest
    #[arg(long, default_value_t = 60)]
    settle: u64,
    /// Seconds that are measured
    #[arg(long, default_value_t = 300)]
    window: u64,
}

/// What has been used up to a moment.
struct Reading {
    agent_cpu: Duration,
    hub_cpu: Duration,
    revision: u64,
    requests: BTreeMap<String, Request>,
}

struct Bench {
    agent: Process,
    hub: Process,
    space: Client,
    audit: Audit,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<ExitCode> {
    if let Some(arguments) = gate::arguments() {
        measure(arguments).await?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure(Arguments { objects, agents, settle, window }: Arguments) -> Result<()> {
    let assets = Assets::locate()?.context(Assets::MISSING)?;
    let binaries = Binaries::locate()?.context(Binaries::MISSING)?;
    let directory = Scratch::new("rest")?;
    let audit = Audit::new(&directory)?;
    let options = ClusterOptions { apiserver_arguments: audit.arguments(), ..ClusterOptions::default() };
    let cluster = Cluster::start(&assets, options).await?;

    let hub = start_hub(&binaries, &directory)?;
    let admin = directory.join("hub/admin.kubeconfig");
    let connect = async |space: &str| {
        let options = KubeConfigOptions { context: Some(space.to_owned()), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(Kubeconfig::read_from(&admin)?, &options).await?;
        let client = Client::try_from(config)?;
        client.apiserver_version().await?;
        anyhow::Ok(client)
    };
    let space = eventually_ok(START, "the hub to serve", async || connect("default").await).await;
    let space = space.with_context(|| hub.log_tail())?;

    let config_maps = objects * 3 / PARTS;
    let shape = Shape { namespaces: NAMESPACES, config_maps, deployments: objects - config_maps };
    let labels = BTreeMap::from([("bench".to_owned(), "real".to_owned())]);
    objects::fill(&space, shape).await?;
    let light = light::LightAgents::start(&admin, agents.saturating_sub(1), &BTreeMap::new()).await?;
    let request = TokenRequest {
        kubeconfig: Some(admin.clone()),
        name: "real".to_owned(),
        labels: labels.clone(),
        expires: START,
    };
    fs::write(directory.join("token"), token::create(request).await?.to_string())?;
    acting_as(USER, cluster.kubeconfig_path(), &directory.join("cluster.kubeconfig"))?;
    let agent = start_agent(&binaries, &directory)?;
    light::connected(&connect("root").await?, agents).await?;
    // A Placement that selects no target yet assigns nothing.
    objects::place(&space, &labels, shape.objects()).await?;
    seen::all(cluster.client(), shape.objects(), SYNC_MAX).await.with_context(|| agent.log_tail())?;

    sleep(Duration::from_secs(settle)).await;
    let bench = Bench { agent, hub, space, audit };
    let memory = (bench.agent.resident_bytes()?, bench.hub.resident_bytes()?);
    let before = bench.reading().await?;
    sleep(Duration::from_secs(window)).await;
    let after = bench.reading().await?;
    light.check()?;
    bench.wakes(&shape, &after).await?;
    println!(
        "at rest for {window} s: an agent with {objects} objects, a hub with {agents} agents; {}",
        binaries.directory().display()
    );
    report(memory, &before, &after);
    Ok(())
}

impl Bench {
    /// Makes one change, and fails unless it shows in the counts: only then does it mean anything that they were zero.
    async fn wakes(&self, shape: &Shape, before: &Reading) -> Result<()> {
        let mut manifest = shape.manifests().into_iter().next().context("there are objects")?;
        manifest["metadata"]["annotations"] = json!({"bench": "changed"});
        objects::apply(&self.space, &manifest).await?;
        eventually_ok(CHANGE_MAX, "a change to be counted", async || {
            let now = self.reading().await?;
            let new = now.requests.iter().filter(|(id, _)| !before.requests.contains_key(*id));
            let written = writes(new.map(|(_, request)| request));
            ensure!(written > 0, "no write to the cluster");
            ensure!(now.revision > before.revision, "no write to the store");
            anyhow::Ok(())
        })
        .await
    }

    async fn reading(&self) -> Result<Reading> {
        // Of any list: the store's, whatever was written last, the ledger included.
        let namespaces =
            Api::<Namespace>::all(self.space.clone()).list_metadata(&ListParams::default().limit(1)).await?;
        let revision = namespaces.metadata.resource_version.context("a list has a version")?.parse()?;
        Ok(Reading {
            agent_cpu: self.agent.cpu_time()?,
            hub_cpu: self.hub.cpu_time()?,
            revision,
            requests: self.audit.requests(USER)?,
        })
    }
}

fn report((agent_bytes, hub_bytes): (u64, u64), before: &Reading, after: &Reading) {
    let new: Vec<_> = after.requests.iter().filter(|(id, _)| !before.requests.contains_key(*id)).collect();
    let new = || new.iter().map(|(_, request)| *request);
    let watched = after.requests.values().filter(|request| request.verb == "watch");
    let kinds = watched.map(|request| &request.resource).collect::<BTreeSet<_>>().len();
    let used = |from: Duration, to: Duration| to.saturating_sub(from).as_secs_f64();
    println!("{:<28} {:>10} {:>10} {:>8}", "", "measured", "goal", "of goal");
    row("agent VmRSS, MiB", mebibytes(agent_bytes), Some(25_000_000.0 / MEBIBYTE));
    row("agent CPU, s", used(before.agent_cpu, after.agent_cpu), Some(0.5));
    row("agent requests", count(new().count()), Some(count(2 * kinds + 10)));
    row("agent writes", count(writes(new())), Some(0.0));
    row("agent kinds watched", count(kinds), None);
    row("hub store writes", count(usize::try_from(after.revision - before.revision).unwrap_or(usize::MAX)), Some(0.0));
    row("hub VmRSS, MiB", mebibytes(hub_bytes), None);
    row("hub CPU, s", used(before.hub_cpu, after.hub_cpu), None);
}

fn writes<'a>(requests: impl Iterator<Item = &'a Request>) -> usize {
    requests.filter(|request| !matches!(request.verb.as_str(), "get" | "list" | "watch")).count()
}

fn row(name: &str, measured: f64, goal: Option<f64>) {
    match goal {
        Some(goal) if goal > 0.0 => println!("{name:<28} {measured:>10.2} {goal:>10.2} {:>7.2}x", measured / goal),
        Some(goal) => println!("{name:<28} {measured:>10.2} {goal:>10.2} {:>8}", "-"),
        None => println!("{name:<28} {measured:>10.2} {:>10} {:>8}", "-", "-"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "sizes and counts of a bench are far below 2^52")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / MEBIBYTE
}

#[expect(clippy::cast_precision_loss, reason = "sizes and counts of a bench are far below 2^52")]
fn count(of: usize) -> f64 {
    of as f64
}

fn start_hub(binaries: &Binaries, directory: &Scratch) -> Result<Process> {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)).to_string();
    let mut command = Command::new(binaries.hub());
    command.arg("serve").arg("--data-dir").arg(directory.join("hub"));
    command.args(["--listen", &listen, "--health-listen", "127.0.0.1:0"]);
    Process::spawn("tideline-hub", &mut command, &directory.join("hub.log"))
}

fn start_agent(binaries: &Binaries, directory: &Scratch) -> Result<Process> {
    let mut command = Command::new(binaries.agent());
    command.arg("run").arg("--data-dir").arg(directory.join("agent"));
    command.arg("--kubeconfig").arg(directory.join("cluster.kubeconfig"));
    command.arg("--token-file").arg(directory.join("token"));
    command.args(["--listen", "off"]);
    Process::spawn("tideline-agent", &mut command, &directory.join("agent.log"))
}
