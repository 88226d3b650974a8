//! A cluster goes out of service: whatever is ours there is removed, or let go of, and then there is nothing to do.
//!
//! ```text
//!  in service ── an empty set that says so ──▶ Keep or Remove: a removal for all that is ours ──▶ nothing left: idle
//!       ▲                                                        │
//!       └──────────────── a set that does not say so ◀───────────┘
//! ```
//!
//! That it is so is in the journal with the set that said it, and so is each removal, so that neither a crash nor a hub that is
//! away ends it. The removals are the ordinary ones, in their order and through the one gate: nothing foreign is touched, and
//! nothing goes that holds what is not ours. Only the fuse lets all pass, for that was said by whoever wants the cluster
//! emptied. Where all is to be kept, the gate lets go of what it would delete.

use tideline_common::Tombstone;
use tideline_common::wire::v1::{Decommission, DecommissionReport};

use super::Core;
use super::effect::{Effect, Effects, Write};
use super::remove::{Cause, RemovalPolicy};

impl Core {
    /// A set was accepted that says so.
    pub(super) fn decommission(&mut self, how: Decommission) {
        if self.decommission != how {
            self.decommission = how;
            // What was held may go now, or is let go of.
            for key in self.objects.keys().cloned().collect::<Vec<_>>() {
                self.enqueue(&key);
            }
        }
    }

    /// Has everything removed that is ours and that nothing says was unassigned.
    pub(super) fn retire_all(&mut self) {
        if self.decommission != Decommission::No {
            for key in self.objects.keys().cloned().collect::<Vec<_>>() {
                self.take_up(&key);
            }
        }
    }

    pub(super) fn retire(&mut self, removal: Tombstone) {
        let policy = RemovalPolicy::default();
        self.disk.write(Write::Removing { tombstone: removal.clone(), policy });
        self.put_removal(removal, policy, None, Cause::Told);
    }

    /// How far that is; none for a cluster in service.
    pub(super) fn decommissioned(&self) -> Option<DecommissionReport> {
        let how = self.decommission;
        (how != Decommission::No).then_some(DecommissionReport { how, left: self.removals.len() as u64 })
    }

    /// Tells the edges when it begins, and when it ends.
    pub(super) fn tell_decommission(&mut self, out: &mut Effects) {
        let told =
            self.decommissioned().map(|report| DecommissionReport { left: u64::from(report.left > 0), ..report });
        if self.told_decommission != told {
            self.told_decommission = told;
            let in_service = DecommissionReport { how: Decommission::No, left: 0 };
            out.push(Effect::Decommissioned(self.decommissioned().unwrap_or(in_service)));
        }
    }
}

#[cfg(test)]
mod tests;
