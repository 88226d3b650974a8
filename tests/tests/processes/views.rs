//! What the hub computes is read like what it stores: by list, and by name.

use anyhow::{Context, Result, ensure};
use http::Request;
use kube::Client;
use serde_json::Value;
use tideline_tests::{eventually_ok, require_binaries};

use crate::harness::{SOON, Site};

const ROOT: &str = "/apis/summary.tideline.dev/v1alpha1";

async fn read(space: &Client, path: &str) -> Result<Value> {
    let mut object: Value = space.request(Request::get(path).body(Vec::new())?).await?;
    // That of the moment.
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    Ok(object)
}

#[tokio::test]
async fn a_rollup_or_report_read_by_name_is_that_of_the_list() -> Result<()> {
    let binaries = require_binaries!();
    let site = Site::start(&binaries).await?;
    site.hub.place_config_maps().await?;
    // The name of the second begins like the report of the first at a target.
    for name in ["goods", "goods.store.eu"] {
        site.delivers(name).await?;
    }
    let space = site.hub.client("default").await?;
    for (resource, names) in [
        ("rollups", ["configmap.goods", "configmap.goods.store.eu"]),
        ("reports", ["configmap.goods.store", "configmap.goods.store.eu.store"]),
    ] {
        let path = format!("{ROOT}/namespaces/shop/{resource}");
        // Reports may change between the two.
        eventually_ok(SOON, &format!("the same {resource} both ways"), async || {
            let list = read(&space, &path).await?;
            let items = list["items"].as_array().context("a list")?;
            let named: Vec<_> = items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect();
            ensure!(named == names, "{resource} are named {named:?}");
            for (mut item, name) in items.iter().cloned().zip(names) {
                item["metadata"].as_object_mut().context("metadata")?.remove("resourceVersion");
                let one = read(&space, &format!("{path}/{name}")).await?;
                ensure!(one == item, "{one} in place of {item}");
                let selected = read(&space, &format!("{path}?fieldSelector=metadata.name%3D{name}")).await?;
                ensure!(selected["items"].as_array().is_some_and(|items| items.len() == 1), "{selected}");
            }
            Ok(())
        })
        .await?;
        for absent in ["configmap", "configmap.", "configmap.none", "configmap.goods.nowhere", "secret.goods", "goods"]
        {
            let error = read(&space, &format!("{path}/{absent}")).await.err().context("it is nowhere")?;
            ensure!(error.to_string().contains("not found"), "{absent}: {error}");
        }
    }
    Ok(())
}
