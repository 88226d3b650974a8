//! The intent for an object changes more than once while its agent is offline, or cannot write: it ends as it would have with
//! the agent online.

use anyhow::Result;
use kube::ResourceExt;
use serde_json::json;
use tideline_common::{MARK_ANNOTATION, MARK_LABEL, Origin, Prune};
use tideline_tests::kubernetes::ClusterOptions;
use tideline_tests::require_kubernetes;

use crate::objects::{CONFIG, apply, config, gone, shows};
use crate::site::{CONFIG_MAPS, Site, grant, mark_of, placed};

impl Site {
    /// Places one ConfigMap under each name, each by a Placement of its own.
    async fn place_each(&self, names: &[&str], policy: &serde_json::Value) -> Result<()> {
        for name in names {
            apply(&self.space, config(name, "1")).await?;
            self.place(name, CONFIG_MAPS, policy.clone()).await?;
        }
        for name in names {
            self.reported(&format!("configmap.{name}"), "Applied", None).await?;
        }
        Ok(())
    }

    /// It is unchanged, and carries no mark.
    async fn is_orphaned(&self, name: &str, uid: &str) -> Result<()> {
        shows(&self.local, CONFIG, name, "it without a mark", |object| {
            let metadata = &object["metadata"];
            metadata["labels"][MARK_LABEL].is_null() && metadata["annotations"][MARK_ANNOTATION].is_null()
        })
        .await?;
        assert_eq!(self.local_uid(CONFIG, name).await?, uid);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_policy_while_the_agent_was_offline_decides_what_becomes_of_objects() -> Result<()> {
    let assets = require_kubernetes!();
    let (delete, orphan) = (json!({}), json!({"prune": "Orphan"}));
    let mut site = Site::start(&assets).await?;
    site.place_each(&["orphaned", "moved", "again"], &delete).await?;
    site.place_each(&["deleted"], &orphan).await?;
    let mut uids = Vec::new();
    for name in ["orphaned", "moved", "again"] {
        uids.push(site.local_uid(CONFIG, name).await?);
    }

    site.agent.stop().await?;
    site.place("orphaned", CONFIG_MAPS, orphan.clone()).await?;
    site.place("again", CONFIG_MAPS, orphan.clone()).await?;
    site.place("deleted", CONFIG_MAPS, delete.clone()).await?;
    // Elsewhere, which is nowhere here.
    let mut elsewhere = placed("moved", "moved", CONFIG_MAPS, &delete);
    elsewhere["spec"]["targets"] = json!([{"matchLabels": {"tier": "elsewhere"}}]);
    apply(&site.space, elsewhere).await?;
    for name in ["orphaned", "deleted", "again"] {
        site.displace(name).await?;
    }
    for name in ["orphaned", "deleted", "again", "moved"] {
        site.expected(&format!("configmap.{name}"), 0).await?;
    }
    // There and back: the same source, under the same key.
    site.place("moved", CONFIG_MAPS, delete.clone()).await?;
    site.place("again", CONFIG_MAPS, delete.clone()).await?;
    for name in ["moved", "again"] {
        site.expected(&format!("configmap.{name}"), 1).await?;
    }
    site.agent.resume();

    gone(&site.local, CONFIG, "deleted").await?;
    site.is_orphaned("orphaned", &uids[0]).await?;
    site.reported("configmap.moved", "Applied", None).await?;
    let moved = site.local(CONFIG, "moved").await?;
    assert_eq!((moved.uid().as_deref(), mark_of(&moved)?.origin), (Some(uids[1].as_str()), Origin::Created));
    // It was due for orphaning in between, so that it is not ours to delete any more.
    shows(&site.local, CONFIG, "again", "it as adopted", |object| {
        let mark = object["metadata"]["annotations"][MARK_ANNOTATION].as_str().unwrap_or_default();
        mark.contains(r#""origin":"Adopted""#)
    })
    .await?;
    site.displace("again").await?;
    site.is_orphaned("again", &uids[2]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prune_policy_that_could_not_be_written_into_the_mark_decides_too() -> Result<()> {
    let assets = require_kubernetes!();
    let rights = |configs: &[&str]| {
        json!([
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": configs},
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "create", "patch"]},
        ])
    };
    let unpatched = rights(&["get", "list", "watch", "create", "delete"]);
    let mut site = Site::kept_short(&assets, ClusterOptions::default(), unpatched).await?;
    site.place_each(&["web"], &json!({})).await?;
    let uid = site.local_uid(CONFIG, "web").await?;

    // Its mark has the first policy.
    site.place("web", CONFIG_MAPS, json!({"prune": "Orphan"})).await?;
    site.reported("configmap.web", "Failed", Some("Forbidden")).await?;
    assert_eq!(mark_of(&site.local(CONFIG, "web").await?)?.prune, Prune::Delete);
    site.agent.stop().await?;
    site.displace("web").await?;
    site.expected("configmap.web", 0).await?;
    site.agent.resume();
    // It may not be orphaned yet either; to delete it is permitted.
    site.reported("configmap.web", "DeletionHeld", Some("Forbidden")).await?;
    grant(&site.local, &rights(&["*"])).await?;
    site.is_orphaned("web", &uid).await
}
