//! `helddeletions`: what clusters do not delete for now and why, read as Kubernetes objects of the root space.

use std::sync::Arc;

use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tideline_api::ApprovedDeletion;
use tideline_common::limits::LABEL_VALUE_BYTES_MAX;
use tideline_common::wire::v1::ObjectReport;
use tideline_common::{Digest, GroupKind, Monotonic, ObjectKey, Reason, TargetId};

use crate::engine::Engine;
use crate::virtual_resources::{self, ColumnText, GROUP, RootKind, Unreadable, VERSION};

const KIND: &str = "HeldDeletion";
const PLURAL: &str = "helddeletions";
/// The SyncTarget's name, where a label can hold it.
pub(crate) const TARGET_LABEL: &str = "tideline.dev/target";

/// One deletion that one cluster holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldDeletion {
    pub target: HeldTarget,
    /// What would be deleted, as an approval of it says it.
    pub object: ApprovedDeletion,
    /// Why it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldTarget {
    pub name: String,
    pub uid: String,
}

impl HeldDeletion {
    fn of(target: TargetId, target_name: String, report: &ObjectReport) -> Self {
        let ObjectKey { kind, namespace, name } = &report.key;
        Self {
            target: HeldTarget { name: target_name, uid: target.to_string() },
            object: ApprovedDeletion {
                api_group: kind.group.to_string(),
                kind: kind.kind.to_string(),
                namespace: namespace.to_string(),
                name: name.to_string(),
                source_uid: report.source_uid.to_string(),
            },
            reason: report.reason,
            message: report.message.clone(),
        }
    }

    /// Whether a person's approval is what it waits for.
    pub fn waits_for_approval(&self) -> bool {
        matches!(self.reason, Some(Reason::FuseHeld | Reason::HistoryLost | Reason::Restored))
    }

    /// The place at the cluster.
    pub fn key(&self) -> ObjectKey {
        let ApprovedDeletion { api_group, kind, namespace, name, source_uid: _ } = &self.object;
        ObjectKey::new(GroupKind::new(api_group.as_str(), kind.as_str()), namespace.as_str(), name.as_str())
    }

    pub(crate) fn read(object: DynamicObject) -> Result<Self, Unreadable> {
        virtual_resources::decode(KIND, object)
    }

    pub(crate) fn api(root: &Client) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, KIND), PLURAL);
        Api::all_with(root.clone(), &resource)
    }
}

/// A target's name as the value of a label, if that can be one.
pub(crate) fn label(target: &str) -> Option<&str> {
    (target.len() <= LABEL_VALUE_BYTES_MAX).then_some(target)
}

#[derive(Debug)]
pub(crate) struct HeldDeletions;

impl RootKind for HeldDeletions {
    const KIND: &'static str = KIND;
    const PLURAL: &'static str = PLURAL;
    const COLUMNS: &'static [ColumnText] = &[
        ("Target", ".target.name", "string", 0),
        ("Kind", ".object.kind", "string", 0),
        ("Namespace", ".object.namespace", "string", 0),
        ("Object", ".object.name", "string", 0),
        ("Reason", ".reason", "string", 0),
    ];

    type Position = (TargetId, ObjectKey);
    type Row = HeldDeletion;

    fn rows(
        engine: &Engine,
        _now: Monotonic,
        after: Option<&Self::Position>,
        most: usize,
    ) -> Vec<(Self::Position, Self::Row)> {
        let held = engine.held_deletions_after(after.map(|(target, key)| (*target, key))).take(most);
        let row = |(target, report): (TargetId, &Arc<ObjectReport>)| {
            ((target, report.key.clone()), HeldDeletion::of(target, engine.target_name(target), report))
        };
        held.map(row).collect()
    }

    fn name(row: &HeldDeletion) -> String {
        // A key has characters that a name must not have.
        let place = format!("{} {}", row.key(), row.object.source_uid);
        format!("{}.{}", row.target.name, &Digest::of(place.as_bytes()).to_string()[..16])
    }

    fn labels(row: &HeldDeletion) -> Option<Value> {
        label(&row.target.name).map(|label| json!({TARGET_LABEL: label}))
    }
}
