//! A reserve on the disk of the store, for the day when that is full.
//!
//! It is a file that takes room. Whoever meets a full disk gives it up, so that what cannot wait is still written: what deletions
//! come to, who serves which target, and the compaction of the store. All else is refused until there is room for another.

mod store;

use std::convert::Infallible;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub(crate) use self::store::Reserving;
use crate::committer::StoreHealth;
use crate::limits::{RESERVE_BYTES, RESERVE_FREE_BYTES, RESERVE_LOOK_EVERY, START_BYTES};

const FILE: &str = "store.reserve";
/// What the blocks of a file are counted in, whatever those of the file system are.
const BLOCK_BYTES: u64 = 512;
/// Written at once, where a file system gives room to nothing but bytes.
const PIECE_BYTES: usize = 1 << 20;

/// The disk has too little room for a hub that is new.
#[derive(Debug, thiserror::Error)]
#[error("there is no room for a hub in {dir}: {} MiB are free on its disk, of {} that are needed", free >> 20, needed >> 20)]
pub struct NoRoom {
    pub dir: PathBuf,
    pub free: u64,
    pub needed: u64,
}

/// The reserve of one store.
#[derive(Debug)]
pub(crate) struct Reserve {
    dir: PathBuf,
    bytes: u64,
    /// Bytes that are free beside it before it is put aside.
    beside: u64,
    health: StoreHealth,
    /// Whoever changes the file says so before anybody else does.
    changing: Mutex<()>,
}

impl Reserve {
    pub(crate) fn new(dir: &Path, health: StoreHealth) -> Self {
        let (bytes, beside) = (RESERVE_BYTES, RESERVE_FREE_BYTES);
        Self { dir: dir.to_owned(), bytes, beside, health, changing: Mutex::default() }
    }

    /// Whether there is room for a hub that has nothing yet.
    pub(crate) fn allows_first_start(&self) -> Result<(), NoRoom> {
        let (free, needed) = (self.free().unwrap_or(u64::MAX), self.bytes + self.beside);
        if free >= needed { Ok(()) } else { Err(NoRoom { dir: self.dir.clone(), free, needed }) }
    }

    /// Gives it up if there is no room for what a start writes, which is not refused; or if it takes none: whoever copies a data
    /// directory may leave a hole.
    pub(crate) fn make_room_for_start(&self) {
        let _one_at_a_time = self.lock();
        let is_hole = |found: fs::Metadata| found.blocks() * BLOCK_BYTES < found.len();
        if fs::symlink_metadata(self.path()).is_ok_and(is_hole) {
            self.remove();
        } else if self.free().is_ok_and(|free| free < START_BYTES) {
            warn!(dir = %self.dir.display(), "the disk of the store is full; the start may take what its reserve has left");
            self.remove();
        }
    }

    /// Gives it up, if it is there.
    fn give_up(&self) {
        let _one_at_a_time = self.lock();
        self.remove();
        if self.health.reserve_gone() {
            warn!(
                dir = %self.dir.display(),
                "the disk of the store is full, and its reserve is given up; nothing is made or changed until there is room, but \
                 by deletions"
            );
        }
    }

    /// What it took is free when this returns: file systems with a journal reuse what is freed once that is on the disk.
    fn remove(&self) {
        match fs::remove_file(self.path()).and_then(|()| File::open(&self.dir)?.sync_all()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                warn!(path = %self.path().display(), %error, "cannot give up the reserve");
            }
            Ok(()) | Err(_) => {}
        }
    }

    /// Puts it aside, if it is not there whole and there is room.
    fn look(&self) {
        let _one_at_a_time = self.lock();
        let is_whole = |found: fs::Metadata| found.is_file() && found.len() == self.bytes;
        let needed = self.bytes + self.beside;
        let why = if fs::symlink_metadata(self.path()).is_ok_and(is_whole) {
            None
        } else if let Some(free) = self.free().ok().filter(|free| *free < needed) {
            Some(format!("{} MiB are free on its disk, of {} that are needed", free >> 20, needed >> 20))
        } else {
            self.put_aside().err().map(|error| {
                // Half of one takes room, and is of no use.
                let _ = fs::remove_file(self.path());
                error.to_string()
            })
        };
        let dir = self.dir.display();
        match why {
            None if self.health.reserve_back() => info!(%dir, "the store has its reserve again"),
            Some(why) if self.health.reserve_gone() => {
                warn!(%dir, why, "the store has no reserve; nothing is made or changed until it has, but by deletions");
            }
            None | Some(_) => {}
        }
    }

    /// Takes blocks and not only a length: a hole takes no room. Follows no link.
    fn put_aside(&self) -> io::Result<()> {
        match fs::remove_file(self.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.path())?;
        match fallocate(&file, FallocateFlags::empty(), 0, self.bytes) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                let piece = vec![0; PIECE_BYTES];
                let mut left = self.bytes;
                while left > 0 {
                    let now = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    file.write_all(&piece[..now])?;
                    left -= now as u64;
                }
            }
            Err(error) => return Err(error.into()),
        }
        file.sync_all()
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free(&self) -> io::Result<u64> {
        let disk = statvfs(&self.dir)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    fn path(&self) -> PathBuf {
        self.dir.join(FILE)
    }
}

/// Puts it aside, now and whenever it is gone and there is room, until `shutdown`.
pub(crate) async fn keep(reserve: Arc<Reserve>, shutdown: CancellationToken) -> Result<(), Infallible> {
    loop {
        let looked = Arc::clone(&reserve);
        // A panic in there was told by the hook; the next look may do better.
        let _ = spawn_blocking(move || looked.look()).await;
        if shutdown.run_until_cancelled(sleep(RESERVE_LOOK_EVERY)).await.is_none() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests;
