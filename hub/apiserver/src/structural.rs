//! Custom resources' schemas: from `openAPIV3Schema` to the common node type, and what a structural
//! schema does to objects: pruning, defaulting, validation.
//!
//! `x-kubernetes-validations` (CEL) is accepted and not evaluated; compiling such a schema gives a
//! warning that the server passes on to the client.

mod compile;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub(crate) use self::compile::Compilation;
use crate::extent::weight;
use crate::schema::field_error::{FIELD_ERRORS_MAX, FieldError, FieldErrorKind, FieldErrors};
use crate::schema::field_path::FieldPath;
use crate::schema::validate::{TypeMismatch, check_types_at, drop_nulls, validate_at};
use crate::schema::{NodeId, Schema, Shape, TypeRef, builtin};

/// The compiled schema of one version of a custom resource.
#[derive(Debug)]
pub(crate) struct CustomType {
    schema: Schema,
    root: NodeId,
    warnings: Vec<String>,
    /// See [`CustomType::steps_each`].
    steps_each: u64,
}

impl CustomType {
    /// Compiles the `openAPIV3Schema` of a version as a part of its definition; no schema preserves everything. Nothing comes out of
    /// one that is wrong: the errors of the definition say what is, with fields below `path`, such as
    /// `spec.versions[0].schema.openAPIV3Schema`.
    pub(crate) fn compile(schema: Option<&Value>, path: &FieldPath<'_>, definition: &mut Compilation) -> Option<Self> {
        let compiled = compile::compile(schema, path, definition)?;
        let before = definition.errors.count();
        check_defaults(compiled.root(), path, &mut definition.errors);
        (definition.errors.count() == before).then_some(compiled)
    }

    /// The type of the whole object.
    pub(crate) fn root(&self) -> TypeRef<'_> {
        self.schema.at(self.root)
    }

    /// Steps that one byte of an object may take to be validated: one for each schema, and for each state of each pattern.
    pub(crate) fn steps_each(&self) -> u64 {
        self.steps_each
    }

    /// What the schema asks for and this server does not do.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Defaults must satisfy the schema that they are in, and have no fields that it does not declare.
fn check_defaults(ty: TypeRef<'_>, path: &FieldPath<'_>, out: &mut FieldErrors) {
    // Imported types alone are recursive.
    if ty.node().name.is_some() {
        return;
    }
    if let Some(default) = &ty.node().default {
        let path = path.field("default");
        let mut pruned = (**default).clone();
        if prune(ty, &mut pruned).is_empty() {
            validate_at(ty, default, &path, out);
        } else {
            let error = || FieldError::new(&path, FieldErrorKind::Invalid, "must not have unknown fields");
            out.push_with(|| error().with_value(default));
        }
    }
    let properties = path.field("properties");
    for field in ty.fields() {
        check_defaults(ty.sibling(field.node), &properties.key(&field.name), out);
    }
    match ty.shape() {
        Shape::List { .. } => check_defaults(ty.items(), &path.field("items"), out),
        Shape::Object { additional: Some(id), .. } => {
            check_defaults(ty.sibling(*id), &path.field("additionalProperties"), out);
        }
        Shape::Object { additional: None, .. } | Shape::Any | Shape::Scalar(_) => {}
    }
}

/// Removes what the schema does not declare, and returns the paths of what went.
pub(crate) fn prune(ty: TypeRef<'_>, value: &mut Value) -> Vec<String> {
    let mut out = Vec::new();
    prune_at(ty, value, &FieldPath::ROOT, &mut out);
    out
}

