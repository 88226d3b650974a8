use std::time::Duration;

use expect_test::{Expect, expect};
use tideline_common::replay::RunNumber;
use tideline_common::signature::{Parameters, Response, SigningKey, content_digest, sign_response};
use tideline_common::wire::codec;
use tideline_common::wire::v1::{
    ApprovedHeld, BodiesAnswer, Body, Continuity, Decommission, DesiredAnswer, DesiredRequest, Handover, HubAddresses,
    NumberRefused, PollSettings, Refusal, RefusalKind, SessionAnswer,
};
use tideline_common::{Authority, Digest, Epoch, RunId, SessionName, TargetId};

use super::{Kind, Outgoing, Returned, Sending, VerifiedAnswer, read_answer};
use crate::core::{Answer, LinkFailure, Request};

fn hub() -> SigningKey {
    SigningKey::from_seed([1; 32])
}

fn poll() -> DesiredRequest {
    DesiredRequest {
        session: SessionName::new(4, 1),
        since: None,
        digest: None,
        after: None,
        wait_seconds: 45,
        approved: ApprovedHeld::default(),
        decommission: Decommission::No,
        shown: None,
        history: Continuity::Whole,
        stands: None,
    }
}

/// The request, and how it was sent.
fn sent(nonce: &str) -> (Outgoing, Sending) {
    let outgoing = Outgoing::new(&Request::Desired(poll())).expect("small");
    let parameters = Parameters { key_id: "target", created: 0, nonce };
    let sending = outgoing.sign(&agent(), "-".to_owned(), parameters);
    (outgoing, sending)
}

fn run() -> RunNumber {
    let run: RunId = "00000000-0000-4000-8000-000000000007".parse().expect("a UUID");
    RunNumber { run, number: 5 }
}

/// The answer to [`sent`] under `nonce`.
fn signed<T: serde::Serialize>(key: &SigningKey, status: u16, message: &T, nonce: &str) -> Returned {
    let (media_type, content) = codec::encode(message).expect("small");
    let (outgoing, sending) = sent(nonce);
    let (digest, run) = (content_digest(&content), run().to_string());
    let response = Response { status, content_digest: &digest, run: &run };
    let headers =
        sign_response(key, response, outgoing.signed(&sending), Parameters { key_id: "hub", created: 0, nonce: "h" });
    Returned {
        status,
        content_type: Some(media_type.to_owned()),
        retry_after: None,
        content_digest: Some(digest),
        run: Some(run),
        signature_input: Some(headers.signature_input),
        signature: Some(headers.signature),
        content,
    }
}

/// What the hub says by it to the sender of [`sent`] under "nonce".
fn said(kind: Kind, returned: &Returned) -> Result<VerifiedAnswer, LinkFailure> {
    let (outgoing, sending) = sent("nonce");
    let outgoing = Outgoing { kind, ..outgoing };
    let said = read_answer(&hub().public(), &outgoing, &sending, returned)?;
    assert_eq!(said.run, run());
    Ok(said)
}

fn read(kind: Kind, returned: &Returned) -> Result<Answer, LinkFailure> {
    said(kind, returned)?.answer
}

