//! How far a target is believed: as long as its agent says in time that its own view of the cluster is complete and current.

use std::time::Duration;

use tideline_common::rollup::Freshness;
use tideline_common::wire::v1::{DesiredAnswer, Stands};
use tideline_common::{Monotonic, TargetId};

use super::{Core, Effect, Effects, RequestId, respond_desired};

impl Core {
    /// What the newest report of a target says holds as of now.
    pub(super) fn heard(&mut self, now: Monotonic, key: TargetId, out: &mut Effects) {
        let stale_after = self.stale_after();
        let Some(target) = self.targets.get_mut(&key) else { return };
        let became_fresh = target.in_sync && target.freshness != Freshness::Fresh;
        if target.in_sync {
            self.deadlines.remove(&(target.fresh_at + stale_after, key));
            target.fresh_at = now;
            target.freshness = Freshness::Fresh;
            self.deadlines.insert((now + stale_after, key));
        }
        out.push(Effect::Heard { target: key, in_sync: target.in_sync, became_fresh });
    }

    /// A poll may say that a report stands. If a later one came, or a later poll, it was under way meanwhile and says nothing; if
    /// the report is not known, an earlier run of the hub was told it, and the agent is asked to say it again. True if the poll
    /// goes on.
    pub(super) fn stands(
        &mut self,
        now: Monotonic,
        id: RequestId,
        key: TargetId,
        stands: Option<Stands>,
        out: &mut Effects,
    ) -> bool {
        let (Some(Stands { report, nth }), Some(target)) = (stands, self.targets.get_mut(&key)) else { return true };
        if report > target.seq {
            out.push(respond_desired(id, DesiredAnswer::ReportAgain));
            return false;
        }
        if report == target.seq && nth > target.stood {
            target.stood = nth;
            if target.in_sync {
                self.heard(now, key, out);
            }
        }
        true
    }

    pub(super) fn stale_after(&self) -> Duration {
        Duration::from_secs(self.config.poll.stale_after_seconds)
    }
}
