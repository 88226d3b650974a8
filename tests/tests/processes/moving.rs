//! A hub that moves: to another port, name and authority, or behind a proxy. Its agents know it by its key.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use serde_json::{from_value, json};
use tideline_agent::HubAddress;
use tideline_hub::PublicCa;
use tideline_hub::identity::{Rotation, rotate};
use tideline_hub::token::{self, TokenRequest};
use tideline_tests::fleet::{Agent, Hub};
use tideline_tests::{EmbeddedCluster, Scratch, TlsProxy, eventually_ok, free_port};

use crate::harness::{NAMESPACE, place};

/// A change on its way to all of them, and an agent's longest pause between two tries, twice.
const SOON: Duration = Duration::from_mins(2);
const AGENTS: usize = 20;

struct Member {
    cluster: EmbeddedCluster,
    agent: Agent,
}

impl Member {
    /// The UID of a ConfigMap in the agent's cluster, once it is there.
    async fn has(&self, name: &str) -> Result<String> {
        let there = Api::<ConfigMap>::namespaced(self.cluster.client(), NAMESPACE);
        let found = eventually_ok(SOON, name, async || there.get(name).await).await?;
        found.metadata.uid.context("a UID")
    }
}

async fn join(hub: &Hub, scratch: &Scratch, name: &str) -> Result<Member> {
    let cluster = EmbeddedCluster::start(scratch.path(), name).await?;
    let agent = hub.agent(name, &[("tier", "shop")], cluster.kubeconfig(), None).await?;
    Ok(Member { cluster, agent })
}

async fn all_have(members: &[Member], name: &str) -> Result<Vec<String>> {
    try_join_all(members.iter().map(|member| member.has(name))).await
}

/// Makes the ConfigMap `name`, which goes to every agent.
async fn make(hub: &Hub, name: &str) -> Result<()> {
    let object: ConfigMap = from_value(json!({"metadata": {"name": name, "labels": {"app": "web"}}}))?;
    Api::<ConfigMap>::namespaced(hub.client("default").await?, NAMESPACE)
        .create(&PostParams::default(), &object)
        .await?;
    Ok(())
}

fn kind(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("tideline.dev", "v1alpha1", kind))
}

async fn targets(hub: &Hub) -> Result<Vec<DynamicObject>> {
    let api = Api::<DynamicObject>::all_with(hub.client("root").await?, &kind("SyncTarget"));
    Ok(api.list(&ListParams::default()).await?.items)
}

/// The identities of the agents at the hub.
async fn identities(hub: &Hub) -> Result<Vec<(Option<String>, Option<String>)>> {
    Ok(targets(hub).await?.into_iter().map(|it| (it.metadata.name, it.metadata.uid)).collect())
}

/// Waits until `count` agents have been in contact with the present run of the hub.
async fn in_contact(hub: &Hub, count: usize) -> Result<()> {
    eventually_ok(SOON, "every agent in contact", async || {
        let ready = |it: &DynamicObject| it.data["status"]["phase"] == "Ready";
        let found = targets(hub).await?.iter().filter(|it| ready(it)).count();
        ensure!(found >= count, "{found} of {count}");
        Ok(())
    })
    .await
}

