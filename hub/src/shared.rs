use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tideline_common::Monotonic;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

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
        let (version, timer) = (engine.version, engine.timer());
        let result = step(&mut engine, now);
        let (moved, work) = (engine.version != version, engine.has_work() || engine.timer() != timer);
        let resolved = engine.take_resolved();
        let version = engine.version;
        drop(engine);
        if work {
            self.inner.work.notify_one();
        }
        if moved || resolved {
            self.inner.statuses.notify_one();
        }
        if moved {
            self.inner.version.send_replace(version);
        }
        result
    }

    /// Does one step that placement may have something to say about.
    pub(crate) fn ingest(&self, step: impl FnOnce(&mut Engine, Monotonic)) {
        self.step(|engine, now| {
            step(engine, now);
            engine.told();
        });
        self.inner.work.notify_one();
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
