//! The engine in use, and when a fresh one takes its place:
//!
//! - **a write failed**: sled takes no other until it is opened again;
//! - **memory**: sled keeps touched pages for long; opened again, it holds nothing but where its pages are;
//! - **space**: its log grows to several times of what it holds; a copy of what it holds does not.
//!
//! One thread writes and replaces; others read, and wait a moment while the engine is replaced.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tideline_common::Digest;
use tracing::{debug, info, warn};

use super::bodies::{self, Ahead, Numbers, Records};
use super::change::{Change, Table};
use super::engine::{Engine, SEGMENT_BYTES};
use super::group::{self, Gathered, Group, cut};
use super::{Error, directory, record, space, stage};
use crate::write_watchdog::WriteWatchdog;

/// Longest wait of a reader for an engine that is being replaced, which takes some tens of milliseconds.
const READ_WAIT: Duration = Duration::from_secs(2);
/// Longest wait for readers to drop an engine. Each keeps it for one read.
const RELEASE_WAIT: Duration = Duration::from_secs(5);

/// Records that come into memory with one of them: sled's pages hold sixteen.
const PAGE_RECORDS: u64 = 16;
/// Bytes in memory for which a journal at rest is opened again, for sled takes two to three times as much: it writes up to a
/// segment and a snapshot, so that it is not worth it for less.
const RESIDENT_AT_REST_MAX: u64 = 256 << 10;
/// Bytes in memory for which a journal at work is opened again, which costs it up to a second with 50,000 objects. sled
/// takes two to three times as much for them.
const RESIDENT_AT_WORK_MAX: u64 = 6 << 20;

/// A log that was just written anew takes at most so many times of the keys and values that are in it, and [`FRESH_BYTES`]:
/// with each group that is put into it, sled writes the pages that are full by then once more.
pub(super) const FRESH_TIMES: u64 = 2;
/// Eight segments: the one that is being written, those that sled opens before it knows that another is free, and its snapshot.
pub(super) const FRESH_BYTES: u64 = 8 * SEGMENT_BYTES as u64;
/// The log may grow to so many times of the keys and values that are in it, and [`GROWTH_BYTES`], before it is written anew:
/// twice of what it takes then, so that at least half of it is gained.
pub(super) const GROWTH_TIMES: u64 = 2 * FRESH_TIMES;
/// Sixteen megabytes more, for which small journals are not worth it.
const GROWTH_BYTES: u64 = 16 << 20;
const _: () = assert!(GROWTH_BYTES >= 2 * FRESH_BYTES);
/// Bytes written until the size is checked again: one commit, as often as its bytes are written, and what sled's own thread
/// moves meanwhile.
const UNSEEN_BYTES: u64 = space::WRITTEN_TIMES * group::COMMIT_BYTES_MAX + FRESH_BYTES;

/// Bytes on disk that a journal takes at most, everything beside it included, where it had at most `live` bytes of keys and
/// values: the log, the copy that replaces it, and the reserve. More only where the disk has no room for the copy, or refuses
/// it, and while a journal that was set aside is kept.
pub fn disk_bytes_max(live: u64) -> u64 {
    let log = GROWTH_TIMES * live + GROWTH_BYTES + UNSEEN_BYTES;
    let copy = FRESH_TIMES * live + FRESH_BYTES;
    log + copy + space::RESERVE_BYTES
}
/// Bytes that are copied at once when the log is written anew.
const COPY_BYTES: u64 = 1 << 20;
/// Pause after the log could not be written anew, which may have read and written all of it, doubled each time up to
/// the second.
const REBUILD_AGAIN: (Duration, Duration) = (Duration::from_mins(1), Duration::from_hours(6));

#[derive(Debug)]
pub(super) struct Slot {
    path: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
    /// The engine refused a write, or is gone.
    refused: AtomicBool,
    /// The last batch was not written to its end.
    unfinished: AtomicBool,
    /// Bytes that the engine may hold in memory, at most.
    touched: AtomicU64,
    /// Bytes of the keys and values that it holds.
    live: AtomicU64,
    numbers: Numbers,
    /// Of callers that wait for writes.
    watchdog: Arc<WriteWatchdog>,
    /// When the log may be written anew after that failed, and how long the pause is.
    rebuild_again: Mutex<Option<(Instant, Duration)>>,
}

#[derive(Debug)]
enum State {
    Engine(Arc<Engine>),
    Replacing,
    /// Why there is none.
    Empty(String),
}

