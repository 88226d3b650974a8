//! A hub in one file: its store, its keys. And a hub out of it, which says that it was restored.
//!
//! Nobody can tell by itself that a hub went back in time where no agent has heard of what was lost. So a restored store has a
//! record that it was, and nothing is rolled out or removed before a person has accepted that.

use std::path::{Path, PathBuf};
use std::{fs, io};

use tideline_common::HubId;
use tideline_store::{Op, Restore};
use uuid::Uuid;

use crate::identity;
use crate::ledger::{self, Restored};
use crate::written_by;

/// What is attached: when the backup was made, as a person reads it.
const MADE: &str = "made";

/// What a restore came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// When the backup was made, as a person reads it.
    pub made: String,
    pub keys: Keys,
}

/// Which keys a restored hub has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    OfBackup,
    /// Those that were there. They are of the same hub and may be newer: nothing else has the key of an authority that was made
    /// since the backup.
    Kept,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {path}; is this the data directory of a hub?")]
    Identity { path: PathBuf, source: io::Error },
    #[error("cannot write {path}")]
    Write { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Store(#[from] tideline_store::Error),
    #[error(transparent)]
    Directory(identity::Error),
    #[error("{0} is not a backup of a hub: it lacks {1}; give a file that `tideline-hub backup` wrote")]
    Incomplete(PathBuf, &'static str),
    #[error("cannot use the keys in {0}")]
    Keys(PathBuf, #[source] identity::Error),
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is there, and may hold keys that nothing else has; move it away, and the backup's take its place")]
    Unreadable { path: PathBuf, source: identity::Error },
    #[error("{path} is of the hub {there}, and the backup is of the hub {hub}; give another directory")]
    OtherHub { path: PathBuf, there: HubId, hub: HubId },
}

/// Writes the hub of `data_dir`, which may be running, into the new file `to`.
///
/// # Errors
///
/// There is no hub in `data_dir`, `to` exists, or the disk refused it.
pub fn backup(data_dir: &Path, to: &Path, now: jiff::Timestamp) -> Result<(), Error> {
    let path = data_dir.join(identity::FILE);
    let keys = fs::read(&path).map_err(|source| Error::Identity { path, source })?;
    let made = now.round(jiff::Unit::Second).unwrap_or(now).to_string();
    tideline_store::backup(data_dir, to, &[(identity::FILE, &keys), (MADE, made.as_bytes())])?;
    Ok(())
}

/// Makes the hub of a backup in `data_dir`, which must have no store. Keys that it has are kept, if they are of the same hub.
///
/// The store comes last, and with the record that it was restored; before the keys comes the word that a hub wrote there. Wherever
/// this ends, no hub starts on a store that says nothing or has no keys, nor on keys alone with an empty store.
///
/// # Errors
///
/// The backup is damaged or of another version, `data_dir` has a store or another hub's keys, or the disk refused it.
pub fn restore(from: &Path, data_dir: &Path) -> Result<Outcome, Error> {
    identity::refuse_of_agent(data_dir).map_err(Error::Directory)?;
    let mut restore = Restore::begin(from, data_dir)?;
    let attached = |name| restore.attachment(name).ok_or_else(|| Error::Incomplete(from.to_owned(), name));
    let made = String::from_utf8_lossy(attached(MADE)?).into_owned();
    let backed_up = attached(identity::FILE)?.to_owned();
    let hub = identity::hub(from, &backed_up).map_err(|error| Error::Keys(from.to_owned(), error))?;
    let path = data_dir.join(identity::FILE);
    let keys = keys_in(&path, hub)?;
    let record = ledger::restored(&Restored { id: Uuid::new_v4().to_string(), made: made.clone() });
    restore.add(vec![Op::Put(record.key.into(), record.value.unwrap_or_default().into())])?;
    written_by::write(data_dir).map_err(|source| Error::Write { path: data_dir.to_owned(), source })?;
    if keys == Keys::OfBackup {
        identity::put(data_dir, &backed_up).map_err(|source| Error::Write { path, source })?;
    }
    restore.finish()?;
    Ok(Outcome { made, keys })
}

/// Which keys the hub of a backup has beside it, where `path` may hold some already.
fn keys_in(path: &Path, hub: HubId) -> Result<Keys, Error> {
    let there = match fs::read(path) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Keys::OfBackup),
        Err(source) => return Err(Error::Read { path: path.to_owned(), source }),
    };
    let there = identity::hub(path, &there).map_err(|source| Error::Unreadable { path: path.to_owned(), source })?;
    if there == hub { Ok(Keys::Kept) } else { Err(Error::OtherHub { path: path.to_owned(), there, hub }) }
}

#[cfg(test)]
mod tests;
