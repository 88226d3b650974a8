//! The one loop of small control tasks: desired state behind an `Arc`, shutdown races the work, and the resync deadline
//! survives wakes.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{self, Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

/// Why a pass began. For the log; a pass does the same whatever woke it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    Startup,
    DesiredChanged,
    Resync,
}

/// Brings something in line with what is desired. Failures are part of the outcome.
pub trait Reconciler: Send {
    type Desired: Send + Sync;
    type Outcome: Send + Sync;
    /// A full pass at least this often.
    const RESYNC: Duration;

    /// Observes, plans, executes. Dropped at any await when the run ends.
    fn reconcile(&mut self, desired: &Self::Desired) -> impl Future<Output = Self::Outcome> + Send;
}

/// Runs passes until `shutdown`, or until nobody can change `desired` any more.
pub async fn run<R: Reconciler>(
    mut reconciler: R,
    mut desired: watch::Receiver<Arc<R::Desired>>,
    outcome: watch::Sender<Option<(Wake, R::Outcome)>>,
    shutdown: CancellationToken,
) {
    let mut wake = Wake::Startup;
    let mut resync = time::interval_at(Instant::now() + R::RESYNC, R::RESYNC);
    resync.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let snapshot = Arc::clone(&desired.borrow_and_update());
        let Some(done) = shutdown.run_until_cancelled(reconciler.reconcile(&snapshot)).await else { return };
        outcome.send_replace(Some((wake, done)));

        // Every arm is cancel-safe and none awaits in its body. The resync goes first: a state that changes all the time
        // must not starve it.
        wake = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            _ = resync.tick() => Wake::Resync,
            changed = desired.changed() => match changed {
                Ok(()) => Wake::DesiredChanged,
                Err(_closed) => return,
            },
        };
    }
}

#[cfg(test)]
mod tests;
