use std::sync::Arc;

use expect_test::{Expect, expect};
use serde_json::json;
use tideline_apiserver::{ApiServer, Config, Identity as User, SpaceConfig};
use tideline_store::SqliteStore;

use super::*;

pub(crate) const HUB: &str = "00000000-0000-4000-8000-000000000001";

/// The root space of a hub, in memory.
pub(crate) struct Root {
    pub(crate) server: Arc<ApiServer>,
    pub(crate) client: Client,
}

impl Root {
    /// With the hub's facts in it.
    pub(crate) async fn new() -> Self {
        let root = Self::without_facts().await;
        let facts = Facts {
            hub: HUB.parse().unwrap(),
            hub_key: vec![1; 32],
            authorities: vec![Authority::from_der([2; 8]).unwrap()],
            urls: vec!["https://hub.example.com".parse().unwrap(), "https://hub2.example.com".parse().unwrap()],
        };
        let api = Api::<ConfigMap>::namespaced(root.client.clone(), FACTS_NAMESPACE);
        api.create(&PostParams::default(), &ConfigMap::from(&facts)).await.unwrap();
        root
    }

    async fn without_facts() -> Self {
        let server = ApiServer::new(SqliteStore::in_memory().unwrap(), Config::default()).await.unwrap();
        let crds = tideline_api::root_crds().iter().map(|crd| serde_json::to_value(crd).unwrap()).collect();
        server.create_space("root", SpaceConfig { crds, ..SpaceConfig::default() }).await.unwrap();
        let client = Client::new(server.service("root", User::system()), "default");
        Self { server, client }
    }
}

pub(crate) fn request(name: &str, labels: BTreeMap<String, String>) -> TokenRequest {
    TokenRequest { kubeconfig: None, name: name.to_owned(), labels, expires: Duration::from_hours(1) }
}

async fn create(root: &Client, request: TokenRequest) -> Result<Token, Error> {
    create_in(root, request, Timestamp::now()).await
}

async fn refused(root: &Client, request: TokenRequest, expected: &Expect) {
    expected.assert_eq(&tideline_runtime::exit::chain(&create(root, request).await.unwrap_err()));
}

#[tokio::test]
async fn a_token_holds_the_private_half_of_the_key_that_the_hub_keeps() {
    let root = Root::new().await;
    let labels =
        BTreeMap::from([("region".to_owned(), "eu".to_owned()), ("example.com/empty".to_owned(), String::new())]);
    let now = "2026-03-01T10:00:00.7Z".parse().unwrap();
    let token = create_in(&root.client, request("store-0042", labels.clone()), now).await.unwrap();
    let kept = Api::<EnrolmentToken>::all(root.client).get("store-0042").await.unwrap().spec;
    let seed = token.seed.clone().try_into().unwrap();
    assert_eq!(kept.public_key.unwrap(), STANDARD.encode(SigningKey::from_seed(seed).public().as_bytes()));
    assert_eq!(kept.labels, labels);
    assert_eq!(kept.target_name, "store-0042");
    assert_eq!(kept.expires.0.to_string(), "2026-03-01T11:00:01Z");
    let urls: Vec<&str> = token.urls.iter().map(HubUrl::as_str).collect();
    assert_eq!(urls, ["https://hub.example.com", "https://hub2.example.com"]);
    assert_eq!((token.hub.to_string().as_str(), token.authorities[0].der()), (HUB, [2; 8].as_slice()));
    assert_eq!(token.hub_key.as_slice(), [1; 32].as_slice());
}

#[tokio::test]
async fn a_name_of_253_characters_is_good_and_one_more_is_not() {
    let root = Root::new().await;
    create(&root.client, request(&"s".repeat(253), BTreeMap::new())).await.unwrap();
    assert!(matches!(create(&root.client, request(&"s".repeat(254), BTreeMap::new())).await, Err(Error::Name(_))));
}

#[tokio::test]
async fn a_token_that_nobody_can_use_any_more_is_replaced() {
    let root = Root::new().await;
    let tokens = Api::<EnrolmentToken>::all(root.client.clone());
    let make = async || create(&root.client, request("store", BTreeMap::new())).await;
    let first = make().await.unwrap();
    let use_by = async |target_uid: Option<&str>| {
        let used_by = json!({"key": "key", "targetUid": target_uid, "at": "2026-03-01T10:00:00Z"});
        let status = json!({"status": {"used": true, "usedBy": used_by}});
        tokens.patch_status("store", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    };
    use_by(None).await;
    assert!(matches!(make().await, Err(Error::Exists(_))), "its SyncTarget is being made");
    use_by(Some("11111111-1111-4111-8111-111111111111")).await;
    let second = make().await.unwrap();
    assert_ne!(first.seed, second.seed);
    assert!(!tokens.get("store").await.unwrap().status.unwrap_or_default().used);
    let expired = json!({"spec": {"expires": "2026-01-01T00:00:00Z"}});
    tokens.patch("store", &PatchParams::default(), &Patch::Merge(&expired)).await.unwrap();
    assert_ne!(make().await.unwrap().seed, second.seed);
}

#[tokio::test]
async fn what_cannot_be_made_is_said_with_what_to_do() {
    let root = Root::new().await;
    let none = BTreeMap::new;
    create(&root.client, request("store", none())).await.unwrap();
    refused(&root.client, request("store", none()), &expect![[r#"there is an enrolment token "store" already that an agent may still use; choose another name, or delete it: kubectl --context root delete enrolmenttoken store"#]]).await;
    let mut enrolled = SyncTarget::new("old-store", tideline_api::SyncTargetSpec::default());
    enrolled.annotations_mut().insert(AGENT_KEY_ANNOTATION.to_owned(), "key".to_owned());
    Api::<SyncTarget>::all(root.client.clone()).create(&PostParams::default(), &enrolled).await.unwrap();
    refused(&root.client, request("old-store", none()), &expect![[r#"there is a SyncTarget "old-store" with an agent already; choose another name, or shut that agent out: tideline-hub targets revoke old-store"#]]).await;
    refused(&root.client, request("Store/1", none()), &expect![[r#""Store/1" cannot be the name of a token and of its SyncTarget: lower case letters, digits, '-' and '.', at most 253 of them, are needed"#]]).await;
    let label = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    refused(
        &root.client,
        request("new", label("a b", "c")),
        &expect![[r#"the labels cannot be given to a SyncTarget: "a b" cannot be the key of a label"#]],
    )
    .await;
    refused(&root.client, request("new", label("region", &"x".repeat(64))), &expect![[r#"the labels cannot be given to a SyncTarget: "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" cannot be the value of the label "region""#]]).await;
    let for_ever = TokenRequest { expires: Duration::MAX, ..request("new", none()) };
    refused(
        &root.client,
        for_ever,
        &expect!["a token can be made for at most 365 days; agents that enrolled need it no more"],
    )
    .await;
    refused(&Root::without_facts().await.client, request("new", none()), &expect!["the ConfigMap default/tideline-hub of the root space is missing or damaged; restart the hub, which writes it anew"]).await;
}
