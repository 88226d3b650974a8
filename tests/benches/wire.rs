//! What an agent and its hub send each other in an hour about autoscalers of which only counts are wanted, beside the same
//! where their whole status is.
//!
//! The status of an autoscaler changes as often as its controller looks at its metrics: every 15 s. Hub and agent are
//! processes of the binaries in TIDELINE_BIN_DIR with the settings they ship with; a relay between them counts the bytes
//! of both directions, TLS included.

#[path = "shared/apply.rs"]
mod apply;
#[path = "shared/connect.rs"]
mod connect;
#[path = "shared/gate.rs"]
mod gate;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tideline_hub::token::{self, TokenRequest};
use tideline_tests::kubernetes::{Assets, Cluster, ClusterOptions};
use tideline_tests::{Binaries, Process, Relay, Scratch, eventually_ok, free_port};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::connect::connect;

const START: Duration = Duration::from_mins(1);
const PLACED_MAX: Duration = Duration::from_mins(2);
/// Between two changes of each status, as kube-controller-manager's default has it.
const CHANGES_EVERY: Duration = Duration::from_secs(15);
/// Requests at once to the cluster.
const AT_ONCE: usize = 8;
const HOUR: Duration = Duration::from_hours(1);
/// Bytes an hour.
const GOAL: f64 = 1_000_000.0;
const NAMESPACE: &str = "bench";

/// Measures bytes between an agent and its hub
#[derive(Parser)]
struct Arguments {
    /// Autoscalers whose status changes every 15 s
    #[arg(long, default_value_t = 100)]
    autoscalers: usize,
    /// Seconds that are measured, of each sort
    #[arg(long, default_value_t = 600)]
    window: u64,
    /// Seconds until things are at rest
    #[arg(long, default_value_t = 60)]
    settle: u64,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<ExitCode> {
    if let Some(arguments) = gate::arguments::<Arguments>() {
        println!("bytes an hour about {} autoscalers, TLS included", arguments.autoscalers);
        println!("{:<24} {:>12} {:>12} {:>8}", "wanted", "measured", "goal", "of goal");
        for (wanted, of_status, goal) in [("counts", "Never", Some(GOAL)), ("the whole status", "Auto", None)] {
            let bytes = measure(of_status, &arguments).await?;
            match goal {
                Some(goal) => println!("{wanted:<24} {bytes:>12.0} {goal:>12.0} {:>7.2}x", bytes / goal),
                None => println!("{wanted:<24} {bytes:>12.0} {:>12} {:>8}", "-", "-"),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the bytes an hour where so much of a status comes back.
async fn measure(of_status: &str, arguments: &Arguments) -> Result<f64> {
    let assets = Assets::locate()?.context(Assets::MISSING)?;
    let binaries = Binaries::locate()?.context(Binaries::MISSING)?;
    let directory = Scratch::new("wire")?;
    let cluster = Cluster::start(&assets, ClusterOptions::default()).await?;
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let mut command = Command::new(binaries.hub());
    command.arg("serve").arg("--data-dir").arg(directory.join("hub"));
    command.args(["--listen", &listen.to_string(), "--health-listen", "127.0.0.1:0"]);
    let _hub = Process::spawn("tideline-hub", &mut command, &directory.join("hub.log"))?;
    let admin = directory.join("hub/admin.kubeconfig");
    let space = eventually_ok(START, "the hub to serve", async || connect(&admin, "default").await).await?;
    fill(&space, of_status, arguments.autoscalers).await?;

    let relay = Relay::start(listen).await?;
    let request = TokenRequest {
        kubeconfig: Some(admin.clone()),
        name: "real".to_owned(),
        labels: [("bench".to_owned(), "real".to_owned())].into(),
        expires: START,
    };
    let mut token = token::create(request).await?;
    token.urls = vec![format!("https://{}", relay.address()).parse()?];
    fs::write(directory.join("token"), token.to_string())?;
    let mut command = Command::new(binaries.agent());
    command.arg("run").arg("--data-dir").arg(directory.join("agent"));
    command.arg("--kubeconfig").arg(cluster.kubeconfig_path()).arg("--token-file").arg(directory.join("token"));
    let agent = Process::spawn("tideline-agent", command.args(["--listen", "off"]), &directory.join("agent.log"))?;

    let placed: Api<HorizontalPodAutoscaler> = Api::namespaced(cluster.client(), NAMESPACE);
    let all_there = async || {
        let found = placed.list_metadata(&ListParams::default()).await?.items.len();
        ensure!(found == arguments.autoscalers, "{found} autoscalers are there");
        anyhow::Ok(())
    };
    eventually_ok(PLACED_MAX, "the autoscalers to be placed", all_there).await.with_context(|| agent.log_tail())?;
    change_for(&placed, arguments.autoscalers, Duration::from_secs(arguments.settle)).await?;
    let (before, begun) = (relay.passed_bytes(), Instant::now());
    change_for(&placed, arguments.autoscalers, Duration::from_secs(arguments.window)).await?;
    let bytes = relay.passed_bytes() - before;
    let lasted = begun.elapsed();
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    Ok(bytes as f64 * HOUR.as_secs_f64() / lasted.as_secs_f64())
}

/// Changes each status every 15 s, one after the other.
async fn change_for(placed: &Api<HorizontalPodAutoscaler>, count: usize, lasting: Duration) -> Result<()> {
    let begun = Instant::now();
    let mut rounds = interval(CHANGES_EVERY);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for round in 0.. {
        rounds.tick().await;
        if begun.elapsed() >= lasting {
            break;
        }
        let changes = stream::iter(0..count).map(|index| async move {
            let status = Patch::Merge(json!({"status": status(index, round)}));
            placed.patch_status(&name(index), &PatchParams::default(), &status).await.context("changing a status")
        });
        changes.buffer_unordered(AT_ONCE).try_for_each(async |_| Ok(())).await?;
    }
    Ok(())
}

/// What the controller of autoscalers writes: load and replicas that go up and down.
fn status(index: usize, round: usize) -> Value {
    let (replicas, load) = (2 + (index + round) % 3, 40 + (index * 7 + round * 13) % 50);
    json!({
        "currentReplicas": replicas,
        "desiredReplicas": replicas,
        "currentMetrics": [{
            "type": "Resource",
            "resource": {"name": "cpu", "current": {"averageUtilization": load, "averageValue": format!("{load}m")}},
        }],
        "conditions": [
            {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "message": "recommended size matches current size"},
            {"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound", "message": "the HPA was able to successfully calculate a replica count from cpu resource utilization"},
        ],
    })
}

fn name(index: usize) -> String {
    format!("web-{index:03}")
}

/// Puts the autoscalers into the space, and places them.
async fn fill(space: &Client, of_status: &str, count: usize) -> Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let autoscalers = (0..count).map(|index| {
        json!({
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name(index), "namespace": NAMESPACE},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name(index)},
                "minReplicas": 2,
                "maxReplicas": 5,
                "metrics": [{
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}},
                }],
            },
        })
    });
    let placement = json!({
        "apiVersion": "tideline.dev/v1alpha1",
        "kind": "Placement",
        "metadata": {"name": "bench"},
        "spec": {
            "targets": [{"matchLabels": {"bench": "real"}}],
            "objects": [{
                "apiGroup": "autoscaling",
                "resources": ["horizontalpodautoscalers"],
                "namespaces": [NAMESPACE],
                "status": {"return": of_status},
            }],
        },
    });
    for manifest in std::iter::once(namespace).chain(autoscalers).chain([placement]) {
        apply::apply(space, &manifest).await?;
    }
    Ok(())
}
