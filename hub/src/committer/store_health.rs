use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tideline_runtime::health::{Health, ReadinessGate};
use tideline_runtime::retry::Failure;
use tideline_store::Error as StoreError;

/// Tries of one write at a store that failed. The writer of the store takes no commit after that, so that further ones are
/// only for readiness to be seen …
const FAILED_TRIES_MAX: u32 = 5;
/// … from one to the next, at least.
const FAILED_PAUSE: Duration = Duration::from_secs(5);
const _: () = assert!(FAILED_TRIES_MAX as u64 * FAILED_PAUSE.as_secs() <= 30);

/// Whether the store takes what the hub writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StoreState {
    #[default]
    Writable,
    /// Its disk has no room.
    Full,
    /// It refuses a write, or cannot be written to, for any other reason.
    Refusing,
    /// Its disk failed, or it is damaged.
    Failed,
}

impl StoreState {
    pub(crate) const ALL: [Self; 4] = [Self::Writable, Self::Full, Self::Refusing, Self::Failed];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Writable => "writable",
            Self::Full => "full",
            Self::Refusing => "refusing",
            Self::Failed => "failed",
        }
    }

    /// What the hub waits for until it is ready, as `/readyz` says it.
    const fn waits_for(self) -> Option<&'static str> {
        match self {
            Self::Writable => None,
            Self::Full => Some("room on the disk of the store"),
            Self::Refusing => Some("the store to take a write; see the log"),
            Self::Failed => Some("the disk of the store, which failed"),
        }
    }
}

/// What readiness and metrics show of the store. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct StoreHealth {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    health: Health,
    state: StoreState,
    /// Tries in a row that met a store that failed.
    failed_tries: u32,
    gate: Option<ReadinessGate>,
}

impl StoreHealth {
    pub(crate) fn new(health: &Health) -> Self {
        let inner = Inner { health: health.clone(), state: StoreState::Writable, failed_tries: 0, gate: None };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    pub(crate) fn state(&self) -> StoreState {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).state
    }

    /// A write was taken.
    pub(super) fn written(&self) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).becomes(StoreState::Writable);
    }

    /// A write failed: says so, and whether it is to be tried again.
    pub(super) fn judge(&self, error: StoreError) -> Failure<StoreError> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        match error {
            StoreError::Full { .. } => inner.becomes(StoreState::Full),
            // Closed where nobody closed it: its writer has panicked.
            StoreError::Failed { .. } | StoreError::Closed => {
                inner.becomes(StoreState::Failed);
                inner.failed_tries += 1;
                if inner.failed_tries >= FAILED_TRIES_MAX {
                    return Failure::Permanent(error);
                }
                return Failure::Transient { error, retry_after: Some(FAILED_PAUSE) };
            }
            // A new process would write the same: this one goes on serving what was persisted before.
            StoreError::TooLarge { .. }
            | StoreError::Io { .. }
            | StoreError::Schema { .. }
            | StoreError::Locked { .. }
            | StoreError::Compacted { .. }
            | StoreError::Future { .. }
            | StoreError::Lagged(_) => inner.becomes(StoreState::Refusing),
        }
        Failure::transient(error)
    }
}

impl Inner {
    fn becomes(&mut self, state: StoreState) {
        if state != StoreState::Failed {
            self.failed_tries = 0;
        }
        if self.state != state {
            self.state = state;
            self.gate = state.waits_for().map(|what| self.health.gate(what));
        }
    }
}
