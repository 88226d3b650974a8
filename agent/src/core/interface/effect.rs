//! What the core asks for. The edges execute it and report the outcome as an [`Event`](crate::core::Event).
//!
//! An API version that is empty means: the one that the server prefers. It is so only where the journal was lost and a removal
//! is all that is known of a kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::write::{FreezeReason, LocalField, Write};
use tideline_common::Reason;

use tideline_common::wire::v1::{
    BodiesRequest, DecommissionReport, DesiredRequest, EnrolRequest, ReportedRequest, SessionRequest,
};
use tideline_common::{
    ApplyPolicy, AssociatedKind, Digest, Entry, GroupKind, Impersonation, Mark, Monotonic, ObjectKey, SessionName, Uid,
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
pub struct ListId(pub u32);

#[derive(Clone, Debug)]
pub enum Effect {
    /// Sends a signed request to the hub.
    Send { id: RequestId, request: Request },
    /// Writes to the journal, durably. Atomic but for independent writes, see [`Journal::write`]; batches are written in the
    /// order they were asked for.
    ///
    /// [`Journal::write`]: crate::journal::Journal::write
    Persist { id: PersistId, writes: Arc<Vec<Write>> },
    /// Executes one operation at the cluster.
    Execute { id: OpId, op: Op },
    /// Sets, or replaces, a timer.
    SetTimer { timer: Timer, at: Monotonic },
    /// Watches exactly these kinds from now on (at this version), scoped to our label.
    Watch(BTreeMap<GroupKind, Arc<str>>),
    /// Lists these kinds again, so that every object comes anew with its status.
    Relist(Vec<GroupKind>),
    /// Lists the objects of a kind under our label, metadata only: [`Event::ListPage`](crate::core::Event::ListPage) for each
    /// page, then [`Event::ListEnded`](crate::core::Event::ListEnded).
    ListMetadata { id: ListId, kind: GroupKind, version: Arc<str> },
    /// Warns whoever describes an object at the cluster. Nothing depends on it.
    RecordEvent(KubeEvent),
    /// Watches exactly these from now on, whoever made them: [`Event::Followed`](crate::core::Event::Followed).
    Follow(BTreeMap<AssociatedKind, Follow>),
    /// A patrol has ended with this result.
    Patrolled(PatrolTally),
    /// Progress of the decommission, or its end: the cluster is in service again.
    Decommissioned(DecommissionReport),
    /// Everything that had to be done before stopping is done.
    Stopped,
    /// The agent changes nothing at its cluster from now on, until [`Effect::Thaw`].
    Freeze(FreezeReason),
    /// The hub does not know this target: the accepted set is kept, and nothing is removed, until [`Effect::Thaw`].
    UnknownToHub,
    /// The hub accepts this process: whatever restricted it is over.
    Thaw,
    /// Durably stores the session that was offered: [`Event::SessionKept`](crate::core::Event::SessionKept). The cluster is
    /// stored with it.
    KeepSession { session: SessionName, cluster: Option<Uid> },
    /// Reads which session is stored by now: [`Event::StoredSessionRead`](crate::core::Event::StoredSessionRead).
    ReadStoredSession,
    /// Another process has taken over the session store: this one ends at once, without a goodbye.
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
    /// Their owners: metadata.
    Links,
    /// Their health, too.
    Whole,
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
    /// The next attempt at the link.
    Link,
    /// The next report: changes are batched until then; also the heartbeat.
    Report,
    /// The earliest retry of an operation.
    Retry,
    /// The next step of the patrol.
    Patrol,
    /// The next report of associated objects, or their next list.
    Associated,
}

/// One operation on the cluster.
#[derive(Clone, Debug)]
pub enum Op {
    /// POST; answers `Exists` where an object has the key. A Job of which the Pod template has this digest `ran`: it is not
    /// created, which fails as `Vanished`. One that is deleted some time after it ended, and that an earlier request may have
    /// created, is looked for, and not created.
    Create { entry: Arc<Entry>, policy: Arc<ApplyPolicy>, mark: Arc<Mark>, ran: Option<Digest>, earlier: Earlier },
    /// Asks by a dry run, under another name, whether this could be created if the existing object were gone; creates nothing.
    DryRunCreate { entry: Arc<Entry>, policy: Arc<ApplyPolicy>, mark: Arc<Mark> },
    /// Server-side apply onto the object with this UID; never creates. Fields in `local` stay as they are there, unless
    /// another value is assigned by now.
    Apply {
        entry: Arc<Entry>,
        policy: Arc<ApplyPolicy>,
        mark: Arc<Mark>,
        uid: Uid,
        takeover: ApplyTakeover,
        local: Arc<[LocalField]>,
    },
    /// Writes this mark onto the object with this UID, and nothing else of it.
    TransferOwnership { entry: Arc<Entry>, mark: Arc<Mark>, uid: Uid },
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
    /// Lists what a namespace holds, or the objects of a CRD's kind, and then reads the namespace or CRD itself.
    Inspect { key: ObjectKey, version: Arc<str> },
    /// Reads one object, whatever its labels. It is gone with its kind where nothing defines that any more; where that is not
    /// known, the read fails as `KindMissing`.
    Get { key: ObjectKey, version: Arc<str> },
    /// Reads the object with this UID and says in which fields it differs from what was applied; changes nothing.
    Compare { entry: Arc<Entry>, policy: Arc<ApplyPolicy>, mark: Arc<Mark>, uid: Uid },
}

impl Op {
    /// The object that it is about.
    pub fn key(&self) -> &ObjectKey {
        match self {
            Self::Create { entry, .. }
            | Self::DryRunCreate { entry, .. }
            | Self::Apply { entry, .. }
            | Self::TransferOwnership { entry, .. }
            | Self::Compare { entry, .. } => &entry.key,
            Self::ReTarget { key, .. }
            | Self::Delete { key, .. }
            | Self::Orphan { key, .. }
            | Self::Inspect { key, .. }
            | Self::Get { key, .. } => key,
        }
    }

    /// Whether it may change anything at the cluster.
    pub(in crate::core) fn writes(&self) -> bool {
        match self {
            Self::Create { .. }
            | Self::Apply { .. }
            | Self::TransferOwnership { .. }
            | Self::ReTarget { .. }
            | Self::Delete { .. }
            | Self::Orphan { .. } => true,
            Self::DryRunCreate { .. } | Self::Inspect { .. } | Self::Get { .. } | Self::Compare { .. } => false,
        }
    }
}

/// What came of earlier requests to create the same object for the same source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// There were none, or it is known of each.
    Answered,
    /// One may have created it.
    Unanswered,
}

