//! A hub and agents as processes, each of which a test may end and begin again.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, from_value, json};
use tideline_tests::{
    Binaries, EmbeddedCluster, Finished, Process, Scratch, ask_health, eventually_ok, free_port, run_to_end,
};

/// For what takes a second or two on a machine that has nothing else to do.
pub(crate) const SOON: Duration = Duration::from_secs(90);
/// For a command that is bound to fail: it must not try for long.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(20);

/// What every namespaced object of these tests is in.
pub(crate) const NAMESPACE: &str = "shop";

/// Places every ConfigMap of one application on every cluster of one tier.
pub(crate) async fn place(space: &Client) -> Result<()> {
    let namespace: Namespace = from_value(json!({"metadata": {"name": NAMESPACE}}))?;
    Api::<Namespace>::all(space.clone()).create(&PostParams::default(), &namespace).await?;
    let placement: DynamicObject = from_value(json!({
        "apiVersion": "tideline.dev/v1alpha1", "kind": "Placement", "metadata": {"name": "everywhere"},
        "spec": {
            "targets": [{"matchLabels": {"tier": "shop"}}],
            "objects": [{
                "apiGroup": "", "resources": ["configmaps"], "objectSelectors": [{"matchLabels": {"app": "web"}}],
            }],
        },
    }))?;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("tideline.dev", "v1alpha1", "Placement"));
    Api::<DynamicObject>::all_with(space.clone(), &kind).create(&PostParams::default(), &placement).await?;
    Ok(())
}

/// A command without the environment of the test run, from which these binaries take options.
pub(crate) fn command(binary: PathBuf, args: &[&str]) -> Command {
    let mut command = Command::new(binary);
    command.env_clear().args(args);
    command
}

/// Runs a command that must fail with `code`, say nothing on standard output, and say one line that has all of `parts`.
pub(crate) async fn fails(command: &mut Command, code: i32, parts: &[&str]) -> Result<String> {
    // At the default log level: nothing may be printed beside the message.
    let Finished { status, stdout, stderr } = run_to_end(command, "", AT_ONCE).await?;
    ensure!(status.code() == Some(code), "it ended with {status}, not {code}: {stderr}");
    ensure!(stdout.is_empty(), "a failure has no output: {stdout}");
    ensure!(stderr.trim_end().lines().count() == 1, "it should say one line: {stderr}");
    ensure!(stderr.starts_with("tideline-"), "it should say who speaks: {stderr}");
    for part in parts {
        ensure!(stderr.contains(part), "it should say {part:?}: {stderr}");
    }
    Ok(stderr)
}

/// A SyncTarget.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) phase: String,
    pub(crate) kubernetes: String,
}

/// How many files a process may have open.
#[derive(Clone, Copy)]
pub(crate) enum Descriptors {
    /// As many as the tests themselves.
    AsHere,
    AtMost(u32),
    /// At its start; it may raise that itself as far as the tests may.
    AtFirst(u32),
}

/// A hub that keeps its ports over restarts.
pub(crate) struct Hub {
    pub(crate) process: Process,
    pub(crate) health: u16,
    /// Of its next run.
    pub(crate) binaries: Binaries,
    /// Further arguments of its next run, such as its public URLs.
    pub(crate) arguments: Vec<String>,
    pub(crate) listen: SocketAddr,
    descriptors: Descriptors,
    /// The name of its data directory, in its next run.
    pub(crate) data: String,
    /// Last, so that the log is there when the process shows it.
    pub(crate) dir: Scratch,
}

impl Hub {
    /// Starts a hub with an empty data directory and waits until it serves.
    pub(crate) async fn start(binaries: &Binaries) -> Result<Self> {
        Self::start_within(binaries, Descriptors::AsHere).await
    }

    /// As [`Hub::start`], as a process that may have so many files open.
    pub(crate) async fn start_within(binaries: &Binaries, descriptors: Descriptors) -> Result<Self> {
        let dir = Scratch::new("hub")?;
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let (health, data) = (free_port()?, "data".to_owned());
        let arguments = Vec::new();
        let process = Self::spawn(binaries, (&dir, &data), (listen, health), (&arguments, descriptors))?;
        let mut hub = Self { binaries: binaries.clone(), arguments, dir, data, listen, health, descriptors, process };
        hub.serves().await?;
        Ok(hub)
    }

