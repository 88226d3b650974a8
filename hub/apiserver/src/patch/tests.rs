#![expect(clippy::needless_pass_by_value, reason = "json! literals read best passed by value")]

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::schema::builtin;

fn strategic(kind: (&str, &str, &str), document: &Value, patch: &Value) -> Value {
    let ty = builtin().type_of(kind.0, kind.1, kind.2).unwrap();
    strategic_merge(ty, document, patch).unwrap()
}

fn pod(document: Value, patch: Value) -> Value {
    strategic(("", "v1", "Pod"), &json!({"spec": document}), &json!({"spec": patch}))["spec"].take()
}

#[test]
fn rfc_7386_examples_hold() {
    for (document, patch, want) in [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!(["a"]), json!({"a": "b", "c": null}), json!({"a": "b"})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
    ] {
        assert_eq!(merge_patch(&document, &patch), want);
    }
}

proptest! {
    #[test]
    fn a_diff_leads_from_old_to_new(a in document(), b in document()) {
        prop_assert_eq!(merge_patch(&a, &diff(&a, &b)), b);
    }
}

fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![any::<i8>().prop_map(Value::from), "[ab]{0,2}".prop_map(Value::from)];
    let inner = leaf.prop_recursive(3, 12, 3, |inner| {
        prop::collection::btree_map("[abc]", inner, 0..3).prop_map(|map| Value::Object(map.into_iter().collect()))
    });
    prop::collection::btree_map("[abc]", inner, 0..3).prop_map(|map| Value::Object(map.into_iter().collect()))
}

#[test]
fn json_patch_runs_every_operation() {
    let document = json!({"a": [1, 2], "b": {"c/d": 1}, "e": 0});
    let patch = json!([
        {"op": "test", "path": "/b/c~1d", "value": 1},
        {"op": "add", "path": "/a/-", "value": 3},
        {"op": "add", "path": "/a/0", "value": 0},
        {"op": "replace", "path": "/a/1", "value": 9},
        {"op": "move", "from": "/b/c~1d", "path": "/m"},
        {"op": "copy", "from": "/a", "path": "/b/a"},
        {"op": "remove", "path": "/e"},
    ]);
    assert_eq!(json_patch(&document, &patch).unwrap(), json!({"a": [0, 9, 2, 3], "b": {"a": [0, 9, 2, 3]}, "m": 1}));
}

#[test]
fn json_patch_refuses_with_the_right_status() {
    let status = |patch: Value| json_patch(&json!({"a": [1]}), &patch).unwrap_err().status();
    assert_eq!(status(json!({})), 400);
    assert_eq!(status(json!([{"op": "frob", "path": "/a"}])), 400);
    assert_eq!(status(json!([{"op": "remove", "path": "a"}])), 400);
    assert_eq!(status(json!([{"op": "remove", "path": "/b"}])), 422);
    assert_eq!(status(json!([{"op": "remove", "path": "/a/01"}])), 422);
    assert_eq!(status(json!([{"op": "add", "path": "/a/2", "value": 1}])), 422);
    assert_eq!(status(json!([{"op": "test", "path": "/a/0", "value": 2}])), 422);
    assert_eq!(status(json!([{"op": "move", "from": "/a", "path": "/a/0"}])), 422);
    assert_eq!(status(Value::Array(vec![json!({"op": "test", "path": ""}); 10_001])), 413);
}

#[test]
fn json_patch_copies_are_bounded() {
    let copies: Vec<Value> =
        (0..40).map(|at| json!({"op": "copy", "from": "/a", "path": format!("/a/{at}")})).collect();
    let document = json!({"a": {"text": "x".repeat(100)}});
    assert_eq!(json_patch(&document, &Value::Array(copies)).unwrap_err().status(), 413);
}

#[test]
fn strategic_merge_merges_lists_by_key() {
    let got = pod(
        json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}),
        json!({"containers": [{"name": "b", "image": "2"}, {"name": "c", "image": "3"}]}),
    );
    assert_eq!(
        got,
        json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}, {"name": "c", "image": "3"}]})
    );
}

#[test]
fn strategic_merge_deletes_and_replaces_items() {
    let old =
        json!({"containers": [{"name": "a"}, {"name": "b"}], "securityContext": {"runAsUser": 1, "runAsGroup": 2}});
    assert_eq!(
        pod(old.clone(), json!({"containers": [{"name": "a", "$patch": "delete"}]}))["containers"],
        json!([{"name": "b"}])
    );
    assert_eq!(
        pod(old.clone(), json!({"containers": [{"$patch": "replace"}, {"name": "z"}]}))["containers"],
        json!([{"name": "z"}])
    );
    assert_eq!(
        pod(old.clone(), json!({"securityContext": {"$patch": "replace", "runAsUser": 3}}))["securityContext"],
        json!({"runAsUser": 3})
    );
    assert_eq!(pod(old, json!({"securityContext": null, "containers": null})), json!({}));
}

#[test]
fn strategic_merge_keeps_the_order_asked_for() {
    let got = pod(
        json!({"containers": [{"name": "a"}, {"name": "sidecar"}, {"name": "b"}]}),
        json!({
            "$setElementOrder/containers": [{"name": "b"}, {"name": "new"}, {"name": "a"}],
            "containers": [{"name": "new"}],
        }),
    );
    assert_eq!(got, json!({"containers": [{"name": "sidecar"}, {"name": "b"}, {"name": "new"}, {"name": "a"}]}));
}

