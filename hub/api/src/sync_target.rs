use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// What the hub knows and wants of one workload cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tideline.dev",
    version = "v1alpha1",
    kind = "SyncTarget",
    plural = "synctargets",
    singular = "synctarget",
    shortname = "stgt",
    category = "tideline",
    status = "SyncTargetStatus",
    derive = "PartialEq",
    doc = "The inventory record of one workload cluster. Its UID is the identity of the target: a record made anew under the same name is another target.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Agent", type_ = "string", json_path = ".status.agentVersion"),
    printcolumn(name = "Kubernetes", type_ = "string", json_path = ".status.kubernetesVersion"),
    printcolumn(name = "Last Contact", type_ = "date", json_path = ".status.lastContact"),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".status.desired.revision", priority = 1),
    printcolumn(name = "Applied", type_ = "integer", json_path = ".status.applied.revision", priority = 1),
    printcolumn(name = "Held", type_ = "integer", json_path = ".status.heldDeletions", priority = 1),
    printcolumn(name = "Decommission", type_ = "string", json_path = ".spec.decommission", priority = 1),
    printcolumn(name = "Unschedulable", type_ = "boolean", json_path = ".spec.unschedulable", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", default)]
pub struct SyncTargetSpec {
    /// Facts about the cluster that expressions and templates may read.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub properties: BTreeMap<String, String>,
    /// Keeps new assignments away from this target; those it has stay.
    pub unschedulable: bool,
    /// How the agent asks for news.
    pub poll: Poll,
    /// Ends the management of this cluster, and says what becomes of what was placed there. Unset: managed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decommission: Option<Decommission>,
}

/// How an agent asks for news.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Poll {
    /// Default asks all the time, so that changes arrive at once. Metered is taken, and not acted upon yet: the agent
    /// asks as with Default.
    pub profile: PollProfile,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PollProfile {
    #[default]
    Default,
    Metered,
}

/// What becomes of placed objects when a cluster is no longer managed. Keep: they stay, without our marks. Remove: they are
/// removed, however many, except what is not ours and what holds that. The condition Decommissioned says how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Decommission {
    Keep,
    Remove,
}

/// What the hub has seen of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SyncTargetStatus {
    /// Pending until the agent first spoke; Ready while it is heard; Stale when it was not heard in time; DuplicateAgent while
    /// it is heard and another lives with the same identity; Revoked when its agent may not speak for it any more; Unknown
    /// when the hub cannot tell yet, as after its own restart.
    pub phase: SyncTargetPhase,
    /// The version of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// The version of the cluster's API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes_version: Option<String>,
    /// When the agent was last heard. The hub fills it in when it is read; it is stored, and told to watches, with other changes
    /// and at most every ten minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_contact: Option<Time>,
    /// The desired set as the hub last published it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired: Option<SetVersion>,
    /// The desired set that the agent last applied in full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied: Option<SetVersion>,
    /// How many deletions wait for a person's approval: more than pass within an hour, or of what the hub does not know
    /// any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub held_deletions: Option<u32>,
    /// The agents that live with the identity of this target, where there are several: as after a data directory was copied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 8, "x-kubernetes-list-type" = "atomic"))]
    pub instances: Vec<AgentInstance>,
    /// Conditions by the Kubernetes conventions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SyncTargetPhase {
    Pending,
    Ready,
    Stale,
    DuplicateAgent,
    Revoked,
    /// Also a phase that a newer hub wrote.
    #[default]
    #[serde(other)]
    Unknown,
}

/// One of several agents with one identity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentInstance {
    /// Names the process.
    pub id: String,
    /// Of its machine, or of its Pod.
    pub host: String,
    /// Where it is heard from, as far as the hub sees it: it may be a load balancer's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Since when it keeps the cluster, or asks to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub since: Option<Time>,
    /// Whether it is the one that keeps the cluster.
    pub holds: bool,
}

/// The name of a desired set within its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetVersion {
    /// Counts how often the history of this target began anew.
    pub epoch: u64,
    /// The commit number of the ledger.
    pub revision: u64,
}
