//! What goes where follows every label, Placement and Location that says so, at a real cluster.

use std::collections::BTreeSet;

use anyhow::Result;
use kube::ResourceExt;
use serde_json::json;
use tideline_common::{ASSIGNED_LOCATIONS_ANNOTATION, MARK_LABEL};
use tideline_tests::kubernetes::Kubectl;
use tideline_tests::require_kubernetes;

use crate::objects::{CONFIG, NAMESPACE, apply, config, deployment, gone, shows, shows_cluster};
use crate::site::{CONFIG_MAPS, Site, namespace, of_app, placed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_stops_matching_is_removed_and_recreated_when_it_matches_again() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    site.place("web", CONFIG_MAPS, json!({})).await?;
    apply(&site.space, config("web", "1")).await?;
    shows(&site.local, CONFIG, "web", "the ConfigMap", |_| true).await?;
    let first = site.local_uid(CONFIG, "web").await?;

    // By the object's label.
    apply(&site.space, of_app("other", config("web", "1"))).await?;
    gone(&site.local, CONFIG, "web").await?;
    apply(&site.space, config("web", "2")).await?;
    shows(&site.local, CONFIG, "web", "the ConfigMap again", |object| object["data"]["value"] == "2").await?;
    let second = site.local_uid(CONFIG, "web").await?;
    assert_ne!(first, second);

    // By the Placement's selector.
    apply(&site.space, placed("web", "other", CONFIG_MAPS, &json!({}))).await?;
    gone(&site.local, CONFIG, "web").await?;
    site.place("web", CONFIG_MAPS, json!({})).await?;
    shows(&site.local, CONFIG, "web", "the ConfigMap once more", |object| object["data"]["value"] == "2").await?;
    assert_ne!(site.local_uid(CONFIG, "web").await?, second);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_another_placement_selects_is_unchanged() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    let mut both = config("both", "1");
    both["metadata"]["labels"] = json!({"app": "web", "team": "a"});
    apply(&site.space, both).await?;
    apply(&site.space, of_app("web", config("one", "1"))).await?;
    site.place("web", CONFIG_MAPS, json!({})).await?;
    let mut team = placed("team", "web", CONFIG_MAPS, &json!({}));
    team["spec"]["objects"][0]["objectSelectors"] = json!([{"matchLabels": {"team": "a"}}]);
    apply(&site.space, team).await?;
    for name in ["both", "one"] {
        shows(&site.local, CONFIG, name, "a ConfigMap", |_| true).await?;
    }
    // Its first apply comes after its creation.
    site.reported("configmap.both", "Applied", None).await?;
    site.pass_along("witness").await?;
    let before = site.local(CONFIG, "both").await?;

    site.displace("web").await?;
    gone(&site.local, CONFIG, "one").await?;
    site.settle("witness").await?;
    let after = site.local(CONFIG, "both").await?;
    assert_eq!((after.uid(), after.resource_version()), (before.uid(), before.resource_version()));
    site.displace("team").await?;
    gone(&site.local, CONFIG, "both").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_of_the_namespace_and_of_the_target_decide_too() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    let mut team = placed("team", "web", CONFIG_MAPS, &json!({}));
    team["spec"]["objects"][0]["namespaceSelectors"] = json!([{"matchLabels": {"team": "a"}}]);
    apply(&site.space, team).await?;
    apply(&site.space, config("web", "1")).await?;
    site.pass_along("witness").await?;
    assert!(site.locals(CONFIG).get_opt("web").await?.is_none(), "its namespace is not selected");

    let mut labelled = namespace();
    labelled["metadata"]["labels"] = json!({"team": "a"});
    apply(&site.space, labelled.clone()).await?;
    shows(&site.local, CONFIG, "web", "what is in the namespace", |_| true).await?;
    apply(&site.space, namespace()).await?;
    gone(&site.local, CONFIG, "web").await?;
    apply(&site.space, labelled).await?;
    shows(&site.local, CONFIG, "web", "what is in the namespace, again", |_| true).await?;

    // The target leaves, and with it all that it was given for its label; the namespace came along only.
    site.retier("closed").await?;
    for name in ["web", "witness"] {
        gone(&site.local, CONFIG, name).await?;
    }
    let check = |object: &serde_json::Value| object["metadata"]["deletionTimestamp"].is_null();
    shows_cluster(&site.local, NAMESPACE, "shop", "the namespace", check).await?;
    site.retier("shop").await?;
    for name in ["web", "witness"] {
        shows(&site.local, CONFIG, name, "what the target is given again", |_| true).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_names_its_locations_itself_and_that_stays_behind() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    let location = |tier: &str| {
        json!({
            "apiVersion": "tideline.dev/v1alpha1", "kind": "Location",
            "metadata": {"name": "shops"}, "spec": {"instanceSelector": {"matchLabels": {"tier": tier}}},
        })
    };
    apply(&site.root, location("shop")).await?;
    let mut direct = config("direct", "1");
    direct["metadata"]["annotations"] = json!({ASSIGNED_LOCATIONS_ANNOTATION: r#"["shops"]"#, "note": "mine"});
    apply(&site.space, direct.clone()).await?;
    shows(&site.local, CONFIG, "direct", "what asks for the Location", |_| true).await?;
    let local = site.local(CONFIG, "direct").await?;
    let annotations = local.annotations();
    assert!(annotations.contains_key("note") && !annotations.contains_key(ASSIGNED_LOCATIONS_ANNOTATION));

    // The Location moves away, and back.
    apply(&site.root, location("elsewhere")).await?;
    gone(&site.local, CONFIG, "direct").await?;
    apply(&site.root, location("shop")).await?;
    shows(&site.local, CONFIG, "direct", "what asks for the Location, again", |_| true).await?;

    // It asks no more.
    if let Some(annotations) = direct["metadata"]["annotations"].as_object_mut() {
        annotations.remove(ASSIGNED_LOCATIONS_ANNOTATION);
    }
    apply(&site.space, direct).await?;
    gone(&site.local, CONFIG, "direct").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_of_a_space_takes_nothing_that_is_the_clusters_own() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    let space = assets.kubectl(&site.hub.kubeconfig())?.with_context("default");
    let versions = kubectl_lines(&space, &["api-versions"]).await?;
    let groups: BTreeSet<&str> =
        versions.iter().map(|version| version.split_once('/').map_or("", |(group, _)| group)).collect();
    let always = json!({"takeover": "Always"});
    let clauses: Vec<_> =
        groups.iter().map(|group| json!({"apiGroup": group, "resources": ["*"], "apply": always})).collect();
    let mut everything = placed("everything", "", &[], &json!({}));
    everything["spec"]["objects"] = json!(clauses);
    apply(&site.space, everything).await?;
    apply(&site.space, config("web", "1")).await?;
    apply(&site.space, deployment("web", 1)).await?;
    // As if somebody had filled the space from a cluster.
    for (kind, name) in [("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")] {
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "shop"}});
        apply(&site.space, object).await?;
    }
    site.reported("configmap.web", "Applied", None).await?;
    site.reported("deployment.apps.web", "Applied", None).await?;
    site.pass_along("witness").await?;

    let local = site.cluster.kubectl();
    let resources = kubectl_lines(local, &["api-resources", "--verbs=list", "--output=name"]).await?.join(",");
    let shown = "--output=jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{'\\n'}{end}";
    let marked = format!("--selector={MARK_LABEL}");
    let ours: BTreeSet<String> =
        kubectl_lines(local, &["get", &resources, "--all-namespaces", &marked, shown]).await?.into_iter().collect();
    let expected = ["ConfigMap shop/web", "ConfigMap shop/witness", "Deployment shop/web", "Namespace /shop"];
    assert_eq!(ours, expected.map(str::to_owned).into());
    Ok(())
}

async fn kubectl_lines(kubectl: &Kubectl, arguments: &[&str]) -> Result<Vec<String>> {
    Ok(kubectl.run(arguments).await?.lines().map(str::to_owned).collect())
}
