//! The fuse: a mistake at the hub must not empty a cluster. Deletions are counted over a sliding hour; more than a share
//! of what is managed waits for a person.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use tideline_common::{Monotonic, Tombstone};

const WINDOW: Duration = Duration::from_hours(1);

/// What passes without a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FuseLimits {
    /// Deletions per hour that always pass.
    pub always: usize,
    /// Percent of the managed objects that pass per hour.
    pub percent: usize,
}

impl Default for FuseLimits {
    fn default() -> Self {
        Self { always: 10, percent: 20 }
    }
}

/// Who has said that an object may be deleted, however many go with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// Nobody.
    None,
    /// A person, who was shown this removal. It counts as every other, so that what was not shown passes no sooner.
    Approved,
    /// Whoever placed it. What goes by the way is no sign of a mistake, and does not count.
    InAdvance,
}

#[derive(Debug)]
pub(super) struct Fuse {
    limits: FuseLimits,
    /// Deletions let through, oldest first; none older than the window. Never more than were managed.
    passed: VecDeque<(Monotonic, Tombstone)>,
    /// Those of them that are not done: a deletion that is tried again passes again.
    known: BTreeSet<Tombstone>,
    /// Removals that were asked for and have not been let through, all of which count: a large removal is held whole,
    /// not once its first part is gone.
    waiting: BTreeSet<Tombstone>,
}

impl Fuse {
    pub(super) fn new(limits: FuseLimits) -> Self {
        Self { limits, passed: VecDeque::new(), known: BTreeSet::new(), waiting: BTreeSet::new() }
    }

    pub(super) fn ask(&mut self, tombstone: Tombstone) {
        self.waiting.insert(tombstone);
    }

    /// It turned out that nothing is to be deleted, or it is done: should the same be asked again, that is another
    /// deletion.
    pub(super) fn withdraw(&mut self, tombstone: &Tombstone) {
        self.waiting.remove(tombstone);
        self.known.remove(tombstone);
    }

    /// Lets a deletion through, or not. `managed` are the objects that stand, those about to go included.
    pub(super) fn pass(&mut self, now: Monotonic, tombstone: &Tombstone, managed: usize, leave: Leave) -> bool {
        while self.passed.front().is_some_and(|(at, _)| now.since(*at) >= WINDOW) {
            if let Some((_, passed)) = self.passed.pop_front() {
                self.known.remove(&passed);
            }
        }
        if self.known.contains(tombstone) {
            return true;
        }
        let pass = match leave {
            Leave::InAdvance => {
                self.withdraw(tombstone);
                return true;
            }
            Leave::Approved => true,
            Leave::None => {
                self.waiting.insert(tombstone.clone());
                let removals = self.passed.len() + self.waiting.len();
                let share = (managed + self.passed.len()) * self.limits.percent / 100;
                removals <= self.limits.always.max(share)
            }
        };
        if pass {
            self.waiting.remove(tombstone);
            self.passed.push_back((now, tombstone.clone()));
            self.known.insert(tombstone.clone());
        }
        pass
    }
}

#[cfg(test)]
mod tests;
