//! API servers that ask to slow down, and webhooks that do not answer: what cannot go on waits, and nothing else does.

use std::net::Ipv4Addr;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use kube::Client;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use tideline_tests::kubernetes::{Audit, ClusterOptions};
use tideline_tests::{Scratch, eventually_ok, require_kubernetes};
use tokio::net::TcpListener;

use crate::objects::{CONFIG, DEPLOYMENT, ROLLUP, SOON, api, api_cluster, apply, config, deployment, shows};
use crate::site::{ACCOUNT, CONFIG_MAPS, REPORT, Site, USER, namespace, of_app};

/// Objects placed at once: several times the initial limit.
const MANY: usize = 120;

fn everything() -> Value {
    json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])
}

/// One seat for the agent's account, of few in all, and no queue: whatever comes beside is refused with 429.
fn one_seat() -> [Value; 2] {
    let level = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "one-seat"},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 1, "lendablePercent": 0, "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"},
        }},
    });
    let schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": "one-seat"},
        "spec": {
            "matchingPrecedence": 2, "priorityLevelConfiguration": {"name": "one-seat"},
            "rules": [{
                "subjects": [{"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": ACCOUNT}}],
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            }],
        },
    });
    [level, schema]
}

async fn count(site: &Site, label: &str) -> Result<usize> {
    count_in(site, "shop", label).await
}

