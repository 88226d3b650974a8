//! What the core is told.

use std::time::Duration;

use tideline_common::wire::v1::{
    BodiesAnswer, ClusterFacts, DesiredAnswer, EnrolAnswer, Refusal, ReportedAnswer, SessionAnswer,
};
use tideline_common::{AssociatedKind, GroupKind, ObjectKey, Reason, SessionName, Uid};

use super::effect::{ListId, OpId, PersistId, RequestId, Timer};
use super::observed::{Associate, ListedItem, Observed, Served};
use super::op_result::OpResult;

/// One thing that happened outside the core.
#[derive(Clone, Debug)]
pub enum Event {
    /// The first event of a run, after the journal was read.
    Started,
    /// Facts that the cluster reports of itself, perhaps as before.
    Cluster(ClusterFacts),
    /// Whether the API server answers at all, when that changed: silent watches do not show it, and there may be none.
    ApiServerProbe {
        answers: bool,
    },
    /// Another process has taken the identity, as its Secret says.
    Superseded(String),
    /// [`Effect::KeepSession`](crate::core::Effect::KeepSession) ended: the session store has that session, or a newer one
    /// that was there before; or it could not be written.
    SessionKept {
        result: Result<SessionName, String>,
    },
    /// [`Effect::ReadStoredSession`](crate::core::Effect::ReadStoredSession) ended.
    StoredSessionRead {
        result: Result<SessionName, String>,
    },
    /// An effect of [`Effect::Send`](crate::core::Effect::Send) ended.
    Answered {
        id: RequestId,
        result: Result<Answer, LinkFailure>,
    },
    /// The writes of [`Effect::Persist`](crate::core::Effect::Persist) are on disk, or are not.
    Persisted {
        id: PersistId,
        result: Result<(), String>,
    },
    /// An effect of [`Effect::Execute`](crate::core::Effect::Execute) ended.
    Executed {
        id: OpId,
        result: OpResult,
    },
    Timer(Timer),
    /// Discovery knows the kind, or does not; sent for every kind to be watched and again when it changes.
    Kind {
        kind: GroupKind,
        served: Served,
    },
    /// A complete list of the kind's objects of ours (by label). Replaces all that was observed of the kind.
    Listed {
        kind: GroupKind,
        objects: Vec<Observed>,
    },
    /// One object of ours was added or changed.
    Observed(Box<Observed>),
    /// An object left the watch: it was deleted, or lost its label.
    Gone {
        key: ObjectKey,
        uid: Uid,
    },
    /// The watch of a kind is not current: nothing may be concluded from absence until the next `Listed`.
    WatchLost {
        kind: GroupKind,
        reason: Reason,
        message: String,
    },
    /// A kind may be listed and not watched: it is listed again now and then, and its state is as of the last list.
    Unwatched {
        kind: GroupKind,
        message: String,
    },
    /// A kind that could not be watched can be.
    Watched {
        kind: GroupKind,
    },
    /// Changes of associated objects, from a watch of [`Effect::Follow`](crate::core::Effect::Follow).
    Followed {
        kind: AssociatedKind,
        /// The watch's [`Follow::run`](crate::core::Follow).
        run: u32,
        news: AssociatedNews,
    },
    /// A page of a list of metadata.
    ListPage {
        list: ListId,
        objects: Vec<ListedItem>,
    },
    /// A list ended: every page came, or not.
    ListEnded {
        list: ListId,
        result: Result<(), ListFailure>,
    },
    /// The process is asked to end: finish operations in flight, report once, stop.
    Stop,
}

/// An answer that is authentic: signed by the pinned hub, for the request it answers.
#[derive(Clone, Debug)]
pub enum Answer {
    Enrolled(EnrolAnswer),
    Session(SessionAnswer),
    Desired(DesiredAnswer),
    /// Every complete body was checked against its SHA-256.
    Bodies(BodiesAnswer),
    Reported(ReportedAnswer),
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub enum LinkFailure {
    /// The hub refused, signed.
    Refused(Refusal),
    /// No answer came back.
    Unreachable { message: String, retry_after: Option<Duration> },
    /// Something came back that is not the hub's answer to this request: a proxy's or a portal's, or one that the hub gave to
    /// another.
    NotTheHub { message: String, retry_after: Option<Duration> },
}

impl LinkFailure {
    /// The same, and nobody asked for a pause; but for the hub itself, whose word is signed.
    pub(crate) fn without_pause(self) -> Self {
        match self {
            refused @ Self::Refused(_) => refused,
            Self::Unreachable { message, retry_after: _ } => Self::Unreachable { message, retry_after: None },
            Self::NotTheHub { message, retry_after: _ } => Self::NotTheHub { message, retry_after: None },
        }
    }
}

/// What a watch of associated objects shows.
#[derive(Clone, Debug)]
pub enum AssociatedNews {
    /// A complete list begins.
    Listing,
    /// Objects as they are now: some of a list, or one that changed.
    Seen(Vec<Associate>),
    Gone(Uid),
    /// The list is complete: what it did not have does not exist.
    Listed,
    /// The list is complete, and there is no more: the kind may not be watched, and is listed again now and then.
    Unwatched {
        message: String,
    },
    /// Nothing follows from absence until the next list.
    Lost {
        reason: Reason,
        message: String,
    },
}

/// Why a kind could not be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListFailure {
    pub reason: Reason,
    pub message: String,
}
