//! The one TLS and crypto provider, and what it makes of certificates of authorities.

use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};

/// Makes ring the provider of this process. Must come before the first TLS configuration; doing it again does nothing.
///
/// Two providers in one process panic at the first handshake that has to choose.
pub fn install_provider() {
    if CryptoProvider::get_default().is_none() {
        // Losing a race means that another thread installed the same one.
        let _raced = ring::default_provider().install_default();
    }
}

/// A certificate in a PEM text is cut or damaged.
#[derive(Debug, thiserror::Error)]
#[error("a certificate in it is cut or damaged")]
pub struct DamagedPem(#[source] pem::Error);

/// TLS cannot use a certificate as that of an authority.
#[derive(Debug, thiserror::Error)]
#[error("TLS cannot read it as the certificate of an authority")]
pub struct UnusableAuthority(#[source] rustls::Error);

/// The certificates of a PEM text, DER, in their order. Other sections and text between them are ignored.
///
/// # Errors
///
/// A certificate in it is cut or no base64.
pub fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, DamagedPem> {
    let parsed = CertificateDer::pem_slice_iter(pem).map(|certificate| certificate.map(|it| it.as_ref().to_vec()));
    parsed.collect::<Result<_, _>>().map_err(DamagedPem)
}

/// Whether TLS can use this certificate, DER, as that of an authority. One certificate that it cannot use makes a client that
/// is to trust it fail as a whole.
///
/// # Errors
///
/// TLS cannot use it.
pub fn check_authority(der: &[u8]) -> Result<(), UnusableAuthority> {
    RootCertStore::empty().add(CertificateDer::from(der)).map_err(UnusableAuthority)
}

#[cfg(test)]
mod tests;
