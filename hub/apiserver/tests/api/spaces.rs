use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use serde_json::{Value, json};
use tideline_apiserver::{
    ApiServer, Column, Config, Error, Page, PageRequest, ResourceKind, SpaceConfig, UnknownKey, VirtualResource,
};
use tokio::sync::watch;

use super::custom::widgets;
use super::harness::*;

/// Counts what it is told.
struct Tallies {
    count: watch::Sender<u64>,
    /// How often all of them were computed.
    lists: AtomicU64,
}

impl Tallies {
    fn tally(&self, name: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "default"}, "count": *self.count.borrow()})
    }

    /// The second one is there while the count is odd.
    fn names(&self) -> &'static [&'static str] {
        if *self.count.borrow() % 2 == 1 { &["a", "b"] } else { &["a"] }
    }
}

impl VirtualResource for Tallies {
    fn resource(&self) -> ResourceKind {
        ResourceKind {
            group: "example.com".into(),
            version: "v1".into(),
            kind: "Tally".into(),
            plural: "tallies".into(),
            namespaced: true,
        }
    }

    fn short_names(&self) -> Vec<String> {
        vec!["ty".into()]
    }

    fn columns(&self) -> Vec<Column> {
        vec![Column { name: "Count".into(), path: ".count".into(), kind: "integer".into(), priority: 0 }]
    }

    fn list(&self, space: &str, request: &PageRequest<'_>) -> Result<Page, UnknownKey> {
        self.lists.fetch_add(1, Relaxed);
        let wanted = space == "test" && request.namespace.is_none_or(|namespace| namespace == "default");
        let all = self.names().iter().filter(|_| wanted).map(|name| self.tally(name)).collect();
        Ok(Page::of_all(all, request))
    }

    fn get(&self, space: &str, namespace: Option<&str>, name: &str) -> Option<Value> {
        let there = space == "test" && namespace == Some("default") && self.names().contains(&name);
        there.then(|| self.tally(name))
    }

    fn changes(&self, _: &str) -> Option<watch::Receiver<u64>> {
        Some(self.count.subscribe())
    }
}

const TALLIES: &str = "/apis/example.com/v1/namespaces/default/tallies";

async fn with_tallies() -> (Api, Arc<Tallies>) {
    let tallies = Arc::new(Tallies { count: watch::Sender::new(4), lists: AtomicU64::new(0) });
    let virtual_resources: Vec<Arc<dyn VirtualResource>> = vec![Arc::clone(&tallies) as _];
    (Api::with(SpaceConfig { virtual_resources, ..SpaceConfig::default() }).await, tallies)
}

#[tokio::test]
async fn computed_objects_are_read_like_any_other() {
    let (api, _tallies) = with_tallies().await;
    let one = api.get(&format!("{TALLIES}/a")).await.ok();
    assert_eq!(
        (&one["kind"], &one["apiVersion"], &one["count"]),
        (&json!("Tally"), &json!("example.com/v1"), &json!(4))
    );
    assert!(one["metadata"]["uid"].is_string() && one["metadata"]["resourceVersion"].is_string());
    assert_eq!(api.get(&format!("{TALLIES}/none")).await.failure().2, "tallies.example.com \"none\" not found");
    let all = api.get("/apis/example.com/v1/tallies").await.ok();
    assert_eq!((&all["kind"], all["items"].as_array().map(Vec::len)), (&json!("TallyList"), Some(1)));
    let table = api.get_as(TALLIES, "application/json;as=Table;v=v1;g=meta.k8s.io").await.ok();
    assert_eq!(table["rows"][0]["cells"], json!(["a", 4]));
    assert_eq!(api.get("/apis/example.com/v1").await.ok()["resources"][0]["shortNames"], json!(["ty"]));
    let refused = api.post(TALLIES, &json!({"metadata": {"name": "x"}})).await;
    assert_eq!((refused.code, refused.failure().1), (405, "MethodNotAllowed"));
    assert_eq!(api.delete(&format!("{TALLIES}/a")).await.code, 405);
}

#[tokio::test]
async fn computed_objects_are_watched_through_their_counter() {
    let (api, tallies) = with_tallies().await;
    let mut events = api.watch(&format!("{TALLIES}?watch=1")).await;
    assert_eq!(events.short().await, pair("ADDED", "a"));
    tallies.count.send_replace(5);
    assert_eq!(events.short().await, pair("MODIFIED", "a"));
    assert_eq!(events.short().await, pair("ADDED", "b"));
    tallies.count.send_replace(6);
    assert_eq!(events.short().await, pair("MODIFIED", "a"));
    assert_eq!(events.short().await, pair("DELETED", "b"));
}

