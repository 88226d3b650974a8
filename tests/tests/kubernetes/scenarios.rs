//! What placing means in the cases that go beyond the main job, each on a real cluster with a hub and an agent.

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tideline_common::{
    Digest, GroupKind, HubId, MARK_ANNOTATION, MARK_LABEL, Mark, ObjectKey, Origin, Prune, PruneAdopted, SourceRef,
    SpaceName, TargetId,
};
use tideline_tests::{eventually_ok, require_kubernetes};
use uuid::Uuid;

use crate::objects::{
    CONFIG, DEPLOYMENT, ROLLUP, SOON, THING, api, api_cluster, apply, config, definition, deployment, gone, shows,
    thing,
};
use crate::site::{CONFIG_MAPS, REPORT, Site, mark_of, namespace, of_app, placed, value};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definition_and_its_object_in_one_set_both_converge() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    let resources = [("apiextensions.k8s.io", "customresourcedefinitions"), ("test.example", "things")];
    apply(&site.space, of_app("thing", definition())).await?;
    eventually_ok(SOON, "the kind to be served", async || apply(&site.space, thing("one")).await).await?;
    // Only now, so that both are new to the target at once.
    site.place("thing", &resources, json!({})).await?;

    shows(&site.local, THING, "one", "the object at the target", |thing| thing["spec"]["size"] == 1).await?;
    site.reported("thing.test.example.one", "Applied", None).await?;
    shows(&site.space, ROLLUP, "thing.test.example.one", "a rollup without a failure", |rollup| {
        rollup["counts"]["applied"] == 1 && rollup["counts"]["failed"] == 0 && rollup["worst"] == json!([])
    })
    .await?;
    let rollups = api_cluster(&site.space, ROLLUP.0, "ClusterRollup");
    eventually_ok(SOON, "the definition to be well", async || {
        let rollup = rollups.get("customresourcedefinition.apiextensions.k8s.io.things.test.example").await?;
        let counts = &rollup.data["counts"];
        ensure!(counts["ready"] == 1 && counts["failed"] == 0, "{counts}");
        anyhow::Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pre_existing_object_is_taken_over_only_as_the_policy_says() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    apply(&site.local, namespace()).await?;
    for name in ["never", "unmanaged", "once"] {
        site.preexisting(config(name, "theirs")).await?;
    }
    // Server-side apply is a claim to manage.
    for name in ["managed", "always"] {
        apply(&site.local, config(name, "theirs")).await?;
    }
    let never = site.local(CONFIG, "never").await?;
    let managed = site.local(CONFIG, "managed").await?;
    let unmanaged = site.local(CONFIG, "unmanaged").await?;
    let policies = [("never", "Never"), ("unmanaged", "IfUnmanaged"), ("managed", "IfUnmanaged"), ("always", "Always")];
    for (name, takeover) in policies {
        apply(&site.space, config(name, "ours")).await?;
        site.place(name, CONFIG_MAPS, json!({"takeover": takeover})).await?;
    }

    apply(&site.space, config("once", "ours")).await?;
    site.place("once", CONFIG_MAPS, json!({"mode": "CreateOnly"})).await?;

    for (name, before) in [("never", never), ("managed", managed)] {
        site.reported(&format!("configmap.{name}"), "Withheld", Some("Unmanaged")).await?;
        let now = site.local(CONFIG, name).await?;
        assert_eq!((now.uid(), now.resource_version()), (before.uid(), before.resource_version()), "{name}");
    }
    for name in ["unmanaged", "always"] {
        shows(&site.local, CONFIG, name, "ours", |object| object["data"]["value"] == "ours").await?;
        site.reported(&format!("configmap.{name}"), "Applied", None).await?;
    }
    // A create-only object that exists already is marked.
    site.reported("configmap.once", "Applied", None).await?;
    let once = site.local(CONFIG, "once").await?;
    assert_eq!((value(&once), mark_of(&once)?.origin), (&json!("theirs"), Origin::Adopted));
    let adopted = site.local(CONFIG, "unmanaged").await?;
    assert_eq!((adopted.uid(), mark_of(&adopted)?.origin), (unmanaged.uid(), Origin::Adopted));

    // No longer assigned, it is orphaned, and stays as it is.
    site.displace("unmanaged").await?;
    shows(&site.local, CONFIG, "unmanaged", "the mark to go", |object| {
        object["metadata"]["labels"].get(MARK_LABEL).is_none()
            && object["metadata"]["annotations"].get(MARK_ANNOTATION).is_none()
    })
    .await?;
    let left = site.local(CONFIG, "unmanaged").await?;
    assert_eq!((left.uid(), value(&left)), (unmanaged.uid(), &json!("ours")));
    let managers: Vec<_> = left.managed_fields().iter().filter_map(|entry| entry.manager.as_deref()).collect();
    assert!(managers.contains(&"helper") && !managers.contains(&"tideline"), "{managers:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_of_others_on_a_custom_resource_stay_when_it_is_taken_over() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    apply(&site.local, namespace()).await?;
    for api in [&site.local, &site.space] {
        apply(api, definition()).await?;
    }
    let mut theirs = thing("one");
    theirs["spec"] = json!({"size": 7});
    theirs["metadata"]["labels"]["team"] = json!("theirs");
    theirs["metadata"]["finalizers"] = json!(["example.org/theirs"]);
    eventually_ok(SOON, "the kind to be served", async || site.preexisting(theirs.clone()).await).await?;
    let before = site.local(THING, "one").await?;
    eventually_ok(SOON, "the kind to be served at the hub", async || apply(&site.space, thing("one")).await).await?;
    site.place("thing", &[("test.example", "things")], json!({})).await?;

    shows(&site.local, THING, "one", "ours", |thing| thing["spec"]["size"] == 1).await?;
    site.reported("thing.test.example.one", "Applied", None).await?;
    let now = site.local(THING, "one").await?;
    assert_eq!((now.uid(), mark_of(&now)?.origin), (before.uid(), Origin::Adopted));
    assert_eq!(now.labels().get("team").map(String::as_str), Some("theirs"));
    assert_eq!(now.finalizers(), ["example.org/theirs"]);
    Ok(())
}

/// As an agent of another hub would have left it.
fn of_another_hub(name: &str) -> Result<Value> {
    let (hub, target) = (HubId::from_uuid(Uuid::from_u128(1)), TargetId::from_uuid(Uuid::from_u128(2)));
    let mark = Mark {
        v: 1,
        hub,
        target,
        source: SourceRef {
            space: SpaceName::root(),
            uid: "source".parse()?,
            namespace: "shop".into(),
            name: name.into(),
        },
        local: ObjectKey::new(GroupKind::new("", "ConfigMap"), "shop", name),
        generation: 1,
        input: Digest::of(b"input"),
        policy: None,
        prune: Prune::Delete,
        prune_adopted: PruneAdopted::Orphan,
        origin: Origin::Created,
    };
    let mut object = config(name, "theirs");
    object["metadata"]["labels"][MARK_LABEL] = json!(target.to_string());
    object["metadata"]["annotations"] = json!({MARK_ANNOTATION: mark.encode()});
    Ok(object)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_object_in_the_way_or_refused_holds_up_no_other() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    apply(&site.local, namespace()).await?;
    let foreign = site.preexisting(of_another_hub("web")?).await?;
    // A selector that does not select the template is refused by validation, which no schema shows.
    let mut refused = deployment("web", 1);
    refused["spec"]["template"]["metadata"]["labels"] = json!({"app": "other"});
    let mut sibling = config("sibling", "1");
    sibling["metadata"]["labels"]["app"] = json!("web");
    apply(&site.space, config("web", "ours")).await?;
    apply(&site.space, refused).await?;
    apply(&site.space, sibling).await?;
    // Not even a policy of Always takes from another hub.
    site.place("web", &[("", "configmaps"), ("apps", "deployments")], json!({"takeover": "Always"})).await?;

    shows(&site.local, CONFIG, "sibling", "the sibling", |object| object["data"]["value"] == "1").await?;
    site.reported("configmap.sibling", "Applied", None).await?;
    site.reported("configmap.web", "Withheld", Some("Conflict")).await?;
    site.reported("deployment.apps.web", "Failed", Some("Invalid")).await?;
    shows(&site.space, REPORT, "deployment.apps.web.east", "the server's own words", |report| {
        report["message"].as_str().is_some_and(|message| message.contains("selector"))
    })
    .await?;
    let now = site.local(CONFIG, "web").await?;
    assert_eq!((now.uid(), now.resource_version()), (foreign.uid(), foreign.resource_version()));

    // Put right, it goes through.
    apply(&site.space, deployment("web", 1)).await?;
    shows(&site.local, DEPLOYMENT, "web", "the Deployment", |object| object["spec"]["replicas"] == 1).await?;
    shows(&site.space, REPORT, "deployment.apps.web.east", "no failure any more", |report| {
        report["progress"] == "Applied"
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_source_or_placement_replaces_nothing_at_the_target() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    site.place("web", CONFIG_MAPS, json!({})).await?;
    apply(&site.space, config("web", "1")).await?;
    shows(&site.local, CONFIG, "web", "the ConfigMap", |object| object["data"]["value"] == "1").await?;
    site.pass_along("witness").await?;
    let before = site.local(CONFIG, "web").await?;

    // The Placement, by one of another name.
    site.displace("web").await?;
    apply(&site.space, placed("renamed", "web", CONFIG_MAPS, &json!({}))).await?;
    site.settle("witness").await?;
    let after = site.local(CONFIG, "web").await?;
    assert_eq!((after.uid(), after.resource_version()), (before.uid(), before.resource_version()));

    // The source, under the agent's eyes.
    let kubectl = assets.kubectl(&site.hub.kubeconfig())?.with_context("default");
    kubectl.run_with_input(&["replace", "--force", "-f", "-"], &config("web", "2").to_string()).await?;
    let sources = api(&site.space, CONFIG.0, CONFIG.1, Some("shop"));
    let source = sources.get("web").await?.uid().context("a UID")?;
    assert_ne!(mark_of(&before)?.source_uid().to_string(), source);
    shows(&site.local, CONFIG, "web", "the new source", |object| object["data"]["value"] == "2").await?;
    let after = site.local(CONFIG, "web").await?;
    assert_eq!((after.uid(), mark_of(&after)?.source_uid().to_string()), (before.uid(), source));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_fields_meant_for_targets_are_sent() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    apply(&site.space, config("owner", "1")).await?;
    let sources = api(&site.space, CONFIG.0, CONFIG.1, Some("shop"));
    let owner = sources.get("owner").await?.uid();
    let mut source = config("web", "1");
    source["metadata"]["finalizers"] = json!(["test.example/hold"]);
    source["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner}]);
    apply(&site.space, source).await?;
    site.place("web", CONFIG_MAPS, json!({})).await?;

    // Its namespace comes along, though nothing selects it.
    shows(&site.local, CONFIG, "web", "the ConfigMap", |object| object["data"]["value"] == "1").await?;
    let local = site.local(CONFIG, "web").await?;
    assert!(local.finalizers().is_empty() && local.owner_references().is_empty(), "{:?}", local.metadata);

    // A source that is being deleted is assigned until it is gone.
    sources.delete("web", &DeleteParams::default()).await?;
    assert!(sources.get("web").await?.metadata.deletion_timestamp.is_some());
    site.pass_along("witness").await?;
    site.settle("witness").await?;
    let held = site.local(CONFIG, "web").await?;
    assert!(held.uid() == local.uid() && held.metadata.deletion_timestamp.is_none(), "{:?}", held.metadata);
    sources.patch("web", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}}))).await?;
    gone(&site.local, CONFIG, "web").await?;

    // The namespace is empty of ours, and stays.
    let left = api_cluster(&site.local, "v1", "Namespace").get("shop").await?;
    assert!(left.metadata.deletion_timestamp.is_none(), "{:?}", left.metadata);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn needless_writes_are_not_made() -> Result<()> {
    const LIMITS: (&str, &str) = ("v1", "LimitRange");
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    let mut web = [deployment("web", 1), deployment("second", 1), deployment("third", 1)];
    for deployment in &mut web {
        deployment["metadata"]["labels"]["app"] = json!("web");
    }
    site.place("web", &[("apps", "deployments")], json!({"mode": "CreateOnly"})).await?;
    site.place("limits", &[("", "limitranges")], json!({})).await?;
    apply(&site.space, web[0].clone()).await?;
    apply(
        &site.space,
        json!({
            "apiVersion": "v1", "kind": "LimitRange",
            "metadata": {"name": "limits", "namespace": "shop", "labels": {"app": "limits"}},
            "spec": {"limits": [{"type": "Container", "default": {"cpu": "0.5", "memory": "1024Mi"}}]},
        }),
    )
    .await?;

    // Created and then left alone; new ones are created.
    shows(&site.local, DEPLOYMENT, "web", "one replica", |object| object["spec"]["replicas"] == 1).await?;
    let created = site.local(DEPLOYMENT, "web").await?;
    web[0]["spec"]["replicas"] = json!(3);
    for deployment in web {
        apply(&site.space, deployment).await?;
    }
    for name in ["second", "third"] {
        shows(&site.local, DEPLOYMENT, name, "a Deployment", |object| object["spec"]["replicas"] == 1).await?;
    }
    site.pass_along("after").await?;
    let web = site.local(DEPLOYMENT, "web").await?;
    assert_eq!((web.uid(), &web.data["spec"]["replicas"]), (created.uid(), &json!(1)));

    // What the server rewrites is no drift, not even when another's edit has the agent compare again.
    shows(&site.local, LIMITS, "limits", "other words for the same", |object| {
        object["spec"]["limits"][0]["default"] == json!({"cpu": "500m", "memory": "1Gi"})
    })
    .await?;
    site.reported("limitrange.limits", "Applied", None).await?;
    let note = json!({"metadata": {"annotations": {"test.example/note": "theirs"}}});
    let limits = api(&site.local, LIMITS.0, LIMITS.1, Some("shop"));
    let noted = limits.patch("limits", &PatchParams::default(), &Patch::Merge(note)).await?;
    site.settle("after").await?;
    assert_eq!(site.local(LIMITS, "limits").await?.resource_version(), noted.resource_version());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_without_a_subresource_comes_back_and_is_written_nowhere() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    let resources = [("apiextensions.k8s.io", "customresourcedefinitions"), ("test.example", "things")];
    apply(&site.space, of_app("thing", definition())).await?;
    eventually_ok(SOON, "the kind to be served", async || apply(&site.space, thing("one")).await).await?;
    site.place("thing", &resources, json!({})).await?;
    site.reported("thing.test.example.one", "Applied", None).await?;
    let sources = api(&site.space, THING.0, THING.1, Some("shop"));
    let source = sources.get("one").await?;

    // Its controller at the target writes the object itself, which is a new generation.
    let status = json!({"size": 7, "conditions": [{"type": "Ready", "status": "False", "reason": "Resizing"}]});
    site.edit(THING, "one", json!({"status": status})).await?;
    shows(&site.space, REPORT, "thing.test.example.one.east", "the status", |report| report["status"] == status)
        .await?;
    let status = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "Resized"}]});
    let said = site.edit(THING, "one", json!({"status": status})).await?;
    shows(&site.space, ROLLUP, "thing.test.example.one", "it to be ready", |rollup| rollup["counts"]["ready"] == 1)
        .await?;

    // Neither the agent nor the hub answers that with a write.
    site.pass_along("witness").await?;
    site.settle("witness").await?;
    assert_eq!(site.local(THING, "one").await?.resource_version(), said.resource_version());
    let now = sources.get("one").await?;
    assert!(now.data.get("status").is_none(), "{now:?}");
    assert_eq!(now.resource_version(), source.resource_version());
    Ok(())
}
