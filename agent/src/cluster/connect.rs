use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, Stream};
use http::{Request, Uri};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use k8s_openapi::api::core::v1::Namespace;
use kube::client::{ClientBuilder, ConfigExt, RustlsTlsError};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Api, Client, Config};
use tideline_common::Uid;
use tideline_common::wire::v1::ClusterFacts;
use tideline_runtime::Backoff;
use tokio::time::sleep;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tracing::warn;

use super::deadlines::Deadlines;
use super::page_sizes::PageSizes;
use crate::certificates::{self, Clock, System, Unusable};

/// Longest wait for a connection to the API server, TLS included.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long a connection to the API server is kept with nothing to ask: each holds 40 to 100 KiB, and a large set leaves as
/// many as were asked on at once. The next request a while later waits for a handshake instead.
const IDLE_MAX: Duration = Duration::from_secs(15);
/// When a list is given up, and a watch that does not begin.
const DEADLINES: Deadlines = Deadlines { head: Duration::from_secs(65), part: Duration::from_secs(30) };
/// A silent connection is checked after so long, and then as often as this: a watch is silent where nothing happens, and a
/// firewall that dropped it says nothing. It is over after a minute and a half.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(15));
const KEEPALIVE_TRIES: u32 = 4;
/// Bytes of an answer that a connection reads at once, and keeps room for while it lasts: two TLS records. By itself it goes
/// up to 400 KiB for a watch that began with a long list.
const BUFFER_BYTES_MAX: usize = 32 << 10;
/// Longest wait for each of the facts.
const FACT_MAX: Duration = Duration::from_secs(15);
/// Between two questions for the facts, while they are not all answered: drawn up to the first, doubled up to around the
/// second. Nothing is changed in a cluster before it is known which one it is.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// And once they are.
const ASK_EVERY: Duration = Duration::from_hours(1);

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
    #[error("cannot set up TLS with the API server {server}; see the certificate-authority of its kubeconfig")]
    Tls { server: String, source: Unusable },
}

/// Named as every cluster's proxy before the kubeconfig is taken apart: otherwise that fails where HTTPS_PROXY, which is
/// for the way to the hub, is no URL.
const UNUSED_PROXY: &str = "http://unused.invalid";

/// Makes a client of the API server that `kubeconfig` names, or of the one around this process. Dials nothing yet.
///
/// No proxy is ever used, and nothing is retried: when to try again is the core's to say.
///
/// # Errors
///
/// The kubeconfig cannot be read or used, or there is none and this process runs in no cluster.
pub async fn connect(kubeconfig: Option<&Path>, clock: &Arc<Clock>) -> Result<Client, Error> {
    let mut config = match kubeconfig {
        Some(path) => {
            let unreadable = |error| match error {
                KubeconfigError::Parse(_) => Error::NotAKubeconfig { path: path.to_owned() },
                source => Error::Kubeconfig { path: path.to_owned(), source },
            };
            let mut kubeconfig = Kubeconfig::read_from(path).map_err(unreadable)?;
            for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
                if cluster.proxy_url.replace(UNUSED_PROXY.to_owned()).is_some() {
                    warn!(?path, "the proxy-url of the kubeconfig is ignored: the agent dials its API server itself");
                }
            }
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(unreadable)?
        }
        None => Config::incluster().map_err(Error::InCluster)?,
    };
    config.proxy_url = None;
    let server = config.cluster_url.to_string();
    client(config, IDLE_MAX, DEADLINES, clock).map_err(|error| match error {
        SetupError::Kube(source) => Error::Client { server, source: Box::new(source) },
        SetupError::Tls(source) => Error::Tls { server, source },
    })
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
enum SetupError {
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error(transparent)]
    Tls(#[from] Unusable),
}

