//! What agents do not understand, as they are told of it.

use super::*;

fn placed(name: &str, policy: Arc<ApplyPolicy>) -> Change {
    let mut assignment = assigned("a", name, &format!("a-{name}"), name, &[0, 1]);
    assignment.variants[0].policy = policy;
    Change::Assign(Box::new(assignment))
}

/// What changed since, as `name: state`, and what is gone.
fn delta(kept: &Kept, nth: u32, since: Version) -> (Vec<String>, usize) {
    let page = kept.ledger.target(target(nth)).unwrap().page(Some(since), None, 10).unwrap();
    (page.entries.iter().map(|entry| format!("{}: {:?}", entry.key.name, entry.state)).collect(), page.tombstones.len())
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
    assert_eq!(delta(&kept, 0, since), (vec![format!("gated: {WITHHELD}"), format!("once: {WITHHELD}")], 0));
    assert_eq!(kept.version(1), other, "others are not told anew");
    check_sound(&kept.ledger);
    let view = kept.ledger.target(target(0)).unwrap();
    assert_eq!(view.too_old_for(), (2, [Capability::RunOnce, Capability::Gates].into()));
    let source = kept.ledger.sources().next().unwrap();
    assert_eq!(source.too_old_for(&kept.ledger, 0), [Capability::Gates].into());
    assert!(source.too_old_for(&kept.ledger, 1).is_empty());

    since = kept.version(0);
    kept.change(vec![understands(0, &[Capability::RunOnce])]);
    assert_eq!(delta(&kept, 0, since), (vec!["gated: Apply".to_owned()], 0));
    // Also where the log was made of the records.
    kept.restart();
    assert_eq!(delta(&kept, 0, since), (vec!["gated: Apply".to_owned()], 0));
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
    assert_eq!(delta(&kept, 0, before), (vec![format!("gated: {WITHHELD}")], 0));
    // It leaves as any other does, by the policy that it has.
    let since = kept.version(0);
    kept.change(vec![remove("a", "gated")]);
    let page = kept.ledger.target(target(0)).unwrap().page(Some(since), None, 10).unwrap();
    assert_eq!(page.tombstones[0].policy, PrunePolicy::of(&gated()));
}

/// Its agent said so a moment before, and the ledger hears of both at once.
#[test]
fn what_the_agent_of_a_deleted_target_understands_is_nobodys_business() {
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
