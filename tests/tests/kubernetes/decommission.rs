//! A cluster goes out of service: emptied, or left as it is without us.

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tideline_common::{MARK_ANNOTATION, MARK_LABEL};
use tideline_tests::{eventually_ok, require_kubernetes};

use crate::identity::SYNC_TARGET;
use crate::objects::{
    CONFIG, DEPLOYMENT, NAMESPACE, SOON, api_cluster, apply, config, deployment, gone_cluster, shows,
};
use crate::site::{Site, of_app, value};

const OBJECTS: usize = 30;

/// Thirty ConfigMaps and a Deployment in a namespace that is placed too: more than the fuse lets pass.
async fn filled(site: &Site) -> Result<()> {
    for nth in 0..OBJECTS {
        apply(&site.space, of_app("web", config(&format!("web-{nth:02}"), "1"))).await?;
    }
    apply(&site.space, deployment("web", 1)).await?;
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"app": "web"}},
    });
    apply(&site.space, namespace).await?;
    site.place("web", &[("", "configmaps"), ("", "namespaces"), ("apps", "deployments")], json!({})).await?;
    for nth in 0..OBJECTS {
        site.reported(&format!("configmap.web-{nth:02}"), "Applied", None).await?;
    }
    site.reported("deployment.apps.web", "Applied", None).await
}

async fn decommission(site: &Site, how: Value) -> Result<()> {
    let targets = api_cluster(&site.root, SYNC_TARGET.0, SYNC_TARGET.1);
    let change = Patch::Merge(json!({"spec": {"decommission": how}}));
    targets.patch("east", &PatchParams::default(), &change).await?;
    Ok(())
}

async fn says(site: &Site, status: &str, reason: &str, message: &str) -> Result<()> {
    let targets = api_cluster(&site.root, SYNC_TARGET.0, SYNC_TARGET.1);
    eventually_ok(SOON * 2, &format!("Decommissioned {status} {reason}"), async || {
        let target = targets.get("east").await?;
        let conditions = target.data["status"]["conditions"].as_array().context("conditions")?;
        let condition = conditions.iter().find(|condition| condition["type"] == "Decommissioned").context("none")?;
        let text = condition["message"].as_str().unwrap_or_default();
        let so = condition["status"] == status && condition["reason"] == reason && text.contains(message);
        ensure!(so, "{condition}");
        anyhow::Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_emptied_of_what_is_ours_and_nothing_else() -> Result<()> {
    let assets = require_kubernetes!();
    let mut site = Site::with_own_namespace(&assets).await?;
    filled(&site).await?;
    site.preexisting(config("stranger", "theirs")).await?;

    // It carries out its orders, though it ends in between, and the hub is away.
    site.agent.stop().await?;
    decommission(&site, json!("Remove")).await?;
    says(&site, "False", "Removing", "has not been heard").await?;
    site.agent.resume();
    says(&site, "False", "Removing", "NotEmpty").await?;
    let placed = |label: &str| ListParams::default().labels(label);
    let left = site.locals(CONFIG).list(&placed(MARK_LABEL)).await?.items;
    assert!(left.is_empty(), "{:?}", left.iter().map(ResourceExt::name_any).collect::<Vec<_>>());
    assert!(site.locals(DEPLOYMENT).get_opt("web").await?.is_none());
    assert_eq!(value(&site.local(CONFIG, "stranger").await?), "theirs");

    // Somebody removes what is in the way.
    site.delete_local(CONFIG, "stranger").await?;
    site.agent.stop().await?;
    site.agent.resume();
    gone_cluster(&site.local, NAMESPACE, "shop").await?;
    says(&site, "True", "Removed", "may be deleted").await?;

    // In service again, it gets everything again.
    decommission(&site, Value::Null).await?;
    shows(&site.local, CONFIG, "web-00", "what is placed", |it| it["data"]["value"] == "1").await?;
    site.reported("deployment.apps.web", "Applied", None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_objects_are_unchanged_and_lose_our_marks() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::with_own_namespace(&assets).await?;
    filled(&site).await?;
    let uid = site.local_uid(DEPLOYMENT, "web").await?;
    decommission(&site, json!("Keep")).await?;
    says(&site, "True", "Kept", "not managed any more").await?;

    let configs = site.locals(CONFIG).list(&ListParams::default()).await?.items;
    let kept: Vec<_> = configs.iter().filter(|config| config.name_any().starts_with("web-")).collect();
    assert_eq!(kept.len(), OBJECTS);
    let web = site.local(DEPLOYMENT, "web").await?;
    let shop = api_cluster(&site.local, NAMESPACE.0, NAMESPACE.1).get("shop").await?;
    assert_eq!(web.uid(), Some(uid));
    for object in kept.into_iter().chain([&web, &shop]) {
        let name = object.name_any();
        assert!(!object.labels().contains_key(MARK_LABEL), "{name}");
        assert!(!object.annotations().contains_key(MARK_ANNOTATION), "{name}");
        let ours = object.managed_fields().iter().filter_map(|entry| entry.manager.as_deref());
        assert_eq!(ours.filter(|manager| manager.starts_with("tideline")).count(), 0, "{name}");
    }

    // The record may be deleted now: nothing happens to the objects.
    api_cluster(&site.root, SYNC_TARGET.0, SYNC_TARGET.1).delete("east", &DeleteParams::default()).await?;
    crate::identity::freezes(&site.agent).await?;
    assert_eq!(value(&site.local(CONFIG, "web-07").await?), "1");
    Ok(())
}
