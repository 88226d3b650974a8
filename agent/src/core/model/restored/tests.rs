use std::time::Duration;

use tideline_common::wire::v1::Continuity;
use tideline_common::{ObjectKey, Reason, Tombstone};

use super::UNEXPLAINED_MIN;
use crate::core::decide::approve::tests::{keys, removals, world};
use crate::core::tests::world::World;
use crate::core::tests::{key, uid};

/// Longer than from one patrol to the next, both lists included.
const PATROLS: Duration = Duration::from_hours(2);

fn kept() -> ObjectKey {
    key("", "ConfigMap", "kept")
}

fn back() -> ObjectKey {
    key("", "ConfigMap", "back")
}

/// A world in which one object is kept, and this one was removed.
fn world_without(gone: &ObjectKey) -> World {
    let mut world = world(&[kept(), gone.clone()]);
    world.hub.remove(gone);
    world.quiesce();
    world
}

/// The restored object carries the mark of the removed one.
fn restore(world: &mut World, key: &ObjectKey) -> Tombstone {
    world.cluster.restore_from_backup(key, &kept(), "s99");
    Tombstone { key: key.clone(), source: uid("s99") }
}

/// The same, and the removed object has reappeared.
fn world_with_what_came_back() -> (World, Tombstone) {
    let mut world = world_without(&back());
    let told = restore(&mut world, &back());
    world.quiesce();
    (world, told)
}

/// This is held for this reason, and nothing for the other.
fn assert_held(world: &World, reason: Reason, key: &ObjectKey) {
    let held = |reason| world.hub.held(reason).collect::<Vec<_>>();
    let of = |it| if it == reason { vec![key] } else { Vec::new() };
    let both = [Reason::Restored, Reason::HistoryLost];
    assert_eq!(both.map(held), both.map(of), "{reason} of {key}");
}

fn held(world: &World, reason: Reason) -> usize {
    world.hub.held(reason).count()
}

#[test]
fn a_removed_object_that_reappears_is_held_as_restored_across_restarts_until_it_is_gone() {
    let (mut world, _) = world_with_what_came_back();
    for _ in 0..2 {
        assert_held(&world, Reason::Restored, &back());
        world.check_at_rest();
        world.crash();
        world.hub.forget_reports();
        world.quiesce();
    }
    world.crash();
    world.cluster.delete(&back());
    world.quiesce();
    assert_eq!(held(&world, Reason::Restored), 0);
    assert!(world.journal.came_back.is_empty());
}

/// Before its kind is listed it is not known to be gone.
#[test]
fn a_restored_object_is_not_reported_gone_while_its_kind_cannot_be_listed() {
    let (mut world, _) = world_with_what_came_back();
    // Neither by a watch nor by a patrol.
    world.cluster.faults.unreadable.insert(back());
    world.cluster.faults.unlistable.insert(back().kind);
    world.crash();
    world.quiesce();
    assert_held(&world, Reason::Restored, &back());
    world.cluster.faults.unreadable.clear();
    world.cluster.faults.unlistable.clear();
    world.lose_watch(&back().kind);
    world.quiesce();
    assert_held(&world, Reason::Restored, &back());
}

#[test]
fn an_object_present_at_the_start_counts_as_left_behind() {
    let mut world = world_with_what_was_left();
    assert_held(&world, Reason::HistoryLost, &back());
    // Also when the watch breaks and shows it once more.
    world.lose_watch(&back().kind);
    world.quiesce();
    assert_held(&world, Reason::HistoryLost, &back());
}

/// A world in which lost history has left one object behind.
fn world_with_what_was_left() -> World {
    let mut world = world_without(&back());
    world.cluster.faults.deaf = true;
    restore(&mut world, &back());
    world.crash();
    world.cluster.faults.deaf = false;
    world.quiesce();
    world
}

/// The versions of its definition are switched off and on again, say.
#[test]
fn what_shows_again_with_its_kind_is_held_as_before() {
    let restored = world_with_what_came_back().0;
    for (mut world, reason) in [(world_with_what_was_left(), Reason::HistoryLost), (restored, Reason::Restored)] {
        assert_held(&world, reason, &back());
        for patrols in [false, true] {
            world.cluster.serve(&back().kind, false);
            world.quiesce();
            if patrols {
                world.run_for(PATROLS);
            }
            world.cluster.serve(&back().kind, true);
            world.quiesce();
            assert_held(&world, reason, &back());
        }
    }
}

#[test]
fn what_was_restored_ends_with_its_kind() {
    let (mut world, _) = world_with_what_came_back();
    world.cluster.serve(&back().kind, false);
    world.quiesce();
    assert_held(&world, Reason::Restored, &back());
    // Its definition goes as well, and nothing tells of that.
    world.cluster.objects.remove(&back());
    world.cluster.faults.unserved.clear();
    world.run_for(PATROLS);
    assert_eq!(held(&world, Reason::Restored), 0);
    assert!(world.journal.came_back.is_empty());
}

/// Anybody who may create objects can write our label, and marks that name their own keys.
#[test]
fn of_marks_that_nothing_explains_a_bounded_number_is_kept_account_of_and_the_rest_is_counted() {
    let mut world = world_without(&back());
    let forged: Vec<_> = (0..2 * UNEXPLAINED_MIN).map(|n| key("", "ConfigMap", &format!("forged-{n}"))).collect();
    for key in &forged {
        restore(&mut world, key);
    }
    world.quiesce();
    let counted = |world: &World| world.hub.conditions().into_iter().find(|told| told.starts_with("Conflict"));
    for _ in 0..2 {
        assert_eq!(held(&world, Reason::Restored), UNEXPLAINED_MIN);
        assert!(world.core.model.objects.len() <= UNEXPLAINED_MIN + 1);
        assert_eq!(world.journal.came_back.len(), UNEXPLAINED_MIN);
        let told = counted(&world).expect("the rest is counted");
        assert!(told.contains(&format!("{} more", UNEXPLAINED_MIN - 1)), "{told}");
        world.check_at_rest();
        world.crash();
        world.quiesce();
    }
    for key in &forged {
        world.cluster.delete(key);
    }
    world.quiesce();
    assert_eq!((held(&world, Reason::Restored), counted(&world)), (0, None));
}

