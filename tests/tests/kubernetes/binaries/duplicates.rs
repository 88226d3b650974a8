//! Two agents of one identity: the one that keeps the cluster goes on, the other waits for a person.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tideline_tests::kubernetes::Assets;
use tideline_tests::{Binaries, ask_health, eventually_ok, require_binaries, require_kubernetes};

use super::{Identity, Site, TARGET, names};
use crate::processes::{SOON, fails};

/// A frozen agent's first two pauses, of four minutes at most each.
const ASKED_AGAIN: Duration = Duration::from_mins(9);

/// The IDs of the agents that the SyncTarget shows: the one that keeps the cluster, and the one that waits.
fn shown(target: &Value) -> Result<(String, String)> {
    let status = &target["status"];
    let instances = status["instances"].as_array().cloned().unwrap_or_default();
    ensure!(instances.len() == 2 && status["phase"] == "DuplicateAgent", "{status}");
    let of = |holds: bool| {
        let found = instances.iter().find(|it| it["holds"].as_bool().unwrap_or_default() == holds);
        found.and_then(|it| it["id"].as_str()).map(str::to_owned).with_context(|| status.to_string())
    };
    let (holder, other) = (of(true)?, of(false)?);
    let ready = status["conditions"].as_array().into_iter().flatten().find(|it| it["type"] == "Ready");
    ensure!(ready.is_some_and(|ready| ready["status"] == "False"), "{status}");
    let conditions = status["conditions"].to_string();
    ensure!(conditions.contains(&holder) && conditions.contains(&other), "{conditions}");
    Ok((holder, other))
}

async fn a_copy_waits_until_it_is_accepted(assets: &Assets, binaries: &Binaries, identity: Identity) -> Result<()> {
    let mut site = Site::start(assets, binaries, identity, &names("web", 3)).await?;
    site.agent.stop().await?;
    let directory = site.agent.copied()?;
    // A session that the copy has never heard of is in use when it starts.
    site.agent.resume()?;
    site.delivers("web-before").await?;
    let before = site.uids().await?;
    let mut copy = site.agent.copy(directory)?;
    copy.says_of_itself("frozen", SOON).await?;
    let both = eventually_ok(SOON, "both agents to be shown", async || shown(&site.sync_target().await?)).await?;
    let (holder, other) = both;
    site.delivers("web-beside").await?;
    ensure!(ask_health(site.agent.health, "/readyz").await?.0 == 200, "{}", site.agent.process.log_tail());
    assert_eq!(shown(&site.sync_target().await?)?, (holder.clone(), other.clone()));

    let nobody = ["targets", "accept", TARGET, "--instance", "0123456789abcdef"];
    fails(&mut site.hub.command(&nobody), 1, &[&holder, &other]).await?;
    let said = site.hub.tells(&["targets", "accept", TARGET, "--instance", &other]).await?;
    ensure!(said.contains("It takes over when it asks next") && said.contains(&holder), "{said}");
    copy.goes_on(ASKED_AGAIN).await?;
    site.agent.says_of_itself("frozen", ASKED_AGAIN).await?;
    let moved = (other, holder);
    eventually_ok(SOON, "the other way round", async || {
        let now = shown(&site.sync_target().await?)?;
        ensure!(now == moved, "{now:?}");
        anyhow::Ok(())
    })
    .await?;
    site.delivers("web-moved").await?;
    site.keeps(&before).await?;
    copy.runs()?;
    site.agent.runs()
}

/// Both at once, because most of it is waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_copies_of_a_data_directory_one_keeps_the_cluster_until_a_person_accepts_the_other() -> Result<()> {
    let (assets, binaries) = (require_kubernetes!(), require_binaries!());
    tokio::try_join!(
        a_copy_waits_until_it_is_accepted(&assets, &binaries, Identity::InDirectory),
        a_copy_waits_until_it_is_accepted(&assets, &binaries, Identity::InSecret),
    )?;
    Ok(())
}
