//! The files of a data dir: lock, schema version, damage, connections, and what SQLite's errors mean.

use super::limits::{CACHE_KIB, READERS, WAL_BYTES};
use super::rows::{self, CACHED_STATEMENTS, Position};
use crate::Error;
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};
use std::fs::{DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The version of the tables in `rows`, kept in SQLite's `user_version`. Zero is a new file.
const SCHEMA: i64 = 1;

/// One thread at a time has a connection.
pub(super) const READ_WRITE: OpenFlags = OpenFlags::SQLITE_OPEN_READ_WRITE.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);
pub(super) const DATABASE: &str = "store.db";
const LOCK: &str = "store.lock";
/// What SQLite keeps beside a database, by how the names end. Whatever database it finds them beside it takes them to be of.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// The store holds Secrets: its files are their owner's alone, whatever directory they are in.
const FILE_MODE: u32 = 0o600;
pub(super) const DIR_MODE: u32 = 0o700;

/// A connection; the memory engine has only one, which readers and writer take in turn.
pub(super) type Shared = Arc<Mutex<Connection>>;

/// An opened store before its threads start.
pub(super) struct Opened {
    pub(super) writer: Shared,
    pub(super) readers: Vec<Shared>,
    pub(super) position: Position,
    /// Where the data is, for messages.
    pub(super) path: String,
    /// Held for as long as it stays open.
    pub(super) lock: Option<File>,
}

/// Opens, and if need be creates, the store in `dir`.
pub(super) fn open(dir: &Path) -> Result<Opened, Error> {
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir).map_err(|error| failed("create", dir, &error))?;
    let lock = lock(dir)?;
    let file = dir.join(DATABASE);
    // SQLite gives its companions the permissions of the database, and would give that what the umask leaves.
    private(&file).map_err(|error| failed("protect", &file, &error))?;
    for companion in companions(&file).iter().filter(|file| file.exists()) {
        private(companion).map_err(|error| failed("protect", companion, &error))?;
    }
    let path = file.display().to_string();
    let writer = connect(&file).map_err(|error| from_sqlite("open", &path, &error))?;
    writer
        .pragma_update(None, "auto_vacuum", "incremental")
        .and_then(|()| writer.pragma_update(None, "journal_mode", "wal"))
        .map_err(|error| from_sqlite("open", &path, &error))?;
    check(&writer, &path)?;
    let position = migrate(&writer, &path)?;
    // SQLite syncs the files; that they are found after a power cut is the directory's matter.
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| failed("sync", dir, &error))?;
    let readers = (0..READERS)
        .map(|_| {
            let reader = connect(&file)?;
            reader.pragma_update(None, "query_only", true)?;
            Ok(Arc::new(Mutex::new(reader)))
        })
        .collect::<rusqlite::Result<Vec<Shared>>>()
        .map_err(|error| from_sqlite("open", &path, &error))?;
    Ok(Opened { writer: Arc::new(Mutex::new(writer)), readers, position, path, lock: Some(lock) })
}

/// Opens a store that ends with the process.
pub(super) fn open_in_memory() -> Result<Opened, Error> {
    let path = ":memory:".to_owned();
    let conn = Connection::open_in_memory()
        .and_then(|conn| configure(&conn).map(|()| conn))
        .map_err(|error| from_sqlite("open", &path, &error))?;
    let position = migrate(&conn, &path)?;
    let conn = Arc::new(Mutex::new(conn));
    Ok(Opened { writer: Arc::clone(&conn), readers: vec![conn], position, path, lock: None })
}

/// Translates an error of SQLite, with what a person can do about it.
pub(super) fn from_sqlite(operation: &'static str, path: &str, error: &rusqlite::Error) -> Error {
    let code = code(error);
    let advice = match code {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            "; the file is damaged: restore the data dir from a backup, or move it away to start empty"
        }
        Some(ErrorCode::DiskFull) => "; free some space, nothing written so far is lost",
        Some(ErrorCode::SystemIoFailure) => "; check the disk, then restart",
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            "; check owner and permissions of the data dir"
        }
        // SQLite's codes are not our enum; the rest has no advice of its own.
        _ => "",
    };
    let (path, reason) = (path.to_owned(), format!("{error}{advice}"));
    match code {
        // Nothing that follows can be trusted: after a failed fsync the kernel may have dropped the pages that a second fsync
        // then calls clean.
        Some(ErrorCode::SystemIoFailure | ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            Error::Failed { operation, path, reason }
        }
        Some(ErrorCode::DiskFull) => Error::Full { operation, path, reason },
        _ => Error::Io { operation, path, reason },
    }
}

/// What an error is. To SQLite a disk without room for the index of its log, which is begun anew each time, is one that failed.
fn code(error: &rusqlite::Error) -> Option<ErrorCode> {
    match error.sqlite_error() {
        Some(error) if error.extended_code == ffi::SQLITE_IOERR_SHMSIZE => Some(ErrorCode::DiskFull),
        _ => error.sqlite_error_code(),
    }
}

