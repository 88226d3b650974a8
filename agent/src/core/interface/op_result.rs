//! How operations on the cluster end: of each, just what can come of it. What that leads to is [`FollowUp`](crate::core::work::in_flight::FollowUp).

use std::sync::Arc;
use std::time::Duration;

use tideline_common::health::truncate;
use tideline_common::limits::MESSAGE_BYTES_MAX;
use tideline_common::{Digest, Reason};

use super::effect::Op;
use super::observed::Observed;
use super::write::LocalField;

/// How an operation ended, by its kind.
#[derive(Clone, Debug)]
pub enum OpResult {
    Create(Result<Created, Failure>),
    /// It would be created.
    DryRunCreate(Result<(), Failure>),
    Apply(Result<Applied, NotDone>),
    TransferOwnership(Result<OwnershipTransferred, NotDone>),
    /// The object with the new mark.
    ReTarget(Result<Box<Observed>, NotDone>),
    Delete(Result<Deleted, NotDone>),
    Orphan(Result<Orphaned, NotDone>),
    Inspect(Result<Inspected, Failure>),
    /// None if it is not there.
    Get(Result<Option<Box<Observed>>, Failure>),
    Compare(Result<Compared, NotDone>),
}

#[derive(Clone, Debug)]
pub enum Created {
    Made(Box<Observed>),
    /// An object has the key; it was left as it is.
    Exists(Box<Observed>),
    /// None has it, and none was created: an earlier request may have made one that was collected since. With the digest of its
    /// Pod template.
    Vanished {
        template: Option<Digest>,
    },
}

#[derive(Clone, Debug)]
pub struct Applied {
    pub observed: Box<Observed>,
    /// The fields that were left to others, by manager, where the policy says to report them.
    pub conflicts: Vec<FieldConflict>,
}

#[derive(Clone, Debug)]
pub enum OwnershipTransferred {
    /// It bears the mark.
    Marked(Box<Observed>),
    /// Somebody has deleted it, and it waits for its finalizers.
    Finalizing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// It is not there, or was not.
    Gone,
    /// Deletion was accepted and waits for finalizers.
    Finalizing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orphaned {
    Done,
    /// It was not there.
    Gone,
}

#[derive(Clone, Debug)]
pub enum Inspected {
    Holds {
        foreign: u64,
        /// One of the foreign objects.
        example: Option<String>,
        ours: u64,
        /// The namespace or CRD itself, read after all of that was listed: somebody may have taken it over meanwhile.
        itself: Box<Observed>,
    },
    /// It is not there itself.
    Gone,
}

/// How an object differs from what was applied.
#[derive(Clone, Debug)]
pub struct Compared {
    pub observed: Box<Observed>,
    /// The first of `total` fields.
    pub differences: Vec<Difference>,
    pub total: usize,
    /// All of them, as far as they are kept.
    pub local: Arc<[LocalField]>,
    /// When that was seen (RFC 3339).
    pub at: Arc<str>,
}

/// Why an operation on a certain object was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotDone {
    /// The object with this UID, or this version of it, is gone or was replaced.
    Stale,
    Failed(Failure),
}

/// A failure as it is reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub reason: Reason,
    pub message: String,
    /// How long the API server asks to be left alone.
    pub retry_after: Option<Duration>,
    pub fate: Fate,
}

/// Whether what was asked for may have been done all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was refused, or never asked for.
    NotDone,
    /// It was sent, and no answer says.
    Unknown,
}

impl Failure {
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        let mut message: String = message.into();
        truncate(&mut message, MESSAGE_BYTES_MAX);
        Self { reason, message, retry_after: None, fate: Fate::NotDone }
    }

    /// It was sent, and nothing says what came of it.
    #[must_use]
    pub fn unanswered(self) -> Self {
        Self { fate: Fate::Unknown, ..self }
    }
}

impl NotDone {
    fn map(self, tell: impl FnOnce(Failure) -> Failure) -> Self {
        match self {
            Self::Stale => Self::Stale,
            Self::Failed(failure) => Self::Failed(tell(failure)),
        }
    }
}

