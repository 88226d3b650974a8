//! One file that holds a store as it was at one moment, and what else is to be kept with it.
//!
//! It is a SQLite database with one table more, so that it is whole or not there, and any SQLite can look into it.

use super::file::{DATABASE, DIR_MODE, READ_WRITE, check_schema, companions, damage, from_sqlite, lock, new_private};
use super::rows;
use crate::{Commit, Error, Op, Revision};
use rusqlite::{Connection, ErrorCode, params};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Another name than any table of a store.
const TABLE: &str = "backup_attachments";

/// Copies the store in `dir` into the new file `to`, with these attachments, by name. The store may be in use: what is copied
/// is one moment of it, with every commit that was acknowledged before.
///
/// # Errors
///
/// There is no store in `dir`, `to` exists, or the disk refused it.
pub fn backup(dir: &Path, to: &Path, attachments: &[(&str, &[u8])]) -> Result<(), Error> {
    if to.exists() {
        return Err(refused("back up to", to, "it is there already"));
    }
    let from = dir.join(DATABASE);
    if !super::SqliteStore::is_in(dir).map_err(|error| failed("read", &from, &error))? {
        return Err(refused("back up", &from, "there is no store"));
    }
    let unfinished = sibling(to);
    discard(&unfinished)?;
    // It holds Secrets: it must not be readable by others while it is written, either.
    drop(new_private(&unfinished).map_err(|error| failed("write", &unfinished, &error))?);
    let path = unfinished.display().to_string();
    let outcome = copy(&from, &path, attachments).and_then(|()| settle(&unfinished, to));
    if outcome.is_err() {
        let _nothing_left = discard(&unfinished);
    }
    outcome
}

fn copy(from: &Path, to: &str, attachments: &[(&str, &[u8])]) -> Result<(), Error> {
    let read = from.display().to_string();
    let store = Connection::open_with_flags(from, READ_WRITE).map_err(|error| from_sqlite("back up", &read, &error))?;
    // What could not be restored is no backup.
    check_schema(&store, &read)?;
    copy_from(&store, to, attachments).map_err(|error| from_sqlite("back up to", to, &error))
}

fn copy_from(store: &Connection, to: &str, attachments: &[(&str, &[u8])]) -> rusqlite::Result<()> {
    // Reads the store alone. An empty file is taken for none.
    store.execute("VACUUM INTO ?1", params![to])?;
    let copy = Connection::open_with_flags(to, READ_WRITE)?;
    copy.pragma_update(None, "synchronous", "full")?;
    copy.execute_batch(&format!("CREATE TABLE {TABLE} (name TEXT PRIMARY KEY, content BLOB NOT NULL)"))?;
    for (name, content) in attachments {
        copy.execute(&format!("INSERT INTO {TABLE} VALUES (?1, ?2)"), params![name, content])?;
    }
    Ok(())
}

/// A backup on its way to being the store of a directory. It comes to its place with all that is added, or not at all, and
/// nobody makes a store there meanwhile.
#[derive(Debug)]
pub struct Restore {
    /// The backup, for messages.
    from: String,
    store: PathBuf,
    unfinished: PathBuf,
    attachments: Vec<(String, Vec<u8>)>,
    _lock: File,
}

