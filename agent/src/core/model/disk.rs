//! Writes to the journal: one batch at a time; all others are collected for the next. A batch that fails is written again,
//! before anything later, until it succeeds.

use std::sync::Arc;
use std::time::Duration;

use tideline_common::{Monotonic, ObjectKey, Tombstone};

use super::change::Change;
use crate::core::interface::effect::{Effect, Effects, Op, OpId, PersistId};
use crate::core::interface::write::Write;
use crate::core::jitter::Jitter;

/// Wait after a failed write, doubled each time up to the second. A full disk is emptied by a person or a rotation.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Bytes of bodies that may wait for the disk or be on their way before no more are requested: as many as the journal brings
/// to the disk at once, and what two answers hold, so that neither waits for the other.
pub(in crate::core) const BODIES_WAITING_BYTES_MAX: usize = 6 << 20;

/// What may be done once a batch is on disk.
#[derive(Debug)]
pub(in crate::core) enum Then {
    Recorded(ObjectKey),
    Switched(Box<Change>),
    Enrolled,
    /// This creation of a Job may be sent.
    Create(OpId, Box<Op>),
    /// The fuse let this removal through, of this wave.
    Passed(Tombstone, i32),
}

#[derive(Debug, Default)]
pub(in crate::core) struct Disk {
    last: u64,
    writing: Option<Writing>,
    waiting: Batch,
    failures: u32,
    retry_at: Option<Monotonic>,
    problem: Option<String>,
}

/// A batch on its way to the disk. It is kept, and shared with whoever writes it, because it is needed again if the write
/// fails.
#[derive(Debug)]
struct Writing {
    /// None until it is tried again.
    id: Option<PersistId>,
    writes: Arc<Vec<Write>>,
    then: Vec<Then>,
    body_bytes: usize,
}

#[derive(Debug, Default)]
struct Batch {
    writes: Vec<Write>,
    then: Vec<Then>,
    body_bytes: usize,
}

impl Disk {
    pub(in crate::core) fn write(&mut self, write: Write) {
        if let Write::Body { text, .. } = &write {
            self.waiting.body_bytes += text.len();
        }
        self.waiting.writes.push(write);
    }

    /// Adds what is to be done once everything asked for so far is on disk.
    pub(in crate::core) fn then(&mut self, then: Then) {
        self.waiting.then.push(then);
    }

    /// Whether more bodies may be requested, with so many bytes of them on their way.
    pub(in crate::core) fn has_room_for_bodies(&self, coming: usize) -> bool {
        let writing = self.writing.as_ref().map_or(0, |writing| writing.body_bytes);
        coming + writing + self.waiting.body_bytes < BODIES_WAITING_BYTES_MAX
    }

    pub(in crate::core) fn is_idle(&self) -> bool {
        self.writing.is_none() && self.waiting.writes.is_empty()
    }

    /// Whether something is to be written anyway.
    pub(in crate::core) fn is_asked(&self) -> bool {
        !self.waiting.writes.is_empty()
    }

    pub(in crate::core) fn next_retry(&self) -> Option<Monotonic> {
        self.retry_at
    }

    /// Why the last write failed, if it did.
    pub(in crate::core) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    pub(in crate::core) fn flush(&mut self, now: Monotonic, out: &mut Effects) {
        if self.writing.is_none() && !self.waiting.writes.is_empty() {
            let Batch { writes, then, body_bytes } = std::mem::take(&mut self.waiting);
            self.writing = Some(Writing { id: None, writes: writes.into(), then, body_bytes });
        }
        let due = self.retry_at.is_none_or(|at| at <= now);
        if let Some(Writing { id: id @ None, writes, .. }) = &mut self.writing
            && due
        {
            self.retry_at = None;
            self.last += 1;
            *id = Some(PersistId(self.last));
            out.push(Effect::Persist { id: PersistId(self.last), writes: Arc::clone(writes) });
        }
    }

    /// Takes the end of a write and returns what may be done now.
    pub(in crate::core) fn persisted(
        &mut self,
        now: Monotonic,
        id: PersistId,
        result: Result<(), String>,
        jitter: &mut Jitter,
    ) -> Vec<Then> {
        match self.writing.take_if(|writing| writing.id == Some(id)) {
            None => Vec::new(),
            Some(writing) => match result {
                Ok(()) => {
                    self.failures = 0;
                    self.problem = None;
                    writing.then
                }
                Err(message) => {
                    self.failures = self.failures.saturating_add(1);
                    self.problem = Some(message);
                    self.retry_at = Some(now + jitter.half(self.failures, RETRY.0, RETRY.1));
                    self.writing = Some(Writing { id: None, ..writing });
                    Vec::new()
                }
            },
        }
    }
}
