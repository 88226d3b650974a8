//! How a journal is opened: for how long, what counts against it, and what becomes of one that cannot be used.
//!
//! An opening may take as long as it makes progress, or as the disk owes it an answer. The file `opening` beside the journal
//! counts the processes that died in it: three within one boot are no power cut, and the journal is taken for the cause. A
//! process that is asked to stop takes its own count back.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tideline_runtime::exit::chain;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::engine::Engine;
use super::load::{self, Contents};
use super::slot::{self, Slot};
use super::{Error, directory, group, space};
use crate::core::Loaded;

/// How often an opening is checked for progress, and for whether it is to be given up.
const CHECK_EVERY: Duration = Duration::from_millis(100);
/// Longest wait until a count was taken back. The process ends after it, where the disk hangs too.
const WITHDRAWN_WITHIN: Duration = Duration::from_millis(100);
/// Longest wait for anything to move: what a slow SD card does at once takes seconds.
pub(super) const STILL_MAX: Duration = Duration::from_mins(2);
/// When a long opening is logged.
const LATE_AFTER: Duration = Duration::from_secs(10);
/// Processes that may die over a journal, within one boot, before it is taken for the cause.
const DEATHS_MAX: u32 = 3;
/// Wait before a read that the medium refused is taken for damage.
const REREAD_AFTER: Duration = Duration::from_secs(1);
/// The thread that opens. sled has others, which read and write for it.
const THREAD: &str = "journal-open";
const ENGINE_THREADS: &str = "sled-io";

/// Opens the journal in `path`, and reads it; blocks until that is done, nothing moves any more, or `stop` is cancelled.
pub(super) fn open(path: &Path, stop: &CancellationToken) -> Result<(Slot, Loaded), Error> {
    let opening = Arc::new(Opening::new(path));
    let (answer, outcome) = sync_channel(1);
    // On a thread of its own, which may hang.
    std::thread::Builder::new()
        .name(THREAD.to_owned())
        .spawn({
            let opening = Arc::clone(&opening);
            // Nobody waits any more where the wait was given up.
            move || drop(answer.send(open_counted(&opening)))
        })
        .map_err(|source| Error::Io { action: "start a thread for", path: path.to_owned(), source })?;
    let begun = Instant::now();
    let (mut standstill, mut said, mut said_slow) = (Standstill { moved: 0, since: begun }, false, false);
    loop {
        match outcome.recv_timeout(CHECK_EVERY) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Disconnected) => return Err(Error::Closed),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if stop.is_cancelled() {
            opening.withdraw();
            return Err(Error::Stopped);
        }
        let seen = opening.seen();
        if standstill.lasts(Instant::now(), seen) {
            if is_measured() {
                opening.give_up();
            } else {
                // It may have got on all the time.
                opening.withdraw();
            }
            return Err(Error::StuckOpening { seconds: STILL_MAX.as_secs() });
        }
        if !said && begun.elapsed() > LATE_AFTER {
            said = true;
            warn!("opening the journal {path:?} takes long; the agent waits as long as the disk makes progress");
        }
        if !said_slow && seen == Seen::InTheDisk && begun.elapsed() > STILL_MAX {
            said_slow = true;
            warn!("the disk is slow to answer while the journal {path:?} is being opened; the agent waits for it");
        }
    }
}

/// The observed progress of an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The kernel keeps one of its threads until the disk has answered. Another process would wait for the same.
    InTheDisk,
    /// So much has moved.
    Moved(u64),
}

/// Whether something moves, or is the disk's to move.
#[derive(Debug)]
pub(super) struct Standstill {
    pub(super) moved: u64,
    pub(super) since: Instant,
}

impl Standstill {
    /// Takes an observation, and returns whether nothing has moved for too long, without the disk at fault.
    pub(super) fn lasts(&mut self, now: Instant, seen: Seen) -> bool {
        match seen {
            Seen::InTheDisk => self.since = now,
            Seen::Moved(moved) if moved != self.moved => *self = Self { moved, since: now },
            Seen::Moved(_) => {}
        }
        now.saturating_duration_since(self.since) > STILL_MAX
    }
}

/// One opening, as seen by its thread and by its waiting caller.
#[derive(Debug)]
pub(super) struct Opening {
    path: PathBuf,
    /// Records that were read, and groups that were written.
    steps: AtomicU64,
    count: Mutex<Count>,
}