#[test]
fn strategic_merge_handles_lists_of_scalars() {
    let ty = ("", "v1", "ConfigMap");
    let old = json!({"metadata": {"finalizers": ["a", "b"]}});
    assert_eq!(
        strategic(ty, &old, &json!({"metadata": {"finalizers": ["b", "c"]}}))["metadata"]["finalizers"],
        json!(["a", "b", "c"])
    );
    assert_eq!(
        strategic(ty, &old, &json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}))["metadata"]["finalizers"],
        json!(["b"])
    );
}

#[test]
fn strategic_merge_replaces_atomic_lists() {
    assert_eq!(
        pod(
            json!({"containers": [{"name": "a", "args": ["1", "2"]}]}),
            json!({"containers": [{"name": "a", "args": ["3"]}]}),
        ),
        json!({"containers": [{"name": "a", "args": ["3"]}]})
    );
}

#[test]
fn retain_keys_clears_the_other_member_of_a_union() {
    let got = strategic(
        ("apps", "v1", "Deployment"),
        &json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}),
        &json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
    );
    assert_eq!(got, json!({"spec": {"strategy": {"type": "Recreate"}}}));
}

#[test]
fn strategic_merge_into_nothing_leaves_no_directives() {
    let got = pod(
        json!({}),
        json!({"securityContext": {"runAsUser": null, "$retainKeys": []}, "containers": [{"name": "a", "image": null}]}),
    );
    assert_eq!(got, json!({"securityContext": {}, "containers": [{"name": "a"}]}));
}

#[test]
fn strategic_merge_refuses_items_without_their_key() {
    let ty = builtin().type_of("", "v1", "Pod").unwrap();
    for patch in [
        json!({"spec": {"containers": [{"image": "x"}]}}),
        json!({"spec": {"containers": ["x"]}}),
        json!({"spec": {"$patch": "frob"}}),
        json!([]),
    ] {
        assert_eq!(strategic_merge(ty, &json!({}), &patch).unwrap_err().status(), 400);
    }
}

/// The merge patch that turns `old` into `new`.
fn diff(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return new.clone();
    };
    let mut out = Map::new();
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        out.insert(name.clone(), Value::Null);
    }
    for (name, value) in new {
        match old.get(name) {
            Some(before) if before == value => {}
            Some(before) if before.is_object() && value.is_object() => {
                out.insert(name.clone(), diff(before, value));
            }
            Some(_) | None => {
                out.insert(name.clone(), value.clone());
            }
        }
    }
    Value::Object(out)
}

#[test]
fn copies_of_a_document_into_itself_are_refused_before_it_is_too_deep() {
    // Each copy doubles the depth: sixteen of them would make 65,536 levels.
    let (mut path, mut steps) = ("/a".to_owned(), Vec::new());
    for _ in 0..16 {
        steps.push(json!({"op": "copy", "from": "", "path": path}));
        path = path.repeat(2);
    }
    let refused = json_patch(&json!({"a": {}}), &Value::from(steps)).unwrap_err();
    assert_eq!(refused, Error::TooDeep);
    assert_eq!(refused.status(), 422);
    assert!(refused.to_string().contains("nested more than 120 levels deep"), "{refused}");
}

#[test]
fn moves_that_pile_values_up_are_refused_before_the_document_is_too_deep() {
    let half = (0..DEPTH_MAX / 2).fold(json!({}), |inner, _| json!({"a": inner}));
    let below = "/a".repeat(DEPTH_MAX / 2);
    let patch = json!([{"op": "move", "from": "/one", "path": format!("/two{below}/b")}]);
    assert_eq!(json_patch(&json!({"one": half, "two": half}), &patch).unwrap_err(), Error::TooDeep);
    assert!(json_patch(&json!({"one": {}, "two": half}), &patch).is_ok());
}

#[test]
fn a_json_patch_that_shifts_a_long_list_over_and_over_is_refused() {
    let document = json!({"list": vec![0; 100_000]});
    let patch = |times: usize| Value::from(vec![json!({"op": "add", "path": "/list/0", "value": 1}); times]);
    assert!(json_patch(&document, &patch(500)).is_ok());
    assert_eq!(json_patch(&document, &patch(1_000)).unwrap_err().status(), 413);
}

#[test]
fn a_strategic_merge_of_long_lists_takes_no_product_of_their_lengths() {
    let containers = |image: &str| {
        let all: Vec<Value> =
            (0..MERGED_LIST_ITEMS_MAX).map(|at| json!({"name": format!("c{at}"), "image": image})).collect();
        json!({"containers": all})
    };
    assert_eq!(pod(containers("old"), containers("new")), containers("new"));
    let finalizers = |from: usize| (from..from + 60_000).map(|at| Value::from(at.to_string())).collect::<Vec<_>>();
    let got = strategic(
        ("", "v1", "Pod"),
        &json!({"metadata": {"finalizers": finalizers(0)}}),
        &json!({"metadata": {"$deleteFromPrimitiveList/finalizers": finalizers(1)}}),
    );
    assert_eq!(got, json!({"metadata": {"finalizers": ["0"]}}));
}
