//! What agents do not understand, as they are told of it.

use super::*;

fn placed(name: &str, policy: Arc<ApplyPolicy>) -> Change {
    let mut assignment = assigned("a", name, &format!("a-{name}"), name, &[0, 1]);
    assignment.variants[0].policy = policy;
    Change::Assign(Box::new(assignment))
}

/// What the target is told that has the set of `since`, as `name: state`: all of it, as no delta is to be had.
fn told(kept: &Kept, nth: u32, since: Version) -> Vec<String> {
    let view = kept.ledger.target(target(nth)).unwrap();
    assert_eq!(view.page(Some(since), None, 10), None);
    entries(&view.page(None, None, 10).unwrap())
}

fn delta(kept: &Kept, nth: u32, since: Version) -> Vec<String> {
    entries(&kept.ledger.target(target(nth)).unwrap().page(Some(since), None, 10).unwrap())
}

fn entries(page: &PageData) -> Vec<String> {
    assert_eq!(page.tombstones, []);
    page.entries.iter().map(|entry| format!("{}: {:?}", entry.key.name, entry.state)).collect()
}

const WITHHELD: &str = "Withheld(AgentTooOld)";

#[test]
fn what_an_agent_does_not_understand_is_withheld_by_name_and_an_upgrade_releases_it_alone() {
    let mut kept = Kept::with_targets(2);
    kept.change(vec![placed("gated", gated()), placed("once", once()), placed("plain", Arc::default())]);
    let (mut since, digest) = (kept.version(0), kept.ledger.target(target(0)).unwrap().digest());
    let other = kept.version(1);
    // An agent is put back to an older version: nothing leaves its set, and nothing of what it does not know is in it.
    kept.change(vec![understands(0, &[Capability::Gates, Capability::RunOnce])]);
    let withheld = [format!("gated: {WITHHELD}"), format!("once: {WITHHELD}"), "plain: Apply".to_owned()];
    assert_eq!(told(&kept, 0, since), withheld);
    assert_eq!(kept.version(1), other, "others are not told anew");
    check_sound(&kept.ledger);
    let view = kept.ledger.target(target(0)).unwrap();
    assert_eq!(view.too_old_for(), (2, [Capability::RunOnce, Capability::Gates].into()));
    let source = kept.ledger.sources().next().unwrap();
    assert_eq!(source.too_old_for(&kept.ledger, 0), [Capability::Gates].into());
    assert!(source.too_old_for(&kept.ledger, 1).is_empty());

    since = kept.version(0);
    let committed = kept.change(vec![understands(0, &[Capability::RunOnce])]);
    assert_eq!((committed.affected, committed.sources), (bits(&[0]), vec![id("a", "a-gated")]));
    let released = ["gated: Apply".to_owned(), format!("once: {WITHHELD}"), "plain: Apply".to_owned()];
    assert_eq!(told(&kept, 0, since), released);
    kept.restart();
    assert_eq!(told(&kept, 0, since), released);
    assert_eq!(delta(&kept, 1, other), Vec::<String>::new());
    kept.change(vec![understands(0, &[])]);
    assert_eq!(kept.ledger.target(target(0)).unwrap().digest(), digest);
    assert_eq!(kept.writes(vec![understands(0, &[])]), 0);
    check_sound(&kept.ledger);
}

#[test]
fn what_needs_nothing_new_costs_no_revision() {
    let mut kept = Kept::with_targets(1);
    kept.change(vec![assign("a", "x", &[0])]);
    let before = kept.version(0);
    kept.change(vec![understands(0, &[Capability::Gates])]);
    assert_eq!(kept.version(0), before);
    // What comes later is withheld all the same, from the first on, also after a restart.
    kept.restart();
    kept.change(vec![placed("gated", gated())]);
    assert_eq!(delta(&kept, 0, before), [format!("gated: {WITHHELD}")]);
    // It leaves as any other does, by the policy that it has.
    let since = kept.version(0);
    kept.change(vec![remove("a", "gated")]);
    let page = kept.ledger.target(target(0)).unwrap().page(Some(since), None, 10).unwrap();
    assert_eq!(page.tombstones[0].policy, PrunePolicy::of(&gated()));
}

