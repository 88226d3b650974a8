//! A hub, three workload clusters and their agents in one process: an application goes out to many clusters, its state
//! comes back, and one cluster is cut off in between.
//!
//! ```console
//! $ cargo run --release --example quickstart                # shows it, and stays up until Ctrl-C
//! $ cargo run --release --example quickstart -- --once      # shows it, and fails if anything shown was not so
//! $ cargo run --release --example quickstart -- --clusters a.kubeconfig,b.kubeconfig,c.kubeconfig
//! ```
//!
//! By default the workload clusters are embedded Kubernetes API servers with simulated controllers: Deployments there
//! get ReplicaSets, Pods and a status, but no container runs. `story` is what happens; the rest is what it needs.

mod clusters;
mod manifests;
mod platform;
mod rollups;
mod stage;
mod story;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use tideline_runtime::exit;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use crate::clusters::Cluster;
use crate::platform::Platform;
use crate::stage::Stage;
use crate::story::Story;

/// What the hub and the agents log, all into one file.
const LOG_FILTER: &str = "info,tideline_agent=debug,tideline_hub=debug,tideline_apiserver=debug";

/// Fewer show nothing of the many, and nothing of the one that is cut off.
const CLUSTERS_MIN: usize = 2;

/// Shows what Tideline does, on clusters made for it or on yours
#[derive(Debug, Parser)]
#[command(name = "quickstart")]
struct Arguments {
    /// End when all was shown, with exit code 1 if anything was not so
    #[arg(long)]
    once: bool,
    /// Use these clusters instead of embedded ones; the last one is cut off from the hub for a while
    #[arg(long, value_name = "KUBECONFIG,…", value_delimiter = ',')]
    clusters: Vec<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tideline_runtime::tls::install_provider();
    let directory = match tempfile::Builder::new().prefix("tideline-quickstart-").tempdir() {
        Ok(directory) => directory,
        Err(error) => {
            eprintln!("quickstart: cannot make a temporary directory: {error}");
            return ExitCode::FAILURE;
        }
    };
    match run(&arguments, directory.path()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\n    ✗ {}", exit::chain(error.as_ref()));
            if directory.path().join("hub").exists() {
                // Kept for finding the cause.
                eprintln!("\nThe log and all data directories are in {}", directory.keep().display());
            }
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments, directory: &Path) -> Result<()> {
    log_to(&directory.join("quickstart.log"))?;
    let (platform, mut failures) = Platform::new(directory.to_owned());
    // Both are cancel-safe at any point: what runs is stopped below, by its token.
    let outcome = tokio::select! {
        shown = show(arguments, directory, &platform) => shown,
        Some(failure) = failures.recv() => Err(failure),
        interrupted = tokio::signal::ctrl_c() => interrupted.context("waiting for Ctrl-C"),
    };
    platform.stop().await;
    outcome
}

async fn show(arguments: &Arguments, directory: &Path, platform: &Platform) -> Result<()> {
    let stage = Stage::open("Tideline quickstart", &format!("log: {}", directory.join("quickstart.log").display()));
    let clusters = if arguments.clusters.is_empty() {
        stage.chapter("Three workload clusters: embedded API servers with simulated controllers");
        Cluster::embedded(directory, &["north", "south", "island"]).await?
    } else {
        let given = arguments.clusters.len();
        ensure!(given >= CLUSTERS_MIN, "--clusters names {given} cluster; give at least {CLUSTERS_MIN}");
        stage.chapter("Workload clusters: yours");
        Cluster::given(&arguments.clusters).await?
    };
    let mut story = Story::begin(&stage, platform, &clusters).await?;
    story.tell().await?;
    stage.end("All of it was so.");
    if !arguments.once {
        story.stay(&arguments.clusters);
        std::future::pending::<()>().await;
    }
    Ok(())
}

fn log_to(path: &Path) -> Result<()> {
    let file = File::create(path).with_context(|| format!("creating the log {}", path.display()))?;
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(Mutex::new(file));
    tracing_subscriber::registry().with(LOG_FILTER.parse::<Targets>()?).with(lines).init();
    Ok(())
}
