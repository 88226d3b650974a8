//! The agent's hands and eyes at a real API server: what its operations do, and what its watches tell.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, from_value, json};
use tideline_agent::Namespaces;
use tideline_agent::cluster::{Executor, Kinds, Scope, Watches, connect};
use tideline_agent::core::{
    Applied, ApplyTakeover, Created, Deleted, Earlier, Event, Inspected, NotDone, Observed, Op, OpResult, Orphaned,
    Served,
};
use tideline_common::health::Health;
use tideline_common::{
    ApplyPolicy, ConflictPolicy, Digest, Entry, EntryState, FieldMode, FieldPolicy, GroupKind, HubId, MARK_ANNOTATION,
    MARK_LABEL, Mark, ObjectKey, Origin, Prune, PruneAdopted, Reason, SourceRef, SpaceName, TargetId, Uid,
};
use tideline_tests::kubernetes::{Cluster, ClusterOptions};
use tideline_tests::{eventually_ok, require_kubernetes};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::texts::Texts;

const SOON: Duration = Duration::from_secs(90);

/// A real cluster with the agent's executor beside it.
struct Bench {
    cluster: Cluster,
    client: Client,
    kinds: Arc<Kinds>,
    texts: Arc<Texts>,
    executor: Executor,
}

impl Bench {
    async fn start(assets: &tideline_tests::kubernetes::Assets) -> Result<Self> {
        let cluster = Cluster::start(assets, ClusterOptions::default()).await?;
        let client = connect(Some(cluster.kubeconfig_path()), &Arc::default()).await?;
        let kinds = Arc::new(Kinds::new(client.clone()));
        let texts = Arc::new(Texts::default());
        let executor = Executor::new(client.clone(), Arc::clone(&kinds), Arc::clone(&texts) as _);
        Ok(Self { cluster, client, kinds, texts, executor })
    }

    async fn execute(&self, op: Op) -> OpResult {
        self.executor.execute(scope(), &op).await
    }

    async fn written(&self, op: Op) -> Result<Observed> {
        match self.execute(op).await {
            OpResult::Create(Ok(Created::Made(observed))) | OpResult::Apply(Ok(Applied { observed, .. })) => {
                Ok(*observed)
            }
            other => bail!("not written: {other:?}"),
        }
    }

    /// Orphans an object. Returns its state after that.
    async fn orphaned(&self, created: &Observed) -> Result<Observed> {
        let (key, version) = (created.key.clone(), Arc::<str>::from("v1"));
        let (uid, impersonate) = (created.uid.clone(), None);
        let orphaned =
            self.execute(Op::Orphan { key: key.clone(), version: Arc::clone(&version), uid, impersonate }).await;
        assert!(matches!(orphaned, OpResult::Orphan(Ok(Orphaned::Done))), "{orphaned:?}");
        match self.execute(Op::Get { key, version }).await {
            OpResult::Get(Ok(Some(observed))) => Ok(*observed),
            other => bail!("not there: {other:?}"),
        }
    }

    /// An entry for a body, which the executor finds.
    fn entry(&self, body: &Value) -> Arc<Entry> {
        let text = body.to_string();
        let input = Digest::of(text.as_bytes());
        self.texts.lock().insert(input, text.into());
        let field = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (group, version) = field("/apiVersion").split_once('/').unwrap_or(("", field("/apiVersion")));
        let kind = GroupKind::new(group, field("/kind"));
        Arc::new(Entry {
            key: ObjectKey::new(kind, field("/metadata/namespace"), field("/metadata/name")),
            version: version.into(),
            source: SourceRef {
                space: SpaceName::root(),
                uid: uid("source"),
                namespace: "default".into(),
                name: "it".into(),
            },
            generation: 1,
            state: EntryState::Apply,
            input,
            policy: ApplyPolicy::default().digest(),
            wave: 0,
            impersonate: None,
            implied: false,
        })
    }

    fn create(&self, body: &Value) -> Op {
        let entry = self.entry(body);
        Op::Create { mark: mark(&entry), policy: Arc::default(), entry, ran: None, earlier: Earlier::Answered }
    }

