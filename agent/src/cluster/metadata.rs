//! An object's metadata, as far as anything is read of it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    pub(super) name: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) uid: Option<String>,
    pub(super) resource_version: Option<String>,
    pub(super) generation: Option<i64>,
    /// Since when it is being deleted, which nobody asks.
    pub(super) deletion_timestamp: Option<IgnoredAny>,
    pub(super) labels: Option<BTreeMap<String, String>>,
    pub(super) annotations: Option<BTreeMap<String, String>>,
    pub(super) owner_references: Option<Vec<OwnerReference>>,
    managed_fields: Option<Vec<ManagedFields>>,
}

impl Metadata {
    pub(super) fn managed(&self) -> &[ManagedFields] {
        self.managed_fields.as_deref().unwrap_or_default()
    }
}

/// An entry of managedFields. Which fields it has stays text: such a set is nested deeper than its object, which need not be
/// one that can be read, and is written back as it came.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ManagedFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) api_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fields_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fields_v1: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) manager: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) operation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subresource: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) time: Option<String>,
}
