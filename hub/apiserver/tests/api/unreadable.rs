//! An object that cannot be read is there, holds up nobody beside it, and can be deleted.

use serde_json::json;

use super::harness::*;

const UNSAFELY: &str = "ignoreStoreReadErrorWithClusterBreakingPotential=true";

/// The ConfigMaps `a`, which cannot be read, and `b`.
async fn damaged() -> Api {
    let api = Api::start().await;
    for name in ["a", "b"] {
        let mut map = config_map(name);
        map["metadata"]["finalizers"] = if name == "a" { json!(["example.com/hold"]) } else { json!([]) };
        api.post(MAPS, &map).await.ok();
    }
    api.make_unreadable("/configmaps/default/a").await;
    api
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_in_lists_and_watches_by_its_key() {
    let api = damaged().await;
    for path in [MAPS, "/api/v1/configmaps"] {
        let list = api.get(path).await.ok();
        assert_eq!(list["items"].as_array().map(Vec::len), Some(2), "{list}");
        let item = &list["items"][0];
        assert_eq!((&item["kind"], &item["metadata"]["name"]), (&json!("ConfigMap"), &json!("a")));
        assert_eq!(item["metadata"]["namespace"], "default");
        assert!(item["metadata"]["uid"].is_null() && item["metadata"]["resourceVersion"].is_string());
        assert!(list["items"][1]["metadata"]["uid"].is_string());
    }
    let table = api.get_as(MAPS, "application/json;as=Table;v=v1;g=meta.k8s.io").await.ok();
    assert_eq!(table["rows"].as_array().map(Vec::len), Some(2), "{table}");
    let mut events = api.watch(&format!("{MAPS}?watch=1")).await;
    assert_eq!(events.short().await, pair("ADDED", "a"));
    assert_eq!(events.short().await, pair("ADDED", "b"));
    api.make_unreadable("/configmaps/default/b").await;
    assert_eq!(events.short().await, pair("MODIFIED", "b"));
    api.delete(&format!("{MAPS}/a?{UNSAFELY}")).await.ok();
    assert_eq!(events.short().await, pair("DELETED", "a"));
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_deleted_by_who_says_so() {
    let api = damaged().await;
    let one = format!("{MAPS}/a");
    for answer in [api.get(&one).await, api.delete(&one).await] {
        let (code, reason, message) = answer.failure();
        assert_eq!((code, reason), (500, "StorageReadError"));
        let how = format!("kubectl delete --raw '/spaces/test{one}?{UNSAFELY}'");
        assert!(message.starts_with("configmaps \"a\": ") && message.contains(&how), "{message}");
    }
    assert_eq!(api.post(MAPS, &config_map("a")).await.code, 409, "it is there");
    api.delete(&format!("{one}?{UNSAFELY}&dryRun=All")).await.ok();
    assert_eq!(api.get(&one).await.code, 500);
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "u"}});
    let refused =
        api.send(http::Method::DELETE, &format!("{one}?{UNSAFELY}"), "application/json", options.to_string()).await;
    assert_eq!(refused.failure().1, "Conflict");
    let deleted = api.delete(&format!("{one}?{UNSAFELY}")).await.ok();
    assert_eq!((&deleted["status"], &deleted["details"]["name"]), (&json!("Success"), &json!("a")));
    assert_eq!(api.get(&one).await.code, 404);
    api.post(MAPS, &config_map("a")).await.ok();

    // Of what can be read nothing is ignored.
    let held = api.merge(&one, &json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    held.ok();
    let held = api.delete(&format!("{one}?{UNSAFELY}")).await.ok();
    assert!(held["metadata"]["deletionTimestamp"].is_string());
}

#[tokio::test]
async fn a_deletion_of_all_leaves_what_cannot_be_read_alone() {
    let api = damaged().await;
    assert_eq!(api.delete(MAPS).await.failure().1, "StorageReadError");
    let left = api.get(MAPS).await.ok();
    assert_eq!(left["items"].as_array().map(Vec::len), Some(1), "{left}");
    api.delete(&format!("{MAPS}?{UNSAFELY}")).await.ok();
    assert_eq!(api.get(MAPS).await.ok()["items"], json!([]));
}

#[tokio::test]
async fn a_namespace_that_is_deleted_waits_for_what_cannot_be_read() {
    let api = Api::start().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    api.post("/api/v1/namespaces", &namespace).await.ok();
    let maps = "/api/v1/namespaces/shop/configmaps";
    for name in ["a", "b"] {
        api.post(maps, &config_map(name)).await.ok();
    }
    api.make_unreadable("/configmaps/shop/a").await;
    api.delete("/api/v1/namespaces/shop").await.ok();
    api.until(&format!("{maps}/b"), |answer| answer.code == 404).await;
    let remaining = |answer: &Answer| answer.body.to_string().contains("NamespaceContentRemaining");
    api.until("/api/v1/namespaces/shop", remaining).await;
    api.delete(&format!("{maps}/a?{UNSAFELY}")).await.ok();
    api.until("/api/v1/namespaces/shop", |answer| answer.code == 404).await;
}