impl Restore {
    /// Copies a backup into `dir`, which must have no store and nothing that is left of one, and checks that it is whole and
    /// that this version can read it.
    ///
    /// # Errors
    ///
    /// The backup is damaged or of another version, there is a store in `dir`, or the disk refused it.
    pub fn begin(from: &Path, dir: &Path) -> Result<Self, Error> {
        DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir).map_err(|error| failed("create", dir, &error))?;
        // A hub that is started over and over would make a store between the look and the end.
        let lock = lock(dir)?;
        let store = dir.join(DATABASE);
        let mut former = [store.clone()].into_iter().chain(companions(&store));
        if let Some(former) = former.find(|file| file.symlink_metadata().is_ok()) {
            // What is left of another store beside this one would be read into it.
            let reason = format!(
                "{} is there; give an empty directory, or move all of the former store away: {DATABASE} and what is called so \
                 with -wal, -shm or -journal behind it",
                former.display()
            );
            return Err(refused("restore into", dir, &reason));
        }
        let unfinished = sibling(&store);
        discard(&unfinished)?;
        let path = from.display().to_string();
        let mut restore = Self { from: path, store, unfinished, attachments: Vec::new(), _lock: lock };
        restore.copy(from)?;
        Ok(restore)
    }

    fn copy(&mut self, from: &Path) -> Result<(), Error> {
        let copy = &self.unfinished;
        let mut backup = File::open(from).map_err(|error| failed("read the backup", from, &error))?;
        let mut file = new_private(copy).map_err(|error| failed("write", copy, &error))?;
        io::copy(&mut backup, &mut file).map_err(|error| failed("copy the backup", from, &error))?;
        drop(file);
        let not_a_backup =
            || refused("restore from", from, "it is not a backup; give a file that `tideline-hub backup` wrote");
        let unreadable = |error: rusqlite::Error| match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => not_a_backup(),
            Some(ErrorCode::DatabaseCorrupt) => refused("restore from", from, "it is damaged; take another backup"),
            // SQLite's codes are not our enum.
            _ => from_sqlite("restore from", &self.from, &error),
        };
        let copy = connect(copy).map_err(unreadable)?;
        if !is_backup(&copy).map_err(unreadable)? {
            return Err(not_a_backup());
        }
        if let Some(damage) = damage(&copy, &self.from)? {
            return Err(refused("restore from", from, &format!("it is damaged ({damage}); take another backup")));
        }
        check_schema(&copy, &self.from)?;
        self.attachments = detach(&copy).map_err(|error| from_sqlite("restore from", &self.from, &error))?;
        Ok(())
    }

    /// What was attached under this name.
    pub fn attachment(&self, name: &str) -> Option<&[u8]> {
        self.attachments.iter().find(|(attached, _)| attached == name).map(|(_, content)| &**content)
    }

    /// Commits this on top of what was backed up.
    ///
    /// # Errors
    ///
    /// The operations are too many or too large, or the disk refused them.
    pub fn add(&mut self, ops: Vec<Op>) -> Result<(), Error> {
        let failed = |error| from_sqlite("restore to", &self.store.display().to_string(), &error);
        add(&mut connect(&self.unfinished).map_err(failed)?, ops).map_err(failed)
    }

    /// Puts the store in its place.
    ///
    /// # Errors
    ///
    /// The disk refused it; there is no store then.
    pub fn finish(self) -> Result<(), Error> {
        settle(&self.unfinished, &self.store)
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        // Where it is finished there is nothing; what is left here otherwise the next attempt removes.
        let _nothing_left = discard(&self.unfinished);
    }
}

fn connect(copy: &Path) -> rusqlite::Result<Connection> {
    let copy = Connection::open_with_flags(copy, READ_WRITE)?;
    copy.pragma_update(None, "synchronous", "full")?;
    Ok(copy)
}

/// Whether something was attached to it: no other database has such a table.
fn is_backup(copy: &Connection) -> rusqlite::Result<bool> {
    let tables = copy.query_row("SELECT count(*) FROM sqlite_schema WHERE name = ?1", params![TABLE], |row| row.get(0));
    tables.map(|tables: i64| tables > 0)
}

fn detach(copy: &Connection) -> rusqlite::Result<Vec<(String, Vec<u8>)>> {
    let mut select = copy.prepare(&format!("SELECT name, content FROM {TABLE}"))?;
    let attachments = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()?;
    drop(select);
    copy.execute_batch(&format!("DROP TABLE {TABLE}"))?;
    Ok(attachments)
}

fn add(copy: &mut Connection, ops: Vec<Op>) -> rusqlite::Result<()> {
    let transaction = copy.transaction()?;
    let next = Revision(rows::position(&transaction)?.revision.0 + 1);
    // Nothing is compared, so that nothing conflicts.
    rows::apply(&transaction, &Commit { compare: Vec::new(), ops }, next)?;
    rows::set_revision(&transaction, next)?;
    transaction.commit()
}

/// Has the finished file be at its place, whole, also after a power cut.
fn settle(unfinished: &Path, at: &Path) -> Result<(), Error> {
    let directory = at.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(unfinished)
        .and_then(|file| file.sync_all())
        .and_then(|()| fs::rename(unfinished, at))
        .and_then(|()| File::open(directory)?.sync_all())
        .map_err(|error| failed("finish", at, &error))
}

/// Removes what an attempt that died has left, and what SQLite kept beside it: that would be read into the next one.
fn discard(unfinished: &Path) -> Result<(), Error> {
    for file in companions(unfinished).iter().map(PathBuf::as_path).chain([unfinished]) {
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove", file, &error)),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

fn sibling(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".unfinished");
    path.with_file_name(name)
}

fn refused(operation: &'static str, path: &Path, reason: &str) -> Error {
    Error::Io { operation, path: path.display().to_string(), reason: reason.to_owned() }
}

fn failed(operation: &'static str, path: &Path, error: &io::Error) -> Error {
    refused(operation, path, &error.to_string())
}

#[cfg(test)]
mod tests;
