use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{TargetSelector, schema};

/// Where a space is, and what it may do.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tideline.dev",
    version = "v1alpha1",
    kind = "Space",
    plural = "spaces",
    singular = "space",
    shortname = "sp",
    category = "tideline",
    status = "SpaceStatus",
    derive = "PartialEq",
    doc = "A container for the central spec of workloads: a Kubernetes API of its own.",
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Placements", type_ = "integer", json_path = ".status.placements"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", default)]
pub struct SpaceSpec {
    /// The space is kept by the hub itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedded: Option<EmbeddedSpace>,
    /// The space is a Kubernetes API server elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<KubeconfigSpace>,
    /// What the space may do. Without it: nothing.
    pub allow: Allow,
}

/// A space that the hub keeps in its own store. It has no settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EmbeddedSpace {}

/// A space behind a kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeconfigSpace {
    /// The Secret that holds the kubeconfig.
    pub secret_ref: SecretReference,
}

/// A Secret in the hub's own namespace of the root space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretReference {
    /// The name of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
}

/// What a space may do; set by the hub's operator, not by the space's users. A Placement may only narrow it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Allow {
    /// The Locations it may place to: those that any of these selectors selects by label.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::label_selectors")]
    pub locations: Vec<LabelSelector>,
    /// The SyncTargets it may place to without naming a Location: those that any of these selectors selects, by name or
    /// by label.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::target_selectors")]
    pub targets: Vec<TargetSelector>,
    /// The kinds it may place, as Kind.group (ConfigMap, Deployment.apps), *.group, or * for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 256, "x-kubernetes-list-type" = "set"))]
    pub kinds: Vec<String>,
    /// Whether objects may be assigned by the annotation tideline.dev/assigned-locations.
    pub annotation_assignment: bool,
    /// The ServiceAccount that agents act as when they write objects of this space. Unset: as themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impersonate: Option<Impersonate>,
}

/// A ServiceAccount at the targets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Impersonate {
    /// The namespace of the ServiceAccount.
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub namespace: String,
    /// The name of the ServiceAccount.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// What the hub has seen of the space.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SpaceStatus {
    /// The generation that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Placements in the space.
    pub placements: u32,
    /// Conditions by the Kubernetes conventions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// Where a space is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceProvider<'a> {
    Embedded,
    Kubeconfig(&'a KubeconfigSpace),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpaceProviderError {
    #[error("spec must hold one of `embedded` and `kubeconfig`; it holds neither")]
    Missing,
    #[error("spec must hold one of `embedded` and `kubeconfig`; it holds both")]
    Ambiguous,
}

impl SpaceSpec {
    /// Where the space is. The schema lets exactly one answer through; a store that was written otherwise may not.
    ///
    /// # Errors
    ///
    /// The object names no provider, or several.
    pub fn provider(&self) -> Result<SpaceProvider<'_>, SpaceProviderError> {
        match (self.embedded, &self.kubeconfig) {
            (Some(EmbeddedSpace {}), None) => Ok(SpaceProvider::Embedded),
            (None, Some(kubeconfig)) => Ok(SpaceProvider::Kubeconfig(kubeconfig)),
            (None, None) => Err(SpaceProviderError::Missing),
            (Some(EmbeddedSpace {}), Some(_)) => Err(SpaceProviderError::Ambiguous),
        }
    }
}

impl Allow {
    /// What the space `default` is given when the hub first starts.
    pub fn everything() -> Self {
        Self {
            locations: vec![LabelSelector::default()],
            targets: vec![TargetSelector::default()],
            kinds: vec!["*".to_owned()],
            annotation_assignment: true,
            impersonate: None,
        }
    }

    /// The kinds, checked.
    ///
    /// # Errors
    ///
    /// A pattern is malformed.
    pub fn kind_patterns(&self) -> Result<Vec<KindPattern>, KindPatternError> {
        self.kinds.iter().map(|text| text.parse()).collect()
    }
}

/// One line of [`Allow::kinds`], checked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KindPattern {
    All,
    Group(String),
    Kind { group: String, kind: String },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no kind; write Kind.group, such as Deployment.apps, or *.group, or *")]
pub struct KindPatternError(String);

impl KindPattern {
    pub fn matches(&self, group: &str, kind: &str) -> bool {
        match self {
            Self::All => true,
            Self::Group(allowed) => allowed == group,
            Self::Kind { group: allowed_group, kind: allowed_kind } => allowed_group == group && allowed_kind == kind,
        }
    }
}

impl FromStr for KindPattern {
    type Err = KindPatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || KindPatternError(text.to_owned());
        if text == "*" {
            return Ok(Self::All);
        }
        let (kind, group) = match text.split_once('.') {
            Some((_, "")) => return Err(invalid()),
            Some(parts) => parts,
            None => (text, ""),
        };
        if group.bytes().any(|byte| !(byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte))) {
            return Err(invalid());
        }
        match kind {
            "*" => Ok(Self::Group(group.to_owned())),
            // A lower-case first letter is a resource name, which would silently match nothing.
            _ if kind.starts_with(|first: char| first.is_ascii_uppercase())
                && kind.bytes().all(|byte| byte.is_ascii_alphanumeric()) =>
            {
                Ok(Self::Kind { group: group.to_owned(), kind: kind.to_owned() })
            }
            _ => Err(invalid()),
        }
    }
}

#[cfg(test)]
mod tests;
