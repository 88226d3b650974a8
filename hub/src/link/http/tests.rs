use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use axum::body::Bytes;
use futures::stream;
use http_body_util::BodyExt;
use serde_json::json;
use tideline_common::limits::REQUEST_BYTES_MAX;
use tideline_common::replay::{RunNumber, RunNumbers};
use tideline_common::signature::{Headers, Parameters, SigningKey};
use tideline_common::wire::v1::{
    Accepted, Attested, BODIES_PATH, DESIRED_PATH, DesiredAnswer, ENROL_PATH, HubAddresses, MEDIA_TYPE,
    MEDIA_TYPE_DEFLATE, NumberRefused, REPORTED_PATH, ReportedAnswer, SESSION_PATH, SessionAnswer, SessionRequest,
};
use tideline_common::{Attestation, Digest, Epoch, Revision, RevisionPoint, RunId, Shown, Version};
use tower::ServiceExt;

use super::*;
use crate::limits::{OPENING_BYTES_MAX, REQUESTS_PER_KEY_BURST, UNTAKEN_IN_A_ROW_MAX};
use crate::listener::{Peers, Places};

const TARGET: &str = "00000000-0000-4000-8000-000000000001";
const OTHER_TARGET: &str = "00000000-0000-4000-8000-000000000002";
const POLL: &str = "session=1.0000000000000001&wait=1";

/// Knows one target, with the key of seed 1, and one token, with the key of seed 2.
#[derive(Default)]
struct Known {
    handled: AtomicU32,
    /// The target has another key by now.
    replaced: AtomicBool,
    /// How often the target fell silent.
    silences: AtomicU64,
    breaches: Mutex<Vec<Breach>>,
    /// What a session is answered with; or else that the target is gone.
    session: Mutex<Option<SessionAnswer>>,
    /// From where a session was asked for last.
    origin: Mutex<Option<core::Origin>>,
}

impl Service for Known {
    fn target_key(&self, target: TargetId) -> Result<VerifyingKey, Unverified> {
        match target.to_string() == TARGET {
            true if self.replaced.load(Ordering::Relaxed) => Ok(SigningKey::from_seed([4; 32]).public()),
            true => Ok(agent().public()),
            false => Err(Unverified::UnknownTarget),
        }
    }

    fn replaced_keys(&self, target: TargetId) -> Vec<VerifyingKey> {
        if target.to_string() == TARGET { vec![former_agent().public()] } else { Vec::new() }
    }

    fn silences(&self, _: TargetId) -> Silences {
        Silences(self.silences.load(Ordering::Relaxed))
    }

    async fn token_key(&self, token: &str) -> Result<VerifyingKey, Unverified> {
        match token {
            "store" => Ok(SigningKey::from_seed([2; 32]).public()),
            "unreadable" => Err(Unverified::Unreadable),
            _ => Err(Unverified::UnknownToken),
        }
    }

    async fn enrol(&self, _: EnrolRequest) -> Result<EnrolAnswer, Refusal> {
        Err(Refusal::new(RefusalKind::TokenRefused, "used"))
    }

    fn breached(&self, _: TargetId, breach: Breach) {
        self.breaches.lock().unwrap().push(breach);
    }

    fn clock_differs(&self, _: TargetId) {}

    async fn handle(&self, _: TargetId, request: core::Request) -> Result<Reply, Refusal> {
        self.handled.fetch_add(1, Ordering::Relaxed);
        match request {
            core::Request::Desired(_) => Ok(Reply::Core(core::Answer::Desired(DesiredAnswer::NothingNew))),
            core::Request::Reported(_) => {
                Ok(Reply::Core(core::Answer::Reported(ReportedAnswer { seq: 1, memory: 1, stands: false })))
            }
            core::Request::Session(_, origin) => {
                *self.origin.lock().unwrap() = Some(origin);
                let answer = self.session.lock().unwrap().clone().map(core::Answer::Session);
                answer.map(Reply::Core).ok_or_else(|| Refusal::new(RefusalKind::TargetGone, "gone"))
            }
            core::Request::Bodies(_) => Err(Refusal::new(RefusalKind::TargetGone, "gone")),
        }
    }
}

fn agent() -> SigningKey {
    SigningKey::from_seed([1; 32])
}

/// What the target signed with before.
fn former_agent() -> SigningKey {
    SigningKey::from_seed([3; 32])
}

fn hub() -> SigningKey {
    SigningKey::from_seed([9; 32])
}

