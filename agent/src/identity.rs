//! Which agent this is, and which hub it believes.
//!
//! ```text
//!  Secret of the agent's own namespace ─┐                       ┌─▶ identity.json in the data directory, then
//!                                       ├─ merge ─▶ [`Keeper`] ─┤
//!  identity.json in the data directory ─┘                       └─▶ the Secret, by compare-and-swap
//! ```
//!
//! Inside a cluster, or where a namespace is named, the Secret is the truth, so that an agent whose node and data are gone is
//! the same agent on the next one. The file is used while the API server does not answer, and alone where there is no Secret.
//! Both hold the agent's key, the pinned hub and its addresses, the target, and how far this identity has come: its newest
//! session and the newest set it accepted. These only ever rise. The session is the data directory's own: by it the hub tells
//! the restart of an agent from another agent on a copy of its data directory, so it is on disk before it is used; of
//! replicas, which share the Secret, it is in that too. The file is written first, and the Secret gets nothing that the file
//! did not take, so that a Secret that is ahead of it was written by another process with this identity, and the data
//! directory is out of date. A journal that is out of date is removed before the file is written, for after that nothing shows
//! it any more.

use std::io;
use std::path::PathBuf;

use tideline_common::TargetId;

mod contents;
mod file;
mod keeper;
mod merge;
mod newer;
mod secret;
mod written;

pub(crate) use contents::{HubPin, TargetName};
pub(crate) use keeper::{Found, Keeper, TokenUse};
pub(crate) use merge::{Data, SessionStore};
pub(crate) use newer::when_readable;
pub(crate) use secret::SecretRef;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} {path:?}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "cannot read {path:?}, which says who this agent is. Make it readable, or restore it from a backup; without either, \
         remove it and enrol again with a new token: the hub then treats this agent as another target"
    )]
    Unread { path: PathBuf, source: io::Error },
    #[error("cannot write {path:?}: the outdated journal beside it must be removed first")]
    JournalFirst { path: PathBuf },
    #[error(
        "{path:?} is damaged: {why}. Restore it from a backup, or remove it and enrol again with a new token: the hub then \
         treats this agent as another target"
    )]
    Damaged { path: PathBuf, why: String },
    #[error(
        "{reference} has schema {found} and was written by tideline-agent {by}; this is {}, which reads schema {}. Run version \
         {by}, or a newer one",
        env!("CARGO_PKG_VERSION"),
        contents::SCHEMA
    )]
    Newer { reference: String, found: u32, by: String },
    #[error(
        "the Secret {reference} is damaged: {why}. Restore it from a backup, or delete it and enrol again with a new token: the \
         hub then treats this agent as another target"
    )]
    SecretDamaged { reference: String, why: String },
    #[error("cannot read the Secret {reference}: {why}")]
    SecretUnread { reference: String, why: String },
    #[error("cannot write the Secret {reference}: {why}")]
    SecretUnwritten { reference: String, why: String },
    #[error(
        "the data directory belongs to target {file} and the Secret {reference} to target {secret}: one of them is not this \
         agent's. Give it an empty --data-dir, or another --identity-secret"
    )]
    TwoIdentities { reference: String, file: TargetId, secret: TargetId },
    #[error(
        "the Secret {reference} was taken by another process: {why}. If two agents run with this identity, stop one of them, or \
         give both --leader-elect"
    )]
    Superseded { reference: String, why: String },
    #[error("the token names a hub key of {0} bytes; it is damaged, make another with `tideline-hub token create`")]
    Token(usize),
    #[error("no agent is enrolled in {0:?}; give --token-file to enrol one, or the --data-dir of one that is")]
    NoToken(PathBuf),
    #[error("the operating system gives no random numbers")]
    Random,
}

#[cfg(test)]
mod tests;
