//! Who gets the operations that may be under way: no kind all of them, and next to none a kind whose webhook does not
//! answer, so that what waits for a webhook keeps nothing else waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tideline_common::{GroupKind, Monotonic, ObjectKey, Reason};

use super::effect::OpId;
use super::event::OpResult;
use super::jitter::Jitter;
use super::pace::{Ended, Pace, Sign};

/// Of a kind whose webhook does not answer: enough to find out that it does again.
const STUCK_MAX: usize = 2;
/// A webhook that refused or failed faster takes no operation's place for long.
const STUCK_AFTER: Duration = Duration::from_millis(500);

/// Whether an operation on an object of some kind may be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Free,
    /// Its kind has its share under way.
    Full,
    /// Its kind waits for a webhook; what is under way finds out how that goes on.
    Stuck,
}

#[derive(Debug, Default)]
pub(super) struct Slots {
    pub(super) pace: Pace,
    under_way: BTreeMap<GroupKind, usize>,
    stuck: BTreeMap<GroupKind, Stuck>,
}

#[derive(Debug)]
struct Stuck {
    /// What was said of the last that failed.
    message: Arc<str>,
    /// What was not tried for that.
    waiting: BTreeSet<ObjectKey>,
}

impl Slots {
    pub(super) fn began(&mut self, kind: &GroupKind) {
        match self.under_way.get_mut(kind) {
            Some(count) => *count += 1,
            None => drop(self.under_way.insert(kind.clone(), 1)),
        }
    }

    pub(super) fn landed(&mut self, kind: &GroupKind) {
        if let Some(count) = self.under_way.get_mut(kind) {
            *count -= 1;
            if *count == 0 {
                self.under_way.remove(kind);
            }
        }
    }

    pub(super) fn admits(&self, kind: &GroupKind) -> Admission {
        let under_way = self.under_way.get(kind).copied().unwrap_or_default();
        let limit = self.pace.limit();
        if under_way >= STUCK_MAX && self.stuck.contains_key(kind) {
            Admission::Stuck
        } else if under_way >= limit - limit / 5 {
            Admission::Full
        } else {
            Admission::Free
        }
    }

    /// What became of an operation. Returns what need not wait any longer.
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
                match self.stuck.get_mut(&key.kind) {
                    Some(stuck) => stuck.message = message,
                    None => {
                        self.stuck.insert(key.kind.clone(), Stuck { message, waiting: BTreeSet::new() });
                    }
                }
                BTreeSet::new()
            }
            _ if sign == Sign::Well => self.stuck.remove(&key.kind).map(|stuck| stuck.waiting).unwrap_or_default(),
            _ => BTreeSet::new(),
        }
    }

    /// Has an object wait until its kind is not stuck any more. Returns what was said of the one that failed last.
    pub(super) fn wait(&mut self, key: &ObjectKey) -> Option<Arc<str>> {
        let stuck = self.stuck.get_mut(&key.kind)?;
        stuck.waiting.insert(key.clone());
        Some(Arc::clone(&stuck.message))
    }

    pub(super) fn forget(&mut self, key: &ObjectKey) {
        if let Some(stuck) = self.stuck.get_mut(&key.kind) {
            stuck.waiting.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;
