//! Strict decoding and validation of objects against their type.

mod decode;
mod metadata;

use std::fmt;

use serde_json::{Map, Value};

pub(crate) use self::decode::decode;
pub(crate) use self::metadata::{NameRule, is_dns_label, is_dns_subdomain, validate_metadata};
use super::{Field, ScalarType, Shape, TypeRef};
use crate::structural;

/// One thing wrong with an object; a cause of a 422 `Status`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldError {
    /// Such as `spec.template.spec.containers[0].name`.
    pub path: String,
    pub kind: FieldErrorKind,
    /// The value that is wrong, where showing it helps.
    pub value: Option<Value>,
    pub detail: String,
}

/// What is wrong, in the words of apimachinery's `field.ErrorType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldErrorKind {
    Required,
    Invalid,
    NotSupported,
    TypeInvalid,
    TooLong,
    Duplicate,
    Forbidden,
}

impl FieldErrorKind {
    /// The `reason` of the cause.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::TooLong => "FieldValueTooLong",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::TooLong => "Too long",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
        }
    }
}

impl FieldError {
    pub(crate) fn new(path: &str, kind: FieldErrorKind, detail: impl Into<String>) -> Self {
        Self { path: path.to_owned(), kind, value: None, detail: detail.into() }
    }

    pub(crate) fn with_value(mut self, value: &Value) -> Self {
        self.value = Some(value.clone());
        self
    }

    /// The message of the cause: all but the path.
    pub(crate) fn message(&self) -> String {
        let mut out = self.kind.title().to_owned();
        if let Some(value) = &self.value {
            let shown = match value {
                Value::Object(_) | Value::Array(_) => "{...}".to_owned(),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
            };
            out.push_str(": ");
            out.push_str(&shown);
        }
        if !self.detail.is_empty() {
            out.push_str(": ");
            out.push_str(&self.detail);
        }
        out
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message())
    }
}

/// Errors reported at most for one object; more help nobody.
pub(crate) const FIELD_ERRORS_MAX: usize = 100;

pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Fields that the type does not declare, as `spec.foo`; what strict decoding refuses.
#[cfg(test)]
pub(crate) fn unknown_fields(ty: TypeRef<'_>, value: &Value) -> Vec<String> {
    let mut out = Vec::new();
    collect_unknown(ty, value, "", &mut out);
    out
}

#[cfg(test)]
fn collect_unknown(ty: TypeRef<'_>, value: &Value, path: &str, out: &mut Vec<String>) {
    if out.len() >= FIELD_ERRORS_MAX {
        return;
    }
    match (ty.shape(), value) {
        (Shape::Object { .. }, Value::Object(fields)) => {
            for (name, value) in fields {
                match ty.child(name) {
                    Some(child) => collect_unknown(child, value, &join(path, name), out),
                    None if ty.node().preserve_unknown => {}
                    None => out.push(join(path, name)),
                }
            }
        }
        (Shape::List { .. }, Value::Array(items)) => {
            for (at, item) in items.iter().enumerate() {
                collect_unknown(ty.items(), item, &format!("{path}[{at}]"), out);
            }
        }
        _other => {}
    }
}

/// Removes fields that the type does not declare; what a server does with unknown fields that it
/// does not refuse. Returns their paths.
pub(crate) fn drop_unknown_fields(ty: TypeRef<'_>, value: &mut Value) -> Vec<String> {
    let mut out = Vec::new();
    drop_unknown(ty, value, "", &mut out);
    out
}

fn drop_unknown(ty: TypeRef<'_>, value: &mut Value, path: &str, out: &mut Vec<String>) {
    match (ty.shape(), value) {
        (Shape::Object { .. }, Value::Object(fields)) => {
            if !ty.node().preserve_unknown {
                fields.retain(|name, _| {
                    let known = ty.child(name).is_some();
                    if !known && out.len() < FIELD_ERRORS_MAX {
                        out.push(join(path, name));
                    }
                    known
                });
            }
            for (name, value) in fields.iter_mut() {
                if let Some(child) = ty.child(name) {
                    drop_unknown(child, value, &join(path, name), out);
                }
            }
        }
        (Shape::List { .. }, Value::Array(items)) => {
            for (at, item) in items.iter_mut().enumerate() {
                drop_unknown(ty.items(), item, &format!("{path}[{at}]"), out);
            }
        }
        _other => {}
    }
}

/// Removes nulls from fields of built-in types: a real server decodes them to nothing.
pub(crate) fn drop_nulls(ty: TypeRef<'_>, value: &mut Value) {
    match (ty.shape(), value) {
        (Shape::Object { .. }, Value::Object(fields)) => {
            fields.retain(|name, value| !value.is_null() || ty.declared(name).is_none());
            for (name, value) in fields.iter_mut() {
                if let Some(child) = ty.child(name) {
                    drop_nulls(child, value);
                }
            }
        }
        (Shape::List { .. }, Value::Array(items)) => {
            for item in items {
                drop_nulls(ty.items(), item);
            }
        }
        _other => {}
    }
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
    check_types_at(ty, value, "")
}

