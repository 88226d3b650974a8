//! The data directory, used by one process at a time.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;

/// The file in which a hub keeps its store.
const STORE_OF_HUB: &str = "store.db";
/// The file in which a hub keeps its keys, and an agent its own.
const IDENTITY: &str = "identity.json";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} the data directory {path:?}; give a writable one with --data-dir")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("the data directory {0:?} is in use by another process; stop it, or give each agent its own --data-dir")]
    InUse(PathBuf),
    #[error("{0:?} is the data directory of a hub; give the agent one of its own with --data-dir")]
    OfHub(PathBuf),
}

/// A directory of ours alone until this is dropped.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Makes the directory, readable by its owner alone, if it is not there, and locks it. That of a hub is left as it is.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        if is_of_hub(path) {
            return Err(Error::OfHub(path.to_owned()));
        }
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
            Err(TryLockError::WouldBlock) => Err(Error::InUse(path.to_owned())),
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

/// Whether a hub has its store there, or its keys, which would be taken for a damaged identity of an agent.
fn is_of_hub(path: &Path) -> bool {
    #[derive(Deserialize)]
    struct KeysOfHub {
        #[serde(rename = "caKey")]
        _ca_key: IgnoredAny,
    }
    let has_keys = |text: Vec<u8>| serde_json::from_slice::<KeysOfHub>(&text).is_ok();
    path.join(STORE_OF_HUB).exists() || fs::read(path.join(IDENTITY)).is_ok_and(has_keys)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{DataDir, Error};

    #[test]
    fn the_directory_of_a_hub_is_refused_and_left_as_it_is() -> Result<(), anyhow::Error> {
        let keys = r#"{"schema": 1, "hub": "h", "seed": "s", "caCertificate": "c", "caKey": "k", "adminToken": "t"}"#;
        for (name, text) in [("store.db", ""), ("identity.json", keys)] {
            let directory = tempfile::tempdir()?;
            fs::write(directory.path().join(name), text)?;
            let refused = DataDir::open(directory.path()).unwrap_err();
            assert!(matches!(&refused, Error::OfHub(path) if path == directory.path()), "{refused}");
            assert_eq!(fs::read_to_string(directory.path().join(name))?, text);
            assert_eq!(fs::read_dir(directory.path())?.count(), 1, "nothing is made there");
        }
        Ok(())
    }

    #[test]
    fn a_second_holder_is_refused_until_the_first_lets_go() -> Result<(), anyhow::Error> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("agent");
        let first = DataDir::open(&path)?;
        assert!(matches!(DataDir::open(&path), Err(Error::InUse(in_use)) if in_use == path));
        drop(first);
        DataDir::open(&path)?;
        Ok(())
    }
}
