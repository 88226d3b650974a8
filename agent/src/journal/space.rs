//! Room on the disk: what must stay free, and a reserve for the day when nothing is.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::engine::SEGMENT_BYTES;
use super::{Error, directory};

/// Bytes that a write leaves free on the disk. sled that meets a full disk takes no further write and may hang; what runs
/// beside it must have room for its own. It opens two segments before it knows of the first, and its own thread moves
/// pages into others: eight.
const FREE_MIN: u64 = 8 * SEGMENT_BYTES as u64;
/// How often the bytes of a batch are written: as links to pages, in pages that are merged, and as files while both are
/// there.
pub(super) const WRITTEN_TIMES: u64 = 3;
/// Bytes that opening may take: it rewrites the end of a segment, begins another, and writes a snapshot, which is some
/// hundred bytes for each page of sixteen records; 50,000 objects are about two of these megabytes.
const OPEN_MIN: u64 = 3 << 20;
/// Bytes of the reserve. It is given up when there is no room to open the journal.
pub(super) const RESERVE_BYTES: u64 = OPEN_MIN + (1 << 20);

/// Refuses a write of `bytes` that would fill the disk that `journal` is on.
pub(super) fn require_for_write(journal: &Path, bytes: u64) -> Result<(), Error> {
    require(journal, FREE_MIN + WRITTEN_TIMES * bytes)
}

/// As [`require_for_write`], for writes before the journal can be read: makes room for them as for the opening.
pub(super) fn require_for_finishing(journal: &Path, bytes: u64) -> Result<(), Error> {
    make_room(journal, FREE_MIN + WRITTEN_TIMES * bytes)
}

/// Refuses an opening that would fill the disk; makes room for it first.
pub(super) fn require_for_opening(journal: &Path) -> Result<(), Error> {
    make_room(journal, OPEN_MIN)
}

/// Makes room, if there is none: gives up the reserve, then journals that were moved aside.
fn make_room(journal: &Path, needed: u64) -> Result<(), Error> {
    let reserve = reserve(journal);
    if require(journal, needed).is_err() && reserve.exists() {
        tracing::warn!("the disk is full: {reserve:?} is given up, so that the journal can be read");
        remove(&reserve)?;
    }
    if require(journal, needed).is_err() {
        directory::remove_moved_aside(journal)?;
    }
    require(journal, needed)
}

/// Whether a copy of `bytes` fits beside the journal.
pub(super) fn has_room_for(journal: &Path, bytes: u64) -> bool {
    require(journal, FREE_MIN + WRITTEN_TIMES * bytes).is_ok()
}

/// Puts the reserve aside, if it is not there and there is room.
pub(super) fn keep_reserve(journal: &Path) {
    let reserve = reserve(journal);
    let whole = fs::metadata(&reserve).is_ok_and(|found| found.len() == RESERVE_BYTES);
    if whole || require(journal, FREE_MIN + 2 * RESERVE_BYTES).is_err() {
        return;
    }
    // Written, not reserved by length: a hole takes no room.
    let written = File::create(&reserve).and_then(|mut file| {
        let zeros = vec![0; SEGMENT_BYTES];
        for _ in 0..RESERVE_BYTES / SEGMENT_BYTES as u64 {
            file.write_all(&zeros)?;
        }
        file.sync_all()
    });
    if let Err(error) = written {
        tracing::debug!("cannot allocate the reserve {reserve:?}: {error}");
        // Half of one is of no use; should it stay, the next start tries again.
        let _ = fs::remove_file(&reserve);
    }
}

/// Whether the disk takes a byte at all: a file system may be read-only, or over its quota, with room to spare.
pub(super) fn probe(journal: &Path) -> Result<(), Error> {
    let path = journal.with_extension("probe");
    let outcome = File::create(&path).and_then(|mut file| {
        file.write_all(b"Written to see whether the disk takes it.\n")?;
        file.sync_all()
    });
    let removed = remove(&path);
    outcome.map_err(|source| Error::beside("write", path, source))?;
    removed
}

fn require(journal: &Path, needed: u64) -> Result<(), Error> {
    let directory = journal.parent().unwrap_or(Path::new("."));
    let refused =
        |source: rustix::io::Errno| Error::beside("ask for the free space of", directory.to_owned(), source.into());
    let disk = rustix::fs::statvfs(directory).map_err(refused)?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free >= needed { Ok(()) } else { Err(Error::Space { path: directory.to_owned(), free, needed }) }
}

fn reserve(journal: &Path) -> PathBuf {
    journal.with_extension("reserve")
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome.map_err(|source| Error::beside("remove", path.to_owned(), source)),
    }
}
