//! A proxy that ends TLS and does with requests and answers what the test says: what a peer in the middle can do that has no
//! key of hub or agent, or the stolen key of another target.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1 as client;
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tideline_common::{Authority as TokenAuthority, EnrolmentToken};
use tideline_hub::Authority;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A request, whole.
pub type Asked = Request<Bytes>;
/// An answer, whole.
pub type Answered = Response<Bytes>;

type Trick = Arc<dyn Fn(Upstream, Asked) -> BoxFuture<'static, Result<Answered>> + Send + Sync>;

/// The proxy on a loopback port of its own. It passes everything until it is told a trick, and stops on drop.
pub struct HostileProxy {
    address: SocketAddr,
    trick: Arc<Mutex<Option<Trick>>>,
    _stop: DropGuard,
}

/// The hub, as the proxy reaches it.
#[derive(Clone)]
pub struct Upstream {
    address: SocketAddr,
    connector: TlsConnector,
}

impl HostileProxy {
    /// Stands between the hub that `token` is of and whoever uses the token from now on.
    ///
    /// # Errors
    ///
    /// When there is no port, or the hub's CA in the token cannot be read.
    pub async fn start(hub: SocketAddr, token: &mut EnrolmentToken) -> Result<Self> {
        tideline_runtime::tls::install_provider();
        let mut roots = RootCertStore::empty();
        for authority in &token.authorities {
            roots.add(CertificateDer::from(authority.der().to_vec())).context("the hub's CA")?;
        }
        let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let upstream = Upstream { address: hub, connector: TlsConnector::from(Arc::new(client)) };
        let authority = Authority::create(token.hub)?;
        let acceptor = TlsAcceptor::from(authority.server_config(&["127.0.0.1".to_owned()].into())?);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        token.urls = vec![format!("https://{address}").parse()?];
        token.authorities = TokenAuthority::from_der(authority.certificate_der()).into_iter().collect();
        let (stop, trick) = (CancellationToken::new(), Arc::default());
        let accepting = accept(listener, acceptor, upstream, Arc::clone(&trick), stop.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(accepting));
        Ok(Self { address, trick, _stop: stop.drop_guard() })
    }

    /// From now on every request is answered by this.
    pub fn plays<F>(&self, trick: impl Fn(Upstream, Asked) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Result<Answered>> + Send + 'static,
    {
        let trick: Trick = Arc::new(move |upstream, asked| Box::pin(trick(upstream, asked)));
        *self.trick.lock().unwrap_or_else(PoisonError::into_inner) = Some(trick);
    }

    /// From now on everything passes as it is.
    pub fn is_honest(&self) {
        *self.trick.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Upstream {
    /// Sends a request to the hub over a connection of its own.
    ///
    /// # Errors
    ///
    /// When the hub does not answer.
    pub async fn send(&self, asked: Asked) -> Result<Answered> {
        let stream = TcpStream::connect(self.address).await?;
        let stream = self.connector.connect(ServerName::IpAddress(self.address.ip().into()), stream).await?;
        let (mut sender, connection) = client::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let response = sender.send_request(asked.map(Full::new)).await?;
        let (parts, body) = response.into_parts();
        Ok(Response::from_parts(parts, body.collect().await?.to_bytes()))
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    upstream: Upstream,
    trick: Arc<Mutex<Option<Trick>>>,
    stop: CancellationToken,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, upstream, trick) = (acceptor.clone(), upstream.clone(), Arc::clone(&trick));
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let serve = service_fn(move |request| answer(request, upstream.clone(), Arc::clone(&trick)));
            // A connection that breaks off is for its ends to see.
            let _ = server::Builder::new().serve_connection(TokioIo::new(stream), serve).await;
        }));
    }
}

async fn answer(
    request: Request<Incoming>,
    upstream: Upstream,
    trick: Arc<Mutex<Option<Trick>>>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let asked = Request::from_parts(parts, body.collect().await?.to_bytes());
    let trick = trick.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let answered = match trick {
        Some(trick) => trick(upstream, asked).await,
        None => upstream.send(asked).await,
    };
    let failed = |error: anyhow::Error| {
        let mut response = Response::new(Bytes::from(format!("{error:#}")));
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        response
    };
    Ok(answered.unwrap_or_else(failed).map(Full::new))
}

impl fmt::Debug for HostileProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, trick: _, _stop } = self;
        f.debug_struct("HostileProxy").field("address", address).finish_non_exhaustive()
    }
}
