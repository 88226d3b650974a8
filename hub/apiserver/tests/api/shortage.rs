//! A store with room left for deletions alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::future::BoxFuture;
use serde_json::json;
use tideline_apiserver::{ApiServer, Config, Identity, SpaceConfig};
use tideline_store::{Commit, CommitOutcome, Error, Item, KeyRange, Page, Revision, SqliteStore, Store, WatchStream};

use super::harness::*;

struct Short {
    store: Arc<SqliteStore>,
    is_short: AtomicBool,
}

impl Store for Short {
    fn revision(&self) -> Revision {
        self.store.revision()
    }

    fn failure(&self) -> Option<Error> {
        None
    }

    fn shortage(&self) -> Option<Error> {
        let full =
            || Error::Full { operation: "change anything in", path: "/data".to_owned(), reason: "full".to_owned() };
        self.is_short.load(Ordering::Relaxed).then(full)
    }

    fn get(&self, key: Bytes) -> BoxFuture<'_, Result<Option<Item>, Error>> {
        self.store.get(key)
    }

    fn range(&self, range: KeyRange, at: Option<Revision>, limit: usize) -> BoxFuture<'_, Result<Page, Error>> {
        self.store.range(range, at, limit)
    }

    fn count(&self, range: KeyRange, at: Revision) -> BoxFuture<'_, Result<u64, Error>> {
        self.store.count(range, at)
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<CommitOutcome, Error>> {
        self.store.commit(commit)
    }

    fn watch(&self, range: KeyRange, after: Revision) -> Result<WatchStream, Error> {
        self.store.watch(range, after)
    }

    fn compact(&self, before: Revision) -> BoxFuture<'_, Result<(), Error>> {
        self.store.compact(before)
    }
}

#[tokio::test]
async fn a_store_that_is_short_of_room_is_read_and_takes_deletions_alone() {
    let store = SqliteStore::in_memory().expect("a store");
    let short = Arc::new(Short { store: Arc::clone(&store), is_short: AtomicBool::new(false) });
    let server = ApiServer::new(Arc::clone(&short) as _, Config::default()).await.expect("a server");
    server.create_space("test", SpaceConfig::default()).await.expect("a space");
    let api = Api { server, store, space: "test".to_owned(), identity: Identity::new("person", []) };
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/held"]}});
    for object in [config_map("a"), config_map("b"), held] {
        api.post(MAPS, &object).await.ok();
    }
    api.post("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await.ok();
    api.post("/api/v1/namespaces/shop/configmaps", &config_map("c")).await.ok();
    short.is_short.store(true, Ordering::Relaxed);

    let a = format!("{MAPS}/a");
    let (mut read, change) = (api.get(&a).await.ok(), json!({"data": {"key": "other"}}));
    api.put(&a, &read).await.ok();
    read["data"] = change["data"].clone();
    for refused in [api.post(MAPS, &config_map("new")).await, api.put(&a, &read).await, api.merge(&a, &change).await] {
        assert_eq!(refused.failure(), (507, "InsufficientStorage", "cannot change anything in /data: full"));
    }
    assert_eq!(api.post(MAPS, &config_map("a")).await.code, 409);
    let again = api.server.create_space("test", SpaceConfig::default()).await;
    assert!(again.is_ok(), "what a space has is there: {again:?}");

    api.delete(&a).await.ok();
    let held = format!("{MAPS}/held");
    assert!(api.delete(&held).await.ok()["metadata"]["deletionTimestamp"].is_string());
    api.merge(&held, &json!({"metadata": {"finalizers": null}})).await.ok();
    assert_eq!([api.get(&a).await.code, api.get(&held).await.code], [404, 404]);
    api.delete("/api/v1/namespaces/shop").await.ok();
    api.until("/api/v1/namespaces/shop", |answer| answer.code == 404).await;

    short.is_short.store(false, Ordering::Relaxed);
    api.post(MAPS, &config_map("new")).await.ok();
}
