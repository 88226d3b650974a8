//! The process that has the agents, so that what they take is told apart from what the hub takes.

use std::collections::HashMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use axum::Router;
use axum::routing::get;
use clap::Args;
use kube::config::Kubeconfig;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};
use tideline_common::signature::SigningKey;
use tideline_common::{Digest, TargetId};
use tideline_tests::client_config;
use tokio::net::TcpListener;

use crate::agent::{Agent, Counts, Fleet};
use crate::wire::Identity;

/// What the process is told.
#[derive(Args, Clone, Debug)]
pub(crate) struct Load {
    /// The hub's admin.kubeconfig, for its address and authority
    #[arg(long)]
    pub(crate) admin: PathBuf,
    /// The identities, as JSON
    #[arg(long)]
    pub(crate) identities: PathBuf,
    /// Port that tells what the agents have done
    #[arg(long)]
    pub(crate) tells: u16,
}

/// An agent's identity in the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Given {
    pub(crate) target: TargetId,
    pub(crate) seed: Digest,
}

impl Given {
    pub(crate) fn key(&self) -> SigningKey {
        SigningKey::from_seed(*self.seed.as_bytes())
    }
}

/// Runs the agents until the process is ended.
pub(crate) async fn run(load: Load) -> Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    let (hub, tls) = route(&load.admin)?;
    let identities: Vec<Given> = serde_json::from_slice(&fs::read(&load.identities)?)?;
    let fleet = Arc::new(Fleet { hub, tls, counts: Counts::default(), entries: Mutex::new(HashMap::new()) });
    for (index, given) in identities.into_iter().enumerate() {
        let identity = Identity { key: given.key(), target: given.target };
        tokio::spawn(Agent::new(Arc::clone(&fleet), identity, index).run());
    }
    let told = async move || serde_json::to_string(&fleet.counts.told()).unwrap_or_default();
    let router = Router::new().route("/", get(told));
    axum::serve(TcpListener::bind((Ipv4Addr::LOCALHOST, load.tells)).await?, router).await?;
    Ok(())
}

/// Where the hub of this kubeconfig is, and what its connections are checked by.
fn route(admin: &Path) -> Result<(SocketAddr, Arc<ClientConfig>)> {
    let kubeconfig = Kubeconfig::read_from(admin)?;
    let cluster = kubeconfig.clusters.first().and_then(|named| named.cluster.clone()).context("a cluster")?;
    let server: http::Uri = cluster.server.as_ref().context("a server")?.parse()?;
    let port = server.port_u16().context("a port")?;
    Ok((SocketAddr::from((Ipv4Addr::LOCALHOST, port)), Arc::new(client_config(&cluster, "http/1.1")?)))
}
