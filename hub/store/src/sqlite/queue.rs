//! The bounded queue in front of the writer thread.

use super::limits::{GROUP_BYTES, QUEUE_COMMITS};
use super::locked;
use crate::{Commit, CommitOutcome, Error, Op, Revision};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::{Semaphore, oneshot};

/// What the writer is asked to do.
pub(super) enum Job {
    Commit(PendingCommit),
    Compact(PendingCompaction),
}

pub(super) struct PendingCommit {
    pub(super) commit: Commit,
    pub(super) bytes: usize,
    pub(super) reply: oneshot::Sender<Result<CommitOutcome, Error>>,
}

pub(super) struct PendingCompaction {
    pub(super) before: Revision,
    pub(super) reply: oneshot::Sender<Result<(), Error>>,
}

/// How long the writer may wait for jobs.
#[derive(Clone, Copy)]
pub(super) enum Patience {
    /// It has other work.
    None,
    /// It has something to do then.
    Until(Instant),
    Endless,
}

pub(super) struct Queue {
    slots: Semaphore,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self { slots: Semaphore::new(QUEUE_COMMITS), waiting: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits for a free slot, then queues the job. Dropped while waiting, it leaves nothing behind.
    pub(super) async fn push(&self, job: Job) -> Result<(), Error> {
        let slot = self.slots.acquire().await.map_err(|_closed| Error::Closed)?;
        let mut waiting = locked(&self.waiting);
        if waiting.closed {
            return Err(Error::Closed);
        }
        slot.forget();
        waiting.jobs.push_back(job);
        self.changed.notify_one();
        Ok(())
    }

    /// Takes what is queued, as much as makes one group. `None` once closed and drained.
    pub(super) fn take(&self, patience: Patience) -> Option<Vec<Job>> {
        let mut waiting = locked(&self.waiting);
        while waiting.jobs.is_empty() && !waiting.closed {
            waiting = match patience {
                Patience::None => return Some(Vec::new()),
                Patience::Endless => self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Patience::Until(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Some(Vec::new());
                    }
                    self.changed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        let mut group = Vec::new();
        let mut bytes = 0;
        while bytes < GROUP_BYTES
            && let Some(job) = waiting.jobs.pop_front()
        {
            bytes += match &job {
                Job::Commit(pending) => pending.bytes,
                Job::Compact(_) => 0,
            };
            group.push(job);
        }
        drop(waiting);
        self.slots.add_permits(group.len());
        (!group.is_empty()).then_some(group)
    }

    /// Refuses new jobs; those queued are still taken.
    pub(super) fn close(&self) {
        self.slots.close();
        locked(&self.waiting).closed = true;
        self.changed.notify_all();
    }

    /// Drops what nobody will take any more; their callers see `Error::Closed`.
    pub(super) fn abandon(&self) {
        self.close();
        let abandoned = std::mem::take(&mut locked(&self.waiting).jobs);
        drop(abandoned);
    }
}

/// Bytes of the keys and values of a commit.
pub(super) fn size_of(commit: &Commit) -> usize {
    let compared: usize = commit.compare.iter().map(|compare| super::compared_key(compare).len()).sum();
    let written: usize = commit
        .ops
        .iter()
        .map(|op| match op {
            Op::Put(key, value) => key.len() + value.len(),
            Op::Delete(key) => key.len(),
        })
        .sum();
    compared + written
}
