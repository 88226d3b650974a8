use super::super::tests::{key, uid};
use super::*;

fn ran(n: usize) -> Tombstone {
    Tombstone { key: key("batch", "Job", &format!("j{n}")), source: uid("s1") }
}

#[test]
fn of_more_than_are_remembered_those_that_left_first_are_forgotten() {
    let mut all = Ran::default();
    for n in 0..RAN_MAX {
        assert!(all.put(&ran(n)).is_some());
        assert_eq!(all.take_first(), None);
    }
    assert_eq!(all.put(&ran(0)), None, "it is remembered");
    // It was assigned again, ran, and left again: it is the last by now.
    let number = all.take(&ran(0)).unwrap();
    assert!(all.put(&ran(0)).unwrap() > number);
    all.put(&ran(RAN_MAX));
    assert_eq!(all.take_first(), Some(1));
    assert_eq!(all.take_first(), None);
    let loaded = Ran::new(all.by_number.clone().into_iter().collect());
    assert_eq!((loaded.numbers, loaded.by_number), (all.numbers, all.by_number));
}
