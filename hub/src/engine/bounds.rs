use std::collections::{BTreeMap, BTreeSet};

use tideline_common::limits::DESIRED_OBJECTS_MAX;
use tideline_common::{Monotonic, Reason, TargetId};
use tracing::warn;

use super::Engine;
use crate::ledger::TargetContinuity;
use crate::limits::BREACH_SHOWN;
use crate::link::core as link;
use crate::summary::Breach;

/// How agents keep to what they may say.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    targets: BTreeMap<TargetId, Watched>,
    /// When a breach is to be shown no more.
    ends: BTreeSet<(Monotonic, TargetId)>,
}

/// One that said what it may not, or what did not concern it.
#[derive(Debug, Default)]
struct Watched {
    /// Words that were dropped since then. Honest agents have some when their set changes, at most a set of them.
    dropped: usize,
    since: Monotonic,
    /// Until when the breach is shown, if there was one.
    until: Option<Monotonic>,
    /// What was dropped may concern it by now: it is to be said again with the next change of the set.
    is_incomplete: bool,
}

impl Bounds {
    pub(super) fn next_end(&self) -> Option<Monotonic> {
        self.ends.first().map(|(end, _)| *end)
    }

    pub(super) fn forget(&mut self, target: TargetId) {
        if let Some(until) = self.targets.remove(&target).and_then(|watched| watched.until) {
            self.ends.remove(&(until, target));
        }
    }

    /// Shows a breach from now on, and says whether it is shown already.
    fn show(&mut self, now: Monotonic, target: TargetId) -> bool {
        let until = now + BREACH_SHOWN;
        let former = self.targets.entry(target).or_default().until.replace(until);
        if let Some(former) = former {
            self.ends.remove(&(former, target));
        }
        self.ends.insert((until, target));
        former.is_some()
    }

    /// One whose breach is to be shown no more.
    fn ended(&mut self, now: Monotonic) -> Option<TargetId> {
        let (_, target) = self.ends.first().copied().filter(|(end, _)| *end <= now)?;
        self.ends.pop_first();
        if let Some(watched) = self.targets.get_mut(&target) {
            (watched.until, watched.dropped) = (None, 0);
        }
        Some(target)
    }
}

impl Engine {
    /// The agent of a target said more than it may. What is too much of it was not taken in.
    pub fn breached(&mut self, now: Monotonic, target: TargetId, breach: Breach) {
        if self.targets.get(target).is_none() {
            return;
        }
        if !self.bounds.show(now, target) {
            warn!(sync_target = %target, ?breach, "an agent says more than it may; what is too much of it is dropped");
            self.targets.problem(target, Reason::TooMuchReported);
            self.dirty.targets.insert(target);
        }
    }

    /// Counts words of an agent that did not concern its target, and removals that meant nothing.
    pub(super) fn dropped(&mut self, now: Monotonic, target: TargetId, words: usize, removals: usize) {
        if words + removals == 0 {
            return;
        }
        let watched = self.bounds.targets.entry(target).or_default();
        if now.since(watched.since) >= BREACH_SHOWN {
            (watched.dropped, watched.since) = (0, now);
        }
        watched.dropped += words + removals;
        watched.is_incomplete |= words > 0;
        if watched.dropped > DESIRED_OBJECTS_MAX {
            self.breached(now, target, Breach::Invented);
        }
    }

    /// The sets of these targets have changed: what was dropped before may be about what is assigned now. Of what this hub has
    /// lost it drops the same again, until a person accepts that, which concerns every such target once more.
    pub(super) fn ask_again(&mut self, now: Monotonic, affected: &[TargetId]) {
        for target in affected {
            match self.ledger.continuity(*target, self.link.shown_by(*target)) {
                TargetContinuity::Whole { .. } => {}
                TargetContinuity::Broken { .. } => continue,
            }
            let watched = self.bounds.targets.get_mut(target);
            if watched.is_some_and(|watched| std::mem::take(&mut watched.is_incomplete)) {
                self.step(now, link::Event::ReportsIncomplete(*target));
            }
        }
    }

    /// Shows no more what was long ago.
    pub(super) fn breaches_due(&mut self, now: Monotonic) {
        while let Some(target) = self.bounds.ended(now) {
            self.targets.solved(target, Reason::TooMuchReported);
            self.dirty.targets.insert(target);
        }
    }
}
