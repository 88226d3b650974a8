//! The one file that knows sled.
//!
//! sled 0.34.7 as it is, with what it leaves to its user: it is never trusted to have reached the disk (its flush writes
//! pages back with `sync_file_range` and never syncs the files of large values), and its errors are told apart here.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sled::transaction::{ConflictableTransactionError, TransactionError, Transactional};

use super::Error;

/// Bytes of pages kept in memory. Not a bound: sled accounts by serialized size; what it holds is a few times that.
const CACHE_BYTES: u64 = 4 << 20;
/// Bytes of one segment of the log, written and reclaimed as a whole. sled's own default.
const SEGMENT_BYTES: usize = 512 << 10;
/// Milliseconds between runs of sled's own thread. Commits do not wait for it; it is what rewrites old segments, without
/// which the log would only grow.
const COLLECT_EVERY_MS: u64 = 30_000;
/// How long files may be held by threads of a journal that was closed.
const RELEASED_WITHIN: Duration = Duration::from_secs(2);

/// Declares the tables with their names on disk.
macro_rules! tables {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Table { $($(#[$doc])* $variant),+ }

        impl Table {
            pub(super) const ALL: &[Self] = &[$(Self::$variant),+];

            const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

tables!(
    /// The schema's version, the enrolment, the accepted version.
    Meta = "meta",
    Entries = "entries",
    Policies = "policies",
    Applied = "applied",
    Removing = "removing",
    Unsent = "unsent",
    /// Which bodies there are, so that nothing needs to scan them.
    Inputs = "inputs",
    /// Compressed bodies. Read one by one, never scanned.
    Bodies = "bodies",
);

/// Sets a value, or removes it.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) table: Table,
    pub(super) key: Vec<u8>,
    pub(super) value: Option<Vec<u8>>,
}

pub(super) struct Engine {
    path: PathBuf,
    db: sled::Db,
    /// In the order of [`Table::ALL`].
    tables: Vec<sled::Tree>,
    log: File,
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
        let engine = Self { path: path.to_owned(), db, tables, log, synced: Mutex::default() };
        engine.sync().map_err(io)?;
        File::open(path).and_then(|directory| directory.sync_all()).map_err(io)?;
        Ok(engine)
    }

    pub(super) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let value = self.tree(table).get(key).map_err(|error| reading_failed(&error))?;
        Ok(value.map(|value| value.to_vec()))
    }

    /// Calls `each` with every key and value of a table, in key order.
    pub(super) fn scan(
        &self,
        table: Table,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for pair in self.tree(table) {
            let (key, value) = pair.map_err(|error| reading_failed(&error))?;
            each(&key, &value)?;
        }
        Ok(())
    }

    /// Writes all changes, or none; they are on disk when this returns. Blocks, on a full disk perhaps for ever.
    pub(super) fn commit(&self, changes: &[Change]) -> Result<(), Error> {
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
                TransactionError::Storage(error) => Error::Write(error.to_string()),
            })?;
        self.db.flush().map_err(|error| Error::Write(error.to_string()))?;
        self.sync().map_err(|error| Error::Write(error.to_string()))
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

/// sled's own threads let go of the files a moment after it was closed; a journal opened again in the same process waits
/// for them.
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
            Err(Error::Held { .. }) if begun.elapsed() < RELEASED_WITHIN => {
                std::thread::sleep(RELEASED_WITHIN / 50);
            }
            outcome => return outcome,
        }
    }
}

/// What a person can mend comes back as such; everything else speaks of damage.
fn opening_failed(path: &Path, error: sled::Error) -> Error {
    match error {
        sled::Error::Io(source) => match source.kind() {
            io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::NotFound => Error::Io { action: "open", path: path.to_owned(), source },
            _ if source.to_string().contains("could not acquire lock") => Error::Held { path: path.to_owned() },
            _ => Error::Damaged(source.to_string()),
        },
        error => reading_failed(&error),
    }
}

fn reading_failed(error: &sled::Error) -> Error {
    Error::Damaged(error.to_string())
}