/// What is released makes room for what was only counted.
#[test]
fn more_than_is_kept_account_of_is_released_in_turns() {
    let mut world = world_without(&back());
    let many: Vec<_> = (0..UNEXPLAINED_MIN + 10).map(|n| key("", "ConfigMap", &format!("many-{n}"))).collect();
    for key in &many {
        restore(&mut world, key);
    }
    world.quiesce();
    for left in [10, 0] {
        let there: Vec<_> = world.hub.held(Reason::Restored).cloned().collect();
        let released = there.into_iter().map(|key| Tombstone { key, source: uid("s99") });
        world.hub.released.extend(released);
        world.quiesce();
        world.run_for(PATROLS);
        assert_eq!(world.hub.held(Reason::Restored).count() + world.hub.held(Reason::HistoryLost).count(), left);
    }
    assert!(many.iter().all(|key| world.cluster.objects[key].mark.is_none()));
}

#[test]
fn an_object_that_reappears_while_history_is_broken_counts_as_left_behind() {
    let mut world = world_without(&back());
    world.hub.history = Continuity::Broken;
    world.quiesce();
    restore(&mut world, &back());
    world.quiesce();
    assert_held(&world, Reason::HistoryLost, &back());
}

#[test]
fn the_patrol_finds_a_restored_object_of_a_kind_that_is_no_longer_assigned() {
    let last = key("apps", "Deployment", "last");
    for restarts in [false, true] {
        let mut world = world_without(&last);
        if restarts {
            world.crash();
            world.quiesce();
            // A patrol has listed its kind before it reappears.
            world.run_for(PATROLS);
        }
        restore(&mut world, &last);
        world.run_for(Duration::from_secs(10));
        assert_eq!(held(&world, Reason::Restored), 0, "nobody watches its kind");
        world.run_for(PATROLS);
        assert_held(&world, Reason::Restored, &last);
        world.hub.remove(&kept());
        world.cluster.delete(&last);
        world.quiesce();
        assert_eq!(held(&world, Reason::Restored), 0, "its end is seen");
    }
}

#[test]
fn an_object_in_the_first_list_of_its_kind_counts_as_left_behind() {
    let last = key("apps", "Deployment", "last");
    let mut world = world_without(&last);
    world.crash();
    restore(&mut world, &last);
    world.quiesce();
    world.run_for(PATROLS);
    assert_held(&world, Reason::HistoryLost, &last);
}

#[test]
fn a_released_object_stays_without_its_mark_and_an_approved_one_is_deleted() {
    for (lost, releases) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut world = world_without(&back());
        let (told, reason) = if lost {
            world.hub = world.hub.restored_empty();
            (Tombstone { key: kept(), source: uid("s1") }, Reason::HistoryLost)
        } else {
            (restore(&mut world, &back()), Reason::Restored)
        };
        world.quiesce();
        assert_held(&world, reason, &told.key);
        let uid = world.cluster.objects[&told.key].uid.clone();
        say(&mut world, &told, releases);
        let case = format!("history lost: {lost}, released: {releases}");
        assert_eq!(held(&world, reason), 0, "{case}");
        let left = world.cluster.objects.get(&told.key);
        assert_eq!(left.map(|local| (&local.uid, local.mark.is_none())), releases.then_some((&uid, true)), "{case}");
        world.check_at_rest();
        world.crash();
        world.quiesce();
        assert_eq!(world.cluster.objects.contains_key(&told.key), releases, "{case}");
    }
}

/// A person approves its deletion, or releases it.
fn say(world: &mut World, told: &Tombstone, releases: bool) {
    let list = if releases { &mut world.hub.released } else { &mut world.hub.approved };
    list.push(told.clone());
    world.quiesce();
}

#[test]
fn an_approval_is_of_what_was_there_and_not_of_what_comes_back_later() {
    for releases in [false, true] {
        let (mut world, told) = world_with_what_came_back();
        say(&mut world, &told, releases);
        world.cluster.delete(&back());
        world.quiesce();
        restore(&mut world, &back());
        world.quiesce();
        assert_held(&world, Reason::Restored, &back());
        assert!(world.cluster.objects[&back()].mark.is_some(), "released: {releases}");
    }
}

/// A person's wish to keep it prevails.
#[test]
fn an_object_both_approved_and_released_stays() {
    let (mut world, told) = world_with_what_came_back();
    world.hub.approved.push(told.clone());
    world.hub.released.push(told);
    world.quiesce();
    assert!(world.cluster.objects[&back()].mark.is_none());
}

/// A release is for unexplained objects; a removal that the hub ordered goes on waiting.
#[test]
fn a_release_frees_nothing_that_the_fuse_holds() {
    let keys = keys(30);
    let mut world = world(&keys);
    for key in &keys {
        world.hub.remove(key);
    }
    world.quiesce();
    world.hub.released = removals(&keys);
    world.quiesce();
    assert_eq!(held(&world, Reason::FuseHeld), 30);
    assert!(world.cluster.objects.values().all(|local| local.mark.is_some()));
}