/// As kube makes one, less what the agent does itself (retries, traces); kube's own never closes a connection.
fn client(config: Config, idle: Duration, deadlines: Deadlines, clock: &Arc<Clock>) -> Result<Client, SetupError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_keepalive(Some(KEEPALIVE.0));
    tcp.set_keepalive_interval(Some(KEEPALIVE.1));
    tcp.set_keepalive_retries(Some(KEEPALIVE_TRIES));
    let tls = https(&config, tcp, clock)?;
    let connector = service_fn(move |uri: Uri| {
        let connection = tls.clone().oneshot(uri);
        async {
            let late = |_elapsed| io::Error::new(io::ErrorKind::TimedOut, "the API server cannot be reached in time");
            tokio::time::timeout(CONNECT_MAX, connection).await.map_err(late)?
        }
        .boxed()
    });
    let pool: legacy::Client<_, kube::client::Body> = legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(idle)
        .http1_max_buf_size(BUFFER_BYTES_MAX)
        .build(connector);
    let page_sizes = Arc::<PageSizes>::default();
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .service(service_fn(move |request: Request<kube::client::Body>| {
            let (pool, page_sizes) = (pool.clone(), Arc::clone(&page_sizes));
            async move {
                let send = |request: Request<_>| deadlines.bound(request.uri().clone(), pool.request(request));
                page_sizes.fit(request, send).await
            }
        }));
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

/// As kube makes one, except for the certificates that are accepted. That the cluster replaced its authority is noticed by
/// [`AuthorityFile`](super::AuthorityFile).
fn https(config: &Config, tcp: HttpConnector, clock: &Arc<Clock>) -> Result<HttpsConnector<HttpConnector>, SetupError> {
    let mut tls = config.rustls_client_config()?;
    if !config.accept_invalid_certs {
        let (pinned, system) = match &config.root_cert {
            Some(pinned) => (&pinned[..], System::Untrusted),
            None => (&[][..], System::Trusted),
        };
        certificates::verify_by(&mut tls, pinned, system, clock)?;
    }
    let mut connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name =
            name.clone().try_into().map_err(RustlsTlsError::InvalidServerName).map_err(kube::Error::RustlsTls)?;
        connector = connector.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    Ok(connector.enable_http1().wrap_connector(tcp))
}

/// Asks the cluster for its identity, and returns whether every question was answered. Unanswered facts stay empty: an agent
/// that knows what to keep starts without its API server too. A forbidden question counts as answered; any other refusal does
/// not, for it may be of an API server that is starting, has no time, or of somebody on the way to it.
pub async fn facts(client: &Client) -> (ClusterFacts, Answers) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let (namespace, version) =
        tokio::join!(answered(namespaces.get_metadata("kube-system")), answered(client.apiserver_version()));
    let why = namespace.as_ref().err().or(version.as_ref().err()).cloned();
    let namespace = namespace.ok().flatten();
    let facts = ClusterFacts {
        cluster: namespace.and_then(|it| Uid::try_from(it.metadata.uid?).ok()),
        kubernetes_version: version.ok().flatten().map(|version| version.git_version).unwrap_or_default(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    (facts, why.map_or(Answers::All, Answers::Missing))
}

/// What the cluster says of itself from now on: it is asked again an hour after it answered all, for it may be upgraded, and
/// soon where it did not, or had not `answered` before.
pub fn facts_from_now(client: Client, answered: bool) -> impl Stream<Item = ClusterFacts> + Send {
    futures::stream::unfold((client, answered), |(client, answered)| async move {
        let mut backoff = Backoff::new(ASK_AGAIN.0, ASK_AGAIN.1);
        let mut wait = if answered { ASK_EVERY } else { backoff.next_delay(None) };
        loop {
            sleep(wait).await;
            if let (facts, Answers::All) = facts(&client).await {
                return Some((facts, (client, true)));
            }
            wait = backoff.next_delay(None);
        }
    })
}

/// Whether the API server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answers {
    All,
    /// Why not.
    Missing(String),
}

async fn answered<T>(asked: impl Future<Output = Result<T, kube::Error>>) -> Result<Option<T>, String> {
    match tokio::time::timeout(FACT_MAX, asked).await {
        Ok(Ok(answer)) => Ok(Some(answer)),
        // In the API server's own words: a proxy says 403 otherwise.
        Ok(Err(kube::Error::Api(status))) if status.code == 403 && status.reason == "Forbidden" => Ok(None),
        Ok(Err(error)) => Err(tideline_runtime::exit::chain(&error)),
        Err(_elapsed) => Err("the API server does not answer".to_owned()),
    }
}

#[cfg(test)]
mod tests;
