//! What the core asks for. The edges execute it and tell the outcome as an [`Event`](super::Event).
//!
//! An API version that is empty means: the one that the server prefers. It is so only where the journal was lost and a
//! removal is all that is known of a kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::event::LocalField;
use super::mode::AgentMode;
use super::notice::Notice;
use super::patrol::PatrolTally;
use super::remove::RemovalPolicy;
use tideline_common::wire::v1::{
    Attested, BodiesRequest, Continuity, Decommission, DecommissionReport, DesiredRequest, EnrolRequest, ObjectReport,
    ReportedRequest, SessionRequest,
};
use tideline_common::{
    ApplyPolicy, AssociatedKind, Digest, Entry, GroupKind, Impersonation, Mark, Monotonic, ObjectKey, SessionName,
    TargetId, Tombstone, Uid,
};

/// The effects of one step, in order. An effect may be executed before an earlier one completes, unless said otherwise.
pub type Effects = Vec<Effect>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PersistId(pub u64);
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SurveyId(pub u32);

#[derive(Clone, Debug)]
pub enum Effect {
    /// Sends a signed request to the hub.
    Send { id: RequestId, request: Request },
    /// Writes to the journal, durably, and all or nothing but for what stands for itself, see [`Journal::write`]; batches are
    /// written in the order they were asked for.
    ///
    /// [`Journal::write`]: crate::journal::Journal::write
    Persist { id: PersistId, writes: Vec<Write> },
    /// Does one thing at the cluster.
    Execute { id: OpId, op: Op },
    /// Sets, or replaces, a timer.
    SetTimer { timer: Timer, at: Monotonic },
    /// Watches exactly these kinds from now on (at this version), scoped to our label.
    Watch(BTreeMap<GroupKind, Arc<str>>),
    /// Lists these kinds again, so that every object comes anew with its status.
    Relist(Vec<GroupKind>),
    /// Lists what there is of a kind under our label, metadata only: [`Event::Sighted`](super::Event::Sighted) for each
    /// page, then [`Event::Surveyed`](super::Event::Surveyed).
    Survey { id: SurveyId, kind: GroupKind, version: Arc<str> },
    /// Warns whoever looks at an object at the cluster. Nothing depends on it.
    Tell(Notice),
    /// Watches exactly these from now on, whoever made them: [`Event::Followed`](super::Event::Followed).
    Follow(BTreeMap<AssociatedKind, Follow>),
    /// A patrol has ended so.
    Patrolled(PatrolTally),
    /// So far the cluster has gone out of service; or it is in service again.
    Decommissioned(DecommissionReport),
    /// Everything that had to be done before stopping is done.
    Stopped,
    /// The agent changes nothing at its cluster from now on, until [`Effect::Thaw`].
    Freeze(FreezeReason),
    /// The hub does not know this target: what was accepted is kept, and nothing is removed, until [`Effect::Thaw`].
    UnknownToHub,
    /// The hub takes what this process says: whatever stood against that is over.
    Thaw,
    /// Writes into the home that this session was offered, durably: [`Event::SessionKept`](super::Event::SessionKept). The
    /// cluster is kept with it.
    KeepSession { session: SessionName, cluster: Option<Uid> },
    /// Reads which session is in the home by now: [`Event::HomeRead`](super::Event::HomeRead).
    ReadHome,
    /// Another process has this one's home: it ends at once, and tells nobody.
    Replaced { by: SessionName },
}

/// How a kind of associated objects is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follow {
    pub depth: Depth,
    /// In this namespace only, if everything that is asked for is in one.
    pub namespace: Option<Arc<str>>,
    /// Another number asks for another watch, which begins with a list.
    pub run: u32,
}

/// How much has to be known of associated objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Whose they are: metadata.
    Links,
    /// How they do, too.
    Whole,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum FreezeReason {
    Fenced(String),
    Quarantined(String),
    /// The SyncTarget was deleted.
    TargetGone(String),
    /// The hub accepts this key no more.
    Revoked(String),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    Enrol(EnrolRequest),
    Session(SessionRequest),
    Desired(DesiredRequest),
    Bodies(BodiesRequest),
    Reported(ReportedRequest),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// The next try at the link.
    Link,
    /// The next report: changes gather until then; also the heartbeat.
    Report,
    /// The earliest retry of an operation.
    Retry,
    /// The next step of the patrol.
    Patrol,
    /// The next report of what was made of something, or the next list of that.
    Associated,
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
    /// Switches to a set of which every body is there. Entries not named stay.
    Accept {
        accepted: Attested,
        put: Vec<Arc<Entry>>,
        remove: Vec<ObjectKey>,
        policies: Vec<Arc<ApplyPolicy>>,
    },
    /// What stands at the cluster after a write of ours.
    Applied {
        key: ObjectKey,
        record: AppliedRecord,
    },
    /// Nothing of ours stands there any more.
    Forgotten {
        key: ObjectKey,
    },
    /// A removal that is authorised and under way; survives restarts until it is done.
    Removing {
        tombstone: Tombstone,
        policy: RemovalPolicy,
    },
    Removed(Tombstone),
    /// The fuse has let a deletion through, which counts for an hour. On disk before it is made use of.
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
    /// Several that are held are being written, or all of them are: what is held is held whole, wherever a crash cuts this.
    Holding(bool),
    /// What the hub said of its history.
    History(Continuity),
    /// The mode that follows from what the hub said.
    Mode(AgentMode),
    /// The cluster goes out of service, or is in service again.
    Decommission(Decommission),
    /// A report that cannot be made again by looking at the cluster: it tells a terminal fact (a Job finished, and may
    /// be gone by now). Every other report is made anew after a restart. Replaces the key's former one.
    Unsent(Box<ObjectReport>),
    /// The key's [`Write::Unsent`] is of no use any more.
    Sent {
        key: ObjectKey,
    },
    /// This ran, and is not assigned any more.
    Ran {
        number: u64,
        tombstone: Tombstone,
    },
    /// It is assigned again, or is one too many to be remembered.
    RanForgotten {
        number: u64,
    },
    /// There is something of this kind, or was; spoken of in this version.
    Kind {
        kind: GroupKind,
        version: Arc<str>,
    },
    /// An object of ours that nothing assigns appeared there.
    CameBack(CameBack),
    /// It is gone, or stands for what something assigns.
    CameBackNoMore {
        key: ObjectKey,
    },
    /// Bodies that nothing names any more.
    DropBodies(Vec<Digest>),
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Enrolled {
    pub target: TargetId,
    pub name: String,
}

/// An object that carries our mark and came back, though nothing assigns it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CameBack {
    pub key: ObjectKey,
    pub uid: Uid,
    pub source: Uid,
}

