use std::cell::Cell;
use std::io;
use std::time::Duration;

use proptest::prelude::{prop_assert, proptest};
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

use super::{Backoff, Error, Failure, RETRY_AFTER_MAX, parse_retry_after, retry};

const SECOND: Duration = Duration::from_secs(1);
/// The vendor computes in floating point and draws up to one nanosecond more.
const ROUNDING: Duration = Duration::from_micros(1);

fn second_to_eight() -> Backoff {
    Backoff::new(SECOND, 8 * SECOND)
}

proptest! {
    #[test]
    fn every_pause_is_within_its_interval(initial in 1_u64..10_000, max in 1_u64..100_000) {
        let (initial, max) = (Duration::from_millis(initial), Duration::from_millis(max));
        let mut backoff = Backoff::new(initial, max);
        let mut interval = initial.min(max);
        for _ in 0..20 {
            let pause = backoff.next_delay(None);
            prop_assert!(pause <= interval + ROUNDING && pause <= max, "{pause:?} of {interval:?}");
            interval = (2 * interval).min(max);
        }
    }
}

#[test]
fn jitter_is_full() {
    let low = (0..400).filter(|_| second_to_eight().next_delay(None) < SECOND / 2).count();
    // Evenly drawn, 200 are expected, with a standard deviation of 10.
    assert!((120..=280).contains(&low), "{low} of 400 in the lower half");
}

#[test]
fn pauses_never_end_and_reset_begins_anew() {
    let mut backoff = second_to_eight();
    let longest = (0..100).map(|_| backoff.next_delay(None)).max();
    assert!(longest > Some(4 * SECOND), "{longest:?}");
    backoff.reset();
    assert!(backoff.next_delay(None) <= SECOND + ROUNDING);
}

#[test]
fn server_may_ask_for_more_within_reason() {
    let asked = second_to_eight().next_delay(Some(60 * SECOND));
    assert!((60 * SECOND..=61 * SECOND + ROUNDING).contains(&asked), "{asked:?}");
    assert!(second_to_eight().next_delay(Some(Duration::MAX)) <= RETRY_AFTER_MAX + SECOND + ROUNDING);
}

#[test]
fn retry_after_is_read_as_seconds_only() {
    assert_eq!(parse_retry_after(" 120 "), Some(120 * SECOND));
    assert_eq!(parse_retry_after("99999999999999999999999"), Some(RETRY_AFTER_MAX));
    for ignored in ["", "-1", "+5", "1.5", "Wed, 21 Oct 2026 07:28:00 GMT"] {
        assert_eq!(parse_retry_after(ignored), None, "{ignored}");
    }
}

#[tokio::test(start_paused = true)]
async fn transient_failures_are_retried_and_the_server_is_obeyed() {
    let started = Instant::now();
    let mut tries = 0;
    let result: Result<u32, Error<io::Error>> = retry("test", second_to_eight(), &CancellationToken::new(), || {
        tries += 1;
        std::future::ready(match tries {
            1 => Err(Failure::transient(io::Error::other("reset"))),
            2 => Err(Failure::Transient { error: io::Error::other("busy"), retry_after: Some(10 * SECOND) }),
            third => Ok(third),
        })
    })
    .await;
    assert_eq!(result.expect("the third try succeeds"), 3);
    assert!(started.elapsed() >= 10 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_ends_at_once() {
    let result: Result<(), Error<io::Error>> = retry("test", second_to_eight(), &CancellationToken::new(), || {
        std::future::ready(Err(Failure::Permanent(io::Error::other("forbidden"))))
    })
    .await;
    assert_eq!(result.expect_err("it is permanent").to_string(), "forbidden");
}

#[tokio::test(start_paused = true)]
async fn cancellation_ends_a_pause() {
    let cancellation = CancellationToken::new();
    let pausing = retry::<(), _, _, _>("test", second_to_eight(), &cancellation, || {
        let error = io::Error::other("busy");
        std::future::ready(Err(Failure::Transient { error, retry_after: Some(RETRY_AFTER_MAX) }))
    });
    let cancel = async {
        tokio::task::yield_now().await;
        cancellation.cancel();
    };
    let ended = time::timeout(SECOND, async { tokio::join!(pausing, cancel) }).await;
    assert!(matches!(ended, Ok((Err(Error::Cancelled), ()))), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_try_that_was_begun_is_seen_through() {
    let cancellation = CancellationToken::new();
    cancellation.cancel();
    let seen_through = Cell::new(0);
    let result: Result<(), Error<io::Error>> = retry("test", second_to_eight(), &cancellation, || async {
        tokio::task::yield_now().await;
        seen_through.set(seen_through.get() + 1);
        Err(Failure::transient(io::Error::other("busy")))
    })
    .await;
    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
    assert_eq!(seen_through.get(), 1);
}