    fn spawn(
        binaries: &Binaries,
        (dir, data): (&Scratch, &str),
        (listen, health): (SocketAddr, u16),
        (arguments, descriptors): (&[String], Descriptors),
    ) -> Result<Process> {
        const SERVE: [&str; 5] = ["serve", "--settle", "1s", "--log-format", "text"];
        let limited = |limit: String| {
            let mut command = command("/bin/sh".into(), &["-c", &format!("ulimit {limit}; exec \"$@\""), "sh"]);
            command.arg(binaries.hub()).args(SERVE);
            command
        };
        let mut command = match descriptors {
            Descriptors::AsHere => command(binaries.hub(), &SERVE),
            Descriptors::AtMost(most) => limited(format!("-n {most}")),
            Descriptors::AtFirst(few) => limited(format!("-S -n {few}")),
        };
        command.arg("--data-dir").arg(dir.join(data)).args(["--listen", &listen.to_string()]);
        command.args(["--health-listen", &format!("127.0.0.1:{health}")]).args(arguments);
        Ok(Process::spawn("hub", &mut command, &dir.join("log"))?.with_log_shown())
    }

    /// Begins another run on its data directory and its ports, and waits until it serves.
    pub(crate) async fn resume(&mut self) -> Result<()> {
        self.begin()?;
        self.serves().await
    }

    /// Begins another run.
    pub(crate) fn begin(&mut self) -> Result<()> {
        let (place, ports) = ((&self.dir, self.data.as_str()), (self.listen, self.health));
        self.process = Self::spawn(&self.binaries, place, ports, (&self.arguments, self.descriptors))?;
        Ok(())
    }

    /// Waits until it serves its spaces and is ready.
    pub(crate) async fn serves(&mut self) -> Result<()> {
        let (health, kubeconfig) = (self.health, self.kubeconfig());
        let serves = eventually_ok(SOON, "the hub to serve", async || {
            client(&kubeconfig, "root").await?.apiserver_version().await?;
            ready(health).await
        });
        serves.await.with_context(|| self.process.log_tail())?;
        ensure!(self.process.exit_status()?.is_none(), "somebody else serves at the hub's ports");
        Ok(())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listen
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.join(&self.data)
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.data_dir().join("admin.kubeconfig")
    }

    /// A client of one space, over the network, as the administrator.
    pub(crate) async fn client(&self, space: &str) -> Result<Client> {
        client(&self.kubeconfig(), space).await
    }

