//! What the hub remembers of every target that ever had an agent. It outlives the SyncTarget, so that an agent whose record was
//! deleted or whose key was revoked can be told so, and can be found again when it is adopted.
//!
//! A key is revoked by name, in an annotation that only `targets revoke` and an enrolment write. The annotation with the key
//! itself may be dropped, damaged or set back by whoever applies an old manifest: then the agent is refused as long as that
//! stands, and served again when its key is back.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tideline_common::signature::VerifyingKey;
use tideline_common::wire::v1::{Refusal, RefusalKind, TerminalFact};
use tideline_common::{TargetId, Uid};

/// Revoked keys that are remembered of one target, at 50 bytes each. Only a person revokes one.
pub const REVOKED_MAX: usize = 64;
/// Keys that were replaced and not revoked, at 50 bytes each. A target has one where a person changed the annotation by hand.
const FORMER_MAX: usize = 8;
/// Former keys by which a request is verified, so that its sender can be told: with the present one five signatures, some
/// 0.3 ms, is the most that a request of nobody costs.
const TOLD_MAX: usize = 4;

/// What is remembered to have happened once at a deleted target, at some 250 bytes each: a record of this takes a quarter of
/// what the store takes. What ran is remembered first, and what is too much is logged.
pub(super) const RAN_MAX: usize = 1_000;

/// One target that has or had an agent: some 300 bytes, and where it was deleted up to 250 kB of what happened once there, until
/// its agent comes as another. There are as many as enrolments, each of which took a token that a person made; so they are kept
/// for as long as the hub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RememberedTarget {
    /// The SyncTarget's name.
    pub name: String,
    /// The key that its agent signs with, in standard base64: the last that the SyncTarget had, served or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The SyncTarget has no key at the moment, or none that can be read or may be used.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withdrawn: bool,
    /// Keys that it had before and that nobody revoked, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<String>,
    /// The cluster that its agent enrolled from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Uid>,
    /// Keys that it must not have again, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revoked: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<Deletion>,
    /// The target that its agent was handed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heir: Option<TargetId>,
    /// What happened once there, and is not to happen again where its agent goes on as another target. Not of one that had gone
    /// out of service, nor of one whose key was revoked, for that is never adopted; and only until its agent came as the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ran: Vec<TerminalFact>,
}

/// That a SyncTarget was deleted: as much as is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deletion {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When its agent was heard last before that, if it was in the same run of the hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard: Option<Timestamp>,
}

impl RememberedTarget {
    /// The key by which its agent is known: the one that it has, or else the one that it had last.
    pub fn known_key(&self) -> Option<VerifyingKey> {
        read(self.key.as_ref().or(self.revoked.last())?)
    }

    /// Keys that it had before, the latest first: whoever has one is to be told that another took its place.
    pub fn replaced_keys(&self) -> Vec<VerifyingKey> {
        let replaced = self.former.iter().rev().chain(self.revoked.iter().rev());
        replaced.filter(|key| self.key.as_ref() != Some(*key)).take(TOLD_MAX).filter_map(|key| read(key)).collect()
    }

    /// Whether its agent's key was revoked.
    pub fn is_revoked(&self) -> bool {
        self.key.as_ref().is_none_or(|key| self.revoked.contains(key))
    }

    /// Whether this key takes the place of one that was revoked.
    pub(super) fn is_revoked_for(&self, key: &VerifyingKey) -> bool {
        self.key.as_ref().is_some_and(|former| self.revoked.contains(former) && *former != text(key))
    }

    /// What is said to an agent whose key was replaced.
    pub fn replaced(&self) -> Refusal {
        let message = format!("the key of this agent was replaced: SyncTarget {} has another", self.name);
        Refusal::new(RefusalKind::Revoked, message)
    }

    /// Why its agent is not served, if that is so.
    pub fn refusal(&self) -> Option<Refusal> {
        let name = &self.name;
        if let Some(deletion) = &self.deleted {
            return Some(Refusal::new(RefusalKind::TargetGone, format!("the SyncTarget {name} was deleted{deletion}")));
        }
        if self.is_revoked() {
            let message = format!("the key of this agent, of SyncTarget {name}, was revoked");
            return Some(Refusal::new(RefusalKind::Revoked, message));
        }
        self.withdrawn.then(|| {
            let message = format!(
                "SyncTarget {name} does not have the key of this agent: its annotation tideline.dev/agent-key was removed or \
                 changed. The agent goes on when that is put back"
            );
            Refusal::new(RefusalKind::Revoked, message)
        })
    }

