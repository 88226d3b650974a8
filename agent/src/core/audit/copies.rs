//! Objects with a mark that was written for another key: somebody copied them. They are counted and reported, and never
//! touched.
//!
//! Watches see copies that carry this target's label. One that was restored here from a backup of another cluster carries that
//! cluster's label, and only the patrol, which lists whatever has the label key, sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tideline_common::wire::v1::TargetCondition;
use tideline_common::{GroupKind, ObjectKey, Reason, Uid};

use crate::core::interface::effect::ListId;

/// Copies of either sort that are remembered, at some 300 bytes each. Beyond that, one more or less is no news.
const COPIES_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(in crate::core) struct Copies {
    found: BTreeMap<ObjectKey, Uid>,
    /// Under another target's label, and the metadata list that had each last.
    listed_in: BTreeMap<ObjectKey, ListId>,
}

impl Copies {
    pub(in crate::core) fn found(&mut self, key: &ObjectKey, uid: &Uid) {
        if self.found.len() < COPIES_MAX || self.found.contains_key(key) {
            self.found.insert(key.clone(), uid.clone());
        }
    }

    /// The object is no copy.
    pub(in crate::core) fn cleared(&mut self, key: &ObjectKey) {
        self.found.remove(key);
    }

    pub(in crate::core) fn vanished(&mut self, key: &ObjectKey, uid: &Uid) {
        if self.found.get(key) == Some(uid) {
            self.found.remove(key);
        }
    }

    /// A kind was listed completely.
    pub(in crate::core) fn listed(&mut self, kind: &GroupKind, listed: &BTreeSet<ObjectKey>) {
        self.found.retain(|key, _| key.kind != *kind || listed.contains(key));
    }

    /// The patrol saw one under another target's label.
    pub(in crate::core) fn listed_in(&mut self, key: &ObjectKey, list: ListId) {
        if self.listed_in.len() < COPIES_MAX || self.listed_in.contains_key(key) {
            self.listed_in.insert(key.clone(), list);
        }
    }

    /// The patrol listed a kind completely.
    pub(in crate::core) fn list_ended(&mut self, kind: &GroupKind, list: ListId) {
        self.listed_in.retain(|key, last| key.kind != *kind || *last == list);
    }

    /// Only these kinds are watched from now on: of others nothing would show that a copy is gone.
    pub(in crate::core) fn watched(&mut self, kinds: &BTreeMap<GroupKind, Arc<str>>) {
        self.found.retain(|key, _| kinds.contains_key(&key.kind));
        self.listed_in.retain(|key, _| kinds.contains_key(&key.kind));
    }

    pub(in crate::core) fn condition(&self) -> Option<TargetCondition> {
        let all: BTreeSet<_> = self.found.keys().chain(self.listed_in.keys()).collect();
        let first = all.first()?;
        let others = match all.len() - 1 {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        Some(TargetCondition {
            reason: Reason::Copy,
            count: all.len() as u64,
            message: format!(
                "{first}{others}: carries the mark of another object (a copy), and is left alone. Remove its label \
                 tideline.dev/agent and annotation tideline.dev/source"
            ),
        })
    }
}

#[cfg(test)]
mod tests;
