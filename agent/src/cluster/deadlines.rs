//! How long the API server may take for an answer: for its beginning, and, where that is no watch, for each further part. And
//! how many bytes that may have.
//!
//! A list that was acknowledged and is never answered would otherwise be waited for as long as its connection lives, also
//! while `/livez` answers on another. A request that is given up closes its connection, so that the next attempt has another
//! one.
//!
//! A watch that ends at once, without a word, has failed, however orderly its end: a conversion webhook that refuses connections
//! may be the reason. kube would begin it again without a pause, for ever, and say nothing.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Response, Uri};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tower::BoxError;

use super::request::ANSWER_BYTES_MAX;

/// A watch that has said nothing and ends sooner than this has failed. In order one lasts for minutes, and what begins one each
/// second because something closes it as often costs little.
const WATCH_LEAST: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(super) struct Deadlines {
    /// Until an answer begins. The API server gives up a request after 60 s by itself.
    pub(super) head: Duration,
    /// Until more of it comes.
    pub(super) part: Duration,
}

#[derive(Debug, thiserror::Error)]
#[error("the API server {what} for {} s", .waited.as_secs_f32())]
struct Late {
    what: &'static str,
    waited: Duration,
}

#[derive(Debug, thiserror::Error)]
#[error("the API server's answer has more than {ANSWER_BYTES_MAX} bytes")]
pub(super) struct TooLong;

/// Without a source: kube takes the end of a connection for the orderly end of a watch.
#[derive(Debug, thiserror::Error)]
#[error("the API server ended the watch as soon as it had begun")]
struct EndedAtOnce;

impl Deadlines {
    /// Waits for an answer to a request of this URI.
    pub(super) async fn bound<B, E: Into<BoxError>>(
        self,
        uri: Uri,
        answer: impl Future<Output = Result<Response<B>, E>>,
    ) -> Result<Response<Bounded<B>>, BoxError> {
        let late = |_elapsed| Late { what: "did not answer", waited: self.head };
        let answer = timeout(self.head, answer).await.map_err(late)?.map_err(Into::into)?;
        let rest = if is_watch(&uri) {
            let begins = answer.status().is_success();
            Rest::Watch { silent_since: begins.then(Instant::now) }
        } else {
            Rest::Answer { part: self.part, deadline: None, bytes: ANSWER_BYTES_MAX }
        };
        Ok(answer.map(|inner| Bounded { inner, rest }))
    }
}

/// It goes on for as long as nothing happens.
fn is_watch(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|parameter| matches!(parameter, "watch=true" | "watch=1")))
}

/// The body of an answer.
#[derive(Debug)]
pub(super) struct Bounded<B> {
    inner: B,
    rest: Rest,
}

/// What may still come, and when.
#[derive(Debug)]
enum Rest {
    Watch {
        /// Since when it says nothing, if it never has.
        silent_since: Option<Instant>,
    },
    Answer {
        part: Duration,
        /// None before it is read: nothing comes of an answer until then.
        deadline: Option<Pin<Box<Sleep>>>,
        bytes: usize,
    },
}

impl<B> Bounded<B> {
    fn is_silent_watch(&self) -> bool {
        matches!(self.rest, Rest::Watch { silent_since: Some(_) })
    }
}

impl<B> Body for Bounded<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Self { inner, rest } = self.get_mut();
        let frame = Pin::new(inner).poll_frame(cx);
        let (part, deadline, bytes) = match rest {
            Rest::Watch { silent_since } => {
                let frame = ready!(frame);
                let at_once = silent_since.take().is_some_and(|since| since.elapsed() < WATCH_LEAST);
                return Poll::Ready(match frame {
                    None | Some(Err(_)) if at_once => Some(Err(EndedAtOnce.into())),
                    frame => frame.map(|frame| frame.map_err(Into::into)),
                });
            }
            Rest::Answer { part, deadline, bytes } => (part, deadline, bytes),
        };
        let deadline = deadline.get_or_insert_with(|| Box::pin(sleep(*part)));
        let Poll::Ready(frame) = frame else {
            ready!(deadline.as_mut().poll(cx));
            let late = Late { what: "did not go on with an answer", waited: *part };
            return Poll::Ready(Some(Err(late.into())));
        };
        deadline.as_mut().reset(Instant::now() + *part);
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            let Some(left) = bytes.checked_sub(data.len()) else { return Poll::Ready(Some(Err(TooLong.into()))) };
            *bytes = left;
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        // What has ended is not read any more, and would not be found to have failed.
        !self.is_silent_watch() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_silent_watch() { SizeHint::default() } else { self.inner.size_hint() }
    }
}
