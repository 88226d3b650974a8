//! Who gets the operations that may be under way: no kind all of them, and next to none what a webhook does not answer for,
//! so that what waits for a webhook keeps nothing else waiting.
//!
//! Webhooks are asked about kinds, and most of them about some namespaces only: those that a team has labelled, or all but
//! those of the system. So it is the objects of one kind in one namespace that wait together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tideline_common::{GroupKind, Monotonic, ObjectKey, Reason};

use super::effect::OpId;
use super::event::OpResult;
use super::jitter::Jitter;
use super::pace::{Ended, Pace, Sign};

/// Where a webhook does not answer: enough to find out that it does again.
const STUCK_MAX: usize = 2;
/// All that wait for webhooks together get one of so many: each holds its place for as long as the webhook's timeout.
const STUCK_SHARE: usize = 4;
/// A webhook that refused or failed faster takes no operation's place for long.
const STUCK_AFTER: Duration = Duration::from_millis(500);

/// Whether an operation on an object may be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Free,
    /// Its kind has its share under way.
    Full,
    /// Its kind waits for a webhook, in its namespace; what is under way finds out how that goes on.
    Stuck,
}

#[derive(Debug, Default)]
pub(super) struct Slots {
    pub(super) pace: Pace,
    under_way: BTreeMap<GroupKind, usize>,
    under_way_in: BTreeMap<Area, usize>,
    stuck: BTreeMap<Area, Stuck>,
    /// Of what is under way, what is where webhooks do not answer.
    stuck_under_way: usize,
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

#[derive(Debug)]
struct Stuck {
    /// What was said of the last that failed.
    message: Arc<str>,
    /// What was not tried for that.
    waiting: BTreeSet<ObjectKey>,
}

impl Slots {
    pub(super) fn began(&mut self, key: &ObjectKey) {
        let area = Area::from(key);
        self.stuck_under_way += usize::from(self.stuck.contains_key(&area));
        *self.under_way.entry(key.kind.clone()).or_default() += 1;
        *self.under_way_in.entry(area).or_default() += 1;
    }

    pub(super) fn landed(&mut self, key: &ObjectKey) {
        let area = Area::from(key);
        self.stuck_under_way -= usize::from(self.stuck.contains_key(&area));
        count_down(&mut self.under_way, &key.kind);
        count_down(&mut self.under_way_in, &area);
    }

    pub(super) fn admits(&self, key: &ObjectKey) -> Admission {
        let under_way = self.under_way.get(&key.kind).copied().unwrap_or_default();
        let limit = self.pace.limit();
        let area = (!self.stuck.is_empty()).then(|| Area::from(key));
        if area.is_some_and(|area| self.stuck.contains_key(&area) && self.is_stuck_full(&area)) {
            Admission::Stuck
        } else if under_way >= limit - limit / 5 {
            Admission::Full
        } else {
            Admission::Free
        }
    }

    fn is_stuck_full(&self, area: &Area) -> bool {
        let there = self.under_way_in.get(area).copied().unwrap_or_default();
        there >= STUCK_MAX || self.stuck_under_way >= (self.pace.limit() / STUCK_SHARE).max(1)
    }

    /// What became of an operation that has landed. Returns what need not wait any longer.
    pub(super) fn judge(
        &mut self,
        now: Monotonic,
        op: (OpId, &ObjectKey, Duration),
        result: &OpResult,
        last: OpId,
        jitter: &mut Jitter,
    ) -> BTreeSet<ObjectKey> {
        let (id, key, took) = op;
        let sign = Sign::of(result, took);
        self.pace.ended(now, Ended { id, took, sign, last }, jitter);
        match result {
            OpResult::Failed { reason: Reason::Webhook, message, .. } if took >= STUCK_AFTER => {
                let message = Arc::from(message.as_str());
                let area = Area::from(key);
                if let Some(stuck) = self.stuck.get_mut(&area) {
                    stuck.message = message;
                } else {
                    self.stuck_under_way += self.under_way_in.get(&area).copied().unwrap_or_default();
                    self.stuck.insert(area, Stuck { message, waiting: BTreeSet::new() });
                }
                BTreeSet::new()
            }
            _ if sign == Sign::Well => {
                let area = Area::from(key);
                let Some(stuck) = self.stuck.remove(&area) else { return BTreeSet::new() };
                self.stuck_under_way -= self.under_way_in.get(&area).copied().unwrap_or_default();
                stuck.waiting
            }
            _ => BTreeSet::new(),
        }
    }

    /// Has an object wait until its kind is not stuck there any more. Returns what was said of the one that failed last.
    pub(super) fn wait(&mut self, key: &ObjectKey) -> Option<Arc<str>> {
        let stuck = self.stuck.get_mut(&Area::from(key))?;
        stuck.waiting.insert(key.clone());
        Some(Arc::clone(&stuck.message))
    }

    pub(super) fn forget(&mut self, key: &ObjectKey) {
        if !self.stuck.is_empty()
            && let Some(stuck) = self.stuck.get_mut(&Area::from(key))
        {
            stuck.waiting.remove(key);
        }
    }
}

fn count_down<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;
