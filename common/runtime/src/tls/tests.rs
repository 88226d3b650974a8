use std::io;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConnection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn root(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    fn issue(&self, name: &str) -> ServerIdentity {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
        ServerIdentity {
            chain: vec![certificate.der().clone(), self.root()],
            key: private_key("key", key.serialize_pem().as_bytes()).unwrap(),
        }
    }
}

/// Handshakes over a pipe and sends one byte each way; returns the negotiated protocol.
async fn handshake(server: ServerConfig, client: ClientConfig) -> io::Result<Option<Vec<u8>>> {
    let (near, far) = tokio::io::duplex(16 * 1024);
    let serve = async {
        let mut stream = TlsAcceptor::from(Arc::new(server)).accept(far).await?;
        stream.write_u8(7).await?;
        stream.flush().await?;
        let connection: &ServerConnection = stream.get_ref().1;
        io::Result::Ok(connection.alpn_protocol().map(<[u8]>::to_vec))
    };
    let dial = async {
        let name = ServerName::try_from("hub.test").unwrap();
        let mut stream = TlsConnector::from(Arc::new(client)).connect(name, near).await?;
        stream.read_u8().await
    };
    // Joined, not tried: the client's objection is what is of interest, and the server's is its consequence.
    let (served, dialled) = tokio::join!(serve, dial);
    dialled?;
    served
}

fn server(authority: &Authority, name: &str) -> ServerConfig {
    server_config(authority.issue(name), ClientCertificates::Ignored, ALPN_HTTP2).unwrap()
}

#[tokio::test]
async fn a_trusted_root_is_believed_and_the_protocol_agreed() {
    let authority = Authority::new();
    let client = client_config(ServerTrust::Roots(vec![authority.root()]), ALPN_HTTP1).unwrap();
    let protocol = handshake(server(&authority, "hub.test"), client).await.unwrap();
    assert_eq!(protocol.as_deref(), Some(b"http/1.1".as_slice()));
}

#[tokio::test]
async fn another_root_is_refused() {
    let client = client_config(ServerTrust::Roots(vec![Authority::new().root()]), ALPN_HTTP1).unwrap();
    handshake(server(&Authority::new(), "hub.test"), client).await.unwrap_err();
}

#[tokio::test]
async fn a_pinned_root_is_believed() {
    let authority = Authority::new();
    let pins = vec![[0; 32], pin(&authority.root())];
    let client = client_config(ServerTrust::Pins(pins), ALPN_HTTP1).unwrap();
    handshake(server(&authority, "hub.test"), client).await.unwrap();
}

#[tokio::test]
async fn a_chain_without_the_pin_is_refused() {
    let client = client_config(ServerTrust::Pins(vec![[0; 32]]), ALPN_HTTP1).unwrap();
    handshake(server(&Authority::new(), "hub.test"), client).await.unwrap_err();
}

#[tokio::test]
async fn a_pinned_root_shown_beside_a_foreign_certificate_is_refused() {
    let pinned = Authority::new();
    let mut identity = Authority::new().issue("hub.test");
    identity.chain.push(pinned.root());
    let server = server_config(identity, ClientCertificates::Ignored, ALPN_HTTP1).unwrap();
    let client = client_config(ServerTrust::Pins(vec![pin(&pinned.root())]), ALPN_HTTP1).unwrap();
    handshake(server, client).await.unwrap_err();
}

#[tokio::test]
async fn a_pin_does_not_replace_the_check_of_the_name() {
    let authority = Authority::new();
    let client = client_config(ServerTrust::Pins(vec![pin(&authority.root())]), ALPN_HTTP1).unwrap();
    handshake(server(&authority, "other.test"), client).await.unwrap_err();
}

#[tokio::test]
async fn a_client_may_come_without_a_certificate_where_they_are_accepted() {
    let authority = Authority::new();
    let clients = ClientCertificates::Accepted(vec![authority.root()]);
    let server = server_config(authority.issue("hub.test"), clients, ALPN_HTTP1).unwrap();
    let client = client_config(ServerTrust::Roots(vec![authority.root()]), ALPN_HTTP1).unwrap();
    handshake(server, client).await.unwrap();
}

#[test]
fn provider_is_installed_once_however_often_asked() {
    install_provider();
    install_provider();
    assert!(CryptoProvider::get_default().is_some());
}

#[test]
fn a_file_without_certificates_is_named() {
    assert_eq!(certificates("hub CA", b"hello").unwrap_err().to_string(), "the hub CA holds no certificate");
    private_key("hub key", b"hello").unwrap_err();
}

#[test]
fn certificate_and_key_that_do_not_belong_together_are_refused() {
    let authority = Authority::new();
    let identity = ServerIdentity { chain: authority.issue("a.test").chain, key: authority.issue("a.test").key };
    let error = server_config(identity, ClientCertificates::Ignored, ALPN_HTTP1).unwrap_err();
    assert!(matches!(error, Error::Identity(_)), "{error}");
}
