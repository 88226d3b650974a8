//! Field ownership: server-side apply and the tracking of every other write.
//!
//! The semantics are those of a kube-apiserver (structured-merge-diff and apimachinery's
//! `managedfields`): same field sets, same conflicts, same order of list items and of entries.
//! Pure: time is an argument, and nothing here knows of storage.
//!
//! One simplification: entries written through another API version of the kind are compared in the
//! request's version. Versions that we serve differ, if at all, by added fields.

mod managed;
mod path;
mod set;
#[cfg(test)]
mod tests;
mod walk;

use std::fmt;
use std::sync::LazyLock;

use serde_json::{Map, Value};

pub(crate) use self::managed::{BadEntry, Manager, Operation};
use self::managed::{Managers, Owned};
pub(crate) use self::set::Set;
pub(crate) use self::walk::Mismatch;
use self::walk::{Comparison, Duplicates};
use crate::schema::TypeRef;

/// Who writes, through what, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer<'a> {
    /// The field manager; `unknown` where empty.
    pub manager: &'a str,
    /// Of the request, such as `apps/v1`.
    pub api_version: &'a str,
    /// Such as `status`; empty for the object itself.
    pub subresource: &'a str,
    /// RFC 3339 in UTC, whole seconds: `2026-01-02T03:04:05Z`.
    pub now: &'a str,
    /// Fields that this endpoint does not write, see [`ignored_fields`].
    pub ignored: &'a Set,
}

/// Whether an apply takes over fields that others own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Force {
    No,
    Yes,
}

/// The object to store.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Written {
    pub object: Value,
    /// False when nothing differs from the live object, managedFields included: nothing to store.
    pub changed: bool,
}

/// Why an apply is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApplyError {
    /// 409, reason Conflict, with one cause of type FieldManagerConflict per conflict.
    #[error("{0}")]
    Conflicts(Conflicts),
    /// 400.
    #[error("metadata.managedFields must be nil")]
    ManagedFieldsInPatch,
    /// 400: the configuration does not fit its type (a duplicate list key, a wrong type).
    #[error("failed to create typed patch object ({object}): {source}")]
    Patch { object: String, source: Mismatch },
    /// 500: the stored object does not fit its type.
    #[error("failed to create typed live object ({object}): {source}")]
    Live { object: String, source: Mismatch },
    /// 500.
    #[error("failed to decode managed fields: {0}")]
    ManagedFields(#[from] BadEntry),
}

/// Conflicts of an apply that are told, and bytes shown of one of their fields: an object may have a hundred thousand fields, and
/// each of their paths the names of all objects around it.
const CONFLICTS_TOLD_MAX: usize = 1_000;
const FIELD_BYTES_SHOWN_MAX: usize = 2 << 10;
/// Of the name of a manager: as long as a request may say it.
const MANAGER_CHARS_SHOWN_MAX: usize = 128;

/// The conflicts of an apply, by manager and then by field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conflicts {
    pub told: Vec<Conflict>,
    /// How many there are besides.
    pub more: usize,
}

/// A field that another manager owns with another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// As it is shown: `"kubectl" using apps/v1`.
    pub manager: String,
    /// Such as `.spec.replicas`; the cause's `field`.
    pub field: String,
}

impl Conflict {
    /// The message of the cause.
    pub(crate) fn message(&self) -> String {
        format!("conflict with {}", self.manager)
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = &self.told[..] {
            return write!(f, "Apply failed with 1 conflict: {}: {}", only.message(), only.field);
        }
        write!(f, "Apply failed with {} conflicts: ", self.told.len() + self.more)?;
        let mut last = None;
        for (at, conflict) in self.told.iter().enumerate() {
            if last != Some(&conflict.manager) {
                let line = if at == 0 { "" } else { "\n" };
                write!(f, "{line}conflicts with {}:", conflict.manager)?;
                last = Some(&conflict.manager);
            }
            write!(f, "\n- {}", conflict.field)?;
        }
        if self.more > 0 { write!(f, "\nand {} more", self.more) } else { Ok(()) }
    }
}

/// Fields that an endpoint resets and so never owns: status on the object, all but status on
/// `status`, for kinds that have the subresource.
pub(crate) fn ignored_fields(has_status: bool, subresource: &str) -> Set {
    match (has_status, subresource) {
        (true, "") => Set::of_fields(&["status"]),
        (true, "status") => Set::of_fields(&["spec", "metadata.labels"]),
        _ => Set::default(),
    }
}

