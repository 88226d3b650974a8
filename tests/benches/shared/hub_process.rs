//! A hub as a process of the binary in TIDELINE_BIN_DIR, with the settings that it ships with, and how long anybody waits for it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Client;
use serde_json::Value;
use tideline_tests::{Binaries, Process, Scratch, ask_health, eventually_ok, free_port};
use tokio::sync::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::connect::connect;

const START: Duration = Duration::from_mins(2);
const ASK_EVERY: Duration = Duration::from_millis(20);

/// A hub process.
pub(crate) struct Hub {
    pub(crate) process: Process,
    pub(crate) directory: Scratch,
    listen: u16,
    /// The port of its health.
    health: u16,
}

/// Asks every 20 ms until dropped: the kubelet for `/livez`, and others for what is at each of these paths of a space.
pub(crate) struct Probes {
    longest: Arc<Mutex<BTreeMap<usize, Duration>>>,
    _stop: DropGuard,
}

impl Hub {
    pub(crate) fn start(binaries: &Binaries, directory: Scratch) -> Result<Self> {
        Self::start_at(binaries, directory, free_port()?)
    }

    /// Ends it in order, and starts it again where it was. Returns also when it was started.
    pub(crate) async fn restart(mut self, binaries: &Binaries) -> Result<(Self, Instant)> {
        self.process.terminate()?;
        self.process.wait(START).await?;
        let Self { directory, listen, process: _, health: _ } = self;
        let begun = Instant::now();
        Ok((Self::start_at(binaries, directory, listen)?, begun))
    }

    fn start_at(binaries: &Binaries, directory: Scratch, listen: u16) -> Result<Self> {
        let health = free_port()?;
        let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string();
        let mut command = Command::new(binaries.hub());
        command.arg("serve").arg("--data-dir").arg(directory.join("hub"));
        command.args(["--listen", &at(listen), "--health-listen", &at(health)]);
        let process = Process::spawn("tideline-hub", &mut command, &directory.join("hub.log"))?;
        Ok(Self { process, directory, listen, health })
    }

    pub(crate) fn admin(&self) -> PathBuf {
        self.directory.join("hub/admin.kubeconfig")
    }

    /// A client of the default space, once it is served.
    pub(crate) async fn ready(&self) -> Result<Client> {
        let space = eventually_ok(START, "the hub to serve", async || {
            let (code, body) = ask_health(self.health, "/readyz").await?;
            ensure!(code == 200, "{body}");
            connect(&self.admin(), "default").await
        });
        space.await.with_context(|| self.process.log_tail())
    }

    pub(crate) fn probes(&self, space: &Client, paths: &[String]) -> Probes {
        let (stop, longest) = (CancellationToken::new(), Arc::new(Mutex::new(BTreeMap::new())));
        let asked = std::iter::once(None).chain(paths.iter().cloned().map(Some));
        for (nth, path) in asked.enumerate() {
            let (space, health, longest) = (space.clone(), self.health, longest.clone());
            tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
                let mut ticks = interval(ASK_EVERY);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                loop {
                    ticks.tick().await;
                    let asked = Instant::now();
                    // A refusal has waited as well.
                    match &path {
                        None => drop(ask_health(health, "/livez").await),
                        Some(path) => drop(read(&space, path).await),
                    }
                    let mut longest = longest.lock().await;
                    let known: &mut Duration = longest.entry(nth).or_default();
                    *known = (*known).max(asked.elapsed());
                }
            }));
        }
        Probes { longest, _stop: stop.drop_guard() }
    }
}

impl Probes {
    /// Milliseconds that anybody waited at most, of `/livez` first and then of the paths in their order. Each has 13 columns.
    pub(crate) async fn columns(probes: Option<&Self>) -> String {
        let Some(Self { longest, .. }) = probes else { return String::new() };
        let millis = |wait: &Duration| format!(" {:>12.0}", wait.as_secs_f64() * 1_000.0);
        longest.lock().await.values().map(millis).collect::<Vec<_>>().concat()
    }
}

/// What is at a path of a space.
pub(crate) async fn read(space: &Client, path: &str) -> Result<Value> {
    let mut request = http::Request::new(Vec::new());
    *request.uri_mut() = path.parse()?;
    Ok(space.request::<Value>(request).await?)
}

#[expect(clippy::cast_precision_loss, reason = "sizes of a bench are far below 2^52")]
pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}
