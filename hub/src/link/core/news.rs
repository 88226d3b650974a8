//! Tells agents that wait what happened meanwhile.
//!
//! A change may concern ten thousand agents, and each of them asks for the bodies and reports as soon as it is told. They are
//! told some at a time, so that whoever else wants something of the hub is not served after all of them.

use std::ops::Bound::{Excluded, Unbounded};

use tideline_common::wire::v1::{Continuity, DesiredAnswer};
use tideline_common::{Capability, Monotonic, TargetId, Version};

use super::{Core, Effects, Sets, Waiting, answer_desired, may_be_told, respond_desired};
use crate::ledger::Absence;

/// Agents that are told of a change in one step. Some 10 ms of work for a core follow from that.
pub(super) const TOLD_AT_ONCE: usize = 16;

impl Core {
    /// Whether agents are left to be told what was committed, by [`Event::TellMore`](super::Event::TellMore).
    pub fn is_telling(&self) -> bool {
        !self.unanswered.is_empty()
    }

    /// Tells some of those whose sets changed, in the order of their targets and round again, so that further changes delay
    /// nobody more than once.
    pub(super) fn answer_some(&mut self, sets: &impl Sets, out: &mut Effects) {
        for _ in 0..TOLD_AT_ONCE {
            let after = self.answered.map_or(Unbounded, Excluded);
            let next = self.unanswered.range((after, Unbounded)).next().or(self.unanswered.first()).copied();
            let Some(target) = next else { return };
            self.answered = self.unanswered.take(&target);
            self.answer_waiting(sets, target, out);
        }
    }

    /// Sends a waiting agent what changed since it asked.
    pub(super) fn answer_waiting(&mut self, sets: &impl Sets, key: TargetId, out: &mut Effects) {
        if self.tell_broken(sets, key, out) {
            return;
        }
        let understands = self.understands(key, Capability::Decommission);
        let Some(target) = self.targets.get_mut(&key) else { return };
        let Some(present) = sets.info(key) else { return };
        let how = target.decommission;
        let news = |waiting: &mut Waiting| {
            let told = waiting.decommission == how;
            let still = waiting.history != Continuity::Whole;
            (waiting.since != present.version || !told || still) && may_be_told(how, understands, present)
        };
        let Some(waiting) = target.waiting.take_if(news) else { return };
        self.polls.remove(&(waiting.until, key));
        let since = (waiting.since != Version::default()).then_some(waiting.since);
        let answer = answer_desired(sets, key, since, None, (present, how, Absence::TakenOut));
        out.push(respond_desired(waiting.id, answer));
    }

    /// Sends a waiting agent what was approved since it asked, or is not any more.
    pub(super) fn tell_waiting(&mut self, now: Monotonic, sets: &impl Sets, key: TargetId, out: &mut Effects) {
        let understands = self.understands(key, Capability::Approvals);
        let Some(target) = self.targets.get_mut(&key) else { return };
        // To who keeps still nothing is approved.
        let held = target.waiting.as_ref().filter(|waiting| waiting.history == Continuity::Whole && understands);
        let held = held.map(|waiting| waiting.approved);
        let Some(page) = held.and_then(|held| sets.approved(now, key, &held)) else { return };
        if let Some(waiting) = target.waiting.take() {
            self.polls.remove(&(waiting.until, key));
            out.push(respond_desired(waiting.id, DesiredAnswer::Approved(page)));
        }
    }
}
