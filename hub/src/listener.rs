//! The one public port: TLS, HTTP/1.1 and HTTP/2, bounded in connections.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

/// Connections served at once: 10,000 agents (DESIGN §10) with a long poll and a report each, at HTTP/1.1.
const CONNECTIONS_MAX: usize = 20_000;
/// How long a client may take for its handshake, and for the head of each request.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long requests that are under way may take once the hub stops; watches would take for ever.
const DRAIN: Duration = Duration::from_secs(3);
/// How long to wait after the system refuses a connection, which it does when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown`, then lets requests that are under way finish.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    router: Router,
    shutdown: CancellationToken,
) -> Result<(), Infallible> {
    let acceptor = TlsAcceptor::from(tls);
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let connections = TaskTracker::new();
    while let Some((stream, place)) = shutdown.run_until_cancelled(accept(&listener, &places)).await {
        let (acceptor, router, shutdown) = (acceptor.clone(), router.clone(), shutdown.clone());
        connections.spawn(async move {
            connection(stream, &acceptor, router, &shutdown).await;
            drop(place);
        });
    }
    drop(listener);
    connections.close();
    connections.wait().await;
    Ok(())
}

async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> (TcpStream, OwnedSemaphorePermit) {
    let place = Arc::clone(places).acquire_owned().await.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, place),
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, acceptor: &TlsAcceptor, router: Router, shutdown: &CancellationToken) {
    // Answers are small and waited for.
    let _best_effort = stream.set_nodelay(true);
    let stream = match timeout(PATIENCE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            debug!(%error, "a client's TLS handshake failed");
            return;
        }
        Err(_elapsed) => return,
    };
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    builder.http2().timer(TokioTimer::new());
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(connection);
    // A client that breaks off is its own affair.
    tokio::select! {
        _ended = connection.as_mut() => return,
        () = shutdown.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ended = timeout(DRAIN, connection).await;
}
