//! Which fields a policy is about.
//!
//! Two notations for one thing: JSON pointers (RFC 6901), and that part of JSONPath (RFC 9535) that walks down: names,
//! indexes, `*`, and filters by one equality. What a path names depends on the object, so it is looked up each time.

use std::fmt;

use serde_json::{Map, Value};

use crate::pointer_unescaped;

/// The way to fields of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// A segment of a pointer, which does not tell the field `0` from the first item.
    Segment(String),
    Name(String),
    Index(usize),
    Every,
    /// Those whose value at `path` is `value`.
    Where {
        path: Vec<String>,
        value: Value,
    },
}

/// The way to one field of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectPath(Vec<PathElement>);

/// One step on it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathElement {
    Field(String),
    Item(usize),
}

/// Why a text is no path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldPathError {
    #[error(
        "it begins with neither / (a JSON pointer such as /spec/replicas) nor $ (JSONPath such as $.spec.replicas)"
    )]
    Beginning,
    #[error("it names the whole object")]
    Whole,
    #[error("~ at byte {0} is followed by neither 0 nor 1")]
    Escape(usize),
    #[error("byte {at}: expected {expected}")]
    Expected { at: usize, expected: &'static str },
}

impl FieldPath {
    /// # Errors
    ///
    /// The path is malformed, too long or too deep, or names a field that no policy may be about.
    pub fn parse(text: &str) -> Result<Self, FieldPathError> {
        let steps = match text.as_bytes().first() {
            Some(b'/') => pointer(text)?,
            Some(b'$') => Parser { text, at: 1 }.steps()?,
            Some(_) | None => return Err(FieldPathError::Beginning),
        };
        if steps.is_empty() { Err(FieldPathError::Whole) } else { Ok(Self(steps)) }
    }

    /// The fields of an object that this names, in the object's order.
    pub fn find(&self, object: &Value) -> Vec<ObjectPath> {
        let mut found = vec![(ObjectPath::default(), object)];
        for step in &self.0 {
            found = found.into_iter().flat_map(|(way, node)| step.below(&way, node)).collect();
        }
        found.into_iter().map(|(way, _)| way).collect()
    }

    /// Whether it names something in this field of an object, and not the field itself.
    pub(super) fn is_below(&self, field: &str) -> bool {
        match self.0.split_first() {
            Some((Step::Segment(name) | Step::Name(name), rest)) => name == field && !rest.is_empty(),
            Some((Step::Index(_) | Step::Every | Step::Where { .. }, _)) | None => false,
        }
    }

    /// As much of an object as shows the same along this path; none if it names nothing there.
    pub(super) fn kept(&self, object: &Value) -> Option<Value> {
        kept(&self.0, object)
    }
}

fn kept(steps: &[Step], node: &Value) -> Option<Value> {
    let Some((step, rest)) = steps.split_first() else { return Some(node.clone()) };
    let mut all = None;
    for (element, child) in step.children(node) {
        let Some(mut part) = kept(rest, child) else { continue };
        if let Step::Where { path, value } = step {
            // By this the item is found again.
            let chosen_by = path
                .iter()
                .rev()
                .fold(value.clone(), |inner, name| Value::Object([(name.clone(), inner)].into_iter().collect()));
            merge(&mut part, chosen_by);
        }
        let slot = match element {
            PathElement::Field(name) => all
                .get_or_insert_with(|| Value::Object(Map::new()))
                .as_object_mut()
                .map(|map| map.entry(name).or_insert(Value::Null)),
            PathElement::Item(nth) => {
                all.get_or_insert_with(|| Value::Array(Vec::new())).as_array_mut().and_then(|items| {
                    // The elements before it are others', or nobody's.
                    items.resize(items.len().max(nth + 1), Value::Null);
                    items.get_mut(nth)
                })
            }
        };
        if let Some(slot) = slot {
            merge(slot, part);
        }
    }
    all
}

/// Joins two parts of one value; null stands for what a part lacks.
pub(super) fn merge(these: &mut Value, those: Value) {
    match (these, those) {
        (Value::Object(these), Value::Object(those)) => {
            for (name, value) in those {
                merge(these.entry(name).or_insert(Value::Null), value);
            }
        }
        (Value::Array(these), Value::Array(those)) => {
            these.resize(these.len().max(those.len()), Value::Null);
            for (this, that) in these.iter_mut().zip(those) {
                merge(this, that);
            }
        }
        (_, Value::Null) => {}
        (this, that) => *this = that,
    }
}

