//! What is written can be read: by its name, in lists of every form, and by whom its reading is a part of a deletion.

use http::Method;
use serde_json::{Value, json};

use super::custom::widgets;
use super::harness::*;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const TYPE: &str = r#""apiVersion":"example.com/v1","kind":"Widget""#;

/// A server with a kind that keeps what it does not know, and one object of it.
async fn open_kind() -> Api {
    let api = Api::start().await;
    let mut definition = widgets();
    let properties = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    properties["free"] = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    properties["inner"] = json!({
        "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
    });
    api.post(CRDS, &definition).await.ok();
    api.post(WIDGETS, &widget("w")).await.ok();
    api
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1}})
}

#[tokio::test]
async fn whatever_is_stored_can_be_read_again() {
    let api = open_kind().await;
    let (json, merge, apply) = ("application/json", "application/merge-patch+json", "application/apply-patch+yaml");
    let patch = "application/json-patch+json";
    let one = format!("{WIDGETS}/w");
    let mut refused = 0;
    for levels in (10..=130).filter(|levels| *levels == 10 || *levels > 105) {
        let deep = nested(levels);
        let (named, made) = (|name: &str| format!(r#"{{{TYPE},"metadata":{{"name":"{name}"}}"#), format!("w{levels}"));
        let (status, new) = (format!("{one}/status"), format!("{WIDGETS}/{made}"));
        let version = api.get(&one).await.ok()["metadata"]["resourceVersion"].clone();
        let whole = format!(r#"{{{TYPE},"metadata":{{"name":"w","resourceVersion":{version}}},"spec":{{"size":1}}"#);
        for (method, path, media, body) in [
            (Method::PATCH, &status, patch, format!(r#"[{{"op":"add","path":"/status","value":{deep}}}]"#)),
            (Method::PATCH, &one, patch, format!(r#"[{{"op":"add","path":"/free","value":{deep}}}]"#)),
            (Method::PATCH, &status, merge, format!(r#"{{"status":{deep}}}"#)),
            (Method::PATCH, &status, apply, format!(r#"{},"status":{deep}}}"#, named("w"))),
            (Method::PUT, &one, json, format!(r#"{whole},"free":{deep}}}"#)),
            (Method::PUT, &status, json, format!(r#"{whole},"status":{deep}}}"#)),
            (
                Method::POST,
                &WIDGETS.to_owned(),
                json,
                format!(r#"{},"spec":{{"size":1}},"free":{deep}}}"#, named(&made)),
            ),
            (Method::PATCH, &new, apply, format!(r#"{},"spec":{{"size":1}},"free":{deep}}}"#, named(&made))),
        ] {
            let path = if media == apply { format!("{path}?fieldManager=x&force=true") } else { path.clone() };
            let answer = api.send(method, &path, media, body).await;
            let said = format!("{levels} {media} {path}: {} {}", answer.code, answer.body);
            assert!([200, 201, 400, 409, 422].contains(&answer.code), "{said}");
            if answer.code == 422 {
                refused += 1;
                assert!(answer.failure().2.contains("nested more than 120 levels deep"), "{said}");
            }
            assert!(levels > 10 || answer.code < 300 || answer.code == 409, "{said}");
            assert_eq!(api.get(&one).await.code, 200, "{said}");
            // A list and a table put more around the object, and a client reads all of it or nothing.
            assert!(api.get(WIDGETS).await.ok()["items"].is_array(), "{said}");
            let table = format!("{WIDGETS}?includeObject=Object");
            let table = api.get_as(&table, "application/json;as=Table;v=v1;g=meta.k8s.io").await.ok();
            assert!(table["rows"].is_array(), "{said}");
        }
    }
    assert!(refused > 10, "what is too deep to be read again is refused");
    assert_eq!(api.delete(WIDGETS).await.code, 200);
    assert_eq!(api.get(WIDGETS).await.ok()["items"], json!([]));
}

#[tokio::test]
async fn what_is_too_deep_already_can_be_deleted_over_its_finalizers() {
    let api = open_kind().await;
    let one = format!("{WIDGETS}/w");
    let mut deep = api.merge(&one, &json!({"metadata": {"finalizers": ["example.com/hold"]}})).await.ok();
    deep["free"] = (0..120).fold(json!({}), |inner, _| json!({"a": inner}));
    api.overwrite("/widgets/default/w", deep.to_string().into()).await;
    assert!(api.delete(&one).await.ok()["metadata"]["deletionTimestamp"].is_string());
    let deeper = (0..122).fold(json!({}), |inner, _| json!({"a": inner}));
    assert_eq!(api.merge(&one, &json!({"free": deeper})).await.failure().0, 422);
    api.merge(&one, &json!({"metadata": {"finalizers": []}})).await.ok();
    assert_eq!(api.get(&one).await.code, 404);
}

#[tokio::test]
async fn deep_yaml_is_refused() {
    let api = open_kind().await;
    for free in [nested(1_000), format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)), "- ".repeat(20_000)] {
        let body =
            format!("apiVersion: example.com/v1\nkind: Widget\nmetadata: {{name: y}}\nfree:\n  a:\n    {free}\n");
        let refused = api.send(Method::POST, WIDGETS, "application/yaml", body).await;
        assert_eq!((refused.code, refused.failure().1), (400, "BadRequest"), "{free:.20}");
    }
}

#[tokio::test]
async fn metadata_has_its_types_in_custom_resources() {
    let api = open_kind().await;
    let one = format!("{WIDGETS}/w");
    for (metadata, field) in [
        (json!({"labels": {"a": 1}}), "metadata.labels.a of type string"),
        (json!({"labels": []}), "metadata.labels of type object"),
        (json!({"annotations": {"a": true}}), "metadata.annotations.a of type string"),
        (json!({"finalizers": "x"}), "metadata.finalizers of type array"),
        (json!({"ownerReferences": [{"uid": 1}]}), "metadata.ownerReferences[0].uid of type string"),
    ] {
        let mut new = widget("new");
        for (name, value) in metadata.as_object().expect("an object") {
            new["metadata"][name] = value.clone();
        }
        let by_merge = api.merge(&one, &json!({"metadata": metadata})).await;
        let apply = api.apply(&format!("{WIDGETS}/new?fieldManager=x"), &new).await;
        for refused in [api.post(WIDGETS, &new).await, by_merge, apply] {
            let (code, reason, message) = refused.failure();
            assert_eq!((code, reason), (400, "BadRequest"), "{metadata}: {message}");
            assert!(message.ends_with(field), "{metadata}: {message}");
        }
        let mut new = widget("new");
        new["inner"] = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        assert!(api.post(WIDGETS, &new).await.failure().2.ends_with(&format!("inner.{field}")));
    }
    let mut odd = widget("odd");
    odd["metadata"]["labels"] = json!({"a": null});
    odd["metadata"]["creationTimestamp"] = Value::Null;
    assert_eq!(api.post(WIDGETS, &odd).await.ok()["metadata"]["labels"], json!({"a": ""}));
    assert_eq!(
        api.send(Method::POST, WIDGETS, "application/json", format!("{{{TYPE},\"metadata\":5}}")).await.code,
        400
    );
}

#[tokio::test]
async fn a_container_that_is_null_is_refused() {
    let api = Api::start().await;
    api.post(DEPLOYMENTS, &deployment("a")).await.ok();
    let one = format!("{DEPLOYMENTS}/a");
    let without = |name: &str| {
        let mut object = deployment(name);
        object["spec"]["template"]["spec"]["containers"] = json!([null]);
        object
    };
    let patch = r#"[{"op": "replace", "path": "/spec/template/spec/containers", "value": [null]}]"#;
    let patched = api.send(Method::PATCH, &one, "application/json-patch+json", patch).await;
    let merged = api.merge(&one, &json!({"spec": without("a")["spec"]})).await;
    let applied = api.apply(&format!("{DEPLOYMENTS}/b?fieldManager=x"), &without("b")).await;
    for refused in [api.post(DEPLOYMENTS, &without("b")).await, merged, patched, applied] {
        let (code, reason, message) = refused.failure();
        assert_eq!((code, reason), (422, "Invalid"), "{message}");
        assert!(message.contains("spec.template.spec.containers[0].name: Required value"), "{message}");
    }
}

#[tokio::test]
async fn a_definition_with_a_wrong_default_is_refused() {
    let api = Api::start().await;
    for default in [json!(5), json!("green")] {
        let mut definition = widgets();
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["color"]["default"] =
            default;
        let refused = api.post(CRDS, &definition).await;
        assert_eq!((refused.code, refused.failure().1), (422, "Invalid"));
        let field = "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[color].default";
        assert_eq!(refused.body["details"]["causes"][0]["field"], field);
    }
}
