use serde_json::json;

use super::harness::*;

fn namespace(name: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

#[tokio::test]
async fn a_finalizer_holds_an_object_until_it_is_taken_off() {
    let api = Api::start().await;
    let mut map = config_map("a");
    map["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.post(MAPS, &map).await.ok();
    let one = format!("{MAPS}/a");
    let held = api.delete(&one).await.ok();
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    let again = api.delete(&one).await.ok();
    assert_eq!(again["metadata"]["resourceVersion"], held["metadata"]["resourceVersion"]);
    let more = api.merge(&one, &json!({"metadata": {"finalizers": ["example.com/hold", "example.com/new"]}})).await;
    assert_eq!((more.code, more.failure().1), (422, "Invalid"));
    api.merge(&one, &json!({"metadata": {"finalizers": null}})).await.ok();
    assert_eq!(api.get(&one).await.code, 404);
}

#[tokio::test]
async fn a_deleted_namespace_takes_its_content_along() {
    let api = Api::start().await;
    let made = api.post("/api/v1/namespaces", &namespace("shop")).await.ok();
    assert_eq!(made["status"]["phase"], "Active");
    assert_eq!(made["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(made["metadata"]["labels"]["kubernetes.io/metadata.name"], "shop");
    let maps = "/api/v1/namespaces/shop/configmaps";
    for n in 0..150 {
        api.post(maps, &config_map(&format!("m{n}"))).await.ok();
    }
    api.post("/apis/apps/v1/namespaces/shop/deployments", &deployment("d")).await.ok();
    let going = api.delete("/api/v1/namespaces/shop").await.ok();
    assert_eq!(going["status"]["phase"], "Terminating");
    api.until("/api/v1/namespaces/shop", |answer| answer.code == 404).await;
    assert_eq!(api.get("/apis/apps/v1/deployments").await.ok()["items"], json!([]));
    assert_eq!(api.get("/api/v1/configmaps").await.ok()["items"], json!([]));
}

#[tokio::test]
async fn a_terminating_namespace_waits_for_finalizers_and_takes_nothing_new() {
    let api = Api::start().await;
    api.post("/api/v1/namespaces", &namespace("shop")).await.ok();
    let maps = "/api/v1/namespaces/shop/configmaps";
    let mut map = config_map("held");
    map["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.post(maps, &map).await.ok();
    api.delete("/api/v1/namespaces/shop").await.ok();
    let refused = api.post(maps, &config_map("new")).await;
    assert_eq!(
        refused.failure(),
        (
            403,
            "Forbidden",
            "configmaps \"new\" is forbidden: unable to create new content in namespace shop because it is being terminated"
        )
    );
    assert_eq!(refused.body["details"]["causes"][0]["reason"], "NamespaceTerminating");
    let said =
        |answer: &Answer| answer.body["status"]["conditions"].to_string().contains("example.com/hold in 1 resource");
    api.until("/api/v1/namespaces/shop", said).await;
    assert!(api.get(&format!("{maps}/held")).await.ok()["metadata"]["deletionTimestamp"].is_string());
    api.merge(&format!("{maps}/held"), &json!({"metadata": {"finalizers": []}})).await.ok();
    api.until("/api/v1/namespaces/shop", |answer| answer.code == 404).await;
}

#[tokio::test]
async fn what_holds_a_namespace_for_its_content_is_taken_off_by_finalize_alone() {
    let api = Api::start().await;
    let (all, one) = ("/api/v1/namespaces", "/api/v1/namespaces/shop");
    let mut made = namespace("shop");
    made["spec"] = json!({"finalizers": ["example.com/own"]});
    let made = api.post(all, &made).await.ok();
    let both = json!(["example.com/own", "kubernetes"]);
    assert_eq!(made["spec"]["finalizers"], both);
    let mut replaced = namespace("shop");
    replaced["spec"] = json!({"finalizers": []});
    let mut applied = namespace("shop");
    applied["spec"] = json!({"finalizers": ["example.com/other"]});
    let patch = |path: &str, media: &str, body: &serde_json::Value| {
        let (path, media, body) = (path.to_owned(), media.to_owned(), body.to_string());
        let api = &api;
        async move { api.send(http::Method::PATCH, &path, &media, body).await.ok() }
    };
    let gone = json!({"spec": {"finalizers": null}});
    for written in [
        patch(one, "application/merge-patch+json", &gone).await,
        patch(one, "application/strategic-merge-patch+json", &gone).await,
        patch(one, "application/json-patch+json", &json!([{"op": "remove", "path": "/spec"}])).await,
        patch(&format!("{one}?fieldManager=x&force=true"), "application/apply-patch+yaml", &applied).await,
        patch(&format!("{one}/status"), "application/merge-patch+json", &gone).await,
        api.put(one, &replaced).await.ok(),
    ] {
        assert_eq!(written["spec"]["finalizers"], both);
    }
    // One without any of its own reads as it did, and stores nothing of it.
    let plain = api.post(all, &namespace("plain")).await.ok();
    let plain_one = format!("{all}/plain");
    let patched = patch(&plain_one, "application/merge-patch+json", &json!({"spec": {"finalizers": []}})).await;
    assert_eq!(patched, plain);
    assert_eq!(api.put(&format!("{plain_one}/finalize"), &plain).await.ok(), plain);
    // What was exported is applied again, which changes nothing.
    let mut exported = namespace("plain");
    exported["spec"] = json!({"finalizers": ["kubernetes"]});
    let by_apply = format!("{plain_one}?fieldManager=x");
    let applied = patch(&by_apply, "application/apply-patch+yaml", &exported).await;
    assert_eq!(patch(&by_apply, "application/apply-patch+yaml", &exported).await, applied);
    let finalize =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}, "spec": {"finalizers": []}});
    assert_eq!(api.put(&format!("{one}/finalize"), &finalize).await.ok()["spec"]["finalizers"], json!([]));
}

#[tokio::test]
async fn a_namespace_that_nothing_holds_for_its_content_takes_that_along() {
    let api = Api::start().await;
    api.post("/api/v1/namespaces", &namespace("shop")).await.ok();
    api.post("/api/v1/namespaces/shop/configmaps", &config_map("a")).await.ok();
    let finalize =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}, "spec": {"finalizers": []}});
    api.put("/api/v1/namespaces/shop/finalize", &finalize).await.ok();
    api.delete("/api/v1/namespaces/shop").await.ok();
    api.until("/api/v1/namespaces/shop", |answer| answer.code == 404).await;
    api.post("/api/v1/namespaces", &namespace("shop")).await.ok();
    assert_eq!(api.get("/api/v1/namespaces/shop/configmaps").await.ok()["items"], json!([]));
}

