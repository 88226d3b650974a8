//! The four walks over typed values that server-side apply is made of.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::path::{PathElement, Scalar, equal};
use super::set::Set;
use crate::schema::{ListType, NodeId, ScalarType, Shape, TypeRef};

/// A value that does not fit its type, with the path to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub(crate) struct Mismatch {
    pub path: String,
    pub message: String,
}

impl Mismatch {
    fn new(message: impl Into<String>) -> Self {
        Self { path: String::new(), message: message.into() }
    }

    fn within(mut self, element: &PathElement) -> Self {
        self.path.insert_str(0, &element.to_string());
        self
    }
}

/// How a value is walked, by its type and by what it is.
enum Atom<'a> {
    Leaf,
    Map(TypeRef<'a>),
    List(TypeRef<'a>),
}

/// Decides the walk from both operands; the type rules where it is definite.
fn atom<'a>(ty: TypeRef<'a>, left: Option<&Value>, right: Option<&Value>) -> Atom<'a> {
    let node = ty.node();
    match &node.shape {
        Shape::Object { .. } if node.atomic => Atom::Leaf,
        Shape::Object { .. } => Atom::Map(ty),
        Shape::List { .. } if node.list == ListType::Atomic => Atom::Leaf,
        Shape::List { .. } => Atom::List(ty),
        // A free-form value is granular where it is an object, and a leaf otherwise.
        Shape::Any if !node.atomic => {
            let values = [left, right];
            let mut present = values.iter().flatten().filter(|value| !value.is_null()).peekable();
            if present.peek().is_some() && present.all(|value| value.is_object()) { Atom::Map(ty) } else { Atom::Leaf }
        }
        Shape::Any | Shape::Scalar(_) => Atom::Leaf,
    }
}

/// The type under `name`; undeclared fields are free-form.
fn child<'a>(ty: TypeRef<'a>, name: &str) -> TypeRef<'a> {
    ty.child(name).unwrap_or_else(|| ty.sibling(NodeId::ANY))
}

fn object(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The path element that tells an item of an associative list apart.
pub(super) fn item_element(ty: TypeRef<'_>, item: &Value) -> Result<PathElement, Mismatch> {
    match &ty.node().list {
        ListType::Map(keys) => {
            let Some(fields) = item.as_object() else {
                return Err(Mismatch::new("associative list with keys may not have non-map elements"));
            };
            let mut key = Vec::with_capacity(keys.len());
            for name in keys {
                let default = || ty.items().field(name).and_then(|field| field.node().default.as_deref());
                if let Some(value) = fields.get(&**name).or_else(default) {
                    key.push((name.to_string(), Scalar(value.clone())));
                }
            }
            if key.is_empty() {
                return Err(Mismatch::new(format!(
                    "associative list with keys has an element that omits all key fields {keys:?} (and doesn't have \
                     default values for any key fields)"
                )));
            }
            key.sort_unstable();
            Ok(PathElement::Key(key))
        }
        ListType::Set => match item {
            Value::Object(_) => Err(Mismatch::new("associative list without keys has an element that's a map type")),
            Value::Array(_) => Err(Mismatch::new("not supported: associative list with lists as elements")),
            Value::Null => Err(Mismatch::new("associative list without keys has an element that's an explicit null")),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(PathElement::Value(Scalar(item.clone()))),
        },
        ListType::Atomic => Err(Mismatch::new("invalid indexing of non-associative list")),
    }
}

/// Whether a list may hold two items of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duplicates {
    Allowed,
    Refused,
}

/// Checks that a value fits its type, as far as merging needs it.
pub(super) fn check(ty: TypeRef<'_>, value: &Value, duplicates: Duplicates) -> Result<(), Mismatch> {
    let expected = |what: &str| Err(Mismatch::new(format!("expected {what}, got {value}")));
    match (ty.shape(), value) {
        (_, Value::Null) | (Shape::Any, _) => Ok(()),
        (Shape::Object { .. }, Value::Object(fields)) => fields.iter().try_for_each(|(name, value)| {
            let element = PathElement::field(name);
            match ty.child(name) {
                Some(ty) => check(ty, value, duplicates),
                None if ty.node().lenient => Ok(()),
                None => Err(Mismatch::new("field not declared in schema")),
            }
            .map_err(|mismatch| mismatch.within(&element))
        }),
        (Shape::List { .. }, Value::Array(items)) => check_items(ty, items, duplicates),
        (Shape::Object { .. }, _) => expected("map"),
        (Shape::List { .. }, _) => expected("list"),
        (Shape::Scalar(scalar), value) => {
            let (fits, what) = match scalar {
                ScalarType::String | ScalarType::Bytes => (value.is_string(), "string"),
                ScalarType::Int32 | ScalarType::Int64 | ScalarType::Number => {
                    (value.is_number(), "numeric (int or float)")
                }
                ScalarType::Boolean => (value.is_boolean(), "boolean"),
                ScalarType::Time | ScalarType::Quantity | ScalarType::IntOrString => {
                    (!value.is_object() && !value.is_array(), "any scalar")
                }
            };
            if fits { Ok(()) } else { expected(what) }
        }
    }
}