impl Step {
    fn below<'v>(&self, way: &ObjectPath, node: &'v Value) -> Vec<(ObjectPath, &'v Value)> {
        let with = |(element, child): (PathElement, &'v Value)| {
            let mut way = way.clone();
            way.0.push(element);
            (way, child)
        };
        self.children(node).into_iter().map(with).collect()
    }

    fn children<'v>(&self, node: &'v Value) -> Vec<(PathElement, &'v Value)> {
        let name = |name: &String| node.as_object()?.get(name).map(|child| (PathElement::Field(name.clone()), child));
        let item = |nth: usize| node.as_array()?.get(nth).map(|child| (PathElement::Item(nth), child));
        let all = || match node {
            Value::Object(map) => map.iter().map(|(key, child)| (PathElement::Field(key.clone()), child)).collect(),
            Value::Array(items) => {
                items.iter().enumerate().map(|(nth, child)| (PathElement::Item(nth), child)).collect::<Vec<_>>()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
        };
        match self {
            Self::Segment(text) if node.is_array() => text.parse().ok().and_then(item).into_iter().collect(),
            Self::Segment(text) | Self::Name(text) => name(text).into_iter().collect(),
            Self::Index(nth) => item(*nth).into_iter().collect(),
            Self::Every => all(),
            Self::Where { path, value } => {
                let mut all = all();
                all.retain(|(_, child)| {
                    path.iter().try_fold(*child, |node, name| node.get(name.as_str())) == Some(value)
                });
                all
            }
        }
    }
}

impl ObjectPath {
    pub fn elements(&self) -> &[PathElement] {
        &self.0
    }

    pub fn read<'v>(&self, object: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(object, |node, element| match element {
            PathElement::Field(name) => node.get(name.as_str()),
            PathElement::Item(nth) => node.get(nth),
        })
    }

    /// Writes a value where the path exists: in a map that is there, or instead of an item. Returns whether it did.
    pub fn put(&self, object: &mut Value, value: Value) -> bool {
        let Some((last, parents)) = self.0.split_last() else { return false };
        let parent = parents.iter().try_fold(object, |node, element| match element {
            PathElement::Field(name) => node.get_mut(name.as_str()),
            PathElement::Item(nth) => node.get_mut(nth),
        });
        match (parent, last) {
            (Some(Value::Object(map)), PathElement::Field(name)) => drop(map.insert(name.clone(), value)),
            (Some(Value::Array(items)), PathElement::Item(nth)) if *nth < items.len() => items[*nth] = value,
            (Some(_) | None, PathElement::Field(_) | PathElement::Item(_)) => return false,
        }
        true
    }

    /// Takes the field out, and maps above it that are empty without it. Of several items of a list the last goes first.
    pub fn remove(&self, object: &mut Value) {
        remove(object, &self.0);
    }
}

fn remove(node: &mut Value, way: &[PathElement]) {
    let Some((first, rest)) = way.split_first() else { return };
    match (node, first) {
        (Value::Object(map), PathElement::Field(name)) if rest.is_empty() => drop(map.remove(name)),
        (Value::Object(map), PathElement::Field(name)) => {
            let Some(child) = map.get_mut(name) else { return };
            remove(child, rest);
            // An empty map that is applied would be owned, and keep others from removing it.
            if child.as_object().is_some_and(Map::is_empty) {
                map.remove(name);
            }
        }
        (Value::Array(items), PathElement::Item(nth)) if rest.is_empty() => {
            if *nth < items.len() {
                items.remove(*nth);
            }
        }
        (Value::Array(items), PathElement::Item(nth)) => {
            if let Some(item) = items.get_mut(*nth) {
                remove(item, rest);
            }
        }
        (_, PathElement::Field(_) | PathElement::Item(_)) => {}
    }
}

impl fmt::Display for ObjectPath {
    /// As JSONPath has it, but for the quotes of unusual names: `.spec.containers[0].image`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| match element {
            PathElement::Field(name) => write!(f, ".{name}"),
            PathElement::Item(nth) => write!(f, "[{nth}]"),
        })
    }
}

