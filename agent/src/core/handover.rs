//! From one target to another: this agent was handed a SyncTarget that was made again, or enrolled anew. What it placed is its
//! own under both.
//!
//! An epoch is of one target, so nothing follows from comparing sets across the two: what the first set of the new target lacks
//! was not taken out, removals under way end, and its revisions are not compared with those before. The accepted set stands
//! until there is another.

use tideline_common::Monotonic;
use tideline_common::wire::v1::Decommission;

use super::Core;
use super::approve::Approvals;
use super::disk::Then;
use super::effect::{Effects, Enrolled, Write};

impl Core {
    /// Becomes this target, on disk with all that follows from it, and asks for a session as it.
    pub(super) fn become_target(&mut self, now: Monotonic, enrolled: Enrolled, out: &mut Effects) {
        if self.target == Some(enrolled.target) {
            // With a new key.
            return self.open_session(out);
        }
        if let Some(former) = self.target {
            self.formers = self.formers.with(former).without(enrolled.target);
            self.leave_sets();
            for tombstone in self.removals.keys().cloned().collect::<Vec<_>>() {
                self.void_removal(&tombstone);
            }
            self.approvals = Approvals::default();
            if self.decommission != Decommission::No {
                self.decommission = Decommission::No;
                self.disk.write(Write::Decommission(Decommission::No));
            }
            // It was never told anything.
            self.resend(now, out);
            self.session.distrust();
            // Every mark is looked at, and names the new target then.
            for key in self.objects.keys().cloned().collect::<Vec<_>>() {
                self.enqueue(&key);
            }
        }
        self.target = Some(enrolled.target);
        self.session.switching();
        self.disk.write(Write::Enrolled(enrolled));
        self.disk.then(Then::Enrolled);
    }

    /// What this agent is now is on disk. A set of the former target that was on its way there came before.
    pub(super) fn became_target(&mut self, out: &mut Effects) {
        self.leave_sets();
        self.open_session(out);
    }

    fn leave_sets(&mut self) {
        self.inherited = self.newest.take().or(self.inherited);
        self.accepted = None;
    }
}

#[cfg(test)]
mod tests;