/// An object as it was seen, without what its controllers report of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    pub uid: Uid,
    pub mark: Arc<Mark>,
    pub generation: i64,
    pub managed: Option<Digest>,
}

/// Which former field managers' entries are merged into ours before applying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyTakeover {
    /// None: our own Apply entry is there.
    None,
    /// Our own Update entry, left by the POST that created the object.
    Posted,
    /// The Update entries of others for the fields that we apply: the object is being adopted.
    Adopt,
}

/// A warning about one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeEvent {
    pub key: ObjectKey,
    pub version: Arc<str>,
    /// Of the existing object, if there is one.
    pub uid: Option<Uid>,
    pub reason: Reason,
    pub message: String,
}

/// The result of one patrol. Assigned objects are counted in one of `withheld`, `unknown` and `checked`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatrolTally {
    /// Assigned objects that were checked.
    pub checked: u64,
    /// Assigned objects of kinds that could not be listed: nothing is known of them.
    pub unknown: u64,
    /// Assigned objects that are deliberately not applied.
    pub withheld: u64,
    /// Assigned objects that could not be applied, as was reported before.
    pub failing: u64,
    /// Assigned, and missing.
    pub missing: u64,
    /// Existing, and not as it was applied.
    pub drifted: u64,
    /// Carrying our mark, not assigned, and not known.
    pub unassigned: u64,
    /// Under our keys or our label, and not ours.
    pub foreign: u64,
    /// As assigned, but changed without a watch event.
    pub unseen: u64,
    /// Not assigned, and deliberately not removed.
    pub held: u64,
    /// Of the missing and drifted: those corrected before the patrol ended.
    pub repaired: u64,
}

impl PatrolTally {
    /// Whether everything is as it should be, or as it was reported.
    pub fn is_clean(&self) -> bool {
        self.unknown + self.missing + self.drifted + self.unassigned + self.foreign + self.unseen == 0
    }

    /// Whether it found the same, and corrected as much.
    pub fn found_like(&self, other: &Self) -> bool {
        Self { checked: other.checked, withheld: other.withheld, failing: other.failing, held: other.held, ..*self }
            == *other
            && self.repaired == 0
    }
}
