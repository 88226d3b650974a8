//! What a schema asks of values beyond their type.

use std::collections::BTreeMap;
use std::fmt;

use regex::Regex;
use serde_json::{Number, Value};

use super::field_error::{FieldError, FieldErrorKind, FieldErrors, not_supported};
use super::field_path::FieldPath;
use super::text::is_base64;

/// The value validation of one schema node, with its `allOf`, `anyOf`, `oneOf` and `not`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Constraint {
    pub(crate) pattern: Option<Pattern>,
    pub(crate) format: Option<Format>,
    pub(crate) minimum: Option<Bound>,
    pub(crate) maximum: Option<Bound>,
    pub(crate) multiple_of: Option<Number>,
    pub(crate) min_length: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) min_properties: Option<u64>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) enumeration: Vec<Value>,
    /// In a branch only: the node itself has these in its shape.
    pub(crate) of_type: Option<String>,
    pub(crate) required: Vec<String>,
    pub(crate) properties: BTreeMap<String, Constraint>,
    pub(crate) items: Option<Box<Constraint>>,
    pub(crate) all_of: Vec<Constraint>,
    pub(crate) any_of: Vec<Constraint>,
    pub(crate) one_of: Vec<Constraint>,
    pub(crate) not: Option<Box<Constraint>>,
}

/// A compiled pattern.
#[derive(Clone)]
pub(crate) struct Pattern {
    pub(crate) regex: Regex,
    /// How many states it is in at once, at most: what each byte of a text may cost.
    pub(crate) states: u64,
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.regex.as_str())
    }
}

/// One end of a range.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) at: Number,
    pub(crate) exclusive: bool,
}

/// Formats that are checked; all others are taken as notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    DateTime,
    Date,
    Int32,
    Byte,
    Uuid,
    Ipv4,
    Ipv6,
    Duration,
}

impl Format {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "date-time" => Self::DateTime,
            "date" => Self::Date,
            "int32" => Self::Int32,
            "byte" => Self::Byte,
            "uuid" => Self::Uuid,
            "ipv4" => Self::Ipv4,
            "ipv6" => Self::Ipv6,
            "duration" => Self::Duration,
            _note => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::DateTime => "date-time",
            Self::Date => "date",
            Self::Int32 => "int32",
            Self::Byte => "byte",
            Self::Uuid => "uuid",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Duration => "duration",
        }
    }

    fn fits(self, value: &Value) -> bool {
        if self == Self::Int32 {
            return value.as_i64().is_none_or(|number| i32::try_from(number).is_ok());
        }
        let Some(text) = value.as_str() else { return true };
        match self {
            Self::DateTime => text.parse::<jiff::Timestamp>().is_ok(),
            Self::Date => text.parse::<jiff::civil::Date>().is_ok(),
            Self::Int32 => true,
            Self::Byte => is_base64(text),
            Self::Uuid => text.parse::<uuid::Uuid>().is_ok(),
            Self::Ipv4 => text.parse::<std::net::Ipv4Addr>().is_ok(),
            Self::Ipv6 => text.parse::<std::net::Ipv6Addr>().is_ok(),
            Self::Duration => is_duration(text),
        }
    }
}

/// A Go duration such as `1h30m`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        if digits == 0 || rest[..digits].parse::<f64>().is_err() {
            return false;
        }
        rest = &rest[digits..];
        let Some(after) = ["ns", "us", "µs", "ms", "s", "m", "h"].iter().find_map(|unit| rest.strip_prefix(unit))
        else {
            return false;
        };
        rest = after;
    }
    true
}

impl Constraint {
    /// Adds to `out` what is wrong with a value.
    pub(crate) fn check(&self, value: &Value, path: &FieldPath<'_>, out: &mut FieldErrors) {
        if !out.spend(self.steps(value)) {
            return;
        }
        let mut invalid = |detail: &dyn Fn() -> String| {
            out.push_with(|| {
                let detail = format!("{path} in body {}", detail());
                FieldError::new(path, FieldErrorKind::Invalid, detail).with_value(value)
            });
        };
        match value {
            Value::String(text) => self.check_text(text, &mut invalid),
            Value::Number(number) => self.check_number(number, &mut invalid),
            Value::Array(items) => {
                count(items.len(), self.min_items, self.max_items, "items", &mut invalid);
            }
            Value::Object(fields) => {
                count(fields.len(), self.min_properties, self.max_properties, "properties", &mut invalid);
            }
            Value::Null | Value::Bool(_) => {}
        }
        if let Some(format) = self.format.filter(|format| !format.fits(value)) {
            invalid(&|| format!("must be of type {}: {value}", format.name()));
        }
        if let Some(wanted) = self.of_type.as_deref().filter(|wanted| !is_type(value, wanted)) {
            invalid(&|| format!("must be of type {wanted}"));
        }
        if !self.enumeration.is_empty() && !self.enumeration.contains(value) {
            out.push_with(|| not_supported(path, value, &self.enumeration));
        }
        self.check_parts(value, path, out);
        self.check_branches(value, path, out);
    }

