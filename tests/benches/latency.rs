//! How long a change takes from the hub's answer to the cluster, beside a change made in the cluster directly.
//!
//! The clock runs from the 200 of the space (or of the API server) to the MODIFIED event at a watcher on the cluster
//! that has nothing to do with the agent.

#[path = "shared/gate.rs"]
mod gate;
#[path = "shared/light.rs"]
mod light;

use std::collections::BTreeMap;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{
    ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, from_value, json};
use tideline_tests::eventually_ok;
use tideline_tests::fleet::Hub;
use tideline_tests::kubernetes::{Assets, Cluster, ClusterOptions};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

const NAMESPACE: &str = "bench";
const PLACED: &str = "placed";
const DIRECT: &str = "direct";
/// Longest a single change may take before the bench gives up.
const CHANGE_MAX: Duration = Duration::from_secs(30);
/// Longest until the first object is there.
const FIRST_MAX: Duration = Duration::from_mins(1);
/// Changes that are not counted: connections are made and caches filled.
const WARM_UP: usize = 10;
/// Events that are not read yet; one is under way at a time.
const EVENTS_MAX: usize = 16;

/// Measures the latency of changes
#[derive(Parser)]
struct Arguments {
    /// Agents connected, one of which has a real API server
    #[arg(long, default_value_t = 1_000)]
    agents: usize,
    /// Changes through the hub, and as many direct ones
    #[arg(long, default_value_t = 500)]
    changes: usize,
    /// Changes of each sort per second
    #[arg(long, default_value_t = 2)]
    rate: u32,
}

/// What is changed.
#[derive(Clone, Copy)]
struct Kind {
    group: &'static str,
    name: &'static str,
    /// Where the value is that is changed.
    value: &'static str,
}

const KINDS: [Kind; 2] = [
    Kind { group: "", name: "ConfigMap", value: "/data/value" },
    Kind { group: "apps", name: "Deployment", value: "/spec/template/metadata/annotations/value" },
];

/// A change as the watcher saw it.
struct Seen {
    name: String,
    value: String,
    at: Instant,
}

