//! Divides the concurrency limit: no kind gets all of it, and objects behind a webhook that does not answer get almost
//! none.
//!
//! Where several webhooks are silent one after the other, the API server gives up the write before they do, and says no more
//! than that: it may as well be overloaded itself. If other objects are written meanwhile, it is not.
//!
//! Webhooks are called for kinds, and most of them for some namespaces only: those that a team has labelled, or all but those
//! of the system. So it is the objects of one kind in one namespace that wait together.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use tideline_common::{GroupKind, Monotonic, ObjectKey, Reason};

use super::aimd::{Aimd, Ended, Sign};
use crate::core::counts::Counts;
use crate::core::interface::effect::OpId;
use crate::core::interface::op_result::{Failure, OpResult};
use crate::core::jitter::Jitter;
use crate::core::model::key_ref::KeyRef;

/// Behind a silent webhook: enough operations to find out that it answers again, and then to get through those that wait one
/// after the other. A success says little: the webhook may not be called for it.
const STUCK_MAX: usize = 2;
/// All objects behind webhooks together get one of so many slots: each uses its slot for as long as the webhook's timeout.
const STUCK_SHARE: usize = 4;
/// A webhook that refused or failed faster takes no operation's slot for long.
const STUCK_AFTER: Duration = Duration::from_millis(500);

/// Whether an operation on an object may be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum Admission {
    Free,
    /// Its kind uses up its share.
    Full,
    /// Its kind waits for a webhook, in its namespace; an operation in flight finds out how that goes on.
    Stuck,
}

/// What an operation does, as far as it matters here: webhooks are not called for reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum Access {
    Read,
    Write,
}

/// Why the objects of one kind in one namespace are stuck.
#[derive(Clone, Debug)]
pub(in crate::core) struct StuckFor {
    pub(in crate::core) cause: Cause,
    /// What was said of the last that failed.
    pub(in crate::core) message: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum Cause {
    /// A webhook failed, or took long to deny.
    Webhook,
    /// There was no answer.
    Silence,
}

#[derive(Debug, Default)]
pub(in crate::core) struct ConcurrencyLimiter {
    pub(in crate::core) aimd: Aimd,
    under_way: Counts<GroupKind>,
    /// Writes.
    under_way_in: Counts<Area>,
    stuck: BTreeMap<Area, Stuck>,
    /// Of the operations in flight, those behind silent webhooks.
    stuck_under_way: usize,
    /// Where something went well last, and where before that elsewhere.
    well: [Option<(Area, Monotonic)>; 2],
}

/// The objects of one kind in one namespace; those without a namespace are together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Area {
    kind: GroupKind,
    namespace: Arc<str>,
}

impl From<&ObjectKey> for Area {
    fn from(key: &ObjectKey) -> Self {
        Self { kind: key.kind.clone(), namespace: Arc::clone(&key.namespace) }
    }
}

/// A key before all those of later kinds, and after all those of this one.
fn first_after(kind: &GroupKind) -> ObjectKey {
    ObjectKey::new(GroupKind::new(&*kind.group, format!("{}\0", kind.kind)), "", "")
}

#[derive(Debug)]
struct Stuck {
    why: StuckFor,
    /// Objects that were not tried for that.
    waiting: BTreeSet<ObjectKey>,
    /// Objects that were, and wait for their own retry.
    failed: BTreeSet<ObjectKey>,
}

impl ConcurrencyLimiter {
    pub(in crate::core) fn began(&mut self, key: &ObjectKey, access: Access) {
        self.under_way.up(key.kind.clone());
        if access == Access::Write {
            let area = Area::from(key);
            self.stuck_under_way += usize::from(self.stuck.contains_key(&area));
            self.under_way_in.up(area);
        }
    }

    pub(in crate::core) fn finished(&mut self, key: &ObjectKey, access: Access) {
        self.under_way.down(&key.kind);
        if access == Access::Write {
            let area = Area::from(key);
            self.stuck_under_way -= usize::from(self.stuck.contains_key(&area));
            self.under_way_in.down(&area);
        }
    }

    pub(in crate::core) fn admits(&self, key: &ObjectKey) -> Admission {
        let under_way = self.under_way.of(&key.kind);
        let limit = self.aimd.limit();
        let area = (!self.stuck.is_empty()).then(|| Area::from(key));
        if area.is_some_and(|area| self.stuck.contains_key(&area) && self.is_stuck_full(&area)) {
            Admission::Stuck
        } else if under_way >= share_of_a_kind(limit) {
            Admission::Full
        } else {
            Admission::Free
        }
    }

    /// The first whose kind has not used up its share.
    pub(in crate::core) fn first_admitted(&mut self, names: &BTreeSet<KeyRef>) -> Option<ObjectKey> {
        let mut from = Bound::Unbounded;
        loop {
            let key = names.range::<ObjectKey, _>((from.as_ref(), Bound::Unbounded)).next()?.key();
            if self.admits(key) != Admission::Full {
                return Some(key.clone());
            }
            from = Bound::Included(first_after(&key.kind));
            self.aimd.is_full();
        }
    }

