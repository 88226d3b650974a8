//! State that survives a restart: the accepted set, its bodies, what was applied, what is being removed, what was not
//! reported.
//!
//! ```text
//!  write ──▶ queue (bounded) ──▶ one thread: gathers batches ─▶ records ─▶ engine (sled), fsync ──▶ answers
//!  body  ◀──────────────────────────────────────────────────────────────── engine
//! ```
//!
//! A batch is on disk when [`Journal::write`] returns, and what belongs together in it is written whole or not at
//! all. A journal that is damaged is moved aside, never repaired: the agent starts with an empty one, observes, and rebuilds it
//! from the hub and the marks in its cluster. Where damage keeps an open journal from being written, the file `damaged` in it
//! has the next opening move it aside, and the process ends.
//!
//! A disk that is full, read-only or failing refuses writes, which are retried until it takes them; the content can still be
//! read. Where the disk does not even let the journal be opened, the agent observes until it does. Beside the journal in the
//! same directory, each with its own extension: `opening`, which counts processes that died over it; `reserve`, room for a
//! full disk; `damaged-<n>`, moved aside; `newer`, of a version that this one cannot read; `next` and `former`, while it is
//! rewritten.
//!
//! Each mechanism is there for a fault, which a test below `tests` brings about:
//!
//! | mechanism | fault | test |
//! |---|---|---|
//! | a checksum over each value and its key | noise, zeros, pages of another time | `pages_of_zeros_or_noise_are_noticed` |
//! | the file `damaged` | damage that only a write meets | `a_rotten_page_of_bodies_has_another_journal_begun_when_it_is_to_be_written` |
//! | damage counts once it is met twice in a row | a medium that refuses one read | `damage_that_is_met_twice_in_a_row_stays`, `a_single_i_o_error_is_retried` |
//! | `damaged-<n>`: the first and the last are kept | a disk that is damaged again and again | `the_first_and_the_last_damaged_journals_are_kept` |
//! | a switch: parts, then a record that they are complete | a crash between two transactions of one set | `a_set_comes_with_its_removals_wherever_a_crash_comes` |
//! | an unfinished batch is finished first | a disk that refuses the second part | `a_batch_written_in_part_is_finished_before_anything_else_is_written` |
//! | a body comes and goes with its position | a crash between the two | `a_large_body_and_what_says_that_it_is_there_are_never_parted` |
//! | the count in `opening` | a journal over which the process dies | `a_journal_that_three_processes_died_over_is_set_aside` |
//! | an opening without a limit while it gets on, on a thread of its own | slow storage; a disk that hangs | `an_opening_takes_as_long_as_something_moves`, `a_stop_does_not_wait_for_a_hanging_disk` |
//! | an unreadable snapshot is renamed | sled dies over it | `an_unreadable_snapshot_is_renamed_and_the_journal_read_without_it` |
//! | room that a write leaves free | sled hangs on a full disk | `a_full_disk_refuses_writes_in_time_is_still_read_and_takes_them_again` |
//! | `reserve` | a full disk at the start | `a_full_disk_at_the_start_gives_up_the_reserve_and_is_read` |
//! | a sled that failed to write is woken and opened again | others fill the disk faster than it is checked | `an_engine_that_met_a_full_disk_ends_its_writes_and_is_opened_again` |
//! | a journal that is away is tried again | a disk that is read-only | `on_a_read_only_disk_the_journal_is_away_until_it_can_be_written` |
//! | the write watchdog; a bounded wait at the close | a write that hangs | `a_journal_that_hangs_says_so_in_time_and_lets_the_process_end` |
//! | what is open is never made anew | files that vanish | `files_that_vanish_while_it_is_open_are_never_replaced_by_new_ones` |
//! | the log is written anew, into `next`, then swapped with `former` | sled's log only grows; a crash meanwhile | `the_journal_stays_bounded_under_churn`, `a_crash_while_it_is_written_anew_loses_nothing` |
//! | a pause after a rewrite that failed | a rewrite for each batch | `a_failed_rewrite_is_not_retried_at_once` |
//! | `newer` | the way back to an earlier version | `a_newer_journal_is_set_aside_and_a_new_one_begun` |
//!
//! For no fault, but for memory: an engine that is closed and opened (`slot`), and pages that are judged and evicted (`engine`).
//! `tests/benches/rest.rs` and `upkeep.rs` measure what they leave.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tideline_common::Digest;
use tideline_runtime::exit::chain;
use tokio::sync::oneshot;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::cluster::BodyError;
use crate::core::{Loaded, Write};
use crate::write_watchdog::Disk;

mod bodies;
mod change;
mod directory;
mod engine;
mod error;
mod group;
mod load;
mod opening;
mod record;
mod slot;
mod space;
mod stage;
mod writer;

