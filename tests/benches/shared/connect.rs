//! Clients by the kubeconfig that a hub writes.

use std::path::Path;

use anyhow::Result;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};

/// A client of a space, by the hub's admin.kubeconfig.
pub(crate) async fn connect(admin: &Path, space: &str) -> Result<Client> {
    let options = KubeConfigOptions { context: Some(space.to_owned()), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(Kubeconfig::read_from(admin)?, &options).await?;
    let client = Client::try_from(config)?;
    client.apiserver_version().await?;
    Ok(client)
}
