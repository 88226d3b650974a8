//! The agent put together: what it is given, how it starts, how it ends.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::Args;
use futures::StreamExt;
use kube::Client;
use prometheus_client::registry::Registry;
use ring::rand::{SecureRandom, SystemRandom};
use tideline_common::wire::v1::{ClusterFacts, EnrolRequest, Instance};
use tideline_common::{Capabilities, InstanceId};
use tideline_runtime::health::{self, Health};
use tideline_runtime::{Backoff, BindError, Shutdown, TaskError};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::addresses::Locator;
use crate::certificates::Clock;
use crate::cluster::{self, Answers, AuthorityFile, Kinds, KubeconfigFile};
use crate::core::{Config, Core, Enrolled, FuseLimits, Loaded};
use crate::data_dir::{self, DataDir};
use crate::driver::{self, Driver, Ended, Parts};
use crate::identity::{self, Data, Found, Keeper, SecretRef, SessionStore, TargetName};
use crate::journal::{self, Journal};
use crate::lease::{self, Candidate, Leading, Term};
use crate::link::{self, Link};
use crate::metrics::Metrics;
use crate::namespaces::{NamespaceName, Namespaces};
use crate::own_namespace::{NoNamespace, OwnNamespace};
use crate::proxy::Proxies;
use crate::start_input::{self, HubAddress, StartInput};

/// Everything the agent is given at its start.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Where the agent keeps its identity and its journal. One agent, one directory
    #[arg(long, env = "TIDELINE_DATA_DIR", value_name = "DIR")]
    pub data_dir: PathBuf,
    /// The kubeconfig of the cluster to keep; without it, the cluster that this runs in. It is read again when it changes, or a
    /// certificate or key that it names
    #[arg(long, env = "TIDELINE_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// A file with the token of `tideline-hub token create`; needed until the agent is enrolled. A new token of the same hub
    /// may be put there at any time: it says where the hub is now, and lets a revoked agent enrol again
    #[arg(long, env = "TIDELINE_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    #[command(flatten)]
    pub hub: HubAddress,
    /// Where /livez, /readyz and /metrics are served, without authentication; `off` for nowhere
    #[arg(long, env = "TIDELINE_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    pub listen: Listen,
    /// About how often all objects are listed, to find what the watches missed: `10m`, `90s`, `1h`
    #[arg(long, env = "TIDELINE_PATROL", value_name = "PERIOD", default_value = "10m", value_parser = period)]
    pub patrol: Duration,
    /// Whether Kubernetes Events are written about objects that cannot be applied or removed; `kubectl describe` shows them
    #[arg(long, env = "TIDELINE_EVENTS", value_name = "WHETHER", value_enum, default_value_t)]
    pub events: Events,
    #[command(flatten)]
    pub own_namespace: OwnNamespace,
    /// Keep these namespaces only, and with them only what is in them: the agent needs no rights elsewhere. What is placed
    /// elsewhere, and what is in no namespace, is withheld
    #[arg(long, env = "TIDELINE_ONLY_NAMESPACES", value_name = "NAME,…", value_delimiter = ',')]
    pub only_namespaces: Vec<NamespaceName>,
}

/// The period of the patrol, unless another is given.
pub const PATROL_EVERY: Duration = Duration::from_mins(10);
/// The shortest period of the patrol, for tests: each takes ten seconds or more, for what it finds is looked at twice.
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

/// Pauses between two short runs: around the first, doubled up to around the second.
const PAUSE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(1));
/// A run of this length went well.
const RAN_WELL: Duration = Duration::from_mins(1);

/// Letters of a host's name, as POSIX and Linux bound it.
const HOST_NAME_MAX: usize = 64;

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
    #[error(transparent)]
    StartInput(#[from] start_input::Error),
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
    #[error("the identity names no address of the hub; give --hub-url")]
    NoAddress,
    #[error("the operating system gives no random numbers")]
    Random,
    #[error(transparent)]
    NoNamespace(#[from] NoNamespace),
    #[error(
        "the Lease was lost: {0}. What this replica knows may be out of date: restart it, and it stands by or takes over"
    )]
    LeaseLost(String),
    #[error("the agent stopped by itself")]
    Task(#[from] TaskError),
}

