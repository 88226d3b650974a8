//! What × where, and what cannot be read.

use super::*;

#[test]
fn what_a_placement_selects_is_on_what_it_selects() {
    let mut world = World::new(3);
    world.object("web", "app=web");
    world.object("other", "app=other");
    world.placement("p", &simple("app=web", "all=yes"));
    assert_eq!(world.shown(), ["web@0,1,2", "~shop@0,1,2"]);
    assert_eq!(world.drain(), 0, "nothing is told twice");
}

#[test]
fn one_object_of_many_is_resolved_alone() {
    let mut world = World::new(2);
    for nth in 0..100 {
        world.object(&format!("web-{nth}"), "app=web");
    }
    world.placement("p", &simple("app=web", "all=yes"));
    world.drain();
    world.apply(&config_map("web-7", "web-7", "app=web", "2"));
    assert_eq!(world.drain(), 1);
    world.apply(&config_map("web-7", "web-7", "app=web", "2"));
    assert_eq!(world.drain(), 0);
}

#[test]
fn a_cluster_scoped_object_meets_no_namespace_criterion() {
    let mut world = World::new(1);
    let all = json!([{"matchLabels": {}}]);
    world.placement(
        "p",
        &json!({"targets": all, "objects": [{"resources": ["namespaces"], "namespaceSelectors": all}]}),
    );
    world.placement("q", &json!({"targets": all, "objects": [{"resources": ["*"], "namespaces": ["shop"]}]}));
    assert_eq!(world.shown(), [""; 0]);
    world.placement("r", &json!({"targets": all, "objects": [{"resources": ["*"]}]}));
    assert_eq!(world.shown(), ["shop@0"]);
}

#[test]
fn criteria_and_within_a_clause_and_clauses_or() {
    let mut world = World::new(1);
    world.object("a", "app=web,tier=front");
    world.object("b", "app=web");
    world.object("c", "tier=front");
    let mut clause = json!({
        "resources": ["configmaps"], "names": ["a", "c"], "namespaces": ["shop"],
        "objectSelectors": [{"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "x"]}]}]
    });
    let spec = |clauses: &Value| json!({"targets": [{}], "objects": clauses});
    world.placement("p", &spec(&json!([clause])));
    assert_eq!(world.placed(), ["a@0"]);
    clause["names"] = json!(["b"]);
    world.placement("q", &spec(&json!([clause, {"resources": ["configmaps"], "names": ["c"]}])));
    assert_eq!(world.placed(), ["a@0", "b@0", "c@0"]);
    world.placement("p", &spec(&json!([{"apiGroup": "apps", "resources": ["*"]}])));
    world.wait(SETTLED);
    world.drain();
    world.wait(SETTLED);
    assert_eq!(world.placed(), ["b@0", "c@0"]);
}

#[test]
fn a_clause_restricts_only_by_the_criteria_that_it_names() {
    let mut world = World::new(1);
    world.object("config", "app=web");
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "deployment", "namespace": "shop", "uid": "deployment", "labels": {"app": "web"}},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}}}}
    });
    let deployments = GroupResource::new("apps", "deployments");
    world.index.apply(&space(), &deployments, clean::read(clean::SpaceServer::Embedded, &deployment).unwrap());
    world.index.listed(Part::Objects(&space(), &deployments));
    let web = json!([{"matchLabels": {"app": "web"}}]);
    let both = ["config@0", "deployment@0", "~shop@0"];
    for (clause, selected) in [
        (json!({"objectSelectors": web}), &both[..]),
        (json!({"apiGroup": "*", "objectSelectors": web}), &both),
        (json!({"namespaces": ["shop"]}), &both),
        (json!({"resources": ["configmaps", "deployments"]}), &both),
        (json!({"apiGroup": "*"}), &["config@0", "deployment@0", "shop@0"]),
        (json!({"apiGroup": "apps"}), &["deployment@0", "~shop@0"]),
        (json!({"apiGroup": "", "objectSelectors": web}), &["config@0", "~shop@0"]),
        (json!({"names": ["deployment"]}), &["deployment@0", "~shop@0"]),
    ] {
        world.placement("p", &json!({"targets": [{}], "objects": [clause]}));
        world.drain();
        world.wait(SETTLED);
        assert_eq!(world.shown(), selected, "{clause}");
    }
}

