//! How the processes live and end: health, SIGTERM, kill −9.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use tideline_tests::{EmbeddedCluster, Scratch, eventually_ok, require_binaries};

use crate::harness::{Hub, SOON, get};

/// Kubernetes waits 30 s before it kills; a person waits less.
const END: Duration = Duration::from_secs(10);

#[tokio::test]
async fn both_answer_whether_they_live_and_are_ready_and_what_they_count() -> Result<()> {
    let binaries = require_binaries!();
    let scratch = Scratch::new("cluster")?;
    let cluster = EmbeddedCluster::start(scratch.path(), "cluster").await?;
    let hub = Hub::start(&binaries).await?;
    let agent = hub.agent("store", &cluster).await?;
    for (port, metric) in [(hub.health, "tideline_hub_targets"), (agent.health, "tideline_agent_")] {
        for path in ["/livez", "/readyz"] {
            assert_eq!(get(port, path).await?, (200, "ok\n".to_owned()), "{path}");
        }
        let (code, metrics) = get(port, "/metrics").await?;
        ensure!(code == 200 && metrics.contains(metric) && metrics.ends_with("# EOF\n"), "{code}: {metrics}");
        assert_eq!(get(port, "/other").await?.0, 404);
    }
    Ok(())
}

#[tokio::test]
async fn sigterm_ends_both_with_success_within_seconds() -> Result<()> {
    let binaries = require_binaries!();
    let scratch = Scratch::new("cluster")?;
    let cluster = EmbeddedCluster::start(scratch.path(), "cluster").await?;
    let mut hub = Hub::start(&binaries).await?;
    let mut agent = hub.agent("store", &cluster).await?;

    // The agent holds a poll open at the hub.
    hub.process.terminate()?;
    assert_eq!(hub.process.wait(END).await?.code(), Some(0), "the hub, with an agent that polls");
    // And has no hub to report to.
    agent.process.terminate()?;
    assert_eq!(agent.process.wait(END).await?.code(), Some(0), "the agent, without its hub");

    hub.resume().await?;
    agent.resume()?;
    agent.is_ready().await?;
    agent.process.terminate()?;
    assert_eq!(agent.process.wait(END).await?.code(), Some(0), "the agent, with its hub");
    Ok(())
}

#[tokio::test]
async fn a_hub_that_was_killed_serves_again_as_the_same_hub() -> Result<()> {
    let binaries = require_binaries!();
    let scratch = Scratch::new("cluster")?;
    let cluster = EmbeddedCluster::start(scratch.path(), "cluster").await?;
    let mut hub = Hub::start(&binaries).await?;
    let mut agent = hub.agent("store", &cluster).await?;
    hub.place_config_maps().await?;
    hub.delivers("before", &cluster).await?;
    let kubeconfig = fs::read_to_string(hub.kubeconfig())?;
    let targets = hub.identities().await?;

    hub.process.kill()?;
    hub.resume().await?;

    assert_eq!(fs::read_to_string(hub.kubeconfig())?, kubeconfig, "its address, authority and administrator");
    assert_eq!(hub.identities().await?, targets);
    hub.delivers("after", &cluster).await?;
    ensure!(agent.process.exit_status()?.is_none(), "the agent never noticed more than an absence");
    eventually_ok(SOON, "the target to be ready", async || {
        let targets = hub.targets().await?;
        ensure!(targets.iter().all(|target| target.phase == "Ready"), "{targets:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_agent_that_was_killed_goes_on_as_the_same_target() -> Result<()> {
    let binaries = require_binaries!();
    let scratch = Scratch::new("cluster")?;
    let cluster = EmbeddedCluster::start(scratch.path(), "cluster").await?;
    let hub = Hub::start(&binaries).await?;
    let mut agent = hub.agent("store", &cluster).await?;
    hub.place_config_maps().await?;
    hub.delivers("before", &cluster).await?;
    let before = hub.identities().await?;

    agent.process.kill()?;
    agent.resume()?;
    hub.delivers("after", &cluster).await?;
    agent.is_ready().await?;
    assert_eq!(hub.identities().await?, before);
    Ok(())
}

#[tokio::test]
async fn data_directories_are_their_owners_alone() -> Result<()> {
    let binaries = require_binaries!();
    let scratch = Scratch::new("cluster")?;
    let cluster = EmbeddedCluster::start(scratch.path(), "cluster").await?;
    let hub = Hub::start(&binaries).await?;
    let agent = hub.agent("store", &cluster).await?;
    let mode = |path: &Path| -> Result<u32> { Ok(fs::metadata(path)?.permissions().mode() & 0o777) };
    assert_eq!(mode(&hub.data_dir())?, 0o700, "it holds Secrets");
    assert_eq!(mode(&hub.kubeconfig())?, 0o600, "it is a password");
    assert_eq!(mode(&agent.data_dir())?, 0o700, "it holds Secrets");
    assert_eq!(mode(&agent.data_dir().join("identity.json"))?, 0o600, "it is a key");
    Ok(())
}