    /// A command of `tideline-hub` that speaks to this hub.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = command(self.binaries.hub(), args);
        command.arg("--kubeconfig").arg(self.kubeconfig());
        command
    }

    /// Makes a token with the command line and writes it, as a shell would, to a file.
    pub(crate) async fn token_file(&self, name: &str) -> Result<PathBuf> {
        let mut command = self.command(&["token", "create", name, "--labels", "tier=shop,region=eu"]);
        let made = run_to_end(&mut command, "", SOON).await?;
        ensure!(made.code()? == 0 && made.stderr.is_empty(), "the token is made without a word: {}", made.stderr);
        let path = self.dir.join(format!("{name}.token"));
        fs::write(&path, made.stdout)?;
        Ok(path)
    }

    /// Makes a token, starts an agent with it in `cluster`, and waits until it is ready.
    pub(crate) async fn agent(&self, name: &str, cluster: &EmbeddedCluster) -> Result<Agent> {
        let token_file = self.token_file(name).await?;
        let mut agent = Agent::start(&self.binaries, cluster.kubeconfig(), &token_file)?;
        agent.is_ready().await?;
        Ok(agent)
    }

    /// All SyncTargets, in the order of names.
    pub(crate) async fn targets(&self) -> Result<Vec<Target>> {
        let list = dynamic(&self.client("root").await?, "SyncTarget").list(&ListParams::default()).await?;
        let target = |object: DynamicObject| Target {
            phase: object.data["status"]["phase"].as_str().unwrap_or_default().to_owned(),
            kubernetes: object.data["status"]["kubernetesVersion"].as_str().unwrap_or_default().to_owned(),
            name: object.metadata.name.unwrap_or_default(),
            uid: object.metadata.uid.unwrap_or_default(),
        };
        Ok(list.items.into_iter().map(target).collect())
    }

    /// The names and UIDs of all SyncTargets: the identities of the agents at the hub.
    pub(crate) async fn identities(&self) -> Result<Vec<(String, String)>> {
        Ok(self.targets().await?.into_iter().map(|target| (target.name, target.uid)).collect())
    }

    /// Makes what every cluster is to have from now on: all ConfigMaps.
    pub(crate) async fn place_config_maps(&self) -> Result<()> {
        let space = self.client("default").await?;
        let namespace = from_value(json!({"metadata": {"name": NAMESPACE}}))?;
        Api::<Namespace>::all(space.clone()).create(&PostParams::default(), &namespace).await?;
        let spec = json!({
            "targets": [{"matchLabels": {"tier": "shop"}}],
            "objects": [{
                "apiGroup": "", "resources": ["configmaps"], "objectSelectors": [{"matchLabels": {"app": "web"}}],
            }],
        });
        self.create("default", "Placement", "everywhere", &spec).await
    }

    /// Makes an object of one of the hub's own kinds.
    pub(crate) async fn create(&self, space: &str, kind: &str, name: &str, spec: &Value) -> Result<()> {
        let object = from_value(json!({
            "apiVersion": "tideline.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
        }))?;
        dynamic(&self.client(space).await?, kind).create(&PostParams::default(), &object).await?;
        Ok(())
    }

    /// Reads one of them.
    pub(crate) async fn get(&self, space: &str, kind: &str, name: &str) -> Result<DynamicObject> {
        Ok(dynamic(&self.client(space).await?, kind).get(name).await?)
    }

    /// Changes one of them.
    pub(crate) async fn patch(&self, space: &str, kind: &str, name: &str, patch: &Value) -> Result<()> {
        let api = dynamic(&self.client(space).await?, kind);
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Waits until the condition Ready of one of them is `status` as of its present generation, and returns the condition.
    pub(crate) async fn is_ready_as(&self, space: &str, kind: &str, name: &str, status: &str) -> Result<Value> {
        let api = dynamic(&self.client(space).await?, kind);
        eventually_ok(SOON, &format!("{kind} {name} to be Ready: {status}"), async || {
            let object = api.get(name).await?;
            let condition = &object.data["status"]["conditions"][0];
            let is_so = condition["type"] == "Ready"
                && condition["status"] == status
                && condition["observedGeneration"].as_i64() == object.metadata.generation;
            ensure!(is_so, "{object:?}");
            Ok(condition.clone())
        })
        .await
    }

    /// Makes a ConfigMap here.
    pub(crate) async fn makes(&self, name: &str) -> Result<()> {
        self.makes_all(&[name.to_owned()]).await
    }

    /// Makes ConfigMaps here.
    pub(crate) async fn makes_all(&self, names: &[String]) -> Result<()> {
        let space = Api::<ConfigMap>::namespaced(self.client("default").await?, NAMESPACE);
        for name in names {
            let object =
                from_value(json!({"metadata": {"name": name, "labels": {"app": "web"}}, "data": {"from": "hub"}}))?;
            space.create(&PostParams::default(), &object).await?;
        }
        Ok(())
    }

    /// Makes a ConfigMap here and waits for it in `cluster`.
    pub(crate) async fn delivers(&self, name: &str, cluster: &EmbeddedCluster) -> Result<()> {
        self.makes(name).await?;
        let there = Api::<ConfigMap>::namespaced(cluster.client(), NAMESPACE);
        eventually_ok(SOON, &format!("{name} in the cluster"), async || there.get(name).await).await?;
        Ok(())
    }
}

/// A hub, a cluster of this process, and the agent `store` that keeps it.
pub(crate) struct Site {
    pub(crate) agent: Agent,
    pub(crate) hub: Hub,
    pub(crate) cluster: EmbeddedCluster,
    _dir: Scratch,
}

impl Site {
    /// Starts all of it, and waits until the agent is ready.
    pub(crate) async fn start(binaries: &Binaries) -> Result<Self> {
        Self::start_within(binaries, Descriptors::AsHere).await
    }

    /// As [`Site::start`], with a hub that may have so many files open.
    pub(crate) async fn start_within(binaries: &Binaries, descriptors: Descriptors) -> Result<Self> {
        let dir = Scratch::new("cluster")?;
        let cluster = EmbeddedCluster::start(dir.path(), "cluster").await?;
        let hub = Hub::start_within(binaries, descriptors).await?;
        let agent = hub.agent("store", &cluster).await?;
        Ok(Self { agent, hub, cluster, _dir: dir })
    }

    /// Makes a ConfigMap at the hub and waits for it in the cluster.
    pub(crate) async fn delivers(&self, name: &str) -> Result<()> {
        self.hub.delivers(name, &self.cluster).await
    }
}

/// An agent that keeps its health port over restarts.
pub(crate) struct Agent {
    pub(crate) process: Process,
    pub(crate) health: u16,
    pub(crate) start: Start,
    /// Last, so that the log is there when the process shows it.
    pub(crate) dir: Scratch,
}

/// With what an agent is started.
#[derive(Clone)]
pub(crate) struct Start {
    /// Of its next run.
    pub(crate) binaries: Binaries,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) token_file: PathBuf,
    pub(crate) arguments: Vec<String>,
    environment: Vec<(&'static str, OsString)>,
}

