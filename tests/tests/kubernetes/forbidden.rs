//! A target where the agent lacks some rights: what it may not do is reported once for each kind, and everything else goes on.

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tideline_tests::kubernetes::{Audit, ClusterOptions};
use tideline_tests::{Scratch, eventually, eventually_ok, require_kubernetes};

use crate::objects::{
    CONFIG, DEPLOYMENT, SOON, api, api_cluster, apply, config, deployment, gone, shows, shows_cluster,
};
use crate::site::{REPORT, Site, USER, grant, of_app, placed, value};

const SECRET: (&str, &str) = ("v1", "Secret");
const SERVICE: (&str, &str) = ("v1", "Service");
const EVENT: (&str, &str) = ("v1", "Event");
const PLACED: &[(&str, &str)] = &[("", "configmaps"), ("", "secrets"), ("", "services"), ("apps", "deployments")];

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}

/// All rights on ConfigMaps; none on Secrets; Services may be created and not read, Deployments not patched.
fn some() -> Value {
    json!([
        rule("", "configmaps", &["*"]),
        rule("", "namespaces", &["*"]),
        rule("", "events", &["get", "create", "patch"]),
        rule("", "services", &["create"]),
        rule("apps", "deployments", &["get", "list", "watch", "create"]),
    ])
}

fn secret() -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"value": "1"},
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}}})
}

fn service() -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}}})
}

/// The warnings at an object, as `kubectl describe` finds them.
async fn warnings(site: &Site, object: &DynamicObject, reason: &str) -> Result<Vec<DynamicObject>> {
    let uid = object.uid().context("a UID")?;
    let fields = format!("involvedObject.uid={uid},involvedObject.name={},reason={reason}", object.name_any());
    Ok(site.locals(EVENT).list(&ListParams::default().fields(&fields)).await?.items)
}

