use serde_json::json;
use tideline_store::Store;

use super::harness::*;

async fn version(api: &Api) -> String {
    api.get(MAPS).await.ok()["metadata"]["resourceVersion"].as_str().expect("version").to_owned()
}

#[tokio::test]
async fn a_watch_without_version_begins_with_what_is_there() {
    let api = Api::start().await;
    api.post(MAPS, &config_map("a")).await.ok();
    let mut events = api.watch(&format!("{MAPS}?watch=1")).await;
    assert_eq!(events.short().await, pair("ADDED", "a"));
    api.post(MAPS, &config_map("b")).await.ok();
    api.merge(&format!("{MAPS}/a"), &json!({"data": {"x": "y"}})).await.ok();
    api.delete(&format!("{MAPS}/b")).await.ok();
    assert_eq!(events.short().await, pair("ADDED", "b"));
    assert_eq!(events.short().await, pair("MODIFIED", "a"));
    let gone = events.next().await.expect("an event");
    assert_eq!(gone["type"], "DELETED");
    assert_eq!(gone["object"]["metadata"]["resourceVersion"].as_str(), Some(version(&api).await.as_str()));
}

#[tokio::test]
async fn a_watch_resumes_without_gap_or_repetition() {
    let api = Api::start().await;
    api.post(MAPS, &config_map("a")).await.ok();
    let from = version(&api).await;
    api.post(MAPS, &config_map("b")).await.ok();
    api.post("/api/v1/namespaces/kube-system/configmaps", &config_map("elsewhere")).await.ok();
    api.post(MAPS, &config_map("c")).await.ok();
    let mut events = api.watch(&format!("{MAPS}?watch=1&resourceVersion={from}")).await;
    assert_eq!(events.short().await, pair("ADDED", "b"));
    assert_eq!(events.short().await, pair("ADDED", "c"));
}

#[tokio::test]
async fn forgotten_history_is_410_in_the_answer() {
    let api = Api::start().await;
    let from = version(&api).await;
    for n in 0..5 {
        api.post(MAPS, &config_map(&format!("m{n}"))).await.ok();
    }
    api.store.compact(api.store.revision()).await.expect("compacted");
    let response = api.get(&format!("{MAPS}?watch=1&resourceVersion={from}")).await;
    if response.code == 200 {
        assert_eq!((&response.body["type"], &response.body["object"]["code"]), (&json!("ERROR"), &json!(410)));
    } else {
        assert_eq!((response.code, response.failure().1), (410, "Expired"));
    }
    assert_eq!(api.get(&format!("{MAPS}?watch=1&resourceVersion=999999")).await.code, 504);
}

#[tokio::test]
async fn an_object_that_leaves_a_selector_is_deleted_for_its_watchers() {
    let api = Api::start().await;
    let mut events = api.watch(&format!("{MAPS}?watch=1&labelSelector=in%3Dyes")).await;
    api.post(MAPS, &config_map("a")).await.ok();
    let one = format!("{MAPS}/a");
    api.merge(&one, &json!({"metadata": {"labels": {"in": "yes"}}})).await.ok();
    api.merge(&one, &json!({"data": {"x": "y"}})).await.ok();
    api.merge(&one, &json!({"metadata": {"labels": {"in": "no"}}})).await.ok();
    assert_eq!(events.short().await, pair("ADDED", "a"));
    assert_eq!(events.short().await, pair("MODIFIED", "a"));
    let left = events.next().await.expect("an event");
    assert_eq!(left["type"], "DELETED");
    assert_eq!(left["object"]["metadata"]["labels"]["in"], "yes");
}

#[tokio::test]
async fn bookmarks_tell_how_far_an_idle_watch_is() {
    let api = Api::start().await;
    let from = version(&api).await;
    let mut events = api.watch(&format!("{MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={from}")).await;
    api.post("/api/v1/namespaces/kube-system/configmaps", &config_map("elsewhere")).await.ok();
    let now = api.store.revision().0;
    loop {
        let event = events.next().await.expect("a bookmark");
        assert_eq!(event["type"], "BOOKMARK", "{event}");
        let told: u64 =
            event["object"]["metadata"]["resourceVersion"].as_str().expect("version").parse().expect("number");
        if told >= now {
            break;
        }
    }
}

#[tokio::test]
async fn the_end_of_the_initial_state_is_marked() {
    let api = Api::start().await;
    api.post(MAPS, &config_map("a")).await.ok();
    let query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let mut events = api.watch(&format!("{MAPS}?{query}")).await;
    assert_eq!(events.short().await, pair("ADDED", "a"));
    let mark = events.next().await.expect("a bookmark");
    assert_eq!(mark["type"], "BOOKMARK");
    assert_eq!(mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(mark["object"]["kind"], "ConfigMap");
    assert_eq!(api.get(&format!("{MAPS}?watch=1&sendInitialEvents=true")).await.code, 422);
}

#[tokio::test]
async fn a_watch_ends_at_its_timeout() {
    let api = Api::start().await;
    let mut events = api.watch(&format!("{MAPS}?watch=1&timeoutSeconds=1")).await;
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn tables_stream_with_their_columns_once() {
    let api = Api::start().await;
    let request = http::Request::builder()
        .uri(format!("{MAPS}?watch=1&timeoutSeconds=1"))
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(axum::body::Body::empty())
        .expect("a request");
    api.post(MAPS, &config_map("a")).await.ok();
    api.post(MAPS, &config_map("b")).await.ok();
    let text = answer(api.raw(request).await).await.body;
    let lines: Vec<serde_json::Value> =
        text.as_str().expect("lines").lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0]["object"]["columnDefinitions"].is_array());
    assert!(lines[1]["object"]["columnDefinitions"].is_null());
    assert_eq!(lines[1]["object"]["rows"][0]["cells"][0], "b");
}
