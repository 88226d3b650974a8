//! Custom resources' schemas: from `openAPIV3Schema` to the common node type, and what a structural
//! schema does to objects: pruning, defaulting, validation.
//!
//! `x-kubernetes-validations` (CEL) is accepted and not evaluated; compiling such a schema gives a
//! warning that the server passes on to the client.

mod compile;
mod constraint;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

pub(crate) use self::constraint::Constraint;
use crate::schema::validate::{FIELD_ERRORS_MAX, FieldError, FieldErrorKind, join};
use crate::schema::{ListType, NodeId, ScalarType, Schema, Shape, TypeRef, builtin};

/// The compiled schema of one version of a custom resource.
#[derive(Debug)]
pub(crate) struct CustomType {
    schema: Schema,
    root: NodeId,
    warnings: Vec<String>,
}

impl CustomType {
    /// Compiles the `openAPIV3Schema` of a version; `None` preserves everything.
    ///
    /// The errors name fields below `path`, such as
    /// `spec.versions[0].schema.openAPIV3Schema`.
    pub(crate) fn compile(schema: Option<&Value>, path: &str) -> Result<Self, Vec<FieldError>> {
        let (schema, root, warnings) = compile::compile(schema, path)?;
        let compiled = Self { schema, root, warnings };
        let mut errors = Vec::new();
        check_defaults(compiled.root(), path, &mut errors, &mut Vec::new());
        if errors.is_empty() { Ok(compiled) } else { Err(errors) }
    }

    /// The type of the whole object.
    pub(crate) fn root(&self) -> TypeRef<'_> {
        self.schema.at(self.root)
    }

    /// What the schema asks for and this server does not do.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Defaults must satisfy the schema that they are in.
fn check_defaults(ty: TypeRef<'_>, path: &str, out: &mut Vec<FieldError>, seen: &mut Vec<NodeId>) {
    if seen.contains(&ty.id()) || ty.node().name.is_some() {
        return;
    }
    seen.push(ty.id());
    if let Some(default) = &ty.node().default {
        validate_at(ty, default, &join(path, "default"), out);
    }
    for field in ty.fields() {
        let path = format!("{path}.properties[{}]", field.name);
        check_defaults(ty.sibling(field.node), &path, out, seen);
    }
    match ty.shape() {
        Shape::List { .. } => check_defaults(ty.items(), &join(path, "items"), out, seen),
        Shape::Object { additional: Some(id), .. } => {
            check_defaults(ty.sibling(*id), &join(path, "additionalProperties"), out, seen);
        }
        _leaf => {}
    }
}

/// Removes what the schema does not declare, and returns the paths of what went.
pub(crate) fn prune(ty: TypeRef<'_>, value: &mut Value) -> Vec<String> {
    let mut out = Vec::new();
    prune_at(ty, value, "", &mut out);
    out
}

