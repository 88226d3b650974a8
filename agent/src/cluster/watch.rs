//! One list and the watch after it: in all namespaces, or in some, which are together what one is otherwise.
//!
//! kube's watcher resumes by itself when a watch ends in order, which the API server does every few minutes; whatever
//! else happens starts over with a list, because only a list says what is gone.
//!
//! A kind that may be listed and not watched is known all the same, as of the last list, and listed again after a while.
//! Each time the watch is tried as well.

use std::time::Duration;

use futures::stream::{BoxStream, SelectAll};
use futures::{Stream, StreamExt, TryStreamExt};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tideline_common::Reason;
use tideline_runtime::Backoff;
use tokio::time::{Instant, sleep_until};

use super::failure::{Failure, classify};

/// Objects on one page of a list. Whole ones have up to some 10 KiB each while they are decoded, metadata 2 KiB.
pub(super) const PAGE_WHOLE: u32 = 100;
pub(super) const PAGE_METADATA: u32 = 500;
/// Pauses after failures: around the first, doubled up to around the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Seconds that a watch lasts. The API server would end it after five to ten minutes anyway; a connection that died
/// silently is noticed that much later.
const WATCH_SECONDS: u32 = 290;
/// Between two lists of what may not be watched, after [`POLL_LEAST`]: drawn up to the first, doubled up to around the
/// second. A kind that is forbidden for good costs two requests in a minute.
const POLL: (Duration, Duration) = (Duration::from_secs(15), Duration::from_mins(2));
const POLL_LEAST: Duration = Duration::from_secs(5);
/// A watch that was forbidden before and is not within this time works: a refusal takes milliseconds.
const TRIAL: Duration = Duration::from_secs(10);

/// A watch that was not lost for so long after its list is well: longer than the longest pause.
const STEADY: Duration = Duration::from_mins(1);

/// What is watched in one namespace or in all, decoded; None of what does not count.
pub(super) type Decoded<T> = BoxStream<'static, watcher::Result<Event<Option<T>>>>;

/// The objects of one kind from `api`, each decoded as it comes in.
pub(super) fn decoded<K, T>(
    api: Api<K>,
    config: watcher::Config,
    decode: impl Fn(K) -> Option<T> + Send + 'static,
) -> Decoded<T>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    T: Send + 'static,
{
    let events = watcher::watcher(api, config.timeout(WATCH_SECONDS));
    until_failed(events.map_ok(move |event| match event {
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
        Event::InitApply(object) => Event::InitApply(decode(object)),
        Event::Apply(object) => Event::Apply(decode(object)),
        Event::Delete(object) => Event::Delete(decode(object)),
    }))
}

/// Ends a stream with its first error: what follows would be another try of the same.
fn until_failed<T: Send + 'static>(
    stream: impl Stream<Item = watcher::Result<T>> + Send + 'static,
) -> BoxStream<'static, watcher::Result<T>> {
    let once = |failed: &mut bool, next: watcher::Result<T>| {
        let over = std::mem::replace(failed, next.is_err());
        std::future::ready((!over).then_some(next))
    };
    stream.scan(false, once).boxed()
}

/// Pauses between a watch that was lost and the list that begins the next one.
#[derive(Debug)]
pub(super) struct Pauses {
    backoff: Backoff,
    watched_since: Option<Instant>,
}

impl Pauses {
    pub(super) fn new() -> Self {
        Self { backoff: Backoff::new(RETRY.0, RETRY.1), watched_since: None }
    }

    /// All is listed, and watched from now on.
    pub(super) fn listed(&mut self) {
        self.watched_since = Some(Instant::now());
    }

    /// The list is begun anew for another reason than a failure.
    pub(super) const fn begin_anew(&mut self) {
        self.watched_since = None;
    }

    /// All was listed, and may not be watched: [`WatchPermission`] says when it is listed next.
    pub(super) fn forbidden(&mut self) {
        self.begin_anew();
        self.backoff.reset();
    }

    /// The pause after a failure. A list alone is no success: where watching is what fails, it would be listed all the
    /// time.
    pub(super) fn lost(&mut self, retry_after: Option<Duration>) -> Duration {
        if self.watched_since.take().is_some_and(|since| since.elapsed() >= STEADY) {
            self.backoff.reset();
        }
        self.backoff.next_delay(retry_after)
    }
}

/// Whether the watch of a kind is let through, and when to list it again while it is not.
#[derive(Debug)]
pub(super) struct WatchPermission {
    forbidden: bool,
    poll: Backoff,
}

