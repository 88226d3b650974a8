use std::collections::BTreeSet;

use super::*;
use crate::core::decide::plan::mark_of;
use crate::core::interface::write::AppliedRecord;
use crate::core::tests::world::World;
use crate::core::tests::{entry, key, me};
use tideline_common::{ApplyMode, ApplyPolicy, GroupKind, Origin, Reason, Uid};

fn keys() -> [ObjectKey; 3] {
    [key("", "ConfigMap", "a"), key("", "Secret", "b"), key("apps", "Deployment", "c")]
}

fn uids(world: &World) -> Vec<(ObjectKey, Uid, Option<tideline_common::Digest>)> {
    world.cluster.objects.iter().map(|(key, local)| (key.clone(), local.uid.clone(), local.input)).collect()
}

#[test]
fn a_mark_of_the_same_source_and_a_later_generation_says_that_the_journal_was_set_back() {
    let key_of_a = key("", "ConfigMap", "a");
    let (known, policy) = (entry(&key_of_a, 1, 2), ApplyPolicy::default());
    let mark = |source, generation| mark_of(me(), &entry(&key_of_a, source, generation), &policy, Origin::Created);
    assert!(is_later(me(), &key_of_a, &mark(1, 3), (&known, Some(&policy))));
    assert!(!is_later(me(), &key_of_a, &mark(1, 2), (&known, Some(&policy))));
    assert!(!is_later(me(), &key_of_a, &mark(2, 3), (&known, Some(&policy))), "generations of two sources say nothing");
    let once = ApplyPolicy { mode: ApplyMode::CreateOnly, ..ApplyPolicy::default() };
    let left_alone = "an accepted loss of history set its source back, and nobody writes its mark";
    assert!(!is_later(me(), &key_of_a, &mark(1, 3), (&known, Some(&once))), "{left_alone}");
    let withheld = Entry { state: EntryState::Withheld(Reason::AgentTooOld), ..known.clone() };
    assert!(!is_later(me(), &key_of_a, &mark(1, 3), (&withheld, Some(&policy))), "{left_alone}");
    let elsewhere = key("", "ConfigMap", "other");
    assert!(!is_later(me(), &elsewhere, &mark(1, 3), (&known, Some(&policy))), "a copy");
}

/// An accepted loss of history has set its source back, and the API server refuses its content since.
#[test]
fn a_mark_that_the_journal_itself_recorded_shows_no_older_journal() {
    let key_of_a = key("", "ConfigMap", "a");
    let mut world = World::new(7);
    world.hub.put(&key_of_a, 1, 3);
    world.heal();
    world.quiesce();
    world.hub_is_away();
    world.crash();
    let mark = |generation| mark_of(me(), &entry(&key_of_a, 1, generation), &ApplyPolicy::default(), Origin::Created);
    assert!(shows_set_back(&world.core.model, &key_of_a, Some(&mark(5))));
    let record = world.core.model.objects.get(&key_of_a).unwrap().record.clone().unwrap();
    world.core.model.objects.at(&key_of_a).record = Some(AppliedRecord { source_generation: 5, ..record });
    assert!(!shows_set_back(&world.core.model, &key_of_a, Some(&mark(5))));
    assert!(shows_set_back(&world.core.model, &key_of_a, Some(&mark(6))));
}

/// What was applied and unassigned since the copy of the journal was made is not undone, as long as the hub is away.
#[test]
fn an_agent_whose_journal_was_set_back_changes_nothing_before_it_has_heard_the_hub() {
    let [changed, went, stays] = keys();
    let mut world = World::new(7);
    for key in [&changed, &went, &stays] {
        world.hub.put(key, 1, 1);
    }
    world.heal();
    world.quiesce();
    let old = world.journal.clone();
    world.hub.put(&changed, 1, 2);
    world.hub.remove(&went);
    world.quiesce();
    world.check_converged();
    let before = uids(&world);
    assert_eq!(before.len(), 2);
    world.hub_is_away();
    world.journal = old;
    world.crash();
    world.run_for(Duration::from_hours(2));
    assert!(world.core.model.is_set_back());
    assert_eq!(uids(&world), before);
    world.reconnect();
    world.quiesce();
    world.check_converged();
    assert_eq!(uids(&world), before);
}

/// One kind that is never listed does not delay corrections of the others.
#[test]
fn a_kind_that_is_not_listed_delays_the_start_by_half_a_minute_at_most() {
    let [first, second, _] = keys();
    let mut world = World::new(7);
    for key in [&first, &second] {
        world.hub.put(key, 1, 1);
    }
    world.heal();
    world.quiesce();
    world.hub_is_away();
    world.cluster.delete(&first);
    let silent: BTreeSet<GroupKind> = [second.kind.clone()].into();
    world.watches.silent = silent;
    world.crash();
    world.run_for(LIST_FIRST_MAX * 9 / 10);
    assert!(!world.cluster.objects.contains_key(&first));
    world.run_for(LIST_FIRST_MAX / 5);
    assert!(world.cluster.objects.contains_key(&first));
}
