//! Fields in three notations: paths in an object, the API server's text (conflicts), and the trees of managedFields
//! (`FieldsV1`, structured-merge-diff's serialization of a set of paths).
//!
//! In such a tree a key `f:name` is a field, `k:{…}`, `v:…` and `i:…` are list items, and `.` says that the node itself is
//! in the set; a node without keys is in the set too.

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tideline_common::{FIELD_MANAGER, FIELD_MANAGER_INITIAL, ObjectPath, PathElement, Reason};

use super::failure::Failure;
use super::metadata::ManagedFields;

const APPLY: &str = "Apply";
const UPDATE: &str = "Update";

/// Whether an entry is by one of our two managers.
pub(super) fn is_ours(entry: &ManagedFields) -> bool {
    matches!(entry.manager.as_deref(), Some(FIELD_MANAGER | FIELD_MANAGER_INITIAL))
}

/// Whether an entry is somebody else's, and of the object itself.
pub(super) fn is_anothers(entry: &ManagedFields) -> bool {
    !is_ours(entry) && of_object(entry)
}

/// Whether an entry says that somebody else applies the object declaratively.
pub(super) fn is_foreign_apply(entry: &ManagedFields) -> bool {
    !is_ours(entry) && entry.operation.as_deref() == Some(APPLY) && of_object(entry)
}

/// Whether an entry is that of the controller of HorizontalPodAutoscalers, which scales through the subresource.
pub(super) fn is_autoscalers(entry: &ManagedFields) -> bool {
    entry.manager.as_deref() == Some("kube-controller-manager") && entry.subresource.as_deref() == Some("scale")
}

pub(super) fn applies(entries: &[ManagedFields], manager: &str) -> bool {
    entry_applied_by(entries, manager).is_some()
}

/// The fields that `manager` applies.
fn applied_by(entries: &[ManagedFields], manager: &str) -> Result<Option<Value>, Failure> {
    entry_applied_by(entries, manager).map_or(Ok(None), tree)
}

fn entry_applied_by<'a>(entries: &'a [ManagedFields], manager: &str) -> Option<&'a ManagedFields> {
    let applied = |entry: &&ManagedFields| {
        entry.manager.as_deref() == Some(manager) && entry.operation.as_deref() == Some(APPLY) && of_object(entry)
    };
    entries.iter().find(applied).filter(|entry| entry.fields_v1.is_some())
}

/// Turns what our POST left (an Update entry) into what an apply would have left, so that fields which are dropped later
/// are removed. None if there is no such entry.
fn claim_posted(entries: &[ManagedFields]) -> Result<Option<Vec<ManagedFields>>, Failure> {
    let is = |entry: &ManagedFields, operation: &str| {
        entry.manager.as_deref() == Some(FIELD_MANAGER)
            && entry.operation.as_deref() == Some(operation)
            && of_object(entry)
    };
    let Some(posted) = entries.iter().find(|entry| is(entry, UPDATE)) else { return Ok(None) };
    let mut claimed: Vec<_> = entries.iter().filter(|entry| !is(entry, UPDATE)).cloned().collect();
    match claimed.iter_mut().find(|entry| is(entry, APPLY)) {
        Some(applied) => {
            let mut fields = tree(applied)?.unwrap_or_default();
            if let Some(more) = tree(posted)? {
                unite(&mut fields, &more);
            }
            applied.fields_v1 = Some(text(&fields));
        }
        None => claimed.push(ManagedFields { operation: Some(APPLY.to_owned()), ..posted.clone() }),
    }
    Ok(Some(claimed))
}

/// Takes our fields out of the Update entries of others, who wrote the object before it was adopted; their other fields stay
/// theirs. None if nothing changes.
pub(super) fn claim_from_others(entries: &[ManagedFields]) -> Result<Option<Vec<ManagedFields>>, Failure> {
    let Some(ours) = applied_by(entries, FIELD_MANAGER)? else { return Ok(None) };
    let mut changed = false;
    let mut claimed = Vec::with_capacity(entries.len());
    for entry in entries {
        let former = entry.operation.as_deref() == Some(UPDATE) && of_object(entry) && !is_ours(entry);
        let fields = if former { tree(entry)? } else { None };
        let Some(fields) = fields else {
            claimed.push(entry.clone());
            continue;
        };
        let rest = subtract(&fields, &ours);
        changed |= rest.as_ref() != Some(&fields);
        if let Some(rest) = rest {
            claimed.push(ManagedFields { fields_v1: Some(text(&rest)), ..entry.clone() });
        }
    }
    Ok(changed.then_some(claimed))
}

/// The fields that others manage.
pub(super) fn without_ours(entries: &[ManagedFields]) -> Vec<ManagedFields> {
    entries.iter().filter(|entry| !is_ours(entry)).cloned().collect()
}