/// Applies a configuration to the live object, or creates the object from it.
///
/// `applied` is what the client sent, with `apiVersion`, `kind` and `metadata.name` set. The caller
/// sets uid, resourceVersion and the like afterwards; they are never owned.
pub(crate) fn apply(
    ty: TypeRef<'_>,
    live: Option<&Value>,
    applied: &Value,
    writer: &Writer<'_>,
    force: Force,
) -> Result<Written, ApplyError> {
    let refused = match apply_allowing(ty, live, applied, writer, force, &Set::default()) {
        Err(ApplyError::Conflicts(refused)) => refused,
        done => return done,
    };
    // kubectl moving an object from client-side to server-side apply may take over what its own
    // annotation says it applied.
    let allowed = match (writer.manager, live) {
        ("kubectl", Some(live)) => last_applied_fields(ty, live, writer),
        _ => None,
    };
    match allowed {
        Some(allowed) => apply_allowing(ty, live, applied, writer, force, &allowed),
        None => Err(ApplyError::Conflicts(refused)),
    }
}

fn apply_allowing(
    ty: TypeRef<'_>,
    live: Option<&Value>,
    applied: &Value,
    writer: &Writer<'_>,
    force: Force,
    allowed: &Set,
) -> Result<Written, ApplyError> {
    if applied.pointer(MANAGED_FIELDS).is_some_and(|entries| !entries.is_null()) {
        return Err(ApplyError::ManagedFieldsInPatch);
    }
    walk::check(ty, applied, Duplicates::Refused)
        .map_err(|source| ApplyError::Patch { object: describe(applied), source })?;
    let empty = empty_like(applied);
    let base = without_managed_fields(live.unwrap_or(&empty));
    walk::check(ty, &base, Duplicates::Allowed)
        .map_err(|source| ApplyError::Live { object: describe(&base), source })?;

    let mut managers = managed::decode(live.and_then(|live| live.pointer(MANAGED_FIELDS)))?;
    if managers.is_empty() && live.is_some() {
        // Fields from before the first apply belong to a manager of their own.
        let before = Writer { manager: "before-first-apply", ..*writer };
        update_managers(ty, &empty_like(&base), &base, &mut managers, &before);
    }
    for owned in managers.values_mut() {
        owned.set = owned.set.reconciled(ty);
    }

    let merged =
        walk::merge(ty, &base, applied).map_err(|source| ApplyError::Live { object: describe(&base), source })?;
    let me = manager(writer, Operation::Apply);
    let last = managers.get(&me).map(|owned| owned.set.clone()).unwrap_or_default();
    let owned = Owned {
        api_version: writer.api_version.to_owned(),
        set: walk::field_set(ty, applied).recursive_difference(writer.ignored),
        time: managers.get(&me).and_then(|owned| owned.time.clone()),
    };
    managers.insert(me.clone(), owned);
    let pruned = prune(ty, &merged, &managers, &last);
    let change = walk::compare(ty, &base, &pruned).excluding(writer.ignored);
    take_fields(&mut managers, &me, &change, force, allowed).map_err(ApplyError::Conflicts)?;

    if let Some(owned) = managers.get_mut(&me) {
        owned.set = owned.set.difference(&STRIPPED);
        if owned.set.is_empty() {
            managers.remove(&me);
        } else if live.is_none() || !path::equal(&base, &pruned) {
            owned.time = Some(writer.now.to_owned());
        }
    }
    let mut object = pruned;
    if writer.manager == "kubectl" {
        refresh_last_applied(&mut object, applied);
    }
    Ok(finish(live, object, &managers))
}

