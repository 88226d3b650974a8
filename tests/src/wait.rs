//! Bounded waiting on a value; the only module of the tests that sleeps.

use std::fmt::Display;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep, timeout};

/// Time between two probes: short beside every claim about seconds, long beside the cost of one request.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Longest time for one probe. A request on a wire that was cut would otherwise use up the whole wait, though the next one
/// would succeed.
const PROBE_MAX: Duration = Duration::from_secs(10);

/// Calls `probe` until it returns a value, for at most `limit`.
///
/// # Errors
///
/// When the time is up; the message names `what` was awaited.
///
/// ```
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> anyhow::Result<()> {
/// let mut looks = 0;
/// let third = tideline_tests::eventually(Duration::from_secs(5), "the third look", async || {
///     looks += 1;
///     (looks == 3).then_some(looks)
/// })
/// .await?;
/// assert_eq!(third, 3);
/// # Ok(())
/// # }
/// ```
pub async fn eventually<T>(limit: Duration, what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> Result<T> {
    poll(limit, what, async || probe().await.ok_or(None::<String>)).await
}

/// Calls `probe` until it succeeds, for at most `limit`.
///
/// # Errors
///
/// When the time is up; the message names `what` was awaited and the last failure.
pub async fn eventually_ok<T, E: Display>(
    limit: Duration,
    what: &str,
    mut probe: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T> {
    // The alternate form prints an anyhow error with its causes.
    poll(limit, what, async || probe().await.map_err(|error| Some(format!("{error:#}")))).await
}

async fn poll<T>(limit: Duration, what: &str, mut probe: impl AsyncFnMut() -> Result<T, Option<String>>) -> Result<T> {
    let deadline = Instant::now() + limit;
    let mut last_failure = None;
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).max(POLL_INTERVAL);
        match timeout(left.min(PROBE_MAX), probe()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(failure)) => last_failure = failure.or(last_failure),
            Err(_elapsed) => last_failure = Some("the last look did not return".to_owned()),
        }
        if Instant::now() >= deadline {
            match last_failure {
                Some(failure) => bail!("waited {limit:?} for {what}; last: {failure}"),
                None => bail!("waited {limit:?} for {what}"),
            }
        }
        sleep(POLL_INTERVAL).await;
    }
}
