//! TLS with one crypto provider (ring), for whoever serves and whoever dials.

use std::sync::Arc;

use ::ring::digest::{SHA256, digest};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};

/// HTTP/1.1 alone: what the agents' link needs, and what passes every proxy.
pub const ALPN_HTTP1: &[&[u8]] = &[b"http/1.1"];
/// HTTP/2 preferred: the many watches of one Kubernetes client share a connection.
pub const ALPN_HTTP2: &[&[u8]] = &[b"h2", b"http/1.1"];

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the {what} is not valid PEM")]
    Pem {
        what: &'static str,
        #[source]
        source: pem::Error,
    },
    #[error("the {what} holds no certificate")]
    NoCertificate { what: &'static str },
    #[error("a root certificate cannot be used")]
    Root(#[source] rustls::Error),
    #[error("the authority for client certificates cannot be used")]
    ClientAuthority(#[source] VerifierBuilderError),
    #[error("the server's certificate and key cannot be used together")]
    Identity(#[source] rustls::Error),
    #[error("the crypto provider has no TLS version that is safe")]
    Versions(#[source] rustls::Error),
}

/// Makes ring the provider of this process. Must come before the first TLS configuration; doing it again does nothing.
///
/// Two providers in one process panic at the first handshake that has to choose.
pub fn install_provider() {
    if CryptoProvider::get_default().is_none() {
        // Losing a race means that another thread installed the same one.
        let _raced = ring::default_provider().install_default();
    }
}

/// What a server shows of itself.
#[derive(Debug)]
pub struct ServerIdentity {
    /// Its own certificate first, then those that lead to the root. With the root itself, clients can pin it.
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

/// Whether a server asks for client certificates.
#[derive(Debug)]
pub enum ClientCertificates {
    Ignored,
    /// A client may come without; one that shows a certificate must show one that these roots signed.
    Accepted(Vec<CertificateDer<'static>>),
}

/// Whom a client believes.
#[derive(Clone, Debug)]
pub enum ServerTrust {
    Roots(Vec<CertificateDer<'static>>),
    /// SHA-256 of certificates, any of which must follow in the chain that the server shows and then counts as its root.
    /// An enrolment token has room for this and not for a certificate.
    Pins(Vec<[u8; 32]>),
}

pub fn server_config(
    identity: ServerIdentity,
    clients: ClientCertificates,
    alpn: &[&[u8]],
) -> Result<ServerConfig, Error> {
    let ServerIdentity { chain, key } = identity;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(Error::Versions)?;
    let builder = match clients {
        ClientCertificates::Ignored => builder.with_no_client_auth(),
        ClientCertificates::Accepted(roots) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(root_store(roots)?), provider)
                .allow_unauthenticated()
                .build()
                .map_err(Error::ClientAuthority)?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(Error::Identity)?;
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

pub fn client_config(trust: ServerTrust, alpn: &[&[u8]]) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(Error::Versions)?;
    let builder = match trust {
        ServerTrust::Roots(roots) => builder.with_root_certificates(root_store(roots)?),
        ServerTrust::Pins(pins) => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(PinVerifier { pins, provider }))
        }
    };
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

/// Reads every certificate of a PEM file; `what` names it in errors.
pub fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let certificates: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|source| Error::Pem { what, source })?;
    if certificates.is_empty() {
        return Err(Error::NoCertificate { what });
    }
    Ok(certificates)
}

/// Reads the first private key of a PEM file; `what` names it in errors.
pub fn private_key(what: &'static str, pem: &[u8]) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|source| Error::Pem { what, source })
}

/// What [`ServerTrust::Pins`] compares: the SHA-256 of the whole certificate, as `openssl x509 -fingerprint -sha256`
/// prints it.
pub fn pin(certificate: &CertificateDer<'_>) -> [u8; 32] {
    digest(&SHA256, certificate).as_ref().try_into().expect("SHA-256 is 32 bytes")
}

fn root_store(roots: Vec<CertificateDer<'static>>) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(root).map_err(Error::Root)?;
    }
    Ok(store)
}

/// Believes a chain that leads to a pinned certificate which the server shows itself.
///
/// Signatures, names and dates are checked as ever: a pin replaces only the knowledge of the root.
#[derive(Debug)]
struct PinVerifier {
    pins: Vec<[u8; 32]>,
    provider: Arc<CryptoProvider>,
}

impl PinVerifier {
    fn for_chain(&self, chain: &[CertificateDer<'_>]) -> Result<Arc<WebPkiServerVerifier>, rustls::Error> {
        let mut roots = RootCertStore::empty();
        for certificate in chain.iter().filter(|certificate| self.pins.contains(&pin(certificate))) {
            roots.add(certificate.clone().into_owned())?;
        }
        // The builder's only objection can be that nothing in the chain was pinned.
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider))
            .build()
            .map_err(|_no_roots| rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))
    }
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.for_chain(intermediates)?.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
