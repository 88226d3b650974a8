//! Removals that are held, and what a person's approval does to them.

use std::time::Duration;

use tideline_common::{Digest, Reason};

use super::*;
use crate::core::FuseLimits;
use crate::core::tests::world::World;
use crate::core::tests::{key, uid};

pub(in crate::core) fn keys(count: usize) -> Vec<ObjectKey> {
    (0..count).map(|i| key("", "ConfigMap", &format!("c{i:03}"))).collect()
}

/// A world with so many objects.
pub(in crate::core) fn world(keys: &[ObjectKey]) -> World {
    let mut world = World::with_fuse(3, FuseLimits::default());
    for key in keys {
        world.hub.put(key, 1, 1);
    }
    world.heal();
    world.quiesce();
    world
}

pub(in crate::core) fn removals(keys: &[ObjectKey]) -> Vec<Tombstone> {
    keys.iter().map(|key| Tombstone { key: key.clone(), source: uid("s1") }).collect()
}

fn held(world: &World, reason: Reason) -> usize {
    world.hub.held(reason).count()
}

#[test]
fn approved_removals_go_and_new_ones_are_held() {
    let keys = keys(60);
    let mut world = world(&keys);
    for key in &keys[..30] {
        world.hub.remove(key);
    }
    world.quiesce();
    assert_eq!((world.cluster.objects.len(), held(&world, Reason::FuseHeld)), (60, 30));
    world.hub.approved = removals(&keys[..30]);
    for key in &keys[30..45] {
        world.hub.remove(key);
    }
    world.quiesce();
    assert_eq!((world.cluster.objects.len(), held(&world, Reason::FuseHeld)), (30, 15));
    // Waiting for hours lets none of them pass, nor does a restart; and they delay no other removal.
    world.crash();
    world.run_for(Duration::from_hours(2));
    for key in &keys[45..50] {
        world.hub.remove(key);
    }
    world.quiesce();
    assert_eq!((world.cluster.objects.len(), held(&world, Reason::FuseHeld)), (25, 15));
    world.hub.approved = removals(&keys[30..45]);
    world.quiesce();
    world.quiesce();
    world.check_converged();
    world.check_reported();
}

/// A cluster that has grown meanwhile makes a smaller share of what is held.
#[test]
fn held_removals_stay_held_over_a_restart_though_they_are_a_smaller_share_by_then() {
    let keys = keys(300);
    let mut world = world(&keys[..60]);
    for key in &keys[..30] {
        world.hub.remove(key);
    }
    world.quiesce();
    for key in &keys[60..] {
        world.hub.put(key, 1, 1);
    }
    world.quiesce();
    world.crash();
    world.quiesce();
    assert_eq!((world.cluster.objects.len(), held(&world, Reason::FuseHeld)), (300, 30));
}

#[test]
fn an_approval_is_made_use_of_while_revisions_arrive_all_the_time() {
    let keys = keys(60);
    let mut world = world(&keys);
    for key in &keys[..40] {
        world.hub.remove(key);
    }
    world.quiesce();
    assert_eq!(world.cluster.objects.len(), 60);
    world.hub.approved = removals(&keys[..40]);
    for input in 2..600 {
        // The agent never gets an answer that nothing is new.
        world.hub.put(&keys[59], 1, input);
        world.run_with_faults(5);
    }
    assert_eq!(world.cluster.objects.len(), 20);
}

#[test]
fn an_approval_from_before_a_reassignment_removes_nothing() {
    let keys = keys(60);
    let mut world = world(&keys);
    for key in &keys[..30] {
        world.hub.remove(key);
    }
    world.quiesce();
    for key in &keys[..12] {
        world.hub.put(key, 1, 1);
    }
    world.hub.approved = removals(&keys[..30]);
    world.quiesce();
    assert_eq!(world.cluster.objects.len(), 42);
    // Unassigned once more, they are removals that nobody was shown.
    for key in &keys[..12] {
        world.hub.remove(key);
    }
    world.quiesce();
    assert_eq!((world.cluster.objects.len(), held(&world, Reason::FuseHeld)), (42, 12));
}

