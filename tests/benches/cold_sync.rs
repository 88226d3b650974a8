//! How long an agent takes to enrol and to bring a whole set into an empty cluster, beside the bare loop of concurrent
//! server-side applies that does nothing else.
//!
//! Both are measured to the moment that a watcher of its own has seen the last object. Every run has a new etcd, API
//! server and hub.

#[path = "shared/apply.rs"]
mod apply;
#[path = "shared/filling.rs"]
mod filling;
#[path = "shared/gate.rs"]
mod gate;
#[path = "shared/objects.rs"]
mod objects;
#[path = "shared/seen.rs"]
mod seen;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tideline_tests::fleet::Hub;
use tideline_tests::kubernetes::{Assets, Cluster, ClusterOptions};
use tokio::time::Instant;

use crate::objects::Shape;

/// Requests at once that the bare loop is tried with.
const SWEEP: [usize; 3] = [16, 32, 64];
/// Longest time for one sync.
const SYNC_MAX: Duration = Duration::from_mins(20);
/// What the ratio should be at most: creating costs an API server less than applying, and small objects leave the least
/// time for what the agent does besides.
const GOAL: f64 = 1.0;
const GOAL_CONFIG_MAPS: f64 = 1.15;

/// Measures the first sync of a cluster
#[derive(Parser)]
struct Arguments {
    /// ConfigMaps of 1 KB
    #[arg(long, default_value_t = 3_000)]
    config_maps: usize,
    /// Deployments of 2.5 KB, without Pods
    #[arg(long, default_value_t = 2_000)]
    deployments: usize,
    /// Namespaces that they are spread over
    #[arg(long, default_value_t = 50)]
    namespaces: usize,
    /// Runs of each, in turn
    #[arg(long, default_value_t = 5)]
    runs: usize,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<ExitCode> {
    if let Some(arguments) = gate::arguments() {
        measure(arguments).await?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure(Arguments { config_maps, deployments, namespaces, runs }: Arguments) -> Result<()> {
    let assets = Assets::locate()?.context(Assets::MISSING)?;
    let shape = Shape { namespaces, config_maps, deployments };
    println!("cold sync of {} objects in {namespaces} namespaces", shape.objects());
    println!("{:<24} {:>8}", "bare loop, at once", "seconds");
    let mut best = (SWEEP[0], Duration::MAX);
    for at_once in SWEEP {
        let took = bare(&assets, shape, at_once).await?;
        println!("{at_once:<24} {:>8.2}", took.as_secs_f64());
        if took < best.1 {
            best = (at_once, took);
        }
    }

    println!("\n{:<8} {:>16} {:>16} {:>8}", "run", "bare loop s", "tideline s", "ratio");
    let mut ratios = Vec::new();
    for run in 1..=runs {
        let loop_took = bare(&assets, shape, best.0).await?.as_secs_f64();
        let agent_took = tideline(&assets, shape).await?.as_secs_f64();
        let ratio = agent_took / loop_took;
        println!("{run:<8} {loop_took:>16.2} {agent_took:>16.2} {ratio:>7.2}x");
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN);
    let goal = if deployments == 0 { GOAL_CONFIG_MAPS } else { GOAL };
    println!("\nmedian ratio {median:.2}x of the bare loop with {} at once; goal {goal}x", best.0);
    Ok(())
}

/// Times the bare loop on a new cluster.
async fn bare(assets: &Assets, shape: Shape, at_once: usize) -> Result<Duration> {
    let cluster = Cluster::start(assets, ClusterOptions::default()).await?;
    let (namespaces, manifests) = (shape.namespaces(), shape.manifests());
    let seen = tokio::spawn(seen::all(own_client(&cluster).await?, objects::LABEL, shape.objects(), SYNC_MAX));
    let client = own_client(&cluster).await?;
    let began = Instant::now();
    filling::apply_all(&client, &namespaces, at_once).await?;
    filling::apply_all(&client, &manifests, at_once).await?;
    Ok(seen.await??.duration_since(began))
}

/// Times an agent from its first start, with a token and nothing else, on a new cluster. Its hub has placed the whole set
/// beforehand on every target with the label that the token gives.
async fn tideline(assets: &Assets, shape: Shape) -> Result<Duration> {
    let (cluster, hub) = tokio::try_join!(Cluster::start(assets, ClusterOptions::default()), Hub::start())?;
    let labels = BTreeMap::from([("bench".to_owned(), "real".to_owned())]);
    let space = hub.client("default").await?;
    objects::fill(&space, shape).await?;
    objects::place(&space, &labels, shape.objects()).await?;

    let mut agent = hub.prepare("real", &[("bench", "real")], cluster.kubeconfig_path(), None).await?;
    let seen = tokio::spawn(seen::all(own_client(&cluster).await?, objects::LABEL, shape.objects(), SYNC_MAX));
    let began = Instant::now();
    agent.resume();
    let took = seen.await??.duration_since(began);
    agent.stop().await?;
    Ok(took)
}

/// A client that shares no connection with another.
async fn own_client(cluster: &Cluster) -> Result<Client> {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig_path())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
