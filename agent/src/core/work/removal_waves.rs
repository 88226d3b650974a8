//! Which removals wait for others: a lower wave begins when nothing of a higher one is on its way out any more.
//!
//! ```text
//!           begins                        ends: done
//!  (none) ─────────▶ Removing { count } ─────────────▶ (none), or what is left begins its time anew
//!                        ▲      │ ends: failed
//!                 begins │      ▼
//!                     as it was, without count: its next try has what is left of the time, and
//!                     one that comes soon is waited for
//! ```
//!
//! Nothing is waited for longer than a bounded time in which nothing of it was done, nor tried for the first time. What hangs (a
//! deletion in a webhook, a finalizer whose controller is gone) would keep all below it for ever, and the next try of it would
//! begin that time anew.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use tideline_common::Monotonic;

/// Longest that removals of lower waves wait for a higher one of which nothing is done: three operations in a row that get no
/// answer, of 35 s each.
const REMOVING_MAX: Duration = Duration::from_mins(2);
/// Longest that removals of lower waves wait for the finalizers of a higher one of which none ends. The controllers that
/// finalize may be among the objects to be removed next.
const FINALIZING_MAX: Duration = Duration::from_mins(2);
/// What is waited for is told after this: most deletions are over in less than a second.
const TOLD_AFTER: Duration = Duration::from_secs(30);
const _: () = assert!(TOLD_AFTER.as_secs() < REMOVING_MAX.as_secs() && TOLD_AFTER.as_secs() < FINALIZING_MAX.as_secs());

/// How a step of a removal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum StepEnd {
    /// The object is deleted, or let go of.
    Done,
    /// It is still to be removed.
    Undone,
}

/// What removals of lower waves wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum Awaited {
    /// So many removals of this wave are under way, and nothing of it was done for a while.
    Removing { wave: i32, count: usize },
    /// So many objects of this wave wait for their finalizers.
    Finalizing { wave: i32, count: usize },
}

#[derive(Debug, Default)]
pub(in crate::core) struct RemovalWaves {
    removing: BTreeMap<i32, Removing>,
    /// Waves of which something is being finalized, perhaps by what is in lower ones.
    finalizing: BTreeMap<i32, Finalizing>,
}

/// Removals of one wave that are in flight.
#[derive(Debug)]
struct Removing {
    count: usize,
    /// The first of them began, one that is new did, or the last was done.
    since: Monotonic,
    /// When the last ended, if none is in flight.
    idle_since: Option<Monotonic>,
    /// When the last of those is tried again that are tried again soon.
    again_at: Option<Monotonic>,
}

#[derive(Debug)]
struct Finalizing {
    count: usize,
    /// The first of them was deleted, or the last was gone.
    since: Monotonic,
}

impl Removing {
    fn new(now: Monotonic) -> Self {
        Self { count: 0, since: now, idle_since: None, again_at: None }
    }

    fn is_forgotten(&self, now: Monotonic) -> bool {
        self.idle_since.is_some_and(|since| now.since(since) >= REMOVING_MAX)
    }
}

impl RemovalWaves {
    /// A removal of this wave is under way.
    pub(in crate::core) fn begins(&mut self, now: Monotonic, wave: i32) {
        self.removing.retain(|_, removing| !removing.is_forgotten(now));
        let removing = self.removing.entry(wave).or_insert_with(|| Removing::new(now));
        removing.count += 1;
        removing.idle_since = None;
    }

    /// A removal of this wave is new: what failed before it leaves it no less time than it would have alone.
    pub(in crate::core) fn joins(&mut self, now: Monotonic, wave: i32) {
        if let Some(removing) = self.removing.get_mut(&wave) {
            removing.since = now;
        }
    }

    /// It is not under way any more.
    pub(in crate::core) fn ends(&mut self, now: Monotonic, wave: i32, end: StepEnd) {
        let Some(removing) = self.removing.get_mut(&wave) else { return };
        removing.count -= 1;
        match (end, removing.count) {
            (StepEnd::Done, 0) if removing.again_at <= Some(now) => {
                self.removing.remove(&wave);
            }
            // Another of this wave is tried again soon.
            (StepEnd::Done, 0) => (removing.since, removing.idle_since) = (now, Some(now)),
            (StepEnd::Done, _) => removing.since = now,
            (StepEnd::Undone, 0) => removing.idle_since = Some(now),
            (StepEnd::Undone, _) => {}
        }
    }

    /// One that was under way is tried again at this moment, for the API server was not there or had no time: lower waves wait for
    /// that as well. Whoever finalizes the object may be among them.
    pub(in crate::core) fn tries_again(&mut self, wave: i32, at: Monotonic) {
        if let Some(removing) = self.removing.get_mut(&wave) {
            removing.again_at = removing.again_at.max(Some(at));
        }
    }

