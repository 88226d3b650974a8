//! This tree's hub and agent against those of another revision. Run by `tests/skew REV`, which builds that.
//!
//! Two versions understand each other, unless [`EXEMPTIONS`] has them; then the agent keeps what it has. Whatever comes of it, nothing is deleted or
//! made again, no Job runs twice, and no process ends but one that names the version that its data needs. Back at the version
//! that wrote last, everything is served.

#[path = "../processes/harness.rs"]
#[expect(dead_code, reason = "the processes under test need more of it")]
mod harness;
mod intent;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{from_value, json};
use tideline_tests::{Binaries, Process, eventually_ok, run_to_end};

use harness::{NAMESPACE, SOON, Site, command};
use intent::Intent;

/// Long enough for two that understand each other, with all their pauses.
const SERVED_WITHIN: Duration = Duration::from_mins(1);

/// Two versions that need not understand each other, and the permitted outcomes besides `Served`.
struct Exemption {
    old: &'static str,
    new: &'static str,
    allows: &'static [Outcome],
    why: &'static str,
}

/// One for each pair of versions between which a store's schema or the signature's version was raised, which `CHANGELOG.md`
/// tells users as well. All others have to serve each other in every meeting.
const EXEMPTIONS: &[Exemption] = &[
    // The first release takes this one out.
    Exemption {
        old: "0.1.0",
        new: "0.1.0",
        allows: &[Outcome::RefusedSetKept, Outcome::HubNeedsTheOther],
        why: "0.1.0 is not released, and its revisions change wire and layouts as they like",
    },
];

struct Versions {
    old: Binaries,
    new: Binaries,
    exemption: Option<&'static Exemption>,
}

impl Versions {
    async fn locate() -> Result<Self> {
        let missing = "TIDELINE_SKEW_BIN_DIR is not set; run tests/skew REV";
        let old = PathBuf::from(std::env::var_os("TIDELINE_SKEW_BIN_DIR").context(missing)?);
        let (old, new) = (Binaries::at(old)?, Binaries::locate()?.context(Binaries::MISSING)?);
        let (former, present) = (version(&old).await?, version(&new).await?);
        let exemption = EXEMPTIONS.iter().find(|it| (it.old, it.new) == (&*former, &*present));
        let why = exemption.map_or("they have to serve each other", |exemption| exemption.why);
        println!("versions {former} and {present}: {why}");
        Ok(Self { old, new, exemption })
    }

    fn allow(&self, outcome: &Outcome) -> bool {
        *outcome == Outcome::Served || self.exemption.is_some_and(|exemption| exemption.allows.contains(outcome))
    }

    fn of(&self, version: Version) -> &Binaries {
        match version {
            Version::Old => &self.old,
            Version::New => &self.new,
        }
    }
}

/// What the hub's binary says of itself; the agent's is of the same revision.
async fn version(binaries: &Binaries) -> Result<String> {
    let said = run_to_end(&mut command(binaries.hub(), &["--version"]), "", SOON).await?.stdout;
    Ok(said.split_whitespace().next_back().context("the hub names no version")?.to_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Old,
    New,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    hub: Version,
    agent: Version,
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Served,
    /// The agent lives, and keeps what it has.
    RefusedSetKept,
    /// The hub's data is of the other version, which it names.
    HubNeedsTheOther,
}

/// What must stay as it is, by name.
async fn standing(site: &Site) -> Result<BTreeMap<String, String>> {
    let there = Api::<ConfigMap>::namespaced(site.cluster.client(), NAMESPACE).list(&ListParams::default()).await?;
    let named = there.items.into_iter().filter_map(|it| Some((it.metadata.name?, it.metadata.uid?)));
    Ok(named.filter(|(name, _)| name.starts_with("web")).collect())
}

async fn jobs(site: &Site) -> Result<Vec<Job>> {
    Ok(Api::<Job>::namespaced(site.cluster.client(), NAMESPACE).list(&ListParams::default()).await?.items)
}

/// A site of one version that has ConfigMaps, and a Job that ran and was cleaned up.
async fn site(versions: &Versions, version: Version) -> Result<Site> {
    let site = Site::start(versions.of(version)).await?;
    site.hub.place_config_maps().await?;
    let spec = json!({
        "targets": [{"matchLabels": {"tier": "shop"}}],
        "objects": [{"apiGroup": "batch", "resources": ["jobs"], "objectSelectors": [{"matchLabels": {"app": "web"}}]}],
    });
    site.hub.create("default", "Placement", "jobs", &spec).await?;
    for number in 0..5 {
        site.delivers(&format!("web-{number}")).await?;
    }
    let job: Job = from_value(json!({
        "metadata": {"name": "migrate", "labels": {"app": "web"}},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "migrate", "image": "registry.example/migrate:1"}],
        }}},
    }))?;
    Api::<Job>::namespaced(site.hub.client("default").await?, NAMESPACE).create(&PostParams::default(), &job).await?;
    let there = Api::<Job>::namespaced(site.cluster.client(), NAMESPACE);
    eventually_ok(SOON, "the Job", async || there.get("migrate").await).await?;
    let done = json!({"status": {"succeeded": 1, "conditions": [
        {"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"},
    ]}});
    there.patch_status("migrate", &PatchParams::default(), &Patch::Merge(done)).await?;
    site.delivers("web-after-the-job").await?;
    // As its time to live would have it.
    there.delete("migrate", &DeleteParams::background()).await?;
    site.delivers("web-after-its-end").await?;
    ensure!(jobs(&site).await?.is_empty(), "the Job ran twice without any other version");
    Ok(site)
}

