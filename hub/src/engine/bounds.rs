use std::collections::{BTreeMap, BTreeSet};

use tideline_common::limits::DESIRED_OBJECTS_MAX;
use tideline_common::{Monotonic, Reason, TargetId, Uid};
use tracing::warn;

use super::Engine;
use crate::ledger::TargetContinuity;
use crate::limits::{BREACH_SHOWN, CLOCK_SHOWN, QUARANTINE_SHOWN};
use crate::link::core as link;
use crate::summary::Breach;

/// How agents keep to what they may say.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    targets: BTreeMap<TargetId, Watched>,
    shown: Shown,
}

/// What is shown of a target for a while after it was seen last.
#[derive(Debug, Default)]
struct Shown {
    until: BTreeMap<(TargetId, Reason), Monotonic>,
    ends: BTreeSet<(Monotonic, TargetId, Reason)>,
}

impl Shown {
    fn show(&mut self, target: TargetId, problem: Reason, until: Monotonic) {
        if let Some(former) = self.until.insert((target, problem), until) {
            self.ends.remove(&(former, target, problem));
        }
        self.ends.insert((until, target, problem));
    }

    /// One that is to be shown no more.
    fn ended(&mut self, now: Monotonic) -> Option<(TargetId, Reason)> {
        let (_, target, problem) = self.ends.first().copied().filter(|(end, ..)| *end <= now)?;
        self.ends.pop_first();
        self.until.remove(&(target, problem));
        Some((target, problem))
    }

    fn forget(&mut self, target: TargetId) {
        let shown = self.until.extract_if(.., |(of, _), _| *of == target);
        for ((_, problem), until) in shown {
            self.ends.remove(&(until, target, problem));
        }
    }
}

/// One that said what it may not, or what did not concern it.
#[derive(Debug, Default)]
struct Watched {
    /// Words that were dropped since then. Honest agents have some when their set changes, at most a set of them.
    dropped: usize,
    since: Monotonic,
    /// What was dropped may concern it by now: it is to be said again with the next change of the set.
    is_incomplete: bool,
}

impl Bounds {
    pub(super) fn next_end(&self) -> Option<Monotonic> {
        self.shown.ends.first().map(|(end, ..)| *end)
    }

    pub(super) fn forget(&mut self, target: TargetId) {
        self.targets.remove(&target);
        self.shown.forget(target);
    }

    /// What is to be shown of a target no more.
    fn ended(&mut self, now: Monotonic) -> Option<(TargetId, Reason)> {
        let (target, problem) = self.shown.ended(now)?;
        if let Some(watched) = self.targets.get_mut(&target).filter(|_| problem == Reason::TooMuchReported) {
            watched.dropped = 0;
        }
        Some((target, problem))
    }
}

impl Engine {
    /// The agent of a target said more than it may. What is too much of it was not taken in.
    pub fn breached(&mut self, now: Monotonic, target: TargetId, breach: Breach) {
        if self.shows(target, Reason::TooMuchReported, now + BREACH_SHOWN) {
            warn!(sync_target = %target, ?breach, "an agent says more than it may; what is too much of it is dropped");
        }
    }

    /// What the agent of a target signed just now it signed by a clock that is far from this hub's.
    pub fn clock_differs(&mut self, now: Monotonic, target: TargetId) {
        if self.shows(target, Reason::ClockImplausible, now + CLOCK_SHOWN) {
            warn!(
                sync_target = %target,
                "the clock of an agent's machine is more than a day from this hub's; set the one that is wrong"
            );
        }
    }

    /// The identity of a target was used from that cluster, which is not the one that enrolled.
    pub(super) fn quarantined(&mut self, now: Monotonic, target: TargetId, cluster: Option<&Uid>) {
        if self.shows(target, Reason::Quarantined, now + QUARANTINE_SHOWN) {
            let cluster = cluster.map(ToString::to_string).unwrap_or_default();
            warn!(sync_target = %target, cluster, "an identity is used from another cluster than the one that enrolled");
        }
    }

    /// Shows a problem of a target, and says whether it was not shown before.
    fn shows(&mut self, target: TargetId, problem: Reason, until: Monotonic) -> bool {
        let Some(outline) = self.targets.get(target) else { return false };
        let is_news = !outline.problems.contains(&problem);
        self.bounds.shown.show(target, problem, until);
        if is_news {
            self.targets.problem(target, problem);
            self.dirty.targets.insert(target);
        }
        is_news
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
    pub(super) fn problems_due(&mut self, now: Monotonic) {
        while let Some((target, problem)) = self.bounds.ended(now) {
            self.targets.solved(target, problem);
            self.dirty.targets.insert(target);
        }
    }
}
