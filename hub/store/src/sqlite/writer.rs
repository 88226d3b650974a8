//! The writer thread: groups of commits, and between them compaction and progress.
//!
//! While one transaction is synced the next commits queue up; they make the next transaction. Each keeps
//! its own compares, evaluated in order against all before it, and its own revision.

use super::file::{self, Shared};
use super::limits::{FREE_SHARE, PROGRESS_INTERVAL, RELEASE_PAGES};
use super::locked;
use super::queue::{Job, Patience, PendingCommit, PendingCompaction, Queue};
use super::rows::{self, Applied, Cursor};
use super::watch::Watchers;
use crate::{CommitOutcome, Error, Event, Revision};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio::sync::oneshot;

pub(super) struct Writer {
    pub(super) connection: Shared,
    pub(super) path: String,
    pub(super) queue: Arc<Queue>,
    pub(super) watchers: Arc<Watchers>,
    /// Why nothing is written any more.
    pub(super) failure: Arc<OnceLock<Error>>,
}

/// What the writer does when no commit waits.
enum Chore {
    None,
    Compacting {
        floor: Revision,
        cursor: Cursor,
        waiting: Vec<oneshot::Sender<Result<(), Error>>>,
    },
    /// Giving free pages back to the file system.
    Releasing,
}

/// When watchers are next told how far the store is.
enum Progress {
    Told { at: Option<Instant> },
    Due { at: Instant },
}

struct Group {
    outcomes: Vec<CommitOutcome>,
    events: Vec<Event>,
    revision: Revision,
}

impl Writer {
    /// Runs until the queue is closed and drained.
    pub(super) fn run(self) {
        // Also when this thread panics, nobody may wait for it for ever.
        let _ending = Ending(&self);
        let mut chore = Chore::None;
        let mut progress = Progress::Told { at: None };
        while let Some(jobs) = self.queue.take(patience(&chore, &progress)) {
            let mut commits = Vec::with_capacity(jobs.len());
            for job in jobs {
                match job {
                    Job::Commit(pending) => commits.push(pending),
                    Job::Compact(pending) => chore = self.begin_compaction(chore, pending),
                }
            }
            if !commits.is_empty() && self.commit(commits) {
                progress = progress.moved();
            }
            chore = self.do_some(chore);
            progress = self.tell_progress(progress);
        }
        if let Chore::Compacting { waiting, .. } = chore {
            reply_all(waiting, &Err(Error::Closed));
        }
        // Only saves the next start from reading the log.
        let checkpoint = locked(&self.connection).query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_row| Ok(()));
        if let Err(error) = checkpoint {
            tracing::debug!(path = self.path, %error, "store not checkpointed at close");
        }
    }

    /// Commits a group and answers everyone in it. Returns whether the store moved on.
    fn commit(&self, pending: Vec<PendingCommit>) -> bool {
        let result = match self.failure.get() {
            Some(error) => Err(error.clone()),
            None => self.transact(&pending).map_err(|error| {
                let described = file::from_sqlite("commit to", &self.path, &error);
                if matches!(described, Error::Failed { .. }) {
                    tracing::error!(path = self.path, %error, "the store takes no more commits until it is restarted");
                    self.failure.get_or_init(|| described.clone());
                }
                described
            }),
        };
        match result {
            Ok(group) => {
                let moved = !group.events.is_empty();
                if moved {
                    self.watchers.publish(&group.events, group.revision);
                }
                for (pending, outcome) in pending.into_iter().zip(group.outcomes) {
                    // A caller that went away does not want the answer.
                    let _ = pending.reply.send(Ok(outcome));
                }
                moved
            }
            Err(error) => {
                for pending in pending {
                    let _ = pending.reply.send(Err(error.clone()));
                }
                false
            }
        }
    }

    fn transact(&self, pending: &[PendingCommit]) -> rusqlite::Result<Group> {
        let connection = locked(&self.connection);
        let transaction = begin(&connection)?;
        let before = self.watchers.revision();
        let mut group = Group { outcomes: Vec::with_capacity(pending.len()), events: Vec::new(), revision: before };
        for pending in pending {
            let next = Revision(group.revision.0 + 1);
            group.outcomes.push(match rows::apply(&transaction, &pending.commit, next)? {
                Applied::Conflict { compare, found } => CommitOutcome::Conflict { compare, found },
                Applied::Written(events) => {
                    if !events.is_empty() {
                        group.revision = next;
                        group.events.extend(events);
                    }
                    CommitOutcome::Committed(group.revision)
                }
            });
        }
        if group.revision > before {
            rows::set_revision(&transaction, group.revision)?;
            transaction.commit()?;
        }
        Ok(group)
    }

    /// Raises the floor, from when on older reads are refused, and starts a pass for it.
    fn begin_compaction(&self, chore: Chore, pending: PendingCompaction) -> Chore {
        if let Some(error) = self.failure.get() {
            let _ = pending.reply.send(Err(error.clone()));
            return chore;
        }
        let floor = pending.before.max(self.watchers.floor());
        let raised = {
            let connection = locked(&self.connection);
            begin(&connection).and_then(|transaction| {
                rows::set_floor(&transaction, floor)?;
                transaction.commit()
            })
        };
        if let Err(error) = raised {
            let _ = pending.reply.send(Err(file::from_sqlite("compact", &self.path, &error)));
            return chore;
        }
        self.watchers.raise_floor(floor);
        let mut waiting = match chore {
            // A pass for a higher floor does the work of the one under way.
            Chore::Compacting { waiting, .. } => waiting,
            Chore::None | Chore::Releasing => Vec::new(),
        };
        waiting.push(pending.reply);
        Chore::Compacting { floor, cursor: Cursor::default(), waiting }
    }

    /// One step of what there is to do besides commits.
    fn do_some(&self, chore: Chore) -> Chore {
        if let Some(error) = self.failure.get() {
            if let Chore::Compacting { waiting, .. } = chore {
                reply_all(waiting, &Err(error.clone()));
            }
            return Chore::None;
        }
        match chore {
            Chore::None => Chore::None,
            Chore::Compacting { floor, cursor, waiting } => match self.compact_some(&cursor, floor) {
                Ok(Some(cursor)) => Chore::Compacting { floor, cursor, waiting },
                Ok(None) => {
                    tracing::debug!(path = self.path, floor = floor.0, "store compacted");
                    reply_all(waiting, &Ok(()));
                    Chore::Releasing
                }
                Err(error) => {
                    reply_all(waiting, &Err(file::from_sqlite("compact", &self.path, &error)));
                    Chore::None
                }
            },
            Chore::Releasing => match release_some(&locked(&self.connection)) {
                Ok(Released::Some) => Chore::Releasing,
                Ok(Released::Enough) => Chore::None,
                Err(error) => {
                    // The pages are reused instead.
                    tracing::warn!(path = self.path, %error, "cannot give free pages back");
                    Chore::None
                }
            },
        }
    }

    fn compact_some(&self, cursor: &Cursor, floor: Revision) -> rusqlite::Result<Option<Cursor>> {
        let connection = locked(&self.connection);
        let transaction = begin(&connection)?;
        let next = rows::compact_some(&transaction, cursor, floor)?;
        transaction.commit()?;
        Ok(next)
    }

    fn tell_progress(&self, progress: Progress) -> Progress {
        match progress {
            Progress::Due { at } if at <= Instant::now() => {
                self.watchers.tell_progress();
                Progress::Told { at: Some(Instant::now()) }
            }
            Progress::Due { .. } | Progress::Told { .. } => progress,
        }
    }
}

