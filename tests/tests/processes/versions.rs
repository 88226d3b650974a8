//! Data of another version: a process that cannot read it says which version does, and harms nothing.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tideline_agent::OwnNamespace;
use tideline_tests::fleet::Hub;
use tideline_tests::{EmbeddedCluster, Scratch, eventually_ok};

/// Twice the longest pause between two attempts, which is some seconds at first.
const SOON: Duration = Duration::from_mins(2);
const SECRET: &str = "tideline-agent-identity";

/// An identity as a newer version would write it.
fn newer(identity: &str) -> Result<String> {
    let own = format!("\"writtenBy\":\"{}\"", env!("CARGO_PKG_VERSION"));
    let text = identity.replace("\"schema\":1", "\"schema\":99").replace(&own, "\"writtenBy\":\"99.1.0\"");
    ensure!(text.contains("99.1.0") && text.contains("\"schema\":99"), "{text}");
    Ok(text)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_identity_is_newer_stays_up_frozen_and_goes_on_when_it_can_be_read() -> Result<()> {
    let scratch = Scratch::new("versions")?;
    let hub = Hub::start().await?;
    let cluster = EmbeddedCluster::start(scratch.path(), "store").await?;
    let own_namespace = OwnNamespace { namespace: Some("default".to_owned()), ..OwnNamespace::default() };
    let mut agent = hub.agent_with_own_namespace("store", cluster.kubeconfig(), own_namespace).await?;
    let is = async |agent: &tideline_tests::fleet::Agent, wanted: &str| {
        eventually_ok(SOON, wanted, async || {
            let said = agent.readiness().await?;
            ensure!(said.contains(wanted), "{said}");
            Ok(())
        })
        .await
    };
    is(&agent, "ok").await?;
    let file = agent.data_dir().join("identity.json");
    let secrets = Api::<Secret>::namespaced(cluster.client(), "default");
    let in_secret = secrets.get(SECRET).await?.data.context("data")?["identity.json"].clone();
    let replace = async |text: ByteString| {
        let patch = Patch::Merge(json!({"data": {"identity.json": text}}));
        secrets.patch(SECRET, &PatchParams::default(), &patch).await
    };

    agent.stop().await?;
    let former = fs::read_to_string(&file)?;
    let written = newer(&former)?;
    fs::write(&file, &written)?;
    agent.resume();
    is(&agent, "frozen").await?;
    assert_eq!(fs::read_to_string(&file)?, written, "it is left alone");
    fs::write(&file, &former)?;
    is(&agent, "ok").await?;

    agent.stop().await?;
    let of_secret = ByteString(newer(std::str::from_utf8(&in_secret.0)?)?.into_bytes());
    replace(of_secret.clone()).await?;
    agent.resume();
    is(&agent, "frozen").await?;
    assert_eq!(secrets.get(SECRET).await?.data.context("data")?["identity.json"], of_secret, "it is left alone");
    replace(in_secret).await?;
    is(&agent, "ok").await?;
    agent.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_whose_data_directory_is_newer_ends_and_names_the_version_that_reads_it() -> Result<()> {
    let mut hub = Hub::start().await?;
    hub.stop().await?;
    let (identity, version) = (hub.dir().join("identity.json"), hub.dir().join("written-by"));
    assert_eq!(fs::read_to_string(&version)?.trim(), env!("CARGO_PKG_VERSION"));
    let former = fs::read_to_string(&identity)?;
    let write = |path: &Path, text: &str| fs::write(path, text);
    write(&identity, &former.replace("\"schema\": 1", "\"schema\": 99"))?;
    write(&version, "99.1.0\n")?;
    let said = format!("{:#}", hub.resume().await.err().context("it served what it cannot read")?);
    ensure!(said.contains("run version 99.1.0, or a newer one"), "{said}");
    assert_eq!(fs::read_to_string(&version)?, "99.1.0\n", "who cannot read it has written nothing");
    write(&identity, &former)?;
    hub.resume().await
}
