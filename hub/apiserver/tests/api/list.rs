use std::collections::BTreeSet;

use serde_json::{Value, json};
use tideline_store::Store;

use super::harness::*;

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().expect("items");
    items.iter().map(|item| item["metadata"]["name"].as_str().expect("name").to_owned()).collect()
}

#[tokio::test]
async fn pages_are_one_consistent_list_while_objects_change() {
    let api = Api::start().await;
    for n in 0..500 {
        api.post(MAPS, &config_map(&format!("m{n:03}"))).await.ok();
    }
    let mut seen = BTreeSet::new();
    let mut page = api.get(&format!("{MAPS}?limit=70")).await.ok();
    let version = page["metadata"]["resourceVersion"].clone();
    assert_eq!(page["metadata"]["remainingItemCount"], 430);
    let mut round = 0;
    loop {
        for item in page["items"].as_array().expect("items") {
            assert_eq!(item["data"]["key"], "value");
            assert!(seen.insert(item["metadata"]["name"].to_string()));
        }
        assert_eq!(page["metadata"]["resourceVersion"], version);
        let Some(token) = page["metadata"]["continue"].as_str() else { break };
        round += 1;
        api.delete(&format!("{MAPS}/m{:03}", 499 - round)).await.ok();
        api.post(MAPS, &config_map(&format!("new{round}"))).await.ok();
        api.merge(&format!("{MAPS}/m450"), &json!({"data": {"key": format!("{round}")}})).await.ok();
        page = api.get(&format!("{MAPS}?limit=70&continue={token}")).await.ok();
    }
    assert_eq!(seen.len(), 500);
}

#[tokio::test]
async fn a_token_of_forgotten_history_is_gone() {
    let api = Api::start().await;
    for n in 0..5 {
        api.post(MAPS, &config_map(&format!("m{n}"))).await.ok();
    }
    let page = api.get(&format!("{MAPS}?limit=2")).await.ok();
    let token = page["metadata"]["continue"].as_str().expect("a token").to_owned();
    api.post(MAPS, &config_map("later")).await.ok();
    api.store.compact(api.store.revision()).await.expect("compacted");
    let gone = api.get(&format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!((gone.code, gone.failure().1), (410, "Expired"));
    assert_eq!(api.get(&format!("{MAPS}?limit=2&continue=nonsense")).await.code, 400);
}

#[tokio::test]
async fn selectors_choose_and_unknown_fields_are_refused() {
    let api = Api::start().await;
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let mut map = config_map(name);
        map["metadata"]["labels"] = json!({"l": label});
        api.post(MAPS, &map).await.ok();
    }
    let list = |query: &'static str| {
        let api = &api;
        async move { names(&api.get(&format!("/api/v1/configmaps?{query}")).await.ok()) }
    };
    assert_eq!(list("labelSelector=l%3Dx").await, ["a", "c"]);
    assert_eq!(list("labelSelector=l+in+(y,z)").await, ["b"]);
    assert_eq!(list("fieldSelector=metadata.name%3Db").await, ["b"]);
    assert_eq!(list("fieldSelector=metadata.namespace%3Dnone").await, Vec::<String>::new());
    assert_eq!(list("labelSelector=l%3Dx&limit=1").await, ["a"]);
    assert_eq!(api.get(&format!("{MAPS}?fieldSelector=data.key%3Db")).await.code, 400);
    assert_eq!(api.get(&format!("{MAPS}?labelSelector=a+in+(")).await.code, 400);
    let by_label = api.get("/api/v1/namespaces?labelSelector=kubernetes.io/metadata.name%3Ddefault").await.ok();
    assert_eq!(names(&by_label), ["default"]);
}

#[tokio::test]
async fn old_versions_are_read_exactly_and_future_ones_refused() {
    let api = Api::start().await;
    api.post(MAPS, &config_map("a")).await.ok();
    let version = api.get(MAPS).await.ok()["metadata"]["resourceVersion"].as_str().expect("version").to_owned();
    api.post(MAPS, &config_map("b")).await.ok();
    let exact = api.get(&format!("{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact")).await.ok();
    assert_eq!(names(&exact), ["a"]);
    let newer = api.get(&format!("{MAPS}?resourceVersion={version}&resourceVersionMatch=NotOlderThan")).await.ok();
    assert_eq!(names(&newer), ["a", "b"]);
    let future = api.get(&format!("{MAPS}?resourceVersion=999999")).await;
    assert_eq!((future.code, future.failure().1), (504, "Timeout"));
    assert_eq!(future.body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(api.get(&format!("{MAPS}?resourceVersion=x")).await.code, 400);
    assert_eq!(api.get(&format!("{MAPS}?resourceVersionMatch=Exact")).await.code, 422);
}

#[tokio::test]
async fn tables_and_metadata_are_given_when_asked() {
    let api = Api::start().await;
    api.post(DEPLOYMENTS, &deployment("a")).await.ok();
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let table = api.get_as(DEPLOYMENTS, accept).await.ok();
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["columnDefinitions"][1]["name"], "Ready");
    assert_eq!(table["rows"][0]["cells"][0], "a");
    assert_eq!(table["rows"][0]["cells"][1], "0/2");
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let one = api.get_as(&format!("{DEPLOYMENTS}/a"), accept).await.ok();
    assert_eq!(one["rows"].as_array().map(Vec::len), Some(1));
    let partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let list = api.get_as(DEPLOYMENTS, partial).await.ok();
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert!(list["items"][0]["spec"].is_null());
    assert_eq!(api.get_as(DEPLOYMENTS, "application/vnd.kubernetes.protobuf").await.code, 406);
}

#[tokio::test]
async fn a_long_list_without_limit_is_whole() {
    let api = Api::start().await;
    for n in 0..300 {
        api.post(MAPS, &config_map(&format!("m{n:03}"))).await.ok();
    }
    let list = api.get(MAPS).await.ok();
    assert_eq!(names(&list).len(), 300);
    assert!(list["metadata"]["continue"].is_null());
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
}
