//! Several agents that live with one identity, as after a data directory or a machine was copied: how they are shown, and how
//! a person says which of them is meant to keep the cluster.

use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde::Serialize;
use serde_json::json;
use tideline_api::{AgentInstance, SyncTarget};
use tideline_common::{FIELD_MANAGER_HUB, InstanceId};

use crate::kubeconfig::RequestError;
use crate::link::core::{HolderRecord, Seen};

/// On a SyncTarget: the instance that a person wants to hold it, and when that was said. A later word replaces it; the same
/// word is heeded once.
pub const ACCEPTED_ANNOTATION: &str = "tideline.dev/accepted-instance";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no SyncTarget {0:?}; kubectl --context root get synctargets lists them")]
    NoTarget(String),
    #[error("only one agent is heard with the identity of {0}; there is nothing to choose")]
    NoDuplicate(String),
    #[error("no agent of {target} has the instance {instance}; heard are {heard}")]
    NoInstance { target: String, instance: InstanceId, heard: String },
    #[error("cannot {operation}")]
    Request { operation: &'static str, source: RequestError },
}

/// What was said.
#[derive(Clone, Debug, Serialize)]
pub struct Accepted {
    pub target: String,
    /// The one that is to hold it.
    pub instance: AgentInstance,
    /// Those that must give way.
    pub others: Vec<AgentInstance>,
}

/// All that live with one identity, the holder first; nothing if there is one.
pub fn instances(record: &HolderRecord) -> Vec<AgentInstance> {
    if record.others().is_empty() {
        return Vec::new();
    }
    let shown = |seen: &Seen, holds: bool| AgentInstance {
        id: seen.instance.id.to_string(),
        host: seen.instance.host.clone(),
        address: seen.address.clone(),
        since: i64::try_from(seen.since).ok().and_then(|at| Timestamp::from_second(at).ok()).map(Time),
        holds,
    };
    let holder = record.holder().map(|seen| shown(seen, true));
    holder.into_iter().chain(record.others().iter().map(|seen| shown(seen, false))).collect()
}

/// What a person reads of them at their SyncTarget.
pub fn describe(target: &str, instances: &[AgentInstance]) -> String {
    let mut text = "several agents live with one identity, as after its data directory was copied: ".to_owned();
    for (number, instance) in instances.iter().enumerate() {
        let AgentInstance { id, host, address, since, holds } = instance;
        let comma = if number == 0 { "" } else { "; " };
        let does = if *holds { "keeps the cluster" } else { "is frozen" };
        let at = address.as_ref().map_or_else(String::new, |address| format!(" at {address}"));
        let since = since.as_ref().map_or_else(String::new, |since| format!(" since {}", since.0));
        let _infallible = write!(text, "{comma}{id} on {host}{at} {does}{since}");
    }
    if !instances.iter().any(|instance| instance.holds) {
        text.push_str("; the one that keeps the cluster was not heard by this hub");
    }
    text + &format!(
        ". Stop those that are not meant to be, and give them an empty data directory and a token of their own; if the wrong \
         one is frozen: tideline-hub targets accept {target} --instance ID"
    )
}

/// Says that this instance is the one to keep the cluster. `root` is a client of the root space.
pub async fn accept(root: &Client, target: &str, instance: InstanceId) -> Result<Accepted, Error> {
    let failed = |operation| move |error: kube::Error| Error::Request { operation, source: error.into() };
    let api = Api::<SyncTarget>::all(root.clone());
    let found = api.get_opt(target).await.map_err(failed("look for the SyncTarget"))?;
    let found = found.ok_or_else(|| Error::NoTarget(target.to_owned()))?;
    let mut others = found.status.unwrap_or_default().instances;
    if others.is_empty() {
        return Err(Error::NoDuplicate(target.to_owned()));
    }
    let Some(at) = others.iter().position(|known| known.id == instance.to_string()) else {
        let heard: Vec<_> = others.iter().map(|known| format!("{} on {}", known.id, known.host)).collect();
        return Err(Error::NoInstance { target: target.to_owned(), instance, heard: heard.join(", ") });
    };
    let accepted = others.remove(at);
    let word = format!("{instance} {}", Timestamp::now());
    let patch = json!({"metadata": {"annotations": {ACCEPTED_ANNOTATION: word}}});
    let params = PatchParams { field_manager: Some(FIELD_MANAGER_HUB.to_owned()), ..PatchParams::default() };
    api.patch(target, &params, &Patch::Merge(&patch)).await.map_err(failed("write the SyncTarget"))?;
    Ok(Accepted { target: target.to_owned(), instance: accepted, others })
}
