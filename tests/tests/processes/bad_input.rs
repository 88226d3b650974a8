//! Bad input: one message that says what to do, the exit code of a failure, and nothing else stops.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tideline_tests::{EmbeddedCluster, Scratch, ask_health, require_binaries};

use crate::harness::{Agent, Hub, SOON, Site, command, fails, run_agent};

const FREE: &str = "127.0.0.1:0";

#[tokio::test]
async fn a_data_directory_that_another_process_holds_is_refused() -> Result<()> {
    let binaries = require_binaries!();
    let mut site = Site::start(&binaries).await?;

    let mut second = command(binaries.hub(), &["serve", "--listen", FREE, "--health-listen", FREE]);
    second.arg("--data-dir").arg(site.hub.data_dir());
    fails(&mut second, 1, &["another process", "--data-dir"]).await?;
    let mut second = run_agent(&binaries, &site.agent.data_dir(), site.cluster.kubeconfig());
    fails(second.args(["--listen", "off"]), 1, &["another process", "--data-dir"]).await?;

    site.hub.serves().await?;
    site.agent.is_ready().await?;
    site.hub.place_config_maps().await?;
    site.delivers("after").await
}

#[tokio::test]
async fn a_port_in_use_is_refused() -> Result<()> {
    let binaries = require_binaries!();
    let scratch = Scratch::new("ports")?;
    let holder = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let held = holder.local_addr()?.to_string();

    let advice = "or stop what holds it";
    for (listen, health, option) in
        [(held.as_str(), FREE, "with --listen"), (FREE, held.as_str(), "with --health-listen")]
    {
        let mut hub = command(binaries.hub(), &["serve", "--listen", listen, "--health-listen", health]);
        fails(hub.arg("--data-dir").arg(scratch.join("hub")), 1, &[&held, option, advice]).await?;
    }
    let mut agent = run_agent(&binaries, &scratch.join("agent"), &scratch.join("none"));
    fails(agent.args(["--listen", &held]), 1, &[&held, "with --listen", advice]).await?;
    Ok(())
}

