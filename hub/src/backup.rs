//! A hub in one file: its store, its keys. And a hub out of it, which says that it was restored.
//!
//! Nobody can tell by itself that a hub went back in time where no agent has heard of what was lost. So a restored store has a
//! record that it was, and nothing is rolled out or removed before a person has accepted that.

use std::fs;
use std::path::{Path, PathBuf};

use tideline_store::{Commit, CommitOutcome, Op, SqliteStore, Store};
use uuid::Uuid;

use crate::identity;
use crate::ledger::{self, Restored};

/// What is attached: when the backup was made, as a person reads it.
const MADE: &str = "made";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {path}; is this the data directory of a hub?")]
    Identity { path: PathBuf, source: std::io::Error },
    #[error("cannot write {path}")]
    Write { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Store(#[from] tideline_store::Error),
    #[error("{0} is no backup of a hub: it lacks {1}")]
    Incomplete(PathBuf, &'static str),
}

/// Writes the hub of `data_dir`, which may be running, into the new file `to`.
pub fn backup(data_dir: &Path, to: &Path, now: jiff::Timestamp) -> Result<(), Error> {
    let path = data_dir.join(identity::FILE);
    let keys = fs::read(&path).map_err(|source| Error::Identity { path, source })?;
    let made = now.round(jiff::Unit::Second).unwrap_or(now).to_string();
    tideline_store::backup(data_dir, to, &[(identity::FILE, &keys), (MADE, made.as_bytes())])?;
    Ok(())
}

/// Makes the hub of a backup in `data_dir`, which must have none. Returns when the backup was made.
pub async fn restore(from: &Path, data_dir: &Path) -> Result<String, Error> {
    let attachments = tideline_store::restore(from, data_dir)?;
    let attached = |name| {
        let found = attachments.iter().find(|(attached, _)| attached == name);
        found.map(|(_, content)| content).ok_or_else(|| Error::Incomplete(from.to_owned(), name))
    };
    let made = String::from_utf8_lossy(attached(MADE)?).into_owned();
    let path = data_dir.join(identity::FILE);
    identity::write_private(&path, attached(identity::FILE)?).map_err(|source| Error::Write { path, source })?;
    let store = SqliteStore::open(data_dir)?;
    let record = ledger::restored(&Restored { id: Uuid::new_v4().to_string(), made: made.clone() });
    let put = Op::Put(record.key.into(), record.value.unwrap_or_default().into());
    match store.commit(Commit { compare: Vec::new(), ops: vec![put] }).await? {
        CommitOutcome::Committed(_) => {}
        CommitOutcome::Conflict { .. } => unreachable!("a commit without compares has no conflict"),
    }
    store.close().await;
    Ok(made)
}

#[cfg(test)]
mod tests;
