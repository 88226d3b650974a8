//! However much is asked for, no write is more than the store takes.

use super::*;
use crate::placement::CLAUSE_POLICY_BYTES_MAX;

/// One of the largest policies that a clause may have.
fn large(nth: u32) -> ApplyPolicy {
    let mut policy = ApplyPolicy::default();
    policy.additions.annotations =
        (0..15).map(|name| (format!("a{name}"), format!("{nth:02}").repeat(2_048))).collect();
    let bytes = serde_json::to_vec(&policy).unwrap().len();
    assert!((CLAUSE_POLICY_BYTES_MAX - 4_096..=CLAUSE_POLICY_BYTES_MAX).contains(&bytes), "{bytes}");
    policy
}

/// As many forms, each by a policy and at a target of its own.
fn forms(count: u32) -> Change {
    let mut assignment = assigned("a", "x", "x", "1", &[]);
    let variant = assignment.variants[0].clone();
    let variant = |nth: u32| Variant { policy: Arc::new(large(nth)), targets: bits(&[nth]), ..variant.clone() };
    assignment.variants = (0..count).map(variant).collect();
    Change::Assign(Box::new(assignment))
}

#[test]
fn what_is_too_large_to_be_written_stays_as_it_was_and_holds_up_nothing_else() {
    let mut kept = Kept::with_targets(20);
    kept.change(vec![forms(15)]);
    assert_eq!(kept.keys(14).len(), 1);
    let batch = kept.ledger.plan(fresh(), vec![forms(17)]);
    assert_eq!(batch.too_large(), [(id("a", "x"), config_map("x"))]);
    kept.change(vec![forms(17), assign("a", "y", &[0, 16])]);
    assert_eq!((kept.keys(0).len(), kept.keys(14).len()), (2, 1), "as before");
    assert_eq!(kept.keys(16).len(), 1, "and the other");
    check_sound(&kept.records.load());
    kept.change(vec![forms(3)]);
    assert_eq!((kept.keys(2).len(), kept.keys(14).len()), (1, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn no_write_is_more_than_the_store_takes(counts in prop::collection::vec(0..40u32, 1..5), allowance in 0..3u64) {
        let mut kept = Kept::with_targets(40);
        for count in counts {
            let batch = kept.ledger.plan_within(fresh(), vec![forms(count), assign("a", "y", &[count])], allowance);
            for chunk in batch.chunks() {
                prop_assert!(chunk.iter().map(Write::bytes).sum::<usize>() <= CHUNK_BYTES_MAX);
                kept.records.write(chunk);
            }
            kept.ledger.commit(batch).unwrap();
            check_sound(&kept.records.load());
        }
    }
}
