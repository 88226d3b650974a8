use proptest::prelude::*;

use super::{
    Additions, ApplyMode, ApplyPolicy, ApproveDeletions, ConflictPolicy, DriftPolicy, FieldMode, FieldPolicy, Prune,
    PruneAdopted, Recreate, Takeover,
};

fn one_of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    prop::sample::select(all)
}

fn policy() -> impl Strategy<Value = ApplyPolicy> {
    let fields = prop::collection::btree_map("/spec/[a-c]", one_of(FieldMode::ALL), 0..3)
        .prop_map(|fields| fields.into_iter().map(|(path, mode)| FieldPolicy { path, mode }).collect::<Vec<_>>());
    let names = || prop::collection::btree_map("[a-c]", "[a-c]", 0..3);
    let additions = (names(), names()).prop_map(|(labels, annotations)| Additions { labels, annotations });
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
        fields,
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
                fields,
            )| {
                ApplyPolicy {
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
                }
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
