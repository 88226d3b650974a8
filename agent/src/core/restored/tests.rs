use std::time::Duration;

use tideline_common::wire::v1::Continuity;
use tideline_common::{ObjectKey, Reason, Tombstone};

use super::super::FuseLimits;
use super::super::tests::world::World;
use super::super::tests::{key, uid};

/// Longer than from one patrol to the next, and than its looks.
const PATROLS: Duration = Duration::from_hours(2);

fn keys() -> [ObjectKey; 2] {
    ["kept", "back"].map(|name| key("", "ConfigMap", name))
}

/// A world in which two objects stand.
fn world() -> World {
    let mut world = World::with_fuse(3, FuseLimits::default());
    for key in &keys() {
        world.hub.put(key, 1, 1);
    }
    world.heal();
    world.quiesce();
    world
}

/// What was restored carries the mark of what was removed before.
fn restore(world: &mut World, key: &ObjectKey) -> Tombstone {
    world.cluster.restore_from_backup(key, &keys()[0], "s99");
    Tombstone { key: key.clone(), source: uid("s99") }
}

fn held(world: &World, reason: Reason) -> Vec<&ObjectKey> {
    world.hub.held(reason).collect()
}

#[test]
fn what_comes_back_is_held_as_restored_across_restarts_until_it_is_gone() {
    let [_, back] = keys();
    let mut world = world();
    world.hub.remove(&back);
    world.quiesce();
    restore(&mut world, &back);
    world.quiesce();
    for _ in 0..2 {
        assert_eq!((held(&world, Reason::Restored), held(&world, Reason::HistoryLost).len()), (vec![&back], 0));
        world.check_at_rest();
        world.crash();
        world.hub.forget_reports();
        world.quiesce();
    }
    world.crash();
    world.cluster.delete(&back);
    world.quiesce();
    assert_eq!(held(&world, Reason::Restored).len(), 0);
    assert!(world.journal.came_back.is_empty());
}

/// Before its kind is listed it is not known to be gone.
#[test]
fn what_came_back_is_not_said_to_be_gone_while_its_kind_cannot_be_listed() {
    let [_, back] = keys();
    let mut world = world();
    world.hub.remove(&back);
    world.quiesce();
    restore(&mut world, &back);
    world.quiesce();
    world.cluster.unreadable.insert(back.clone());
    world.crash();
    world.quiesce();
    assert_eq!(held(&world, Reason::Restored), [&back]);
    world.cluster.unreadable.clear();
    world.cluster.lose_watch(&back.kind);
    world.quiesce();
    assert_eq!(held(&world, Reason::Restored), [&back]);
}

#[test]
fn what_was_there_when_the_agent_began_counts_as_left_behind() {
    let [_, back] = keys();
    let mut world = world();
    world.hub.remove(&back);
    world.quiesce();
    world.cluster.deaf = true;
    restore(&mut world, &back);
    world.crash();
    world.cluster.deaf = false;
    world.quiesce();
    assert_eq!((held(&world, Reason::HistoryLost), held(&world, Reason::Restored).len()), (vec![&back], 0));
    // Also when the watch breaks and shows it once more.
    world.cluster.lose_watch(&back.kind);
    world.quiesce();
    assert_eq!((held(&world, Reason::HistoryLost), held(&world, Reason::Restored).len()), (vec![&back], 0));
}

#[test]
fn what_comes_back_while_history_is_broken_counts_as_left_behind() {
    let [_, back] = keys();
    let mut world = world();
    world.hub.remove(&back);
    world.quiesce();
    world.hub.history = Continuity::Broken;
    world.quiesce();
    restore(&mut world, &back);
    world.quiesce();
    assert_eq!((held(&world, Reason::HistoryLost), held(&world, Reason::Restored).len()), (vec![&back], 0));
}

#[test]
fn what_comes_back_of_a_kind_of_which_nothing_is_left_is_found_by_the_patrol() {
    let [kept, _] = keys();
    let last = key("apps", "Deployment", "last");
    for restarts in [false, true] {
        let mut world = world();
        world.hub.put(&last, 1, 1);
        world.quiesce();
        world.hub.remove(&last);
        world.quiesce();
        if restarts {
            world.crash();
            world.quiesce();
            // A patrol has looked at its kind before it comes back.
            world.run_for(PATROLS);
        }
        restore(&mut world, &last);
        world.run_for(Duration::from_secs(10));
        assert_eq!(held(&world, Reason::Restored).len(), 0, "nobody watches its kind");
        world.run_for(PATROLS);
        assert_eq!(held(&world, Reason::Restored), [&last], "after a restart: {restarts}");
        world.hub.remove(&kept);
        world.cluster.delete(&last);
        world.quiesce();
        assert_eq!(held(&world, Reason::Restored).len(), 0, "its end is seen");
    }
}

