//! When something is taken away, and when it is not.

use super::*;

#[test]
fn a_placement_replaced_by_another_takes_nothing_away() {
    let mut world = World::new(2);
    world.object("web", "app=web");
    world.placement("p", &simple("app=web", "all=yes"));
    let before = world.shown();
    world.index.delete_placement(&space(), "p");
    assert_eq!(world.drain(), 0);
    assert_eq!(world.index.next_deadline(), Some(world.now + SETTLED));
    world.wait(SETTLED / 2);
    world.placement("q", &simple("app=web", "all=yes"));
    assert_eq!(world.drain(), 0);
    world.wait(SETTLED * 2);
    assert_eq!(world.shown(), before);
    assert_eq!(world.index.next_deadline(), None);
}

#[test]
fn what_is_not_assigned_again_goes_when_it_has_settled() {
    let mut world = World::new(2);
    world.object("web", "app=web");
    world.placement("p", &simple("app=web", "all=yes"));
    world.drain();
    world.placement("p", &simple("app=web", "n=0"));
    world.drain();
    world.wait(ALMOST_SETTLED);
    assert_eq!(world.placed(), ["web@0,1"]);
    world.wait(Duration::from_millis(1));
    assert_eq!(world.placed(), ["web@0"]);
}

#[test]
fn leaving_twice_does_not_put_off_the_end() {
    let mut world = World::new(2);
    world.object("web", "app=web");
    world.placement("p", &simple("app=web", "all=yes"));
    world.drain();
    world.placement("p", &simple("app=web", "n=0"));
    world.drain();
    world.wait(SETTLED / 2);
    world.apply(&config_map("web", "web", "app=web", "changed meanwhile"));
    world.drain();
    world.wait(SETTLED / 2);
    assert_eq!(world.placed(), ["web@0"]);
}

#[test]
fn a_deleted_source_goes_when_nothing_replaces_it_and_one_that_is_being_deleted_stays() {
    let mut world = World::new(1);
    world.object("web", "app=web");
    world.placement("p", &simple("app=web", "all=yes"));
    world.drain();
    let mut deleting = config_map("web", "web", "app=web", "1");
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    deleting["metadata"]["finalizers"] = json!(["a/b"]);
    world.apply(&deleting);
    assert_eq!(world.drain(), 0);
    world.delete("web");
    assert_eq!(world.drain(), 0);
    assert_eq!(world.index.next_deadline(), Some(world.now + DELETION_GRACE));
    world.wait(DELETION_GRACE);
    assert_eq!(world.placed(), [""; 0]);
    assert_eq!(world.index.next_deadline(), Some(Monotonic::START + SETTLED), "the namespace that it implied settles");
}

#[test]
fn a_source_recreated_within_the_grace_takes_the_place_in_one_step() {
    let mut world = World::new(2);
    world.object("web", "app=web");
    world.placement("p", &simple("app=web", "all=yes"));
    world.drain();
    world.delete("web");
    assert_eq!(world.drain(), 0);
    world.wait(DELETION_GRACE / 2);
    world.apply(&config_map("web", "web-2", "app=web", "1"));
    let told: Vec<_> = world.index.drain(world.now).into_iter().map(|change| format!("{change:?}")).collect();
    assert_eq!(told.len(), 2);
    assert!(told[0].starts_with("Remove") && told[1].starts_with("Assign"), "{told:?}");
}

#[test]
fn a_source_recreated_and_not_placed_leaves_when_the_grace_is_over() {
    let mut world = World::new(1);
    world.object("web", "app=web");
    world.placement("p", &simple("app=web", "all=yes"));
    world.drain();
    world.delete("web");
    world.apply(&config_map("web", "web-2", "app=other", "1"));
    assert_eq!(world.drain(), 0);
    world.wait(DELETION_GRACE);
    assert_eq!(world.placed(), [""; 0]);
}

#[test]
fn a_source_recreated_in_a_form_that_cannot_be_placed_takes_nothing() {
    let mut world = World::new(1);
    world.object("web", "app=web");
    world.placement("p", &simple("app=web", "all=yes"));
    world.drain();
    world.delete("web");
    let mut odd = config_map("web", "web-2", "app=web", "1");
    odd["metadata"]["annotations"] = json!({"tideline.dev/wave": "ten"});
    world.apply(&odd);
    assert_eq!(world.drain(), 0);
    world.wait(DELETION_GRACE * 2);
    assert_eq!(world.placed(), ["web@0"]);
    world.delete("web");
    assert_eq!(world.placed(), [""; 0], "it is gone");
}