async fn end(process: &mut Process) -> Result<()> {
    if process.exit_status()?.is_none() {
        process.terminate()?;
        process.wait(SOON).await?;
    }
    Ok(())
}

/// Ends both, begins both again at these versions, and says what comes of it. What people want changes while the agent is
/// away.
async fn meet(
    site: &mut Site,
    versions: &Versions,
    intent: &mut Intent,
    (pair, made): (Pair, &str),
) -> Result<Outcome> {
    let before = standing(site).await?;
    if intent.served {
        intent.make(site, made).await?;
    }
    end(&mut site.agent.process).await?;
    if intent.served {
        intent.change_while_away(site).await?;
    }
    end(&mut site.hub.process).await?;
    site.agent.start.binaries = versions.of(pair.agent).clone();
    site.hub.binaries = versions.of(pair.hub).clone();
    site.agent.resume()?;
    let outcome = if let Err(error) = site.hub.resume().await {
        let said = site.hub.process.log();
        ensure!(said.contains("run the version that wrote it") || said.contains("run version"), "{error:#}");
        Outcome::HubNeedsTheOther
    } else {
        site.hub.makes(made).await?;
        let there = Api::<ConfigMap>::namespaced(site.cluster.client(), NAMESPACE);
        match eventually_ok(SERVED_WITHIN, made, async || there.get(made).await).await {
            Ok(_) => Outcome::Served,
            Err(_) => Outcome::RefusedSetKept,
        }
    };
    ensure!(
        site.agent.process.exit_status()?.is_none(),
        "{pair:?}: the agent ended: {}",
        site.agent.process.log_tail()
    );
    let after = standing(site).await?;
    for (name, uid) in &before {
        ensure!(after.get(name) == Some(uid), "{pair:?}: {name} was deleted or made again");
    }
    ensure!(jobs(site).await?.is_empty(), "{pair:?}: the Job ran again");
    intent.served = outcome == Outcome::Served;
    if intent.served { intent.is_done(site).await } else { intent.keeps(site).await }
        .with_context(|| format!("{pair:?}: {}", site.agent.process.log_tail()))?;
    println!("hub {:?}, agent {:?}: {outcome:?}", pair.hub, pair.agent);
    ensure!(versions.allow(&outcome), "{pair:?}: {outcome:?}, and no exemption has these versions");
    // A version understands itself, whatever the other did to its data meanwhile.
    let understand = pair.hub != pair.agent || outcome != Outcome::RefusedSetKept;
    ensure!(understand, "{pair:?}: nothing made there reaches the cluster: {}", site.agent.process.log_tail());
    Ok(outcome)
}

async fn story(from: Version, to: &[Pair]) -> Result<()> {
    let versions = Versions::locate().await?;
    let mut site = site(&versions, from).await?;
    let mut intent = Intent::new(&site).await?;
    let mut last = Outcome::Served;
    for (number, pair) in to.iter().enumerate() {
        last = meet(&mut site, &versions, &mut intent, (*pair, &format!("web-skew-{number}"))).await?;
    }
    is_served(&site, &last).await?;
    intent.decommission(&site).await
}

/// At its end, something that was made a moment ago has reached the cluster, and so does all that was made before.
async fn is_served(site: &Site, last: &Outcome) -> Result<()> {
    ensure!(*last == Outcome::Served, "at the end it is {last:?}: {}", site.hub.process.log_tail());
    let sources = Api::<ConfigMap>::namespaced(site.hub.client("default").await?, NAMESPACE);
    let sources = sources.list(&ListParams::default().labels("app=web")).await?.items;
    ensure!(!sources.is_empty(), "the hub has lost everything");
    eventually_ok(SERVED_WITHIN, "everything in the cluster", async || {
        let there = standing(site).await?;
        let missing: Vec<_> = sources
            .iter()
            .filter_map(|it| it.metadata.name.as_ref())
            .filter(|name| !there.contains_key(*name))
            .collect();
        ensure!(missing.is_empty(), "{missing:?}");
        anyhow::Ok(())
    })
    .await
}

const OLD: Pair = Pair { hub: Version::Old, agent: Version::Old };
const NEW: Pair = Pair { hub: Version::New, agent: Version::New };

#[tokio::test]
async fn an_upgrade_may_begin_with_the_agent() -> Result<()> {
    story(Version::Old, &[Pair { agent: Version::New, ..OLD }, NEW]).await
}

#[tokio::test]
async fn an_upgrade_may_begin_with_the_hub() -> Result<()> {
    story(Version::Old, &[Pair { hub: Version::New, ..OLD }, NEW]).await
}

#[tokio::test]
async fn after_an_upgrade_and_a_downgrade_everything_is_served_as_before() -> Result<()> {
    let versions = Versions::locate().await?;
    let mut site = site(&versions, Version::New).await?;
    let mut intent = Intent::new(&site).await?;
    for (number, pair) in [Pair { agent: Version::Old, ..NEW }, NEW, OLD].into_iter().enumerate() {
        meet(&mut site, &versions, &mut intent, (pair, &format!("web-skew-{number}"))).await?;
    }
    let again = meet(&mut site, &versions, &mut intent, (NEW, "web-skew-again")).await?;
    is_served(&site, &again).await?;
    intent.decommission(&site).await
}
