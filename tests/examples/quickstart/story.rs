//! What is shown, in order. Every claim that is printed with a ✓ was checked before.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, to_value};
use tideline_tests::Relay;

use crate::clusters::{Cluster, connect};
use crate::manifests::{self, APPLICATION, LOCATIONS, Manifest, NAMESPACE, PLACEMENTS};
use crate::platform::{Agent, Platform};
use crate::rollups::{Rollup, table};
use crate::stage::Stage;

/// The Deployment that goes to every cluster, and the ConfigMap beside it.
const STOREFRONT: &str = "storefront";
/// The Deployment that goes to one.
const WAREHOUSE: &str = "warehouse";
const REPLICAS_BEFORE: i32 = 2;
const REPLICAS_AFTER: i32 = 4;
const GREETING_AFTER: &str = "Good evening";

/// The demonstration, with all that it has set up.
pub(crate) struct Story<'a> {
    stage: &'a Stage,
    platform: &'a Platform,
    clusters: &'a [Cluster],
    /// The inventory.
    root: Client,
    /// Where the application is written.
    space: Client,
    /// Everything between the last agent and the hub passes here.
    relay: Relay,
    /// The agent of the last cluster; of the others nothing is asked.
    agent: Option<Agent>,
    application: Vec<Manifest>,
}

impl<'a> Story<'a> {
    /// Starts the hub and brings all clusters in.
    pub(crate) async fn begin(stage: &'a Stage, platform: &'a Platform, clusters: &'a [Cluster]) -> Result<Self> {
        for cluster in clusters {
            stage.done(&format!("{} at {}", cluster.name, cluster.address));
        }
        stage.chapter("The hub");
        platform.start_hub();
        let (root, space) =
            stage.until("it serves the spaces root and default", async || serving(platform).await).await?;
        let relay = Relay::start(platform.hub_address()?).await?;

        stage.chapter("An agent in each cluster enrols with a token; it dials, the hub never does");
        let mut agent = None;
        for (index, cluster) in clusters.iter().enumerate() {
            let last = index + 1 == clusters.len();
            let role = if index == 0 { "warehouse" } else { "shop" };
            let labels = BTreeMap::from([("role".to_owned(), role.to_owned())]);
            let token = platform.create_token(&cluster.name, labels, last.then(|| relay.address())).await?;
            agent = Some(platform.start_agent(cluster, Some(&token)));
        }
        let application = APPLICATION
            .iter()
            .map(|(file, text)| Manifest::read(text).with_context(|| format!("reading {file}")))
            .collect::<Result<Vec<_>>>()?;
        let application = application.into_iter().flatten().collect();
        let story = Self { stage, platform, clusters, root, space, relay, agent, application };
        for cluster in clusters {
            story.until_phase(&cluster.name, "Ready").await?;
        }
        Ok(story)
    }

    pub(crate) async fn tell(&mut self) -> Result<()> {
        self.place().await?;
        self.read_back().await?;
        self.cut_off().await?;
        self.restart_offline().await?;
        self.reconnect().await
    }