fn check_types_at(ty: TypeRef<'_>, value: &Value, path: &str) -> Result<(), TypeMismatch> {
    let mismatch = |expected| Err(TypeMismatch { path: path.to_owned(), found: json_type(value), expected });
    match (ty.shape(), value) {
        (Shape::Any, _) | (_, Value::Null) => Ok(()),
        (Shape::Object { .. }, Value::Object(fields)) => fields.iter().try_for_each(|(name, value)| {
            ty.child(name).map_or(Ok(()), |child| check_types_at(child, value, &join(path, name)))
        }),
        (Shape::List { .. }, Value::Array(items)) => items
            .iter()
            .enumerate()
            .try_for_each(|(at, item)| check_types_at(ty.items(), item, &format!("{path}[{at}]"))),
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

pub(crate) fn is_time(text: &str) -> bool {
    text.is_empty() || text.parse::<jiff::Timestamp>().is_ok()
}

pub(crate) fn is_base64(text: &str) -> bool {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    // Go's decoder skips line breaks.
    if text.contains(['\n', '\r']) {
        return STANDARD.decode(text.replace(['\n', '\r'], "")).is_ok();
    }
    STANDARD.decode(text).is_ok()
}

fn is_quantity_value(value: &Value) -> bool {
    match value {
        Value::Number(_) => true,
        Value::String(text) => text.is_empty() || is_quantity(text),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    }
}

/// Whether the text is a quantity: a decimal number with an optional suffix (`500m`, `1Gi`, `1e3`).
pub(crate) fn is_quantity(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let digits = number.bytes().filter(u8::is_ascii_digit).count();
    if digits == 0 || number.len() - digits > 1 {
        return false;
    }
    match suffix {
        "" | "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "E" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei" => true,
        exponent => exponent.strip_prefix(['e', 'E']).is_some_and(|digits| digits.parse::<i32>().is_ok()),
    }
}

/// Everything wrong with an object: metadata, and what its type asks of its values.
///
/// For built-in kinds that is required fields and enums outside `status` (the checks that a schema
/// can tell; what only Go code knows is not repeated here). For custom resources it is their whole
/// schema.
pub(crate) fn validate_object(ty: TypeRef<'_>, value: &Value, namespaced: bool) -> Vec<FieldError> {
    let mut out = Vec::new();
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let rule = NameRule::of(text("apiVersion"), text("kind"));
    validate_metadata(value.get("metadata").unwrap_or(&Value::Null), rule, namespaced, &mut out);
    if ty.node().constraint.is_some() {
        structural::validate_at(ty, value, "", &mut out);
    } else {
        for (name, value) in value.as_object().into_iter().flatten() {
            // Written by controllers, field by field; a real server checks little of it.
            if name != "status" && name != "metadata" {
                ty.field(name).iter().for_each(|field| validate_builtin(*field, value, name, &mut out));
            }
        }
        missing(ty, value.as_object(), "", &mut out);
    }
    out.truncate(FIELD_ERRORS_MAX);
    out
}

fn missing(ty: TypeRef<'_>, fields: Option<&Map<String, Value>>, path: &str, out: &mut Vec<FieldError>) {
    let absent = |field: &&Field| fields.and_then(|fields| fields.get(&*field.name)).is_none_or(Value::is_null);
    for field in ty.fields().iter().filter(|field| field.required).filter(absent) {
        out.push(FieldError::new(&join(path, &field.name), FieldErrorKind::Required, ""));
    }
}

fn validate_builtin(ty: TypeRef<'_>, value: &Value, path: &str, out: &mut Vec<FieldError>) {
    if out.len() >= FIELD_ERRORS_MAX || value.is_null() {
        return;
    }
    match value {
        Value::Object(fields) => {
            missing(ty, Some(fields), path, out);
            for (name, value) in fields {
                if let Some(child) = ty.child(name) {
                    validate_builtin(child, value, &join(path, name), out);
                }
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                validate_builtin(ty.items(), item, &format!("{path}[{at}]"), out);
            }
        }
        // An empty string stands for the default.
        Value::String(text) if text.is_empty() => {}
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let allowed = &ty.node().enumeration;
            if !allowed.is_empty() && !allowed.contains(value) {
                out.push(not_supported(path, value, allowed));
            }
        }
    }
}

pub(crate) fn not_supported(path: &str, value: &Value, allowed: &[Value]) -> FieldError {
    let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
    FieldError::new(path, FieldErrorKind::NotSupported, format!("supported values: {}", allowed.join(", ")))
        .with_value(value)
}
