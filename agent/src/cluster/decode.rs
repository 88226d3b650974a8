//! The facts kept of an object: everything the core decides by, nothing of its spec.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde::Deserialize;
use serde_json::{Value, json};
use tideline_common::health::{self, Assessment};
use tideline_common::{Digest, Hasher, MARK_ANNOTATION, MARK_LABEL, Mark, ObjectKey, Uid};

use super::Scope;
use super::fields;
use super::resource::Resource;
use crate::core::{Details, ListedItem, Observed};

/// Labels by which other tools say that they manage an object; the value, if it must be one.
const FOREIGN_LABELS: [(&str, Option<&str>); 4] = [
    ("app.kubernetes.io/managed-by", Some("Helm")),
    ("argocd.argoproj.io/instance", None),
    ("kustomize.toolkit.fluxcd.io/name", None),
    ("helm.toolkit.fluxcd.io/name", None),
];
const FOREIGN_ANNOTATIONS: [&str; 2] = ["meta.helm.sh/release-name", "argocd.argoproj.io/tracking-id"];

/// Decodes an object. `rest` is all of it but the metadata, or null where only the metadata was asked for. None for what no
/// API server sends: an object without name or UID.
pub(super) fn decode(scope: &Scope, resource: &Resource, metadata: &ObjectMeta, rest: &mut Value) -> Option<Observed> {
    let key = key_of(resource, metadata)?;
    let uid = Uid::try_from(metadata.uid.clone()?).ok()?;
    let managed = metadata.managed_fields.as_deref().unwrap_or_default();
    let Assessment { health, message, observed_generation, terminal } = assess(resource, metadata, rest);
    let (mark, illegible) = marked(metadata);
    let status = rest.get("status").filter(|status| !status.is_null());
    Some(Observed {
        uid,
        resource_version: metadata.resource_version.as_deref().unwrap_or_default().into(),
        generation: metadata.generation.unwrap_or(0),
        managed: managed_digest(managed),
        managed_elsewhere: illegible || managed_elsewhere(metadata, managed),
        mark,
        illegible,
        labelled: label(metadata, MARK_LABEL).is_some_and(|value| super::is_ours(scope, value)),
        deleting: metadata.deletion_timestamp.is_some(),
        health,
        health_message: message,
        observed_generation,
        terminal,
        template: None,
        status: status.and_then(|status| serde_json::value::to_raw_value(status).ok()).map(Arc::from),
        others: others_digest(managed),
        key,
    })
}

/// Decodes metadata alone: at once what shows whether it is news, the rest on demand. None as with [`decode`].
pub(super) fn decode_listed(
    scope: &Scope,
    resource: &Resource,
    metadata: Bytes,
) -> serde_json::Result<Option<ListedItem>> {
    let Glance { name, namespace, uid, resource_version, labels } = serde_json::from_slice(&metadata)?;
    let Some((name, uid)) = name.zip(uid.and_then(|uid| Uid::try_from(uid).ok())) else { return Ok(None) };
    let key = ObjectKey::new(resource.kind.clone(), namespace.unwrap_or_default(), name);
    let target = labels.unwrap_or_default().remove(MARK_LABEL);
    let labelled = target.is_some_and(|value| super::is_ours(scope, &value));
    let version = resource_version.unwrap_or_default().into();
    Ok(Some(ListedItem::new(key, uid, version, labelled, move || {
        serde_json::from_slice(&metadata).ok().as_ref().map(details)
    })))
}

/// As much of metadata as is read of everything.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Glance {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<BTreeMap<String, String>>,
}

fn details(metadata: &ObjectMeta) -> Details {
    let managed = metadata.managed_fields.as_deref().unwrap_or_default();
    let (mark, illegible) = marked(metadata);
    Details {
        generation: metadata.generation.unwrap_or(0),
        managed: managed_digest(managed),
        managed_elsewhere: illegible || managed_elsewhere(metadata, managed),
        mark,
        illegible,
        deleting: metadata.deletion_timestamp.is_some(),
        others: others_digest(managed),
    }
}

pub(super) fn key_of(resource: &Resource, metadata: &ObjectMeta) -> Option<ObjectKey> {
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    Some(ObjectKey::new(resource.kind.clone(), namespace, metadata.name.as_deref()?))
}

/// The mark, if there is a readable one.
pub(super) fn mark_of(metadata: &ObjectMeta) -> Option<Mark> {
    Mark::decode(metadata.annotations.as_ref()?.get(MARK_ANNOTATION)?).ok()
}

/// The mark, and whether there is one that cannot be read: of a later layout, perhaps of another hub's agent.
fn marked(metadata: &ObjectMeta) -> (Option<Arc<Mark>>, bool) {
    let mark = mark_of(metadata).map(Arc::new);
    let annotated = metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(MARK_ANNOTATION));
    let illegible = annotated && mark.is_none();
    (mark, illegible)
}

fn label<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a String> {
    metadata.labels.as_ref()?.get(name)
}

/// The rules read the whole object, but of the metadata only what is put back here.
fn assess(resource: &Resource, metadata: &ObjectMeta, rest: &mut Value) -> Assessment {
    if rest.is_null() {
        *rest = json!({});
    }
    rest["metadata"] = json!({
        "generation": metadata.generation,
        "deletionTimestamp": metadata.deletion_timestamp.as_ref().map(|_| "set"),
    });
    health::assess(&resource.kind, rest)
}

/// What changes when somebody takes or changes a field that we manage. The time of an entry also changes when nothing
/// else does, so it is left out.
fn managed_digest(entries: &[ManagedFieldsEntry]) -> Option<Digest> {
    digest_of(entries.iter().filter(|entry| fields::is_ours(entry)), "tideline/managed/v1")
}

/// Changes when somebody else takes or releases a field. Subresources are their controllers' business.
fn others_digest(entries: &[ManagedFieldsEntry]) -> Option<Digest> {
    digest_of(entries.iter().filter(|entry| fields::is_anothers(entry)), "tideline/others/v1")
}

fn digest_of<'a>(entries: impl Iterator<Item = &'a ManagedFieldsEntry>, domain: &str) -> Option<Digest> {
    let mut parts: Vec<[String; 5]> = entries
        .map(
            |ManagedFieldsEntry {
                 api_version,
                 fields_type: _,
                 fields_v1,
                 manager,
                 operation,
                 subresource,
                 time: _,
             }| {
                let text = |part: &Option<String>| part.clone().unwrap_or_default();
                let fields = fields_v1.as_ref().map(|fields| fields.0.to_string()).unwrap_or_default();
                [text(manager), text(operation), text(subresource), text(api_version), fields]
            },
        )
        .collect();
    if parts.is_empty() {
        return None;
    }
    parts.sort();
    let mut hasher = Hasher::new(domain);
    for part in parts.iter().flatten() {
        hasher.field(part.as_bytes());
    }
    Some(hasher.finish())
}

fn managed_elsewhere(metadata: &ObjectMeta, managed: &[ManagedFieldsEntry]) -> bool {
    let annotated =
        |name: &&str| metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(*name));
    managed.iter().any(fields::is_foreign_apply)
        || FOREIGN_ANNOTATIONS.iter().any(annotated)
        || FOREIGN_LABELS
            .iter()
            .any(|(name, value)| label(metadata, name).is_some_and(|found| value.is_none_or(|value| found == value)))
}

#[cfg(test)]
mod tests;
