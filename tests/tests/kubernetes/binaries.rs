//! The real binaries at a real cluster, through the mishaps of years at a site: its SyncTarget is deleted and created again,
//! its data directory is copied, its hub moves, is restored or forgets, and its key is revoked. In all of them, placed objects
//! keep their UIDs.

mod adoption;
mod duplicates;
mod keys;
mod moving;
mod restored;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tideline_common::MARK_LABEL;
use tideline_tests::kubernetes::{Assets, Cluster, ClusterOptions};
use tideline_tests::{
    Binaries, Finished, Relay, Scratch, ask_health, copy_directory, eventually_ok, free_port, run_at_terminal,
    run_to_end,
};

use crate::identity::SYNC_TARGET;
use crate::objects::api_cluster;
use crate::processes::{Agent, Hub, NAMESPACE, SOON, command};
use crate::site::through;

/// The SyncTarget, and the token with which its agent enrolled.
const TARGET: &str = "store";

/// For some hundreds of objects, which take seconds.
const ALL_PLACED: Duration = Duration::from_mins(3);

/// Where an agent keeps its identity besides its data directory.
#[derive(Clone, Copy, Debug)]
enum Identity {
    InDirectory,
    InSecret,
}

/// A hub, a real cluster, and the agent that keeps it.
struct Site {
    agent: Agent,
    hub: Hub,
    /// Between the agent and its cluster.
    wire: Relay,
    cluster: Cluster,
    _kubeconfig: Scratch,
}

impl Site {
    /// Starts all of it, and places these ConfigMaps.
    async fn start(assets: &Assets, binaries: &Binaries, identity: Identity, names: &[String]) -> Result<Self> {
        let options = ClusterOptions { name: "binaries".to_owned(), ..ClusterOptions::default() };
        let (cluster, hub) = tokio::try_join!(Cluster::start(assets, options), Hub::start(binaries))?;
        let wire = Relay::start(cluster.address()).await?;
        let directory = Scratch::new("binaries-kubeconfig")?;
        let kubeconfig = directory.join("kubeconfig");
        fs::write(&kubeconfig, through(&wire, cluster.kubeconfig_path())?.to_string())?;
        hub.place_config_maps().await?;
        hub.makes_all(names).await?;
        let token = hub.token_file(TARGET).await?;
        let arguments: &[&str] = match identity {
            Identity::InDirectory => &[],
            Identity::InSecret => &["--namespace", "default"],
        };
        let mut agent = Agent::start_with(binaries, &kubeconfig, &token, arguments)?;
        agent.is_ready().await?;
        let site = Self { agent, hub, wire, cluster, _kubeconfig: directory };
        site.has(names.len()).await?;
        Ok(site)
    }

    fn placed(&self) -> Api<ConfigMap> {
        Api::namespaced(self.cluster.client(), NAMESPACE)
    }

    /// The placed objects, by name: a recreated one has another UID.
    async fn uids(&self) -> Result<BTreeMap<String, Option<String>>> {
        let placed = self.placed().list(&ListParams::default().labels("app=web")).await?;
        Ok(placed.items.into_iter().map(|object| (object.name_any(), object.uid())).collect())
    }

    /// Waits until so many objects are placed.
    async fn has(&self, count: usize) -> Result<()> {
        eventually_ok(ALL_PLACED, "what is placed", async || {
            let placed = self.uids().await?.len();
            ensure!(placed == count, "{placed} of {count}");
            anyhow::Ok(())
        })
        .await
    }

    /// All that `before` names is there, as it was.
    async fn keeps(&self, before: &BTreeMap<String, Option<String>>) -> Result<()> {
        let now = self.uids().await?;
        for (name, uid) in before {
            ensure!(now.get(name) == Some(uid), "{name} had the UID {uid:?}; now there is {now:?}");
        }
        Ok(())
    }

    /// Makes a ConfigMap at the hub and waits for it in the cluster. What the hub was told before has then reached the agent.
    async fn delivers(&self, name: &str) -> Result<()> {
        self.hub.makes(name).await?;
        let placed = self.placed();
        eventually_ok(SOON, &format!("{name} in the cluster"), async || placed.get(name).await).await?;
        Ok(())
    }

    /// The SyncTarget, as JSON.
    async fn sync_target(&self) -> Result<Value> {
        let root = self.hub.client("root").await?;
        Ok(serde_json::to_value(api_cluster(&root, SYNC_TARGET.0, SYNC_TARGET.1).get(TARGET).await?)?)
    }

    async fn sync_target_uid(&self) -> Result<String> {
        let target = self.sync_target().await?;
        target["metadata"]["uid"].as_str().map(str::to_owned).context("a UID")
    }

    /// Waits until the SyncTarget satisfies `check`.
    async fn target_shows(&self, what: &str, check: impl Fn(&Value) -> bool) -> Result<()> {
        eventually_ok(SOON, what, async || {
            let target = self.sync_target().await?;
            ensure!(check(&target), "{target}");
            anyhow::Ok(())
        })
        .await
    }

