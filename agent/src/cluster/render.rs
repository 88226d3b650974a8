//! From a body of the journal to the object that is sent.

use serde_json::{Map, Value, json};
use tideline_common::{Additions, Entry, MARK_ANNOTATION, MARK_LABEL, Mark, Uid};

/// What the API server sets; a source has none of it, and an apply with it would be refused or mean something else.
const SERVER_SET: [&str; 6] =
    ["managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "deletionTimestamp"];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error("the body cannot be read as an object: {0}")]
    Decode(String),
    #[error("the body is of {found}, the entry of {expected}")]
    Other { found: String, expected: String },
}

/// Reads a body and adds its policy's labels and annotations, and the mark. A body of another object is refused: only the
/// entry says what is written where.
pub(super) fn render(text: &str, entry: &Entry, additions: &Additions, mark: &Mark) -> Result<Value, Error> {
    let mut object: Value = serde_json::from_str(text).map_err(|error| Error::Decode(error.to_string()))?;
    check_identity(&object, entry)?;
    let metadata = child(&mut object, "metadata")?;
    for field in SERVER_SET {
        metadata.remove(field);
    }
    for (field, added) in [("labels", &additions.labels), ("annotations", &additions.annotations)] {
        for (name, value) in added {
            map_of(metadata, field)?.entry(name.clone()).or_insert_with(|| Value::String(value.clone()));
        }
    }
    put_mark(metadata, mark)?;
    Ok(object)
}

/// Restores what no field policy may take away: the object's identity, and its mark.
pub(super) fn complete(object: &mut Value, entry: &Entry, mark: &Mark) -> Result<(), Error> {
    let key = &entry.key;
    object["apiVersion"] = Value::String(api_version(&key.kind.group, &entry.version));
    object["kind"] = Value::String(key.kind.kind.as_ref().to_owned());
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    let metadata = child(object, "metadata")?;
    metadata.insert("name".to_owned(), Value::String(key.name.as_ref().to_owned()));
    if key.is_namespaced() {
        metadata.insert("namespace".to_owned(), Value::String(key.namespace.as_ref().to_owned()));
    }
    put_mark(metadata, mark)
}

fn put_mark(metadata: &mut Map<String, Value>, mark: &Mark) -> Result<(), Error> {
    map_of(metadata, "labels")?.insert(MARK_LABEL.to_owned(), Value::String(mark.target.to_string()));
    map_of(metadata, "annotations")?.insert(MARK_ANNOTATION.to_owned(), Value::String(mark.encode()));
    Ok(())
}

/// Labels or annotations, which may be absent or null.
fn map_of<'a>(metadata: &'a mut Map<String, Value>, field: &str) -> Result<&'a mut Map<String, Value>, Error> {
    let map = metadata.entry(field.to_owned()).or_insert_with(|| json!({}));
    if map.is_null() {
        *map = json!({});
    }
    map.as_object_mut().ok_or_else(|| Error::Decode(format!("its {field} are no map")))
}

/// Makes an apply hold for one object only: a server-side apply with a UID never creates.
pub(super) fn pin(object: &mut Value, uid: &Uid) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("uid".to_owned(), Value::String(uid.to_string()));
    }
}

fn check_identity(object: &Value, entry: &Entry) -> Result<(), Error> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let key = &entry.key;
    let api_version = api_version(&key.kind.group, &entry.version);
    let found = [text("/apiVersion"), text("/kind"), text("/metadata/namespace"), text("/metadata/name")];
    let expected = [api_version.as_str(), &*key.kind.kind, &*key.namespace, &*key.name];
    if found == expected { Ok(()) } else { Err(Error::Other { found: found.join(" "), expected: expected.join(" ") }) }
}

/// `v1`, `apps/v1`.
pub(super) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn child<'a>(object: &'a mut Value, name: &str) -> Result<&'a mut Map<String, Value>, Error> {
    object.get_mut(name).and_then(Value::as_object_mut).ok_or_else(|| Error::Decode(format!("its {name} is no map")))
}

#[cfg(test)]
mod tests;
