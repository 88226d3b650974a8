use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::digest::{Digest, Hasher, ItemHash, SetDigest};
use crate::ids::{Revision, Uid};
use crate::object::{GroupKind, ObjectKey, SourceRef, keyed};
use crate::policy::{ApplyPolicy, ApproveDeletions, Prune, PruneAdopted, PrunePolicy, Takeover};
use crate::reason::Reason;

/// What is to be done with an assigned object. None of these is a removal: an entry in the set is assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "state", content = "reason")]
pub enum EntryState {
    /// Keep it as its input says.
    Apply,
    /// Leave the object as it is, until further notice.
    Hold(Reason),
    /// Not to be applied here; an existing object stays.
    Withheld(Reason),
}

/// The ServiceAccount of the target as which an object is applied.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Impersonation {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

/// One line of a desired set: what a target should hold at one destination key. Alike for all targets it is alike for,
/// so that it is made and hashed once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "EntryFields")]
pub struct Entry {
    #[serde(flatten)]
    pub key: ObjectKey,
    /// The API version to speak of the key's group: `v1`, `v1beta1`.
    pub version: Arc<str>,
    pub source: SourceRef,
    /// The source's `metadata.generation`; zero where its kind has none.
    #[serde(default)]
    pub generation: i64,
    #[serde(flatten)]
    pub state: EntryState,
    /// Names the input of rendering: source body, transforms, the parameters that they read.
    pub input: Digest,
    /// Names the [`ApplyPolicy`](crate::ApplyPolicy).
    pub policy: Digest,
    /// Lower waves go first.
    #[serde(default)]
    pub wave: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub impersonate: Option<Arc<Impersonation>>,
    /// A namespace that is only there because something in it is placed: created if missing, never changed or deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub implied: bool,
}

/// An entry as it is read: see [`keyed`].
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EntryFields {
    #[serde(default)]
    group: Arc<str>,
    kind: Arc<str>,
    #[serde(default)]
    namespace: Arc<str>,
    name: Arc<str>,
    version: Arc<str>,
    source: SourceRef,
    #[serde(default)]
    generation: i64,
    state: StateName,
    #[serde(default)]
    reason: Option<Reason>,
    input: Digest,
    policy: Digest,
    #[serde(default)]
    wave: i32,
    #[serde(default)]
    impersonate: Option<Arc<Impersonation>>,
    #[serde(default)]
    implied: bool,
}

/// An [`EntryState`] without its reason.
#[derive(Deserialize)]
enum StateName {
    Apply,
    Hold,
    Withheld,
}

impl TryFrom<EntryFields> for Entry {
    type Error = &'static str;

    fn try_from(fields: EntryFields) -> Result<Self, Self::Error> {
        let EntryFields { group, kind, namespace, name, version, source, generation, .. } = fields;
        let EntryFields { state, reason, input, policy, wave, impersonate, implied, .. } = fields;
        let state = match (state, reason) {
            (StateName::Apply, _) => EntryState::Apply,
            (StateName::Hold, Some(reason)) => EntryState::Hold(reason),
            (StateName::Withheld, Some(reason)) => EntryState::Withheld(reason),
            (StateName::Hold | StateName::Withheld, None) => {
                return Err("an entry that is not applied lacks its reason");
            }
        };
        let key = ObjectKey { kind: GroupKind { group, kind }, namespace, name };
        Ok(Self { key, version, source, generation, state, input, policy, wave, impersonate, implied })
    }
}

impl Entry {
    /// This entry's contribution to the digest of a set that holds it.
    pub fn hash(&self) -> ItemHash {
        let Self { key, version, source, generation, state, input, policy, wave, impersonate, implied } = self;
        let (state, reason) = match state {
            EntryState::Apply => ("Apply", ""),
            EntryState::Hold(reason) => ("Hold", reason.as_str()),
            EntryState::Withheld(reason) => ("Withheld", reason.as_str()),
        };
        let account = impersonate.as_ref().map_or(("", ""), |account| (&*account.namespace, &*account.name));
        let mut hasher = Hasher::new("tideline/entry/v1");
        for text in [
            &*key.kind.group,
            &*key.kind.kind,
            &*key.namespace,
            &*key.name,
            &**version,
            source.space.as_str(),
            &*source.uid.text(),
            &*source.namespace,
            &*source.name,
            state,
            reason,
            account.0,
            account.1,
        ] {
            hasher.field(text.as_bytes());
        }
        hasher
            .field(input.as_bytes())
            .field(policy.as_bytes())
            .number(*generation)
            .number(i64::from(*wave))
            .number(i64::from(*implied));
        ItemHash::new(key, hasher.finish())
    }

    /// What becomes of its object when it goes. An implied namespace is nobody's to delete.
    pub fn prune_policy(&self, policy: &ApplyPolicy) -> PrunePolicy {
        if self.implied { PrunePolicy::LEAST } else { PrunePolicy::of(policy) }
    }