    /// An object of this wave is deleted, and waits for its finalizers.
    pub(in crate::core) fn finalizes(&mut self, now: Monotonic, wave: i32) {
        let finalizing = self.finalizing.entry(wave).or_insert(Finalizing { count: 0, since: now });
        finalizing.count += 1;
        if now.since(finalizing.since) >= FINALIZING_MAX {
            // What hangs there since long says nothing of this one.
            finalizing.since = now;
        }
    }

    /// It no longer waits: it is gone since this moment, or nobody asks for its removal any more.
    pub(in crate::core) fn finalized(&mut self, gone: Option<Monotonic>, wave: i32) {
        if let Some(finalizing) = self.finalizing.get_mut(&wave) {
            finalizing.count -= 1;
            finalizing.since = gone.unwrap_or(finalizing.since);
            if finalizing.count == 0 {
                self.finalizing.remove(&wave);
            }
        }
    }

    /// What the removal of something of this wave waits for, if it does: what is above it is still on its way out.
    pub(in crate::core) fn awaited_by(&self, now: Monotonic, wave: i32) -> Option<Awaited> {
        self.above(wave).find(|(_, _, until)| now < *until).map(|(awaited, _, _)| awaited)
    }

    /// The same once that is worth telling.
    pub(in crate::core) fn told_to(&self, now: Monotonic, wave: i32) -> Option<Awaited> {
        let is_told = |(_, since, until): &(Awaited, Monotonic, Monotonic)| now >= *since + TOLD_AFTER && now < *until;
        self.above(wave).find(is_told).map(|(awaited, _, _)| awaited)
    }

    /// When what this wave waits for is next told, or given up.
    pub(in crate::core) fn next_due(&self, now: Monotonic, wave: i32) -> Option<Monotonic> {
        let times = self.above(wave).flat_map(|(_, since, until)| [since + TOLD_AFTER, until]);
        times.filter(|at| now < *at).min()
    }