/// Made again while the hub was down: what it had is not taken before what replaces it can be said.
#[test]
fn after_a_restart_a_recreated_source_takes_the_place_however_long_listing_takes() {
    let mut before = World::new(1);
    before.object("web", "app=web");
    before.placement("p", &simple("app=web", "all=yes"));
    before.drain();
    let mut world = World::restarted(before.told);
    world.apply(&config_map("web", "web-2", "app=web", "1"));
    assert_eq!(world.drain(), 0);
    world.wait(DELETION_GRACE * 5);
    assert_eq!(world.drain(), 0);
    assert_eq!(world.index.next_deadline(), None);
    world.target(0, "n=0,all=yes");
    world.namespace("shop", "team=a");
    world.placement("p", &simple("app=web", "all=yes"));
    world.list();
    assert_eq!(world.placed(), ["web@0"]);
    assert!(world.told.keys().any(|id| *id.uid.text() == *"web-2"));
}

#[test]
fn a_source_recreated_between_two_drains_is_told_in_one() {
    let mut world = World::new(1);
    world.object("web", "app=web");
    world.placement("p", &simple("app=web", "all=yes"));
    world.drain();
    world.apply(&config_map("web", "web-2", "app=web", "1"));
    let changes = world.index.drain(world.now);
    let removed = changes.iter().any(|change| matches!(change, Change::Remove(id) if *id.uid.text() == *"web"));
    let assigned =
        changes.iter().any(|change| matches!(change, Change::Assign(told) if *told.id.uid.text() == *"web-2"));
    assert!(removed && assigned && changes.len() == 2, "{changes:?}");
}

#[test]
fn a_source_that_is_back_before_anybody_noticed_stays() {
    let mut world = World::new(1);
    world.object("web", "app=web");
    world.placement("p", &simple("app=web", "all=yes"));
    let before = world.shown();
    world.delete("web");
    world.object("web", "app=web");
    assert_eq!(world.shown(), before);
    world.wait(SETTLED * 2);
    assert_eq!(world.shown(), before, "the namespace that it implies stays, too");
}

#[test]
fn a_gone_target_is_dropped_at_once() {
    let mut world = World::new(2);
    world.object("web", "app=web");
    world.placement("p", &simple("app=web", "all=yes"));
    world.drain();
    world.index.delete_target(1);
    assert_eq!(world.placed(), ["web@0"]);
}

#[test]
fn a_namespace_is_implied_by_what_is_in_it_and_goes_with_the_last() {
    let mut world = World::new(2);
    world.object("a", "app=a");
    world.object("b", "app=b");
    world.placement("p", &simple("app=a", "all=yes"));
    world.placement("q", &simple("app=b", "n=1"));
    assert_eq!(world.shown(), ["a@0,1", "b@1", "~shop@0,1"]);
    world.delete("a");
    world.drain();
    world.wait(SETTLED);
    assert_eq!(world.shown(), ["b@1", "~shop@1"]);
    world.placement("r", &json!({"targets": [{}], "objects": [{"resources": ["namespaces"]}]}));
    assert_eq!(world.shown(), ["b@1", "shop@0,1"]);
    world.index.delete_placement(&space(), "r");
    assert_eq!(world.shown(), ["b@1", "shop@0,1"], "it settles before it is implied again");
    world.wait(SETTLED);
    assert_eq!(world.shown(), ["b@1", "~shop@1"]);
}

#[test]
fn an_incomplete_listing_takes_nothing_away_and_a_complete_one_does() {
    let mut world = World::new(1);
    world.object("a", "app=web");
    world.object("b", "app=web");
    world.placement("p", &simple("app=web", "all=yes"));
    world.drain();
    let (space, config_maps) = (space(), config_maps());
    world.index.reset(Part::Objects(&space, &config_maps));
    world.object("a", "app=web");
    world.wait(SETTLED);
    assert_eq!(world.placed(), ["a@0", "b@0"]);
    world.index.listed(Part::Objects(&space, &config_maps));
    world.drain();
    world.wait(DELETION_GRACE);
    assert_eq!(world.placed(), ["a@0"]);
}

