//! The data directory, held by one process at a time.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} the data directory {path:?}; give a writable one with --data-dir")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("the data directory {0:?} is held by another process; stop it, or give each agent its own --data-dir")]
    Held(PathBuf),
}

/// A directory of ours alone until this is dropped.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Makes the directory, readable by its owner alone, if it is not there, and locks it.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let io = |action: &'static str| move |source| Error::Io { action, path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io("create"))?;
        let file = path.join("lock");
        let lock = match File::options().create(true).truncate(false).write(true).open(&file) {
            // A disk that failed is often mounted again for reading only; there is enough to read to say so to the hub.
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => File::open(&file).map_err(|_| error),
            outcome => outcome,
        };
        let lock = lock.map_err(io("create the lock file of"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(Error::Held(path.to_owned())),
            Err(TryLockError::Error(source)) => Err(io("lock")(source)),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.path.join("journal")
    }
}

#[cfg(test)]
mod tests {
    use super::{DataDir, Error};

    #[test]
    fn a_second_holder_is_refused_until_the_first_lets_go() -> Result<(), anyhow::Error> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("agent");
        let first = DataDir::open(&path)?;
        assert!(matches!(DataDir::open(&path), Err(Error::Held(held)) if held == path));
        drop(first);
        DataDir::open(&path)?;
        Ok(())
    }
}
