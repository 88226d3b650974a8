use std::sync::Arc;

use expect_test::expect;
use tideline_common::wire::v1::Progress;
use tideline_common::{ApplyPolicy, AssociatedKind, ConflictPolicy, DriftPolicy, Mark, ObjectKey, Prune, Reason};

use crate::core::tests::key;
use crate::core::tests::world::World;

fn world() -> (World, ObjectKey) {
    world_of(("", "ConfigMap"))
}

fn world_of(kind: (&str, &str)) -> (World, ObjectKey) {
    world_under(ApplyPolicy::default(), kind)
}

fn world_under(policy: ApplyPolicy, (group, kind): (&str, &str)) -> (World, ObjectKey) {
    let mut world = World::new(9);
    world.hub.policy = ApplyPolicy { drift: DriftPolicy::Report, ..policy };
    let key = key(group, kind, "c");
    world.hub.put(&key, 1, 1);
    world.heal();
    world.quiesce();
    (world, key)
}

fn reported(world: &World, key: &ObjectKey) -> (Progress, Option<Reason>, String) {
    let (_, _, report) = &world.hub.reports[key];
    (report.progress, report.reason, report.message.clone())
}

#[test]
fn a_local_change_is_told_field_by_field_with_the_time_it_was_seen_first() {
    let (mut world, key) = world();
    world.cluster.edit(&key);
    world.quiesce();
    let first = reported(&world, &key);
    assert_eq!((first.0, first.1), (Progress::Applied, Some(Reason::Drifted)));
    expect!["changed locally, seen first at comparison 1: /data/a is 2, not 1"].assert_eq(&first.2);

    world.crash();
    world.quiesce();
    assert_eq!(reported(&world, &key), first, "the journal knows since when");
    assert_eq!(world.cluster.objects[&key].input, None, "it is left as it is");
    world.check_at_rest();
}

/// The object is as it was applied; neither a comparison nor a decision says otherwise.
#[test]
fn a_change_of_the_mark_alone_is_reported_and_not_compared_for_ever() {
    let policy = ApplyPolicy { associated: [AssociatedKind::Pods].into(), ..ApplyPolicy::default() };
    let (mut world, key) = world_under(policy, ("", "ConfigMap"));
    let changed = |world: &mut World, change: &dyn Fn(&mut Mark)| {
        let mut mark = Mark::clone(world.cluster.objects[&key].mark.as_ref().unwrap());
        change(&mut mark);
        world.cluster.objects.get_mut(&key).unwrap().mark = Some(Arc::new(mark));
        let before = world.ops;
        world.lose_watch(&key.kind);
        // It ends by itself if there is no rest.
        world.quiesce();
        world.ops - before
    };
    let operations = changed(&mut world, &|mark| mark.generation += 1);
    assert!(operations <= 30, "{operations} operations in half an hour");
    assert_eq!(reported(&world, &key).1, Some(Reason::Drifted));
    // An older build named the whole policy.
    let policy = world.hub.policy.digest();
    changed(&mut world, &|mark| (mark.generation, mark.policy) = (mark.generation - 1, Some(policy)));
    assert_eq!(reported(&world, &key).1, None);
}

#[test]
fn a_change_of_a_field_that_is_not_ours_is_no_drift() {
    let (mut world, key) = world();
    let input = world.cluster.objects[&key].input;
    world.cluster.edit(&key);
    world.quiesce();
    world.cluster.objects.get_mut(&key).unwrap().restore(input);
    let status = world.cluster.objects[&key].status;
    world.cluster.set_status(&key, status + 1);
    world.quiesce();
    assert_eq!(reported(&world, &key), (Progress::Applied, None, String::new()));
    world.check_at_rest();
}

#[test]
fn a_change_that_was_undone_is_no_drift_and_another_change_is() {
    for kind in [("", "ConfigMap"), ("apps", "Deployment")] {
        let (mut world, key) = world_of(kind);
        let input = world.cluster.objects[&key].input.unwrap();
        world.cluster.edit(&key);
        world.quiesce();
        for _ in 0..2 {
            world.cluster.put_back(&key, input);
            world.quiesce();
            assert_eq!(reported(&world, &key), (Progress::Applied, None, String::new()), "{kind:?}");
            world.check_at_rest();
            let ops = world.ops;
            world.crash();
            world.quiesce();
            assert_eq!(world.ops, ops, "nothing is written, or looked at, for a restart");

            // The agent's own entry of managedFields says nothing of this.
            world.cluster.edit(&key);
            world.quiesce();
            assert_eq!(reported(&world, &key).1, Some(Reason::Drifted), "{kind:?}");
            world.check_at_rest();
        }
    }
}