/// What all managers of the object have, as one set.
pub(super) fn managed_by_anybody(entries: &[ManagedFields]) -> Result<Value, Failure> {
    united(entries.iter().filter(|entry| of_object(entry)))
}

/// What our two managers apply or have posted, as one set.
pub(super) fn managed_by_us(entries: &[ManagedFields]) -> Result<Value, Failure> {
    united(entries.iter().filter(|entry| of_object(entry) && is_ours(entry)))
}

fn united<'a>(entries: impl Iterator<Item = &'a ManagedFields>) -> Result<Value, Failure> {
    let mut all = Value::Null;
    for entry in entries {
        let Some(fields) = tree(entry)? else { continue };
        if all.is_null() {
            all = fields;
        } else {
            unite(&mut all, &fields);
        }
    }
    Ok(all)
}

/// Divides our fields between our managers: `kept` is the second one's, everything else the first one's, as applied and not as
/// posted. None if they are divided so.
pub(super) fn divide(entries: &[ManagedFields], kept: Option<&Value>) -> Result<Option<Vec<ManagedFields>>, Failure> {
    let claimed = claim_posted(entries)?;
    let entries = claimed.as_deref().unwrap_or(entries);
    let initial = applied_by(entries, FIELD_MANAGER_INITIAL)?;
    let is_divided = match (&initial, kept) {
        (None, None) => true,
        (Some(initial), Some(kept)) => subtract(initial, kept).is_none() && subtract(kept, initial).is_none(),
        (Some(_), None) | (None, Some(_)) => false,
    };
    if is_divided {
        return Ok(claimed);
    }
    let ours = managed_by_us(entries)?;
    let is_applied =
        |entry: &&ManagedFields| is_ours(entry) && entry.operation.as_deref() == Some(APPLY) && of_object(entry);
    let Some(model) = entries.iter().find(is_applied) else { return Ok(None) };
    let entry = |manager: &str, fields: &Value| ManagedFields {
        manager: Some(manager.to_owned()),
        fields_v1: Some(text(fields)),
        ..model.clone()
    };
    let mut divided: Vec<_> = entries.iter().filter(|entry| !is_applied(entry)).cloned().collect();
    let rest = match kept {
        Some(kept) => subtract(&ours, kept),
        None => Some(ours),
    };
    divided.extend(rest.map(|rest| entry(FIELD_MANAGER, &rest)));
    divided.extend(kept.map(|kept| entry(FIELD_MANAGER_INITIAL, kept)));
    Ok(Some(divided))
}

/// Where a field of an object is in a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Located {
    /// Under these keys.
    Keys(Vec<String>),
    /// A field above it is in the set as a whole.
    InAtomic,
    /// In no way.
    Nobodys,
}

/// Finds a field of `object` in a set of fields of the like: lists have indexes in one, keys or values in the other.
pub(super) fn locate(set: &Value, object: &Value, way: &ObjectPath) -> Located {
    let (mut node, mut value) = (set, object);
    let mut keys = Vec::with_capacity(way.elements().len());
    for element in way.elements() {
        let Some(members) = node.as_object() else { return Located::Nobodys };
        if members.is_empty() && !keys.is_empty() {
            return Located::InAtomic;
        }
        let found = match element {
            PathElement::Field(name) => value.get(name.as_str()).map(|child| (format!("f:{name}"), child)),
            PathElement::Item(nth) => value
                .get(nth)
                .and_then(|item| members.keys().find(|key| is_item(key, item, *nth)).map(|key| (key.clone(), item))),
        };
        let Some((key, child)) = found else { return Located::Nobodys };
        let Some(below) = members.get(&key) else { return Located::Nobodys };
        (node, value) = (below, child);
        keys.push(key);
    }
    Located::Keys(keys)
}

/// Whether a key of a set (`k:{"name":"web"}`, `v:"value"`, `i:3`) means this item. The server fills in keys that have a
/// default, so what the item does not say does not speak against it.
fn is_item(key: &str, item: &Value, nth: usize) -> bool {
    let Some((notation, text)) = key.split_once(':') else { return false };
    match (notation, serde_json::from_str::<Value>(text)) {
        ("k", Ok(Value::Object(keys))) => {
            keys.iter().all(|(name, value)| item.get(name).is_none_or(|found| found == value))
                && keys.keys().any(|name| item.get(name).is_some())
        }
        ("v", Ok(value)) => value == *item,
        ("i", Ok(value)) => value.as_u64() == u64::try_from(nth).ok(),
        (_, Ok(_) | Err(_)) => false,
    }
}

/// Copies what `from` has under `keys` to the same path of another set, or of none yet.
pub(super) fn graft(into: &mut Value, from: &Value, keys: &[String]) {
    let Some(branch) = keys.iter().try_fold(from, |node, key| node.get(key)) else { return };
    let mut shoot = branch.clone();
    for key in keys.iter().rev() {
        shoot = Value::Object(Map::from_iter([(key.clone(), shoot)]));
    }
    if into.is_null() { *into = shoot } else { unite(into, &shoot) }
}

