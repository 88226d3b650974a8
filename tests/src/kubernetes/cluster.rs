//! One real cluster: its servers, started, watched while they start, and stopped.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};

use super::credentials::Credentials;
use super::{Assets, Kubectl};
use crate::{Process, Scratch, eventually, free_port};

/// Longest start of one server. Five seconds are usual; builds may share the machine.
const READY_MAX: Duration = Duration::from_mins(2);

/// Starts tried when a port was taken between its choice and its use.
const STARTS_MAX: usize = 3;

/// What to start, and how.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Names the cluster in its kubeconfig and its logs.
    pub name: String,
    /// Runs the controllers too: Deployments get ReplicaSets, namespaces empty, owners collect their garbage.
    /// Without, the API server alone starts sooner, and nothing changes by itself.
    pub controller_manager: bool,
    /// Further arguments of kube-apiserver; a later one of the same name wins.
    pub apiserver_arguments: Vec<String>,
    /// The same of kube-controller-manager.
    pub controller_manager_arguments: Vec<String>,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            name: "cluster".to_owned(),
            controller_manager: false,
            apiserver_arguments: Vec::new(),
            controller_manager_arguments: Vec::new(),
        }
    }
}

/// A running cluster. Its processes are killed and its directory removed on drop.
///
/// Logs go to that directory, or to `TIDELINE_LOG_DIR` if set, where they stay.
pub struct Cluster {
    // Dropped in this order: clients before what they speak to, the directory last.
    controller_manager: Option<Process>,
    apiserver: Process,
    etcd: Process,
    client: Client,
    kubectl: Kubectl,
    layout: Layout,
}

impl Cluster {
    /// Starts a cluster and returns when it is ready: `/readyz` is ok and, with controllers, they have made the
    /// `default` ServiceAccount, without which no Pod is admitted.
    ///
    /// # Errors
    ///
    /// When a server ends or is not ready in time; the message carries the end of its log.
    pub async fn start(assets: &Assets, options: ClusterOptions) -> Result<Self> {
        tideline_runtime::tls::install_provider();
        let mut attempt = 1;
        loop {
            match Self::start_once(assets, &options).await {
                Err(error) if attempt < STARTS_MAX && is_port_conflict(&error) => attempt += 1,
                outcome => return outcome.with_context(|| format!("starting the cluster {}", options.name)),
            }
        }
    }

    async fn start_once(assets: &Assets, options: &ClusterOptions) -> Result<Self> {
        let layout = Layout::new(assets, options)?;
        let mut etcd = layout.start_etcd()?;
        until(&mut etcd, async || TcpStream::connect(loopback(layout.etcd_port)).is_ok()).await?;

        let mut apiserver = layout.start_apiserver()?;
        let client = client(&layout.credentials.kubeconfig).await?;
        until(&mut apiserver, async || is_ready(&client).await).await?;

        let controller_manager = if options.controller_manager {
            let mut process = layout.start_controller_manager()?;
            let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
            until(&mut process, async || accounts.get("default").await.is_ok()).await?;
            Some(process)
        } else {
            None
        };
        let kubectl = assets.kubectl(&layout.credentials.kubeconfig)?;
        Ok(Self { controller_manager, apiserver, etcd, client, kubectl, layout })
    }

    /// Returns the path of a kubeconfig with one context and all rights.
    pub fn kubeconfig_path(&self) -> &Path {
        &self.layout.credentials.kubeconfig
    }

    /// Returns the URL of the API server.
    pub fn url(&self) -> &str {
        &self.layout.url
    }

    /// Returns the address of the API server, for a [`Relay`](crate::Relay).
    pub fn address(&self) -> SocketAddr {
        loopback(self.layout.apiserver_port)
    }

    /// Returns a client with all rights.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns kubectl with all rights.
    pub fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// Freezes the API server: connections stay open and silent.
    pub fn pause(&self) -> Result<()> {
        self.apiserver.pause()
    }

    /// Lets a frozen API server go on.
    pub fn resume(&self) -> Result<()> {
        self.apiserver.resume()
    }

    /// Kills the API server: connections break and new ones are refused. Data stays.
    pub fn stop_apiserver(&mut self) -> Result<()> {
        self.apiserver.kill()
    }

    /// Starts the API server again, at the same address, and returns when it is ready.
    pub async fn restart_apiserver(&mut self) -> Result<()> {
        self.apiserver.kill()?;
        self.apiserver = self.layout.start_apiserver()?;
        until(&mut self.apiserver, async || is_ready(&self.client).await).await
    }

    /// Returns the processor time that all servers of the cluster used so far.
    pub fn cpu_time(&self) -> Result<Duration> {
        let controllers = self.controller_manager.as_ref().map_or(Ok(Duration::ZERO), Process::cpu_time)?;
        Ok(self.etcd.cpu_time()? + self.apiserver.cpu_time()? + controllers)
    }
}

