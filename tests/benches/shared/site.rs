//! A hub and an agent as processes of the binaries in TIDELINE_BIN_DIR, with the settings they ship with, and a cluster
//! that counts in its audit log what the agent asks of it.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::Client;
use tideline_hub::token::{self, TokenRequest};
use tideline_tests::kubernetes::{Assets, Audit, Cluster, ClusterOptions, Request, acting_as};
use tideline_tests::{Binaries, Process, Scratch, eventually_ok, free_port};

use crate::connect::connect;
use crate::objects::{self, Shape};
use crate::seen;

const START: Duration = Duration::from_secs(30);
/// Longest time for a token to be used: a hub of many agents takes a while to start them.
const TOKEN: Duration = Duration::from_mins(10);
/// Longest time for one sync.
const SYNC_MAX: Duration = Duration::from_mins(30);
/// Of five objects, three are ConfigMaps and two are Deployments.
const PARTS: usize = 5;
const NAMESPACES: usize = 50;
/// The user that the agent is made to be, told apart from the administrator by impersonation.
const USER: &str = "bench-agent";
/// In the directory.
const ADMIN: &str = "hub/admin.kubeconfig";
const MEBIBYTE: f64 = 1_048_576.0;

pub(crate) struct Site {
    pub(crate) cluster: Cluster,
    pub(crate) space: Client,
    pub(crate) shape: Shape,
    pub(crate) hub: Option<Process>,
    agent: Option<Process>,
    audit: Audit,
    binaries: Binaries,
    pub(crate) directory: Scratch,
}

impl Site {
    /// Starts a cluster, and a hub that has so many objects in its default space. Nothing is placed yet.
    pub(crate) async fn start(objects: usize) -> Result<Self> {
        let assets = Assets::locate()?.context(Assets::MISSING)?;
        let binaries = Binaries::locate()?.context(Binaries::MISSING)?;
        let directory = Scratch::new("site")?;
        let audit = Audit::new(&directory)?;
        let options = ClusterOptions { apiserver_arguments: audit.arguments(), ..ClusterOptions::default() };
        let cluster = Cluster::start(&assets, options).await?;
        acting_as(USER, cluster.kubeconfig_path(), &directory.join("cluster.kubeconfig"))?;
        let hub = start_hub(&binaries, &directory)?;
        let admin = directory.join(ADMIN);
        let space = eventually_ok(START, "the hub to serve", async || connect(&admin, "default").await).await;
        let space = space.with_context(|| hub.log_tail())?;
        let config_maps = objects * 3 / PARTS;
        let shape = Shape { namespaces: NAMESPACES, config_maps, deployments: objects - config_maps };
        objects::fill(&space, shape).await?;
        let (hub, agent) = (Some(hub), None);
        Ok(Self { cluster, space, shape, hub, agent, audit, binaries, directory })
    }

    /// The hub's admin.kubeconfig.
    pub(crate) fn admin(&self) -> PathBuf {
        self.directory.join(ADMIN)
    }

    /// Makes the token that the agent joins with.
    pub(crate) async fn admit_agent(&self) -> Result<()> {
        let request =
            TokenRequest { kubeconfig: Some(self.admin()), name: "real".to_owned(), labels: labels(), expires: TOKEN };
        Ok(fs::write(self.directory.join("token"), token::create(request).await?.to_string())?)
    }

    /// Starts the agent, again if it was stopped.
    pub(crate) fn start_agent(&mut self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(self.binaries.agent());
        command.arg("run").arg("--data-dir").arg(self.directory.join("agent"));
        command.arg("--kubeconfig").arg(self.directory.join("cluster.kubeconfig"));
        command.arg("--token-file").arg(self.directory.join("token"));
        command.args(["--listen", "off"]).args(arguments);
        self.agent = Some(Process::spawn("tideline-agent", &mut command, &self.directory.join("agent.log"))?);
        Ok(())
    }

    /// Has the agent end by itself.
    pub(crate) async fn stop_agent(&mut self) -> Result<()> {
        stop(self.agent.take()).await
    }

    pub(crate) fn agent(&self) -> Result<&Process> {
        self.agent.as_ref().context("the agent is not running")
    }

    pub(crate) fn hub(&self) -> Result<&Process> {
        self.hub.as_ref().context("the hub is not running")
    }

    pub(crate) async fn stop_hub(&mut self) -> Result<()> {
        stop(self.hub.take()).await
    }

    /// Places everything, and returns how long it took until the cluster had it all.
    pub(crate) async fn sync(&self) -> Result<Duration> {
        // A Placement that selects no target yet assigns nothing.
        let begun = tokio::time::Instant::now();
        objects::place(&self.space, &labels(), self.shape.objects()).await?;
        let seen = self.seen(objects::LABEL).await?;
        Ok(seen.duration_since(begun))
    }

    /// Returns when all objects are in the cluster with this label.
    pub(crate) async fn seen(&self, label: &str) -> Result<tokio::time::Instant> {
        let seen = seen::all(self.cluster.client(), label, self.shape.objects(), SYNC_MAX).await;
        seen.with_context(|| self.agent.as_ref().map(Process::log_tail).unwrap_or_default())
    }

    /// What the agent asked of the cluster so far, by the ids of the requests.
    pub(crate) fn requests(&self) -> Result<BTreeMap<String, Request>> {
        self.audit.requests(USER)
    }

    pub(crate) fn binaries(&self) -> &Binaries {
        &self.binaries
    }
}

/// The label of the real target.
fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([("bench".to_owned(), "real".to_owned())])
}

/// Starts the hub of a site, again at the address where it was, by which its agent knows it.
pub(crate) fn start_hub(binaries: &Binaries, directory: &Scratch) -> Result<Process> {
    let known = directory.join("listen");
    if !known.exists() {
        fs::write(&known, SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)).to_string())?;
    }
    let listen = fs::read_to_string(known)?;
    let mut command = Command::new(binaries.hub());
    command.arg("serve").arg("--data-dir").arg(directory.join("hub"));
    command.args(["--listen", &listen, "--health-listen", "127.0.0.1:0"]);
    Process::spawn("tideline-hub", &mut command, &directory.join("hub.log"))
}

async fn stop(process: Option<Process>) -> Result<()> {
    let Some(mut process) = process else { return Ok(()) };
    process.terminate()?;
    eventually_ok(START, "a process to end", async || process.exit_status()?.context("it still runs").map(drop)).await
}

/// How many of these are writes.
pub(crate) fn writes<'a>(requests: impl Iterator<Item = &'a Request>) -> usize {
    requests.filter(|request| !matches!(request.verb.as_str(), "get" | "list" | "watch")).count()
}

/// Prints a line of a table: what was measured, beside what it should be at most.
pub(crate) fn row(name: &str, measured: f64, goal: Option<f64>) {
    match goal {
        Some(goal) if goal > 0.0 => println!("{name:<36} {measured:>10.2} {goal:>10.2} {:>7.2}x", measured / goal),
        Some(goal) => println!("{name:<36} {measured:>10.2} {goal:>10.2} {:>8}", "-"),
        None => println!("{name:<36} {measured:>10.2} {:>10} {:>8}", "-", "-"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "sizes and counts of a bench are far below 2^52")]
pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / MEBIBYTE
}

#[expect(clippy::cast_precision_loss, reason = "sizes and counts of a bench are far below 2^52")]
pub(crate) fn count(of: usize) -> f64 {
    of as f64
}
