use std::fmt::Display;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, error, error_span, info, warn};

/// How long the tasks of a run may take to end once it was asked to.
pub const GRACE: Duration = Duration::from_secs(22);
/// How long a process may take to end after the signal, whatever hangs. Kubernetes kills after 30 s by default, and then
/// nothing says why.
const END_MAX: Duration = Duration::from_secs(27);
const _: () = assert!(GRACE.as_secs() < END_MAX.as_secs());

/// The signal for a write beyond RLIMIT_FSIZE: this number everywhere but on MIPS and SPARC.
const SIGXFSZ: i32 = 25;

/// A task ended that should not have.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the task {task} ended: {why}")]
pub struct TaskError {
    pub task: &'static str,
    pub why: String,
}

/// Every task of a run, and the one way it ends. Cheap to clone; all clones are the same run.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    token: CancellationToken,
    tracker: TaskTracker,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    failure: Option<TaskError>,
    aborts: Vec<AbortHandle>,
}

impl Shutdown {
    pub fn new() -> Self {
        Self::default()
    }

    /// A run that ends with `token`, for embedders.
    pub fn with_token(token: CancellationToken) -> Self {
        Self { token, ..Self::default() }
    }

    /// Cancelled when the run is to end.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Asks every task to end.
    pub fn begin(&self) {
        self.token.cancel();
    }

    /// Runs a task that lives as long as the run. If it ends before the run is asked to, or fails, or panics, the whole
    /// run ends with that as its error.
    pub fn spawn<E: Display + Send + 'static>(
        &self,
        name: &'static str,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        let run = self.clone();
        let inner = tokio::spawn(task.instrument(error_span!("task", name)));
        self.remember(inner.abort_handle());
        self.tracker.spawn(async move {
            let why = match inner.await {
                Ok(Ok(())) if run.token.is_cancelled() => return,
                Ok(Ok(())) => "it returned".to_owned(),
                Ok(Err(error)) => error.to_string(),
                Err(stopped) if stopped.is_cancelled() => return,
                Err(panicked) => panicked.to_string(),
            };
            run.fail(TaskError { task: name, why });
        });
    }

    /// Ends the run at SIGINT or SIGTERM, and the process at the second, or when it has not ended by itself in time: a thread
    /// that hangs in a disk hears of no token. A write beyond the largest file that is allowed
    /// (RLIMIT_FSIZE) fails from now on, as one on a full disk does, and no longer ends the process.
    ///
    /// # Errors
    ///
    /// The system does not let signals be handled.
    pub fn on_signals(&self) -> std::io::Result<()> {
        use tokio::signal::unix::{SignalKind, signal};
        // It stays handled, whether or not anybody listens.
        drop(signal(SignalKind::from_raw(SIGXFSZ))?);
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let run = self.clone();
        // Not tracked: it must not keep the run from ending.
        tokio::spawn(async move {
            for first in [true, false] {
                let name = tokio::select! {
                    _ = interrupt.recv() => "SIGINT",
                    _ = terminate.recv() => "SIGTERM",
                };
                if first {
                    info!(signal = name, "stopping; a second signal stops at once");
                    end_in_time();
                    run.begin();
                } else {
                    warn!(signal = name, "stopped at once");
                    std::process::exit(i32::from(crate::exit::FAILURE));
                }
            }
        });
        Ok(())
    }

    /// Waits until the run was asked to end and every task has ended, and says why if a task failed. Tasks that do not
    /// end within the grace period are aborted.
    ///
    /// # Errors
    ///
    /// A task failed, panicked, or ended unasked.
    pub async fn finished(self) -> Result<(), TaskError> {
        self.token.cancelled().await;
        self.tracker.close();
        if tokio::time::timeout(GRACE, self.tracker.wait()).await.is_err() {
            let aborts = std::mem::take(&mut self.lock().aborts);
            let late = aborts.iter().filter(|abort| !abort.is_finished()).count();
            warn!(late, seconds = GRACE.as_secs(), "some tasks did not stop in time and are aborted");
            for abort in aborts {
                abort.abort();
            }
        }
        let failure = self.lock().failure.take();
        failure.map_or(Ok(()), Err)
    }

    fn fail(&self, failure: TaskError) {
        error!(task = failure.task, why = failure.why, "a task ended that should not have; stopping");
        self.lock().failure.get_or_insert(failure);
        self.begin();
    }

    fn remember(&self, abort: AbortHandle) {
        let mut shared = self.lock();
        shared.aborts.retain(|abort| !abort.is_finished());
        shared.aborts.push(abort);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Sees to it that the process ends, on a thread that waits for nothing else.
fn end_in_time() {
    let watch = std::thread::Builder::new().name("end".to_owned()).spawn(|| {
        std::thread::sleep(END_MAX);
        error!(seconds = END_MAX.as_secs(), "the process did not stop in time because something hangs; it is killed");
        std::process::exit(i32::from(crate::exit::FAILURE));
    });
    if let Err(error) = watch {
        warn!("no thread can be started that sees to a stop in time: {error}");
    }
}

#[cfg(test)]
mod tests;
