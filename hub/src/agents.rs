//! `agents`: every agent that the hub knows, those of deleted SyncTargets too, read as Kubernetes objects of the root space; and
//! what is done about them, from wherever an administrator's kubeconfig is.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Preconditions};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde::{Deserialize, Serialize};
use tideline_api::SyncTarget;
use tideline_apiserver::Deletion;
use tideline_common::rollup::Freshness;
use tideline_common::{Monotonic, TargetId};

use crate::engine::{Engine, RememberedTarget};
use crate::enrol::{
    ADOPTS_ANNOTATION, AGENT_KEY_ANNOTATION, CLUSTER_ANNOTATION, REVOKED_KEYS_ANNOTATION, adopts, with_revoked,
};
use crate::kubeconfig::RequestError;
use crate::last_contact::{self, whole_seconds};
use crate::shared::Shared;
use crate::sync_target::{self, FORCE_ANNOTATION, annotate, find};
use crate::virtual_resources::{self, ColumnText, GROUP, RootKind, Unreadable, VERSION};

const KIND: &str = "Agent";
const PLURAL: &str = "agents";
/// How long after its agent's last word a SyncTarget without the key counts as at work, and how long after the hub's start one
/// that was not heard yet does: as long as one that was heard is fresh.
const AT_WORK_FOR: Duration = Duration::from_mins(2);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {operation}")]
    Request { operation: &'static str, source: RequestError },
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error(transparent)]
    SyncTarget(#[from] sync_target::Error),
    #[error("SyncTarget {0} has no agent")]
    NoAgent(String),
    #[error(
        "SyncTarget {0} has an agent: a key is never replaced by adopting another. Revoke it first, if its agent is not to come \
         back: tideline-hub targets revoke {0}"
    )]
    HasAgent(String),
    #[error(
        "this hub remembers no deleted SyncTarget {0} whose agent could be adopted; `tideline-hub targets list` shows all. The \
         agent of a revoked one needs a new token: tideline-hub token create {0}"
    )]
    NoFormer(String),
    #[error("several agents had the name {name}; say which with --from: {uids}")]
    Several { name: String, uids: String },
    #[error(
        "the agent of the deleted SyncTarget now belongs to SyncTarget {0}; to adopt another one, name it with --from UID \
         (tideline-hub targets list)"
    )]
    IsAt(String),
    #[error(
        "the key of that agent was revoked at SyncTarget {0}, and a revoked key is never adopted. It needs a new token: \
         tideline-hub token create {1}"
    )]
    Revoked(String, String),
}

/// What the hub knows of an agent's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentState {
    /// It speaks for its SyncTarget.
    Enrolled,
    /// Its key was revoked.
    Revoked,
    /// Its SyncTarget has lost its key, or has another that may not be used; nobody revoked it.
    Withdrawn,
    /// Its SyncTarget was deleted.
    Deleted,
    /// It was handed to another SyncTarget.
    Adopted,
    /// A state that a newer hub knows.
    #[serde(other)]
    Unknown,
}

/// One agent, as the hub remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// The SyncTarget's name.
    pub name: String,
    /// The SyncTarget's UID.
    pub target: TargetId,
    pub state: AgentState,
    /// The first digits of the SHA-256 of its key.
    pub fingerprint: String,
    /// In standard base64; of a revoked one there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Keys that its SyncTarget had before and that nobody revoked, in standard base64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_keys: Vec<String>,
    /// The UID of the namespace kube-system of its cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// When it asked last: in this run of the hub, or else in the one in which its SyncTarget was deleted, before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_contact: Option<Timestamp>,
    /// Whether its target has reported to this run of the hub. If not, it is not known what is held there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reported: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_by: Option<String>,
    /// The SyncTarget that it was handed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted_by: Option<TargetId>,
    /// What is to be done before it can go on as another SyncTarget than its deleted one, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<String>,
}

/// Reads all of them, by name. `root` is a client of the root space.
///
/// # Errors
///
/// The request failed, or an answer cannot be read.
pub async fn list(root: &Client) -> Result<Vec<Agent>, Error> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, KIND), PLURAL);
    let all = Api::<DynamicObject>::all_with(root.clone(), &resource).list(&ListParams::default()).await;
    let all = all.map_err(|error| request("list the agents", error))?;
    let read = all.items.into_iter().map(|object| virtual_resources::decode(KIND, object));
    let mut agents: Vec<Agent> = read.collect::<Result<_, _>>()?;
    agents.sort_by(|a, b| (&a.name, a.target).cmp(&(&b.name, b.target)));
    Ok(agents)
}

