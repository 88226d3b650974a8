//! In which fields an object is not as it was applied, and which of them are to be left so.
//!
//! A field that we still own is as it was applied, however the API server writes it: whoever changes it takes it. So only
//! fields that left our managedFields entry are compared by value. To own a map or a list says nothing of its content: the
//! same tree stands for one that is owned as a whole and for one of which only the key is left.

use serde_json::{Map, Value};
use tideline_common::{Digest, FieldPath, GroupKind, pointer_escaped};

use crate::core::{Difference, LocalField, Values};

/// Differences that are named.
const NAMED_MAX: usize = 8;
/// Bytes of a value in a message: eight differences of two values and a path each fit a report's message.
const VALUE_BYTES_MAX: usize = 40;

/// Local changes that are kept: an object with more has become somebody's own. At some 100 bytes in the journal each.
const LOCAL_MAX: usize = 256;

/// The first differences, in order of their paths, and how many there are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    pub(super) named: Vec<Difference>,
    pub(super) total: usize,
    /// The fields that differ, each by itself where a map above them is gone.
    pub(super) local: Vec<LocalField>,
}

/// Of the fields that somebody changed, those to which the same is assigned as then.
pub(super) fn still_local(local: &[LocalField], assigned: &Value) -> impl Iterator<Item = FieldPath> {
    local.iter().filter_map(move |known| {
        let path = FieldPath::parse(&known.field).ok()?;
        let same =
            path.find(assigned).iter().filter_map(|way| way.read(assigned)).any(|it| digest_of(it) == known.assigned);
        same.then_some(path)
    })
}

fn digest_of(assigned: &Value) -> Digest {
    Digest::of(assigned.to_string().as_bytes())
}

/// Compares assigned with present values; `ours` is the tree of managedFields of our managers.
pub(super) fn differences(kind: &GroupKind, assigned: &Value, found: &Value, ours: &Value) -> Differences {
    let secret = kind.is("", "Secret");
    let mut walk = Walk { secret, path: String::new(), found: Differences::default() };
    match assigned.as_object().filter(|_| secret) {
        Some(fields) => walk.node(&with_string_data(fields), Some(found), Some(ours)),
        None => walk.node(assigned, Some(found), Some(ours)),
    }
    walk.found
}

/// The API server moves `stringData` to `data`, encoded. Its values are never reported, so a field that is not ours any more
/// counts as changed.
fn with_string_data(fields: &Map<String, Value>) -> Value {
    let mut fields = fields.clone();
    if let Some(Value::Object(strings)) = fields.remove("stringData") {
        let data = fields.entry("data").or_insert_with(|| Value::Object(Map::new()));
        if let Some(data) = data.as_object_mut() {
            data.extend(strings.into_iter().map(|(name, _)| (name, Value::String("stringData".to_owned()))));
        }
    }
    Value::Object(fields)
}

struct Walk {
    secret: bool,
    path: String,
    found: Differences,
}

impl Walk {
    fn node(&mut self, assigned: &Value, found: Option<&Value>, ours: Option<&Value>) {
        let container = assigned.is_object() || assigned.is_array();
        if found == Some(assigned) || is_nothing(assigned) || (ours.is_some() && !container) {
            return;
        }
        match (assigned, found) {
            (Value::Object(fields), Some(Value::Object(there))) => {
                for (name, value) in fields {
                    let ours = ours.and_then(|ours| ours.get(format!("f:{name}")));
                    self.within(name, |walk| walk.node(value, there.get(name), ours));
                }
            }
            (Value::Array(items), Some(Value::Array(there))) if items.len() <= there.len() => {
                for (nth, item) in items.iter().enumerate() {
                    let (ours, there) = counterpart(item, nth, there, ours);
                    self.within(&nth.to_string(), |walk| walk.node(item, there, ours));
                }
            }
            (_, found) => self.differs(assigned, found),
        }
    }

    fn within(&mut self, name: &str, visit: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        self.path.push('/');
        self.path.push_str(&pointer_escaped(name));
        visit(self);
        self.path.truncate(length);
    }

    fn differs(&mut self, assigned: &Value, found: Option<&Value>) {
        self.found.total += 1;
        self.keep(assigned);
        if self.found.named.len() == NAMED_MAX {
            return;
        }
        let values = match found {
            _ if self.secret => Values::Redacted,
            Some(found) => Values::Are { assigned: shown(assigned), found: shown(found) },
            None => Values::Gone { assigned: shown(assigned) },
        };
        self.found.named.push(Difference { field: self.path.clone(), values });
    }

    fn keep(&mut self, assigned: &Value) {
        match assigned {
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.within(name, |walk| walk.keep(value));
                }
            }
            Value::Null => {}
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                if self.found.local.len() < LOCAL_MAX {
                    self.found
                        .local
                        .push(LocalField { field: self.path.as_str().into(), assigned: digest_of(assigned) });
                }
            }
        }
    }
}

/// Where an item of a list is, and what of it is ours: found by the keys that its managedFields name, or else by position.
fn counterpart<'a>(
    item: &Value,
    nth: usize,
    there: &'a [Value],
    ours: Option<&'a Value>,
) -> (Option<&'a Value>, Option<&'a Value>) {
    for (name, fields) in ours.and_then(Value::as_object).into_iter().flatten() {
        if let Some(keys) = name.strip_prefix("k:").and_then(|keys| serde_json::from_str::<Value>(keys).ok())
            && holds(item, &keys)
        {
            return (Some(fields), there.iter().find(|there| holds(there, &keys)));
        }
        if let Some(value) = name.strip_prefix("v:").and_then(|value| serde_json::from_str::<Value>(value).ok())
            && value == *item
        {
            return (Some(fields), there.iter().find(|there| **there == value));
        }
    }
    let named = |there: &&Value| item.get("name").is_some_and(|name| there.get("name") == Some(name));
    let alike = there.iter().find(|there| *there == item).or_else(|| there.iter().find(named));
    (None, alike.or_else(|| there.get(nth)))
}

fn holds(item: &Value, keys: &Value) -> bool {
    keys.as_object().is_some_and(|keys| keys.iter().all(|(name, value)| item.get(name) == Some(value)))
}

/// What the API server leaves out.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn shown(value: &Value) -> String {
    let mut text = value.to_string();
    if text.len() > VALUE_BYTES_MAX {
        tideline_common::health::truncate(&mut text, VALUE_BYTES_MAX);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests;
