//! What is wrong with an object, field by field.

use std::fmt;

use serde_json::Value;

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

pub(crate) fn not_supported(path: &str, value: &Value, allowed: &[Value]) -> FieldError {
    let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
    FieldError::new(path, FieldErrorKind::NotSupported, format!("supported values: {}", allowed.join(", ")))
        .with_value(value)
}