    fn apply(&self, body: &Value, uid: &Uid, takeover: ApplyTakeover, policy: ApplyPolicy) -> Op {
        let entry = self.entry(body);
        Op::Apply {
            mark: mark(&entry),
            policy: Arc::new(policy),
            entry,
            uid: uid.clone(),
            takeover,
            local: Arc::default(),
        }
    }
}

fn scope() -> Scope {
    Scope {
        hub: HubId::from_uuid(Uuid::from_u128(1)),
        target: TargetId::from_uuid(Uuid::from_u128(2)),
        formers: tideline_common::Formers::default(),
    }
}

fn uid(text: &str) -> Uid {
    text.parse().expect("a UID")
}

fn mark(entry: &Entry) -> Arc<Mark> {
    Arc::new(Mark {
        v: 1,
        hub: scope().hub,
        target: scope().target,
        source: entry.source.clone(),
        local: entry.key.clone(),
        generation: entry.generation,
        input: entry.input,
        policy: None,
        prune: Prune::Delete,
        prune_adopted: PruneAdopted::Orphan,
        origin: Origin::Created,
    })
}

fn config_map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data})
}

fn deployment(name: &str, replicas: Option<i32>, image: &str) -> Value {
    let mut body = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "web", "image": image}]},
            },
        },
    });
    if let Some(replicas) = replicas {
        body["spec"]["replicas"] = json!(replicas);
    }
    body
}

fn initial_replicas() -> ApplyPolicy {
    let fields = vec![FieldPolicy { path: "/spec/replicas".to_owned(), mode: FieldMode::Initial }];
    ApplyPolicy { fields, ..ApplyPolicy::default() }
}

fn failed_with(result: &OpResult, expected: Reason) {
    assert_eq!(result.failure().map(|failure| failure.reason), Some(expected), "{result:?}");
}

#[tokio::test]
async fn operations_touch_only_the_object_they_are_pinned_to() -> Result<()> {
    let assets = require_kubernetes!();
    let bench = Bench::start(&assets).await?;
    let config_maps: Api<ConfigMap> = Api::namespaced(bench.client.clone(), "default");
    let default = ApplyPolicy::default;

    let created = bench.written(bench.create(&config_map("a", &json!({"x": "1", "y": "1"})))).await?;
    assert!(created.labelled && created.managed.is_some() && created.mark.is_some(), "{created:?}");
    let again = bench.execute(bench.create(&config_map("a", &json!({})))).await;
    assert!(matches!(&again, OpResult::Create(Ok(Created::Exists(found))) if found.uid == created.uid), "{again:?}");

    let other = uid("00000000-0000-4000-8000-000000000000");
    let body = config_map("a", &json!({"x": "2"}));
    let wrong = bench.execute(bench.apply(&body, &other, ApplyTakeover::None, default())).await;
    assert!(matches!(wrong, OpResult::Apply(Err(NotDone::Stale))), "{wrong:?}");
    assert_eq!(config_maps.get("a").await?.data.context("data")?["x"], "1");
    let absent = config_map("absent", &json!({}));
    let nothing = bench.execute(bench.apply(&absent, &other, ApplyTakeover::None, default())).await;
    assert!(matches!(nothing, OpResult::Apply(Err(NotDone::Stale))), "{nothing:?}");
    assert!(config_maps.get_opt("absent").await?.is_none(), "an apply pinned to a UID created");

    // What the POST owned must go when the first apply does not name it.
    let applied = bench.written(bench.apply(&body, &created.uid, ApplyTakeover::Posted, default())).await?;
    let data = config_maps.get("a").await?.data.context("data")?;
    assert_eq!(data, BTreeMap::from([("x".to_owned(), "2".to_owned())]));
    let same = bench.written(bench.apply(&body, &created.uid, ApplyTakeover::None, default())).await?;
    assert_eq!((&same.managed, &same.resource_version), (&applied.managed, &applied.resource_version));

    let key = created.key.clone();
    let delete = |uid: &Uid| Op::Delete { key: key.clone(), version: "v1".into(), uid: uid.clone(), impersonate: None };
    let wrong = bench.execute(delete(&other)).await;
    assert!(matches!(wrong, OpResult::Delete(Err(NotDone::Stale))), "{wrong:?}");
    config_maps
        .patch("a", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": ["test.example/hold"]}})))
        .await?;
    let held = bench.execute(delete(&created.uid)).await;
    assert!(matches!(held, OpResult::Delete(Ok(Deleted::Finalizing))), "{held:?}");
    config_maps.patch("a", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}}))).await?;
    let gone = bench.execute(delete(&created.uid)).await;
    assert!(matches!(gone, OpResult::Delete(Ok(Deleted::Gone))), "{gone:?}");
    let get = bench.execute(Op::Get { key: key.clone(), version: "v1".into() }).await;
    assert!(matches!(get, OpResult::Get(Ok(None))), "{get:?}");

    let mut elsewhere = config_map("a", &json!({}));
    elsewhere["metadata"]["namespace"] = json!("absent");
    failed_with(&bench.execute(bench.create(&elsewhere)).await, Reason::NamespaceUnavailable);
    let unknown =
        json!({"apiVersion": "test.example/v1", "kind": "Thing", "metadata": {"name": "a", "namespace": "default"}});
    failed_with(&bench.execute(bench.create(&unknown)).await, Reason::KindMissing);
    let mut invalid = deployment("bad", Some(-1), "web:1");
    failed_with(&bench.execute(bench.create(&invalid)).await, Reason::Invalid);
    invalid = deployment("web", Some(1), "web:1");
    let web = bench.written(bench.create(&invalid)).await?;
    invalid["spec"]["selector"]["matchLabels"] = json!({"app": "other"});
    invalid["spec"]["template"]["metadata"]["labels"] = json!({"app": "other"});
    failed_with(
        &bench.execute(bench.apply(&invalid, &web.uid, ApplyTakeover::Posted, default())).await,
        Reason::Immutable,
    );
    Ok(())
}

