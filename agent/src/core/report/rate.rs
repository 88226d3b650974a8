//! A rate limit for each key: the first report goes out at once, further ones when the interval ends. Only the key waits;
//! its newest state is sent.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tideline_common::Monotonic;

use crate::core::Phase;

/// Keys with a report within the interval: when it was, and the part of it that must never wait.
#[derive(Debug)]
pub(in crate::core) struct Rate<K, V, const SECONDS: u64> {
    said: BTreeMap<K, (Monotonic, V)>,
    /// The same, the oldest first.
    oldest: BTreeSet<(Monotonic, K)>,
    /// When the keys with further changes are due. That moment never moves, so that a key that changes all the time is
    /// reported.
    due: BTreeSet<(Monotonic, K)>,
}

impl<K, V, const SECONDS: u64> Default for Rate<K, V, SECONDS> {
    fn default() -> Self {
        Self { said: BTreeMap::new(), oldest: BTreeSet::new(), due: BTreeSet::new() }
    }
}

impl<K: Ord + Clone, V: PartialEq, const SECONDS: u64> Rate<K, V, SECONDS> {
    const EVERY: Duration = Duration::from_secs(SECONDS);

    /// A report of it goes out now.
    pub(in crate::core) fn said(&mut self, now: Monotonic, key: K, value: V) {
        self.forget(&key);
        self.oldest.insert((now, key.clone()));
        self.said.insert(key, (now, value));
    }

    /// Whether its changes wait, since all of them may. Then they are due later.
    pub(in crate::core) fn holds(&mut self, now: Monotonic, key: &K, value: &V) -> bool {
        let Some((said, former)) = self.said.get(key) else { return false };
        let at = *said + Self::EVERY;
        let holds = at > now && former == value;
        if holds {
            self.due.insert((at, key.clone()));
        }
        holds
    }

    /// It changed: it is due now, or when its interval is over.
    pub(in crate::core) fn news(&mut self, now: Monotonic, key: K) {
        let at = self.said.get(&key).map_or(now, |(said, _)| now.max(*said + Self::EVERY));
        self.due.insert((at, key));
    }

    pub(in crate::core) fn forget<Q: Ord + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        if let Some((key, (said, _))) = self.said.remove_entry(key) {
            self.due.remove(&(said + Self::EVERY, key.clone()));
            self.oldest.remove(&(said, key));
        }
    }

    /// Takes whatever is due, and forgets keys whose interval is over; everything that waits, for the last report.
    pub(in crate::core) fn take(&mut self, now: Monotonic, phase: Phase) -> BTreeSet<K> {
        if phase == Phase::Running { self.take_due(now) } else { self.take_waiting() }
    }

    fn take_due(&mut self, now: Monotonic) -> BTreeSet<K> {
        while let Some((said, _)) = self.oldest.first()
            && *said + Self::EVERY <= now
            && let Some((_, key)) = self.oldest.pop_first()
        {
            self.said.remove(&key);
        }
        let mut due = BTreeSet::new();
        while let Some((at, _)) = self.due.first()
            && *at <= now
            && let Some((_, key)) = self.due.pop_first()
        {
            due.insert(key);
        }
        due
    }

    fn take_waiting(&mut self) -> BTreeSet<K> {
        std::mem::take(&mut self.due).into_iter().map(|(_, key)| key).collect()
    }

    #[cfg(test)]
    pub(in crate::core) fn is_empty(&self) -> bool {
        self.said.is_empty() && self.oldest.is_empty() && self.due.is_empty()
    }

    /// When the next is due.
    pub(in crate::core) fn next_due(&self) -> Option<Monotonic> {
        self.due.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests;
