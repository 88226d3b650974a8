//! Several replicas of one agent, of which one works.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tideline_tests::{Binaries, EmbeddedCluster, Scratch, ask_health, eventually_ok, require_binaries};

use crate::harness::{Agent, Hub, SOON};

/// The state that replicas share.
const HOME: &str = "default";

fn replica(binaries: &Binaries, cluster: &EmbeddedCluster, token_file: &Path) -> Result<Agent> {
    Agent::start_with(binaries, cluster.kubeconfig(), token_file, &["--namespace", HOME, "--leader-elect"])
}

/// It is ready to take over, and has begun nothing.
async fn stands_by(agent: &Agent) -> Result<()> {
    agent.says("standing by").await?;
    assert_eq!(ask_health(agent.health, "/readyz").await?, (200, "ok, standby\n".to_owned()));
    let (_, metrics) = ask_health(agent.health, "/metrics").await?;
    ensure!(metrics.contains("tideline_agent_leading 0"), "{metrics}");
    Ok(())
}

/// Waits until the log says so many times that it leads, and then that it knows what to keep.
async fn leads(agent: &mut Agent, times: usize) -> Result<()> {
    eventually_ok(SOON, "a replica to lead", async || {
        let log = agent.process.log();
        ensure!(log.matches("this replica leads").count() == times, "its log: {log}");
        Ok(())
    })
    .await?;
    agent.is_ready().await?;
    let (_, metrics) = ask_health(agent.health, "/metrics").await?;
    ensure!(metrics.contains("tideline_agent_leading 1"), "{metrics}");
    Ok(())
}

/// What makes an object this one, and which writes it has seen.
async fn versions(cluster: &EmbeddedCluster) -> Result<BTreeMap<String, (Option<String>, Option<String>)>> {
    let placed = Api::<ConfigMap>::namespaced(cluster.client(), "shop").list(&ListParams::default()).await?;
    Ok(placed.items.into_iter().map(|it| (it.name_any(), (it.uid(), it.resource_version()))).collect())
}

#[tokio::test]
async fn another_replica_takes_over_from_the_leader_and_rewrites_nothing() -> Result<()> {
    let binaries = require_binaries!();
    let scratch = Scratch::new("cluster")?;
    let cluster = EmbeddedCluster::start(scratch.path(), "cluster").await?;
    let hub = Hub::start(&binaries).await?;
    let token = hub.token_file("store").await?;
    let mut first = replica(&binaries, &cluster, &token)?;
    leads(&mut first, 1).await?;
    hub.place_config_maps().await?;
    for name in ["one", "two", "three"] {
        hub.delivers(name, &cluster).await?;
    }
    let mut second = replica(&binaries, &cluster, &token)?;
    stands_by(&second).await?;
    ensure!(!second.data_dir().join("journal").exists(), "a standby has no journal");
    ensure!(!second.data_dir().join("identity.json").exists(), "nor does it know who it is");

    let (identities, before) = (hub.identities().await?, versions(&cluster).await?);
    first.process.kill()?;
    leads(&mut second, 1).await?;
    hub.delivers("four", &cluster).await?;
    let mut after = versions(&cluster).await?;
    after.remove("four");
    assert_eq!(after, before, "what stands is neither written nor made anew");
    assert_eq!(hub.identities().await?, identities, "it is the same agent");

    // What the first knew is out of date, and it does not go by that when it leads again.
    first.resume()?;
    eventually_ok(SOON, "the first to stand by", async || {
        let (code, body) = ask_health(first.health, "/readyz").await?;
        ensure!((code, body.as_str()) == (200, "ok, standby\n"), "{code}: {body}");
        Ok(())
    })
    .await?;
    let before = versions(&cluster).await?;
    second.process.terminate()?;
    assert_eq!(second.process.wait(SOON).await?.code(), Some(0));
    ensure!(second.process.log().contains("released"), "{}", second.process.log());
    leads(&mut first, 2).await?;
    first.says("was removed").await?;
    hub.delivers("five", &cluster).await?;
    let mut after = versions(&cluster).await?;
    after.remove("five");
    assert_eq!(after, before);
    Ok(())
}

#[tokio::test]
async fn a_leader_whose_lease_is_taken_ends_at_once_and_says_so() -> Result<()> {
    let binaries = require_binaries!();
    let scratch = Scratch::new("cluster")?;
    let cluster = EmbeddedCluster::start(scratch.path(), "cluster").await?;
    let hub = Hub::start(&binaries).await?;
    let token = hub.token_file("store").await?;
    let mut agent = replica(&binaries, &cluster, &token)?;
    leads(&mut agent, 1).await?;
    let taken = json!({"spec": {"holderIdentity": "somebody"}});
    let leases = Api::<Lease>::namespaced(cluster.client(), HOME);
    leases.patch("tideline-agent", &PatchParams::default(), &Patch::Merge(taken)).await?;
    assert_eq!(agent.process.wait(SOON).await?.code(), Some(3));
    ensure!(agent.process.log().contains("somebody holds it now"), "{}", agent.process.log());
    // And does not take it back: it waits for the new holder.
    agent.resume()?;
    stands_by(&agent).await
}
