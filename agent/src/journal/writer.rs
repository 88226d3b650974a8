//! The thread that writes.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::engine::Engine;
use super::{QUEUE_MAX, record};
use crate::core::Write;

/// Writes that belong together, and who waits for them.
pub(super) struct Batch {
    pub(super) writes: Vec<Write>,
    pub(super) answer: oneshot::Sender<Result<(), String>>,
}

pub(super) struct Writer {
    pub(super) engine: Arc<Engine>,
    pub(super) batches: mpsc::Receiver<Batch>,
    /// Dropped, after the engine, when the thread ends.
    pub(super) on_exit: std::sync::mpsc::SyncSender<()>,
}

impl Writer {
    /// Writes what is asked for, in order, until nobody can ask any more. Batches that wait share one flush.
    pub(super) fn run(self) {
        let Self { engine, mut batches, on_exit } = self;
        let mut gathered = Vec::with_capacity(QUEUE_MAX);
        while batches.blocking_recv_many(&mut gathered, QUEUE_MAX) > 0 {
            let (mut changes, mut answers) = (Vec::new(), Vec::new());
            for Batch { writes, answer } in gathered.drain(..) {
                for write in &writes {
                    record::changes(write, &mut changes);
                }
                answers.push(answer);
            }
            let outcome = engine.commit(&changes).map_err(|error| match error {
                super::Error::Write(why) => why,
                error => error.to_string(),
            });
            for answer in answers {
                // Nobody waits any more where the wait was given up.
                let _ = answer.send(outcome.clone());
            }
        }
        drop(engine);
        drop(on_exit);
    }
}
