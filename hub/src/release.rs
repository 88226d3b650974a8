//! What runs once and was assigned before history was lost: nobody knows whether it has run. A person says that it is to run.

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tideline_api::SyncTarget;
use tideline_common::{FIELD_MANAGER_HUB, Reason};

use crate::kubeconfig::RequestError;

/// On a SyncTarget: that a person lets run what may have run there, and when that was said. A later word replaces it; the
/// same word is heeded once, and means nothing of what is withheld after it.
pub const RELEASED_ANNOTATION: &str = "tideline.dev/released";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no SyncTarget {0:?}; kubectl --context root get synctargets lists them")]
    NoTarget(String),
    #[error("cannot {operation}")]
    Request { operation: &'static str, source: RequestError },
}

/// Says that what may have run at a target is to run there. `root` is a client of the root space. Returns whether anything
/// waits for it, as far as the hub has heard.
pub async fn release(root: &Client, target: &str) -> Result<bool, Error> {
    let failed = |operation| move |error: kube::Error| Error::Request { operation, source: error.into() };
    let api = Api::<SyncTarget>::all(root.clone());
    let found = api.get_opt(target).await.map_err(failed("look for the SyncTarget"))?;
    let found = found.ok_or_else(|| Error::NoTarget(target.to_owned()))?;
    let conditions = found.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let waits = conditions.iter().any(|condition| condition.type_ == Reason::MayHaveRun.as_str());
    let word = format!("{} {}", Reason::MayHaveRun, Timestamp::now());
    let patch = json!({"metadata": {"annotations": {RELEASED_ANNOTATION: word}}});
    let params = PatchParams { field_manager: Some(FIELD_MANAGER_HUB.to_owned()), ..PatchParams::default() };
    api.patch(target, &params, &Patch::Merge(&patch)).await.map_err(failed("write the SyncTarget"))?;
    Ok(waits)
}
