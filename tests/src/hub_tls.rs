//! TLS to a hub, as its kubeconfig says.

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::Cluster;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Trusts the authority of this cluster alone, and speaks one protocol, by its name in ALPN: `http/1.1` or `h2`.
///
/// # Errors
///
/// There is no authority, or it cannot be read.
pub fn client_config(cluster: &Cluster, protocol: &str) -> Result<ClientConfig> {
    let authority = cluster.certificate_authority_data.as_ref().context("its authority")?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&STANDARD.decode(authority)?)?)?;
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Ok(config)
}