/// Whether the target of this UID has reported to this run of the hub.
pub(crate) async fn has_reported(root: &Client, target: &str) -> Result<bool, Error> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, KIND), PLURAL);
    let agent = Api::<DynamicObject>::all_with(root.clone(), &resource).get_opt(target).await;
    let agent = agent.map_err(|error| request("read the agent of the SyncTarget", error))?;
    let agent: Option<Agent> = agent.map(|object| virtual_resources::decode(KIND, object)).transpose()?;
    Ok(agent.is_some_and(|agent| agent.reported))
}

/// Revokes the keys of a SyncTarget's agents: the one that it has, and all that the hub remembers of it, for a key that was lost or
/// replaced is served again where somebody puts it back.
///
/// # Errors
///
/// There is no such SyncTarget, or the request failed.
pub async fn revoke(root: &Client, name: &str) -> Result<(), Error> {
    revoke_of(root, name, &list(root).await?).await
}

/// The same, where these are all agents.
async fn revoke_of(root: &Client, name: &str, agents: &[Agent]) -> Result<(), Error> {
    let annotated = annotate(root, name, "revoke the key", |target| {
        let uid = target.uid().unwrap_or_default();
        let remembered = agents.iter().find(|agent| agent.target.to_string() == uid);
        let present = target.annotations().get(AGENT_KEY_ANNOTATION);
        // The key of another agent at work, whose annotation was pasted here once.
        let anothers = |key: &String| {
            let is_its = |other: &Agent| other.state == AgentState::Enrolled && other.key.as_ref() == Some(key);
            let its_own = present == Some(key) || remembered.is_some_and(|agent| agent.key.as_ref() == Some(key));
            !its_own && agents.iter().any(is_its)
        };
        let mut keys = unrevoked(remembered, present);
        keys.retain(|key| !anothers(key));
        if keys.is_empty() {
            return Err(Error::NoAgent(name.to_owned()));
        }
        let revoked = with_revoked(target, keys);
        Ok([(AGENT_KEY_ANNOTATION, None), (ADOPTS_ANNOTATION, None), (REVOKED_KEYS_ANNOTATION, Some(revoked))].into())
    });
    annotated.await.map(drop)
}

/// The keys that are to be revoked with this agent, where its SyncTarget has that one.
pub(crate) fn unrevoked(agent: Option<&Agent>, key: Option<&String>) -> Vec<String> {
    let remembered = agent.into_iter().flat_map(|agent| agent.former_keys.iter().chain(&agent.key));
    remembered.chain(key).cloned().collect()
}

/// Deletes a SyncTarget, though its agent is at work if that is `forced`.
///
/// # Errors
///
/// There is no such SyncTarget, its agent is at work, or the request failed.
pub async fn remove(root: &Client, name: &str, forced: bool) -> Result<(), Error> {
    let target = if forced {
        let its_uid = |target: &SyncTarget| Ok::<_, Error>([(FORCE_ANNOTATION, target.uid())].into());
        annotate(root, name, "say that it is to be removed", its_uid).await?
    } else {
        find(root, name).await?
    };
    let preconditions = Some(Preconditions { uid: target.uid(), resource_version: None });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    let deleted = Api::<SyncTarget>::all(root.clone()).delete(name, &params).await;
    if deleted.is_err() && forced {
        // Nothing more can be done where this fails too.
        let taken_back = |_: &SyncTarget| Ok::<_, Error>([(FORCE_ANNOTATION, None)].into());
        let _ = annotate(root, name, "take back that it is to be removed", taken_back).await;
    }
    deleted.map(drop).map_err(|error| request("delete the SyncTarget", error))
}

/// The agent that a SyncTarget without one may adopt: that of a deleted one of its name, or of this UID, or of the one that
/// took it over since and was deleted, too. A SyncTarget that was made again from what was saved of the deleted one has its
/// key already. One that it has adopted before is given as [`AgentState::Adopted`]: there is nothing to do.
///
/// # Errors
///
/// There is none, or several; the SyncTarget has an agent of its own; or the request failed.
pub async fn adoptable(root: &Client, name: &str, from: Option<TargetId>) -> Result<Agent, Error> {
    let target = find(root, name).await?;
    let key = target.annotations().get(AGENT_KEY_ANNOTATION);
    let (heir, agents) = (target.uid().and_then(|uid| uid.parse().ok()), list(root).await?);
    if let Some(agent) = adopted(&agents, (key, heir), from) {
        return Ok(agent.clone());
    }
    choose(&agents, name, (key, heir), from).cloned()
}

