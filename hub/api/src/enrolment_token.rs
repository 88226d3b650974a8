use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// What an enrolment token allows, and until when.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tideline.dev",
    version = "v1alpha1",
    kind = "EnrolmentToken",
    plural = "enrolmenttokens",
    singular = "enrolmenttoken",
    shortname = "etok",
    category = "tideline",
    status = "EnrolmentTokenStatus",
    derive = "PartialEq",
    doc = "A single-use permission to enrol one workload cluster. The token itself is shown once, when it is made; only its public key is kept.",
    printcolumn(name = "Target", type_ = "string", json_path = ".spec.targetName"),
    printcolumn(name = "Used", type_ = "boolean", json_path = ".status.used"),
    // Not a date: kubectl prints those as time passed, and this one lies ahead.
    printcolumn(name = "Expires", type_ = "string", json_path = ".spec.expires"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct EnrolmentTokenSpec {
    /// The name of the SyncTarget that enrolment makes.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub target_name: String,
    /// The labels of the SyncTarget that enrolment makes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub labels: BTreeMap<String, String>,
    /// When the token stops being accepted.
    #[schemars(schema_with = "schema::time")]
    pub expires: Time,
    /// The token's Ed25519 public key, in standard base64. Without it the token cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[A-Za-z0-9+/]{43}=$"))]
    pub public_key: Option<String>,
}

/// Whether the token was used, and by whom.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EnrolmentTokenStatus {
    /// Whether an agent enrolled with it. The same agent may repeat its enrolment; another may not.
    pub used: bool,
    /// The agent that enrolled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_by: Option<TokenUse>,
    /// Conditions by the Kubernetes conventions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// Who used a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenUse {
    /// The agent's Ed25519 public key, in standard base64.
    pub key: String,
    /// The UID of the SyncTarget that the agent speaks for. Absent while that is being made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_uid: Option<String>,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub at: Option<Time>,
}