fn check_not_the_hub(returned: &Returned, expected: &Expect) {
    match read(Kind::Desired, returned) {
        Err(LinkFailure::NotTheHub { message, .. }) => expected.assert_eq(&message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_signed_answer_is_believed() {
    let returned = signed(&hub(), 200, &DesiredAnswer::NothingNew, "nonce");
    let answer = read(Kind::Desired, &returned);
    assert!(matches!(answer, Ok(Answer::Desired(DesiredAnswer::NothingNew))), "{answer:?}");
}

#[test]
fn a_signed_refusal_is_a_refusal() {
    let refusal = Refusal::new(RefusalKind::Fenced, "another session is in use");
    let returned = signed(&hub(), 409, &refusal, "nonce");
    match read(Kind::Desired, &returned) {
        Err(LinkFailure::Refused(read)) => assert_eq!(read, refusal),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_that_the_hub_did_not_sign_is_refused() {
    let portal = Returned {
        status: 200,
        content_type: Some("text/html".to_owned()),
        content: b"<html>Welcome to the hotel</html>".to_vec(),
        ..Returned::default()
    };
    check_not_the_hub(
        &portal,
        &expect![
            "the answer (200, text/html) is not the pinned hub's: the header content-digest is missing; it looks like a captive portal or a proxy; log in to the network, or let the hub's name pass"
        ],
    );
    check_not_the_hub(
        &Returned { status: 302, ..portal.clone() },
        &expect![
            "the answer (302, text/html) is not the pinned hub's: the header content-digest is missing; it is a redirect, as captive portals send; log in to the network, or correct the hub's URL"
        ],
    );
    check_not_the_hub(
        &Returned { status: 407, ..portal.clone() },
        &expect![
            "the answer (407, text/html) is not the pinned hub's: the header content-digest is missing; a proxy asks for credentials: put them into HTTPS_PROXY"
        ],
    );
    check_not_the_hub(
        &Returned { status: 410, ..portal.clone() },
        &expect![
            "the answer (410, text/html) is not the pinned hub's: the header content-digest is missing; it looks like a proxy"
        ],
    );
    check_not_the_hub(
        &Returned { status: 503, content_type: None, ..portal },
        &expect![
            "the answer (503, no content type) is not the pinned hub's: the header content-digest is missing; it looks like a proxy or load balancer whose hub does not answer"
        ],
    );
}

#[test]
fn an_answer_signed_by_another_key_or_for_another_request_status_run_or_content_is_refused() {
    let good = signed(&hub(), 200, &DesiredAnswer::NothingNew, "nonce");
    let other_key = signed(&SigningKey::from_seed([2; 32]), 200, &DesiredAnswer::NothingNew, "nonce");
    check_not_the_hub(
        &other_key,
        &expect![
            "the answer (200, application/vnd.tideline.v1+json) is not the pinned hub's: the signature is not by this key, or not about this request; something between hub and agent changes answers, or this is another hub, or it was started on an empty data directory"
        ],
    );
    check_not_the_hub(
        &signed(&hub(), 200, &DesiredAnswer::NothingNew, "replayed"),
        &expect![
            "the answer (200, application/vnd.tideline.v1+json) is not the pinned hub's: the signature is not by this key, or not about this request; something between hub and agent changes answers, or this is another hub, or it was started on an empty data directory"
        ],
    );
    check_not_the_hub(
        &Returned { status: 410, ..good.clone() },
        &expect![
            "the answer (410, application/vnd.tideline.v1+json) is not the pinned hub's: the signature is not by this key, or not about this request; something between hub and agent changes answers, or this is another hub, or it was started on an empty data directory"
        ],
    );
    check_not_the_hub(
        &Returned { run: Some("00000000-0000-4000-8000-000000000007=6".to_owned()), ..good.clone() },
        &expect![
            "the answer (200, application/vnd.tideline.v1+json) is not the pinned hub's: the signature is not by this key, or not about this request; something between hub and agent changes answers, or this is another hub, or it was started on an empty data directory"
        ],
    );
    check_not_the_hub(
        &Returned { content: b"{}".to_vec(), ..good },
        &expect![
            "the answer (200, application/vnd.tideline.v1+json) is not the pinned hub's: the content is not what content-digest says; something between hub and agent changes answers, or this is another hub, or it was started on an empty data directory"
        ],
    );
}

fn agent() -> SigningKey {
    SigningKey::from_seed([3; 32])
}

fn target(nth: u8) -> TargetId {
    format!("00000000-0000-4000-8000-{nth:012}").parse().expect("a UUID")
}

fn opened() -> SessionAnswer {
    let urls = vec!["https://hub.example".to_owned()];
    let authorities = Authority::from_der([1, 2, 3]).into_iter().collect();
    SessionAnswer {
        session: SessionName::new(4, 1),
        outdated: false,
        epoch: Epoch(1),
        poll: PollSettings { wait_seconds: 45, stale_after_seconds: 120 },
        addresses: HubAddresses { urls, authorities },
        history: Continuity::Whole,
        cluster: None,
        handover: None,
    }
}

fn handed_over(key: &SigningKey, former: TargetId) -> SessionAnswer {
    let key = key.public().as_bytes().to_vec();
    SessionAnswer { handover: Some(Handover { key, former, target: target(9), name: "store".to_owned() }), ..opened() }
}

#[test]
fn an_agent_is_handed_over_by_its_own_key_from_what_it_is_or_was() {
    let is_or_was = [target(1), target(2)];
    let made_of = |answer: &SessionAnswer| {
        let said = said(Kind::Session, &signed(&hub(), 200, answer, "nonce")).expect("it is the hub's");
        match said.conclude(&agent().public(), &is_or_was).expect("it is an answer") {
            Ok(Answer::Session(answer)) => Ok(answer.handover.map(|handover| handover.target)),
            Ok(other) => panic!("{other:?}"),
            Err(LinkFailure::Unreachable { message, .. }) => Err(message),
            Err(other) => panic!("{other:?}"),
        }
    };
    assert_eq!(made_of(&opened()), Ok(None));
    for former in is_or_was {
        assert_eq!(made_of(&handed_over(&agent(), former)), Ok(Some(target(9))));
    }
    let another_key = made_of(&handed_over(&hub(), target(1))).expect_err("it is another agent's");
    assert!(another_key.contains("with another key"), "{another_key}");
    for stranger in [target(3), target(9)] {
        let error = made_of(&handed_over(&agent(), stranger)).expect_err("it never was that");
        assert!(error.contains(&format!("of target {stranger}")), "{error}");
    }
}

#[test]
fn every_answer_about_a_session_says_where_the_hub_is_reached() {
    let taken = |kind, returned: &Returned| said(kind, returned).expect("it is the hub's").addresses;
    for answer in [opened(), handed_over(&agent(), target(1))] {
        assert_eq!(taken(Kind::Session, &signed(&hub(), 200, &answer, "nonce")), Some(answer.addresses));
    }
    let refusal = |refusal| Refusal::new(refusal, "");
    let refused = NumberRefused { refusal: refusal(RefusalKind::BadRequestNumber), addresses: opened().addresses };
    assert_eq!(taken(Kind::Session, &signed(&hub(), 409, &refused, "nonce")), Some(refused.addresses));
    let fenced = refusal(RefusalKind::Fenced);
    assert_eq!(taken(Kind::Session, &signed(&hub(), 409, &fenced, "nonce")), None);
    assert_eq!(taken(Kind::Desired, &signed(&hub(), 200, &DesiredAnswer::NothingNew, "nonce")), None);
}

#[test]
fn retry_after_of_a_load_balancer_is_honoured_and_silences_nobody_for_long() {
    for (status, asked, honoured) in [
        (503, "17", Some(17)),
        (429, "17", Some(17)),
        (503, "3600", Some(120)),
        (429, "soon", None),
        (200, "3600", None),
        (404, "3600", None),
        (502, "17", None),
    ] {
        let busy = Returned { status, retry_after: Some(asked.to_owned()), ..Returned::default() };
        let honoured = honoured.map(Duration::from_secs);
        match read(Kind::Desired, &busy) {
            Err(LinkFailure::NotTheHub { retry_after, .. }) => assert_eq!(retry_after, honoured, "{status}, {asked}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_whole_body_must_be_what_its_hash_says_and_a_part_is_passed_on() {
    let body = |text: &str, size: u64, sha256: &[u8]| Body {
        input: Digest::of(b"input"),
        sha256: Digest::of(sha256),
        size,
        offset: 0,
        text: text.to_owned(),
    };
    let read_body = |body: Body| {
        let answer = BodiesAnswer { bodies: vec![body], outdated: Vec::new() };
        read(Kind::Bodies, &signed(&hub(), 200, &answer, "nonce"))
    };
    assert!(matches!(read_body(body("{}", 2, b"{}")), Ok(Answer::Bodies(_))));
    assert!(matches!(read_body(body("{}", 9, b"{} and more")), Ok(Answer::Bodies(_))));
    assert!(matches!(read_body(body("{}", 2, b"other")), Err(LinkFailure::Unreachable { .. })));
}

#[test]
fn a_poll_has_its_parameters_in_the_query_and_no_content() -> Result<(), codec::Error> {
    let outgoing = Outgoing::new(&Request::Desired(poll()))?;
    assert_eq!(
        (outgoing.method, outgoing.path, outgoing.query.as_str()),
        ("GET", "/link/v1/desired", "session=4.0000000000000001&wait=45")
    );
    assert!(outgoing.content.is_none());
    Ok(())
}
