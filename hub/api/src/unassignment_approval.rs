use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What may be unassigned.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tideline.dev",
    version = "v1alpha1",
    kind = "UnassignmentApproval",
    plural = "unassignmentapprovals",
    singular = "unassignmentapproval",
    shortname = "unaa",
    category = "tideline",
    derive = "PartialEq",
    doc = "A person's approval of a change that unassigns so much that the hub holds it. It takes effect at once, and once.",
    printcolumn(name = "Revisions", type_ = "string", json_path = ".spec.revisions"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct UnassignmentApprovalSpec {
    /// The revisions at which it was held, as heldunassignments shows them. What was held at any other is not meant.
    #[schemars(extend("maxItems" = UnassignmentApprovalSpec::REVISIONS_MAX, "x-kubernetes-list-type" = "set"))]
    pub revisions: Vec<i64>,
}

impl UnassignmentApprovalSpec {
    /// Revisions in one approval. A namespace that goes object by object is held at as many as it takes commits; larger
    /// lists take several approvals.
    pub const REVISIONS_MAX: usize = 1_000;
}
