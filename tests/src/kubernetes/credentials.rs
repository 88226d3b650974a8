//! What a cluster needs before it can trust anybody: a CA, a serving certificate, a token, keys for ServiceAccounts.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use serde_json::json;
use uuid::Uuid;

use crate::Scratch;

/// The user of the kubeconfig, a member of system:masters.
const ADMIN: &str = "admin";

/// As kubeadm and k3s issue certificates of an API server, from an hour before.
const VALID_FOR: Duration = Duration::from_hours(365 * 24);
const VALID_BEFORE: Duration = Duration::from_hours(1);

/// The files of one cluster's trust, in its directory.
#[derive(Debug)]
pub(super) struct Credentials {
    pub(super) ca_certificate: PathBuf,
    pub(super) serving_certificate: PathBuf,
    pub(super) serving_key: PathBuf,
    /// Signs the tokens of ServiceAccounts.
    pub(super) service_account_key: PathBuf,
    /// Verifies them. The API server takes the public half from a private key only in older PEM encodings.
    pub(super) service_account_public_key: PathBuf,
    pub(super) tokens: PathBuf,
    pub(super) kubeconfig: PathBuf,
}

impl Credentials {
    /// Makes new credentials for the cluster `name` at `url`, a loopback address, and writes them to `directory`.
    pub(super) fn generate(directory: &Scratch, name: &str, url: &str) -> Result<Self> {
        let files = Self {
            ca_certificate: directory.join("ca.crt"),
            serving_certificate: directory.join("apiserver.crt"),
            serving_key: directory.join("apiserver.key"),
            service_account_key: directory.join("service-accounts.key"),
            service_account_public_key: directory.join("service-accounts.pub"),
            tokens: directory.join("tokens.csv"),
            kubeconfig: directory.join("kubeconfig"),
        };
        let ca = authority(name)?;
        fs::write(&files.ca_certificate, ca.pem())?;

        let serving_key = KeyPair::generate()?;
        let serving = serving_parameters()?.signed_by(&serving_key, &ca)?;
        fs::write(&files.serving_certificate, serving.pem())?;
        fs::write(&files.serving_key, serving_key.serialize_pem())?;
        let service_accounts = KeyPair::generate()?;
        fs::write(&files.service_account_key, service_accounts.serialize_pem())?;
        fs::write(&files.service_account_public_key, service_accounts.public_key_pem())?;

        let token = Uuid::new_v4().to_string();
        fs::write(&files.tokens, format!("{token},{ADMIN},{ADMIN},system:masters\n"))?;
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority": files.ca_certificate}}],
            "users": [{"name": ADMIN, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": ADMIN}}],
            "current-context": name,
        });
        // JSON is YAML.
        fs::write(&files.kubeconfig, serde_json::to_vec_pretty(&kubeconfig)?)?;
        Ok(files)
    }
}

/// What a server on a loopback address needs to be trusted: its own certificate and key, and who signed it.
pub(crate) struct Serving {
    pub(crate) ca_pem: String,
    /// DER.
    pub(crate) certificate: Vec<u8>,
    /// PKCS #8, DER.
    pub(crate) key: Vec<u8>,
}

impl Serving {
    /// Makes a new authority, and a certificate of it for `localhost` and 127.0.0.1.
    pub(crate) fn generate(name: &str) -> Result<Self> {
        let (ca, key) = (authority(name)?, KeyPair::generate()?);
        let certificate = serving_parameters()?.signed_by(&key, &ca)?.der().to_vec();
        Ok(Self { ca_pem: ca.pem(), certificate, key: key.serialize_der() })
    }
}

fn authority(name: &str) -> Result<CertifiedIssuer<'static, KeyPair>> {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, format!("{name} CA"));
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)?)
}

fn serving_parameters() -> Result<CertificateParams> {
    let mut parameters = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    parameters.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    parameters.use_authority_key_identifier_extension = true;
    let now = date_time_ymd(1970, 1, 1) + UNIX_EPOCH.elapsed()?;
    (parameters.not_before, parameters.not_after) = (now - VALID_BEFORE, now + VALID_FOR);
    Ok(parameters)
}
