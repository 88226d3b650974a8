use proptest::prelude::*;

use super::{AssociatedKind, Example, Made, Phase, Sum, Tally};
use crate::limits::{ASSOCIATED_REASONS_MAX, ASSOCIATED_WORST_MAX};
use crate::rollup::Freshness;

pub(crate) fn tally() -> impl Strategy<Value = Tally> {
    let phase = prop::sample::select(vec![Phase::Pending, Phase::Running, Phase::Failed, Phase::Unknown]);
    let phases = prop::collection::btree_map(phase, 0..9_u64, 0..3);
    let reasons = prop::collection::btree_map("[A-C]", 0..9_u64, 0..3);
    (0..9_u64, 0..9_u64, phases, reasons, prop_oneof![0..9_u64, Just(u64::MAX)], 0..9_u64).prop_map(
        |(total, ready, phases, reasons, restarts, endpoints)| Tally {
            total,
            ready,
            phases,
            reasons,
            restarts,
            endpoints,
            endpoints_ready: endpoints / 2,
        },
    )
}

fn sum(of: &[&Tally]) -> Sum {
    let mut sum = Sum::default();
    for tally in of {
        sum += *tally;
    }
    sum
}

fn both(one: &Sum, other: &Sum) -> Sum {
    let mut sum = one.clone();
    sum += other;
    sum
}

fn example(name: &str, phase: Phase, reason: Option<&str>, restarts: u64) -> Example {
    Example { name: name.to_owned(), phase, reason: reason.map(str::to_owned), restarts, node: None }
}

proptest! {
    #[test]
    fn adding_is_associative_and_commutative_and_parts_add_up_to_the_whole(a in tally(), b in tally(), c in tally()) {
        let (one, two, three) = (sum(&[&a]), sum(&[&b]), sum(&[&c]));
        prop_assert_eq!(both(&both(&one, &two), &three), both(&one, &both(&two, &three)));
        prop_assert_eq!(both(&one, &two), both(&two, &one));
        prop_assert_eq!(both(&one, &Sum::default()), one.clone());
        prop_assert_eq!(both(&both(&one, &two), &three), sum(&[&a, &b, &c]));
    }

    #[test]
    fn which_are_worst_does_not_depend_on_their_order(names in prop::collection::btree_set("[a-z]{2}", 0..20), seed: u64) {
        let phases = [Phase::Failed, Phase::Running, Phase::Pending];
        let mut all: Vec<_> = names
            .iter()
            .zip(0..)
            .map(|(name, nth)| example(name, phases[nth % 3], (nth % 2 == 0).then_some("Why"), seed.rotate_left(u32::try_from(nth).unwrap()) % 3))
            .collect();
        let worst = |of: &[Example]| {
            let mut made = Made::default();
            of.iter().cloned().for_each(|example| made.name(example));
            made.worst
        };
        let forwards = worst(&all);
        all.reverse();
        prop_assert_eq!(&worst(&all), &forwards);
        prop_assert!(forwards.len() <= ASSOCIATED_WORST_MAX);
    }
}

#[test]
fn the_worst_are_those_that_failed_then_those_with_a_reason() {
    let mut made = Made::default();
    made.name(example("runs", Phase::Running, None, 9));
    made.name(example("loops", Phase::Running, Some("CrashLoopBackOff"), 3));
    made.name(example("loops-more", Phase::Running, Some("CrashLoopBackOff"), 30));
    made.name(example("failed", Phase::Failed, None, 0));
    let names: Vec<_> = made.worst.iter().map(|example| example.name.as_str()).collect();
    assert_eq!(names, ["failed", "loops-more", "loops", "runs"]);
}

#[test]
fn counts_of_a_silent_target_are_shown_and_not_counted_as_good() {
    let told = Tally {
        total: 3,
        ready: 2,
        phases: [(Phase::Running, 3)].into(),
        reasons: [("CrashLoopBackOff".to_owned(), 1)].into(),
        restarts: 7,
        endpoints: 4,
        endpoints_ready: 4,
    };
    assert_eq!(told.seen_as(Freshness::Fresh), told);
    let silent = told.seen_as(Freshness::Stale);
    assert_eq!((silent.total, silent.ready, silent.restarts, silent.endpoints_ready), (3, 0, 7, 0));
    assert_eq!((silent.phases, silent.reasons), ([(Phase::Unknown, 3)].into(), told.reasons.clone()));
    assert_eq!(Tally::default().seen_as(Freshness::Unheard), Tally::default());
}

#[test]
fn reasons_are_bounded_and_none_is_lost() {
    let reasons = (0..100_u64).map(|nth| (format!("R{nth:03}"), nth + 1)).collect();
    let mut tally = Tally { reasons, ..Tally::default() };
    tally.bound_reasons();
    assert_eq!(tally.reasons.len(), ASSOCIATED_REASONS_MAX);
    assert_eq!(tally.reasons.values().sum::<u64>(), 5050);
    assert_eq!(tally.reasons["R099"], 100);
    assert_eq!(Tally::default().why(), "");
    let few = [("A".to_owned(), 1), ("B".to_owned(), 2)].into();
    assert_eq!(Tally { reasons: few, ..Tally::default() }.why(), "2 B, 1 A");
    assert!(tally.why().ends_with(", …"), "{}", tally.why());
}

#[test]
fn kinds_that_only_a_newer_peer_counts_are_unknown() {
    let kinds: Vec<AssociatedKind> = serde_json::from_str(r#"["pods", "endpointslices", "leases"]"#).unwrap();
    assert_eq!(kinds, [AssociatedKind::Pods, AssociatedKind::EndpointSlices, AssociatedKind::Unknown]);
    for kind in AssociatedKind::ALL {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
    }
    let made: Made =
        serde_json::from_str(r#"{"total": 2, "phases": {"Running": 1, "Melting": 1}, "later": 1}"#).unwrap();
    assert_eq!(made.tally.phases, [(Phase::Running, 1), (Phase::Unknown, 1)].into());
}
