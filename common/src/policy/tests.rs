use proptest::prelude::*;

use super::report::tests::class;
use super::{
    Additions, ApplyMode, ApplyPolicy, ApproveDeletions, ConflictPolicy, DriftPolicy, FieldMode, FieldPolicy, Gate,
    Prune, PruneAdopted, Recreate, Takeover,
};
use crate::associated::AssociatedKind;

fn one_of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    prop::sample::select(all)
}

pub(crate) fn policy() -> impl Strategy<Value = ApplyPolicy> {
    let fields = prop::collection::btree_map("/spec/[a-c]", one_of(FieldMode::ALL), 0..3)
        .prop_map(|fields| fields.into_iter().map(|(path, mode)| FieldPolicy { path, mode }).collect::<Vec<_>>());
    let names = || prop::collection::btree_map("[a-c]", "[a-c]", 0..3);
    let additions = (names(), names()).prop_map(|(labels, annotations)| Additions { labels, annotations });
    let gates = prop::collection::btree_map("retail/[a-c]", 1..4_u32, 0..3).prop_map(|gates| {
        let made = |(placement, deadline_seconds)| Gate { placement, deadline_seconds };
        gates.into_iter().map(made).collect::<Vec<_>>()
    });
    (
        additions,
        one_of(ApplyMode::ALL),
        one_of(ConflictPolicy::ALL),
        one_of(Takeover::ALL),
        one_of(Recreate::ALL),
        one_of(Prune::ALL),
        one_of(PruneAdopted::ALL),
        one_of(DriftPolicy::ALL),
        one_of(ApproveDeletions::ALL),
        (fields, gates, prop::collection::btree_set(one_of(&AssociatedKind::ALL), 0..3), class()),
    )
        .prop_map(
            |(
                additions,
                mode,
                conflicts,
                takeover,
                recreate,
                prune,
                prune_adopted,
                drift,
                approve_deletions,
                (fields, gates, associated, report),
            )| ApplyPolicy {
                additions,
                mode,
                conflicts,
                takeover,
                recreate,
                prune,
                prune_adopted,
                drift,
                approve_deletions,
                fields,
                gates,
                associated,
                report,
            },
        )
}

proptest! {
    #[test]
    fn merge_is_associative_commutative_and_idempotent(a in policy(), b in policy(), c in policy()) {
        prop_assert_eq!(a.merge(&b).merge(&c), a.merge(&b.merge(&c)));
        prop_assert_eq!(a.merge(&b), b.merge(&a));
        prop_assert_eq!(a.merge(&a), a);
    }

    #[test]
    fn digest_tells_policies_apart(a in policy(), b in policy()) {
        prop_assert_eq!(a == b, a.digest() == b.digest());
    }

    #[test]
    fn the_report_policy_does_not_change_the_apply_digest(a in policy(), b in policy()) {
        let told_as_b = ApplyPolicy { associated: b.associated.clone(), report: b.report.clone(), ..a.clone() };
        prop_assert_eq!(a.written_digest(), told_as_b.written_digest());
        let alike = ApplyPolicy { associated: a.associated.clone(), report: a.report.clone(), ..b.clone() } == a;
        prop_assert_eq!(a.written_digest() == b.written_digest(), alike);
    }
}

#[test]
fn least_destructive_value_wins() {
    let gentle = ApplyPolicy {
        mode: ApplyMode::CreateOnly,
        conflicts: ConflictPolicy::Report,
        takeover: Takeover::Never,
        prune: Prune::Orphan,
        drift: DriftPolicy::Report,
        ..ApplyPolicy::default()
    };
    let harsh = ApplyPolicy {
        takeover: Takeover::Always,
        recreate: Recreate::OnImmutable,
        approve_deletions: ApproveDeletions::InAdvance,
        ..ApplyPolicy::default()
    };
    assert_eq!(gentle.merge(&harsh), gentle);
}

#[test]
fn unknown_value_is_read_as_the_least_destructive() {
    let policy: ApplyPolicy =
        serde_json::from_str(r#"{"prune": "Shred", "takeover": "ByForce", "later": 1}"#).expect("it is a policy");
    assert_eq!((policy.prune, policy.takeover), (Prune::Orphan, Takeover::Never));
}

#[test]
fn gates_of_one_placement_are_one_and_the_longer_time_holds() {
    let gate = |placement: &str, deadline_seconds| Gate { placement: placement.to_owned(), deadline_seconds };
    let of = |gates: &[Gate]| ApplyPolicy { gates: gates.to_vec(), ..ApplyPolicy::default() };
    let merged =
        of(&[gate("retail/b", 60), gate("retail/c", 5)]).merge(&of(&[gate("retail/a", 1), gate("retail/b", 90)]));
    assert_eq!(merged.gates, [gate("retail/a", 1), gate("retail/b", 90), gate("retail/c", 5)]);
}

#[test]
fn a_policy_without_what_came_later_is_written_and_named_as_before() {
    let text = serde_json::to_string(&ApplyPolicy::default()).unwrap();
    expect_test::expect![[r#"
        {"mode":"Continuous","conflicts":"Force","takeover":"IfUnmanaged","recreate":"Never","prune":"Delete","pruneAdopted":"Orphan","drift":"Correct"}
        001864ab9d5c4ac018c82a50194c8b33f7eecf1edcdd57e56580013504c08769"#]].assert_eq(&format!("{text}\n{}", ApplyPolicy::default().digest()));
    let gates = vec![Gate { placement: "retail/shop".to_owned(), deadline_seconds: 600 }];
    let text = serde_json::to_string(&ApplyPolicy { gates, ..ApplyPolicy::default() }).unwrap();
    expect_test::expect![[r#"{"mode":"Continuous","conflicts":"Force","takeover":"IfUnmanaged","recreate":"Never","prune":"Delete","pruneAdopted":"Orphan","drift":"Correct","gates":[{"placement":"retail/shop","deadlineSeconds":600}]}"#]].assert_eq(&text);
}

#[test]
fn policies_disagree_where_merging_takes_something_from_one() {
    let adding = |name: &str, value: &str| ApplyPolicy {
        additions: Additions { labels: [(name.to_owned(), value.to_owned())].into(), ..Additions::default() },
        ..ApplyPolicy::default()
    };
    let orphaning = ApplyPolicy { prune: Prune::Orphan, ..ApplyPolicy::default() };
    assert!(!adding("a", "1").disagrees_with(&adding("b", "2")));
    assert!(adding("a", "1").disagrees_with(&adding("a", "2")));
    assert!(orphaning.disagrees_with(&adding("a", "1")) && adding("a", "1").disagrees_with(&orphaning));
    assert!(!orphaning.disagrees_with(&orphaning));
}
