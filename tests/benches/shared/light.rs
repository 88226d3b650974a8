//! Many agents that cost little: each in a space of one embedded API server, which serves them as clusters of their own.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tideline_agent::{Listen, Options};
use tideline_apiserver::{ApiServer, Config, Credentials, Identity, MASTERS, SpaceConfig, Unauthenticated};
use tideline_hub::token::{self, TokenRequest};
use tideline_store::SqliteStore;
use tideline_tests::{Scratch, eventually_ok};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

/// Longest time until all agents are enrolled and heard.
const READY_MAX: Duration = Duration::from_mins(3);
/// Agents started at once.
const STARTING: usize = 8;

/// Agents at work until dropped.
pub(crate) struct LightAgents {
    _stop: DropGuard,
    agents: Vec<(String, JoinHandle<Result<(), tideline_agent::Error>>)>,
    _server: Arc<ApiServer>,
    _directory: Scratch,
}

impl LightAgents {
    /// Enrols so many agents, whose SyncTargets have `labels`, with the hub of this admin.kubeconfig.
    pub(crate) async fn start(hub: &Path, count: usize, labels: &BTreeMap<String, String>) -> Result<Self> {
        let directory = Scratch::new("light")?;
        let server = ApiServer::new(SqliteStore::in_memory()?, Config::default()).await?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let secret = Uuid::new_v4().to_string();
        let stop = CancellationToken::new();
        let mut agents = Vec::new();
        let router = server.router(Arc::new(only(secret.clone())));
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move { axum::serve(listener, router).await }));

        let started = stream::iter((0..count).map(|index| format!("light-{index:03}")))
            .map(async |name: String| {
                server.create_space(&name, SpaceConfig::default()).await?;
                let kubeconfig = directory.join(format!("{name}.kubeconfig"));
                fs::write(&kubeconfig, kubeconfig_of(&name, address, &secret))?;
                let options = options(hub, &name, labels, kubeconfig, &directory).await?;
                let run = tideline_agent::run(options, stop.clone());
                anyhow::Ok((name, tokio::spawn(run)))
            })
            .buffer_unordered(STARTING);
        agents.extend(started.try_collect::<Vec<_>>().await?);
        Ok(Self { _stop: stop.drop_guard(), agents, _server: server, _directory: directory })
    }

    /// Fails when an agent has ended: a bench with fewer would say something else than it says.
    pub(crate) fn check(&self) -> Result<()> {
        match self.agents.iter().find(|(_, run)| run.is_finished()) {
            Some((name, _)) => anyhow::bail!("the agent {name} has ended"),
            None => Ok(()),
        }
    }
}

/// Waits until so many SyncTargets are Ready.
pub(crate) async fn connected(root: &Client, count: usize) -> Result<()> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("tideline.dev", "v1alpha1", "SyncTarget"));
    let targets: Api<DynamicObject> = Api::all_with(root.clone(), &resource);
    eventually_ok(READY_MAX, "all agents to be connected", async || {
        let found = targets.list(&ListParams::default()).await?;
        let phase =
            |target: &DynamicObject| target.data.pointer("/status/phase").and_then(Value::as_str) == Some("Ready");
        let ready = found.items.iter().filter(|target| phase(target)).count();
        ensure!(ready >= count, "{ready} of {count} are ready");
        Ok(())
    })
    .await
}

/// Makes a token and returns what an agent needs to use it.
async fn options(
    hub: &Path,
    name: &str,
    labels: &BTreeMap<String, String>,
    kubeconfig: PathBuf,
    directory: &Scratch,
) -> Result<Options> {
    let request = TokenRequest {
        kubeconfig: Some(hub.to_owned()),
        name: name.to_owned(),
        labels: labels.clone(),
        expires: READY_MAX,
    };
    let token = token::create(request).await.with_context(|| format!("a token for {name}"))?;
    let token_file = directory.join(format!("{name}.token"));
    fs::write(&token_file, token.to_string())?;
    Ok(Options {
        data_dir: directory.join(name),
        kubeconfig: Some(kubeconfig),
        token_file: Some(token_file),
        hub: tideline_agent::HubAddress::default(),
        listen: Listen::Off,
        patrol: tideline_agent::PATROL_EVERY,
        events: tideline_agent::Events::On,
        own_namespace: tideline_agent::OwnNamespace::default(),
        only_namespaces: Vec::new(),
    })
}

/// Lets in whoever has the secret.
fn only(secret: String) -> impl Fn(Credentials<'_>) -> Result<Identity, Unauthenticated> + Send + Sync {
    move |credentials| match credentials.bearer {
        Some(bearer) if bearer == secret => Ok(Identity::new("admin", [MASTERS.to_owned()])),
        Some(_) | None => Err(Unauthenticated),
    }
}

fn kubeconfig_of(space: &str, address: SocketAddr, secret: &str) -> String {
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": space, "cluster": {"server": format!("http://{address}/spaces/{space}")}}],
        "users": [{"name": "admin", "user": {"token": secret}}],
        "contexts": [{"name": space, "context": {"cluster": space, "user": "admin"}}],
        "current-context": space,
    });
    // JSON is YAML.
    kubeconfig.to_string()
}
