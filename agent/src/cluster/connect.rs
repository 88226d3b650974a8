use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Api, Client, Config};
use tideline_common::Uid;
use tideline_common::wire::v1::ClusterFacts;

/// Longest wait for a connection to the API server.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Longest wait for each of the facts.
const FACT_MAX: Duration = Duration::from_secs(15);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read the kubeconfig {path:?}; give a readable one with --kubeconfig")]
    Kubeconfig { path: PathBuf, source: KubeconfigError },
    /// Without the cause: that quotes the file, and the file may be a token.
    #[error("{path:?} is no kubeconfig; give that of the cluster to keep with --kubeconfig")]
    NotAKubeconfig { path: PathBuf },
    #[error("this is not running inside a cluster; give --kubeconfig")]
    InCluster(#[source] kube::config::InClusterError),
    #[error("cannot set up the client of the API server {server}")]
    Client { server: String, source: Box<kube::Error> },
}

/// Makes a client of the API server that `kubeconfig` names, or of the one around this process. Dials nothing yet.
///
/// No proxy is ever used, and nothing is retried: when to try again is the core's to say.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, Error> {
    let mut config = match kubeconfig {
        Some(path) => {
            let unreadable = |error| match error {
                KubeconfigError::Parse(_) => Error::NotAKubeconfig { path: path.to_owned() },
                source => Error::Kubeconfig { path: path.to_owned(), source },
            };
            let kubeconfig = Kubeconfig::read_from(path).map_err(unreadable)?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(unreadable)?
        }
        None => Config::incluster().map_err(Error::InCluster)?,
    };
    config.proxy_url = None;
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_MAX);
    let server = config.cluster_url.to_string();
    Client::try_from(config).map_err(|error| Error::Client { server, source: Box::new(error) })
}

/// Asks the cluster who it is. What it does not say now stays empty: an agent starts without its API server too.
pub async fn facts(client: &Client) -> ClusterFacts {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let (namespace, version) = tokio::join!(
        tokio::time::timeout(FACT_MAX, namespaces.get_metadata("kube-system")),
        tokio::time::timeout(FACT_MAX, client.apiserver_version()),
    );
    ClusterFacts {
        cluster: namespace.ok().and_then(Result::ok).and_then(|it| Uid::try_from(it.metadata.uid?).ok()),
        kubernetes_version: version.ok().and_then(Result::ok).map(|version| version.git_version).unwrap_or_default(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}
