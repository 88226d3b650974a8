//! The body of a request while it is received: only of who was verified, in time, and within the room that there is.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::PollSemaphore;

use super::budget::Share;
use super::peer::Peer;
use crate::limits::BODY_ROOM_WAIT_MAX;

/// Why a body cannot be read on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError<E> {
    #[error("the request was not verified")]
    Unverified,
    #[error("it comes too slowly")]
    Slow,
    #[error("the hub receives too much at the moment")]
    Crowded,
    #[error("too much of this key is under way")]
    Share,
    #[error("it broke off")]
    Broken(#[source] E),
}

/// See the module. What was counted is given back when it is dropped, which whoever reads it does at its end.
#[derive(Debug)]
pub(super) struct Body<B> {
    inner: B,
    peer: Peer,
    /// How long it may take, beside what its size allows.
    grace: Duration,
    reading: Option<Reading>,
}

#[derive(Debug)]
struct Reading {
    share: Share,
    room: PollSemaphore,
    /// Came, and waits for room since then.
    arrived: Option<(Bytes, Instant)>,
    taken: Option<OwnedSemaphorePermit>,
    bytes: usize,
    since: Instant,
    tick: Pin<Box<Sleep>>,
}

/// How often a body that does not come is looked at: its bounds change with how crowded it is.
const TICK: Duration = Duration::from_secs(1);

impl<B> Body<B> {
    pub(super) fn new(inner: B, peer: Peer, grace: Duration) -> Self {
        Self { inner, peer, grace, reading: None }
    }
}

#[cfg(test)]
impl Peer {
    /// The body of this request, as the listener reads it.
    pub(crate) fn receiving(&self, body: axum::body::Body) -> axum::body::Body {
        axum::body::Body::new(Body::new(body, self.clone(), crate::limits::BODY_GRACE))
    }
}

impl Reading {
    fn new(share: Share) -> Self {
        let (now, room) = (Instant::now(), PollSemaphore::new(share.free().clone()));
        let tick = Box::pin(sleep_until(now + TICK));
        Self { share, room, arrived: None, taken: None, bytes: 0, since: now, tick }
    }

    /// Ready when the body is too slow.
    fn poll_slow(&mut self, cx: &mut Context<'_>, grace: Duration) -> Poll<()> {
        loop {
            let now = Instant::now();
            if now >= self.since + grace + allowed(self.bytes, self.share.least_rate()) {
                return Poll::Ready(());
            }
            ready!(self.tick.as_mut().poll(cx));
            self.tick.as_mut().reset(now + TICK);
        }
    }

    /// Ready with what arrived as soon as there is room for it, and it is this caller's turn.
    fn poll_room<E>(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, BodyError<E>>> {
        let Some((bytes, since)) = self.arrived.take() else { return Poll::Pending };
        let wanted = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        loop {
            if self.share.is_fair()
                && let Poll::Ready(Some(permit)) = self.room.poll_acquire_many(cx, wanted)
            {
                match &mut self.taken {
                    Some(taken) => taken.merge(permit),
                    None => self.taken = Some(permit),
                }
                // That there was no room is not the client's fault.
                self.since += since.elapsed();
                return Poll::Ready(Ok(bytes));
            }
            if since.elapsed() >= BODY_ROOM_WAIT_MAX {
                return Poll::Ready(Err(BodyError::Crowded));
            }
            if self.tick.as_mut().poll(cx).is_pending() {
                self.arrived = Some((bytes, since));
                return Poll::Pending;
            }
            self.tick.as_mut().reset(Instant::now() + TICK);
        }
    }
}

/// How long so many bytes of a body may take.
fn allowed(bytes: usize, bytes_per_second: usize) -> Duration {
    let seconds = bytes / bytes_per_second.max(1);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX))
}

impl<B> http_body::Body for Body<B>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError<B::Error>;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Self { inner, peer, grace, reading } = self.get_mut();
        if reading.is_none() && inner.is_end_stream() {
            return Poll::Ready(None);
        }
        let reading = match reading {
            Some(reading) => reading,
            None => match peer.share() {
                Some(share) => reading.insert(Reading::new(share)),
                None => return Poll::Ready(Some(Err(BodyError::Unverified))),
            },
        };
        if reading.arrived.is_none() {
            let frame = match Pin::new(inner).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(BodyError::Broken(error)))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    ready!(reading.poll_slow(cx, *grace));
                    return Poll::Ready(Some(Err(BodyError::Slow)));
                }
            };
            let bytes = match frame.into_data() {
                Ok(bytes) => bytes,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            };
            peer.has_sent(bytes.len());
            if !reading.share.count(bytes.len()) {
                return Poll::Ready(Some(Err(BodyError::Share)));
            }
            reading.bytes += bytes.len();
            reading.arrived = Some((bytes, Instant::now()));
        }
        let bytes = ready!(reading.poll_room(cx));
        Poll::Ready(Some(bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream() && self.reading.as_ref().is_none_or(|reading| reading.arrived.is_none())
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.share.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests;
