//! What it costs to keep a cluster: local edits that are reverted, restarts with nothing changed, a restart without the
//! hub, and patrols.
//!
//! Hub and agent are processes of the binaries in TIDELINE_BIN_DIR.

#[path = "shared/apply.rs"]
mod apply;
#[path = "shared/connect.rs"]
mod connect;
#[path = "shared/filling.rs"]
mod filling;
#[path = "shared/gate.rs"]
mod gate;
#[path = "shared/objects.rs"]
mod objects;
#[path = "shared/seen.rs"]
mod seen;
#[path = "shared/site.rs"]
mod site;

use std::collections::BTreeMap;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use futures::TryStreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tideline_tests::eventually_ok;
use tideline_tests::kubernetes::Request;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::site::{Site, count, mebibytes, row, writes};

/// Longest until an edit is reverted or an object is there again.
const REPAIR_MAX: Duration = Duration::from_mins(2);
/// Events that are not read yet; few are under way at a time.
const EVENTS_MAX: usize = 64;
/// Longest until a whole set is removed.
const REMOVED_MAX: Duration = Duration::from_mins(10);
/// The label of what was changed at the hub.
const CHANGED_LABEL: &str = "bench-changed";
const EDITED: &str = "edited";
/// Longer than any bench.
const NO_PATROL: &str = "24h";
/// Bytes that a restart should take at the most, with up to 50,000 objects.
const RESTART_PEAK: u64 = 80_000_000;
/// The same where all of them changed, or all go.
const PEAK_GOAL: u64 = 100_000_000;
/// A hub's settle time, twice.
const UNPLACED: Duration = Duration::from_secs(20);
/// Objects on one page of a patrol's list.
const PATROL_PAGE: usize = 1_000;

