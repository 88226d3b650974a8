//! Values of a custom resource against its schema.

use serde_json::{Map, Value};

use super::json_type;
use crate::schema::field_error::{FieldError, FieldErrorKind, FieldErrors};
use crate::schema::field_path::FieldPath;
use crate::schema::{ListType, ScalarType, Shape, TypeRef};

/// Checks a value against a custom resource's schema.
#[cfg(test)]
pub(crate) fn validate(ty: TypeRef<'_>, value: &Value) -> FieldErrors {
    let mut out = FieldErrors::default();
    validate_at(ty, value, &FieldPath::ROOT, &mut out);
    out.finished()
}

pub(crate) fn validate_at(ty: TypeRef<'_>, value: &Value, path: &FieldPath<'_>, out: &mut FieldErrors) {
    if !out.spend(1) {
        return;
    }
    let node = ty.node();
    // Imported types are not the schema author's: their own rules hold elsewhere.
    if node.name.is_some() {
        return;
    }
    if value.is_null() {
        if !node.nullable && node.shape != Shape::Any {
            out.push_with(|| wrong_type(path, value, expected(&node.shape)));
        }
        return;
    }
    if !fits(&node.shape, value) {
        out.push_with(|| wrong_type(path, value, expected(&node.shape)));
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
                    validate_at(child, value, &path.field(name), out);
                }
            }
        }
        Value::Array(items) if matches!(node.shape, Shape::List { .. }) => {
            validate_unique(ty, items, path, out);
            for (at, item) in items.iter().enumerate() {
                validate_at(ty.items(), item, &path.index(at), out);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {}
    }
}

fn validate_required(ty: TypeRef<'_>, fields: &Map<String, Value>, path: &FieldPath<'_>, out: &mut FieldErrors) {
    // Each declared field is looked at, in each of what may be many small objects.
    if !out.spend(u64::try_from(ty.fields().len()).unwrap_or(u64::MAX)) {
        return;
    }
    for field in ty.fields().iter().filter(|field| field.required) {
        if !fields.contains_key(&*field.name) {
            out.push_with(|| FieldError::new(&path.field(&field.name), FieldErrorKind::Required, ""));
        }
    }
}

/// Items of a set, and keys of a list map, come once.
fn validate_unique(ty: TypeRef<'_>, items: &[Value], path: &FieldPath<'_>, out: &mut FieldErrors) {
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
            out.push_with(|| FieldError::new(&path.index(at), FieldErrorKind::Duplicate, "").with_value(item));
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

fn wrong_type(path: &FieldPath<'_>, value: &Value, expected: &str) -> FieldError {
    let found = match value {
        Value::Number(_) if is_integer(value) => "integer",
        Value::Bool(_) => "boolean",
        other => json_type(other),
    };
    let detail = format!("{path} in body must be of type {expected}: {found:?}");
    FieldError::new(path, FieldErrorKind::TypeInvalid, detail).with_value(value)
}
