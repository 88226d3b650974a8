//! What is there and cannot be read, for a person to put right or delete.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tideline_common::SpaceName;
use tideline_common::health::truncate;

use crate::spaces::SpaceResource;

/// Objects of one resource that are remembered, at some 300 bytes each; of more it is known that there are more.
const OBJECTS_MAX: usize = 100;
/// Objects that a sentence names; a person reads no more.
const NAMED_MAX: usize = 5;
/// Bytes of what is wrong with one.
const WHY_MAX: usize = 200;

/// By namespace, which is empty for an object without one, and name.
type Place = (String, String);

#[derive(Debug, Default)]
pub(super) struct Unread {
    known: BTreeMap<SpaceResource, OfResource>,
    /// Spaces of which something else is to be said.
    changed: BTreeSet<SpaceName>,
}

#[derive(Debug, Default)]
struct OfResource {
    objects: BTreeMap<Place, Object>,
    /// There are more.
    beyond: bool,
    /// There is also what has a key that cannot be read.
    nameless: bool,
}

#[derive(Debug)]
struct Object {
    why: String,
    /// Since the resource is being read.
    seen: bool,
}

impl OfResource {
    fn is_empty(&self) -> bool {
        self.objects.is_empty() && !self.beyond && !self.nameless
    }
}

impl Unread {
    pub(super) fn unreadable(&mut self, of: &SpaceResource, (namespace, name): (&str, &str), why: &str) {
        let known = self.known.entry(of.clone()).or_default();
        let place = (namespace.to_owned(), name.to_owned());
        if known.objects.len() < OBJECTS_MAX || known.objects.contains_key(&place) {
            let mut why = why.to_owned();
            truncate(&mut why, WHY_MAX);
            known.objects.insert(place, Object { why, seen: true });
        } else {
            known.beyond = true;
        }
        self.changed.insert(of.space.clone());
    }

    /// An object can be read.
    pub(super) fn readable(&mut self, of: &SpaceResource, object: &Value) {
        if !self.known.is_empty() {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
            self.gone(of, (text("namespace"), text("name")));
        }
    }

    pub(super) fn gone(&mut self, of: &SpaceResource, (namespace, name): (&str, &str)) {
        let Some(known) = self.known.get_mut(of) else { return };
        if known.objects.remove(&(namespace.to_owned(), name.to_owned())).is_some() {
            self.changed.insert(of.space.clone());
        }
        self.forget_empty(of);
    }

    /// The resource is read anew: what stands is told again.
    pub(super) fn begin(&mut self, of: &SpaceResource) {
        for object in self.known.get_mut(of).into_iter().flat_map(|known| known.objects.values_mut()) {
            object.seen = false;
        }
    }

    /// The resource was read to the end.
    pub(super) fn end(&mut self, of: &SpaceResource) {
        let Some(known) = self.known.get_mut(of) else { return };
        known.objects.retain(|_, object| object.seen);
        (known.beyond, known.nameless) = (known.objects.len() == OBJECTS_MAX && known.beyond, false);
        self.changed.insert(of.space.clone());
        self.forget_empty(of);
    }

    /// The same, and a key of it cannot be read.
    pub(super) fn end_with_nameless(&mut self, of: &SpaceResource) {
        self.end(of);
        self.known.entry(of.clone()).or_default().nameless = true;
        self.changed.insert(of.space.clone());
    }

    fn forget_empty(&mut self, of: &SpaceResource) {
        if self.known.get(of).is_some_and(OfResource::is_empty) {
            self.known.remove(of);
        }
    }

    /// What is to be said from now on of spaces of which that changed; nothing where all can be read.
    pub(super) fn take_news(&mut self) -> Vec<(SpaceName, Option<String>)> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|space| (space.clone(), self.sentence(&space))).collect()
    }

    fn sentence(&self, space: &SpaceName) -> Option<String> {
        let known = || self.known.iter().filter(|(of, _)| of.space == *space);
        let count: usize = known().map(|(_, known)| known.objects.len()).sum();
        let at_least = if known().any(|(_, known)| known.beyond) { "more than " } else { "" };
        let named =
            known().flat_map(|(of, known)| known.objects.iter().map(move |(place, object)| (of, place, object)));
        let named: Vec<_> = named
            .take(NAMED_MAX)
            .map(|(of, (namespace, name), object)| {
                let slash = if namespace.is_empty() { "" } else { "/" };
                format!("{} {namespace}{slash}{name} ({})", of.resource, object.why)
            })
            .collect();
        let objects = (count > 0).then(|| {
            let more = if count > named.len() || !at_least.is_empty() { ", among others" } else { "" };
            format!(
                "{at_least}{count} in the store cannot be read, and what is known of them stands until they are put right or \
                 deleted: {}{more}",
                named.join(", ")
            )
        });
        let nameless: Vec<_> =
            known().filter(|(_, known)| known.nameless).map(|(of, _)| of.resource.to_string()).collect();
        let nameless = (!nameless.is_empty()).then(|| {
            format!("a key in the store cannot be read of {}: none of them is taken for gone", nameless.join(", "))
        });
        let said: Vec<_> = objects.into_iter().chain(nameless).collect();
        (!said.is_empty()).then(|| said.join("; "))
    }
}

#[cfg(test)]
mod tests;
