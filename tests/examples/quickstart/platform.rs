//! The hub and the agents, run as their binaries run them, and stopped together.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use kube::config::Kubeconfig;
use tideline_agent::Listen;
use tideline_hub::token::{self, TokenRequest};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::clusters::Cluster;

/// Silence of a cluster after which the hub calls it stale. Two minutes is the default; nobody watches a demonstration
/// for that long.
const STALE_AFTER: Duration = Duration::from_secs(3);
/// The hub, three agents, and room: one failure each.
const FAILURES_MAX: usize = 8;
/// Longest validity of a token here; it is used at once.
const TOKEN_EXPIRES: Duration = Duration::from_mins(10);

/// Whatever runs, and the directory it runs in.
pub(crate) struct Platform {
    directory: PathBuf,
    stop: CancellationToken,
    tasks: TaskTracker,
    failures: mpsc::Sender<anyhow::Error>,
}

/// An agent that runs.
pub(crate) struct Agent {
    stop: CancellationToken,
    ended: CancellationToken,
}

impl Platform {
    /// Returns a platform without anything on it, and the failures of what will be.
    pub(crate) fn new(directory: PathBuf) -> (Self, mpsc::Receiver<anyhow::Error>) {
        let (failures, failed) = mpsc::channel(FAILURES_MAX);
        (Self { directory, stop: CancellationToken::new(), tasks: TaskTracker::new(), failures }, failed)
    }

    /// Starts the hub, which serves as soon as the file named by [`Platform::hub_kubeconfig`] is there.
    pub(crate) fn start_hub(&self) {
        let options = tideline_hub::Options {
            health_listen: any_port(),
            stale_after: STALE_AFTER,
            ..tideline_hub::Options::new(self.directory.join("hub"), any_port())
        };
        let stop = self.stop.child_token();
        self.watch("the hub", stop.clone(), tideline_hub::run(options, stop));
    }

    /// Returns the kubeconfig of the hub's administrator, with a context for each space.
    pub(crate) fn hub_kubeconfig(&self) -> PathBuf {
        self.directory.join("hub/admin.kubeconfig")
    }

    /// Returns where the hub listens.
    pub(crate) fn hub_address(&self) -> Result<SocketAddr> {
        let kubeconfig = Kubeconfig::read_from(self.hub_kubeconfig())?;
        let server = kubeconfig.clusters.iter().find_map(|it| it.cluster.as_ref()?.server.as_deref());
        let url: http::Uri = server.context("the kubeconfig of the hub names no server")?.parse()?;
        let authority = url.authority().context("the server's URL has no authority")?;
        authority.as_str().parse().with_context(|| format!("{authority} is no address with a port"))
    }

    /// Makes the token for a new agent. With `through`, the agent dials that address instead of the hub's own.
    pub(crate) async fn create_token(
        &self,
        name: &str,
        labels: BTreeMap<String, String>,
        through: Option<SocketAddr>,
    ) -> Result<PathBuf> {
        let request = TokenRequest {
            kubeconfig: Some(self.hub_kubeconfig()),
            name: name.to_owned(),
            labels,
            expires: TOKEN_EXPIRES,
        };
        let mut token = token::create(request).await?;
        if let Some(address) = through {
            token.urls = vec![format!("https://{address}").parse()?];
        }
        let path = self.directory.join(format!("{name}.token"));
        fs::write(&path, token.to_string()).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// Starts the agent of a cluster. An agent that has run before finds in its data directory all it needs but the
    /// way to its cluster.
    pub(crate) fn start_agent(&self, cluster: &Cluster, token: Option<&Path>) -> Agent {
        let options = tideline_agent::Options {
            data_dir: self.agent_directory(&cluster.name),
            kubeconfig: Some(cluster.kubeconfig.clone()),
            token_file: token.map(Path::to_owned),
            hub: tideline_agent::HubAddress::default(),
            listen: Listen::Off,
            patrol: tideline_agent::PATROL_EVERY,
            events: tideline_agent::Events::On,
            own_namespace: tideline_agent::OwnNamespace::default(),
            only_namespaces: Vec::new(),
        };
        let stop = self.stop.child_token();
        let ended = CancellationToken::new();
        let (run, run_ended) = (tideline_agent::run(options, stop.clone()), ended.clone().drop_guard());
        self.watch(&format!("the agent of {}", cluster.name), stop.clone(), async move {
            let result = run.await;
            drop(run_ended);
            result
        });
        Agent { stop, ended }
    }

    /// Returns the data directory of an agent.
    pub(crate) fn agent_directory(&self, name: &str) -> PathBuf {
        self.directory.join(format!("agent-{name}"))
    }

    /// Stops all that runs, and waits for it.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Runs one program, and reports its end if nobody asked for it.
    fn watch<E: Display + Into<anyhow::Error> + Send + 'static>(
        &self,
        name: &str,
        stop: CancellationToken,
        program: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        let (name, failures) = (name.to_owned(), self.failures.clone());
        let running: TaskTrackerToken = self.tasks.token();
        tokio::spawn(async move {
            let failure = match program.await {
                Ok(()) if stop.is_cancelled() => None,
                Ok(()) => Some(anyhow!("{name} ended by itself")),
                Err(error) => Some(error.into().context(format!("{name} failed"))),
            };
            if let Some(failure) = failure {
                // Nobody listens any more when the demonstration itself has ended.
                let _late = failures.try_send(failure);
            }
            drop(running);
        });
    }
}

impl Agent {
    /// Stops the agent, and returns when it has released its data directory.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.ended.cancelled().await;
    }
}

fn any_port() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}