    /// Its SyncTarget has this key now, or none that may be used. Says whether that is news.
    pub(super) fn shows(&mut self, name: &str, key: Option<&VerifyingKey>, cluster: Option<&Uid>) -> bool {
        let before = self.clone();
        self.withdrawn = key.is_none();
        if let Some(key) = key.map(text) {
            self.former.retain(|former| *former != key);
            if let Some(old) = self.key.replace(key.clone()).filter(|old| *old != key && !self.revoked.contains(old)) {
                push_bounded(&mut self.former, old, FORMER_MAX);
            }
        }
        name.clone_into(&mut self.name);
        if let Some(cluster) = cluster {
            self.cluster = Some(cluster.clone());
        }
        self.deleted = None;
        *self != before
    }

    /// It must not have this key again. Says whether that is news.
    fn revoke(&mut self, key: &str) -> bool {
        if self.revoked.iter().any(|revoked| revoked == key) {
            return false;
        }
        self.former.retain(|former| former != key);
        push_bounded(&mut self.revoked, key.to_owned(), REVOKED_MAX);
        true
    }

    fn had(&self, key: &String) -> bool {
        self.key.as_ref() == Some(key) || self.former.contains(key)
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

fn read(text: &str) -> Option<VerifyingKey> {
    VerifyingKey::from_bytes(&STANDARD.decode(text).ok()?).ok()
}

fn push_bounded(keys: &mut Vec<String>, key: String, max: usize) {
    keys.push(key);
    let beyond = keys.len().saturating_sub(max);
    keys.drain(..beyond);
}

/// All of them, and what of them is not persisted yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    known: BTreeMap<TargetId, RememberedTarget>,
    unsaved: BTreeMap<TargetId, RememberedTarget>,
    /// The keys that were revoked of any.
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
            self.unsaved.insert(target, remembered.clone());
        }
    }

    /// A person has revoked a key of this target. Says whether that is news.
    pub(super) fn revoke(&mut self, target: TargetId, name: &str, key: &VerifyingKey) -> bool {
        let key = text(key);
        let remembered = self.known.entry(target).or_default();
        let news = remembered.revoke(&key);
        if news {
            name.clone_into(&mut remembered.name);
            self.unsaved.insert(target, remembered.clone());
            self.revoked.insert(key);
        }
        news
    }

    pub(super) fn iter_after(&self, after: Option<TargetId>) -> impl Iterator<Item = (TargetId, &RememberedTarget)> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.known.range((after, Bound::Unbounded)).map(|(target, remembered)| (*target, remembered))
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

    /// Whether this target must not have this key: it was revoked here; or elsewhere, before this target had it. What is
    /// revoked at another SyncTarget, onto which the annotation was copied, is no word against the one that it was copied from.
    pub(super) fn bars(&self, target: TargetId, key: &VerifyingKey) -> bool {
        let key = text(key);
        match self.known.get(&target) {
            Some(remembered) if remembered.revoked.contains(&key) => true,
            Some(remembered) if remembered.had(&key) => false,
            Some(_) | None => self.revoked.contains(&key),
        }
    }

    /// Whether this key was revoked, of whichever target.
    pub(super) fn is_revoked(&self, key: &VerifyingKey) -> bool {
        self.revoked.contains(&text(key))
    }

    /// Its SyncTarget is there no more, at which all this had happened once; of too much, what comes first is remembered.
    /// Returns how much was too much.
    pub(super) fn deleted(&mut self, target: TargetId, deletion: Deletion, mut ran: Vec<TerminalFact>) -> usize {
        let Some(remembered) = self.known.get_mut(&target).filter(|remembered| remembered.deleted.is_none()) else {
            return 0;
        };
        if remembered.is_revoked() {
            ran.clear();
        }
        let beyond = ran.len().saturating_sub(RAN_MAX);
        ran.truncate(RAN_MAX);
        remembered.ran = ran;
        remembered.deleted = Some(deletion);
        self.unsaved.insert(target, remembered.clone());
        beyond
    }

    /// What had happened once there is known of another target.
    pub(super) fn inherited(&mut self, target: TargetId) {
        if let Some(remembered) = self.known.get_mut(&target)
            && !remembered.ran.is_empty()
        {
            remembered.ran = Vec::new();
            self.unsaved.insert(target, remembered.clone());
        }
    }

    /// The target whose SyncTarget had this name when it was last seen, and was not deleted since.
    pub(super) fn named(&self, name: &str) -> Option<TargetId> {
        self.present().find(|target| self.known.get(target).is_some_and(|remembered| remembered.name == name))
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
