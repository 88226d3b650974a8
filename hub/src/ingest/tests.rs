//! What a start makes of spaces, over a store in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
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
use crate::engine::LastKnown;
use crate::ledger::Ledger;
use crate::link::core::Config;
use crate::removal_guards::Fuse;
use crate::spaces::EmbeddedSource;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TARGETS: &str = "/apis/tideline.dev/v1alpha1/synctargets";

/// A store with the spaces of a hub.
struct Spaces {
    store: Arc<SqliteStore>,
    server: Arc<ApiServer>,
    /// What hubs have written of SyncTargets.
    known: Arc<Mutex<BTreeMap<TargetId, LastKnown>>>,
}

impl Spaces {
    async fn new() -> Self {
        let store = SqliteStore::in_memory().unwrap();
        let server = ApiServer::new(Arc::clone(&store) as _, tideline_apiserver::Config::default()).await.unwrap();
        for (space, crds) in [("root", tideline_api::root_crds()), ("default", tideline_api::workload_crds())] {
            let crds = crds.iter().map(|crd| serde_json::to_value(crd).unwrap()).collect();
            server.create_space(space, SpaceConfig { crds, ..SpaceConfig::default() }).await.unwrap();
        }
        let spaces = Self { store, server, known: Arc::default() };
        let spec = SpaceSpec { embedded: Some(EmbeddedSpace {}), kubeconfig: None, allow: Allow::everything() };
        let space = serde_json::to_value(Space::new("default", spec)).unwrap();
        spaces.post("root", "/apis/tideline.dev/v1alpha1/spaces", &space).await;
        let target = json!({
            "apiVersion": "tideline.dev/v1alpha1", "kind": "SyncTarget", "spec": {},
            "metadata": {"name": "t", "labels": {"tier": "shop"}},
        });
        spaces.post("root", TARGETS, &target).await;
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
        let ops = vec![op(self.item(key).await.0)];
        self.store.commit(Commit { compare: Vec::new(), ops }).await.unwrap();
    }

    /// Stores otherwise the object whose key ends so. Returns what was stored.
    async fn damage(&self, key: &str, damage: impl FnOnce(Bytes) -> Bytes) -> Bytes {
        let (_, stored) = self.item(key).await;
        let damaged = damage(stored.clone());
        self.store(key, |key| Op::Put(key, damaged)).await;
        stored
    }

    /// The key that ends so, and what is stored under it.
    async fn item(&self, key: &str) -> (Bytes, Bytes) {
        let everything = KeyRange { start: Bytes::new(), end: Bytes::from_static(&[0xff]) };
        let page = self.store.range(everything, None, 1_000).await.unwrap();
        let item = page.items.into_iter().find(|item| item.key.ends_with(key.as_bytes())).unwrap();
        (item.key, item.value)
    }

    /// What a hub that begins with this ledger makes of it, once all that waits has waited for long enough.
    async fn read_by(&self, ledger: Ledger) -> Ledger {
        let mut run = self.start(ledger).await;
        let ledger = run.settled();
        run.shared.read(|engine| {
            let mut names = engine.ledger.targets().map(|(target, _)| engine.target_name(target));
            assert!(names.all(|name| ["t", "other"].contains(&&*name)), "by name, though no agent has enrolled");
        });
        run.stop().await;
        ledger
    }

    /// A hub that begins with this ledger, and has read everything.
    async fn start(&self, ledger: Ledger) -> Run {
        let mut engine = Engine::new(Config::default(), Duration::ZERO, Fuse::new(20), ledger, BTreeMap::new());
        engine.know(self.known.lock().unwrap().clone());
        let (shared, shutdown) = (Shared::new(engine), CancellationToken::new());
        let ingest = Ingest::new(shared.clone(), Health::new().gate("spaces"));
        let reading = tokio::spawn(ingest.run(EmbeddedSource::new(&self.server), shutdown.clone()));
        let run = Run { shared, shutdown, reading, minutes: 0, known: Arc::clone(&self.known) };
        // The inventory is read last: it is of the last space.
        run.until(|engine| engine.targets.is_known()).await;
        run
    }
}

/// One run of a hub.
struct Run {
    shared: Shared,
    shutdown: CancellationToken,
    reading: tokio::task::JoinHandle<Result<(), Infallible>>,
    /// That have gone by.
    minutes: u64,
    known: Arc<Mutex<BTreeMap<TargetId, LastKnown>>>,
}

