use super::super::tests::{key, uid};
use super::*;

fn tombstones(count: usize) -> Vec<Tombstone> {
    (0..count).map(|i| Tombstone { key: key("", "ConfigMap", &format!("c{i}")), source: uid("s1") }).collect()
}

/// How many of so many removals, asked for at once, pass.
fn passed(fuse: &mut Fuse, now: Monotonic, removals: &[Tombstone], managed: usize) -> usize {
    for tombstone in removals {
        fuse.ask(tombstone.clone());
    }
    removals.iter().filter(|tombstone| fuse.pass(now, tombstone, managed)).count()
}

#[test]
fn a_few_removals_always_pass() {
    let mut fuse = Fuse::new(FuseLimits::default());
    assert_eq!(passed(&mut fuse, Monotonic::START, &tombstones(10), 10), 10);
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
fn small_removals_in_a_row_are_held_once_they_are_many() {
    let mut fuse = Fuse::new(FuseLimits::default());
    let all = tombstones(1_000);
    let mut gone = 0;
    for chunk in all.chunks(10) {
        gone += passed(&mut fuse, Monotonic::START, chunk, 1_000 - gone);
    }
    assert_eq!(gone, 200);
}

#[test]
fn an_hour_later_they_do_not_count_any_more() {
    let mut fuse = Fuse::new(FuseLimits::default());
    let all = tombstones(20);
    assert_eq!(passed(&mut fuse, Monotonic::START, &all[..10], 20), 10);
    assert_eq!(passed(&mut fuse, Monotonic::START, &all[10..], 10), 0);
    assert_eq!(passed(&mut fuse, Monotonic::START + WINDOW, &all[10..], 10), 10);
}
