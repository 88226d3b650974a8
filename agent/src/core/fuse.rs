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

/// What the fuse says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    Free,
    /// Let through just now, under this number: free when that is on disk.
    Once(u64),
    /// Let through, and not on disk yet.
    Saving,
    Held,
}

#[derive(Debug)]
pub(super) struct Fuse {
    limits: FuseLimits,
    /// Deletions let through, oldest first; none older than the window. Never more than were managed.
    passed: VecDeque<Passed>,
    /// Those of them that are not done: a deletion that is tried again passes again.
    known: BTreeSet<Tombstone>,
    /// Those of them that are not on disk yet.
    unsaved: BTreeSet<Tombstone>,
    /// Removals that were asked for and have not been let through, all of which count: a large removal is held whole,
    /// not once its first part is gone.
    waiting: BTreeSet<Tombstone>,
    last: u64,
    /// Numbers whose hour is over, and which the journal still has.
    lapsed: Vec<u64>,
}

#[derive(Debug)]
struct Passed {
    number: u64,
    at: Monotonic,
    tombstone: Tombstone,
}

impl Fuse {
    pub(super) fn new(limits: FuseLimits) -> Self {
        Self {
            limits,
            passed: VecDeque::new(),
            known: BTreeSet::new(),
            unsaved: BTreeSet::new(),
            waiting: BTreeSet::new(),
            last: 0,
            lapsed: Vec::new(),
        }
    }

    /// Takes up what an earlier run let through. `open` are those that are not done.
    pub(super) fn resume(&mut self, passed: Vec<(u64, Tombstone)>, open: impl Fn(&Tombstone) -> bool) {
        for (number, tombstone) in passed {
            self.last = self.last.max(number);
            if open(&tombstone) {
                self.waiting.remove(&tombstone);
                self.known.insert(tombstone.clone());
            }
            self.passed.push_back(Passed { number, at: Monotonic::START, tombstone });
        }
    }

    /// The run begins. How long it was away nobody knows: a clock that can be set is no witness. So whatever passed before
    /// counts as if it had just been.
    pub(super) fn started(&mut self, now: Monotonic) {
        for passed in &mut self.passed {
            passed.at = now;
        }
    }

    pub(super) fn ask(&mut self, tombstone: Tombstone) {
        // What was let through counts as that.
        if !self.known.contains(&tombstone) {
            self.waiting.insert(tombstone);
        }
    }

    /// It turned out that nothing is to be deleted, or it is done: should the same be asked again, that is another
    /// deletion.
    pub(super) fn withdraw(&mut self, tombstone: &Tombstone) {
        self.waiting.remove(tombstone);
        self.known.remove(tombstone);
        self.unsaved.remove(tombstone);
    }

    pub(super) fn is_saving(&self, tombstone: &Tombstone) -> bool {
        self.unsaved.contains(tombstone)
    }

    /// It is on disk that this was let through.
    pub(super) fn saved(&mut self, tombstone: &Tombstone) {
        self.unsaved.remove(tombstone);
    }

    /// Lets a deletion through, or not. `managed` are the objects that stand, those about to go included.
    pub(super) fn pass(&mut self, now: Monotonic, tombstone: &Tombstone, managed: usize, leave: Leave) -> Passage {
        self.lapse(now);
        if self.known.contains(tombstone) {
            return if self.unsaved.contains(tombstone) { Passage::Saving } else { Passage::Free };
        }
        let pass = match leave {
            Leave::InAdvance => {
                self.withdraw(tombstone);
                return Passage::Free;
            }
            Leave::Approved => true,
            Leave::None => {
                self.waiting.insert(tombstone.clone());
                let removals = self.passed.len() + self.waiting.len();
                // Those of them that are done stand no more, and did.
                let gone = self.passed.len().saturating_sub(self.known.len());
                let share = (managed + gone) * self.limits.percent / 100;
                removals <= self.limits.always.max(share)
            }
        };
        if !pass {
            return Passage::Held;
        }
        self.last += 1;
        self.waiting.remove(tombstone);
        self.passed.push_back(Passed { number: self.last, at: now, tombstone: tombstone.clone() });
        self.known.insert(tombstone.clone());
        self.unsaved.insert(tombstone.clone());
        Passage::Once(self.last)
    }

    /// Takes the numbers that the journal need not have any more.
    pub(super) fn take_lapsed(&mut self, now: Monotonic) -> Vec<u64> {
        self.lapse(now);
        std::mem::take(&mut self.lapsed)
    }

    fn lapse(&mut self, now: Monotonic) {
        while let Some(Passed { number, tombstone, .. }) =
            self.passed.pop_front_if(|passed| now.since(passed.at) >= WINDOW)
        {
            self.known.remove(&tombstone);
            self.unsaved.remove(&tombstone);
            self.lapsed.push(number);
        }
    }
}

#[cfg(test)]
mod tests;