#[tokio::test]
async fn a_command_whose_hub_is_stopped_says_where_it_was_sought() -> Result<()> {
    let binaries = require_binaries!();
    let mut hub = Hub::start(&binaries).await?;
    hub.process.terminate()?;
    hub.process.wait(SOON).await?;

    let (address, kubeconfig) = (hub.address().to_string(), hub.kubeconfig().display().to_string());
    for args in [["status"].as_slice(), &["token", "create", "store"]] {
        let parts = [address.as_str(), &kubeconfig, "\"root\"", "see that it runs", "Connection refused"];
        fails(&mut hub.command(args), 1, &parts).await?;
        let mut by_environment = command(binaries.hub(), args);
        let parts = [address.as_str(), &kubeconfig, "by KUBECONFIG", "see that it runs"];
        fails(by_environment.env("KUBECONFIG", &kubeconfig), 1, &parts).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_data_directory_that_cannot_be_one_is_refused() -> Result<()> {
    let binaries = require_binaries!();
    let scratch = Scratch::new("no-directory")?;
    let file = scratch.join("file");
    fs::write(&file, "not a directory")?;

    for path in [file.clone(), file.join("below")] {
        let mut hub = command(binaries.hub(), &["serve", "--listen", FREE, "--health-listen", FREE]);
        fails(hub.arg("--data-dir").arg(&path), 1, &["--data-dir", &path.display().to_string()]).await?;
        let mut agent = run_agent(&binaries, &path, &scratch.join("none"));
        fails(agent.args(["--listen", "off"]), 1, &["--data-dir", &path.display().to_string()]).await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_unreadable_kubeconfig_is_refused() -> Result<()> {
    let binaries = require_binaries!();
    let scratch = Scratch::new("kubeconfigs")?;
    let mut hub = Hub::start(&binaries).await?;
    let token = hub.token_file("store").await?;
    let (missing, garbage) = (scratch.join("missing"), scratch.join("garbage"));
    fs::write(&garbage, "][ a kubeconfig this is not")?;

    let agent = |name: &str, kubeconfig: &Path| {
        let mut command = run_agent(&binaries, &scratch.join(name), kubeconfig);
        command.arg("--token-file").arg(&token).args(["--listen", "off"]);
        command
    };
    let secret = fs::read_to_string(&token)?;
    for path in [&missing, &garbage, &token] {
        let named = path.display().to_string();
        let said = fails(&mut agent("a", path), 1, &[&named, "--kubeconfig"]).await?;
        ensure!(!said.contains(secret.trim_end()), "a file given by mistake may be a secret: {said}");
        for args in [["token", "create", "other"].as_slice(), &["status"], &["kubeconfig", "default"]] {
            let mut command = command(binaries.hub(), args);
            let said = fails(command.arg("--kubeconfig").arg(path), 1, &[&named, "kubeconfig"]).await?;
            ensure!(!said.contains(secret.trim_end()), "a file given by mistake may be a secret: {said}");
        }
    }
    fails(&mut command(binaries.hub(), &["status"]), 1, &["--kubeconfig", "admin.kubeconfig", "KUBECONFIG"]).await?;
    // Outside of a cluster there is none to take its place.
    let mut without = command(binaries.agent(), &["run", "--listen", "off"]);
    without.arg("--data-dir").arg(scratch.join("b")).arg("--token-file").arg(&token);
    fails(&mut without, 1, &["--kubeconfig"]).await?;

    // None of them used the token up or stopped the hub.
    let cluster = EmbeddedCluster::start(scratch.path(), "cluster").await?;
    Agent::start(&binaries, cluster.kubeconfig(), &token)?.is_ready().await?;
    hub.serves().await
}

#[tokio::test]
async fn a_token_file_without_a_token_is_refused_and_not_repeated() -> Result<()> {
    let binaries = require_binaries!();
    let scratch = Scratch::new("tokens")?;
    let hub = Hub::start(&binaries).await?;
    let token = fs::read_to_string(hub.token_file("store").await?)?;
    let cut = &token[..token.len() / 2];
    let (cut_file, garbage_file) = (scratch.join("cut"), scratch.join("garbage"));
    fs::write(&cut_file, cut)?;
    fs::write(&garbage_file, "hunter2 hunter2")?;
    let data_dir = scratch.join("data");

    let agent = |token: Option<&Path>| {
        let mut command = run_agent(&binaries, &data_dir, &hub.kubeconfig());
        command.args(["--listen", "off"]);
        if let Some(token) = token {
            command.arg("--token-file").arg(token);
        }
        command
    };
    let missing = scratch.join("missing");
    fails(&mut agent(Some(&missing)), 1, &["missing", "tideline-hub token create", "--token-file"]).await?;
    let said = fails(&mut agent(Some(&garbage_file)), 1, &["garbage", "tideline-hub token create"]).await?;
    ensure!(!said.contains("hunter2"), "what is in the file may be a secret: {said}");
    let said = fails(&mut agent(Some(&cut_file)), 1, &["cut", "copy it again"]).await?;
    ensure!(!said.contains(cut), "half a token is half a secret: {said}");
    fails(&mut agent(None), 1, &["--token-file"]).await?;
    Ok(())
}

#[tokio::test]
async fn a_token_cannot_be_made_twice_or_with_words_that_kubernetes_refuses() -> Result<()> {
    let binaries = require_binaries!();
    let hub = Hub::start(&binaries).await?;
    hub.token_file("store").await?;
    let cases: [(&[&str], &str); 4] = [
        (&["token", "create", "store"], "choose another name"),
        (&["token", "create", "Store_1"], "lower case"),
        (&["token", "create", "other", "--labels", "tier=a/b"], "tier"),
        (&["status", "no-such-space"], "no-such-space"),
    ];
    for (args, part) in cases {
        fails(&mut hub.command(args), 1, &[part]).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_token_used_by_another_agent_lets_nobody_in_and_its_owner_goes_on() -> Result<()> {
    let binaries = require_binaries!();
    let scratch = Scratch::new("clusters")?;
    let first_cluster = EmbeddedCluster::start(scratch.path(), "first").await?;
    let second_cluster = EmbeddedCluster::start(scratch.path(), "second").await?;
    let hub = Hub::start(&binaries).await?;
    let token = hub.token_file("store").await?;
    let mut first = Agent::start(&binaries, first_cluster.kubeconfig(), &token)?;
    first.is_ready().await?;

    let mut second = Agent::start(&binaries, second_cluster.kubeconfig(), &token)?;
    second.says("the token was used by another agent; each agent needs its own").await?;
    // It stays, says so, and asks again: the token may be replaced while nobody is near.
    ensure!(second.process.exit_status()?.is_none(), "the second agent ended");
    ensure!(ask_health(second.health, "/livez").await?.0 == 200, "the second agent lives");
    ensure!(ask_health(second.health, "/readyz").await?.0 == 503, "the second agent keeps nothing");

    hub.place_config_maps().await?;
    hub.delivers("goods", &first_cluster).await?;
    first.is_ready().await?;
    let names: Vec<_> = hub.targets().await?.into_iter().map(|target| target.name).collect();
    assert_eq!(names, ["store"]);
    let said = second.process.log().matches("used by another agent").count();
    assert_eq!(said, 1, "it is said once, not for every try");
    Ok(())
}

#[tokio::test]
async fn a_placement_or_location_that_selects_nothing_says_what_to_do() -> Result<()> {
    let binaries = require_binaries!();
    let site = Site::start(&binaries).await?;
    let typo = json!({"targets": [{"matchLabels": {"tier": "shpo"}}], "objects": [{"resources": ["configmap"]}]});
    site.hub.create("default", "Placement", "typo", &typo).await?;
    site.hub
        .create("root", "Location", "nowhere", &json!({"instanceSelector": {"matchLabels": {"tier": "shpo"}}}))
        .await?;

    let said = site.hub.is_ready_as("default", "Placement", "typo", "False").await?;
    assert_eq!(said["reason"], "NoTargets");
    let message = said["message"].as_str().unwrap_or_default();
    for part in [
        "no SyncTarget has the labels",
        "kubectl get synctargets",
        "no resource \"configmap\"",
        "did you mean configmaps?",
    ] {
        ensure!(message.contains(part), "it should say {part:?}: {message}");
    }
    assert_eq!(said["observedGeneration"], 1);
    let said = site.hub.is_ready_as("root", "Location", "nowhere", "False").await?;
    assert_eq!(said["reason"], "NoTargets");

    // The others go on, and so does this one once it is right.
    site.hub.place_config_maps().await?;
    site.delivers("goods").await?;
    site.hub.is_ready_as("default", "Placement", "everywhere", "True").await?;
    let right = json!({"targets": [{"matchLabels": {"tier": "shop"}}], "objects": [{"resources": ["configmaps"]}]});
    site.hub.patch("default", "Placement", "typo", &json!({"spec": right})).await?;
    let said = site.hub.is_ready_as("default", "Placement", "typo", "True").await?;
    assert_eq!(said["observedGeneration"], 2);
    Ok(())
}

#[tokio::test]
async fn a_damaged_journal_is_moved_aside_and_the_agent_goes_on() -> Result<()> {
    let binaries = require_binaries!();
    let mut site = Site::start(&binaries).await?;
    site.hub.place_config_maps().await?;
    site.delivers("before").await?;
    site.agent.process.terminate()?;
    site.agent.process.wait(SOON).await?;
    let targets = site.hub.identities().await?;

    let journal = site.agent.data_dir().join("journal");
    let mut damaged = 0;
    for file in fs::read_dir(&journal)? {
        let file = file?;
        if file.file_type()?.is_file() {
            let length = usize::try_from(file.metadata()?.len())?;
            fs::write(file.path(), "garbage ".repeat(length / 8 + 1))?;
            damaged += 1;
        }
    }
    ensure!(damaged > 0, "the journal has files");

    site.agent.resume()?;
    site.agent.is_ready().await?;
    site.delivers("after").await?;
    let aside = site.agent.data_dir().join("journal.damaged-1");
    ensure!(aside.is_dir(), "{} is kept", aside.display());
    let log = site.agent.process.log();
    let said = log.lines().find(|line| line.contains("is damaged")).context("the log says what happened")?;
    ensure!(said.contains("journal.damaged-1") && said.contains("starts with an empty one"), "{said}");
    assert_eq!(site.hub.identities().await?, targets, "it is the same target");
    Ok(())
}
