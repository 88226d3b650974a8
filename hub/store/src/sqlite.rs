//! The embedded engine: one SQLite file, one writer thread, a few readers.
//!
//! - `file`: the data dir: lock, schema version, damage, connections.
//! - `rows`: the table of versions, and every statement.
//! - `queue`, `writer`: commits wait in a bounded queue; the thread `store-writer` takes many into one
//!   transaction, so that they share one fsync, then delivers their events, then answers. Between groups it
//!   compacts in small steps.
//! - `readers`: reads run on blocking threads, each on a connection of its own, and never wait for a writer.
//! - `watch`: who hears of which change.
//!
//! A revision is usable from the compaction floor on: at `floor` one can read, and one can watch *after*
//! `floor`. Watching after `floor - 1` would deliver the changes of `floor` itself, whose previous values
//! and tombstones are gone; it is refused as compacted.

pub(crate) mod backup;
mod file;
mod limits;
mod queue;
mod readers;
mod rows;
mod watch;
mod writer;

#[cfg(test)]
mod tests;

use crate::{
    Commit, CommitOutcome, Compare, Error, Item, KeyRange, MAX_COMMIT_BYTES, MAX_COMMIT_OPS, Op, Page, Revision, Store,
    WatchStream,
};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use queue::{Job, PendingCommit, PendingCompaction, Queue};
use readers::Readers;
use std::collections::BTreeSet;
use std::fs;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use tokio::sync::oneshot;
use watch::Watchers;
use writer::Writer;

/// A [`Store`] in one SQLite file, for one process.
///
/// Its methods must be called on a Tokio runtime. An error of `commit` other than `TooLarge`, `Full` and `Closed`
/// leaves open whether the commit happened; after a failure of the disk the store takes no more commits (`Failed`),
/// because it cannot know what reached the disk, and must be reopened.
pub struct SqliteStore {
    path: String,
    queue: Arc<Queue>,
    watchers: Arc<Watchers>,
    /// Set once, by the writer.
    failure: Arc<OnceLock<Error>>,
    readers: Arc<Readers>,
    writer: Mutex<Option<JoinHandle<()>>>,
    lock: Mutex<Option<File>>,
}

impl SqliteStore {
    /// Opens the store in `dir`, creating both if absent.
    ///
    /// Reads the whole file once to find damage. Blocks; on a runtime call it before serving, or from a blocking thread.
    ///
    /// # Errors
    ///
    /// `Locked` if another process has it open, `Schema` if another version wrote it, `Failed` if it is damaged, `Io` if the
    /// directory cannot be used.
    pub fn open(dir: &Path) -> Result<Arc<Self>, Error> {
        Self::start(file::open(dir)?)
    }