#[test]
fn an_object_whose_change_was_undone_follows_source_and_policy() {
    let (mut world, key) = world();
    let input = world.cluster.objects[&key].input.unwrap();
    world.cluster.edit(&key);
    world.quiesce();
    world.cluster.put_back(&key, input);
    world.quiesce();
    world.hub.policy.prune = Prune::Orphan;
    world.hub.put(&key, 1, 1);
    world.quiesce();
    assert_eq!(world.cluster.objects[&key].mark.as_ref().map(|mark| mark.prune), Some(Prune::Orphan));
    world.hub.put(&key, 1, 2);
    world.quiesce();
    assert_ne!(world.cluster.objects[&key].input, Some(input));
    world.check_converged();
    world.check_at_rest();
}

#[test]
fn a_new_input_ends_it() {
    let (mut world, key) = world();
    world.cluster.edit(&key);
    world.quiesce();
    world.hub.put(&key, 1, 2);
    world.quiesce();
    assert_eq!(reported(&world, &key), (Progress::Applied, None, String::new()));
    world.check_converged();
}

#[test]
fn a_reported_drift_outlives_other_changes_and_ends_when_it_is_to_be_corrected() {
    let (mut world, key) = world();
    let policy = world.hub.policy.clone();
    world.cluster.edit(&key);
    world.quiesce();
    let drifted = reported(&world, &key);
    assert_eq!(drifted.1, Some(Reason::Drifted));

    world.hub.policy = ApplyPolicy { prune: Prune::Orphan, ..policy.clone() };
    world.hub.put(&key, 1, 1);
    world.quiesce();
    assert_eq!(world.cluster.objects[&key].input, None, "it is left as it is");
    let mark = world.cluster.objects[&key].mark.as_ref().expect("a mark");
    assert_eq!(mark.prune, Prune::Orphan, "what was asked for is done");
    assert_eq!(reported(&world, &key), drifted);
    world.check_at_rest();
    world.crash();
    world.quiesce();
    assert_eq!((world.cluster.objects[&key].input, reported(&world, &key)), (None, drifted));

    world.hub.policy = ApplyPolicy { drift: DriftPolicy::Correct, ..policy };
    world.hub.put(&key, 1, 1);
    world.quiesce();
    assert_eq!(reported(&world, &key), (Progress::Applied, None, String::new()));
    world.check_converged();
    world.check_at_rest();
}

/// The core learns of the change with the new policy, or after it.
#[test]
fn a_reported_drift_stays_though_it_was_never_compared() {
    for deaf in [false, true] {
        let (mut world, key) = world();
        world.cluster.faults.deaf = deaf;
        world.cluster.edit(&key);
        world.hub.policy.prune = Prune::Orphan;
        world.hub.put(&key, 1, 1);
        if deaf {
            world.lose_watch(&key.kind);
            world.cluster.faults.deaf = false;
        }
        world.quiesce();
        assert_eq!(world.cluster.objects[&key].input, None, "deaf: {deaf}");
        assert_eq!(reported(&world, &key).1, Some(Reason::Drifted));
        assert_eq!(world.cluster.objects[&key].mark.as_ref().map(|mark| mark.prune), Some(Prune::Orphan));
        world.check_at_rest();
    }
}

#[test]
fn a_field_left_to_another_manager_is_reported_across_a_restart_and_taken_once_released() {
    let (mut world, key) = world();
    world.hub.policy = ApplyPolicy { conflicts: ConflictPolicy::Report, ..ApplyPolicy::default() };
    world.cluster.contest(&key, Some(1));
    world.hub.put(&key, 1, 2);
    world.quiesce();
    let told = (Progress::Applied, Some(Reason::FieldConflict), "left to others: /data/a (rival-1)".to_owned());
    assert_eq!(reported(&world, &key), told);
    world.check_at_rest();

    let ops = world.ops;
    world.crash();
    world.quiesce();
    assert_eq!(reported(&world, &key), told);
    assert_eq!(world.ops, ops, "nothing is written, or looked at, for a restart");

    world.cluster.contest(&key, Some(2));
    world.quiesce();
    assert_eq!(reported(&world, &key).2, "left to others: /data/a (rival-2)");
    world.check_at_rest();
    world.cluster.contest(&key, None);
    world.quiesce();
    assert_eq!(reported(&world, &key), (Progress::Applied, None, String::new()));
    world.check_at_rest();
}
