//! A hub and its agents in this process, each a run that can be ended and begun again.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tideline_agent::{Listen, NamespaceName, OwnNamespace};
use tideline_common::{EnrolmentToken, HubUrl};
use tideline_hub::PublicCa;
use tideline_hub::token::{self, TokenRequest};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{Scratch, ask_health, eventually, eventually_ok, free_port};

const START: Duration = Duration::from_mins(1);

/// A hub on a port that stays its own over restarts.
pub struct Hub {
    dir: Scratch,
    listen: SocketAddr,
    /// Where it is reached from its next run on; where it listens, if none is given.
    pub public_url: Vec<HubUrl>,
    pub public_ca: Option<PublicCa>,
    run: Option<Running>,
}

/// An agent with its data directory.
pub struct Agent {
    dir: Scratch,
    kubeconfig: PathBuf,
    pub token_file: Option<PathBuf>,
    /// Where the hub is, if not where it was.
    pub hub: tideline_agent::HubAddress,
    own_namespace: OwnNamespace,
    /// Where it tells how it is, if anywhere.
    health: Option<SocketAddr>,
    /// What its next run keeps; all if there are none.
    pub only_namespaces: Vec<NamespaceName>,
    /// About how long it is from one of its patrols to the next; counts from its next run on.
    pub patrol: Duration,
    run: Option<Running>,
}

struct Running {
    stop: CancellationToken,
    task: JoinHandle<Result<()>>,
}

impl Running {
    async fn end(mut self) -> Result<()> {
        self.stop.cancel();
        (&mut self.task).await.context("the run panicked")?
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Hub {
    /// Starts a hub with an empty data directory and waits until it serves.
    ///
    /// # Errors
    ///
    /// When it does not within 20 s, with the reason it gave.
    pub async fn start() -> Result<Self> {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let mut hub = Self { dir: Scratch::new("hub")?, listen, public_url: Vec::new(), public_ca: None, run: None };
        hub.resume().await?;
        Ok(hub)
    }

    /// Begins a run, or another on the same data directory.
    ///
    /// # Errors
    ///
    /// When it does not serve within 20 s.
    pub async fn resume(&mut self) -> Result<()> {
        let mut options = tideline_hub::Options::new(self.dir.path(), self.listen);
        options.health_listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        options.public_url.clone_from(&self.public_url);
        options.public_ca.clone_from(&self.public_ca);
        options.settle = Duration::from_secs(1);
        options.stale_after = Duration::from_secs(6);
        let stop = CancellationToken::new();
        let token = stop.clone();
        let task = tokio::spawn(async move { tideline_hub::run(options, token).await.context("the hub") });
        let run = Running { stop, task };
        let serves = eventually_ok(START, "the hub to serve", async || {
            self.client("root").await?.apiserver_version().await.context("the hub answers")
        });
        match serves.await {
            Ok(_) => {
                self.run = Some(run);
                Ok(())
            }
            // The run's own error says more.
            Err(error) if run.task.is_finished() => run.end().await.and(Err(error)),
            Err(error) => Err(error),
        }
    }

    /// Ends the present run, in order.
    ///
    /// # Errors
    ///
    /// When the run had failed.
    pub async fn stop(&mut self) -> Result<()> {
        match self.run.take() {
            Some(run) => run.end().await,
            None => Ok(()),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.listen
    }

    /// Where it listens from its next run on.
    pub fn listen_at(&mut self, listen: SocketAddr) {
        self.listen = listen;
    }

    /// Its data directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("admin.kubeconfig")
    }

    /// Where it keeps everything.
    pub fn data_dir(&self) -> &Path {
        self.dir.path()
    }

    /// A client of one space, over the network, as the administrator.
    ///
    /// # Errors
    ///
    /// When the kubeconfig is not there yet.
    pub async fn client(&self, space: &str) -> Result<Client> {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig())?;
        let options = KubeConfigOptions { context: Some(space.to_owned()), ..KubeConfigOptions::default() };
        Ok(Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &options).await?)?)
    }

    /// Makes a token and starts an agent with it in the cluster of `kubeconfig`. Through `reach`, if it is given, instead
    /// of directly.
    ///
    /// # Errors
    ///
    /// When the token cannot be made or the agent does not start.
    pub async fn agent(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        kubeconfig: &Path,
        reach: Option<SocketAddr>,
    ) -> Result<Agent> {
        let mut agent = self.prepare(name, labels, kubeconfig, reach).await?;
        agent.resume();
        Ok(agent)
    }

    /// As [`Hub::agent`], with a Secret of its own in the cluster, and telling how it is.
    ///
    /// # Errors
    ///
    /// When the token cannot be made or there is no port.
    pub async fn agent_with_own_namespace(
        &self,
        name: &str,
        kubeconfig: &Path,
        own_namespace: OwnNamespace,
    ) -> Result<Agent> {
        let mut agent = self.prepare(name, &[("tier", "shop")], kubeconfig, None).await?;
        agent.own_namespace = own_namespace;
        let mut agent = agent.with_health()?;
        agent.resume();
        Ok(agent)
    }

    /// As [`Hub::agent`], before its first run.
    ///
    /// # Errors
    ///
    /// When the token cannot be made.
    pub async fn prepare(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        kubeconfig: &Path,
        reach: Option<SocketAddr>,
    ) -> Result<Agent> {
        let mut token = self.token(name, labels).await?;
        if let Some(reach) = reach {
            token.urls = vec![format!("https://{reach}").parse()?];
        }
        Agent::new(&token, kubeconfig)
    }

    /// Makes a token.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub async fn token(&self, name: &str, labels: &[(&str, &str)]) -> Result<EnrolmentToken> {
        let labels: BTreeMap<_, _> =
            labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let request = TokenRequest {
            kubeconfig: Some(self.kubeconfig()),
            name: name.to_owned(),
            labels,
            expires: Duration::from_hours(1),
        };
        Ok(token::create(request).await?)
    }
}

