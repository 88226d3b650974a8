//! Strict decoding and validation of objects against their type.

mod custom;
mod decode;
mod metadata;

use serde_json::{Map, Value};

#[cfg(test)]
pub(crate) use self::custom::validate;
pub(crate) use self::custom::validate_at;
pub(crate) use self::decode::decode;
pub(crate) use self::metadata::{NameRule, is_dns_label, is_dns_subdomain, validate_metadata};
use super::field_error::{FIELD_ERRORS_MAX, FieldError, FieldErrorKind, FieldErrors, not_supported};
use super::field_path::FieldPath;
use super::text::{is_base64, is_quantity, is_time};
use super::{Field, ScalarType, Shape, TypeRef};

/// Fields that the type does not declare, as `spec.foo`; what strict decoding refuses.
#[cfg(test)]
pub(crate) fn unknown_fields(ty: TypeRef<'_>, value: &Value) -> Vec<String> {
    let mut out = Vec::new();
    collect_unknown(ty, value, &FieldPath::ROOT, &mut out);
    out
}

#[cfg(test)]
fn collect_unknown(ty: TypeRef<'_>, value: &Value, path: &FieldPath<'_>, out: &mut Vec<String>) {
    if out.len() >= FIELD_ERRORS_MAX {
        return;
    }
    match (ty.shape(), value) {
        (Shape::Object { .. }, Value::Object(fields)) => {
            for (name, value) in fields {
                match ty.child(name) {
                    Some(child) => collect_unknown(child, value, &path.field(name), out),
                    None if ty.node().preserve_unknown => {}
                    None => out.push(path.field(name).to_string()),
                }
            }
        }
        (Shape::List { .. }, Value::Array(items)) => {
            for (at, item) in items.iter().enumerate() {
                collect_unknown(ty.items(), item, &path.index(at), out);
            }
        }
        _other => {}
    }
}

/// Removes fields that the type does not declare; what a server does with unknown fields that it
/// does not refuse. Returns their paths.
pub(crate) fn drop_unknown_fields(ty: TypeRef<'_>, value: &mut Value) -> Vec<String> {
    let mut out = Vec::new();
    drop_unknown(ty, value, &FieldPath::ROOT, &mut out);
    out
}

fn drop_unknown(ty: TypeRef<'_>, value: &mut Value, path: &FieldPath<'_>, out: &mut Vec<String>) {
    match (ty.shape(), value) {
        (Shape::Object { .. }, Value::Object(fields)) => {
            if !ty.node().preserve_unknown {
                fields.retain(|name, _| {
                    let known = ty.child(name).is_some();
                    if !known && out.len() < FIELD_ERRORS_MAX {
                        out.push(path.field(name).to_string());
                    }
                    known
                });
            }
            for (name, value) in fields.iter_mut() {
                if let Some(child) = ty.child(name) {
                    drop_unknown(child, value, &path.field(name), out);
                }
            }
        }
        (Shape::List { .. }, Value::Array(items)) => {
            for (at, item) in items.iter_mut().enumerate() {
                drop_unknown(ty.items(), item, &path.index(at), out);
            }
        }
        _other => {}
    }
}

/// Puts in place of a null what a real server decodes it to: nothing in a field, and the zero of its type in a list or a map, which
/// keep the place.
pub(crate) fn drop_nulls(ty: TypeRef<'_>, value: &mut Value) {
    match (ty.shape(), value) {
        (Shape::Object { .. }, Value::Object(fields)) => {
            fields.retain(|name, value| !value.is_null() || ty.declared(name).is_none());
            for (name, value) in fields.iter_mut() {
                if let Some(child) = ty.child(name) {
                    fill_null(child, value);
                    drop_nulls(child, value);
                }
            }
        }
        (Shape::List { .. }, Value::Array(items)) => {
            for item in items {
                fill_null(ty.items(), item);
                drop_nulls(ty.items(), item);
            }
        }
        _other => {}
    }
}

fn fill_null(ty: TypeRef<'_>, value: &mut Value) {
    if !value.is_null() {
        return;
    }
    *value = match ty.shape() {
        Shape::Object { fields, .. } if !fields.is_empty() => Value::Object(Map::new()),
        Shape::Scalar(scalar) => match scalar {
            ScalarType::String => "".into(),
            ScalarType::Quantity => "0".into(),
            ScalarType::IntOrString | ScalarType::Int32 | ScalarType::Int64 | ScalarType::Number => 0.into(),
            ScalarType::Boolean => false.into(),
            // Written as null again.
            ScalarType::Bytes | ScalarType::Time => Value::Null,
        },
        Shape::Any | Shape::List { .. } | Shape::Object { .. } => Value::Null,
    };
}

/// A value that cannot be decoded into its built-in type; answered with 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("json: cannot unmarshal {found} into field {path} of type {expected}")]
pub(crate) struct TypeMismatch {
    pub path: String,
    pub found: &'static str,
    pub expected: &'static str,
}

