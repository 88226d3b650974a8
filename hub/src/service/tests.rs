use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::Api;
use tideline_api::{EnrolmentToken, EnrolmentTokenStatus};
use tideline_common::signature::SigningKey;
use tideline_common::wire::v1::ClusterFacts;

use super::*;
use crate::engine::Engine;
use crate::ledger::Ledger;
use crate::link::core::Config;
use crate::removal_guards::{Fuse, UNASSIGN_LIMIT};
use crate::token::create_in;
use crate::token::tests::{HUB, Root, request as token_request};

const REVOKED_FROM: &str = "00000000-0000-4000-8000-000000000007";

/// Whoever stole a key and has a token as well would come back with it as another target.
#[tokio::test]
async fn a_revoked_key_is_refused_at_enrolment_and_uses_no_token() {
    let key = SigningKey::from_seed([7; 32]);
    let fuse = Fuse::new(UNASSIGN_LIMIT);
    let mut engine = Engine::new(Config::default(), Duration::ZERO, fuse, Ledger::default(), BTreeMap::new());
    engine.keys_revoked(REVOKED_FROM.parse().unwrap(), "stolen", &[key.public()]);
    let Root { server: _server, client } = Root::new().await;
    create_in(&client, token_request("store", BTreeMap::new()), Timestamp::now()).await.unwrap();
    let service = LinkService { shared: Shared::new(engine), hub: HUB.parse().unwrap(), root: client.clone() };

    let (token, hub, facts) = ("store".to_owned(), service.hub, ClusterFacts::default());
    let request = EnrolRequest { token, agent_key: Vec::new(), hub, facts, proof: Vec::new() }.proven(&key);
    let refused = service.enrol(request).await.unwrap_err();
    assert_eq!((refused.refusal, refused.refusal.status()), (RefusalKind::Revoked, 403));
    let token = Api::<EnrolmentToken>::all(client).get("store").await.unwrap();
    assert_eq!(token.status.unwrap_or_default(), EnrolmentTokenStatus::default(), "the token is unused");
}
