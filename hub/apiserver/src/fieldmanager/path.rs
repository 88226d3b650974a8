use std::cmp::Ordering;
use std::fmt;

use serde_json::{Map, Value};

/// One step from a value to a value in it.
///
/// The derived order is the one in which fields are written: fields, keys, values, indices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PathElement {
    Field(String),
    /// An item of a list map, by its key fields, sorted by name.
    Key(Vec<(String, Scalar)>),
    /// An item of a set.
    Value(Scalar),
    Index(i64),
}

/// A JSON value with a total order, numbers before strings before booleans.
#[derive(Clone, Debug)]
pub(crate) struct Scalar(pub Value);

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scalar {}

impl PartialOrd for Scalar {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scalar {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.0, &other.0)
    }
}

fn compare(left: &Value, right: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    };
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => {
            if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) {
                return a.cmp(&b);
            }
            a.as_f64().unwrap_or(f64::MAX).total_cmp(&b.as_f64().unwrap_or(f64::MAX))
        }
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let unequal = a.iter().zip(b).map(|(a, b)| compare(a, b)).find(|order| order.is_ne());
            unequal.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => compare_objects(a, b),
        (
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_),
            _other,
        ) => rank(left).cmp(&rank(right)),
    }
}

fn compare_objects(left: &Map<String, Value>, right: &Map<String, Value>) -> Ordering {
    let unequal = left
        .iter()
        .zip(right)
        .map(|((name, a), (other, b))| name.cmp(other).then_with(|| compare(a, b)))
        .find(|order| order.is_ne());
    unequal.unwrap_or_else(|| left.len().cmp(&right.len()))
}

/// Equality as structured-merge-diff has it: `1` equals `1.0`.
pub(super) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| equal(a, b)))
        }
        (Value::Number(_), Value::Number(_)) => compare(left, right).is_eq(),
        (
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_),
            _other,
        ) => left == right,
    }
}

impl PathElement {
    /// The element for the field `name`.
    pub(crate) fn field(name: impl Into<String>) -> Self {
        Self::Field(name.into())
    }

    /// Reads a key of FieldsV1; `None` for kinds of elements that a later version may have.
    pub(super) fn parse(text: &str) -> Result<Option<Self>, BadElement> {
        let bad = || BadElement(text.to_owned());
        let (kind, rest) = text.split_once(':').ok_or_else(bad)?;
        Ok(Some(match kind {
            "f" => Self::Field(rest.to_owned()),
            "k" => {
                let fields: Map<String, Value> = serde_json::from_str(rest).map_err(|_| bad())?;
                let mut fields: Vec<_> = fields.into_iter().map(|(name, value)| (name, Scalar(value))).collect();
                fields.sort_unstable();
                Self::Key(fields)
            }
            "v" => Self::Value(Scalar(serde_json::from_str(rest).map_err(|_| bad())?)),
            "i" => Self::Index(rest.parse().map_err(|_| bad())?),
            _later if kind.len() == 1 => return Ok(None),
            _malformed => return Err(bad()),
        }))
    }

    /// Writes the element as a key of FieldsV1.
    pub(super) fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(fields) => {
                let fields: Vec<String> =
                    fields.iter().map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), value.0)).collect();
                format!("k:{{{}}}", fields.join(","))
            }
            Self::Value(value) => format!("v:{}", value.0),
            Self::Index(at) => format!("i:{at}"),
        }
    }
}

/// A key in FieldsV1 that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a path element")]
pub(crate) struct BadElement(String);

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                f.write_str("[")?;
                for (at, (name, value)) in fields.iter().enumerate() {
                    let comma = if at == 0 { "" } else { "," };
                    write!(f, "{comma}{name}={}", value.0)?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={}]", value.0),
            Self::Index(at) => write!(f, "[{at}]"),
        }
    }
}

/// Writes a path as conflicts show it: `.spec.template.spec.containers[name="app"].image`; of a longer one the end, which says most.
pub(super) fn display(path: &[PathElement], most: usize) -> String {
    let (mut shown, mut length) = (Vec::new(), 0);
    for element in path.iter().rev() {
        let mut element = element.to_string();
        length += element.len();
        if length > most {
            element.clear();
            element.push('…');
        }
        shown.push(element);
        if length > most {
            break;
        }
    }
    shown.reverse();
    shown.concat()
}
