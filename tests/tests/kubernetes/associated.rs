//! Objects that controllers make of placed ones are counted, and those of others are not. There is no kubelet: the tests write
//! the states of Pods.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tideline_tests::{eventually_ok, require_kubernetes};

use crate::objects::{ROLLUP, SOON, apply, deployment, placement, shows};
use crate::site::{REPORT, Site, namespace, of_app};

const WORKLOADS: &[(&str, &str)] = &[("apps", "deployments"), ("", "services"), ("batch", "cronjobs")];
/// Rounds of the churn, and Pods that come and go in each.
const ROUNDS: usize = 10;
const PODS: i64 = 12;

fn counting(kinds: &Value) -> Value {
    let mut placement = placement("web", &json!({"matchLabels": {"tier": "shop"}}), "web", WORKLOADS);
    for clause in placement["spec"]["objects"].as_array_mut().into_iter().flatten() {
        clause["status"] = json!({"associated": kinds});
    }
    placement
}

/// With a selector, a controller makes its slices; without one, somebody else does.
fn service(name: &str, selector: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": "web"}},
        "spec": {"selector": selector, "ports": [{"port": 80}]},
    })
}

fn slice() -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "by-hand", "namespace": "shop", "labels": {"kubernetes.io/service-name": "by-hand"}},
        "endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
        ],
    })
}

fn pods(site: &Site) -> Api<Pod> {
    Api::namespaced(site.local.clone(), "shop")
}

async fn names(site: &Site, selector: &str) -> Result<Vec<String>> {
    let pods = pods(site).list(&ListParams::default().labels(selector)).await?;
    Ok(pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).map(ResourceExt::name_any).collect())
}

async fn some(site: &Site, selector: &str, count: usize) -> Result<Vec<String>> {
    eventually_ok(SOON, "the Pods", async || {
        let names = names(site, selector).await?;
        ensure!(names.len() == count, "{names:?}");
        anyhow::Ok(names)
    })
    .await
}

/// As a kubelet would write it.
async fn does(site: &Site, pod: &str, status: Value) -> Result<()> {
    let patch = Patch::Strategic(json!({"status": status}));
    pods(site).patch_status(pod, &PatchParams::default(), &patch).await.with_context(|| pod.to_owned())?;
    Ok(())
}

fn container(restarts: u32, state: &Value) -> Value {
    json!([{"name": "web", "image": "i", "imageID": "", "ready": false, "restartCount": restarts, "state": state}])
}

