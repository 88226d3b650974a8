use proptest::prelude::*;

use super::{Counts, Freshness, Rollup, Standing};
use crate::health::Health;
use crate::wire::v1::Progress;

fn standing() -> impl Strategy<Value = Standing> {
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
    (progress, health, any::<bool>(), fresh).prop_map(|(progress, health, current, fresh)| Standing {
        progress,
        health,
        current,
        fresh,
    })
}

fn rollup() -> impl Strategy<Value = Rollup<u8>> {
    prop::collection::vec((0u8..8, prop::option::of(standing()), 0u64..4), 0..12).prop_map(|words| {
        let mut rollup = Rollup::default();
        for (target, standing, order) in words {
            rollup.set(target, standing, order);
        }
        rollup
    })
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
    fn every_expected_target_is_counted_exactly_once(a in rollup()) {
        prop_assert!(a.counts().is_consistent());
    }

    #[test]
    fn nothing_but_a_fresh_current_applied_ready_report_counts_as_ready(word in prop::option::of(standing())) {
        let good = Standing {
            progress: Progress::Applied,
            health: Health::Ready,
            current: true,
            fresh: Freshness::Fresh,
        };
        prop_assert_eq!(Counts::of(word).ready == 1, word == Some(good));
    }
}
