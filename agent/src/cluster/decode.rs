//! The facts kept of an object: everything the core decides by, nothing of its spec.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tideline_common::health::{self, Assessment, Subject};
use tideline_common::{Digest, Hasher, MARK_ANNOTATION, MARK_LABEL, Mark, ObjectKey, Ownership, SourceRef, Uid};

use super::Scope;
use super::fields;
use super::metadata::{ManagedFields, Metadata};
use super::object::Object;
use super::resource::Resource;
use crate::core::{Details, ListedItem, Observed, ObservedStatus};

/// Labels by which other tools say that they manage an object; the value, if it must be one.
const FOREIGN_LABELS: [(&str, Option<&str>); 4] = [
    ("app.kubernetes.io/managed-by", Some("Helm")),
    ("argocd.argoproj.io/instance", None),
    ("kustomize.toolkit.fluxcd.io/name", None),
    ("helm.toolkit.fluxcd.io/name", None),
];
const FOREIGN_ANNOTATIONS: [&str; 2] = ["meta.helm.sh/release-name", "argocd.argoproj.io/tracking-id"];

/// Bytes of the longest `fieldsV1` that is decoded, so that order and white space do not matter where two are compared: ten
/// times that of a large Deployment. Decoded it takes forty times as much, 10 MiB, while one entry is read.
const FIELDS_BYTES_MAX: usize = 256 << 10;

/// Decodes an object. None for what no API server sends: an object without name or UID.
pub(super) fn decode(scope: &Scope, resource: &Resource, object: Object) -> Option<Observed> {
    let Object { metadata, spec, status } = object;
    let key = key_of(resource, &metadata)?;
    let uid = Uid::try_from(metadata.uid.clone()?).ok()?;
    let managed = metadata.managed();
    let subject = Subject {
        generation: metadata.generation,
        deleting: metadata.deletion_timestamp.is_some(),
        spec: spec.as_deref(),
        status: status.as_deref(),
    };
    let Assessment { health, message, observed_generation, terminal } = health::assess(&resource.kind, subject);
    let (mark, illegible) = marked(&metadata);
    Some(Observed {
        uid,
        resource_version: metadata.resource_version.as_deref().unwrap_or_default().into(),
        generation: metadata.generation.unwrap_or(0),
        managed: managed_digest(managed),
        managed_elsewhere: illegible || managed_elsewhere(&metadata),
        mark: mark.map(|mark| Arc::new(sharing(mark, &key))),
        illegible,
        labelled: label(&metadata, MARK_LABEL).is_some_and(|value| super::is_ours(scope, value)),
        deleting: metadata.deletion_timestamp.is_some(),
        health,
        health_message: message,
        observed_generation,
        terminal,
        template: None,
        status: ObservedStatus::of(status),
        others: others_digest(managed),
        key,
    })
}

/// Bytes of a status that are kept of an object that carries our label and not our mark: as much as all else that is kept of
/// it. There may be any number of those, from whoever copies labels, and a whole list of them is kept until it is told.
const STRANGERS_STATUS_BYTES_MAX: usize = 1 << 10;

/// The same of an object that a list or a watch shows, unasked for.
pub(super) fn decode_watched(scope: &Scope, resource: &Resource, object: Object) -> Option<Observed> {
    let observed = decode(scope, resource, object)?;
    let ownership = observed.mark.as_ref().map(|mark| mark.ownership(*scope, &observed.key));
    let status = match observed.status {
        ObservedStatus::Text(text)
            if ownership != Some(Ownership::Ours) && text.get().len() > STRANGERS_STATUS_BYTES_MAX =>
        {
            ObservedStatus::Left
        }
        status => status,
    };
    Some(Observed { status, ..observed })
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

fn details(metadata: &Metadata) -> Details {
    let managed = metadata.managed();
    let (mark, illegible) = marked(metadata);
    Details {
        generation: metadata.generation.unwrap_or(0),
        managed: managed_digest(managed),
        managed_elsewhere: illegible || managed_elsewhere(metadata),
        mark: mark.map(Arc::new),
        illegible,
        deleting: metadata.deletion_timestamp.is_some(),
        others: others_digest(managed),
    }
}

pub(super) fn key_of(resource: &Resource, metadata: &Metadata) -> Option<ObjectKey> {
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    Some(ObjectKey::new(resource.kind.clone(), namespace, metadata.name.as_deref()?))
}

/// The mark, if there is a readable one.
pub(super) fn mark_of(metadata: &Metadata) -> Option<Mark> {
    Mark::decode(metadata.annotations.as_ref()?.get(MARK_ANNOTATION)?).ok()
}

/// The mark, and whether there is one that cannot be read: of a later layout, perhaps of another hub's agent.
fn marked(metadata: &Metadata) -> (Option<Mark>, bool) {
    let mark = mark_of(metadata);
    let annotated = metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(MARK_ANNOTATION));
    let illegible = annotated && mark.is_none();
    (mark, illegible)
}

/// A mark whose texts are those of the key where they say the same, as nearly all do: a list of tens of thousands is in memory
/// at once.
fn sharing(mut mark: Mark, key: &ObjectKey) -> Mark {
    if mark.local == *key {
        mark.local.clone_from(key);
    }
    let SourceRef { space: _, uid: _, namespace, name } = &mut mark.source;
    if *namespace == key.namespace {
        namespace.clone_from(&key.namespace);
    }
    if *name == key.name {
        name.clone_from(&key.name);
    }
    mark
}

fn label<'a>(metadata: &'a Metadata, name: &str) -> Option<&'a String> {
    metadata.labels.as_ref()?.get(name)
}

/// What changes when somebody takes or changes a field that we manage. The time of an entry also changes when nothing
/// else does, so it is left out.
fn managed_digest(entries: &[ManagedFields]) -> Option<Digest> {
    digest_of(entries.iter().filter(|entry| fields::is_ours(entry)), "tideline/managed/v1")
}

/// Changes when somebody else takes or releases a field. Subresources are their controllers' business.
fn others_digest(entries: &[ManagedFields]) -> Option<Digest> {
    digest_of(entries.iter().filter(|entry| fields::is_anothers(entry)), "tideline/others/v1")
}

fn digest_of<'a>(entries: impl Iterator<Item = &'a ManagedFields>, domain: &str) -> Option<Digest> {
    let mut parts: Vec<[String; 5]> = entries
        .map(|ManagedFields { api_version, fields_type: _, fields_v1, manager, operation, subresource, time: _ }| {
            let text = |part: &Option<String>| part.clone().unwrap_or_default();
            let fields = fields_v1.as_deref().map(canonical).unwrap_or_default();
            [text(manager), text(operation), text(subresource), text(api_version), fields.into_owned()]
        })
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

/// In the order of their names; as it came what is too large for that, or nested deeper than what can be read.
fn canonical(fields: &RawValue) -> Cow<'_, str> {
    let text = fields.get();
    let decoded = Some(text)
        .filter(|text| text.len() <= FIELDS_BYTES_MAX)
        .and_then(|text| serde_json::from_str::<Value>(text).ok());
    decoded.map_or(Cow::Borrowed(text), |fields| Cow::Owned(fields.to_string()))
}

fn managed_elsewhere(metadata: &Metadata) -> bool {
    let annotated =
        |name: &&str| metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(*name));
    metadata.managed().iter().any(fields::is_foreign_apply)
        || FOREIGN_ANNOTATIONS.iter().any(annotated)
        || FOREIGN_LABELS
            .iter()
            .any(|(name, value)| label(metadata, name).is_some_and(|found| value.is_none_or(|value| found == value)))
}

#[cfg(test)]
mod tests;
