//! Several agents that live with one identity, as after a data directory or a machine was copied: how they are shown, and how
//! a person says which of them is meant to keep the cluster.

use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use serde::Serialize;
use tideline_api::{AgentInstance, SyncTarget};
use tideline_common::InstanceId;

use crate::link::core::{HolderRecord, Seen};
use crate::printable::printable;
use crate::sync_target::{self, annotate};

/// On a SyncTarget: the instance that a person wants to hold it, and when that was said. A later word replaces it; the same
/// word is heeded once.
pub const ACCEPTED_ANNOTATION: &str = "tideline.dev/accepted-instance";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    SyncTarget(#[from] sync_target::Error),
    #[error("only one agent is heard with the identity of {0}; there is nothing to choose")]
    NoDuplicate(String),
    #[error("no agent of {target} has the ID {instance}; give --instance one of: {heard}")]
    NoInstance { target: String, instance: InstanceId, heard: String },
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
        ". Stop those that are not meant to be, and give them an empty data directory, no identity Secret and a token of another \
         name; if the wrong one is frozen: tideline-hub targets accept {target} --instance ID"
    )
}

/// Says that this instance is the one to keep the cluster. `root` is a client of the root space.
///
/// # Errors
///
/// There is no such SyncTarget or instance, or the request failed.
pub async fn accept(root: &Client, target: &str, instance: InstanceId) -> Result<Accepted, Error> {
    let word = format!("{instance} {}", Timestamp::now());
    let say = |found: &SyncTarget| {
        choose(target, found, instance)?;
        Ok::<_, Error>([(ACCEPTED_ANNOTATION, Some(word.clone()))].into())
    };
    let annotated = annotate(root, target, "write the choice to the SyncTarget", say).await?;
    let chosen = choose(target, &annotated, instance);
    if chosen.is_err() {
        // It was heard no more in between: who is told so is not to find later that it was chosen all the same.
        let taken_back = |_: &SyncTarget| Ok::<_, Error>([(ACCEPTED_ANNOTATION, None)].into());
        annotate(root, target, "take back the choice", taken_back).await?;
    }
    chosen
}

/// The one that has this ID among those that the SyncTarget shows.
fn choose(target: &str, found: &SyncTarget, instance: InstanceId) -> Result<Accepted, Error> {
    let mut others = found.status.as_ref().map(|status| status.instances.clone()).unwrap_or_default();
    if others.is_empty() {
        return Err(Error::NoDuplicate(target.to_owned()));
    }
    let Some(at) = others.iter().position(|known| known.id == instance.to_string()) else {
        let heard: Vec<_> = others.iter().map(|known| format!("{} on {}", known.id, known.host)).collect();
        let heard = printable(&heard.join(", "));
        return Err(Error::NoInstance { target: target.to_owned(), instance, heard });
    };
    let accepted = others.remove(at);
    Ok(Accepted { target: target.to_owned(), instance: accepted, others })
}

#[cfg(test)]
mod tests;