/// Its agent said so a moment before, and the ledger hears of both at once.
#[test]
fn capabilities_of_a_deleted_target_are_ignored() {
    let mut kept = Kept::with_targets(2);
    kept.change(vec![placed("gated", gated())]);
    kept.change(vec![understands(0, &[Capability::Gates]), Change::Forget(target(0))]);
    kept.restart();
    assert!(kept.ledger.target(target(0)).is_none());
    check_sound(&kept.ledger);
}

#[test]
fn a_fact_about_what_is_withheld_is_told_with_its_release() {
    let mut kept = Kept::with_targets(1);
    kept.change(vec![placed("once", once())]);
    let uid: Uid = "a-once".parse().unwrap();
    kept.change(vec![happened(0, &config_map("once"), &uid, Terminal::CreatedOnce)]);
    kept.change(vec![understands(0, &[Capability::RunOnce])]);
    kept.change(vec![understands(0, &[])]);
    kept.restart();
    let fact = kept.ledger.target(target(0)).unwrap().happened(&config_map("once"));
    assert_eq!(fact.map(|fact| fact.fact), Some(Terminal::CreatedOnce));
}

#[test]
fn an_upgrade_costs_a_record_however_much_it_releases_and_others_keep_their_deltas() {
    let mut kept = Kept::with_targets(2);
    kept.change((0..50).map(|nth| placed(&format!("g{nth:02}"), gated())).collect());
    kept.change(vec![understands(0, &[Capability::Gates])]);
    let (others, logged) = (kept.version(1), kept.ledger.log.len());
    for lacks in [&[][..], &[Capability::Gates], &[]] {
        // The revision's id, the target, head.
        assert_eq!(kept.writes(vec![understands(0, lacks)]), 3);
        kept.change(vec![understands(0, lacks)]);
    }
    assert_eq!((kept.ledger.log.len(), kept.version(1)), (logged, others));
    kept.restart();
    kept.change(vec![placed("more", gated())]);
    assert_eq!(delta(&kept, 1, others), ["more: Apply"]);
    check_sound(&kept.ledger);
}

/// What it is told is the same if something else changes there at once.
#[test]
fn what_changes_together_with_an_upgrade_is_told_once() {
    let mut kept = Kept::with_targets(2);
    kept.change(vec![placed("gated", gated()), placed("other", gated()), understands(0, &[Capability::Gates])]);
    kept.change(vec![understands(0, &[Capability::Gates])]);
    kept.change(vec![understands(0, &[]), placed("gated", once()), remove("a", "other"), placed("new", gated())]);
    check_sound(&kept.ledger);
    let (digest, since) = (kept.ledger.target(target(0)).unwrap().digest(), kept.version(0));
    kept.restart();
    assert_eq!((kept.ledger.target(target(0)).unwrap().digest(), kept.version(0)), (digest, since));
    check_sound(&kept.ledger);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// When it was upgraded, and how often, makes no difference to what an agent is told.
    #[test]
    fn what_is_told_follows_from_what_is_assigned_and_understood_now(steps in ops()) {
        let (mut kept, mut late) = (Kept::with_targets(TARGETS), Kept::with_targets(TARGETS));
        let mut last = BTreeMap::new();
        for ops in &steps {
            let (upgrades, others): (Vec<&Op>, Vec<_>) = ops.iter().partition(|op| matches!(op, Op::Understands { .. }));
            kept.change(ops.iter().flat_map(|op| op.changes(&kept.ledger)).collect());
            late.change(others.iter().flat_map(|op| op.changes(&late.ledger)).collect());
            for op in upgrades {
                let Op::Understands { target, lacks } = op else { unreachable!("they were chosen so") };
                last.insert(*target, lacks.clone());
            }
            if ops.iter().any(|op| matches!(op, Op::Restart)) {
                kept.restart();
            }
        }
        late.change(last.iter().map(|(nth, lacks)| understands(*nth, lacks)).collect());
        check_sound(&late.ledger);
        for nth in 0..TARGETS {
            let digest = |kept: &Kept| kept.ledger.target(target(nth)).unwrap().digest();
            prop_assert_eq!(digest(&kept), digest(&late));
        }
    }
}
