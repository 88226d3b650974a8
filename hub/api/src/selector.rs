use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Characters of a label's name and of a label's value (Kubernetes' validation of labels).
const NAME_MAX: usize = 63;
/// Characters of the DNS name before the slash of a label's key.
const PREFIX_MAX: usize = 253;

/// A label selector that was checked: all of its requirements must hold. Without any, it selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selector {
    requirements: BTreeSet<Requirement>,
}

/// What must hold of one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Requirement {
    In {
        key: String,
        values: BTreeSet<String>,
    },
    /// Holds also where the label is absent.
    NotIn {
        key: String,
        values: BTreeSet<String>,
    },
    Exists {
        key: String,
    },
    DoesNotExist {
        key: String,
    },
}

/// Why a label selector cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    #[error("{operator:?} is no operator of a label selector; write In, NotIn, Exists or DoesNotExist")]
    Operator { operator: String },
    #[error("the operator {operator} on {key:?} needs at least one value")]
    NoValues { key: String, operator: &'static str },
    #[error("the operator {operator} on {key:?} takes no values")]
    Values { key: String, operator: &'static str },
    #[error("{key:?} cannot be the key of a label")]
    Key { key: String },
    #[error("{value:?} cannot be the value of the label {key:?}")]
    Value { key: String, value: String },
}

impl Selector {
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|requirement| requirement.holds(labels))
    }

    pub fn requirements(&self) -> impl ExactSizeIterator<Item = &Requirement> {
        self.requirements.iter()
    }
}

impl Requirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::In { key, values } => labels.get(key).is_some_and(|value| values.contains(value)),
            Self::NotIn { key, values } => labels.get(key).is_none_or(|value| !values.contains(value)),
            Self::Exists { key } => labels.contains_key(key),
            Self::DoesNotExist { key } => !labels.contains_key(key),
        }
    }
}

impl TryFrom<&LabelSelector> for Selector {
    type Error = SelectorError;

    fn try_from(selector: &LabelSelector) -> Result<Self, SelectorError> {
        let LabelSelector { match_labels, match_expressions } = selector;
        let mut requirements = BTreeSet::new();
        for (key, value) in match_labels.iter().flatten() {
            check_key(key)?;
            let values = checked_values(key, std::slice::from_ref(value))?;
            requirements.insert(Requirement::In { key: key.clone(), values });
        }
        for expression in match_expressions.iter().flatten() {
            let key = expression.key.clone();
            check_key(&key)?;
            let values = checked_values(&key, expression.values.as_deref().unwrap_or_default())?;
            requirements.insert(match (expression.operator.as_str(), values.is_empty()) {
                ("In", false) => Requirement::In { key, values },
                ("In", true) => return Err(SelectorError::NoValues { key, operator: "In" }),
                ("NotIn", false) => Requirement::NotIn { key, values },
                ("NotIn", true) => return Err(SelectorError::NoValues { key, operator: "NotIn" }),
                ("Exists", true) => Requirement::Exists { key },
                ("Exists", false) => return Err(SelectorError::Values { key, operator: "Exists" }),
                ("DoesNotExist", true) => Requirement::DoesNotExist { key },
                ("DoesNotExist", false) => return Err(SelectorError::Values { key, operator: "DoesNotExist" }),
                (operator, _) => return Err(SelectorError::Operator { operator: operator.to_owned() }),
            });
        }
        Ok(Self { requirements })
    }
}

fn checked_values(key: &str, values: &[String]) -> Result<BTreeSet<String>, SelectorError> {
    match values.iter().find(|value| !value.is_empty() && !is_name(value)) {
        Some(value) => Err(SelectorError::Value { key: key.to_owned(), value: value.clone() }),
        None => Ok(values.iter().cloned().collect()),
    }
}

/// A qualified name: `name`, or `dns.name/name`.
fn check_key(key: &str) -> Result<(), SelectorError> {
    let valid = match key.split_once('/') {
        Some((prefix, name)) => is_dns_name(prefix) && is_name(name),
        None => is_name(key),
    };
    if valid { Ok(()) } else { Err(SelectorError::Key { key: key.to_owned() }) }
}

fn is_name(text: &str) -> bool {
    text.len() <= NAME_MAX
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.ends_with(|last: char| last.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn is_dns_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_part = |part: &str| {
        let (Some(&first), Some(&last)) = (part.as_bytes().first(), part.as_bytes().last()) else { return false };
        is_letter(first) && is_letter(last) && part.bytes().all(|byte| is_letter(byte) || byte == b'-')
    };
    text.len() <= PREFIX_MAX && text.split('.').all(is_part)
}

#[cfg(test)]
mod tests;
