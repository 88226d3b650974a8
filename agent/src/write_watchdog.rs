//! Bounds the wait for a write to the disk: reports it when late, and gives up when it does not return. A blocked thread
//! cannot be freed, so only a new process can continue. A slow disk that makes progress does not count: a large set may
//! take minutes.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

/// When a write is taken to hang. Four megabytes take seconds on a slow SD card. Tests have a disk in memory, and no minute.
const LATE_AFTER: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });
/// Longest wait after that. A write that takes longer never returns.
const LATE_MAX: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 60 });
/// Longest wait for anything to move, in seconds.
pub(crate) const WAIT_MAX_SECONDS: u64 = LATE_AFTER.as_secs() + LATE_MAX.as_secs();

/// How the disk did with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Disk {
    Answers,
    /// Something hangs, and may still come back.
    Late,
    /// Something hung until it was given up.
    Stuck,
}

#[derive(Debug, Default)]
pub(crate) struct WriteWatchdog {
    moved: Notify,
    late: AtomicUsize,
    stuck: AtomicBool,
}

impl WriteWatchdog {
    /// Waits for `work`, which another thread does; calls `poke` when it is late. None if it was given up.
    pub(crate) async fn wait<T>(&self, work: impl Future<Output = T>, poke: impl Fn()) -> Option<T> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Some(done),
                () = self.moved.notified() => continue,
                () = sleep(LATE_AFTER) => {}
            }
            let _late = Late::of(&self.late);
            poke();
            tokio::select! {
                done = &mut work => return Some(done),
                () = self.moved.notified() => {}
                () = sleep(LATE_MAX) => {
                    self.stuck.store(true, Ordering::Release);
                    return None;
                }
            }
        }
    }

    /// A part of the work is done, and the waiting caller starts to count anew.
    pub(crate) fn moved(&self) {
        self.moved.notify_waiters();
    }

    pub(crate) fn disk(&self) -> Disk {
        if self.stuck.load(Ordering::Acquire) {
            Disk::Stuck
        } else if self.late.load(Ordering::Acquire) > 0 {
            Disk::Late
        } else {
            Disk::Answers
        }
    }
}

/// Counts as late until it is dropped, as with a wait that is broken off.
struct Late<'a>(&'a AtomicUsize);

impl<'a> Late<'a> {
    fn of(late: &'a AtomicUsize) -> Self {
        late.fetch_add(1, Ordering::AcqRel);
        Self(late)
    }
}

impl Drop for Late<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;

    use tokio::sync::oneshot;
    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_slow_write_is_reported_and_a_hanging_one_given_up() {
        let watchdog = Arc::new(WriteWatchdog::default());
        let (done, work) = oneshot::channel();
        let waiting = tokio::spawn({
            let watchdog = Arc::clone(&watchdog);
            async move { watchdog.wait(work, || ()).await }
        });
        sleep(LATE_AFTER / 2).await;
        assert_eq!(watchdog.disk(), Disk::Answers);
        sleep(LATE_AFTER).await;
        assert_eq!(watchdog.disk(), Disk::Late);
        done.send(7).expect("somebody waits");
        assert_eq!(waiting.await.expect("no panic"), Some(Ok(7)));
        assert_eq!(watchdog.disk(), Disk::Answers, "it came back");

        let broken_off = timeout(LATE_AFTER * 2, watchdog.wait(pending::<()>(), || ())).await;
        assert!(broken_off.is_err());
        assert_eq!(watchdog.disk(), Disk::Answers, "nobody waits");

        let poked = AtomicBool::new(false);
        assert_eq!(watchdog.wait(pending::<()>(), || poked.store(true, Ordering::Release)).await, None);
        assert!(poked.into_inner());
        assert_eq!(watchdog.disk(), Disk::Stuck);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_makes_progress_is_never_given_up() {
        let watchdog = Arc::new(WriteWatchdog::default());
        let (done, work) = oneshot::channel();
        let waiting = tokio::spawn({
            let watchdog = Arc::clone(&watchdog);
            async move { watchdog.wait(work, || ()).await }
        });
        for _part in 0..2 * WAIT_MAX_SECONDS {
            sleep(LATE_AFTER / 2).await;
            assert_eq!(watchdog.disk(), Disk::Answers);
            watchdog.moved();
        }
        sleep(LATE_AFTER + LATE_MAX / 2).await;
        assert_eq!(watchdog.disk(), Disk::Late);
        watchdog.moved();
        sleep(LATE_AFTER / 2).await;
        assert_eq!(watchdog.disk(), Disk::Answers, "it goes on");
        done.send(7).expect("somebody waits");
        assert_eq!(waiting.await.expect("no panic"), Some(Ok(7)));
    }
}
