use super::*;

fn at(seconds: u64) -> Monotonic {
    Monotonic::START + Duration::from_secs(seconds)
}

#[test]
fn a_share_may_go_and_a_few_always() {
    let mut fuse = Fuse::new(UNASSIGN_LIMIT);
    assert_eq!(fuse.allowance(at(0), 0), 100);
    assert_eq!(fuse.allowance(at(0), 500), 100);
    assert_eq!(fuse.allowance(at(0), 10_000), 2_000);
}

#[test]
fn what_comes_within_a_minute_is_one_change() {
    let mut fuse = Fuse::new(UNASSIGN_LIMIT);
    fuse.count(at(0), 60);
    fuse.count(at(30), 30);
    assert_eq!(fuse.allowance(at(31), 0), 10);
    fuse.count(at(32), 300);
    assert_eq!(fuse.allowance(at(59), 0), 0);
    assert_eq!(fuse.allowance(at(92), 0), 100);
}

#[test]
fn counts_of_one_minute_are_few() {
    let mut fuse = Fuse::new(UNASSIGN_LIMIT);
    for millis in 0..60_000 {
        fuse.count(Monotonic::START + Duration::from_millis(millis), 1);
    }
    assert_eq!((fuse.recent.len(), fuse.allowance(at(59), 1_000_000)), (60, 140_000));
}

#[test]
fn without_a_limit_everything_goes() {
    let mut fuse = Fuse::new(100);
    fuse.count(at(0), 1_000_000);
    assert_eq!(fuse.allowance(at(0), 1), u64::MAX);
}