    /// Writes the application and where it goes, and waits until all of it is there.
    async fn place(&self) -> Result<()> {
        let Self { stage, clusters, .. } = self;
        stage.chapter("One application, two Placements: `everywhere` to all clusters, `single` to one");
        for manifest in Manifest::read(LOCATIONS)? {
            manifest.apply(&self.root).await?;
            stage.done(&format!("{} applied in the space root", manifest.title()));
        }
        for manifest in Manifest::read(PLACEMENTS)? {
            manifest.apply(&self.space).await?;
            stage.done(&format!("{} applied in the space default", manifest.title()));
        }
        for manifest in &self.application {
            // A kind that was defined a moment ago takes another until it is served, as everywhere.
            let title = format!("{} applied in the space default", manifest.title());
            stage.until(&title, async || manifest.apply(&self.space).await).await?;
        }
        let copies: u64 = self.application.iter().map(|it| self.targets(it)).sum();
        let ready = format!("{copies} copies of {} objects are there and well", self.application.len());
        let rollups = stage.until(&ready, async || self.all_ready().await).await?;
        Stage::show(&table(&rollups));

        for cluster in *clusters {
            let expected: usize = if cluster.name == clusters[0].name { 2 } else { 1 };
            let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), NAMESPACE);
            let found = deployments.list(&ListParams::default()).await?.items.len();
            ensure!(found == expected, "{} has {found} Deployments, not {expected}", cluster.name);
            let deployments = if found == 1 { STOREFRONT.to_owned() } else { format!("{STOREFRONT} and {WAREHOUSE}") };
            stage.done(&format!("{} itself says so too: it runs {deployments}", cluster.name));
        }
        Ok(())
    }

    /// Shows the status of the object that is in one cluster, whole.
    async fn read_back(&self) -> Result<()> {
        let Self { stage, clusters, .. } = self;
        stage.chapter("State comes back: exact for the Deployment that runs once");
        let there: Api<Deployment> = Api::namespaced(clusters[0].client.clone(), NAMESPACE);
        let here: Api<Deployment> = Api::namespaced(self.space.clone(), NAMESPACE);
        let what = format!("the status of {WAREHOUSE} in the space is the one in {}, whole", clusters[0].name);
        let status = stage
            .until(&what, async || {
                let (there, here) = (there.get(WAREHOUSE).await?, here.get(WAREHOUSE).await?);
                let observed = here.status.as_ref().and_then(|status| status.observed_generation);
                ensure!(observed == here.metadata.generation, "the space's generation is not yet the observed one");
                ensure!(unnumbered(&there)? == unnumbered(&here)?, "the two do not agree yet");
                Ok(here.status)
            })
            .await?;
        Stage::show(&serde_json::to_string_pretty(&status)?);
        Ok(())
    }

    /// Changes the application while one cluster cannot be reached.
    async fn cut_off(&self) -> Result<()> {
        let Self { stage, clusters, .. } = self;
        let island = self.island();
        stage.chapter(&format!("{} is cut off from the hub, and the application changes", island.name));
        self.relay.cut();
        stage.done(&format!("the wire between {} and the hub is cut", island.name));
        let deployments: Api<Deployment> = Api::namespaced(self.space.clone(), NAMESPACE);
        let settings: Api<ConfigMap> = Api::namespaced(self.space.clone(), NAMESPACE);
        let by = PatchParams { field_manager: Some("kubectl-patch".to_owned()), ..PatchParams::default() };
        deployments.patch(STOREFRONT, &by, &manifests::replicas(REPLICAS_AFTER)).await?;
        settings.patch(STOREFRONT, &by, &manifests::entry("greeting", GREETING_AFTER)).await?;
        stage.done(&format!(
            "{STOREFRONT}: {REPLICAS_BEFORE} replicas become {REPLICAS_AFTER}, and its greeting {GREETING_AFTER:?}"
        ));

        for cluster in clusters.iter().filter(|cluster| cluster.name != island.name) {
            let what = format!("{} has {REPLICAS_AFTER} replicas ready", cluster.name);
            stage.until(&what, async || storefront(cluster, REPLICAS_AFTER, GREETING_AFTER).await).await?;
        }
        self.until_phase(&island.name, "Stale").await?;
        let reached = self.all_targets() - 1;
        let changed = self.storefront_manifest()?;
        let what = format!("the hub says: {reached} of {} have the change, 1 is stale", self.all_targets());
        let rollup = stage
            .until(&what, async || {
                let rollup = Rollup::read(&self.space, changed).await?;
                let counts = rollup.counts;
                let seen = (counts.expected, counts.applied, counts.ready, counts.stale);
                ensure!(seen == (reached + 1, reached, reached, 1), "{}", rollup.complaint());
                Ok(rollup)
            })
            .await?;
        Stage::show(&table(&[rollup]));
        storefront(island, REPLICAS_BEFORE, "Good morning").await?;
        stage.done(&format!("{} goes on with what it had: {REPLICAS_BEFORE} replicas ready", island.name));
        Ok(())
    }

    /// Shows that the agent keeps its cluster without the hub, also after a restart.
    async fn restart_offline(&mut self) -> Result<()> {
        let stage = self.stage;
        let island = &self.clusters[self.clusters.len() - 1];
        stage.chapter(&format!("Still cut off, the agent of {} is restarted", island.name));
        if let Some(agent) = self.agent.take() {
            agent.stop().await;
        }
        stage.done("it is stopped");
        let deployments: Api<Deployment> = Api::namespaced(island.client.clone(), NAMESPACE);
        let deleted = deployments.get(STOREFRONT).await?.uid();
        deployments.delete(STOREFRONT, &DeleteParams::background()).await?;
        stage
            .until(&format!("somebody deletes {STOREFRONT} in {} meanwhile", island.name), async || {
                let found = deployments.get_opt(STOREFRONT).await?;
                ensure!(found.is_none_or(|it| it.uid() != deleted), "it is still there");
                Ok(())
            })
            .await?;

        self.agent = Some(self.platform.start_agent(island, None));
        stage.done("it runs again, from its data directory, and cannot reach the hub");
        let what = format!("{STOREFRONT} is back, as the hub last wanted it: {REPLICAS_BEFORE} replicas ready");
        stage
            .until(&what, async || {
                let found = deployments.get_opt(STOREFRONT).await?.context("it is not there")?;
                ensure!(found.uid() != deleted, "it has never been away");
                storefront(island, REPLICAS_BEFORE, "Good morning").await
            })
            .await?;

        let settings: Api<ConfigMap> = Api::namespaced(island.client.clone(), NAMESPACE);
        let deleted = settings.get(STOREFRONT).await?.uid();
        settings.delete(STOREFRONT, &DeleteParams::default()).await?;
        stage.done("somebody deletes its ConfigMap, under the running agent");
        stage
            .until("the ConfigMap is back", async || {
                let found = settings.get_opt(STOREFRONT).await?.context("it is not there")?;
                ensure!(found.uid() != deleted, "it has never been away");
                Ok(())
            })
            .await?;
        let rollup = Rollup::read(&self.space, self.storefront_manifest()?).await?;
        ensure!(rollup.counts.stale == 1, "the hub should not have heard of it: {}", rollup.complaint());
        stage.done("the hub has heard nothing of all this, and still says: stale");
        Ok(())
    }

    /// Mends the wire and waits until all is as wanted.
    async fn reconnect(&self) -> Result<()> {
        let Self { stage, .. } = self;
        let island = self.island();
        stage.chapter(&format!("{} is connected again", island.name));
        self.relay.resume();
        stage.done("the wire is mended");
        let what = format!("{} has caught up: {REPLICAS_AFTER} replicas ready", island.name);
        stage.until(&what, async || storefront(island, REPLICAS_AFTER, GREETING_AFTER).await).await?;
        self.until_phase(&island.name, "Ready").await?;
        let rollups = stage.until("everything is well everywhere", async || self.all_ready().await).await?;
        Stage::show(&table(&rollups));
        Ok(())
    }

    /// Says what is up, and how to see it.
    pub(crate) fn stay(&self, given: &[PathBuf]) {
        let hub = self.platform.hub_kubeconfig();
        println!("\nIt all stays up until Ctrl-C. Look around with any Kubernetes client:\n");
        println!("  export KUBECONFIG={}", hub.display());
        println!("  kubectl --context root get synctargets,locations");
        println!("  kubectl --context default get placements");
        println!("  kubectl --context default -n {NAMESPACE} get deployments,configmaps,rollups,reports");
        println!("  kubectl --context default -n {NAMESPACE} scale deployment {STOREFRONT} --replicas=3");
        println!("\nThe clusters:\n");
        for cluster in self.clusters {
            println!("  kubectl --kubeconfig {} -n {NAMESPACE} get deployments,pods", cluster.kubeconfig.display());
        }
        if let [.., last] = given {
            println!("\nYour clusters keep the application afterwards. In each, as with {}:", last.display());
            println!("  kubectl delete namespace {NAMESPACE}; kubectl delete crd pricelists.shop.example.com");
        }
    }

    /// Waits until the inventory says that a cluster is in a phase.
    async fn until_phase(&self, name: &str, wanted: &str) -> Result<()> {
        let kind = GroupVersionKind::gvk("tideline.dev", "v1alpha1", "SyncTarget");
        let resource = ApiResource::from_gvk(&kind);
        let targets: Api<DynamicObject> = Api::all_with(self.root.clone(), &resource);
        self.stage
            .until(&format!("SyncTarget {name} is {wanted}"), async || {
                let target = targets.get_opt(name).await?.with_context(|| format!("{name} has not enrolled yet"))?;
                let phase = target.data["status"]["phase"].as_str().unwrap_or("without a phase");
                ensure!(phase == wanted, "{name} is {phase}");
                Ok(())
            })
            .await
    }

    /// Returns the rollups of the whole application once every copy of it is well.
    async fn all_ready(&self) -> Result<Vec<Rollup>> {
        let mut rollups = Vec::new();
        let mut first_complaint = None;
        for manifest in &self.application {
            match Rollup::read(&self.space, manifest).await {
                Ok(rollup) if rollup.is_ready_on(self.targets(manifest)) => rollups.push(rollup),
                Ok(rollup) => _ = first_complaint.get_or_insert(rollup.complaint()),
                Err(error) => _ = first_complaint.get_or_insert(format!("{error:#}")),
            }
        }
        let (ready, all) = (rollups.len(), self.application.len());
        if let Some(complaint) = first_complaint {
            anyhow::bail!("{ready} of {all} objects are well; {complaint}");
        }
        Ok(rollups)
    }

    /// Returns how many targets an object goes to.
    fn targets(&self, manifest: &Manifest) -> u64 {
        if manifest.object.name_any() == WAREHOUSE { 1 } else { self.all_targets() }
    }

    fn all_targets(&self) -> u64 {
        self.clusters.len() as u64
    }

    /// Returns the cluster that is cut off.
    fn island(&self) -> &Cluster {
        &self.clusters[self.clusters.len() - 1]
    }

    fn storefront_manifest(&self) -> Result<&Manifest> {
        let mut deployments = self.application.iter().filter(|it| it.title() == format!("Deployment {STOREFRONT}"));
        deployments.next().context("the application has no storefront")
    }
}

