use std::fmt::Write as _;

use expect_test::{Expect, expect};
use serde_json::{Value, json};
use tideline_common::GroupKind;

use super::{differences, still_local};
use crate::core::{Difference, Values};

fn check(kind: &str, assigned: &Value, found: &Value, ours: &Value, expected: &Expect) {
    let differences = differences(&GroupKind::new("", kind), assigned, found, ours);
    let mut text = String::new();
    for Difference { field, values } in &differences.named {
        let _ = match values {
            Values::Are { assigned, found } => writeln!(text, "{field}: {assigned} → {found}"),
            Values::Gone { assigned } => writeln!(text, "{field}: {assigned} → nothing"),
            Values::Redacted => writeln!(text, "{field}: redacted"),
        };
    }
    let _ = writeln!(text, "{} in all", differences.total);
    expected.assert_eq(&text);
}

/// What the API server says of a Deployment somebody scaled with kubectl and gave another image.
#[test]
fn fields_that_others_took_and_changed_are_named() {
    let pod = |image: &str| {
        json!({"containers": [{"name": "web", "image": image, "resources": {"limits": {"cpu": "0.5"}}},
                              {"name": "log", "image": "log:1"}]})
    };
    let assigned = json!({"spec": {"replicas": 3, "paused": false, "template": {"spec": pod("web:1")}}});
    let mut found = json!({"spec": {"replicas": 5, "template": {"spec": pod("web:2")}}, "status": {"replicas": 5}});
    found["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] = json!("500m");
    found["spec"]["template"]["spec"]["dnsPolicy"] = json!("ClusterFirst");
    let ours = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {
        "k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:resources": {"f:limits": {"f:cpu": {}}}},
        "k:{\"name\":\"log\"}": {".": {}, "f:name": {}, "f:image": {}},
    }}}}});
    check(
        "Deployment",
        &assigned,
        &found,
        &ours,
        &expect![[r#"
            /spec/paused: false → nothing
            /spec/replicas: 3 → 5
            /spec/template/spec/containers/0/image: "web:1" → "web:2"
            3 in all
        "#]],
    );
}

#[test]
fn a_field_that_is_still_ours_has_no_difference_however_the_server_writes_it() {
    let assigned =
        json!({"spec": {"quota": "0.5", "ports": [{"port": 80}], "tags": ["a", "b"], "none": {}, "no": null}});
    let found = json!({"spec": {"quota": "500m", "ports": [{"port": 80, "protocol": "TCP"}], "tags": ["b", "a"]}});
    let ours = json!({"f:spec": {
        "f:quota": {},
        "f:ports": {"k:{\"port\":80}": {".": {}, "f:port": {}}},
        "f:tags": {"v:\"a\"": {}, "v:\"b\"": {}},
    }});
    check("Service", &assigned, &found, &ours, &expect!["0 in all\n"]);
}

#[test]
fn to_own_a_map_is_not_to_own_what_is_in_it() {
    let assigned = json!({"data": {"a": "1"}, "spec": {"selector": {"app": "web"}}});
    let found = json!({"data": {"a": "2"}, "spec": {"selector": {"app": "web"}}});
    let ours = json!({"f:data": {}, "f:spec": {"f:selector": {}}});
    check("ConfigMap", &assigned, &found, &ours, &expect![["/data/a: \"1\" → \"2\"\n1 in all\n"]]);
}

#[test]
fn a_field_that_is_another_s_and_has_our_value_is_no_difference() {
    let object = json!({"data": {"a": "1"}});
    check("ConfigMap", &object, &object, &Value::Null, &expect!["0 in all\n"]);
}

#[test]
fn values_of_secrets_are_not_told() {
    let assigned = json!({"data": {"password": "aHVudGVyMg==", "user": "YWRtaW4="}, "stringData": {"token": "t0k3n"}});
    let found = json!({"data": {"password": "c3RvbGVu", "user": "YWRtaW4=", "token": "b3RoZXI="}});
    let ours = json!({"f:data": {"f:user": {}}});
    check(
        "Secret",
        &assigned,
        &found,
        &ours,
        &expect![[r#"
            /data/password: redacted
            /data/token: redacted
            2 in all
        "#]],
    );
    let all_ours = json!({"f:data": {"f:user": {}, "f:password": {}, "f:token": {}}});
    check("Secret", &assigned, &found, &all_ours, &expect!["0 in all\n"]);
}

#[test]
fn a_local_change_is_left_alone_per_field_and_only_for_the_value_that_was_assigned() {
    let assigned =
        json!({"metadata": {"labels": {"a/b": "1", "c": "2"}}, "data": {"x": "1", "y": "2"}, "args": ["a", "b"]});
    let found = json!({"data": {"x": "9", "y": "2"}, "args": ["a"]});
    let differences = differences(&GroupKind::new("", "Thing"), &assigned, &found, &Value::Null);
    let fields: Vec<_> = differences.local.iter().map(|local| &*local.field).collect();
    // A map that is gone is gone by its fields, a list as a whole.
    assert_eq!(fields, ["/args", "/data/x", "/metadata/labels/a~1b", "/metadata/labels/c"]);
    assert_eq!(differences.total, 3);

    let still = |assigned: &Value| still_local(&differences.local, assigned).count();
    assert_eq!(still(&assigned), 4);
    let mut changed = assigned;
    changed["data"] = json!({"x": "3", "y": "4"});
    changed["metadata"]["labels"].as_object_mut().unwrap().remove("c");
    changed["metadata"]["labels"]["d"] = json!("5");
    assert_eq!(still(&changed), 2, "/args and a/b");
}

#[test]
fn names_and_values_are_bounded() {
    let data = |value: &str| {
        let entries = (0..30).map(|i| (format!("a/{i:02}~"), Value::from(value.repeat(60))));
        json!({"data": entries.collect::<serde_json::Map<_, _>>()})
    };
    let differences = differences(&GroupKind::new("", "ConfigMap"), &data("ä"), &data("ö"), &Value::Null);
    assert_eq!((differences.named.len(), differences.total), (8, 30));
    assert_eq!(differences.named[0].field, "/data/a~100~0");
    for Difference { values, .. } in &differences.named {
        let Values::Are { assigned, found } = values else { panic!("{values:?}") };
        assert!(assigned.len() <= 43 && found.len() <= 43, "{assigned} {found}");
    }
}
