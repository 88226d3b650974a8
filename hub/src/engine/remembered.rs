//! What the hub remembers of every target that ever had an agent. It outlives the SyncTarget, so that an agent whose record was
//! deleted or whose key was revoked can be told so, and can be found again when it is adopted.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tideline_common::signature::VerifyingKey;
use tideline_common::wire::v1::{Refusal, RefusalKind};
use tideline_common::{TargetId, Uid};

/// Revoked keys that are remembered of one target, at 50 bytes each. Only a person revokes one.
const REVOKED_MAX: usize = 64;

/// One target that has or had an agent, some 300 bytes. There are as many as enrolments, each of which took a token that a
/// person made; so they are kept for as long as the hub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RememberedTarget {
    /// The SyncTarget's name.
    pub name: String,
    /// The key that its agent signs with, in standard base64; none after it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The cluster that its agent enrolled from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Uid>,
    /// Keys that it had and must not have again, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revoked: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<Deletion>,
    /// The target that its agent was handed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heir: Option<TargetId>,
}

/// That a SyncTarget was deleted: as much as is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deletion {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl RememberedTarget {
    /// The key by which its agent is known: the one that it has, or else the one that it had last.
    pub fn known_key(&self) -> Option<VerifyingKey> {
        let text = self.key.as_ref().or(self.revoked.last())?;
        VerifyingKey::from_bytes(&STANDARD.decode(text).ok()?).ok()
    }

    /// Why its agent is not served, if that is so.
    pub fn refusal(&self) -> Option<Refusal> {
        let (refusal, message) = match (&self.deleted, &self.key) {
            (Some(deletion), _) => {
                (RefusalKind::TargetGone, format!("the SyncTarget {} was deleted{deletion}", self.name))
            }
            (None, None) => {
                (RefusalKind::Revoked, format!("the key of this agent, of SyncTarget {}, was revoked", self.name))
            }
            (None, Some(_)) => return None,
        };
        Some(Refusal { refusal, message, retry_after_seconds: None, fenced_by: None })
    }

    /// Its SyncTarget has this key now. Says whether that is news.
    pub(super) fn shows(&mut self, name: &str, key: Option<&VerifyingKey>, cluster: Option<&Uid>) -> bool {
        let former = self.clone();
        let key = key.map(text);
        if let Some(old) = self.key.take()
            && Some(&old) != key.as_ref()
        {
            self.revoked.push(old);
            let beyond = self.revoked.len().saturating_sub(REVOKED_MAX);
            self.revoked.drain(..beyond);
        }
        self.key = key;
        name.clone_into(&mut self.name);
        if let Some(cluster) = cluster {
            self.cluster = Some(cluster.clone());
        }
        self.deleted = None;
        *self != former
    }
}

impl std::fmt::Display for Deletion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(by) = &self.by {
            write!(f, " by {by}")?;
        }
        match &self.at {
            Some(at) => write!(f, " at {}", at.round(jiff::Unit::Second).unwrap_or(*at)),
            None => Ok(()),
        }
    }
}

fn text(key: &VerifyingKey) -> String {
    STANDARD.encode(key.as_bytes())
}

/// All of them, and what of them is not persisted yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    known: BTreeMap<TargetId, RememberedTarget>,
    unsaved: BTreeMap<TargetId, RememberedTarget>,
    /// The revoked keys of all.
    revoked: BTreeSet<String>,
}

impl Memory {
    pub(super) fn new(known: BTreeMap<TargetId, RememberedTarget>) -> Self {
        let revoked = known.values().flat_map(|remembered| remembered.revoked.iter().cloned()).collect();
        Self { known, unsaved: BTreeMap::new(), revoked }
    }

    pub(super) fn get(&self, target: TargetId) -> Option<&RememberedTarget> {
        self.known.get(&target)
    }

    /// The inventory shows a target. `key` is none where no agent may speak for it.
    pub(super) fn shows(&mut self, target: TargetId, name: &str, key: Option<&VerifyingKey>, cluster: Option<&Uid>) {
        if key.is_none() && !self.known.contains_key(&target) {
            return;
        }
        let remembered = self.known.entry(target).or_default();
        if remembered.shows(name, key, cluster) {
            self.revoked.extend(remembered.revoked.iter().cloned());
            self.unsaved.insert(target, remembered.clone());
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (TargetId, &RememberedTarget)> {
        self.known.iter().map(|(target, remembered)| (*target, remembered))
    }

    /// Its agent is another's from now on.
    pub(super) fn handed(&mut self, target: TargetId, heir: TargetId) {
        if let Some(remembered) = self.known.get_mut(&target)
            && remembered.heir != Some(heir)
        {
            remembered.heir = Some(heir);
            self.unsaved.insert(target, remembered.clone());
        }
    }

    pub(super) fn is_revoked(&self, key: &VerifyingKey) -> bool {
        self.revoked.contains(&text(key))
    }

    /// Its SyncTarget is there no more.
    pub(super) fn deleted(&mut self, target: TargetId, deletion: Deletion) {
        if let Some(remembered) = self.known.get_mut(&target)
            && remembered.deleted.is_none()
        {
            remembered.deleted = Some(deletion);
            self.unsaved.insert(target, remembered.clone());
        }
    }

    /// Those whose SyncTarget was there when it was last seen.
    pub(super) fn present(&self) -> impl Iterator<Item = TargetId> {
        self.known.iter().filter(|(_, remembered)| remembered.deleted.is_none()).map(|(target, _)| *target)
    }

    pub(super) fn is_saved(&self) -> bool {
        self.unsaved.is_empty()
    }

    pub(super) fn take_unsaved(&mut self) -> BTreeMap<TargetId, RememberedTarget> {
        std::mem::take(&mut self.unsaved)
    }
}

#[cfg(test)]
mod tests;
