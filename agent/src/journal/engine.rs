//! The one file that knows sled.
//!
//! sled 0.34.7 as it is, with what it leaves to its user: it is never trusted to have reached the disk (its flush writes
//! pages back with `sync_file_range` and never syncs the files of large values), and its errors are told apart here.
//!
//! Once a write failed, sled takes no other until it is opened again, and a caller that waits for it to reach the disk may
//! wait for ever: [`Engine::poke`] wakes it. Pages that were touched stay in memory until many others were: each of its
//! cache's 256 shards judges only every 64 accesses. Its slot sees to both.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sled::transaction::{ConflictableTransactionError, TransactionError, Transactional};

use super::Error;
use super::change::{Change, Table};
use super::error::is_of_the_medium;
use super::group::Group;

/// Bytes of pages that sled may keep in memory by its own account, which is by serialized size and late.
const CACHE_BYTES: u64 = 1 << 20;
/// Bytes of one segment of the log, written and reclaimed as a whole. sled's own default.
pub(super) const SEGMENT_BYTES: usize = 512 << 10;
/// Milliseconds between runs of sled's own thread. Commits do not wait for it; it is what rewrites old segments, without
/// which the log would only grow.
const COLLECT_EVERY_MS: u64 = 30_000;
/// A visit frees four pieces, a change leaves three or four; twice that, for other threads may be in the way.
const VISITS_PER_CHANGE: usize = 2;
/// Three rounds of 128: what was left is freed when two others have passed.
const VISITS_MIN: usize = 384;
/// What so many changes leave behind may stay until there are more: some hundred kilobytes.
const COLLECT_AFTER: usize = 64;
/// Bytes that a scan reads before it has sled judge what of them stays in memory, where they take two to three times as much.
const SCAN_BYTES: usize = 4 << 20;
/// Keys of pages that lie in all of the 256 shards of sled's cache: pages that follow each other mostly do in shards that follow
/// each other, and each has up to sixteen records.
const SHARD_KEYS: usize = 2 * 256;
const ROWS_PER_SHARD_KEY: usize = 8;
/// Visits of each of these keys: a shard judges when its pages were visited 64 times.
const SHARD_VISITS: usize = 32;
/// How long threads of a journal that was closed may keep its files open.
const RELEASED_WITHIN: Duration = Duration::from_secs(2);
const RELEASE_POLL: Duration = Duration::from_millis(5);

pub(super) struct Engine {
    path: PathBuf,
    db: sled::Db,
    /// In the order of [`Table::ALL`].
    tables: Vec<sled::Tree>,
    log: File,
    /// Changes since what they leave behind was freed.
    behind: AtomicUsize,
    /// The files of large values that are known to be on disk.
    synced: Mutex<BTreeSet<OsString>>,
}

