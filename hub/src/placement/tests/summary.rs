use std::fmt::Write as _;

use expect_test::{Expect, expect};

use super::*;

/// Places as `spec` says, and shows what the Placement's own status would say of it.
fn check(world: &mut World, spec: &Value, expected: &Expect) {
    world.placement("p", spec);
    world.drain();
    let PlacementSummary { targets, objects, problems, .. } = world.index.placement_status(&space(), "p").unwrap();
    let mut lines = format!("{targets} targets, {objects} objects\n");
    for problem in problems {
        writeln!(lines, "{}: {}", problem.reason, problem.message).unwrap();
    }
    expected.assert_eq(&lines);
}

fn objects() -> Value {
    json!([{"resources": ["configmaps"]}])
}

fn targets() -> Value {
    json!([{"matchLabels": {"all": "yes"}}])
}

fn world() -> World {
    let mut world = World::new(2);
    world.object("web", "app=web");
    world
}

#[test]
fn a_placement_that_selects_both_has_no_problem() {
    check(
        &mut world(),
        &json!({"targets": targets(), "objects": objects()}),
        &expect![[r#"
        2 targets, 1 objects
    "#]],
    );
}

#[test]
fn objects_are_counted_also_where_there_is_no_target() {
    let spec = json!({"targets": [{"matchLabels": {"all": "no"}}], "objects": objects()});
    check(
        &mut world(),
        &spec,
        &expect![[r#"
        0 targets, 1 objects
        NoTargets: no SyncTarget has the labels that spec.targets asks for; compare with `kubectl get synctargets,locations --show-labels` in the space root
    "#]],
    );
}

#[test]
fn a_placement_without_a_target_says_why() {
    let mut world = world();
    world.location("edge", "tier=edge", "n=77");
    world.location("attic", "tier=edge", "n=78");
    let mut check = |spec: Value, expected: Expect| {
        let mut spec = spec;
        spec["objects"] = objects();
        check(&mut world, &spec, &expected);
    };
    check(
        json!({}),
        expect![[r#"
        0 targets, 1 objects
        NoTargets: spec.targets and spec.locations are empty, and so select no target; an empty selector, as in `targets: [{}]`, selects all
    "#]],
    );
    check(
        json!({"numberOfTargets": 0, "targets": targets()}),
        expect![[r#"
        0 targets, 1 objects
        NoTargets: spec.numberOfTargets is 0; raise it, or leave it out for all that are selected
    "#]],
    );
    check(
        json!({"locations": [{"matchLabels": {"tier": "core"}}]}),
        expect![[r#"
        0 targets, 1 objects
        NoTargets: no Location has the labels that spec.locations asks for; compare with `kubectl get synctargets,locations --show-labels` in the space root
    "#]],
    );
    let nowhere = json!({"targets": [{"matchLabels": {"n": "9"}}], "locations": [{"matchLabels": {"tier": "core"}}]});
    check(
        nowhere,
        expect![[r#"
        0 targets, 1 objects
        NoTargets: no SyncTarget and no Location has the labels that spec.targets and spec.locations ask for; compare with `kubectl get synctargets,locations --show-labels` in the space root
    "#]],
    );
    check(
        json!({"locations": [{"matchLabels": {"tier": "edge"}}]}),
        expect![[r#"
        0 targets, 1 objects
        NoTargets: no SyncTarget is in what spec.locations selects, attic, edge; compare with `kubectl get synctargets,locations --show-labels` in the space root
    "#]],
    );
}

#[test]
fn targets_that_are_not_allowed_or_unschedulable_are_told_from_none() {
    let mut world = world();
    let spec = json!({"targets": targets(), "objects": objects(), "numberOfTargets": 1});
    world.unschedulable(0, "n=0,all=yes");
    world.unschedulable(1, "n=1,all=yes");
    check(
        &mut world,
        &spec,
        &expect![[r#"
        0 targets, 1 objects
        NoTargets: it selects 2 targets, and all are unschedulable; see spec.unschedulable of the SyncTargets
    "#]],
    );

    let mut allow = Allow::everything();
    allow.locations.clear();
    allow.targets.clear();
    world.index.apply_space(&space(), SpaceRule::try_from(&allow).unwrap());
    check(
        &mut world,
        &spec,
        &expect![[r#"
        0 targets, 1 objects
        NoTargets: it selects 2 targets, and this space may place to none of them; see spec.allow of the Space default
    "#]],
    );
}

#[test]
fn a_placement_without_an_object_says_why() {
    let mut world = world();
    let mut check = |objects: Value, expected: Expect| {
        check(&mut world, &json!({"targets": targets(), "objects": objects}), &expected);
    };
    check(
        json!([]),
        expect![[r#"
            2 targets, 0 objects
            NoObjects: spec.objects is empty, and so selects no object; say there which are meant
        "#]],
    );
    check(
        json!([{"name": "all-of-shop", "namespaces": ["market"]}]),
        expect![[r#"
            2 targets, 0 objects
            NoObjects: no object of this space is what the clause "all-of-shop" asks for; compare its resources, names, namespaces and labels with `kubectl get RESOURCE --all-namespaces --show-labels`
        "#]],
    );
    check(
        json!([{"resources": ["configmap"]}, {"apiGroup": "apps", "resources": ["configmaps", "*"]}]),
        expect![[r#"
            2 targets, 0 objects
            NoObjects: this space has no resource "configmap" (spec.objects[0] (configmap), did you mean configmaps?); `kubectl api-resources` shows names and groups of those that it has
            NoObjects: no object of this space is what spec.objects[1] (the group apps) asks for; compare its resources, names, namespaces and labels with `kubectl get RESOURCE --all-namespaces --show-labels`
        "#]],
    );
    check(
        json!([{"resources": ["configmaps"], "namespaces": ["shelf"]}]),
        expect![[r#"
            2 targets, 0 objects
            NoObjects: no object of this space is what spec.objects[0] (configmaps) asks for; compare its resources, names, namespaces and labels with `kubectl get RESOURCE --all-namespaces --show-labels`
        "#]],
    );
    check(
        json!([{"apiGroup": "apps", "resources": ["*"]}]),
        expect![[r#"
            2 targets, 0 objects
            NoObjects: no object of this space is what spec.objects[0] (the group apps) asks for; compare its resources, names, namespaces and labels with `kubectl get RESOURCE --all-namespaces --show-labels`
        "#]],
    );
}

#[test]
fn a_clause_that_meets_nothing_is_told_beside_others_that_do() {
    let mut world = world();
    let spec = |clauses: &Value| json!({"targets": targets(), "objects": clauses});
    let clauses = json!([
        {"resources": ["configmaps"]}, {"name": "theirs", "namespaces": ["market"]},
        {"names": ["wb"]}, {"resources": ["configmaps", "Namespace"]},
    ]);
    check(
        &mut world,
        &spec(&clauses),
        &expect![[r#"
        2 targets, 1 objects
        NoObjects: this space has no resource "Namespace" (spec.objects[3] (Namespace), did you mean namespaces?); `kubectl api-resources` shows names and groups of those that it has
        NoObjects: no object of this space is what the clause "theirs", spec.objects[2] (name wb) asks for; compare its resources, names, namespaces and labels with `kubectl get RESOURCE --all-namespaces --show-labels`
    "#]],
    );
    world.apply(&json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "wb", "namespace": "market", "uid": "wb"}
    }));
    check(
        &mut world,
        &spec(&clauses),
        &expect![[r#"
        2 targets, 2 objects
        NoObjects: this space has no resource "Namespace" (spec.objects[3] (Namespace), did you mean namespaces?); `kubectl api-resources` shows names and groups of those that it has
    "#]],
    );
    world.delete("web");
    check(
        &mut world,
        &spec(&json!([{"resources": ["configmaps"], "names": ["web"]}, {"apiGroup": "*"}])),
        &expect![[r#"
            2 targets, 2 objects
            NoObjects: no object of this space is what spec.objects[0] (configmaps) asks for; compare its resources, names, namespaces and labels with `kubectl get RESOURCE --all-namespaces --show-labels`
        "#]],
    );
}

#[test]
fn a_placement_that_selects_nothing_at_all_says_both() {
    check(
        &mut world(),
        &json!({}),
        &expect![[r#"
            0 targets, 0 objects
            NoTargets: spec.targets and spec.locations are empty, and so select no target; an empty selector, as in `targets: [{}]`, selects all
            NoObjects: spec.objects is empty, and so selects no object; say there which are meant
        "#]],
    );
}

#[test]
fn nothing_is_said_of_a_placement_before_it_is_resolved() {
    let mut world = World::unlisted();
    world.placement("p", &json!({}));
    world.drain();
    assert_eq!(world.index.placement_status(&space(), "p"), None);
    world.list();
    world.drain();
    assert!(world.index.placement_status(&space(), "p").is_some());
    // Nor of the former form of one that was changed.
    world.placement("p", &json!({"targets": [{}]}));
    assert_eq!(world.index.placement_status(&space(), "p"), None);
}

#[test]
fn a_location_without_a_target_says_so() {
    let mut world = world();
    world.location("edge", "", "n=77");
    let edge = world.index.location_status("edge").unwrap();
    let (reason, message) = edge.problem.unwrap();
    assert_eq!((edge.targets, reason), (0, Reason::NoTargets));
    expect!["no SyncTarget has the labels that spec.instanceSelector asks for; compare them with `kubectl get synctargets --show-labels`"].assert_eq(&message);
    world.target(2, "n=77");
    let edge = world.index.location_status("edge").unwrap();
    assert_eq!((edge.targets, edge.problem), (1, None));
}

#[test]
fn what_is_described_says_which_generation_it_is_of() {
    let mut world = world();
    world.location("edge", "", "n=0");
    world.index.location_generation("edge", 3);
    world.location("edge", "new=label", "n=0");
    assert_eq!(world.index.location_status("edge").unwrap().generation, 3);
    world.placement("p", &json!({}));
    world.index.placement_generation(&space(), "p", 7);
    world.drain();
    assert_eq!(world.index.placement_status(&space(), "p").unwrap().generation, 7);
}

#[test]
fn what_two_placements_ask_of_an_object_is_a_problem_for_as_long_as_both_ask() {
    let mut world = World::new(2);
    let spec = |label: &str, targets: &str, mode: &str| {
        let mut spec = simple(label, targets);
        spec["objects"][0]["apply"] = json!({"mode": mode});
        spec
    };
    world.object("web", "app=web,tier=front");
    world.object("db", "app=web,tier=front");
    world.placement("p", &spec("app=web", "all=yes", "CreateOnly"));
    world.placement("q", &spec("tier=front", "all=yes", "Continuous"));
    let conflicts = |world: &mut World, expected: u64| {
        world.drain();
        for name in ["p", "q"] {
            let status = world.index.placement_status(&space(), name).unwrap();
            let counted = status.counts.get(&Reason::Conflict).copied().unwrap_or_default();
            assert_eq!((counted, status.problems.len() as u64), (expected, expected), "{name}");
        }
    };
    conflicts(&mut world, 2);
    // One of them does not select it any more, and does again.
    world.object("web", "app=web");
    conflicts(&mut world, 1);
    world.object("web", "app=web,tier=front");
    conflicts(&mut world, 2);
    // They go to different targets.
    world.placement("q", &spec("tier=front", "n=7", "Continuous"));
    world.drain();
    assert_eq!(world.index.placement_status(&space(), "p").unwrap().counts, BTreeMap::new());
    world.placement("q", &spec("tier=front", "n=1", "Continuous"));
    conflicts(&mut world, 2);
    // It is gone, and another takes its number.
    world.delete("db");
    world.object("cache", "app=web");
    conflicts(&mut world, 1);
    world.placement("q", &spec("tier=front", "n=1", "CreateOnly"));
    conflicts(&mut world, 0);
}
