//! Field paths, three ways: JSON pointers (policies), the API server's text (conflicts), and the trees of managedFields
//! (`FieldsV1`, structured-merge-diff's serialization of a set of paths).
//!
//! In such a tree a key `f:name` is a field, `k:{…}`, `v:…` and `i:…` are list items, and `.` says that the node itself is
//! in the set; a node without keys is in the set too.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use serde_json::{Map, Value};
use tideline_common::{FIELD_MANAGER, FIELD_MANAGER_INITIAL};

const APPLY: &str = "Apply";
const UPDATE: &str = "Update";

/// Whether an entry is by one of our two managers.
pub(super) fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    matches!(entry.manager.as_deref(), Some(FIELD_MANAGER | FIELD_MANAGER_INITIAL))
}

/// Whether an entry says that somebody else applies the object declaratively.
pub(super) fn is_foreign_apply(entry: &ManagedFieldsEntry) -> bool {
    !is_ours(entry) && entry.operation.as_deref() == Some(APPLY) && of_object(entry)
}

/// The fields that `manager` applies.
pub(super) fn applied_by<'a>(entries: &'a [ManagedFieldsEntry], manager: &str) -> Option<&'a Value> {
    entries
        .iter()
        .find(|entry| {
            entry.manager.as_deref() == Some(manager) && entry.operation.as_deref() == Some(APPLY) && of_object(entry)
        })
        .and_then(tree)
}

/// Turns what our POST left (an Update entry) into what an apply would have left, so that fields which are dropped later
/// are removed. None if there is no such entry.
pub(super) fn claim_posted(entries: &[ManagedFieldsEntry]) -> Option<Vec<ManagedFieldsEntry>> {
    let is = |entry: &ManagedFieldsEntry, operation: &str| {
        entry.manager.as_deref() == Some(FIELD_MANAGER)
            && entry.operation.as_deref() == Some(operation)
            && of_object(entry)
    };
    let posted = entries.iter().find(|entry| is(entry, UPDATE))?;
    let mut claimed: Vec<_> = entries.iter().filter(|entry| !is(entry, UPDATE)).cloned().collect();
    match claimed.iter_mut().find(|entry| is(entry, APPLY)) {
        Some(applied) => {
            let mut fields = tree(applied).cloned().unwrap_or_default();
            if let Some(more) = tree(posted) {
                unite(&mut fields, more);
            }
            applied.fields_v1 = Some(FieldsV1(fields));
        }
        None => claimed.push(ManagedFieldsEntry { operation: Some(APPLY.to_owned()), ..posted.clone() }),
    }
    Some(claimed)
}

/// Takes what we apply out of the Update entries of others, who wrote the object before it was adopted; what else they
/// wrote stays theirs. None if nothing changes.
pub(super) fn claim_from_others(entries: &[ManagedFieldsEntry]) -> Option<Vec<ManagedFieldsEntry>> {
    let ours = applied_by(entries, FIELD_MANAGER)?;
    let mut changed = false;
    let mut claimed = Vec::with_capacity(entries.len());
    for entry in entries {
        let former = entry.operation.as_deref() == Some(UPDATE) && of_object(entry) && !is_ours(entry);
        match tree(entry) {
            Some(fields) if former => {
                let rest = subtract(fields, ours);
                changed |= rest.as_ref() != Some(fields);
                if let Some(rest) = rest {
                    claimed.push(ManagedFieldsEntry { fields_v1: Some(FieldsV1(rest)), ..entry.clone() });
                }
            }
            _ => claimed.push(entry.clone()),
        }
    }
    changed.then_some(claimed)
}

/// What others manage.
pub(super) fn without_ours(entries: &[ManagedFieldsEntry]) -> Vec<ManagedFieldsEntry> {
    entries.iter().filter(|entry| !is_ours(entry)).cloned().collect()
}

/// Whether the set holds the field that `pointer` names, something in it, or an atomic parent of it. Pointers into lists
/// name an index, which a set does not know: they are in no set.
pub(super) fn holds(fields: &Value, pointer: &str) -> bool {
    let mut node = fields;
    for segment in segments(pointer) {
        match node.get(format!("f:{segment}")) {
            Some(child) => node = child,
            // A leaf above the field: the parent is owned as one.
            None => return node.as_object().is_some_and(Map::is_empty),
        }
    }
    true
}

/// Takes the value at a JSON pointer out of an object, and parents that are empty without it.
pub(super) fn remove_pointer(object: &mut Value, pointer: &str) -> Option<Value> {
    let segments = segments(pointer);
    remove_at(object, &segments)
}

fn remove_at(node: &mut Value, segments: &[String]) -> Option<Value> {
    let (first, rest) = segments.split_first()?;
    match node {
        Value::Object(map) if rest.is_empty() => map.remove(first),
        Value::Object(map) => {
            let child = map.get_mut(first)?;
            let removed = remove_at(child, rest)?;
            // An empty map that is sent would be owned, and keep others from removing it.
            if child.as_object().is_some_and(Map::is_empty) {
                map.remove(first);
            }
            Some(removed)
        }
        Value::Array(items) => {
            let index: usize = first.parse().ok().filter(|index| *index < items.len())?;
            if rest.is_empty() { Some(items.remove(index)) } else { remove_at(&mut items[index], rest) }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Puts a value at a JSON pointer of maps, making the maps on the way. False for a pointer through anything else.
pub(super) fn insert_pointer(object: &mut Value, pointer: &str, value: Value) -> bool {
    let segments = segments(pointer);
    let Some((last, parents)) = segments.split_last() else { return false };
    let mut node = object;
    for segment in parents {
        let Some(map) = node.as_object_mut() else { return false };
        node = map.entry(segment.clone()).or_insert_with(|| Value::Object(Map::new()));
    }
    let Some(map) = node.as_object_mut() else { return false };
    map.insert(last.clone(), value);
    true
}

fn segments(pointer: &str) -> Vec<String> {
    pointer.split('/').skip(1).map(|segment| segment.replace("~1", "/").replace("~0", "~")).collect()
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
fn of_object(entry: &ManagedFieldsEntry) -> bool {
    entry.subresource.as_deref().unwrap_or_default().is_empty()
}

fn tree(entry: &ManagedFieldsEntry) -> Option<&Value> {
    entry.fields_v1.as_ref().map(|fields| &fields.0)
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
fn subtract(from: &Value, what: &Value) -> Option<Value> {
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