pub use error::Error;
use slot::Slot;
pub use slot::disk_bytes_max;
use writer::{Batch, QUEUE_MAX, Running, Writer};

/// Longest wait for the thread to end when the journal is closed. Acknowledged writes are on disk before.
pub(crate) const CLOSE_MAX: Duration = Duration::from_secs(5);
/// Wait before a disk that refused the journal is tried again, doubled each time up to the second.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// The agent's memory on disk. Closed, with everything written, when dropped.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    state: State,
}

#[derive(Debug)]
enum State {
    Open(Open),
    /// The disk does not let it be opened: nothing is known, nothing can be written.
    Away {
        why: String,
        first: First,
    },
}

/// What is to be done before an unavailable journal is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Nothing,
    /// Its content is out of date, and must not be read.
    Remove,
}

#[derive(Debug)]
struct Open {
    slot: Arc<Slot>,
    refused: bodies::Refused,
    queue: SyncSender<Batch>,
    running: Arc<AtomicBool>,
    done: std::sync::Mutex<std::sync::mpsc::Receiver<()>>,
}

impl Journal {
    /// Opens the journal in `path`, made if it is not there, and reads what the core starts with.
    ///
    /// Blocks. A damaged journal is moved aside with a warning and an empty one opened in its place.
    ///
    /// # Errors
    ///
    /// A newer version wrote it, another process holds it, or the disk does not let it be opened.
    pub fn open(path: &Path) -> Result<(Self, Loaded), Error> {
        Self::open_until(path, &CancellationToken::new())
    }

