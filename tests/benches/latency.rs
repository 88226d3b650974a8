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
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{
    ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{from_value, json};
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
    #[arg(long, default_value_t = 100)]
    agents: usize,
    /// Changes through the hub, and as many direct ones
    #[arg(long, default_value_t = 500)]
    changes: usize,
    /// Changes of each sort per second
    #[arg(long, default_value_t = 2)]
    rate: u32,
}

/// A change as the watcher saw it.
struct Seen {
    name: String,
    value: String,
    at: Instant,
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
    create(&space, PLACED).await?;
    place(&space).await?;
    let target = cluster.client();
    eventually_ok(FIRST_MAX, "the first object", async || config_maps(&target).get(PLACED).await).await?;
    config_maps(&target).create(&PostParams::default(), &config_map(DIRECT)).await?;

    // A connection of its own, so that the watcher waits for nobody.
    let (sender, mut events) = mpsc::channel(EVENTS_MAX);
    let watcher = own_client(&cluster).await?;
    let since = config_maps(&watcher).list(&ListParams::default()).await?.metadata.resource_version;
    let watching = tokio::spawn(watch(watcher, since.context("a list has a version")?, sender));
    let (mut through_hub, mut direct) = (Vec::new(), Vec::new());
    let mut ticks = interval(Duration::from_secs(1) / (2 * rate.max(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for change in 0..WARM_UP + changes {
        ticks.tick().await;
        let placed = latency(&config_maps(&space), PLACED, change, &mut events).await?;
        ticks.tick().await;
        let alone = latency(&config_maps(&target), DIRECT, change, &mut events).await?;
        if change >= WARM_UP {
            through_hub.push(placed);
            direct.push(alone);
        }
    }
    watching.abort();
    light.check()?;
    report(agents, &mut through_hub, &mut direct);
    Ok(())
}

/// Makes one change, and returns the milliseconds from the answer to the event. Below zero if the event came first.
async fn latency(api: &Api<ConfigMap>, name: &str, change: usize, events: &mut mpsc::Receiver<Seen>) -> Result<f64> {
    let value = change.to_string();
    let patch = Patch::Merge(json!({"data": {"value": value}}));
    api.patch(name, &PatchParams::default(), &patch).await.with_context(|| format!("changing {name}"))?;
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

async fn watch(client: Client, mut version: String, events: mpsc::Sender<Seen>) -> Result<()> {
    let api = config_maps(&client);
    loop {
        let mut stream = pin!(api.watch(&WatchParams::default(), &version).await?);
        while let Some(event) = stream.try_next().await? {
            let at = Instant::now();
            if let WatchEvent::Modified(object) = event {
                version = object.metadata.resource_version.unwrap_or(version);
                let value = object.data.and_then(|mut data| data.remove("value")).unwrap_or_default();
                let name = object.metadata.name.unwrap_or_default();
                events.send(Seen { name, value, at }).await.context("nobody waits for events")?;
            }
        }
    }
}

fn report(agents: usize, through_hub: &mut [f64], direct: &mut [f64]) {
    through_hub.sort_by(f64::total_cmp);
    direct.sort_by(f64::total_cmp);
    println!("latency of {} changes with {agents} agents, from the answer to the watch event", through_hub.len());
    println!(
        "{:<6} {:>14} {:>12} {:>16} {:>8} {:>8}",
        "", "through hub ms", "direct ms", "difference ms", "goal ms", "of goal"
    );
    for (name, percent, goal) in [("p50", 50, 60.0), ("p99", 99, 250.0)] {
        let (hub, direct) = (percentile(through_hub, percent), percentile(direct, percent));
        let difference = hub - direct;
        println!("{name:<6} {hub:>14.1} {direct:>12.1} {difference:>16.1} {goal:>8.0} {:>7.2}x", difference / goal);
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

fn config_maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), NAMESPACE)
}

fn config_map(name: &str) -> ConfigMap {
    let mut object =
        ConfigMap { data: Some(BTreeMap::from([("value".to_owned(), String::new())])), ..ConfigMap::default() };
    object.metadata.name = Some(name.to_owned());
    object
}

async fn create(space: &Client, name: &str) -> Result<()> {
    let namespace: Namespace = from_value(json!({"metadata": {"name": NAMESPACE}}))?;
    Api::all(space.clone()).create(&PostParams::default(), &namespace).await?;
    config_maps(space).create(&PostParams::default(), &config_map(name)).await?;
    Ok(())
}

async fn place(space: &Client) -> Result<()> {
    let placement = from_value(json!({
        "apiVersion": "tideline.dev/v1alpha1",
        "kind": "Placement",
        "metadata": {"name": "bench"},
        "spec": {
            "targets": [{"matchLabels": {"bench": "real"}}],
            "objects": [{"resources": ["configmaps"], "namespaces": [NAMESPACE]}],
        },
    }))?;
    let kind = GroupVersionKind::gvk("tideline.dev", "v1alpha1", "Placement");
    let resource = ApiResource::from_gvk(&kind);
    Api::<DynamicObject>::all_with(space.clone(), &resource).create(&PostParams::default(), &placement).await?;
    Ok(())
}
