use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tideline_common as common;

use crate::schema;

/// Which objects go where, and how.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tideline.dev",
    version = "v1alpha1",
    kind = "Placement",
    plural = "placements",
    singular = "placement",
    shortname = "pl",
    category = "tideline",
    status = "PlacementStatus",
    derive = "PartialEq",
    doc = "Assigns objects of this space to workload clusters: what, where, and how.",
    printcolumn(name = "Targets", type_ = "integer", json_path = ".status.targets"),
    printcolumn(name = "Objects", type_ = "integer", json_path = ".status.objects"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Problem", type_ = "string", json_path = ".status.problems[0].message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementSpec {
    /// Where: the targets of every Location that any of these selectors selects by label. An empty selector selects
    /// all; no selectors select none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::label_selectors")]
    pub locations: Vec<LabelSelector>,
    /// Where: the SyncTargets that any of these selectors selects, by name or by label.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::target_selectors")]
    pub targets: Vec<TargetSelector>,
    /// Takes only this many of the selected targets. A choice once made stays while its target is selected, and for the
    /// settle time after that; a Placement that replaces one of the same name takes it over.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub number_of_targets: Option<u32>,
    /// What: the objects that any of these clauses selects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 64, "x-kubernetes-list-type" = "atomic"))]
    pub objects: Vec<ObjectClause>,
    /// In which order.
    pub ordering: Ordering,
    /// What the objects get at their targets besides what they have here.
    pub additions: Additions,
    /// Which namespaces the objects are in at their targets. By default those that they are in here.
    pub namespace_mapping: NamespaceMapping,
}

/// Labels and annotations that objects get at their targets. Where an object has one of that name, its own stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Additions {
    /// Labels by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = {"type": "string", "maxLength": 63}))]
    pub labels: BTreeMap<String, String>,
    /// Annotations by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64, "additionalProperties" = {"type": "string", "maxLength": 4096}))]
    pub annotations: BTreeMap<String, String>,
}

/// The namespaces of objects at their targets. A name that is in map is called there as map says; any other gets the
/// prefix, unless it begins with kube-. No name may become default or begin with kube- by this.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NamespaceMapping {
    /// What is put before the names of namespaces that are not in map.
    #[schemars(length(max = 62), regex(pattern = r"^([a-z0-9]([-a-z0-9]*))?$"))]
    pub prefix: String,
    /// Namespaces by name, and what each is called at the targets. One that is mapped to itself keeps its name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend(
        "maxProperties" = 1024,
        "additionalProperties" = {
            "type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
        }
    ))]
    pub map: BTreeMap<String, String>,
}

/// Selects SyncTargets; all that it says must hold. An empty one selects all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetSelector {
    /// The SyncTargets, by name. Empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// The SyncTargets, by label.
    #[serde(flatten)]
    pub labels: LabelSelector,
}

/// Selects the objects of this space that meet all criteria it has, of which it must have one: any of apiGroup,
/// resources, namespaces, namespaceSelectors, objectSelectors and names. And says how they are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectClause {
    /// What messages call this clause. Without it they give its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: Option<String>,
    /// The API group of the objects. The empty one is the core group; absent or *: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub api_group: Option<String>,
    /// The resources, by plural name in lower case. Empty or *: any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::names")]
    pub resources: Vec<String>,
    /// The namespaces of the objects, by name. Cluster-scoped objects are in none. Empty: any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::names")]
    pub namespaces: Vec<String>,
    /// The namespaces of the objects, by label: any of these. Cluster-scoped objects are in none. Empty: any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::label_selectors")]
    pub namespace_selectors: Vec<LabelSelector>,
    /// The objects, by label: any of these. Empty: any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::label_selectors")]
    pub object_selectors: Vec<LabelSelector>,
    /// The objects, by name. Empty: any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::names")]
    pub names: Vec<String>,
    /// How the objects are kept at their targets.
    pub apply: ApplyPolicy,
    /// How their state comes back.
    pub status: StatusPolicy,
}

