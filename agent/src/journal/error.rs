//! What goes wrong with a journal, and what is to blame.

use std::io;
use std::path::PathBuf;

use tideline_common::Digest;

use crate::write_watchdog;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("it has schema {found}, and this version of the agent reads {reads}")]
    Newer { found: String, reads: &'static str },
    #[error("the version that wrote it understands {capability}, and this one does not")]
    UnderstandsMore { capability: String },
    #[error("the journal {path:?} is in use by another process")]
    InUse { path: PathBuf },
    #[error("cannot {action} {path:?}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "the disk of {path:?} has {} kB left; the journal needs {} kB there",
        free / 1_000,
        needed / 1_000
    )]
    Space { path: PathBuf, free: u64, needed: u64 },
    #[error("the journal is damaged: {0}")]
    Damaged(String),
    #[error("cannot write to the journal: {0}")]
    Write(String),
    #[error(
        "the disk did not take a write within {} s; it may be full, or failing. The agent must be started again",
        write_watchdog::WAIT_MAX_SECONDS
    )]
    Stuck,
    #[error(
        "the journal is being opened, and for {seconds} s the disk has read and written nothing; it may be full, or failing"
    )]
    StuckOpening { seconds: u64 },
    #[error("the agent was asked to stop while the journal was being opened")]
    Stopped,
    #[error("the journal has stopped working; the agent must be started again")]
    Closed,
    #[error("the journal cannot be used: {0}")]
    Away(String),
    #[error("the journal has no body {0}")]
    NoBody(Digest),
}

impl Error {
    /// What came of a file beside the journal. That the medium refuses it says nothing of the journal, and may pass.
    pub(super) fn beside(action: &'static str, path: PathBuf, source: io::Error) -> Self {
        let of_the_medium = is_of_the_medium(&source);
        let error = Self::Io { action, path, source };
        if of_the_medium { Self::Away(tideline_runtime::exit::chain(&error)) } else { error }
    }

    /// Whether the disk refuses, which may pass: it is full, read-only, or fails.
    pub(crate) fn is_of_the_disk(&self) -> bool {
        match self {
            Self::Space { .. } | Self::Write(_) | Self::Away(_) => true,
            Self::Io { source, .. } => {
                use io::ErrorKind::{FileTooLarge, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
                is_of_the_medium(source)
                    || matches!(source.kind(), FileTooLarge | QuotaExceeded | ReadOnlyFilesystem | StorageFull)
            }
            Self::Newer { .. }
            | Self::UnderstandsMore { .. }
            | Self::InUse { .. }
            | Self::Damaged(_)
            | Self::Stuck
            | Self::StuckOpening { .. }
            | Self::Stopped
            | Self::Closed
            | Self::NoBody(_) => false,
        }
    }

    /// Whether the content cannot be read: it is damaged, or the medium refuses it, which may pass once.
    pub(super) fn is_of_damage(&self) -> bool {
        match self {
            Self::Damaged(_) => true,
            Self::Io { source, .. } => is_of_the_medium(source),
            Self::Newer { .. }
            | Self::UnderstandsMore { .. }
            | Self::InUse { .. }
            | Self::Space { .. }
            | Self::Write(_)
            | Self::Stuck
            | Self::StuckOpening { .. }
            | Self::Stopped
            | Self::Closed
            | Self::Away(_)
            | Self::NoBody(_) => false,
        }
    }

    /// Whether a person has to give access.
    pub(super) fn is_of_access(&self) -> bool {
        use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
        matches!(self, Self::Io { source, .. } if matches!(source.kind(), NotADirectory | NotFound | PermissionDenied))
    }
}

pub(super) fn is_of_the_medium(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}