/// Milliseconds of changes of one kind.
#[derive(Default)]
struct Latencies {
    through_hub: Vec<f64>,
    direct: Vec<f64>,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<ExitCode> {
    if let Some(arguments) = gate::arguments() {
        measure(arguments).await?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure(Arguments { agents, changes, rate }: Arguments) -> Result<()> {
    let assets = Assets::locate()?.context(Assets::MISSING)?;
    let (cluster, hub) = tokio::try_join!(Cluster::start(&assets, ClusterOptions::default()), Hub::start())?;
    let light = light::LightAgents::start(&hub.kubeconfig(), agents.saturating_sub(1), &BTreeMap::new()).await?;
    let _agent = hub.agent("real", &[("bench", "real")], cluster.kubeconfig_path(), None).await?;
    light::connected(&hub.client("root").await?, agents).await?;

    let space = hub.client("default").await?;
    create_namespace(&space).await?;
    place(&space).await?;
    println!("latency of {changes} changes of each kind with {agents} agents, from the answer to the watch event");
    for kind in KINDS {
        let mut latencies = changes_of(kind, &space, &cluster, changes, rate).await?;
        report(kind, &mut latencies);
    }
    light.check()
}

/// Makes changes of one kind, through the hub and directly in turn.
async fn changes_of(kind: Kind, space: &Client, cluster: &Cluster, changes: usize, rate: u32) -> Result<Latencies> {
    let target = cluster.client();
    kind.api(space).create(&PostParams::default(), &kind.manifest(PLACED)?).await?;
    eventually_ok(FIRST_MAX, "the first object", async || kind.api(&target).get(PLACED).await).await?;
    kind.api(&target).create(&PostParams::default(), &kind.manifest(DIRECT)?).await?;

    // A connection of its own, so that the watcher waits for nobody.
    let (sender, mut events) = mpsc::channel(EVENTS_MAX);
    let watcher = own_client(cluster).await?;
    let since = kind.api(&watcher).list_metadata(&ListParams::default()).await?.metadata.resource_version;
    let watching = tokio::spawn(watch(kind, watcher, since.context("a list has a version")?, sender));
    let mut latencies = Latencies::default();
    let mut ticks = interval(Duration::from_secs(1) / (2 * rate.max(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for change in 0..WARM_UP + changes {
        ticks.tick().await;
        let placed = latency(kind, space, PLACED, change, &mut events).await?;
        ticks.tick().await;
        let alone = latency(kind, &target, DIRECT, change, &mut events).await?;
        if change >= WARM_UP {
            latencies.through_hub.push(placed);
            latencies.direct.push(alone);
        }
    }
    watching.abort();
    Ok(latencies)
}

/// Makes one change, and returns the milliseconds from the answer to the event. Below zero if the event came first.
async fn latency(
    kind: Kind,
    client: &Client,
    name: &str,
    change: usize,
    events: &mut mpsc::Receiver<Seen>,
) -> Result<f64> {
    let value = change.to_string();
    let patch = Patch::Merge(kind.patch(&value));
    kind.api(client).patch(name, &PatchParams::default(), &patch).await.with_context(|| format!("changing {name}"))?;
    let answered = Instant::now();
    let seen = timeout(CHANGE_MAX, async {
        loop {
            let seen = events.recv().await.context("the watch ended")?;
            // The agent's own bookkeeping may be an event too, with the value of before.
            if seen.name == name && seen.value == value {
                return anyhow::Ok(seen.at);
            }
        }
    });
    let seen = seen.await.with_context(|| format!("change {change} of {name} was not seen in {CHANGE_MAX:?}"))??;
    let late = seen.saturating_duration_since(answered).as_secs_f64();
    let early = answered.saturating_duration_since(seen).as_secs_f64();
    Ok((late - early) * 1_000.0)
}

async fn watch(kind: Kind, client: Client, mut version: String, events: mpsc::Sender<Seen>) -> Result<()> {
    let api = kind.api(&client);
    loop {
        let mut stream = pin!(api.watch(&WatchParams::default(), &version).await?);
        while let Some(event) = stream.try_next().await? {
            let at = Instant::now();
            if let WatchEvent::Modified(object) = event {
                version = object.metadata.resource_version.unwrap_or(version);
                let value = object.data.pointer(kind.value).and_then(Value::as_str).unwrap_or_default().to_owned();
                let name = object.metadata.name.unwrap_or_default();
                events.send(Seen { name, value, at }).await.context("nobody waits for events")?;
            }
        }
    }
}

fn report(kind: Kind, Latencies { through_hub, direct }: &mut Latencies) {
    through_hub.sort_by(f64::total_cmp);
    direct.sort_by(f64::total_cmp);
    println!(
        "{:<12} {:>14} {:>12} {:>16} {:>8} {:>8}",
        kind.name, "through hub ms", "direct ms", "difference ms", "goal ms", "of goal"
    );
    for (name, percent, goal) in [("p50", 50, 10.0), ("p99", 99, 30.0)] {
        let (hub, direct) = (percentile(through_hub, percent), percentile(direct, percent));
        let difference = hub - direct;
        println!("{name:<12} {hub:>14.1} {direct:>12.1} {difference:>16.1} {goal:>8.0} {:>7.2}x", difference / goal);
    }
}

/// The nearest-rank percentile of sorted values.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

async fn own_client(cluster: &Cluster) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig_path())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

impl Kind {
    fn api(self, client: &Client) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(self.group, "v1", self.name));
        Api::namespaced_with(client.clone(), NAMESPACE, &resource)
    }

    fn manifest(self, name: &str) -> Result<DynamicObject> {
        let labels = json!({"app": name});
        let mut manifest = match self.group {
            "" => json!({"apiVersion": "v1"}),
            group => json!({
                "apiVersion": format!("{group}/v1"),
                "spec": {
                    // No Pods: what is measured is the way of the object, not its controllers.
                    "replicas": 0,
                    "selector": {"matchLabels": labels},
                    "template": {
                        "metadata": {"labels": labels},
                        "spec": {"containers": [{"name": "web", "image": "registry.example/web:1.0.0"}]},
                    },
                },
            }),
        };
        manifest["kind"] = self.name.into();
        manifest["metadata"] = json!({"name": name});
        Ok(from_value(manifest)?)
    }

    /// What sets the value, as a merge patch.
    fn patch(self, value: &str) -> Value {
        self.value
            .rsplit('/')
            .filter(|field| !field.is_empty())
            .fold(value.into(), |inner, field| json!({field: inner}))
    }
}

async fn create_namespace(space: &Client) -> Result<()> {
    let namespace: Namespace = from_value(json!({"metadata": {"name": NAMESPACE}}))?;
    Api::all(space.clone()).create(&PostParams::default(), &namespace).await?;
    Ok(())
}

async fn place(space: &Client) -> Result<()> {
    let placement = from_value(json!({
        "apiVersion": "tideline.dev/v1alpha1",
        "kind": "Placement",
        "metadata": {"name": "bench"},
        "spec": {
            "targets": [{"matchLabels": {"bench": "real"}}],
            "objects": [
                {"resources": ["configmaps"], "namespaces": [NAMESPACE]},
                {"apiGroup": "apps", "resources": ["deployments"], "namespaces": [NAMESPACE]},
            ],
        },
    }))?;
    let kind = GroupVersionKind::gvk("tideline.dev", "v1alpha1", "Placement");
    let resource = ApiResource::from_gvk(&kind);
    Api::<DynamicObject>::all_with(space.clone(), &resource).create(&PostParams::default(), &placement).await?;
    Ok(())
}
