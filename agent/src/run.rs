//! The agent put together: what it is given, how it starts, how it ends.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use prometheus_client::registry::Registry;
use ring::rand::{SecureRandom, SystemRandom};
use tideline_common::wire::v1::{Accepted, EnrolRequest};
use tideline_common::{EnrolmentToken, TokenError};
use tideline_runtime::health::{self, Health};
use tideline_runtime::{BindError, Shutdown, TaskError};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::cluster::{self, Kinds, Scope};
use crate::core::{Config, Core, Enrolled, FuseLimits, Loaded};
use crate::data_dir::{self, DataDir};
use crate::driver::{self, Driver, Ended, Parts};
use crate::home::Home;
use crate::identity::{self, Data, Found, Keeper};
use crate::journal::{self, Journal};
use crate::link::{self, Link};
use crate::metrics::Metrics;
use crate::namespaces::{NamespaceName, Namespaces};

/// Everything the agent is told at its start.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Where the agent keeps its identity and its journal. One agent, one directory
    #[arg(long, env = "TIDELINE_DATA_DIR", value_name = "DIR")]
    pub data_dir: PathBuf,
    /// The kubeconfig of the cluster to keep; without it, the cluster that this runs in
    #[arg(long, env = "TIDELINE_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// A file with the token of `tideline-hub token create`; needed until the agent is enrolled
    #[arg(long, env = "TIDELINE_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Where /livez, /readyz and /metrics are served, without authentication; `off` for nowhere
    #[arg(long, env = "TIDELINE_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    pub listen: Listen,
    /// How often everything is looked at whatever the watches say, about: `10m`, `90s`, `1h`
    #[arg(long, env = "TIDELINE_PATROL", value_name = "PERIOD", default_value = "10m", value_parser = period)]
    pub patrol: Duration,
    /// Whether objects that cannot be kept as their sources say get Events, which `kubectl describe` shows
    #[arg(long, env = "TIDELINE_EVENTS", value_name = "WHETHER", value_enum, default_value_t)]
    pub events: Events,
    #[command(flatten)]
    pub home: Home,
    /// Keep these namespaces only, and with them only what is in them: the agent needs no rights elsewhere. What is placed
    /// elsewhere, and what is in no namespace, is withheld
    #[arg(long, env = "TIDELINE_ONLY_NAMESPACES", value_name = "NAME,…", value_delimiter = ',')]
    pub only_namespaces: Vec<NamespaceName>,
}

/// The period of the patrol, unless something else is said.
pub const PATROL_EVERY: Duration = Duration::from_mins(10);
/// The shortest period of the patrol: with 50,000 objects one takes two seconds, and the two looks are ten apart.
const PATROL_MIN: Duration = Duration::from_secs(1);

fn period(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("it must be a number with s, m or h, such as 10m, and not less than {} s", PATROL_MIN.as_secs());
    let (number, unit) = text.split_at(text.len() - text.chars().next_back().map_or(0, char::len_utf8));
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    let number: u32 = number.parse().map_err(|_| wrong())?;
    let period = Duration::from_secs(u64::from(number) * seconds);
    if period < PATROL_MIN { Err(wrong()) } else { Ok(period) }
}

/// Whether the agent writes Events at its cluster.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Events {
    #[default]
    On,
    Off,
}

/// Where the health port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    Off,
    At(SocketAddr),
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            text => text.parse().map(Self::At).map_err(|_| "it must be ADDRESS:PORT, or off".to_owned()),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}