/// What is to be noted of it beside the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Count {
    /// It is not being opened.
    None,
    /// It is, after so many processes that died over it.
    After(u32),
    /// Nobody waits for it any more, and the process ends: whatever it comes to now changes nothing.
    GivenUp,
}

impl Opening {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), steps: AtomicU64::new(0), count: Mutex::new(Count::None) }
    }

    fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// What changes as long as it gets on. Inside of sled, only the kernel knows that.
    fn seen(&self) -> Seen {
        if is_in_the_disk() {
            return Seen::InTheDisk;
        }
        Seen::Moved(self.steps.load(Ordering::Relaxed).wrapping_add(carried()))
    }

    /// How many processes died over it since the machine was booted.
    pub(super) fn deaths(&self) -> u32 {
        let noted = fs::read_to_string(marker(&self.path)).unwrap_or_default();
        let mut lines = noted.lines();
        let deaths = lines.next().and_then(|deaths| deaths.parse().ok());
        deaths.filter(|_| lines.next() == Some(boot().as_str())).unwrap_or(0)
    }

    /// Notes that it begins, so that it counts should the process die, and returns how many did before. Once is enough.
    pub(super) fn begin(&self) -> Result<u32, Error> {
        if let Count::After(deaths) = *self.count() {
            return Ok(deaths);
        }
        // The disk may hang in each of these: nobody else must wait for it.
        let deaths = self.deaths();
        self.pass_to(Count::After(deaths))?;
        if let Err(error) = note(&self.path, deaths + 1) {
            self.pass_to(Count::None)?;
            return Err(error);
        }
        if let Err(error) = self.require_wanted() {
            // It may have been taken back before it was noted.
            note(&self.path, deaths)?;
            return Err(error);
        }
        Ok(deaths)
    }

    /// Goes on to another count, unless it was given up.
    fn pass_to(&self, next: Count) -> Result<(), Error> {
        let mut count = self.count();
        if *count == Count::GivenUp {
            return Err(Error::Stopped);
        }
        *count = next;
        Ok(())
    }

    /// Notes that it came back, whatever came of it. Where that cannot be noted, what came of it is no less there.
    pub(super) fn end(&self) {
        // Those that died before may have done so over what this one did not come to.
        if !matches!(*self.count(), Count::After(_)) || self.pass_to(Count::None).is_err() {
            return;
        }
        if let Err(error) = note(&self.path, 0) {
            warn!("cannot reset the crash count of the journal, so this start counts as a crash: {}", chain(&error));
        }
    }

    /// Prevents any further change by it, and returns what was noted.
    fn give_up(&self) -> Count {
        std::mem::replace(&mut *self.count(), Count::GivenUp)
    }

    fn require_wanted(&self) -> Result<(), Error> {
        if *self.count() == Count::GivenUp { Err(Error::Stopped) } else { Ok(()) }
    }

    /// That the process ends says nothing of the journal: it was asked to stop, or nothing is known of what seems to hang.
    pub(super) fn withdraw(&self) {
        let Count::After(deaths) = self.give_up() else { return };
        let (done, noted) = sync_channel::<()>(0);
        let path = self.path.clone();
        // On a thread of its own, for the disk that keeps the opening may keep this.
        let spawned = std::thread::Builder::new().name("journal-count".to_owned()).spawn(move || {
            if let Err(error) = note(&path, deaths) {
                warn!(
                    "cannot reset the crash count of the journal, so this stopped start counts as a crash: {}",
                    chain(&error)
                );
            }
            drop(done);
        });
        drop(spawned);
        if noted.recv_timeout(WITHDRAWN_WITHIN) == Err(RecvTimeoutError::Timeout) {
            warn!("the disk hangs: a start that was given up may count against the journal {:?}", self.path);
        }
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that the threads of openings read and wrote. Always the same where the kernel does not count them.
pub(super) fn carried() -> u64 {
    let bytes = |task: &Path| -> u64 {
        let counts = fs::read_to_string(task.join("io")).unwrap_or_default();
        let of = |line: &str| line.strip_prefix("rchar: ").or(line.strip_prefix("wchar: "))?.parse::<u64>().ok();
        counts.lines().filter_map(of).sum()
    };
    tasks().map(|task| bytes(&task)).sum()
}

/// Whether the kernel counts what threads read and write. Where it does not, nothing is known of what seems to hang.
fn is_measured() -> bool {
    fs::read_to_string("/proc/thread-self/io").is_ok()
}

/// Whether a thread of an opening is in uninterruptible sleep, where it waits for a disk, or for a server that has its files.
fn is_in_the_disk() -> bool {
    tasks().any(|task| is_uninterruptible(&fs::read_to_string(task.join("stat")).unwrap_or_default()))
}

/// The state is what follows the name, which may hold anything, in parentheses.
pub(super) fn is_uninterruptible(stat: &str) -> bool {
    stat.rsplit_once(')').is_some_and(|(_, behind)| behind.trim_start().starts_with('D'))
}

/// The threads of openings.
fn tasks() -> impl Iterator<Item = PathBuf> {
    let is_ours = |task: &PathBuf| {
        let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
        name.trim() == THREAD || name.starts_with(ENGINE_THREADS)
    };
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.map(|task| task.path()).filter(is_ours)
}

/// Names the time since the machine was booted. Nothing where the kernel does not, so that every death counts.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn note(journal: &Path, deaths: u32) -> Result<(), Error> {
    let marker = marker(journal);
    if deaths > 0 {
        let written = fs::write(&marker, format!("{deaths}\n{}\n", boot()));
        return written.map_err(|source| Error::beside("write", marker, source));
    }
    match fs::remove_file(&marker) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome.map_err(|source| Error::beside("remove", marker, source)),
    }
}