/// Runs an agent until `shutdown`, and begins anew when it has to. Several may run in one process, each with its own data
/// directory.
///
/// # Errors
///
/// The agent cannot start, or ended by itself: see [`Error`].
pub async fn run(options: Options, shutdown: CancellationToken) -> Result<(), Error> {
    for ignored in Proxies::of_environment().ignored {
        warn!("{ignored}");
    }
    for ignored in options.own_namespace.ignored(options.kubeconfig.is_none()) {
        warn!("{ignored}");
    }
    if options.kubeconfig.is_none() && std::env::var_os("KUBECONFIG").is_some_and(|it| !it.is_empty()) {
        warn!("KUBECONFIG is ignored: the agent keeps the cluster that it runs in, unless --kubeconfig names another");
    }
    let clock = Arc::new(Clock::default());
    clock.check();
    let mut pauses = Pauses::default();
    loop {
        let prepared = prepare(options.clone(), &clock).await?;
        let begun = Instant::now();
        // What starts an agent is large, and small beside what it then needs.
        match Box::pin(prepared.run(&shutdown)).await? {
            Run::Stopped => return Ok(()),
            Run::ToBeginAnew(why) => info!("{why}: the agent restarts"),
        }
        if shutdown.run_until_cancelled(sleep(pauses.after(begun.elapsed()))).await.is_none() {
            return Ok(());
        }
    }
}

/// How a run ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Stopped,
    ToBeginAnew(BeginAnew),
}

/// Why a run ends for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BeginAnew {
    /// There is another token than the one that it began with.
    GivenToken,
    /// The Secret can be read again, and holds this agent's identity.
    FoundInSecret,
    /// The kubeconfig says something else than the one that it began with.
    KubeconfigChanged,
    /// Another authority certifies the API server around this process than the one that it began with.
    AuthorityChanged,
}

impl fmt::Display for BeginAnew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GivenToken => "the token file holds another token of the hub",
            Self::FoundInSecret => "the Secret can be read by now, and holds the identity of this agent",
            Self::KubeconfigChanged => "the kubeconfig, or a file that it names, was changed",
            Self::AuthorityChanged => "the authority that certifies the API server of this cluster was replaced",
        })
    }
}

/// The pauses between one run and the next.
#[derive(Debug)]
struct Pauses(Backoff);

impl Default for Pauses {
    fn default() -> Self {
        Self(Backoff::new(PAUSE.0, PAUSE.1))
    }
}

impl Pauses {
    /// How long to pause after a run of this length. Whatever makes a run end soon, such as an API server that refuses at each
    /// start what it gives a moment later, may do so again: each run asks the cluster for everything.
    fn after(&mut self, ran: Duration) -> Duration {
        if ran < RAN_WELL {
            return self.0.next_delay(None);
        }
        self.0.reset();
        Duration::ZERO
    }
}

/// Acquires local resources, so that misconfiguration fails fast, with one message.
async fn prepare(options: Options, clock: &Arc<Clock>) -> Result<Prepared, Error> {
    let Options { data_dir, kubeconfig, token_file, hub, listen, patrol, events, own_namespace, only_namespaces } =
        options;
    let namespaces = Namespaces::only(only_namespaces);
    tideline_runtime::tls::install_provider();
    let data_dir = DataDir::open(&data_dir)?;
    let listener = match listen {
        Listen::Off => None,
        Listen::At(address) => Some(health::bind(address, "--listen")?),
    };
    let input = StartInput::read(token_file.as_deref(), hub);
    let access = match &kubeconfig {
        Some(path) => Access::Kubeconfig(KubeconfigFile::new(path, Arc::clone(clock))),
        None => Access::ServiceAccount(AuthorityFile::of_service_account()),
    };
    let client = cluster::connect(kubeconfig.as_deref(), clock).await?;
    let secret = own_namespace.secret(&client, kubeconfig.is_none());
    let lease = own_namespace.lease(&client, kubeconfig.is_none())?;
    let mut registry = Registry::default();
    health::register_process(&mut registry, "agent", env!("CARGO_PKG_VERSION"));
    let (metrics, health) = (Metrics::register(&mut registry), Health::new());
    let clock = Arc::clone(clock);
    let agent = Agent { client, input, secret, patrol, events, namespaces, clock, metrics, health };
    Ok(Prepared { agent, access, lease, listener, registry, data_dir })
}