fn addresses() -> HubAddresses {
    let encoded = json!({"urls": ["https://hub"], "authorities": ["AQID"]});
    serde_json::from_value(encoded).unwrap()
}

/// One run of the hub.
struct Hub {
    service: Arc<Known>,
    refusals: Arc<Refusals>,
    router: Router,
}

fn start(run: u128) -> Hub {
    let run = RunId::from_uuid(uuid::Uuid::from_u128(run));
    let signer = Signer { hub: OTHER_TARGET.parse().unwrap(), key: hub(), run, addresses: addresses() };
    let service = Arc::new(Known::default());
    let refusals = Arc::<Refusals>::default();
    Hub { router: router(Arc::clone(&service), Arc::new(signer), Arc::clone(&refusals)), service, refusals }
}

/// A request as it goes over the wire, to be sent as often as one likes.
#[derive(Clone)]
struct Sent {
    method: &'static str,
    path: &'static str,
    query: &'static str,
    media_type: &'static str,
    content: &'static [u8],
    digest: String,
    run: String,
    headers: Headers,
}

impl Sent {
    fn new(key: &SigningKey, key_id: &str, run: String) -> Self {
        Self::of(key, key_id, run, ("GET", DESIRED_PATH, POLL), b"")
    }

    fn of(
        key: &SigningKey,
        key_id: &str,
        run: String,
        (method, path, query): (&'static str, &'static str, &'static str),
        content: &'static [u8],
    ) -> Self {
        let digest = signature::content_digest(content);
        let covered = signature::Request { method, path, query, content_digest: &digest, run: &run };
        let headers = signature::sign_request(key, covered, Parameters { key_id, created: 0, nonce: "n" });
        Self { method, path, query, media_type: MEDIA_TYPE, content, digest, run, headers }
    }

    fn signed(&self) -> Signed<'_> {
        let Self { method, path, query, media_type: _, content: _, digest, run, headers } = self;
        let request = signature::Request { method, path, query, content_digest: digest, run };
        Signed { request, signature_input: &headers.signature_input, signature: &headers.signature }
    }

    fn request(&self, body: Body) -> Request {
        Request::builder()
            .method(self.method)
            .uri(format!("/behind/a/proxy{}?{}", self.path, self.query))
            .header(header::CONTENT_TYPE, self.media_type)
            .header(signature::CONTENT_DIGEST, &self.digest)
            .header(signature::RUN, &self.run)
            .header(signature::SIGNATURE_INPUT, &self.headers.signature_input)
            .header(signature::SIGNATURE, &self.headers.signature)
            .body(body)
            .unwrap()
    }
}

/// What came back, and in which run it was said.
struct Got {
    status: u16,
    run: RunNumber,
    content: Bytes,
}

impl Hub {
    fn router_behind_proxy(&self) -> Router {
        Router::new().nest("/behind/a/proxy", self.router.clone())
    }

    async fn send(&self, sent: &Sent) -> Got {
        self.send_with(sent, Body::from(sent.content)).await
    }

    /// Sends it, and checks that the answer is to this very request.
    async fn send_with(&self, sent: &Sent, body: Body) -> Got {
        let response = self.router_behind_proxy().oneshot(sent.request(body)).await.unwrap();
        let (parts, body) = response.into_parts();
        let content = body.collect().await.unwrap().to_bytes();
        let get = |name: &str| parts.headers[name].to_str().unwrap();
        let headers = Headers {
            signature_input: get(signature::SIGNATURE_INPUT).to_owned(),
            signature: get(signature::SIGNATURE).to_owned(),
        };
        let digest = signature::content_digest(&content);
        let (status, run) = (parts.status.as_u16(), get(signature::RUN));
        let said = signature::Response { status, content_digest: &digest, run };
        signature::verify_response(&hub().public(), said, sent.signed(), &headers).unwrap();
        Got { status, run: run.parse().unwrap(), content }
    }
}

impl Got {
    fn refusal(&self) -> RefusalKind {
        serde_json::from_slice::<Refusal>(&self.content).unwrap().refusal
    }
}

/// An agent that was told of this run.
async fn told(hub: &Hub) -> RunNumbers {
    let mut numbers = RunNumbers::default();
    let got = hub.send(&Sent::new(&agent(), TARGET, numbers.take())).await;
    assert_eq!((got.status, got.refusal()), (409, RefusalKind::BadRequestNumber));
    let refused: NumberRefused = serde_json::from_slice(&got.content).unwrap();
    assert_eq!(
        refused.addresses.urls,
        ["https://hub"],
        "sessions go on over a restart, so this is the first that it hears"
    );
    numbers.answered(got.run);
    numbers
}

