//! Whole exchanges of each kind, heads and content, as they travel: every later version verifies and reads them, as the hub
//! and as the agent.

use std::fmt::Write as _;
use std::path::PathBuf;

use expect_test::expect_file;
use serde::de::DeserializeOwned;

use super::codec;
use super::v1::*;
use crate::signature::{
    CONTENT_DIGEST, Headers, Parameters, RUN, Request, Response, SIGNATURE, SIGNATURE_INPUT, Signed, SigningKey,
    content_digest, sign_request, sign_response, verify_request, verify_response,
};

const AGENT: &str = "3e7c2c1e-0000-4000-8000-000000000001";
const HUB: &str = "3e7c2c1e-0000-4000-8000-0000000000ff";
const RUN_ID: &str = "00000000-0000-4000-8000-000000000007";

/// A request and its answer, by the files of their messages.
struct Exchange {
    name: &'static str,
    method: &'static str,
    path: &'static str,
    query: &'static str,
    asks: Option<&'static str>,
    status: u16,
    answers: &'static str,
}

const POLL: &str = "session=7.0000000000000001&since=1.70&digest=6ee0eb490ff832101cf82a3d387c35f29e4230be786978f7acf9e811febf6723&wait=45";

const FORMERS: &str = "formers=3e7c2c1e-0000-4000-8000-000000000002.3e7c2c1e-0000-4000-8000-000000000003";

const EXCHANGES: [Exchange; 9] = [
    exchange("enrol", ("POST", ENROL_PATH, ""), Some("enrol-request"), (200, "enrol-answer")),
    exchange("refused-number", ("GET", DESIRED_PATH, POLL), None, (409, "number-refused")),
    exchange("session", ("POST", SESSION_PATH, ""), Some("session-request"), (200, "session-answer")),
    exchange("handover", ("POST", SESSION_PATH, FORMERS), Some("session-request"), (200, "session-handover")),
    exchange("page", ("GET", DESIRED_PATH, POLL), None, (200, "desired-page")),
    exchange("nothing-new", ("GET", DESIRED_PATH, POLL), None, (200, "desired-nothing-new")),
    exchange("bodies", ("POST", BODIES_PATH, ""), Some("bodies-request"), (200, "bodies-answer")),
    exchange("reported", ("PUT", REPORTED_PATH, ""), Some("reported-request"), (200, "reported-answer")),
    exchange("refused", ("PUT", REPORTED_PATH, ""), Some("reported-request"), (409, "refusal")),
];

const fn exchange(
    name: &'static str,
    (method, path, query): (&'static str, &'static str, &'static str),
    asks: Option<&'static str>,
    (status, answers): (u16, &'static str),
) -> Exchange {
    Exchange { name, method, path, query, asks, status, answers }
}

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/v1")
}

/// A message of the golden files on one line, as it travels.
fn message(name: &str) -> String {
    let text = std::fs::read_to_string(golden().join(format!("{name}.json"))).expect("a golden file");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    value.to_string()
}

/// The agent's key, and that of its token.
fn asker(path: &str) -> (SigningKey, &'static str) {
    if path == ENROL_PATH {
        (SigningKey::from_seed([3; 32]), "store-0042")
    } else {
        (SigningKey::from_seed([7; 32]), AGENT)
    }
}

fn hub() -> SigningKey {
    SigningKey::from_seed([9; 32])
}

fn write(exchange: &Exchange) -> String {
    let Exchange { name: _, method, path, query, asks, status, answers } = *exchange;
    let (content, answer) = (asks.map(message).unwrap_or_default(), message(answers));
    let (key, key_id) = asker(path);
    let (asked, said) = (content_digest(content.as_bytes()), content_digest(answer.as_bytes()));
    let (run, next) = (format!("{RUN_ID}=41"), format!("{RUN_ID}=42"));
    let request = Request { method, path, query, content_digest: &asked, run: &run };
    let mine = Parameters { key_id, created: 1_700_000_000, nonce: "AAECAwQFBgcICQoLDA0ODw" };
    let headers = sign_request(&key, request, mine);
    let signed = Signed { request, signature_input: &headers.signature_input, signature: &headers.signature };
    let response = Response { status, content_digest: &said, run: &next };
    let its = Parameters { key_id: HUB, created: 1_700_000_001, nonce: "EBESExQVFhcYGRobHB0eHw" };
    let answered = sign_response(&hub(), response, signed, its);
    let mut text = format!("{method} {path}?{query}\n");
    head(&mut text, &asked, &run, &headers, &content);
    let _infallible = writeln!(text, "{status}");
    head(&mut text, &said, &next, &answered, &answer);
    text
}

fn head(text: &mut String, digest: &str, run: &str, headers: &Headers, content: &str) {
    let Headers { signature_input, signature } = headers;
    let fields = [
        ("content-type", MEDIA_TYPE),
        (CONTENT_DIGEST, digest),
        (RUN, run),
        (SIGNATURE_INPUT, signature_input),
        (SIGNATURE, signature),
    ];
    for (name, value) in fields {
        let _infallible = writeln!(text, "{name}: {value}");
    }
    let _infallible = write!(text, "\n{content}\n");
}

/// One message of a transcript.
struct Told<'a> {
    first: &'a str,
    fields: Vec<(&'a str, &'a str)>,
    content: &'a str,
}