fn marker(journal: &Path) -> PathBuf {
    journal.with_extension("opening")
}

/// Opens, reads and tidies. All of that counts: a journal that no process gets through with is not opened for ever.
pub(super) fn open_counted(opening: &Opening) -> Result<(Slot, Loaded), Error> {
    let outcome = open_mended(opening);
    opening.end();
    outcome
}

/// Opens and reads, and sees to what can be mended.
fn open_mended(opening: &Opening) -> Result<(Slot, Loaded), Error> {
    let path = &opening.path;
    let (engine, contents) = match once_more(path, || open_once(opening)) {
        Err(error) if error.is_of_damage() || matches!(error, Error::Newer { .. } | Error::UnderstandsMore { .. }) => {
            // The next process may have it open by now.
            opening.require_wanted()?;
            let newer = matches!(error, Error::Newer { .. } | Error::UnderstandsMore { .. });
            let aside = if newer { directory::set_aside_newer(path)? } else { directory::move_aside(path)? };
            warn!(
                "the journal {path:?} cannot be used ({}) and was moved to {aside:?}. The agent starts with an empty \
                 one: it changes nothing until it has read its desired set from the hub again",
                chain(&error)
            );
            // Only now: a crash before has the next start move it aside, too. The new one begins with none.
            opening.end();
            open_once(opening)?
        }
        outcome => outcome?,
    };
    let Contents { loaded, unnamed, numbers, live, read } = contents;
    let slot = Slot::new(path, engine, numbers, live, read);
    if let Err(error) = slot.commit(&group::cut(unnamed)) {
        debug!("unreferenced policies stay in the journal: {}", chain(&error));
    }
    // Damage is met again by the writer.
    let _ = slot.tidy(slot::Activity::AtRest);
    Ok((slot, loaded))
}

/// Reads again what the medium refused: that may pass.
pub(super) fn once_more<T>(path: &Path, mut read: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    match read() {
        Err(error @ Error::Io { .. }) if error.is_of_damage() => {
            warn!("the journal {path:?} cannot be read ({}); retrying once", chain(&error));
            std::thread::sleep(REREAD_AFTER);
            read()
        }
        outcome => outcome,
    }
}

/// Opens and reads once. Whatever speaks of damage comes as [`Error::Damaged`]: so does a panic of the engine, and a
/// journal that several processes died over (with `panic = "abort"` there is no other sign).
fn open_once(opening: &Opening) -> Result<(Engine, Contents), Error> {
    let path = &opening.path;
    space::require_for_opening(path)?;
    let existed = directory::prepare(path)?;
    let deaths = opening.begin()?;
    if let Some(why) = directory::marked_damaged(path) {
        return Err(Error::Damaged(format!("found while it was open: {why}")));
    }
    // One that is not there may just have been moved aside for that.
    if existed && deaths >= DEATHS_MAX {
        return Err(Error::Damaged(format!("{DEATHS_MAX} processes died while it was being opened")));
    }
    std::panic::catch_unwind(|| {
        let engine = Engine::open(path)?;
        let contents = load::load(path, &engine, existed, &|| opening.step())?;
        Ok((engine, contents))
    })
    .unwrap_or_else(|_panic| Err(Error::Damaged("the engine panicked over it".to_owned())))
}
