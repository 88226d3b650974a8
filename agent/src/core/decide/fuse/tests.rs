use proptest::prelude::*;

use super::*;
use crate::core::tests::{key, uid};

fn tombstones(count: usize) -> Vec<Tombstone> {
    (0..count).map(|i| Tombstone { key: key("", "ConfigMap", &format!("c{i}")), source: uid("s1") }).collect()
}

fn lets(fuse: &mut Fuse, now: Monotonic, tombstone: &Tombstone, managed: usize, leave: Permission) -> bool {
    fuse.pass(now, tombstone, managed, leave) != Passage::Held
}

/// How many of so many removals, asked for at once, pass.
fn passed(fuse: &mut Fuse, now: Monotonic, removals: &[Tombstone], managed: usize) -> usize {
    for tombstone in removals {
        fuse.ask(tombstone.clone());
    }
    removals.iter().filter(|tombstone| lets(fuse, now, tombstone, managed, Permission::None)).count()
}

#[test]
fn a_few_removals_always_pass() {
    let mut fuse = Fuse::new(FuseLimits::default());
    assert_eq!(passed(&mut fuse, Monotonic::START, &tombstones(10), 10), 10);
}

/// They wait for finalizers, and the hub names them again.
#[test]
fn a_removal_that_passed_counts_once_though_it_is_asked_for_again() {
    let mut fuse = Fuse::new(FuseLimits::default());
    let all = tombstones(11);
    assert_eq!(passed(&mut fuse, Monotonic::START, &all[..10], 100), 10);
    assert_eq!(passed(&mut fuse, Monotonic::START, &all, 100), 11);
}

#[test]
fn a_large_removal_is_held_whole() {
    let mut fuse = Fuse::new(FuseLimits::default());
    assert_eq!(passed(&mut fuse, Monotonic::START, &tombstones(500), 1_000), 0);
}

#[test]
fn a_fifth_passes() {
    let mut fuse = Fuse::new(FuseLimits::default());
    assert_eq!(passed(&mut fuse, Monotonic::START, &tombstones(200), 1_000), 200);
}

#[test]
fn ten_removals_a_revision_a_hundred_times_are_held_once_they_are_a_fifth() {
    let mut fuse = Fuse::new(FuseLimits::default());
    let all = tombstones(1_000);
    let (mut gone, mut last) = (0, 0);
    for (second, chunk) in (0..).zip(all.chunks(10)) {
        // A revision every second: all of them are within the hour.
        let now = Monotonic::START + Duration::from_secs(second);
        last = passed(&mut fuse, now, chunk, 1_000 - gone);
        chunk[..last].iter().for_each(|gone| fuse.withdraw(gone));
        gone += last;
    }
    assert_eq!((gone, last), (200, 0));
    // Those that passed are an hour old, and new ones are judged by themselves.
    let later = Monotonic::START + WINDOW * 2;
    assert_eq!(passed(&mut fuse, later, &all[200..210], 800), 0, "they were held");
    assert_eq!(passed(&mut fuse, later, &all[210..], 800), 0, "they are too many");
}

#[test]
fn removals_stop_counting_after_an_hour() {
    let mut fuse = Fuse::new(FuseLimits::default());
    let all = tombstones(30);
    assert_eq!(passed(&mut fuse, Monotonic::START, &all[..10], 30), 10);
    assert_eq!(passed(&mut fuse, Monotonic::START, &all[10..20], 20), 0);
    let later = Monotonic::START + WINDOW;
    assert_eq!(passed(&mut fuse, later, &all[10..20], 20), 0, "what is held waits for a person");
    assert_eq!(passed(&mut fuse, later, &all[20..], 20), 10);
}