#[tokio::test]
async fn one_computed_object_is_read_and_watched_without_the_others() {
    let (api, tallies) = with_tallies().await;
    let one = format!("{TALLIES}?fieldSelector=metadata.name%3Db");
    assert_eq!(api.get(&format!("{TALLIES}/a")).await.code, 200);
    assert_eq!(api.get(&one).await.ok()["items"], json!([]));
    let mut events = api.watch(&format!("{one}&watch=1")).await;
    tallies.count.send_replace(5);
    assert_eq!(events.short().await, pair("ADDED", "b"));
    tallies.count.send_replace(6);
    assert_eq!(events.short().await, pair("DELETED", "b"));
    assert_eq!(tallies.lists.load(Relaxed), 0);
}

#[tokio::test]
async fn spaces_and_their_definitions_outlive_the_server() {
    let api = Api::with(SpaceConfig { crds: vec![widgets()], ..SpaceConfig::default() }).await;
    api.post(MAPS, &config_map("a")).await.ok();
    api.server.shutdown().await;
    let server = ApiServer::new(Arc::clone(&api.store) as _, Config::default()).await.expect("a server");
    assert_eq!(server.spaces().iter().map(|space| &**space).collect::<Vec<_>>(), ["test"]);
    let again = api.at(&server, "test");
    assert_eq!(again.get(&format!("{MAPS}/a")).await.code, 200);
    assert_eq!(again.get("/apis/example.com/v1/widgets").await.code, 200);
    let before = again.get(MAPS).await.ok()["metadata"]["resourceVersion"].clone();
    let config = SpaceConfig { crds: vec![widgets()], ..SpaceConfig::default() };
    again.server.create_space("test", config).await.expect("opened");
    assert_eq!(again.get(MAPS).await.ok()["metadata"]["resourceVersion"], before, "opening again writes nothing");
}

#[tokio::test]
async fn deletions_that_a_stop_interrupted_are_finished() {
    let api = Api::start().await;
    api.server.shutdown().await;
    api.post("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await.ok();
    api.post("/api/v1/namespaces/shop/configmaps", &config_map("a")).await.ok();
    api.delete("/api/v1/namespaces/shop").await.ok();
    let server = ApiServer::new(Arc::clone(&api.store) as _, Config::default()).await.expect("a server");
    let again = api.at(&server, "test");
    again.until("/api/v1/namespaces/shop", |answer| answer.code == 404).await;
    assert_eq!(again.get("/api/v1/configmaps").await.ok()["items"], json!([]));
}

#[tokio::test]
async fn servers_on_one_store_follow_each_other() {
    let api = Api::start().await;
    let other = ApiServer::new(Arc::clone(&api.store) as _, Config::default()).await.expect("a server");
    let other = api.at(&other, "test");
    api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &widgets()).await.ok();
    other.until("/apis/example.com/v1/widgets", |answer| answer.code == 200).await;
    api.server.create_space("new", SpaceConfig::default()).await.expect("a space");
    let other = Api { space: "new".into(), ..other };
    other.until("/api/v1/namespaces/default", |answer| answer.code == 200).await;
    api.server.delete_space("new").await.expect("deleted");
    other.until("/api", |answer| answer.code == 404).await;
}

#[tokio::test]
async fn spaces_know_nothing_of_each_other() {
    let api = Api::start().await;
    api.server.create_space("test-2", SpaceConfig::default()).await.expect("a space");
    api.post(MAPS, &config_map("a")).await.ok();
    api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &widgets()).await.ok();
    let mut events = api.watch("/api/v1/configmaps?watch=1").await;
    let two = api.at(&api.server, "test-2");
    assert_eq!(two.get("/api/v1/configmaps").await.ok()["items"], json!([]));
    assert_eq!(two.get("/apis/example.com/v1").await.code, 404);
    two.post(MAPS, &config_map("b")).await.ok();
    api.post(MAPS, &config_map("c")).await.ok();
    assert_eq!(events.short().await, pair("ADDED", "a"));
    assert_eq!(events.short().await, pair("ADDED", "c"));
    for name in ["", "Big", "a.b", "a/b", &"x".repeat(64)] {
        let refused = api.server.create_space(name, SpaceConfig::default()).await;
        assert!(matches!(refused, Err(Error::SpaceName(_))), "{name}");
    }
}
