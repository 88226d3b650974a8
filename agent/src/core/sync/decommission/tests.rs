use std::time::Duration;

use tideline_common::wire::v1::{ClusterFacts, Decommission, DecommissionReport, Progress};
use tideline_common::{Digest, GroupKind, ObjectKey, Reason};

use crate::core::FuseLimits;
use crate::core::tests::world::World;
use crate::core::tests::{key, uid};

/// A world with so many objects in a namespace, of two kinds, and a fuse that lets ten pass.
fn standing(seed: u64, count: usize) -> World {
    let mut world = World::with_fuse(seed, FuseLimits::default());
    world.hub.put(&key("", "Namespace", "shop"), 1, 1);
    for nth in 0..count {
        let kind = if nth % 2 == 0 { ("", "ConfigMap") } else { ("apps", "Deployment") };
        world.hub.put(&key(kind.0, kind.1, &format!("o{nth:02}")), 1, 1);
    }
    world.heal();
    world.quiesce();
    world
}

#[test]
fn decommission_removes_everything_regardless_of_the_fuse_and_then_does_nothing() {
    let mut world = standing(3, 40);
    world.hub.decommission(Decommission::Remove);
    world.quiesce();
    assert!(world.cluster.objects.is_empty(), "{:?}", world.cluster.objects.keys());
    assert_eq!(world.decommissioned, Some(DecommissionReport { how: Decommission::Remove, left: 0 }));
    world.check_reported();
    world.check_at_rest();
}

#[test]
fn kept_objects_are_unchanged_and_carry_no_mark() {
    let mut world = standing(3, 40);
    let before: Vec<(ObjectKey, Option<Digest>)> =
        world.cluster.objects.iter().map(|(key, local)| (key.clone(), local.input)).collect();
    world.hub.decommission(Decommission::Keep);
    world.quiesce();
    let after: Vec<_> = world.cluster.objects.iter().map(|(key, local)| (key.clone(), local.input)).collect();
    assert_eq!(after, before);
    assert!(world.cluster.objects.values().all(|local| local.mark.is_none()));
    assert_eq!(world.decommissioned, Some(DecommissionReport { how: Decommission::Keep, left: 0 }));
    world.check_reported();
    world.check_at_rest();
}

#[test]
fn neither_crashes_nor_a_hub_that_is_away_end_it() {
    for seed in 0..40 {
        for how in [Decommission::Keep, Decommission::Remove] {
            let mut world = standing(seed, 12);
            world.hub.decommission(how);
            world.run_with_faults(30);
            for _ in 0..6 {
                world.run_with_faults(10);
                world.crash();
            }
            world.heal();
            world.quiesce();
            let left: Vec<_> = world.cluster.objects.iter().filter(|(_, local)| local.mark.is_some()).collect();
            assert!(left.is_empty(), "seed {seed}: {left:?}");
            assert_eq!(world.cluster.objects.len(), if how == Decommission::Keep { 13 } else { 0 }, "seed {seed}");
            assert_eq!(world.decommissioned, Some(DecommissionReport { how, left: 0 }), "seed {seed}");
            world.check_reported();
        }
    }
}

#[test]
fn a_cluster_that_is_in_service_again_gets_everything_again() {
    let mut world = standing(3, 6);
    world.hub.decommission(Decommission::Remove);
    world.quiesce();
    world.hub.decommission(Decommission::No);
    let key_of_a = ObjectKey::new(GroupKind::new("", "ConfigMap"), "shop", "o00");
    world.hub.put(&key_of_a, 1, 2);
    world.quiesce();
    world.check_converged();
    world.check_reported();
    assert_eq!(world.decommissioned, Some(DecommissionReport { how: Decommission::No, left: 0 }));
}

/// It was told to orphan everything, and had not done so for some objects. Nothing is assigned again.
#[test]
fn objects_due_for_orphaning_are_orphaned_though_the_cluster_is_in_service_again() {
    for crashes in [false, true] {
        let mut world = standing(3, 6);
        let stuck = ["o00", "o02"].map(|name| key("", "ConfigMap", name));
        world.cluster.faults.unwritable.extend(stuck.clone());
        world.hub.decommission(Decommission::Keep);
        world.run_for(Duration::from_mins(5));
        world.hub.decommission(Decommission::No);
        world.hub.put(&key("", "ConfigMap", "new"), 1, 1);
        world.run_for(Duration::from_mins(5));
        if crashes {
            world.crash();
        }
        world.cluster.faults.unwritable.clear();
        world.quiesce();
        for key in &stuck {
            let local = world.cluster.objects.get(key).unwrap_or_else(|| panic!("{key} is deleted"));
            assert!(local.mark.is_none(), "{key} was to be let go of");
        }
        world.check_reported();
    }
}