/// Records in `managedFields` what a POST, PUT or PATCH other than apply changed.
///
/// `new` is the object as it is to be stored; its own `managedFields` count as a real server counts
/// them: entries are taken over, `[]` and `[{}]` forget all ownership, nothing or garbage leaves the
/// live entries; through a subresource the live entries always stay.
pub(crate) fn track_update(ty: TypeRef<'_>, live: Option<&Value>, new: &Value, writer: &Writer<'_>) -> Written {
    let theirs = new.pointer(MANAGED_FIELDS);
    let ours = || managed::decode(live.and_then(|live| live.pointer(MANAGED_FIELDS))).unwrap_or_default();
    let mut managers = if !writer.subresource.is_empty() {
        ours()
    } else if managed::is_reset(theirs) {
        Managers::new()
    } else {
        match managed::decode(theirs) {
            Ok(managers) if !managers.is_empty() => managers,
            Ok(_) | Err(_) => ours(),
        }
    };
    let object = without_managed_fields(new);
    // Who never tracked an object does not start in the middle of its life.
    if live.is_none() || !managers.is_empty() {
        let empty = empty_like(new);
        let base = without_managed_fields(live.unwrap_or(&empty));
        for owned in managers.values_mut() {
            owned.set = owned.set.reconciled(ty);
        }
        update_managers(ty, &base, &object, &mut managers, writer);
        managed::cap_updaters(&mut managers);
    }
    finish(live, object, &managers)
}

/// Moves what changed from its owners to the writer.
fn update_managers(ty: TypeRef<'_>, old: &Value, new: &Value, managers: &mut Managers, writer: &Writer<'_>) {
    let me = manager(writer, Operation::Update);
    let change = walk::compare(ty, old, new).excluding(writer.ignored);
    // The writer's own earlier entry loses the changed fields like any other and gets them back
    // below, so that a write that changes nothing leaves its time alone.
    let nobody = Manager {
        name: String::new(),
        operation: Operation::Update,
        api_version: String::new(),
        subresource: String::new(),
    };
    take_fields(managers, &nobody, &change, Force::Yes, &Set::default()).expect("forced, and so never in conflict");
    let taken = change.modified.union(&change.added).difference(&STRIPPED);
    if taken.is_empty() {
        return;
    }
    let set = managers.get(&me).map(|owned| owned.set.union(&taken)).unwrap_or(taken);
    managers.insert(me, Owned { api_version: writer.api_version.to_owned(), set, time: Some(writer.now.to_owned()) });
}

/// Takes changed fields from everybody but `me`, or says who is in the way.
fn take_fields(
    managers: &mut Managers,
    me: &Manager,
    change: &Comparison,
    force: Force,
    allowed: &Set,
) -> Result<(), Conflicts> {
    let written = change.modified.union(&change.added);
    let mut conflicts = Conflicts::default();
    for (manager, owned) in managers.iter_mut().filter(|(manager, _)| *manager != me) {
        let contested = owned.set.intersection(&written);
        if force == Force::No {
            contested.difference(allowed).each(&mut |path| {
                if conflicts.told.len() < CONFLICTS_TOLD_MAX {
                    let field = path::display(path, FIELD_BYTES_SHOWN_MAX);
                    conflicts.told.push(Conflict { manager: show(manager), field });
                } else {
                    conflicts.more += 1;
                }
            });
        }
        owned.set = owned.set.difference(&contested).difference(&change.removed);
    }
    if !conflicts.told.is_empty() {
        return Err(conflicts);
    }
    managers.retain(|_, owned| !owned.set.is_empty());
    Ok(())
}

fn show(manager: &Manager) -> String {
    // Entries of managedFields may name a manager of any length.
    let name: String = manager.name.chars().take(MANAGER_CHARS_SHOWN_MAX).collect();
    let mut out = Value::from(name).to_string();
    if !manager.subresource.is_empty() {
        out.push_str(" with subresource ");
        out.push_str(&Value::from(manager.subresource.as_str()).to_string());
    }
    match manager.operation {
        Operation::Apply => {}
        Operation::Update => {
            out.push_str(" using ");
            out.push_str(&manager.api_version);
        }
    }
    out
}

/// Removes what the applier owned by its last apply and no longer applies, unless somebody else
/// owns it.
fn prune(ty: TypeRef<'_>, merged: &Value, managers: &Managers, last: &Set) -> Value {
    if last.is_empty() {
        return merged.clone();
    }
    let named = |set: &Set| set.with_named_fields(Some(ty));
    let merged_set = named(&walk::field_set(ty, merged));
    let last = named(last);

    let pruned = walk::remove(ty, merged, &last);
    let pruned_set = named(&walk::field_set(ty, &pruned));
    let mut owned = Set::default();
    for one in managers.values() {
        owned.absorb(one.set.clone());
    }
    // What others own comes back.
    let pruned = walk::remove(ty, merged, &merged_set.difference(&pruned_set.union(&named(&owned))));
    // So does what nobody owned and went along with its parent.
    let pruned_set = named(&walk::field_set(ty, &pruned));
    walk::remove(ty, merged, &merged_set.difference(&pruned_set).intersection(&last))
}