impl<'a> Told<'a> {
    /// Reads a message from the beginning of what is left.
    fn read(lines: &mut impl Iterator<Item = &'a str>) -> Self {
        let first = lines.next().expect("a first line");
        let fields = lines.take_while(|line| !line.is_empty());
        let fields = fields.map(|line| line.split_once(": ").expect("a field")).collect();
        Self { first, fields, content: lines.next().expect("its content") }
    }

    fn field(&self, name: &str) -> &'a str {
        self.fields.iter().find(|(field, _)| *field == name).unwrap_or_else(|| panic!("{name}")).1
    }

    fn headers(&self) -> Headers {
        let (signature_input, signature) = (self.field(SIGNATURE_INPUT), self.field(SIGNATURE));
        Headers { signature_input: signature_input.to_owned(), signature: signature.to_owned() }
    }

    fn decode<T: DeserializeOwned>(&self) -> T {
        codec::decode(self.field("content-type"), self.content.as_bytes()).expect("it is read")
    }
}

/// Reads a recorded exchange as hub and agent do.
fn read(text: &str) {
    let mut lines = text.lines();
    let (asked, said) = (Told::read(&mut lines), Told::read(&mut lines));
    let (method, target) = asked.first.split_once(' ').expect("a method");
    let (path, query) = target.split_once('?').expect("a query");
    let request = Request { method, path, query, content_digest: asked.field(CONTENT_DIGEST), run: asked.field(RUN) };
    let headers = asked.headers();
    let signed = Signed { request, signature_input: &headers.signature_input, signature: &headers.signature };
    verify_request(&asker(path).0.public(), signed).expect("the request is signed");
    let status = said.first.parse().expect("a status");
    let response = Response { status, content_digest: said.field(CONTENT_DIGEST), run: said.field(RUN) };
    verify_response(&hub().public(), response, signed, &said.headers()).expect("the answer is to this request");
    for told in [&asked, &said] {
        assert_eq!(content_digest(told.content.as_bytes()), told.field(CONTENT_DIGEST));
    }
    match path {
        ENROL_PATH => drop(asked.decode::<EnrolRequest>()),
        SESSION_PATH => {
            drop(asked.decode::<SessionRequest>());
            let formers = codec::parse_session_query(query);
            let request = SessionRequest { formers, ..SessionRequest::default() };
            assert_eq!(codec::session_query(&request), query, "each of them is read");
        }
        DESIRED_PATH => drop(codec::parse_desired_query(query).expect("the query is read")),
        BODIES_PATH => drop(asked.decode::<BodiesRequest>()),
        REPORTED_PATH => drop(asked.decode::<ReportedRequest>()),
        other => panic!("{other}"),
    }
    match (path, status) {
        (ENROL_PATH, 200) => drop(said.decode::<EnrolAnswer>()),
        (SESSION_PATH, 200) => drop(said.decode::<SessionAnswer>()),
        (DESIRED_PATH, 200) => assert_ne!(said.decode::<DesiredAnswer>(), DesiredAnswer::Unknown),
        (BODIES_PATH, 200) => drop(said.decode::<BodiesAnswer>()),
        (REPORTED_PATH, 200) => drop(said.decode::<ReportedAnswer>()),
        (_, refused) => assert_eq!(said.decode::<Refusal>().refusal.status(), refused),
    }
}

#[test]
fn a_golden_exchange_is_what_is_sent() {
    for exchange in &EXCHANGES {
        expect_file![golden().join("transcripts").join(format!("{}.http", exchange.name))].assert_eq(&write(exchange));
    }
}

#[test]
fn every_golden_exchange_is_verified_and_read() {
    let mut count = 0;
    for file in std::fs::read_dir(golden().join("transcripts")).expect("the directory") {
        let file = file.expect("a file").path();
        read(&std::fs::read_to_string(&file).expect("text"));
        count += 1;
    }
    assert!(count >= EXCHANGES.len());
}
