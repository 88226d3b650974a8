//! What is wrong with an object, field by field.

use std::fmt;

use serde_json::Value;

use super::field_path::{FieldPath, beginning};

/// One thing wrong with an object; a cause of a 422 `Status`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldError {
    /// Such as `spec.template.spec.containers[0].name`.
    pub path: String,
    pub kind: FieldErrorKind,
    /// The value that is wrong, where showing it helps.
    value: Option<String>,
    detail: String,
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

/// Bytes shown of a value that is wrong, and of what is said of it: both may hold what a client wrote, of any length. With
/// [`FIELD_ERRORS_MAX`] errors, each of them twice in an answer, that is a megabyte.
const SHOWN_BYTES_MAX: usize = 2 << 10;

impl FieldError {
    pub(crate) fn new(path: &FieldPath<'_>, kind: FieldErrorKind, detail: impl Into<String>) -> Self {
        let mut detail = detail.into();
        if detail.len() > SHOWN_BYTES_MAX {
            detail.truncate(beginning(&detail, SHOWN_BYTES_MAX).len());
            detail.push('…');
        }
        Self { path: path.to_string(), kind, value: None, detail }
    }

    pub(crate) fn with_value(mut self, value: &Value) -> Self {
        self.value = Some(match value {
            Value::Object(_) | Value::Array(_) => "{...}".to_owned(),
            Value::String(text) if text.len() > SHOWN_BYTES_MAX => {
                format!("{}…", Value::from(beginning(text, SHOWN_BYTES_MAX)))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
        });
        self
    }

    /// The message of the cause: all but the path.
    pub(crate) fn message(&self) -> String {
        let mut out = self.kind.title().to_owned();
        for part in self.value.iter().chain(Some(&self.detail).filter(|detail| !detail.is_empty())) {
            out.push_str(": ");
            out.push_str(part);
        }
        out
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message())
    }
}

/// Errors told at most of one object; more help nobody.
pub(crate) const FIELD_ERRORS_MAX: usize = 100;

/// Steps that the validation of one object may take: a value that is looked at is one, a text that is matched by a pattern as many
/// as it has bytes times the states of the pattern. A step takes 7 ns at worst, so that all of them are 7 s; an object of a megabyte
/// of text under an ordinary pattern, of 64 states, needs a sixteenth.
pub(crate) const VALIDATION_STEPS_MAX: u64 = 1 << 30;

/// What is wrong with one object: the first errors, and how many more there are. An error is made only if it is told.
#[derive(Debug)]
pub(crate) struct FieldErrors {
    told: Vec<FieldError>,
    most: usize,
    more: usize,
    steps_left: u64,
}

impl Default for FieldErrors {
    fn default() -> Self {
        Self { told: Vec::new(), most: FIELD_ERRORS_MAX, more: 0, steps_left: VALIDATION_STEPS_MAX }
    }
}

impl FieldErrors {
    #[cfg(test)]
    pub(crate) fn with_steps(steps: u64) -> Self {
        Self { steps_left: steps, ..Self::default() }
    }

    /// Takes an error, which is made only if there is room for it.
    pub(crate) fn push_with(&mut self, error: impl FnOnce() -> FieldError) {
        if self.told.len() < self.most {
            self.told.push(error());
        } else {
            self.more += 1;
        }
    }

    pub(crate) fn push(&mut self, error: FieldError) {
        self.push_with(|| error);
    }

    /// Whether nothing is wrong by a check, which shares the steps of this one and of which no error is told.
    pub(super) fn none_in(&mut self, check: impl FnOnce(&mut Self)) -> bool {
        let mut apart = Self { told: Vec::new(), most: 0, more: 0, steps_left: self.steps_left };
        check(&mut apart);
        self.steps_left = apart.steps_left;
        apart.more == 0
    }

    /// Takes so many steps. False once there are none left; then what is not checked yet is not checked.
    pub(super) fn spend(&mut self, steps: u64) -> bool {
        // Where no error is told, one is as good as many.
        let decided = self.most == 0 && self.more > 0;
        self.steps_left = self.steps_left.saturating_sub(steps);
        self.steps_left > 0 && !decided
    }

    /// Says of an object that was not checked to the end that it was not.
    pub(crate) fn finished(mut self) -> Self {
        if self.steps_left == 0 {
            let detail = format!(
                "validation was given up after {VALIDATION_STEPS_MAX} steps: the object has too many or too long values for what \
                 the schema asks of them"
            );
            let error = FieldError::new(&FieldPath::ROOT, FieldErrorKind::Invalid, detail);
            self.told.insert(0, error);
        }
        self
    }

    pub(crate) fn count(&self) -> usize {
        self.told.len() + self.more
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// How many errors there are that are not told.
    pub(crate) fn more(&self) -> usize {
        self.more
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, FieldError> {
        self.told.iter()
    }
}

impl fmt::Display for FieldErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.told.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{error}")?;
        }
        if self.more > 0 { write!(f, ", and {} more", self.more) } else { Ok(()) }
    }
}

pub(crate) fn not_supported(path: &FieldPath<'_>, value: &Value, allowed: &[Value]) -> FieldError {
    let mut detail = "supported values: ".to_owned();
    for (at, one) in allowed.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        detail.push_str(comma);
        detail.push_str(&one.to_string());
        // The rest is not shown.
        if detail.len() > SHOWN_BYTES_MAX {
            break;
        }
    }
    FieldError::new(path, FieldErrorKind::NotSupported, detail).with_value(value)
}
