//! `stringData` of a Secret, which is written and never stored: it becomes `data`, as in kube-apiserver.
//!
//! As there it is the conversion of the whole object that does so, after a server-side apply has recorded who owns what. So an
//! applier owns its keys in `stringData`, nobody owns what they became, and a key that is left out of the next apply stays. Whoever
//! writes in another way owns keys of `data`.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// Moves the `stringData` of a Secret to its `data`, where it wins. Its values were checked to be strings.
pub(crate) fn encode(object: &mut Value) {
    let Some(strings) = take(object) else { return };
    let data = data_of(object);
    for (key, value) in strings {
        data.extend(encoded(key, &value));
    }
    drop_empty(object);
}

/// Moves the `stringData` that earlier versions of this server left in what they stored. A key that is in `data` as well has the value
/// of `stringData`, which is what targets were sent, unless `managedFields` say that somebody else has written it to `data` since.
pub(crate) fn encode_stored(object: &mut Value) {
    let Some(strings) = take(object) else { return };
    let is_older = |key: &str| {
        let strings = last_written(object, key, |strings, _| strings);
        let data = last_written(object, key, |strings, data| data && !strings);
        object["data"].get(key).is_some() && strings.is_some() && strings < data
    };
    let newer: Map<String, Value> = strings.into_iter().filter(|(key, _)| !is_older(key)).collect();
    let moved: BTreeSet<String> = newer.keys().map(|key| format!("f:{key}")).collect();
    let data = data_of(object);
    for (key, value) in newer {
        data.extend(encoded(key, &value));
    }
    drop_empty(object);
    move_owners(object, &moved);
}

/// The `stringData` of a Secret, which no longer has it; where it is no map, there are no strings in it.
fn take(object: &mut Value) -> Option<Map<String, Value>> {
    let fields = object.as_object_mut()?;
    if fields.get("apiVersion")? != "v1" || fields.get("kind")? != "Secret" {
        return None;
    }
    let strings = fields.remove("stringData")?;
    Some(if let Value::Object(strings) = strings { strings } else { Map::new() })
}

fn encoded(key: String, value: &Value) -> Option<(String, Value)> {
    value.as_str().map(|text| (key, STANDARD.encode(text).into()))
}

fn data_of(secret: &mut Value) -> &mut Map<String, Value> {
    if !secret.get("data").is_some_and(Value::is_object) {
        secret["data"] = Value::Object(Map::new());
    }
    secret["data"].as_object_mut().expect("it was just made an object")
}

/// An empty `stringData` makes no `data`.
fn drop_empty(secret: &mut Value) {
    if let Some(fields) = secret.as_object_mut()
        && fields.get("data").and_then(Value::as_object).is_some_and(Map::is_empty)
    {
        fields.remove("data");
    }
}

fn entries(secret: &Value) -> impl Iterator<Item = &Value> {
    secret.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten()
}

/// When a key was written last, as far as the entries say of those who own it in this way, in `stringData` and in `data`: in
/// RFC 3339, of UTC, in whole seconds. One entry has one time for all that it owns.
fn last_written<'a>(secret: &'a Value, key: &str, counts: impl Fn(bool, bool) -> bool) -> Option<&'a str> {
    let key = format!("f:{key}");
    let owns = |entry: &Value, field| entry["fieldsV1"].get(field).is_some_and(|keys| keys.get(&key).is_some());
    let counted = entries(secret).filter(|entry| counts(owns(entry, "f:stringData"), owns(entry, "f:data")));
    counted.filter_map(|entry| entry["time"].as_str()).max()
}

/// Gives who wrote `stringData`, other than by an apply, what it became. Nobody else owns that any longer.
fn move_owners(secret: &mut Value, moved: &BTreeSet<String>) {
    let Some(entries) = secret.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut) else { return };
    for entry in entries.iter_mut() {
        let updates = entry["operation"] == "Update";
        let Some(fields) = entry.get_mut("fieldsV1").and_then(Value::as_object_mut) else { continue };
        if let Some(data) = fields.get_mut("f:data").and_then(Value::as_object_mut) {
            data.retain(|key, _| !moved.contains(key));
        }
        if updates && let Some(Value::Object(strings)) = fields.remove("f:stringData") {
            let owned = strings.into_iter().filter(|(key, _)| key == "." || moved.contains(key));
            let data = fields.entry("f:data").or_insert_with(|| Value::Object(Map::new()));
            if let Some(data) = data.as_object_mut() {
                data.extend(owned);
            }
        }
        if fields.get("f:data").and_then(Value::as_object).is_some_and(Map::is_empty) {
            fields.remove("f:data");
        }
    }
    entries.retain(|entry| entry["fieldsV1"].as_object().is_none_or(|fields| !fields.is_empty()));
}

#[cfg(test)]
mod tests;