    /// Makes the SyncTarget again that was deleted.
    async fn makes_target(&self) -> Result<()> {
        let root = self.hub.client("root").await?;
        let target = json!({
            "apiVersion": SYNC_TARGET.0, "kind": SYNC_TARGET.1,
            "metadata": {"name": TARGET, "labels": {"tier": "shop", "region": "eu"}}, "spec": {},
        });
        let targets = api_cluster(&root, SYNC_TARGET.0, SYNC_TARGET.1);
        targets.patch(TARGET, &PatchParams::apply("test"), &Patch::Apply(&target)).await?;
        Ok(())
    }

    /// How many objects are marked as those of the SyncTarget with this UID.
    async fn marked(&self, uid: &str) -> Result<usize> {
        let labels = format!("app=web,{MARK_LABEL}={uid}");
        Ok(self.placed().list_metadata(&ListParams::default().labels(&labels)).await?.items.len())
    }

    /// What `targets list` says of the one agent in this state.
    async fn listed(&self, state: &str) -> Result<Value> {
        let listed: Value = serde_json::from_str(&self.hub.tells(&["targets", "list", "--output", "json"]).await?)?;
        let mut agents = listed["agents"].as_array().into_iter().flatten().filter(|agent| agent["state"] == state);
        let agent = agents.next().with_context(|| format!("no agent is {state}: {listed}"))?;
        ensure!(agents.next().is_none(), "several are {state}: {listed}");
        Ok(agent.clone())
    }
}

impl Hub {
    /// Runs a command of `tideline-hub` that speaks to this hub and must succeed, and returns what it prints.
    async fn tells(&self, arguments: &[&str]) -> Result<String> {
        succeeds(arguments, run_to_end(&mut self.command(arguments), "", SOON).await?)
    }

    /// As [`Hub::tells`], of a command that works at this data directory instead.
    async fn does(&self, arguments: &[&str], data_dir: &Path) -> Result<String> {
        let mut command = command(self.binaries.hub(), arguments);
        succeeds(arguments, run_to_end(command.arg("--data-dir").arg(data_dir), "", SOON).await?)
    }

    /// Runs a command that asks `question`, and gives `answer` at its terminal.
    async fn asks(&self, arguments: &[&str], question: &str, answer: &str) -> Result<Finished> {
        run_at_terminal(&mut self.command(arguments), question, answer, SOON).await
    }

    /// Ends its run in order.
    async fn stop(&mut self) -> Result<()> {
        self.process.terminate()?;
        let ended = self.process.wait(SOON).await?;
        ensure!(ended.code() == Some(0), "the hub ended with {ended}");
        Ok(())
    }

    /// Has its data in another directory from its next run on, and returns that. It need not be there yet.
    fn keep_data_in(&mut self, name: &str) -> PathBuf {
        name.clone_into(&mut self.data);
        self.data_dir()
    }
}

fn succeeds(arguments: &[&str], finished: Finished) -> Result<String> {
    ensure!(finished.code()? == 0, "{arguments:?} failed: {}", finished.stderr);
    Ok(finished.stdout)
}

impl Agent {
    /// Ends its run in order.
    async fn stop(&mut self) -> Result<()> {
        self.process.terminate()?;
        let ended = self.process.wait(SOON).await?;
        ensure!(ended.code() == Some(0), "the agent ended with {ended}");
        Ok(())
    }

    /// A copy of its data directory, from which [`Agent::copy`] starts another agent. It must not be at work.
    fn copied(&self) -> Result<Scratch> {
        let copy = Scratch::new("agent-copy")?;
        copy_directory(&self.data_dir(), &copy.join("data"))?;
        Ok(copy)
    }

    /// Starts another agent on a copy of its data directory, with all else as its own.
    fn copy(&self, dir: Scratch) -> Result<Self> {
        let (start, health) = (self.start.clone(), free_port()?);
        let process = start.spawn(&dir, health)?;
        Ok(Self { process, health, start, dir })
    }

    /// Waits until `/readyz` says `text`, and the process runs.
    async fn says_of_itself(&mut self, text: &str, within: Duration) -> Result<()> {
        let health = self.health;
        let what = format!("the agent to be {text}");
        let said = eventually_ok(within, &what, async || {
            let (_, body) = ask_health(health, "/readyz").await?;
            ensure!(body.contains(text), "{body}");
            anyhow::Ok(())
        });
        said.await.with_context(|| self.process.log_tail())?;
        self.runs()
    }

    /// Waits until it is ready, by itself.
    async fn goes_on(&mut self, within: Duration) -> Result<()> {
        let health = self.health;
        let ready = eventually_ok(within, "the agent to go on", async || {
            let (code, body) = ask_health(health, "/readyz").await?;
            ensure!(code == 200, "{body}");
            anyhow::Ok(())
        });
        ready.await.with_context(|| self.process.log_tail())?;
        self.runs()
    }

    /// The process has not ended by itself.
    fn runs(&mut self) -> Result<()> {
        let ended = self.process.exit_status()?;
        ensure!(ended.is_none(), "the agent ended by itself with {ended:?}: {}", self.process.log_tail());
        Ok(())
    }
}

/// Names of ConfigMaps.
fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}-{number:03}")).collect()
}
