//! Waiting before trying again: exponential, with full jitter. For edges; cores compute their own from a seed.
//!
//! The only file that names the `backoff` crate, which is no longer maintained: what it does for us is one growing
//! interval behind [`Backoff`].

use std::error::Error as StdError;
use std::future::Future;
use std::time::Duration;

use backoff::ExponentialBackoff;
use backoff::backoff::Backoff as _;
use tokio::time;
use tokio_util::sync::CancellationToken;

use crate::exit::chain;

/// The longest that a server's Retry-After is obeyed. A day would be a mistake, or an attack, that nobody would find.
pub const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);
/// Growth from one interval to the next.
const MULTIPLIER: f64 = 2.0;

/// Growing, jittered pauses between tries that never give up.
///
/// Full jitter: each pause is drawn evenly from nothing to its interval, which spreads processes that failed at the same
/// moment (a thousand agents after an outage of the hub) over all of it.
#[derive(Debug)]
pub struct Backoff {
    inner: ExponentialBackoff,
    max: Duration,
}

impl Backoff {
    /// The first interval is `initial`; each further one is twice as long, up to `max`.
    pub fn new(initial: Duration, max: Duration) -> Self {
        // A factor of 1 draws from nothing to twice the interval: over half of ours, that is full jitter.
        let (half_initial, half_max) = (initial.min(max) / 2, max / 2);
        let inner = ExponentialBackoff {
            current_interval: half_initial,
            initial_interval: half_initial,
            randomization_factor: 1.0,
            multiplier: MULTIPLIER,
            max_interval: half_max,
            max_elapsed_time: None,
            ..ExponentialBackoff::default()
        };
        Self { inner, max }
    }

    /// How long to wait before the next try. `floor` is what a server asked for: the pause is never shorter, and drawn after
    /// it, so that processes that were told the same do not come back at the same moment.
    pub fn next_delay(&mut self, floor: Option<Duration>) -> Duration {
        // `None` would mean that a time limit was reached; there is none.
        let drawn = self.inner.next_backoff().unwrap_or(self.max).min(self.max);
        floor.unwrap_or_default().min(RETRY_AFTER_MAX) + drawn
    }

    /// Begins anew, after a success.
    pub fn reset(&mut self) {
        self.inner.reset();
    }
}

/// Why a try failed, and whether another can help.
#[derive(Debug)]
pub enum Failure<E> {
    Transient {
        error: E,
        /// What the server asked for (RFC 9110, 10.2.3).
        retry_after: Option<Duration>,
    },
    Permanent(E),
}

impl<E> Failure<E> {
    pub fn transient(error: E) -> Self {
        Self::Transient { error, retry_after: None }
    }
}

/// Why [`retry`] gave up.
#[derive(Debug, thiserror::Error)]
pub enum Error<E: StdError + 'static> {
    #[error("stopped while retrying")]
    Cancelled,
    #[error(transparent)]
    Permanent(E),
}

/// Tries until it succeeds, fails for good, or is cancelled. A try that was begun is seen through, so that nothing is left
/// half done; it has a bound of its own.
///
/// Logs each failed try as what cannot be done, such as "write the ledger": this is where such an error is handled.
///
/// # Errors
///
/// [`Error::Permanent`] where a try failed for good, [`Error::Cancelled`] where it was cancelled before one succeeded.
pub async fn retry<T, E, F, A>(
    what: &'static str,
    mut backoff: Backoff,
    cancellation: &CancellationToken,
    mut operation: F,
) -> Result<T, Error<E>>
where
    E: StdError + 'static,
    F: FnMut() -> A,
    A: Future<Output = Result<T, Failure<E>>>,
{
    loop {
        let (error, retry_after) = match operation().await {
            Ok(value) => return Ok(value),
            Err(Failure::Permanent(error)) => return Err(Error::Permanent(error)),
            Err(Failure::Transient { error, retry_after }) => (error, retry_after),
        };
        let delay = backoff.next_delay(retry_after);
        tracing::warn!(?delay, error = chain(&error), "cannot {what}; trying again");
        if cancellation.run_until_cancelled(time::sleep(delay)).await.is_none() {
            return Err(Error::Cancelled);
        }
    }
}

/// Reads a Retry-After header in seconds, such as `120`, capped at [`RETRY_AFTER_MAX`].
///
/// A date is ignored: it means nothing to a machine whose clock may be wrong.
pub fn parse_retry_after(value: &str) -> Option<Duration> {
    let digits = value.trim();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // All are digits, so only too large a number is left to fail.
    Some(digits.parse().map_or(RETRY_AFTER_MAX, Duration::from_secs).min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests;
