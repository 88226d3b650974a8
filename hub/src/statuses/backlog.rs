use std::collections::BTreeSet;

use crate::placement::SourceId;

/// Sources that are to be looked at, in rounds: what comes meanwhile is in the next, so that each has its turn.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    round: BTreeSet<SourceId>,
    next: BTreeSet<SourceId>,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.round.is_empty() && self.next.is_empty()
    }

    pub(super) fn add(&mut self, ids: impl IntoIterator<Item = SourceId>) {
        self.next.extend(ids);
    }

    pub(super) fn take(&mut self, count: usize) -> Vec<SourceId> {
        if self.round.is_empty() {
            self.round = std::mem::take(&mut self.next);
        }
        std::iter::from_fn(|| self.round.pop_first()).take(count).collect()
    }
}
