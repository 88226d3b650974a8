//! The fuse: a mistake at the hub must not empty a cluster. Deletions are counted over a sliding hour; more than a share
//! of what is managed waits for a person.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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

/// Who has approved a deletion, however many others there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum Permission {
    /// Nobody.
    None,
    /// A person, who was shown this removal. It counts like every other, so that those that were not shown pass no sooner.
    Approved,
    /// Whoever placed it. A deletion that was foreseen is no sign of a mistake, and does not count.
    InAdvance,
}

/// The fuse's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum Passage {
    Free,
    /// Let through just now, under this number: free when that is on disk.
    Once(u64),
    /// Let through, and not on disk yet.
    Saving,
    Held,
}

#[derive(Debug)]
pub(in crate::core) struct Fuse {
    limits: FuseLimits,
    /// Deletions let through, oldest first; none older than the window. Never more than were managed.
    passed: VecDeque<Passed>,
    /// Those that are not done: a deletion that is tried again passes again.
    known: BTreeSet<Tombstone>,
    /// Those that are not on disk yet.
    unsaved: BTreeSet<Tombstone>,
    /// Removals requested and not yet judged. All of them count, so that a large removal is held before its first deletion.
    /// Removals that are held for another reason are not included.
    waiting: BTreeSet<Tombstone>,
    /// Removals that wait for history to be whole again: all are judged together when the first of them goes on.
    paused: BTreeSet<Tombstone>,
    /// Removals that were too many: each goes when a person approves it, and does not count until then.
    held: BTreeSet<Tombstone>,
    /// Changes of that set which the journal does not have yet: whether each is held.
    unkept: BTreeMap<Tombstone, bool>,
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
    pub(in crate::core) fn new(limits: FuseLimits) -> Self {
        Self {
            limits,
            passed: VecDeque::new(),
            known: BTreeSet::new(),
            unsaved: BTreeSet::new(),
            waiting: BTreeSet::new(),
            paused: BTreeSet::new(),
            held: BTreeSet::new(),
            unkept: BTreeMap::new(),
            last: 0,
            lapsed: Vec::new(),
        }
    }

    /// Restores what an earlier run let through and held. `open` are those that are not done.
    pub(in crate::core) fn resume(
        &mut self,
        passed: Vec<(u64, Tombstone)>,
        held: Vec<Tombstone>,
        open: impl Fn(&Tombstone) -> bool,
    ) {
        for tombstone in held {
            self.waiting.remove(&tombstone);
            if open(&tombstone) {
                self.held.insert(tombstone);
            } else {
                self.unkept.insert(tombstone, false);
            }
        }
        for (number, tombstone) in passed {
            self.last = self.last.max(number);
            if open(&tombstone) {
                self.waiting.remove(&tombstone);
                self.known.insert(tombstone.clone());
            }
            self.passed.push_back(Passed { number, at: Monotonic::START, tombstone });
        }
    }

    /// The run begins. Nobody knows how long the agent was down: a clock that can be set is no witness. So whatever passed
    /// before counts as if it had just passed.
    pub(in crate::core) fn started(&mut self, now: Monotonic) {
        for passed in &mut self.passed {
            passed.at = now;
        }
    }

    pub(in crate::core) fn ask(&mut self, tombstone: Tombstone) {
        // Removals that were let through count as such, and held ones count no more.
        if !self.known.contains(&tombstone) && !self.held.contains(&tombstone) {
            self.waiting.insert(tombstone);
        }
    }

    /// It waits for something of its own: it is asked for again when that is over.
    pub(in crate::core) fn excuse(&mut self, tombstone: &Tombstone) {
        self.waiting.remove(tombstone);
    }

    /// It waits for what all others wait for too.
    pub(in crate::core) fn pause(&mut self, tombstone: &Tombstone) {
        self.paused.extend(self.waiting.take(tombstone));
    }

