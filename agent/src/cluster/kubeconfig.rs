//! Changes of the kubeconfig after the start: its credentials do not live as long as an agent does. k3s, for one, issues
//! client certificates for a year, and writes new ones into the same file. Inside a cluster, the file with the API server's
//! authority is what changes: a cluster whose authority is replaced writes another one into the same file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kube::config::Kubeconfig;
use tideline_common::{Digest, Hasher};
use tideline_runtime::tls;
use tokio::time::sleep;
use tracing::warn;

use super::connect;
use crate::certificates::Clock;

/// How often the file, and those that it names, are checked: a few kilobytes.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// The kubeconfig that a run began with.
#[derive(Debug)]
pub struct KubeconfigFile {
    path: PathBuf,
    in_use: Option<Digest>,
    clock: Arc<Clock>,
}

impl KubeconfigFile {
    /// To be called before the client is made, so that no change between the two is missed.
    pub fn new(path: &Path, clock: Arc<Clock>) -> Self {
        Self { path: path.to_owned(), in_use: digest(path), clock }
    }

    /// Waits until it says something else that a client can be made of. A token in a file of its own is none of this: the
    /// client reads that again by itself.
    pub async fn changed(self) {
        let Self { path, in_use, clock } = self;
        let mut useless = None;
        loop {
            sleep(CHECK_EVERY).await;
            // A file that is gone or half written is checked again.
            let Some(now) = digest_of(&path).await.filter(|now| in_use != Some(*now) && useless != Some(*now)) else {
                continue;
            };
            let client = connect::connect(Some(&path), &clock).await;
            if digest_of(&path).await != Some(now) {
                // It is being written.
                continue;
            }
            match client {
                Ok(_) => return,
                Err(error) => {
                    let cause = tideline_runtime::exit::chain(&error);
                    warn!("the kubeconfig changed and cannot be used; the former stays in use: {cause}");
                    useless = Some(now);
                }
            }
        }
    }
}

/// The authority of the API server around this process, with which a run began. A client reads it once.
#[derive(Debug)]
pub struct AuthorityFile {
    path: PathBuf,
    in_use: Option<Digest>,
}

impl AuthorityFile {
    /// Where every Pod has it. To be called before the client is made.
    pub fn of_service_account() -> Self {
        Self::new(Path::new("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"))
    }

    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), in_use: authority(path) }
    }

    /// Waits until the file holds something else with a certificate in it.
    pub async fn changed(self) {
        let Self { path, in_use } = self;
        loop {
            sleep(CHECK_EVERY).await;
            let path = path.clone();
            let now = tokio::task::spawn_blocking(move || authority(&path)).await.ok().flatten();
            if now.is_some() && now != in_use {
                return;
            }
        }
    }
}

/// None where it has no certificate, or cannot be read.
fn authority(path: &Path) -> Option<Digest> {
    let pem = std::fs::read(path).ok()?;
    let certificates = tls::certificates(&pem).ok()?;
    (!certificates.is_empty()).then(|| Digest::of(&pem))
}

async fn digest_of(path: &Path) -> Option<Digest> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || digest(&path)).await.ok().flatten()
}

/// Of the file and of the certificates and keys that it names; none where one of them cannot be read.
fn digest(path: &Path) -> Option<Digest> {
    let mut hasher = Hasher::new("tideline/kubeconfig");
    hasher.field(&std::fs::read(path).ok()?);
    let kubeconfig = Kubeconfig::read_from(path).ok()?;
    let authorities = kubeconfig.clusters.into_iter().filter_map(|named| named.cluster?.certificate_authority);
    let users = kubeconfig.auth_infos.into_iter().filter_map(|named| named.auth_info);
    let credentials = users.flat_map(|user| [user.client_certificate, user.client_key]).flatten();
    for file in authorities.chain(credentials) {
        hasher.field(&std::fs::read(file).ok()?);
    }
    Some(hasher.finish())
}

#[cfg(test)]
mod tests;
