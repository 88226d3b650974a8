//! Objects between the store and a client: reading, defaults on read, small accessors.
//!
//! Built-in kinds are stored as written. What follows is all that a read adds to them, because clients depend on it.
//! None of it is in the store, and none of it comes out of the feed.
//!
//! | kind | added when absent |
//! |---|---|
//! | Namespace | label `kubernetes.io/metadata.name`, `spec.finalizers: [kubernetes]`, `status.phase: Active` |
//! | Deployment, ReplicaSet, StatefulSet, ReplicationController | `spec.replicas: 1` |
//! | Service | `spec.type: ClusterIP`; `protocol: TCP` of each port |
//! | Secret | `type: Opaque` |
//! | Pod, PersistentVolumeClaim, PersistentVolume | `status.phase: Pending` |
//! | CustomResourceDefinition | `spec.conversion.strategy: None`, singular and list kind |

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tideline_store::{Item, Revision};

use crate::catalog::{Served, Source};
use crate::extent::{DEPTH_MAX, encoded_depth};
use crate::keys::Key;
use crate::status::{ApiError, Cause};
use crate::{string_data, structural};

/// Stands in `spec.finalizers` of a namespace for what is in it. Only the controller takes it off, and who writes to `finalize`.
pub(crate) const CONTENT_FINALIZER: &str = "kubernetes";

/// The namespaces that every space has, and that cannot be deleted.
pub const OWN_NAMESPACES: [&str; 2] = ["default", "kube-system"];

/// The time as objects carry it: UTC, whole seconds.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Text at a pointer; empty if absent.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

pub(crate) fn namespace(object: &Value) -> Option<&str> {
    Some(text(object, "/metadata/namespace")).filter(|namespace| !namespace.is_empty())
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

pub(crate) fn is_terminating(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
}

pub(crate) fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    let list = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}

/// The metadata of an object, made if it is not there.
pub(crate) fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    if !object.get("metadata").is_some_and(Value::is_object) {
        object["metadata"] = json!({});
    }
    object["metadata"].as_object_mut().expect("it was just made an object")
}

/// An object as it was written, with the version of the store that wrote it.
pub(crate) fn read(item: &Item) -> Result<Value, ApiError> {
    read_at(&item.value, item.modified)
}

pub(crate) fn read_at(value: &[u8], revision: Revision) -> Result<Value, ApiError> {
    let undecodable = |why: String| ApiError::unreadable(format!("an object in the store cannot be decoded: {why}"));
    let mut object: Value = serde_json::from_slice(value).map_err(|error| undecodable(error.to_string()))?;
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    // Everything that was stored has metadata; to make it would give an object that nobody wrote.
    let metadata = metadata.ok_or_else(|| undecodable("it has no metadata".to_owned()))?;
    metadata.insert("resourceVersion".into(), revision.0.to_string().into());
    string_data::encode_stored(&mut object);
    Ok(object)
}

/// An object as it is stored: in the version that is stored, and without its resource version, which is that of the commit.
pub(crate) fn stored(mut object: Value, served: &Served) -> Value {
    metadata(&mut object).remove("resourceVersion");
    object["apiVersion"] = served.resource.api_version().into();
    object
}

/// The bytes of a stored object, in place of others, which are none for a new one. Every write comes through here: its depth is
/// that of what is stored, and who owns the fields of a deep object is kept deeper still.
pub(crate) fn encode(stored: &Value, instead_of: &[u8]) -> Result<Bytes, TooDeep> {
    let bytes = Bytes::from(stored.to_string());
    let depth = encoded_depth(&bytes);
    // What was stored deeper than that can be deleted, which may be to write it with a mark.
    if depth > DEPTH_MAX && depth > encoded_depth(instead_of) {
        return Err(TooDeep { depth });
    }
    Ok(bytes)
}

/// An object that is not stored, for nobody might read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must not be nested more than {DEPTH_MAX} levels deep; with the record of who owns its fields (metadata.managedFields) it has \
     {depth} levels"
)]
pub(crate) struct TooDeep {
    depth: usize,
}

/// The bytes to store of what a client wrote.
pub(crate) fn write(object: Value, served: &Served, instead_of: &[u8]) -> Result<Bytes, ApiError> {
    let object = stored(object, served);
    encode(&object, instead_of).map_err(|too_deep| {
        let message = format!("Invalid value: {too_deep}");
        let cause = Cause { reason: "FieldValueInvalid".into(), message, field: String::new() };
        ApiError::invalid(&served.resource.group, &served.resource.kind, name(&object), vec![cause])
    })
}

/// A stored object as a write works on it: in the version of the request, custom resources in their present schema.
pub(crate) fn convert(served: &Served, mut object: Value) -> Value {
    object["apiVersion"] = served.api_version.clone().into();
    if let Source::Custom(custom) = &served.source {
        structural::prune(custom.ty.root(), &mut object);
        structural::prune_nulls(custom.ty.root(), &mut object);
        // What has too many is shown with some of them: a write of it is refused.
        let _ = structural::apply_defaults(custom.ty.root(), &mut object);
    }
    object
}

/// A stored object as a client sees it.
pub(crate) fn present(served: &Served, object: Value) -> Value {
    let mut object = convert(served, object);
    fill_defaults(served, &mut object);
    object
}

/// A stored object as a client sees it among others. One that cannot be read is there as well, with what its key says: it has no
/// UID, and whoever reads it by its name is told more.
pub(crate) fn present_any(served: &Served, item: &Item, at: Revision) -> Value {
    read_at(&item.value, at).map_or_else(|_unreadable| by_key(served, &item.key, at), |object| present(served, object))
}