    /// Whether there is a store in `dir`, which [`SqliteStore::open`] would make otherwise. A file of no bytes is none, and so is
    /// one without a table: what was ever written is with it or beside it.
    ///
    /// # Errors
    ///
    /// Nobody can look.
    pub fn is_in(dir: &Path) -> io::Result<bool> {
        let path = dir.join(file::DATABASE);
        match fs::metadata(&path) {
            Ok(store) => Ok(store.len() > 0 && !file::is_blank(&path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Opens an empty store that ends with the process. Nothing is durable and readers wait for the writer;
    /// otherwise it is the same engine.
    ///
    /// # Errors
    ///
    /// SQLite refuses; never in practice.
    pub fn in_memory() -> Result<Arc<Self>, Error> {
        Self::start(file::open_in_memory()?)
    }

    /// Stops: refuses new work, finishes the commits already queued, ends watches with `Closed`, and gives
    /// the data dir free. What was acknowledged is durable with or without it. Dropping the store does the
    /// same, blocking.
    pub async fn close(&self) {
        self.queue.close();
        let writer = locked(&self.writer).take();
        if let Some(writer) = writer {
            // Its panic was reported by the panic hook; all that is left is to close.
            let _ = tokio::task::spawn_blocking(move || writer.join()).await;
        }
        self.release();
    }

    fn start(opened: file::Opened) -> Result<Arc<Self>, Error> {
        let queue = Arc::new(Queue::new());
        let watchers = Arc::new(Watchers::new(opened.position));
        let failure = Arc::new(OnceLock::new());
        let readers = Arc::new(Readers::new(opened.path.clone(), opened.readers));
        let writer = Writer {
            connection: opened.writer,
            path: opened.path.clone(),
            queue: Arc::clone(&queue),
            watchers: Arc::clone(&watchers),
            failure: Arc::clone(&failure),
        };
        let thread =
            thread::Builder::new().name("store-writer".to_owned()).spawn(move || writer.run()).map_err(|error| {
                Error::Io { operation: "start a thread for", path: opened.path.clone(), reason: error.to_string() }
            })?;
        tracing::debug!(path = opened.path, revision = opened.position.revision.0, "store opened");
        Ok(Arc::new(Self {
            path: opened.path,
            queue,
            watchers,
            failure,
            readers,
            writer: Mutex::new(Some(thread)),
            lock: Mutex::new(opened.lock),
        }))
    }

    fn release(&self) {
        self.readers.close();
        drop(locked(&self.lock).take());
    }

    /// Reads at `at`, or at the newest revision, which a compaction may meanwhile overtake.
    async fn read<T, F>(&self, at: Option<Revision>, read: F) -> Result<(Revision, T), Error>
    where
        T: Send + 'static,
        F: Fn(&rusqlite::Connection, Revision) -> rusqlite::Result<T> + Clone + Send + 'static,
    {
        loop {
            let revision = at.unwrap_or_else(|| self.watchers.revision());
            self.watchers.check(revision)?;
            let attempt = read.clone();
            let result = self.readers.run(move |conn| attempt(conn, revision)).await;
            match self.watchers.check(revision) {
                Ok(()) => return Ok((revision, result?)),
                Err(Error::Compacted { .. }) if at.is_none() => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn admit(&self, commit: &Commit) -> Result<usize, Error> {
        // Compares cost the writer as much as operations do.
        let ops = commit.ops.len().max(commit.compare.len());
        let bytes = queue::size_of(commit);
        if ops > MAX_COMMIT_OPS || bytes > MAX_COMMIT_BYTES {
            return Err(Error::TooLarge { ops, bytes });
        }
        let mut keys = BTreeSet::new();
        for op in &commit.ops {
            let (Op::Put(key, _) | Op::Delete(key)) = op;
            if !keys.insert(key) {
                let reason = format!("the key {key:?} is in two operations of one commit");
                return Err(Error::Io { operation: "commit to", path: self.path.clone(), reason });
            }
        }
        Ok(bytes)
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.queue.close();
        // A waker that the writer calls may hold the last reference: then the writer ends by itself.
        if let Some(writer) = locked(&self.writer).take()
            && writer.thread().id() != thread::current().id()
        {
            let _ = writer.join();
        }
        self.release();
    }
}

impl Store for SqliteStore {
    fn revision(&self) -> Revision {
        self.watchers.revision()
    }

    fn failure(&self) -> Option<Error> {
        self.failure.get().cloned()
    }

    fn get(&self, key: Bytes) -> BoxFuture<'_, Result<Option<Item>, Error>> {
        async move {
            let (_at, item) = self.read(None, move |conn, at| rows::get(conn, &key, at)).await?;
            Ok(item)
        }
        .boxed()
    }

    fn range(&self, range: KeyRange, at: Option<Revision>, limit: usize) -> BoxFuture<'_, Result<Page, Error>> {
        async move {
            let (revision, listed) = self.read(at, move |conn, at| rows::list(conn, &range, at, limit)).await?;
            Ok(Page { revision, items: listed.items, more: listed.more })
        }
        .boxed()
    }

    fn count(&self, range: KeyRange, at: Revision) -> BoxFuture<'_, Result<u64, Error>> {
        async move {
            let (_at, count) = self.read(Some(at), move |conn, at| rows::count(conn, &range, at)).await?;
            Ok(count)
        }
        .boxed()
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<CommitOutcome, Error>> {
        async move {
            let bytes = self.admit(&commit)?;
            let (reply, answer) = oneshot::channel();
            self.queue.push(Job::Commit(PendingCommit { commit, bytes, reply })).await?;
            answer.await.unwrap_or(Err(Error::Closed))
        }
        .boxed()
    }

    fn watch(&self, range: KeyRange, after: Revision) -> Result<WatchStream, Error> {
        watch::open(&self.watchers, &self.readers, range, after)
    }

    fn compact(&self, before: Revision) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            match self.watchers.check(before) {
                Ok(()) => {}
                Err(Error::Compacted { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
            let (reply, answer) = oneshot::channel();
            self.queue.push(Job::Compact(PendingCompaction { before, reply })).await?;
            answer.await.unwrap_or(Err(Error::Closed))
        }
        .boxed()
    }
}

fn compared_key(compare: &Compare) -> &Bytes {
    let (Compare::Absent(key) | Compare::Modified(key, _)) = compare;
    key
}

/// Locks; a panic elsewhere leaves these structures whole, since none is changed in steps that can panic.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
