//! What leaves a space: which objects never do, and what of the others stays behind.

mod input;
mod mapping;
mod never;
mod render;
mod strip;
mod wave;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use tideline_common::limits::BODY_BYTES_MAX;
use tideline_common::{
    ASSIGNED_LOCATIONS_ANNOTATION, FieldPath, GroupKind, KEEP_FIELDS_ANNOTATION, ObjectKey, Reason, Uid,
    WAVE_ANNOTATION,
};

pub use input::Input;
pub use mapping::{Destination, NamespaceMapping, place_at};
pub use render::{refers_to_namespaces, rendered};

/// Fields that one object may ask to keep, as many as a clause may have policies for: each is looked for in the whole object.
const KEPT_FIELDS_MAX: usize = 64;

/// Labels, as objects carry them and selectors read them.
pub type Labels = BTreeMap<String, String>;

/// An object of a space as placement sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    pub key: ObjectKey,
    pub uid: Uid,
    /// None where they cannot be read, which the content says then.
    pub labels: Option<Arc<Labels>>,
    pub content: Content,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// It may be placed, so.
    Outbound(Outbound),
    /// Whatever selects it, it stays.
    NeverPlaced(&'static str),
    /// It may be placed once somebody repairs it; until then its last good form stands.
    Unreadable(Refusal),
}

/// What travels of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Outbound {
    /// The version of the group that `input` is written in.
    pub version: Arc<str>,
    /// Zero where the kind has none.
    pub generation: i64,
    pub input: Input,
    pub wave: i32,
    /// Locations that the object itself asks for.
    pub assigned_locations: Vec<String>,
    /// It has a deletionTimestamp. It stays assigned until it is gone.
    pub deleting: bool,
}

/// Why an object cannot be placed as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: Reason,
    /// For the person who wrote the object: what is wrong and what would be right.
    pub message: String,
}

impl Refusal {
    pub(crate) fn undecodable(message: impl Into<String>) -> Self {
        Self { reason: Reason::Undecodable, message: message.into() }
    }
}

/// What stands behind a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceServer {
    /// The hub itself. Nobody gives objects addresses, ports or volumes there: what they have, their authors wrote.
    Embedded,
    /// A Kubernetes API server, perhaps with controllers.
    Assigning,
}

/// Reads an object of a space. An error is one that has not even an identity.
///
/// # Errors
///
/// It has not even an identity: API version, kind, name and UID.
pub fn read(server: SpaceServer, object: &Value) -> Result<Source, Refusal> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    let metadata = object.get("metadata").and_then(Value::as_object);
    let metadata = metadata.ok_or_else(|| Refusal::undecodable("metadata is missing"))?;
    let kind = text(object.get("kind")).ok_or_else(|| Refusal::undecodable("kind is missing"))?;
    let api_version = text(object.get("apiVersion")).ok_or_else(|| Refusal::undecodable("apiVersion is missing"))?;
    let name = text(metadata.get("name")).ok_or_else(|| Refusal::undecodable("metadata.name is missing"))?;
    let namespace = text(metadata.get("namespace")).unwrap_or_default();
    let uid = text(metadata.get("uid")).ok_or_else(|| Refusal::undecodable("metadata.uid is missing"))?;
    let uid = Uid::try_from(uid).map_err(|error| Refusal::undecodable(format!("metadata.uid: {error}")))?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let key = ObjectKey::new(GroupKind::new(group, kind), namespace, name);
    let (labels, content) = match strings(metadata, "labels") {
        Err(refusal) => (None, Content::Unreadable(refusal)),
        Ok(labels) => {
            let content = match never::never_placed(&key, object) {
                Some(why) => Content::NeverPlaced(why),
                None => outbound(server, &key, version, metadata, object)
                    .map_or_else(Content::Unreadable, Content::Outbound),
            };
            (Some(Arc::new(labels)), content)
        }
    };
    Ok(Source { key, uid, labels, content })
}

/// The wave that objects of a kind go in unless they say otherwise.
pub fn default_wave(kind: &GroupKind) -> i32 {
    wave::of(kind)
}

/// The namespace that is brought along for what is placed in it: its name and labels.
pub fn implied_namespace(name: &str, labels: &Labels) -> Input {
    let mut body = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let mut labels = labels.clone();
    strip::server_labels(&mut labels);
    if !labels.is_empty() {
        body["metadata"]["labels"] = labels.into_iter().map(|(key, value)| (key, Value::from(value))).collect();
    }
    Input::new(canonical(&body))
}

