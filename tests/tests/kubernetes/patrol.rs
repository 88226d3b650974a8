//! The patrol, readiness gates and drift that is only reported, on a real API server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{from_value, json};
use tideline_agent::Namespaces;
use tideline_agent::cluster::{Executor, Kinds, MetadataList, Scope, connect};
use tideline_agent::core::{Config, Core, Effect, Enrolled, Event, FuseLimits, Loaded, PatrolTally, Served, Timer};
use tideline_common::wire::v1::{Accepted, Attested, ClusterFacts, Instance};
use tideline_common::{
    ApplyPolicy, Attestation, DesiredSet, Digest, Entry, EntryState, GroupKind, HubId, MARK_ANNOTATION, MARK_LABEL,
    Mark, Monotonic, ObjectKey, Origin, Prune, PruneAdopted, RevisionPoint, Shown, SourceRef, SpaceName, TargetId,
    Version,
};
use tideline_tests::kubernetes::{Cluster, ClusterOptions};
use tideline_tests::{eventually_ok, require_kubernetes};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::objects::{CONFIG, DEPLOYMENT, SOON, api, apply, config, deployment, shows};
use crate::site::{CONFIG_MAPS, REPORT, Site, mark_of, namespace, of_app, placed, value};
use crate::texts::Texts;

/// A patrol lists twice, some ten seconds apart, and corrects what it found.
const PATROLLED: Duration = Duration::from_mins(1);
const OBJECTS: usize = 12;

/// The core of an agent with all its edges but the watches and the hub: nothing tells it what happens in the cluster.
struct Watchless {
    core: Core,
    client: Client,
    kinds: Arc<Kinds>,
    executor: Arc<Executor>,
    events: mpsc::Receiver<Event>,
    sender: mpsc::Sender<Event>,
    timers: BTreeMap<Timer, Instant>,
    start: Instant,
    patrols: Vec<PatrolTally>,
    /// What patrols saw under the label of another target.
    copies: BTreeSet<String>,
    _cluster: Cluster,
}

fn scope() -> Scope {
    Scope {
        hub: HubId::from_uuid(Uuid::from_u128(1)),
        target: TargetId::from_uuid(Uuid::from_u128(2)),
        formers: tideline_common::Formers::default(),
    }
}

fn source(name: &str) -> SourceRef {
    SourceRef {
        space: SpaceName::root(),
        uid: format!("source-{name}").parse().expect("a UID"),
        namespace: "shop".into(),
        name: name.into(),
    }
}

fn names() -> Vec<String> {
    (0..OBJECTS).map(|nth| format!("c{nth:02}")).collect()
}