fn pointer(text: &str) -> Result<Vec<Step>, FieldPathError> {
    let bytes = text.as_bytes();
    let wrong = |at: &usize| bytes[*at] == b'~' && !matches!(bytes.get(at + 1), Some(b'0' | b'1'));
    if let Some(at) = (0..bytes.len()).find(wrong) {
        return Err(FieldPathError::Escape(at));
    }
    Ok(text.split('/').skip(1).map(|segment| Step::Segment(pointer_unescaped(segment))).collect())
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn take(&mut self, token: &str) -> bool {
        let there = self.rest().starts_with(token);
        if there {
            self.at += token.len();
        }
        there
    }

    fn expected<T>(&self, expected: &'static str) -> Result<T, FieldPathError> {
        Err(FieldPathError::Expected { at: self.at, expected })
    }

    fn close(&mut self, token: &'static str) -> Result<(), FieldPathError> {
        self.blanks();
        if self.take(token) { Ok(()) } else { self.expected(token) }
    }

    fn blanks(&mut self) {
        while self.take(" ") {}
    }

    fn steps(mut self) -> Result<Vec<Step>, FieldPathError> {
        let mut steps = Vec::new();
        while !self.rest().is_empty() {
            steps.push(if self.take(".*") || self.take("[*]") {
                Step::Every
            } else if self.take(".") {
                Step::Name(self.name()?)
            } else if self.take("[") {
                self.bracket()?
            } else {
                return self.expected(".name, ['name'], [0], [*] or [?(@.name=='value')]");
            });
        }
        Ok(steps)
    }

    /// A name without quotes: letters, digits, `_` and `-`, the last of which RFC 9535 does not know and everybody writes.
    fn name(&mut self) -> Result<String, FieldPathError> {
        let plain = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        let rest = self.rest();
        let name = rest[..rest.find(|c| !plain(c)).unwrap_or(rest.len())].to_owned();
        if name.is_empty() {
            return self.expected("a name; put others than letters, digits, _ and - in brackets and quotes");
        }
        self.at += name.len();
        Ok(name)
    }

    fn bracket(&mut self) -> Result<Step, FieldPathError> {
        self.blanks();
        let step = if self.take("?") {
            self.filter()?
        } else if self.rest().starts_with(['\'', '"']) {
            Step::Name(self.quoted()?)
        } else {
            let rest = self.rest();
            let digits = &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())];
            let Ok(nth) = digits.parse() else { return self.expected("a quoted name, an index, * or a filter") };
            self.at += digits.len();
            Step::Index(nth)
        };
        self.close("]")?;
        Ok(step)
    }

    /// `(@.name=='web')`, with or without parentheses.
    fn filter(&mut self) -> Result<Step, FieldPathError> {
        self.blanks();
        let parenthesis = self.take("(");
        self.close("@")?;
        let mut path = Vec::new();
        loop {
            if self.take(".") {
                path.push(self.name()?);
            } else if self.take("[") {
                self.blanks();
                path.push(self.quoted()?);
                self.close("]")?;
            } else {
                break;
            }
        }
        self.close("==")?;
        self.blanks();
        let value = self.value()?;
        if parenthesis {
            self.close(")")?;
        }
        Ok(Step::Where { path, value })
    }

    fn value(&mut self) -> Result<Value, FieldPathError> {
        if self.rest().starts_with(['\'', '"']) {
            return self.quoted().map(Value::String);
        }
        let rest = self.rest();
        let word = &rest[..rest.find([' ', ')', ']']).unwrap_or(rest.len())];
        match serde_json::from_str(word) {
            Ok(value @ (Value::Bool(_) | Value::Number(_) | Value::Null)) => {
                self.at += word.len();
                Ok(value)
            }
            Ok(_) | Err(_) => self.expected("a quoted text, a number, true, false or null"),
        }
    }

    fn quoted(&mut self) -> Result<String, FieldPathError> {
        let Some(quote) = self.rest().chars().next().filter(|c| matches!(c, '\'' | '"')) else {
            return self.expected("a quote");
        };
        self.at += 1;
        let mut text = String::new();
        let mut escaped = false;
        for (nth, c) in self.rest().char_indices() {
            match c {
                _ if escaped => {
                    if !matches!(c, '\\' | '\'' | '"' | '/') {
                        return self.expected("after \\, one of \\ ' \" /");
                    }
                    text.push(c);
                    escaped = false;
                }
                '\\' => escaped = true,
                _ if c == quote => {
                    self.at += nth + 1;
                    return Ok(text);
                }
                _ => text.push(c),
            }
        }
        self.expected("the closing quote")
    }
}

#[cfg(test)]
mod tests;
