//! What `deploy/` gives the agent is what it needs, and no more.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::{Args, Command};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tideline_agent::OwnNamespace;
use tideline_tests::fleet::Hub;
use tideline_tests::kubernetes::{Assets, Audit, Cluster, ClusterOptions, Request};
use tideline_tests::{Scratch, eventually_ok, require_kubernetes};

use crate::objects::{
    CONFIG, SOON, THING, api, api_cluster, apply, config, definition, deployment, gone, gone_cluster, shows,
    shows_cluster, thing,
};
use crate::site::REPORT;

pub(crate) const ACCOUNT: &str = "tideline-agent";
pub(crate) const USER: &str = "system:serviceaccount:tideline-agent:tideline-agent";

pub(crate) fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(path)
}

/// A kubeconfig of the ServiceAccount, and of nobody else.
pub(crate) async fn as_account(cluster: &Cluster) -> Result<Value> {
    let mut kubeconfig: Value = serde_json::from_slice(&fs::read(cluster.kubeconfig_path())?)?;
    let token = cluster.kubectl().run(&["create", "token", ACCOUNT, "--namespace", ACCOUNT]).await?;
    kubeconfig["users"][0]["user"] = json!({"token": token.trim()});
    Ok(kubeconfig)
}

fn everything(mode: &Value) -> Value {
    let counted = json!({"associated": ["replicasets", "pods", "jobs", "endpointslices"]});
    json!({
        "apiVersion": "tideline.dev/v1alpha1", "kind": "Placement",
        "metadata": {"name": "everything"},
        "spec": {
            "targets": [{}],
            "objects": [
                {"apiGroup": "", "resources": ["configmaps", "namespaces"], "apply": mode},
                {"apiGroup": "apps", "resources": ["deployments"], "apply": mode, "status": counted},
                {"apiGroup": "apiextensions.k8s.io", "resources": ["customresourcedefinitions"], "apply": mode},
                {"apiGroup": "test.example", "resources": ["things"], "apply": mode},
                {"apiGroup": "rbac.authorization.k8s.io", "resources": ["roles", "rolebindings"], "apply": mode},
            ],
        },
    })
}

fn role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "reader", "namespace": "shop"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}],
    })
}