impl Engine {
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let failed = |error| opening_failed(path, error);
        let db = open_db(path)?;
        let tables =
            Table::ALL.iter().map(|table| db.open_tree(table.name())).collect::<Result<_, _>>().map_err(failed)?;
        let io = |source| Error::Io { action: "sync", path: path.to_owned(), source };
        let log = File::open(path.join("db")).map_err(io)?;
        File::open(path.join("conf")).and_then(|file| file.sync_all()).map_err(io)?;
        let (behind, synced) = (AtomicUsize::new(0), Mutex::default());
        let engine = Self { path: path.to_owned(), db, tables, log, behind, synced };
        engine.sync().map_err(io)?;
        File::open(path).and_then(|directory| directory.sync_all()).map_err(io)?;
        Ok(engine)
    }

    pub(super) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let value = self.tree(table).get(key).map_err(|error| opening_failed(&self.path, error))?;
        Ok(value.map(|value| value.to_vec()))
    }

    /// Calls `each` with every key and value of a table, in key order. However large it is, few of its pages are in memory.
    pub(super) fn scan(
        &self,
        table: Table,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (mut rows, mut read, mut recent) = (0_usize, 0, VecDeque::with_capacity(SHARD_KEYS));
        for pair in self.tree(table) {
            let (key, value) = pair.map_err(|error| opening_failed(&self.path, error))?;
            each(&key, &value)?;
            read += key.len() + value.len();
            rows += 1;
            if rows.is_multiple_of(ROWS_PER_SHARD_KEY) {
                if recent.len() == SHARD_KEYS {
                    recent.pop_front();
                }
                recent.push_back(key);
            }
            if read >= SCAN_BYTES {
                read = 0;
                self.evict_pages(table, &recent);
            }
        }
        Ok(())
    }

    /// Has sled judge what it keeps in memory: it does so only when pages of a shard were visited often enough, which a scan,
    /// that visits each page once, never comes to. The keys are of pages in all shards.
    fn evict_pages(&self, table: Table, keys: &VecDeque<sled::IVec>) {
        for key in keys {
            for _visit in 0..SHARD_VISITS {
                let _there_or_not = self.tree(table).contains_key(key);
            }
        }
    }

    /// Returns what a table holds beyond `after`, in key order, until it is about `bytes`; nothing at its end.
    pub(super) fn part(&self, table: Table, after: Option<&[u8]>, bytes: u64) -> Result<Vec<Change>, Error> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut part, mut size) = (Vec::new(), 0);
        for pair in self.tree(table).range::<&[u8], _>((from, Bound::Unbounded)) {
            let (key, value) = pair.map_err(|error| opening_failed(&self.path, error))?;
            let change = Change { table, key: key.to_vec(), value: Some(value.to_vec()) };
            size += change.bytes();
            part.push(change);
            if size >= bytes {
                break;
            }
        }
        Ok(part)
    }

    /// Writes groups of changes, each whole or not at all, and none before those that precede it; all are on disk when this
    /// returns, and by how many bytes there is more then. Blocks, on a full disk perhaps for ever.
    pub(super) fn commit(&self, groups: &[Group]) -> Result<i64, Error> {
        let mut grown = 0;
        if groups.iter().all(Group::is_empty) {
            return Ok(grown);
        }
        for group in groups.iter().map(Group::changes) {
            grown += self.growth(group)?;
            self.put(group)?;
            self.collect_garbage(group.len());
        }
        self.db.flush().map_err(|error| Error::Write(reason(&error)))?;
        self.sync().map_err(|error| Error::Write(error.to_string()))?;
        Ok(grown)
    }

    /// By how many bytes changes of different keys enlarge the tables. Their pages are needed for them anyway.
    fn growth(&self, changes: &[Change]) -> Result<i64, Error> {
        let mut grown = 0;
        for change in changes {
            let former = self.tree(change.table).get(&change.key).map_err(|error| self.write_failed(error))?;
            grown -= former.map_or(0, |value| bytes_of(&change.key, &value));
            grown += change.value.as_ref().map_or(0, |value| bytes_of(&change.key, value));
        }
        Ok(grown)
    }

    /// Puts all changes into the log, in memory for now.
    fn put(&self, changes: &[Change]) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        let mut batches = vec![sled::Batch::default(); self.tables.len()];
        for Change { table, key, value } in changes {
            match value {
                Some(value) => batches[*table as usize].insert(key.as_slice(), value.as_slice()),
                None => batches[*table as usize].remove(key.as_slice()),
            }
        }
        self.tables
            .as_slice()
            .transaction(|trees| {
                for (tree, batch) in trees.iter().zip(&batches) {
                    tree.apply_batch(batch)?;
                }
                Ok::<(), ConflictableTransactionError<()>>(())
            })
            .map_err(|error| match error {
                TransactionError::Abort(()) => Error::Write("the transaction was aborted".to_owned()),
                TransactionError::Storage(error) => self.write_failed(error),
            })
    }

    /// A write reads the pages that it changes. Where these cannot be read, no room on the disk helps.
    fn write_failed(&self, error: sled::Error) -> Error {
        match error {
            sled::Error::Io(source) if is_of_the_medium(&source) => {
                Error::Io { action: "read what is to be changed in", path: self.path.clone(), source }
            }
            sled::Error::Io(ref source) if source.kind() == io::ErrorKind::UnexpectedEof => {
                Error::Damaged(reason(&error))
            }
            sled::Error::Corruption { .. } | sled::Error::ReportableBug(_) | sled::Error::CollectionNotFound(_) => {
                Error::Damaged(error.to_string())
            }
            sled::Error::Io(_) | sled::Error::Unsupported(_) => Error::Write(reason(&error)),
        }
    }

    /// Frees what changes left behind. sled does so only in passing, a few hundred pieces for every 128 visits of a thread,
    /// and a transaction is one visit however much it leaves: without this, nothing of a large set is ever freed.
    fn collect_garbage(&self, changes: usize) {
        let behind = self.behind.fetch_add(changes, Ordering::Relaxed) + changes;
        if behind < COLLECT_AFTER {
            return;
        }
        self.behind.store(0, Ordering::Relaxed);
        for _visit in 0..VISITS_MIN + VISITS_PER_CHANGE * behind {
            let _there_or_not = self.tree(Table::Meta).contains_key(b"");
        }
    }

    /// Wakes a commit that waits for ever: sled forgets to tell some waiting callers that a write failed, and a second flush
    /// tells them. Blocks where nothing failed and the disk is merely slow.
    pub(super) fn poke(&self) {
        let _outcome_is_the_commits = self.db.flush();
    }

    pub(super) fn bytes(&self) -> u64 {
        self.db.size_on_disk().unwrap_or(0)
    }

    /// Sees to it that the log, and the values too large for it, are on disk.
    fn sync(&self) -> io::Result<()> {
        let directory = self.path.join("blobs");
        let mut synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        let mut present = BTreeSet::new();
        for file in fs::read_dir(&directory)? {
            present.insert(file?.file_name());
        }
        let mut renewed = false;
        for name in present.difference(&synced) {
            match File::open(directory.join(name)) {
                Ok(file) => file.sync_all()?,
                // Collected in the meantime.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            renewed = true;
        }
        if renewed {
            File::open(&directory)?.sync_all()?;
        }
        *synced = present;
        // The log last: it points to the values.
        self.log.sync_all()
    }

    fn tree(&self, table: Table) -> &sled::Tree {
        &self.tables[table as usize]
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("path", &self.path).finish_non_exhaustive()
    }
}

