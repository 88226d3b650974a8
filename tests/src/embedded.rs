//! A workload cluster without anything to install: an embedded API server on a loopback port, and simulated controllers.

mod tls;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use tideline_apiserver::{ApiServer, Config, Credentials, Identity, MASTERS, SpaceConfig, Unauthenticated};
use tideline_store::SqliteStore;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use crate::Simulator;
use crate::kubernetes::Serving;

/// The one space of the server, served as if it were all there is.
const SPACE: &str = "cluster";

/// A cluster in this process. It is gone, with all it held, on drop.
///
/// It serves TLS on loopback only, since kubectl sends no token without, and knows one user, by the token in its
/// kubeconfig.
pub struct EmbeddedCluster {
    address: SocketAddr,
    kubeconfig: PathBuf,
    client: Client,
    // Dropped in this order: what speaks to the server before the server.
    _controllers: Simulator,
    _listener: DropGuard,
    _server: Arc<ApiServer>,
}

impl EmbeddedCluster {
    /// Starts a cluster and writes its kubeconfig to `<directory>/<name>.kubeconfig`. Others than its owner must not
    /// be able to read the directory.
    pub async fn start(directory: &Path, name: &str) -> Result<Self> {
        let server = ApiServer::new(SqliteStore::in_memory()?, Config::default()).await?;
        server.create_space(SPACE, SpaceConfig::default()).await?;
        let token = Uuid::new_v4().to_string();
        let router = server.router_at_root(SPACE, Arc::new(only(token.clone())));

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let serving = Serving::generate(name)?;
        let ca_pem = serving.ca_pem.clone();
        let listener = tls::Listener::new(listener, serving)?;
        let stop = CancellationToken::new();
        let served = async move { axum::serve(listener, router).await };
        tokio::spawn(stop.clone().run_until_cancelled_owned(served));

        let kubeconfig = directory.join(format!("{name}.kubeconfig"));
        write_kubeconfig(&kubeconfig, name, address, &ca_pem, &token)?;
        let read = Kubeconfig::read_from(&kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        Ok(Self {
            address,
            kubeconfig,
            _controllers: Simulator::start(client.clone()),
            client,
            _listener: stop.drop_guard(),
            _server: server,
        })
    }

    /// Returns the address of the API server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the path of the kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns a client that may do everything.
    pub fn client(&self) -> Client {
        self.client.clone()
    }
}

/// Admits requests with the token.
fn only(token: String) -> impl Fn(Credentials<'_>) -> Result<Identity, Unauthenticated> + Send + Sync {
    move |credentials| match credentials.bearer {
        Some(bearer) if bearer == token => Ok(Identity::new("admin", [MASTERS.to_owned()])),
        Some(_) | None => Err(Unauthenticated),
    }
}

fn write_kubeconfig(path: &Path, name: &str, address: SocketAddr, ca_pem: &str, token: &str) -> Result<()> {
    let ca = STANDARD.encode(ca_pem);
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {
            "server": format!("https://{address}"), "certificate-authority-data": ca,
        }}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "admin"}}],
        "current-context": name,
    });
    // JSON is YAML.
    fs::write(path, serde_json::to_vec_pretty(&kubeconfig)?).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests;
