use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a person has seen and accepts.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tideline.dev",
    version = "v1alpha1",
    kind = "HistoryAcceptance",
    plural = "historyacceptances",
    singular = "historyacceptance",
    shortname = "hacc",
    category = "tideline",
    derive = "PartialEq",
    doc = "A person accepts that the hub lost history, and that its clusters follow what it holds now. It takes effect at once, and once.",
    printcolumn(name = "Restored", type_ = "string", json_path = ".spec.restored"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct HistoryAcceptanceSpec {
    /// What clusters know of and the hub does not, as historybreaks shows it. What was shown later is not meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = HistoryAcceptanceSpec::SHOWN_MAX, "x-kubernetes-list-type" = "atomic"))]
    pub shown: Vec<ShownHistory>,
    /// The restore that is accepted, as historybreaks shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<String>,
}

/// A segment of another history, up to where clusters know of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShownHistory {
    /// A UUID.
    #[schemars(length(max = 36))]
    pub segment: String,
    /// The highest epoch that was shown.
    pub epoch: i64,
    /// The highest revision that was shown.
    pub revision: i64,
}

impl HistoryAcceptanceSpec {
    /// What is shown in one acceptance. Each lost hour, and each start of a lost run, is a segment.
    pub const SHOWN_MAX: usize = 1_000;
}