/// What the journal knows of an object after our last write. "Unchanged" means: all of it still holds.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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
    /// It is being let go of, or is so already: it is never deleted. Its mark said so, and that may be gone by now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub letting_go: bool,
    /// The wave it was applied in, by which it is removed when its entry is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<i32>,
    /// As whom it was applied, so that its removal asks for no more than that account may do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub impersonate: Option<Arc<Impersonation>>,
    /// When a local change was seen first that is not to be corrected, as the edge wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drifted: Option<Arc<str>>,
    /// By what the next change of a field of ours is noticed, besides the generation.
    #[serde(default, skip_serializing_if = "is_default")]
    pub telltale: Telltale,
    /// The fields that were left to other managers, where those are not to be taken from them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Arc<LeftToOthers>>,
    /// What that change was of.
    #[serde(default, skip_serializing_if = "no_fields")]
    pub local: Arc<[LocalField]>,
    /// The digest of the Pod template of a Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Digest>,
}

/// What tells that somebody changed a field of ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Telltale {
    /// The field is in our managedFields entry no more.
    #[default]
    Owner,
    /// Somebody took such fields before and gave them their values back: any new generation, or resource version of a kind
    /// without, may be a change of one of them.
    Version,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What was left to others, until they let go of it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LeftToOthers {
    /// As it is reported.
    pub message: String,
    /// Which fields others managed by then.
    pub others: Option<Digest>,
}

fn no_fields(fields: &Arc<[LocalField]>) -> bool {
    fields.is_empty()
}

/// One operation on the cluster.
#[derive(Clone, Debug)]
pub enum Op {
    /// POST; answers `Exists` where something is there. A Job of which the Pod template has this digest `ran`: it is not
    /// created, which fails as `Vanished`.
    Create { entry: Arc<Entry>, policy: Arc<ApplyPolicy>, mark: Arc<Mark>, ran: Option<Digest> },
    /// Asks by a dry run, under another name, whether this could be created if what stands there were gone; creates nothing.
    DryRunCreate { entry: Arc<Entry>, policy: Arc<ApplyPolicy>, mark: Arc<Mark> },
    /// Server-side apply onto the object with this UID; never creates. What is `local` stays as it is there, unless
    /// something else is assigned by now.
    Apply {
        entry: Arc<Entry>,
        policy: Arc<ApplyPolicy>,
        mark: Arc<Mark>,
        uid: Uid,
        takeover: ApplyTakeover,
        local: Arc<[LocalField]>,
    },
    /// Writes this mark onto the object with this UID, and nothing else of it.
    ReMark { entry: Arc<Entry>, mark: Arc<Mark>, uid: Uid },
    /// Writes this mark onto an object, and nothing else of it, if it is still as it was seen.
    ReTarget {
        key: ObjectKey,
        version: Arc<str>,
        seen: Box<Marked>,
        mark: Arc<Mark>,
        impersonate: Option<Arc<Impersonation>>,
    },
    /// Deletes the object with this UID, in the background.
    Delete { key: ObjectKey, version: Arc<str>, uid: Uid, impersonate: Option<Arc<Impersonation>> },
    /// Strips mark and managedFields entries from the object with this UID and leaves the data.
    Orphan { key: ObjectKey, version: Arc<str>, uid: Uid, impersonate: Option<Arc<Impersonation>> },
    /// Looks live at what a namespace holds, or at the objects of a CRD's kind.
    Inspect { key: ObjectKey, version: Arc<str> },
    /// Reads one object, whatever its labels; `Written` or `Gone`.
    Get { key: ObjectKey, version: Arc<str> },
    /// Reads the object with this UID and says in which fields it is not as it was applied; changes nothing.
    Compare { entry: Arc<Entry>, policy: Arc<ApplyPolicy>, mark: Arc<Mark>, uid: Uid },
}

impl Op {
    /// Whether it may change anything at the cluster.
    pub(super) fn writes(&self) -> bool {
        match self {
            Self::Create { .. }
            | Self::Apply { .. }
            | Self::ReMark { .. }
            | Self::ReTarget { .. }
            | Self::Delete { .. }
            | Self::Orphan { .. } => true,
            Self::DryRunCreate { .. } | Self::Inspect { .. } | Self::Get { .. } | Self::Compare { .. } => false,
        }
    }
}

/// An object as it was seen, but for what its controllers say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    pub uid: Uid,
    pub mark: Arc<Mark>,
    pub generation: i64,
    pub managed: Option<Digest>,
}

/// Which former field managers' entries are folded into ours before applying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyTakeover {
    /// None: our own Apply entry is there.
    None,
    /// Our own Update entry, left by the POST that created the object.
    Posted,
    /// The Update entries of others for the fields that we apply: the object is being adopted.
    Adopt,
}
