//! What survives a restart: the accepted set, its bodies, what was applied, what is being removed, what was not reported.
//!
//! ```text
//!  write ──▶ queue (bounded) ──▶ one thread: gathers batches ─▶ records ─▶ engine (sled), fsync ──▶ answers
//!  body  ◀──────────────────────────────────────────────────────────────── engine
//! ```
//!
//! A batch is written whole or not at all, and is on disk when [`Journal::write`] returns. Every value carries a checksum
//! over itself and its key. A journal that is damaged is moved aside, never repaired: the agent starts with an empty one,
//! observes, and rebuilds it from the hub and the marks in its cluster.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tideline_common::Digest;
use tokio::sync::{mpsc, oneshot};
use tracing::warn;

use crate::core::{Loaded, Write};

mod engine;
mod load;
mod quarantine;
mod record;
mod writer;

use engine::Engine;
use writer::{Batch, Writer};

/// Batches that may wait for the disk. The core has one under way at a time; the rest are late repetitions of it.
const QUEUE_MAX: usize = 16;
/// Longest wait for the disk. A flush of the largest batch takes seconds on a slow SD card; on a full disk it may never
/// return.
const WRITE_MAX: Duration = Duration::from_secs(30);
/// Longest wait for the thread to end when the journal is closed.
const CLOSE_MAX: Duration = Duration::from_secs(10);
/// Starts in a row that may die while opening before the journal is taken for the cause. One may be a power cut.
const OPENINGS_MAX: u32 = 2;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the journal {path:?} has schema {found}; this build reads {schema}. Run the version of the agent that wrote it, \
         or move the directory away: the agent then starts anew and rebuilds it",
        schema = record::SCHEMA
    )]
    Schema { path: PathBuf, found: String },
    #[error("the journal {path:?} is held by another process")]
    Held { path: PathBuf },
    #[error("cannot {action} {path:?}")]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("the journal is damaged: {0}")]
    Damaged(String),
    #[error("cannot write to the journal: {0}")]
    Write(String),
    #[error("the disk did not take a write within {} s; it may be full", WRITE_MAX.as_secs())]
    Stuck,
    #[error("the journal has stopped working")]
    Closed,
    #[error("the journal has no body {0}")]
    NoBody(Digest),
}

/// The agent's memory on disk. Closed, with everything written, when dropped.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    engine: Arc<Engine>,
    /// None only while dropping.
    queue: Option<mpsc::Sender<Batch>>,
    done: std::sync::Mutex<std::sync::mpsc::Receiver<()>>,
}

impl Journal {
    /// Opens the journal in `path`, made if it is not there, and reads what the core starts with.
    ///
    /// Blocks. A damaged journal is moved aside with a warning and an empty one opened in its place.
    pub(crate) fn open(path: &Path) -> Result<(Self, Loaded), Error> {
        let (engine, loaded) = match open_once(path) {
            Err(Error::Damaged(why)) => {
                let aside = quarantine::move_aside(path)?;
                warn!(
                    "the journal {path:?} is damaged ({why}) and was moved to {aside:?}. The agent starts with an empty \
                     one: it changes nothing until it has read its desired set from the hub again"
                );
                open_once(path)?
            }
            outcome => outcome?,
        };
        let engine = Arc::new(engine);
        let (queue, batches) = mpsc::channel(QUEUE_MAX);
        // Nothing is ever sent: the receiver learns of the thread's end by the sender's drop.
        let (on_exit, done) = std::sync::mpsc::sync_channel(0);
        let writer = Writer { engine: Arc::clone(&engine), batches, on_exit };
        std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || writer.run())
            .map_err(|source| Error::Io { action: "start the thread of", path: path.to_owned(), source })?;
        let journal = Self { path: path.to_owned(), engine, queue: Some(queue), done: std::sync::Mutex::new(done) };
        Ok((journal, loaded))
    }

    /// Writes all of `writes`, or nothing; they are on disk when the future returns. Batches are written in the order of
    /// the calls, whether or not the futures are polled.
    ///
    /// After [`Error::Stuck`] they may still be written later; writing them again is harmless.
    pub(crate) fn write(&self, writes: Vec<Write>) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let (answer, outcome) = oneshot::channel();
        let queued = match &self.queue {
            None => Err(Error::Closed),
            Some(queue) => queue.try_send(Batch { writes, answer }).map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => Error::Stuck,
                mpsc::error::TrySendError::Closed(_) => Error::Closed,
            }),
        };
        async move {
            queued?;
            match tokio::time::timeout(WRITE_MAX, outcome).await {
                Ok(Ok(result)) => result.map_err(Error::Write),
                Ok(Err(_dropped)) => Err(Error::Closed),
                Err(_elapsed) => Err(Error::Stuck),
            }
        }
    }

    /// Reads a body. Takes microseconds where the page is cached, one disk read otherwise.
    pub(crate) fn body(&self, input: Digest) -> Result<Arc<str>, Error> {
        record::read_body(&self.engine, input)
    }

    /// Whether the writing thread has ended, which it does by itself only when the engine panics.
    pub(crate) fn is_closed(&self) -> bool {
        self.queue.as_ref().is_none_or(mpsc::Sender::is_closed)
    }

    /// Bytes on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.engine.bytes()
    }
}

impl crate::cluster::Bodies for Journal {
    fn body(&self, input: Digest) -> Result<Arc<str>, String> {
        Self::body(self, input).map_err(|error| error.to_string())
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.queue = None;
        let done = self.done.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if done.recv_timeout(CLOSE_MAX) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            warn!("the journal {:?} did not close in time; what was acknowledged is on disk", self.path);
        }
    }
}

/// Opens and reads once. Whatever speaks of damage comes as [`Error::Damaged`]: so does a panic of the engine, and a
/// journal that several starts in a row died over (with `panic = "abort"` there is no other sign).
fn open_once(path: &Path) -> Result<(Engine, Loaded), Error> {
    let existed = quarantine::prepare(path)?;
    if quarantine::openings(path) >= OPENINGS_MAX {
        quarantine::opened(path)?;
        return Err(Error::Damaged(format!("{OPENINGS_MAX} starts in a row ended while it was being opened")));
    }
    quarantine::opening(path)?;
    let outcome = std::panic::catch_unwind(|| {
        let engine = Engine::open(path)?;
        let loaded = load::load(&engine, path, existed)?;
        Ok((engine, loaded))
    })
    .unwrap_or_else(|_panic| Err(Error::Damaged("the engine panicked over it".to_owned())));
    quarantine::opened(path)?;
    outcome
}

#[cfg(test)]
mod tests;