/// Returns clients of the root space and of the default space once the hub serves both.
async fn serving(platform: &Platform) -> Result<(Client, Client)> {
    let kubeconfig = platform.hub_kubeconfig();
    ensure!(kubeconfig.exists(), "the hub is starting");
    let (root, _) = connect(&kubeconfig, Some("root")).await?;
    let (space, _) = connect(&kubeconfig, Some("default")).await?;
    for client in [&root, &space] {
        client.apiserver_version().await?;
    }
    Ok((root, space))
}

/// Whether the storefront of a cluster has `replicas` ready, and its ConfigMap the greeting.
async fn storefront(cluster: &Cluster, replicas: i32, greeting: &str) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let settings: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let deployment = deployments.get(STOREFRONT).await?;
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
    ensure!(wanted == replicas, "{} still wants {wanted} replicas", cluster.name);
    ensure!(ready == replicas, "{} has {ready} of {replicas} replicas ready", cluster.name);
    let settings = settings.get(STOREFRONT).await?.data.unwrap_or_default();
    let found = settings.get("greeting").map_or("", String::as_str);
    ensure!(found == greeting, "{} greets with {found:?}, not {greeting:?}", cluster.name);
    Ok(())
}

/// Returns the status less the generation it is of, which every API server counts for itself.
fn unnumbered(deployment: &Deployment) -> Result<Value> {
    let mut status = to_value(&deployment.status)?;
    if let Some(fields) = status.as_object_mut() {
        fields.remove("observedGeneration");
    }
    Ok(status)
}
