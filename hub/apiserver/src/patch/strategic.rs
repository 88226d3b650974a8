//! Strategic merge patch, by the behaviour of apimachinery's `strategicpatch`.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::{Error, MERGED_LIST_ITEMS_MAX};
use crate::schema::{NodeId, PatchStrategy, Shape, TypeRef};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// Applies a strategic merge patch; which lists merge, and by which key, is in the type.
///
/// For built-in kinds only: custom resources have no patch metadata, and the server answers 415.
pub(crate) fn strategic_merge(ty: TypeRef<'_>, document: &Value, patch: &Value) -> Result<Value, Error> {
    let (Value::Object(document), Value::Object(patch)) = (document, patch) else {
        return Err(Error::Malformed("a strategic merge patch is an object".to_owned()));
    };
    Ok(Value::Object(merge_fields(ty, document.clone(), patch)?))
}

fn merge_fields(
    ty: TypeRef<'_>,
    mut out: Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<Map<String, Value>, Error> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                let mut patch = patch.clone();
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Map::new()),
            Some("merge") => {
                let mut patch = patch.clone();
                patch.remove(DIRECTIVE);
                merge_fields(ty, out, &patch)
            }
            Some(_) | None => Err(bad_directive(directive)),
        };
    }
    if let Some(keep) = patch.get(RETAIN_KEYS) {
        retain_keys(&mut out, keep, patch)?;
    }
    for (name, value) in patch {
        if name == RETAIN_KEYS {
            continue;
        }
        if let Some(list) = name.strip_prefix(DELETE_FROM) {
            let gone: HashSet<String> = items(value, name)?.iter().map(ToString::to_string).collect();
            if let Some(Value::Array(kept)) = out.get_mut(list) {
                kept.retain(|item| !gone.contains(&item.to_string()));
            }
            continue;
        }
        if let Some(list) = name.strip_prefix(ORDER) {
            // Lists that are patched as well are ordered where they are merged.
            if !patch.contains_key(list) {
                reorder(child(ty, list), &mut out, list, items(value, name)?)?;
            }
            continue;
        }
        if value.is_null() {
            out.remove(name);
            continue;
        }
        let ty = child(ty, name);
        let order = patch.get(&format!("{ORDER}{name}"));
        let order = order.map(|order| items(order, name)).transpose()?;
        let merged = merge_value(ty, out.remove(name), value, order)?;
        out.insert(name.clone(), merged);
    }
    Ok(out)
}

fn merge_value(ty: TypeRef<'_>, old: Option<Value>, patch: &Value, order: Option<&[Value]>) -> Result<Value, Error> {
    let strategy = ty.node().patch_strategy;
    match (old, patch) {
        (Some(Value::Object(old)), Value::Object(patch)) if strategy != PatchStrategy::Replace => {
            Ok(Value::Object(merge_fields(ty, old, patch)?))
        }
        // What is not there yet is merged into nothing, which takes out directives and nulls.
        (_, Value::Object(patch)) => Ok(Value::Object(merge_fields(ty, Map::new(), patch)?)),
        (old, Value::Array(patch)) if strategy.merges() => {
            let old = match old {
                Some(Value::Array(old)) => old,
                _ => Vec::new(),
            };
            merge_items(ty, &old, patch, order)
        }
        (_, patch) => Ok(patch.clone()),
    }
}

fn merge_items(ty: TypeRef<'_>, old: &[Value], patch: &[Value], order: Option<&[Value]>) -> Result<Value, Error> {
    if old.len() > MERGED_LIST_ITEMS_MAX || patch.len() > MERGED_LIST_ITEMS_MAX {
        return Err(Error::TooLarge(format!("a merged list holds more than {MERGED_LIST_ITEMS_MAX} items")));
    }
    let Some(key) = merge_key(ty) else {
        let mut merged = old.to_vec();
        let mut present: HashSet<String> = old.iter().map(ToString::to_string).collect();
        merged.extend(patch.iter().filter(|item| present.insert(item.to_string())).cloned());
        return Ok(ordered(None, merged, order.unwrap_or(patch), old));
    };

    let mut plain = Vec::with_capacity(patch.len());
    let mut gone = HashSet::new();
    let mut replace = false;
    for item in patch {
        let Value::Object(fields) = item else {
            return Err(Error::Malformed(format!("items of a list merged by {key:?} are objects")));
        };
        match fields.get(DIRECTIVE).map(|directive| (directive, directive.as_str())) {
            None | Some((_, Some("merge"))) => plain.push(item),
            Some((_, Some("replace"))) => replace = true,
            Some((_, Some("delete"))) => {
                gone.insert(fields.get(key).ok_or_else(|| no_key(key))?.to_string());
            }
            Some((directive, _)) => return Err(bad_directive(directive)),
        }
    }
    if replace {
        return Ok(plain.into_iter().cloned().collect());
    }
    let id = |item: &Value| item.get(key).map(Value::to_string);
    let mut merged: Vec<Value> =
        old.iter().filter(|item| id(item).is_none_or(|id| !gone.contains(&id))).cloned().collect();
    // Of equal items the first is the one that is merged.
    let mut places: HashMap<String, usize> =
        merged.iter().enumerate().rev().filter_map(|(at, item)| Some((id(item)?, at))).collect();
    for item in &plain {
        let id = id(item).ok_or_else(|| no_key(key))?;
        let fields = item.as_object().expect("non-objects were refused above");
        if let Some(at) = places.get(&id) {
            let before = match merged[*at].take() {
                Value::Object(before) => before,
                _ => Map::new(),
            };
            merged[*at] = Value::Object(merge_fields(ty.items(), before, fields)?);
        } else {
            places.insert(id, merged.len());
            merged.push(Value::Object(merge_fields(ty.items(), Map::new(), fields)?));
        }
    }
    let plain: Vec<Value> = plain.into_iter().cloned().collect();
    Ok(ordered(Some(key), merged, order.unwrap_or(&plain), old))
}