/// Checks that every value has the JSON type of its field; null fits everywhere.
pub(crate) fn check_types(ty: TypeRef<'_>, value: &Value) -> Result<(), TypeMismatch> {
    check_types_at(ty, value, &FieldPath::ROOT)
}

/// The same below a path.
pub(crate) fn check_types_at(ty: TypeRef<'_>, value: &Value, path: &FieldPath<'_>) -> Result<(), TypeMismatch> {
    let mismatch = |expected| Err(TypeMismatch { path: path.to_string(), found: json_type(value), expected });
    match (ty.shape(), value) {
        (Shape::Any, _) | (_, Value::Null) => Ok(()),
        (Shape::Object { .. }, Value::Object(fields)) => fields.iter().try_for_each(|(name, value)| {
            ty.child(name).map_or(Ok(()), |child| check_types_at(child, value, &path.field(name)))
        }),
        (Shape::List { .. }, Value::Array(items)) => {
            items.iter().enumerate().try_for_each(|(at, item)| check_types_at(ty.items(), item, &path.index(at)))
        }
        (Shape::Object { .. }, _) => mismatch("object"),
        (Shape::List { .. }, _) => mismatch("array"),
        (Shape::Scalar(scalar), value) => misfit(*scalar, value).map_or(Ok(()), mismatch),
    }
}

/// What a value should be that is not what its type asks.
fn misfit(scalar: ScalarType, value: &Value) -> Option<&'static str> {
    let int32 = value.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
    let (fits, expected) = match scalar {
        ScalarType::String => (value.is_string(), "string"),
        ScalarType::Bytes => (value.as_str().is_some_and(is_base64), "base64 string"),
        ScalarType::Time => (value.as_str().is_some_and(is_time), "RFC 3339 time"),
        ScalarType::Quantity => (is_quantity_value(value), "quantity"),
        ScalarType::IntOrString => (value.is_string() || int32, "int or string"),
        ScalarType::Int32 => (int32, "int32"),
        ScalarType::Int64 => (value.as_i64().is_some(), "int64"),
        ScalarType::Number => (value.is_number(), "number"),
        ScalarType::Boolean => (value.is_boolean(), "bool"),
    };
    (!fits).then_some(expected)
}

pub(crate) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_quantity_value(value: &Value) -> bool {
    match value {
        Value::Number(_) => true,
        Value::String(text) => text.is_empty() || is_quantity(text),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    }
}

/// Everything wrong with an object: metadata, and what its type asks of its values.
///
/// For built-in kinds that is required fields and enums outside `status` (the checks that a schema
/// can tell; what only Go code knows is not repeated here). For custom resources it is their whole
/// schema.
pub(crate) fn validate_object(ty: TypeRef<'_>, value: &Value, namespaced: bool) -> FieldErrors {
    let mut out = FieldErrors::default();
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let rule = NameRule::of(text("apiVersion"), text("kind"));
    validate_metadata(value.get("metadata").unwrap_or(&Value::Null), rule, namespaced, &mut out);
    if ty.node().constraint.is_some() {
        validate_at(ty, value, &FieldPath::ROOT, &mut out);
    } else {
        for (name, value) in value.as_object().into_iter().flatten() {
            // Written by controllers, field by field; a real server checks little of it.
            if name != "status" && name != "metadata" {
                let path = FieldPath::ROOT.field(name);
                ty.field(name).iter().for_each(|field| validate_builtin(*field, value, &path, &mut out));
            }
        }
        missing(ty, value.as_object(), &FieldPath::ROOT, &mut out);
    }
    out.finished()
}

fn missing(ty: TypeRef<'_>, fields: Option<&Map<String, Value>>, path: &FieldPath<'_>, out: &mut FieldErrors) {
    let absent = |field: &&Field| fields.and_then(|fields| fields.get(&*field.name)).is_none_or(Value::is_null);
    for field in ty.fields().iter().filter(|field| field.required).filter(absent) {
        out.push_with(|| FieldError::new(&path.field(&field.name), FieldErrorKind::Required, ""));
    }
}

fn validate_builtin(ty: TypeRef<'_>, value: &Value, path: &FieldPath<'_>, out: &mut FieldErrors) {
    if value.is_null() {
        return;
    }
    match value {
        Value::Object(fields) => {
            missing(ty, Some(fields), path, out);
            for (name, value) in fields {
                if let Some(child) = ty.child(name) {
                    validate_builtin(child, value, &path.field(name), out);
                }
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                validate_builtin(ty.items(), item, &path.index(at), out);
            }
        }
        // An empty string stands for the default.
        Value::String(text) if text.is_empty() => {}
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let allowed = &ty.node().enumeration;
            if !allowed.is_empty() && !allowed.contains(value) {
                out.push_with(|| not_supported(path, value, allowed));
            }
        }
    }
}