/// The agent that the SyncTarget with this key and UID has adopted, if that is the one which is asked for.
fn adopted<'a>(
    agents: &'a [Agent],
    (key, heir): (Option<&String>, Option<TargetId>),
    from: Option<TargetId>,
) -> Option<&'a Agent> {
    agents.iter().find(|agent| {
        let asked = from.is_none_or(|from| agent.target == from);
        asked
            && agent.state == AgentState::Adopted
            && agent.adopted_by == heir
            && heir.is_some()
            && key.is_some()
            && agent.key.as_ref() == key
    })
}

/// As what this agent went on in the end: where it was handed over, its session and who holds it are there.
fn last<'a>(agents: &'a [Agent], agent: &'a Agent) -> &'a Agent {
    let mut at = agent;
    // Handed on once from each at most.
    for _ in agents {
        match at.adopted_by.and_then(|heir| agents.iter().find(|agent| agent.target == heir)) {
            Some(heir) => at = heir,
            None => break,
        }
    }
    at
}

/// Of all agents, the one that the SyncTarget of this name, with this key and UID, may adopt.
pub(crate) fn choose<'a>(
    agents: &'a [Agent],
    name: &str,
    (key, heir): (Option<&String>, Option<TargetId>),
    from: Option<TargetId>,
) -> Result<&'a Agent, Error> {
    let asked = agents.iter().filter(|agent| from.map_or(agent.name == name, |from| agent.target == from));
    let last: BTreeMap<_, _> = asked.map(|agent| last(agents, agent)).map(|agent| (agent.target, agent)).collect();
    let mut found: Vec<_> =
        last.into_values().filter(|agent| agent.state == AgentState::Deleted && agent.key.is_some()).collect();
    if let Some(key) = key {
        found.retain(|agent| agent.key.as_ref() == Some(key));
        if found.is_empty() {
            return Err(Error::HasAgent(name.to_owned()));
        }
    }
    let agent = match found[..] {
        [] => return Err(Error::NoFormer(name.to_owned())),
        [agent] => agent,
        [..] => {
            let uids: Vec<_> = found.iter().map(|agent| agent.target.to_string()).collect();
            return Err(Error::Several { name: name.to_owned(), uids: uids.join(", ") });
        }
    };
    let with_its_key = |it: &&Agent| it.fingerprint == agent.fingerprint && Some(it.target) != heir;
    for other in agents.iter().filter(with_its_key) {
        match other.state {
            AgentState::Enrolled | AgentState::Withdrawn | AgentState::Unknown => {
                return Err(Error::IsAt(other.name.clone()));
            }
            AgentState::Revoked => return Err(Error::Revoked(other.name.clone(), name.to_owned())),
            AgentState::Deleted | AgentState::Adopted => {}
        }
    }
    Ok(agent)
}

/// Hands an agent that is [`adoptable`] to the SyncTarget of this name.
///
/// # Errors
///
/// The SyncTarget changed meanwhile, or the request failed.
pub async fn adopt(root: &Client, name: &str, agent: &Agent) -> Result<(), Error> {
    let annotated = annotate(root, name, "hand the agent over", |target| {
        if target.annotations().get(AGENT_KEY_ANNOTATION).is_some_and(|key| Some(key) != agent.key.as_ref()) {
            return Err(Error::HasAgent(name.to_owned()));
        }
        let heir = target.uid().and_then(|uid| uid.parse().ok());
        let adopts = heir.map(|heir| adopts(agent.target, heir));
        let key = (AGENT_KEY_ANNOTATION, agent.key.clone());
        Ok([key, (CLUSTER_ANNOTATION, agent.cluster.clone()), (ADOPTS_ANNOTATION, adopts)].into())
    });
    annotated.await.map(drop)
}

fn request(operation: &'static str, error: kube::Error) -> Error {
    Error::Request { operation, source: error.into() }
}

