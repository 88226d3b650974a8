//! What to do about an identity that a newer version of the agent wrote: nothing, until it can be read.
//!
//! Ending would only have the agent restarted over and over, and starting afresh would make it another target. So the process
//! stays, changes nothing in its cluster, says which version is needed, and retries by itself: a rollback is often followed by
//! the version that was rolled back.

use std::time::Duration;

use tideline_runtime::Backoff;
use tideline_runtime::health::Health;
use tokio::time::sleep;
use tracing::{error, info};

use super::Error;
use crate::metrics::Metrics;

/// Pauses between two attempts: around the first, doubled up to around the second. One costs a file and a Secret.
const AGAIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(1));

/// Retries until this version can read the identity, or there is another reason why not.
pub(crate) async fn when_readable<T, L: Future<Output = Result<T, Error>>>(
    health: &Health,
    metrics: &Metrics,
    mut load: impl FnMut() -> L,
) -> Result<T, Error> {
    let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
    let mut frozen = None;
    loop {
        let newer = match load().await {
            Err(newer @ Error::Newer { .. }) => newer,
            outcome => {
                if frozen.take().is_some() {
                    metrics.frozen(false);
                    info!("this version can read the identity again; the agent resumes");
                }
                return outcome;
            }
        };
        if frozen.is_none() {
            error!("agent frozen: {newer}. It changes nothing in its cluster and retries by itself");
            metrics.frozen(true);
            frozen = Some(health.gate("frozen"));
        }
        sleep(backoff.next_delay(None)).await;
    }
}

#[cfg(test)]
mod tests;
