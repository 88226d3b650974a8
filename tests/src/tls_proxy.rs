//! A proxy that ends TLS with a certificate of its own, as reverse proxies and load balancers do, and dials its server with
//! TLS again.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Result, anyhow};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::kubernetes::Serving;

/// A proxy on a loopback port of its own, known as `localhost` and 127.0.0.1. It stops, with all its connections, on drop.
#[derive(Debug)]
pub struct TlsProxy {
    address: SocketAddr,
    ca_pem: String,
    _stop: DropGuard,
}

impl TlsProxy {
    /// Listens, and dials `upstream` for each connection, which one of the authorities in `upstream_ca`, PEM, certifies.
    ///
    /// # Errors
    ///
    /// When there is no port or no certificate.
    pub async fn start(upstream: SocketAddr, upstream_ca: &str) -> Result<Self> {
        tideline_runtime::tls::install_provider();
        let Serving { ca_pem, certificate, key } = Serving::generate("proxy")?;
        let key = PrivateKeyDer::try_from(key).map_err(|why| anyhow!("the key is none: {why}"))?;
        let server = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate.into()], key)?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(upstream_ca.as_bytes()) {
            roots.add(certificate?)?;
        }
        let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let ends = (TlsAcceptor::from(Arc::new(server)), TlsConnector::from(Arc::new(client)));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(accept(listener, upstream, ends, stop.clone())));
        Ok(Self { address, ca_pem, _stop: stop.drop_guard() })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its authority.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }
}

async fn accept(
    listener: TcpListener,
    upstream: SocketAddr,
    ends: (TlsAcceptor, TlsConnector),
    stop: CancellationToken,
) {
    while let Ok((client, _)) = listener.accept().await {
        let (acceptor, connector) = ends.clone();
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            // A connection that breaks off is for its ends to see.
            let _ = relay(client, upstream, &acceptor, &connector).await;
        }));
    }
}

async fn relay(
    client: TcpStream,
    upstream: SocketAddr,
    acceptor: &TlsAcceptor,
    connector: &TlsConnector,
) -> io::Result<()> {
    let mut client = acceptor.accept(client).await?;
    let server = TcpStream::connect(upstream).await?;
    let mut server = connector.connect(ServerName::IpAddress(upstream.ip().into()), server).await?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}
