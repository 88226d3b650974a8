//! A hub, one real cluster that it places to, and what the scenarios do with them.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use kube::Client;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, from_value, json};
use tideline_agent::OwnNamespace;
use tideline_common::{MARK_ANNOTATION, Mark};
use tideline_tests::fleet::{Agent, Hub};
use tideline_tests::kubernetes::{Assets, Cluster, ClusterOptions};
use tideline_tests::{Relay, Scratch, eventually_ok};

use crate::objects::{CONFIG, ROLLUP, SOON, api, api_cluster, apply, config, gone, placement, shows};

pub(crate) const REPORT: (&str, &str) = ("summary.tideline.dev/v1alpha1", "Report");
pub(crate) const CLUSTER_ROLLUP: (&str, &str) = ("summary.tideline.dev/v1alpha1", "ClusterRollup");
pub(crate) const CLUSTER_REPORT: (&str, &str) = ("summary.tideline.dev/v1alpha1", "ClusterReport");
/// The ServiceAccount in `kube-system` of an agent that has not all rights.
pub(crate) const ACCOUNT: &str = "kept-short";
/// As whom it is audited.
pub(crate) const USER: &str = "system:serviceaccount:kube-system:kept-short";
pub(crate) const CONFIG_MAPS: &[(&str, &str)] = &[("", "configmaps")];

/// A hub and the one cluster that it places to, `east`, with its agent.
pub(crate) struct Site {
    pub(crate) root: Client,
    pub(crate) space: Client,
    pub(crate) local: Client,
    pub(crate) hub: Hub,
    pub(crate) agent: Agent,
    /// Between the agent and its cluster.
    pub(crate) wire: Relay,
    pub(crate) cluster: Cluster,
    kubeconfig: Scratch,
}

impl Site {
    pub(crate) async fn start(assets: &Assets) -> Result<Self> {
        let options = ClusterOptions { controller_manager: true, ..ClusterOptions::default() };
        Self::begin(assets, options, None, None).await
    }

    /// The agent keeps its identity in the cluster.
    pub(crate) async fn with_own_namespace(assets: &Assets) -> Result<Self> {
        let own_namespace = OwnNamespace { namespace: Some("default".to_owned()), ..OwnNamespace::default() };
        let options = ClusterOptions { controller_manager: true, ..ClusterOptions::default() };
        Self::begin(assets, options, Some(own_namespace), None).await
    }

    /// With an agent that has just the rights of these rules of RBAC.
    pub(crate) async fn kept_short(assets: &Assets, options: ClusterOptions, rules: Value) -> Result<Self> {
        Self::begin(assets, options, None, Some(rules)).await
    }

    async fn begin(
        assets: &Assets,
        options: ClusterOptions,
        own_namespace: Option<OwnNamespace>,
        rules: Option<Value>,
    ) -> Result<Self> {
        let options = ClusterOptions { name: "east".to_owned(), ..options };
        let (cluster, hub) = tokio::try_join!(Cluster::start(assets, options), Hub::start())?;
        let wire = Relay::start(cluster.address()).await?;
        let dir = Scratch::new("east-kubeconfig")?;
        let kubeconfig = dir.join("kubeconfig");
        let mut access = through(&wire, cluster.kubeconfig_path())?;
        if let Some(rules) = rules {
            grant(&cluster.client(), &rules).await?;
            let account = ["create", "token", ACCOUNT, "--namespace", "kube-system"];
            let token = cluster.kubectl().run(&account).await?;
            access["users"][0]["user"] = json!({"token": token.trim()});
        }
        std::fs::write(&kubeconfig, access.to_string())?;
        let agent = match own_namespace {
            Some(own_namespace) => hub.agent_with_own_namespace("east", &kubeconfig, own_namespace).await?,
            None => hub.agent("east", &[("tier", "shop")], &kubeconfig, None).await?,
        };
        let (root, space) = (hub.client("root").await?, hub.client("default").await?);
        apply(&space, namespace()).await?;
        Ok(Self { root, space, local: cluster.client(), hub, agent, wire, cluster, kubeconfig: dir })
    }

    /// From its next start on, the agent finds another cluster where its own was, at the end of this wire.
    pub(crate) fn lead_agent_to(&self, other: &Cluster, wire: &Relay) -> Result<()> {
        let access = through(wire, other.kubeconfig_path())?;
        Ok(std::fs::write(self.kubeconfig.join("kubeconfig"), access.to_string())?)
    }

    /// Begins another run of a hub that was stopped.
    pub(crate) async fn resume_hub(&mut self) -> Result<()> {
        self.hub.resume().await?;
        (self.root, self.space) = (self.hub.client("root").await?, self.hub.client("default").await?);
        Ok(())
    }

    pub(crate) async fn place(&self, app: &str, resources: &[(&str, &str)], policy: Value) -> Result<()> {
        apply(&self.space, placed(app, app, resources, &policy)).await
    }

