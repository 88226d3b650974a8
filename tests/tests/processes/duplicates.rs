//! Two agents with one identity: a data directory that was copied.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, from_value, json};
use tideline_common::SpaceName;
use tideline_hub::duplicates;
use tideline_hub::kubeconfig::Access;
use tideline_tests::fleet::{Agent, Hub};
use tideline_tests::{EmbeddedCluster, Scratch, eventually_ok};

use crate::harness::{NAMESPACE, place};

/// A change on its way, and a frozen agent's first two pauses.
const SOON: Duration = Duration::from_mins(5);

struct Site {
    hub: Hub,
    cluster: EmbeddedCluster,
    _scratch: Scratch,
}

fn kind(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("tideline.dev", "v1alpha1", kind))
}

impl Site {
    async fn start() -> Result<(Self, Agent)> {
        let scratch = Scratch::new("duplicates")?;
        let hub = Hub::start().await?;
        let cluster = EmbeddedCluster::start(scratch.path(), "store").await?;
        let agent = hub.agent("store", &[("tier", "shop")], cluster.kubeconfig(), None).await?;
        place(&hub.client("default").await?).await?;
        Ok((Self { hub, cluster, _scratch: scratch }, agent))
    }

    /// Waits until a change arrives by whichever agent is at work.
    async fn passes(&self, name: &str) -> Result<()> {
        let object: ConfigMap = from_value(json!({"metadata": {"name": name, "labels": {"app": "web"}}}))?;
        let space = Api::<ConfigMap>::namespaced(self.hub.client("default").await?, NAMESPACE);
        space.create(&PostParams::default(), &object).await?;
        let there = Api::<ConfigMap>::namespaced(self.cluster.client(), NAMESPACE);
        eventually_ok(SOON, name, async || there.get(name).await).await.map(drop)
    }

    async fn status(&self) -> Result<Value> {
        let api = Api::<DynamicObject>::all_with(self.hub.client("root").await?, &kind("SyncTarget"));
        Ok(api.get("store").await?.data["status"].clone())
    }

    /// Waits until the SyncTarget shows so many agents, and returns the ids of the holder and of the others.
    async fn shows(&self, count: usize) -> Result<(String, Vec<String>)> {
        eventually_ok(SOON, "the agents to be shown", async || {
            let status = self.status().await?;
            let shown = status["instances"].as_array().cloned().unwrap_or_default();
            ensure!(shown.len() == count && status["phase"] == "DuplicateAgent", "{status}");
            let ready = status["conditions"].as_array().into_iter().flatten().find(|it| it["type"] == "Ready");
            ensure!(ready.is_some_and(|ready| ready["status"] == "False"), "{status}");
            let text = status["conditions"].to_string();
            let id = |it: &Value| it["id"].as_str().unwrap_or_default().to_owned();
            ensure!(text.contains("DuplicateAgent") && shown.iter().all(|it| text.contains(&id(it))), "{status}");
            let (holds, others): (Vec<_>, Vec<_>) = shown.iter().partition(|it| it["holds"] == true);
            let holder = holds.first().map(|it| id(it)).context("a holder")?;
            anyhow::Ok((holder, others.into_iter().map(id).collect()))
        })
        .await
    }
}

/// The number of the session that an agent has stored.
fn session(agent: &Agent) -> Result<u64> {
    let text = std::fs::read_to_string(agent.data_dir().join("identity.json"))?;
    let identity: Value = serde_json::from_str(&text)?;
    let session = identity["identity"]["session"].as_str().and_then(|session| session.split('.').next());
    Ok(session.context("a session")?.parse()?)
}

/// A holder that is displaced by a copy proves that the copy is another, which takes it a moment. Ended before that, it would
/// wait itself.
async fn has_its_place_back(original: &Agent, copy: &Agent) -> Result<()> {
    eventually_ok(SOON, "the original to have a session after the copy's", async || {
        let (its, of_copy) = (session(original)?, session(copy)?);
        ensure!(its > of_copy, "{its}, and {of_copy} of the copy");
        anyhow::Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_data_directory_waits_until_a_person_accepts_it() -> Result<()> {
    let (mut site, mut original) = Site::start().await?;
    site.passes("first").await?;
    // Of a copy that is made while it works, the original proves that it is another.
    let mut copy = original.copied()?;
    copy.resume();
    site.shows(2).await?;
    has_its_place_back(&original, &copy).await?;
    site.passes("second").await?;
    let (holder, _) = site.shows(2).await?;

    // The holder's restart goes on by itself, and so does one after the hub's: a process that is taken for another waits for a
    // day.
    original.stop().await?;
    original.resume();
    site.passes("third").await?;
    site.hub.stop().await?;
    site.hub.resume().await?;
    original.stop().await?;
    original.resume();
    site.passes("fourth").await?;
    // It works before it is shown.
    let others = eventually_ok(SOON, "the restarted agent to be shown as the holder", async || {
        let (restarted, others) = site.shows(2).await?;
        ensure!(restarted != holder, "{holder} is shown still");
        anyhow::Ok(others)
    })
    .await?;

    // Nobody but a person has the copy take over at once when the original is gone.
    original.stop().await?;
    let root = Access::read(Some(&site.hub.kubeconfig()))?.client(&SpaceName::root()).await?;
    let wrong = duplicates::accept(&root, "store", "0123456789abcdef".parse()?).await;
    assert!(wrong.is_err_and(|error| error.to_string().contains(&others[0])), "the ids are said");
    let accepted = duplicates::accept(&root, "store", others[0].parse()?).await?;
    assert_eq!((accepted.instance.id.as_str(), accepted.instance.holds), (others[0].as_str(), false));
    site.passes("fifth").await?;
    eventually_ok(SOON, "nobody else to be spoken of", async || {
        let status = site.status().await?;
        ensure!(status["phase"] == "Ready" && status["instances"].is_null(), "{status}");
        anyhow::Ok(())
    })
    .await?;
    copy.stop().await
}