#[tokio::test]
async fn a_request_is_taken_once() {
    let hub = start(1);
    let mut numbers = told(&hub).await;
    assert_eq!(hub.service.handled.load(Ordering::Relaxed), 0, "without a number nothing is done");
    let (first, second) = (Sent::new(&agent(), TARGET, numbers.take()), Sent::new(&agent(), TARGET, numbers.take()));
    assert_eq!(hub.send(&second).await.status, 200, "in any order");
    assert_eq!(hub.send(&first).await.status, 200);
    for sent in [&first, &second] {
        let again = hub.send(sent).await;
        assert_eq!((again.refusal(), again.run.number), (RefusalKind::BadRequestNumber, 3));
    }
    assert_eq!(hub.service.handled.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn what_was_said_to_one_run_is_not_taken_by_another() {
    let (before, after) = (start(1), start(2));
    let mut numbers = told(&before).await;
    let recorded = Sent::new(&agent(), TARGET, numbers.take());
    let got = after.send(&recorded).await;
    assert_eq!((got.refusal(), after.service.handled.load(Ordering::Relaxed)), (RefusalKind::BadRequestNumber, 0));
    numbers.answered(got.run);
    // Both are behind one balancer now.
    for hub in [&before, &after, &before] {
        assert_eq!(hub.send(&Sent::new(&agent(), TARGET, numbers.take())).await.status, 200);
    }
}

/// Somebody on the way has kept it back, and lets it go when its agent is dead.
#[tokio::test]
async fn what_was_signed_before_a_target_fell_silent_is_not_taken_after() {
    let hub = start(1);
    let mut numbers = told(&hub).await;
    let kept: Vec<_> = (0..3).map(|_| Sent::new(&agent(), TARGET, numbers.take())).collect();
    assert_eq!(hub.send(&kept[0]).await.status, 200);
    hub.service.silences.store(1, Ordering::Relaxed);
    let mut next = None;
    for sent in &kept {
        let got = hub.send(sent).await;
        assert_eq!(got.refusal(), RefusalKind::BadRequestNumber);
        next = Some(got.run);
    }
    assert_eq!(hub.service.handled.load(Ordering::Relaxed), 1);
    // One that is alive signs again.
    numbers.answered(next.unwrap());
    for _ in 0..3 {
        assert_eq!(hub.send(&Sent::new(&agent(), TARGET, numbers.take())).await.status, 200);
    }
}

const OPENS: (&str, &str, &str) = ("POST", SESSION_PATH, "");

fn opens() -> &'static [u8] {
    serde_json::to_vec(&SessionRequest::default()).unwrap().leak()
}

fn opened() -> SessionAnswer {
    serde_json::from_value(
        json!({"session": "1.0000000000000001", "epoch": 1, "poll": {"waitSeconds": 45, "staleAfterSeconds": 120}}),
    )
    .unwrap()
}

/// An agent that is handed over goes on at this hub, too.
#[tokio::test]
async fn every_answer_about_a_session_says_where_the_hub_is_reached_and_who_certifies_it() {
    let hub = start(1);
    let mut numbers = told(&hub).await;
    let handed = json!({"key": "AQID", "former": TARGET, "target": OTHER_TARGET, "name": "store"});
    let handed = SessionAnswer { handover: serde_json::from_value(handed).unwrap(), ..opened() };
    for answer in [opened(), handed] {
        *hub.service.session.lock().unwrap() = Some(answer.clone());
        let got = hub.send(&Sent::of(&agent(), TARGET, numbers.take(), OPENS, opens())).await;
        let said: SessionAnswer = serde_json::from_slice(&got.content).unwrap();
        assert_eq!(said, SessionAnswer { addresses: addresses(), ..answer });
    }
}

/// It is what a person reads of two agents with one identity.
#[tokio::test]
async fn a_session_is_asked_for_from_the_address_of_the_peer() {
    let hub = start(1);
    let mut numbers = told(&hub).await;
    let (peer, _) = Peers::new(Places::within(1_000)).unserved();
    let asked_from = async |number: String, peer: Option<Peer>| {
        let mut request = Sent::of(&agent(), TARGET, number, OPENS, opens()).request(Body::from(opens()));
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        let router = Router::new().nest("/behind/a/proxy", hub.router.clone());
        router.oneshot(request).await.unwrap();
        hub.service.origin.lock().unwrap().take().unwrap().address
    };
    assert_eq!(asked_from(numbers.take(), Some(peer())).await.as_deref(), Some("127.0.0.1"));
    assert_eq!(asked_from(numbers.take(), None).await, None, "it came over none of the listener's connections");
}

#[tokio::test]
async fn a_restarted_agent_goes_on_where_the_former_process_ended() {
    let hub = start(1);
    let mut former = told(&hub).await;
    for _ in 0..300 {
        assert_eq!(hub.send(&Sent::new(&agent(), TARGET, former.take())).await.status, 200);
    }
    let mut restarted = told(&hub).await;
    assert_eq!(hub.send(&Sent::new(&agent(), TARGET, restarted.take())).await.status, 200);
}

#[tokio::test]
async fn an_unknown_sender_gets_no_verdict_about_its_target() {
    let hub = start(1);
    let stolen = SigningKey::from_seed([5; 32]);
    for (key, key_id, expected) in [
        (&agent(), OTHER_TARGET, RefusalKind::UnknownTarget),
        (&agent(), "no target at all", RefusalKind::UnknownTarget),
        (&stolen, TARGET, RefusalKind::Unauthenticated),
    ] {
        let got = hub.send(&Sent::new(key, key_id, "-".to_owned())).await;
        assert_eq!((got.refusal(), got.run.number), (expected, 0), "{key_id}");
    }
    let enrolment = ("POST", ENROL_PATH, "");
    let unknown = Sent::of(&agent(), "another", "-".to_owned(), enrolment, b"{}");
    assert_eq!(hub.send(&unknown).await.refusal(), RefusalKind::Unauthenticated);
    assert_eq!(hub.service.handled.load(Ordering::Relaxed), 0);
}

/// Who is told that its token is not known shows it no more for long.
#[tokio::test]
async fn of_a_token_that_cannot_be_read_nobody_is_told_that_it_is_not_known() {
    let hub = start(1);
    let sent = Sent::of(&agent(), "unreadable", "-".to_owned(), ("POST", ENROL_PATH, ""), b"{}");
    let got = hub.send(&sent).await;
    assert_eq!((got.refusal(), got.run.number), (RefusalKind::Busy, 0));
}

#[tokio::test]
async fn whose_key_was_replaced_is_told_so_once_and_nothing_it_says_is_read() {
    let hub = start(1);
    let unread = || Body::from_stream(stream::once(async { panic!("it is read") as Result<Bytes, std::io::Error> }));
    let mut numbers = RunNumbers::default();
    let report = ("PUT", REPORTED_PATH, "");
    let greeting = hub.send(&Sent::new(&former_agent(), TARGET, numbers.take())).await;
    assert_eq!(greeting.refusal(), RefusalKind::BadRequestNumber);
    numbers.answered(greeting.run);
    let sent = Sent::of(&former_agent(), TARGET, numbers.take(), report, b"{}");
    let got = hub.send_with(&sent, unread()).await;
    assert_eq!(got.refusal(), RefusalKind::Revoked);
    assert!(got.run.number > 0, "it is said to who was verified");
    assert_eq!(hub.send_with(&sent, unread()).await.refusal(), RefusalKind::BadRequestNumber, "once");
    // Its numbers are not those of the present key.
    assert_eq!(hub.send(&Sent::new(&agent(), TARGET, told(&hub).await.take())).await.status, 200);
    assert_eq!(hub.service.handled.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn no_content_is_read_of_who_is_not_known_or_was_heard_before() {
    let hub = start(1);
    let unread = || Body::from_stream(stream::once(async { panic!("it is read") as Result<Bytes, std::io::Error> }));
    let report = ("PUT", REPORTED_PATH, "");
    for sent in [
        Sent::of(&SigningKey::from_seed([5; 32]), TARGET, "-".to_owned(), report, b"{}"),
        Sent::of(&agent(), OTHER_TARGET, "-".to_owned(), report, b"{}"),
    ] {
        assert!(matches!(hub.send_with(&sent, unread()).await.status, 401 | 404));
    }
    // What was recorded verifies for ever.
    let recorded = Sent::of(&agent(), TARGET, told(&start(2)).await.take(), report, b"{}");
    assert_eq!(hub.send_with(&recorded, unread()).await.refusal(), RefusalKind::BadRequestNumber);
}

#[tokio::test]
async fn content_that_is_not_what_was_signed_is_refused() {
    let hub = start(1);
    let mut numbers = told(&hub).await;
    let report = ("PUT", REPORTED_PATH, "");
    let content = br#"{"session":"1.0000000000000001","seq":1,"inSync":true}"#;
    let sent = Sent::of(&agent(), TARGET, numbers.take(), report, content);
    let got = hub.send_with(&sent, Body::from(r#"{"session":"1.0000000000000001","seq":9,"inSync":true}"#)).await;
    assert_eq!((got.refusal(), hub.service.handled.load(Ordering::Relaxed)), (RefusalKind::Malformed, 0));
    let sent = Sent::of(&agent(), TARGET, numbers.take(), report, content);
    assert_eq!(hub.send(&sent).await.status, 200);
}

#[tokio::test]
async fn what_was_signed_by_a_key_that_is_replaced_while_it_comes_is_not_carried_out() {
    let hub = start(1);
    let mut numbers = told(&hub).await;
    let content = br#"{"session":"1.0000000000000001","seq":1,"inSync":true}"#;
    let sent = Sent::of(&agent(), TARGET, numbers.take(), ("PUT", REPORTED_PATH, ""), content);
    let service = Arc::clone(&hub.service);
    let comes = async move {
        service.replaced.store(true, Ordering::Relaxed);
        Ok::<_, std::io::Error>(Bytes::from_static(content))
    };
    let got = hub.send_with(&sent, Body::from_stream(stream::once(comes))).await;
    assert_eq!((got.refusal(), hub.service.handled.load(Ordering::Relaxed)), (RefusalKind::Revoked, 0));
}

/// What no store could keep, nobody could accept either.
#[tokio::test]
async fn a_claim_of_more_than_any_history_has_is_malformed() {
    let hub = start(1);
    let mut numbers = told(&hub).await;
    let target: TargetId = TARGET.parse().unwrap();
    let version = Version { epoch: Epoch(1), revision: Revision(i64::MAX.unsigned_abs()) };
    let attestation = Attestation::unsigned(target, Shown { version, point: RevisionPoint::NOWHERE });
    let set = Accepted { version, digest: Digest::of(b"") };
    let request = SessionRequest { accepted: Some(Attested { set, attestation }), ..SessionRequest::default() };
    let (highest, more) = (version.revision.to_string(), (1_u64 << 63).to_string());
    let claims = serde_json::to_string(&request).unwrap();
    let poll = format!("{POLL}&since=1.{highest}");
    for (number, handled) in [(&highest, 1), (&more, 0)] {
        let before = hub.service.handled.load(Ordering::Relaxed);
        let content: &'static str = claims.replace(&highest, number).leak();
        let opens = Sent::of(&agent(), TARGET, numbers.take(), ("POST", SESSION_PATH, ""), content.as_bytes());
        let asks: &'static str = poll.replace(&highest, number).leak();
        let polls = Sent::of(&agent(), TARGET, numbers.take(), ("GET", DESIRED_PATH, asks), b"");
        for sent in [opens, polls] {
            let got = hub.send(&sent).await;
            assert!(handled == 1 || got.refusal() == RefusalKind::Malformed, "{number}");
        }
        assert_eq!(hub.service.handled.load(Ordering::Relaxed) - before, 2 * handled, "{number}");
    }
}

/// Whatever a proxy makes of a request, nobody is accused of it.
#[tokio::test]
async fn what_is_too_large_is_a_breach_only_if_it_is_what_was_signed() {
    static LARGE: [u8; 8 << 20] = [b' '; 8 << 20];
    static CONTENT: &[u8] = br#"{"session":"1.0000000000000001","seq":1,"inSync":true}"#;
    let hub = start(1);
    let mut numbers = told(&hub).await;
    let report = ("PUT", REPORTED_PATH, "");
    let breaches = || hub.service.breaches.lock().unwrap().clone();
    let sent = Sent::of(&agent(), TARGET, numbers.take(), report, CONTENT);
    let got = hub.send_with(&sent, Body::from([CONTENT, &LARGE].concat())).await;
    assert_eq!((got.refusal(), breaches()), (RefusalKind::TooLarge, vec![]));

    let (media_type, packed) = codec::encode(&"x".repeat(5 << 20)).unwrap();
    let packed: &'static [u8] = packed.leak();
    let packed_as = |number| Sent { media_type, ..Sent::of(&agent(), TARGET, number, report, packed) };
    let sent = packed_as(numbers.take());
    let got = hub.send_with(&sent, Body::from([packed, b" "].concat())).await;
    assert_eq!((got.refusal(), breaches()), (RefusalKind::Malformed, vec![]));
    let sent = packed_as(numbers.take());
    assert_eq!((hub.send(&sent).await.refusal(), breaches()), (RefusalKind::TooLarge, vec![Breach::Message]));
}

/// What one kind may have, another has no use for; also where it is small until it is unpacked.
#[tokio::test]
async fn a_request_has_as_much_content_as_its_kind_may_have() {
    let hub = start(1);
    let mut numbers = told(&hub).await;
    *hub.service.session.lock().unwrap() = Some(opened());
    let mut refused = async |asks: (&'static str, &'static str, &'static str), packed: bool, bytes: usize| {
        let text = "x".repeat(bytes.saturating_sub(2));
        let (media_type, content) = if packed {
            codec::encode(&text).unwrap()
        } else {
            (MEDIA_TYPE, serde_json::to_vec(&text).unwrap()[..bytes].to_vec())
        };
        let content = content.leak();
        let sent = Sent { media_type, ..Sent::of(&agent(), TARGET, numbers.take(), asks, content) };
        let got = hub.send(&sent).await;
        (got.status != 200).then(|| got.refusal())
    };
    let too_large = Some(RefusalKind::TooLarge);
    // What is not too large is no message of any kind.
    let read = Some(RefusalKind::Malformed);
    for (asks, most) in [
        (("PUT", REPORTED_PATH, ""), REQUEST_BYTES_MAX),
        (("POST", BODIES_PATH, ""), REQUEST_BYTES_MAX),
        (OPENS, OPENING_BYTES_MAX),
    ] {
        for packed in [false, true] {
            assert_eq!(refused(asks, packed, most).await, read, "{asks:?} {packed}");
            assert_eq!(refused(asks, packed, most + 1).await, too_large, "{asks:?} {packed}");
        }
    }
    assert_eq!(refused(("GET", DESIRED_PATH, POLL), false, 0).await, None);
    assert_eq!(refused(("GET", DESIRED_PATH, POLL), false, 1).await, too_large);
    assert_eq!(refused(("GET", "/link/v1/nothing", ""), false, OPENING_BYTES_MAX + 1).await, too_large);
    let enrols = Sent::of(
        &SigningKey::from_seed([2; 32]),
        "store",
        numbers.take(),
        ("POST", ENROL_PATH, ""),
        vec![b' '; OPENING_BYTES_MAX + 1].leak(),
    );
    assert_eq!(hub.send(&enrols).await.refusal(), RefusalKind::TooLarge);
}

/// Nothing of it is taken in, and all of it costs: whoever has the key of an agent sends no more of it than of anything else.
/// Reports wait at once, and accuse nobody, for what waits is not read; all else ends at twice as much.
#[tokio::test(start_paused = true)]
async fn content_that_is_of_no_use_counts_as_its_key_s() {
    const POLLS: (&str, &str, &str) = ("GET", DESIRED_PATH, POLL);
    const BODIES: (&str, &str, &str) = ("POST", BODIES_PATH, "");
    const REPORTS: (&str, &str, &str) = ("PUT", REPORTED_PATH, "");
    static LARGE: [u8; REQUEST_BYTES_MAX + 1] = [b' '; REQUEST_BYTES_MAX + 1];
    const BURST: usize = 4;
    const OF_KEY: &[Breach] = &[Breach::Rate];
    let plain = tideline_common::wire::v1::MEDIA_TYPE;
    let (deflated, packed) = codec::encode(&"x".repeat(REQUEST_BYTES_MAX - "\"\"".len())).unwrap();
    let packed: &'static [u8] = packed.leak();
    for (asks, (media_type, signed), content, refused, accused) in [
        (REPORTS, (plain, &b"{}"[..]), &LARGE[..], Some(RefusalKind::TooLarge), &[][..]),
        (REPORTS, (plain, b"{}"), &LARGE[1..], Some(RefusalKind::Malformed), &[]),
        (REPORTS, (plain, &LARGE[1..]), &LARGE[1..], Some(RefusalKind::Malformed), &[]),
        (BODIES, (plain, &LARGE[1..]), &LARGE[1..], Some(RefusalKind::Malformed), OF_KEY),
        // It counts as what it is packed from, however little travels.
        (BODIES, (deflated, packed), packed, Some(RefusalKind::Malformed), OF_KEY),
        (POLLS, (plain, &LARGE[1..]), &LARGE[1..], Some(RefusalKind::TooLarge), &[]),
        (("GET", "/link/v1/nothing", ""), (plain, &LARGE[1..]), &LARGE[1..], Some(RefusalKind::TooLarge), &[]),
    ] {
        let hub = start(1);
        let (peer, _) =
            Peers::new(Places { bytes_burst: BURST * REQUEST_BYTES_MAX, ..Places::within(1_000) }).unserved();
        let mut numbers = told(&hub).await;
        let mut send = async || {
            let sent = Sent { media_type, ..Sent::of(&agent(), TARGET, numbers.take(), asks, signed) };
            let peer = peer();
            let mut request = sent.request(peer.receiving(Body::from(content)));
            request.extensions_mut().insert(peer);
            let router = Router::new().nest("/behind/a/proxy", hub.router.clone());
            let body = router.oneshot(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
            serde_json::from_slice::<Refusal>(&body).ok().map(|refusal| refusal.refusal)
        };
        let served = if asks == REPORTS { BURST } else { 2 * BURST };
        for _ in 0..=served {
            assert_eq!(send().await, refused, "{asks:?} {media_type}");
        }
        assert_eq!(send().await, Some(RefusalKind::Busy), "{asks:?} {media_type}");
        // Whoever is on the way may have added what was not signed.
        assert_eq!(*hub.service.breaches.lock().unwrap(), accused, "{asks:?} {media_type}");
    }
}

/// A proxy may write another media type over that of any request.
#[tokio::test(start_paused = true)]
async fn a_media_type_that_was_changed_on_the_way_accuses_nobody() {
    const BURST: usize = 4;
    static CONTENT: &[u8] = br#"{"session":"1.0000000000000001","seq":1,"inSync":true}"#;
    for media_type in ["text/html", "", MEDIA_TYPE_DEFLATE] {
        let hub = start(1);
        let places = Places { bytes_burst: BURST * REQUEST_BYTES_MAX, ..Places::within(1_000) };
        let (peer, _) = Peers::new(places).unserved();
        let mut numbers = told(&hub).await;
        for _ in 0..6 * BURST {
            let number = numbers.take();
            let sent = Sent { media_type, ..Sent::of(&agent(), TARGET, number, ("PUT", REPORTED_PATH, ""), CONTENT) };
            let mut request = sent.request(Body::from(CONTENT));
            request.extensions_mut().insert(peer());
            let router = Router::new().nest("/behind/a/proxy", hub.router.clone());
            assert!(matches!(router.oneshot(request).await.unwrap().status().as_u16(), 400 | 503));
        }
        assert_eq!(*hub.service.breaches.lock().unwrap(), [], "{media_type}");
        assert_eq!(hub.service.handled.load(Ordering::Relaxed), 0, "{media_type}");
    }
}

/// Whoever is told to wait may have requests on their way still; only who goes on regardless is shown as in breach.
#[tokio::test(start_paused = true)]
async fn a_key_that_sends_twice_a_burst_is_in_breach_and_not_before() {
    let hub = start(1);
    let (peer, _) = Peers::new(Places::within(1_000)).unserved();
    let mut numbers = told(&hub).await;
    let mut send = async || {
        let mut request = Sent::new(&agent(), TARGET, numbers.take()).request(Body::empty());
        request.extensions_mut().insert(peer());
        hub.router_behind_proxy().oneshot(request).await.unwrap().status().as_u16()
    };
    let breaches = || hub.service.breaches.lock().unwrap().clone();
    for expected in [200, 503] {
        for _ in 0..REQUESTS_PER_KEY_BURST {
            assert_eq!(send().await, expected);
        }
        assert_eq!(breaches(), [], "it is told to wait first");
    }
    assert_eq!((send().await, breaches()), (503, vec![Breach::Rate]));
    let burst = u64::from(REQUESTS_PER_KEY_BURST);
    let refused = [(RefusedAs::Replayed, 1), (RefusedAs::Flood, 1), (RefusedAs::Busy, burst)];
    assert_eq!(hub.refusals.counts(), refused.into());
    // The next agent of the target pays for nothing that the key was used for by whoever had stolen it.
    hub.service.replaced.store(true, Ordering::Relaxed);
    let mut request = Sent::new(&SigningKey::from_seed([4; 32]), TARGET, numbers.take()).request(Body::empty());
    request.extensions_mut().insert(peer());
    assert_eq!(hub.router_behind_proxy().oneshot(request).await.unwrap().status(), StatusCode::OK);
}

/// It verifies for ever, and costs the hub two signatures each time; the agent that it was recorded of must not pay for it.
#[tokio::test]
async fn a_connection_over_which_one_request_comes_for_ever_ends() {
    let hub = start(1);
    let (peer, ends) = Peers::new(Places::within(1_000)).unserved();
    let send = async |sent: &Sent| {
        let mut request = sent.request(Body::empty());
        request.extensions_mut().insert(peer());
        let router = Router::new().nest("/behind/a/proxy", hub.router.clone());
        router.oneshot(request).await.unwrap().status().as_u16()
    };
    let recorded = Sent::new(&agent(), TARGET, "-".to_owned());
    let mut numbers = told(&hub).await;
    for _ in 1..UNTAKEN_IN_A_ROW_MAX {
        assert_eq!(send(&recorded).await, 409);
    }
    assert_eq!(send(&Sent::new(&agent(), TARGET, numbers.take())).await, 200);
    let replaced = Sent::new(&former_agent(), TARGET, "-".to_owned());
    let unknown = Sent::new(&agent(), OTHER_TARGET, "-".to_owned());
    for sent in [&recorded, &replaced, &unknown].into_iter().cycle().take(UNTAKEN_IN_A_ROW_MAX as usize) {
        assert!(!ends.is_cancelled(), "what was taken counts for those before it");
        assert!(matches!(send(sent).await, 404 | 409));
    }
    assert!(ends.is_cancelled());
}

#[tokio::test]
async fn what_is_refused_is_counted_by_what_it_was_refused_for() {
    static LARGE: [u8; REQUEST_BYTES_MAX + 1] = [b' '; REQUEST_BYTES_MAX + 1];
    const REPORTS: (&str, &str, &str) = ("PUT", REPORTED_PATH, "");
    let session: &'static [u8] = serde_json::to_vec(&SessionRequest::default()).unwrap().leak();
    let hub = start(1);
    let mut expected = BTreeMap::new();
    let mut counted = |hub: &Hub, refused| {
        *expected.entry(refused).or_insert(0) += 1;
        assert_eq!(hub.refusals.counts(), expected, "{refused:?}");
    };
    let bare = Request::builder().uri("/link/v1/desired").body(Body::empty()).unwrap();
    assert_eq!(hub.router.clone().oneshot(bare).await.unwrap().status(), 401);
    counted(&hub, RefusedAs::Unverified);
    for (key, key_id) in [(&SigningKey::from_seed([5; 32]), TARGET), (&agent(), OTHER_TARGET)] {
        hub.send(&Sent::new(key, key_id, "-".to_owned())).await;
        counted(&hub, RefusedAs::Unverified);
    }
    let mut numbers = told(&hub).await;
    counted(&hub, RefusedAs::Replayed);
    let taken = Sent::new(&agent(), TARGET, numbers.take());
    assert_eq!(hub.send(&taken).await.status, 200, "and is not counted");
    hub.send(&taken).await;
    counted(&hub, RefusedAs::Replayed);
    for (asks, signed, content, refused) in [
        (REPORTS, &b"{}"[..], &LARGE[..], RefusedAs::TooLarge),
        (REPORTS, b"{}", b"{ }", RefusedAs::Malformed),
        (("GET", "/link/v1/nothing", ""), b"", b"", RefusedAs::Malformed),
        (("POST", SESSION_PATH, ""), session, session, RefusedAs::ShutOut),
    ] {
        let sent = Sent::of(&agent(), TARGET, numbers.take(), asks, signed);
        hub.send_with(&sent, Body::from(content)).await;
        counted(&hub, refused);
    }
}

#[tokio::test]
async fn what_is_not_signed_gets_no_signed_answer() {
    let hub = start(1);
    let bare = Request::builder().uri("/behind/a/proxy/link/v1/desired").body(Body::empty()).unwrap();
    let long = Sent::new(&agent(), TARGET, "x".repeat(signature::HEADER_BYTES_MAX + 1)).request(Body::empty());
    for request in [bare, long] {
        let router = Router::new().nest("/behind/a/proxy", hub.router.clone());
        let response = router.oneshot(request).await.unwrap();
        assert_eq!(response.status(), 401);
        assert!(response.headers().get(signature::SIGNATURE).is_none());
    }
}
