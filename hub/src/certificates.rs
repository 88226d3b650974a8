//! The hub's own certificate authority, and the certificate of its listener.

use std::collections::BTreeSet;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tideline_common::HubId;

/// An authority that signs one kind of certificate: that of this hub's listener. ECDSA P-256, which every TLS client
/// that matters can check.
#[derive(Debug)]
pub struct Authority {
    certificate_pem: String,
    certificate_der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
}

impl Authority {
    /// # Errors
    ///
    /// No key or certificate can be made.
    pub fn create(hub: HubId) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = name(&format!("Tideline hub {hub}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // Every clock that can be written with two digits of the year (RFC 5280, section 4.1.2.5.1) is after it: clients that
        // judge roots too, as Go and OpenSSL do, reach the hub from a machine that starts in 1970.
        params.not_before = date_time_ymd(1950, 1, 1);
        let certificate = params.self_signed(&key)?;
        Ok(Self {
            certificate_pem: certificate.pem(),
            certificate_der: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        })
    }

    /// # Errors
    ///
    /// The PEM is damaged, or key and certificate do not belong together.
    pub fn read(certificate_pem: &str, key_pem: &str) -> Result<Self, Error> {
        let key = KeyPair::from_pem(key_pem)?;
        let certificate_der = rustls_pem(certificate_pem)?;
        Ok(Self {
            certificate_pem: certificate_pem.to_owned(),
            issuer: Issuer::from_ca_cert_der(&certificate_der, key)?,
            certificate_der,
        })
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    pub fn certificate_der(&self) -> &[u8] {
        &self.certificate_der
    }

    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// TLS for a listener that is reached under these names and addresses. The certificate is made anew at each start,
    /// under a key that is never written.
    ///
    /// # Errors
    ///
    /// A name cannot be in a certificate, or TLS does not take it.
    pub fn server_config(&self, names: &BTreeSet<String>) -> Result<Arc<ServerConfig>, Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names.iter().cloned().collect::<Vec<_>>())?;
        params.distinguished_name = name("Tideline hub");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        // webpki takes no certificate of a server that begins before that.
        params.not_before = date_time_ymd(1970, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer)?;
        let chain = vec![certificate.der().clone(), self.certificate_der.clone()];
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(|why| rustls::Error::General(why.to_owned()))?;
        let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn name(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    name
}

fn rustls_pem(pem: &str) -> Result<CertificateDer<'static>, Error> {
    use rustls::pki_types::pem::PemObject;
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| rustls::Error::General(error.to_string()).into())
}