/// Measures edits, restarts and patrols
#[derive(Parser)]
struct Arguments {
    /// Objects that the agent keeps; several numbers are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "5000,50000")]
    objects: Vec<usize>,
    /// Local edits, each of another object
    #[arg(long, default_value_t = 200)]
    edits: usize,
    /// Edits per second
    #[arg(long, default_value_t = 2)]
    rate: u32,
    /// Seconds until things are at rest, after each start
    #[arg(long, default_value_t = 60)]
    settle: u64,
    /// Seconds between patrols
    #[arg(long, default_value_t = 60)]
    patrol: u64,
    /// Seconds for which patrols are measured, and as long without
    #[arg(long, default_value_t = 240)]
    window: u64,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<ExitCode> {
    if let Some(arguments) = gate::arguments::<Arguments>() {
        for objects in &arguments.objects {
            measure(*objects, &arguments).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints each figure as soon as it is there: all of them take a quarter of an hour.
async fn measure(objects: usize, arguments: &Arguments) -> Result<()> {
    let settle = || sleep(Duration::from_secs(arguments.settle));
    let mut site = Site::start(objects).await?;
    site.admit_agent().await?;
    site.start_agent(&["--patrol", NO_PATROL])?;
    let synced = site.sync().await?;
    println!("\nupkeep of {objects} objects; {}", site.binaries().directory().display());
    println!("{:<36} {:>10} {:>10} {:>8}", "", "measured", "goal", "of goal");
    row("first sync, s", synced.as_secs_f64(), None);
    settle().await;

    let mut reverted = edits(&site, arguments).await?;
    reverted.sort_by(f64::total_cmp);
    row("edit to reverted, p50, s", percentile(&reverted, 50), Some(0.3));
    row("edit to reverted, p99, s", percentile(&reverted, 99), Some(1.0));
    settle().await;

    site.stop_agent().await?;
    let before = site.requests()?;
    site.start_agent(&["--patrol", NO_PATROL])?;
    settle().await;
    let restarted = since(&site, &before)?;
    row("restart, nothing changed: writes", count(writes(restarted.values())), Some(0.0));
    row("restart: requests", count(restarted.len()), None);
    row("restart: VmRSS, MiB", mebibytes(site.agent()?.resident_bytes()?), None);
    row(
        "restart: VmHWM, MiB",
        mebibytes(site.agent()?.peak_bytes()?),
        (objects <= 50_000).then(|| mebibytes(RESTART_PEAK)),
    );

    let quiet = used(&site, arguments.window).await?;
    site.stop_agent().await?;
    site.start_agent(&["--patrol", &format!("{}s", arguments.patrol)])?;
    settle().await;
    let patrolled = used(&site, arguments.window).await?;
    let pages = site.shape.config_maps.div_ceil(PATROL_PAGE);
    let patrols = count(patrolled.of("list", "configmaps")) / count(pages);
    row("patrols measured", patrols, None);
    let cpu = patrolled.cpu.saturating_sub(quiet.cpu).as_secs_f64();
    row("CPU of one patrol, s", cpu / patrols, (objects <= 50_000).then_some(2.0));
    row("reads of single objects by patrols", count(patrolled.of("get", "configmaps")), Some(0.0));
    row("hub VmRSS, MiB", mebibytes(site.hub()?.resident_bytes()?), None);

    let offline = offline_restart(&mut site).await?;
    row("restart without hub to repaired, s", offline.as_secs_f64(), (objects <= 5_000).then_some(2.0));

    let peak_goal = (objects <= 50_000).then(|| mebibytes(PEAK_GOAL));
    let took = changed_meanwhile(&mut site).await?;
    row("all changed meanwhile: s", took.as_secs_f64(), None);
    row("all changed meanwhile: VmHWM, MiB", mebibytes(site.agent()?.peak_bytes()?), peak_goal);
    let took = removed_meanwhile(&mut site).await?;
    row("all removed meanwhile: s", took.as_secs_f64(), None);
    row("all removed meanwhile: VmHWM, MiB", mebibytes(site.agent()?.peak_bytes()?), peak_goal);
    Ok(())
}

/// What an agent used in a while.
struct Used {
    cpu: Duration,
    requests: BTreeMap<String, Request>,
}

impl Used {
    fn of(&self, verb: &str, resource: &str) -> usize {
        self.requests.values().filter(|request| request.verb == verb && request.resource == resource).count()
    }
}

async fn used(site: &Site, seconds: u64) -> Result<Used> {
    let (cpu, requests) = (site.agent()?.cpu_time()?, site.requests()?);
    sleep(Duration::from_secs(seconds)).await;
    Ok(Used { cpu: site.agent()?.cpu_time()?.saturating_sub(cpu), requests: since(site, &requests)? })
}

/// The requests that are not among those of before.
fn since(site: &Site, before: &BTreeMap<String, Request>) -> Result<BTreeMap<String, Request>> {
    let mut requests = site.requests()?;
    requests.retain(|id, _| !before.contains_key(id));
    Ok(requests)
}

/// Edits objects in the cluster, and returns the seconds from each answer until a watcher saw it as it was.
async fn edits(site: &Site, Arguments { edits, rate, .. }: &Arguments) -> Result<Vec<f64>> {
    let all: Api<ConfigMap> = Api::all(site.cluster.client());
    let labelled = ListParams::default().labels(objects::LABEL);
    let version = all.list_metadata(&labelled.limit(1)).await?.metadata.resource_version;
    let (sender, mut events) = mpsc::channel(EVENTS_MAX);
    let watching = tokio::spawn(watch(site.cluster.client(), version.context("a list has a version")?, sender));
    let mut ticks = interval(Duration::from_secs(1) / (*rate).max(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let manifests = site.shape.manifests();
    let maps = manifests.iter().filter(|manifest| manifest["kind"] == "ConfigMap");
    let mut reverted = Vec::new();
    for manifest in maps.take(*edits) {
        ticks.tick().await;
        let (api, name) = place(site.cluster.client(), manifest)?;
        let edit = json!({"data": {"text": EDITED}});
        api.patch(name, &PatchParams::default(), &Patch::Merge(edit))
            .await
            .with_context(|| format!("editing {name}"))?;
        let answered = Instant::now();
        let seen = timeout(REPAIR_MAX, async {
            loop {
                let (of, edited, at) = events.recv().await.context("the watch ended")?;
                if of == name && !edited {
                    return anyhow::Ok(at);
                }
            }
        });
        let seen = seen.await.with_context(|| format!("{name} was not reverted in {REPAIR_MAX:?}"))??;
        reverted.push(seen.saturating_duration_since(answered).as_secs_f64());
    }
    watching.abort();
    Ok(reverted)
}

/// Tells of every change of a ConfigMap of the bench: its name, and whether it shows an edit.
async fn watch(client: Client, mut version: String, events: mpsc::Sender<(String, bool, Instant)>) -> Result<()> {
    let api: Api<ConfigMap> = Api::all(client);
    let params = WatchParams::default().labels(objects::LABEL);
    loop {
        let mut stream = pin!(api.watch(&params, &version).await?);
        while let Some(event) = stream.try_next().await? {
            let at = Instant::now();
            if let WatchEvent::Modified(object) = event {
                version = object.metadata.resource_version.unwrap_or(version);
                let edited = object.data.is_some_and(|data| data.get("text").is_some_and(|text| text == EDITED));
                let name = object.metadata.name.unwrap_or_default();
                events.send((name, edited, at)).await.context("nobody waits for events")?;
            }
        }
    }
}

/// Has the agent, started anew, find every object changed at the hub, and returns how long it took to carry that out.
async fn changed_meanwhile(site: &mut Site) -> Result<Duration> {
    site.stop_agent().await?;
    site.hub = Some(site::start_hub(site.binaries(), &site.directory)?);
    eventually_ok(REPAIR_MAX, "the hub to serve", async || site.space.apiserver_version().await).await?;
    let mut manifests = site.shape.manifests();
    for manifest in &mut manifests {
        manifest["metadata"]["labels"][CHANGED_LABEL] = objects::SET.into();
    }
    filling::apply_all(&site.space, &manifests, filling::FILLING).await?;
    let begun = Instant::now();
    site.start_agent(&["--patrol", NO_PATROL])?;
    Ok(site.seen(CHANGED_LABEL).await?.duration_since(begun))
}

/// The same where nothing is placed any more.
async fn removed_meanwhile(site: &mut Site) -> Result<Duration> {
    site.stop_agent().await?;
    objects::placements(&site.space).delete(objects::PLACEMENT, &DeleteParams::default()).await?;
    // Removals wait at the hub until it is certain that they are meant.
    sleep(UNPLACED).await;
    let begun = Instant::now();
    site.start_agent(&["--patrol", NO_PATROL])?;
    let labelled = ListParams::default().labels(objects::LABEL).limit(1);
    let config_maps: Api<ConfigMap> = Api::all(site.cluster.client());
    let deployments: Api<Deployment> = Api::all(site.cluster.client());
    eventually_ok(REMOVED_MAX, "all objects to be removed", async || {
        let left = config_maps.list_metadata(&labelled).await?.items.len()
            + deployments.list_metadata(&labelled).await?.items.len();
        ensure!(left == 0, "some are left");
        anyhow::Ok(())
    })
    .await?;
    Ok(begun.elapsed())
}

/// Stops the agent and the hub, deletes an object in the cluster, and returns the time from the start of the agent alone
/// until the object is there again.
async fn offline_restart(site: &mut Site) -> Result<Duration> {
    site.stop_agent().await?;
    site.stop_hub().await?;
    let manifests = site.shape.manifests();
    let (api, name) = place(site.cluster.client(), manifests.first().context("there are objects")?)?;
    api.delete(name, &DeleteParams::default()).await?;
    let begun = Instant::now();
    site.start_agent(&["--patrol", NO_PATROL])?;
    eventually_ok(REPAIR_MAX, "the object to be there again", async || api.get_metadata(name).await).await?;
    Ok(begun.elapsed())
}

fn place(client: Client, manifest: &Value) -> Result<(Api<ConfigMap>, &str)> {
    let text = |path: &str| manifest.pointer(path).and_then(Value::as_str).context("a manifest has name and namespace");
    Ok((Api::namespaced(client, text("/metadata/namespace")?), text("/metadata/name")?))
}

/// The nearest-rank percentile of sorted values.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}