/// For a week, in which ten others an hour pass.
#[test]
fn held_removals_never_pass_by_themselves_and_delay_no_others() {
    let mut fuse = Fuse::new(FuseLimits::default());
    let all = tombstones(500 + 7 * 24 * 10);
    let (held, others) = all.split_at(500);
    assert_eq!(passed(&mut fuse, Monotonic::START, held, 600), 0);
    assert_eq!(fuse.take_unkept().0.len(), 500);
    for (hour, others) in (1..).zip(others.chunks(10)) {
        let now = Monotonic::START + WINDOW * hour;
        assert_eq!(passed(&mut fuse, now, others, 40), 10);
        assert_eq!(passed(&mut fuse, now, held, 4_000), 0, "though they would be no share of so many");
        for gone in others {
            fuse.withdraw(gone);
        }
    }
    assert_eq!(fuse.take_unkept(), (Vec::new(), Vec::new()));
}

#[test]
fn an_approved_removal_passes_and_those_held_with_it_stay() {
    let mut fuse = Fuse::new(FuseLimits::default());
    let all = tombstones(530);
    let (shown, new) = all.split_at(500);
    assert_eq!(passed(&mut fuse, Monotonic::START, shown, 600), 0);
    let (approved, others) = shown.split_at(490);
    let go =
        approved.iter().filter(|tombstone| lets(&mut fuse, Monotonic::START, tombstone, 600, Permission::Approved));
    assert_eq!(go.count(), 490);
    assert_eq!(passed(&mut fuse, Monotonic::START, others, 110), 0);
    assert_eq!(passed(&mut fuse, Monotonic::START, new, 140), 0, "what comes after it is another set");
    assert_eq!(passed(&mut fuse, Monotonic::START + WINDOW, new, 140), 0);
}

/// The wait ends for all of them at once, and they come one after the other.
#[test]
fn removals_that_waited_for_the_same_condition_are_judged_together() {
    let mut fuse = Fuse::new(FuseLimits::default());
    let all = tombstones(510);
    for tombstone in &all[..500] {
        fuse.ask(tombstone.clone());
        fuse.pause(tombstone);
    }
    assert_eq!(passed(&mut fuse, Monotonic::START, &all[500..], 1_000), 10, "it does not count as long as it waits");
    assert!(all[..500].iter().all(|tombstone| !lets(&mut fuse, Monotonic::START, tombstone, 1_000, Permission::None)));
}

#[test]
fn a_removal_that_waits_for_another_reason_does_not_count() {
    let mut fuse = Fuse::new(FuseLimits::default());
    let all = tombstones(30);
    for tombstone in &all {
        fuse.ask(tombstone.clone());
    }
    for tombstone in &all[10..] {
        fuse.excuse(tombstone);
    }
    assert_eq!(passed(&mut fuse, Monotonic::START, &all[..10], 30), 10);
    assert_eq!(passed(&mut fuse, Monotonic::START, &all[10..], 30), 0, "it counts when it goes on");
}

#[test]
fn removals_approved_in_advance_pass_and_use_up_no_share() {
    let mut fuse = Fuse::new(FuseLimits::default());
    let all = tombstones(510);
    let (placed_so, others) = all.split_at(500);
    let pass = |tombstone: &&Tombstone| lets(&mut fuse, Monotonic::START, tombstone, 510, Permission::InAdvance);
    assert_eq!(placed_so.iter().filter(pass).count(), 500);
    assert_eq!(passed(&mut fuse, Monotonic::START, others, 10), 10);
}

/// What the journal has of a fuse, for the next run.
fn journal(fuse: &Fuse) -> Vec<(u64, Tombstone)> {
    fuse.passed.iter().map(|passed| (passed.number, passed.tombstone.clone())).collect()
}

#[test]
fn removals_that_passed_before_a_restart_count_for_an_hour_after_it() {
    let mut fuse = Fuse::new(FuseLimits::default());
    let all = tombstones(30);
    let (first, others) = all.split_at(10);
    let (second, third) = others.split_at(10);
    assert_eq!(passed(&mut fuse, Monotonic::START, first, 30), 10);
    let mut resumed = Fuse::new(FuseLimits::default());
    resumed.resume(journal(&fuse), Vec::new(), |_| false);
    // The clock of a run starts anew, or goes on: neither says how long ago it was.
    let start = Monotonic::START + Duration::from_hours(7);
    resumed.started(start);
    assert_eq!(passed(&mut resumed, start, second, 20), 0);
    assert_eq!(passed(&mut resumed, start + WINDOW, third, 20), 10);
    assert_eq!(resumed.take_lapsed(start + WINDOW), (1..=10).collect::<Vec<_>>());
}