#[test]
fn unexplained_objects_stay_when_the_cluster_is_in_service_again() {
    for how in [Decommission::Keep, Decommission::Remove] {
        let mut world = standing(3, 6);
        world.hub = world.hub.restored_empty();
        world.quiesce();
        // Nothing is begun by then.
        let of = |cluster: &str| ClusterFacts { cluster: Some(uid(cluster)), ..ClusterFacts::default() };
        world.begin_in(uid("here"), Some(of("elsewhere")));
        world.hub.decommission(how);
        world.run_for(Duration::from_mins(2));
        assert_eq!(world.decommissioned.map(|report| report.how), Some(how));
        world.hub.decommission(Decommission::No);
        world.hub.put(&key("", "ConfigMap", "other"), 1, 1);
        world.run_for(Duration::from_mins(2));
        world.learn(of("here"));
        world.quiesce();
        let left = world.cluster.objects.values().filter(|local| local.mark.is_some()).count();
        assert_eq!(left, 8, "{how:?}: {:?}", world.cluster.objects.keys());
        world.check_at_rest();
    }
}

fn is_marked(world: &World, key: &ObjectKey) -> bool {
    world.cluster.objects.get(key).is_some_and(|local| local.mark.is_some())
}

/// Nothing says that any of it was unassigned, and the cluster has refused to remove two objects.
#[test]
fn refused_removals_end_when_the_cluster_is_in_service_again() {
    for (how, crashes) in
        [Decommission::Keep, Decommission::Remove].into_iter().flat_map(|how| [(how, false), (how, true)])
    {
        let mut world = standing(3, 6);
        world.hub = world.hub.restored_empty();
        world.quiesce();
        let stuck = ["o00", "o02"].map(|name| key("", "ConfigMap", name));
        world.cluster.faults.unwritable.extend(stuck.clone());
        world.hub.decommission(how);
        world.run_for(Duration::from_mins(5));
        let left = world.cluster.objects.keys().filter(|key| is_marked(&world, key)).count();
        // The namespace is not empty as long as they are there.
        assert_eq!(left, if how == Decommission::Keep { 2 } else { 3 }, "{how:?}");
        world.hub.decommission(Decommission::No);
        world.run_for(Duration::from_mins(5));
        if crashes {
            world.crash();
        }
        world.cluster.faults.unwritable.clear();
        world.quiesce();
        assert_eq!(world.removals(), 0, "{how:?}, crashes: {crashes}");
        for key in &stuck {
            assert!(is_marked(&world, key), "{how:?}, crashes: {crashes}: {key}");
            let (_, _, report) = &world.hub.reports[key];
            assert_eq!((report.progress, report.reason), (Progress::DeletionHeld, Some(Reason::HistoryLost)), "{key}");
        }
        assert!(!world.journal.applied.iter().any(|(_, record)| record.orphaning), "{how:?}: nothing is let go of");
        world.check_at_rest();
    }
}

/// What journal and hub know of the objects is true.
fn check_known(world: &World, case: &str) {
    for (key, record) in &world.journal.applied {
        let local = world.cluster.objects.get(key).unwrap_or_else(|| panic!("{case}: {key} is recorded, and is gone"));
        assert!(local.mark.is_some(), "{case}: {key} is recorded, and was let go of");
        assert!(!record.orphaning, "{case}: {key} bears its mark, and is not let go of any more");
    }
    for key in world.hub.reports.keys() {
        assert!(is_marked(world, key), "{case}: {key} is reported");
    }
}

/// The cluster has carried out a removal, and did not answer; then the decommission is taken back.
#[test]
fn a_removal_whose_answer_was_lost_is_known_to_be_done_when_the_cluster_is_in_service_again() {
    for how in [Decommission::Keep, Decommission::Remove] {
        for (seed, deaf) in (0..10).flat_map(|seed| [(seed, false), (seed, true)]) {
            let mut world = standing(seed, 6);
            world.hub = world.hub.restored_empty();
            world.quiesce();
            let unanswered = key("", "ConfigMap", "o00");
            world.cluster.faults.unanswered.insert(unanswered.clone());
            world.cluster.faults.deaf = deaf;
            world.hub.decommission(how);
            while is_marked(&world, &unanswered) {
                world.advance();
            }
            world.hub.decommission(Decommission::No);
            // It is told at once.
            world.hub.put(&key("", "ConfigMap", "other"), 1, 1);
            world.quiesce();
            check_known(&world, &format!("{how:?}, seed {seed}, deaf: {deaf}"));
        }
    }
}

/// The journal says that an object is due for orphaning, or the cluster has done it, and the process ends.
#[test]
fn a_removal_begun_before_a_restart_is_evaluated_again_when_the_cluster_is_in_service_again() {
    for how in [Decommission::Keep, Decommission::Remove] {
        for seed in 0..40 {
            let mut world = standing(seed, 6);
            world.hub = world.hub.restored_empty();
            world.quiesce();
            world.hub.decommission(how);
            let begun = |world: &World| world.journal.applied.iter().any(|(_, record)| record.orphaning);
            while !begun(&world) && world.cluster.objects.values().filter(|local| local.mark.is_some()).count() == 7 {
                world.advance();
            }
            world.crash();
            world.hub.decommission(Decommission::No);
            // It is told at once.
            world.hub.put(&key("", "ConfigMap", "other"), 1, 1);
            world.quiesce();
            check_known(&world, &format!("{how:?}, seed {seed}"));
        }
    }
}