    /// What is above a wave and on its way out, since when, and until when it is waited for.
    fn above(&self, wave: i32) -> impl Iterator<Item = (Awaited, Monotonic, Monotonic)> {
        let above = (Bound::Excluded(wave), Bound::Unbounded);
        let removing = self.removing.range(above).filter_map(|(wave, removing)| {
            let Removing { count, since, idle_since: _, again_at } = *removing;
            let given_up_at = since + REMOVING_MAX;
            let until = if count > 0 { given_up_at } else { again_at?.min(given_up_at) };
            Some((Awaited::Removing { wave: *wave, count: count.max(1) }, since, until))
        });
        let finalizing = self.finalizing.range(above).map(|(wave, finalizing)| {
            let Finalizing { count, since } = *finalizing;
            (Awaited::Finalizing { wave: *wave, count }, since, since + FINALIZING_MAX)
        });
        removing.chain(finalizing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(waves: &RemovalWaves, seconds: u64) -> bool {
        waves.awaited_by(at(seconds), 0).is_some()
    }

    fn at(seconds: u64) -> Monotonic {
        Monotonic::START + Duration::from_secs(seconds)
    }

    #[test]
    fn lower_waves_wait_for_what_is_above_and_for_nothing_else() {
        let mut waves = RemovalWaves::default();
        waves.begins(at(0), 10);
        assert_eq!(waves.awaited_by(at(0), 9), Some(Awaited::Removing { wave: 10, count: 1 }));
        assert_eq!((waves.awaited_by(at(0), 10), waves.awaited_by(at(0), 11)), (None, None));
        waves.ends(at(1), 10, StepEnd::Done);
        assert!(!waits(&waves, 1));
        waves.finalizes(at(1), 10);
        assert_eq!(waves.awaited_by(at(1), 9), Some(Awaited::Finalizing { wave: 10, count: 1 }));
        waves.finalized(Some(at(1)), 10);
        assert!(!waits(&waves, 1));
    }

    #[test]
    fn a_removal_that_is_new_is_waited_for_whatever_failed_before_it() {
        let mut waves = RemovalWaves::default();
        for nth in 0..100 {
            waves.begins(at(nth * 100), 10);
            waves.ends(at(nth * 100), 10, StepEnd::Undone);
        }
        waves.begins(at(10_000), 10);
        assert!(!waits(&waves, 10_000), "what fails again and again is not");
        waves.joins(at(10_000), 10);
        assert!(waits(&waves, 10_119));
        assert!(!waits(&waves, 10_120));
    }

    #[test]
    fn a_try_that_comes_soon_is_waited_for_and_no_longer_than_one_that_hangs() {
        let mut waves = RemovalWaves::default();
        waves.begins(at(0), 10);
        waves.ends(at(1), 10, StepEnd::Undone);
        assert!(!waits(&waves, 1), "it was refused");
        waves.tries_again(10, at(3));
        waves.tries_again(10, at(2));
        assert!(waits(&waves, 2) && !waits(&waves, 3));
        assert_eq!(waves.next_due(at(1), 0), Some(at(3)));
        for nth in 1..100 {
            waves.begins(at(nth * 3), 10);
            waves.ends(at(nth * 3), 10, StepEnd::Undone);
            waves.tries_again(10, at(nth * 3 + 3));
            assert_eq!(waits(&waves, nth * 3 + 2), nth * 3 + 2 < 120, "{nth}");
        }
        waves.begins(at(301), 10);
        waves.ends(at(301), 10, StepEnd::Done);
        assert!(!waits(&waves, 301));
    }

    #[test]
    fn a_try_that_comes_soon_is_waited_for_though_others_of_its_wave_are_done() {
        let mut waves = RemovalWaves::default();
        waves.begins(at(0), 10);
        waves.begins(at(0), 10);
        waves.ends(at(1), 10, StepEnd::Undone);
        waves.tries_again(10, at(3));
        waves.ends(at(2), 10, StepEnd::Done);
        assert!(waits(&waves, 2) && !waits(&waves, 3));
    }

    #[test]
    fn finalizers_are_waited_for_as_long_as_some_end_and_hang_in_nobody_elses_way() {
        let mut waves = RemovalWaves::default();
        (0..300).for_each(|_| waves.finalizes(at(0), 10));
        for second in 1..300 {
            assert!(waits(&waves, second));
            waves.finalized(Some(at(second)), 10);
        }
        assert!(!waits(&waves, 299 + 120), "the last one hangs");
        waves.finalizes(at(1_000), 10);
        assert!(waits(&waves, 1_000) && !waits(&waves, 1_120));
        waves.finalized(None, 10);
        assert!(!waits(&waves, 1_120), "that one of them is forgotten is no progress");
    }

    #[test]
    fn a_wave_that_gets_on_is_waited_for_however_long_it_takes() {
        let mut waves = RemovalWaves::default();
        waves.begins(at(0), 10);
        for minute in 1..60 {
            waves.begins(at(minute * 60), 10);
            assert!(waits(&waves, minute * 60));
            waves.ends(at(minute * 60), 10, StepEnd::Done);
        }
    }

    /// Their tries follow each other without a pause, one at a time or two.
    #[test]
    fn removals_that_hang_are_given_up_though_there_is_always_one_under_way() {
        for overlap in [0, 1] {
            let mut waves = RemovalWaves::default();
            (0..overlap).for_each(|_| waves.begins(at(0), 10));
            let mut free = 0;
            for nth in 0..100 {
                waves.begins(at(nth * 35), 10);
                assert_eq!(waits(&waves, nth * 35 + 34), nth * 35 + 34 < 120, "{nth}");
                free += u64::from(!waits(&waves, nth * 35 + 34));
                waves.ends(at(nth * 35 + 35), 10, StepEnd::Undone);
            }
            assert!(free > 90);
        }
    }

    #[test]
    fn a_wave_that_was_given_up_is_waited_for_again_after_a_rest() {
        let mut waves = RemovalWaves::default();
        waves.begins(at(0), 10);
        waves.ends(at(35), 10, StepEnd::Undone);
        waves.begins(at(36), 10);
        assert!(!waits(&waves, 121));
        waves.ends(at(122), 10, StepEnd::Undone);
        waves.begins(at(122 + 119), 10);
        assert!(!waits(&waves, 122 + 119), "it goes on as before");
        waves.ends(at(242), 10, StepEnd::Undone);
        waves.begins(at(242 + 120), 10);
        assert!(waits(&waves, 242 + 120));
    }

    #[test]
    fn what_is_waited_for_is_told_after_a_while_and_until_it_is_given_up() {
        let mut waves = RemovalWaves::default();
        waves.begins(at(0), 10);
        assert_eq!((waves.told_to(at(29), 0), waves.next_due(at(29), 0)), (None, Some(at(30))));
        assert_eq!(waves.told_to(at(30), 0), Some(Awaited::Removing { wave: 10, count: 1 }));
        assert_eq!(waves.next_due(at(30), 0), Some(at(120)));
        assert_eq!((waves.told_to(at(120), 0), waves.next_due(at(120), 0)), (None, None));
        assert_eq!(waves.next_due(at(0), 10), None, "nothing is above it");
    }
}
