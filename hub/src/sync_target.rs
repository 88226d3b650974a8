//! The SyncTarget that an administrator names, from wherever a kubeconfig is: found, and annotated.

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tideline_api::SyncTarget;
use tideline_common::FIELD_MANAGER_HUB;

use crate::kubeconfig::RequestError;

/// How often what is written to a SyncTarget is decided anew because others write it at the same moment. The hub writes one
/// once in a while.
pub(crate) const ATTEMPTS_MAX: usize = 5;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no SyncTarget {0:?}; kubectl --context root get synctargets lists them")]
    NoTarget(String),
    #[error("cannot {operation}")]
    Request { operation: &'static str, source: RequestError },
}

/// `root` is a client of the root space.
pub(crate) async fn find(root: &Client, name: &str) -> Result<SyncTarget, Error> {
    let found = Api::<SyncTarget>::all(root.clone()).get_opt(name).await;
    let found = found.map_err(|error| Error::Request { operation: "read the SyncTarget", source: error.into() })?;
    found.ok_or_else(|| Error::NoTarget(name.to_owned()))
}

/// Writes the annotations that are decided upon a SyncTarget as it is, and returns it as it is then; null takes one away.
/// Decides again where it was written meanwhile, as the hub itself does when its agent comes or goes.
pub(crate) async fn annotate<E: From<Error>>(
    root: &Client,
    name: &str,
    operation: &'static str,
    decide: impl Fn(&SyncTarget) -> Result<Value, E>,
) -> Result<SyncTarget, E> {
    let api = Api::<SyncTarget>::all(root.clone());
    let params = PatchParams { field_manager: Some(FIELD_MANAGER_HUB.to_owned()), ..PatchParams::default() };
    let mut attempts = 1;
    loop {
        let target = find(root, name).await?;
        let version = target.resource_version();
        let patch = json!({"metadata": {"resourceVersion": version, "annotations": decide(&target)?}});
        match api.patch(name, &params, &Patch::Merge(&patch)).await {
            Err(kube::Error::Api(status)) if status.code == 409 && attempts < ATTEMPTS_MAX => attempts += 1,
            patched => return patched.map_err(|error| Error::Request { operation, source: error.into() }.into()),
        }
    }
}
