//! A SyncTarget that was deleted by mistake and made again is handed to the agent that is there, which loses nothing, also
//! when it is killed while it takes over.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;
use tideline_tests::{ask_health, eventually_ok, require_binaries, require_kubernetes};

use super::{Identity, Site, TARGET, names};
use crate::processes::{SOON, fails};

/// A start of an agent whose every request takes a third of a second, with others beside it.
const LATER: Duration = Duration::from_mins(3);
/// As many as are marked anew in some seconds, when forty at a time take a third of one.
const OBJECTS: usize = 320;
const KILLS: usize = 12;

const QUESTION: &str = "Hand SyncTarget store to this agent?";

/// Waits until so many objects at least are marked for the SyncTarget with this UID, and the agent runs on.
async fn marked_anew(site: &mut Site, uid: &str, count: usize) -> Result<()> {
    eventually_ok(LATER, &format!("{count} marks of the new SyncTarget"), async || {
        let marked = site.marked(uid).await?;
        ensure!(marked >= count, "{marked}");
        anyhow::Ok(())
    })
    .await?;
    site.agent.runs()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_target_that_was_made_again_is_adopted_at_a_terminal_and_every_object_stays() -> Result<()> {
    let (assets, binaries) = (require_kubernetes!(), require_binaries!());
    let mut site = Site::start(&assets, &binaries, Identity::InSecret, &names("web", 3)).await?;
    let before = site.uids().await?;
    site.target_shows("the agent at work", |it| it["status"]["phase"] == "Ready").await?;
    fails(&mut site.hub.command(&["targets", "remove", TARGET]), 1, &["targets revoke"]).await?;
    site.hub.tells(&["targets", "remove", TARGET, "--force"]).await?;
    site.agent.says_of_itself("frozen", SOON).await?;
    site.listed("Deleted").await?;
    fails(&mut site.hub.command(&["targets", "adopt", TARGET, "--yes"]), 1, &[TARGET]).await?;

    site.makes_target().await?;
    fails(&mut site.hub.command(&["targets", "adopt", TARGET]), 1, &["--yes"]).await?;
    let declined = site.hub.asks(&["targets", "adopt", TARGET], QUESTION, "n").await?;
    ensure!(declined.code()? == 1 && declined.stderr.contains("nothing was changed"), "{declined:?}");
    site.listed("Deleted").await?;
    let adopted = site.hub.asks(&["targets", "adopt", TARGET], QUESTION, "y").await?;
    ensure!(adopted.code()? == 0 && adopted.stdout.contains("Adopted: SyncTarget store"), "{adopted:?}");
    // The fingerprint is what a person compares with the agent's log.
    let fingerprint = site.listed("Adopted").await?["fingerprint"].clone();
    ensure!(fingerprint.as_str().is_some_and(|it| adopted.stderr.contains(it)), "{fingerprint}: {adopted:?}");

    // Frozen as it is, it asks by itself, within two minutes at first.
    let uid = site.sync_target_uid().await?;
    marked_anew(&mut site, &uid, before.len()).await?;
    site.delivers("web-after").await?;
    site.keeps(&before).await?;
    site.target_shows("the agent at work", |it| it["status"]["phase"] == "Ready").await?;
    site.agent.is_ready().await
}

/// Waits for one of the moments of a takeover.
async fn moment(site: &mut Site, kill: usize, uid: &str) -> Result<()> {
    let health = site.agent.health;
    match kill {
        0 => Ok(()),
        1 => {
            eventually_ok(LATER, "the agent to live", async || ask_health(health, "/livez").await).await?;
            site.agent.runs()
        }
        // What it is now is in its file, and in no mark.
        2 => {
            let file = site.agent.data_dir().join("identity.json");
            eventually_ok(LATER, "the agent to be another", async || {
                let identity: Value = serde_json::from_slice(&fs::read(&file)?)?;
                ensure!(identity["identity"]["enrolled"]["target"] == uid, "{}", identity["identity"]["enrolled"]);
                anyhow::Ok(())
            })
            .await?;
            site.agent.runs()
        }
        some => marked_anew(site, uid, OBJECTS * (some - 2) / (KILLS - 2)).await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_killed_again_and_again_while_it_is_adopted_loses_nothing() -> Result<()> {
    let (assets, binaries) = (require_kubernetes!(), require_binaries!());
    let mut site = Site::start(&assets, &binaries, Identity::InSecret, &names("web", OBJECTS)).await?;
    let before = site.uids().await?;
    site.agent.process.kill()?;
    site.hub.tells(&["targets", "remove", TARGET, "--force"]).await?;
    site.makes_target().await?;
    site.hub.tells(&["targets", "adopt", TARGET, "--yes"]).await?;
    let uid = site.sync_target_uid().await?;

    site.wire.delay(Duration::from_millis(150));
    let mut amid = 0;
    for kill in 0..KILLS {
        site.agent.resume()?;
        moment(&mut site, kill, &uid).await?;
        site.agent.process.kill()?;
        amid += usize::from((1..OBJECTS).contains(&site.marked(&uid).await?));
        site.keeps(&before).await?;
        if kill == KILLS / 2 {
            fs::remove_dir_all(site.agent.data_dir())?;
        }
    }
    ensure!(amid > 0, "it was never killed while some were marked anew and some were not");
    site.wire.resume();
    site.agent.resume()?;
    marked_anew(&mut site, &uid, OBJECTS).await?;
    site.delivers("web-after").await?;
    site.keeps(&before).await?;
    assert_eq!(site.uids().await?.len(), OBJECTS + 1);
    site.target_shows("the agent at work", |it| it["status"]["phase"] == "Ready").await?;
    site.agent.runs()
}