fn prune_at(ty: TypeRef<'_>, value: &mut Value, path: &FieldPath<'_>, out: &mut Vec<String>) {
    let node = ty.node();
    match value {
        Value::Object(fields) => {
            let closed = matches!(node.shape, Shape::Object { additional: None, .. }) && !node.preserve_unknown;
            if closed {
                fields.retain(|name, _| {
                    let known = ty.declared(name).is_some();
                    if !known && out.len() < FIELD_ERRORS_MAX {
                        out.push(path.field(name).to_string());
                    }
                    known
                });
            }
            for (name, value) in fields.iter_mut() {
                if let Some(child) = ty.child(name) {
                    prune_at(child, value, &path.field(name), out);
                }
            }
        }
        Value::Array(items) if matches!(node.shape, Shape::List { .. }) => {
            for (at, item) in items.iter_mut().enumerate() {
                prune_at(ty.items(), item, &path.index(at), out);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {}
    }
}

/// Removes nulls from fields and maps whose schema neither allows them nor has a default for them, as kube-apiserver does. Those in a
/// list keep their place there, and are refused.
pub(crate) fn prune_nulls(ty: TypeRef<'_>, value: &mut Value) {
    match (ty.shape(), value) {
        // Imported types alone have a name, and their nulls are dropped with their types.
        (Shape::Object { .. }, Value::Object(fields)) if ty.node().name.is_none() => fields.retain(|name, value| {
            // Where nothing is said of a value, nothing is said of null.
            let Some(child) = ty.child(name).filter(|child| child.id() != NodeId::ANY) else { return true };
            let node = child.node();
            let is_kept = !value.is_null() || node.nullable || node.default.is_some() || node.name.is_some();
            if is_kept {
                prune_nulls(child, value);
            }
            is_kept
        }),
        (Shape::List { .. }, Value::Array(items)) => items.iter_mut().for_each(|item| prune_nulls(ty.items(), item)),
        (Shape::Any | Shape::Scalar(_) | Shape::List { .. } | Shape::Object { .. }, _) => {}
    }
}

/// Brings the metadata of an object, and of those embedded in it, into the types that they have in every kind; all else is validated
/// by the schema.
pub(crate) fn conform_metadata(ty: TypeRef<'_>, value: &mut Value) -> Result<(), TypeMismatch> {
    conform_at(ty, value, &FieldPath::ROOT)
}

fn conform_at(ty: TypeRef<'_>, value: &mut Value, path: &FieldPath<'_>) -> Result<(), TypeMismatch> {
    // Metadata alone is imported.
    if ty.node().name.is_some() {
        drop_nulls(ty, value);
        return check_types_at(ty, value, path);
    }
    match (ty.shape(), value) {
        (Shape::Object { .. }, Value::Object(fields)) => fields.iter_mut().try_for_each(|(name, value)| {
            ty.child(name).map_or(Ok(()), |child| conform_at(child, value, &path.field(name)))
        }),
        (Shape::List { .. }, Value::Array(items)) => {
            items.iter_mut().enumerate().try_for_each(|(at, item)| conform_at(ty.items(), item, &path.index(at)))
        }
        (Shape::Any | Shape::Scalar(_) | Shape::List { .. } | Shape::Object { .. }, _) => Ok(()),
    }
}

/// Bytes that defaults may add to one object: what is stored holds no more. A default of a megabyte in each item of a list would
/// make gigabytes of an object that has a few thousand items.
const DEFAULTED_BYTES_MAX: usize = tideline_store::MAX_COMMIT_BYTES;

/// Defaults that are more than an object may hold. Those that come first were filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the defaults of its schema add more than {DEFAULTED_BYTES_MAX} bytes to the object")]
pub(crate) struct TooManyDefaults;

/// Fills in defaults where a field is absent, or null and not nullable.
pub(crate) fn apply_defaults(ty: TypeRef<'_>, value: &mut Value) -> Result<(), TooManyDefaults> {
    let mut room = DEFAULTED_BYTES_MAX;
    default_at(ty, value, &mut room)
}

fn default_at(ty: TypeRef<'_>, value: &mut Value, room: &mut usize) -> Result<(), TooManyDefaults> {
    match value {
        Value::Object(fields) => {
            for field in ty.node().defaulted.iter().filter_map(|at| ty.fields().get(*at)) {
                let node = ty.sibling(field.node).node();
                let Some(default) = &node.default else { continue };
                if fields.get(&*field.name).is_none_or(|value| value.is_null() && !node.nullable) {
                    fields.insert(field.name.to_string(), copy(default, room)?);
                }
            }
            for (name, value) in fields.iter_mut() {
                if let Some(child) = ty.child(name) {
                    if let Some(default) = child.node().default.as_deref()
                        && value.is_null()
                        && !child.node().nullable
                    {
                        *value = copy(default, room)?;
                    }
                    default_at(child, value, room)?;
                }
            }
        }
        Value::Array(items) if matches!(ty.shape(), Shape::List { .. }) => {
            for item in items {
                default_at(ty.items(), item, room)?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {}
    }
    Ok(())
}

fn copy(default: &Value, room: &mut usize) -> Result<Value, TooManyDefaults> {
    *room = room.checked_sub(weight(default)).ok_or(TooManyDefaults)?;
    Ok(default.clone())
}

/// The metadata type that every custom resource shares.
fn object_meta() -> TypeRef<'static> {
    builtin().object_meta()
}