#[test]
fn what_is_found_at_the_first_look_at_its_kind_counts_as_left_behind() {
    let last = key("apps", "Deployment", "last");
    let mut world = world();
    world.hub.put(&last, 1, 1);
    world.quiesce();
    world.hub.remove(&last);
    world.quiesce();
    world.crash();
    restore(&mut world, &last);
    world.quiesce();
    world.run_for(PATROLS);
    assert_eq!((held(&world, Reason::HistoryLost), held(&world, Reason::Restored).len()), (vec![&last], 0));
}

#[test]
fn what_is_released_stays_without_its_mark_and_what_is_approved_goes() {
    for (lost, releases) in [(false, false), (false, true), (true, false), (true, true)] {
        let [kept, back] = keys();
        let mut world = world();
        world.hub.remove(&back);
        world.quiesce();
        let (told, reason) = if lost {
            world.hub = world.hub.restored_empty();
            (Tombstone { key: kept.clone(), source: uid("s1") }, Reason::HistoryLost)
        } else {
            (restore(&mut world, &back), Reason::Restored)
        };
        world.quiesce();
        assert_eq!(held(&world, reason), [&told.key]);
        let uid = world.cluster.objects[&told.key].uid.clone();
        let list = if releases { &mut world.hub.released } else { &mut world.hub.approved };
        list.push(told.clone());
        world.quiesce();
        let case = format!("history lost: {lost}, released: {releases}");
        assert_eq!(held(&world, reason).len(), 0, "{case}");
        let left = world.cluster.objects.get(&told.key);
        assert_eq!(left.map(|local| (&local.uid, local.mark.is_none())), releases.then_some((&uid, true)), "{case}");
        world.check_at_rest();
        world.crash();
        world.quiesce();
        assert_eq!(world.cluster.objects.contains_key(&told.key), releases, "{case}");
    }
}

#[test]
fn an_approval_is_of_what_was_there_and_not_of_what_comes_back_later() {
    for releases in [false, true] {
        let [_, back] = keys();
        let mut world = world();
        world.hub.remove(&back);
        world.quiesce();
        let told = restore(&mut world, &back);
        world.quiesce();
        let list = if releases { &mut world.hub.released } else { &mut world.hub.approved };
        list.push(told);
        world.quiesce();
        world.cluster.delete(&back);
        world.quiesce();
        restore(&mut world, &back);
        world.quiesce();
        assert_eq!(held(&world, Reason::Restored), [&back], "released: {releases}");
        assert!(world.cluster.objects[&back].mark.is_some(), "released: {releases}");
    }
}

/// A person who means to keep it is heard.
#[test]
fn what_is_approved_and_released_stays() {
    let [_, back] = keys();
    let mut world = world();
    world.hub.remove(&back);
    world.quiesce();
    let told = restore(&mut world, &back);
    world.quiesce();
    world.hub.approved.push(told.clone());
    world.hub.released.push(told);
    world.quiesce();
    assert!(world.cluster.objects[&back].mark.is_none());
}

/// A release is of what nothing explains; what is to go because the hub says so goes on waiting.
#[test]
fn a_release_lets_nothing_go_that_the_fuse_holds() {
    let keys: Vec<_> = (0..30).map(|i| key("", "ConfigMap", &format!("c{i:02}"))).collect();
    let mut world = World::with_fuse(3, FuseLimits::default());
    for key in &keys {
        world.hub.put(key, 1, 1);
    }
    world.heal();
    world.quiesce();
    for key in &keys {
        world.hub.remove(key);
    }
    world.quiesce();
    world.hub.released = keys.iter().map(|key| Tombstone { key: key.clone(), source: uid("s1") }).collect();
    world.quiesce();
    assert_eq!(held(&world, Reason::FuseHeld).len(), 30);
    assert!(world.cluster.objects.values().all(|local| local.mark.is_some()));
}