fn bytes_of(key: &[u8], value: &[u8]) -> i64 {
    i64::try_from(key.len() + value.len()).unwrap_or(i64::MAX)
}

/// sled's own threads release the files a moment after it was closed; a journal opened again in the same process waits for
/// them.
fn open_db(path: &Path) -> Result<sled::Db, Error> {
    let begun = Instant::now();
    loop {
        let outcome = sled::Config::new()
            .path(path)
            .cache_capacity(CACHE_BYTES)
            .segment_size(SEGMENT_BYTES)
            .mode(sled::Mode::LowSpace)
            .flush_every_ms(Some(COLLECT_EVERY_MS))
            .open()
            .map_err(|error| opening_failed(path, error));
        match outcome {
            Err(Error::InUse { .. }) if begun.elapsed() < RELEASED_WITHIN => std::thread::sleep(RELEASE_POLL),
            outcome => return outcome,
        }
    }
}

/// What the disk refuses comes back as such; everything else speaks of damage.
fn opening_failed(path: &Path, error: sled::Error) -> Error {
    match error {
        sled::Error::Io(source) if source.to_string().contains("could not acquire lock") => {
            Error::InUse { path: path.to_owned() }
        }
        sled::Error::Io(source) => {
            let error = Error::Io { action: "open", path: path.to_owned(), source };
            if error.is_of_the_disk() || error.is_of_access() { error } else { Error::Damaged(full(&error)) }
        }
        error => Error::Damaged(error.to_string()),
    }
}

/// Without the words with which sled introduces what the operating system said.
fn reason(error: &sled::Error) -> String {
    match error {
        sled::Error::Io(source) => source.to_string(),
        error => error.to_string(),
    }
}

fn full(error: &Error) -> String {
    tideline_runtime::exit::chain(error)
}