fn prune_at(ty: TypeRef<'_>, value: &mut Value, path: &str, out: &mut Vec<String>) {
    let node = ty.node();
    match value {
        Value::Object(fields) => {
            let closed = matches!(node.shape, Shape::Object { additional: None, .. }) && !node.preserve_unknown;
            if closed {
                fields.retain(|name, _| {
                    let known = ty.declared(name).is_some();
                    if !known && out.len() < FIELD_ERRORS_MAX {
                        out.push(join(path, name));
                    }
                    known
                });
            }
            for (name, value) in fields.iter_mut() {
                if let Some(child) = ty.child(name) {
                    prune_at(child, value, &join(path, name), out);
                }
            }
        }
        Value::Array(items) if matches!(node.shape, Shape::List { .. }) => {
            for (at, item) in items.iter_mut().enumerate() {
                prune_at(ty.items(), item, &format!("{path}[{at}]"), out);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {}
    }
}

/// Fills in defaults where a field is absent, or null and not nullable.
pub(crate) fn apply_defaults(ty: TypeRef<'_>, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for field in ty.fields() {
                let node = ty.sibling(field.node).node();
                let Some(default) = &node.default else { continue };
                if fields.get(&*field.name).is_none_or(|value| value.is_null() && !node.nullable) {
                    fields.insert(field.name.to_string(), (**default).clone());
                }
            }
            for (name, value) in fields.iter_mut() {
                if let Some(child) = ty.child(name) {
                    if let Some(default) = child.node().default.as_deref()
                        && value.is_null()
                        && !child.node().nullable
                    {
                        *value = default.clone();
                    }
                    apply_defaults(child, value);
                }
            }
        }
        Value::Array(items) if matches!(ty.shape(), Shape::List { .. }) => {
            for item in items {
                apply_defaults(ty.items(), item);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {}
    }
}

/// Checks a value against a custom resource's schema.
#[cfg(test)]
pub(crate) fn validate(ty: TypeRef<'_>, value: &Value) -> Vec<FieldError> {
    let mut out = Vec::new();
    validate_at(ty, value, "", &mut out);
    out
}

pub(crate) fn validate_at(ty: TypeRef<'_>, value: &Value, path: &str, out: &mut Vec<FieldError>) {
    if out.len() >= FIELD_ERRORS_MAX {
        return;
    }
    let node = ty.node();
    // Imported types are not the schema author's: their own rules hold elsewhere.
    if node.name.is_some() {
        return;
    }
    if value.is_null() {
        if !node.nullable && node.shape != Shape::Any {
            out.push(wrong_type(path, value, expected(&node.shape)));
        }
        return;
    }
    if !fits(&node.shape, value) {
        out.push(wrong_type(path, value, expected(&node.shape)));
        return;
    }
    if let Some(constraint) = &node.constraint {
        constraint.check(value, path, out);
    }
    match value {
        Value::Object(fields) => {
            validate_required(ty, fields, path, out);
            for (name, value) in fields {
                if let Some(child) = ty.child(name) {
                    validate_at(child, value, &join(path, name), out);
                }
            }
        }
        Value::Array(items) if matches!(node.shape, Shape::List { .. }) => {
            validate_unique(ty, items, path, out);
            for (at, item) in items.iter().enumerate() {
                validate_at(ty.items(), item, &format!("{path}[{at}]"), out);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {}
    }
}

fn validate_required(ty: TypeRef<'_>, fields: &Map<String, Value>, path: &str, out: &mut Vec<FieldError>) {
    for field in ty.fields().iter().filter(|field| field.required) {
        if !fields.contains_key(&*field.name) {
            out.push(FieldError::new(&join(path, &field.name), FieldErrorKind::Required, ""));
        }
    }
}

/// Items of a set, and keys of a list map, come once.
fn validate_unique(ty: TypeRef<'_>, items: &[Value], path: &str, out: &mut Vec<FieldError>) {
    let key = |item: &Value| match &ty.node().list {
        ListType::Atomic => None,
        ListType::Set => Some(item.to_string()),
        ListType::Map(keys) => {
            let default = |name: &str| ty.items().field(name).and_then(|field| field.node().default.as_deref());
            let value = |name: &str| item.get(name).or_else(|| default(name)).unwrap_or(&Value::Null).to_string();
            Some(keys.iter().map(|name| value(name)).collect::<Vec<_>>().join("\u{0}"))
        }
    };
    let mut seen = std::collections::BTreeSet::new();
    for (at, item) in items.iter().enumerate() {
        if key(item).is_some_and(|key| !seen.insert(key)) {
            let path = format!("{path}[{at}]");
            out.push(FieldError::new(&path, FieldErrorKind::Duplicate, "").with_value(item));
        }
    }
}

fn fits(shape: &Shape, value: &Value) -> bool {
    match shape {
        Shape::Any => true,
        Shape::Scalar(scalar) => match scalar {
            ScalarType::String | ScalarType::Bytes | ScalarType::Time => value.is_string(),
            ScalarType::Quantity => value.is_string() || value.is_number(),
            ScalarType::IntOrString => value.is_string() || is_integer(value),
            ScalarType::Int32 | ScalarType::Int64 => is_integer(value),
            ScalarType::Number => value.is_number(),
            ScalarType::Boolean => value.is_boolean(),
        },
        Shape::List { .. } => value.is_array(),
        Shape::Object { .. } => value.is_object(),
    }
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn expected(shape: &Shape) -> &'static str {
    match shape {
        Shape::Any => "any",
        Shape::Scalar(scalar) => match scalar {
            ScalarType::String | ScalarType::Bytes | ScalarType::Time | ScalarType::Quantity => "string",
            ScalarType::IntOrString => "integer,string",
            ScalarType::Int32 | ScalarType::Int64 => "integer",
            ScalarType::Number => "number",
            ScalarType::Boolean => "boolean",
        },
        Shape::List { .. } => "array",
        Shape::Object { .. } => "object",
    }
}

fn wrong_type(path: &str, value: &Value, expected: &str) -> FieldError {
    let found = match value {
        Value::Number(_) if is_integer(value) => "integer",
        Value::Bool(_) => "boolean",
        other => crate::schema::validate::json_type(other),
    };
    let detail = format!("{path} in body must be of type {expected}: {found:?}");
    FieldError::new(path, FieldErrorKind::TypeInvalid, detail).with_value(value)
}

/// The metadata type that every custom resource shares.
fn object_meta() -> TypeRef<'static> {
    builtin().object_meta()
}
