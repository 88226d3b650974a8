//! What an operation that is under way is for, with what has to be known when it ends.

use std::sync::Arc;

use tideline_common::{ApplyPolicy, Entry, Origin, Tombstone, Uid};

use super::event::LocalField;
use super::observe::Seen;
use super::slots::Does;

/// Why an object is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ReadFor {
    /// For its status, which is to be reported.
    Status,
    /// Because it is to be written, and what is known of it may be of before the last write.
    Write,
}

#[derive(Debug)]
pub(super) enum Doing {
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
    ReMark {
        entry: Arc<Entry>,
        policy: Arc<ApplyPolicy>,
        uid: Uid,
        origin: Origin,
    },
    /// Its mark is to name the target that this agent is now; it stood there so.
    ReTarget(Box<Seen>),
    /// Tried, before what cannot be changed is deleted to be created again.
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
    /// Read because something else stands there than what was to be removed.
    Look {
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

impl Doing {
    /// Which removal it is a step of.
    pub(super) fn removal(&self) -> Option<&Tombstone> {
        match self {
            Self::Remove { tombstone, .. } | Self::Look { tombstone, .. } => Some(tombstone),
            Self::Create { .. }
            | Self::Apply { .. }
            | Self::ReMark { .. }
            | Self::ReTarget(_)
            | Self::DryRun { .. }
            | Self::Replace
            | Self::Read(_)
            | Self::Compare
            | Self::Verify { .. } => None,
        }
    }

    pub(super) fn does(&self) -> Does {
        match self {
            Self::Look { .. } | Self::Read(_) | Self::Compare | Self::Verify { .. } => Does::Read,
            Self::Create { .. }
            | Self::Apply { .. }
            | Self::ReMark { .. }
            | Self::ReTarget(_)
            | Self::DryRun { .. }
            | Self::Replace
            | Self::Remove { .. } => Does::Write,
        }
    }
}
