//! An agent with fewer rights than all: as the account that a space is given, or in some namespaces.

use std::fs;

use anyhow::Result;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tideline_tests::fleet::{Agent, Hub};
use tideline_tests::kubernetes::{Audit, Cluster, Request};
use tideline_tests::{Scratch, eventually_ok, require_kubernetes};

use crate::deployed::{ACCOUNT, USER, admitted, as_account, deploy, start};
use crate::objects::{CONFIG, DEPLOYMENT, SOON, api, api_cluster, apply, config, deployment, gone, placement, shows};
use crate::site::{CLUSTER_REPORT, REPORT, namespace};

const SECRET: (&str, &str) = ("v1", "Secret");

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "shop", "labels": {"app": name}}})
}

fn elsewhere(mut object: Value, namespace: &str) -> Value {
    object["metadata"]["namespace"] = namespace.into();
    object
}

/// Has the default space write at its targets as an account.
async fn impersonate(hub: &Hub, account: &str) -> Result<()> {
    let spaces = api_cluster(&hub.client("root").await?, "tideline.dev/v1alpha1", "Space");
    let account = json!({"spec": {"allow": {"impersonate": {"namespace": ACCOUNT, "name": account}}}});
    spaces.patch("default", &PatchParams::default(), &Patch::Merge(account)).await?;
    Ok(())
}