    fn is_stuck_full(&self, area: &Area) -> bool {
        let there = self.under_way_in.of(area);
        there >= STUCK_MAX || self.stuck_under_way >= (self.aimd.limit() / STUCK_SHARE).max(1)
    }

    /// The outcome of an operation. Returns the objects that need not wait any longer.
    pub(in crate::core) fn judge(
        &mut self,
        now: Monotonic,
        op: (OpId, &ObjectKey, Access, Duration),
        result: &OpResult,
        last: OpId,
        jitter: &mut Jitter,
    ) -> BTreeSet<ObjectKey> {
        let (id, key, access, took) = op;
        let area = Area::from(key);
        let sign = Sign::of(result, took);
        let of_its_area = sign == Sign::Unanswered && self.concerns_only(&area, now, took);
        self.aimd.ended(now, Ended { id, took, sign: if of_its_area { Sign::None } else { sign }, last }, jitter);
        if sign == Sign::Well {
            self.note_well(&area, now);
        }
        if access == Access::Read {
            return BTreeSet::new();
        }
        let failed_for = |cause, failure: &Failure| StuckFor { cause, message: Arc::from(failure.message.as_str()) };
        match (sign, result.failure()) {
            (Sign::Unanswered, Some(failure)) => self.sticks(&area, failed_for(Cause::Silence, failure)),
            (_, Some(failure @ Failure { reason: Reason::Webhook | Reason::Denied, .. })) if took >= STUCK_AFTER => {
                self.sticks(&area, failed_for(Cause::Webhook, failure))
            }
            (Sign::Well, _) => self.goes_well(&area),
            (Sign::None | Sign::Strained(_) | Sign::Unanswered, _) => BTreeSet::new(),
        }
    }

    /// Whether a write that got no answer says nothing about the API server: something was done elsewhere meanwhile, or so few
    /// of these are in flight already that an API server which bears nothing else would bear them.
    fn concerns_only(&self, area: &Area, now: Monotonic, took: Duration) -> bool {
        let elsewhere = self.well.iter().flatten().any(|(of, at)| of != area && now.since(*at) <= took);
        elsewhere || self.stuck.contains_key(area)
    }

    fn note_well(&mut self, area: &Area, now: Monotonic) {
        match &mut self.well {
            [Some((of, at)), _] if of == area => *at = now,
            [last, before] => *before = last.replace((area.clone(), now)),
        }
    }

    /// Something failed as others there will. Returns the one that gets its slot, which was not tried yet: what has failed
    /// would leave that to chance.
    fn sticks(&mut self, area: &Area, why: StuckFor) -> BTreeSet<ObjectKey> {
        let Some(stuck) = self.stuck.get_mut(area) else {
            self.stuck_under_way += self.under_way_in.of(area);
            self.stuck.insert(area.clone(), Stuck { why, waiting: BTreeSet::new(), failed: BTreeSet::new() });
            return BTreeSet::new();
        };
        stuck.why = why;
        stuck.waiting.pop_first().into_iter().collect()
    }

    /// Something succeeded behind a silent webhook: as much as may be in flight is tried there, and when nothing is left it is
    /// over.
    fn goes_well(&mut self, area: &Area) -> BTreeSet<ObjectKey> {
        let Some(stuck) = self.stuck.get_mut(area) else { return BTreeSet::new() };
        let next =
            (0..STUCK_MAX).map_while(|_| stuck.waiting.pop_first().or_else(|| stuck.failed.pop_first())).collect();
        if stuck.waiting.is_empty() && stuck.failed.is_empty() {
            self.stuck.remove(area);
            self.stuck_under_way -= self.under_way_in.of(area);
        }
        next
    }

    /// Has an object wait until its kind is not stuck there any more. Returns why it is.
    pub(in crate::core) fn wait(&mut self, key: &ObjectKey) -> Option<StuckFor> {
        let stuck = self.stuck.get_mut(&Area::from(key))?;
        stuck.waiting.insert(key.clone());
        Some(stuck.why.clone())
    }

    /// An object failed for what others may be stuck for, and waits for its own retry, or until something succeeds there.
    pub(in crate::core) fn failed(&mut self, key: &ObjectKey) {
        if let Some(stuck) = self.stuck.get_mut(&Area::from(key)) {
            stuck.failed.insert(key.clone());
        }
    }

    pub(in crate::core) fn forget(&mut self, key: &ObjectKey) {
        if !self.stuck.is_empty()
            && let Some(stuck) = self.stuck.get_mut(&Area::from(key))
        {
            stuck.waiting.remove(key);
            stuck.failed.remove(key);
        }
    }
}

/// So many operations may be on objects of one kind: four fifths of all, and one less than all of few.
fn share_of_a_kind(limit: usize) -> usize {
    (limit - (limit / 5).max(1)).max(1)
}

#[cfg(test)]
mod tests;