/// Takes the store of `dir`, whether there is one or not. Until the file is dropped nobody else opens or makes one.
pub(super) fn lock(dir: &Path) -> Result<File, Error> {
    let path = dir.join(LOCK);
    let file = private(&path).map_err(|error| failed("open", &path, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Locked { path: dir.display().to_string() }),
        Err(TryLockError::Error(error)) => Err(failed("lock", &path, &error)),
    }
}

/// What SQLite keeps beside `database`, with the same content in it.
pub(super) fn companions(database: &Path) -> [PathBuf; 3] {
    COMPANIONS.map(|end| {
        let mut name = database.file_name().unwrap_or_default().to_owned();
        name.push(end);
        database.with_file_name(name)
    })
}

/// Opens a file that only its owner may read, making it if it is not there. Follows no symbolic link: whoever may write to the
/// directory would have the one who runs this, who may be root, make a file anywhere, or take one from its readers.
pub(super) fn private(path: &Path) -> io::Result<File> {
    let file = match new_private(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => present(path)?,
        made => made?,
    };
    if file.metadata()?.permissions().mode() & 0o777 != FILE_MODE {
        file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    }
    Ok(file)
}

/// Makes a file that only its owner may read, where nothing is yet.
pub(super) fn new_private(path: &Path) -> io::Result<File> {
    File::options().create_new(true).write(true).mode(FILE_MODE).open(path)
}

/// Opens the very file that has this name, and none that a link of this name leads to.
fn present(path: &Path) -> io::Result<File> {
    let no_file = || {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is a symbolic link, or no file: put the file itself there, or give the directory that has it as the data directory",
        )
    };
    let named = path.symlink_metadata()?;
    if !named.is_file() {
        return Err(no_file());
    }
    let file = File::options().write(true).open(path)?;
    let opened = file.metadata()?;
    // A link may have taken its place meanwhile.
    if (opened.dev(), opened.ino()) == (named.dev(), named.ino()) { Ok(file) } else { Err(no_file()) }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let conn = Connection::open_with_flags(path, flags)?;
    configure(&conn)?;
    Ok(conn)
}

/// The page size stays at 4 KiB: a small commit writes three pages, and twice the page is twice the log.
fn configure(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    // Only recovery of the log makes a connection wait for another.
    conn.busy_timeout(Duration::from_secs(5))?;
    conn.pragma_update(None, "synchronous", "full")?;
    conn.pragma_update(None, "temp_store", "memory")?;
    conn.pragma_update(None, "cache_size", format!("-{CACHE_KIB}"))?;
    conn.pragma_update(None, "journal_size_limit", i64::try_from(WAL_BYTES).unwrap_or(i64::MAX))
}

/// Damage found here costs a restore; found later it costs a night.
fn check(conn: &Connection, path: &str) -> Result<(), Error> {
    let Some(damage) = damage(conn, path)? else { return Ok(()) };
    let reason =
        format!("it is damaged ({damage}): restore the data dir from a backup, or move it away to start empty");
    Err(Error::Failed { operation: "open", path: path.to_owned(), reason })
}

/// Reads the whole file once, and says what is wrong with it, if anything is.
pub(super) fn damage(conn: &Connection, path: &str) -> Result<Option<String>, Error> {
    let verdict: String = conn
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(|error| from_sqlite("check", path, &error))?;
    Ok((verdict != "ok").then_some(verdict))
}

/// Whether it is a database in which nothing was ever put. What cannot be read is none such: whoever opens it says what is the
/// matter.
pub(super) fn is_blank(path: &Path) -> bool {
    let flags = READ_WRITE | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    Connection::open_with_flags(path, flags).and_then(|conn| has_nothing(&conn)).unwrap_or(false)
}

fn has_nothing(conn: &Connection) -> rusqlite::Result<bool> {
    let version: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok((version, tables) == (0, 0))
}

fn migrate(conn: &Connection, path: &str) -> Result<Position, Error> {
    let failed = |error: rusqlite::Error| from_sqlite("open", path, &error);
    if has_nothing(conn).map_err(failed)? {
        let create = format!("BEGIN IMMEDIATE; {} PRAGMA user_version = {SCHEMA}; COMMIT;", rows::TABLES);
        conn.execute_batch(&create).map_err(failed)?;
    } else {
        check_schema(conn, path)?;
    }
    rows::position(conn).map_err(failed)
}

/// Refuses another program's database, and a version of ours that this build does not know.
pub(super) fn check_schema(conn: &Connection, path: &str) -> Result<(), Error> {
    let found = conn.query_row("PRAGMA user_version", [], |row| row.get(0));
    match found.map_err(|error| from_sqlite("open", path, &error))? {
        SCHEMA => Ok(()),
        found => Err(Error::Schema { path: path.to_owned(), found, known: SCHEMA }),
    }
}

fn failed(operation: &'static str, path: &Path, error: &io::Error) -> Error {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; check owner and permissions of the data dir"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free some space",
        // The system's kinds are not our enum; the rest has no advice of its own.
        _ => "",
    };
    Error::Io { operation, path: path.display().to_string(), reason: format!("{error}{advice}") }
}
