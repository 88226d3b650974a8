use proptest::prelude::*;

use super::{Counts, Freshness, MadeOver, ObjectStatus, Rollup, TargetReport};
use crate::associated::AssociatedKind;
use crate::associated::tests::tally;
use crate::health::Health;
use crate::wire::v1::Progress;

fn standing() -> impl Strategy<Value = ObjectStatus> {
    let progress = prop::sample::select(vec![
        Progress::Pending,
        Progress::Applied,
        Progress::Failed,
        Progress::Withheld,
        Progress::Deleting,
        Progress::DeletionHeld,
        Progress::Unknown,
    ]);
    let health = prop::sample::select(vec![Health::Ready, Health::Progressing, Health::Failed, Health::Unknown]);
    let fresh = prop::sample::select(vec![Freshness::Fresh, Freshness::Stale, Freshness::Unheard]);
    (progress, health, any::<bool>(), fresh).prop_map(|(progress, health, current, fresh)| ObjectStatus {
        progress,
        health,
        current,
        fresh,
    })
}

fn rollup() -> impl Strategy<Value = Rollup<u8>> {
    of_targets(0..8)
}

fn of_targets(targets: std::ops::Range<u8>) -> impl Strategy<Value = Rollup<u8>> {
    prop::collection::vec((targets, said(), 0u64..4), 0..12).prop_map(|words| {
        let mut rollup = Rollup::default();
        for (target, said, order) in words {
            rollup.set(target, said, order);
        }
        rollup
    })
}

fn said() -> impl Strategy<Value = TargetReport> {
    let kind = prop::sample::select(&AssociatedKind::ALL[..]);
    let made = prop::collection::btree_map(kind, tally(), 0..3);
    (prop::option::of(standing()), made).prop_map(|(standing, made)| TargetReport { standing, made })
}

fn merged(left: &Rollup<u8>, right: &Rollup<u8>) -> Rollup<u8> {
    let mut out = left.clone();
    out.merge(right);
    out
}

proptest! {
    #[test]
    fn merge_is_associative_commutative_and_idempotent(a in rollup(), b in rollup(), c in rollup()) {
        prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
        prop_assert_eq!(merged(&a, &b), merged(&b, &a));
        prop_assert_eq!(merged(&a, &a), a);
    }

    #[test]
    fn counts_of_parts_of_the_targets_add_up_to_those_of_all(a in of_targets(0..4), b in of_targets(4..8)) {
        let mut sum = a.made();
        sum += &b.made();
        prop_assert_eq!(sum, merged(&a, &b).made());
    }

    #[test]
    fn counts_of_a_target_are_added_once_however_often_it_reports(a in rollup(), b in rollup()) {
        let whole = merged(&a, &b);
        let again = merged(&merged(&b, &whole), &a);
        prop_assert_eq!(again.made(), whole.made());
        let total: Vec<u64> = whole.made().0.values().map(|sum| sum.targets).collect();
        prop_assert!(total.iter().all(|targets| *targets <= whole.counts().reported), "{:?}", total);
        prop_assert!(MadeOver::default().is_empty());
    }

    #[test]
    fn every_expected_target_is_counted_exactly_once(a in rollup()) {
        prop_assert!(a.counts().is_consistent());
    }

    #[test]
    fn nothing_but_a_fresh_current_applied_ready_report_counts_as_ready(word in prop::option::of(standing())) {
        let good = ObjectStatus {
            progress: Progress::Applied,
            health: Health::Ready,
            current: true,
            fresh: Freshness::Fresh,
        };
        prop_assert_eq!(Counts::of(word).ready == 1, word == Some(good));
    }
}
