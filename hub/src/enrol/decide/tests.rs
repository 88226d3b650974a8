use expect_test::{Expect, expect};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tideline_api::{EnrolmentTokenSpec, EnrolmentTokenStatus, TokenUse};
use tideline_common::signature::SigningKey;
use tideline_common::wire::v1::ClusterFacts;

use super::*;

const TARGET: &str = "11111111-1111-4111-8111-111111111111";
const END: i64 = 1_000;

fn hub(n: u8) -> HubId {
    format!("00000000-0000-4000-8000-{n:012}").parse().unwrap()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn request(agent: u8) -> EnrolRequest {
    let (token, facts) = ("store".to_owned(), ClusterFacts::default());
    let bare = EnrolRequest { token, agent_key: Vec::new(), hub: hub(1), facts, proof: Vec::new() };
    bare.proven(&SigningKey::from_seed([agent; 32]))
}

/// A token that was used by this agent, with this target.
fn used(by: Option<(u8, Option<&str>)>) -> EnrolmentToken {
    let spec = EnrolmentTokenSpec {
        target_name: "store".to_owned(),
        labels: [("region".to_owned(), "eu".to_owned())].into(),
        expires: Time(at(END)),
        public_key: None,
    };
    let used_by = by.map(|(agent, uid)| TokenUse {
        key: STANDARD.encode(SigningKey::from_seed([agent; 32]).public().as_bytes()),
        target_uid: uid.map(str::to_owned),
        at: None,
    });
    let status = EnrolmentTokenStatus { used: used_by.is_some(), used_by, ..EnrolmentTokenStatus::default() };
    EnrolmentToken { status: Some(status), ..EnrolmentToken::new("store", spec) }
}

fn check(token: &EnrolmentToken, request: &EnrolRequest, second: i64, expected: &Expect) {
    said(&decide(Some(&TokenState::from(token)), request, hub(1), at(second)), expected);
}

fn said(decision: &Decision, expected: &Expect) {
    let text = match decision {
        Decision::Claim(NewTarget { name, labels }) => format!("claim, and make {name} {labels:?}"),
        Decision::Make(NewTarget { name, labels }) => format!("make {name} {labels:?}"),
        Decision::Again { name, target } => format!("again {name} {target}"),
        Decision::Refuse(refusal) => format!("{:?}: {}", refusal.refusal, refusal.message),
    };
    expected.assert_eq(&text);
}

#[test]
fn a_token_is_good_until_it_expires() {
    check(&used(None), &request(7), END - 1, &expect![[r#"claim, and make store {"region": "eu"}"#]]);
    check(
        &used(None),
        &request(7),
        END,
        &expect!["TokenRefused: the token has expired; make another with `tideline-hub token create`"],
    );
}

#[test]
fn the_agent_that_used_a_token_may_repeat_itself_however_late() {
    check(&used(Some((7, None))), &request(7), END + 5_000, &expect![[r#"make store {"region": "eu"}"#]]);
    check(
        &used(Some((7, Some(TARGET)))),
        &request(7),
        END + 5_000,
        &expect!["again store 11111111-1111-4111-8111-111111111111"],
    );
}

#[test]
fn a_used_token_is_refused_to_another_agent_whoever_was_first() {
    let message = expect![
        "TokenRefused: the token was used by another agent; each agent needs its own: make another with `tideline-hub token create`"
    ];
    check(&used(Some((7, None))), &request(8), 0, &message);
    check(&used(Some((7, Some(TARGET)))), &request(8), 0, &message);
    check(&used(Some((7, Some("no uid")))), &request(7), 0, &message);
    let mut edited = used(None);
    edited.status = Some(EnrolmentTokenStatus { used: true, ..EnrolmentTokenStatus::default() });
    check(&edited, &request(7), 0, &message);
}

#[test]
fn what_is_not_for_this_hub_or_not_known_is_refused() {
    let elsewhere = EnrolRequest { hub: hub(2), ..request(7) };
    check(&used(None), &elsewhere, 0, &expect!["TokenRefused: the token is for another hub; make one at this hub"]);
    let unknown = expect!["TokenRefused: the hub knows no such token; make another with `tideline-hub token create`"];
    said(&decide(None, &request(7), hub(1), at(0)), &unknown);
    let keyless = EnrolRequest { agent_key: vec![7; 31], ..request(7) };
    check(
        &used(None),
        &keyless,
        0,
        &expect!["Malformed: the request does not prove that its sender has the agent's key"],
    );
}
