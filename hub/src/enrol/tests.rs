use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::DeleteParams;
use tideline_apiserver::ApiServer;
use tideline_common::signature::SigningKey;
use tideline_common::wire::v1::ClusterFacts;

use super::*;
use crate::token::create_in;
use crate::token::tests::{HUB, Root, request as token_request};

struct Site {
    _server: std::sync::Arc<ApiServer>,
    root: Client,
    tokens: Api<EnrolmentToken>,
    targets: Api<SyncTarget>,
}

impl Site {
    /// A root space that holds the token `store`.
    async fn new() -> Self {
        let Root { server, client } = Root::new().await;
        let site =
            Self { _server: server, tokens: Api::all(client.clone()), targets: Api::all(client.clone()), root: client };
        site.token("store").await;
        site
    }

    async fn token(&self, name: &str) -> VerifyingKey {
        let labels = BTreeMap::from([("region".to_owned(), "eu".to_owned())]);
        create_in(&self.root, token_request(name, labels), Timestamp::now()).await.unwrap();
        token_key(&self.root, name).await.unwrap().unwrap()
    }

    async fn enrol(&self, token: &str, agent: u8) -> Result<EnrolAnswer, String> {
        self.enrol_after(token, agent, &[]).await
    }

    /// Enrols where these keys are known of whatever target there is.
    async fn enrol_after(&self, token: &str, agent: u8, former: &[u8]) -> Result<EnrolAnswer, String> {
        let former = |_| former.iter().copied().map(key).collect();
        let enrolled = enrol(&self.root, request(token, agent), HUB.parse().unwrap(), &former).await;
        enrolled.map_err(|refusal| refusal.message)
    }
}

fn request(token: &str, agent: u8) -> EnrolRequest {
    let cluster = Some("99999999-9999-4999-8999-999999999999".parse().unwrap());
    let facts = ClusterFacts { cluster, ..ClusterFacts::default() };
    let (token, hub) = (token.to_owned(), HUB.parse().unwrap());
    let bare = EnrolRequest { token, agent_key: Vec::new(), hub, facts, proof: Vec::new() };
    bare.proven(&SigningKey::from_seed([agent; 32]))
}

fn key(agent: u8) -> String {
    STANDARD.encode(SigningKey::from_seed([agent; 32]).public().as_bytes())
}

#[tokio::test]
async fn enrolment_makes_a_target_that_carries_the_agents_key() {
    let site = Site::new().await;
    let answer = site.enrol("store", 7).await.unwrap();
    let target = site.targets.get("store").await.unwrap();
    assert_eq!(answer.name, "store");
    assert_eq!(target.uid().unwrap(), answer.target.to_string());
    assert_eq!(target.labels()["region"], "eu");
    assert_eq!(target.annotations()[AGENT_KEY_ANNOTATION], key(7));
    assert_eq!(target.annotations()[CLUSTER_ANNOTATION], "99999999-9999-4999-8999-999999999999");
    let status = site.tokens.get("store").await.unwrap().status.unwrap();
    assert!(status.used);
    assert_eq!(status.used_by.unwrap().target_uid.unwrap(), answer.target.to_string());
}

#[tokio::test]
async fn repeating_an_enrolment_writes_nothing_and_answers_alike() {
    let site = Site::new().await;
    let first = site.enrol("store", 7).await.unwrap();
    let token = site.tokens.get("store").await.unwrap();
    let target = site.targets.get("store").await.unwrap();
    assert_eq!(site.enrol("store", 7).await.unwrap(), first);
    assert_eq!(site.tokens.get("store").await.unwrap(), token);
    assert_eq!(site.targets.get("store").await.unwrap(), target);
}

#[tokio::test]
async fn of_two_agents_with_one_token_one_wins() {
    let site = Site::new().await;
    for round in 0..8 {
        let name = format!("store-{round}");
        site.token(&name).await;
        let (one, other) = tokio::join!(site.enrol(&name, 7), site.enrol(&name, 8));
        assert_eq!(u8::from(one.is_ok()) + u8::from(other.is_ok()), 1, "{one:?} {other:?}");
        let winner = if one.is_ok() { 7 } else { 8 };
        assert_eq!(site.targets.get(&name).await.unwrap().annotations()[AGENT_KEY_ANNOTATION], key(winner));
    }
}

#[tokio::test]
async fn one_agent_that_asks_twice_at_once_gets_one_target() {
    let site = Site::new().await;
    let (one, other) = tokio::join!(site.enrol("store", 7), site.enrol("store", 7));
    assert_eq!(one.unwrap(), other.unwrap());
}

#[tokio::test]
async fn a_crash_between_any_two_writes_is_taken_up_by_the_same_agent_only() {
    let site = Site::new().await;
    // After the first write.
    let edge_request = request("store", 7);
    let edge = Edge {
        tokens: site.tokens.clone(),
        targets: site.targets.clone(),
        request: &edge_request,
        hub: HUB.parse().unwrap(),
        former: &|_| Vec::new(),
    };
    let token = site.tokens.get("store").await.unwrap();
    let claimed = edge.record(token, None, Timestamp::now()).await.map_err(|_| "refused").unwrap();
    assert!(site.enrol("store", 8).await.is_err());
    // After the second.
    let made = edge.make(&TokenState::from(&claimed).target).await.map_err(|_| "refused").unwrap();
    assert!(site.enrol("store", 8).await.is_err());
    assert_eq!(site.enrol("store", 7).await.unwrap().target.to_string(), made.uid().unwrap());
}

