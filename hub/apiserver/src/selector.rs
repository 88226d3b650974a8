//! Label and field selectors.

use std::collections::BTreeSet;

use serde_json::Value;

/// A conjunction of requirements on labels. The default matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(BTreeSet<String>),
    /// Also true where the label is absent.
    NotIn(BTreeSet<String>),
    Exists,
    Absent,
    GreaterThan(i64),
    LessThan(i64),
}

impl LabelSelector {
    /// Reads the query form: `a=b,c in (d,e),!f,g>1`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut requirements = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let end = requirement_end(rest)?;
            let (one, tail) = rest.split_at(end);
            requirements.push(Requirement::parse(one.trim())?);
            rest = match tail.strip_prefix(',') {
                Some(more) if more.trim().is_empty() => {
                    return Err("found '', expected: identifier after ','".into());
                }
                Some(more) => more.trim(),
                None => "",
            };
        }
        Ok(Self(requirements))
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
        self.0.iter().all(|Requirement { key, test }| {
            let value = labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
            let number = || value.and_then(|value| value.parse::<i64>().ok());
            match test {
                Test::In(values) => value.is_some_and(|value| values.contains(value)),
                Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
                Test::LessThan(bound) => number().is_some_and(|number| number < *bound),
            }
        })
    }
}

/// Where the first requirement of `text` ends: at a comma outside parentheses, or at the end.
fn requirement_end(text: &str) -> Result<usize, String> {
    let mut open = false;
    for (at, character) in text.char_indices() {
        match character {
            '(' if open => return Err("found '(', expected: identifier".into()),
            '(' => open = true,
            ')' if !open => return Err("found ')', expected: '('".into()),
            ')' => open = false,
            ',' if !open => return Ok(at),
            _ => {}
        }
    }
    if open { Err("found '', expected: ')'".into()) } else { Ok(text.len()) }
}

impl Requirement {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some(key) = text.strip_prefix('!') {
            return Self::new(key, Test::Absent);
        }
        if let Some(open) = text.find('(') {
            let (head, values) = text.split_at(open);
            let values = values.trim_start_matches('(').trim_end().trim_end_matches(')');
            let values = values.split(',').map(|value| label_value(value.trim())).collect::<Result<_, _>>()?;
            let mut words = head.split_whitespace();
            return match (words.next(), words.next(), words.next()) {
                (Some(key), Some("in"), None) => Self::new(key, Test::In(values)),
                (Some(key), Some("notin"), None) => Self::new(key, Test::NotIn(values)),
                _ => Err(format!("found {head:?}, expected: '=', '!=', '==', 'in', notin'")),
            };
        }
        let one = |value: &str| Ok::<_, String>(BTreeSet::from([label_value(value.trim())?]));
        let number = |value: &str| {
            value.trim().parse().map_err(|_| format!("values[0]: Invalid value: {value:?}: must be an integer"))
        };
        if let Some((key, value)) = text.split_once("!=") {
            Self::new(key, Test::NotIn(one(value)?))
        } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
            Self::new(key, Test::In(one(value)?))
        } else if let Some((key, value)) = text.split_once('>') {
            Self::new(key, Test::GreaterThan(number(value)?))
        } else if let Some((key, value)) = text.split_once('<') {
            Self::new(key, Test::LessThan(number(value)?))
        } else {
            Self::new(text, Test::Exists)
        }
    }

    fn new(key: &str, test: Test) -> Result<Self, String> {
        let key = key.trim();
        let name = key.rsplit('/').next().unwrap_or_default();
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
        if name.is_empty() || name.len() > 63 || key.len() > 317 || !key.chars().all(fine) {
            return Err(format!("key: Invalid value: {key:?}: must be a qualified name"));
        }
        Ok(Self { key: key.to_owned(), test })
    }
}

fn label_value(value: &str) -> Result<String, String> {
    if value.len() > 63 {
        return Err(format!("values[0]: Invalid value: {value:?}: must be no more than 63 bytes"));
    }
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !value.chars().all(fine) {
        return Err(format!(
            "values[0]: Invalid value: {value:?}: a valid label must be an empty string or consist of alphanumeric \
             characters, '-', '_' or '.'"
        ));
    }
    Ok(value.to_owned())
}

/// A conjunction of comparisons of fields. The default matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector(Vec<Comparison>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Comparison {
    field: String,
    value: String,
    equal: bool,
}

impl FieldSelector {
    /// Reads the query form: `metadata.name=a,status.phase!=Running`, with `\` before a literal `,`, `=` or `\`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut comparisons = Vec::new();
        for term in split_unescaped(text, ',') {
            let term = term.trim();
            if term.is_empty() {
                continue;
            }
            let invalid = || format!("invalid selector: '{text}'; can't understand '{term}'");
            let at = unescaped_equals(term).ok_or_else(invalid)?;
            let (field, value) = (&term[..at], &term[at + 1..]);
            let value = value.strip_prefix('=').unwrap_or(value);
            let (field, equal) = match field.strip_suffix('!') {
                Some(field) => (field, false),
                None => (field, true),
            };
            comparisons.push(Comparison { field: field.to_owned(), value: unescape(value), equal });
        }
        Ok(Self(comparisons))
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|comparison| comparison.field.as_str())
    }

    /// The one value that `field` must have, if the selector says so.
    pub(crate) fn exact(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|one| one.equal && one.field == field).map(|one| one.value.as_str())
    }

    /// What is compared as `field` is found at `path`.
    pub(crate) fn locate(&mut self, field: &str, path: &str) {
        for comparison in self.0.iter_mut().filter(|comparison| comparison.field == field) {
            path.clone_into(&mut comparison.field);
        }
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|Comparison { field, value, equal }| (field_text(object, field) == *value) == *equal)
    }
}

/// The field as the text that selectors compare with; absent and null are empty.
fn field_text(object: &Value, field: &str) -> String {
    let mut at = object;
    for step in field.split('.') {
        match at.get(step) {
            Some(next) => at = next,
            None => return absent_field(field),
        }
    }
    match at {
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => at.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => absent_field(field),
    }
}

/// Booleans and counters compare as their zero where they are not set.
fn absent_field(field: &str) -> String {
    match field {
        "spec.hostNetwork" | "spec.unschedulable" => "false".into(),
        "status.replicas" | "status.successful" => "0".into(),
        _ => String::new(),
    }
}

fn split_unescaped(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, character) in text.char_indices() {
        if escaped {
            escaped = false;
        } else if character == '\\' {
            escaped = true;
        } else if character == separator {
            parts.push(&text[start..at]);
            start = at + 1;
        }
    }
    parts.push(&text[start..]);
    parts
}

fn unescaped_equals(term: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, character) in term.char_indices() {
        if escaped {
            escaped = false;
        } else if character == '\\' {
            escaped = true;
        } else if character == '=' {
            return Some(at);
        }
    }
    None
}

fn unescape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => out.extend(characters.next()),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests;