impl Run {
    async fn until(&self, wanted: impl Fn(&Engine) -> bool) {
        let waiting = async {
            while !self.shared.read(&wanted) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("it is read to the end");
    }

    /// Once all that waits has waited for long enough.
    fn settled(&mut self) -> Ledger {
        for minutes in self.minutes..self.minutes + 5 {
            let later = self.shared.now() + Duration::from_mins(minutes);
            self.shared.read_mut(|engine| engine.tick(later));
            loop {
                let work = self.shared.read_mut(|engine| engine.work(committer::fresh(later)));
                if work.is_empty() {
                    break;
                }
                for (target, known) in &work.inventory {
                    let mut all = self.known.lock().unwrap();
                    match known {
                        Some(known) => all.insert(*target, known.clone()),
                        None => all.remove(target),
                    };
                }
                self.shared.read_mut(|engine| engine.committed(later, work));
            }
        }
        self.minutes += 5;
        self.shared.read(|engine| (*engine.ledger).clone())
    }

    /// Once all that waits has waited, and it has come to so many assignments and removals.
    async fn comes_to(&mut self, wanted: (u64, usize)) {
        let waiting = async {
            while counts(&self.settled()) != wanted {
                tokio::task::yield_now().await;
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(20), waiting).await.is_ok();
        assert!(ended, "{:?} and not {wanted:?}", counts(&self.settled()));
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.reading.await.unwrap().unwrap();
    }
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

type Damage = fn(Bytes) -> Bytes;

/// What may become of the bytes of a stored object.
fn damages() -> Vec<(&'static str, Damage)> {
    fn edited(stored: &[u8], edit: impl FnOnce(&mut Value)) -> Bytes {
        let mut object = serde_json::from_slice(stored).unwrap();
        edit(&mut object);
        object.to_string().into()
    }
    vec![
        ("too deep", |_| ("[".repeat(200) + &"]".repeat(200)).into()),
        ("no object", |_| "null".into()),
        ("no UID", |stored| edited(&stored, |object| object["metadata"]["uid"] = json!(42))),
        ("no kind", |stored| edited(&stored, |object| object["kind"] = Value::Null)),
        ("another name", |stored| edited(&stored, |object| object["metadata"]["name"] = json!("b"))),
    ]
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn counts(ledger: &Ledger) -> (u64, usize) {
    (ledger.assigned(), ledger.removals().count())
}

#[tokio::test]
async fn what_is_stored_and_unreadable_at_a_start_is_removed_nowhere() {
    for lost in ["/configmaps/default/a", "/placements/-/p", "/namespaces/-/default", "/spaces/-/default"] {
        for (what, damage) in damages() {
            let spaces = Spaces::new().await;
            for name in ["a", "b"] {
                spaces.post("default", MAPS, &map(name)).await;
            }
            let ledger = spaces.read_by(Ledger::default()).await;
            assert_eq!(counts(&ledger), (2, 0));
            spaces.damage(lost, damage).await;
            let after = spaces.read_by(ledger.clone()).await;
            assert_eq!(counts(&after), (2, 0), "{lost}: {what}");
        }
    }
    for lost in ["/configmaps/default/a", "/placements/-/p"] {
        let spaces = Spaces::new().await;
        for name in ["a", "b"] {
            spaces.post("default", MAPS, &map(name)).await;
        }
        let ledger = spaces.read_by(Ledger::default()).await;
        // Where it is gone, it goes.
        spaces.store(lost, Op::Delete).await;
        let after = spaces.read_by(ledger).await;
        assert!(after.removals().count() > 0, "{lost}");
    }
}

#[tokio::test]
async fn beside_what_is_unreadable_at_a_start_all_else_goes_on() {
    let others = ["/configmaps/default/a", "/locations/-/l", "/namespaces/-/more"];
    for lost in others {
        for (what, damage) in damages() {
            let spaces = Spaces::new().await;
            for name in ["a", "b"] {
                spaces.post("default", MAPS, &map(name)).await;
            }
            let more = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "more"}});
            spaces.post("default", "/api/v1/namespaces", &more).await;
            let other = json!({
                "apiVersion": "tideline.dev/v1alpha1", "kind": "SyncTarget", "spec": {}, "metadata": {"name": "other"},
            });
            spaces.post("root", TARGETS, &other).await;
            let location = json!({
                "apiVersion": "tideline.dev/v1alpha1", "kind": "Location", "metadata": {"name": "l"},
                "spec": {"instanceSelector": {"matchLabels": {"tier": "none"}}},
            });
            spaces.post("root", "/apis/tideline.dev/v1alpha1/locations", &location).await;
            let ledger = spaces.read_by(Ledger::default()).await;
            assert_eq!(counts(&ledger), (2, 0));
            spaces.damage(lost, damage).await;
            spaces.store("/configmaps/default/b", Op::Delete).await;
            spaces.post("default", MAPS, &map("c")).await;
            let after = spaces.read_by(ledger).await;
            assert_eq!(counts(&after), (2, 1), "{lost}: {what}: `b` is gone, and `c` is new");
        }
    }
}

/// The SyncTarget `t` and `other`, alike, with two ConfigMaps at each.
async fn two_targets() -> (Spaces, Ledger) {
    let spaces = Spaces::new().await;
    for name in ["a", "b"] {
        spaces.post("default", MAPS, &map(name)).await;
    }
    let other = json!({
        "apiVersion": "tideline.dev/v1alpha1", "kind": "SyncTarget", "spec": {},
        "metadata": {"name": "other", "labels": {"tier": "shop"}},
    });
    spaces.post("root", TARGETS, &other).await;
    let ledger = spaces.read_by(Ledger::default()).await;
    assert_eq!(counts(&ledger), (4, 0));
    (spaces, ledger)
}

#[tokio::test]
async fn a_target_without_an_agent_that_is_unreadable_at_a_start_takes_part_as_it_was_last_read() {
    for (what, damage) in damages() {
        let (spaces, ledger) = two_targets().await;
        spaces.damage("/synctargets/-/t", damage).await;
        spaces.store("/configmaps/default/b", Op::Delete).await;
        for name in ["c", "d"] {
            spaces.post("default", MAPS, &map(name)).await;
        }
        let mut run = spaces.start(ledger).await;
        assert_eq!(counts(&run.settled()), (6, 1), "{what}: `b` is gone, `c` and `d` are new, at both");
        spaces.store("/synctargets/-/t", Op::Delete).await;
        run.comes_to((3, 1)).await;
        run.stop().await;
        assert_eq!(spaces.known.lock().unwrap().len(), 1, "{what}: of what is deleted nothing is kept");
    }
}

#[tokio::test]
async fn a_target_of_which_nothing_is_known_holds_up_no_other_once_it_is_deleted_or_read() {
    let (spaces, ledger) = two_targets().await;
    // As a hub left it that kept nothing of SyncTargets.
    spaces.known.lock().unwrap().clear();
    let stored = spaces.damage("/synctargets/-/t", |_| "[]".into()).await;
    spaces.post("default", MAPS, &map("c")).await;
    let mut run = spaces.start(ledger.clone()).await;
    assert_eq!(counts(&run.settled()), (4, 0), "nobody knows what selects it");
    spaces.store("/synctargets/-/t", |key| Op::Put(key, stored)).await;
    run.comes_to((6, 0)).await;
    run.stop().await;

    spaces.known.lock().unwrap().clear();
    spaces.damage("/synctargets/-/t", |_| "[]".into()).await;
    let mut run = spaces.start(ledger).await;
    assert_eq!(counts(&run.settled()), (4, 0));
    spaces.store("/synctargets/-/t", Op::Delete).await;
    run.comes_to((3, 0)).await;
    run.stop().await;
}

/// What has a key that nobody can read keeps what is absent of its kind, and holds up nothing else.
#[tokio::test]
async fn beside_a_key_that_is_unreadable_at_a_start_all_else_goes_on() {
    for (lost, meanwhile) in [
        // That `b` is gone is not known.
        ("/configmaps/default/a", (3, 0)),
        ("/locations/-/l", (2, 1)),
        ("/synctargets/-/t", (2, 1)),
        ("/namespaces/-/default", (2, 1)),
        // Nobody knows what it selects, nor what the space may do.
        ("/placements/-/p", (1, 1)),
        ("/spaces/-/default", (2, 0)),
    ] {
        let spaces = Spaces::new().await;
        for name in ["a", "b"] {
            spaces.post("default", MAPS, &map(name)).await;
        }
        let location = json!({
            "apiVersion": "tideline.dev/v1alpha1", "kind": "Location", "metadata": {"name": "l"},
            "spec": {"instanceSelector": {"matchLabels": {"tier": "none"}}},
        });
        spaces.post("root", "/apis/tideline.dev/v1alpha1/locations", &location).await;
        let ledger = spaces.read_by(Ledger::default()).await;
        spaces.store("/configmaps/default/b", Op::Delete).await;
        spaces.post("default", MAPS, &map("c")).await;
        let (key, value) = spaces.item(lost).await;
        let nameless: Bytes = [&key[..key.len() - 1], &[0xff]].concat().into();
        let moved = vec![Op::Delete(key.clone()), Op::Put(nameless.clone(), value.clone())];
        spaces.store.commit(Commit { compare: Vec::new(), ops: moved }).await.unwrap();
        let mut run = spaces.start(ledger).await;
        assert_eq!(counts(&run.settled()), meanwhile, "{lost}");
        let said = run.shared.read(|engine| engine.unreadable(&"default".parse().unwrap()));
        assert!(said.is_some_and(|said| said.contains("a key in the store cannot be read of ")), "{lost}");
        let back = vec![Op::Delete(nameless), Op::Put(key, value)];
        spaces.store.commit(Commit { compare: Vec::new(), ops: back }).await.unwrap();
        run.comes_to((2, 1)).await;
        run.until(|engine| engine.unreadable(&"default".parse().unwrap()).is_none()).await;
        run.stop().await;
    }
}

#[tokio::test]
async fn what_is_unreadable_goes_when_it_is_deleted() {
    let spaces = Spaces::new().await;
    for name in ["a", "b"] {
        spaces.post("default", MAPS, &map(name)).await;
    }
    let ledger = spaces.read_by(Ledger::default()).await;
    spaces.damage("/configmaps/default/a", |_| "[]".into()).await;
    let mut run = spaces.start(ledger).await;
    assert_eq!(counts(&run.settled()), (2, 0));
    let said = |engine: &Engine| engine.unreadable(&"default".parse().unwrap());
    assert!(run.shared.read(said).is_some_and(|said| said.contains("configmaps default/a (")));
    spaces.store("/configmaps/default/a", Op::Delete).await;
    run.until(|engine| engine.index.leaving() == 1).await;
    assert_eq!(counts(&run.settled()), (1, 1));
    assert_eq!(run.shared.read(said), None);
}

#[tokio::test]
async fn custom_objects_outlast_a_definition_that_is_unreadable_for_a_time() {
    let definition = |plural: &str, kind: &str| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        })
    };
    let spaces = Spaces::new().await;
    for (plural, kind) in [("widgets", "Widget"), ("gadgets", "Gadget")] {
        spaces.post("default", CRDS, &definition(plural, kind)).await;
    }
    let placement = json!({
        "apiVersion": "tideline.dev/v1alpha1", "kind": "Placement", "metadata": {"name": "w"},
        "spec": {
            "targets": [{"matchLabels": {"tier": "shop"}}],
            "objects": [{"apiGroup": "example.com", "resources": ["widgets"]}],
        },
    });
    spaces.post("default", "/apis/tideline.dev/v1alpha1/placements", &placement).await;
    for name in ["a", "b"] {
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}});
        spaces.post("default", "/apis/example.com/v1/namespaces/default/widgets", &widget).await;
    }
    let ledger = spaces.read_by(Ledger::default()).await;
    assert_eq!(counts(&ledger), (2, 0));
    let is_read =
        |engine: &Engine| engine.sources.iter().filter(|(id, _)| &*id.resource.group == "example.com").count() == 2;

    let stored = spaces.damage("/widgets.example.com", |_| "[]".into()).await;
    let mut run = spaces.start(ledger).await;
    assert_eq!(counts(&run.settled()), (2, 0), "after a restart");
    spaces.store("/widgets.example.com", |key| Op::Put(key, stored)).await;
    run.until(is_read).await;
    assert_eq!(counts(&run.settled()), (2, 0), "and when it is repaired");
    run.stop().await;
}

#[test]
fn a_target_tells_which_of_its_fields_have_no_effect() {
    assert!(without_effect(&SyncTargetSpec::default()).is_empty());
    let poll = Poll { profile: tideline_api::PollProfile::Metered };
    let properties = [("store".to_owned(), "0042".to_owned())].into();
    let told = without_effect(&SyncTargetSpec { properties, poll, ..SyncTargetSpec::default() });
    assert_eq!(told, ["spec.properties", "spec.poll.profile"]);
}