impl Watchless {
    /// With a namespace and ConfigMaps accepted that are not there yet.
    async fn start(assets: &tideline_tests::kubernetes::Assets) -> Result<Self> {
        let cluster = Cluster::start(assets, ClusterOptions::default()).await?;
        let client = connect(Some(cluster.kubeconfig_path()), &Arc::default()).await?;
        apply(&client, namespace()).await?;
        let policy = Arc::new(ApplyPolicy::default());
        let texts = Arc::new(Texts::default());
        let mut entries = Vec::new();
        for name in names() {
            let text = config(&name, "ours").to_string();
            let input = Digest::of(text.as_bytes());
            texts.lock().insert(input, text.into());
            entries.push(Arc::new(Entry {
                key: ObjectKey::new(GroupKind::new("", "ConfigMap"), "shop", name.as_str()),
                version: "v1".into(),
                source: source(&name),
                generation: 1,
                state: EntryState::Apply,
                input,
                policy: policy.digest(),
                wave: 0,
                impersonate: None,
                implied: false,
            }));
        }
        let set: DesiredSet = entries.iter().cloned().collect();
        let shown = Shown { version: Version::default(), point: RevisionPoint::NOWHERE };
        let attestation = Attestation::unsigned(scope().target, shown);
        let loaded = Loaded {
            enrolled: Some(Enrolled { target: scope().target, name: "store".to_owned() }),
            accepted: Some(Attested {
                set: Accepted { version: Version::default(), digest: set.digest() },
                attestation,
            }),
            policies: [(policy.digest(), policy)].into(),
            bodies: entries.iter().map(|entry| entry.input).collect(),
            entries,
            ..Loaded::default()
        };
        let config = Config {
            hub: scope().hub,
            facts: ClusterFacts::default(),
            answered: true,
            instance: Instance::default(),
            enrolment: None,
            seed: 1,
            fuse: FuseLimits::default(),
            patrol: Duration::from_secs(2),
            namespaces: Namespaces::All,
            capabilities: tideline_common::Capabilities::all(),
        };
        let kinds = Arc::new(Kinds::new(client.clone()));
        let (sender, events) = mpsc::channel(64);
        let executor = Arc::new(Executor::new(client.clone(), Arc::clone(&kinds), Arc::clone(&texts) as _));
        let mut agent = Self {
            core: Core::new(config, loaded),
            client,
            kinds,
            executor,
            events,
            sender,
            timers: BTreeMap::new(),
            start: Instant::now(),
            patrols: Vec::new(),
            copies: BTreeSet::new(),
            _cluster: cluster,
        };
        agent.step(Event::Started);
        let kind = GroupKind::new("", "ConfigMap");
        agent.step(Event::Kind { kind: kind.clone(), served: Served::Yes { namespaced: true, status: false } });
        // The only word that it ever has from a watch.
        agent.step(Event::Listed { kind, objects: Vec::new() });
        Ok(agent)
    }

    fn step(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            if let Event::ListPage { objects, .. } = &event {
                let copies = objects.iter().filter(|item| !item.labelled);
                self.copies.extend(copies.map(|item| item.key.name.to_string()));
            }
            let now = u64::try_from(self.start.elapsed().as_millis()).expect("it is minutes");
            let mut effects = Vec::new();
            self.core.step(Monotonic::from_millis(now), event, &mut effects);
            for effect in effects {
                match effect {
                    Effect::Persist { id, .. } => events.push(Event::Persisted { id, result: Ok(()) }),
                    Effect::Execute { id, op } => {
                        let (executor, sender) = (Arc::clone(&self.executor), self.sender.clone());
                        tokio::spawn(async move {
                            let result = executor.execute(scope(), &op).await;
                            let _ = sender.send(Event::Executed { id, result }).await;
                        });
                    }
                    Effect::ListMetadata { id, kind, version } => {
                        let list = MetadataList { id, kind, version, scope: scope() };
                        let (client, kinds) = (self.client.clone(), Arc::clone(&self.kinds));
                        let sender = self.sender.clone();
                        tokio::spawn(async move { list.run(&client, &kinds, &Namespaces::All, &sender).await });
                    }
                    Effect::SetTimer { timer, at } => {
                        self.timers.insert(timer, self.start + Duration::from_millis(at.as_millis()));
                    }
                    Effect::Patrolled(tally) => self.patrols.push(tally),
                    Effect::Send { .. }
                    | Effect::Watch(_)
                    | Effect::Relist(_)
                    | Effect::RecordEvent(_)
                    | Effect::Follow(_)
                    | Effect::Decommissioned(_) => {}
                    Effect::Stopped
                    | Effect::Freeze(_)
                    | Effect::UnknownToHub
                    | Effect::Thaw
                    | Effect::KeepSession { .. }
                    | Effect::ReadStoredSession
                    | Effect::Replaced { .. } => panic!("nobody asked for it"),
                }
            }
        }
    }

    /// Runs until the next patrol has ended.
    async fn patrol(&mut self) -> Result<PatrolTally> {
        let until = Instant::now() + PATROLLED;
        let ended = self.patrols.len();
        while self.patrols.len() == ended {
            ensure!(Instant::now() < until, "no patrol ended within {PATROLLED:?}");
            let next = self.timers.iter().map(|(timer, at)| (*at, *timer)).min();
            let (wake, timer) = next.map_or((until, None), |(at, timer)| (at.min(until), Some(timer)));
            match timeout_at(wake, self.events.recv()).await {
                Ok(Some(event)) => self.step(event),
                Ok(None) => bail!("the channel is closed"),
                Err(_elapsed) => {
                    if let Some(timer) = timer.filter(|timer| self.timers.remove(timer).is_some()) {
                        self.step(Event::Timer(timer));
                    }
                }
            }
        }
        Ok(self.patrols[ended])
    }

    /// The object with our mark and our value.
    async fn kept(&self) -> Result<Vec<String>> {
        let maps = api(&self.client, CONFIG.0, CONFIG.1, Some("shop"));
        let mut kept = Vec::new();
        for name in names() {
            let object = maps.get(&name).await.with_context(|| name.clone())?;
            let labelled = object.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(MARK_LABEL));
            if labelled && mark_of(&object)?.local.name.as_ref() == name && *value(&object) == json!("ours") {
                kept.push(name);
            }
        }
        Ok(kept)
    }

    /// An object with our own mark, of a source that nobody assigned.
    async fn plant(&self, name: &str) -> Result<()> {
        self.plant_of(scope(), name).await
    }

    /// The same with the mark and the label of another scope.
    async fn plant_of(&self, scope: Scope, name: &str) -> Result<()> {
        let mark = Mark {
            v: 1,
            hub: scope.hub,
            target: scope.target,
            source: source(name),
            local: ObjectKey::new(GroupKind::new("", "ConfigMap"), "shop", name),
            generation: 1,
            input: Digest::of(b"input"),
            policy: None,
            prune: Prune::Delete,
            prune_adopted: PruneAdopted::Orphan,
            origin: Origin::Created,
        };
        let mut object = config(name, "orphaned");
        object["metadata"]["labels"][MARK_LABEL] = json!(scope.target.to_string());
        object["metadata"]["annotations"] = json!({MARK_ANNOTATION: mark.encode()});
        let maps = api(&self.client, CONFIG.0, CONFIG.1, Some("shop"));
        maps.create(&PostParams::default(), &from_value(object)?).await?;
        Ok(())
    }
}

