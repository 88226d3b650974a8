//! The copy in the data directory: `identity.json`.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use super::Error;
use super::contents::{Contents, Unreadable};

pub(super) const FILE: &str = "identity.json";

/// None if there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<Contents>, Error> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::Unread { path: path.to_owned(), source }),
    };
    Contents::decode(&bytes).map(Some).map_err(|unreadable| match unreadable {
        Unreadable::Damaged(why) => Error::Damaged { path: path.to_owned(), why },
        Unreadable::Newer { found, by } => Error::Newer { reference: path.display().to_string(), found, by },
    })
}

/// Replaces the file as a whole, readable by its owner alone, and returns when it is on disk.
pub(super) fn save(path: &Path, contents: &Contents) -> Result<(), Error> {
    let io = |action: &'static str| move |source| Error::Io { action, path: path.to_owned(), source };
    let next = path.with_extension("json.next");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&next)
        .map_err(io("create a file beside"))?;
    // The mode above does not reach a file that a crash left behind.
    file.set_permissions(Permissions::from_mode(0o600)).map_err(io("set the permissions of"))?;
    file.write_all(&contents.encode()).and_then(|()| file.sync_all()).map_err(io("write"))?;
    fs::rename(&next, path).map_err(io("replace"))?;
    let directory = path.parent().unwrap_or(Path::new("."));
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(io("sync the directory of"))
}