async fn reported(space: &Client, name: &str, progress: &str, reason: Option<&str>) -> Result<()> {
    shows(space, REPORT, name, progress, |report| report["progress"] == progress && report["reason"].as_str() == reason)
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_space_can_do_no_more_at_a_target_than_its_account() -> Result<()> {
    let assets = require_kubernetes!();
    let directory = Scratch::new("impersonating")?;
    let audit = Audit::new(&directory)?;
    let (cluster, hub) = tokio::try_join!(start(&assets, &audit), Hub::start())?;
    let (local, kubectl) = (cluster.client(), cluster.kubectl());
    kubectl.run(&["apply", "--kustomize", &deploy("agent-impersonating").display().to_string()]).await?;
    apply(&local, namespace()).await?;
    let account = format!("--serviceaccount={ACCOUNT}:retail");
    let role = "--clusterrole=tideline-retail";
    kubectl.run(&["create", "rolebinding", "tideline-retail", "--namespace=shop", role, &account]).await?;

    let space = hub.client("default").await?;
    impersonate(&hub, "retail").await?;
    for object in [namespace(), config("web", "1"), secret("web"), deployment("web", 1)] {
        apply(&space, object).await?;
    }
    let resources = [("", "configmaps"), ("", "secrets"), ("apps", "deployments")];
    apply(&space, placement("web", &json!({}), "web", &resources)).await?;
    let kubeconfig = directory.join("kubeconfig");
    fs::write(&kubeconfig, as_account(&cluster).await?.to_string())?;
    let mut agent = hub.agent("east", &[], &kubeconfig, None).await?;

    // What the account may do is done, what it may not is reported.
    reported(&space, "configmap.web.east", "Applied", None).await?;
    reported(&space, "deployment.apps.web.east", "Applied", None).await?;
    reported(&space, "secret.web.east", "Failed", Some("Forbidden")).await?;
    gone(&local, SECRET, "web").await?;
    let configs = api(&local, CONFIG.0, CONFIG.1, Some("shop"));
    let before = configs.get("web").await?;

    // Another account: it writes nothing for that, and removes as that one.
    kubectl.run(&["create", "serviceaccount", "auditor", "--namespace", ACCOUNT]).await?;
    impersonate(&hub, "auditor").await?;
    apply(&space, config("web", "2")).await?;
    reported(&space, "configmap.web.east", "Failed", Some("Forbidden")).await?;
    assert_eq!(configs.get("web").await?.resource_version(), before.resource_version());
    impersonate(&hub, "retail").await?;
    shows(&local, CONFIG, "web", "the change", |object| object["data"]["value"] == "2").await?;
    let sources = api(&space, CONFIG.0, CONFIG.1, Some("shop"));
    sources.delete("web", &DeleteParams::default()).await?;
    gone(&local, CONFIG, "web").await?;
    agent.stop().await?;

    let requests = |user: &str| -> Result<Vec<_>> {
        Ok(audit.requests(user)?.into_values().filter(|request| !request.resource.is_empty()).collect())
    };
    let own = requests(USER)?;
    // Events are its own words. It may not even be an account that its ClusterRole does not name.
    let harmless = |verb: &str| ["get", "list", "watch"].contains(&verb);
    let refused = |request: &Request| request.code == Some(403) || request.resource == "events";
    assert!(own.iter().all(|request| harmless(&request.verb) || refused(request)), "{own:?}");
    // The namespace that the account may not create: the agent saw that it exists. One request was for the identity of the
    // cluster.
    let reads = own.iter().filter(|request| request.verb == "get" && request.resource == "namespaces");
    assert!(reads.count() > 1, "{own:?}");
    let retail = requests(&format!("system:serviceaccount:{ACCOUNT}:retail"))?;
    for verb in ["create", "patch", "delete"] {
        let done = |code: Option<u64>| code.is_some_and(|code| code < 300);
        assert!(retail.iter().any(|request| request.verb == verb && done(request.code)), "{retail:?}");
    }
    Ok(())
}

/// An agent that keeps the namespaces of its manifests, `shop` and `till`, with the rights that these give it.
async fn in_some_namespaces(cluster: &Cluster, hub: &Hub, directory: &Scratch) -> Result<Agent> {
    cluster.kubectl().run(&["apply", "--kustomize", &deploy("agent-namespaced").display().to_string()]).await?;
    admitted(&cluster.client(), ACCOUNT).await?;
    let kubeconfig = directory.join("kubeconfig");
    fs::write(&kubeconfig, as_account(cluster).await?.to_string())?;
    let mut agent = hub.prepare("east", &[], &kubeconfig, None).await?;
    agent.only_namespaces = ["shop", "till"].map(|name| name.parse().expect("a namespace")).to_vec();
    agent.resume();
    Ok(agent)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_of_some_namespaces_needs_no_rights_elsewhere() -> Result<()> {
    let assets = require_kubernetes!();
    let directory = Scratch::new("namespaced")?;
    let audit = Audit::new(&directory)?;
    let (cluster, hub) = tokio::try_join!(start(&assets, &audit), Hub::start())?;
    let local = cluster.client();

    let space = hub.client("default").await?;
    for name in ["shop", "till", "other"] {
        apply(&space, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await?;
        apply(&space, elsewhere(config("web", "1"), name)).await?;
    }
    apply(&space, deployment("web", 1)).await?;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "web", "labels": {"app": "web"}}, "rules": [],
    });
    apply(&space, role).await?;
    let resources = [("", "configmaps"), ("apps", "deployments"), ("rbac.authorization.k8s.io", "clusterroles")];
    apply(&space, placement("web", &json!({}), "web", &resources)).await?;

    let mut agent = in_some_namespaces(&cluster, &hub, &directory).await?;

    for name in ["shop", "till"] {
        let configs = api(&local, CONFIG.0, CONFIG.1, Some(name));
        eventually_ok(SOON, name, async || configs.get("web").await).await?;
        // Seen by a watch of its own, and put right.
        configs.patch("web", &PatchParams::default(), &Patch::Merge(json!({"data": {"value": "edited"}}))).await?;
        eventually_ok(SOON, "the edit reverted", async || {
            anyhow::ensure!(configs.get("web").await?.data["data"]["value"] == "1");
            Ok(())
        })
        .await?;
    }
    shows(&local, DEPLOYMENT, "web", "the Deployment", |_| true).await?;
    let reports = api(&space, REPORT.0, REPORT.1, Some("other"));
    eventually_ok(SOON, "what is elsewhere to be withheld", async || {
        let report = reports.get("configmap.web.east").await?;
        let told = (&report.data["progress"], &report.data["reason"]);
        anyhow::ensure!(told == (&json!("Withheld"), &json!("OtherNamespace")), "{told:?}");
        anyhow::ensure!(report.data["message"] == "this agent keeps these namespaces only: shop, till");
        Ok(())
    })
    .await?;
    let cluster_reports = api_cluster(&space, CLUSTER_REPORT.0, CLUSTER_REPORT.1);
    let report = cluster_reports.get("clusterrole.rbac.authorization.k8s.io.web.east").await?;
    assert_eq!(report.data["reason"], "OtherNamespace");

    // Gone where it was, and forgotten where it never was.
    api_cluster(&space, "tideline.dev/v1alpha1", "Placement").delete("web", &DeleteParams::default()).await?;
    gone(&local, CONFIG, "web").await?;
    eventually_ok(SOON, "no report of what never was there", async || {
        anyhow::ensure!(reports.get_opt("configmap.web.east").await?.is_none());
        Ok(())
    })
    .await?;
    agent.stop().await?;

    let refused: Vec<_> = audit.requests(USER)?.into_values().filter(|request| request.code == Some(403)).collect();
    // The identity of the cluster cannot be read without a right to namespaces.
    assert!(refused.iter().all(|request| request.verb == "get" && request.resource == "namespaces"), "{refused:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_of_some_namespaces_counts_what_is_made_there_across_a_restart() -> Result<()> {
    let assets = require_kubernetes!();
    let directory = Scratch::new("counting")?;
    let audit = Audit::new(&directory)?;
    let (cluster, hub) = tokio::try_join!(start(&assets, &audit), Hub::start())?;
    let local = cluster.client();

    let space = hub.client("default").await?;
    for (name, replicas) in [("shop", 2), ("till", 1), ("other", 1)] {
        apply(&space, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await?;
        apply(&space, elsewhere(deployment("web", replicas), name)).await?;
    }
    let mut counting = placement("web", &json!({}), "web", &[("apps", "deployments")]);
    counting["spec"]["objects"][0]["status"] = json!({"associated": ["replicasets", "pods"]});
    apply(&space, counting).await?;
    let mut agent = in_some_namespaces(&cluster, &hub, &directory).await?;

    let counted = async |namespace: &str, sets: u64, pods: u64| {
        let reports = api(&space, REPORT.0, REPORT.1, Some(namespace));
        eventually_ok(SOON * 2, &format!("{sets} ReplicaSets and {pods} Pods in {namespace}"), async || {
            let report = reports.get("deployment.apps.web.east").await?;
            let made = &report.data["associated"];
            let total = (&made["replicasets"]["total"], &made["pods"]["total"]);
            anyhow::ensure!(total == (&json!(sets), &json!(pods)), "{}", report.data);
            anyhow::ensure!(report.data["progress"] == "Applied", "{}", report.data);
            Ok(())
        })
        .await
    };
    counted("shop", 1, 2).await?;
    counted("till", 1, 1).await?;
    let reports = api(&space, REPORT.0, REPORT.1, Some("other"));
    eventually_ok(SOON, "what is elsewhere to be withheld, and of no count", async || {
        let report = reports.get("deployment.apps.web.east").await?;
        let told = report.data["reason"] == "OtherNamespace" && report.data.get("associated").is_none();
        anyhow::ensure!(told, "{}", report.data);
        Ok(())
    })
    .await?;

    // Changed at the source, or deleted at the target, while the agent is away.
    agent.stop().await?;
    apply(&space, elsewhere(deployment("web", 4), "shop")).await?;
    let deployments = |namespace: &str| api(&local, DEPLOYMENT.0, DEPLOYMENT.1, Some(namespace));
    let before = deployments("till").get("web").await?.uid();
    deployments("till").delete("web", &DeleteParams::background()).await?;
    agent.resume();
    counted("shop", 1, 4).await?;
    eventually_ok(SOON, "what was deleted to be made again", async || {
        let again = deployments("till").get("web").await?.uid();
        anyhow::ensure!(again != before, "it is the former one");
        Ok(())
    })
    .await?;
    counted("till", 1, 1).await?;
    // And while it is there.
    apply(&space, elsewhere(deployment("web", 3), "till")).await?;
    counted("till", 1, 3).await?;
    agent.stop().await?;

    let refused: Vec<_> = audit.requests(USER)?.into_values().filter(|request| request.code == Some(403)).collect();
    assert!(refused.iter().all(|request| request.verb == "get" && request.resource == "namespaces"), "{refused:?}");
    Ok(())
}