/// How objects are kept at their targets. Where several Placements assign one object, the least destructive value of
/// each field holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApplyPolicy {
    /// Continuous follows the source; CreateOnly creates and then leaves alone.
    pub mode: ApplyMode,
    /// What happens to a field that another manager owns: Force takes it; Report leaves it out and reports it.
    pub conflicts: ConflictPolicy,
    /// Whether an object that was there before is taken over: Never, Always, or IfUnmanaged, where nothing else manages
    /// it.
    pub takeover: Takeover,
    /// Whether an object is deleted and created again when an immutable field changed. Never applied to CRDs,
    /// PersistentVolumeClaims and Namespaces.
    pub recreate: Recreate,
    /// What becomes of the local object when it is no longer assigned.
    pub prune: Prune,
    /// Whether prune holds also for objects that were taken over. Otherwise those are orphaned.
    pub prune_adopted: bool,
    /// What happens to a local change of a placed field: Correct reverts it; Report only says so.
    pub drift: DriftPolicy,
    /// Whether deletions wait for a person where they are more than a cluster lets pass within an hour: Ask waits;
    /// InAdvance approves the deletion of these objects beforehand.
    pub approve_deletions: ApproveDeletions,
    /// Exceptions for single fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend(
        "maxItems" = 64,
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["path"]
    ))]
    pub fields: Vec<FieldPolicy>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApplyMode {
    #[default]
    Continuous,
    CreateOnly,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConflictPolicy {
    #[default]
    Force,
    Report,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Takeover {
    Never,
    #[default]
    IfUnmanaged,
    Always,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Recreate {
    #[default]
    Never,
    OnImmutable,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Prune {
    #[default]
    Delete,
    Orphan,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApproveDeletions {
    #[default]
    Ask,
    InAdvance,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DriftPolicy {
    #[default]
    Correct,
    Report,
}

/// An exception for one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldPolicy {
    /// The field, as a JSON pointer (RFC 6901) such as /spec/replicas, or as a JSONPath (RFC 9535) of names, indexes, *
    /// and filters by equality, such as $.spec.template.spec.containers[?(@.name=='web')].image.
    #[schemars(length(max = 1024), regex(pattern = r"^((/([^~/]|~[01])*)+|\$[.\[].+)$"))]
    pub path: String,
    /// Continuous follows the source; Initial is set at creation and then left to the target; Ignored is never sent.
    pub mode: FieldMode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FieldMode {
    Continuous,
    Initial,
    Ignored,
}

/// How the state of placed objects comes back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusPolicy {
    /// What is written into the status of the source. Auto: the status of the target where there is exactly one, and
    /// nothing where there are several. Never: nothing, and agents send none; rollups and reports tell how the object does.
    /// Where several clauses or Placements assign one object, Auto holds if any of them says so.
    pub r#return: StatusReturn,
    /// What happens to a status whose target is stale. Keep leaves it as last seen; Unknown turns its Ready and Available
    /// conditions to Unknown.
    pub when_stale: WhenStale,
    /// StatusCollectors that apply, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::names")]
    pub collectors: Vec<String>,
    /// Resources made from the placed objects at the targets that are counted as well: by phase and reason, in rollups and
    /// reports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = AssociatedResource::COUNT, "x-kubernetes-list-type" = "set"))]
    pub associated: Vec<AssociatedResource>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AssociatedResource {
    ReplicaSets,
    Pods,
    Jobs,
    EndpointSlices,
}

impl AssociatedResource {
    const COUNT: usize = 4;
}

impl From<AssociatedResource> for common::AssociatedKind {
    fn from(resource: AssociatedResource) -> Self {
        match resource {
            AssociatedResource::ReplicaSets => Self::ReplicaSets,
            AssociatedResource::Pods => Self::Pods,
            AssociatedResource::Jobs => Self::Jobs,
            AssociatedResource::EndpointSlices => Self::EndpointSlices,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StatusReturn {
    #[default]
    Auto,
    Never,
}

impl From<StatusReturn> for common::ReportClass {
    fn from(status: StatusReturn) -> Self {
        match status {
            StatusReturn::Auto => Self::Status,
            StatusReturn::Never => Self::Health,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WhenStale {
    #[default]
    Keep,
    Unknown,
}

/// In which order objects are applied at a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Ordering {
    /// Whether a wave waits until the objects of the wave before it are ready.
    pub readiness_gate: bool,
    /// Seconds that the gate waits for each wave. Then the next goes anyway, and the SyncTarget says so.
    #[schemars(range(min = 1, max = 86_400))]
    pub readiness_deadline_seconds: u32,
}

impl Default for Ordering {
    /// A Deployment has as long by default until it says that it does not progress.
    fn default() -> Self {
        Self { readiness_gate: false, readiness_deadline_seconds: 600 }
    }
}

/// What the Placement resolved to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementStatus {
    /// The generation that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Targets selected.
    pub targets: u32,
    /// Objects selected.
    pub objects: u32,
    /// Conditions by the Kubernetes conventions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// What does not work, the worst first, at most PROBLEMS_MAX.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = PlacementStatus::PROBLEMS_MAX, "x-kubernetes-list-type" = "atomic"))]
    pub problems: Vec<Problem>,
}

impl PlacementStatus {
    /// Problems shown; the conditions count them all. Twenty fit on a screen, and 20 × 1 KiB of message keep the object
    /// far from any limit of a store.
    pub const PROBLEMS_MAX: usize = 20;
    /// Bytes of one problem's message.
    pub const PROBLEM_MESSAGE_MAX: usize = 1024;
}

/// One thing that does not work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Problem {
    /// The reason, in CamelCase, as conditions and metrics give it.
    pub reason: String,
    /// The object it concerns, as resource.group namespace/name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The SyncTarget it concerns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// What to know and do.
    #[schemars(length(max = PlacementStatus::PROBLEM_MESSAGE_MAX))]
    pub message: String,
}

/// Converts an enum of the API into the one of the wire, value by value.
macro_rules! to_wire {
    ($name:ident { $($variant:ident),+ }) => {
        impl From<$name> for common::$name {
            fn from(value: $name) -> Self {
                match value { $($name::$variant => Self::$variant),+ }
            }
        }
    };
}

impl From<Additions> for common::Additions {
    fn from(Additions { labels, annotations }: Additions) -> Self {
        Self { labels, annotations }
    }
}

to_wire!(ApplyMode { Continuous, CreateOnly });
to_wire!(ConflictPolicy { Force, Report });
to_wire!(Takeover { Never, IfUnmanaged, Always });
to_wire!(Recreate { Never, OnImmutable });
to_wire!(Prune { Delete, Orphan });
to_wire!(DriftPolicy { Correct, Report });
to_wire!(ApproveDeletions { Ask, InAdvance });
to_wire!(FieldMode { Continuous, Initial, Ignored });

impl From<ApplyPolicy> for common::ApplyPolicy {
    /// Orders the exceptions by path; of several for one path the least destructive holds.
    fn from(policy: ApplyPolicy) -> Self {
        let ApplyPolicy { mode, conflicts, takeover, recreate, prune, prune_adopted, drift, approve_deletions, fields } =
            policy;
        let unordered = Self {
            // It is the Placement as a whole that has some.
            additions: common::Additions::default(),
            mode: mode.into(),
            conflicts: conflicts.into(),
            takeover: takeover.into(),
            recreate: recreate.into(),
            prune: prune.into(),
            prune_adopted: if prune_adopted { common::PruneAdopted::AsCreated } else { common::PruneAdopted::Orphan },
            drift: drift.into(),
            approve_deletions: approve_deletions.into(),
            fields: fields
                .into_iter()
                .map(|FieldPolicy { path, mode }| common::FieldPolicy { path, mode: mode.into() })
                .collect(),
            // It is the Placement as a whole that has one.
            gates: Vec::new(),
            // They are not about how the objects are kept.
            associated: BTreeSet::new(),
            report: common::ReportClass::default(),
        };
        unordered.merge(&unordered)
    }
}

#[cfg(test)]
mod tests;