/// Takes the field that the API server names in a conflict (`.spec.containers[name="web"].image`) out of an object.
/// Names are not escaped there (`.metadata.labels.app.kubernetes.io/name`), so they are found by what the object has.
pub(super) fn remove_named(object: &mut Value, path: &str) -> bool {
    match object {
        Value::Object(map) => {
            let Some(rest) = path.strip_prefix('.') else { return false };
            // The longest first: of `a` and `a.b`, `.a.b` means the latter.
            let mut names: Vec<String> = map
                .keys()
                .filter(|name| {
                    rest.strip_prefix(name.as_str()).is_some_and(|tail| tail.is_empty() || tail.starts_with(['.', '[']))
                })
                .cloned()
                .collect();
            names.sort_by_key(|name| std::cmp::Reverse(name.len()));
            for name in names {
                let tail = &rest[name.len()..];
                if tail.is_empty() {
                    return map.remove(&name).is_some();
                }
                let child = map.get_mut(&name).expect("the name was found in this map");
                if remove_named(child, tail) {
                    if child.as_object().is_some_and(Map::is_empty) {
                        map.remove(&name);
                    }
                    return true;
                }
            }
            false
        }
        Value::Array(items) => {
            let Some((index, tail)) =
                items.iter().enumerate().find_map(|(index, item)| Some((index, item_named(item, index, path)?)))
            else {
                return false;
            };
            let tail = tail.to_owned();
            if tail.is_empty() {
                items.remove(index);
                return true;
            }
            remove_named(&mut items[index], &tail)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// If `path` begins with this list item (`[name="web",port=80]`, `[="value"]`, `[3]`), what follows it.
fn item_named<'a>(item: &Value, index: usize, path: &'a str) -> Option<&'a str> {
    if let Some(tail) = path.strip_prefix(&format!("[{index}]")) {
        return Some(tail);
    }
    if let Some(tail) = path.strip_prefix(&format!("[={item}]")) {
        return Some(tail);
    }
    let mut rest = path.strip_prefix('[')?;
    loop {
        let (name, after) = rest.split_once('=')?;
        let value = item.get(name)?.to_string();
        rest = after.strip_prefix(&value)?;
        match rest.as_bytes().first()? {
            b']' => return Some(&rest[1..]),
            b',' => rest = &rest[1..],
            _ => return None,
        }
    }
}

/// Entries of subresources (status, scale) are their own business.
fn of_object(entry: &ManagedFields) -> bool {
    entry.subresource.as_deref().unwrap_or_default().is_empty()
}

/// The fields of an entry, decoded. One that cannot be read concerns whoever needs it, and nobody else.
fn tree(entry: &ManagedFields) -> Result<Option<Value>, Failure> {
    let decoded = entry.fields_v1.as_deref().map(|fields| serde_json::from_str(fields.get())).transpose();
    decoded.map_err(|error| {
        let manager = entry.manager.as_deref().unwrap_or_default();
        Failure::new(Reason::Undecodable, format!("the fields that {manager:?} manages of it cannot be read: {error}"))
    })
}

fn text(fields: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(fields).expect("a JSON value can be written")
}

fn is_member(node: &Value) -> bool {
    node.as_object().is_some_and(|map| map.is_empty() || map.contains_key("."))
}

fn unite(into: &mut Value, more: &Value) {
    let (Some(target), Some(source)) = (into.as_object_mut(), more.as_object()) else { return };
    // A leaf that gets children stays a member by name; and so does a node that a leaf is united with.
    if target.is_empty() != source.is_empty() {
        target.insert(".".to_owned(), Value::Object(Map::new()));
    }
    for (key, child) in source {
        match target.get_mut(key) {
            Some(present) => unite(present, child),
            None => {
                target.insert(key.clone(), child.clone());
            }
        }
    }
}

/// The members of `from` that are not in `what`; None if there are none.
pub(super) fn subtract(from: &Value, what: &Value) -> Option<Value> {
    let children = from.as_object()?;
    let member = is_member(from) && !is_member(what);
    let mut rest = Map::new();
    for (key, child) in children {
        if key == "." {
            continue;
        }
        let kept = match what.get(key) {
            Some(taken) => subtract(child, taken),
            None => Some(child.clone()),
        };
        if let Some(kept) = kept {
            rest.insert(key.clone(), kept);
        }
    }
    if rest.is_empty() {
        return member.then_some(Value::Object(rest));
    }
    if member {
        rest.insert(".".to_owned(), Value::Object(Map::new()));
    }
    Some(Value::Object(rest))
}

#[cfg(test)]
mod tests;