#[test]
fn targets_are_selected_by_name_as_by_label() {
    let mut world = World::new(4);
    world.object("web", "app=web");
    let named = |selectors: Value| json!({"targets": selectors, "objects": [{"resources": ["configmaps"]}]});
    world.placement("p", &named(json!([{"names": ["target-1", "target-3", "target-7"]}])));
    assert_eq!(world.placed(), ["web@1,3"]);
    world.target(7, "");
    assert_eq!(world.placed(), ["web@1,3,7"], "it may be named before it is there");
    world.placement(
        "p",
        &named(json!([{"names": ["target-1", "target-3"], "matchLabels": {"n": "3"}}, {"names": ["target-0"]}])),
    );
    world.drain();
    world.wait(SETTLED);
    assert_eq!(world.placed(), ["web@0,3"], "all that a selector says must hold");
    let targets = Allow {
        targets: serde_json::from_value(json!([{"names": ["target-0"]}])).unwrap(),
        locations: Vec::new(),
        ..Allow::everything()
    };
    world.index.apply_space(&space(), SpaceRule::try_from(&targets).unwrap());
    world.drain();
    world.wait(SETTLED);
    assert_eq!(world.placed(), ["web@0"]);
}

#[test]
fn objects_follow_the_labels_of_their_namespace() {
    let mut world = World::new(1);
    world.object("web", "");
    let team = json!([{"matchLabels": {"team": "b"}}]);
    world.placement("p", &json!({"targets": [{}], "objects": [{"resources": ["*"], "namespaceSelectors": team}]}));
    assert_eq!(world.placed(), [""; 0]);
    world.namespace("shop", "team=b");
    assert_eq!(world.placed(), ["web@0"]);
}

#[test]
fn targets_join_and_leave_by_their_labels_and_by_location() {
    let mut world = World::new(2);
    world.object("web", "app=web");
    world.location("eu", "continent=europe", "region=eu");
    let mut spec = simple("app=web", "tier=shop");
    spec["locations"] = json!([{"matchLabels": {"continent": "europe"}}]);
    world.placement("p", &spec);
    assert_eq!(world.placed(), [""; 0]);
    world.target(0, "tier=shop");
    world.target(1, "region=eu");
    assert_eq!(world.placed(), ["web@0,1"]);
    world.target(1, "region=us");
    world.location("us", "continent=europe", "region=us");
    assert_eq!(world.placed(), ["web@0,1"]);
    world.index.delete_location("us");
    world.drain();
    world.wait(SETTLED);
    assert_eq!(world.placed(), ["web@0"]);
}

#[test]
fn an_object_may_ask_for_locations_by_annotation() {
    let mut world = World::new(2);
    world.location("eu", "", "n=1");
    let mut object = config_map("web", "web", "", "1");
    object["metadata"]["annotations"] = json!({"tideline.dev/assigned-locations": "[\"eu\", \"nowhere\"]"});
    world.apply(&object);
    assert_eq!(world.placed(), ["web@1"]);
    assert!(!world.told.values().any(|told| told.variants[0].input.text.contains("assigned-locations")));
    world.index.apply_space(&space(), SpaceRule { annotation_assignment: false, ..all_rule() });
    world.drain();
    world.wait(SETTLED);
    assert_eq!(world.placed(), [""; 0]);
}

fn all_rule() -> SpaceRule {
    SpaceRule::try_from(&Allow::everything()).unwrap()
}

#[test]
fn a_placement_only_narrows_what_its_space_may_do() {
    let mut world = World::new(2);
    world.object("web", "app=web");
    world.placement("p", &simple("app=web", "all=yes"));
    let targets = ReachRule {
        locations: Vec::new(),
        targets: vec![TargetRule { labels: selector("n=1"), ..TargetRule::default() }],
    };
    world.index.apply_space(&space(), SpaceRule { reach: targets, ..all_rule() });
    assert_eq!(world.placed(), ["web@1"]);
    let kinds = Allow { kinds: vec!["Secret".into()], ..Allow::everything() };
    world.index.apply_space(&space(), SpaceRule::try_from(&kinds).unwrap());
    world.drain();
    world.wait(SETTLED);
    assert_eq!(world.placed(), [""; 0]);
    let status = world.index.placement_status(&space(), "p").unwrap();
    assert_eq!(status.counts, BTreeMap::from([(Reason::NotAllowed, 1)]));
}