    pub(crate) async fn displace(&self, name: &str) -> Result<()> {
        let placements = api_cluster(&self.space, "tideline.dev/v1alpha1", "Placement");
        placements.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Gives the target another tier.
    pub(crate) async fn retier(&self, tier: &str) -> Result<()> {
        let targets = api_cluster(&self.root, "tideline.dev/v1alpha1", "SyncTarget");
        let change = json!({"metadata": {"labels": {"tier": tier}}});
        targets.patch("east", &PatchParams::default(), &Patch::Merge(change)).await?;
        Ok(())
    }

    /// Places a ConfigMap of its own and waits for it: what the hub was told before has then reached the agent, too.
    pub(crate) async fn pass_along(&self, witness: &str) -> Result<()> {
        self.place(witness, CONFIG_MAPS, json!({})).await?;
        apply(&self.space, config(witness, "1")).await?;
        shows(&self.local, CONFIG, witness, "the witness", |_| true).await
    }

    /// Waits until a removal that is asked for now is done: of all that were asked for before, the settle time is over.
    pub(crate) async fn settle(&self, witness: &str) -> Result<()> {
        self.displace(witness).await?;
        gone(&self.local, CONFIG, witness).await
    }

    pub(crate) fn locals(&self, kind: (&str, &str)) -> Api<DynamicObject> {
        api(&self.local, kind.0, kind.1, Some("shop"))
    }

    pub(crate) async fn local(&self, kind: (&str, &str), name: &str) -> Result<DynamicObject> {
        self.locals(kind).get(name).await.with_context(|| format!("{kind:?} {name}"))
    }

    pub(crate) async fn local_uid(&self, kind: (&str, &str), name: &str) -> Result<String> {
        self.local(kind, name).await?.uid().context("a UID")
    }

    /// Changes an object at the target, as somebody who does not apply.
    pub(crate) async fn edit(&self, kind: (&str, &str), name: &str, change: Value) -> Result<DynamicObject> {
        let params = PatchParams { field_manager: Some("helper".to_owned()), ..PatchParams::default() };
        let edited = self.locals(kind).patch(name, &params, &Patch::Merge(change)).await;
        edited.with_context(|| format!("{kind:?} {name}"))
    }

    pub(crate) async fn delete_local(&self, kind: (&str, &str), name: &str) -> Result<()> {
        self.locals(kind).delete(name, &DeleteParams::default()).await.with_context(|| format!("{kind:?} {name}"))?;
        Ok(())
    }

    /// Creates an object at the target, as somebody who does not apply.
    pub(crate) async fn preexisting(&self, object: Value) -> Result<DynamicObject> {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let kind = (text("apiVersion"), text("kind"));
        let params = PostParams { field_manager: Some("helper".to_owned()), ..PostParams::default() };
        Ok(self.locals((&kind.0, &kind.1)).create(&params, &from_value(object)?).await?)
    }

    /// Waits until the hub expects so many copies of an object, or knows of none.
    pub(crate) async fn expected(&self, object: &str, copies: u64) -> Result<()> {
        let rollups = api(&self.space, ROLLUP.0, ROLLUP.1, Some("shop"));
        eventually_ok(SOON, &format!("{copies} copies of {object} to be expected"), async || {
            let rollup = rollups.get_opt(object).await?;
            let found = rollup.and_then(|rollup| rollup.data["counts"]["expected"].as_u64()).unwrap_or_default();
            ensure!(found == copies, "{found} are");
            anyhow::Ok(())
        })
        .await
    }

    pub(crate) async fn reported(&self, object: &str, progress: &str, reason: Option<&str>) -> Result<()> {
        let what = format!("a report {progress} {reason:?} of {object}");
        shows(&self.space, REPORT, &format!("{object}.east"), &what, |report| {
            report["progress"] == progress && report["reason"].as_str() == reason
        })
        .await
    }
}

/// The kubeconfig with the address of the wire in it.
pub(crate) fn through(wire: &Relay, kubeconfig: &Path) -> Result<Value> {
    let mut kubeconfig: Value = serde_json::from_slice(&std::fs::read(kubeconfig)?)?;
    kubeconfig["clusters"][0]["cluster"]["server"] = json!(format!("https://{}", wire.address()));
    Ok(kubeconfig)
}

/// Gives the agent's account these rights, and no others, from now on.
pub(crate) async fn grant(local: &Client, rules: &Value) -> Result<()> {
    let kind =
        |kind: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": ACCOUNT}});
    let (mut role, mut binding) = (kind("ClusterRole"), kind("ClusterRoleBinding"));
    role["rules"] = rules.clone();
    binding["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ACCOUNT});
    binding["subjects"] = json!([{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "kube-system"}]);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": ACCOUNT, "namespace": "kube-system"}});
    for object in [account, role, binding] {
        apply(local, object).await?;
    }
    Ok(())
}

pub(crate) fn namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
}

/// A Placement to the target, with one policy.
pub(crate) fn placed(name: &str, app: &str, resources: &[(&str, &str)], policy: &Value) -> Value {
    let mut placement = placement(name, &json!({"matchLabels": {"tier": "shop"}}), app, resources);
    for clause in placement["spec"]["objects"].as_array_mut().into_iter().flatten() {
        clause["apply"] = policy.clone();
    }
    placement
}

/// The object, with another label `app`.
pub(crate) fn of_app(app: &str, mut object: Value) -> Value {
    object["metadata"]["labels"]["app"] = json!(app);
    object
}

pub(crate) fn mark_of(object: &DynamicObject) -> Result<Mark> {
    Ok(Mark::decode(object.annotations().get(MARK_ANNOTATION).context("a mark")?)?)
}

pub(crate) fn value(object: &DynamicObject) -> &Value {
    &object.data["data"]["value"]
}
