//! Namespaces that are called otherwise at the targets.

use super::*;

/// All ConfigMaps that carry these labels, and the namespaces, to all targets that carry those, mapped so.
fn mapped(objects: &str, targets: &str, mapping: &Value) -> Value {
    let mut spec = simple(objects, targets);
    spec["namespaceMapping"] = mapping.clone();
    spec
}

fn body(world: &World, destination: Option<&str>) -> String {
    let variants = world.told.values().flat_map(|told| &told.variants);
    let mut at = variants.filter(|variant| variant.destination.as_deref() == destination && !variant.implied);
    at.next().expect("it is there").input.text.to_string()
}

fn problems(world: &World, placement: &str) -> Vec<String> {
    let summary = world.index.placement_status(&space(), placement).unwrap();
    let shown = |problem: &PlacementProblem| {
        let object = problem.object.as_ref().map(ToString::to_string).unwrap_or_default();
        format!("{} {object}", problem.reason)
    };
    summary.problems.iter().map(shown).collect()
}

#[test]
fn an_object_and_its_implied_namespace_arrive_under_the_mapped_name() {
    let mut world = World::new(2);
    world.object("web", "app=web");
    world.placement("p", &mapped("app=web", "all=yes", &json!({"prefix": "store-"})));
    assert_eq!(world.shown(), ["store-shop/web@0,1", "~store-shop/shop@0,1"]);
    assert_eq!(
        body(&world, Some("store-shop")),
        r#"{"apiVersion":"v1","data":{"value":"1"},"kind":"ConfigMap","metadata":{"labels":{"app":"web"},"name":"web","namespace":"store-shop"}}"#
    );
    let implied = world.told.values().flat_map(|told| &told.variants).find(|variant| variant.implied).unwrap();
    assert_eq!(
        &*implied.input.text,
        r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"labels":{"team":"a"},"name":"store-shop"}}"#
    );
}

#[test]
fn a_placed_namespace_arrives_under_the_mapped_name_and_replaces_the_implied_one() {
    let mut world = World::new(1);
    world.object("web", "app=web");
    let mut spec = mapped("app=web", "all=yes", &json!({"map": {"shop": "storefront"}}));
    world.placement("p", &spec);
    assert_eq!(world.shown(), ["storefront/web@0", "~storefront/shop@0"]);
    spec["objects"].as_array_mut().unwrap().push(json!({"resources": ["namespaces"]}));
    world.placement("p", &spec);
    assert_eq!(world.shown(), ["storefront/shop@0", "storefront/web@0"]);
}

#[test]
fn another_mapping_moves_objects_and_what_they_leave_settles() {
    let mut world = World::new(1);
    world.object("web", "app=web");
    world.placement("p", &mapped("app=web", "all=yes", &json!({"map": {"shop": "a"}})));
    world.drain();
    world.placement("p", &mapped("app=web", "all=yes", &json!({"map": {"shop": "b"}})));
    assert_eq!(world.shown(), ["a/web@0", "b/web@0", "~a/shop@0", "~b/shop@0"]);
    world.wait(ALMOST_SETTLED);
    assert_eq!(world.placed(), ["a/web@0", "b/web@0"]);
    world.wait(Duration::from_millis(1));
    assert_eq!(world.placed(), ["b/web@0"]);
    world.wait(SETTLED);
    assert_eq!(world.shown(), ["b/web@0", "~b/shop@0"]);
    assert_eq!(world.index.next_deadline(), None);
}

#[test]
fn a_mapping_taken_back_while_it_settles_takes_nothing_away() {
    let mut world = World::new(1);
    world.object("web", "app=web");
    world.placement("p", &simple("app=web", "all=yes"));
    let before = world.shown();
    world.placement("p", &mapped("app=web", "all=yes", &json!({"prefix": "x-"})));
    world.drain();
    world.placement("p", &simple("app=web", "all=yes"));
    world.drain();
    assert_eq!(world.placed(), ["web@0", "x-shop/web@0"]);
    world.wait(SETTLED);
    world.drain();
    world.wait(SETTLED);
    assert_eq!(world.shown(), before);
}

#[test]
fn two_placements_may_bring_one_source_to_two_places_of_one_target() {
    let mut world = World::new(2);
    world.object("web", "app=web");
    world.placement("p", &mapped("app=web", "all=yes", &json!({"prefix": "east-"})));
    world.placement("q", &mapped("app=web", "n=1", &json!({"prefix": "west-"})));
    world.placement("r", &mapped("app=web", "n=1", &json!({"map": {"shop": "west-shop"}})));
    assert_eq!(world.placed(), ["east-shop/web@0,1", "west-shop/web@1"]);
    assert_eq!(problems(&world, "q"), [""; 0]);
    world.index.delete_placement(&space(), "q");
    world.drain();
    world.wait(SETTLED);
    assert_eq!(world.placed(), ["east-shop/web@0,1", "west-shop/web@1"]);
}

#[test]
fn what_cannot_be_mapped_is_said_and_its_siblings_go_on() {
    let mut world = World::new(1);
    world.namespace("yard", "");
    let mut long = config_map("long", "long", "app=web", "1");
    long["metadata"]["namespace"] = json!("n".repeat(60));
    world.object("web", "app=web");
    world.apply(&long);
    let mut into = config_map("into", "into", "app=web", "1");
    into["metadata"]["namespace"] = json!("yard");
    world.apply(&into);
    world.placement("p", &mapped("app=web", "all=yes", &json!({"prefix": "store-", "map": {"yard": "kube-system"}})));
    assert_eq!(world.placed(), ["store-shop/web@0"]);
    assert_eq!(
        problems(&world, "p"),
        [format!("Invalid ConfigMap {}/long", "n".repeat(60)), "NotAllowed ConfigMap yard/into".to_owned()]
    );
}

#[test]
fn what_cannot_be_mapped_any_more_stays_where_it_is() {
    let mut world = World::new(1);
    world.object("web", "app=web");
    world.placement("p", &mapped("app=web", "all=yes", &json!({"prefix": "store-"})));
    let before = world.shown();
    world.placement("p", &mapped("app=web", "all=yes", &json!({"prefix": "kube-"})));
    world.drain();
    world.wait(SETTLED * 2);
    assert_eq!(world.shown(), before);
    assert_eq!(world.index.next_deadline(), None);
    world.placement("p", &mapped("app=web", "n=7", &json!({"prefix": "kube-"})));
    world.drain();
    world.wait(SETTLED);
    assert_eq!(world.placed(), [""; 0], "the Placement does not want it there at all");
}

#[test]
fn the_namespace_default_is_implied_where_it_is_called_otherwise_only() {
    let mut world = World::new(2);
    world.namespace("default", "team=b");
    let mut object = config_map("web", "web", "app=web", "1");
    object["metadata"]["namespace"] = json!("default");
    world.apply(&object);
    world.placement("p", &mapped("app=web", "n=0", &json!({"prefix": "store-"})));
    world.placement("q", &simple("app=web", "n=1"));
    assert_eq!(world.shown(), ["store-default/web@0", "web@1", "~store-default/default@0"]);
}

#[test]
fn an_unschedulable_target_follows_a_mapping_with_what_it_has() {
    let mut world = World::new(1);
    world.object("web", "app=web");
    world.placement("p", &simple("app=web", "all=yes"));
    world.drain();
    world.unschedulable(0, "n=0,all=yes");
    world.object("api", "app=web");
    world.placement("p", &mapped("app=web", "all=yes", &json!({"prefix": "x-"})));
    world.drain();
    world.wait(SETTLED);
    assert_eq!(world.placed(), ["x-shop/web@0"]);
}
