//! What one change unassigns, and is held for being too much.

use tideline_common::ApproveDeletions;
use tideline_common::wire::v1::Decommission;

use super::*;

impl Kept {
    fn change_within(&mut self, changes: Vec<Change>, allowance: u64) -> (u64, u64) {
        let batch = self.ledger.plan_within(fresh(), changes, allowance);
        let counts = (batch.unassigned(), batch.kept());
        for chunk in batch.chunks() {
            self.records.write(chunk);
        }
        self.ledger.commit(batch).unwrap();
        counts
    }

    /// What is kept, by source, target and revision.
    fn kept(&self) -> Vec<String> {
        let shown = |view: super::super::SourceView<'_>| {
            let targets: Vec<_> = view.kept().iter().collect();
            format!("{} at {targets:?} since {}", view.id().uid, view.kept_at())
        };
        self.ledger.kept().map(shown).collect()
    }
}

/// Two objects on three targets, of which one change takes everything away.
fn held() -> Kept {
    let mut kept = Kept::with_targets(3);
    kept.change(vec![assign("a", "x", &[0, 1, 2]), assign("a", "y", &[0])]);
    let all = vec![assign("a", "x", &[2]), remove("a", "y"), assign("a", "z", &[1])];
    assert_eq!(kept.change_within(all, 2), (0, 3));
    kept
}

#[test]
fn what_is_too_much_stays_and_all_else_is_done() {
    let mut kept = held();
    for _ in 0..2 {
        assert_eq!(kept.kept(), ["a-x at [0, 1] since 2", "a-y at [0] since 2"]);
        assert_eq!(kept.keys(0), ["ConfigMap shop/x from a", "ConfigMap shop/y from a"]);
        assert_eq!(kept.keys(1), ["ConfigMap shop/x from a", "ConfigMap shop/z from a"]);
        assert_eq!((kept.tombstones(0).len(), kept.ledger.assigned()), (0, 5));
        check_sound(&kept.ledger);
        kept.restart();
    }
    // Said again, as after a restart of the hub.
    assert_eq!(kept.writes(vec![assign("a", "x", &[2]), remove("a", "y")]), 0);
    let assigned: Vec<_> =
        kept.ledger.assignments().iter().map(|of| (of.id.uid.to_string(), of.variants.len())).collect();
    assert_eq!(assigned, [("a-x".to_owned(), 1), ("a-z".to_owned(), 1)], "nothing wants the rest");
}

#[test]
fn as_much_as_may_goes() {
    let mut kept = Kept::with_targets(2);
    kept.change(vec![assign("a", "x", &[0, 1])]);
    assert_eq!(kept.change_within(vec![remove("a", "x")], 2), (2, 0));
    assert_eq!(kept.tombstones(0).len(), 1);
}

#[test]
fn what_is_approved_goes_and_nothing_else() {
    let mut kept = held();
    assert_eq!(kept.change_within(vec![remove("a", "z")], 0), (0, 1));
    let (first, second) = (Revision(2), Revision(3));
    assert_eq!(kept.change_within(vec![Change::Release(first)], 0), (0, 0));
    kept.restart();
    assert_eq!(kept.kept(), [format!("a-z at [1] since {second}")]);
    assert_eq!(kept.tombstones(0), ["ConfigMap shop/x of a-x", "ConfigMap shop/y of a-y"]);
    assert_eq!(kept.keys(2), ["ConfigMap shop/x from a"]);
    assert_eq!(kept.writes(vec![Change::Release(first)]), 0);
}

#[test]
fn what_is_wanted_again_is_held_no_more() {
    let mut kept = held();
    kept.change_within(vec![assign("a", "x", &[0, 1, 2])], 0);
    kept.restart();
    assert_eq!(kept.kept(), ["a-y at [0] since 2"]);
    kept.change_within(vec![Change::Release(Revision(2))], 0);
    assert_eq!(kept.keys(0), ["ConfigMap shop/x from a"]);
}

#[test]
fn what_is_kept_follows_nothing_while_the_rest_does() {
    let mut kept = held();
    kept.change_within(vec![Change::Assign(Box::new(assigned("a", "x", "a-x", "newer", &[2])))], 0);
    kept.restart();
    let input = |nth| kept.ledger.target(target(nth)).unwrap().entry(&config_map("x")).unwrap().input;
    assert_eq!((input(0), input(2)), (Input::new("x").digest, Input::new("newer").digest));
    let whole = kept.ledger.assignments().remove(0);
    assert_eq!(whole.variants, [variant("newer", false, &[2])]);
}

#[test]
fn whatever_wants_the_place_of_what_is_kept_gets_it() {
    let mut kept = held();
    kept.change_within(vec![assign("b", "x", &[0])], 0);
    let recreated = assigned("a", "y", "a-y-2", "y", &[0]);
    kept.change_within(vec![Change::Assign(Box::new(recreated))], 0);
    kept.restart();
    assert_eq!(kept.keys(0), ["ConfigMap shop/x from b", "ConfigMap shop/y from a"]);
    assert_eq!(kept.kept(), ["a-x at [1] since 2"]);
    assert_eq!(kept.tombstones(0), [""; 0], "it is a handover");
}

