//! A few connections for reading, used from the runtime's blocking threads.

use super::file::{self, Shared};
use super::locked;
use crate::Error;
use rusqlite::Connection;
use std::sync::{Arc, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(super) struct Readers {
    path: String,
    idle: Mutex<Vec<Shared>>,
    /// One permit per connection; closed with the store.
    slots: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(path: String, connections: Vec<Shared>) -> Self {
        let slots = Arc::new(Semaphore::new(connections.len()));
        Self { path, idle: Mutex::new(connections), slots }
    }

    /// Runs `read` on a connection. A caller that goes away leaves the read to finish by itself.
    pub(super) async fn run<T, F>(self: &Arc<Self>, read: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let permit = Arc::clone(&self.slots).acquire_owned().await.map_err(|_closed| Error::Closed)?;
        let readers = Arc::clone(self);
        let work = tokio::task::spawn_blocking(move || {
            let loan = readers.lend(permit)?;
            let read = read(&locked(&loan.connection));
            read.map_err(|error| file::from_sqlite("read", &readers.path, &error))
        });
        match work.await {
            Ok(result) => result,
            Err(failed) => match failed.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_runtime_stopped) => Err(Error::Closed),
            },
        }
    }

    /// Refuses new reads and closes the connections, one in use when its read ends.
    pub(super) fn close(&self) {
        self.slots.close();
        locked(&self.idle).clear();
    }

    fn lend(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Result<Loan, Error> {
        let connection = locked(&self.idle).pop().ok_or(Error::Closed)?;
        Ok(Loan { connection, readers: Arc::clone(self), _permit: permit })
    }
}

struct Loan {
    connection: Shared,
    readers: Arc<Readers>,
    // Dropped after the connection was put back.
    _permit: OwnedSemaphorePermit,
}

impl Drop for Loan {
    fn drop(&mut self) {
        let mut idle = locked(&self.readers.idle);
        if !self.readers.slots.is_closed() {
            idle.push(Arc::clone(&self.connection));
        }
    }
}
