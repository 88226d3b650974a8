//! The purpose of an operation in flight, with what must be known when it ends.

use std::sync::Arc;
use std::time::Duration;

use tideline_common::{ApplyPolicy, Digest, Entry, Monotonic, ObjectKey, Origin, Tombstone, Uid};

use super::limiter::Access;
use crate::core::interface::write::LocalField;
use crate::core::model::seen::Seen;

/// Why an object is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::core) enum ReadFor {
    /// For its status, which is to be reported.
    Status,
    /// Because nothing shows it, and nothing assigns it, so that no write ever finds out whether it is there.
    Absence,
    /// Because it is to be written, and what is known of it may be older than the last write.
    Write,
}

#[derive(Debug)]
pub(in crate::core) enum Purpose {
    Create {
        entry: Arc<Entry>,
        policy: Arc<ApplyPolicy>,
    },
    Apply {
        entry: Arc<Entry>,
        policy: Arc<ApplyPolicy>,
        uid: Uid,
        origin: Origin,
        local: Arc<[LocalField]>,
    },
    /// Given another mark: it was another source's.
    TransferOwnership {
        entry: Arc<Entry>,
        policy: Arc<ApplyPolicy>,
        uid: Uid,
        origin: Origin,
    },
    /// Its mark is to name the present target; this is how it was seen.
    ReTarget(Box<Seen>),
    /// Tried, before an immutable object is deleted to be created again.
    DryRun {
        entry: Arc<Entry>,
        policy: Arc<ApplyPolicy>,
        uid: Uid,
    },
    /// Deleted, to be created again.
    Replace,
    Remove {
        tombstone: Tombstone,
        wave: i32,
    },
    /// Read because another object has the key of a removal.
    ReadForRemoval {
        tombstone: Tombstone,
        wave: i32,
    },
    /// Read, and nothing else.
    Read(ReadFor),
    /// Read to say what was changed.
    Compare,
    /// Read to learn whether it is as the lost journal had it.
    Verify {
        entry: Arc<Entry>,
        origin: Origin,
    },
}

impl Purpose {
    /// The removal that it is a step of, and its wave.
    pub(in crate::core) fn removal(&self) -> Option<(&Tombstone, i32)> {
        match self {
            Self::Remove { tombstone, wave } | Self::ReadForRemoval { tombstone, wave } => Some((tombstone, *wave)),
            Self::Create { .. }
            | Self::Apply { .. }
            | Self::TransferOwnership { .. }
            | Self::ReTarget(_)
            | Self::DryRun { .. }
            | Self::Replace
            | Self::Read(_)
            | Self::Compare
            | Self::Verify { .. } => None,
        }
    }

    /// The policy that the object is recorded to be applied by, when it is done.
    pub(in crate::core) fn policy(&self) -> Option<Digest> {
        match self {
            Self::Create { entry, .. }
            | Self::Apply { entry, .. }
            | Self::TransferOwnership { entry, .. }
            | Self::DryRun { entry, .. }
            | Self::Verify { entry, .. } => Some(entry.policy),
            Self::ReTarget(_)
            | Self::Replace
            | Self::Remove { .. }
            | Self::ReadForRemoval { .. }
            | Self::Read(_)
            | Self::Compare => None,
        }
    }

    pub(in crate::core) fn access(&self) -> Access {
        match self {
            Self::ReadForRemoval { .. } | Self::Read(_) | Self::Compare | Self::Verify { .. } => Access::Read,
            Self::Create { .. }
            | Self::Apply { .. }
            | Self::TransferOwnership { .. }
            | Self::ReTarget(_)
            | Self::DryRun { .. }
            | Self::Replace
            | Self::Remove { .. } => Access::Write,
        }
    }
}

/// What the end of an operation leads to. No handler ends otherwise, so that every operation concludes, backs off, or is
/// evaluated again.
#[derive(Debug)]
#[must_use]
pub(in crate::core) enum FollowUp {
    /// Requeued now: it was done, or something else is to be done by now.
    Requeue,
    /// Tried again after a while, longer each time; and not before the API server said, if it did.
    BackOff(Option<Duration>),
    /// The object it was meant for is gone or was replaced: requeued, at once unless that was in vain before.
    Stale,
    /// Its next operation was begun, or its reason to wait has been reported.
    NextStepBegun,
    /// Nothing is left to be done.
    Concluded,
}

#[derive(Debug)]
pub(in crate::core) struct InFlight {
    pub(in crate::core) key: ObjectKey,
    pub(in crate::core) purpose: Purpose,
    pub(in crate::core) begun: Monotonic,
    /// What was seen of the object by then.
    pub(in crate::core) seen: Option<SeenVersion>,
}

/// Which version of which object was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::core) struct SeenVersion {
    uid: Uid,
    resource_version: Arc<str>,
}

impl From<&Seen> for SeenVersion {
    fn from(seen: &Seen) -> Self {
        Self { uid: seen.uid.clone(), resource_version: Arc::clone(&seen.resource_version) }
    }
}

impl SeenVersion {
    /// Whether what an API server has said since, from its store, is from before that: it was set back.
    pub(in crate::core) fn is_after(&self, now: &Seen) -> bool {
        self.uid == now.uid && now.is_before(&self.resource_version)
    }
}
