//! The one public port: TLS, HTTP/1.1 and HTTP/2. Nobody costs anything before it is known who they are.
//!
//! ```text
//!  accept ──▶ admit (connections) ──▶ TLS ──▶ HTTP ──▶ request with its Peer ──▶ link, spaces
//!                    │                                        │                      │
//!                    └─ the oldest unverified gives way       ├─ body (budget) ◀─────┘ Peer::verified
//!                                                             └─ answer, let go of if nobody reads it
//! ```
//!
//! Tasks: one that accepts, and one for each connection; hyper makes one more for each HTTP/2 request.

mod answer;
mod body;
mod budget;
mod connections;
mod descriptors;
mod peer;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustix::net::sockopt;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;
use tracing::{debug, warn};

pub(crate) use connections::{Caller, Closed, Crowded, Places, Purpose};
pub(crate) use descriptors::raise as raise_descriptors;
pub(crate) use peer::{Peer, Peers};

use crate::limits::{
    ANSWER_UNREAD_MAX, BODY_GRACE, CONNECTION_WINDOW_BYTES, CONNECTIONS_CLOSING_MAX, DRAIN, HANDSHAKE_MAX,
    HEADER_BYTES_MAX, HTTP1_BUFFER_BYTES_MAX, IDLE_MAX, PING_EVERY, PING_MAX, SEND_BUFFER_BYTES, STREAM_WINDOW_BYTES,
    STREAMS_MAX, TCP_PINGS_MAX, UNVERIFIED_MAX,
};
use answer::{Answer, Unread};
use peer::{Connected, Overdue, Patience};

/// How long to wait after the system refuses a connection, which it does when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections that are accepted before everybody else who has something to do has had a turn. After a restart all agents come
/// at once, at half a millisecond of a core each: the system keeps those that wait, and who is served is served sooner.
const ACCEPTED_AT_ONCE: u64 = 16;

/// What serves connections.
pub(crate) struct Listener {
    acceptor: TlsAcceptor,
    router: Router,
    peers: Peers,
    /// One for each connection that is open, with a few more than have a place: those that are about to close.
    open: Arc<Semaphore>,
    patience: Patience,
}

impl Listener {
    pub(crate) fn new(tls: Arc<ServerConfig>, router: Router, peers: Peers, places: Places) -> Self {
        Self {
            acceptor: TlsAcceptor::from(tls),
            router,
            peers,
            open: Arc::new(Semaphore::new(places.total() + CONNECTIONS_CLOSING_MAX)),
            patience: Patience {
                handshake: HANDSHAKE_MAX,
                unverified: UNVERIFIED_MAX,
                idle: IDLE_MAX,
                unread: ANSWER_UNREAD_MAX,
                body: BODY_GRACE,
            },
        }
    }

    /// Serves until `shutdown`, then lets requests that are under way finish.
    pub(crate) async fn serve(self, listener: TcpListener, shutdown: CancellationToken) -> Result<(), Infallible> {
        let (this, connections) = (Arc::new(self), TaskTracker::new());
        let mut accepted = 0_u64;
        while let Some((stream, from, open)) = shutdown.run_until_cancelled(this.accept(&listener)).await {
            accepted += 1;
            if accepted.is_multiple_of(ACCEPTED_AT_ONCE) {
                tokio::task::yield_now().await;
            }
            let connected = this.peers.admit(from.ip());
            let (this, shutdown) = (Arc::clone(&this), shutdown.clone());
            connections.spawn(async move {
                this.connection(stream, connected, &shutdown).await;
                drop(open);
            });
        }
        drop(listener);
        connections.close();
        connections.wait().await;
        Ok(())
    }

    async fn accept(&self, listener: &TcpListener) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
        let open = Arc::clone(&self.open).acquire_owned().await.expect("the semaphore is never closed");
        loop {
            match listener.accept().await {
                Ok((stream, from)) => return (stream, from, open),
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn connection(&self, stream: TcpStream, connected: Connected, shutdown: &CancellationToken) {
        prepare(&stream);
        let served = async {
            let shaking_hands = timeout(self.patience.handshake, self.acceptor.accept(stream));
            match shutdown.run_until_cancelled(shaking_hands).await {
                Some(Ok(Ok(stream))) => self.requests(stream, &connected, shutdown).await,
                Some(Ok(Err(error))) => debug!(%error, "a client's TLS handshake failed"),
                Some(Err(_elapsed)) => connected.is_late(),
                None => {}
            }
        };
        // Dropping what is served closes the connection, whatever is under way.
        tokio::select! {
            () = served => {}
            () = connected.gives_way().cancelled() => {}
        }
    }

    /// Serves what comes over a connection. A client that breaks off is its own affair.
    async fn requests(&self, stream: TlsStream<TcpStream>, connected: &Connected, shutdown: &CancellationToken) {
        let unread = Arc::<Unread>::default();
        let service = service_fn(|request: Request<Incoming>| {
            let peer = connected.begin();
            let (mut parts, body) = request.into_parts();
            parts.extensions.insert(peer.clone());
            let body = axum::body::Body::new(body::Body::new(body, peer.clone(), self.patience.body));
            let answer = self.router.clone().oneshot(Request::from_parts(parts, body));
            let unread = Arc::clone(&unread);
            async move { answer.await.map(|answer| answer.map(|body| Answer::new(body, peer, unread))) }
        });
        let builder = match stream.get_ref().1.alpn_protocol() {
            // To look at the first bytes of a connection for its protocol doubles the buffer that HTTP/1.1 keeps for reading.
            Some(b"http/1.1") => self.protocols().http1_only(),
            Some(_) | None => self.protocols(),
        };
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        tokio::select! {
            _ended = connection.as_mut() => return,
            overdue = connected.overdue(self.patience) => match overdue {
                Overdue::Unverified => return connected.is_late(),
                Overdue::Idle => connection.as_mut().graceful_shutdown(),
            },
            () = unread.let_go(self.patience.unread) => {}
            () = connected.leaves().cancelled() => connection.as_mut().graceful_shutdown(),
            () = shutdown.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        let _ended = timeout(DRAIN, connection).await;
    }

    fn protocols(&self) -> Builder<TokioExecutor> {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            // From the end of the former request on, so that it is also how long a verified connection may idle. One that is
            // not verified has less time in all.
            .header_read_timeout(self.patience.idle)
            .max_buf_size(HTTP1_BUFFER_BYTES_MAX);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_MAX)
            .max_concurrent_streams(STREAMS_MAX)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(HEADER_BYTES_MAX);
        builder
    }
}

/// Answers are small and waited for; and a client whose machine or line is gone says nothing any more.
fn prepare(stream: &TcpStream) {
    let _best_effort = stream.set_nodelay(true);
    // So that it is soon noticed how fast a client reads.
    let _best_effort = sockopt::set_socket_send_buffer_size(stream, SEND_BUFFER_BYTES);
    let _best_effort = sockopt::set_socket_keepalive(stream, true)
        .and_then(|()| sockopt::set_tcp_keepidle(stream, PING_EVERY))
        .and_then(|()| sockopt::set_tcp_keepintvl(stream, PING_MAX))
        .and_then(|()| sockopt::set_tcp_keepcnt(stream, TCP_PINGS_MAX));
}

#[cfg(test)]
mod tests;