impl WatchPermission {
    /// `forbidden`: what is taken to have been so before.
    pub(super) fn new(forbidden: bool) -> Self {
        Self { forbidden, poll: Backoff::new(POLL.0, POLL.1) }
    }

    /// The watch was forbidden when it was tried last.
    pub(super) const fn is_forbidden(&self) -> bool {
        self.forbidden
    }

    /// It was forbidden: the pause until the next list.
    pub(super) fn forbidden(&mut self) -> Duration {
        if !std::mem::replace(&mut self.forbidden, true) {
            self.poll.reset();
        }
        self.poll.next_delay(Some(POLL_LEAST))
    }

    /// It was let through.
    pub(super) const fn granted(&mut self) {
        self.forbidden = false;
    }
}

/// What a watch has to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News<T> {
    /// Is there.
    Listed(T),
    /// All that is there was listed.
    AllListed,
    /// It was forbidden before, and is not any more.
    Granted,
    /// Came or changed. With several namespaces also while another is still listed.
    Changed(T),
    Gone(T),
}

/// Why a watch ended.
#[derive(Debug)]
pub(super) enum Ended {
    Lost(Failure),
    /// All is listed, and may not be watched.
    Forbidden(Failure),
}

pub(super) struct Watch<T> {
    streams: SelectAll<Decoded<T>>,
    /// Namespaces of which the list is not over.
    unlisted: usize,
    /// Why some namespace may not be watched, while others are still being listed.
    refused: Option<Failure>,
    forbidden_before: bool,
    granted_at: Option<Instant>,
}

impl<T: Send + 'static> Watch<T> {
    pub(super) fn new(streams: impl IntoIterator<Item = Decoded<T>>, permission: &WatchPermission) -> Self {
        let streams: SelectAll<_> = streams.into_iter().collect();
        let unlisted = streams.len();
        Self { streams, unlisted, refused: None, forbidden_before: permission.is_forbidden(), granted_at: None }
    }

    /// Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<News<T>, Ended> {
        loop {
            if self.unlisted == 0
                && let Some(failure) = self.refused.take()
            {
                return Err(Ended::Forbidden(failure));
            }
            let granted_at = self.granted_at;
            let granted = async move {
                match granted_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let next = tokio::select! {
                biased;
                next = self.streams.next() => next,
                () = granted => {
                    self.granted_at = None;
                    return Ok(News::Granted);
                }
            };
            match next {
                None => return Err(Ended::Lost(Failure::unavailable("the watch ended"))),
                Some(Err(error)) => {
                    let failure = failure_of(&error);
                    if failure.reason != Reason::Forbidden || !is_of_watch(&error) {
                        return Err(Ended::Lost(failure));
                    }
                    self.refused = Some(failure);
                }
                Some(Ok(Event::Init)) if self.unlisted == 0 => {
                    return Err(Ended::Lost(Failure::unavailable("the watch begins anew")));
                }
                Some(Ok(Event::InitApply(Some(object)))) => return Ok(News::Listed(object)),
                Some(Ok(Event::InitDone)) => {
                    self.unlisted = self.unlisted.saturating_sub(1);
                    if self.unlisted == 0 {
                        self.granted_at = self.forbidden_before.then(|| Instant::now() + TRIAL);
                        return Ok(News::AllListed);
                    }
                }
                Some(Ok(Event::Apply(Some(object)))) => return Ok(News::Changed(object)),
                Some(Ok(Event::Delete(Some(object)))) => return Ok(News::Gone(object)),
                Some(Ok(Event::Init | Event::InitApply(None) | Event::Apply(None) | Event::Delete(None))) => {}
            }
        }
    }
}

/// Whether it is the watch that failed, and not the list before it.
const fn is_of_watch(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchStartFailed(_) | watcher::Error::WatchFailed(_) | watcher::Error::WatchError(_) => true,
        watcher::Error::InitialListFailed(_) | watcher::Error::NoResourceVersion => false,
    }
}

fn failure_of(error: &watcher::Error) -> Failure {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Failure::of_client(error),
        watcher::Error::WatchError(status) if status.code == 410 => {
            Failure::unavailable("the watch fell behind what the API server remembers")
        }
        watcher::Error::WatchError(status) => classify(status.code, status, None),
        watcher::Error::NoResourceVersion => Failure::unavailable("the API server's list has no resourceVersion"),
    }
}

/// Of a watch whose API server does not answer anything.
pub(super) fn silence() -> Failure {
    Failure::unavailable("the API server does not answer")
}

#[cfg(test)]
mod tests;
