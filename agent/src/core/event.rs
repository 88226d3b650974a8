//! What the core is told.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::value::RawValue;
use tideline_common::associated::Phase;
use tideline_common::health::Health;
use tideline_common::wire::v1::{
    BodiesAnswer, ClusterFacts, DesiredAnswer, EnrolAnswer, Refusal, ReportedAnswer, SessionAnswer, Terminal,
};
use tideline_common::{AssociatedKind, Digest, GroupKind, Mark, ObjectKey, Reason, SessionName, Uid};

use super::effect::{OpId, PersistId, RequestId, SurveyId, Timer};
use super::op_result::OpResult;

/// One thing that happened outside the core.
#[derive(Clone, Debug)]
pub enum Event {
    /// The first event of a run, after the journal was read.
    Started,
    /// What the cluster says of itself, perhaps as before.
    Cluster(ClusterFacts),
    /// Whether the API server answers at all, when that changed: watches that are silent do not tell, nor none.
    Pulse {
        answers: bool,
    },
    /// Another process has taken the identity, as its Secret says.
    Superseded(String),
    /// [`Effect::KeepSession`](super::Effect::KeepSession) ended: the home has that session, or one that was there before and is
    /// newer; or it could not be written.
    SessionKept {
        result: Result<SessionName, String>,
    },
    /// [`Effect::ReadHome`](super::Effect::ReadHome) ended.
    HomeRead {
        result: Result<SessionName, String>,
    },
    /// An effect of [`Effect::Send`](super::Effect::Send) ended.
    Answered {
        id: RequestId,
        result: Result<Answer, LinkFailure>,
    },
    /// The writes of [`Effect::Persist`](super::Effect::Persist) are on disk, or are not.
    Persisted {
        id: PersistId,
        result: Result<(), String>,
    },
    /// An effect of [`Effect::Execute`](super::Effect::Execute) ended.
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
    Vanished {
        key: ObjectKey,
        uid: Uid,
    },
    /// The watch of a kind is not current: nothing may be concluded from absence until the next `Listed`.
    WatchLost {
        kind: GroupKind,
        reason: Reason,
        message: String,
    },
    /// A kind may be listed and not watched: it is listed again now and then, and what is known is as of the last time.
    Unwatched {
        kind: GroupKind,
        message: String,
    },
    /// A kind that could not be watched can be.
    Watched {
        kind: GroupKind,
    },
    /// News of what was made of placed objects, from a watch of [`Effect::Follow`](super::Effect::Follow).
    Followed {
        kind: AssociatedKind,
        /// The watch's [`Follow::run`](super::Follow).
        run: u32,
        news: FollowNews,
    },
    /// A page of a survey.
    Sighted {
        survey: SurveyId,
        objects: Vec<Sighting>,
    },
    /// A survey ended: every page was sighted, or not.
    Surveyed {
        survey: SurveyId,
        result: Result<(), SurveyFailure>,
    },
    /// The process is asked to end: finish what is under way, report once, stop.
    Stop,
}

/// How the target's API server serves a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    Yes {
        namespaced: bool,
        status: bool,
    },
    No,
    /// Discovery failed: neither yes nor no.
    Unknown,
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
    /// The hub said no, signed.
    Refused(Refusal),
    /// No answer came back.
    Unreachable { message: String, retry_after: Option<Duration> },
    /// Something came back that is not the hub's answer to this request: a proxy's or a portal's, or one that the hub gave
    /// to another.
    NotTheHub { message: String, retry_after: Option<Duration> },
}

/// What is known of a local object from a list, a watch or a write. Cheap: no spec.
#[derive(Clone, Debug)]
pub struct Observed {
    pub key: ObjectKey,
    pub uid: Uid,
    pub resource_version: Arc<str>,
    /// Zero where the kind has none.
    pub generation: i64,
    /// The hash of the managedFields entries of our managers, without their time; none if there are none.
    pub managed: Option<Digest>,
    /// The mark, if there is a readable one.
    pub mark: Option<Arc<Mark>>,
    /// Whether the label names this target.
    pub labelled: bool,
    /// It has a deletionTimestamp.
    pub deleting: bool,
    pub health: Health,
    pub health_message: String,
    /// `.status.observedGeneration`.
    pub observed_generation: Option<i64>,
    pub terminal: Option<Terminal>,
    /// Of a Job that was just created or applied, or found to be as it was: the digest of its Pod template, as its source has it.
    pub template: Option<Digest>,
    /// `.status`, for kinds that have the subresource. Not kept by the core beyond the report.
    pub status: Option<Arc<RawValue>>,
    /// Somebody else manages it declaratively: a server-side-apply manager, Helm, Argo CD or Flux.
    pub managed_elsewhere: bool,
    /// The hash of which fields which others manage; none if nobody else does.
    pub others: Option<Digest>,
}