/// Whether anybody waits for the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    AtWork,
    AtRest,
}

/// How room is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tidying {
    /// The engine was closed and opened.
    Reopened,
    /// Another was filled with its content.
    Rewritten,
}

impl Slot {
    /// Takes an engine over that holds `live` bytes, of which `read` were just read.
    pub(super) fn new(path: &Path, engine: Engine, numbers: Numbers, live: u64, read: u64) -> Self {
        Self {
            path: path.to_owned(),
            state: Mutex::new(State::Engine(Arc::new(engine))),
            changed: Condvar::new(),
            refused: AtomicBool::new(false),
            unfinished: AtomicBool::new(false),
            touched: AtomicU64::new(read),
            live: AtomicU64::new(live),
            numbers,
            watchdog: Arc::default(),
            rebuild_again: Mutex::default(),
        }
    }

    pub(super) fn watchdog(&self) -> &WriteWatchdog {
        &self.watchdog
    }

    /// Where bodies will be when the present write is done.
    pub(super) fn ahead(&self) -> Ahead<'_> {
        Ahead::of(self, &self.numbers)
    }

    /// Writes groups of changes as [`Engine::commit`] does, after [`Slot::mend`].
    pub(super) fn commit(&self, groups: &[Group]) -> Result<(), Error> {
        let bytes = groups.iter().map(Group::bytes).sum();
        if bytes == 0 {
            return Ok(());
        }
        space::require_for_write(&self.path, bytes)?;
        self.mend()?;
        let outcome = self.engine()?.commit(groups);
        for change in groups.iter().flat_map(Group::changes) {
            self.touch(change.table, change.bytes());
        }
        self.written(outcome)
    }

    /// Takes note of what came of a write, and by how much there is more then.
    fn written(&self, outcome: Result<i64, Error>) -> Result<(), Error> {
        match outcome {
            Ok(grown) => {
                self.watchdog.moved();
                let live = self.live().saturating_add_signed(grown);
                // The one thread that writes is the only one that counts.
                self.live.store(live, Ordering::Relaxed);
                // A removed row was read first.
                self.touched.fetch_add(grown.min(0).unsigned_abs(), Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                self.refused.store(true, Ordering::Release);
                Err(error)
            }
        }
    }

    /// Opens an engine again that refused the last write, if the disk takes something by now. Until then the former engine
    /// stays, for it can still be read from. A batch that was not written to its end is finished first, as at a start: else it
    /// would be finished at the next one, after later writes.
    pub(super) fn mend(&self) -> Result<(), Error> {
        if self.refused.load(Ordering::Acquire) {
            // A fault outside of the journal is not damage of it.
            let of_the_disk = |error| Error::Write(tideline_runtime::exit::chain(&error));
            space::require_for_write(&self.path, 0).and_then(|()| space::probe(&self.path)).map_err(of_the_disk)?;
            self.renew()?;
            info!("the journal {:?} was opened again", self.path);
        }
        if self.unfinished.load(Ordering::Acquire) {
            space::require_for_write(&self.path, 0)?;
            let engine = self.engine()?;
            let mut finishing = Gathered::new(|groups: &[Group]| {
                space::require_for_write(&self.path, groups.iter().map(Group::bytes).sum())?;
                self.written(engine.commit(groups))
            });
            stage::finish(&engine, &mut |group| finishing.push(group).map(drop))?;
            finishing.commit()?;
            self.unfinished.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// A batch was not written to its end.
    pub(super) fn leave_unfinished(&self) {
        self.unfinished.store(true, Ordering::Release);
    }

    /// Wakes a commit that hangs; see [`Engine::poke`].
    pub(super) fn poke(&self) {
        if let State::Engine(engine) = &*self.lock() {
            let engine = Arc::clone(engine);
            // It may hang likewise, and then ends with the process.
            let spawned = std::thread::Builder::new().name("journal-poke".to_owned()).spawn(move || engine.poke());
            drop(spawned);
        }
    }

    /// Bytes of the keys and values that it holds.
    pub(super) fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.engine().map_or(0, |engine| engine.bytes())
    }

    /// Bytes on disk above which the log is written anew.
    pub(super) fn bytes_max(&self) -> u64 {
        GROWTH_TIMES * self.live() + GROWTH_BYTES
    }

    /// Frees disk space and memory, if it is worth it, and logs the outcome. A failure harms nothing yet, but a damaged
    /// journal can never be rewritten.
    pub(super) fn tidy(&self, activity: Activity) -> Option<(Tidying, Result<(), Error>)> {
        if self.refused.load(Ordering::Acquire) {
            return None;
        }
        let bytes = self.bytes();
        let (how, outcome) =
            if bytes > self.bytes_max() && self.may_rebuild() && space::has_room_for(&self.path, self.live()) {
                let outcome = self.rebuild(bytes);
                self.rebuilt(&outcome);
                (Tidying::Rewritten, outcome)
            } else {
                let resident = self.touched.load(Ordering::Relaxed).min(2 * bytes);
                let most = match activity {
                    Activity::AtWork => RESIDENT_AT_WORK_MAX,
                    Activity::AtRest => RESIDENT_AT_REST_MAX,
                };
                if activity == Activity::AtRest {
                    space::keep_reserve(&self.path);
                }
                if resident <= most {
                    return None;
                }
                (Tidying::Reopened, self.renew())
            };
        if let Err(error) = &outcome {
            // Where there is none now, the next write says so.
            warn!("the journal {:?} cannot be tidied: {}", self.path, tideline_runtime::exit::chain(error));
        }
        Some((how, outcome))
    }

    /// Opens the engine again.
    pub(super) fn renew(&self) -> Result<(), Error> {
        let begun = Instant::now();
        self.replace(|| Ok(()))?;
        debug!(took = ?begun.elapsed(), "the journal was opened again");
        Ok(())
    }

    /// Copies what the log holds to a new one, which takes its place.
    pub(super) fn rebuild(&self, before: u64) -> Result<(), Error> {
        let begun = Instant::now();
        let next = directory::next(&self.path)?;
        let outcome = self.copy_to(&next).and_then(|live| {
            self.replace(|| directory::swap(&self.path, &next))?;
            self.live.store(live, Ordering::Relaxed);
            Ok(())
        });
        if let Err(error) = outcome {
            // A copy that is not taken only takes room. Should it stay, the next one begins with removing it.
            let _ = directory::remove(&next);
            return Err(error);
        }
        let after = self.bytes();
        info!(before, after, took = ?begun.elapsed(), "the journal was rewritten");
        Ok(())
    }

    fn may_rebuild(&self) -> bool {
        let again = self.rebuild_again.lock().unwrap_or_else(PoisonError::into_inner);
        again.is_none_or(|(at, _)| at <= Instant::now())
    }

    fn rebuilt(&self, outcome: &Result<(), Error>) {
        let mut again = self.rebuild_again.lock().unwrap_or_else(PoisonError::into_inner);
        *again = outcome.is_err().then(|| {
            let pause = again.map_or(REBUILD_AGAIN.0, |(_, former)| REBUILD_AGAIN.1.min(former * 2));
            (Instant::now() + pause, pause)
        });
    }

    /// Returns the bytes of keys and values that were copied.
    fn copy_to(&self, path: &Path) -> Result<u64, Error> {
        let watchdog = Arc::clone(&self.watchdog);
        let copy = Self { watchdog, ..Self::new(path, Engine::open(path)?, Numbers::default(), 0, 0) };
        let lost = self.copy_bodies(&copy)?;
        for table in Table::ALL.iter().filter(|table| **table != Table::Bodies) {
            let mut after: Option<Vec<u8>> = None;
            loop {
                let mut part = self.engine()?.part(*table, after.as_deref(), COPY_BYTES)?;
                let Some(last) = part.last() else { break };
                after = Some(last.key.clone());
                for Change { table, key, value } in &part {
                    record::check(*table, key, value.as_deref().unwrap_or_default())?;
                    self.touch(Table::Meta, value.as_ref().map_or(0, Vec::len) as u64);
                }
                if *table == Table::Inputs {
                    part.retain(|change| !lost.contains(&change.key));
                }
                self.copy_part(&copy, part)?;
            }
        }
        copy.close();
        Ok(copy.live())
    }

    /// Copies the bodies that there are said to be, in their order, and returns those that cannot be read, as
    /// [`Table::Inputs`] names them: left out with what says that they are there, they are fetched again.
    fn copy_bodies(&self, copy: &Self) -> Result<BTreeSet<Vec<u8>>, Error> {
        let mut positions: Vec<(bodies::Position, Digest)> = Vec::new();
        self.engine()?.scan(Table::Inputs, |key, value| {
            positions.push((record::read(Table::Inputs, key, value)?, record::digest(key)?));
            self.touch(Table::Meta, value.len() as u64);
            Ok(())
        })?;
        positions.sort_unstable();
        let (mut lost, mut part, mut bytes) = (BTreeSet::new(), Vec::new(), 0);
        for (position, input) in positions {
            let key = position.key();
            let mut found = self.get(Table::Bodies, &key);
            if matches!(&found, Err(error @ Error::Io { .. }) if error.is_of_damage()) {
                found = self.get(Table::Bodies, &key);
            }
            match found {
                Ok(Some(value)) if record::check(Table::Bodies, &key, &value).is_ok() => {
                    let change = Change { table: Table::Bodies, key, value: Some(value) };
                    bytes += change.bytes();
                    part.push(change);
                }
                Err(error) if !error.is_of_damage() => return Err(error),
                Ok(_) | Err(_) => {
                    lost.insert(input.as_bytes().to_vec());
                }
            }
            if bytes >= COPY_BYTES {
                bytes = 0;
                self.copy_part(copy, std::mem::take(&mut part))?;
            }
        }
        self.copy_part(copy, part)?;
        if !lost.is_empty() {
            warn!("{} bodies cannot be read in the journal {:?}, and are fetched again", lost.len(), self.path);
        }
        Ok(lost)
    }

    fn copy_part(&self, copy: &Self, part: Vec<Change>) -> Result<(), Error> {
        copy.commit(&cut(part))?;
        for slot in [self, copy] {
            if slot.touched.load(Ordering::Relaxed) > RESIDENT_AT_WORK_MAX {
                slot.renew()?;
            }
        }
        Ok(())
    }

    /// Closes the engine, does something, and opens it again.
    fn replace(&self, between: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        self.close();
        let outcome = between().and_then(|()| open_existing(&self.path));
        let (state, outcome) = match outcome {
            Ok(engine) => (State::Engine(Arc::new(engine)), Ok(())),
            Err(error) => (State::Empty(tideline_runtime::exit::chain(&error)), Err(error)),
        };
        self.refused.store(outcome.is_err(), Ordering::Release);
        self.touched.store(0, Ordering::Relaxed);
        *self.lock() = state;
        self.changed.notify_all();
        outcome
    }

    fn close(&self) {
        let former = std::mem::replace(&mut *self.lock(), State::Replacing);
        let State::Engine(mut engine) = former else { return };
        let begun = Instant::now();
        // Dropped here, so that its files are closed when it is opened again.
        while let Err(shared) = Arc::try_unwrap(engine) {
            if begun.elapsed() > RELEASE_WAIT {
                return;
            }
            engine = shared;
            std::thread::yield_now();
        }
    }

    pub(super) fn engine(&self) -> Result<Arc<Engine>, Error> {
        let mut state = self.lock();
        let begun = Instant::now();
        loop {
            match &*state {
                State::Engine(engine) => return Ok(Arc::clone(engine)),
                State::Empty(why) => return Err(Error::Away(why.clone())),
                State::Replacing => {
                    let Some(left) = READ_WAIT.checked_sub(begun.elapsed()) else {
                        return Err(Error::Away("it is being opened".to_owned()));
                    };
                    state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    fn touch(&self, table: Table, bytes: u64) {
        let bytes = match table {
            // By digest: each on a page of its own.
            Table::Inputs => PAGE_RECORDS * bytes,
            // In the order in which they are worked off.
            Table::Meta
            | Table::Entries
            | Table::Policies
            | Table::Applied
            | Table::Removing
            | Table::Passed
            | Table::Held
            | Table::Unsent
            | Table::Ran
            | Table::Creating
            | Table::Kinds
            | Table::RestoredObject
            | Table::Staged
            | Table::Bodies => bytes,
        };
        self.touched.fetch_add(bytes, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records for Slot {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let value = self.engine()?.get(table, key)?;
        self.touch(table, value.as_ref().map_or(0, Vec::len) as u64);
        Ok(value)
    }
}

/// Opens an engine again: nothing new replaces files that somebody removed.
fn open_existing(path: &Path) -> Result<Engine, Error> {
    if path.join("db").exists() {
        let engine = Engine::open(path)?;
        if engine.get(Table::Meta, record::SCHEMA_KEY)?.is_some() {
            return Ok(engine);
        }
    }
    Err(Error::Damaged("its content is gone".to_owned()))
}
