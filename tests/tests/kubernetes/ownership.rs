//! What happens to objects that leave, that are replaced, that hold things of others, or that somebody copied.

use anyhow::{Result, ensure};
use kube::ResourceExt;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tideline_common::{MARK_ANNOTATION, MARK_LABEL};
use tideline_tests::kubernetes::{Audit, ClusterOptions};
use tideline_tests::{Condition, Scratch, eventually_ok, require_kubernetes};

use crate::objects::{
    CONFIG, DEFINITION, DEPLOYMENT, NAMESPACE, ROLLUP, SOON, THING, api, api_cluster, apply, config, definition,
    deployment, gone, gone_cluster, shows, shows_cluster, thing,
};
use crate::site::{
    CLUSTER_REPORT, CLUSTER_ROLLUP, CONFIG_MAPS, REPORT, Site, USER, mark_of, namespace, of_app, placed, value,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removal_is_followed_to_its_end_and_takes_nothing_that_came_after() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    site.place("web", CONFIG_MAPS, json!({})).await?;
    apply(&site.space, config("web", "1")).await?;
    site.reported("configmap.web", "Applied", None).await?;
    let held = json!({"metadata": {"finalizers": ["test.example/hold"]}});
    let before = site.edit(CONFIG, "web", held).await?;

    // Somebody's finalizer keeps it: the removal is reported as under way, for as long as it is.
    let sources = api(&site.space, CONFIG.0, CONFIG.1, Some("shop"));
    sources.delete("web", &DeleteParams::default()).await?;
    site.reported("configmap.web", "Deleting", Some("Finalizing")).await?;
    shows(&site.space, ROLLUP, "configmap.web", "a removal under way", |rollup| {
        rollup["counts"]["deleting"] == 1 && rollup["counts"]["expected"] == 0
    })
    .await?;
    let leaving = site.local(CONFIG, "web").await?;
    assert!(leaving.uid() == before.uid() && leaving.metadata.deletion_timestamp.is_some(), "{leaving:?}");

    // Recreated meanwhile, it waits for its key, and is not deleted by the removal of the other.
    apply(&site.space, config("web", "2")).await?;
    site.reported("configmap.web", "Pending", Some("Finalizing")).await?;
    site.edit(CONFIG, "web", json!({"metadata": {"finalizers": null}})).await?;
    shows(&site.local, CONFIG, "web", "the new one", |object| object["data"]["value"] == "2").await?;
    let after = site.local(CONFIG, "web").await?;
    let source = sources.get("web").await?.uid().unwrap_or_default();
    assert_eq!(mark_of(&after)?.source_uid().to_string(), source);
    assert_ne!(after.uid(), before.uid());
    site.reported("configmap.web", "Applied", None).await?;
    shows(&site.space, ROLLUP, "configmap.web", "nothing leaving", |rollup| {
        rollup["counts"]["deleting"] == 0 && rollup["counts"]["ready"] == 1
    })
    .await?;
    site.pass_along("witness").await?;
    site.settle("witness").await?;
    assert_eq!(site.local(CONFIG, "web").await?.uid(), after.uid());

    // A removal that nothing holds leaves no trace.
    sources.delete("web", &DeleteParams::default()).await?;
    gone(&site.local, CONFIG, "web").await?;
    gone(&site.space, ROLLUP, "configmap.web").await
}

