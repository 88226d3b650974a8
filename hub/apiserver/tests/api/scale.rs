use http::Method;
use serde_json::json;

use super::custom::widgets;
use super::harness::*;

#[tokio::test]
async fn replicas_are_read_and_written_through_scale() {
    let api = Api::start().await;
    api.post(DEPLOYMENTS, &deployment("a")).await.ok();
    let path = format!("{DEPLOYMENTS}/a/scale");
    let mut scale = api.get(&path).await.ok();
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(2)));
    assert_eq!(scale["status"]["selector"], "app=a");
    scale["spec"]["replicas"] = 4.into();
    assert_eq!(api.put(&path, &scale).await.ok()["spec"]["replicas"], 4);
    assert_eq!(api.put(&path, &scale).await.code, 409);
    let patched = api.merge(&path, &json!({"spec": {"replicas": 0}})).await.ok();
    assert_eq!(patched["spec"]["replicas"], 0);
    let object = api.get(&format!("{DEPLOYMENTS}/a")).await.ok();
    assert_eq!((&object["spec"]["replicas"], &object["metadata"]["generation"]), (&json!(0), &json!(3)));
    let refused = api.send(Method::PATCH, &path, "application/merge-patch+json", r#"{"spec":{"replicas":-1}}"#).await;
    assert_eq!(refused.failure().1, "Invalid");
}

#[tokio::test]
async fn custom_resources_scale_where_they_say() {
    let api = Api::start().await;
    api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &widgets()).await.ok();
    let all = "/apis/example.com/v1/namespaces/default/widgets";
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": 3}});
    api.post(all, &widget).await.ok();
    assert_eq!(api.get(&format!("{all}/a/scale")).await.ok()["spec"]["replicas"], 3);
    api.merge(&format!("{all}/a/scale"), &json!({"spec": {"replicas": 5}})).await.ok();
    assert_eq!(api.get(&format!("{all}/a")).await.ok()["spec"]["size"], 5);
}

#[tokio::test]
async fn what_is_no_scale_does_not_scale_to_none() {
    let api = Api::start().await;
    api.post(DEPLOYMENTS, &deployment("a")).await.ok();
    let path = format!("{DEPLOYMENTS}/a/scale");
    let (json, merge) = ("application/json-patch+json", "application/merge-patch+json");
    let strategic = "application/strategic-merge-patch+json";
    for (media, body) in [
        (merge, "[]"),
        (merge, "5"),
        (merge, r#""x""#),
        (strategic, "[]"),
        (strategic, "5"),
        (json, "5"),
        (json, r#""x""#),
        (json, r#"[{"op":"replace","path":"","value":[]}]"#),
        (merge, r#"{"spec":5}"#),
        (merge, r#"{"spec":{"replicas":"x"}}"#),
        (merge, r#"{"kind":"Pod"}"#),
    ] {
        let refused = api.send(Method::PATCH, &path, media, body).await;
        assert_eq!((refused.code, refused.failure().1), (400, "BadRequest"), "{media} {body}");
    }
    let refused = api.put(&path, &json!({"metadata": {"name": "a"}, "spec": []})).await;
    assert_eq!(refused.failure().0, 400);
    assert_eq!(api.get(&path).await.ok()["spec"]["replicas"], 2);
}

#[tokio::test]
async fn a_path_of_scale_that_leads_to_no_field_is_refused() {
    let api = Api::start().await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let deep = format!(".spec{}", ".a".repeat(100_000));
    for (field, path) in [
        ("specReplicasPath", "."),
        ("specReplicasPath", ".."),
        ("specReplicasPath", ".spec"),
        ("specReplicasPath", ".spec."),
        ("specReplicasPath", ".metadata.x"),
        ("specReplicasPath", "spec.size"),
        ("specReplicasPath", ""),
        ("specReplicasPath", &deep),
        ("statusReplicasPath", ".spec.size"),
        ("labelSelectorPath", "."),
    ] {
        let mut definition = widgets();
        definition["spec"]["versions"][0]["subresources"]["scale"][field] = path.into();
        let refused = api.post(definitions, &definition).await;
        assert_eq!((refused.code, refused.failure().1), (422, "Invalid"), "{field} {path:.20}");
        let cause = &refused.body["details"]["causes"][0]["field"];
        assert_eq!(*cause, json!(format!("spec.versions[0].subresources.scale.{field}")));
    }
}
