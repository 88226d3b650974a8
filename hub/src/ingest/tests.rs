//! What a start makes of spaces, over a store in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::Request;
use serde_json::json;
use tideline_api::{Allow, EmbeddedSpace, SpaceSpec};
use tideline_apiserver::{ApiServer, Identity, SpaceConfig};
use tideline_runtime::health::Health;
use tideline_store::{Commit, KeyRange, Op, SqliteStore, Store};

use super::*;
use crate::committer;
use crate::fuse::Fuse;
use crate::ledger::Ledger;
use crate::link::core::Config;
use crate::spaces::EmbeddedSource;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A store with the spaces of a hub.
struct Spaces {
    store: Arc<SqliteStore>,
    server: Arc<ApiServer>,
}

impl Spaces {
    async fn new() -> Self {
        let store = SqliteStore::in_memory().unwrap();
        let server = ApiServer::new(Arc::clone(&store) as _, tideline_apiserver::Config::default()).await.unwrap();
        for (space, crds) in [("root", tideline_api::root_crds()), ("default", tideline_api::workload_crds())] {
            let crds = crds.iter().map(|crd| serde_json::to_value(crd).unwrap()).collect();
            server.create_space(space, SpaceConfig { crds, ..SpaceConfig::default() }).await.unwrap();
        }
        let spaces = Self { store, server };
        let spec = SpaceSpec { embedded: Some(EmbeddedSpace {}), kubeconfig: None, allow: Allow::everything() };
        let space = serde_json::to_value(Space::new("default", spec)).unwrap();
        spaces.post("root", "/apis/tideline.dev/v1alpha1/spaces", &space).await;
        let target = json!({
            "apiVersion": "tideline.dev/v1alpha1", "kind": "SyncTarget", "spec": {},
            "metadata": {"name": "t", "labels": {"tier": "shop"}},
        });
        spaces.post("root", "/apis/tideline.dev/v1alpha1/synctargets", &target).await;
        let placement = json!({
            "apiVersion": "tideline.dev/v1alpha1", "kind": "Placement", "metadata": {"name": "p"},
            "spec": {"targets": [{"matchLabels": {"tier": "shop"}}], "objects": [{"resources": ["configmaps"]}]},
        });
        spaces.post("default", "/apis/tideline.dev/v1alpha1/placements", &placement).await;
        spaces
    }

    async fn post(&self, space: &str, path: &str, object: &Value) {
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(Body::from(object.to_string())).unwrap();
        let answer = self.server.call(space, Identity::system(), request).await;
        assert!(answer.status().is_success(), "{path}: {answer:?}");
    }

    /// What happens to the object whose key ends so, past all requests.
    async fn store(&self, key: &str, op: impl FnOnce(Bytes) -> Op) {
        let everything = KeyRange { start: Bytes::new(), end: Bytes::from_static(&[0xff]) };
        let page = self.store.range(everything, None, 1_000).await.unwrap();
        let item = page.items.iter().find(|item| item.key.ends_with(key.as_bytes())).unwrap();
        let ops = vec![op(item.key.clone())];
        self.store.commit(Commit { compare: Vec::new(), ops }).await.unwrap();
    }

    /// What a hub that begins with this ledger makes of it, once all that waits has waited for long enough.
    async fn read_by(&self, ledger: Ledger) -> Ledger {
        let engine = Engine::new(Config::default(), Duration::ZERO, Fuse::new(20), ledger, BTreeMap::new());
        let (shared, shutdown) = (Shared::new(engine), CancellationToken::new());
        let ingest = Ingest::new(shared.clone(), Health::new().gate("spaces"));
        let reading = tokio::spawn(ingest.run(EmbeddedSource::new(&self.server), shutdown.clone()));
        // The inventory is read last: it is of the last space.
        let known = async {
            while !shared.read(|engine| engine.targets.is_known()) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), known).await.expect("it is read to the end");
        shutdown.cancel();
        reading.await.unwrap().unwrap();
        for minutes in 0..5 {
            let later = shared.now() + Duration::from_mins(minutes);
            shared.read_mut(|engine| engine.tick(later));
            loop {
                let work = shared.read_mut(|engine| engine.work(committer::fresh(later)));
                if work.is_empty() {
                    break;
                }
                shared.read_mut(|engine| engine.committed(later, work));
            }
        }
        shared.read(|engine| {
            let names: Vec<_> = engine.ledger.targets().map(|(target, _)| engine.target_name(target)).collect();
            assert_eq!(names, ["t"], "by name, though no agent has enrolled");
            engine.ledger.clone()
        })
    }
}

#[tokio::test]
async fn what_is_stored_and_unreadable_at_a_start_is_removed_nowhere() {
    for lost in ["/configmaps/default/a", "/placements/-/p"] {
        let spaces = Spaces::new().await;
        for name in ["a", "b"] {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
            spaces.post("default", MAPS, &map).await;
        }
        let ledger = spaces.read_by(Ledger::default()).await;
        assert_eq!((ledger.assigned(), ledger.removals().count()), (2, 0));
        let deep = Bytes::from("[".repeat(200) + &"]".repeat(200));
        spaces.store(lost, |key| Op::Put(key, deep)).await;
        let after = spaces.read_by(ledger.clone()).await;
        assert_eq!((after.assigned(), after.removals().count()), (2, 0), "{lost}");
        // Where it is gone, it goes.
        spaces.store(lost, Op::Delete).await;
        let after = spaces.read_by(ledger).await;
        assert!(after.removals().count() > 0, "{lost}");
    }
}