fn url(host: &str, port: u16) -> Result<tideline_common::HubUrl> {
    Ok(format!("https://{host}:{port}").parse()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_follow_a_hub_to_another_port_name_and_authority_and_keep_what_they_have() -> Result<()> {
    let scratch = Scratch::new("moving")?;
    let mut hub = Hub::start().await?;
    hub.stop().await?;
    let (old, new) = (hub.address().port(), free_port()?);
    hub.public_url = vec![url("127.0.0.1", old)?];
    hub.resume().await?;
    place(&hub.client("default").await?).await?;
    make(&hub, "before").await?;
    let names: Vec<String> = (0..AGENTS).map(|number| format!("store-{number}")).collect();
    let members = try_join_all(names.iter().map(|name| join(&hub, &scratch, name))).await?;
    let mut by_option = join(&hub, &scratch, "away-1").await?;
    let mut by_token = join(&hub, &scratch, "away-2").await?;
    let had = all_have(&members, "before").await?;
    let away_had = (by_option.has("before").await?, by_token.has("before").await?);
    let known = identities(&hub).await?;
    assert_eq!(known.len(), AGENTS + 2);
    by_option.agent.stop().await?;
    by_token.agent.stop().await?;

    // The hub announces its next address and authority.
    hub.stop().await?;
    rotate(hub.dir(), Rotation::Prepare)?;
    hub.public_url = vec![url("127.0.0.1", old)?, url("localhost", new)?];
    hub.resume().await?;
    make(&hub, "announced").await?;
    all_have(&members, "announced").await?;

    hub.stop().await?;
    rotate(hub.dir(), Rotation::Switch)?;
    hub.listen_at(SocketAddr::from((Ipv4Addr::LOCALHOST, new)));
    hub.public_url = vec![url("localhost", new)?];
    hub.resume().await?;
    make(&hub, "moved").await?;
    all_have(&members, "moved").await?;

    hub.stop().await?;
    rotate(hub.dir(), Rotation::Retire)?;
    hub.resume().await?;
    make(&hub, "after").await?;
    all_have(&members, "after").await?;
    in_contact(&hub, AGENTS).await?;
    assert_eq!(all_have(&members, "before").await?, had, "nothing was made anew");

    // Agents that were down know nothing of it. One is told on site, the other by a token of the same hub.
    by_option.agent.hub = HubAddress { hub_url: Some(url("localhost", new)?), hub_ca: Some(hub.dir().join("ca.crt")) };
    by_option.agent.resume();
    by_option.has("after").await?;
    let request = TokenRequest {
        kubeconfig: Some(hub.kubeconfig()),
        name: "for-those-who-were-away".to_owned(),
        labels: [].into(),
        expires: Duration::from_hours(1),
    };
    let file = by_token.agent.token_file.clone().context("the token that it enrolled with")?;
    fs::write(file, token::create(request).await?.to_string())?;
    by_token.agent.resume();
    by_token.has("after").await?;
    assert_eq!((by_option.has("before").await?, by_token.has("before").await?), away_had);
    in_contact(&hub, AGENTS + 2).await?;
    assert_eq!(identities(&hub).await?, known, "nobody enrolled again");

    // An agent knows what it was told once.
    by_option.agent.stop().await?;
    by_option.agent.hub = HubAddress::default();
    by_option.agent.resume();
    make(&hub, "at-last").await?;
    by_option.has("at-last").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_with_a_private_authority_serves_agents_and_administrators() -> Result<()> {
    let scratch = Scratch::new("proxied")?;
    let mut hub = Hub::start().await?;
    place(&hub.client("default").await?).await?;
    make(&hub, "before").await?;
    let mut member = join(&hub, &scratch, "store").await?;
    let had = member.has("before").await?;
    member.agent.stop().await?;
    hub.stop().await?;

    // From now on there is no other way to it: the announced address is the proxy's.
    let hub_ca = fs::read_to_string(hub.dir().join("ca.crt"))?;
    hub.listen_at(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)));
    let proxy = TlsProxy::start(hub.address(), &hub_ca).await?;
    let proxy_ca: PathBuf = scratch.join("proxy.pem");
    fs::write(&proxy_ca, proxy.ca_pem())?;
    hub.public_url = vec![url("localhost", proxy.address().port())?];
    hub.public_ca = Some(PublicCa::File(proxy_ca.clone()));
    // It serves when its admin.kubeconfig works, which leads through the proxy.
    hub.resume().await?;
    let server = fs::read_to_string(hub.kubeconfig())?;
    ensure!(server.contains(&proxy.address().port().to_string()), "{server}");
    make(&hub, "after").await?;

    member.agent.hub = HubAddress { hub_url: Some(hub.public_url[0].clone()), hub_ca: Some(proxy_ca) };
    member.agent.resume();
    member.has("after").await?;
    assert_eq!(member.has("before").await?, had);
    // An agent that joins now is told by the token alone.
    let other = join(&hub, &scratch, "other").await?;
    other.has("after").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_missing_damaged_or_foreign_token_stops_an_enrolled_agent() -> Result<()> {
    let scratch = Scratch::new("tokens")?;
    let hub = Hub::start().await?;
    place(&hub.client("default").await?).await?;
    make(&hub, "before").await?;
    let mut member = join(&hub, &scratch, "store").await?;
    let had = member.has("before").await?;
    let file = member.agent.token_file.clone().context("the token that it enrolled with")?;
    let genuine: tideline_common::EnrolmentToken = fs::read_to_string(&file)?.parse()?;
    // It names another address, where nobody is, and another key.
    let foreign = tideline_common::EnrolmentToken {
        hub_key: vec![3; 32],
        urls: vec![url("127.0.0.1", free_port()?)?],
        seed: vec![4; 32],
        ..genuine
    };
    let tokens = [Some(foreign.to_string()), Some("damaged".to_owned()), None];
    for (number, token) in tokens.into_iter().enumerate() {
        member.agent.stop().await?;
        match token {
            Some(token) => fs::write(&file, token)?,
            None => fs::remove_file(&file)?,
        }
        member.agent.resume();
        let name = format!("after-{number}");
        make(&hub, &name).await?;
        member.has(&name).await?;
    }
    assert_eq!(member.has("before").await?, had);
    Ok(())
}