fn check_items(ty: TypeRef<'_>, items: &[Value], duplicates: Duplicates) -> Result<(), Mismatch> {
    let mut seen = std::collections::BTreeSet::new();
    for (at, item) in items.iter().enumerate() {
        let element = if ty.node().list == ListType::Atomic {
            PathElement::Index(i64::try_from(at).unwrap_or(i64::MAX))
        } else {
            let element = item_element(ty, item)
                .map_err(|mismatch| Mismatch::new(format!("element {at}: {}", mismatch.message)))?;
            if !seen.insert(element.clone()) && duplicates == Duplicates::Refused {
                return Err(Mismatch::new(format!("duplicate entries for key {element}")));
            }
            element
        };
        check(ty.items(), item, duplicates).map_err(|mismatch| mismatch.within(&element))?;
    }
    Ok(())
}

/// Every leaf and item that a value mentions.
pub(super) fn field_set(ty: TypeRef<'_>, value: &Value) -> Set {
    let mut set = Set::default();
    // The whole value is nobody's.
    let _whole = collect(ty, value, &mut set);
    set
}

/// Whether a value is one leaf, or holds others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Leaf,
    Container,
}

/// Adds what a value holds to a set.
fn collect(ty: TypeRef<'_>, value: &Value, set: &mut Set) -> Extent {
    match atom(ty, Some(value), None) {
        Atom::Leaf => return Extent::Leaf,
        Atom::Map(ty) => {
            for (name, value) in object(Some(value)).into_iter().flatten() {
                let (element, mut below) = (PathElement::field(name), Set::default());
                let extent = collect(child(ty, name), value, &mut below);
                set.insert_below(&element, below);
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                if extent == Extent::Leaf || empty || ty.declared(name).is_none() {
                    set.insert_member(element);
                }
            }
        }
        Atom::List(ty) => {
            let mut by_element: BTreeMap<PathElement, Vec<&Value>> = BTreeMap::new();
            for item in list(Some(value)) {
                if let Ok(element) = item_element(ty, item) {
                    by_element.entry(element).or_default().push(item);
                }
            }
            for (element, items) in by_element {
                // Of duplicates only the key is owned.
                if let [item] = items[..] {
                    let mut below = Set::default();
                    // An item is owned whatever it holds.
                    let _extent = collect(ty.items(), item, &mut below);
                    set.insert_below(&element, below);
                }
                set.insert_member(element);
            }
        }
    }
    Extent::Container
}

/// What changed between two values, each field in at most one of the sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) removed: Set,
    pub(super) modified: Set,
    pub(super) added: Set,
}

impl Comparison {
    /// Leaves out fields and all below them.
    pub(super) fn excluding(self, fields: &Set) -> Self {
        Self {
            removed: self.removed.recursive_difference(fields),
            modified: self.modified.recursive_difference(fields),
            added: self.added.recursive_difference(fields),
        }
    }
}

pub(super) fn compare(ty: TypeRef<'_>, old: &Value, new: &Value) -> Comparison {
    let mut out = Comparison::default();
    // The whole value is nobody's.
    let _whole = compare_at(ty, Some(old), Some(new), &mut out);
    out
}

/// What became of one value, besides what became of those in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Removed,
    Modified,
    Added,
}

impl Comparison {
    fn insert(&mut self, element: PathElement, change: Option<Change>) {
        match change {
            Some(Change::Removed) => self.removed.insert_member(element),
            Some(Change::Modified) => self.modified.insert_member(element),
            Some(Change::Added) => self.added.insert_member(element),
            None => {}
        }
    }

    fn insert_below(&mut self, element: &PathElement, below: Self) {
        self.removed.insert_below(element, below.removed);
        self.modified.insert_below(element, below.modified);
        self.added.insert_below(element, below.added);
    }

    /// Compares the values at one step, and adds what became of them.
    fn compare(&mut self, ty: TypeRef<'_>, element: PathElement, old: Option<&Value>, new: Option<&Value>) {
        let mut below = Self::default();
        let change = compare_at(ty, old, new, &mut below);
        self.insert_below(&element, below);
        self.insert(element, change);
    }
}