async fn forbidden(site: &Site) -> Result<Option<String>> {
    let target = api_cluster(&site.root, "tideline.dev/v1alpha1", "SyncTarget").get("east").await?;
    let conditions = target.data["status"]["conditions"].as_array().context("conditions")?;
    let said = conditions.iter().find(|condition| condition["type"] == "Forbidden");
    Ok(said.and_then(|said| said["message"].as_str()).map(str::to_owned))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_are_left_alone_where_autoscalers_may_not_be_read() -> Result<()> {
    let assets = require_kubernetes!();
    let rights = json!([
        rule("apps", "deployments", &["*"]),
        rule("", "namespaces", &["*"]),
        rule("", "events", &["get", "create", "patch"]),
    ]);
    let site = Site::kept_short(&assets, ClusterOptions::default(), rights).await?;
    for name in ["scaled", "plain"] {
        apply(&site.space, deployment(name, 2)).await?;
        site.place(name, PLACED, json!({})).await?;
        shows(&site.local, DEPLOYMENT, name, "what is placed", |_| true).await?;
    }
    for (name, manager) in [("scaled", "kube-controller-manager"), ("plain", "helper")] {
        let patch = Patch::Merge(json!({"spec": {"replicas": 6}}));
        site.locals(DEPLOYMENT).patch_scale(name, &PatchParams::apply(manager), &patch).await?;
    }
    shows(&site.local, DEPLOYMENT, "plain", "what a person scaled to be put back", |it| it["spec"]["replicas"] == 2)
        .await?;
    let mut changed = deployment("scaled", 3);
    changed["metadata"]["annotations"] = json!({"note": "changed"});
    apply(&site.space, changed).await?;
    shows(&site.local, DEPLOYMENT, "scaled", "the change", |it| it["metadata"]["annotations"]["note"] == "changed")
        .await?;
    let replicas = site.local(DEPLOYMENT, "scaled").await?.data["spec"]["replicas"].clone();
    ensure!(replicas == 6, "{replicas}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forbidden_kind_is_reported_and_all_others_go_on_until_it_is_granted() -> Result<()> {
    let assets = require_kubernetes!();
    let directory = Scratch::new("forbidden")?;
    let audit = Audit::new(&directory)?;
    let options = ClusterOptions { apiserver_arguments: audit.arguments(), ..ClusterOptions::default() };
    let site = Site::kept_short(&assets, options, some()).await?;
    for object in [config("web", "1"), secret(), service(), deployment("web", 1)] {
        apply(&site.space, object).await?;
    }
    site.place("web", PLACED, json!({"recreate": "Never"})).await?;
    shows(&site.local, CONFIG, "web", "what is allowed", |_| true).await?;
    shows(&site.local, SERVICE, "web", "what may be created and not be looked at", |_| true).await?;
    shows(&site.local, DEPLOYMENT, "web", "what may be created and not be changed", |_| true).await?;
    site.reported("secret.web", "Failed", Some("Forbidden")).await?;
    site.reported("service.web", "Applied", None).await?;
    shows(&site.space, REPORT, "service.web.east", "no health of what is not seen", |report| {
        report["health"] == "Unknown"
    })
    .await?;

    apply(&site.space, deployment("web", 3)).await?;
    site.reported("deployment.apps.web", "Failed", Some("Forbidden")).await?;
    let said = eventually(SOON, "all three kinds to be named", async || {
        let said = forbidden(&site).await.ok()??;
        ["Secret", "Service", "Deployment.apps"].iter().all(|kind| said.contains(kind)).then_some(said)
    })
    .await?;
    ensure!(said.contains("cannot"), "{said}");
    shows_cluster(
        &site.root,
        ("tideline.dev/v1alpha1", "SyncTarget"),
        "east",
        "a target that is not stale",
        |target| target["status"]["conditions"][0]["status"] == "True",
    )
    .await?;
    let local = site.local(DEPLOYMENT, "web").await?;
    let warnings = eventually_ok(SOON, "a warning at the Deployment", async || {
        let warnings = warnings(&site, &local, "Forbidden").await?;
        ensure!(!warnings.is_empty(), "there is none");
        Ok(warnings)
    })
    .await?;
    ensure!(warnings.len() == 1 && warnings[0].data["type"] == "Warning", "{warnings:?}");
    let described = site.cluster.kubectl().run(&["describe", "deployment", "web", "--namespace", "shop"]).await?;
    ensure!(described.contains("Forbidden") && described.contains("tideline.dev/agent"), "{described}");
    // A kind without fault has none.
    apply(&site.space, config("web", "2")).await?;
    shows(&site.local, CONFIG, "web", "the change", |object| object["data"]["value"] == "2").await?;
    let well = site.local(CONFIG, "web").await?;
    ensure!(
        site.locals(EVENT).list(&ListParams::default()).await?.items.iter().all(|event| {
            event.data["involvedObject"]["name"] != "web" || event.data["involvedObject"]["kind"] != "ConfigMap"
        }),
        "{}",
        value(&well)
    );

    let refused = audit.requests(USER)?.values().filter(|request| request.code == Some(403)).count();
    ensure!(refused < 80, "{refused} requests were refused");
    grant(&site.local, &json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])).await?;
    eventually_ok(SOON * 3, "what was forbidden", async || site.local(SECRET, "web").await.map(drop)).await?;
    eventually_ok(SOON * 3, "what could not be changed", async || {
        let web = site.local(DEPLOYMENT, "web").await?;
        ensure!(web.data["spec"]["replicas"] == 3, "{}", web.data["spec"]["replicas"]);
        Ok(())
    })
    .await?;
    for object in ["secret.web", "service.web", "deployment.apps.web", "configmap.web"] {
        eventually_ok(SOON * 2, object, async || site.reported(object, "Applied", None).await).await?;
    }
    eventually_ok(SOON * 2, "nothing to be forbidden", async || {
        let said = forbidden(&site).await?;
        ensure!(said.is_none(), "{said:?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_may_be_listed_and_not_watched_is_maintained_by_lists_and_that_is_reported() -> Result<()> {
    let assets = require_kubernetes!();
    let directory = Scratch::new("unwatched")?;
    let audit = Audit::new(&directory)?;
    let options = ClusterOptions { apiserver_arguments: audit.arguments(), ..ClusterOptions::default() };
    let rules = |verbs: &[&str]| {
        json!([
            rule("", "configmaps", verbs),
            rule("", "namespaces", &["*"]),
            rule("", "events", &["get", "create", "patch"])
        ])
    };
    let site = Site::kept_short(&assets, options, rules(&["get", "list", "create", "patch", "delete"])).await?;
    apply(&site.space, config("web", "1")).await?;
    site.place("web", &[("", "configmaps")], json!({})).await?;
    site.reported("configmap.web", "Applied", None).await?;
    let said = eventually(SOON, "the kind to be named", async || forbidden(&site).await.ok()?).await?;
    ensure!(said.contains("ConfigMap") && said.contains("watch"), "{said}");

    // Corrected at the next list; and all the while it is reported.
    for edit in ["theirs", "theirs again"] {
        site.edit(CONFIG, "web", json!({"data": {"value": edit}})).await?;
        let mut silent = 0;
        eventually_ok(SOON * 3, "the edit to be reverted", async || {
            silent += usize::from(forbidden(&site).await?.is_none());
            let web = site.local(CONFIG, "web").await?;
            ensure!(value(&web) == &json!("1"), "{}", value(&web));
            Ok(())
        })
        .await?;
        ensure!(silent == 0 && forbidden(&site).await?.is_some(), "it was not said at {silent} looks");
    }
    let report = api(&site.space, REPORT.0, REPORT.1, Some("shop")).get("configmap.web.east").await?;
    assert_eq!(report.data["health"], "Ready", "{report:?}");
    // Some to find out, and then one for each list.
    let denied = |verb: &str| -> Result<usize> {
        let requests = audit.requests(USER)?;
        Ok(requests.values().filter(|it| it.verb == verb && it.resource == "configmaps").count())
    };
    let (lists, watches) = (denied("list")?, denied("watch")?);
    ensure!(lists < 20 && watches < 20, "{lists} lists, {watches} watches");

    grant(&site.local, &rules(&["*"])).await?;
    eventually_ok(SOON * 6, "nothing to be forbidden", async || {
        let said = forbidden(&site).await?;
        ensure!(said.is_none(), "{said:?}");
        Ok(())
    })
    .await?;
    site.edit(CONFIG, "web", json!({"data": {"value": "watched"}})).await?;
    shows(&site.local, CONFIG, "web", "the edit reverted", |it| it["data"]["value"] == "1").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn associated_objects_are_counted_by_lists_where_they_may_not_be_watched() -> Result<()> {
    let assets = require_kubernetes!();
    let options = ClusterOptions { controller_manager: true, ..ClusterOptions::default() };
    let rules = json!([
        rule("apps", "deployments", &["*"]),
        rule("", "namespaces", &["*"]),
        rule("apps", "replicasets", &["*"]),
        rule("", "pods", &["list"]),
        rule("", "events", &["get", "create", "patch"]),
    ]);
    let site = Site::kept_short(&assets, options, rules).await?;
    let mut counting = placed("web", "web", &[("apps", "deployments")], &json!({}));
    counting["spec"]["objects"][0]["status"] = json!({"associated": ["pods"]});
    apply(&site.space, counting).await?;
    for pods in [1, 3] {
        apply(&site.space, deployment("web", pods)).await?;
        let reports = api(&site.space, REPORT.0, REPORT.1, Some("shop"));
        eventually_ok(SOON * 3, &format!("{pods} Pods"), async || {
            let report = reports.get("deployment.apps.web.east").await?;
            ensure!(report.data["associated"]["pods"]["total"] == pods, "{}", report.data);
            Ok(())
        })
        .await?;
        let said = eventually(SOON, "the kind to be named", async || forbidden(&site).await.ok()?).await?;
        ensure!(said.contains("pods") && said.contains("watch"), "{said}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forbidden_deletion_is_reported_as_held_and_done_once_granted() -> Result<()> {
    let assets = require_kubernetes!();
    let rules = |verbs: &[&str]| {
        json!([
            rule("", "configmaps", verbs),
            rule("", "namespaces", &["*"]),
            rule("", "events", &["get", "create", "patch"])
        ])
    };
    let keeps = ["get", "list", "watch", "create", "patch"];
    let site = Site::kept_short(&assets, ClusterOptions::default(), rules(&keeps)).await?;
    apply(&site.space, config("web", "1")).await?;
    apply(&site.space, of_app("stays", config("stays", "1"))).await?;
    site.place("web", &[("", "configmaps")], json!({})).await?;
    site.place("stays", &[("", "configmaps")], json!({})).await?;
    shows(&site.local, CONFIG, "web", "the object", |_| true).await?;
    let web = site.local(CONFIG, "web").await?;
    site.displace("web").await?;
    site.reported("configmap.web", "DeletionHeld", Some("Forbidden")).await?;
    eventually_ok(SOON, "a warning", async || {
        let warnings = warnings(&site, &web, "Forbidden").await?;
        ensure!(warnings.len() == 1, "{} warnings", warnings.len());
        Ok(())
    })
    .await?;
    apply(&site.space, of_app("stays", config("stays", "2"))).await?;
    shows(&site.local, CONFIG, "stays", "all else", |object| object["data"]["value"] == "2").await?;
    grant(&site.local, &rules(&["*"])).await?;
    eventually_ok(SOON * 2, "what may go", async || gone(&site.local, CONFIG, "web").await).await
}