/// Orders a list that the patch gives an order to and nothing else.
fn reorder(ty: TypeRef<'_>, out: &mut Map<String, Value>, name: &str, order: &[Value]) -> Result<(), Error> {
    if let Some(Value::Array(old)) = out.get(name) {
        if old.len() > MERGED_LIST_ITEMS_MAX || order.len() > MERGED_LIST_ITEMS_MAX {
            return Err(Error::TooLarge(format!("list {name:?}")));
        }
        let sorted = ordered(merge_key(ty), old.clone(), order, old);
        out.insert(name.to_owned(), sorted);
    }
    Ok(())
}

/// Items in `order` come in that order; all others keep their place relative to them in `old`.
fn ordered(key: Option<&str>, merged: Vec<Value>, order: &[Value], old: &[Value]) -> Value {
    let id = |item: &Value| key.map_or(item, |key| item.get(key).unwrap_or(&Value::Null)).to_string();
    let places = |list: &[Value]| -> HashMap<String, usize> {
        // The first of equal items counts, and so comes last.
        list.iter().enumerate().rev().map(|(at, item)| (id(item), at)).collect()
    };
    let (in_order, in_old) = (places(order), places(old));
    let (mut ours, theirs): (Vec<_>, Vec<_>) = merged
        .into_iter()
        .map(|item| {
            let id = id(&item);
            (in_order.get(&id).copied(), in_old.get(&id).copied(), item)
        })
        .partition(|(at, ..)| at.is_some());
    ours.sort_by_key(|(at, ..)| *at);

    let mut out = Vec::with_capacity(ours.len() + theirs.len());
    let (mut ours, mut theirs) = (ours.into_iter().peekable(), theirs.into_iter().peekable());
    loop {
        let server_first = match (theirs.peek(), ours.peek()) {
            (Some((_, Some(server), _)), Some((_, Some(patched), _))) => server < patched,
            (Some(_), None) => true,
            (Some(_), Some(_)) | (None, _) => false,
        };
        let next = if server_first { theirs.next() } else { ours.next() };
        let Some((.., item)) = next else { break };
        out.push(item);
    }
    Value::Array(out)
}

/// The merge key of a list of objects; `None` for a list of scalars.
fn merge_key(ty: TypeRef<'_>) -> Option<&str> {
    ty.node().merge_key.as_deref()
}

fn retain_keys(out: &mut Map<String, Value>, keep: &Value, patch: &Map<String, Value>) -> Result<(), Error> {
    let keep: HashSet<&str> = items(keep, RETAIN_KEYS)?.iter().filter_map(Value::as_str).collect();
    let kept = |name: &str| keep.contains(name);
    let stray = patch.iter().find(|(name, value)| !name.starts_with('$') && !value.is_null() && !kept(name));
    if let Some((name, _)) = stray {
        return Err(Error::Malformed(format!("{name:?} is set and not in {RETAIN_KEYS}")));
    }
    out.retain(|name, _| kept(name));
    Ok(())
}

fn child<'a>(ty: TypeRef<'a>, name: &str) -> TypeRef<'a> {
    match ty.shape() {
        Shape::Object { .. } => ty.child(name).unwrap_or_else(|| ty.sibling(NodeId::ANY)),
        _scalar_list_or_free_form => ty.sibling(NodeId::ANY),
    }
}

fn items<'a>(value: &'a Value, name: &str) -> Result<&'a [Value], Error> {
    match value {
        Value::Array(items) => Ok(items),
        _ => Err(Error::Malformed(format!("{name:?} is a list"))),
    }
}

fn bad_directive(directive: &Value) -> Error {
    Error::Malformed(format!("unknown {DIRECTIVE} directive {directive}"))
}

fn no_key(key: &str) -> Error {
    Error::Malformed(format!("map: does not contain declared merge key: {key}"))
}
