//! What a hub costs that has many objects, and how long anybody waits while many of them change at once.
//!
//! The hub is a process of the binary in TIDELINE_BIN_DIR with the settings it ships with. Its targets are SyncTargets
//! without agents. While something changes, a request of each kind is made every 20 ms, and the longest wait is printed.

#[path = "shared/apply.rs"]
mod apply;
#[path = "shared/connect.rs"]
mod connect;
#[path = "shared/filling.rs"]
mod filling;
#[path = "shared/gate.rs"]
mod gate;
#[path = "shared/hub_process.rs"]
mod hub_process;
#[path = "shared/objects.rs"]
mod objects;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tideline_tests::{Binaries, Scratch, eventually_ok};
use tokio::time::Instant;

use crate::connect::connect;
use crate::hub_process::{Hub, Probes, mebibytes, read};
use crate::objects::Shape;

const CHANGE_MAX: Duration = Duration::from_mins(10);
/// How long an object is kept that nothing wants any more on a target.
const SETTLE: Duration = Duration::from_secs(10);
/// What somebody reads who looks at what is stored, and at what is computed: of the first object.
const NAMESPACE: &str = "/api/v1/namespaces/bench-00";
const ROLLUP: &str = "/apis/summary.tideline.dev/v1alpha1/namespaces/bench-00/rollups/configmap.config-00000";
/// The target that leaves and joins.
const MOVING: &str = "target-0";
const LABEL: &str = "bench";

/// Measures a hub with many objects
#[derive(Parser)]
struct Arguments {
    /// ConfigMaps of 1 KB, all of one namespace
    #[arg(long, default_value_t = 50_000)]
    objects: usize,
    /// Targets that have all of them
    #[arg(long, default_value_t = 10)]
    targets: usize,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<ExitCode> {
    if let Some(arguments) = gate::arguments::<Arguments>() {
        measure(&arguments).await?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure(arguments: &Arguments) -> Result<()> {
    let Arguments { objects, targets } = *arguments;
    let binaries = Binaries::locate()?.context(Binaries::MISSING)?;
    println!(
        "\na hub with {objects} objects of one namespace and {targets} targets; {}",
        binaries.directory().display()
    );
    println!(
        "{:<34} {:>9} {:>7} {:>9} {:>9} {:>12} {:>12} {:>12}",
        "", "s", "CPU s", "VmRSS MiB", "VmHWM MiB", "livez ms", "namespace ms", "rollup ms"
    );
    let hub = Hub::start(&binaries, Scratch::new("hub")?)?;
    let space = hub.ready().await?;
    let begun = Instant::now();
    let shape = Shape { namespaces: 1, config_maps: objects, deployments: 0 };
    objects::fill(&space, shape).await?;
    report(&hub, "objects in the space", begun.elapsed(), Duration::ZERO, None).await?;

    let asked = [NAMESPACE.to_owned(), ROLLUP.to_owned()];
    let root = connect(&hub.admin(), "root").await?;
    for index in 0..targets {
        join(&root, &format!("target-{index}"), true).await?;
    }
    let labels = BTreeMap::from([(LABEL.to_owned(), "in".to_owned())]);
    let (probes, begun, cpu) = (None, Instant::now(), hub.process.cpu_time()?);
    objects::place(&space, &labels, shape.objects()).await?;
    expected(&space, targets).await?;
    report(&hub, "placed on all targets", begun.elapsed(), cpu, probes).await?;

    for (what, is_in, count, settle) in [
        ("a target leaves, less the settle time", false, targets - 1, SETTLE),
        ("a target joins", true, targets, Duration::ZERO),
    ] {
        let (probes, begun, cpu) = (hub.probes(&space, &asked), Instant::now(), hub.process.cpu_time()?);
        join(&root, MOVING, is_in).await?;
        expected(&space, count).await?;
        let took = begun.elapsed().saturating_sub(settle);
        report(&hub, what, took, cpu, Some(probes)).await?;
    }

    let (hub, begun) = hub.restart(&binaries).await?;
    let space = hub.ready().await?;
    expected(&space, targets).await?;
    report(&hub, "restart, until a rollup is right", begun.elapsed(), Duration::ZERO, None).await
}

async fn report(hub: &Hub, what: &str, took: Duration, cpu: Duration, probes: Option<Probes>) -> Result<()> {
    let used = hub.process.cpu_time()?.saturating_sub(cpu);
    let waits = Probes::columns(probes.as_ref()).await;
    println!(
        "{what:<34} {:>9.2} {:>7.2} {:>9.1} {:>9.1}{waits}",
        took.as_secs_f64(),
        used.as_secs_f64(),
        mebibytes(hub.process.resident_bytes()?),
        mebibytes(hub.process.peak_bytes()?),
    );
    Ok(())
}

/// Waits until the first object is expected on so many targets: all of a change is visible at once.
async fn expected(space: &Client, targets: usize) -> Result<()> {
    eventually_ok(CHANGE_MAX, "the hub to assign", async || {
        let rollup = read(space, ROLLUP).await?;
        let expected = rollup.pointer("/counts/expected").and_then(Value::as_u64).context("a rollup counts")?;
        ensure!(expected == u64::try_from(targets)?, "it is expected on {expected} of {targets} targets");
        Ok(())
    })
    .await
}

/// Makes a SyncTarget that is to have the objects, or is not.
async fn join(root: &Client, name: &str, is_in: bool) -> Result<()> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("tideline.dev", "v1alpha1", "SyncTarget"));
    let labels = json!({(LABEL): if is_in { "in" } else { "out" }});
    let target = json!({
        "apiVersion": "tideline.dev/v1alpha1",
        "kind": "SyncTarget",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
    });
    let targets: Api<DynamicObject> = Api::all_with(root.clone(), &resource);
    targets.patch(name, &PatchParams::apply("bench").force(), &Patch::Apply(&target)).await?;
    Ok(())
}
