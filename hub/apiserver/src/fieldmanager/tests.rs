#![expect(clippy::needless_pass_by_value, reason = "json! literals read best passed by value")]

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::path::PathElement;
use super::*;
use crate::schema::{NodeId, builtin};

const T1: &str = "2026-01-01T00:00:01Z";
const T2: &str = "2026-01-01T00:00:02Z";

fn ty(kind: &str) -> TypeRef<'static> {
    let (group, version) = if kind == "Deployment" { ("apps", "v1") } else { ("", "v1") };
    builtin().type_of(group, version, kind).unwrap()
}

fn writer<'a>(manager: &'a str, now: &'a str, ignored: &'a Set) -> Writer<'a> {
    Writer { manager, api_version: "apps/v1", subresource: "", now, ignored }
}

fn deployment(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}, "spec": spec})
}

fn config_map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "namespace": "shop"}, "data": data})
}

fn applied(live: Option<&Value>, config: &Value, manager: &str, now: &str) -> Written {
    try_apply(live, config, manager, now, Force::No).unwrap()
}

fn try_apply(
    live: Option<&Value>,
    config: &Value,
    manager: &str,
    now: &str,
    force: Force,
) -> Result<Written, ApplyError> {
    let ignored = ignored_fields(true, "");
    let kind = config["kind"].as_str().unwrap();
    apply(ty(kind), live, config, &writer(manager, now, &ignored), force)
}

fn updated(live: Option<&Value>, new: &Value, manager: &str, now: &str) -> Written {
    let ignored = ignored_fields(true, "");
    let kind = new["kind"].as_str().unwrap();
    track_update(ty(kind), live, new, &writer(manager, now, &ignored))
}

/// One line an entry: manager, operation, subresource, time, fields.
fn owners(object: &Value) -> String {
    let entries = object.pointer(MANAGED_FIELDS).and_then(Value::as_array);
    let lines = entries.into_iter().flatten().map(|entry| {
        let text = |name: &str| entry[name].as_str().unwrap_or("-");
        let (_, second) = text("time").split_at(text("time").len().saturating_sub(3));
        format!("{} {} {} {}", text("manager"), text("operation"), second, entry["fieldsV1"])
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn check_owners(object: &Value, want: &Expect) {
    want.assert_eq(&owners(object));
}

#[test]
fn an_apply_creates_and_owns_what_it_says() {
    let config = deployment(json!({
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "app", "image": "web:1", "args": ["-v"], "ports": [{"containerPort": 80}]}]},
        },
    }));
    let written = applied(None, &config, "argo", T1);
    assert!(written.changed);
    check_owners(
        &written.object,
        &expect![[
            r#"argo Apply 01Z {"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:args":{},"f:image":{},"f:name":{},"f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}}}}}}"#
        ]],
    );
}

#[test]
fn a_post_owns_what_a_go_server_says_it_owns() {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"a": "b"}, "uid": "u"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"rollingUpdate": {"maxSurge": 1}, "type": "RollingUpdate"},
            "template": {"spec": {"containers": [{"name": "app", "resources": {}}], "volumes": [{"name": "v"}]}},
        },
        "status": {"replicas": 1},
    });
    check_owners(
        &updated(None, &object, "kubectl-create", T1).object,
        &expect![[
            r#"kubectl-create Update 01Z {"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:selector":{},"f:strategy":{"f:rollingUpdate":{".":{},"f:maxSurge":{}},"f:type":{}},"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:name":{},"f:resources":{}}},"f:volumes":{".":{},"k:{\"name\":\"v\"}":{".":{},"f:name":{}}}}}}}"#
        ]],
    );
}

#[test]
fn applying_the_same_again_changes_nothing() {
    let config = config_map(json!({"a": "1"}));
    let first = applied(None, &config, "argo", T1);
    let again = applied(Some(&first.object), &config, "argo", T2);
    assert_eq!(again, Written { object: first.object, changed: false });
}

#[test]
fn dropped_fields_are_removed() {
    let first = applied(None, &config_map(json!({"a": "1", "b": "2"})), "argo", T1);
    let then = applied(Some(&first.object), &config_map(json!({"b": "2"})), "argo", T2);
    assert_eq!(then.object["data"], json!({"b": "2"}));
    check_owners(&then.object, &expect![[r#"argo Apply 02Z {"f:data":{"f:b":{}}}"#]]);
    let none = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "namespace": "shop"}});
    let empty = applied(Some(&then.object), &none, "argo", T2);
    assert_eq!(empty.object, none);
}