const CLEAN: PatrolTally = PatrolTally {
    checked: OBJECTS as u64,
    unknown: 0,
    withheld: 0,
    failing: 0,
    missing: 0,
    drifted: 0,
    unassigned: 0,
    foreign: 0,
    unseen: 0,
    held: 0,
    repaired: 0,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_any_watch_a_patrol_counts_exactly_what_was_injected_and_mends_it() -> Result<()> {
    let assets = require_kubernetes!();
    let mut agent = Watchless::start(&assets).await?;
    while agent.patrol().await? != CLEAN {}
    assert_eq!(agent.kept().await?, names());

    let maps = api(&agent.client, CONFIG.0, CONFIG.1, Some("shop"));
    for name in ["c00", "c01", "c02"] {
        maps.delete(name, &DeleteParams::default()).await?;
    }
    let helper = PatchParams { field_manager: Some("helper".to_owned()), ..PatchParams::default() };
    for name in ["c03", "c04", "c05"] {
        maps.patch(name, &helper, &Patch::Merge(json!({"data": {"value": "theirs"}}))).await?;
    }
    let stripped = json!({"metadata": {"annotations": {MARK_ANNOTATION: null}}});
    maps.patch("c06", &helper, &Patch::Merge(stripped)).await?;
    for name in ["orphan-a", "orphan-b"] {
        agent.plant(name).await?;
    }
    // A patrol that had begun by then may have seen a part of it.
    let found = agent.patrol().await?;
    let found = if found == CLEAN { agent.patrol().await? } else { found };
    assert_eq!(found, PatrolTally { missing: 3, drifted: 4, unassigned: 2, repaired: 7, ..CLEAN });
    assert_eq!(agent.kept().await?, names());
    let held = PatrolTally { held: 2, ..CLEAN };
    assert_eq!(agent.patrol().await?, held, "the next counts none of it");

    // Without its label it cannot be listed, and is found by its name.
    let unlabelled = json!({"metadata": {"labels": {MARK_LABEL: null}}});
    maps.patch("c07", &helper, &Patch::Merge(unlabelled)).await?;
    let found = agent.patrol().await?;
    let found = if found == held { agent.patrol().await? } else { found };
    assert_eq!(found, PatrolTally { missing: 1, repaired: 1, ..held });
    assert_eq!(agent.kept().await?, names());
    assert!(maps.get_opt("orphan-a").await?.is_some(), "what nobody unassigned is not deleted");

    // Restored from a backup of another cluster of this hub, or another hub's.
    let elsewhere = TargetId::from_uuid(Uuid::from_u128(3));
    agent.plant_of(Scope { target: elsewhere, ..scope() }, "restored").await?;
    agent.plant_of(Scope { hub: HubId::from_uuid(Uuid::from_u128(4)), target: elsewhere, ..scope() }, "theirs").await?;
    assert_eq!([agent.patrol().await?, agent.patrol().await?], [held, held], "they are nothing of ours");
    assert_eq!(agent.copies, BTreeSet::from(["restored".to_owned()]));
    assert!(maps.get_opt("restored").await?.is_some() && maps.get_opt("theirs").await?.is_some());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gated_wave_waits_until_the_one_before_it_is_ready() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    // No node runs its Pods, so that it is ready only when it wants none.
    apply(&site.space, of_app("gated", deployment("first", 1))).await?;
    let mut after = of_app("gated", config("after", "1"));
    after["metadata"]["annotations"] = json!({"tideline.dev/wave": "10"});
    apply(&site.space, after).await?;
    let resources = [("apps", "deployments"), ("", "configmaps")];
    let mut placement = placed("gated", "gated", &resources, &json!({}));
    placement["spec"]["ordering"] = json!({"readinessGate": true, "readinessDeadlineSeconds": 3600});
    apply(&site.space, placement).await?;

    shows(&site.local, DEPLOYMENT, "first", "the first wave", |_| true).await?;
    site.reported("configmap.after", "Pending", Some("WaitingForWave")).await?;
    shows(&site.space, REPORT, "configmap.after.east", "what it waits for", |report| {
        let message = report["message"].as_str().unwrap_or_default();
        message.starts_with("wave 0 of Placement default/gated is not ready: Deployment.apps shop/first: ")
    })
    .await?;
    assert!(site.locals(CONFIG).get_opt("after").await?.is_none(), "it does not wait");

    apply(&site.space, of_app("gated", deployment("first", 0))).await?;
    shows(&site.local, CONFIG, "after", "the next wave", |_| true).await?;
    site.reported("configmap.after", "Applied", None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_that_is_only_reported_is_told_field_by_field() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    apply(&site.space, config("told", "ours")).await?;
    site.place("told", CONFIG_MAPS, json!({"drift": "Report"})).await?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": "hidden", "namespace": "shop", "labels": {"app": "hidden"}},
        "stringData": {"password": "hunter2"},
    });
    apply(&site.space, secret).await?;
    site.place("hidden", &[("", "secrets")], json!({"drift": "Report"})).await?;
    for object in ["configmap.told", "secret.hidden"] {
        site.reported(object, "Applied", None).await?;
    }

    site.edit(CONFIG, "told", json!({"data": {"value": "theirs", "more": "1"}})).await?;
    site.edit(("v1", "Secret"), "hidden", json!({"stringData": {"password": "stolen"}})).await?;
    for (object, told) in
        [("configmap.told", r#"/data/value is "theirs", not "ours""#), ("secret.hidden", "/data/password differs")]
    {
        let what = format!("what was changed in {object}");
        shows(&site.space, REPORT, &format!("{object}.east"), &what, |report| {
            let message = report["message"].as_str().unwrap_or_default();
            let secret = ["hunter2", "stolen", "c3RvbGVu"].iter().any(|value| message.contains(value));
            message.starts_with("changed locally, seen first at 20") && message.ends_with(told) && !secret
        })
        .await?;
        site.reported(object, "Applied", Some("Drifted")).await?;
    }
    assert_eq!(value(&site.local(CONFIG, "told").await?), &json!("theirs"));

    // Corrected by hand, it is as assigned, whoever did it.
    site.edit(CONFIG, "told", json!({"data": {"value": "ours"}})).await?;
    site.reported("configmap.told", "Applied", None).await?;
    eventually_ok(SOON, "no drift to be left", async || {
        let report = api(&site.space, REPORT.0, REPORT.1, Some("shop")).get("configmap.told.east").await?;
        ensure!(report.data["message"].as_str().is_none_or(str::is_empty), "{}", report.data["message"]);
        anyhow::Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_that_is_only_reported_outlives_what_else_is_changed() -> Result<()> {
    let assets = require_kubernetes!();
    let mut site = Site::start(&assets).await?;
    let resources = [("", "configmaps"), ("apps", "deployments")];
    let policy = |prune: &str| json!({"drift": "Report", "prune": prune});
    let map = |value: &str, more: &str| {
        let mut map = config("web", value);
        map["data"]["more"] = json!(more);
        map
    };
    apply(&site.space, map("ours", "1")).await?;
    apply(&site.space, deployment("web", 2)).await?;
    site.place("web", &resources, policy("Delete")).await?;
    for object in ["configmap.web", "deployment.apps.web"] {
        site.reported(object, "Applied", None).await?;
    }
    site.edit(CONFIG, "web", json!({"data": {"value": "theirs"}})).await?;
    let params = PatchParams { field_manager: Some("helper".to_owned()), ..PatchParams::default() };
    let image =
        json!({"spec": {"replicas": 7, "template": {"spec": {"containers": [{"name": "web", "image": "hot:1"}]}}}});
    site.locals(DEPLOYMENT).patch("web", &params, &Patch::Strategic(image)).await?;
    let drifted = async |site: &Site| {
        for object in ["configmap.web", "deployment.apps.web"] {
            site.reported(object, "Applied", Some("Drifted")).await?;
        }
        anyhow::Ok(())
    };
    drifted(&site).await?;
    let is_theirs = |it: &serde_json::Value| {
        let spec = &it["spec"];
        spec["replicas"] == 7 && spec["template"]["spec"]["containers"][0]["image"] == "hot:1"
    };

    // Another policy, what the Placement adds, and the restart of the agent.
    let mut placement = placed("web", "web", &resources, &policy("Orphan"));
    placement["spec"]["additions"] = json!({"labels": {"team": "retail"}});
    apply(&site.space, placement).await?;
    let added = |it: &serde_json::Value| it["metadata"]["labels"]["team"] == "retail";
    shows(&site.local, CONFIG, "web", "what is added, and the edit", |it| added(it) && it["data"]["value"] == "theirs")
        .await?;
    shows(&site.local, DEPLOYMENT, "web", "what is added, and the edit", |it| added(it) && is_theirs(it)).await?;
    drifted(&site).await?;
    site.agent.stop().await?;
    site.agent.resume();

    // Other fields of the source.
    apply(&site.space, map("ours", "2")).await?;
    let mut paused = deployment("web", 2);
    paused["spec"]["paused"] = json!(true);
    apply(&site.space, paused.clone()).await?;
    shows(&site.local, CONFIG, "web", "the other key alone", |it| {
        it["data"] == json!({"value": "theirs", "more": "2"})
    })
    .await?;
    shows(&site.local, DEPLOYMENT, "web", "the other field alone", |it| it["spec"]["paused"] == true && is_theirs(it))
        .await?;
    drifted(&site).await?;

    // The field itself; and then all of it.
    apply(&site.space, map("new", "2")).await?;
    shows(&site.local, CONFIG, "web", "the source's new value", |it| it["data"]["value"] == "new").await?;
    site.reported("configmap.web", "Applied", None).await?;
    site.place("web", &resources, json!({})).await?;
    shows(&site.local, DEPLOYMENT, "web", "what its source says", |it| {
        it["spec"]["replicas"] == 2
            && it["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example/web:1"
    })
    .await?;
    site.reported("deployment.apps.web", "Applied", None).await
}