#[test]
fn where_placements_overlap_the_least_destructive_holds_and_nowhere_else() {
    let mut world = World::new(3);
    world.object("web", "app=web");
    let with = |targets: &str, apply: &Value| {
        let mut spec = simple("app=web", targets);
        spec["objects"][0]["apply"] = apply.clone();
        spec
    };
    world.placement("p", &with("all=yes", &json!({"mode": "CreateOnly"})));
    world.placement("q", &with("n=1", &json!({"prune": "Orphan"})));
    world.drain();
    let told = world.told.values().find(|told| &*told.key.name == "web").unwrap();
    let mut forms: Vec<_> = told
        .variants
        .iter()
        .map(|variant| (variant.targets.iter().collect::<Vec<_>>(), variant.policy.mode, variant.policy.prune))
        .collect();
    forms.sort();
    assert_eq!(
        forms,
        [(vec![0, 2], ApplyMode::CreateOnly, Prune::Delete), (vec![1], ApplyMode::CreateOnly, Prune::Orphan)]
    );
    for name in ["p", "q"] {
        let status = world.index.placement_status(&space(), name).unwrap();
        assert_eq!(status.counts, BTreeMap::from([(Reason::Conflict, 1)]), "both say so");
    }
    world.index.delete_placement(&space(), "p");
    world.drain();
    world.wait(SETTLED);
    assert_eq!(world.placed(), ["web@1"]);
}

#[test]
fn an_unreadable_placement_keeps_its_last_good_form() {
    let mut world = World::new(1);
    world.object("web", "app=web");
    world.placement("p", &simple("app=web", "all=yes"));
    world.drain();
    world.index.apply_placement(&space(), "p", "p".parse().unwrap(), Err("spec is odd".into()));
    world.wait(SETTLED);
    assert_eq!(world.placed(), ["web@0"]);
    let status = world.index.placement_status(&space(), "p").unwrap();
    assert_eq!(status.problems[0].reason, Reason::Undecodable);
    world.placement("p", &simple("app=other", "all=yes"));
    world.drain();
    world.wait(SETTLED);
    assert_eq!(world.placed(), [""; 0]);
}

