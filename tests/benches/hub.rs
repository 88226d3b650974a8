//! What a hub costs that has many objects, and how long anybody waits while many of them change at once.
//!
//! The hub is a process of the binary in TIDELINE_BIN_DIR with the settings it ships with. Its targets are SyncTargets
//! without agents. While something changes, a request of each kind is made every 20 ms, and the longest wait is printed.

#[path = "shared/apply.rs"]
mod apply;
#[path = "shared/connect.rs"]
mod connect;
#[path = "shared/gate.rs"]
mod gate;
#[path = "shared/objects.rs"]
mod objects;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tideline_tests::{Binaries, Process, Scratch, ask_health, eventually_ok, free_port};
use tokio::sync::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::connect::connect;
use crate::objects::Shape;

const START: Duration = Duration::from_mins(2);
const CHANGE_MAX: Duration = Duration::from_mins(10);
/// How long an object is kept that nothing wants any more on a target.
const SETTLE: Duration = Duration::from_secs(10);
const ASK_EVERY: Duration = Duration::from_millis(20);
/// The target that leaves and joins.
const MOVING: &str = "target-0";
const LABEL: &str = "bench";

/// Measures a hub with many objects
#[derive(Parser)]
struct Arguments {
    /// ConfigMaps of 1 KB, all of one namespace
    #[arg(long, default_value_t = 50_000)]
    objects: usize,
    /// Targets that have all of them
    #[arg(long, default_value_t = 10)]
    targets: usize,
}

/// A hub process.
struct Hub {
    process: Process,
    directory: Scratch,
    /// The port of its health.
    health: u16,
}

/// Who waits for a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Waiting {
    /// The kubelet.
    Livez,
    /// Somebody who reads what is stored in a space.
    Namespace,
    /// Somebody who reads what is computed.
    Rollup,
}

/// Asks every 20 ms until dropped.
struct Probes {
    longest: Arc<Mutex<BTreeMap<Waiting, Duration>>>,
    _stop: DropGuard,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<ExitCode> {
    if let Some(arguments) = gate::arguments::<Arguments>() {
        measure(&arguments).await?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure(arguments: &Arguments) -> Result<()> {
    let Arguments { objects, targets } = *arguments;
    let binaries = Binaries::locate()?.context(Binaries::MISSING)?;
    println!(
        "\na hub with {objects} objects of one namespace and {targets} targets; {}",
        binaries.directory().display()
    );
    println!(
        "{:<34} {:>9} {:>7} {:>9} {:>9} {:>12} {:>12} {:>12}",
        "", "s", "CPU s", "VmRSS MiB", "VmHWM MiB", "livez ms", "namespace ms", "rollup ms"
    );
    let mut hub = Hub::start(&binaries, Scratch::new("hub")?)?;
    let space = hub.ready().await?;
    let begun = Instant::now();
    let shape = Shape { namespaces: 1, config_maps: objects, deployments: 0 };
    objects::fill(&space, shape).await?;
    hub.report("objects in the space", begun.elapsed(), Duration::ZERO, None).await?;

    let root = connect(&hub.admin(), "root").await?;
    for index in 0..targets {
        join(&root, &format!("target-{index}"), true).await?;
    }
    let labels = BTreeMap::from([(LABEL.to_owned(), "in".to_owned())]);
    let (probes, begun, cpu) = (None, Instant::now(), hub.process.cpu_time()?);
    objects::place(&space, &labels, shape.objects()).await?;
    expected(&space, targets).await?;
    hub.report("placed on all targets", begun.elapsed(), cpu, probes).await?;

    for (what, is_in, count, settle) in [
        ("a target leaves, less the settle time", false, targets - 1, SETTLE),
        ("a target joins", true, targets, Duration::ZERO),
    ] {
        let (probes, begun, cpu) = (hub.probes(&space), Instant::now(), hub.process.cpu_time()?);
        join(&root, MOVING, is_in).await?;
        expected(&space, count).await?;
        let took = begun.elapsed().saturating_sub(settle);
        hub.report(what, took, cpu, Some(probes)).await?;
    }

    hub.process.terminate()?;
    hub.process.wait(START).await?;
    let Hub { directory, process: _, health: _ } = hub;
    let begun = Instant::now();
    let hub = Hub::start(&binaries, directory)?;
    let space = hub.ready().await?;
    expected(&space, targets).await?;
    hub.report("restart, until a rollup is right", begun.elapsed(), Duration::ZERO, None).await
}

impl Hub {
    fn start(binaries: &Binaries, directory: Scratch) -> Result<Self> {
        let (listen, health) = (free_port()?, free_port()?);
        let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string();
        let mut command = Command::new(binaries.hub());
        command.arg("serve").arg("--data-dir").arg(directory.join("hub"));
        command.args(["--listen", &at(listen), "--health-listen", &at(health)]);
        let process = Process::spawn("tideline-hub", &mut command, &directory.join("hub.log"))?;
        Ok(Self { process, directory, health })
    }

    fn admin(&self) -> PathBuf {
        self.directory.join("hub/admin.kubeconfig")
    }

    /// A client of the default space, once it is served.
    async fn ready(&self) -> Result<Client> {
        let space = eventually_ok(START, "the hub to serve", async || {
            let (code, body) = ask_health(self.health, "/readyz").await?;
            ensure!(code == 200, "{body}");
            connect(&self.admin(), "default").await
        });
        space.await.with_context(|| self.process.log_tail())
    }

    fn probes(&self, space: &Client) -> Probes {
        let (stop, longest) = (CancellationToken::new(), Arc::new(Mutex::new(BTreeMap::new())));
        for waiting in [Waiting::Livez, Waiting::Namespace, Waiting::Rollup] {
            let (space, health, longest) = (space.clone(), self.health, longest.clone());
            tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
                let mut ticks = interval(ASK_EVERY);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                loop {
                    ticks.tick().await;
                    let asked = Instant::now();
                    // A refusal has waited as well.
                    let _ = waiting.ask(&space, health).await;
                    let mut longest = longest.lock().await;
                    let known: &mut Duration = longest.entry(waiting).or_default();
                    *known = (*known).max(asked.elapsed());
                }
            }));
        }
        Probes { longest, _stop: stop.drop_guard() }
    }

