//! Objects that are seen, counted and left alone, of which nothing else is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tideline_common::{GroupKind, ObjectKey, Uid};

use crate::core::interface::effect::ListId;

/// Objects of either sort that are remembered, at some 300 bytes each. Beyond that, one more or less is no news.
pub(super) const LEFT_ALONE_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(in crate::core) struct LeftAlone {
    found: BTreeMap<ObjectKey, Uid>,
    /// Those that no watch tells of, and the metadata list that had each last.
    listed_in: BTreeMap<ObjectKey, ListId>,
}

impl LeftAlone {
    pub(in crate::core) fn found(&mut self, key: &ObjectKey, uid: &Uid) {
        if self.found.len() < LEFT_ALONE_MAX || self.found.contains_key(key) {
            self.found.insert(key.clone(), uid.clone());
        }
    }

    /// The object is none of these.
    pub(in crate::core) fn cleared(&mut self, key: &ObjectKey) {
        self.found.remove(key);
    }

    pub(in crate::core) fn vanished(&mut self, key: &ObjectKey, uid: &Uid) {
        if self.found.get(key) == Some(uid) {
            self.found.remove(key);
        }
    }

    /// A kind was listed completely.
    pub(in crate::core) fn listed(&mut self, kind: &GroupKind, listed: &BTreeSet<&ObjectKey>) {
        self.found.retain(|key, _| key.kind != *kind || listed.contains(key));
    }

    /// The patrol saw one that no watch tells of.
    pub(in crate::core) fn listed_in(&mut self, key: &ObjectKey, list: ListId) {
        if self.listed_in.len() < LEFT_ALONE_MAX || self.listed_in.contains_key(key) {
            self.listed_in.insert(key.clone(), list);
        }
    }

    /// The patrol listed a kind completely.
    pub(in crate::core) fn list_ended(&mut self, kind: &GroupKind, list: ListId) {
        self.listed_in.retain(|key, last| key.kind != *kind || *last == list);
    }

    /// Only these kinds are watched from now on: of others nothing would show that one is gone.
    pub(in crate::core) fn watched(&mut self, kinds: &BTreeMap<GroupKind, Arc<str>>) {
        self.found.retain(|key, _| kinds.contains_key(&key.kind));
        self.listed_in.retain(|key, _| kinds.contains_key(&key.kind));
    }

    /// How many there are, and the first by name.
    pub(super) fn count(&self) -> Option<(u64, String)> {
        let all: BTreeSet<_> = self.found.keys().chain(self.listed_in.keys()).collect();
        let first = all.first()?;
        let others = match all.len() - 1 {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        Some((all.len() as u64, format!("{first}{others}")))
    }
}

#[cfg(test)]
mod tests;
