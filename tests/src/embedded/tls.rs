//! TLS below axum, on loopback.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::kubernetes::Serving;

/// Longest handshake. They come one after the other, which is no harm among clients of one machine; a client that
/// stalls holds the others up for this long.
const HANDSHAKE_MAX: Duration = Duration::from_secs(2);

/// Accepts connections whose handshake succeeded.
pub(super) struct Listener {
    inner: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener {
    pub(super) fn new(inner: TcpListener, serving: Serving) -> Result<Self> {
        tideline_runtime::tls::install_provider();
        let key = PrivateKeyDer::try_from(serving.key).map_err(|why| anyhow!("the key is none: {why}"))?;
        let mut config =
            ServerConfig::builder().with_no_client_auth().with_single_cert(vec![serving.certificate.into()], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { inner, acceptor: TlsAcceptor::from(Arc::new(config)) })
    }
}

impl axum::serve::Listener for Listener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            // axum's own accept says nothing of errors either: it waits until the process has files again.
            let (connection, address) = axum::serve::Listener::accept(&mut self.inner).await;
            // Watch events are small and must not wait for each other.
            let _best_effort = connection.set_nodelay(true);
            if let Ok(Ok(stream)) = timeout(HANDSHAKE_MAX, self.acceptor.accept(connection)).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.inner.local_addr()
    }
}
