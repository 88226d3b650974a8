//! `metadata.managedFields` between JSON and what the walks need.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::path::BadElement;
use super::set::Set;

/// Who owns fields: the key under which a real server keeps an entry.
///
/// The derived order is the one in which conflicts are listed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Manager {
    pub name: String,
    pub operation: Operation,
    /// Empty for appliers: whoever applies keeps one entry over all versions.
    pub api_version: String,
    /// Empty for the object itself.
    pub subresource: String,
}

/// What an entry's fields were written by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// The fields that one manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) api_version: String,
    pub(super) set: Set,
    /// RFC 3339, UTC, whole seconds.
    pub(super) time: Option<String>,
}

pub(super) type Managers = BTreeMap<Manager, Owned>;

/// An entry of `managedFields` that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadEntry {
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    #[error("apiVersion must not be empty")]
    ApiVersion,
    #[error("managed fields entry {index}: fieldsType must be FieldsV1")]
    FieldsType { index: usize },
    #[error("managed fields entry {index}: time {time:?} is not RFC 3339")]
    Time { index: usize, time: String },
    #[error("managed fields entry {index}: fieldsV1")]
    Fields { index: usize, source: BadElement },
    #[error("managedFields is not a list of entries")]
    NotEntries,
}

/// Reads `managedFields`; nothing is no managers.
pub(super) fn decode(entries: Option<&Value>) -> Result<Managers, BadEntry> {
    let entries = match entries {
        None | Some(Value::Null) => return Ok(Managers::new()),
        Some(Value::Array(entries)) => entries,
        Some(_) => return Err(BadEntry::NotEntries),
    };
    let mut managers = Managers::new();
    for (index, entry) in entries.iter().enumerate() {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let operation = match &*text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err(BadEntry::Operation),
        };
        let api_version = text("apiVersion");
        if api_version.is_empty() {
            return Err(BadEntry::ApiVersion);
        }
        if text("fieldsType") != "FieldsV1" {
            return Err(BadEntry::FieldsType { index });
        }
        let time = match text("time") {
            time if time.is_empty() => None,
            time => Some(whole_seconds(&time).ok_or(BadEntry::Time { index, time })?),
        };
        let set = Set::parse(entry.get("fieldsV1").unwrap_or(&Value::Null))
            .map_err(|source| BadEntry::Fields { index, source })?;
        let manager = Manager {
            name: text("manager"),
            operation,
            api_version: match operation {
                Operation::Apply => String::new(),
                Operation::Update => api_version.clone(),
            },
            subresource: text("subresource"),
        };
        managers.insert(manager, Owned { api_version, set, time });
    }
    Ok(managers)
}

fn whole_seconds(time: &str) -> Option<String> {
    let time: Timestamp = time.parse().ok()?;
    Timestamp::from_second(time.as_second()).ok().map(|time| time.to_string())
}

/// Writes `managedFields`, in a real server's order: appliers first, then by time, then by name.
pub(super) fn encode(managers: &Managers) -> Option<Value> {
    if managers.is_empty() {
        return None;
    }
    let mut entries: Vec<(&Manager, &Owned)> = managers.iter().collect();
    entries.sort_by(|(manager, owned), (other, theirs)| {
        let key = |manager: &Manager, owned: &Owned| (manager.operation, owned.time.clone(), manager.name.clone());
        key(manager, owned)
            .cmp(&key(other, theirs))
            .then_with(|| owned.api_version.cmp(&theirs.api_version))
            .then_with(|| manager.subresource.cmp(&other.subresource))
    });
    Some(entries.into_iter().map(|(manager, owned)| encode_entry(manager, owned)).collect())
}

fn encode_entry(manager: &Manager, owned: &Owned) -> Value {
    let mut entry = Map::new();
    entry.insert("apiVersion".to_owned(), json!(owned.api_version));
    entry.insert("fieldsType".to_owned(), json!("FieldsV1"));
    entry.insert("fieldsV1".to_owned(), owned.set.encode());
    let optional = [("manager", &manager.name), ("subresource", &manager.subresource)];
    for (key, text) in optional.into_iter().filter(|(_, text)| !text.is_empty()) {
        entry.insert(key.to_owned(), json!(text));
    }
    entry.insert("operation".to_owned(), json!(manager.operation.as_str()));
    if let Some(time) = &owned.time {
        entry.insert("time".to_owned(), json!(time));
    }
    Value::Object(entry)
}

/// Whether the entries ask for field ownership to be forgotten: `[]` or `[{}]`.
pub(super) fn is_reset(entries: Option<&Value>) -> bool {
    match entries.and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(|entry| {
            entry.values().all(|value| match value {
                Value::Null => true,
                Value::String(text) => text.is_empty(),
                Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => false,
            })
        }),
        Some(_) | None => false,
    }
}

/// Entries merged at most into this many updaters, as a real server does.
const UPDATERS_MAX: usize = 10;

/// The name under which the oldest updaters are merged.
const ANCIENT: &str = "ancient-changes";

/// Merges the oldest updaters of a version until at most [`UPDATERS_MAX`] are left.
pub(super) fn cap_updaters(managers: &mut Managers) {
    let mut updaters: Vec<Manager> =
        managers.keys().filter(|manager| manager.operation == Operation::Update).cloned().collect();
    let mut left = updaters.len();
    if left <= UPDATERS_MAX {
        return;
    }
    updaters.sort_by(|a, b| managers[a].time.cmp(&managers[b].time).then_with(|| a.cmp(b)));
    let mut first_of_version: BTreeMap<String, Manager> = BTreeMap::new();
    for manager in updaters {
        if left <= UPDATERS_MAX {
            break;
        }
        let version = managers[&manager].api_version.clone();
        let Some(first) = first_of_version.get(&version) else {
            first_of_version.insert(version, manager);
            continue;
        };
        let bucket = Manager {
            name: ANCIENT.to_owned(),
            operation: Operation::Update,
            api_version: version.clone(),
            subresource: String::new(),
        };
        if !managers.contains_key(&bucket)
            && let Some(owned) = managers.remove(first)
        {
            managers.insert(bucket.clone(), owned);
        }
        if manager != bucket
            && let Some(merged) = managers.remove(&manager)
            && let Some(ancient) = managers.get_mut(&bucket)
        {
            ancient.set = ancient.set.union(&merged.set);
            ancient.time = merged.time;
            left -= 1;
        }
    }
}
