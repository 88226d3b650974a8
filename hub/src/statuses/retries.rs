use std::collections::BTreeMap;
use std::time::Duration;

use tideline_runtime::Backoff;
use tokio::time::Instant;

/// Between two tries of one write, at least, and drawn after that: from nothing to an interval that grows from the first of
/// these to the second.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Writes that failed, each with a pause of its own. What is told meanwhile shortens none: it is written when it is due, as it
/// is then.
#[derive(Debug)]
pub(super) struct Retries<K> {
    waiting: BTreeMap<K, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    backoff: Backoff,
    until: Instant,
}

impl<K> Default for Retries<K> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Retries<K> {
    /// Of what is to be written, and what failed before, all that may be tried now.
    pub(super) fn due(&self, now: Instant, wanted: impl IntoIterator<Item = K>) -> Vec<K> {
        let again = self.waiting.iter().filter(|(_, waiting)| waiting.until <= now).map(|(key, _)| key.clone());
        let new = wanted.into_iter().filter(|key| !self.waiting.contains_key(key));
        again.chain(new).collect()
    }

    pub(super) fn is_due(&self, now: Instant, key: &K) -> bool {
        self.waiting.get(key).is_none_or(|waiting| waiting.until <= now)
    }

    /// When the next of what failed is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.waiting.values().map(|waiting| waiting.until).min()
    }

    pub(super) fn failed(&mut self, now: Instant, key: K) {
        let fresh = || Waiting { backoff: Backoff::new(PAUSE_MIN, PAUSE_MAX), until: now };
        let waiting = self.waiting.entry(key).or_insert_with(fresh);
        waiting.until = now + waiting.backoff.next_delay(Some(PAUSE_MIN));
    }

    /// It is written, or there is nothing to write.
    pub(super) fn ended(&mut self, key: &K) {
        self.waiting.remove(key);
    }

    pub(super) fn retain(&mut self, is_wanted: impl Fn(&K) -> bool) {
        self.waiting.retain(|key, _| is_wanted(key));
    }
}
