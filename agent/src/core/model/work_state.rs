//! Where an object is in the work: when its [`Turn`] is, what is under way, and how its entry fares.
//!
//! ```text
//!                              begin
//!                  none ─────────────────────▶ op                              in flight
//!                   ▲           end            │
//!                   └──────────────────────────┘
//!
//!                           mark_tried
//!                 untried ───────────────────▶ tried                           entry
//!                   ▲          assign          │
//!                   └──────────────────────────┘
//!
//!                    fail, fail_at_least
//!                    0 ──────────▶ 1, 2, …                                     failures in a row
//!                    ▲               │
//!                    └───────────────┘
//!                     succeed, assign
//! ```
//!
//! All combinations occur. An object may be queued while an operation is under way, as a work queue of client-go may hold what
//! it is processing: its turn comes when that has ended. It may wait for its next try while it is read for its status. An entry
//! that was not tried may have failed, where the API server had no time for it; and what was tried and did not fail may wait, if
//! somebody undoes what is corrected.

use tideline_common::Monotonic;

use super::turn::Turn;
use crate::core::interface::effect::OpId;

#[derive(Debug, Default)]
pub(in crate::core) struct WorkState {
    turn: Turn,
    in_flight: Option<OpId>,
    tried: bool,
    failures: u32,
}

/// All that there is to know of an object which is not in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::core) struct AtRest {
    pub(in crate::core) turn: Turn,
    pub(in crate::core) tried: bool,
    /// In a row.
    pub(in crate::core) failures: u32,
}

impl WorkState {
    /// None if an operation is under way.
    pub(in crate::core) const fn at_rest(&self) -> Option<AtRest> {
        let Self { turn, in_flight: None, tried, failures } = *self else { return None };
        Some(AtRest { turn, tried, failures })
    }

    /// Whether it waits for its next try.
    pub(in crate::core) const fn is_waiting(&self) -> bool {
        self.turn.is_waiting()
    }

    pub(in crate::core) const fn in_flight(&self) -> Option<OpId> {
        self.in_flight
    }

    pub(in crate::core) const fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether something is under way, or will be without that anything happens to it.
    pub(in crate::core) fn is_busy(&self) -> bool {
        self.is_in_flight() || self.turn != Turn::Idle
    }

    /// Whether the present entry was tried, well or not.
    pub(in crate::core) const fn is_tried(&self) -> bool {
        self.tried
    }

    /// Whether the entry is still to be tried, and nothing leads to that.
    pub(in crate::core) fn is_stranded(&self) -> bool {
        !self.is_tried() && !self.is_busy()
    }

    /// In a row.
    pub(in crate::core) const fn failures(&self) -> u32 {
        self.failures
    }

    pub(in crate::core) fn enqueue(&mut self, wave: i32) {
        self.turn.enqueue(wave);
    }

    /// It waits for its next try now.
    pub(in crate::core) fn wait(&mut self, until: Monotonic) {
        self.turn.wait(until);
    }

    /// It has no turn any more. Returns the one that it had, which is to be struck from the queue or the retries.
    #[must_use]
    pub(in crate::core) fn dequeue(&mut self) -> Turn {
        self.turn.dequeue()
    }

    /// It was the first of the queue, and has its turn.
    pub(in crate::core) fn take_turn(&mut self) {
        self.turn.take();
    }

    /// An operation is under way, and no other begins before it has ended.
    pub(in crate::core) fn begin(&mut self, op: OpId) {
        debug_assert_eq!(self.in_flight, None, "there is one operation per object");
        self.in_flight = Some(op);
    }

    pub(in crate::core) fn end(&mut self) {
        self.in_flight = None;
    }

    /// It has another entry, of which nothing was tried.
    pub(in crate::core) fn assign(&mut self) {
        (self.tried, self.failures) = (false, 0);
    }

    /// The entry was tried. Returns whether that is news.
    pub(in crate::core) fn mark_tried(&mut self) -> bool {
        !std::mem::replace(&mut self.tried, true)
    }

    pub(in crate::core) fn fail(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// What has gone wrong counts as so many failures, and not as more than that if there were as many before.
    pub(in crate::core) fn fail_at_least(&mut self, times: u32) {
        self.failures = self.failures.max(times);
    }

    /// Nothing is the matter with it.
    pub(in crate::core) fn succeed(&mut self) {
        self.failures = 0;
    }
}

impl From<AtRest> for WorkState {
    fn from(AtRest { turn, tried, failures }: AtRest) -> Self {
        Self { turn, in_flight: None, tried, failures }
    }
}

#[cfg(test)]
mod tests;