/// Why the agent does not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    DataDir(#[from] data_dir::Error),
    #[error(
        "cannot read the token file {path:?}; write the output of `tideline-hub token create` into it, or leave out \
         --token-file if this agent is enrolled"
    )]
    TokenFile { path: PathBuf, source: io::Error },
    #[error("the token file {path:?} holds no token")]
    Token { path: PathBuf, source: TokenError },
    #[error(transparent)]
    Identity(#[from] identity::Error),
    #[error("cannot open the journal")]
    Journal(#[from] journal::Error),
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    #[error(transparent)]
    Link(#[from] link::Error),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("the operating system gives no random numbers")]
    Random,
    #[error("the agent stopped by itself")]
    Task(#[from] TaskError),
}

/// Runs an agent until `shutdown`. Several may run in one process, each with its own data directory.
pub async fn run(options: Options, shutdown: CancellationToken) -> Result<(), Error> {
    Agent::start(options).await?.run(shutdown).await
}

/// An agent that has all it needs, and has not begun.
pub struct Agent {
    core: Core,
    config: Config,
    parts: Parts,
    listener: Option<TcpListener>,
    registry: Registry,
    health: Health,
    identity: Arc<Keeper>,
    /// What the journal accepts, for the identity to keep.
    accepted: watch::Receiver<Option<Accepted>>,
    /// Last, so that everything else has let go of the directory.
    data_dir: DataDir,
}

impl Agent {
    /// Opens and checks everything: a start that is bound to fail fails here, with one message.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let Options { data_dir, kubeconfig, token_file, listen, patrol, events, home, only_namespaces } = options;
        let namespaces = Namespaces::only(only_namespaces);
        tideline_runtime::tls::install_provider();
        let data_dir = DataDir::open(&data_dir)?;
        let listener = match listen {
            Listen::Off => None,
            Listen::At(address) => Some(health::bind(address, "--listen").await?),
        };
        let token = token_file.as_deref().map(read_token).transpose()?;
        let client = cluster::connect(kubeconfig.as_deref()).await?;
        let place = home.secret(&client, kubeconfig.is_none());
        let found = Found::look(data_dir.path(), token.as_ref(), place).await?;
        let path = data_dir.journal();
        if found.data() == Data::Outdated && journal::discard(&path)? {
            warn!(
                "the journal of this data directory is not of the last process with this identity, and was removed; it is \
                 rebuilt from the hub and from what stands in the cluster"
            );
        }
        let identity = Arc::new(found.keep()?);
        let (journal, mut loaded) = tokio::task::spawn_blocking(move || Journal::open_or_wait(&path))
            .await
            .map_err(|_| journal::Error::Closed)??;
        recall(&mut loaded, &identity);
        let target = loaded.enrolled.as_ref().map(|enrolled| enrolled.target);
        if target.is_none() && token.is_none() {
            return Err(identity::Error::NoToken(data_dir.path().to_owned()).into());
        }
        let hub = identity.pin().hub;
        let facts = cluster::facts(&client).await;
        let enrolment = token.as_ref().map(|token| EnrolRequest {
            token: token.name.clone(),
            agent_key: identity.key().public().as_bytes().to_vec(),
            hub,
            facts: facts.clone(),
        });
        let link = Link::new(&identity.pin(), identity.key(), token.as_ref(), target)?;
        let config = Config {
            hub,
            facts,
            enrolment,
            seed: random_seed()?,
            fuse: FuseLimits::default(),
            patrol,
            namespaces: namespaces.clone(),
        };
        let accepted = loaded.accepted.is_some();
        let (newest, newest_seen) = watch::channel(loaded.accepted);
        let core = Core::new(config.clone(), loaded);

        let journal = Arc::new(journal);
        let kinds = Arc::new(Kinds::new(client.clone()));
        let mut registry = Registry::default();
        health::register_process(&mut registry, "agent", env!("CARGO_PKG_VERSION"));
        let health = Health::new();
        let parts = Parts {
            client,
            kinds,
            journal,
            link: Arc::new(link),
            scope: target.map(|target| Scope { hub, target }),
            namespaces,
            identity: Arc::clone(&identity),
            newest: Arc::new(newest),
            metrics: Metrics::register(&mut registry),
            health: health.clone(),
            accepted,
            teller: (events == Events::On).then(Arc::default),
        };
        Ok(Self { core, config, parts, listener, registry, health, identity, accepted: newest_seen, data_dir })
    }

    /// Where the health port is, if it is anywhere.
    pub fn health_address(&self) -> Option<SocketAddr> {
        self.listener.as_ref()?.local_addr().ok()
    }

    /// Keeps the cluster until `shutdown`, then finishes what is under way and reports once more.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        let Self { core, config, parts, listener, registry, health, identity, accepted, data_dir } = self;
        info!(data_dir = ?data_dir.path(), "the agent runs");
        // Its own token: an agent that fails ends alone, not the process around it.
        let run = Shutdown::with_token(shutdown.child_token());
        // Before its health is served: until it has said what it waits for, nothing seems to be missing.
        let driver = Driver::new(core, parts.clone(), run.token().clone());
        if let Some(listener) = listener {
            run.spawn("health", health::serve(listener, health, registry, run.token().clone()));
        }
        run.spawn("identity", async move {
            identity.follow(accepted).await;
            Ok::<_, Infallible>(())
        });
        run.spawn("core", keep(driver, config, parts, run.token().clone()));
        run.finished().await?;
        info!(data_dir = ?data_dir.path(), "the agent has stopped");
        Ok(())
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("data_dir", &self.data_dir.path()).finish_non_exhaustive()
    }
}

/// Drives one core, and another whenever a journal that was away can be opened: it begins from what that holds.
async fn keep(
    mut driver: Driver,
    config: Config,
    mut parts: Parts,
    stop: CancellationToken,
) -> Result<(), driver::Error> {
    while let Ended::JournalOpened(opened) = driver.run().await? {
        let (journal, mut loaded) = *opened;
        recall(&mut loaded, &parts.identity);
        parts.scope = loaded.enrolled.as_ref().map(|enrolled| Scope { hub: config.hub, target: enrolled.target });
        parts.accepted = loaded.accepted.is_some();
        parts.journal = Arc::new(journal);
        driver = Driver::new(Core::new(config.clone(), loaded), parts.clone(), stop.clone());
    }
    Ok(())
}

/// The identity outlives a journal that is damaged or away: what it says need not be asked of the hub again.
fn recall(loaded: &mut Loaded, identity: &Keeper) {
    if let (None, Some(enrolled)) = (&loaded.enrolled, identity.enrolled()) {
        loaded.enrolled = Some(Enrolled { target: enrolled.target, name: enrolled.name });
    }
    (loaded.session, loaded.floor) = identity.standing();
}

fn read_token(path: &Path) -> Result<EnrolmentToken, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::TokenFile { path: path.to_owned(), source })?;
    text.parse().map_err(|source| Error::Token { path: path.to_owned(), source })
}

fn random_seed() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Error::Random)?;
    Ok(u64::from_le_bytes(bytes))
}
