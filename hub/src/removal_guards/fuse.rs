//! How much one change may unassign before a person is asked.
//!
//! Somebody relabels all targets, deletes a Location, or a namespace with everything in it: what the spaces say by then is
//! what they say, and agents would begin to delete within seconds. What counts as one change is what comes within a
//! minute, because a namespace goes object by object.
//!
//! No I/O, no clock. The ledger keeps what is held, see [`crate::ledger`]; this only counts.

use std::collections::VecDeque;
use std::time::Duration;

use tideline_common::Monotonic;

/// What is unassigned within this time is one change.
const CHANGE: Duration = Duration::from_mins(1);
/// What is counted together, so that [`CHANGE`] has at most sixty counts.
const TICK: Duration = Duration::from_secs(1);
/// Assignments that one change may always end: a few objects on a few targets are nobody's accident.
pub(crate) const UNASSIGNED_ALWAYS: u64 = 100;
/// The share of all assignments that one change may end, in percent.
pub(crate) const UNASSIGN_LIMIT: u8 = 20;

/// Counts what is unassigned.
#[derive(Clone, Debug)]
pub struct Fuse {
    percent: u8,
    recent: VecDeque<(Monotonic, u64)>,
}

impl Fuse {
    /// A share of 100 lets everything go.
    pub fn new(percent: u8) -> Self {
        Self { percent, recent: VecDeque::new() }
    }

    /// How many more may go at this moment, if there are `total`.
    pub fn allowance(&mut self, now: Monotonic, total: u64) -> u64 {
        if self.percent >= 100 {
            return u64::MAX;
        }
        self.recent.retain(|(at, _)| now.since(*at) < CHANGE);
        let recent: u64 = self.recent.iter().map(|(_, count)| count).sum();
        let limit = total.saturating_mul(self.percent.into()) / 100;
        limit.max(UNASSIGNED_ALWAYS).saturating_sub(recent)
    }

    /// So many were to go, whether they did or are held: what belongs to the same accident comes soon after.
    pub fn count(&mut self, now: Monotonic, unassigned: u64) {
        if unassigned == 0 {
            return;
        }
        match self.recent.back_mut().filter(|(at, _)| now.since(*at) < TICK) {
            Some((_, count)) => *count += unassigned,
            None => self.recent.push_back((now, unassigned)),
        }
    }
}

#[cfg(test)]
mod tests;
