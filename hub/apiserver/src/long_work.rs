//! Requests that take long to compute, beside the threads that serve all others.
//!
//! To parse, validate, track and write an object of a megabyte takes tens of milliseconds, by a schema that asks for much seconds.
//! As long as a thread of the runtime does that, it serves nothing else; a hub on a small machine has two. So such a request hands
//! what else its thread had to do to another one, and few of them are computed at once.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use futures::future::poll_fn;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{block_in_place, yield_now};

/// Bytes from which an object takes long: some ten walks over 64 KiB are 5 ms.
const BYTES_LONG: usize = 64 << 10;
/// Steps of validation from which an object takes long, each of 7 ns at worst: 100 ms.
const STEPS_LONG: u64 = 1 << 24;
/// Requests that are computed at once beside the threads of the runtime. They share the processors with these; and a body of 3 MiB
/// may be a list of zeros, which takes sixteen times that once it is parsed, and is there four times while it is compared and
/// written: 200 MB for each.
const AT_ONCE: usize = 4;

/// The room for such requests, of one server.
pub(crate) fn room() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(AT_ONCE))
}

/// Whether an object of so many bytes takes long, each byte of which may take so many steps to validate.
pub(crate) fn is_long(bytes: usize, steps_each: u64) -> bool {
    let steps = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_mul(steps_each);
    bytes >= BYTES_LONG || steps >= STEPS_LONG
}

/// One request, and whether it takes long.
pub(crate) struct Work {
    room: Arc<Semaphore>,
    place: OnceLock<OwnedSemaphorePermit>,
}

impl Work {
    pub(crate) fn new(room: &Arc<Semaphore>) -> Self {
        Self { room: Arc::clone(room), place: OnceLock::new() }
    }

    /// Has the request computed apart from here on; waits until there is room for it.
    pub(crate) async fn set_apart(&self) {
        if self.place.get().is_some() {
            return;
        }
        let place = Arc::clone(&self.room).acquire_owned().await.expect("nobody closes the room");
        // One request is one task, so nobody else has set it in the meantime.
        let _ = self.place.set(place);
        // What follows is computed in the next poll, which is apart.
        yield_now().await;
    }

    /// Runs the request to its end: apart, as soon as it was set apart.
    pub(crate) async fn run<T>(&self, request: impl Future<Output = T>) -> T {
        let mut request = pin!(request);
        poll_fn(|context| -> Poll<T> {
            if self.place.get().is_some() {
                apart(|| request.as_mut().poll(context))
            } else {
                request.as_mut().poll(context)
            }
        })
        .await
    }
}

/// Does work on objects of so many bytes, apart if that takes long: where it is no part of a request, or the answer is a stream.
pub(crate) fn for_bytes<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if is_long(bytes, 1) { apart(work) } else { work() }
}

fn apart<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(work),
        // A runtime of one thread has no other that could take over.
        Ok(_) | Err(_) => work(),
    }
}