#[test]
fn a_dropped_field_that_another_owns_stays() {
    let first = applied(None, &config_map(json!({"a": "1", "b": "2"})), "argo", T1);
    let shared = applied(Some(&first.object), &config_map(json!({"a": "1"})), "flux", T1);
    let then = applied(Some(&shared.object), &config_map(json!({"b": "2"})), "argo", T2);
    assert_eq!(then.object["data"], json!({"a": "1", "b": "2"}));
    check_owners(
        &then.object,
        &expect![[r#"
            flux Apply - {"f:data":{"f:a":{}}}
            argo Apply 01Z {"f:data":{"f:b":{}}}"#]],
    );
}

#[test]
fn a_field_of_another_with_another_value_is_a_conflict() {
    let first = applied(None, &deployment(json!({"replicas": 1})), "argo", T1);
    let config = deployment(json!({"replicas": 2}));
    let error = try_apply(Some(&first.object), &config, "flux", T2, Force::No).unwrap_err();
    assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"argo\": .spec.replicas");
    let ApplyError::Conflicts(Conflicts { told: conflicts, .. }) = error else { panic!("{error}") };
    assert_eq!(conflicts[0].message(), "conflict with \"argo\"");
    assert_eq!(conflicts[0].field, ".spec.replicas");

    let forced = try_apply(Some(&first.object), &config, "flux", T2, Force::Yes).unwrap();
    assert_eq!(forced.object["spec"]["replicas"], 2);
    check_owners(&forced.object, &expect![[r#"flux Apply 02Z {"f:spec":{"f:replicas":{}}}"#]]);
}

#[test]
fn several_conflicts_are_listed_by_manager() {
    let template = |image: &str, replicas: u32| {
        deployment(
            json!({"replicas": replicas, "template": {"spec": {"containers": [{"name": "app", "image": image}]}}}),
        )
    };
    let live = updated(None, &template("a", 1), "kubectl-edit", T1);
    let error = try_apply(Some(&live.object), &template("b", 2), "flux", T2, Force::No).unwrap_err();
    expect![[r#"
        Apply failed with 2 conflicts: conflicts with "kubectl-edit" using apps/v1:
        - .spec.replicas
        - .spec.template.spec.containers[name="app"].image"#]]
    .assert_eq(&error.to_string());
}

#[test]
fn the_same_value_is_shared() {
    let first = applied(None, &deployment(json!({"replicas": 1})), "argo", T1);
    let shared = applied(Some(&first.object), &deployment(json!({"replicas": 1})), "flux", T2);
    assert!(shared.changed);
    // The object is as it was, so the entry has no time of its own: a real server does the same.
    check_owners(
        &shared.object,
        &expect![[r#"
            flux Apply - {"f:spec":{"f:replicas":{}}}
            argo Apply 01Z {"f:spec":{"f:replicas":{}}}"#]],
    );
}

#[test]
fn an_update_takes_what_it_changes() {
    let first = applied(None, &config_map(json!({"a": "1", "b": "2", "c": "3"})), "argo", T1);
    let mut new = first.object.clone();
    new["data"] = json!({"a": "1", "b": "changed", "d": "4"});
    let then = updated(Some(&first.object), &new, "kubectl-edit", T2);
    check_owners(
        &then.object,
        &expect![[r#"
            argo Apply 01Z {"f:data":{"f:a":{}}}
            kubectl-edit Update 02Z {"f:data":{"f:b":{},"f:d":{}}}"#]],
    );
    let again = updated(Some(&then.object), &then.object, "kubectl-edit", "2026-01-01T00:00:03Z");
    assert!(!again.changed);
}

#[test]
fn fields_from_before_the_first_apply_have_an_owner() {
    let live = config_map(json!({"a": "1"}));
    let error = try_apply(Some(&live), &config_map(json!({"a": "2"})), "argo", T1, Force::No).unwrap_err();
    expect![[r#"Apply failed with 1 conflict: conflict with "before-first-apply" using apps/v1: .data.a"#]]
        .assert_eq(&error.to_string());
}

#[test]
fn an_untracked_object_stays_untracked_by_updates() {
    let live = config_map(json!({"a": "1"}));
    let written = updated(Some(&live), &config_map(json!({"a": "2"})), "kubectl-edit", T1);
    assert_eq!(owners(&written.object), "");
}

#[test]
fn a_client_may_reset_ownership() {
    let first = applied(None, &config_map(json!({"a": "1"})), "argo", T1);
    for reset in [json!([]), json!([{}])] {
        let mut new = first.object.clone();
        new["metadata"]["managedFields"] = reset;
        let written = updated(Some(&first.object), &new, "kubectl-edit", T2);
        assert!(written.changed);
        assert_eq!(owners(&written.object), "");
    }
    let mut silent = first.object.clone();
    silent["metadata"].as_object_mut().unwrap().remove("managedFields");
    assert!(!updated(Some(&first.object), &silent, "kubectl-edit", T2).changed);
}

#[test]
fn status_has_an_entry_of_its_own() {
    let ignored = ignored_fields(true, "status");
    let first = applied(None, &deployment(json!({"replicas": 1})), "argo", T1);
    let mut new = first.object.clone();
    new["status"] = json!({"replicas": 1});
    let status = Writer { subresource: "status", ..writer("argo", T2, &ignored) };
    let written = track_update(ty("Deployment"), Some(&first.object), &new, &status);
    let entry = &written.object["metadata"]["managedFields"][1];
    assert_eq!(entry["subresource"], "status");
    assert_eq!(entry["fieldsV1"], json!({"f:status": {"f:replicas": {}}}));

    let error = apply(
        ty("Deployment"),
        Some(&written.object),
        &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "status": {"replicas": 2}}),
        &Writer { manager: "flux", ..status },
        Force::No,
    );
    expect![[r#"Apply failed with 1 conflict: conflict with "argo" with subresource "status" using apps/v1: .status.replicas"#]]
        .assert_eq(&error.unwrap_err().to_string());
}

#[test]
fn an_atomic_value_is_owned_and_replaced_whole() {
    let config = |labels: Value| deployment(json!({"selector": {"matchLabels": labels}}));
    let first = applied(None, &config(json!({"a": "1", "b": "2"})), "argo", T1);
    let then = applied(Some(&first.object), &config(json!({"b": "2"})), "argo", T2);
    assert_eq!(then.object["spec"]["selector"], json!({"matchLabels": {"b": "2"}}));
    let error = try_apply(Some(&then.object), &config(json!({})), "flux", T2, Force::No).unwrap_err();
    assert!(error.to_string().ends_with(": .spec.selector"), "{error}");
}

#[test]
fn sets_merge_by_value() {
    let config = |finalizers: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "finalizers": finalizers}});
    let first = applied(None, &config(json!(["a/a", "a/b"])), "argo", T1);
    let second = applied(Some(&first.object), &config(json!(["a/c"])), "flux", T1);
    assert_eq!(second.object["metadata"]["finalizers"], json!(["a/a", "a/b", "a/c"]));
    let third = applied(Some(&second.object), &config(json!(["a/b"])), "argo", T2);
    assert_eq!(third.object["metadata"]["finalizers"], json!(["a/b", "a/c"]));
    check_owners(
        &third.object,
        &expect![[r#"
            flux Apply 01Z {"f:metadata":{"f:finalizers":{"v:\"a/c\"":{}}}}
            argo Apply 02Z {"f:metadata":{"f:finalizers":{"v:\"a/b\"":{}}}}"#]],
    );
}

#[test]
fn list_items_follow_the_order_applied() {
    let config = |names: &[&str]| {
        let containers: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        deployment(json!({"template": {"spec": {"containers": containers}}}))
    };
    let names = |written: &Written| {
        let containers = written.object.pointer("/spec/template/spec/containers").unwrap().as_array().unwrap().clone();
        containers.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect::<String>()
    };
    let first = applied(None, &config(&["a", "b", "c"]), "argo", T1);
    let second = applied(Some(&first.object), &config(&["d", "b"]), "flux", T1);
    assert_eq!(names(&second), "adbc");
    let third = applied(Some(&second.object), &config(&["c", "b", "a"]), "argo", T2);
    assert_eq!(names(&third), "dcba");
    let fourth = applied(Some(&third.object), &config(&["c", "a"]), "argo", T2);
    assert_eq!(names(&fourth), "dcba", "b is flux's as well");
}

#[test]
fn duplicate_keys_are_refused() {
    let config = deployment(json!({"template": {"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}}));
    let error = try_apply(None, &config, "argo", T1, Force::No).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to create typed patch object (shop/web; apps/v1, Kind=Deployment): \
         .spec.template.spec.containers: duplicate entries for key [name=\"a\"]"
    );
}

#[test]
fn configurations_that_do_not_fit_are_refused() {
    for (spec, message) in [
        (json!({"replica": 1}), ".spec.replica: field not declared in schema"),
        (json!({"replicas": "1"}), ".spec.replicas: expected numeric (int or float), got \"1\""),
        (json!({"template": []}), ".spec.template: expected map, got []"),
        (json!({"template": {"spec": {"containers": [null]}}}), "may not have non-map elements"),
    ] {
        let error = try_apply(None, &deployment(spec), "argo", T1, Force::No).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
    let mut config = deployment(json!({}));
    config["metadata"]["managedFields"] = json!([]);
    let error = try_apply(None, &config, "argo", T1, Force::No).unwrap_err();
    assert_eq!(error, ApplyError::ManagedFieldsInPatch);
}

#[test]
fn kubectl_takes_over_what_its_annotation_says() {
    let last = config_map(json!({"a": "1"}));
    let mut live = config_map(json!({"a": "1"}));
    live["metadata"]["annotations"] = json!({LAST_APPLIED: last.to_string()});
    let ignored = Set::default();
    let by = |manager| Writer { api_version: "v1", ..writer(manager, T1, &ignored) };
    let live = track_update(ty("ConfigMap"), None, &live, &by("kubectl-client-side-apply")).object;
    let config = config_map(json!({"a": "2"}));
    let written = apply(ty("ConfigMap"), Some(&live), &config, &by("kubectl"), Force::No).unwrap();
    assert_eq!(written.object["data"]["a"], "2");
    let annotation = written.object["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap();
    assert_eq!(annotation, format!("{config}\n"));
    assert!(matches!(
        apply(ty("ConfigMap"), Some(&live), &config, &by("flux"), Force::No),
        Err(ApplyError::Conflicts(_))
    ));
}

#[test]
fn updaters_are_capped() {
    let mut live = applied(None, &config_map(json!({})), "argo", T1).object;
    live["metadata"]["managedFields"] = json!([{
        "manager": "m00", "operation": "Update", "apiVersion": "apps/v1", "time": T1,
        "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:k00": {}}},
    }]);
    for at in 1..15 {
        let mut new = live.clone();
        new["data"][format!("k{at:02}")] = json!("x");
        let now = format!("2026-01-01T00:01:{at:02}Z");
        live = updated(Some(&live), &new, &format!("m{at:02}"), &now).object;
    }
    let entries = live["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 10);
    assert_eq!(entries[0]["manager"], "ancient-changes");
    assert_eq!(entries[0]["fieldsV1"]["f:data"].as_object().unwrap().len(), 6);
}

#[test]
fn ownership_below_what_became_atomic_is_ownership_of_the_whole() {
    let set = Set::parse(&json!({"f:spec": {"f:selector": {".": {}, "f:matchLabels": {"f:a": {}}}}})).unwrap();
    assert_eq!(set.reconciled(ty("Deployment")).encode(), json!({"f:spec": {"f:selector": {}}}));
}

#[test]
fn fields_v1_reads_what_others_wrote() {
    let text = json!({
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
        "f:list": {"k:{\"a\":1,\"b\":\"x\"}": {".": {}, "f:a": {}}, "v:5": {}, "i:3": {}},
        "z:later": {},
    });
    let set = Set::parse(&text).unwrap();
    let mut expected = text;
    expected.as_object_mut().unwrap().remove("z:later");
    assert_eq!(set.encode(), expected);
    for bad in [json!({"x": {}}), json!({"k:[]": {}}), json!({"i:x": {}}), json!({"longer:x": {}})] {
        assert!(Set::parse(&bad).is_err(), "{bad}");
    }
}

fn set() -> impl Strategy<Value = Set> {
    let path = prop::collection::vec("[abc]".prop_map(PathElement::field), 1..4);
    prop::collection::vec(path, 0..8).prop_map(|paths| {
        let mut set = Set::default();
        for path in &paths {
            set.insert(path);
        }
        set
    })
}

fn data() -> impl Strategy<Value = Value> {
    prop::collection::btree_map("[a-d]", "[xy]", 0..4).prop_map(|data| json!(data))
}

proptest! {
    #[test]
    fn set_algebra_holds(a in set(), b in set()) {
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.intersection(&b).union(&a.difference(&b)), a.clone());
        prop_assert!(a.difference(&b).intersection(&b).is_empty());
        prop_assert_eq!(Set::parse(&a.encode()).unwrap(), a);
    }

    #[test]
    fn the_last_apply_of_each_manager_is_in_the_object(steps in prop::collection::vec((0..3_usize, data()), 1..12)) {
        let managers = ["argo", "flux", "helm"];
        let mut live: Option<Value> = None;
        let mut last = [None, None, None];
        for (who, data) in steps {
            let config = config_map(data.clone());
            let written = try_apply(live.as_ref(), &config, managers[who], T1, Force::Yes).unwrap();
            last[who] = Some(data.clone());
            // Whoever lost a field to force does not claim it any more.
            for (_, theirs) in last.iter_mut().enumerate().filter(|(other, _)| *other != who) {
                if let Some(Value::Object(theirs)) = theirs {
                    theirs.retain(|key, value| data.get(key).is_none_or(|ours| ours == value));
                }
            }
            let mut want = serde_json::Map::new();
            for data in last.iter().flatten() {
                want.extend(data.as_object().unwrap().clone());
            }
            let found = written.object.get("data").and_then(Value::as_object).cloned().unwrap_or_default();
            prop_assert_eq!(found, want);
            let again = try_apply(Some(&written.object), &config, managers[who], T2, Force::No).unwrap();
            prop_assert!(!again.changed);
            live = Some(written.object);
        }
    }

    #[test]
    fn merging_a_value_with_itself_changes_nothing(data in data()) {
        let object = config_map(data);
        prop_assert_eq!(walk::merge(ty("ConfigMap"), &object, &object).unwrap(), object.clone());
        prop_assert_eq!(walk::compare(ty("ConfigMap"), &object, &object), Comparison::default());
    }
}

#[test]
fn of_very_many_conflicts_the_first_are_told_and_the_others_counted() {
    let ty = builtin().type_of("", "v1", "ConfigMap").unwrap();
    let long = "n".repeat(1_000_000);
    let map = |value: &str| {
        let mut data: Map<String, Value> = (0..5_000).map(|at| (format!("k{at}"), json!(value))).collect();
        data.insert(long.clone(), json!(value));
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
    };
    let writer = |manager| Writer {
        manager,
        api_version: "v1",
        subresource: "",
        now: "2026-01-02T03:04:05Z",
        ignored: &STRIPPED,
    };
    let live = apply(ty, None, &map("old"), &writer("one"), Force::No).unwrap().object;
    let error = apply(ty, Some(&live), &map("new"), &writer("two"), Force::No).unwrap_err();
    let ApplyError::Conflicts(conflicts) = &error else { panic!("{error}") };
    assert_eq!((conflicts.told.len(), conflicts.more), (1_000, 4_001));
    let text = error.to_string();
    assert!(text.starts_with("Apply failed with 5001 conflicts: ") && text.ends_with("\nand 4001 more"), "{text}");
}

#[test]
fn objects_below_one_long_name_are_owned_without_a_copy_of_it_for_each() {
    let ty = builtin().type_of("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap().sibling(NodeId::ANY);
    let below: Map<String, Value> = (0..50_000).map(|at| (at.to_string(), json!({"a": 1}))).collect();
    let object = json!({"n".repeat(1_000_000): below});
    let set = walk::field_set(ty, &object);
    let mut paths = 0;
    set.each(&mut |_| paths += 1);
    assert_eq!(paths, 100_001);
    assert_eq!(walk::compare(ty, &json!({}), &object).added, set);
}
