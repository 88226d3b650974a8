//! The workload clusters: embedded ones, or clusters of the user.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use tideline_tests::EmbeddedCluster;

use crate::manifests::NAMESPACE;

/// A workload cluster, as its agent sees it.
pub(crate) struct Cluster {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) client: Client,
    /// What is behind all this, if it is ours; it lives as long as it is held.
    _embedded: Option<EmbeddedCluster>,
}

impl Cluster {
    /// Starts an embedded cluster for each name, and writes its kubeconfig into `directory`.
    pub(crate) async fn embedded(directory: &Path, names: &[&str]) -> Result<Vec<Self>> {
        let mut clusters = Vec::new();
        for name in names {
            let embedded = EmbeddedCluster::start(directory, name)
                .await
                .with_context(|| format!("starting the cluster {name}"))?;
            clusters.push(Self {
                name: (*name).to_owned(),
                address: format!("https://{}", embedded.address()),
                kubeconfig: embedded.kubeconfig().to_owned(),
                client: embedded.client(),
                _embedded: Some(embedded),
            });
        }
        Ok(clusters)
    }

    /// Takes clusters that exist.
    ///
    /// # Errors
    ///
    /// When one cannot be reached, or already has the namespace that the application is to be in.
    pub(crate) async fn given(kubeconfigs: &[PathBuf]) -> Result<Vec<Self>> {
        let mut clusters = Vec::new();
        for (index, path) in kubeconfigs.iter().enumerate() {
            let cluster = Self::take(format!("cluster-{}", index + 1), path)
                .await
                .with_context(|| format!("using the cluster of {}", path.display()))?;
            clusters.push(cluster);
        }
        Ok(clusters)
    }

    async fn take(name: String, path: &Path) -> Result<Self> {
        let (client, address) = connect(path, None).await?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        if namespaces.get_opt(NAMESPACE).await?.is_some() {
            bail!("it already has a namespace {NAMESPACE}, which this would fill; delete it, or give another cluster");
        }
        Ok(Self { name, address, kubeconfig: path.to_owned(), client, _embedded: None })
    }
}

/// Returns a client of the cluster, or of one `context`, that a kubeconfig names, and the address of its server.
pub(crate) async fn connect(kubeconfig: &Path, context: Option<&str>) -> Result<(Client, String)> {
    let read = Kubeconfig::read_from(kubeconfig)?;
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let config = kube::Config::from_custom_kubeconfig(read, &options).await?;
    let address = config.cluster_url.to_string();
    Ok((Client::try_from(config)?, address))
}