    /// The trace id of everything that is done about this input: one per (source, input), the same on both sides.
    pub fn trace_id(&self) -> String {
        let mut hasher = Hasher::new("tideline/trace/v1");
        hasher.field(self.source.uid.text().as_bytes()).field(self.input.as_bytes());
        let mut text = hasher.finish().to_string();
        text.truncate(32); // 128 bits, as W3C Trace Context has it.
        text
    }
}

keyed! {
    /// The fact that a source is no longer assigned to a destination of a target. With an entry's absence it is one of the
    /// only two grounds for a removal.
    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Tombstone {
        pub key: ObjectKey,
        /// The source that was assigned; the same key may be assigned to another.
        #[serde(rename = "sourceUid")]
        pub source: Uid,
    }
}

impl Tombstone {
    /// A source that was unassigned at a revision, under a policy.
    pub fn under(self, policy: PrunePolicy, at: Revision) -> Unassignment {
        Unassignment { tombstone: self, policy, at }
    }
}

/// A tombstone with the prune policy that was last in force. It counts for its key: whichever source had it before goes by
/// this policy too, for agents may not have seen every source that came and went.
///
/// Where the key is assigned again, nothing is removed. The tombstone says what happened meanwhile, so that an agent that was
/// offline ends as one that saw it: an object that was due for orphaning counts as adopted, and a create-only object is
/// created anew if it is gone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "UnassignmentFields")]
pub struct Unassignment {
    #[serde(flatten)]
    pub tombstone: Tombstone,
    #[serde(flatten)]
    pub policy: PrunePolicy,
    /// The revision that unassigned it. A source that is assigned and unassigned again leaves by another.
    #[serde(default)]
    pub at: Revision,
}

/// An unassignment as it is read: see [`keyed`].
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UnassignmentFields {
    #[serde(default)]
    group: Arc<str>,
    kind: Arc<str>,
    #[serde(default)]
    namespace: Arc<str>,
    name: Arc<str>,
    source_uid: Uid,
    prune: Prune,
    #[serde(default)]
    prune_adopted: PruneAdopted,
    #[serde(default)]
    approve_deletions: ApproveDeletions,
    #[serde(default)]
    adopted: Option<Takeover>,
    #[serde(default)]
    at: Revision,
}

impl From<UnassignmentFields> for Unassignment {
    fn from(fields: UnassignmentFields) -> Self {
        let UnassignmentFields { group, kind, namespace, name, source_uid, .. } = fields;
        let UnassignmentFields { prune, prune_adopted, approve_deletions, adopted, at, .. } = fields;
        let key = ObjectKey { kind: GroupKind { group, kind }, namespace, name };
        let policy = PrunePolicy { prune, prune_adopted, approve_deletions, adopted };
        Self { tombstone: Tombstone { key, source: source_uid }, policy, at }
    }
}

/// All that one target should hold, with its digest kept up to date.
#[derive(Clone, Debug, Default)]
pub struct DesiredSet {
    entries: BTreeSet<ByKey>,
    digest: SetDigest,
}

/// An entry under its key, which is not stored twice: a target has many.
#[derive(Clone, Debug)]
struct ByKey(Arc<Entry>);

impl Borrow<ObjectKey> for ByKey {
    fn borrow(&self) -> &ObjectKey {
        &self.0.key
    }
}

impl Ord for ByKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key.cmp(&other.0.key)
    }
}

impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for ByKey {}

impl DesiredSet {
    /// Stores an entry under its key and returns the one that was there.
    pub fn insert(&mut self, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        self.digest.add(entry.hash());
        let former = self.entries.replace(ByKey(entry)).map(|ByKey(former)| former);
        if let Some(former) = &former {
            self.digest.remove(former.hash());
        }
        former
    }

    pub fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Entry>> {
        let ByKey(former) = self.entries.take(key)?;
        self.digest.remove(former.hash());
        Some(former)
    }

    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<Entry>> {
        self.entries.get(key).map(|ByKey(entry)| entry)
    }

    /// In the order of their keys.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&ObjectKey, &Arc<Entry>)> {
        self.entries.iter().map(|ByKey(entry)| (&entry.key, entry))
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Has the set take no more room than it needs. One that grew in the order of its keys takes up to twice that.
    pub fn pack(&mut self) {
        self.entries = std::mem::take(&mut self.entries).into_iter().collect();
    }

    pub fn digest(&self) -> Digest {
        self.digest.digest()
    }

    pub fn buckets(&self) -> &SetDigest {
        &self.digest
    }
}

impl FromIterator<Arc<Entry>> for DesiredSet {
    fn from_iter<I: IntoIterator<Item = Arc<Entry>>>(entries: I) -> Self {
        let mut set = Self::default();
        for entry in entries {
            set.insert(entry);
        }
        set
    }
}

#[cfg(test)]
mod tests;