/// Adds to `out` what became of the values in two values.
fn compare_at(ty: TypeRef<'_>, old: Option<&Value>, new: Option<&Value>, out: &mut Comparison) -> Option<Change> {
    let empty_map = |value: Option<&Value>| object(value).is_none_or(Map::is_empty);
    let empty_list = |value: Option<&Value>| list(value).is_empty();
    let mut change = None;
    match atom(ty, old, new) {
        Atom::Map(ty) if !(empty_map(old) && empty_map(new)) => compare_fields(ty, object(old), object(new), out),
        Atom::List(ty) if !(empty_list(old) && empty_list(new)) => compare_items(ty, list(old), list(new), out),
        // Two empty containers are leaves: that keeps null and empty apart.
        Atom::Leaf | Atom::Map(_) | Atom::List(_) => {
            if let (Some(old), Some(new)) = (old, new)
                && !equal(old, new)
            {
                change = Some(Change::Modified);
            }
        }
    }
    match (old, new) {
        (None, Some(_)) => Some(Change::Added),
        (Some(_), None) => Some(Change::Removed),
        (None, None) | (Some(_), Some(_)) => change,
    }
}

fn compare_fields(
    ty: TypeRef<'_>,
    old: Option<&Map<String, Value>>,
    new: Option<&Map<String, Value>>,
    out: &mut Comparison,
) {
    let struct_value = Value::Object(Map::new());
    let only_new = new.into_iter().flat_map(Map::keys).filter(|name| old.is_none_or(|old| !old.contains_key(*name)));
    for name in old.into_iter().flat_map(Map::keys).chain(only_new) {
        let field = child(ty, name);
        // What a Go type cannot leave out is there whenever its parent is, even when the JSON is
        // silent.
        let implied = ty.declared(name).and_then(|declared| {
            let node = field.node();
            let by_value = matches!(node.shape, Shape::Object { .. }) && node.always_present;
            let written_if_nil = matches!(node.shape, Shape::List { .. }) && declared.required;
            by_value.then_some(&struct_value).or(written_if_nil.then_some(&Value::Null))
        });
        let (old, new) = (old.and_then(|old| old.get(name).or(implied)), new.and_then(|new| new.get(name).or(implied)));
        out.compare(field, PathElement::field(name), old, new);
    }
}

fn compare_items(ty: TypeRef<'_>, old: &[Value], new: &[Value], out: &mut Comparison) {
    let mut items: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for item in old {
        if let Ok(element) = item_element(ty, item) {
            items.entry(element).or_default().0.push(item);
        }
    }
    for item in new {
        if let Ok(element) = item_element(ty, item) {
            items.entry(element).or_default().1.push(item);
        }
    }
    for (element, (old, new)) in items {
        match (&old[..], &new[..]) {
            ([] | [_], [] | [_]) => {
                out.compare(ty.items(), element, old.first().copied(), new.first().copied());
            }
            // Duplicates before and after are compared as one atomic list.
            ([_, _, ..], [_, _, ..]) => {
                if old.len() != new.len() || old.iter().zip(&new).any(|(a, b)| !equal(a, b)) {
                    out.insert(element, Some(Change::Modified));
                }
            }
            ([_, _, ..], rest) => {
                if let [item] = rest {
                    out.compare(ty.items(), element.clone(), None, Some(item));
                }
                out.insert(element, Some(Change::Removed));
            }
            (rest, [_, _, ..]) => {
                if let [item] = rest {
                    out.compare(ty.items(), element.clone(), Some(item), None);
                }
                out.insert(element, Some(Change::Added));
            }
        }
    }
}

/// Merges `applied` over `live`: nothing is removed, leaves of `applied` win, lists are ordered like
/// `applied` where it says something of them.
pub(super) fn merge(ty: TypeRef<'_>, live: &Value, applied: &Value) -> Result<Value, Mismatch> {
    Ok(merge_at(ty, Some(live), Some(applied))?.unwrap_or(Value::Null))
}

fn merge_at(ty: TypeRef<'_>, live: Option<&Value>, applied: Option<&Value>) -> Result<Option<Value>, Mismatch> {
    let empty_map = |value: Option<&Value>| object(value).is_none_or(Map::is_empty);
    let empty_list = |value: Option<&Value>| list(value).is_empty();
    match atom(ty, live, applied) {
        Atom::Map(ty) if !(empty_map(live) && empty_map(applied)) => {
            let none = Map::new();
            let (live, applied) = (object(live).unwrap_or(&none), object(applied).unwrap_or(&none));
            let mut out = Map::new();
            let only_applied = applied.keys().filter(|name| !live.contains_key(*name));
            for name in live.keys().chain(only_applied) {
                let merged = merge_at(child(ty, name), live.get(name), applied.get(name))
                    .map_err(|mismatch| mismatch.within(&PathElement::field(name)))?;
                if let Some(merged) = merged {
                    out.insert(name.clone(), merged);
                }
            }
            Ok((!out.is_empty()).then_some(Value::Object(out)))
        }
        Atom::List(ty) if !(empty_list(live) && empty_list(applied)) => {
            let out = merge_items(ty, list(live), list(applied))?;
            Ok((!out.is_empty()).then_some(Value::Array(out)))
        }
        Atom::Leaf | Atom::Map(_) | Atom::List(_) => Ok(applied.or(live).cloned()),
    }
}