/// The file by which the API server is reached, and which is to be read again when it changes.
enum Access {
    Kubeconfig(KubeconfigFile),
    ServiceAccount(AuthorityFile),
}

impl Access {
    /// Ends the run for another when it changes.
    fn watch(self, run: &Shutdown, anew: &Arc<OnceLock<BeginAnew>>) {
        match self {
            Self::Kubeconfig(file) => {
                begin_anew_after(run, "kubeconfig", file.changed(), anew, BeginAnew::KubeconfigChanged);
            }
            Self::ServiceAccount(file) => {
                begin_anew_after(run, "authority", file.changed(), anew, BeginAnew::AuthorityChanged);
            }
        }
    }
}

/// An agent that has what it needs of this machine, and has asked nobody yet.
struct Prepared {
    agent: Agent,
    access: Access,
    lease: Option<lease::LeaseRef>,
    listener: Option<TcpListener>,
    registry: Registry,
    /// Last, so that everything else has dropped its handle of the directory.
    data_dir: DataDir,
}

impl Prepared {
    /// Keeps the cluster until `shutdown`, then finishes operations in flight and reports once more. Of replicas, only as long
    /// as it leads.
    async fn run(self, shutdown: &CancellationToken) -> Result<Run, Error> {
        let Self { agent, access, lease, listener, registry, data_dir } = self;
        // Its own token: an agent that fails ends alone, not the process around it.
        let run = Shutdown::with_token(shutdown.child_token());
        let health = agent.health.clone();
        let starting = lease.is_none().then(|| health.gate("cluster"));
        if let Some(listener) = listener {
            run.spawn("health", health::serve(listener, health.clone(), registry, run.token().clone()));
        }
        // Also while it stands by, or the cluster is not identified yet: the kubeconfig may be the cause.
        let anew = Arc::new(OnceLock::new());
        access.watch(&run, &anew);
        let leading = match lease {
            None => None,
            Some(place) => {
                let Some(leading) = run.token().run_until_cancelled(Candidate::new(place).lead(&health)).await else {
                    run.finished().await?;
                    return Ok(ended_for(&anew, shutdown));
                };
                Some(leading)
            }
        };
        let starting = starting.unwrap_or_else(|| health.gate("cluster"));
        let term = leading.as_ref().map(Leading::term);
        if let Some(term) = term.clone() {
            let stop = run.token().clone();
            run.spawn("lease", async move {
                match stop.run_until_cancelled(term.over()).await {
                    Some(()) => Err(term.why()),
                    None => Ok(()),
                }
            });
        }
        let begun = Box::pin(agent.begin(&data_dir, &run, term.as_ref(), &anew)).await;
        if begun.is_err() {
            run.begin();
        }
        drop(starting);
        let ended = run.finished().await;
        // Whatever else went wrong then did so for that.
        let lost = term.filter(Term::is_over).map(|term| term.why());
        if let Some(leading) = leading {
            leading.end().await;
        }
        if let Some(why) = lost {
            return Err(Error::LeaseLost(why));
        }
        begun?;
        ended?;
        let ended = ended_for(&anew, shutdown);
        if ended == Run::Stopped {
            info!(data_dir = %data_dir.path().display(), "the agent has stopped");
        }
        Ok(ended)
    }
}

/// Why a run has ended that did not fail.
fn ended_for(anew: &OnceLock<BeginAnew>, shutdown: &CancellationToken) -> Run {
    match anew.get() {
        Some(why) if !shutdown.is_cancelled() => Run::ToBeginAnew(*why),
        Some(_) | None => Run::Stopped,
    }
}

/// The parts of an agent before its identity is known.
struct Agent {
    client: Client,
    input: StartInput,
    secret: Option<SecretRef>,
    patrol: Duration,
    events: Events,
    namespaces: Namespaces,
    clock: Arc<Clock>,
    metrics: Metrics,
    health: Health,
}

