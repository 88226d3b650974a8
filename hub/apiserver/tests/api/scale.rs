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