/// What is known of an object that cannot be read.
pub(crate) fn by_key(served: &Served, key: &[u8], at: Revision) -> Value {
    let text = String::from_utf8_lossy(key);
    let mut metadata = json!({"resourceVersion": at.0.to_string()});
    if let Some(Key::Object { namespace, name, .. }) = Key::parse(text.as_bytes()) {
        metadata["name"] = name.into();
        if let Some(namespace) = namespace {
            metadata["namespace"] = namespace.into();
        }
    }
    json!({"apiVersion": served.api_version, "kind": served.resource.kind, "metadata": metadata})
}

/// The metadata of an object as an object of its own.
pub(crate) fn partial(object: &Value, typed: bool) -> Value {
    let mut partial = json!({"metadata": object["metadata"]});
    if typed {
        partial["kind"] = "PartialObjectMetadata".into();
        partial["apiVersion"] = "meta.k8s.io/v1".into();
    }
    partial
}

/// Where a value is or is to be; an object on the way is made. None where something else is in the way.
fn slot<'a>(object: &'a mut Value, path: &[&str]) -> Option<&'a mut Value> {
    let (last, way) = path.split_last()?;
    let mut at = object;
    for step in way {
        at = at.as_object_mut()?.entry(*step).or_insert_with(|| json!({}));
    }
    Some(at.as_object_mut()?.entry(*last).or_insert(Value::Null))
}

/// Sets one default if nothing is there.
fn default_at(object: &mut Value, path: &[&str], value: impl FnOnce() -> Value) {
    if let Some(slot) = slot(object, path)
        && slot.is_null()
    {
        *slot = value();
    }
}

/// Sets a value, where nothing but objects is on the way.
pub(crate) fn set_at(object: &mut Value, path: &[&str], value: Value) {
    if let Some(slot) = slot(object, path) {
        *slot = value;
    }
}

/// Gives an object the value of the stored one, or takes its own out where that has none.
pub(crate) fn keep_at(object: &mut Value, path: &[&str], stored: &Value) {
    match path.iter().try_fold(stored, |at, step| at.get(step)) {
        Some(value) => set_at(object, path, value.clone()),
        None => remove_and_close(object, path, stored),
    }
}

/// The paths and values that a read adds; the one table behind filling in and taking out.
fn defaults(served: &Served, object: &Value) -> Vec<(Vec<&'static str>, Value)> {
    if !matches!(served.source, Source::BuiltIn(_)) {
        return Vec::new();
    }
    match (served.resource.group.as_str(), served.resource.kind.as_str()) {
        ("", "Namespace") => vec![
            (vec!["metadata", "labels", "kubernetes.io/metadata.name"], name(object).into()),
            (vec!["spec", "finalizers"], json!([CONTENT_FINALIZER])),
            (vec!["status", "phase"], "Active".into()),
        ],
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet") | ("", "ReplicationController") => {
            vec![(vec!["spec", "replicas"], 1.into())]
        }
        ("", "Service") => vec![(vec!["spec", "type"], "ClusterIP".into())],
        ("", "Secret") => vec![(vec!["type"], "Opaque".into())],
        ("", "Pod" | "PersistentVolumeClaim" | "PersistentVolume") => {
            vec![(vec!["status", "phase"], "Pending".into())]
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            let kind = text(object, "/spec/names/kind");
            vec![
                (vec!["spec", "conversion", "strategy"], "None".into()),
                (vec!["spec", "names", "singular"], kind.to_lowercase().into()),
                (vec!["spec", "names", "listKind"], format!("{kind}List").into()),
            ]
        }
        _ => Vec::new(),
    }
}

fn ports(object: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let ports = object.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
    ports.into_iter().flatten().filter_map(Value::as_object_mut)
}

fn is_service(served: &Served) -> bool {
    served.resource.kind == "Service" && served.resource.group.is_empty()
}

fn fill_defaults(served: &Served, object: &mut Value) {
    for (path, value) in defaults(served, object) {
        default_at(object, &path, || value);
    }
    if is_service(served) {
        for port in ports(object) {
            port.entry("protocol").or_insert_with(|| "TCP".into());
        }
    }
}

/// Takes out of a replaced object the defaults that its writer only echoes: those that the stored object does not have.
pub(crate) fn strip_defaults(served: &Served, stored: &Value, object: &mut Value) {
    for (path, value) in defaults(served, object) {
        let pointer: String =
            path.iter().flat_map(|step| ["/".to_owned(), step.replace('~', "~0").replace('/', "~1")]).collect();
        if stored.pointer(&pointer).is_none() && object.pointer(&pointer) == Some(&value) {
            remove_and_close(object, &path, stored);
        }
    }
    if is_service(served) {
        let written = |number: Option<&Value>| {
            let ports = stored.pointer("/spec/ports").and_then(Value::as_array);
            ports.into_iter().flatten().any(|port| port.get("port") == number && port.get("protocol").is_some())
        };
        for port in ports(object) {
            if port.get("protocol").is_some_and(|protocol| protocol == "TCP") && !written(port.get("port")) {
                port.remove("protocol");
            }
        }
    }
}

/// Removes a value, and the objects around it that are left empty and are not in the stored object.
fn remove_and_close(object: &mut Value, path: &[&str], stored: &Value) {
    let Some((first, rest)) = path.split_first() else { return };
    let Some(map) = object.as_object_mut() else { return };
    if rest.is_empty() {
        map.remove(*first);
        return;
    }
    if let Some(inner) = map.get_mut(*first) {
        let below = stored.get(*first).unwrap_or(&Value::Null);
        remove_and_close(inner, rest, below);
        if below.is_null() && inner.as_object().is_some_and(Map::is_empty) {
            map.remove(*first);
        }
    }
}

#[cfg(test)]
mod tests;
