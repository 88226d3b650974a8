use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// From one write of a status to the next of the same object, at least. As slow as a person reads, and half of how often a
/// kubelet says that it lives.
pub(super) const EVERY: Duration = Duration::from_secs(5);

/// When each object was last written. The first write after a quiet time passes at once; what changes until the next may pass
/// is written then, as it is then.
///
/// It remembers only what was written within [`EVERY`]: as many objects as the API server takes in that time.
#[derive(Debug)]
pub(super) struct Pace<K> {
    written: BTreeMap<K, Written>,
}

#[derive(Clone, Copy, Debug)]
struct Written {
    /// From when on it may be written again.
    until: Instant,
    /// Whether it changed since.
    waits: bool,
}

impl<K> Default for Pace<K> {
    fn default() -> Self {
        Self { written: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Pace<K> {
    /// Whether an object may be written now. If not, it waits, and comes back from [`Pace::take_due`].
    pub(super) fn may(&mut self, now: Instant, key: &K) -> bool {
        match self.written.get_mut(key) {
            Some(written) if written.until > now => {
                written.waits = true;
                false
            }
            Some(_) | None => true,
        }
    }

    /// Forgets what was written long enough ago; returns what of that waits.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<K> {
        let due = self.written.extract_if(.., |_, written| written.until <= now);
        due.filter(|(_, written)| written.waits).map(|(key, _)| key).collect()
    }

    /// When the next of what waits is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.written.values().filter(|written| written.waits).map(|written| written.until).min()
    }

    pub(super) fn wrote(&mut self, now: Instant, key: K) {
        self.written.insert(key, Written { until: now + EVERY, waits: false });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(begun: Instant, milliseconds: u64) -> Instant {
        begun + Duration::from_millis(milliseconds)
    }

    #[test]
    fn the_first_change_after_a_quiet_time_passes_at_once() {
        let (mut pace, begun) = (Pace::default(), Instant::now());
        assert!(pace.may(begun, &"a"));
        pace.wrote(begun, "a");
        assert!(pace.may(after(begun, 5_000), &"a"));
        assert!(pace.may(after(begun, 60_000), &"a"));
        assert_eq!(pace.next(), None, "nothing waits");
    }

    #[test]
    fn what_changes_too_soon_waits_for_its_own_time() {
        let (mut pace, begun) = (Pace::default(), Instant::now());
        pace.wrote(begun, "a");
        pace.wrote(after(begun, 1_000), "b");
        assert!(!pace.may(after(begun, 4_999), &"a") && !pace.may(after(begun, 4_999), &"b"));
        assert!(pace.may(after(begun, 4_999), &"c"));
        assert_eq!(pace.next(), Some(after(begun, 5_000)));
        assert_eq!(pace.take_due(after(begun, 4_999)), Vec::<&str>::new());
        assert_eq!(pace.take_due(after(begun, 5_000)), ["a"]);
        assert_eq!(pace.next(), Some(after(begun, 6_000)));
        assert_eq!(pace.take_due(after(begun, 6_000)), ["b"]);
        assert_eq!(pace.next(), None);
    }

    #[test]
    fn what_changes_all_the_time_is_written_once_in_five_seconds() {
        let (mut pace, begun) = (Pace::default(), Instant::now());
        let mut writes = Vec::new();
        for milliseconds in (0..=20_000).step_by(50) {
            let now = after(begun, milliseconds);
            pace.take_due(now);
            if pace.may(now, &()) {
                writes.push(milliseconds);
                pace.wrote(now, ());
            }
        }
        assert_eq!(writes, [0, 5_000, 10_000, 15_000, 20_000]);
    }

    #[test]
    fn what_was_written_long_ago_is_forgotten_whether_it_waits_or_not() {
        let (mut pace, begun) = (Pace::default(), Instant::now());
        for nth in 0..1_000 {
            pace.wrote(begun, nth);
        }
        assert!(!pace.may(begun, &7));
        assert_eq!(pace.take_due(after(begun, 5_000)), [7]);
        assert!(pace.written.is_empty());
    }
}
