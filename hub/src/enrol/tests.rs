use std::collections::BTreeMap;

use jiff::Timestamp;
use tideline_api::{EnrolmentToken, EnrolmentTokenSpec, EnrolmentTokenStatus, TokenUse};
use tideline_common::HubId;
use tideline_common::wire::v1::{ClusterFacts, EnrolRequest};

use super::*;

fn hub(n: u8) -> HubId {
    format!("00000000-0000-4000-8000-{n:012}").parse().expect("a UUID")
}

fn token(used_by: Option<u8>) -> EnrolmentToken {
    let spec = EnrolmentTokenSpec {
        target_name: "store".to_owned(),
        labels: BTreeMap::new(),
        expires: Time(at(1_000)),
        public_key: None,
    };
    let used_by = used_by.map(|key| TokenUse {
        key: STANDARD.encode([key; 32]),
        target_uid: String::new(),
        at: None,
    });
    let status = EnrolmentTokenStatus { used: used_by.is_some(), used_by, ..EnrolmentTokenStatus::default() };
    EnrolmentToken { status: Some(status), ..EnrolmentToken::new("store", spec) }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn check(used_by: Option<u8>, key: u8, for_hub: u8, second: i64, admitted: bool) {
    let request = EnrolRequest {
        token: "store".to_owned(),
        agent_key: vec![key; 32],
        hub: hub(for_hub),
        facts: ClusterFacts::default(),
    };
    let decision = decide(&token(used_by), &request, hub(1), at(second));
    assert_eq!(decision == Decision::Admit, admitted, "{decision:?}");
}

#[test]
fn token_is_good_once_until_it_expires() {
    check(None, 7, 1, 999, true);
    check(None, 7, 1, 1_000, false);
    check(None, 7, 2, 0, false);
}

#[test]
fn used_token_admits_only_the_agent_that_used_it_however_late() {
    check(Some(7), 7, 1, 999, true);
    check(Some(7), 7, 1, 5_000, true);
    check(Some(7), 8, 1, 999, false);
}