    async fn report(&self, what: &str, took: Duration, cpu: Duration, probes: Option<Probes>) -> Result<()> {
        let used = self.process.cpu_time()?.saturating_sub(cpu);
        let waits = match probes {
            Some(probes) => probes.longest.lock().await.values().copied().collect(),
            None => Vec::new(),
        };
        let waits =
            waits.iter().map(|wait| format!(" {:>12.0}", wait.as_secs_f64() * 1_000.0)).collect::<Vec<_>>().concat();
        println!(
            "{what:<34} {:>9.2} {:>7.2} {:>9.1} {:>9.1}{waits}",
            took.as_secs_f64(),
            used.as_secs_f64(),
            mebibytes(self.process.resident_bytes()?),
            mebibytes(self.process.peak_bytes()?),
        );
        Ok(())
    }
}

impl Waiting {
    async fn ask(self, space: &Client, health: u16) -> Result<()> {
        match self {
            Self::Livez => ask_health(health, "/livez").await.map(drop),
            Self::Namespace => {
                let namespace = "/api/v1/namespaces/bench-00".parse()?;
                space.request::<Value>(get(namespace)).await?;
                Ok(())
            }
            Self::Rollup => rollup(space).await.map(drop),
        }
    }
}

fn get(uri: http::Uri) -> http::Request<Vec<u8>> {
    let mut request = http::Request::new(Vec::new());
    *request.uri_mut() = uri;
    request
}

/// The rollup of the first object.
async fn rollup(space: &Client) -> Result<Value> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("summary.tideline.dev", "v1alpha1", "Rollup"));
    let rollups: Api<DynamicObject> = Api::namespaced_with(space.clone(), "bench-00", &resource);
    Ok(rollups.get("configmap.config-00000").await?.data)
}

/// Waits until the first object is expected on so many targets: all of a change is visible at once.
async fn expected(space: &Client, targets: usize) -> Result<()> {
    eventually_ok(CHANGE_MAX, "the hub to assign", async || {
        let rollup = rollup(space).await?;
        let expected = rollup.pointer("/counts/expected").and_then(Value::as_u64).context("a rollup counts")?;
        ensure!(expected == u64::try_from(targets)?, "it is expected on {expected} of {targets} targets");
        Ok(())
    })
    .await
}

/// Makes a SyncTarget that is to have the objects, or is not.
async fn join(root: &Client, name: &str, is_in: bool) -> Result<()> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("tideline.dev", "v1alpha1", "SyncTarget"));
    let labels = json!({(LABEL): if is_in { "in" } else { "out" }});
    let target = json!({
        "apiVersion": "tideline.dev/v1alpha1",
        "kind": "SyncTarget",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
    });
    let targets: Api<DynamicObject> = Api::all_with(root.clone(), &resource);
    targets.patch(name, &PatchParams::apply("bench").force(), &Patch::Apply(&target)).await?;
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "sizes of a bench are far below 2^52")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}