/// What stays the same when a server is restarted.
#[derive(Debug)]
struct Layout {
    assets: Assets,
    options: ClusterOptions,
    etcd_port: u16,
    apiserver_port: u16,
    url: String,
    credentials: Credentials,
    logs: PathBuf,
    directory: Scratch,
}

impl Layout {
    fn new(assets: &Assets, options: &ClusterOptions) -> Result<Self> {
        let directory = Scratch::new(&options.name)?;
        let apiserver_port = free_port()?;
        let url = format!("https://{}", loopback(apiserver_port));
        let credentials = Credentials::generate(&directory, &options.name, &url)?;
        let logs = match env::var_os("TIDELINE_LOG_DIR") {
            // The port tells clusters of one name apart.
            Some(kept) => Path::new(&kept).join(format!("{}-{apiserver_port}", options.name)),
            None => directory.join("logs"),
        };
        fs::create_dir_all(&logs)?;
        Ok(Self {
            assets: assets.clone(),
            options: options.clone(),
            etcd_port: free_port()?,
            apiserver_port,
            url,
            credentials,
            logs,
            directory,
        })
    }

    fn start_etcd(&self) -> Result<Process> {
        let url = format!("http://{}", loopback(self.etcd_port));
        self.spawn("etcd", |command| {
            command
                .arg(format!("--data-dir={}", self.directory.join("etcd").display()))
                .arg(format!("--listen-client-urls={url}"))
                .arg(format!("--advertise-client-urls={url}"))
                // Nobody joins a single member, so its peer port may be any.
                .arg("--listen-peer-urls=http://127.0.0.1:0")
                .args(["--unsafe-no-fsync", "--log-level=warn"]);
        })
    }

    fn start_apiserver(&self) -> Result<Process> {
        let credentials = &self.credentials;
        self.spawn("kube-apiserver", |command| {
            command
                .arg(format!("--etcd-servers=http://{}", loopback(self.etcd_port)))
                .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
                .arg(format!("--secure-port={}", self.apiserver_port))
                .arg(format!("--tls-cert-file={}", credentials.serving_certificate.display()))
                .arg(format!("--tls-private-key-file={}", credentials.serving_key.display()))
                .arg(format!("--cert-dir={}", self.directory.path().display()))
                .arg(format!("--token-auth-file={}", credentials.tokens.display()))
                .arg("--service-account-issuer=https://kubernetes.default.svc")
                .arg(format!("--service-account-key-file={}", credentials.service_account_public_key.display()))
                .arg(format!("--service-account-signing-key-file={}", credentials.service_account_key.display()))
                .args(["--authorization-mode=RBAC", "--allow-privileged=true"])
                .arg("--service-cluster-ip-range=10.96.0.0/16")
                // A loopback address is no valid endpoint; the reconciler would only log that.
                .arg("--endpoint-reconciler-type=none");
            if !self.options.controller_manager {
                // It waits for ServiceAccounts that only a controller makes.
                command.arg("--disable-admission-plugins=ServiceAccount");
            }
            command.args(&self.options.apiserver_arguments);
        })
    }

    fn start_controller_manager(&self) -> Result<Process> {
        let credentials = &self.credentials;
        self.spawn("kube-controller-manager", |command| {
            command
                .arg(format!("--kubeconfig={}", credentials.kubeconfig.display()))
                .arg(format!("--root-ca-file={}", credentials.ca_certificate.display()))
                .arg(format!("--service-account-private-key-file={}", credentials.service_account_key.display()))
                .args(["--leader-elect=false", "--secure-port=0"])
                // The defaults (20, 30) would make the controllers, not what is under test, the slowest part.
                .args(["--kube-api-qps=1000", "--kube-api-burst=2000"])
                .args(&self.options.controller_manager_arguments);
        })
    }

    fn spawn(&self, name: &str, arguments: impl FnOnce(&mut Command)) -> Result<Process> {
        let mut command = Command::new(self.assets.binary(name));
        arguments(command.current_dir(self.directory.path()));
        let log = self.logs.join(format!("{name}.log"));
        Process::spawn(&format!("{name} of {}", self.options.name), &mut command, &log)
    }
}

/// Waits until `ready` holds, or fails at once when `process` ends.
async fn until(process: &mut Process, mut ready: impl AsyncFnMut() -> bool) -> Result<()> {
    let outcome = eventually(READY_MAX, "it to be ready", async || match process.exit_status() {
        Ok(None) => ready().await.then_some(Ok(())),
        Ok(Some(status)) => Some(Err(anyhow!("it ended: {status}"))),
        Err(error) => Some(Err(error)),
    });
    match outcome.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) | Err(error) => bail!("{error:#}\n{}", process.log_tail()),
    }
}

async fn is_ready(client: &Client) -> bool {
    let request = http::Request::get("/readyz").body(Vec::new()).expect("a constant path is a valid request");
    client.request_text(request).await.is_ok_and(|body| body == "ok")
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Both Go servers quote the operating system's words for EADDRINUSE in their last lines.
fn is_port_conflict(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains("address already in use")
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
