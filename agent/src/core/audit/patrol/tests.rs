use std::time::Duration;

use tideline_common::wire::v1::Progress;
use tideline_common::{ApplyPolicy, DriftPolicy, ObjectKey, Reason};

use crate::core::interface::effect::PatrolTally;
use crate::core::tests::key;
use crate::core::tests::world::World;
use crate::simulated_cluster::{Means, Stripped};

/// A dozen objects that are as they should be, and watches that are silent from now on.
fn deaf() -> (World, Vec<ObjectKey>) {
    deaf_with(ApplyPolicy::default())
}

fn deaf_with(policy: ApplyPolicy) -> (World, Vec<ObjectKey>) {
    let mut world = World::new(5);
    world.hub.page = 100;
    world.hub.policy = policy;
    let kinds = [("", "ConfigMap"), ("apps", "Deployment")];
    let keys: Vec<_> = (0..12).map(|i| key(kinds[i % 2].0, kinds[i % 2].1, &format!("o{i:02}"))).collect();
    for key in &keys {
        world.hub.put(key, 1, 1);
    }
    world.heal();
    world.quiesce();
    world.next_patrol();
    world.cluster.faults.deaf = true;
    (world, keys)
}

const CLEAN: PatrolTally = PatrolTally {
    checked: 12,
    unknown: 0,
    withheld: 0,
    failing: 0,
    missing: 0,
    drifted: 0,
    unassigned: 0,
    foreign: 0,
    unseen: 0,
    held: 0,
    repaired: 0,
};

#[test]
fn one_patrol_counts_exactly_what_was_injected_and_the_next_counts_none_of_it() {
    let (mut world, keys) = deaf();
    for key in &keys[..3] {
        world.cluster.delete(key);
    }
    keys[3..7].iter().for_each(|key| world.cluster.edit(key));
    for name in ["orphan-a", "orphan-b"] {
        world.cluster.plant(&key("", "ConfigMap", name), &keys[8]);
    }
    let found = world.next_patrol();
    assert_eq!(found, PatrolTally { missing: 3, drifted: 4, unassigned: 2, repaired: 7, ..CLEAN });
    // Nothing says that they were ever unassigned: they are held, and told of. What their controllers have made of the three
    // Deployments among the others was not told, either.
    let held = PatrolTally { held: 2, ..CLEAN };
    let next = [world.next_patrol(), world.next_patrol(), world.next_patrol()];
    assert_eq!(next, [PatrolTally { unseen: 3, ..held }, held, held]);
    for name in ["orphan-a", "orphan-b"] {
        let (_, _, report) = &world.hub.reports[&key("", "ConfigMap", name)];
        assert_eq!((report.progress, report.reason), (Progress::DeletionHeld, Some(Reason::Restored)));
    }
    assert!(keys.iter().all(|key| world.cluster.objects[key].input.is_some()), "everything is as assigned");
    assert_eq!(world.cluster.objects.len(), 14);
}

#[test]
fn at_rest_a_patrol_reads_and_writes_nothing_but_lists() {
    let (mut world, _) = deaf();
    let ops = world.ops;
    assert_eq!([world.next_patrol(), world.next_patrol()], [CLEAN, CLEAN]);
    assert_eq!(world.ops, ops);
    world.check_at_rest();
}

#[test]
fn an_object_whose_mark_and_label_were_stripped_is_found_through_the_journal_and_restored() {
    let (mut world, keys) = deaf();
    world.cluster.strip(&keys[0], Stripped::Both);
    world.cluster.strip(&keys[1], Stripped::Both);
    let found = world.next_patrol();
    assert_eq!(found, PatrolTally { missing: 2, repaired: 2, ..CLEAN });
    assert!(keys.iter().all(|key| world.cluster.objects[key].mark.is_some()));
    assert_eq!(world.next_patrol(), CLEAN);
}

#[test]
fn a_kind_that_cannot_be_listed_is_unknown_and_nothing_follows_from_it() {
    let (mut world, keys) = deaf();
    world.cluster.faults.unlistable.insert(keys[0].kind.clone());
    for key in &keys[..4] {
        world.cluster.delete(key);
    }
    let ops = world.ops;
    let found = world.next_patrol();
    assert_eq!(found, PatrolTally { checked: 6, unknown: 6, missing: 2, repaired: 2, ..CLEAN });
    assert_eq!(world.ops - ops, 2, "only what is known to be missing is created");
    world.cluster.faults.unlistable.clear();
    // What their controllers have made of the two that were created before was not told.
    assert_eq!(world.next_patrol(), PatrolTally { missing: 2, repaired: 2, unseen: 2, ..CLEAN });
    assert_eq!(world.next_patrol(), CLEAN);
}