/// An autoscaler's replicas, a field that somebody else added, and the status of a kind that has no subresource for it: each
/// is a new generation, and none is a change of what the agent applies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_of_other_managers_are_neither_corrected_nor_applied_again() -> Result<()> {
    let assets = require_kubernetes!();
    let directory = Scratch::new("audit")?;
    let audit = Audit::new(&directory)?;
    let options = ClusterOptions { apiserver_arguments: audit.arguments(), ..ClusterOptions::default() };
    let all = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]);
    let site = Site::kept_short(&assets, options, all).await?;
    for object in [definition(), deployment("web", 2), of_app("web", thing("web"))] {
        apply(&site.space, object).await?;
    }
    apply(&site.local, definition()).await?;
    let policy = json!({"fields": [{"path": "/spec/replicas", "mode": "Initial"}]});
    site.place("web", &[("apps", "deployments"), ("test.example", "things")], policy).await?;
    for report in ["deployment.apps.web", "thing.test.example.web"] {
        site.reported(report, "Applied", None).await?;
    }
    // What it was created with is in the agent's entry, and written anew when somebody first takes a field of that.
    let scale = async |replicas: i64| {
        let scaled = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        site.locals(DEPLOYMENT).patch_scale("web", &PatchParams::default(), &scaled).await
    };
    scale(3).await?;
    site.pass_along("before").await?;
    site.settle("before").await?;
    let writes = || {
        let requests = audit.requests(USER)?.into_values();
        let kept = requests.filter(|it| ["deployments", "things"].contains(&&*it.resource));
        anyhow::Ok(kept.filter(|it| !["get", "list", "watch"].contains(&&*it.verb)).count())
    };
    let before = writes()?;

    scale(5).await?;
    let added = site.edit(DEPLOYMENT, "web", json!({"spec": {"minReadySeconds": 7}})).await?;
    let told = site.edit(THING, "web", json!({"status": {"size": 1}})).await?;
    ensure!(added.metadata.generation >= Some(3) && told.metadata.generation >= Some(2), "{added:?} {told:?}");
    // Whatever the agent makes of that is done when it has done this.
    site.pass_along("after").await?;
    site.settle("after").await?;
    let after = site.local(DEPLOYMENT, "web").await?;
    ensure!(after.data["spec"]["replicas"] == 5 && after.data["spec"]["minReadySeconds"] == 7, "{after:?}");
    ensure!(writes()? == before, "{} writes, and there is nothing to write", writes()? - before);

    // The agent corrects its own fields.
    site.edit(
        DEPLOYMENT,
        "web",
        json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "theirs"}]}}}}),
    )
    .await?;
    shows(&site.local, DEPLOYMENT, "web", "the image to be put back", |it| {
        it["spec"]["template"]["spec"]["containers"][0]["image"] != "theirs"
    })
    .await?;
    ensure!(site.local(DEPLOYMENT, "web").await?.data["spec"]["replicas"] == 5, "what is theirs stays");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_recreated_while_its_deletion_is_sent_survives() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    site.place("web", CONFIG_MAPS, json!({})).await?;
    apply(&site.space, config("web", "1")).await?;
    site.reported("configmap.web", "Applied", None).await?;
    let before = site.local_uid(CONFIG, "web").await?;

    site.wire.set(Condition::Stalled);
    let sources = api(&site.space, CONFIG.0, CONFIG.1, Some("shop"));
    sources.delete("web", &DeleteParams::default()).await?;
    // Only the agent knows of the health: it has sent the deletion, and its API server has not heard it.
    shows(&site.space, REPORT, "configmap.web.east", "the deletion to be on its way", |report| {
        report["progress"] == "Deleting" && report["health"] == "Ready"
    })
    .await?;
    assert_eq!(site.local_uid(CONFIG, "web").await?, before);
    apply(&site.space, config("web", "2")).await?;
    shows(&site.space, ROLLUP, "configmap.web", "the new one to be expected", |rollup| {
        rollup["counts"]["expected"] == 1
    })
    .await?;
    site.wire.resume();

    shows(&site.local, CONFIG, "web", "the new one", |object| object["data"]["value"] == "2").await?;
    site.reported("configmap.web", "Applied", None).await?;
    let after = site.local(CONFIG, "web").await?;
    let source = sources.get("web").await?.uid().unwrap_or_default();
    assert_eq!(mark_of(&after)?.source_uid().to_string(), source);
    site.pass_along("witness").await?;
    site.settle("witness").await?;
    assert_eq!(site.local(CONFIG, "web").await?.uid(), after.uid());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_only_object_changes_owner_by_its_mark_alone_and_is_pruned_as_its_new_source_says() -> Result<()> {
    const NAMES: [&str; 2] = ["web", "kept"];
    let assets = require_kubernetes!();
    let mut site = Site::start(&assets).await?;
    for name in NAMES {
        site.place(name, CONFIG_MAPS, json!({"mode": "CreateOnly"})).await?;
        apply(&site.space, config(name, "1")).await?;
        site.reported(&format!("configmap.{name}"), "Applied", None).await?;
    }
    let mut before = Vec::new();
    for name in NAMES {
        before.push(site.edit(CONFIG, name, json!({"data": {"value": "local"}})).await?);
    }

    // Another namespace's objects are to have the very same keys, and wait for them.
    apply(&site.space, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "depot"}})).await?;
    let depot = |kind: (&str, &str)| api(&site.space, kind.0, kind.1, Some("depot"));
    let (sources, reports) = (depot(CONFIG), depot(REPORT));
    let mut uids = Vec::new();
    for (name, prune) in NAMES.into_iter().zip(["Delete", "Orphan"]) {
        let app = format!("depot-{name}");
        let mut source = of_app(&app, config(name, "2"));
        source["metadata"]["namespace"] = json!("depot");
        apply(&site.space, source).await?;
        uids.push(sources.get(name).await?.uid().unwrap_or_default());
        let mut placement = placed(&app, &app, CONFIG_MAPS, &json!({"mode": "CreateOnly", "prune": prune}));
        placement["spec"]["namespaceMapping"] = json!({"map": {"depot": "shop"}});
        apply(&site.space, placement).await?;
    }
    let reported = async |name: &str, progress: &str, reason: Option<&str>| {
        eventually_ok(SOON, &format!("{name} to be {progress}"), async || {
            let report = serde_json::to_value(reports.get(&format!("configmap.{name}.east.shop")).await?)?;
            ensure!(report["progress"] == progress && report["reason"].as_str() == reason, "{report}");
            anyhow::Ok(())
        })
        .await
    };
    for name in NAMES {
        reported(name, "Withheld", Some("Conflict")).await?;
        site.displace(name).await?;
    }

    let mut after = Vec::new();
    for ((name, before), uid) in NAMES.into_iter().zip(&before).zip(&uids) {
        eventually_ok(SOON, &format!("{name} to say whose it is by now"), async || {
            ensure!(mark_of(&site.local(CONFIG, name).await?)?.source_uid().to_string() == *uid, "it is the former's");
            anyhow::Ok(())
        })
        .await?;
        reported(name, "Applied", None).await?;
        // That is all that is written, and it is written once.
        let object = site.local(CONFIG, name).await?;
        assert_eq!((object.uid(), value(&object)), (before.uid(), &json!("local")));
        let unmarked = |object: &DynamicObject| {
            let mut metadata = object.metadata.clone();
            (metadata.resource_version, metadata.managed_fields) = (None, None);
            metadata.annotations.get_or_insert_default().remove(MARK_ANNOTATION);
            metadata
        };
        assert_eq!(unmarked(&object), unmarked(before));
        after.push(object);
    }
    site.agent.stop().await?;
    site.agent.resume();
    site.pass_along("witness").await?;
    for (name, after) in NAMES.into_iter().zip(after) {
        assert_eq!(site.local(CONFIG, name).await?.resource_version(), after.resource_version());
        sources.delete(name, &DeleteParams::default()).await?;
    }

    gone(&site.local, CONFIG, "web").await?;
    shows(&site.local, CONFIG, "kept", "the mark to go", |object| {
        object["metadata"]["labels"].get(MARK_LABEL).is_none() && object["data"]["value"] == "local"
    })
    .await?;
    eventually_ok(SOON, "nothing to be said of either any more", async || {
        for name in NAMES {
            let report = reports.get_opt(&format!("configmap.{name}.east.shop")).await?;
            ensure!(report.is_none(), "{report:?}");
        }
        anyhow::Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_or_definition_with_foreign_objects_stays_until_they_are_gone() -> Result<()> {
    const CLAIM: (&str, &str) = ("v1", "PersistentVolumeClaim");
    const HELD: [(&str, &str); 2] = [
        ("namespace.shop", "PersistentVolumeClaim shop/data"),
        ("customresourcedefinition.apiextensions.k8s.io.things.test.example", "Thing.test.example default/theirs"),
    ];
    let assets = require_kubernetes!();
    let mut site = Site::start(&assets).await?;
    for object in [namespace(), definition()] {
        apply(&site.space, of_app("base", object)).await?;
    }
    let resources = [("", "namespaces"), ("apiextensions.k8s.io", "customresourcedefinitions")];
    site.place("base", &resources, json!({})).await?;
    for (object, _) in HELD {
        applied_cluster(&site, object).await?;
    }
    let mut theirs = thing("theirs");
    theirs["metadata"]["namespace"] = json!("default");
    eventually_ok(SOON, "the kind to be served", async || apply(&site.local, theirs.clone()).await).await?;
    apply(
        &site.local,
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "shop"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }),
    )
    .await?;

    site.displace("base").await?;
    waits_for_others(&site, &HELD).await?;
    // A hub that starts anew says the same.
    site.hub.stop().await?;
    site.resume_hub().await?;
    waits_for_others(&site, &HELD).await?;
    for (kind, name) in [(NAMESPACE, "shop"), (DEFINITION, "things.test.example")] {
        let object = api_cluster(&site.local, kind.0, kind.1).get(name).await?;
        assert!(object.metadata.deletion_timestamp.is_none(), "{object:?}");
    }

    // When their foreign content is gone, so are they.
    site.delete_local(CLAIM, "data").await?;
    api(&site.local, THING.0, THING.1, Some("default")).delete("theirs", &DeleteParams::default()).await?;
    gone_cluster(&site.local, NAMESPACE, "shop").await?;
    gone_cluster(&site.local, DEFINITION, "things.test.example").await?;
    for (object, _) in HELD {
        gone_cluster(&site.space, CLUSTER_ROLLUP, object).await?;
        gone_cluster(&site.space, CLUSTER_REPORT, &format!("{object}.east")).await?;
    }
    Ok(())
}