#[test]
fn an_unfinished_removal_that_passed_before_a_restart_passes_again_and_counts_once() {
    let mut fuse = Fuse::new(FuseLimits::default());
    let all = tombstones(10);
    assert_eq!(passed(&mut fuse, Monotonic::START, &all, 10), 10);
    let mut resumed = Fuse::new(FuseLimits::default());
    for tombstone in &all[5..] {
        resumed.ask(tombstone.clone());
    }
    resumed.resume(journal(&fuse), Vec::new(), |tombstone| all[5..].contains(tombstone));
    resumed.started(Monotonic::START);
    for tombstone in &all[5..] {
        assert_eq!(resumed.pass(Monotonic::START, tombstone, 5, Permission::None), Passage::Free);
    }
    assert_eq!(resumed.passed.len(), 10);
}

#[test]
fn a_passed_removal_may_begin_once_that_is_on_disk() {
    let mut fuse = Fuse::new(FuseLimits::default());
    let one = &tombstones(1)[0];
    let pass = |fuse: &mut Fuse| fuse.pass(Monotonic::START, one, 9, Permission::None);
    assert_eq!(pass(&mut fuse), Passage::Once(1));
    assert_eq!(pass(&mut fuse), Passage::Saving);
    fuse.saved(one);
    assert_eq!(pass(&mut fuse), Passage::Free);
}

proptest! {
    /// However often the agent is restarted, no more pass within an hour than without restarts.
    #[test]
    fn restarts_free_nothing(
        limits in (0_usize..12, 0_usize..50),
        steps in prop::collection::vec((0_usize..40, 0_u64..45, any::<bool>()), 1..80),
    ) {
        let limits = FuseLimits { always: limits.0, percent: limits.1 };
        let (mut with, mut without) = (Fuse::new(limits), Fuse::new(limits));
        let all = tombstones(40);
        let mut now = Monotonic::START;
        for (nth, seconds, restart) in steps {
            now = now + Duration::from_secs(seconds);
            if restart {
                let kept = journal(&with);
                let (waiting, held) = (with.waiting.clone(), with.held.clone());
                with = Fuse::new(limits);
                for tombstone in waiting.into_iter().chain(held.iter().cloned()) {
                    with.ask(tombstone);
                }
                with.resume(kept, held.into_iter().collect(), |_| true);
                with.started(now);
            }
            let pass = |fuse: &mut Fuse| {
                let managed = 60 - fuse.passed.len();
                lets(fuse, now, &all[nth], managed, Permission::None)
            };
            let (passes, otherwise) = (pass(&mut with), pass(&mut without));
            prop_assert!(otherwise || !passes);
        }
    }

    /// Whatever is approved, and when in the hour: an unapproved removal passes only where it would if nothing were approved.
    #[test]
    fn approval_of_a_list_frees_nothing_that_is_not_on_it(
        managed in 40_usize..100,
        limits in (0_usize..12, 0_usize..50),
        approved in prop::collection::btree_set(0_usize..40, 0..40),
        steps in prop::collection::vec((0_usize..40, 0_u64..45), 1..80),
    ) {
        let limits = FuseLimits { always: limits.0, percent: limits.1 };
        let (mut with, mut without) = (Fuse::new(limits), Fuse::new(limits));
        let all = tombstones(40);
        let mut now = Monotonic::START;
        for (nth, seconds) in steps {
            now = now + Duration::from_secs(seconds);
            let pass = |fuse: &mut Fuse, leave: Permission| {
                fuse.ask(all[nth].clone());
                // What was let through is gone.
                let managed = managed - fuse.passed.len();
                lets(fuse, now, &all[nth], managed, leave)
            };
            let otherwise = pass(&mut without, Permission::None);
            if approved.contains(&nth) {
                prop_assert!(pass(&mut with, Permission::Approved));
            } else {
                let passes = pass(&mut with, Permission::None);
                prop_assert!(otherwise || !passes);
            }
        }
    }
}
