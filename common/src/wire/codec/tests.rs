use std::io::Write as _;

use expect_test::{Expect, expect};
use flate2::Compression;
use flate2::write::DeflateEncoder;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    Error, FORMERS_MAX, decode, desired_query, encode, parse_desired_query, parse_session_query, session_query,
    unpack_request,
};
use crate::limits::{LINK_MESSAGE_BYTES_MAX, REQUEST_BYTES_MAX};
use crate::wire::v1::{
    ApprovedHeld, Continuity, Decommission, DesiredRequest, MEDIA_TYPE, MEDIA_TYPE_DEFLATE, SessionRequest, Stands,
};
use crate::{
    Digest, Epoch, GroupKind, ObjectKey, Revision, RevisionId, RevisionPoint, SegmentId, SessionName, Shown, TargetId,
    Version,
};
use uuid::Uuid;

fn full() -> DesiredRequest {
    DesiredRequest {
        session: SessionName::new(7, 1),
        since: Some(Version { epoch: Epoch(1), revision: Revision(71) }),
        digest: Some(Digest::of(b"set")),
        after: Some(ObjectKey::new(GroupKind::new("apps", "Deployment"), "shop", "web")),
        wait_seconds: 45,
        approved: ApprovedHeld { list: Some(Digest::of(b"list")), count: 12 },
        decommission: Decommission::Keep,
        shown: Some(shown()),
        history: Continuity::Broken,
        stands: Some(Stands { report: 12, nth: 3 }),
    }
}

fn shown() -> Shown {
    let id = Uuid::from_u128;
    let point = RevisionPoint { segment: SegmentId::from_uuid(id(0xa)), id: RevisionId::from_uuid(id(0xb)) };
    Shown { version: Version { epoch: Epoch(1), revision: Revision(71) }, point }
}

fn check_query(query: &str, expected: &Expect) {
    let outcome = match parse_desired_query(query) {
        Ok(request) => format!("{request:?}"),
        Err(error) => format!("refused: {error}"),
    };
    expected.assert_eq(&outcome);
}

#[test]
fn small_messages_are_plain_and_large_ones_compressed() -> Result<(), Error> {
    let small = json!({"a": 1});
    let large = json!({"a": "abc ".repeat(1000)});
    let (media_type, bytes) = encode(&small)?;
    assert_eq!((media_type, decode::<Value>(media_type, &bytes)?), (MEDIA_TYPE, small));
    let (media_type, bytes) = encode(&large)?;
    assert!(bytes.len() < 200, "{}", bytes.len());
    assert_eq!((media_type, decode::<Value>(media_type, &bytes)?), (MEDIA_TYPE_DEFLATE, large));
    Ok(())
}

#[test]
fn a_request_may_have_less_than_an_answer() -> Result<(), Error> {
    let long = "x".repeat(REQUEST_BYTES_MAX);
    let (media_type, bytes) = encode(&long)?;
    assert_eq!(decode::<String>(media_type, &bytes)?, long);
    assert!(matches!(unpack_request(usize::MAX, media_type, &bytes), Err(Error::TooLarge(REQUEST_BYTES_MAX))));
    Ok(())
}

#[test]
fn media_type_parameters_are_ignored_and_other_types_refused() {
    let with_parameter = format!("{}; charset=utf-8", MEDIA_TYPE.to_uppercase());
    assert!(decode::<Value>(&with_parameter, b"{}").is_ok());
    assert!(matches!(decode::<Value>("text/html", b"<html>"), Err(Error::MediaType(text)) if text == "text/html"));
    assert!(matches!(decode::<Value>("", b"{}"), Err(Error::MediaType(_))));
}

#[test]
fn a_message_that_inflates_beyond_the_bound_is_refused() -> Result<(), std::io::Error> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&vec![b' '; LINK_MESSAGE_BYTES_MAX])?;
    encoder.write_all(b"{}")?;
    let bomb = encoder.finish()?;
    assert!(bomb.len() < 64 << 10, "{}", bomb.len());
    assert!(matches!(decode::<Value>(MEDIA_TYPE_DEFLATE, &bomb), Err(Error::TooLarge(_))));
    let long = vec![b' '; LINK_MESSAGE_BYTES_MAX + 1];
    assert!(matches!(decode::<Value>(MEDIA_TYPE, &long), Err(Error::TooLarge(_))));
    Ok(())
}

#[test]
fn a_cut_message_is_refused() -> Result<(), Error> {
    let (media_type, bytes) = encode(&json!({"a": "abc ".repeat(1000)}))?;
    assert!(decode::<Value>(media_type, &bytes[..bytes.len() / 2]).is_err());
    Ok(())
}