#[tokio::test]
async fn fields_change_hands_as_policies_say() -> Result<()> {
    let assets = require_kubernetes!();
    let bench = Bench::start(&assets).await?;
    let config_maps: Api<ConfigMap> = Api::namespaced(bench.client.clone(), "default");
    let deployments: Api<Deployment> = Api::namespaced(bench.client.clone(), "default");
    let replicas =
        async |name: &str| -> Result<Option<i32>> { Ok(deployments.get(name).await?.spec.context("spec")?.replicas) };

    // Adopted: what we applied and drop goes, what we never applied stays.
    let foreign: ConfigMap = from_value(config_map("adopted", &json!({"ours": "1", "theirs": "1"})))?;
    let foreign = config_maps
        .create(&PostParams { field_manager: Some("helper".to_owned()), ..PostParams::default() }, &foreign)
        .await?;
    let adopted = uid(foreign.metadata.uid.as_deref().unwrap_or_default());
    let with = config_map("adopted", &json!({"ours": "1"}));
    bench.written(bench.apply(&with, &adopted, ApplyTakeover::Adopt, ApplyPolicy::default())).await?;
    let without = config_map("adopted", &json!({}));
    let kept = bench.written(bench.apply(&without, &adopted, ApplyTakeover::None, ApplyPolicy::default())).await?;
    let data = config_maps.get("adopted").await?.data.context("data")?;
    assert_eq!(data, BTreeMap::from([("theirs".to_owned(), "1".to_owned())]));

    // Orphaned: nothing of ours is left but the data.
    let orphaned = bench.orphaned(&kept).await?;
    assert!(orphaned.managed.is_none() && orphaned.mark.is_none() && !orphaned.labelled, "{orphaned:?}");
    let left = config_maps.get("adopted").await?;
    assert!(!left.metadata.labels.unwrap_or_default().contains_key(MARK_LABEL));
    assert!(!left.metadata.annotations.unwrap_or_default().contains_key(MARK_ANNOTATION));
    assert_eq!(left.data.context("data")?.len(), 1);

    // An object that only we wrote keeps its data too, and loses its managedFields for good.
    let only_ours = bench.written(bench.create(&config_map("only", &json!({"a": "1"})))).await?;
    let orphaned = bench.orphaned(&only_ours).await?;
    assert!(orphaned.managed.is_none() && !orphaned.labelled, "{orphaned:?}");
    assert_eq!(config_maps.get("only").await?.data.context("data")?["a"], "1");

    // Another manager's field is left alone and named; the rest is applied.
    let created = bench.written(bench.create(&deployment("shared", Some(2), "web:1"))).await?;
    let scale = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 5}});
    deployments.patch("shared", &PatchParams::apply("scaler").force(), &Patch::Apply(&scale)).await?;
    let report = ApplyPolicy { conflicts: ConflictPolicy::Report, ..ApplyPolicy::default() };
    let body = deployment("shared", Some(2), "web:2");
    let result = bench.execute(bench.apply(&body, &created.uid, ApplyTakeover::Posted, report)).await;
    let OpResult::Apply(Ok(Applied { conflicts, .. })) = &result else { bail!("{result:?}") };
    let named: Vec<_> = conflicts.iter().map(|it| (it.manager.as_str(), it.field.as_str())).collect();
    assert_eq!(named, [("scaler", ".spec.replicas")]);
    let shared = deployments.get("shared").await?.spec.context("spec")?;
    let image = shared.template.spec.context("spec")?.containers[0].image.clone();
    assert_eq!((shared.replicas, image.as_deref()), (Some(5), Some("web:2")));

    // Initial: set at first, then the target's; and gone when the source drops it.
    let created = bench.written(bench.create(&deployment("initial", Some(3), "web:1"))).await?;
    let body = deployment("initial", Some(3), "web:2");
    bench.written(bench.apply(&body, &created.uid, ApplyTakeover::Posted, initial_replicas())).await?;
    assert_eq!(replicas("initial").await?, Some(3));
    deployments
        .patch(
            "initial",
            &PatchParams { field_manager: Some("scaler".to_owned()), ..PatchParams::default() },
            &Patch::Merge(json!({"spec": {"replicas": 7}})),
        )
        .await?;
    let body = deployment("initial", Some(4), "web:3");
    bench.written(bench.apply(&body, &created.uid, ApplyTakeover::None, initial_replicas())).await?;
    assert_eq!(replicas("initial").await?, Some(7));

    let created = bench.written(bench.create(&deployment("dropped", Some(3), "web:1"))).await?;
    let body = deployment("dropped", Some(3), "web:2");
    bench.written(bench.apply(&body, &created.uid, ApplyTakeover::Posted, initial_replicas())).await?;
    let body = deployment("dropped", None, "web:2");
    bench.written(bench.apply(&body, &created.uid, ApplyTakeover::None, initial_replicas())).await?;
    assert_eq!(replicas("dropped").await?, Some(1));
    Ok(())
}