async fn count_in(site: &Site, namespace: &str, label: &str) -> Result<usize> {
    let params = ListParams::default().labels(label);
    let there = api(&site.local, CONFIG.0, CONFIG.1, Some(namespace));
    Ok(there.list(&params).await?.items.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_throttles_is_asked_less_until_all_is_there() -> Result<()> {
    let assets = require_kubernetes!();
    let directory = Scratch::new("strain")?;
    let audit = Audit::new(&directory)?;
    let mut apiserver_arguments = audit.arguments();
    // Few in all, so that one of the 246 shares that there are then is one seat.
    apiserver_arguments
        .extend(["--max-requests-inflight=100", "--max-mutating-requests-inflight=100"].map(str::to_owned));
    let options = ClusterOptions { apiserver_arguments, ..ClusterOptions::default() };
    let site = Site::kept_short(&assets, options, everything()).await?;
    site.pass_along("witness").await?;
    for object in one_seat() {
        apply(&site.local, object).await?;
    }
    let calm = audit.requests(USER)?.len();

    for i in 0..MANY {
        apply(&site.space, of_app("many", config(&format!("many-{i}"), "1"))).await?;
    }
    let begun = Instant::now();
    site.place("many", CONFIG_MAPS, json!({})).await?;
    eventually_ok(SOON * 4, "all of them, one at a time", async || {
        let there = count(&site, "app=many").await?;
        ensure!(there == MANY, "{there} of {MANY}");
        Ok(())
    })
    .await?;
    let took = begun.elapsed();
    for i in [0, MANY / 2, MANY - 1] {
        shows(&site.space, ROLLUP, &format!("configmap.many-{i}"), "nothing wrong with any", |rollup| {
            rollup["counts"]["applied"] == 1 && rollup["counts"]["failed"] == 0
        })
        .await?;
        site.reported(&format!("configmap.many-{i}"), "Applied", None).await?;
    }
    let requests = audit.requests(USER)?;
    let refused = requests.values().filter(|request| request.code == Some(429)).count();
    ensure!(refused > 0, "the API server did not throttle");
    // What is begun at once at first, half of it, and so on; then an attempt at more, now and then.
    ensure!(refused < 100 + usize::try_from(took.as_secs())?, "{refused} refusals in {took:?}");
    let asked = requests.len() - calm;
    ensure!(asked < MANY + refused + 50, "{asked} requests, {refused} refused");
    Ok(())
}

/// A webhook that is asked about the ConfigMaps that `selector`, a field and its value, selects, and never answers.
struct Guard {
    /// Connections are made, and nothing ever comes.
    _silent: TcpListener,
    local: Client,
}

impl Guard {
    const CONFIGURATION: (&str, &str) = ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration");

    /// Registers a webhook for `shop`, in force when this returns.
    async fn over(site: &Site, selector: (&str, Value)) -> Result<Self> {
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let mut webhook = json!({
            "name": "guard.test.example", "failurePolicy": "Fail", "timeoutSeconds": 2, "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": format!("https://{}/", silent.local_addr()?)},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE", "UPDATE"]}],
        });
        webhook[selector.0] = selector.1;
        let configuration = json!({
            "apiVersion": Self::CONFIGURATION.0, "kind": Self::CONFIGURATION.1,
            "metadata": {"name": "guard"}, "webhooks": [webhook],
        });
        apply(&site.local, namespace()).await?;
        apply(&site.local, configuration).await?;
        let canary = of_app("guarded", config("canary", "1"));
        eventually_ok(SOON, "the webhook to be called", async || {
            let refused = apply(&site.local, canary.clone()).await.err().context("it was let in")?;
            ensure!(format!("{refused:#}").contains("guard.test.example"), "{refused:#}");
            Ok(())
        })
        .await?;
        Ok(Self { _silent: silent, local: site.local.clone() })
    }

    async fn leave(self) -> Result<()> {
        let configurations = api_cluster(&self.local, Self::CONFIGURATION.0, Self::CONFIGURATION.1);
        configurations.delete("guard", &DeleteParams::default()).await?;
        Ok(())
    }
}

/// One of them is reported to wait for the webhook.
async fn is_named(site: &Site) -> Result<()> {
    shows(&site.space, REPORT, "configmap.guarded-0.east", "the webhook to be named", |report| {
        report["reason"] == "Webhook"
            && report["message"].as_str().is_some_and(|message| message.contains("guard.test.example"))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_does_not_answer_delays_its_objects_alone() -> Result<()> {
    let assets = require_kubernetes!();
    let directory = Scratch::new("strain")?;
    let audit = Audit::new(&directory)?;
    let options = ClusterOptions { apiserver_arguments: audit.arguments(), ..ClusterOptions::default() };
    let site = Site::kept_short(&assets, options, everything()).await?;
    let guard = Guard::over(&site, ("objectSelector", json!({"matchLabels": {"app": "guarded"}}))).await?;

    for i in 0..MANY {
        apply(&site.space, of_app("guarded", config(&format!("guarded-{i}"), "1"))).await?;
    }
    site.place("guarded", CONFIG_MAPS, json!({})).await?;
    is_named(&site).await?;
    let begun = Instant::now();
    apply(&site.space, deployment("free", 1)).await?;
    site.place("free", &[("", "configmaps"), ("apps", "deployments")], json!({})).await?;
    apply(&site.space, config("free", "1")).await?;
    shows(&site.local, DEPLOYMENT, "free", "another kind", |_| true).await?;
    shows(&site.local, CONFIG, "free", "one that the webhook does not match", |_| true).await?;
    let took = begun.elapsed();
    let tries = audit.requests(USER)?.values().filter(|request| request.code == Some(500)).count();
    ensure!(tries < 3 * MANY, "{tries} tries");
    ensure!(count(&site, "app=guarded").await? == 0, "the webhook did not keep them out");
    println!("siblings came after {took:?}; {tries} tries with the webhook");

    guard.leave().await?;
    eventually_ok(SOON * 2, "all that waited", async || {
        let there = count(&site, "app=guarded").await?;
        ensure!(there == MANY, "{there} of {MANY}");
        Ok(())
    })
    .await?;
    for i in [0, MANY - 1] {
        site.reported(&format!("configmap.guarded-{i}"), "Applied", None).await?;
    }
    Ok(())
}

/// The object, in the namespace `till`.
fn in_till(mut object: Value) -> Value {
    object["metadata"]["namespace"] = json!("till");
    object
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_of_one_namespace_delays_what_is_in_that_namespace_alone() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::kept_short(&assets, ClusterOptions::default(), everything()).await?;
    let mut till = namespace();
    till["metadata"]["name"] = json!("till");
    apply(&site.space, till).await?;
    let shop = json!({"matchLabels": {"kubernetes.io/metadata.name": "shop"}});
    let guard = Guard::over(&site, ("namespaceSelector", shop)).await?;

    // The same kind, app and Placement: nothing but the namespace tells them apart.
    for i in 0..MANY / 2 {
        let object = of_app("guarded", config(&format!("guarded-{i}"), "1"));
        apply(&site.space, object.clone()).await?;
        apply(&site.space, in_till(object)).await?;
    }
    site.place("guarded", CONFIG_MAPS, json!({})).await?;
    eventually_ok(SOON, "all that are elsewhere", async || {
        let there = count_in(&site, "till", "app=guarded").await?;
        ensure!(there == MANY / 2, "{there} of {}", MANY / 2);
        Ok(())
    })
    .await?;
    is_named(&site).await?;
    // What comes later finds others of its kind that wait.
    apply(&site.space, in_till(of_app("guarded", config("later", "1")))).await?;
    eventually_ok(SOON, "a later one", async || api(&site.local, CONFIG.0, CONFIG.1, Some("till")).get("later").await)
        .await?;
    ensure!(count(&site, "app=guarded").await? == 0, "the webhook did not keep them out");

    guard.leave().await?;
    eventually_ok(SOON * 2, "all that waited", async || {
        let there = count(&site, "app=guarded").await?;
        ensure!(there == MANY / 2, "{there} of {}", MANY / 2);
        Ok(())
    })
    .await?;
    site.reported("configmap.guarded-0", "Applied", None).await
}
