//! The journal as a directory, and what is beside it: damage that is found before the engine opens it, and where it goes; the
//! log that is rewritten and then replaces it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use flate2::Crc;
use tracing::warn;

use super::Error;

/// Journals moved aside that are kept for an investigation: the first, and the last. Each is as large as the journal was.
const KEPT_MAX: u32 = 2;

/// Ends what a crash interrupted, and moves aside what sled would refuse to start over. Returns whether a journal was there.
pub(super) fn prepare(path: &Path) -> Result<bool, Error> {
    let io = |action: &'static str| move |source| Error::Io { action, path: path.to_owned(), source };
    if let Some(parent) = path.parent() {
        let refused = |source| Error::beside("create the directory of", path.to_owned(), source);
        fs::create_dir_all(parent).map_err(refused)?;
    }
    recover(path)?;
    let files = match fs::read_dir(path) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(io("read")(error)),
    };
    let mut existed = false;
    for file in files {
        let file = file.map_err(io("read"))?;
        existed = true;
        let name = file.file_name();
        if name.to_string_lossy().starts_with("snap.") && !snapshot_is_readable(&file.path()) {
            let aside = path.join(format!("unreadable.{}", name.to_string_lossy()));
            warn!("{:?} is cut or damaged and was renamed to {aside:?}; the journal is read without it", file.path());
            fs::rename(file.path(), aside).map_err(io("rename a file of"))?;
        }
    }
    Ok(existed)
}

/// A snapshot ends with its length before compression (8 bytes) and the CRC-32 of what precedes both (4 bytes).
fn snapshot_is_readable(path: &Path) -> bool {
    const TAIL: usize = 12;
    // A file that cannot be read at all is sled's to complain of, not ours to rename.
    let Ok(bytes) = fs::read(path) else { return true };
    let Some(end) = bytes.len().checked_sub(TAIL).filter(|end| *end > 0) else { return false };
    let mut crc = Crc::new();
    crc.update(&bytes[..end]);
    bytes[end + 8..] == crc.sum().to_le_bytes()
}

/// Notes in a journal that is open that it is damaged: the next opening moves it aside, with the note.
pub(super) fn mark_damaged(path: &Path, why: &str) -> Result<(), Error> {
    let mark = damage_mark(path);
    match fs::write(&mark, format!("{why}\n")).and_then(|()| File::open(&mark)?.sync_all()) {
        // Of a journal that somebody removed there is nothing to move.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome.map_err(|source| Error::Io { action: "write", path: mark, source }),
    }
}

/// Why the journal was noted to be damaged, if it was.
pub(super) fn marked_damaged(path: &Path) -> Option<String> {
    let mark = damage_mark(path);
    mark.exists().then(|| fs::read_to_string(mark).unwrap_or_default().trim().to_owned())
}

fn damage_mark(journal: &Path) -> PathBuf {
    journal.join("damaged")
}

/// Moves the directory to the first free `journal.damaged-<n>` beside it.
pub(super) fn move_aside(path: &Path) -> Result<PathBuf, Error> {
    let free = (1..=KEPT_MAX).map(|n| damaged_path(path, n)).find(|aside| !aside.exists());
    let aside = free.unwrap_or_else(|| damaged_path(path, KEPT_MAX));
    let io = |action: &'static str| move |source| Error::Io { action, path: path.to_owned(), source };
    if aside.exists() {
        fs::remove_dir_all(&aside).map_err(io("make room for what is damaged in"))?;
    }
    fs::rename(path, &aside).map_err(io("move aside"))?;
    Ok(aside)
}

/// Moves the directory to `journal.newer` beside it. It is never taken up again: its cluster went on without it.
pub(super) fn set_aside_newer(path: &Path) -> Result<PathBuf, Error> {
    let aside = path.with_extension("newer");
    let io = |action: &'static str| move |source| Error::Io { action, path: path.to_owned(), source };
    if aside.exists() {
        fs::remove_dir_all(&aside).map_err(io("make room for the newer one in"))?;
    }
    fs::rename(path, &aside).map_err(io("move aside"))?;
    Ok(aside)
}

/// Removes the journals that were moved aside: room to work in is worth more.
pub(super) fn remove_moved_aside(path: &Path) -> Result<(), Error> {
    let aside = (1..=KEPT_MAX).map(|n| damaged_path(path, n)).chain([path.with_extension("newer")]);
    for aside in aside.filter(|aside| aside.exists()) {
        warn!("the disk is full: {aside:?}, a journal that cannot be used, is removed");
        fs::remove_dir_all(&aside).map_err(|source| Error::beside("remove", aside, source))?;
    }
    Ok(())
}

fn damaged_path(path: &Path, n: u32) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    path.with_file_name(format!("{name}.damaged-{n}"))
}

const NEXT: &str = "next";
const FORMER: &str = "former";

/// Where the log is written anew, with nothing there.
pub(super) fn next(journal: &Path) -> Result<PathBuf, Error> {
    let next = journal.with_extension(NEXT);
    remove(&next)?;
    Ok(next)
}

/// Puts `next` in the place of `path`. What comes between the two renames, a crash or a disk that refuses, leaves the former, which
/// [`recover`] puts back at the next start.
pub(super) fn swap(path: &Path, next: &Path) -> Result<(), Error> {
    let former = path.with_extension(FORMER);
    let refused = |action: &'static str| move |source| Error::beside(action, path.to_owned(), source);
    remove(&former)?;
    fs::rename(path, &former).map_err(refused("move aside"))?;
    fs::rename(next, path).map_err(refused("replace"))?;
    sync_parent(path).map_err(refused("sync the directory of"))?;
    remove(&former)
}

/// Ends what a crash interrupted while the log was written anew.
fn recover(path: &Path) -> Result<(), Error> {
    let former = path.with_extension(FORMER);
    if !path.exists() && former.exists() {
        fs::rename(&former, path).map_err(|source| Error::beside("put back", path.to_owned(), source))?;
    }
    remove(&former)?;
    next(path).map(drop)
}

/// Removes a journal, with what a crash left of its rewriting. Returns whether there was one.
pub(super) fn discard(path: &Path) -> Result<bool, Error> {
    recover(path)?;
    let existed = path.exists();
    remove(path)?;
    if existed {
        let io = |source| Error::Io { action: "sync the directory of", path: path.to_owned(), source };
        sync_parent(path).map_err(io)?;
    }
    Ok(existed)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    fs::File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

pub(super) fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome.map_err(|source| Error::beside("remove", path.to_owned(), source)),
    }
}
