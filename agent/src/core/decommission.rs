//! A cluster goes out of service: whatever is ours there is removed, or let go of, and then there is nothing to do.
//!
//! ```text
//!  in service ── an empty set that says so ──▶ Keep or Remove: a removal for all that is ours ──▶ nothing left: idle
//!       ▲                                                        │
//!       └──────────────── a set that does not say so ◀───────────┘
//! ```
//!
//! That it is so is in the journal with the set that said it, so that neither a crash nor a hub that is away ends it: what is
//! ours is looked for anew at each start. When the cluster is in service again, what nothing says was unassigned stays, and
//! what was to be let go of is, whatever was not done by then. The removals are the ordinary ones, in their order and through
//! the one gate: nothing foreign is touched, and nothing goes that holds what is not ours. Only the fuse lets all pass, for that
//! was said by whoever wants the cluster emptied. Where all is to be kept, the gate lets go of what it would delete.

use tideline_common::wire::v1::{Decommission, DecommissionReport};
use tideline_common::{Monotonic, PrunePolicy, Tombstone};

use super::Core;
use super::effect::{Effect, Effects};
use super::gather::Change;
use super::remove::{Cause, Removal, RemovalPolicy, RemovalState};

/// Of what is to be let go of, whatever was said of it before.
pub(super) const LET_GO: RemovalPolicy = RemovalPolicy::Tombstone(PrunePolicy::LEAST);

impl Core {
    /// Those removals under way that were to let go of an object because all was to be kept, if the set says otherwise. They
    /// end as they would have if they had been done by then.
    pub(super) fn left_by_keeping(&self, change: &Change) -> Vec<Tombstone> {
        if !self.decommission.keeps() || change.decommission.keeps() {
            return Vec::new();
        }
        let lets_go = |(tombstone, removal): &(&Tombstone, &Removal)| {
            let under_way = removal.cause != Cause::Retired && removal.state != RemovalState::Done;
            under_way && removal.policy != LET_GO && !change.tombstones.contains_key(*tombstone)
        };
        self.removals.iter().filter(lets_go).map(|(tombstone, _)| tombstone.clone()).collect()
    }

    /// A set was accepted that says so.
    pub(super) fn decommission(&mut self, now: Monotonic, how: Decommission) {
        if self.decommission != how {
            self.decommission = how;
            if how == Decommission::No {
                let retired = self.removals.iter().filter(|(_, removal)| removal.cause == Cause::Retired);
                for removal in retired.map(|(removal, _)| removal.clone()).collect::<Vec<_>>() {
                    self.dirty(&removal.key, now);
                    self.forget_removal(&removal);
                }
            }
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
