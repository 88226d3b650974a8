//! Room for the bodies of requests while they are received.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

use super::connections::Caller;
use crate::limits::{
    ADMINISTRATOR_BODY_BYTES_MAX, AGENT_BODY_BYTES_MAX, AGENT_SHARE_OF_FREE_ROOM, BODY_BYTES_PER_KEY_FREE,
    BODY_BYTES_PER_KEY_MAX, BODY_BYTES_PER_SECOND_MIN, BODY_BYTES_PER_SECOND_MIN_CROWDED,
};

/// Bytes that each key has in use, by its id.
type Keys = Arc<Mutex<BTreeMap<String, usize>>>;

/// All room there is.
#[derive(Debug)]
pub(super) struct Budget {
    agents: Room,
    administrators: Room,
    keys: Keys,
}

#[derive(Clone, Debug)]
struct Room {
    bytes: usize,
    free: Arc<Semaphore>,
}

/// The room that one caller's requests draw on.
#[derive(Debug)]
pub(super) struct Share {
    room: Room,
    key: Option<(String, Keys)>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            agents: Room::new(AGENT_BODY_BYTES_MAX),
            administrators: Room::new(ADMINISTRATOR_BODY_BYTES_MAX),
            keys: Arc::default(),
        }
    }
}

impl Room {
    fn new(bytes: usize) -> Self {
        Self { bytes, free: Arc::new(Semaphore::new(bytes)) }
    }

    fn used(&self) -> usize {
        self.bytes - self.free.available_permits()
    }
}

impl Budget {
    pub(super) fn share(&self, caller: &Caller) -> Share {
        match caller {
            Caller::Agent(key) => Share { room: self.agents.clone(), key: Some((key.clone(), Arc::clone(&self.keys))) },
            Caller::Administrator => Share { room: self.administrators.clone(), key: None },
        }
    }

    /// Bytes of all bodies being received.
    pub(super) fn used(&self) -> usize {
        self.agents.used() + self.administrators.used()
    }
}

impl Share {
    /// Counts bytes that came as this caller's, unless it has its share. They are to be given back.
    pub(super) fn count(&self, bytes: usize) -> bool {
        let Some((name, keys)) = &self.key else { return true };
        let mut keys = lock(keys);
        let used = keys.get(name).copied().unwrap_or_default();
        let fits = used + bytes <= BODY_BYTES_PER_KEY_MAX;
        if fits {
            keys.insert(name.clone(), used + bytes);
        }
        fits
    }

    pub(super) fn give_back(&self, bytes: usize) {
        let Some((name, keys)) = &self.key else { return };
        let mut keys = lock(keys);
        if let Some(used) = keys.get_mut(name) {
            *used = used.saturating_sub(bytes);
            if *used == 0 {
                keys.remove(name);
            }
        }
    }

    /// Whether this caller has no more than its share of what is there, with all that it has in use. Who sends much gives way
    /// to who sends little.
    pub(super) fn is_fair(&self) -> bool {
        let Some((name, keys)) = &self.key else { return true };
        let used = lock(keys).get(name).copied().unwrap_or_default();
        let share = self.room.free.available_permits() / AGENT_SHARE_OF_FREE_ROOM;
        used <= share.max(BODY_BYTES_PER_KEY_FREE)
    }

    pub(super) fn free(&self) -> &Arc<Semaphore> {
        &self.room.free
    }

    /// Bytes a second that a body must come at, beyond its grace.
    pub(super) fn least_rate(&self) -> usize {
        if self.room.used() * 2 > self.room.bytes {
            BODY_BYTES_PER_SECOND_MIN_CROWDED
        } else {
            BODY_BYTES_PER_SECOND_MIN
        }
    }
}

fn lock(keys: &Mutex<BTreeMap<String, usize>>) -> MutexGuard<'_, BTreeMap<String, usize>> {
    keys.lock().unwrap_or_else(PoisonError::into_inner)
}