impl Agent {
    /// Starts an agent with an empty data directory.
    pub(crate) fn start(binaries: &Binaries, kubeconfig: &Path, token_file: &Path) -> Result<Self> {
        Self::start_with(binaries, kubeconfig, token_file, &[])
    }

    /// As [`Agent::start`], with some arguments more.
    pub(crate) fn start_with(
        binaries: &Binaries,
        kubeconfig: &Path,
        token_file: &Path,
        arguments: &[&str],
    ) -> Result<Self> {
        Self::start_in(binaries, kubeconfig, token_file, arguments, Vec::new())
    }

    /// As [`Agent::start_with`], in this environment.
    pub(crate) fn start_in(
        binaries: &Binaries,
        kubeconfig: &Path,
        token_file: &Path,
        arguments: &[&str],
        environment: Vec<(&'static str, OsString)>,
    ) -> Result<Self> {
        let start = Start {
            binaries: binaries.clone(),
            kubeconfig: kubeconfig.to_owned(),
            token_file: token_file.to_owned(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            environment,
        };
        let (dir, health) = (Scratch::new("agent")?, free_port()?);
        let process = start.spawn(&dir, health)?;
        Ok(Self { process, health, start, dir })
    }

    /// Begins another run on the same data directory and port. What the log says of the former is kept.
    pub(crate) fn resume(&mut self) -> Result<()> {
        self.process = self.start.spawn(&self.dir, self.health)?;
        Ok(())
    }

    /// Has every later run begin with these variables.
    pub(crate) fn environ(&mut self, environment: Vec<(&'static str, OsString)>) {
        self.start.environment = environment;
    }

    /// Waits until it knows what to keep.
    pub(crate) async fn is_ready(&mut self) -> Result<()> {
        let health = self.health;
        let ready = eventually_ok(SOON, "the agent to be ready", async || ready(health).await);
        ready.await.with_context(|| self.process.log_tail())?;
        ensure!(self.process.exit_status()?.is_none(), "somebody else serves at the agent's port");
        Ok(())
    }

    /// Waits until the log says `text`.
    pub(crate) async fn says(&self, text: &str) -> Result<()> {
        let what = format!("the agent to say {text:?}");
        eventually_ok(SOON, &what, async || {
            let log = self.process.log();
            ensure!(log.contains(text), "its log: {log}");
            Ok(())
        })
        .await
    }

    /// Waits until it lives, and says that it waits for its journal, and counts it.
    pub(crate) async fn waits_for_its_journal(&mut self) -> Result<()> {
        let health = self.health;
        let waits = eventually_ok(SOON, "the agent to wait for its journal", async || {
            let (code, body) = ask_health(health, "/readyz").await?;
            ensure!(code == 503 && body.contains("journal"), "/readyz says {code}: {body}");
            let (_, metrics) = ask_health(health, "/metrics").await?;
            ensure!(metrics.contains("tideline_agent_journal_writable 0"), "{metrics}");
            Ok(())
        });
        waits.await.with_context(|| self.process.log_tail())?;
        ensure!(ask_health(health, "/livez").await?.0 == 200, "it lives");
        ensure!(self.process.exit_status()?.is_none(), "the agent ended");
        Ok(())
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }
}

impl Start {
    pub(crate) fn spawn(&self, dir: &Scratch, health: u16) -> Result<Process> {
        let mut command = run_agent(&self.binaries, &dir.join("data"), &self.kubeconfig);
        command.arg("--token-file").arg(&self.token_file).args(["--listen", &format!("127.0.0.1:{health}")]);
        command.args(["--log-format", "text"]).args(&self.arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Ok(Process::spawn("agent", &mut command, &dir.join("log"))?.with_log_shown())
    }
}

/// `tideline-agent run`, to which the token and the health port are to be added.
pub(crate) fn run_agent(binaries: &Binaries, data_dir: &Path, kubeconfig: &Path) -> Command {
    let mut command = command(binaries.agent(), &["run"]);
    command.arg("--data-dir").arg(data_dir).arg("--kubeconfig").arg(kubeconfig);
    command
}

async fn ready(port: u16) -> Result<()> {
    let (code, body) = ask_health(port, "/readyz").await?;
    ensure!(code == 200, "/readyz says {code}: {body}");
    Ok(())
}

async fn client(kubeconfig: &Path, space: &str) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let options = KubeConfigOptions { context: Some(space.to_owned()), ..KubeConfigOptions::default() };
    Ok(Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &options).await?)?)
}

fn dynamic(client: &Client, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("tideline.dev", "v1alpha1", kind));
    Api::all_with(client.clone(), &resource)
}