/// After a restart: the ledger's assignments are restored, and the world is told bit by bit.
#[test]
fn after_a_restart_nothing_is_decided_before_it_is_known() {
    let mut before = World::new(2);
    before.object("a", "app=web");
    before.object("b", "app=web");
    before.placement("p", &simple("app=web", "all=yes"));
    before.drain();
    let mut world = World::restarted(before.told);
    assert_eq!(world.drain(), 0);
    world.object("a", "app=web");
    world.target(0, "n=0,all=yes");
    assert_eq!(world.drain(), 0, "the inventory is not complete");
    world.target(1, "n=1,all=yes");
    world.namespace("shop", "team=a");
    let (space, namespaces, config_maps) = (space(), namespaces(), config_maps());
    for part in [Part::Targets, Part::Locations, Part::Spaces, Part::Objects(&space, &namespaces)] {
        world.index.listed(part);
    }
    assert_eq!(world.drain(), 0, "the Placements are not known");
    world.placement("p", &simple("app=web", "all=yes"));
    world.index.listed(Part::Placements(&space));
    assert_eq!(world.drain(), 0, "b has not been heard of, but may be there");
    world.wait(SETTLED * 2);
    assert_eq!(world.drain(), 0);
    world.index.listed(Part::Objects(&space, &config_maps));
    world.drain();
    world.wait(DELETION_GRACE);
    assert_eq!(world.shown(), ["a@0,1", "~shop@0,1"]);
}

#[test]
fn a_placement_that_was_never_readable_freezes_its_space() {
    let mut before = World::new(1);
    before.object("web", "app=web");
    before.placement("p", &simple("app=web", "all=yes"));
    before.drain();
    let mut world = World::restarted(before.told);
    world.target(0, "n=0,all=yes");
    world.namespace("shop", "team=a");
    world.object("web", "app=web");
    world.index.apply_placement(&space(), "p", "p".parse().unwrap(), Err("spec is odd".into()));
    world.list();
    world.drain();
    world.wait(SETTLED * 2);
    assert_eq!(world.placed(), ["web@0"]);
    world.placement("p", &simple("app=other", "all=yes"));
    world.drain();
    world.wait(SETTLED);
    assert_eq!(world.placed(), [""; 0]);
}

#[test]
fn two_sources_of_one_key_in_the_ledger_become_the_one_that_is_there() {
    let mut before = World::new(1);
    before.placement("p", &simple("app=web", "all=yes"));
    let mut told = Vec::new();
    for uid in ["old", "new"] {
        before.apply(&config_map("web", uid, "app=web", "1"));
        before.drain();
        told.push(before.told.values().find(|told| *told.id.uid.text() == *uid).unwrap().clone());
    }
    for live in ["old", "new"] {
        let mut world = World::restarted(told.iter().map(|told| (told.id.clone(), told.clone())).collect());
        world.target(0, "n=0,all=yes");
        world.namespace("shop", "team=a");
        world.placement("p", &simple("app=web", "all=yes"));
        world.apply(&config_map("web", live, "app=web", "1"));
        world.list();
        world.drain();
        let left: Vec<_> =
            world.told.keys().map(|id| id.uid.to_string()).filter(|uid| !uid.starts_with("ns")).collect();
        assert_eq!(left, [live]);
    }
}

#[test]
fn a_change_that_comes_while_an_earlier_one_is_worked_out_leaves_that_whole() {
    let mut world = World::new(2);
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        world.object(name, "app=web");
    }
    world.placement("p", &simple("app=web", "all=yes"));
    assert_eq!(world.index.drain_some(world.now, 2), None, "there are more than two");
    world.index.delete_placement(&space(), "p");
    world.delete("a");
    assert_eq!(world.drain(), names.len() + 1, "all as it was when it was begun, with the namespace");
    assert_eq!(world.placed(), ["a@0,1", "b@0,1", "c@0,1", "d@0,1", "e@0,1"]);
    world.wait(SETTLED);
    assert_eq!(world.placed(), [""; 0]);
}