/// What a list of metadata says of an object. Of its status it says nothing.
#[derive(Clone, Debug)]
pub struct Sighting {
    pub key: ObjectKey,
    pub uid: Uid,
    pub resource_version: Arc<str>,
    pub labelled: bool,
    details: Arc<LazyLock<Option<Details>, Reader>>,
}

/// Reads the details, once.
type Reader = Box<dyn FnOnce() -> Option<Details> + Send>;

/// What is looked at only of objects that are not at the version that the watch told: of few.
#[derive(Clone, Debug)]
pub struct Details {
    pub generation: i64,
    pub managed: Option<Digest>,
    pub mark: Option<Arc<Mark>>,
    pub deleting: bool,
    pub managed_elsewhere: bool,
    pub others: Option<Digest>,
}

impl Sighting {
    /// `details` returns none if they cannot be read.
    pub fn new(
        key: ObjectKey,
        uid: Uid,
        resource_version: Arc<str>,
        labelled: bool,
        details: impl FnOnce() -> Option<Details> + Send + 'static,
    ) -> Self {
        Self { key, uid, resource_version, labelled, details: Arc::new(LazyLock::new(Box::new(details))) }
    }

    pub fn details(&self) -> Option<&Details> {
        LazyLock::force(&self.details).as_ref()
    }
}

impl From<Observed> for Sighting {
    fn from(observed: Observed) -> Self {
        let Observed { key, uid, resource_version, generation, managed, mark, labelled, deleting, .. } = observed;
        let Observed { managed_elsewhere, others, .. } = observed;
        let details = Details { generation, managed, mark, deleting, managed_elsewhere, others };
        Self::new(key, uid, resource_version, labelled, || Some(details))
    }
}

/// What a watch of associated objects tells.
#[derive(Clone, Debug)]
pub enum FollowNews {
    /// A complete list begins.
    Listing,
    /// Objects as they are now: some of a list, or one that changed.
    Seen(Vec<Associate>),
    Gone(Uid),
    /// The list is complete: what it did not have is not there.
    Listed,
    /// The list is complete, and all there is: the kind may not be watched, and is listed again now and then.
    Unwatched {
        message: String,
    },
    /// Nothing follows from absence until the next list.
    Lost {
        reason: Reason,
        message: String,
    },
}

/// What is taken of an object that may have been made of something placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Associate {
    pub uid: Uid,
    pub namespace: String,
    pub name: String,
    /// Its controller.
    pub owner: Option<Owner>,
    /// The default where only its metadata was asked for.
    pub condition: Condition,
}

/// Whose an object says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub kind: GroupKind,
    pub name: String,
    /// None where a label names the owner.
    pub uid: Option<Uid>,
}

/// How such an object does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    pub phase: Phase,
    pub ready: bool,
    pub reason: Option<Box<str>>,
    pub restarts: u32,
    pub node: Option<Box<str>>,
    pub endpoints: u32,
    pub endpoints_ready: u32,
}

/// Why a kind could not be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurveyFailure {
    pub reason: Reason,
    pub message: String,
}

/// A field that somebody changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// A JSON pointer.
    pub field: String,
    pub values: Values,
}

/// What a changed field holds, as bounded JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    Are {
        assigned: String,
        found: String,
    },
    Gone {
        assigned: String,
    },
    /// Not for the eyes of everybody who may read a report.
    Redacted,
}

/// A field that somebody changed, and what it is to be as far as the source goes: as long as that stays, so does the change.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LocalField {
    /// A JSON pointer.
    pub field: Arc<str>,
    /// The digest of the JSON that is assigned.
    pub assigned: Digest,
}

/// A field that is another manager's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldConflict {
    pub manager: String,
    pub field: String,
}
