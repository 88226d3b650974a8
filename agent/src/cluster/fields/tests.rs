use proptest::prelude::*;
use serde_json::{Value, json};
use tideline_common::FieldPath;

use super::*;

const READ: &str = "fields that can be read";

fn applied(entries: &[ManagedFields], manager: &str) -> Option<Value> {
    applied_by(entries, manager).expect(READ)
}

fn entries(value: &Value) -> Vec<ManagedFields> {
    serde_json::from_str(&value.to_string()).expect("managedFields")
}

fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
}

#[test]
fn an_update_entry_from_post_becomes_an_apply_entry() {
    let posted = json!({"f:data": {".": {}, "f:a": {}}});
    let before =
        entries(&json!([entry("tideline", "Update", &posted), entry("kubectl", "Update", &json!({"f:x": {}}))]));
    let after = claim_posted(&before).expect(READ).expect("an entry was posted");
    assert_eq!(applied(&after, "tideline"), Some(posted.clone()));
    assert_eq!(after.len(), 2);
    assert!(claim_posted(&after).expect(READ).is_none());
}

#[test]
fn an_update_entry_from_post_is_merged_into_the_apply_entry() {
    let before = entries(&json!([
        entry("tideline", "Update", &json!({"f:data": {".": {}, "f:a": {}}})),
        entry("tideline", "Apply", &json!({"f:data": {"f:b": {}}})),
    ]));
    let after = claim_posted(&before).expect(READ).expect("an entry was posted");
    assert_eq!(after.len(), 1);
    assert_eq!(applied(&after, "tideline"), Some(json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}})));
}

#[test]
fn an_adopted_object_loses_former_writers_for_our_fields_only() {
    let ours =
        json!({"f:spec": {"f:replicas": {}, "f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:image": {}}}}});
    let before = entries(&json!([
        entry("tideline", "Apply", &ours),
        entry("kubectl-client-side-apply", "Update",
            &json!({"f:spec": {"f:replicas": {}, "f:paused": {}, "f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:image": {}, "f:args": {}}}}})),
        entry("helper", "Update", &json!({"f:spec": {"f:replicas": {}}})),
        entry("argocd", "Apply", &json!({"f:spec": {"f:replicas": {}}})),
        {"manager": "controller", "operation": "Update", "subresource": "status", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
    ]));
    let after = claim_from_others(&before).expect(READ).expect("something changes");
    let managers: Vec<_> = after.iter().map(|entry| entry.manager.as_deref().unwrap_or_default()).collect();
    assert_eq!(managers, ["tideline", "kubectl-client-side-apply", "argocd", "controller"]);
    let rest = json!({"f:spec": {"f:paused": {}, "f:containers": {"k:{\"name\":\"web\"}": {"f:args": {}}}}});
    assert_eq!(tree(&after[1]).expect(READ), Some(rest.clone()));
    assert!(claim_from_others(&after).expect(READ).is_none());
}