fn outbound(
    server: SpaceServer,
    key: &ObjectKey,
    version: &str,
    metadata: &Map<String, Value>,
    object: &Value,
) -> Result<Outbound, Refusal> {
    let annotations = strings(metadata, "annotations")?;
    let wave = match annotations.get(WAVE_ANNOTATION) {
        Some(wave) => wave.trim().parse().map_err(|_| {
            Refusal::undecodable(format!("annotation {WAVE_ANNOTATION}: {wave:?} is not a whole number"))
        })?,
        None => wave::of(&key.kind),
    };
    let assigned_locations = match annotations.get(ASSIGNED_LOCATIONS_ANNOTATION) {
        Some(names) => serde_json::from_str(names).map_err(|_| {
            let message = format!(
                "annotation {ASSIGNED_LOCATIONS_ANNOTATION}: {names:?} is not a JSON list of names such as [\"eu-shops\"]"
            );
            Refusal::undecodable(message)
        })?,
        None => Vec::new(),
    };
    let keep = match annotations.get(KEEP_FIELDS_ANNOTATION) {
        Some(paths) => kept_fields(paths)?,
        None => Vec::new(),
    };
    let text = canonical(&strip::stripped(server, &key.kind, object, &keep));
    if text.len() > BODY_BYTES_MAX {
        let message = format!("it has {} bytes; no target could store more than {BODY_BYTES_MAX}", text.len());
        return Err(Refusal { reason: Reason::TooLarge, message });
    }
    Ok(Outbound {
        version: version.into(),
        generation: metadata.get("generation").and_then(Value::as_i64).unwrap_or(0),
        input: Input::new(text),
        wave,
        assigned_locations,
        deleting: metadata.get("deletionTimestamp").is_some_and(|time| !time.is_null()),
    })
}

fn kept_fields(paths: &str) -> Result<Vec<FieldPath>, Refusal> {
    let listed: Vec<String> = serde_json::from_str(paths).map_err(|_| {
        Refusal::undecodable(format!(
            "annotation {KEEP_FIELDS_ANNOTATION}: {paths:?} is not a JSON list of fields such as [\"/spec/clusterIP\"]"
        ))
    })?;
    if listed.len() > KEPT_FIELDS_MAX {
        return Err(Refusal::undecodable(format!(
            "annotation {KEEP_FIELDS_ANNOTATION}: it lists {} fields, and may list {KEPT_FIELDS_MAX}",
            listed.len()
        )));
    }
    let parsed = listed.iter().map(|path| {
        FieldPath::parse(path)
            .map_err(|error| Refusal::undecodable(format!("annotation {KEEP_FIELDS_ANNOTATION}: {path:?}: {error}")))
    });
    parsed.collect()
}

/// Labels or annotations. To leave out what is no string would be to take it for absent, which only null means.
fn strings(metadata: &Map<String, Value>, field: &str) -> Result<Labels, Refusal> {
    let pairs = match metadata.get(field) {
        None | Some(Value::Null) => return Ok(Labels::new()),
        Some(Value::Object(pairs)) => pairs,
        Some(other) => return Err(Refusal::undecodable(format!("metadata.{field}: {other} is no map of strings"))),
    };
    let pair = |(key, value): (&String, &Value)| match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some((key.clone(), text.clone()))),
        other => Err(Refusal::undecodable(format!(
            "metadata.{field}: {key:?} is {other}, which is no string; put it in quotes"
        ))),
    };
    pairs.iter().filter_map(|each| pair(each).transpose()).collect()
}

/// Compact JSON with sorted keys: the same text for the same object, however the map happens to be built.
fn canonical(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<_> = map.keys().collect();
            keys.sort_unstable();
            out.push('{');
            for (nth, key) in keys.into_iter().enumerate() {
                if nth > 0 {
                    out.push(',');
                }
                scalar(&Value::from(key.as_str()), out);
                out.push(':');
                write(&map[key], out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (nth, item) in items.iter().enumerate() {
                if nth > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => scalar(value, out),
    }
}

fn scalar(value: &Value, out: &mut String) {
    out.push_str(&value.to_string());
}

#[cfg(test)]
mod tests;