impl Agent {
    /// Loads identity and journal, and begins to keep the cluster. Sets `anew` where the run ends for another.
    async fn begin(
        self,
        data_dir: &DataDir,
        run: &Shutdown,
        term: Option<&Term>,
        anew: &Arc<OnceLock<BeginAnew>>,
    ) -> Result<(), Error> {
        let Self { client, mut input, secret, patrol, events, namespaces, clock, metrics, health } = self;
        // Only now, for the replica that led before wrote there to its end.
        let store = if term.is_some() { SessionStore::Secret } else { SessionStore::Directory };
        let (token_file, authorities_file) = (input.file.take(), input.authorities_file.take());
        let load = || Found::load(data_dir.path(), input.token.as_ref(), secret.clone(), store);
        let found = Box::pin(identity::when_readable(&health, &metrics, load));
        let Some(found) = run.token().run_until_cancelled(found).await else { return Ok(()) };
        let found = found.map_err(|error| match error {
            identity::Error::NoToken(_) => input.take_unreadable().map_or_else(|| error.into(), Error::from),
            error => error.into(),
        })?;
        input.judge(&found)?;
        let StartInput { token, url, authorities, .. } = input;
        let path = data_dir.journal();
        let away = match found.data() {
            Data::Current => None,
            Data::Outdated if found.is_enrolled() => Journal::discard_or_wait(&path)?,
            Data::Outdated => {
                journal::discard(&path)?;
                None
            }
        };
        let (identity, (journal, mut loaded)) = if let Some(away) = away {
            // It only observes, as with any journal that is away, until that one is gone.
            (Arc::new(found.keep_unwritten()), away)
        } else {
            let identity = Arc::new(found.keep()?);
            let stop = run.token().clone();
            let opened = tokio::task::spawn_blocking(move || Journal::open_or_wait(&path, &stop)).await;
            match opened.map_err(|_| journal::Error::Closed)? {
                Err(journal::Error::Stopped) => return Ok(()),
                opened => (identity, opened?),
            }
        };
        let target = identity
            .enrolled()
            .or(loaded.enrolled.as_ref().map(|it| TargetName { target: it.target, name: it.name.clone() }))
            .map(|enrolled| enrolled.target);
        if target.is_none() && token.is_none() {
            return Err(identity::Error::NoToken(data_dir.path().to_owned()).into());
        }
        let hub = identity.pin().hub;
        let (facts, answers) = match target {
            Some(_) => cluster::facts(&client).await,
            None => match run.token().run_until_cancelled(facts(&client)).await {
                Some(facts) => (facts, Answers::All),
                None => return Ok(()),
            },
        };
        let enrolment = token.as_ref().map(|token| EnrolRequest {
            token: token.name.clone(),
            // The key that it enrols with may be another by then.
            agent_key: Vec::new(),
            proof: Vec::new(),
            hub,
            facts: facts.clone(),
        });
        let locator = Locator::new(identity.addresses(), url).ok_or(Error::NoAddress)?;
        if let Some(bypass) = Proxies::of_environment().bypass(&locator.destination().url) {
            info!("{bypass}");
        }
        let link = Link::new(&identity.pin(), (locator, authorities), identity.key(), token.as_ref(), target, clock);
        if target.is_none() {
            // An enrolled agent keeps its cluster meanwhile.
            link.prepare()?;
        }
        let config = Config {
            hub,
            facts,
            answered: answers == Answers::All,
            instance: Instance { id: InstanceId(random_seed()?), host: host_name() },
            enrolment,
            seed: random_seed()?,
            fuse: FuseLimits::default(),
            patrol,
            namespaces: namespaces.clone(),
            capabilities: Capabilities::all(),
        };
        recall(&mut loaded, &identity, &link);
        let (newest, accepted) = watch::channel(loaded.accepted);
        let parts = Parts {
            client: client.clone(),
            facts: config.answered.then(|| config.facts.clone()),
            kinds: Arc::new(Kinds::new(client)),
            journal: Arc::new(journal),
            link: Arc::new(link),
            scope: target.map(|target| identity.owner(target)),
            namespaces,
            identity: Arc::clone(&identity),
            newest: Arc::new(newest),
            metrics,
            health,
            accepted: loaded.accepted.is_some(),
            recorder: (events == Events::On).then(Arc::default),
            term: term.cloned(),
        };
        parts.metrics.leading();
        let driver = Driver::new(Core::new(config.clone(), loaded), parts.clone(), run.token().clone());
        info!(data_dir = %data_dir.path().display(), fingerprint = identity.key().public().fingerprint(), "the agent runs");
        let term = term.cloned();
        run.spawn("identity", async move {
            let follow = identity.follow(accepted);
            match term {
                None => follow.await,
                // The Secret is the next leader's then.
                Some(term) => tokio::select! {
                    () = follow => {}
                    () = term.over() => {}
                },
            }
            Ok::<_, Infallible>(())
        });
        let found = parts.identity.found_in_secret().cancelled_owned();
        begin_anew_after(run, "secret", found, anew, BeginAnew::FoundInSecret);
        if let Some(file) = token_file {
            let identity = Arc::clone(&parts.identity);
            let changed = async move { file.changed(|token| identity.use_of(token)).await };
            begin_anew_after(run, "token", changed, anew, BeginAnew::GivenToken);
        }
        if let Some(mut file) = authorities_file {
            let (link, stop) = (Arc::clone(&parts.link), run.token().clone());
            run.spawn("authorities", async move {
                while let Some(given) = stop.run_until_cancelled(file.changed()).await {
                    link.trust(given);
                    info!("--hub-ca was changed; its certificates are trusted from now on");
                }
                Ok::<_, Infallible>(())
            });
        }
        run.spawn("core", keep(driver, config, parts, run.token().clone()));
        Ok(())
    }
}