impl Agent {
    pub(crate) fn of(engine: &Engine, target: TargetId, remembered: &RememberedTarget, now: Monotonic) -> Self {
        let RememberedTarget { name, key, withdrawn, former, cluster, revoked: _, deleted, heir, ran: _ } = remembered;
        let state = match (heir, deleted) {
            (Some(_), _) => AgentState::Adopted,
            (None, Some(_)) => AgentState::Deleted,
            (None, None) if remembered.is_revoked() => AgentState::Revoked,
            (None, None) if *withdrawn => AgentState::Withdrawn,
            (None, None) => AgentState::Enrolled,
        };
        let heard = deleted.as_ref().and_then(|deletion| deletion.heard).map(whole_seconds);
        Self {
            name: name.clone(),
            target,
            state,
            fingerprint: remembered.known_key().map(|key| key.fingerprint()).unwrap_or_default(),
            key: key.clone().filter(|_| !remembered.is_revoked()),
            former_keys: former.clone(),
            cluster: cluster.as_ref().map(ToString::to_string),
            last_contact: last_contact::heard(engine, target, now, Timestamp::now()).or(heard),
            reported: engine.waiting_for_approval(target).is_some(),
            deleted_at: deleted.as_ref().and_then(|deletion| deletion.at).map(whole_seconds),
            deleted_by: deleted.as_ref().and_then(|deletion| deletion.by.clone()),
            adopted_by: *heir,
            upgrade: deleted.as_ref().and_then(|_| engine.upgrade_before_handover(target)),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Agents;

impl RootKind for Agents {
    const KIND: &'static str = KIND;
    const PLURAL: &'static str = PLURAL;
    const COLUMNS: &'static [ColumnText] = &[
        ("SyncTarget", ".name", "string", 0),
        ("State", ".state", "string", 0),
        ("Fingerprint", ".fingerprint", "string", 0),
        ("Cluster", ".cluster", "string", 0),
        ("Last Contact", ".lastContact", "date", 0),
    ];

    type Position = TargetId;
    type Row = Agent;

    fn rows(engine: &Engine, now: Monotonic, after: Option<&TargetId>, most: usize) -> Vec<(TargetId, Agent)> {
        let remembered = engine.all_remembered_after(after.copied()).take(most);
        remembered.map(|(target, remembered)| (target, Agent::of(engine, target, remembered, now))).collect()
    }

    fn name(row: &Agent) -> String {
        row.target.to_string()
    }

    fn find(shared: &Shared, name: &str) -> Option<Agent> {
        let (target, now) = (name.parse().ok()?, shared.now());
        shared.read(|engine| Some(Agent::of(engine, target, engine.remembered(target)?, now)))
    }
}

/// Keeps the SyncTarget of an agent at work from being deleted by mistake, and remembers who deletes one.
pub(crate) fn deletes_target(shared: &Shared, deletion: &Deletion<'_>, forced: bool) -> Result<(), String> {
    let metadata = &deletion.object["metadata"];
    let Some(target) = metadata["uid"].as_str().and_then(|uid| uid.parse::<TargetId>().ok()) else {
        return Ok(());
    };
    let now = shared.now();
    let why = if forced { None } else { shared.read(|engine| at_work(engine, target, now)) };
    if let Some(why) = why {
        let name = metadata["name"].as_str().unwrap_or_default();
        return Err(format!(
            "{why}, and would be shut out. Revoke its key (tideline-hub targets revoke {name}), take the cluster out of \
             service (spec.decommission), or say that it is meant: tideline-hub targets remove {name} --force"
        ));
    }
    // Who deletes again what is being deleted, while a finalizer holds it, is not the one who did.
    if !deletion.dry_run && metadata["deletionTimestamp"].is_null() {
        shared.read_mut(|engine| engine.target_deleting(target, &deletion.identity.user));
    }
    Ok(())
}

/// Why the agent of a target counts as at work, if it does. After a start nobody was heard yet.
fn at_work(engine: &Engine, target: TargetId, now: Monotonic) -> Option<&'static str> {
    const AT_WORK: Option<&str> = Some("its agent is at work");
    let not_heard = (now.since(Monotonic::START) < AT_WORK_FOR)
        .then_some("its agent was not heard yet since the hub was started, may be at work");
    let lately = engine.targets.last_asked(target).is_some_and(|at| now.since(at) < AT_WORK_FOR);
    if let Some(outline) = engine.targets.get(target) {
        if engine.is_decommissioned(target, outline.record.decommission) {
            return None;
        }
        return match engine.freshness(target) {
            Freshness::Fresh => AT_WORK,
            // Whatever changed its key, perhaps the hand that deletes it now, it was there a moment ago.
            Freshness::Unheard if lately => AT_WORK,
            Freshness::Unheard => not_heard,
            Freshness::Stale => None,
        };
    }
    let remembered = engine.remembered(target).filter(|it| it.deleted.is_none() && !it.is_revoked())?;
    // Its key was lost a moment ago, perhaps by the hand that deletes it now; or the inventory was not read yet.
    if remembered.withdrawn && lately { AT_WORK } else { not_heard }
}

#[cfg(test)]
pub(crate) mod tests;