impl Progress {
    /// Told at once after a quiet time, and not again before the interval is over.
    fn moved(self) -> Self {
        match self {
            Progress::Told { at: Some(at) } => Progress::Due { at: at + PROGRESS_INTERVAL },
            Progress::Told { at: None } => Progress::Due { at: Instant::now() },
            Progress::Due { at } => Progress::Due { at },
        }
    }
}

enum Released {
    Some,
    Enough,
}

fn patience(chore: &Chore, progress: &Progress) -> Patience {
    match (chore, progress) {
        (Chore::Compacting { .. } | Chore::Releasing, _) => Patience::None,
        (Chore::None, Progress::Due { at }) => Patience::Until(*at),
        (Chore::None, Progress::Told { .. }) => Patience::Endless,
    }
}

/// The write lock is taken at the start, so that a transaction cannot fail for it halfway.
fn begin(connection: &Connection) -> rusqlite::Result<Transaction<'_>> {
    Transaction::new_unchecked(connection, TransactionBehavior::Immediate)
}

fn release_some(connection: &Connection) -> rusqlite::Result<Released> {
    let free: i64 = connection.query_row("PRAGMA freelist_count", [], |row| row.get(0))?;
    let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
    // A memory database has no file to shrink and keeps its free pages.
    let shrinks: i64 = connection.query_row("PRAGMA auto_vacuum", [], |row| row.get(0))?;
    if shrinks == 0 || free <= pages / FREE_SHARE {
        return Ok(Released::Enough);
    }
    let mut vacuum = connection.prepare(&format!("PRAGMA incremental_vacuum({RELEASE_PAGES})"))?;
    let mut steps = vacuum.query([])?;
    while steps.next()?.is_some() {}
    Ok(Released::Some)
}

fn reply_all(waiting: Vec<oneshot::Sender<Result<(), Error>>>, answer: &Result<(), Error>) {
    for reply in waiting {
        let _ = reply.send(answer.clone());
    }
}

/// Closes the store when the writer ends, however it ends.
struct Ending<'a>(&'a Writer);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.queue.abandon();
        self.0.watchers.close();
    }
}