/// Ends the run when this comes to pass, for another to begin.
fn begin_anew_after(
    run: &Shutdown,
    task: &'static str,
    passes: impl Future<Output = ()> + Send + 'static,
    anew: &Arc<OnceLock<BeginAnew>>,
    why: BeginAnew,
) {
    let (anew, ending) = (Arc::clone(anew), run.clone());
    run.spawn(task, async move {
        if ending.token().run_until_cancelled(passes).await.is_some() {
            // The first reason is as good as another: all is read anew.
            let _ = anew.set(why);
            ending.begin();
        }
        Ok::<_, Infallible>(())
    });
}

/// Waits until the cluster says which one it is: an agent enrols as that of this cluster, and has nothing to do before.
async fn facts(client: &Client) -> ClusterFacts {
    match cluster::facts(client).await {
        (facts, Answers::All) => facts,
        (_, Answers::Missing(why)) => {
            warn!(
                "cannot identify the cluster by its namespace kube-system; enrolment waits until that can be read: {why}"
            );
            let facts = pin!(cluster::facts_from_now(client.clone(), false)).next().await;
            facts.expect("it asks until it is answered")
        }
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
        let (journal, mut loaded, heard) = *opened;
        parts.identity.journal_is_removed().await;
        recall(&mut loaded, &parts.identity, &parts.link);
        parts.scope = parts.identity.enrolled().map(|enrolled| parts.identity.owner(enrolled.target));
        parts.accepted = loaded.accepted.is_some();
        parts.journal = Arc::new(journal);
        let core = Core::new(config.clone(), loaded).having(heard);
        driver = Driver::new(core, parts.clone(), stop.clone());
    }
    Ok(())
}

/// The identity outlives a journal that is damaged or away: what it says need not be asked of the hub again.
fn recall(loaded: &mut Loaded, identity: &Keeper, link: &Link) {
    if let Some(TargetName { target, name }) = identity.enrolled() {
        let enrolled = Enrolled { target, name };
        match &loaded.enrolled {
            None => loaded.enrolled = Some(enrolled),
            Some(known) if known.target != target => loaded.handed_to = Some(enrolled),
            Some(_) => {}
        }
    }
    (loaded.formers, loaded.inherited) = (identity.formers(), identity.inherited());
    (loaded.session, loaded.floor) = identity.newest_session_and_floor();
    loaded.cluster = identity.cluster();
    loaded.token_spent = link.token().is_some() && link.token() == identity.token();
}

/// What the machine is called, or the Pod: by that people tell one agent from another.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "unknown".to_owned() } else { name.trim().chars().take(HOST_NAME_MAX).collect() }
}

fn random_seed() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Error::Random)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests;