fn manager(writer: &Writer<'_>, operation: Operation) -> Manager {
    Manager {
        name: match writer.manager {
            "" => "unknown".to_owned(),
            name => name.to_owned(),
        },
        operation,
        api_version: match operation {
            Operation::Apply => String::new(),
            Operation::Update => writer.api_version.to_owned(),
        },
        subresource: writer.subresource.to_owned(),
    }
}

/// Puts the entries into the object, if it differs from the live one.
fn finish(live: Option<&Value>, mut object: Value, managers: &Managers) -> Written {
    if let (Some(entries), Some(metadata)) = (managed::encode(managers), metadata(&mut object)) {
        metadata.insert("managedFields".to_owned(), entries);
    }
    match live {
        Some(live) => unless_same(live, object),
        None => Written { object, changed: true },
    }
}

/// The object to store in place of the live one, which stands where nothing differs but the times of its entries.
pub(crate) fn unless_same(live: &Value, object: Value) -> Written {
    let untimed = |object: &Value| {
        let mut entries = object.pointer(MANAGED_FIELDS).cloned().unwrap_or(Value::Null);
        for entry in entries.as_array_mut().into_iter().flatten() {
            entry.as_object_mut().map(|entry| entry.remove("time"));
        }
        entries
    };
    let comparable = |object: &Value| {
        let mut object = without_managed_fields(object);
        if let Some(metadata) = metadata(&mut object) {
            metadata.remove("resourceVersion");
        }
        object
    };
    if untimed(live) == untimed(&object) && path::equal(&comparable(live), &comparable(&object)) {
        return Written { object: live.clone(), changed: false };
    }
    Written { object, changed: true }
}

const MANAGED_FIELDS: &str = "/metadata/managedFields";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const LAST_APPLIED_POINTER: &str = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";

/// Fields that nobody owns.
static STRIPPED: LazyLock<Set> = LazyLock::new(|| {
    Set::of_fields(&[
        "apiVersion",
        "kind",
        "metadata",
        "metadata.name",
        "metadata.namespace",
        "metadata.creationTimestamp",
        "metadata.selfLink",
        "metadata.uid",
        "metadata.clusterName",
        "metadata.generation",
        "metadata.managedFields",
        "metadata.resourceVersion",
    ])
});

fn metadata(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("metadata").and_then(Value::as_object_mut)
}

fn without_managed_fields(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = metadata(&mut object) {
        metadata.remove("managedFields");
    }
    object
}

/// The object before it existed: its type, nothing else.
fn empty_like(object: &Value) -> Value {
    let mut out = Map::new();
    for name in ["apiVersion", "kind"] {
        if let Some(value) = object.get(name) {
            out.insert(name.to_owned(), value.clone());
        }
    }
    out.insert("metadata".to_owned(), Value::Object(Map::new()));
    Value::Object(out)
}

/// `namespace/name; group/version, Kind=kind`, as a real server names objects in errors.
fn describe(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let api_version = text("/apiVersion");
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{namespace}/{name}; {slash}{api_version}, Kind={}", text("/kind"))
}

/// The fields of the last-applied annotation whose live value is still what was applied.
fn last_applied_fields(ty: TypeRef<'_>, live: &Value, writer: &Writer<'_>) -> Option<Set> {
    let annotation = live.pointer(LAST_APPLIED_POINTER)?.as_str()?;
    let last: Value = serde_json::from_str(annotation).ok()?;
    if last.get("apiVersion")?.as_str()? != writer.api_version {
        return None;
    }
    walk::check(ty, &last, Duplicates::Refused).ok()?;
    let change = walk::compare(ty, &last, live);
    Some(walk::field_set(ty, &last).difference(&change.modified).difference(&change.added).difference(&change.removed))
}

/// Keeps an existing last-applied annotation in step with what kubectl applies.
fn refresh_last_applied(object: &mut Value, applied: &Value) {
    let present = object.pointer(LAST_APPLIED_POINTER).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    if !present {
        return;
    }
    let mut config = applied.clone();
    if let Some(annotations) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    if let Some(annotation) = object.pointer_mut(LAST_APPLIED_POINTER) {
        *annotation = Value::String(format!("{config}\n"));
    }
}
