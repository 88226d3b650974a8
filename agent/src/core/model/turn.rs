//! When something has its next turn: an object, or a removal.
//!
//! ```text
//!                     enqueue                  wait
//!  Queued { wave } ◀───────── ┌────────────┐ ──────▶ Waiting { until }
//!         └─────────────────▶ │    Idle    │ ◀─────────────┘
//!          dequeue, take    └────────────┘    dequeue
//! ```
//!
//! `Work` has queues and retries in order. What is said here is how it finds something in them, so that nothing is in both.

use tideline_common::Monotonic;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::core) enum Turn {
    /// When something happens to it.
    #[default]
    Idle,
    /// As soon as its wave may go.
    Queued { wave: i32 },
    /// Then, or when something happens to it.
    Waiting { until: Monotonic },
}

impl Turn {
    /// Whether it waits for its next try.
    pub(super) const fn is_waiting(self) -> bool {
        self.until().is_some()
    }

    /// When its next try is, if it waits for that.
    pub(super) const fn until(self) -> Option<Monotonic> {
        match self {
            Self::Waiting { until } => Some(until),
            Self::Idle | Self::Queued { .. } => None,
        }
    }

    pub(super) fn enqueue(&mut self, wave: i32) {
        debug_assert_eq!(*self, Self::Idle, "it is taken from where it was before");
        *self = Self::Queued { wave };
    }

    /// It waits for its next try now.
    pub(super) fn wait(&mut self, until: Monotonic) {
        debug_assert_eq!(*self, Self::Idle, "it is taken from where it was before");
        *self = Self::Waiting { until };
    }

    /// It has no turn any more. Returns the one that it had, which is to be struck from the queue or the retries.
    #[must_use]
    pub(super) fn dequeue(&mut self) -> Self {
        std::mem::take(self)
    }

    /// It was the first of the queue, and has its turn.
    pub(super) fn take(&mut self) {
        debug_assert!(matches!(self, Self::Queued { .. }), "it is in the queue as it says");
        *self = Self::Idle;
    }
}