async fn reported(site: &Site, object: &str, what: &str, check: impl Fn(&Value) -> bool) -> Result<()> {
    shows(&site.space, REPORT, &format!("{object}.east"), what, check).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_a_placed_deployment_are_counted_by_phase_and_reason_and_leave_no_trace() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    // Somebody else's, with the labels of ours.
    apply(&site.local, namespace()).await?;
    let mut theirs = deployment("theirs", 2);
    theirs["metadata"]["labels"]["app"] = json!("web");
    apply(&site.local, theirs).await?;
    some(&site, "app=theirs", 2).await?;

    apply(&site.space, deployment("web", 3)).await?;
    apply(&site.space, service("web", &json!({"app": "web"}))).await?;
    apply(&site.space, service("by-hand", &json!({}))).await?;
    apply(&site.local, slice()).await?;
    apply(&site.space, counting(&json!(["replicasets", "pods", "endpointslices"]))).await?;
    let names = some(&site, "app=web", 3).await?;
    reported(&site, "deployment.apps.web", "three Pods that wait", |report| {
        let made = &report["associated"];
        made["pods"]["phases"] == json!({"Pending": 3}) && made["replicasets"]["total"] == 1
    })
    .await?;

    let ready = json!([{"type": "Ready", "status": "True"}]);
    let running = json!({"running": {}});
    let runs = json!({"phase": "Running", "conditions": ready, "containerStatuses": container(0, &running)});
    does(&site, &names[0], runs).await?;
    let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
    let pulls = json!({"phase": "Pending", "containerStatuses": container(0, &waiting("ImagePullBackOff"))});
    does(&site, &names[1], pulls).await?;
    let loops = json!({"phase": "Running", "containerStatuses": container(7, &waiting("CrashLoopBackOff"))});
    does(&site, &names[2], loops).await?;
    let counted = |made: &Value| {
        made["pods"]["total"] == 3
            && made["pods"]["ready"] == 1
            && made["pods"]["phases"] == json!({"Pending": 1, "Running": 2})
            && made["pods"]["reasons"] == json!({"CrashLoopBackOff": 1, "ImagePullBackOff": 1})
            && made["pods"]["restarts"] == 7
    };
    reported(&site, "deployment.apps.web", "what each does", |report| {
        let worst = report["associated"]["pods"]["worst"].as_array().into_iter().flatten();
        let worst: Vec<_> = worst.map(|worst| worst["name"].as_str().unwrap_or_default()).collect();
        counted(&report["associated"])
            && worst == [&names[2], &names[1]]
            && report["waiting"] == "pods: 1 CrashLoopBackOff, 1 ImagePullBackOff"
    })
    .await?;
    shows(&site.space, ROLLUP, "deployment.apps.web", "the sum, and why it is not ready", |rollup| {
        let message = rollup["worst"][0]["message"].as_str().unwrap_or_default();
        counted(&rollup["associated"])
            && rollup["associated"]["pods"]["targets"] == 1
            && message.ends_with("; pods: 1 CrashLoopBackOff, 1 ImagePullBackOff")
    })
    .await?;
    reported(&site, "service.web", "its slice", |report| {
        report["associated"]["endpointslices"]["total"] == 1 && report["associated"].get("pods").is_none()
    })
    .await?;
    reported(&site, "service.by-hand", "its endpoints", |report| {
        let slices = &report["associated"]["endpointslices"];
        slices["total"] == 1 && slices["endpoints"] == 2 && slices["endpointsReady"] == 1
    })
    .await?;

    apply(&site.space, deployment("web", 1)).await?;
    reported(&site, "deployment.apps.web", "one Pod", |report| report["associated"]["pods"]["total"] == 1).await?;
    pods(&site).delete_collection(&DeleteParams::default(), &ListParams::default().labels("app=web")).await?;
    reported(&site, "deployment.apps.web", "nothing left of those that went", |report| {
        let pods = &report["associated"]["pods"];
        pods["phases"] == json!({"Pending": 1}) && pods.get("reasons").is_none() && pods.get("restarts").is_none()
    })
    .await?;

    apply(&site.space, counting(&json!([]))).await?;
    reported(&site, "deployment.apps.web", "no counts", |report| report.get("associated").is_none()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_are_exact_after_pods_came_and_went_and_watches_broke() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    apply(&site.space, deployment("web", PODS)).await?;
    let backup = json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": "backup", "namespace": "shop", "labels": {}},
        "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "backup", "image": "registry.example/backup:1"}]}}}}},
    });
    apply(&site.space, of_app("web", backup)).await?;
    apply(&site.space, counting(&json!(["pods", "jobs"]))).await?;
    let count = usize::try_from(PODS)?;
    let mut seen = BTreeSet::new();
    for round in 0..ROUNDS {
        let names = some(&site, "app=web", count).await?;
        seen.extend(names.iter().cloned());
        for name in names.iter().take(3) {
            let state = json!({"waiting": {"reason": "CrashLoopBackOff"}});
            does(&site, name, json!({"phase": "Running", "containerStatuses": container(1, &state)})).await?;
        }
        if round % 3 == 1 {
            site.wire.cut();
        }
        pods(&site).delete_collection(&DeleteParams::default(), &ListParams::default().labels("app=web")).await?;
        site.wire.resume();
    }
    let names: BTreeSet<_> = some(&site, "app=web", count).await?.into_iter().collect();
    ensure!(seen.is_disjoint(&names) && seen.len() == count * ROUNDS, "{} Pods came and went", seen.len());
    reported(&site, "deployment.apps.web", "the last Pods, and nothing of the others", |report| {
        let pods = &report["associated"]["pods"];
        let worst = pods["worst"].as_array().into_iter().flatten().filter_map(|worst| worst["name"].as_str());
        pods["total"] == PODS
            && pods["phases"] == json!({"Pending": PODS})
            && pods.get("restarts").is_none()
            && worst.into_iter().all(|name| names.contains(name))
    })
    .await?;

    // Two generations away: a Job, made as the controller would make it at its time.
    site.cluster.kubectl().run(&["create", "job", "backup-1", "--from=cronjob/backup", "-n", "shop"]).await?;
    reported(&site, "cronjob.batch.backup", "a Job and its Pod", |report| {
        let made = &report["associated"];
        made["jobs"]["total"] == 1 && made["pods"]["total"] == 1
    })
    .await
}