/// Everything that an agent does to a cluster: creates, takes over, changes, reverts, orphans, deletes.
async fn work(hub: &Hub, local: &Client) -> Result<()> {
    let space = hub.client("default").await?;
    apply(&space, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})).await?;
    apply(local, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kept"}})).await?;
    apply(&space, definition()).await?;
    for object in [config("web", "1"), deployment("web", 1), role()] {
        apply(&space, object).await?;
    }
    eventually_ok(SOON, "the kind to be served", async || apply(&space, thing("one")).await).await?;
    apply(&space, everything(&json!({}))).await?;
    shows(local, CONFIG, "web", "the ConfigMap", |object| object["data"]["value"] == "1").await?;
    shows(local, THING, "one", "the custom object", |_| true).await?;
    shows(local, ("rbac.authorization.k8s.io/v1", "Role"), "reader", "the Role", |_| true).await?;
    shows(&space, REPORT, "deployment.apps.web.east", "its Pod", |report| report["associated"]["pods"]["total"] == 1)
        .await?;

    apply(&space, config("web", "2")).await?;
    shows(local, CONFIG, "web", "the change", |object| object["data"]["value"] == "2").await?;
    let configs = api(local, CONFIG.0, CONFIG.1, Some("shop"));
    let edit = json!({"data": {"value": "edited"}});
    configs.patch("web", &PatchParams::default(), &Patch::Merge(&edit)).await?;
    shows(local, CONFIG, "web", "the edit reverted", |object| object["data"]["value"] == "2").await?;

    // Orphaned, then gone: a namespace is inspected before.
    let sources = api(&space, CONFIG.0, CONFIG.1, Some("shop"));
    apply(&space, everything(&json!({"prune": "Orphan"}))).await?;
    apply(&space, config("orphan", "1")).await?;
    shows(local, CONFIG, "orphan", "one to be let go", |_| true).await?;
    sources.delete("orphan", &DeleteParams::default()).await?;
    shows(local, CONFIG, "orphan", "no mark", |object| {
        object["metadata"]["annotations"].get("tideline.dev/source").is_none()
    })
    .await?;
    configs.delete("orphan", &DeleteParams::default()).await?;
    apply(&space, everything(&json!({"prune": "Delete"}))).await?;
    shows(local, CONFIG, "web", "the policy", |object| {
        object["metadata"]["annotations"]["tideline.dev/source"].as_str().is_some_and(|mark| mark.contains("Delete"))
    })
    .await?;
    api_cluster(&space, "tideline.dev/v1alpha1", "Placement").delete("everything", &DeleteParams::default()).await?;
    gone(local, CONFIG, "web").await?;
    gone_cluster(local, ("v1", "Namespace"), "shop").await?;
    shows_cluster(local, ("v1", "Namespace"), "kept", "what is not ours", |_| true).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_works_with_the_rights_of_its_manifests_and_uses_each() -> Result<()> {
    let assets = require_kubernetes!();
    let directory = Scratch::new("deployed")?;
    let audit = Audit::new(&directory)?;
    let (cluster, hub) = tokio::try_join!(start(&assets, &audit), Hub::start())?;
    let local = cluster.client();
    // What only replicas need is a Role of its own.
    cluster.kubectl().run(&["apply", "--kustomize", &deploy("agent-replicated").display().to_string()]).await?;
    admitted(&local, ACCOUNT).await?;

    let kubeconfig = directory.join("kubeconfig");
    fs::write(&kubeconfig, as_account(&cluster).await?.to_string())?;
    let own_namespace =
        OwnNamespace { namespace: Some(ACCOUNT.to_owned()), leader_elect: true, ..OwnNamespace::default() };
    let mut agent = hub.agent_with_own_namespace("east", &kubeconfig, own_namespace).await?;
    work(&hub, &local).await?;
    agent.stop().await?;

    let requests = audit.requests(USER)?;
    let refused: Vec<_> = requests.values().filter(|request| request.code == Some(403)).collect();
    assert!(refused.is_empty(), "{refused:?}");
    let used: BTreeSet<_> = requests.values().filter(|it| !it.resource.is_empty()).map(|it| it.verb.clone()).collect();
    let roles = api_cluster(&local, "rbac.authorization.k8s.io/v1", "ClusterRole");
    let role = roles.get(ACCOUNT).await?;
    assert_eq!(used, granted(&role.data["rules"], None), "used on the left, granted on the right");

    // Nothing of these kinds is placed: all requests about them are for the agent itself, except that a namespace is inspected
    // before it is deleted.
    for (role, resource) in [(ACCOUNT, "secrets"), ("tideline-agent-lease", "leases")] {
        let own = api(&local, "rbac.authorization.k8s.io/v1", "Role", Some(ACCOUNT)).get(role).await?;
        let own_use = |it: &&Request| it.resource == resource && it.verb != "list";
        let used = requests.values().filter(own_use).map(|it| it.verb.clone()).collect();
        assert_eq!(granted(&own.data["rules"], Some(resource)), used, "{resource}: granted left, used right");
    }
    Ok(())
}

/// The verbs of some rules; of those for one resource, if it is named.
fn granted(rules: &Value, resource: Option<&str>) -> BTreeSet<String> {
    let of = |rule: &&Value| resource.is_none_or(|name| rule["resources"] == json!([name]));
    let rules = rules.as_array().into_iter().flatten().filter(of);
    let verbs = rules.filter_map(|rule| rule["verbs"].as_array()).flatten();
    verbs.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hub_is_admitted_where_only_restricted_pods_are() -> Result<()> {
    let assets = require_kubernetes!();
    let options = ClusterOptions { controller_manager: true, ..ClusterOptions::default() };
    let cluster = Cluster::start(&assets, options).await?;
    cluster.kubectl().run(&["apply", "--kustomize", &deploy("hub").display().to_string()]).await?;
    admitted(&cluster.client(), "tideline-hub").await
}

pub(crate) async fn start(assets: &Assets, audit: &Audit) -> Result<Cluster> {
    let options = ClusterOptions {
        controller_manager: true,
        apiserver_arguments: audit.arguments(),
        ..ClusterOptions::default()
    };
    Cluster::start(assets, options).await
}

/// Waits for a Pod, which is made only if admission lets it through, and parses its arguments.
pub(crate) async fn admitted(client: &Client, namespace: &str) -> Result<()> {
    let pods = api(client, "v1", "Pod", Some(namespace));
    let pod = eventually_ok(SOON, "a Pod to be admitted", async || {
        let mut pods = pods.list(&ListParams::default()).await?.items;
        pods.pop().context("there is none")
    })
    .await?;
    let arguments = pod.data["spec"]["containers"][0]["args"].as_array().context("arguments")?;
    let arguments: Vec<_> = arguments.iter().filter_map(Value::as_str).collect();
    let parsed = match arguments.split_first() {
        Some((&"run", _)) => tideline_agent::Options::augment_args(Command::new("")).try_get_matches_from(&arguments),
        Some((&"serve", _)) => tideline_hub::Options::augment_args(Command::new("")).try_get_matches_from(&arguments),
        other => anyhow::bail!("{} starts {other:?}", pod.name_any()),
    };
    let parsed = parsed.context("the arguments of the manifest")?;
    ensure!(parsed.args_present(), "{arguments:?}");
    Ok(())
}
