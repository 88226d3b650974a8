use std::convert::Infallible;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;
use tideline_common::Monotonic;
use tideline_runtime::health::Heartbeat;
use tokio::sync::{Notify, watch};
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::engine::Engine;

/// Bounds of the buckets in which it is counted how long the engine was held, in seconds.
const HELD_BUCKETS: [f64; 10] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];
/// Nobody should wait longer for anybody else.
const HELD_LONG: Duration = Duration::from_millis(100);

/// The engine, shared by the tasks of a hub, with what wakes them.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    engine: Mutex<Engine>,
    /// How long the engine was held at a time, in seconds.
    held: Histogram,
    started: Instant,
    /// There is something to persist, or the timer moved.
    work: Notify,
    /// A status may have to be written.
    statuses: Notify,
    /// Agents wait to be told what was committed, or the next tick moved.
    ticks: Notify,
    /// Counts changes of what virtual resources show.
    version: watch::Sender<u64>,
}

impl Shared {
    pub(crate) fn new(engine: Engine) -> Self {
        let inner = Inner {
            engine: Mutex::new(engine),
            held: Histogram::new(HELD_BUCKETS),
            started: Instant::now(),
            work: Notify::new(),
            statuses: Notify::new(),
            ticks: Notify::new(),
            version: watch::Sender::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn now(&self) -> Monotonic {
        Monotonic::START + self.inner.started.elapsed()
    }

    /// The moment of `at` on the runtime's clock.
    pub(crate) fn instant(&self, at: Monotonic) -> Instant {
        self.inner.started + at.since(Monotonic::START)
    }

    /// How long the engine is held at a time, in seconds: whoever else asks it for anything waits so long.
    pub(crate) fn held(&self) -> Histogram {
        self.inner.held.clone()
    }

    /// Does one step, and wakes whoever has to go on from there.
    #[track_caller]
    pub(crate) fn step<T>(&self, step: impl FnOnce(&mut Engine, Monotonic) -> T) -> T {
        let now = self.now();
        let (result, work, look, moved, tick) = self.hold(|engine| {
            let (version, timer, described) = (engine.view_changes.number(), engine.timer(), engine.is_redescribed());
            let (standing, next) = (engine.statuses_to_write(), engine.next_tick());
            let result = step(engine, now);
            let work = engine.has_work() || engine.timer() != timer;
            // What is to be known of a target may be said in no report for long, as that several agents have its identity.
            let look = (!described && engine.is_redescribed()) || engine.statuses_to_write() > standing;
            let moved = Some(engine.view_changes.number()).filter(|number| *number != version);
            // Before anybody can read what it counts, and in the order of the steps.
            if let Some(version) = moved {
                self.inner.version.send_replace(version);
            }
            let tick = engine.is_telling() || engine.next_tick() != next;
            (result, work, look, moved, tick)
        });
        if work {
            self.inner.work.notify_one();
        }
        if moved.is_some() || look {
            self.inner.statuses.notify_one();
        }
        if tick {
            self.inner.ticks.notify_one();
        }
        result
    }

    /// Does one step that placement may have something to say about.
    #[track_caller]
    pub(crate) fn ingest(&self, step: impl FnOnce(&mut Engine, Monotonic)) {
        self.ingest_news(|engine, now| {
            step(engine, now);
            true
        });
    }

    /// The same, where the step says whether it may have: what this hub wrote itself comes back as no news.
    #[track_caller]
    pub(crate) fn ingest_news(&self, step: impl FnOnce(&mut Engine, Monotonic) -> bool) {
        let news = self.step(|engine, now| {
            let news = step(engine, now);
            if news {
                engine.told();
            }
            news
        });
        if news {
            self.inner.work.notify_one();
        }
    }

    /// Reads without changing anything.
    #[track_caller]
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Engine) -> T) -> T {
        self.hold(|engine| read(engine))
    }

    /// Changes what nobody is woken for.
    #[track_caller]
    pub(crate) fn read_mut<T>(&self, change: impl FnOnce(&mut Engine) -> T) -> T {
        self.hold(change)
    }

    pub(crate) async fn work(&self) {
        self.inner.work.notified().await;
    }

    pub(crate) async fn statuses(&self) {
        self.inner.statuses.notified().await;
    }

    pub(crate) fn version(&self) -> watch::Receiver<u64> {
        self.inner.version.subscribe()
    }

    #[track_caller]
    fn hold<T>(&self, does: impl FnOnce(&mut Engine) -> T) -> T {
        let mut engine = self.lock();
        let begun = std::time::Instant::now();
        let done = does(&mut engine);
        drop(engine);
        let held = begun.elapsed();
        self.inner.held.observe(held.as_secs_f64());
        if held >= HELD_LONG {
            debug!(?held, by = %Location::caller(), "everybody else had to wait");
        }
        done
    }

    /// A step that panicked has left the engine between two states: what follows says so by its own checks.
    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.inner.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ticks the engine when that is due, until `shutdown`: for the committer may plan or write for long. Of many agents that are
/// to be told something some are told at a time, with whatever else is to be done in between.
pub(crate) async fn tick(shared: Shared, shutdown: CancellationToken) -> Result<(), Infallible> {
    loop {
        let due = shared.read(Engine::next_tick).map(|at| shared.instant(at));
        let woken = async {
            tokio::select! {
                () = shared.inner.ticks.notified() => {}
                () = async { time::sleep_until(due.expect("the arm is off without a time")).await }, if due.is_some() => {}
            }
        };
        if shutdown.run_until_cancelled(woken).await.is_none() {
            return Ok(());
        }
        shared.step(Engine::tick);
        tokio::task::yield_now().await;
    }
}

/// Beats every so often until `shutdown`, while the engine can be asked something. A store that does not take writes does not
/// end that: the committer says so, and ends the process where a new one could do better.
pub(crate) async fn beat(
    shared: Shared,
    heartbeat: Heartbeat,
    every: Duration,
    shutdown: CancellationToken,
) -> Result<(), Infallible> {
    loop {
        shared.read(|_| ());
        heartbeat.beat();
        if shutdown.run_until_cancelled(time::sleep(every)).await.is_none() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tideline_runtime::health::Health;

    use super::*;
    use crate::ledger::Ledger;
    use crate::link::core::Config;
    use crate::removal_guards::Fuse;

    #[test]
    fn a_step_that_never_ends_is_told_as_stuck() {
        let fuse = Fuse::new(20);
        let engine = Engine::new(Config::default(), Duration::ZERO, fuse, Ledger::default(), BTreeMap::new());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let _entered = runtime.enter();
        let (shared, health, shutdown) = (Shared::new(engine), Health::new(), CancellationToken::new());
        let until = |stuck: &[&str]| {
            let begun = Instant::now();
            while health.stuck() != stuck {
                assert!(begun.elapsed() < Duration::from_mins(1), "never told as {stuck:?}");
                std::thread::yield_now();
            }
        };
        let heartbeat = health.heartbeat("engine", Duration::from_millis(200));
        let beating = runtime.spawn(beat(shared.clone(), heartbeat, Duration::from_millis(1), shutdown.clone()));
        let step = shared.lock();
        until(&["engine"]);
        drop(step);
        until(&[]);
        shutdown.cancel();
        runtime.block_on(beating).unwrap().unwrap();
    }
}
