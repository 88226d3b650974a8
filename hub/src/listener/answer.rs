//! The body of an answer while it is written: in pieces, so that a client that does not read is noticed, and let go of.
//!
//! What serves the connection takes a piece before it has room for it, asks for the next when that has left for the connection,
//! or its stream, and drops the answer when the last one has. So an answer of which a piece was taken, and that neither is
//! asked for the next nor dropped, is not read; one that has nothing to say, as a watch without events, is not meant. What is
//! let go of gives back its memory and its request's place at once; the connection follows when it has been idle for long, or
//! serves others.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::peer::Peer;
use crate::limits::ANSWER_PIECE_BYTES;

/// The answers that are written over one connection.
#[derive(Debug, Default)]
pub(super) struct Unread {
    answers: Mutex<Answers>,
    handed: Notify,
}

#[derive(Debug, Default)]
struct Answers {
    last: u64,
    written: BTreeMap<u64, Weak<Mutex<State>>>,
}

/// See the module. Its request is under way until all of it is taken.
#[derive(Debug)]
pub(super) struct Answer {
    state: Arc<Mutex<State>>,
    of: Arc<Unread>,
    /// Its number among the answers of the connection, once a piece of it was taken.
    number: Option<u64>,
}

#[derive(Debug)]
enum State {
    Written(Written),
    /// Nobody has read it.
    LetGo,
}

#[derive(Debug)]
struct Written {
    body: axum::body::Body,
    /// What the body has given and is not taken yet.
    rest: Bytes,
    /// When the last piece was taken; none while the body has nothing to say.
    taken_at: Option<Instant>,
    _under_way: Peer,
}

#[derive(Debug, thiserror::Error)]
#[error("the client does not read the answer")]
struct NotRead;

impl Answer {
    pub(super) fn new(body: axum::body::Body, under_way: Peer, of: Arc<Unread>) -> Self {
        let written = Written { body, rest: Bytes::new(), taken_at: None, _under_way: under_way };
        Self { state: Arc::new(Mutex::new(State::Written(written))), of, number: None }
    }
}

impl Written {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.taken_at = None;
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => self.rest = bytes,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end @ (Some(Err(_)) | None) => return Poll::Ready(end),
            }
        }
        let piece = self.rest.split_to(self.rest.len().min(ANSWER_PIECE_BYTES));
        self.taken_at = Some(Instant::now());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let (polled, taken) = match &mut *lock(&this.state) {
            State::Written(written) => (written.poll(cx), written.taken_at.is_some()),
            State::LetGo => (Poll::Ready(Some(Err(axum::Error::new(NotRead)))), false),
        };
        if taken {
            this.number.get_or_insert_with(|| this.of.enter(&this.state));
            this.of.handed.notify_one();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &*lock(&self.state) {
            State::Written(written) => written.is_end(),
            State::LetGo => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &*lock(&self.state) {
            State::Written(Written { body, rest, .. }) => {
                let (of, here) = (body.size_hint(), rest.len() as u64);
                let mut hint = SizeHint::new();
                hint.set_lower(of.lower() + here);
                if let Some(upper) = of.upper() {
                    hint.set_upper(upper + here);
                }
                hint
            }
            State::LetGo => SizeHint::new(),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            lock(&self.of.answers).written.remove(&number);
        }
    }
}

impl Unread {
    fn enter(&self, state: &Arc<Mutex<State>>) -> u64 {
        let mut answers = lock(&self.answers);
        answers.last += 1;
        let number = answers.last;
        answers.written.insert(number, Arc::downgrade(state));
        number
    }

    /// Lets go of every answer of which nobody has taken a piece for so long.
    pub(super) async fn let_go(&self, after: Duration) {
        loop {
            match self.oldest() {
                Some(taken_at) => {
                    sleep_until(taken_at + after).await;
                    self.expire(after);
                }
                None => self.handed.notified().await,
            }
        }
    }

    /// When the last piece was taken of the answer of which none was taken for the longest time.
    fn oldest(&self) -> Option<Instant> {
        self.each(|state| match state {
            State::Written(written) => written.taken_at,
            State::LetGo => None,
        })
        .min()
    }

    fn expire(&self, after: Duration) {
        let now = Instant::now();
        let let_go: Vec<_> = self
            .each(|state| {
                let overdue = match state {
                    State::Written(written) => written.taken_at.is_some_and(|taken_at| taken_at + after <= now),
                    State::LetGo => false,
                };
                overdue.then(|| std::mem::replace(state, State::LetGo))
            })
            .collect();
        if !let_go.is_empty() {
            debug!(answers = let_go.len(), "a client does not read what it asked for");
        }
    }

    /// Of every answer that is there. What this gives is dropped with no lock held.
    fn each<T>(&self, of: impl Fn(&mut State) -> Option<T>) -> impl Iterator<Item = T> {
        let states: Vec<_> = lock(&self.answers).written.values().filter_map(Weak::upgrade).collect();
        states.into_iter().filter_map(move |state| of(&mut lock(&state)))
    }
}

/// What is guarded is whole between any two statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
