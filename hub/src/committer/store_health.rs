use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    /// Its disk has room for the reserve; without that nothing but deletions is to be taken.
    has_reserve: bool,
    gate: Option<ReadinessGate>,
}

impl StoreHealth {
    pub(crate) fn new(health: &Health) -> Self {
        let state = StoreState::Writable;
        let inner = Inner { health: health.clone(), state, failed_tries: 0, has_reserve: true, gate: None };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    pub(crate) fn state(&self) -> StoreState {
        self.lock().state
    }

    /// A write was taken.
    pub(crate) fn written(&self) {
        let mut inner = self.lock();
        let state = inner.while_written();
        inner.becomes(state);
    }

    /// The reserve was given up, or there is no room for one. Says whether that is news.
    pub(crate) fn reserve_gone(&self) -> bool {
        self.lock().reserve_is(false)
    }

    /// The reserve is there again. Says whether that is news.
    pub(crate) fn reserve_back(&self) -> bool {
        self.lock().reserve_is(true)
    }

    /// Whether it is to be given nothing that can wait.
    pub(crate) fn is_short(&self) -> bool {
        !self.lock().has_reserve
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write failed: says so, and whether it is to be tried again.
    pub(super) fn judge(&self, error: StoreError) -> Failure<StoreError> {
        let mut inner = self.lock();
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
    /// What it is while it takes writes: those that it takes from its reserve are not for ever.
    fn while_written(&self) -> StoreState {
        if self.has_reserve { StoreState::Writable } else { StoreState::Full }
    }

    fn reserve_is(&mut self, there: bool) -> bool {
        if self.has_reserve == there {
            return false;
        }
        self.has_reserve = there;
        match self.state {
            StoreState::Writable | StoreState::Full => self.becomes(self.while_written()),
            // A write says when that is over.
            StoreState::Refusing | StoreState::Failed => {}
        }
        true
    }

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