async fn applied_cluster(site: &Site, object: &str) -> Result<()> {
    let check = |report: &Value| report["progress"] == "Applied";
    shows_cluster(&site.space, CLUSTER_REPORT, &format!("{object}.east"), "it to be applied", check).await
}

/// Waits until each removal is reported as held for what is in it, by report and rollup.
async fn waits_for_others(site: &Site, held: &[(&str, &str)]) -> Result<()> {
    for (object, content) in held {
        let says = |said: &Value| {
            said["reason"] == "NotEmpty" && said["message"].as_str().is_some_and(|message| message.contains(content))
        };
        let report = format!("{object}.east");
        shows_cluster(&site.space, CLUSTER_REPORT, &report, "a removal that is held", |report| {
            report["progress"] == "DeletionHeld" && says(report)
        })
        .await?;
        shows_cluster(&site.space, CLUSTER_ROLLUP, object, "a removal that is held", |rollup| {
            rollup["counts"]["deleting"] == 1 && rollup["counts"]["expected"] == 0 && says(&rollup["worst"][0])
        })
        .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_made_by_hand_is_reported_and_neither_deleted_nor_counted() -> Result<()> {
    const TARGET: (&str, &str) = ("tideline.dev/v1alpha1", "SyncTarget");
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    site.place("web", CONFIG_MAPS, json!({})).await?;
    apply(&site.space, config("web", "1")).await?;
    site.reported("configmap.web", "Applied", None).await?;
    // So that the kind is watched all along.
    site.pass_along("witness").await?;

    // As with `get -o yaml`, another name, and `create`.
    let mut copy = site.local(CONFIG, "web").await?;
    copy.metadata.name = Some("copy".to_owned());
    copy.metadata.uid = None;
    copy.metadata.resource_version = None;
    copy.metadata.managed_fields = None;
    let copy = site.locals(CONFIG).create(&PostParams::default(), &copy).await?;
    let copies = |target: &Value| {
        let conditions = target["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == "Copy")
    };
    shows_cluster(&site.root, TARGET, "east", "the copy to be told of", |target| {
        copies(target).is_some_and(|condition| {
            condition["status"] == "True"
                && condition["message"].as_str().is_some_and(|message| message.contains("ConfigMap shop/copy"))
        })
    })
    .await?;

    // Nor is it anything to take over.
    apply(&site.space, config("copy", "2")).await?;
    site.place("copy", CONFIG_MAPS, json!({"takeover": "Always"})).await?;
    site.reported("configmap.copy", "Withheld", Some("Copy")).await?;
    site.displace("copy").await?;
    gone(&site.space, REPORT, "configmap.copy.east").await?;

    shows(&site.space, ROLLUP, "configmap.web", "one and no more", |rollup| {
        let counts = &rollup["counts"];
        counts["expected"] == 1 && counts["ready"] == 1 && counts["reported"] == 1
    })
    .await?;
    site.displace("web").await?;
    gone(&site.local, CONFIG, "web").await?;
    let left = site.local(CONFIG, "copy").await?;
    assert_eq!((left.uid(), left.resource_version()), (copy.uid(), copy.resource_version()));
    assert_eq!(value(&left), "1");

    site.delete_local(CONFIG, "copy").await?;
    let targets = api_cluster(&site.root, TARGET.0, TARGET.1);
    eventually_ok(SOON, "nothing to be told of", async || {
        let target = serde_json::to_value(targets.get("east").await?)?;
        ensure!(copies(&target).is_none(), "{target}");
        anyhow::Ok(())
    })
    .await
}
