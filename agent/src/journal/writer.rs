//! The thread that writes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tracing::warn;

use super::group::{Gathered, Group, Reached};
use super::slot::{Activity, Slot, Tidying};
use super::{Error, directory, stage};
use crate::core::Write;

/// Batches that may wait for the disk. The core has one under way at a time; the rest are late repetitions of it.
pub(super) const QUEUE_MAX: usize = 16;
/// How long nothing is written until the journal is at rest. Also how often that is checked.
const REST_AFTER: Duration = Duration::from_secs(15);

/// Records of applied objects that come together are of a sync, and more are on their way: each commit costs the disk much the
/// same whatever it holds, so these wait until the last one is so long ago, and later writes gather behind them.
const GATHER: Duration = Duration::from_millis(20);

/// Writes that belong together, and their waiting caller.
pub(super) struct Batch {
    pub(super) writes: Arc<Vec<Write>>,
    pub(super) answer: oneshot::Sender<Result<(), Error>>,
}

/// Whether nothing begins when these are on disk: they only record applies, of several objects.
pub(super) fn may_gather(writes: &[Write]) -> bool {
    writes.len() > 1 && writes.iter().all(|write| matches!(write, Write::Applied { .. }))
}

pub(super) struct Writer {
    pub(super) path: PathBuf,
    pub(super) slot: Arc<Slot>,
    pub(super) batches: Receiver<Batch>,
    pub(super) running: Running,
    /// Dropped, after the engine, when the thread ends.
    pub(super) on_exit: SyncSender<()>,
}

/// Says when the thread writes no more, for whatever reason.
pub(super) struct Running(pub(super) Arc<AtomicBool>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Writer {
    /// Writes batches in order, until no caller is left. Batches that wait share one flush.
    pub(super) fn run(self) {
        let Self { path, slot, batches, running, on_exit } = self;
        let mut last: Option<Instant> = None;
        // What no write touches may be damaged too. The journal is not written anew then, and grows until nothing can be
        // written.
        let (mut damage, mut rot) = (Damage::default(), BTreeMap::<Tidying, Damage>::new());
        loop {
            let (outcome, tidied) = match batches.recv_timeout(REST_AFTER) {
                Ok(first) => {
                    let since = last.map_or(GATHER, |last| last.elapsed());
                    if may_gather(&first.writes)
                        && let Some(left) = GATHER.checked_sub(since)
                    {
                        std::thread::sleep(left);
                    }
                    last = Some(Instant::now());
                    let batches = std::iter::once(first).chain(batches.try_iter().take(QUEUE_MAX - 1));
                    let outcome = commit(&slot, batches);
                    (Some(outcome), slot.tidy(Activity::AtWork))
                }
                // Where nothing is to be written, something may be to be read. That it can be says nothing of what a write met.
                Err(RecvTimeoutError::Timeout) => (slot.mend().err().map(Err), slot.tidy(Activity::AtRest)),
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let rotten = tidied.and_then(|(how, outcome)| rot.entry(how).or_default().met_again(outcome));
            if let Some(why) = outcome.and_then(|outcome| damage.met_again(outcome)).or(rotten)
                && is_given_up(&path, &why)
            {
                break;
            }
        }
        drop(running);
        // Remaining callers learn that it has ended. The engine is closed here, and not by a caller that must not hang.
        batches.into_iter().for_each(drop);
        drop(slot);
        drop(on_exit);
    }
}

/// Whether damage is met at each attempt. A batch that failed is written again before any other, after the journal was opened
/// again: damage that is met then, too, is permanent.
#[derive(Debug, Default)]
pub(super) struct Damage {
    met: bool,
}

impl Damage {
    /// Returns damage that was met for the second time in a row.
    pub(super) fn met_again(&mut self, outcome: Result<(), Error>) -> Option<Error> {
        match outcome {
            Err(error) if error.is_of_damage() => std::mem::replace(&mut self.met, true).then_some(error),
            // What the disk refuses meanwhile says nothing of it.
            Err(_) => None,
            Ok(()) => {
                self.met = false;
                None
            }
        }
    }
}

/// Has the next opening begin another journal, for which the process has to end.
fn is_given_up(path: &Path, damage: &Error) -> bool {
    let why = tideline_runtime::exit::chain(damage);
    match directory::mark_damaged(path, &why) {
        Ok(()) => {
            warn!("the journal {path:?} is damaged and takes no writes; the next start moves it aside: {why}");
            true
        }
        Err(error) => {
            let error = tideline_runtime::exit::chain(&error);
            warn!("the journal {path:?} is damaged and takes no writes, which cannot be noted in it ({error}): {why}");
            false
        }
    }
}

fn commit(slot: &Slot, batches: impl Iterator<Item = Batch>) -> Result<(), Error> {
    // First, for where bodies are is read before they are written.
    let (mut outcome, mut answers) = (slot.mend(), Vec::new());
    let mut bodies = slot.ahead();
    let mut gathered = Gathered::new(|groups: &[Group]| slot.commit(groups));
    let mut push = |group| {
        if gathered.push(group)? == Reached::Disk {
            // Damage is met again, when nothing waits.
            let _ = slot.tidy(Activity::AtWork);
        }
        Ok(())
    };
    for Batch { writes, answer } in batches {
        outcome = outcome.and_then(|()| stage::groups(&writes, &mut bodies, &mut push));
        answers.push(answer);
    }
    let outcome = outcome.and_then(|()| gathered.commit()).inspect_err(|_| slot.leave_unfinished());
    let refused = outcome.as_ref().err().map(|error| match error {
        Error::Write(why) => why.clone(),
        error => tideline_runtime::exit::chain(error),
    });
    for answer in answers {
        // Nobody waits any more where the wait was given up.
        let _ = answer.send(refused.clone().map_or(Ok(()), |why| Err(Error::Write(why))));
    }
    outcome
}
