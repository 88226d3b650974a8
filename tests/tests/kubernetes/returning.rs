//! What comes back of the status of placed objects, and how often.

use std::pin::pin;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use futures::TryStreamExt;
use kube::ResourceExt;
use kube::api::{DynamicObject, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use tideline_tests::{eventually_ok, require_kubernetes};

use crate::objects::{DEPLOYMENT, ROLLUP, THING, api, apply, definition, deployment, placement, shows, thing};
use crate::site::{Site, of_app};

const KINDS: &[(&str, &str)] = &[("apps", "deployments"), ("test.example", "things")];

async fn place(site: &Site, returns: &str) -> Result<()> {
    let mut placement = placement("web", &json!({"matchLabels": {"tier": "shop"}}), "web", KINDS);
    for clause in placement["spec"]["objects"].as_array_mut().into_iter().flatten() {
        clause["status"] = json!({"return": returns});
    }
    apply(&site.space, placement).await
}

/// The writers of an object, and when, but for its status; and what it says of its source.
fn written(object: &DynamicObject) -> Value {
    let managers = object.managed_fields().iter().filter(|entry| entry.subresource.as_deref() != Some("status"));
    json!([managers.collect::<Vec<_>>(), object.annotations(), object.metadata.generation])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_status_it_is_known_how_an_object_does_and_nothing_is_applied_again() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    apply(&site.space, deployment("web", 0)).await?;
    place(&site, "Auto").await?;
    let returned = |object: &Value| {
        object["status"]["observedGeneration"] == object["metadata"]["generation"]
            && object["status"]["conditions"].as_array().is_some_and(|conditions| conditions.len() == 2)
    };
    let cleared = |object: &Value| object["status"].as_object().is_none_or(serde_json::Map::is_empty);
    let ready = |rollup: &Value| rollup["counts"]["ready"] == 1 && rollup["counts"]["applied"] == 1;
    shows(&site.space, DEPLOYMENT, "web", "its status", returned).await?;
    shows(&site.space, ROLLUP, "deployment.apps.web", "it to be ready", ready).await?;
    let before = written(&site.local(DEPLOYMENT, "web").await?);

    place(&site, "Never").await?;
    shows(&site.space, DEPLOYMENT, "web", "no status", cleared).await?;
    // What the agent hears next, it hears after that.
    site.pass_along("after-never").await?;
    shows(&site.space, ROLLUP, "deployment.apps.web", "it to be ready still", ready).await?;
    shows(&site.space, DEPLOYMENT, "web", "no status still", cleared).await?;
    assert_eq!(written(&site.local(DEPLOYMENT, "web").await?), before);

    place(&site, "Auto").await?;
    shows(&site.space, DEPLOYMENT, "web", "its status again", returned).await?;
    assert_eq!(written(&site.local(DEPLOYMENT, "web").await?), before);
    Ok(())
}

/// Statuses that are written one after the other, as fast as the API server takes them.
const FLIPS: u64 = 300;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_that_flips_all_the_time_returns_every_few_seconds_and_the_last_one_at_the_end() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    let mut definition = definition();
    definition["spec"]["versions"][0]["subresources"] = json!({"status": {}});
    for object in [definition.clone(), of_app("web", thing("web"))] {
        eventually_ok(crate::objects::SOON, "its kind to be served", async || apply(&site.space, object.clone()).await)
            .await?;
    }
    apply(&site.local, definition).await?;
    place(&site, "Auto").await?;
    shows(&site.local, THING, "web", "it", |_| true).await?;
    let says = |n: u64| move |object: &Value| object["status"]["n"] == n;
    let locals = site.locals(THING);
    let flip = async |n: u64| {
        let status = Patch::Merge(json!({"status": {"n": n}}));
        locals.patch_status("web", &PatchParams::default(), &status).await.context("a status")
    };
    flip(0).await?;
    shows(&site.space, THING, "web", "the first status", says(0)).await?;

    let things = api(&site.space, THING.0, THING.1, Some("shop"));
    let from = things.get("web").await?.resource_version().context("a version")?;
    let begun = Instant::now();
    let flips = async {
        for n in 1..=FLIPS {
            flip(n).await?;
        }
        anyhow::Ok(())
    };
    let count = async {
        let mut events = pin!(things.watch(&WatchParams::default(), &from).await?);
        let mut told = 0_u64;
        while let Some(event) = events.try_next().await? {
            let WatchEvent::Modified(object) = event else { continue };
            told += 1;
            if says(FLIPS)(&serde_json::to_value(&object)?) {
                return Ok(told);
            }
        }
        bail!("the watch ended after {told}")
    };
    let ((), told) = tokio::try_join!(flips, count)?;
    // The first at once, and then one in five seconds.
    let most = 2 + begun.elapsed().as_secs() / 5;
    ensure!(told <= most, "{told} in {:?}", begun.elapsed());
    Ok(())
}