/// As a controller manages a status of 200 levels.
#[test]
fn fields_too_deep_to_be_read_hinder_only_who_needs_them() {
    let deep = format!("{}{}{}", r#"{"f:a":"#.repeat(200), "{}", "}".repeat(200));
    let deep = |manager: &str, operation: &str, subresource: &str| -> ManagedFields {
        let text = format!(
            r#"{{"manager":"{manager}","operation":"{operation}","subresource":"{subresource}","fieldsV1":{deep}}}"#
        );
        serde_json::from_str(&text).expect("an entry of managedFields")
    };
    let ours = json!({"f:data": {"f:a": {}}});
    let of = |other: ManagedFields| {
        let mut entries = entries(&json!([entry("tideline", "Update", &ours)]));
        entries.push(other);
        entries
    };
    let claimed = divide(&of(deep("controller", "Update", "status")), None).expect(READ).expect("an entry was posted");
    assert_eq!(applied(&claimed, "tideline"), Some(ours.clone()));
    assert!(serde_json::to_string(&claimed).expect("it is sent").contains(&r#"{"f:a":"#.repeat(200)), "as it came");
    assert!(claim_from_others(&claimed).expect(READ).is_none());
    assert_eq!(without_ours(&claimed).len(), 1);

    let others = of(deep("kubectl", "Update", ""));
    let claimed = divide(&others, None).expect(READ).expect("an entry was posted");
    let failure = claim_from_others(&claimed).expect_err("what is kubectl's is to be read");
    assert!(failure.message.starts_with("the fields that \"kubectl\" manages of it cannot be read"), "{failure:?}");
    assert_eq!(failure.reason, Reason::Undecodable);
}

#[test]
fn fields_are_found_in_a_set_by_their_keys() {
    let set = json!({
        "f:metadata": {"f:labels": {"f:a/b": {}}},
        "f:spec": {"f:replicas": {}, "f:selector": {}, "f:containers": {
            r#"k:{"name":"web"}"#: {".": {}, "f:image": {}, "f:ports": {
                r#"k:{"containerPort":80,"protocol":"TCP"}"#: {".": {}, "f:name": {}}}}}},
        "f:finalizers": {r#"v:"x""#: {}},
    });
    let object = json!({
        "metadata": {"labels": {"a/b": "1"}},
        "spec": {
            "replicas": 1, "paused": true, "selector": {"app": "web"},
            "containers": [{"name": "side", "image": "s"},
                {"name": "web", "image": "w", "ports": [{"containerPort": 80, "name": "http"}]}],
        },
        "finalizers": ["y", "x"],
    });
    let check = |path: &str, expected: &[&str]| {
        for way in FieldPath::parse(path).expect(path).find(&object) {
            let located = locate(&set, &object, &way);
            match expected {
                ["in atomic"] => assert_eq!(located, Located::InAtomic, "{path}"),
                [] => assert_eq!(located, Located::Nobodys, "{path}"),
                keys => assert_eq!(located, Located::Keys(keys.iter().map(ToString::to_string).collect()), "{path}"),
            }
        }
    };
    let web = r#"k:{"name":"web"}"#;
    let port = r#"k:{"containerPort":80,"protocol":"TCP"}"#;
    check("/metadata/labels/a~1b", &["f:metadata", "f:labels", "f:a/b"]);
    check("/spec/replicas", &["f:spec", "f:replicas"]);
    check("/spec/paused", &[]);
    check("/spec/selector/app", &["in atomic"]);
    check("/spec/containers/0/image", &[]);
    check("$.spec.containers[?(@.name=='web')].image", &["f:spec", "f:containers", web, "f:image"]);
    check("/spec/containers/1/ports/0/name", &["f:spec", "f:containers", web, "f:ports", port, "f:name"]);
    check("/finalizers/1", &["f:finalizers", r#"v:"x""#]);
}

#[test]
fn our_fields_are_split_between_our_managers_and_joined_again() {
    let all = json!({"f:spec": {"f:replicas": {}, "f:paused": {}}});
    let replicas = json!({"f:spec": {"f:replicas": {}}});
    let paused = json!({"f:spec": {"f:paused": {}}});
    let posted = entries(&json!([entry("tideline", "Update", &all), entry("kubectl", "Apply", &replicas)]));
    let divided = divide(&posted, Some(&replicas)).expect(READ).expect("it was not divided");
    assert_eq!(applied(&divided, "tideline"), Some(paused.clone()));
    assert_eq!(applied(&divided, "tideline-initial"), Some(replicas.clone()));
    assert_eq!((divided.len(), applied(&divided, "kubectl")), (3, Some(replicas.clone())));
    assert!(divide(&divided, Some(&replicas)).expect(READ).is_none());

    let exchanged = divide(&divided, Some(&paused)).expect(READ).expect("it was divided otherwise");
    assert_eq!(applied(&exchanged, "tideline"), Some(replicas.clone()));
    let whole = divide(&exchanged, None).expect(READ).expect("it was divided");
    assert_eq!((applied(&whole, "tideline"), applied(&whole, "tideline-initial")), (Some(all.clone()), None));
    assert!(divide(&whole, None).expect(READ).is_none());
    assert!(divide(&entries(&json!([entry("kubectl", "Apply", &all)])), None).expect(READ).is_none());
}

#[test]
fn conflicting_fields_are_found_by_the_servers_text() {
    let object = json!({
        "metadata": {"labels": {"app.kubernetes.io/name": "web", "app": "x"}, "finalizers": ["a.b/c"]},
        "spec": {"replicas": 2, "containers": [
            {"name": "side", "image": "s"},
            {"name": "web", "image": "w", "ports": [{"containerPort": 80, "protocol": "TCP", "name": "http"}]}]},
    });
    let check = |path: &str, pointer: &str| {
        let mut left = object.clone();
        assert!(remove_named(&mut left, path), "{path}");
        let mut expected = object.clone();
        for way in FieldPath::parse(pointer).expect(pointer).find(&object) {
            way.remove(&mut expected);
        }
        assert_eq!(left, expected, "{path}");
    };
    check(".spec.replicas", "/spec/replicas");
    check(".metadata.labels.app.kubernetes.io/name", "/metadata/labels/app.kubernetes.io~1name");
    check(r#".spec.containers[name="web"].image"#, "/spec/containers/1/image");
    check(
        r#".spec.containers[name="web"].ports[containerPort=80,protocol="TCP"].name"#,
        "/spec/containers/1/ports/0/name",
    );
    check(r#".metadata.finalizers[="a.b/c"]"#, "/metadata/finalizers/0");
    for absent in [".spec.paused", r#".spec.containers[name="db"].image"#, "spec", ".", "[0]", ""] {
        assert!(!remove_named(&mut object.clone(), absent), "{absent}");
    }
}

fn set() -> impl Strategy<Value = Value> {
    let leaf = Just(json!({}));
    leaf.prop_recursive(3, 12, 3, |inner| {
        (proptest::collection::btree_map("f:[a-c]", inner, 1..3), any::<bool>()).prop_map(|(children, member)| {
            let mut map: Map<String, Value> = children.into_iter().collect();
            if member {
                map.insert(".".to_owned(), json!({}));
            }
            Value::Object(map)
        })
    })
}

proptest! {
    #[test]
    fn subtracting_a_field_set_removes_it_and_keeps_the_rest(a in set(), b in set()) {
        prop_assert_eq!(subtract(&a, &a), None);
        let mut both = a.clone();
        unite(&mut both, &b);
        prop_assert_eq!(subtract(&a, &both), None);
        prop_assert_eq!(subtract(&b, &both), None);
        if let Some(rest) = subtract(&both, &a) {
            prop_assert_eq!(subtract(&rest, &b), None);
            prop_assert_eq!(subtract(&rest, &a), Some(rest.clone()));
        }
    }
}