    /// What it takes to check a value, without the values in it.
    fn steps(&self, value: &Value) -> u64 {
        let listed = self.enumeration.len() + self.required.len() + self.properties.len();
        let text = match value {
            Value::String(text) => text.len(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => 0,
        };
        let states = self.pattern.as_ref().map_or(0, |pattern| pattern.states);
        // Each value has one step at least, and a text is counted in any case.
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        count(listed).saturating_add(count(text).saturating_mul(states.saturating_add(1))).saturating_add(1)
    }

    fn check_text(&self, text: &str, invalid: &mut impl FnMut(&dyn Fn() -> String)) {
        let length = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
        if let Some(least) = self.min_length.filter(|least| length < *least) {
            invalid(&|| format!("should be at least {least} chars long"));
        }
        if let Some(most) = self.max_length.filter(|most| length > *most) {
            invalid(&|| format!("may not be longer than {most}"));
        }
        if let Some(pattern) = self.pattern.as_ref().filter(|pattern| !pattern.regex.is_match(text)) {
            invalid(&|| format!("should match '{}'", pattern.regex.as_str()));
        }
    }

    fn check_number(&self, number: &Number, invalid: &mut impl FnMut(&dyn Fn() -> String)) {
        let order = |bound: &Bound| compare(number, &bound.at);
        if let Some(bound) = &self.minimum
            && (order(bound).is_lt() || bound.exclusive && order(bound).is_eq())
        {
            let or_equal = if bound.exclusive { "" } else { " or equal to" };
            invalid(&|| format!("should be greater than{or_equal} {}", bound.at));
        }
        if let Some(bound) = &self.maximum
            && (order(bound).is_gt() || bound.exclusive && order(bound).is_eq())
        {
            let or_equal = if bound.exclusive { "" } else { " or equal to" };
            invalid(&|| format!("should be less than{or_equal} {}", bound.at));
        }
        if let Some(step) = &self.multiple_of {
            // A real server takes such a schema too, and refuses every number by it.
            if !step.as_f64().is_some_and(|step| step > 0.0) {
                invalid(&|| format!("cannot be checked: the factor multipleOf must be positive: {step}"));
            } else if !is_multiple(number, step) {
                invalid(&|| format!("should be a multiple of {step}"));
            }
        }
    }

    fn check_parts(&self, value: &Value, path: &FieldPath<'_>, out: &mut FieldErrors) {
        if let Value::Object(fields) = value {
            for name in self.required.iter().filter(|name| !fields.contains_key(*name)) {
                out.push_with(|| FieldError::new(&path.field(name), FieldErrorKind::Required, ""));
            }
            for (name, constraint) in &self.properties {
                if let Some(value) = fields.get(name) {
                    constraint.check(value, &path.field(name), out);
                }
            }
        }
        if let (Value::Array(items), Some(constraint)) = (value, &self.items) {
            for (at, item) in items.iter().enumerate() {
                constraint.check(item, &path.index(at), out);
            }
        }
    }

    fn check_branches(&self, value: &Value, path: &FieldPath<'_>, out: &mut FieldErrors) {
        for branch in &self.all_of {
            branch.check(value, path, out);
        }
        let mut holds = |branch: &Constraint| out.none_in(|out| branch.check(value, path, out));
        let none_of_any = !self.any_of.is_empty() && !self.any_of.iter().any(&mut holds);
        let not_one = !self.one_of.is_empty() && self.one_of.iter().filter(|branch| holds(branch)).count() != 1;
        let negated = self.not.as_deref().is_some_and(&mut holds);
        for (wrong, detail) in [
            (none_of_any, "must validate at least one schema (anyOf)"),
            (not_one, "must validate one and only one schema (oneOf)"),
            (negated, "must not validate the schema (not)"),
        ] {
            if wrong {
                out.push_with(|| {
                    let detail = format!("{:?} {detail}", path.to_string());
                    FieldError::new(path, FieldErrorKind::Invalid, detail).with_value(value)
                });
            }
        }
    }
}

fn count(
    found: usize,
    least: Option<u64>,
    most: Option<u64>,
    what: &str,
    invalid: &mut impl FnMut(&dyn Fn() -> String),
) {
    let found = u64::try_from(found).unwrap_or(u64::MAX);
    if let Some(least) = least.filter(|least| found < *least) {
        invalid(&|| format!("should have at least {least} {what}"));
    }
    if let Some(most) = most.filter(|most| found > *most) {
        invalid(&|| format!("should have at most {most} {what}"));
    }
}

fn compare(left: &Number, right: &Number) -> std::cmp::Ordering {
    match (left.as_i64(), right.as_i64()) {
        (Some(left), Some(right)) => left.cmp(&right),
        _floats => left.as_f64().unwrap_or(f64::NAN).total_cmp(&right.as_f64().unwrap_or(f64::NAN)),
    }
}

fn is_multiple(number: &Number, step: &Number) -> bool {
    match (number.as_i64(), step.as_i64()) {
        // There is no remainder by zero, nor of the smallest number by -1.
        (Some(number), Some(step)) if step > 0 => number % step == 0,
        _floats => {
            let (number, step) = (number.as_f64().unwrap_or(f64::NAN), step.as_f64().unwrap_or(f64::NAN));
            (number / step).fract() == 0.0
        }
    }
}

fn is_type(value: &Value, wanted: &str) -> bool {
    match wanted {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _unknown => true,
    }
}