#[tokio::test]
async fn who_has_a_token_cannot_enrol_with_a_key_of_somebody_else() {
    let site = Site::new().await;
    let stolen = EnrolRequest { agent_key: request("store", 7).agent_key, ..request("store", 8) };
    let refused = enrol(&site.root, stolen, HUB.parse().unwrap(), &|_| Vec::new()).await.unwrap_err();
    assert!(refused.message.contains("does not prove"), "{}", refused.message);
    assert!(site.targets.get_opt("store").await.unwrap().is_none());
    site.enrol("store", 7).await.unwrap();
}

/// The key was taken off by hand, and whoever runs the hub has made a token for another agent.
#[tokio::test]
async fn an_enrolment_revokes_the_keys_that_its_sync_target_had() {
    let site = Site::new().await;
    site.enrol("store", 7).await.unwrap();
    let off = json!({"metadata": {"annotations": {AGENT_KEY_ANNOTATION: null, REVOKED_KEYS_ANNOTATION: key(5)}}});
    site.targets.patch("store", &PatchParams::default(), &Patch::Merge(&off)).await.unwrap();
    site.tokens.delete("store", &DeleteParams::default()).await.unwrap();
    site.token("store").await;
    site.enrol_after("store", 8, &[6, 7]).await.unwrap();
    let target = site.targets.get("store").await.unwrap();
    assert_eq!(target.annotations()[AGENT_KEY_ANNOTATION], key(8));
    assert_eq!(target.annotations()[REVOKED_KEYS_ANNOTATION], [5, 6, 7].map(key).join(" "));
}

#[tokio::test]
async fn enrolling_again_with_the_same_key_does_not_revoke_it() {
    let site = Site::new().await;
    site.enrol("store", 7).await.unwrap();
    let off = json!({"metadata": {"annotations": {AGENT_KEY_ANNOTATION: null}}});
    site.targets.patch("store", &PatchParams::default(), &Patch::Merge(&off)).await.unwrap();
    site.tokens.delete("store", &DeleteParams::default()).await.unwrap();
    site.token("store").await;
    site.enrol_after("store", 7, &[7]).await.unwrap();
    let target = site.targets.get("store").await.unwrap();
    assert_eq!(target.annotations()[AGENT_KEY_ANNOTATION], key(7));
    assert!(!target.annotations().contains_key(REVOKED_KEYS_ANNOTATION));
}

#[tokio::test]
async fn a_deleted_target_is_not_made_again_by_the_token_it_came_from() {
    let site = Site::new().await;
    site.enrol("store", 7).await.unwrap();
    site.targets.delete("store", &DeleteParams::default()).await.unwrap();
    let refused = site.enrol("store", 7).await.unwrap_err();
    assert!(refused.contains("was deleted"), "{refused}");
    // Nor is one that somebody made in its place.
    site.targets.create(&PostParams::default(), &SyncTarget::new("store", SyncTargetSpec::default())).await.unwrap();
    assert!(site.enrol("store", 7).await.is_err());
    assert!(site.targets.get_opt("store").await.unwrap().is_some_and(|target| target.annotations().is_empty()));
}

#[tokio::test]
async fn a_name_that_is_taken_costs_nobody_the_token() {
    let site = Site::new().await;
    let mut taken = SyncTarget::new("store", SyncTargetSpec::default());
    taken.annotations_mut().insert(AGENT_KEY_ANNOTATION.to_owned(), key(9));
    site.targets.create(&PostParams::default(), &taken).await.unwrap();
    let refused = site.enrol("store", 7).await.unwrap_err();
    assert!(refused.contains("targets revoke store), or make a token of another name"), "{refused}");
    assert!(!site.tokens.get("store").await.unwrap().status.unwrap_or_default().used);
    site.targets.delete("store", &DeleteParams::default()).await.unwrap();
    site.enrol("store", 7).await.unwrap();
}

#[tokio::test]
async fn a_target_made_by_hand_waits_for_its_agent() {
    let site = Site::new().await;
    let mut by_hand = SyncTarget::new("store", SyncTargetSpec::default());
    by_hand.labels_mut().insert("tier".to_owned(), "shop".to_owned());
    let by_hand = site.targets.create(&PostParams::default(), &by_hand).await.unwrap();
    let answer = site.enrol("store", 7).await.unwrap();
    assert_eq!(answer.target.to_string(), by_hand.uid().unwrap());
    let target = site.targets.get("store").await.unwrap();
    assert_eq!(target.labels()["tier"], "shop");
    assert_eq!(target.annotations()[AGENT_KEY_ANNOTATION], key(7));
}

#[tokio::test]
async fn names_from_the_network_reach_no_other_path() {
    let site = Site::new().await;
    let name_of_a_path = ["../synctargets/store", "store/status", "store?watch=true", "", "..", "store#", "STORE"];
    for name in name_of_a_path {
        assert!(token_key(&site.root, name).await.unwrap().is_none(), "{name}");
        let refused = site.enrol(name, 7).await.unwrap_err();
        assert!(refused.contains("knows no such token"), "{name}: {refused}");
    }
}

#[tokio::test]
async fn an_expired_token_is_refused() {
    let site = Site::new().await;
    let two_hours_ago = Timestamp::now() - Duration::from_hours(2);
    create_in(&site.root, token_request("late", BTreeMap::new()), two_hours_ago).await.unwrap();
    let refused = site.enrol("late", 7).await.unwrap_err();
    assert!(refused.contains("has expired"), "{refused}");
    assert!(site.targets.get_opt("late").await.unwrap().is_none());
}
