//! What the journal keeps, as it is written.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tideline_common::wire::v1::{Attested, Continuity, Decommission, ObjectReport};
use tideline_common::{
    ApplyPolicy, Digest, Entry, GroupKind, Impersonation, ObjectKey, PrunePolicy, TargetId, Tombstone, Uid,
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FreezeReason {
    Fenced(String),
    Quarantined(String),
    /// The SyncTarget was deleted.
    TargetGone(String),
    /// The hub accepts this key no more.
    Revoked(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentMode {
    /// No restriction is known.
    #[default]
    #[serde(rename = "Good")]
    Active,
    UnknownToHub,
    Frozen(FreezeReason),
}

/// The prune policy that decides between delete and orphan, and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RemovalPolicy {
    /// A tombstone said it, and that counts for everything removed from its key, whatever journal and mark say: they know what
    /// was said when the object was last written.
    Tombstone(PrunePolicy),
    /// There was no tombstone. The least destructive of what the set had last, if that is known, journal and mark.
    Absence(Option<PrunePolicy>),
}

impl Default for RemovalPolicy {
    fn default() -> Self {
        Self::Absence(None)
    }
}

impl RemovalPolicy {
    /// Whether an object counts as adopted by the entry that is assigned to its key again.
    pub(in crate::core) fn orphans(self) -> bool {
        match self {
            Self::Tombstone(policy) => policy.orphans(),
            Self::Absence(_) => false,
        }
    }
}

/// One write to the journal.
#[derive(Clone, Debug)]
pub enum Write {
    Enrolled(Enrolled),
    /// The body of an input, as the text to apply.
    Body {
        input: Digest,
        text: Arc<str>,
    },
    /// Switches to a set whose bodies are all present. Entries not named stay.
    Accept {
        accepted: Box<Attested>,
        put: Vec<Arc<Entry>>,
        remove: Vec<ObjectKey>,
        /// By the digest that entries name, which is not always that of this build's own encoding: a newer hub may say more.
        policies: BTreeMap<Digest, Arc<ApplyPolicy>>,
    },
    /// The state of an object at the cluster after a write of ours.
    Applied {
        key: ObjectKey,
        record: Box<AppliedRecord>,
    },
    /// No object of ours exists there any more.
    Forgotten {
        key: ObjectKey,
    },
    /// A removal that is authorised and under way; survives restarts until it is done.
    Removing {
        tombstone: Tombstone,
        policy: RemovalPolicy,
    },
    Removed(Tombstone),
    /// The fuse has let a deletion through, which counts for an hour. On disk before it is used.
    Passed {
        number: u64,
        tombstone: Tombstone,
    },
    /// The hour of that deletion is over.
    Lapsed {
        number: u64,
    },
    /// The fuse holds this removal until a person approves it.
    Held(Tombstone),
    /// It holds it no more.
    Unheld(Tombstone),
    /// What the hub said of its history.
    History(Continuity),
    /// The mode that follows from what the hub said.
    Mode(AgentMode),
    /// The cluster goes out of service, or is in service again.
    Decommission(Decommission),
    /// A report that cannot be made again by reading the cluster: it tells a terminal fact (a Job finished, and may be gone by
    /// now). Every other report is made anew after a restart. Replaces the key's former one.
    Unsent(Box<ObjectReport>),
    /// The key's [`Write::Unsent`] is no longer needed.
    Sent {
        key: ObjectKey,
    },
    /// This ran, and is not assigned any more.
    Ran {
        number: u64,
        tombstone: Tombstone,
    },
    /// It is assigned again, or is beyond the number that is remembered.
    RanForgotten {
        number: u64,
    },
    /// A Job of this source is about to be created. On disk before the request is sent.
    Creating(Tombstone),
    /// It is known what came of that.
    CreationKnown(Tombstone),
    /// There is an object of this kind, or was; named in this version.
    Kind {
        kind: GroupKind,
        version: Arc<str>,
    },
    /// An object of ours that nothing assigns appeared there.
    RestoredObject(RestoredObject),
    /// It is gone, or explained by an assignment.
    RestoredGone {
        key: ObjectKey,
    },
    /// Bodies that no entry names any more.
    DropBodies(Vec<Digest>),
    /// Policies that neither an entry nor an applied object names any more.
    DropPolicies(Vec<Digest>),
}

/// A set that goes has one for each of its objects.
const _: () = assert!(size_of::<Write>() <= 112);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enrolled {
    pub target: TargetId,
    pub name: String,
}

/// An object that carries our mark and reappeared, though nothing assigns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoredObject {
    pub key: ObjectKey,
    pub uid: Uid,
    pub source: Uid,
}

/// What the journal knows of an object after our last write. "Unchanged" means: all of it still holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedRecord {
    pub uid: Uid,
    /// The API version it was written at: a removal still needs it when the entry is gone.
    #[serde(default)]
    pub version: Arc<str>,
    pub source: Uid,
    pub input: Digest,
    pub policy: Digest,
    /// The source generation that `input` is of.
    pub source_generation: i64,
    pub managed: Option<Digest>,
    /// The local generation after the write; zero where the kind has none, and then `resource_version` counts.
    pub generation: i64,
    pub resource_version: Arc<str>,
    pub origin: tideline_common::Origin,
    /// It was created by POST and never applied since: our managedFields entry is still an Update.
    pub posted: bool,
    /// It is there only because something in it is: it is never deleted, whether or not its mark can still be read.
    #[serde(default)]
    pub implied: bool,
    /// It is due for orphaning, or orphaned already: it is never deleted. Its mark said so, and may be gone by now.
    #[serde(rename = "letting_go", default, skip_serializing_if = "std::ops::Not::not")]
    pub orphaning: bool,
    /// The wave it was applied in, by which it is removed when its entry is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<i32>,
    /// As whom it was applied, so that its removal needs no more than that account may do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub impersonate: Option<Arc<Impersonation>>,
    /// When a local change that is not to be corrected was first seen, as the edge wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drifted: Option<Arc<str>>,
    /// How the next change of a field of ours is noticed, besides the generation.
    #[serde(default, rename = "telltale", skip_serializing_if = "is_default")]
    pub change_detector: ChangeDetector,
    /// The fields that were left to other managers, where those are not to be taken from them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Arc<LeftToOthers>>,
    /// The fields of that change.
    #[serde(default, skip_serializing_if = "no_fields")]
    pub local: Arc<[LocalField]>,
    /// The digest of the Pod template of a Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Digest>,
}

/// How a change of a field of ours by somebody else is noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeDetector {
    /// The field is no longer in our managedFields entry.
    #[default]
    Owner,
    /// Somebody took such fields before and gave them their values back: any new generation, or resource version of a kind
    /// without, may be a change of one of them.
    Version,
}

/// Fields left to other managers until these release them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftToOthers {
    /// As it is reported.
    pub message: String,
    /// Which fields others managed by then.
    pub others: Option<Digest>,
}

/// A field that somebody changed, and the value that the source has for it: as long as that stays, so does the change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalField {
    /// A JSON pointer.
    pub field: Arc<str>,
    /// The digest of the JSON that is assigned.
    pub assigned: Digest,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn no_fields(fields: &Arc<[LocalField]>) -> bool {
    fields.is_empty()
}