#[test]
fn what_was_approved_in_advance_is_neither_counted_nor_held() {
    let mut kept = Kept::with_targets(1);
    let mut free = assigned("a", "x", "a-x", "x", &[0]);
    let policy = ApplyPolicy { approve_deletions: ApproveDeletions::InAdvance, ..ApplyPolicy::default() };
    free.variants[0].policy = Arc::new(policy);
    kept.change(vec![Change::Assign(Box::new(free)), assign("a", "y", &[0])]);
    assert_eq!(kept.change_within(vec![remove("a", "x"), remove("a", "y")], 0), (0, 1));
    assert_eq!(kept.keys(0), ["ConfigMap shop/y from a"]);
}

#[test]
fn a_target_that_goes_out_of_service_keeps_nothing_and_counts_for_nothing() {
    let mut kept = held();
    assert_eq!(kept.change_within(vec![Change::Retire(target(0), Decommission::Remove)], 0), (0, 0));
    kept.restart();
    assert_eq!(kept.kept(), ["a-x at [1] since 2"]);
    assert_eq!(kept.tombstones(0), ["ConfigMap shop/x of a-x", "ConfigMap shop/y of a-y"]);
    let last = vec![remove("a", "x"), remove("a", "z"), Change::Retire(target(1), Decommission::Remove)];
    assert_eq!(kept.change_within(last, 1), (1, 0), "the one at the target that stays in service");
    assert_eq!((kept.kept(), kept.ledger.assigned()), (vec![], 0));
    check_sound(&kept.ledger);
    assert_eq!(
        kept.writes(vec![
            Change::Retire(target(0), Decommission::Remove),
            Change::Retire(target(9), Decommission::Remove)
        ]),
        0
    );
}

#[test]
fn a_target_that_is_gone_keeps_nothing() {
    let mut kept = held();
    kept.change_within(vec![Change::Forget(target(0))], 0);
    assert_eq!(kept.kept(), ["a-x at [1] since 2"]);
    kept.change_within(vec![Change::Forget(target(1))], 0);
    assert_eq!((kept.kept(), kept.ledger.assigned()), (vec![], 1));
    kept.restart();
    assert_eq!((kept.kept(), kept.ledger.assigned()), (vec![], 1));
}

/// The places of every target, less what is kept there.
fn wanted(ledger: &Ledger) -> BTreeSet<(u32, ObjectKey)> {
    let places = ledger.targets().flat_map(|(id, index)| {
        let view = ledger.target(id).unwrap();
        let wanted = move |key: &ObjectKey| !view.source(key).unwrap().kept().contains(index);
        let entries: Vec<_> = view.entries().map(|entry| entry.key.clone()).collect();
        entries.into_iter().filter(move |key| wanted(key)).map(move |key| (index, key))
    });
    places.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn less_what_is_kept_a_ledger_is_as_one_without_a_limit(steps in ops(), allowance in 0..4_u64) {
        let (mut limited, mut free) = (Kept::with_targets(TARGETS), Kept::with_targets(TARGETS));
        for ops in &steps {
            let changes = ops.iter().flat_map(|op| op.changes(&limited.ledger)).collect();
            let (unassigned, _) = limited.change_within(changes, allowance);
            prop_assert!(unassigned <= allowance);
            free.change(ops.iter().flat_map(|op| op.changes(&free.ledger)).collect());
            if ops.iter().any(|op| matches!(op, Op::Restart)) {
                limited.restart();
            }
            check_sound(&limited.ledger);
            prop_assert_eq!(wanted(&limited.ledger), wanted(&free.ledger));
            let assigned: u64 = limited.ledger.sources().map(|source| source.assigned().len()).sum();
            prop_assert_eq!(limited.ledger.assigned(), assigned);
            for view in limited.ledger.kept() {
                prop_assert!(view.kept().is_subset(view.held()));
            }
        }
        let revisions: BTreeSet<_> = limited.ledger.kept().map(|view| view.kept_at()).collect();
        limited.change(revisions.into_iter().map(Change::Release).collect());
        prop_assert_eq!(limited.ledger.kept().count(), 0);
        prop_assert_eq!(wanted(&limited.ledger), wanted(&free.ledger));
    }
}

/// What is kept was said to be let go of in the very batch that would have taken it away.
#[test]
fn what_is_kept_goes_by_what_was_said_last() {
    let mut kept = Kept::with_targets(2);
    kept.change(vec![assign("a", "x", &[0, 1])]);
    let mut lets_go = assigned("a", "x", "a-x", "x", &[0]);
    lets_go.variants[0].policy = let_go();
    let gone = Change::Remove(id("a", "a-x"));
    assert_eq!(kept.change_within(vec![Change::Assign(Box::new(lets_go)), gone], 1), (0, 2));
    kept.restart();
    check_sound(&kept.ledger);
    let at = kept.ledger.revision();
    kept.change(vec![Change::Release(at)]);
    let prune = |nth| {
        let view = kept.ledger.target(target(nth)).unwrap();
        view.tombstones().map(|gone| gone.policy.prune).collect::<Vec<_>>()
    };
    assert_eq!((prune(0), prune(1)), (vec![Prune::Orphan], vec![Prune::Delete]));
}