impl Agent {
    /// An agent with this token, in the cluster of `kubeconfig`, before its first run.
    ///
    /// # Errors
    ///
    /// When there is no directory for it.
    pub fn new(token: &EnrolmentToken, kubeconfig: &Path) -> Result<Self> {
        let dir = Scratch::new(&token.name)?;
        let token_file = dir.join("token");
        std::fs::write(&token_file, token.to_string())?;
        let (token_file, own_namespace) = (Some(token_file), OwnNamespace::default());
        Ok(Self {
            dir,
            kubeconfig: kubeconfig.to_owned(),
            token_file,
            hub: tideline_agent::HubAddress::default(),
            own_namespace,
            health: None,
            only_namespaces: Vec::new(),
            patrol: tideline_agent::PATROL_EVERY,
            run: None,
        })
    }

    /// Where it keeps its identity and its journal.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Begins another run on the same data directory.
    pub fn resume(&mut self) {
        let options = tideline_agent::Options {
            data_dir: self.data_dir(),
            kubeconfig: Some(self.kubeconfig.clone()),
            token_file: self.token_file.clone(),
            hub: self.hub.clone(),
            listen: self.health.map_or(Listen::Off, Listen::At),
            patrol: self.patrol,
            events: tideline_agent::Events::On,
            own_namespace: self.own_namespace.clone(),
            only_namespaces: self.only_namespaces.clone(),
        };
        let stop = CancellationToken::new();
        let token = stop.clone();
        let task = tokio::spawn(async move { tideline_agent::run(options, token).await.context("the agent") });
        self.run = Some(Running { stop, task });
    }

    /// Ends the present run, in order.
    ///
    /// # Errors
    ///
    /// When the run had failed.
    pub async fn stop(&mut self) -> Result<()> {
        match self.run.take() {
            Some(run) => run.end().await,
            None => Ok(()),
        }
    }

    /// Puts a token where the agent reads one, while it runs.
    ///
    /// # Errors
    ///
    /// When it was never given one, or the token cannot be written.
    pub fn give_token(&self, token: &EnrolmentToken) -> Result<()> {
        let file = self.token_file.as_ref().context("a token file")?;
        Ok(std::fs::write(file, token.to_string())?)
    }

    /// Begins a run elsewhere: nothing that was on the disk is there, and no token.
    ///
    /// # Errors
    ///
    /// When there is no directory or port for it.
    pub fn resume_elsewhere(&mut self) -> Result<()> {
        let mut other = self.twin(&self.kubeconfig)?;
        std::mem::swap(self, &mut other);
        self.resume();
        Ok(())
    }

    /// Another agent on a copy of this one's data directory, as it is now, at the same cluster; to be resumed. Without the
    /// journal, of which a copy that is made at work is not whole.
    ///
    /// # Errors
    ///
    /// When the directory cannot be copied.
    pub fn copied(&self) -> Result<Self> {
        let copy = Self { health: None, ..self.twin(&self.kubeconfig)? };
        let name = "identity.json";
        std::fs::create_dir_all(copy.data_dir())?;
        std::fs::copy(self.data_dir().join(name), copy.data_dir().join(name))?;
        Ok(copy)
    }

    /// Another agent that has nothing but the Secret of this one, at the cluster of `kubeconfig`; to be resumed.
    ///
    /// # Errors
    ///
    /// When there is no directory or port for it.
    pub fn twin(&self, kubeconfig: &Path) -> Result<Self> {
        let health = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)));
        let (dir, kubeconfig, own_namespace) =
            (Scratch::new("elsewhere")?, kubeconfig.to_owned(), self.own_namespace.clone());
        Ok(Self {
            dir,
            kubeconfig,
            token_file: None,
            hub: tideline_agent::HubAddress::default(),
            own_namespace,
            health,
            only_namespaces: self.only_namespaces.clone(),
            patrol: self.patrol,
            run: None,
        })
    }

    /// From its next run on, it tells how it is.
    ///
    /// # Errors
    ///
    /// When there is no port for that.
    pub fn with_health(self) -> Result<Self> {
        Ok(Self { health: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?))), ..self })
    }

    /// Where it tells that.
    ///
    /// # Errors
    ///
    /// When it tells nobody.
    pub fn health_port(&self) -> Result<u16> {
        Ok(self.health.context("an agent that tells how it is")?.port())
    }

    /// What `/readyz` says.
    ///
    /// # Errors
    ///
    /// When it does not answer, or the agent tells nobody how it is.
    pub async fn readiness(&self) -> Result<String> {
        Ok(ask_health(self.health_port()?, "/readyz").await?.1)
    }

    /// Waits until the run ends by itself, and returns its error.
    ///
    /// # Errors
    ///
    /// When it does not end within 20 s.
    pub async fn ended(&mut self) -> Result<Option<String>> {
        let run = self.run.as_mut().context("the agent runs")?;
        eventually(START, "the agent to end", async || run.task.is_finished().then_some(())).await?;
        let run = self.run.take().context("the agent runs")?;
        Ok(run.end().await.err().map(|error| format!("{error:#}")))
    }
}
