//! What cannot be placed as it is says so, is put right when it can be, and delays nothing else.

use std::time::Duration;

use anyhow::Result;
use kube::ResourceExt;
use serde_json::{Value, json};
use tideline_common::WAVE_ANNOTATION;
use tideline_tests::{eventually_ok, require_kubernetes};

use crate::objects::{CONFIG, ROLLUP, SOON, THING, apply, config, definition, placement, shows, shows_cluster, thing};
use crate::site::{CONFIG_MAPS, REPORT, Site, of_app};

const PLACEMENT: (&str, &str) = ("tideline.dev/v1alpha1", "Placement");
/// Somebody else's definition is no object of ours, so only the agent's next check for the kind finds it: every 30 s.
const NEXT_CHECK: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kind_that_the_target_lacks_fails_alone_until_it_is_installed() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    apply(&site.space, definition()).await?;
    eventually_ok(SOON, "the kind to be served", async || apply(&site.space, thing("one")).await).await?;
    apply(&site.space, of_app("thing", config("sibling", "1"))).await?;
    site.place("thing", &[("test.example", "things"), ("", "configmaps")], json!({})).await?;

    shows(&site.local, CONFIG, "sibling", "the sibling", |object| object["data"]["value"] == "1").await?;
    site.reported("configmap.sibling", "Applied", None).await?;
    site.reported("thing.test.example.one", "Failed", Some("KindMissing")).await?;
    shows(&site.space, REPORT, "thing.test.example.one.east", "which kind", |report| {
        report["message"].as_str().is_some_and(|message| message.contains("Thing.test.example"))
    })
    .await?;
    shows(&site.space, ROLLUP, "thing.test.example.one", "one failure", |rollup| {
        rollup["counts"]["failed"] == 1 && rollup["worst"][0]["reason"] == "KindMissing"
    })
    .await?;

    apply(&site.local, definition()).await?;
    eventually_ok(NEXT_CHECK, "the object, once its kind is there", async || site.local(THING, "one").await.map(drop))
        .await?;
    site.reported("thing.test.example.one", "Applied", None).await
}

/// The problem that a Placement has with one object.
fn problem<'p>(placement: &'p Value, object: &str) -> Option<&'p Value> {
    placement["status"]["problems"].as_array()?.iter().find(|problem| problem["object"] == object)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn object_that_cannot_be_read_leaves_its_last_good_form_in_force() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    let waved = |value: &str, wave: &str| {
        let mut object = config("web", value);
        object["metadata"]["annotations"] = json!({WAVE_ANNOTATION: wave});
        object
    };
    site.place("web", CONFIG_MAPS, json!({})).await?;
    apply(&site.space, waved("1", "first")).await?;
    apply(&site.space, of_app("web", config("sibling", "1"))).await?;
    shows(&site.local, CONFIG, "sibling", "the sibling", |_| true).await?;
    let said = |placement: &Value| {
        problem(placement, "ConfigMap shop/web").is_some_and(|problem| {
            problem["reason"] == "Undecodable"
                && problem["message"].as_str().is_some_and(|message| message.contains(WAVE_ANNOTATION))
        })
    };
    shows_cluster(&site.space, PLACEMENT, "web", "what is wrong, and with what", said).await?;
    assert!(site.locals(CONFIG).get_opt("web").await?.is_none());

    apply(&site.space, waved("2", "1")).await?;
    shows(&site.local, CONFIG, "web", "what was put right", |object| object["data"]["value"] == "2").await?;
    shows_cluster(&site.space, PLACEMENT, "web", "nothing to be wrong", |placement| {
        problem(placement, "ConfigMap shop/web").is_none() && placement["status"]["conditions"][0]["status"] == "True"
    })
    .await?;
    site.reported("configmap.web", "Applied", None).await?;
    let good = site.local(CONFIG, "web").await?;

    apply(&site.space, waved("3", "last")).await?;
    shows_cluster(&site.space, PLACEMENT, "web", "what is wrong again", said).await?;
    site.pass_along("witness").await?;
    site.settle("witness").await?;
    let still = site.local(CONFIG, "web").await?;
    assert_eq!((still.uid(), still.resource_version()), (good.uid(), good.resource_version()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn placement_that_selects_nothing_says_so_until_it_does() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    let nobody = json!({"matchLabels": {"tier": "none"}});
    apply(&site.space, placement("nobody", &nobody, "web", CONFIG_MAPS)).await?;
    site.place("nothing", CONFIG_MAPS, json!({})).await?;
    apply(&site.space, config("web", "1")).await?;
    let selects = async |name: &str, status: &str, reason: &str| {
        shows_cluster(&site.space, PLACEMENT, name, &format!("{name} to say {reason}"), |placement| {
            let ready = &placement["status"]["conditions"][0];
            ready["type"] == "Ready" && ready["status"] == status && ready["reason"] == reason
        })
        .await
    };
    selects("nobody", "False", "NoTargets").await?;
    selects("nothing", "False", "NoObjects").await?;
    // Others are not delayed.
    site.pass_along("witness").await?;

    site.retier("none").await?;
    selects("nobody", "True", "Resolved").await?;
    shows(&site.local, CONFIG, "web", "what is placed now", |_| true).await?;
    site.retier("shop").await?;
    selects("nobody", "False", "NoTargets").await?;
    apply(&site.space, config("nothing", "1")).await?;
    selects("nothing", "True", "Resolved").await?;
    shows(&site.local, CONFIG, "nothing", "what is selected now", |_| true).await
}