#[test]
fn an_unreadable_object_keeps_its_last_good_form_and_its_siblings_go_on() {
    let mut world = World::new(1);
    world.object("web", "app=web");
    world.placement("p", &simple("app=web", "all=yes"));
    world.drain();
    let mut odd = config_map("web", "web", "app=web", "2");
    odd["metadata"]["annotations"] = json!({"tideline.dev/wave": "soon"});
    world.apply(&odd);
    world.object("sibling", "app=web");
    assert_eq!(world.placed(), ["sibling@0", "web@0"]);
    assert!(world.told.values().any(|told| told.variants[0].input.text.contains(r#""value":"1""#)));
    let status = world.index.placement_status(&space(), "p").unwrap();
    assert_eq!(status.problems[0].object, Some(key("web")));
    let mut new = odd;
    new["metadata"]["name"] = "new".into();
    new["metadata"]["uid"] = "new".into();
    world.apply(&new);
    assert_eq!(world.placed(), ["sibling@0", "web@0"]);
    assert_eq!(world.index.placement_status(&space(), "p").unwrap().problems.len(), 2);
}

#[test]
fn labels_and_annotations_that_cannot_be_read_are_not_absent() {
    let clauses = json!([{
        "resources": ["configmaps"],
        "namespaceSelectors": [{"matchLabels": {"team": "a"}}],
        "objectSelectors": [{"matchLabels": {"app": "web"}}]
    }]);
    let mut world = World::new(1);
    world.location("eu", "tier=1", "all=yes");
    world.object("web", "app=web");
    let mut asking = config_map("asking", "asking", "", "1");
    asking["metadata"]["annotations"] = json!({"tideline.dev/assigned-locations": "[\"eu\"]"});
    world.apply(&asking);
    world.placement(
        "p",
        &json!({
            "locations": [{"matchLabels": {"tier": "1"}}],
            "objects": clauses
        }),
    );
    assert_eq!(world.placed(), ["asking@0", "web@0"]);

    world.index.apply_location("eu", Err("metadata.labels.tier: a number".to_owned()));
    asking["metadata"]["annotations"] = json!({"tideline.dev/assigned-locations": ["eu"]});
    let mut web = config_map("web", "web", "", "2");
    web["metadata"]["labels"] = json!({"app": 42});
    world.apply(&asking);
    world.apply(&web);
    world.odd_namespace();
    world.drain();
    world.wait(SETTLED);
    assert_eq!(world.placed(), ["asking@0", "web@0"]);
    let status = world.index.placement_status(&space(), "p").unwrap();
    let messages: Vec<_> = status.problems.iter().map(|problem| &*problem.message).collect();
    expect_test::expect![[r#"
        [
            "metadata.labels: \"app\" is 42, which is no string; put it in quotes; its last good form stays in force",
        ]
    "#]]
    .assert_debug_eq(&messages);
    let location = world.index.location_status("eu").unwrap().problem.unwrap();
    assert_eq!(location.1, "metadata.labels.tier: a number; its last good form stays in force");

    // A hub that never could read any of it knows no more.
    let mut world = World::restarted(world.told);
    world.target(0, "n=0,all=yes");
    world.location("eu", "tier=1", "all=yes");
    world.placement("p", &json!({"targets": [{}], "objects": clauses}));
    world.apply(&asking);
    world.object("web", "app=web");
    world.odd_namespace();
    world.list();
    world.drain();
    world.wait(SETTLED);
    assert_eq!(world.placed(), ["asking@0", "web@0"]);
    let status = world.index.placement_status(&space(), "p").unwrap();
    assert!(status.problems.iter().any(|problem| problem.message.contains("labels of the namespace shop")));
    world.namespace("shop", "team=b");
    world.drain();
    world.wait(SETTLED);
    assert_eq!(world.placed(), ["asking@0"]);
}

#[test]
fn a_system_object_is_not_placed_whatever_selects_it() {
    let mut world = World::new(1);
    world.object("kube-root-ca.crt", "");
    world.namespace("kube-system", "");
    world.placement("p", &json!({"targets": [{}], "objects": [{"resources": ["*"]}]}));
    assert_eq!(world.shown(), ["shop@0"]);
}

#[test]
fn a_choice_stays_when_a_better_target_joins() {
    let mut world = World::new(8);
    world.object("web", "app=web");
    let mut spec = simple("app=web", "all=yes");
    spec["numberOfTargets"] = json!(3);
    world.placement("p", &spec);
    let first = world.placed();
    let chosen = world.choices.values().next().unwrap().clone();
    assert_eq!(chosen.len(), 3);
    for nth in 8..64 {
        world.target(nth, "all=yes");
    }
    assert_eq!(world.placed(), first);
    let gone = chosen.min().unwrap();
    world.index.delete_target(gone);
    world.drain();
    let after = world.choices.values().next().unwrap().clone();
    assert_eq!((after.len(), (&after & &chosen).len()), (3, 2));
    spec["numberOfTargets"] = json!(1);
    world.placement("p", &spec);
    world.drain();
    assert!(world.choices.values().next().unwrap().is_subset(&after));
}

#[test]
fn an_unschedulable_target_gets_nothing_new_and_keeps_what_it_has() {
    let mut world = World::new(2);
    world.object("old", "app=web");
    world.placement("p", &simple("app=web", "all=yes"));
    world.drain();
    world.unschedulable(1, "all=yes");
    world.object("new", "app=web");
    assert_eq!(world.placed(), ["new@0", "old@0,1"]);
    world.target(1, "all=yes");
    assert_eq!(world.placed(), ["new@0,1", "old@0,1"]);
}

#[test]
fn a_rule_that_cannot_be_used_names_the_field() {
    let object = json!({
        "apiVersion": "tideline.dev/v1alpha1", "kind": "Placement", "metadata": {"name": "p"},
        "spec": {"objects": [{}, {"objectSelectors": [{"matchExpressions": [{"key": "a", "operator": "Is"}]}]}]}
    });
    let placement: Placement = tideline_api::decode(object).unwrap();
    let error = PlacementRule::try_from(&placement.spec).unwrap_err();
    expect_test::expect![[r#"spec.objects[0] does not say which objects it means; give it one of apiGroup, resources, namespaces, namespaceSelectors, objectSelectors and names, or apiGroup: "*" for every object"#]].assert_eq(&error.to_string());
}

#[test]
fn a_placement_with_a_readiness_gate_gives_it_to_all_that_it_assigns_and_to_nothing_else() {
    let mut world = World::new(1);
    world.object("a", "app=web");
    world.object("b", "app=web");
    let clause = |name: &str| json!([{"resources": ["configmaps"], "names": [name]}]);
    let ordering = json!({"readinessGate": true, "readinessDeadlineSeconds": 90});
    world.placement("p", &json!({"targets": [{}], "objects": clause("a"), "ordering": ordering}));
    world.placement("q", &json!({"targets": [{}], "objects": [{"resources": ["configmaps"]}]}));
    let gates = |world: &mut World, name: &str| -> Vec<(String, u32)> {
        assert_eq!(world.placed(), ["a@0", "b@0"]);
        let assignment = world.told.values().find(|assignment| &*assignment.key.name == name).unwrap();
        let gates = &assignment.variants[0].policy.gates;
        gates.iter().map(|gate| (gate.placement.clone(), gate.deadline_seconds)).collect()
    };
    assert_eq!(gates(&mut world, "a"), [("default/p".to_owned(), 90)]);
    assert_eq!(gates(&mut world, "b"), []);
    world.placement("p", &json!({"targets": [{}], "objects": clause("a"), "ordering": {"readinessGate": false}}));
    assert_eq!(gates(&mut world, "a"), []);
}
