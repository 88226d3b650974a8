use std::time::Duration;

use tideline_common::wire::v1::{Decommission, DecommissionReport};
use tideline_common::{Digest, GroupKind, ObjectKey};

use super::super::FuseLimits;
use super::super::tests::key;
use super::super::tests::world::World;

/// A world in which so many objects stand, in a namespace and of two kinds, and the fuse lets ten go.
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
fn all_is_removed_whatever_the_fuse_says_and_then_nothing_is_done() {
    let mut world = standing(3, 40);
    world.hub.decommission(Decommission::Remove);
    world.quiesce();
    assert!(world.cluster.objects.is_empty(), "{:?}", world.cluster.objects.keys());
    assert_eq!(world.decommissioned, Some(DecommissionReport { how: Decommission::Remove, left: 0 }));
    world.check_reported();
    world.check_at_rest();
}

#[test]
fn what_is_kept_stands_as_it_was_and_says_nothing_of_us() {
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
    let place = ObjectKey::new(GroupKind::new("", "ConfigMap"), "shop", "o00");
    world.hub.put(&place, 1, 2);
    world.quiesce();
    world.check_converged();
    world.check_reported();
    assert_eq!(world.decommissioned, Some(DecommissionReport { how: Decommission::No, left: 0 }));
}

/// It was told to let go of all, and could not of some by then. Nothing is assigned again.
#[test]
fn what_was_to_be_kept_is_kept_though_the_cluster_is_in_service_again() {
    for crashes in [false, true] {
        let mut world = standing(3, 6);
        let stuck = ["o00", "o02"].map(|name| key("", "ConfigMap", name));
        world.cluster.unwritable.extend(stuck.clone());
        world.hub.decommission(Decommission::Keep);
        world.run_for(Duration::from_mins(5));
        world.hub.decommission(Decommission::No);
        world.hub.put(&key("", "ConfigMap", "new"), 1, 1);
        world.run_for(Duration::from_mins(5));
        if crashes {
            world.crash();
        }
        world.cluster.unwritable.clear();
        world.quiesce();
        for key in &stuck {
            let local = world.cluster.objects.get(key).unwrap_or_else(|| panic!("{key} is deleted"));
            assert!(local.mark.is_none(), "{key} was to be let go of");
        }
        world.check_reported();
    }
}

#[test]
fn what_nothing_explains_stays_when_the_cluster_is_in_service_again() {
    for how in [Decommission::Keep, Decommission::Remove] {
        let mut world = standing(3, 6);
        world.hub = world.hub.restored_empty();
        world.quiesce();
        // Nothing is begun by then.
        world.feel(false);
        world.hub.decommission(how);
        world.hub.put(&key("", "ConfigMap", "one"), 1, 1);
        world.run_for(Duration::from_mins(2));
        world.hub.decommission(Decommission::No);
        world.hub.put(&key("", "ConfigMap", "other"), 1, 1);
        world.run_for(Duration::from_mins(2));
        world.feel(true);
        world.quiesce();
        let left = world.cluster.objects.values().filter(|local| local.mark.is_some()).count();
        assert_eq!(left, 8, "{how:?}: {:?}", world.cluster.objects.keys());
        world.check_at_rest();
    }
}