impl From<Failure> for NotDone {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Op {
    /// The result of this operation where it failed so.
    pub fn failed(&self, failure: Failure) -> OpResult {
        match self {
            Self::Create { .. } => OpResult::Create(Err(failure)),
            Self::DryRunCreate { .. } => OpResult::DryRunCreate(Err(failure)),
            Self::Apply { .. } => OpResult::Apply(Err(failure.into())),
            Self::TransferOwnership { .. } => OpResult::TransferOwnership(Err(failure.into())),
            Self::ReTarget { .. } => OpResult::ReTarget(Err(failure.into())),
            Self::Delete { .. } => OpResult::Delete(Err(failure.into())),
            Self::Orphan { .. } => OpResult::Orphan(Err(failure.into())),
            Self::Inspect { .. } => OpResult::Inspect(Err(failure)),
            Self::Get { .. } => OpResult::Get(Err(failure)),
            Self::Compare { .. } => OpResult::Compare(Err(failure.into())),
        }
    }
}

impl OpResult {
    /// The object as it stands by now, where the answer has it.
    pub(in crate::core) fn observed(&self) -> Option<&Observed> {
        match self {
            Self::Create(Ok(Created::Made(observed) | Created::Exists(observed)))
            | Self::Apply(Ok(Applied { observed, conflicts: _ }))
            | Self::TransferOwnership(Ok(OwnershipTransferred::Marked(observed)))
            | Self::ReTarget(Ok(observed))
            | Self::Inspect(Ok(Inspected::Holds { itself: observed, .. }))
            | Self::Get(Ok(Some(observed)))
            | Self::Compare(Ok(Compared { observed, .. })) => Some(observed),
            Self::Create(Ok(Created::Vanished { .. }) | Err(_))
            | Self::Apply(Err(_))
            | Self::TransferOwnership(Ok(OwnershipTransferred::Finalizing) | Err(_))
            | Self::ReTarget(Err(_))
            | Self::Get(Ok(None) | Err(_))
            | Self::Compare(Err(_))
            | Self::DryRunCreate(_)
            | Self::Delete(_)
            | Self::Orphan(_)
            | Self::Inspect(Ok(Inspected::Gone) | Err(_)) => None,
        }
    }

    /// The same, with its failure, if it has one, told otherwise.
    pub(in crate::core) fn map_failure(self, tell: impl FnOnce(Failure) -> Failure) -> Self {
        match self {
            Self::Create(result) => Self::Create(result.map_err(tell)),
            Self::DryRunCreate(result) => Self::DryRunCreate(result.map_err(tell)),
            Self::Inspect(result) => Self::Inspect(result.map_err(tell)),
            Self::Get(result) => Self::Get(result.map_err(tell)),
            Self::Apply(result) => Self::Apply(result.map_err(|not_done| not_done.map(tell))),
            Self::TransferOwnership(result) => Self::TransferOwnership(result.map_err(|not_done| not_done.map(tell))),
            Self::ReTarget(result) => Self::ReTarget(result.map_err(|not_done| not_done.map(tell))),
            Self::Delete(result) => Self::Delete(result.map_err(|not_done| not_done.map(tell))),
            Self::Orphan(result) => Self::Orphan(result.map_err(|not_done| not_done.map(tell))),
            Self::Compare(result) => Self::Compare(result.map_err(|not_done| not_done.map(tell))),
        }
    }

    /// Why the operation failed; none if it was done, or is stale.
    pub fn failure(&self) -> Option<&Failure> {
        let not_done = match self {
            Self::Create(result) => return result.as_ref().err(),
            Self::DryRunCreate(result) => return result.as_ref().err(),
            Self::Inspect(result) => return result.as_ref().err(),
            Self::Get(result) => return result.as_ref().err(),
            Self::Apply(result) => result.as_ref().err(),
            Self::TransferOwnership(result) => result.as_ref().err(),
            Self::ReTarget(result) => result.as_ref().err(),
            Self::Delete(result) => result.as_ref().err(),
            Self::Orphan(result) => result.as_ref().err(),
            Self::Compare(result) => result.as_ref().err(),
        };
        match not_done? {
            NotDone::Failed(failure) => Some(failure),
            NotDone::Stale => None,
        }
    }
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
    /// Not for everybody who may read a report.
    Redacted,
}

/// A field that is another manager's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldConflict {
    pub manager: String,
    pub field: String,
}
