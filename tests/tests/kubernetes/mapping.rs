//! Namespaces that are called otherwise at the target.

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use tideline_tests::{eventually_ok, require_kubernetes};

use crate::objects::{CONFIG, DEPLOYMENT, NAMESPACE, ROLLUP, SOON, api, api_cluster, apply, config, deployment, shows};
use crate::site::{REPORT, Site, mark_of, of_app};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// The objects of an application, mapped so.
fn mapped(name: &str, app: &str, mapping: &Value) -> Value {
    let clause = |group: &str, resource: &str| json!({"apiGroup": group, "resources": [resource], "objectSelectors": [{"matchLabels": {"app": app}}]});
    let rbac = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": "tideline.dev/v1alpha1", "kind": "Placement", "metadata": {"name": name},
        "spec": {
            "targets": [{"matchLabels": {"tier": "shop"}}],
            "objects": [
                clause("", "configmaps"), clause("apps", "deployments"), clause(rbac, "rolebindings"),
            ],
            "namespaceMapping": mapping,
        },
    })
}

fn binding(name: &str) -> Value {
    let api_group = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": RBAC, "kind": "RoleBinding", "metadata": {"name": name, "namespace": "shop", "labels": {"app": name}},
        "roleRef": {"apiGroup": api_group, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "web", "namespace": "shop"}],
    })
}

impl Site {
    /// Waits until there is an object at the target, in that namespace.
    async fn arrives(&self, (version, kind): (&str, &str), namespace: &str, name: &str) -> Result<DynamicObject> {
        let api = api(&self.local, version, kind, Some(namespace));
        eventually_ok(SOON, &format!("{kind} {namespace}/{name}"), async || api.get(name).await).await
    }

    async fn leaves(&self, namespace: &str, name: &str) -> Result<()> {
        let api = api(&self.local, CONFIG.0, CONFIG.1, Some(namespace));
        eventually_ok(SOON, &format!("{namespace}/{name} to be gone"), async || {
            ensure!(api.get_opt(name).await?.is_none(), "it is there");
            anyhow::Ok(())
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_arrive_in_the_mapped_namespace_and_move_when_it_is_another() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    let labelled = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"team": "retail"}},
    });
    apply(&site.space, labelled).await?;
    for object in [config("web", "1"), of_app("web", deployment("web", 1)), binding("web")] {
        apply(&site.space, object).await?;
    }
    apply(&site.space, mapped("web", "web", &json!({"prefix": "store-"}))).await?;

    let object = site.arrives(CONFIG, "store-shop", "web").await?;
    let mark = mark_of(&object)?;
    assert_eq!((&*mark.local.namespace, &*mark.source.namespace), ("store-shop", "shop"));
    let binding = site.arrives((RBAC, "RoleBinding"), "store-shop", "web").await?;
    assert_eq!(binding.data["subjects"][0]["namespace"], "store-shop");
    let namespace = api_cluster(&site.local, NAMESPACE.0, NAMESPACE.1).get("store-shop").await?;
    assert_eq!(namespace.labels()["team"], "retail");
    assert!(api_cluster(&site.local, NAMESPACE.0, NAMESPACE.1).get_opt("shop").await?.is_none());
    // One target, so its status is the source's.
    shows(&site.space, DEPLOYMENT, "web", "the status of the one copy", |web| web["status"]["replicas"] == 1).await?;
    shows(&site.space, REPORT, "configmap.web.east.store-shop", "a report", |report| {
        report["progress"] == "Applied" && report["target"]["namespace"] == "store-shop"
    })
    .await?;
    shows(&site.space, ROLLUP, "configmap.web", "a rollup", |rollup| {
        rollup["namespaces"] == json!(["store-shop"]) && rollup["counts"]["ready"] == 1
    })
    .await?;

    apply(&site.space, mapped("web", "web", &json!({"map": {"shop": "storefront"}}))).await?;
    site.arrives(CONFIG, "storefront", "web").await?;
    site.leaves("store-shop", "web").await?;
    api_cluster(&site.local, NAMESPACE.0, NAMESPACE.1).get("store-shop").await.context("what was implied is left")?;
    shows(&site.space, ROLLUP, "configmap.web", "the removal to be confirmed", |rollup| {
        rollup["namespaces"] == json!(["storefront"]) && rollup["counts"]["deleting"] == 0
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_object_may_be_in_two_namespaces_and_none_is_brought_into_the_clusters_own() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    apply(&site.space, of_app("web", deployment("web", 1))).await?;
    apply(&site.space, config("web", "1")).await?;
    apply(&site.space, mapped("west", "web", &json!({"prefix": "west-"}))).await?;
    shows(&site.space, DEPLOYMENT, "web", "the status of the one copy", |web| web["status"]["replicas"] == 1).await?;
    apply(&site.space, mapped("same", "web", &json!({}))).await?;
    for namespace in ["shop", "west-shop"] {
        site.arrives(CONFIG, namespace, "web").await?;
    }
    shows(&site.space, ROLLUP, "configmap.web", "both", |rollup| {
        rollup["namespaces"] == json!(["shop", "west-shop"])
            && rollup["counts"]["expected"] == 2
            && rollup["counts"]["ready"] == 2
    })
    .await?;
    for report in ["configmap.web.east", "configmap.web.east.west-shop"] {
        shows(&site.space, REPORT, report, "its report", |report| report["progress"] == "Applied").await?;
    }
    shows(&site.space, DEPLOYMENT, "web", "no status, for it is none of one", |web| {
        web["status"]["replicas"].is_null()
    })
    .await?;

    apply(&site.space, mapped("west", "web", &json!({"map": {"shop": "kube-system"}}))).await?;
    let placements = api_cluster(&site.space, "tideline.dev/v1alpha1", "Placement");
    eventually_ok(SOON, "the Placement to say so", async || {
        let status = serde_json::to_value(placements.get("west").await?)?["status"].take();
        ensure!(status["problems"][0]["reason"] == "NotAllowed", "{status}");
        anyhow::Ok(())
    })
    .await?;
    // New objects are placed as the other Placement says, and existing ones stay.
    site.pass_along("witness").await?;
    site.settle("witness").await?;
    site.arrives(CONFIG, "west-shop", "web").await?;
    let into = api(&site.local, CONFIG.0, CONFIG.1, Some("kube-system")).get_opt("web").await?;
    assert_eq!(into.map(|object| object.name_any()), None);
    let refused = apply(&site.space, mapped("long", "web", &json!({"map": {"shop": "Not_A_Name"}}))).await;
    assert!(format!("{:#}", refused.unwrap_err()).contains("spec.namespaceMapping.map"));
    Ok(())
}
