//! How long the API server may take for an answer: for its beginning, and, where that is no watch, for each further part. And
//! how many bytes that may have.
//!
//! A list that was acknowledged and is never answered would otherwise be waited for as long as its connection lives, also
//! while `/livez` answers on another. A request that is given up closes its connection, so that the next attempt has another
//! one.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Response, Uri};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tower::BoxError;

use super::request::ANSWER_BYTES_MAX;

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

impl Deadlines {
    /// Waits for an answer to a request of this URI.
    pub(super) async fn bound<B, E: Into<BoxError>>(
        self,
        uri: Uri,
        answer: impl Future<Output = Result<Response<B>, E>>,
    ) -> Result<Response<Bounded<B>>, BoxError> {
        let late = |_elapsed| Late { what: "did not answer", waited: self.head };
        let answer = timeout(self.head, answer).await.map_err(late)?.map_err(Into::into)?;
        let rest = (!is_watch(&uri)).then(|| Rest {
            part: self.part,
            deadline: Box::pin(sleep(self.part)),
            bytes: ANSWER_BYTES_MAX,
        });
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
    /// None of a watch.
    rest: Option<Rest>,
}

/// What may still come, and when.
#[derive(Debug)]
struct Rest {
    part: Duration,
    deadline: Pin<Box<Sleep>>,
    bytes: usize,
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
        let Some(Rest { part, deadline, bytes }) = rest else { return frame.map_err(Into::into) };
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
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
