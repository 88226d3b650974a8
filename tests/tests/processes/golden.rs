//! A data directory of a hub as it was written once, which every later version serves as it was.
//!
//! `TIDELINE_RECORD=1` has it written anew first.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{from_value, json};
use tideline_tests::fleet::Hub;
use tideline_tests::{EmbeddedCluster, Scratch, eventually_ok};

use crate::harness::place;

const SOON: Duration = Duration::from_mins(1);
/// The rest of a hub's directory is made at each start.
const FILES: [&str; 3] = ["store.db", "identity.json", "written-by"];
const NAMES: [&str; 3] = ["web-0", "web-1", "web-2"];

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/hub")
}

fn dynamic(client: &Client, group: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1alpha1", kind));
    Api::all_with(client.clone(), &resource)
}

/// A small hub: one agent that has three ConfigMaps, and has not confirmed yet that a fourth is gone.
async fn record() -> Result<()> {
    let scratch = Scratch::new("golden")?;
    let mut hub = Hub::start().await?;
    let cluster = EmbeddedCluster::start(scratch.path(), "store").await?;
    let mut agent = hub.agent("store", &[("tier", "shop")], cluster.kubeconfig(), None).await?;
    place(&hub.client("default").await?).await?;
    let sources = Api::<ConfigMap>::namespaced(hub.client("default").await?, "shop");
    for name in NAMES.into_iter().chain(["web-gone"]) {
        let object = from_value(json!({"metadata": {"name": name, "labels": {"app": "web"}}, "data": {"from": name}}))?;
        sources.create(&PostParams::default(), &object).await?;
    }
    let there = Api::<ConfigMap>::namespaced(cluster.client(), "shop");
    for name in NAMES.into_iter().chain(["web-gone"]) {
        eventually_ok(SOON, name, async || there.get(name).await).await?;
    }
    agent.stop().await?;
    sources.delete("web-gone", &DeleteParams::default()).await?;
    let removals = removals(&hub, 1);
    removals.await?;
    hub.stop().await?;
    let _none = fs::remove_dir_all(golden());
    fs::create_dir_all(golden())?;
    for file in FILES {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&fs::read(hub.dir().join(file))?)?;
        fs::write(golden().join(format!("{file}.gz")), encoder.finish()?)?;
    }
    Ok(())
}

/// Waits until reports say that so many are to be removed.
async fn removals(hub: &Hub, count: usize) -> Result<()> {
    let reports = dynamic(&hub.client("default").await?, "summary.tideline.dev", "Report");
    eventually_ok(SOON, "the removals", async || {
        let listed = reports.list(&ListParams::default()).await?;
        let names: Vec<_> = listed.items.iter().map(|it| it.metadata.name.clone().unwrap_or_default()).collect();
        let gone = names.iter().filter(|name| name.contains("web-gone")).count();
        ensure!(gone == count, "{names:?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_golden_data_directory_of_a_hub_is_served_as_it_was() -> Result<()> {
    if std::env::var_os("TIDELINE_RECORD").is_some() {
        record().await?;
    }
    let mut hub = Hub::start().await?;
    hub.stop().await?;
    for file in fs::read_dir(hub.dir())? {
        let file = file?.path();
        if file.is_dir() { fs::remove_dir_all(file)? } else { fs::remove_file(file)? }
    }
    for file in FILES {
        let mut plain = Vec::new();
        GzDecoder::new(&*fs::read(golden().join(format!("{file}.gz")))?).read_to_end(&mut plain)?;
        fs::write(hub.dir().join(file), plain)?;
    }
    hub.resume().await?;
    let target = dynamic(&hub.client("root").await?, "tideline.dev", "SyncTarget").get("store").await?;
    ensure!(target.data["status"]["agentVersion"].is_string(), "{target:?}");
    let space = hub.client("default").await?;
    let sources = Api::<ConfigMap>::namespaced(space.clone(), "shop").list(&ListParams::default()).await?;
    let data: BTreeMap<_, _> =
        sources.items.into_iter().filter_map(|it| Some((it.metadata.name?, it.data?["from"].clone()))).collect();
    ensure!(data == NAMES.map(|name| (name.to_owned(), name.to_owned())).into(), "{data:?}");
    let placement = dynamic(&space, "tideline.dev", "Placement").get("everywhere").await?;
    ensure!(placement.data["spec"]["objects"][0]["resources"][0] == "configmaps", "{placement:?}");
    // The ledger: what is assigned, and what is not confirmed to be gone.
    let rollups = dynamic(&space, "summary.tideline.dev", "Rollup");
    eventually_ok(SOON, "the rollups", async || {
        let listed = rollups.list(&ListParams::default()).await?;
        let names: Vec<_> = listed.items.iter().map(|it| it.metadata.name.clone().unwrap_or_default()).collect();
        ensure!(NAMES.iter().all(|name| names.iter().any(|it| it.contains(name))), "{names:?}");
        Ok(())
    })
    .await
    .context("what was assigned")?;
    removals(&hub, 1).await?;
    hub.stop().await
}
