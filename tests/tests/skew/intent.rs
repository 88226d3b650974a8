//! What people want changes while one side is away, or is of another version.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{from_value, json};
use tideline_common::MARK_LABEL;
use tideline_tests::eventually_ok;

use super::harness::{NAMESPACE, SOON, Site};
use super::{SERVED_WITHIN, standing};

/// Placed so that it stays when its source goes, and placed so that it goes too.
const SORTS: [&str; 2] = ["kept", "gone"];
const SECRET: &str = "login";

/// Sources that were deleted, and the expected outcome for their objects once a hub serves.
#[derive(Debug)]
pub(super) struct Intent {
    /// A new object has reached the cluster: both sides understand each other.
    pub(super) served: bool,
    /// The names of each two, and the UID of the one that stays.
    deleted: Vec<(String, String)>,
    /// What the Secret says by now.
    login: String,
}

fn config_maps(client: kube::Client) -> Api<ConfigMap> {
    Api::namespaced(client, NAMESPACE)
}

impl Intent {
    /// Of a site that serves.
    pub(super) async fn new(site: &Site) -> Result<Self> {
        let clause = |resource: &str, app: &str| json!({"resources": [resource], "objectSelectors": [{"matchLabels": {"app": app}}]});
        let mut kept = clause("configmaps", "kept");
        kept["apply"] = json!({"prune": "Orphan"});
        let spec = json!({
            "targets": [{"matchLabels": {"tier": "shop"}}],
            "objects": [kept, clause("configmaps", "gone"), clause("secrets", "login")],
        });
        site.hub.create("default", "Placement", "intent", &spec).await?;
        let secret: Secret = from_value(json!({"metadata": {"name": SECRET, "labels": {"app": "login"}}}))?;
        let client = site.hub.client("default").await?;
        Api::namespaced(client, NAMESPACE).create(&PostParams::default(), &secret).await?;
        Ok(Self { served: true, deleted: Vec::new(), login: String::new() })
    }

    /// Makes two objects, of which the sources will go.
    pub(super) async fn make(&mut self, site: &Site, round: &str) -> Result<()> {
        let here = config_maps(site.hub.client("default").await?);
        for sort in SORTS {
            let made = json!({"metadata": {"name": format!("{sort}-{round}"), "labels": {"app": sort}}});
            here.create(&PostParams::default(), &from_value(made)?).await?;
        }
        let there = config_maps(site.cluster.client());
        let mut uids = Vec::new();
        for sort in SORTS {
            let name = format!("{sort}-{round}");
            let made = eventually_ok(SOON, &name, async || there.get(&name).await).await?;
            uids.push(made.metadata.uid.context("it was made")?);
        }
        self.deleted.push((round.to_owned(), uids.swap_remove(0)));
        Ok(())
    }

    /// The sources of the last two go, and the Secret says something else. Nobody is there to take that.
    pub(super) async fn change_while_away(&mut self, site: &Site) -> Result<()> {
        let client = site.hub.client("default").await?;
        if let Some((round, _)) = self.deleted.last() {
            for sort in SORTS {
                config_maps(client.clone()).delete(&format!("{sort}-{round}"), &DeleteParams::default()).await?;
            }
            round.clone_into(&mut self.login);
            let says = json!({"data": {"password": encoded(&self.login)}});
            let secrets = Api::<Secret>::namespaced(client, NAMESPACE);
            secrets.patch(SECRET, &PatchParams::default(), &Patch::Merge(says)).await?;
        }
        Ok(())
    }

    /// Objects to be kept are there, without marks; those to be removed are gone; and the Secret has its last content.
    pub(super) async fn is_done(&self, site: &Site) -> Result<()> {
        let there = config_maps(site.cluster.client());
        for (round, uid) in &self.deleted {
            let (kept, gone) = (format!("kept-{round}"), format!("gone-{round}"));
            eventually_ok(SERVED_WITHIN, &format!("{kept} to be let go of"), async || {
                let object = there.get(&kept).await?;
                ensure!(object.metadata.uid.as_ref() == Some(uid), "it was deleted or made again");
                ensure!(!object.metadata.labels.unwrap_or_default().contains_key(MARK_LABEL), "it has its mark");
                anyhow::Ok(())
            })
            .await?;
            eventually_ok(SERVED_WITHIN, &format!("{gone} to go"), async || {
                ensure!(there.get_opt(&gone).await?.is_none(), "it is there");
                anyhow::Ok(())
            })
            .await?;
        }
        let secrets = Api::<Secret>::namespaced(site.cluster.client(), NAMESPACE);
        eventually_ok(SERVED_WITHIN, "the Secret", async || {
            let said = secrets.get(SECRET).await?.data.unwrap_or_default().remove("password");
            let says = said.map(|said| String::from_utf8_lossy(&said.0).into_owned()).unwrap_or_default();
            ensure!(says == self.login, "it says {says:?}, and is to say {:?}", self.login);
            anyhow::Ok(())
        })
        .await
    }

    /// Whether or not a hub serves, objects to be kept are there.
    pub(super) async fn keeps(&self, site: &Site) -> Result<()> {
        let there = config_maps(site.cluster.client());
        for (round, uid) in &self.deleted {
            let object = there.get(&format!("kept-{round}")).await?;
            ensure!(object.metadata.uid.as_ref() == Some(uid), "kept-{round} was deleted or made again");
        }
        Ok(())
    }

    /// The cluster goes out of service, and keeps all that it has.
    pub(super) async fn decommission(&self, site: &Site) -> Result<()> {
        let before = standing(site).await?;
        site.hub.patch("root", "SyncTarget", "store", &json!({"spec": {"decommission": "Keep"}})).await?;
        let there = config_maps(site.cluster.client());
        eventually_ok(SERVED_WITHIN, "everything to be let go of", async || {
            let objects = there.list(&kube::api::ListParams::default().labels(MARK_LABEL)).await?.items;
            ensure!(objects.is_empty(), "{} objects have their mark", objects.len());
            anyhow::Ok(())
        })
        .await?;
        ensure!(standing(site).await? == before, "something was deleted or made again");
        self.keeps(site).await
    }
}

/// As a Secret's data has it.
fn encoded(text: &str) -> serde_json::Value {
    serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec())).expect("it is text")
}
