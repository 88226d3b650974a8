use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// What may be deleted at one workload cluster, or is let go of there, and until when.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tideline.dev",
    version = "v1alpha1",
    kind = "DeletionApproval",
    plural = "deletionapprovals",
    singular = "deletionapproval",
    shortname = "dela",
    category = "tideline",
    derive = "PartialEq",
    doc = "A person's approval of deletions that one workload cluster holds. What is listed and still not assigned may go, or is let go of; deleting the approval withdraws it.",
    printcolumn(name = "Target", type_ = "string", json_path = ".spec.targetName"),
    // Not a date: kubectl prints those as time passed, and this one lies ahead.
    printcolumn(name = "Expires", type_ = "string", json_path = ".spec.expires"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct DeletionApprovalSpec {
    /// The name of the SyncTarget, for people.
    #[schemars(length(min = 1, max = 253))]
    pub target_name: String,
    /// The UID of the SyncTarget: a record made anew under the same name is another cluster.
    #[schemars(length(min = 1, max = 128))]
    pub target_uid: String,
    /// When the approval ends, by the hub's clock.
    #[schemars(schema_with = "schema::time")]
    pub expires: Time,
    /// What may be deleted.
    #[schemars(extend("maxItems" = DeletionApprovalSpec::DELETIONS_MAX, "x-kubernetes-list-type" = "atomic"))]
    pub deletions: Vec<ApprovedDeletion>,
    /// What is let go of instead: it stays, without its mark. Where this is given, `deletions` is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = DeletionApprovalSpec::DELETIONS_MAX, "x-kubernetes-list-type" = "atomic"))]
    pub releases: Vec<ApprovedDeletion>,
}

impl DeletionApprovalSpec {
    /// Objects in one approval: names of at most 253 + 253 + 63 + 253 characters and a UID of 128 with what surrounds
    /// them are below 1,024 bytes, so that it is an object of less than 1 MiB. Larger lists take several.
    pub const DELETIONS_MAX: usize = 1_000;
}

/// One object whose deletion is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovedDeletion {
    /// The API group; empty is the core group.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub api_group: String,
    /// The kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// The namespace at the cluster; empty where the kind has none.
    #[serde(default)]
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// The name at the cluster.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The UID of the source whose copy it is. A copy of another source is not meant.
    #[schemars(length(min = 1, max = 128))]
    pub source_uid: String,
}