#[tokio::test]
async fn the_first_namespaces_stay() {
    let api = Api::start().await;
    for name in ["default", "kube-system"] {
        let refused = api.delete(&format!("/api/v1/namespaces/{name}")).await;
        assert_eq!(
            refused.failure().2,
            format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted")
        );
    }
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let api = Api::start().await;
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let mut map = config_map(name);
        map["metadata"]["labels"] = json!({"l": label});
        api.post(MAPS, &map).await.ok();
    }
    api.delete(&format!("{MAPS}?labelSelector=l%3Dx")).await.ok();
    let left = api.get(MAPS).await.ok();
    assert_eq!(left["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(left["items"][0]["metadata"]["name"], "b");
}

#[tokio::test]
async fn a_deletion_takes_every_propagation_policy_that_there_is_and_no_other() {
    let api = Api::start().await;
    let one = format!("{MAPS}/a");
    let delete = async |query: &str, body: &serde_json::Value| {
        api.send(http::Method::DELETE, &format!("{one}{query}"), "application/json", body.to_string()).await
    };
    api.post(MAPS, &config_map("a")).await.ok();
    for (query, body, code, said) in [
        ("?propagationPolicy=Never", json!({}), 422, "Unsupported value: \"Never\""),
        ("", json!({"propagationPolicy": "Never"}), 422, "Unsupported value: \"Never\""),
        ("", json!({"propagationPolicy": ""}), 422, "Unsupported value: \"\""),
        ("", json!({"propagationPolicy": 1}), 400, "propagationPolicy must be a string"),
        ("", json!({"orphanDependents": "x"}), 400, "orphanDependents must be true or false"),
        ("", json!({"propagationPolicy": "Orphan", "orphanDependents": true}), 422, "cannot be both set"),
        ("?orphanDependents=false", json!({"propagationPolicy": "Foreground"}), 422, "cannot be both set"),
    ] {
        let answer = delete(query, &body).await;
        assert_eq!(answer.code, code, "{query} {body}");
        assert!(answer.failure().2.contains(said), "{answer:?}");
    }
    for (query, body) in [
        ("?propagationPolicy=Orphan", json!({})),
        ("?propagationPolicy=Foreground", json!({})),
        ("", json!({"propagationPolicy": "Background"})),
        ("", json!({"orphanDependents": true, "propagationPolicy": null})),
    ] {
        let gone = delete(query, &body).await.ok();
        assert_eq!(gone["status"], "Success", "{query} {body}: no finalizer holds it, which nobody would take off");
        api.post(MAPS, &config_map("a")).await.ok();
    }
}

#[tokio::test]
async fn namespaces_are_not_deleted_as_a_collection() {
    let api = Api::start().await;
    api.post("/api/v1/namespaces", &namespace("shop")).await.ok();
    assert_eq!(api.delete("/api/v1/namespaces").await.failure().1, "MethodNotAllowed");
    assert!(api.get("/api/v1/namespaces/shop").await.ok()["metadata"]["deletionTimestamp"].is_null());
}

#[tokio::test]
async fn a_deleted_space_is_gone_with_its_content() {
    let api = Api::start().await;
    api.post(MAPS, &config_map("a")).await.ok();
    api.server.delete_space("test").await.expect("deleted");
    assert_eq!(api.get(MAPS).await.code, 404);
    assert!(api.server.spaces().is_empty());
    api.server.create_space("test", tideline_apiserver::SpaceConfig::default()).await.expect("made again");
    assert_eq!(api.get(MAPS).await.ok()["items"], json!([]));
}
