use std::time::Duration;

use tideline_common::wire::v1::RefusalKind;
use tideline_common::{ObjectKey, Uid};

use super::*;
use crate::core::tests::world::World;
use crate::core::tests::{key, uid};

fn own_cluster() -> Uid {
    uid("c1")
}

fn of(cluster: Option<Uid>) -> ClusterFacts {
    ClusterFacts { cluster, ..ClusterFacts::default() }
}

/// An agent that is cut off, and kept one object until it ended; the object was deleted since.
fn deleted_meanwhile(facts: Option<ClusterFacts>) -> (World, ObjectKey) {
    let mut world = World::new(11);
    let key = key("", "ConfigMap", "c");
    world.hub.put(&key, 1, 1);
    world.heal();
    world.quiesce();
    world.cut_off();
    world.heal_cluster();
    world.cluster.delete(&key);
    world.begin_in(own_cluster(), facts);
    world.run_for(Duration::from_mins(1));
    (world, key)
}

#[test]
fn an_agent_in_its_own_cluster_and_one_that_may_not_ask_go_on() {
    for cluster in [Some(own_cluster()), None] {
        let (world, key) = deleted_meanwhile(Some(of(cluster.clone())));
        assert!(world.cluster.objects.contains_key(&key), "{cluster:?}");
    }
}

#[test]
fn an_agent_in_another_cluster_changes_nothing_there() {
    let (world, _) = deleted_meanwhile(Some(of(Some(uid("c2")))));
    assert!(world.cluster.objects.is_empty());
}

#[test]
fn nothing_is_changed_before_the_cluster_is_identified() {
    for (cluster, goes_on) in [(own_cluster(), true), (uid("c2"), false)] {
        let (mut world, key) = deleted_meanwhile(None);
        assert!(world.cluster.objects.is_empty());
        world.learn(of(Some(cluster)));
        world.run_for(Duration::from_mins(1));
        assert_eq!(world.cluster.objects.contains_key(&key), goes_on);
    }
}

#[test]
fn a_cluster_that_does_not_answer_is_not_in_sync_though_nothing_in_it_is_watched() {
    let mut world = World::new(12);
    world.heal();
    world.quiesce();
    assert_eq!(world.hub.in_sync, Some(true), "nothing is placed, and the cluster answers");
    for answers in [false, true] {
        world.feel(answers);
        world.quiesce();
        assert_eq!(world.hub.in_sync, Some(answers));
    }
    world.begin_in(own_cluster(), None);
    world.heal();
    world.quiesce();
    assert_eq!(world.hub.in_sync, Some(false), "it did not say who it is");
}

/// A data directory was moved to another cluster on purpose: a person corrects the SyncTarget.
#[test]
fn an_agent_goes_on_in_the_cluster_that_its_sync_target_was_corrected_to() {
    let (mut world, key) = deleted_meanwhile(Some(of(Some(uid("c2")))));
    world.hub.refuses = Some(RefusalKind::Quarantined);
    world.heal();
    world.run_for(Duration::from_mins(30));
    assert_eq!(world.modes.len(), 1, "{:?}", world.modes);
    world.hub.refuses = None;
    world.hub.cluster = Some(uid("c2"));
    world.quiesce();
    world.check_converged();
    assert_eq!(world.modes.last().map(String::as_str), Some("Thaw"));
    // It begins with what it stored of that.
    world.cut_off();
    world.heal_cluster();
    world.cluster.delete(&key);
    world.crash();
    world.run_for(Duration::from_mins(1));
    assert!(world.cluster.objects.contains_key(&key));
}

/// The annotation was removed instead: nobody says that it is this cluster.
#[test]
fn an_agent_that_is_served_in_another_cluster_than_its_identitys_stays_frozen() {
    let (mut world, _) = deleted_meanwhile(Some(of(Some(uid("c2")))));
    world.hub.refuses = Some(RefusalKind::Quarantined);
    world.heal();
    world.run_for(Duration::from_mins(30));
    world.hub.refuses = None;
    world.quiesce();
    assert!(world.cluster.objects.is_empty());
    assert_eq!(world.modes.len(), 1, "{:?}", world.modes);
}

#[test]
fn a_cluster_that_may_not_be_asked_any_more_is_the_one_that_it_was() {
    let (mut world, key) = deleted_meanwhile(None);
    world.learn(of(Some(uid("c2"))));
    world.learn(of(None));
    world.run_for(Duration::from_mins(1));
    assert!(!world.cluster.objects.contains_key(&key));
}

#[test]
fn a_quarantine_does_not_end_where_the_cluster_may_not_be_asked() {
    let (mut world, _) = deleted_meanwhile(Some(of(Some(uid("c2")))));
    world.hub.refuses = Some(RefusalKind::Quarantined);
    world.heal();
    world.run_for(Duration::from_mins(30));
    world.begin_in(own_cluster(), Some(of(None)));
    world.hub.refuses = None;
    world.quiesce();
    assert!(world.cluster.objects.is_empty());
    assert!(!world.modes.iter().any(|mode| mode == "Thaw"), "{:?}", world.modes);
    world.learn(of(Some(own_cluster())));
    world.quiesce();
    world.check_converged();
}
