//! A hub in one file: its store, its keys. And a hub out of it, which says that it was restored.
//!
//! Nobody can tell by itself that a hub went back in time where no agent has heard of what was lost. So a restored store has a
//! record that it was, and nothing is rolled out or removed before a person has accepted that.

use std::fs;
use std::path::{Path, PathBuf};

use tideline_store::{Op, Restore};
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
    #[error("cannot use the keys in {0}")]
    Keys(PathBuf, #[source] identity::Error),
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
///
/// The store comes last, and with the record that it was restored: wherever this ends, no hub starts on a store that says nothing,
/// or that has no keys.
pub fn restore(from: &Path, data_dir: &Path) -> Result<String, Error> {
    let mut restore = Restore::begin(from, data_dir)?;
    let attached = |name| restore.attachment(name).ok_or_else(|| Error::Incomplete(from.to_owned(), name));
    let made = String::from_utf8_lossy(attached(MADE)?).into_owned();
    let keys = attached(identity::FILE)?.to_owned();
    identity::hub(from, &keys).map_err(|error| Error::Keys(from.to_owned(), error))?;
    let record = ledger::restored(&Restored { id: Uuid::new_v4().to_string(), made: made.clone() });
    restore.add(vec![Op::Put(record.key.into(), record.value.unwrap_or_default().into())])?;
    let path = data_dir.join(identity::FILE);
    identity::put(data_dir, &keys).map_err(|source| Error::Write { path, source })?;
    restore.finish()?;
    Ok(made)
}

#[cfg(test)]
mod tests;
