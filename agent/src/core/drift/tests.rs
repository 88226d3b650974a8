use expect_test::expect;
use tideline_common::wire::v1::Progress;
use tideline_common::{ApplyPolicy, DriftPolicy, ObjectKey, Reason};

use super::super::tests::key;
use super::super::tests::world::World;

fn world() -> (World, ObjectKey) {
    let mut world = World::new(9);
    world.hub.policy = ApplyPolicy { drift: DriftPolicy::Report, ..ApplyPolicy::default() };
    let key = key("", "ConfigMap", "c");
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
    expect!["changed locally, seen first at look 1: /data/a is 2, not 1"].assert_eq(&first.2);

    world.crash();
    world.quiesce();
    assert_eq!(reported(&world, &key), first, "the journal knows since when");
    assert_eq!(world.cluster.objects[&key].input, None, "it is left as it is");
    world.check_at_rest();
}

#[test]
fn what_changed_that_is_not_ours_is_no_drift() {
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
fn a_new_input_ends_it() {
    let (mut world, key) = world();
    world.cluster.edit(&key);
    world.quiesce();
    world.hub.put(&key, 1, 2);
    world.quiesce();
    assert_eq!(reported(&world, &key), (Progress::Applied, None, String::new()));
    world.check_converged();
}