#[test]
fn a_suspicion_that_the_second_list_does_not_confirm_is_dropped() {
    let (mut world, keys) = deaf();
    let input = world.cluster.objects[&keys[1]].input;
    world.cluster.edit(&keys[1]);
    world.until_patrol_pauses();
    world.cluster.objects.get_mut(&keys[1]).unwrap().restore(input);
    let ops = world.ops;
    let found = world.next_patrol();
    assert_eq!(found, PatrolTally { unseen: 1, ..CLEAN });
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.ops - ops, 1, "it is read, and not written");
}

/// An API server is restored from a backup: the same objects, of earlier versions, under an agent that goes on. Its watches
/// begin again, or have not noticed; and others write, so that versions pass those from before.
#[test]
fn what_a_cluster_that_was_set_back_has_is_brought_up_to_date() {
    for (relists, hears, writes) in
        [(false, false, 0), (false, true, 0), (false, false, 40), (true, false, 0), (true, true, 0), (true, true, 40)]
    {
        let (mut world, keys) = deaf();
        world.cluster.faults.deaf = false;
        let backup = world.cluster.back_up();
        for key in &keys[..6] {
            world.hub.put(key, 1, 2);
        }
        world.hub.put(&key("", "ConfigMap", "new"), 1, 1);
        world.cluster.set_status(&keys[7], 78);
        world.quiesce();
        world.cluster.faults.deaf = !hears;
        if relists {
            world.set_back_cluster(backup);
        } else {
            world.cluster.set_back(backup);
        }
        for _ in 0..writes {
            world.cluster.progress(&keys[11]);
        }
        if relists {
            world.run_for(Duration::from_secs(5));
            world.check_converged();
        }
        let found = world.next_patrol();
        // Of the rest, one was seen with another status, and one is new.
        let (unseen, missing) = (u64::from(!relists) * 7, u64::from(!relists));
        assert_eq!((found.unseen >= unseen, found.missing), (true, missing), "{found:?}, relists: {relists}");
        world.quiesce();
        world.check_converged();
        world.check_reported();
        world.check_at_rest();
    }
}

#[test]
fn a_status_that_the_watch_did_not_tell_is_read_and_reported() {
    let (mut world, keys) = deaf();
    world.cluster.set_status(&keys[1], 77);
    assert_eq!(world.next_patrol(), PatrolTally { unseen: 1, ..CLEAN });
    assert_eq!(world.next_patrol(), CLEAN);
    let (_, _, report) = &world.hub.reports[&keys[1]];
    assert_eq!(report.status.as_ref().unwrap().get(), world.cluster.objects[&keys[1]].status_text());
}

#[test]
fn report_only_drift_is_counted_and_not_corrected() {
    let (mut world, keys) = deaf_with(ApplyPolicy { drift: DriftPolicy::Report, ..ApplyPolicy::default() });
    world.cluster.edit(&keys[0]);
    let found = PatrolTally { drifted: 1, ..CLEAN };
    assert_eq!([world.next_patrol(), world.next_patrol()], [found, found]);
    assert_eq!(world.cluster.objects[&keys[0]].input, None);
    let (_, _, report) = &world.hub.reports[&keys[0]];
    assert_eq!((report.progress, report.reason), (Progress::Applied, Some(Reason::Drifted)));
}

#[test]
fn a_foreign_object_under_an_assigned_key_is_counted_as_foreign() {
    let (mut world, keys) = deaf();
    world.cluster.delete(&keys[0]);
    world.cluster.intrude(&keys[0], Means::Declaratively);
    let first = world.next_patrol();
    assert_eq!(first, PatrolTally { missing: 1, ..CLEAN }, "by its label it is not there");
    assert_eq!(world.next_patrol(), PatrolTally { foreign: 1, ..CLEAN });
}

#[test]
fn an_object_restored_from_another_cluster_is_reported_and_left() {
    let (mut world, keys) = deaf();
    let restored = key("", "ConfigMap", "restored");
    world.cluster.carry(&restored, &keys[8]);
    let ops = world.ops;
    assert_eq!([world.next_patrol(), world.next_patrol()], [CLEAN, CLEAN]);
    world.quiesce();
    let told = world.hub.conditions();
    assert!(told.iter().any(|condition| condition.starts_with("Copy 1: ConfigMap shop/restored: ")), "{told:?}");
    assert!(world.ops == ops && world.cluster.objects.contains_key(&restored));
    world.cluster.delete(&restored);
    world.next_patrol();
    world.quiesce();
    assert_eq!(world.hub.conditions(), [""; 0]);
}