fn merge_items(ty: TypeRef<'_>, live: &[Value], applied: &[Value]) -> Result<Vec<Value>, Mismatch> {
    let live_elements = live.iter().map(|item| item_element(ty, item)).collect::<Result<Vec<_>, _>>()?;
    let applied_elements = applied.iter().map(|item| item_element(ty, item)).collect::<Result<Vec<_>, _>>()?;
    // Of duplicated live items none is merged with the applied one.
    let mut in_live: BTreeMap<&PathElement, Option<&Value>> = BTreeMap::new();
    for (element, item) in live_elements.iter().zip(live) {
        in_live.entry(element).and_modify(|seen| *seen = None).or_insert(Some(item));
    }
    let mut in_applied: BTreeMap<&PathElement, &Value> = BTreeMap::new();
    for (element, item) in applied_elements.iter().zip(applied) {
        if in_applied.insert(element, item).is_some() {
            return Err(Mismatch::new(format!("duplicate entries for key {element}")));
        }
    }
    let both = |element: &PathElement| {
        merge_at(ty.items(), in_live.get(element).copied().flatten(), in_applied.get(element).copied())
            .map_err(|mismatch| mismatch.within(element))
    };

    // Shared items come in the applied order; live items stay with the shared item they preceded.
    let mut shared = applied_elements.iter().filter(|element| in_live.contains_key(element));
    let mut next_shared = shared.next();
    let mut done = std::collections::BTreeSet::new();
    let mut out = Vec::with_capacity(live.len().max(applied.len()));
    let (mut l, mut r) = (0, 0);
    while l < live.len() || r < applied.len() {
        if let (Some(element), Some(other)) = (live_elements.get(l), applied_elements.get(r)) {
            if element == other {
                done.insert(element);
                out.extend(both(element)?);
                l += 1;
                r += 1;
                next_shared = shared.next();
                continue;
            }
            if in_applied.contains_key(element) && next_shared.is_some_and(|next| next != element) {
                l += 1;
                continue;
            }
        }
        if let Some(element) = live_elements.get(l) {
            if !in_applied.contains_key(element) {
                out.push(live[l].clone());
                l += 1;
                continue;
            }
            if done.contains(element) {
                l += 1;
            }
        }
        if let Some(element) = applied_elements.get(r) {
            done.insert(element);
            out.extend(both(element)?);
            r += 1;
            if next_shared == Some(element) {
                next_shared = shared.next();
            }
        }
    }
    Ok(out)
}

/// The value without the fields and items in `remove`.
pub(super) fn remove(ty: TypeRef<'_>, value: &Value, remove: &Set) -> Value {
    match (atom(ty, Some(value), None), value) {
        (Atom::Map(ty), Value::Object(fields)) => {
            let mut out = Map::new();
            for (name, value) in fields {
                let element = PathElement::field(name);
                if remove.has_member(&element) {
                    continue;
                }
                let kept = match remove.child(&element) {
                    Some(below) => self::remove(child(ty, name), value, below),
                    None => value.clone(),
                };
                out.insert(name.clone(), kept);
            }
            // Emptied and itself not to be removed: somebody owns the container.
            Value::Object(out)
        }
        (Atom::List(ty), Value::Array(items)) => {
            let mut out = Vec::with_capacity(items.len());
            for item in items {
                let Ok(element) = item_element(ty, item) else {
                    out.push(item.clone());
                    continue;
                };
                if remove.has_member(&element) {
                    continue;
                }
                out.push(match remove.child(&element) {
                    Some(below) => self::remove(ty.items(), item, below),
                    None => item.clone(),
                });
            }
            Value::Array(out)
        }
        // An atomic container below which something is to go goes as a whole.
        (Atom::Leaf, Value::Object(fields)) if !fields.is_empty() && is_container(ty) => Value::Null,
        (Atom::Leaf, Value::Array(items)) if !items.is_empty() && is_container(ty) => Value::Null,
        (Atom::Leaf | Atom::Map(_) | Atom::List(_), value) => value.clone(),
    }
}

fn is_container(ty: TypeRef<'_>) -> bool {
    matches!(ty.shape(), Shape::Object { .. } | Shape::List { .. } | Shape::Any)
}
