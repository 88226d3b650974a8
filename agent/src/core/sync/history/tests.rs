use std::time::Duration;

use tideline_common::wire::v1::{Continuity, Progress};
use tideline_common::{ObjectKey, Reason, Tombstone};

use crate::core::FuseLimits;
use crate::core::tests::world::World;
use crate::core::tests::{key, with_refused_orphaning};

/// A world whose agent holds one removal until a person approves it, and that removal.
fn holding() -> (World, ObjectKey, Tombstone) {
    let mut world = World::with_fuse(3, FuseLimits { always: 0, percent: 0 });
    let keys: Vec<ObjectKey> = (0..3).map(|i| key("", "ConfigMap", &format!("c{i}"))).collect();
    for key in &keys {
        world.hub.put(key, 1, 1);
    }
    world.heal();
    world.quiesce();
    world.hub.remove(&keys[0]);
    world.quiesce();
    let (removal, _) = world.hub.tombstones.first_key_value().expect("one was unassigned");
    let removal = removal.clone();
    (world, keys[0].clone(), removal)
}

fn reason(world: &World, key: &ObjectKey) -> (Progress, Option<Reason>) {
    let (_, _, report) = &world.hub.reports[key];
    (report.progress, report.reason)
}

#[test]
fn while_the_history_is_broken_no_removal_begins_whatever_was_approved_before() {
    let (mut world, key, removal) = holding();
    assert_eq!(reason(&world, &key), (Progress::DeletionHeld, Some(Reason::FuseHeld)));
    world.hub.history = Continuity::Broken;
    world.hub.approved = vec![removal];
    world.quiesce();
    for restart in [false, true] {
        if restart {
            world.crash();
            world.quiesce();
        }
        assert_eq!(reason(&world, &key), (Progress::DeletionHeld, Some(Reason::HistoryLost)));
        assert_eq!(world.cluster.objects.len(), 3);
        assert!(world.hub.conditions().iter().any(|said| said.starts_with("HistoryLost")), "it says so itself");
    }
    // Whole again, with the approval in force: it is sent anew, and used.
    world.hub.history = Continuity::Whole;
    world.quiesce();
    assert_eq!(world.cluster.objects.len(), 2);
    assert!(world.hub.conditions().is_empty());
}

#[test]
fn a_broken_history_outlives_a_hub_that_goes_away() {
    let (mut world, _, removal) = holding();
    world.hub.history = Continuity::Broken;
    world.hub.approved = vec![removal];
    world.quiesce();
    world.cut_off();
    world.crash();
    world.quiesce();
    assert_eq!(world.cluster.objects.len(), 3);
    assert_eq!(world.journal.history, Continuity::Broken);
}

#[test]
fn a_set_of_a_higher_epoch_ends_the_removals_that_it_does_not_speak_for() {
    let (mut world, key, removal) = holding();
    world.hub.forget_removals();
    world.quiesce();
    assert_eq!(reason(&world, &key), (Progress::DeletionHeld, Some(Reason::HistoryLost)));
    assert_eq!(world.journal.removing, [], "and a restart does not bring them back");
    world.hub.approved = vec![removal];
    world.quiesce();
    assert_eq!(world.cluster.objects.len(), 2, "a person may look at it and approve that it goes");
}

/// It may not be written, so that its mark stays; then the order to orphan it is lost with the hub's history.
#[test]
fn an_approved_deletion_is_carried_out_after_an_orphaning_that_broke_off_and_lapsed() {
    let key = key("", "ConfigMap", "c0");
    let mut world = with_refused_orphaning(3, &key);
    let (removal, _) = world.hub.tombstones.first_key_value().expect("one was unassigned");
    let removal = removal.clone();
    world.hub.forget_removals();
    world.quiesce();
    assert_eq!(reason(&world, &key), (Progress::DeletionHeld, Some(Reason::HistoryLost)));
    world.cluster.faults.unwritable.clear();
    world.hub.approved = vec![removal];
    world.quiesce();
    assert_eq!(world.cluster.objects.len(), 0, "a person approved that it goes");
}

#[test]
fn an_approval_is_void_once_anything_is_assigned_to_its_key() {
    let (mut world, key, removal) = holding();
    world.hub.approved = vec![removal.clone()];
    // Sent, and not used: in the same answer another source comes and goes.
    world.hub.put(&key, 2, 1);
    world.quiesce();
    world.hub.approved.clear();
    world.hub.remove(&key);
    world.quiesce();
    assert_eq!(world.cluster.objects.len(), 3, "what is there now was not approved");
}

/// Its disk takes no session, but what was said was said.
#[test]
fn a_broken_history_is_heard_by_an_agent_that_cannot_keep_its_session() {
    let (mut world, _, _) = holding();
    world.hub.history = Continuity::Broken;
    world.session_store_fails = true;
    world.crash();
    world.run_for(std::time::Duration::from_mins(1));
    assert_eq!(world.core.history(), Continuity::Broken);
    world.session_store_fails = false;
    world.hub.history = Continuity::Whole;
    world.quiesce();
    assert_eq!(world.core.history(), Continuity::Whole);
}

#[test]
fn broken_history_heard_while_the_journal_was_unavailable_is_known_after_the_next_restart() {
    let (mut world, _, _) = holding();
    world.no_journal = true;
    world.hub.history = Continuity::Broken;
    world.run_for(Duration::from_mins(2));
    assert_eq!((world.core.history(), world.journal.history), (Continuity::Broken, Continuity::Whole));
    world.cut_off();
    world.heal_cluster();
    world.journal_opens();
    world.run_for(Duration::from_mins(1));
    world.crash();
    assert_eq!(world.core.history(), Continuity::Broken);
}