    /// As [`Journal::open`], and returns [`Error::Stopped`] soon after `stop` is cancelled.
    fn open_until(path: &Path, stop: &CancellationToken) -> Result<(Self, Loaded), Error> {
        let (slot, loaded) = opening::open(path, stop)?;
        let slot = Arc::new(slot);
        let (queue, batches) = sync_channel(QUEUE_MAX);
        // Nothing is ever sent: the receiver learns of the thread's end by the sender's drop.
        let (on_exit, done) = sync_channel(0);
        let running = Arc::new(AtomicBool::new(true));
        let writer = Writer {
            path: path.to_owned(),
            slot: Arc::clone(&slot),
            batches,
            running: Running(Arc::clone(&running)),
            on_exit,
        };
        std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || writer.run())
            .map_err(|source| Error::Io { action: "start the thread of", path: path.to_owned(), source })?;
        let open = Open { slot, refused: bodies::Refused::default(), queue, running, done: done.into() };
        Ok((Self { path: path.to_owned(), state: State::Open(open) }, loaded))
    }

    /// As [`Journal::open`]; where the disk refuses, stands in for the journal, empty and refusing writes, until
    /// [`Journal::open_when_possible`] returns.
    pub(crate) fn open_or_wait(path: &Path, stop: &CancellationToken) -> Result<(Self, Loaded), Error> {
        match Self::open_until(path, stop) {
            Err(error) if error.is_of_the_disk() => Ok(Self::stand_in(path, chain(&error), First::Nothing)),
            outcome => outcome,
        }
    }

    /// Removes a journal that is out of date. Where the disk refuses, returns a stand-in for a journal until
    /// [`Journal::open_when_possible`] has removed the present one and made another.
    pub(crate) fn discard_or_wait(path: &Path) -> Result<Option<(Self, Loaded)>, Error> {
        match discard(path) {
            Ok(()) => Ok(None),
            Err(error) if error.is_of_the_disk() => {
                let why = format!("what is there is out of date, and cannot be removed: {}", chain(&error));
                Ok(Some(Self::stand_in(path, why, First::Remove)))
            }
            Err(error) => Err(error),
        }
    }

    fn stand_in(path: &Path, why: String, first: First) -> (Self, Loaded) {
        (Self { path: path.to_owned(), state: State::Away { why, first } }, Loaded::default())
    }

    /// Opens a journal that is away as soon as the disk lets it, or returns [`Error::Stopped`] when `stop` is cancelled
    /// meanwhile.
    pub(crate) fn open_when_possible(
        &self,
        stop: CancellationToken,
    ) -> impl Future<Output = Result<(Self, Loaded), Error>> + Send + use<> {
        let path = self.path.clone();
        let first = match self.state {
            State::Away { first, .. } => first,
            State::Open(_) => First::Nothing,
        };
        let open = move |path: &Path| {
            if first == First::Remove {
                discard(path)?;
            }
            Self::open_until(path, &stop)
        };
        let open = Arc::new(open);
        async move {
            let mut wait = AGAIN.0;
            loop {
                sleep(wait).await;
                wait = AGAIN.1.min(wait * 2);
                let (tried, open) = (path.clone(), Arc::clone(&open));
                // Comes back: what hangs is given up on.
                match tokio::task::spawn_blocking(move || open(&tried)).await.map_err(|_panicked| Error::Closed)? {
                    Err(error) if error.is_of_the_disk() => {
                        debug!("the journal still cannot be opened: {}", chain(&error));
                    }
                    outcome => return outcome,
                }
            }
        }
    }

    /// Why there is none, if there is none.
    pub(crate) fn away(&self) -> Option<&str> {
        match &self.state {
            State::Open(_) => None,
            State::Away { why, .. } => Some(why),
        }
    }

    /// Writes all of `writes`; they are on disk when the future returns. A crash before leaves all of them or none, except
    /// independent writes: some bodies may have come, or have not gone yet; and of a batch that has nothing else than
    /// [`Write::Applied`] and [`Write::Passed`], the first ones may be there. Batches are written in the order of the calls,
    /// whether or not the futures are polled.
    ///
    /// After [`Error::Stuck`] they may still be written later; writing them again is harmless.
    ///
    /// # Errors
    ///
    /// The disk refused the batch, which may be written again, or hangs ([`Error::Stuck`]); or the journal is closed or
    /// away.
    pub fn write<W: Into<Arc<Vec<Write>>>>(
        &self,
        writes: W,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<W> {
        let (answer, outcome) = oneshot::channel();
        let writes = writes.into();
        let queued = match &self.state {
            State::Away { why, .. } => Err(Error::Away(why.clone())),
            State::Open(Open { queue, slot, .. }) => match queue.try_send(Batch { writes, answer }) {
                Ok(()) => Ok(Arc::clone(slot)),
                Err(TrySendError::Full(_)) => Err(Error::Stuck),
                Err(TrySendError::Disconnected(_)) => Err(Error::Closed),
            },
        };
        async move {
            let slot = queued?;
            // Should it be sled that forgot it, it is woken.
            match slot.watchdog().wait(outcome, || slot.poke()).await {
                Some(answered) => answered.unwrap_or(Err(Error::Closed)),
                None => Err(Error::Stuck),
            }
        }
    }

    /// Reads a body. Takes microseconds where the page is cached, one disk read otherwise.
    ///
    /// # Errors
    ///
    /// [`Error::NoBody`] if it is not there; otherwise the disk refused it, it is damaged, or the journal is closed or away.
    pub fn body(&self, input: Digest) -> Result<Arc<str>, Error> {
        match &self.state {
            State::Open(Open { slot, refused, .. }) => refused.judge(input, bodies::read(&**slot, input)),
            State::Away { why, .. } => Err(Error::Away(why.clone())),
        }
    }

    /// Its thread writes no more, by itself: the journal is damaged, or the engine panicked. Only another process can go on.
    pub(crate) fn ended(&self) -> bool {
        matches!(&self.state, State::Open(Open { running, .. }) if !running.load(Ordering::Acquire))
    }

    /// Whether writes come back.
    pub(crate) fn disk(&self) -> Disk {
        match &self.state {
            State::Open(Open { slot, .. }) => slot.watchdog().disk(),
            State::Away { .. } => Disk::Answers,
        }
    }

    /// Bytes of the keys and values in it.
    pub fn live_bytes(&self) -> u64 {
        match &self.state {
            State::Open(Open { slot, .. }) => slot.live(),
            State::Away { .. } => 0,
        }
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        match &self.state {
            State::Open(Open { slot, .. }) => slot.bytes(),
            State::Away { .. } => 0,
        }
    }
}

impl crate::cluster::Bodies for Journal {
    fn body(&self, input: Digest) -> Result<Arc<str>, BodyError> {
        Self::body(self, input).map_err(|error| match error {
            // To be had from the hub again.
            Error::NoBody(_) | Error::Damaged(_) => BodyError::Missing(chain(&error)),
            error => BodyError::Unavailable(chain(&error)),
        })
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let closed = State::Away { why: "it is closed".to_owned(), first: First::Nothing };
        let State::Open(open) = std::mem::replace(&mut self.state, closed) else { return };
        let Open { slot, refused: _, queue, running: _, done } = open;
        let disk = slot.watchdog().disk();
        // The thread's is the last, and it may hang over closing the engine; this one must not.
        drop(slot);
        drop(queue);
        // A hanging thread does not end; this process does, and is restarted.
        if disk == Disk::Stuck {
            return;
        }
        let done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        if done.recv_timeout(CLOSE_MAX) == Err(RecvTimeoutError::Timeout) {
            warn!("the journal {:?} did not close in time; what was acknowledged is on disk", self.path);
        }
    }
}

/// Removes a journal that is out of date, if there is one.
pub(crate) fn discard(path: &Path) -> Result<(), Error> {
    if directory::discard(path)? {
        warn!(
            "journal {path:?} is outdated (another process used this identity since) and was removed; it is rebuilt \
             from the hub and the cluster"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