#[test]
fn an_approval_frees_what_a_lost_history_held_and_nothing_else() {
    let keys = keys(20);
    let mut world = world(&keys);
    world.hub = world.hub.restored_empty();
    world.quiesce();
    assert_eq!((world.cluster.objects.len(), held(&world, Reason::HistoryLost)), (20, 20));
    world.hub.approved = removals(&keys[..15]);
    world.quiesce();
    assert_eq!((world.cluster.objects.len(), held(&world, Reason::HistoryLost)), (5, 5));
    assert_eq!(world.hub.reports.len(), 5, "what is gone is not reported any more");
    world.check_at_rest();
    world.crash();
    world.quiesce();
    assert_eq!(world.cluster.objects.len(), 5);
}

#[test]
fn an_approval_of_another_source_frees_nothing() {
    let keys = keys(20);
    let mut world = world(&keys);
    world.hub = world.hub.restored_empty();
    world.hub.approved = keys.iter().map(|key| Tombstone { key: key.clone(), source: uid("another") }).collect();
    world.quiesce();
    assert_eq!((world.cluster.objects.len(), held(&world, Reason::HistoryLost)), (20, 20));
}

#[test]
fn an_approval_that_ended_frees_nothing() {
    let keys = keys(60);
    let mut world = world(&keys);
    world.hub.approved_seconds = 0;
    world.hub.approved = removals(&keys);
    for key in &keys[..30] {
        world.hub.remove(key);
    }
    world.quiesce();
    assert_eq!((world.cluster.objects.len(), held(&world, Reason::FuseHeld)), (60, 30));
    world.check_at_rest();
}

#[test]
fn a_removal_approved_in_advance_is_not_held() {
    let keys = keys(60);
    let mut world = World::with_fuse(3, FuseLimits::default());
    world.hub.approve_in_advance();
    for key in &keys {
        world.hub.put(key, 1, 1);
    }
    world.heal();
    world.quiesce();
    for key in &keys {
        world.hub.remove(key);
    }
    world.quiesce();
    world.check_converged();
    world.check_reported();
}

#[test]
fn pages_of_approvals_are_taken_in_order_and_another_list_replaces_the_former() {
    let page = |list: Option<&str>, offset: u64, removals: &[Tombstone]| ApprovedPage {
        list: list.map(|name| Digest::of(name.as_bytes())),
        offset,
        count: removals.len() as u64,
        total: 9,
        expires_seconds: 10,
        removals: removals.to_vec(),
        releases: Vec::new(),
    };
    let all = removals(&keys(4));
    let mut approvals = Approvals::default();
    let now = Monotonic::START;
    assert_eq!(approvals.take(now, page(None, 0, &[])), None);
    assert_eq!(approvals.take(now, page(Some("a"), 0, &all[..2])), Some(all[..2].to_vec()));
    assert_eq!(approvals.take(now, page(Some("a"), 3, &all[3..])), None);
    assert_eq!(approvals.take(now, page(Some("a"), 2, &all[2..3])), Some(all[2..3].to_vec()));
    assert!(approvals.covers(now, &all[2]) && !approvals.covers(now, &all[3]));
    assert!(!approvals.covers(now + Duration::from_secs(10), &all[2]));
    assert_eq!(approvals.take(now, page(Some("b"), 0, &all[3..])), Some(all[3..].to_vec()));
    assert!(!approvals.covers(now, &all[2]) && approvals.covers(now, &all[3]));
    assert_eq!(approvals.take(now, page(None, 0, &[])), Some(Vec::new()));
    assert!(!approvals.covers(now, &all[3]));
}

#[test]
fn an_assignment_voids_the_approvals_for_its_key_of_any_source_and_no_others() {
    let keys = keys(3);
    let sources = ["s1", "s2"];
    let until = Monotonic::START + Duration::from_mins(1);
    let of = |key: &ObjectKey| sources.map(|source| Tombstone { key: key.clone(), source: uid(source) });
    let mut approvals = Approvals::default();
    let approval = Approval { until, releases: false };
    approvals.open.extend(keys.iter().flat_map(of).map(|removal| (removal, approval)));
    approvals.withdraw_at(&keys[1]);
    let left: Vec<_> = approvals.open.into_keys().collect();
    assert_eq!(left, [of(&keys[0]), of(&keys[2])].concat());
}