    /// The requested removals that would be held if this one were judged now.
    pub(in crate::core) fn about_to_be_held(&self, tombstone: &Tombstone, managed: usize) -> Vec<Tombstone> {
        let asked = self.waiting.len() + usize::from(!self.waiting.contains(tombstone));
        let judged = self.known.contains(tombstone) || self.held.contains(tombstone);
        if judged || self.passes(asked, managed) { Vec::new() } else { self.waiting.iter().cloned().collect() }
    }

    /// Nothing is to be deleted after all, or it is done: if the same is asked for again, that is another deletion.
    pub(in crate::core) fn withdraw(&mut self, tombstone: &Tombstone) {
        self.waiting.remove(tombstone);
        self.paused.remove(tombstone);
        self.known.remove(tombstone);
        self.unsaved.remove(tombstone);
        if self.held.remove(tombstone) {
            self.unkept.insert(tombstone.clone(), false);
        }
    }

    /// Takes the changes for the journal: the removals that are newly held, and those that are no longer.
    pub(in crate::core) fn take_unkept(&mut self) -> (Vec<Tombstone>, Vec<Tombstone>) {
        let (held, unheld): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.unkept).into_iter().partition(|(_, held)| *held);
        let tombstones = |of: Vec<(Tombstone, bool)>| of.into_iter().map(|(tombstone, _)| tombstone).collect();
        (tombstones(held), tombstones(unheld))
    }

    pub(in crate::core) fn is_saving(&self, tombstone: &Tombstone) -> bool {
        self.unsaved.contains(tombstone)
    }

    /// It is on disk that this was let through.
    pub(in crate::core) fn saved(&mut self, tombstone: &Tombstone) {
        self.unsaved.remove(tombstone);
    }

    /// Lets a deletion through, or not. `managed` counts the existing objects, those about to be deleted included.
    pub(in crate::core) fn pass(
        &mut self,
        now: Monotonic,
        tombstone: &Tombstone,
        managed: usize,
        leave: Permission,
    ) -> Passage {
        self.lapse(now);
        if self.known.contains(tombstone) {
            return if self.unsaved.contains(tombstone) { Passage::Saving } else { Passage::Free };
        }
        match leave {
            Permission::InAdvance => {
                self.withdraw(tombstone);
                return Passage::Free;
            }
            // This decides about no other removal, and those held with it stay held.
            Permission::Approved => self.withdraw(tombstone),
            Permission::None if self.is_too_much(tombstone, managed) => return Passage::Held,
            Permission::None => {}
        }
        self.last += 1;
        self.waiting.remove(tombstone);
        self.passed.push_back(Passed { number: self.last, at: now, tombstone: tombstone.clone() });
        self.known.insert(tombstone.clone());
        self.unsaved.insert(tombstone.clone());
        Passage::Once(self.last)
    }

    /// Whether so many more may be deleted. Objects whose deletion is done are not in `managed` any more, and
    /// count as if they still existed.
    fn passes(&self, asked: usize, managed: usize) -> bool {
        let gone = self.passed.len().saturating_sub(self.known.len());
        let share = (managed + gone) * self.limits.percent / 100;
        self.passed.len() + asked <= self.limits.always.max(share)
    }

    /// Whether it is held: with all that wait for the same, if that is more than passes.
    fn is_too_much(&mut self, tombstone: &Tombstone, managed: usize) -> bool {
        if !self.held.contains(tombstone) {
            if self.paused.contains(tombstone) {
                self.waiting.append(&mut self.paused);
            }
            self.waiting.insert(tombstone.clone());
            if self.passes(self.waiting.len(), managed) {
                return false;
            }
            self.hold_all();
        }
        true
    }

    /// Holds what is asked for and not judged.
    fn hold_all(&mut self) {
        self.unkept.extend(self.waiting.iter().map(|tombstone| (tombstone.clone(), true)));
        self.held.append(&mut self.waiting);
    }

    /// Takes the numbers that the journal need not keep any more.
    pub(in crate::core) fn take_lapsed(&mut self, now: Monotonic) -> Vec<u64> {
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
