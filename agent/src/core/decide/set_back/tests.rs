use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::core::decide::plan::mark_of;
use crate::core::interface::write::AppliedRecord;
use crate::core::tests::world::World;
use crate::core::tests::{entry, key, me};
use tideline_common::{ApplyMode, ApplyPolicy, GroupKind, Origin, Reason, Uid};

fn keys() -> [ObjectKey; 3] {
    [key("", "ConfigMap", "a"), key("", "Secret", "b"), key("apps", "Deployment", "c")]
}

/// An agent that has applied the third generation of an object, and starts again without the hub.
fn started_alone(key: &ObjectKey) -> World {
    let mut world = World::new(7);
    world.hub.put(key, 1, 3);
    world.heal();
    world.quiesce();
    world.hub_is_away();
    world.crash();
    world
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
    let mut world = started_alone(&key_of_a);
    let observed = |world: &World, generation| {
        let mark = mark_of(me(), &entry(&key_of_a, 1, generation), &ApplyPolicy::default(), Origin::Created);
        Observed { mark: Some(Arc::new(mark)), ..world.cluster.observed(&key_of_a).unwrap() }
    };
    assert!(shows_set_back(&world.core.model, &key_of_a, &observed(&world, 5)));
    let record = world.core.model.objects.get(&key_of_a).unwrap().record.clone().unwrap();
    world.core.model.objects.at(&key_of_a).record = Some(AppliedRecord { source_generation: 5, ..record });
    assert!(!shows_set_back(&world.core.model, &key_of_a, &observed(&world, 5)));
    assert!(shows_set_back(&world.core.model, &key_of_a, &observed(&world, 6)));
}

#[test]
fn a_mark_that_another_manager_has_edited_says_nothing_of_the_journal() {
    let key_of_a = key("", "ConfigMap", "a");
    let world = started_alone(&key_of_a);
    let mark = mark_of(me(), &entry(&key_of_a, 1, 999_999_999), &ApplyPolicy::default(), Origin::Created);
    let later = Observed { mark: Some(Arc::new(mark)), ..world.cluster.observed(&key_of_a).unwrap() };
    let [another, theirs] = [b"another", b"theirs!"].map(|of| Some(tideline_common::Digest::of(of)));
    let cases: [(&str, Observed, bool); 5] = [
        ("as our manager wrote it", later.clone(), true),
        ("by an apply of ours with other fields", Observed { managed: another, ..later.clone() }, true),
        (
            "edited: our entry lost a field to another's",
            Observed { managed: another, others: theirs, ..later.clone() },
            false,
        ),
        ("nothing of it is managed by us", Observed { managed: None, ..later.clone() }, false),
        (
            "made anew since, and others manage some of it",
            Observed { uid: crate::core::tests::uid("u9"), managed: another, others: theirs, ..later },
            true,
        ),
    ];
    for (case, observed, shows) in cases {
        assert_eq!(shows_set_back(&world.core.model, &key_of_a, &observed), shows, "{case}");
    }
}

fn elsewhere(namespace: &str) -> ObjectKey {
    ObjectKey::new(GroupKind::new("", "ConfigMap"), namespace, "far")
}

/// Somebody writes a later generation into the mark, as our own manager.
fn forge(world: &mut World, key: &ObjectKey) {
    let mark = world.cluster.objects.get_mut(key).unwrap().mark.as_mut().unwrap();
    Arc::make_mut(mark).generation = 999_999_999;
}

#[test]
fn what_objects_of_one_namespace_show_of_the_journal_goes_for_that_namespace_alone() {
    let [forged, near, _] = keys();
    let far = elsewhere("yard");
    let mut world = World::new(7);
    world.cluster.namespaces.insert("yard".into());
    for key in [&forged, &near, &far] {
        world.hub.put(key, 1, 1);
    }
    world.heal();
    world.quiesce();
    world.hub_is_away();
    forge(&mut world, &forged);
    world.crash();
    for key in [&near, &far] {
        world.cluster.delete(key);
    }
    world.run_for(Duration::from_hours(1));
    assert_eq!((world.core.namespace_set_back(), world.core.journal_is_set_back()), (Some("shop"), false));
    let there = |world: &World, key| world.cluster.objects.contains_key(key);
    assert_eq!([&near, &far].map(|key| there(&world, key)), [false, true]);
    forge(&mut world, &far);
    world.crash();
    world.run_for(Duration::from_hours(1));
    assert!(world.core.journal_is_set_back(), "two namespaces show it");
    world.reconnect();
    world.quiesce();
    world.check_converged();
    assert_eq!((world.core.namespace_set_back(), world.core.journal_is_set_back()), (None, false));
}

#[test]
fn a_namespace_that_was_left_as_it_was_is_brought_up_to_date_when_the_hub_is_heard() {
    let [forged, near, went] = keys();
    let mut world = World::new(7);
    for key in [&forged, &near, &went] {
        world.hub.put(key, 1, 1);
    }
    world.heal();
    world.quiesce();
    world.hub_is_away();
    forge(&mut world, &forged);
    world.crash();
    world.cluster.delete(&near);
    world.hub.remove(&went);
    world.run_for(Duration::from_hours(1));
    assert_eq!(world.core.namespace_set_back(), Some("shop"));
    world.reconnect();
    world.quiesce();
    world.check_converged();
    world.check_at_rest();
}

/// What was applied and unassigned since the copy of the journal was made is not undone, as long as the hub is away.
#[test]
fn an_agent_whose_journal_was_set_back_changes_nothing_before_it_has_heard_the_hub() {
    let [changed, stays, _] = keys();
    let [changed_too, went] = ["yard", "attic"].map(elsewhere);
    let mut world = World::new(7);
    world.cluster.namespaces.extend(["yard", "attic"].map(Into::into));
    for key in [&changed, &changed_too, &went, &stays] {
        world.hub.put(key, 1, 1);
    }
    world.heal();
    world.quiesce();
    let old = world.journal.clone();
    world.hub.put(&changed, 1, 2);
    world.hub.put(&changed_too, 1, 2);
    world.hub.remove(&went);
    world.quiesce();
    world.check_converged();
    let before = uids(&world);
    assert_eq!(before.len(), 3);
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
