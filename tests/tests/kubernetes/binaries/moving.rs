//! A hub moves to another port, name and authority. An agent that is told follows by itself; one that was not is told on site.

use std::time::Duration;

use anyhow::{Result, ensure};
use tideline_tests::{eventually_ok, free_port, require_binaries, require_kubernetes};

use super::{Identity, Site, TARGET, names};

/// An agent's longest pause between two tries, and a change on its way.
const SOON: Duration = Duration::from_mins(4);

fn public_urls(urls: &[String]) -> Vec<String> {
    vec!["--public-url".to_owned(), urls.join(",")]
}

/// Begins the hub's next run, which announces these URLs.
async fn serves_at(site: &mut Site, port: u16, urls: &[String]) -> Result<()> {
    site.hub.listen.set_port(port);
    site.hub.arguments = public_urls(urls);
    site.hub.resume().await
}

/// Makes a ConfigMap and waits for it, by an agent that may have to find its hub first.
async fn reaches(site: &mut Site, name: &str) -> Result<()> {
    site.hub.makes(name).await?;
    let placed = site.placed();
    eventually_ok(SOON, &format!("{name} in the cluster"), async || placed.get(name).await).await?;
    site.agent.runs()
}

async fn rotates(site: &Site, step: &str) -> Result<()> {
    site.hub.does(&["ca", step], &site.hub.data_dir()).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_follows_its_hub_and_finds_one_that_moved_without_a_word_by_its_options() -> Result<()> {
    let (assets, binaries) = (require_kubernetes!(), require_binaries!());
    let mut site = Site::start(&assets, &binaries, Identity::InDirectory, &names("web", 3)).await?;
    let before = site.uids().await?;
    let target = site.sync_target_uid().await?;
    let agent = site.agent.process.id();
    let (old, new) = (site.hub.listen.port(), free_port()?);
    let (old_url, new_url) = (format!("https://127.0.0.1:{old}"), format!("https://localhost:{new}"));

    // The hub announces its next address and authority.
    site.hub.stop().await?;
    rotates(&site, "prepare").await?;
    serves_at(&mut site, old, &[old_url, new_url.clone()]).await?;
    reaches(&mut site, "web-announced").await?;
    site.hub.stop().await?;
    rotates(&site, "switch").await?;
    serves_at(&mut site, new, std::slice::from_ref(&new_url)).await?;
    reaches(&mut site, "web-moved").await?;
    site.hub.stop().await?;
    rotates(&site, "retire").await?;
    serves_at(&mut site, new, &[new_url]).await?;
    reaches(&mut site, "web-after").await?;
    ensure!(site.agent.process.id() == agent, "nobody touched the agent");

    // Everything at once while the agent is down: it knows neither the address nor the authority.
    site.agent.stop().await?;
    site.hub.stop().await?;
    for step in ["prepare", "switch", "retire"] {
        rotates(&site, step).await?;
    }
    let last = free_port()?;
    let url = format!("https://localhost:{last}");
    serves_at(&mut site, last, std::slice::from_ref(&url)).await?;
    let authority = site.hub.data_dir().join("ca.crt").display().to_string();
    let options = ["--hub-url".to_owned(), url, "--hub-ca".to_owned(), authority];
    site.agent.start.arguments.extend_from_slice(&options);
    site.agent.resume()?;
    reaches(&mut site, "web-by-option").await?;

    // From then on it knows.
    site.agent.stop().await?;
    site.agent.start.arguments.truncate(site.agent.start.arguments.len() - options.len());
    site.agent.resume()?;
    reaches(&mut site, "web-at-last").await?;
    site.keeps(&before).await?;
    assert_eq!(site.sync_target_uid().await?, target);
    assert_eq!(site.listed("Enrolled").await?["name"], TARGET, "nobody enrolled again");
    Ok(())
}
