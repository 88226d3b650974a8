//! The quickstart on clusters that somebody has.

use std::env;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tideline_tests::kubernetes::{Cluster, ClusterOptions};
use tideline_tests::{Process, Scratch, Simulator, require_kubernetes};

/// Well above the ten seconds that it takes alone on a machine.
const SHOWN_MAX: Duration = Duration::from_mins(3);

/// There are no nodes, so the controllers are simulated here too; all else is as in anybody's cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quickstart_shows_the_same_on_clusters_that_are_given() -> Result<()> {
    let assets = require_kubernetes!();
    let options = |name: &str| ClusterOptions { name: name.to_owned(), ..ClusterOptions::default() };
    let (east, west) =
        tokio::try_join!(Cluster::start(&assets, options("east")), Cluster::start(&assets, options("west")))?;
    let _controllers = [Simulator::start(east.client()), Simulator::start(west.client())];

    let tests = env::current_exe()?;
    let profile = tests.parent().and_then(|deps| deps.parent()).context("tests are built into deps")?;
    let quickstart = profile.join("examples/quickstart");
    ensure!(quickstart.exists(), "build it first: cargo build -p tideline-tests --example quickstart");
    let given = format!("{},{}", east.kubeconfig_path().display(), west.kubeconfig_path().display());
    let log = Scratch::new("quickstart")?;
    let mut command = Command::new(quickstart);
    command.args(["--once", "--clusters", &given]);
    let mut process = Process::spawn("quickstart", &mut command, &log.join("log"))?;
    let status = process.wait(SHOWN_MAX).await?;
    ensure!(status.success(), "{status}\n{}", process.log());
    Ok(())
}
