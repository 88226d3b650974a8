use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::path::{BadElement, PathElement};
use crate::schema::{ListType, Shape, TypeRef};

/// A set of fields, as a tree. A parent is not in the set because its children are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set {
    members: BTreeSet<PathElement>,
    /// Never holds an empty set.
    children: BTreeMap<PathElement, Set>,
}

impl Set {
    /// Adds a path; the empty path is nobody's.
    pub(super) fn insert(&mut self, path: &[PathElement]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    /// Adds one step. Walks add what they find from the inside out, so that no name is copied for each value below it.
    pub(super) fn insert_member(&mut self, element: PathElement) {
        self.members.insert(element);
    }

    /// Adds all of a set below one step.
    pub(super) fn insert_below(&mut self, element: &PathElement, set: Set) {
        if !set.is_empty() {
            self.children.entry(element.clone()).or_default().absorb(set);
        }
    }

    /// Builds a set of plain field paths, such as `["metadata.name", "status"]`.
    pub(crate) fn of_fields(paths: &[&str]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<_> = path.split('.').map(PathElement::field).collect();
            set.insert(&path);
        }
        set
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.is_empty()
    }

    pub(super) fn has_member(&self, element: &PathElement) -> bool {
        self.members.contains(element)
    }

    /// What the set holds below `element`.
    pub(super) fn child(&self, element: &PathElement) -> Option<&Set> {
        self.children.get(element)
    }

    #[must_use]
    pub(crate) fn union(&self, other: &Set) -> Set {
        let mut out = self.clone();
        out.absorb(other.clone());
        out
    }

    /// Adds all of another set.
    pub(super) fn absorb(&mut self, mut other: Set) {
        self.members.append(&mut other.members);
        for (element, theirs) in other.children {
            match self.children.get_mut(&element) {
                Some(ours) => ours.absorb(theirs),
                None => {
                    self.children.insert(element, theirs);
                }
            }
        }
    }

    #[must_use]
    pub(crate) fn intersection(&self, other: &Set) -> Set {
        self.combine(self.members.intersection(&other.members).cloned().collect(), |element, ours| {
            other.children.get(element).map(|theirs| ours.intersection(theirs))
        })
    }

    /// What is in this set and not in `other`; a member of `other` does not take its children along.
    #[must_use]
    pub(crate) fn difference(&self, other: &Set) -> Set {
        self.combine(self.members.difference(&other.members).cloned().collect(), |element, ours| {
            Some(match other.children.get(element) {
                Some(theirs) => ours.difference(theirs),
                None => ours.clone(),
            })
        })
    }

    /// What is in this set and neither in `other` nor below a member of it.
    #[must_use]
    pub(crate) fn recursive_difference(&self, other: &Set) -> Set {
        self.combine(self.members.difference(&other.members).cloned().collect(), |element, ours| {
            match other.children.get(element) {
                _ if other.members.contains(element) => None,
                Some(theirs) => Some(ours.recursive_difference(theirs)),
                None => Some(ours.clone()),
            }
        })
    }

    fn combine(&self, members: BTreeSet<PathElement>, mut child: impl FnMut(&PathElement, &Set) -> Option<Set>) -> Set {
        let children = self
            .children
            .iter()
            .filter_map(|(element, ours)| Some((element.clone(), child(element, ours)?)))
            .filter(|(_, set)| !set.is_empty())
            .collect();
        Set { members, children }
    }

    /// The set with every declared field added that it holds something below of.
    ///
    /// Removal works on members, and a struct is no member because a field in it is.
    #[must_use]
    pub(super) fn with_named_fields(&self, ty: Option<TypeRef<'_>>) -> Set {
        let mut members = self.members.clone();
        let mut children = BTreeMap::new();
        for (element, set) in &self.children {
            let child = match (element, ty) {
                (PathElement::Field(name), Some(ty)) => {
                    if ty.declared(name).is_some() {
                        members.insert(element.clone());
                    }
                    ty.child(name)
                }
                (PathElement::Key(_), Some(ty)) => Some(ty.items()),
                (PathElement::Field(_) | PathElement::Key(_) | PathElement::Value(_) | PathElement::Index(_), _) => {
                    None
                }
            };
            children.insert(element.clone(), set.with_named_fields(child));
        }
        Set { members, children }
    }

    /// The set after a change of schema: what is now atomic is owned as a whole.
    #[must_use]
    pub(super) fn reconciled(&self, ty: TypeRef<'_>) -> Set {
        let mut out = Set { members: self.members.clone(), children: BTreeMap::new() };
        for (element, set) in &self.children {
            let child = match element {
                PathElement::Field(name) => ty.child(name),
                PathElement::Key(_) => Some(ty.items()),
                PathElement::Value(_) | PathElement::Index(_) => None,
            };
            let atomic = child.is_some_and(|child| match child.shape() {
                Shape::Object { .. } => child.node().atomic,
                Shape::List { .. } => child.node().list == ListType::Atomic,
                Shape::Any | Shape::Scalar(_) => false,
            });
            if atomic {
                out.members.insert(element.clone());
                continue;
            }
            let set = match child {
                Some(child) => set.reconciled(child),
                None => set.clone(),
            };
            out.children.insert(element.clone(), set);
        }
        out
    }

    /// Calls `visit` with every path, a node's own members before what is below.
    pub(crate) fn each(&self, visit: &mut impl FnMut(&[PathElement])) {
        self.each_below(&mut Vec::new(), visit);
    }

    fn each_below(&self, prefix: &mut Vec<PathElement>, visit: &mut impl FnMut(&[PathElement])) {
        for element in &self.members {
            prefix.push(element.clone());
            visit(prefix);
            prefix.pop();
        }
        for (element, set) in &self.children {
            prefix.push(element.clone());
            set.each_below(prefix, visit);
            prefix.pop();
        }
    }

    /// Writes the set as FieldsV1.
    pub(crate) fn encode(&self) -> Value {
        Value::Object(self.encode_contents(false))
    }

    fn encode_contents(&self, is_member: bool) -> Map<String, Value> {
        let mut out = Map::new();
        if is_member {
            out.insert(".".to_owned(), Value::Object(Map::new()));
        }
        let mut elements: BTreeSet<&PathElement> = self.members.iter().collect();
        elements.extend(self.children.keys());
        for element in elements {
            let contents = match self.children.get(element) {
                Some(child) => child.encode_contents(self.members.contains(element)),
                None => Map::new(),
            };
            out.insert(element.encode(), Value::Object(contents));
        }
        out
    }

    /// Reads FieldsV1; elements of kinds we do not know are dropped.
    pub(crate) fn parse(fields: &Value) -> Result<Self, BadElement> {
        Ok(Self::parse_contents(fields)?.0)
    }

    /// The contents, and whether the parent holds this node itself.
    fn parse_contents(fields: &Value) -> Result<(Self, bool), BadElement> {
        let mut set = Self::default();
        let mut is_member = false;
        for (key, contents) in fields.as_object().into_iter().flatten() {
            if key == "." {
                is_member = true;
                continue;
            }
            let Some(element) = PathElement::parse(key)? else {
                continue;
            };
            let (child, child_is_member) = Self::parse_contents(contents)?;
            if child_is_member {
                set.members.insert(element.clone());
            }
            if !child.is_empty() {
                set.children.insert(element, child);
            }
        }
        let is_member = is_member || set.is_empty();
        Ok((set, is_member))
    }
}