#[tokio::test]
async fn inspecting_a_namespace_or_definition_counts_foreign_objects() -> Result<()> {
    let assets = require_kubernetes!();
    let bench = Bench::start(&assets).await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    let shop = bench.written(bench.create(&namespace)).await?;
    let inspect = |key: &ObjectKey| Op::Inspect { key: key.clone(), version: "v1".into() };
    let inspected = async |key: &ObjectKey| match bench.execute(inspect(key)).await {
        OpResult::Inspect(Ok(Inspected::Holds { foreign, example, ours, itself })) => {
            assert_eq!(itself.key, *key);
            Ok((foreign, example, ours))
        }
        other => bail!("{other:?}"),
    };
    assert_eq!(inspected(&shop.key).await?, (0, None, 0));

    let mut ours = config_map("ours", &json!({}));
    ours["metadata"]["namespace"] = json!("shop");
    let ours = bench.written(bench.create(&ours)).await?;
    let config_maps: Api<ConfigMap> = Api::namespaced(bench.client.clone(), "shop");
    let child = json!({"metadata": {"name": "child", "ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "ours", "uid": ours.uid}]}});
    config_maps.create(&PostParams::default(), &from_value(child)?).await?;
    config_maps.create(&PostParams::default(), &from_value(json!({"metadata": {"name": "kube-root-ca.crt"}}))?).await?;
    assert_eq!(inspected(&shop.key).await?, (0, None, 1));
    config_maps.create(&PostParams::default(), &from_value(json!({"metadata": {"name": "stranger"}}))?).await?;
    assert_eq!(inspected(&shop.key).await?, (1, Some("ConfigMap shop/stranger".to_owned()), 1));

    let definition = bench.written(bench.create(&thing_definition())).await?;
    established(&bench).await?;
    assert_eq!(inspected(&definition.key).await?, (0, None, 0));
    let thing = "{apiVersion: test.example/v1, kind: Thing, metadata: {name: a, namespace: shop}}";
    bench.cluster.kubectl().run_with_input(&["create", "-f", "-"], thing).await?;
    assert_eq!(inspected(&definition.key).await?, (1, Some("Thing.test.example shop/a".to_owned()), 0));
    Ok(())
}

#[tokio::test]
async fn watches_tell_what_is_there_what_changes_and_what_is_not_served() -> Result<()> {
    let assets = require_kubernetes!();
    let mut bench = Bench::start(&assets).await?;
    let (sender, mut events) = mpsc::channel(64);
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    let mut watches = Watches::new(
        bench.client.clone(),
        Arc::clone(&bench.kinds),
        sender,
        Namespaces::All,
        tasks.clone(),
        stop.clone(),
    );

    let created = bench.written(bench.create(&config_map("a", &json!({"x": "1"})))).await?;
    let unmarked: ConfigMap = from_value(json!({"metadata": {"name": "unmarked"}}))?;
    Api::<ConfigMap>::namespaced(bench.client.clone(), "default").create(&PostParams::default(), &unmarked).await?;
    let config_map_kind = GroupKind::new("", "ConfigMap");
    let thing_kind = GroupKind::new("test.example", "Thing");
    let definition_kind = GroupKind::new("apiextensions.k8s.io", "CustomResourceDefinition");
    let kinds = [&config_map_kind, &thing_kind, &definition_kind].map(|kind| (kind.clone(), Arc::from("v1")));
    watches.set(scope(), BTreeMap::from(kinds));

    let listed = until(&mut events, |event| match event {
        Event::Listed { kind, objects } if *kind == config_map_kind => Some(objects.clone()),
        _ => None,
    });
    let listed = listed.await?;
    // What a write returned is what a list shows: "unchanged" rests on it.
    let facts = |it: &Observed| (it.uid.clone(), it.resource_version.clone(), it.managed, it.mark.clone());
    assert_eq!(listed.iter().map(facts).collect::<Vec<_>>(), [facts(&created)]);

    let body = config_map("a", &json!({"x": "2"}));
    let op = bench.apply(&body, &created.uid, ApplyTakeover::Posted, ApplyPolicy::default());
    let applied = bench.written(op).await?;
    until(&mut events, |event| match event {
        Event::Observed(it) if it.resource_version == applied.resource_version => {
            assert_eq!(facts(it), facts(&applied));
            Some(())
        }
        _ => None,
    })
    .await?;

    watches.relist(std::slice::from_ref(&config_map_kind));
    until(&mut events, |event| matches!(event, Event::Listed { kind, .. } if *kind == config_map_kind).then_some(()))
        .await?;

    // A kind that appears is noticed by its definition, long before the next check.
    bench.written(bench.create(&thing_definition())).await?;
    let served = until(&mut events, |event| match event {
        Event::Kind { kind, served: served @ Served::Yes { .. } } if *kind == thing_kind => Some(*served),
        _ => None,
    });
    assert_eq!(served.await?, Served::Yes { namespaced: true, status: true });

    // An API server that goes away is a lost watch, and comes back as a list.
    bench.cluster.stop_apiserver()?;
    until(&mut events, |event| {
        matches!(event, Event::WatchLost { kind, reason: Reason::Unavailable, .. } if *kind == config_map_kind)
            .then_some(())
    })
    .await?;
    bench.cluster.restart_apiserver().await?;
    until(&mut events, |event| matches!(event, Event::Listed { kind, .. } if *kind == config_map_kind).then_some(()))
        .await?;

    let delete =
        Op::Delete { key: created.key.clone(), version: "v1".into(), uid: created.uid.clone(), impersonate: None };
    assert!(matches!(bench.execute(delete).await, OpResult::Delete(Ok(Deleted::Gone))));
    until(&mut events, |event| matches!(event, Event::Gone { uid, .. } if *uid == created.uid).then_some(())).await?;
    stop.cancel();
    tasks.close();
    tokio::time::timeout(SOON, tasks.wait()).await.context("a watch did not end")?;
    Ok(())
}

/// As its controller may write it, where the schema preserves unknown fields. Who manages it is nested deeper still.
#[tokio::test]
async fn an_object_too_deep_to_be_read_is_seen_and_written_beside_its_siblings() -> Result<()> {
    let assets = require_kubernetes!();
    let bench = Bench::start(&assets).await?;
    bench.written(bench.create(&thing_definition())).await?;
    let thing = |name: &str, x: i64| {
        json!({"apiVersion": "test.example/v1", "kind": "Thing",
            "metadata": {"name": name, "namespace": "default"}, "spec": {"x": x}})
    };
    let make = async |name: &str| bench.written(bench.create(&thing(name, 1))).await;
    let deep = eventually_ok(SOON, "the kind to be served", async || make("deep").await).await?;
    let flat = make("flat").await?;
    let nested = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
    let write = async |status: &str| {
        let patch = format!(r#"{{"status":{status}}}"#).into_bytes();
        let request = http::Request::patch("/apis/test.example/v1/namespaces/default/things/deep/status")
            .header("content-type", "application/merge-patch+json")
            .body(patch)?;
        anyhow::Ok(bench.client.request_text(request).await?)
    };
    write(&format!(r#"{{"aside":{nested},"conditions":{nested}}}"#)).await?;

    let (sender, mut events) = mpsc::channel(64);
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let kinds = Arc::clone(&bench.kinds);
    let mut watches = Watches::new(bench.client.clone(), kinds, sender, Namespaces::All, tasks.clone(), stop.clone());
    watches.set(scope(), BTreeMap::from([(deep.key.kind.clone(), Arc::from("v1"))]));
    let said = |it: &Observed| (it.uid.clone(), it.health, it.health_message.clone());
    let unread = "its .status.conditions is nested deeper than 127 levels and cannot be judged".to_owned();
    let listed = until(&mut events, |event| match event {
        Event::Listed { objects, .. } => Some(objects.iter().map(said).collect::<Vec<_>>()),
        _ => None,
    });
    let unknown = (deep.uid.clone(), Health::Unknown, unread);
    assert_eq!(listed.await?, [unknown, (flat.uid.clone(), Health::Ready, String::new())]);

    // The watch goes on, and so does what is done to the object.
    write(r#"{"conditions":[{"type":"Ready","status":"False","reason":"Because"}]}"#).await?;
    let apply = |name: &str, of: &Observed| {
        bench.apply(&thing(name, 2), &of.uid, ApplyTakeover::Posted, ApplyPolicy::default())
    };
    for of in [&deep, &flat] {
        let applied = bench.written(apply(&of.key.name, of)).await?;
        until(&mut events, |event| match event {
            Event::Observed(it) if it.resource_version == applied.resource_version => {
                assert_eq!((said(it), it.managed), (said(&applied), applied.managed));
                Some(())
            }
            Event::WatchLost { message, .. } => panic!("{message}"),
            _ => None,
        })
        .await?;
    }
    assert!(!bench.orphaned(&deep).await?.labelled);
    stop.cancel();
    tasks.close();
    tokio::time::timeout(SOON, tasks.wait()).await.context("a watch did not end")?;
    Ok(())
}

#[tokio::test]
async fn an_object_whose_version_is_no_longer_served_is_seen_and_removed_at_another() -> Result<()> {
    let assets = require_kubernetes!();
    let bench = Bench::start(&assets).await?;
    let mut definition = thing_definition();
    definition["spec"]["versions"][0]["storage"] = false.into();
    let mut second = definition["spec"]["versions"][0].clone();
    (second["name"], second["storage"]) = ("v2".into(), true.into());
    definition["spec"]["versions"].as_array_mut().context("versions")?.push(second);
    bench.written(bench.create(&definition)).await?;
    let body = json!({"apiVersion": "test.example/v1", "kind": "Thing",
        "metadata": {"name": "a", "namespace": "default"}, "spec": {"x": 1}});
    let created =
        eventually_ok(SOON, "the kind to be served", async || bench.written(bench.create(&body)).await).await?;

    let definitions: Api<CustomResourceDefinition> = Api::all(bench.client.clone());
    let off = json!([{"op": "replace", "path": "/spec/versions/0/served", "value": false}]);
    let off = Patch::Json::<()>(from_value(off)?);
    definitions.patch("things.test.example", &PatchParams::default(), &off).await?;
    // What the executor read of the group is out of date by now.
    let apply = || bench.apply(&body, &created.uid, ApplyTakeover::Posted, ApplyPolicy::default());
    eventually_ok(SOON, "the first version to be gone", async || {
        let result = bench.execute(apply()).await;
        ensure!(result.failure().is_some_and(|failure| failure.reason == Reason::KindMissing), "{result:?}");
        Ok(())
    })
    .await?;

    let (sender, mut events) = mpsc::channel(64);
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let kinds = Arc::new(Kinds::new(bench.client.clone()));
    let mut watches = Watches::new(bench.client.clone(), kinds, sender, Namespaces::All, tasks.clone(), stop.clone());
    watches.set(scope(), BTreeMap::from([(created.key.kind.clone(), Arc::from("v1"))]));
    let listed = until(&mut events, |event| match event {
        Event::Listed { objects, .. } => Some(objects.iter().map(|it| it.uid.clone()).collect::<Vec<_>>()),
        _ => None,
    });
    assert_eq!(listed.await?, std::slice::from_ref(&created.uid));
    let delete = |version: &str| {
        let (key, uid) = (created.key.clone(), created.uid.clone());
        bench.execute(Op::Delete { key, version: version.into(), uid, impersonate: None })
    };
    assert!(matches!(delete("v1").await, OpResult::Delete(Ok(Deleted::Gone))));
    until(&mut events, |event| matches!(event, Event::Gone { uid, .. } if *uid == created.uid).then_some(())).await?;
    stop.cancel();

    // At none: then nothing of it is left.
    definitions.delete("things.test.example", &kube::api::DeleteParams::default()).await?;
    eventually_ok(SOON, "the kind to be gone", async || match delete("v1").await {
        OpResult::Delete(Ok(Deleted::Gone)) => Ok(()),
        other => bail!("{other:?}"),
    })
    .await
}

/// Waits for an event that `pick` picks.
async fn until<T>(events: &mut mpsc::Receiver<Event>, mut pick: impl FnMut(&Event) -> Option<T>) -> Result<T> {
    let mut seen = Vec::new();
    let found = tokio::time::timeout(SOON, async {
        loop {
            let event = events.recv().await?;
            if let Some(found) = pick(&event) {
                return Some(found);
            }
            seen.push(format!("{event:?}"));
        }
    });
    match found.await {
        Ok(found) => found.context("the watches ended"),
        Err(_elapsed) => bail!("it did not come; instead: {seen:#?}"),
    }
}

fn thing_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.test.example"},
        "spec": {
            "group": "test.example",
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

async fn established(bench: &Bench) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(bench.client.clone());
    let condition = kube::runtime::conditions::is_crd_established();
    let wait = kube::runtime::wait::await_condition(definitions, "things.test.example", condition);
    tokio::time::timeout(SOON, wait).await.context("the definition is not established")??;
    let namespaces: Api<Namespace> = Api::all(bench.client.clone());
    namespaces.get("shop").await?;
    Ok(())
}
