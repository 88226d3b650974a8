//! What has a key that nobody can read may be anything of its kind that was not told.

use super::*;

/// After a restart, as far as all targets and objects were told, with the labels that they had.
fn restarted(before: World) -> World {
    let mut world = World::restarted(before.told);
    world.target(0, "n=0,all=yes");
    world.namespace("more", "team=a");
    world.object("web", "app=web");
    world
}

/// What is placed long after.
fn settled(world: &mut World) -> Vec<String> {
    world.drain();
    world.wait(SETTLED * 2);
    world.placed()
}

#[test]
fn beside_a_placement_without_a_readable_key_all_else_goes_on() {
    let mut before = World::new(1);
    for name in ["web", "gone"] {
        before.object(name, "app=web");
    }
    before.placement("p", &simple("app=web", "all=yes"));
    before.drain();
    let mut world = restarted(before);
    world.namespace("shop", "team=a");
    world.placement("q", &simple("app=other", "all=yes"));
    world.object("other", "app=other");
    world.list_but(Some(Part::Placements(&space())));
    assert_eq!(settled(&mut world), ["other@0", "web@0"]);
    world.index.reset(Part::Placements(&space()));
    world.placement("q", &simple("app=other", "all=yes"));
    world.index.listed(Part::Placements(&space()));
    assert_eq!(settled(&mut world), ["other@0"], "when it is known to be gone");
}

#[test]
fn what_is_in_a_namespace_without_a_readable_key_stays_and_all_else_goes_on() {
    let in_more = |name: &str| {
        let mut object = config_map(name, name, "app=web", "1");
        object["metadata"]["namespace"] = json!("more");
        object
    };
    let mut before = World::new(1);
    before.namespace("more", "team=a");
    for name in ["web", "gone"] {
        before.object(name, "app=web");
    }
    before.apply(&in_more("old"));
    let mut rule = simple("app=web", "all=yes");
    rule["objects"][0]["namespaceSelectors"] = json!([{"matchLabels": {"team": "a"}}]);
    before.placement("p", &rule);
    assert_eq!(before.placed(), ["gone@0", "old@0", "web@0"]);
    let mut world = restarted(before);
    world.placement("p", &rule);
    world.apply(&in_more("new"));
    world.list_but(Some(Part::Objects(&space(), &namespaces())));
    assert_eq!(settled(&mut world), ["new@0", "web@0"], "nobody knows the labels of `shop`");
    world.index.reset(Part::Objects(&space(), &namespaces()));
    world.namespace("more", "team=a");
    world.index.listed(Part::Objects(&space(), &namespaces()));
    assert_eq!(settled(&mut world), ["new@0"], "when it is known to be gone");
}

#[test]
fn beside_a_location_without_a_readable_key_all_else_goes_on() {
    let mut before = World::new(1);
    for name in ["web", "gone"] {
        before.object(name, "app=web");
    }
    before.location("l", "kind=store", "all=yes");
    let mut rule = simple("app=web", "");
    rule["targets"] = json!([]);
    rule["locations"] = json!([{"matchLabels": {"kind": "store"}}]);
    before.placement("p", &rule);
    assert_eq!(before.placed(), ["gone@0", "web@0"]);
    let mut world = restarted(before);
    world.namespace("shop", "team=a");
    world.placement("p", &rule);
    world.placement("q", &simple("app=other", "all=yes"));
    world.object("other", "app=other");
    world.list_but(Some(Part::Locations));
    assert_eq!(settled(&mut world), ["other@0", "web@0"]);
    world.index.reset(Part::Locations);
    world.index.listed(Part::Locations);
    assert_eq!(settled(&mut world), ["other@0"], "when it is known to be gone");
}
