use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tideline_common::Monotonic;
use tideline_runtime::health::Heartbeat;
use tokio::sync::{Notify, watch};
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;

/// The engine, shared by the tasks of a hub, with what wakes them.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    engine: Mutex<Engine>,
    started: Instant,
    /// There is something to persist, or the timer moved.
    work: Notify,
    /// A status may have to be written.
    statuses: Notify,
    /// Counts changes of what virtual resources show.
    version: watch::Sender<u64>,
}

impl Shared {
    pub(crate) fn new(engine: Engine) -> Self {
        let inner = Inner {
            engine: Mutex::new(engine),
            started: Instant::now(),
            work: Notify::new(),
            statuses: Notify::new(),
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

    /// Does one step, and wakes whoever has to go on from there.
    pub(crate) fn step<T>(&self, step: impl FnOnce(&mut Engine, Monotonic) -> T) -> T {
        let now = self.now();
        let mut engine = self.lock();
        let (version, timer, described) = (engine.version, engine.timer(), engine.is_redescribed());
        let standing = engine.statuses_to_write();
        let result = step(&mut engine, now);
        let (moved, work) = (engine.version != version, engine.has_work() || engine.timer() != timer);
        // What is to be known of a target may be said in no report for long, as that several agents have its identity.
        let look = (!described && engine.is_redescribed()) || engine.statuses_to_write() > standing;
        let version = engine.version;
        drop(engine);
        if work {
            self.inner.work.notify_one();
        }
        if moved || look {
            self.inner.statuses.notify_one();
        }
        if moved {
            self.inner.version.send_replace(version);
        }
        result
    }

    /// Does one step that placement may have something to say about.
    pub(crate) fn ingest(&self, step: impl FnOnce(&mut Engine, Monotonic)) {
        self.ingest_news(|engine, now| {
            step(engine, now);
            true
        });
    }

    /// The same, where the step says whether it may have: what this hub wrote itself comes back as no news.
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
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Engine) -> T) -> T {
        read(&self.lock())
    }

    /// Changes what nobody is woken for.
    pub(crate) fn read_mut<T>(&self, change: impl FnOnce(&mut Engine) -> T) -> T {
        change(&mut self.lock())
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

    /// A step that panicked has left the engine between two states: what follows says so by its own checks.
    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.inner.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ticks every so often until `shutdown`, while the engine can be asked something. A store that does not take writes does not
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
    use crate::fuse::Fuse;
    use crate::ledger::Ledger;
    use crate::link::core::Config;

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
