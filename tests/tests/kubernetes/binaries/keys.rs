//! Agents are listed, revoked, and let in again.

use anyhow::{Result, ensure};
use tideline_tests::{require_binaries, require_kubernetes};

use super::{Identity, Site, TARGET, names};
use crate::processes::SOON;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_is_listed_and_revoked_at_once_and_goes_on_with_a_new_token() -> Result<()> {
    let (assets, binaries) = (require_kubernetes!(), require_binaries!());
    let mut site = Site::start(&assets, &binaries, Identity::InSecret, &names("web", 3)).await?;
    let before = site.uids().await?;
    let uid = site.sync_target_uid().await?;
    let listed = site.listed("Enrolled").await?;
    assert_eq!((listed["name"].as_str(), listed["target"].as_str()), (Some(TARGET), Some(&*uid)), "{listed}");
    ensure!(listed["cluster"].is_string() && listed["lastContact"].is_string(), "{listed}");
    let table = site.hub.tells(&["targets", "list"]).await?;
    let row = table.lines().find(|line| line.starts_with(TARGET)).unwrap_or_default();
    let fingerprint = listed["fingerprint"].as_str().unwrap_or_default();
    ensure!(row.contains(&uid) && row.contains("Enrolled") && row.contains(fingerprint), "{table}");
    ensure!(!fingerprint.is_empty(), "{listed}");

    let said = site.hub.tells(&["targets", "revoke", TARGET]).await?;
    ensure!(said.contains("tideline-hub token create store"), "{said}");
    site.agent.says_of_itself("frozen", SOON).await?;
    site.target_shows("that nobody speaks for it", |it| it["status"]["phase"] == "Revoked").await?;
    let revoked = site.listed("Revoked").await?;
    ensure!(revoked["key"].is_null(), "{revoked}");
    ensure!(site.hub.tells(&["targets", "list"]).await?.contains("Revoked"), "people are told as well");
    // A start of it changes nothing.
    site.agent.stop().await?;
    site.agent.resume()?;
    site.agent.says_of_itself("frozen", SOON).await?;
    assert_eq!(site.uids().await?, before);

    // Put where the agent reads one, while it runs.
    site.hub.token_file(TARGET).await?;
    site.delivers("web-after").await?;
    site.keeps(&before).await?;
    site.target_shows("the agent at work", |it| it["status"]["phase"] == "Ready").await?;
    assert_eq!(site.sync_target_uid().await?, uid, "it is the same SyncTarget");
    let again = site.listed("Enrolled").await?;
    ensure!(again["fingerprint"] != listed["fingerprint"] && again["key"] != listed["key"], "with a key of its own");
    site.agent.runs()
}