#[test]
fn the_query_is_written_without_characters_to_escape() {
    let query = desired_query(&full());
    expect!["session=7.0000000000000001&since=1.71&digest=6ee0eb490ff832101cf82a3d387c35f29e4230be786978f7acf9e811febf6723&after=eyJncm91cCI6ImFwcHMiLCJraW5kIjoiRGVwbG95bWVudCIsIm5hbWVzcGFjZSI6InNob3AiLCJuYW1lIjoid2ViIn0&wait=45&approved=12.a330395cc0a53ad1207736546afff4735940937564bbf75ce1edad40780d9139&decommission=Keep&shown=1.71.00000000-0000-0000-0000-00000000000a.00000000-0000-0000-0000-00000000000b&history=Broken&stands=12.3"]
        .assert_eq(&query);
    assert!(query.bytes().all(|b| b.is_ascii_alphanumeric() || b"=&-_.".contains(&b)), "{query}");
}

#[test]
fn a_bare_query_asks_for_everything_at_once() {
    let bare = DesiredRequest {
        session: SessionName::new(3, 1),
        since: None,
        digest: None,
        after: None,
        wait_seconds: 0,
        approved: ApprovedHeld::default(),
        decommission: Decommission::No,
        shown: None,
        history: Continuity::Whole,
        stands: None,
    };
    assert_eq!(desired_query(&bare), "session=3.0000000000000001");
    assert_eq!(parse_desired_query("session=3.0000000000000001&later=1").ok(), Some(bare));
}

#[test]
fn queries_that_cannot_be_read_say_why() {
    check_query("", &expect!["refused: the query lacks session"]);
    check_query("since=1.2", &expect!["refused: the query lacks session"]);
    check_query(
        "session=x",
        &expect![[
            r#"refused: the query's session cannot be read: it must be NUMBER.ID, the id of 16 digits of 0-9 and a-f: "x""#
        ]],
    );
    check_query(
        "session=1.00000000000000aa&session=2.00000000000000aa",
        &expect!["refused: the query has session twice"],
    );
    check_query(
        "session=1.00000000000000aa&since=7",
        &expect![[
            r#"refused: the query's since cannot be read: "7" is not a version: it must be EPOCH.REVISION: "7""#
        ]],
    );
    check_query(
        "session=1.00000000000000aa&digest=00",
        &expect![[r#"refused: the query's digest cannot be read: a digest must be 64 hexadecimal digits: "00""#]],
    );
    check_query(
        "session=1.00000000000000aa&after=%7B",
        &expect![[r#"refused: the query's after cannot be read: it is not base64url without padding: "%7B""#]],
    );
    check_query(
        "session=1.00000000000000aa&after=e30",
        &expect![[r#"refused: the query's after cannot be read: missing field `kind` at line 1 column 2: "e30""#]],
    );
    check_query(&"a".repeat(5000), &expect!["refused: the query is longer than 4096 bytes"]);
}

#[test]
fn a_session_s_query_names_what_the_agent_was_before_and_nothing_else() {
    let formers = [0xa, 0xb].map(|number| TargetId::from_uuid(Uuid::from_u128(number)));
    let request = SessionRequest { formers: formers.to_vec(), ..SessionRequest::default() };
    let query = session_query(&request);
    expect!["formers=00000000-0000-0000-0000-00000000000a.00000000-0000-0000-0000-00000000000b"].assert_eq(&query);
    assert_eq!(parse_session_query(&query), formers);
    assert_eq!(parse_session_query(&format!("later=1&{query}.no-target")), formers);
    assert_eq!(session_query(&SessionRequest::default()), "");
    assert_eq!(parse_session_query(""), []);
    let many = SessionRequest { formers: vec![formers[0]; FORMERS_MAX + 1], ..SessionRequest::default() };
    assert_eq!(parse_session_query(&session_query(&many)).len(), FORMERS_MAX);
}

/// As high as any is.
fn counter() -> impl Strategy<Value = u64> {
    0..=i64::MAX.unsigned_abs()
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        session in counter(),
        since in proptest::option::of((counter(), counter())),
        digest: Option<[u8; 32]>,
        after in proptest::option::of(("[a-z.]{0,9}", "[A-Z][a-z]{1,9}", ".{0,9}", ".{1,30}")),
        wait_seconds: u64,
        approved: (Option<[u8; 32]>, u64),
        decommission in 0..3_usize,
        known: bool,
    ) {
        let request = DesiredRequest {
            session: SessionName::new(session, 1),
            since: since.map(|(epoch, revision)| Version { epoch: Epoch(epoch), revision: Revision(revision) }),
            digest: digest.map(Digest::from_bytes),
            after: after.map(|(group, kind, namespace, name)| {
                ObjectKey::new(GroupKind::new(group, kind), namespace, name)
            }),
            wait_seconds,
            approved: ApprovedHeld { list: approved.0.map(Digest::from_bytes), count: approved.1 },
            decommission: [Decommission::No, Decommission::Keep, Decommission::Remove][decommission],
            shown: known.then(shown),
            history: if known { Continuity::Broken } else { Continuity::Whole },
            stands: known.then_some(Stands { report: 9, nth: 1 }),
        };
        prop_assert_eq!(parse_desired_query(&desired_query(&request)).ok(), Some(request));
    }

    #[test]
    fn no_query_panics(query in ".{0,200}") {
        let _ = parse_desired_query(&query);
    }

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        let _ = decode::<Value>(MEDIA_TYPE_DEFLATE, &bytes);
    }
}
