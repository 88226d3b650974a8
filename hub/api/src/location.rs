use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// Which targets belong to a location.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tideline.dev",
    version = "v1alpha1",
    kind = "Location",
    plural = "locations",
    singular = "location",
    shortname = "loc",
    category = "tideline",
    status = "LocationStatus",
    derive = "PartialEq",
    doc = "A named set of SyncTargets. Placements select locations by the labels of the Location object.",
    printcolumn(name = "Targets", type_ = "integer", json_path = ".status.targets"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct LocationSpec {
    /// Selects SyncTargets by label. An empty selector selects all.
    #[schemars(schema_with = "schema::label_selector")]
    pub instance_selector: LabelSelector,
}

/// What the selector found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LocationStatus {
    /// The generation that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// SyncTargets selected.
    pub targets: u32,
    /// Conditions by the Kubernetes conventions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
