//! What the agent keeps of the hub's history, and what it does when the hub knows less.
//!
//! ```text
//!  whole ── the hub says Broken: in a session, in an answer to a poll ──▶ broken: what stands is kept, no removal begins
//!    ▲                                                                       │
//!    └── nothing is new, or a set was accepted: the hub knows of all that is known here ◀┘
//! ```
//!
//! Broken history is recorded in the journal, so that neither a restart nor an absent hub ends it: only a hub that has the
//! history known here, or in which a person has accepted that it does not.

use tideline_common::wire::v1::{Accepted, Attested, Continuity, TargetCondition};
use tideline_common::{Monotonic, Reason, Shown, Tombstone};

use super::HubSync;
use crate::core::Core;
use crate::core::decide::remove::Verdict;
use crate::core::interface::write::Write;
use crate::core::model::change::Change;
use crate::core::model::namespace_of;
use crate::core::model::removal::{JournalAge, Removal};

const BROKEN: &str = "the hub lost history that its clusters have seen; this agent removes nothing until its newer store is \
     restored, or the loss is accepted with tideline-hub history accept";

impl Core {
    /// What the hub said last of its history.
    pub fn history(&self) -> Continuity {
        self.sync.history
    }

    pub(in crate::core) fn history_broken(&mut self, now: Monotonic) {
        // Approvals were given in the history that is lost.
        self.guards.approvals.void();
        if !self.sync.is_broken() {
            self.sync.history = Continuity::Broken;
            self.model.disk.write(Write::History(Continuity::Broken));
            self.requeue_removals(now);
        }
    }

    pub(in crate::core) fn history_whole(&mut self, now: Monotonic) {
        self.journal_is_current();
        if self.sync.is_broken() {
            self.sync.history = Continuity::Whole;
            self.model.disk.write(Write::History(Continuity::Whole));
            self.requeue_removals(now);
        }
    }

    fn requeue_removals(&mut self, now: Monotonic) {
        for key in self.model.removals.keys().map(|removal| removal.key.clone()).collect::<Vec<_>>() {
            self.enqueue(&key);
            self.dirty(&key, now);
        }
    }

    /// The removals under way that a set of a higher epoch does not mention: their order may have been withdrawn in the
    /// history that is lost. Those that have begun are finished.
    pub(in crate::core) fn lapsed_by(&self, change: &Change) -> Vec<Tombstone> {
        let raised = self.sync.floor().is_some_and(|floor| floor.version.epoch < change.accepted.set.version.epoch);
        let lapses = |(removal, state): &(&Tombstone, &Removal)| {
            let open = !state.is_done() && !state.is_finalizing();
            raised && open && !change.tombstones.contains_key(*removal)
        };
        self.model.removals.iter().filter(lapses).map(|(removal, _)| removal.clone()).collect()
    }

    /// The hub has said what the target is to hold: removals in the journal are part of that, or void.
    pub(in crate::core) fn journal_is_current(&mut self) {
        if std::mem::replace(&mut self.model.journal_age, JournalAge::Current) != JournalAge::Current {
            if let Some(namespace) = self.model.later_in.take() {
                let doubted = self.model.objects.keys().filter(|key| *namespace_of(key) == namespace);
                for key in doubted.cloned().collect::<Vec<_>>() {
                    self.enqueue(&key);
                }
            }
            let waiting: Vec<_> = self.model.removals.keys().map(|tombstone| tombstone.key.clone()).collect();
            for key in waiting {
                self.enqueue_removals(&key);
            }
        }
    }
}

impl HubSync {
    /// The newest set that was ever accepted, as far as is known here.
    pub(in crate::core) fn floor(&self) -> Option<Accepted> {
        self.sets.newest().map(|newest| newest.set)
    }

    /// The revision by which the hub is to judge its history.
    pub(in crate::core) fn shown(&self) -> Option<Shown> {
        self.sets.newest().map(|Attested { set: _, attestation }| attestation.shown())
    }

    pub(in crate::core) fn is_broken(&self) -> bool {
        self.history != Continuity::Whole
    }

    /// While history is broken no removal begins, on whatever ground.
    pub(in crate::core) fn while_broken(&self, verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::Delete(authorised) | Verdict::Orphan(authorised) if self.is_broken() => {
                authorised.held(Reason::HistoryLost)
            }
            Verdict::Delete(_)
            | Verdict::Orphan(_)
            | Verdict::Inspect
            | Verdict::Read
            | Verdict::TransferOwnership
            | Verdict::Forget
            | Verdict::Hold(_)
            | Verdict::Wait => verdict,
        }
    }

    pub(in crate::core) fn history_condition(&self) -> Option<TargetCondition> {
        let condition = || TargetCondition { reason: Reason::HistoryLost, count: 1, message: BROKEN.to_owned() };
        self.is_broken().then(condition)
    }
}

#[cfg(test)]
mod tests;
