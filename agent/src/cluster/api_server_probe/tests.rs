use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use http::Response;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use serde_json::{Value, json};
use tideline_common::{AssociatedKind, GroupKind, HubId, Reason, TargetId};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::super::{AssociatedWatchers, Kinds, Scope, Watches};
use super::*;
use crate::core::{AssociatedNews, Depth, Event, Follow};
use crate::namespaces::Namespaces;

/// An API server that answers, or does not; and how often it was asked what.
#[derive(Clone, Default)]
struct Server {
    hangs: Arc<AtomicBool>,
    /// It does not accept the credentials.
    refuses: Arc<AtomicBool>,
    asked: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Server {
    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request.uri().path(), request.uri().query()).await) }
        });
        Client::new(service, "default")
    }

    async fn answer(&self, path: &str, query: Option<&str>) -> Response<BoxBody<bytes::Bytes, Infallible>> {
        let watch = query.is_some_and(|query| query.contains("watch=true"));
        let what = if watch { format!("watch {path}") } else { path.to_owned() };
        *self.asked.lock().expect("no holder panics").entry(what).or_default() += 1;
        if self.hangs.load(Ordering::SeqCst) {
            return pending().await;
        }
        if self.refuses.load(Ordering::SeqCst) {
            let status = json!({"kind": "Status", "code": 401, "reason": "Unauthorized", "message": "Unauthorized"});
            let mut response = Response::new(BodyExt::boxed(Full::from(status.to_string())));
            *response.status_mut() = http::StatusCode::UNAUTHORIZED;
            return response;
        }
        let text = match path {
            "/livez" => "ok".to_owned(),
            "/api/v1" => {
                let resource = json!({"name": "configmaps", "kind": "ConfigMap", "namespaced": true, "verbs": [], "singularName": ""});
                json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [resource]}).to_string()
            }
            // Nothing ever happens.
            _ if watch => return Response::new(BodyExt::boxed(StreamBody::new(silent()))),
            _ => json!({"metadata": {"resourceVersion": "1"}, "items": Value::Array(Vec::new())}).to_string(),
        };
        Response::new(BodyExt::boxed(Full::from(text)))
    }

    fn asked(&self, what: &str) -> usize {
        self.asked.lock().expect("no holder panics").get(what).copied().unwrap_or_default()
    }

    fn hang(&self, hangs: bool) {
        self.hangs.store(hangs, Ordering::SeqCst);
    }
}

fn silent() -> impl Stream<Item = Result<http_body::Frame<bytes::Bytes>, Infallible>> {
    futures::stream::pending()
}

#[tokio::test(start_paused = true)]
async fn silence_is_told_after_two_questions_and_so_is_the_first_answer() {
    let server = Server::default();
    let begun = Instant::now();
    let mut probe = Box::pin(probe_api_server(server.client()));
    let quiet = timeout(EVERY * 10, probe.next()).await;
    assert!(quiet.is_err(), "while it answers there is no news: {quiet:?}");
    let asked = server.asked("/livez");
    assert!((8..=10).contains(&asked), "{asked}");

    server.hang(true);
    let hung = Instant::now();
    assert!(matches!(probe.next().await, Some(ApiServerProbe::Silent(why)) if why.contains("does not answer")));
    let took = hung.elapsed();
    assert!(took <= EVERY + ANSWER_MAX + AGAIN + ANSWER_MAX + Duration::from_secs(1), "{took:?}");
    assert!(matches!(probe.next().await, Some(ApiServerProbe::Silent(_))), "as long as it lasts");
    server.hang(false);
    assert_eq!(probe.next().await, Some(ApiServerProbe::Back));
    let asked = server.asked("/livez");
    drop(probe);
    tokio::time::advance(begun.elapsed()).await;
    assert_eq!(server.asked("/livez"), asked, "nobody asks for what nobody wants to know");
}

#[tokio::test(start_paused = true)]
async fn an_answer_between_makes_silence_begin_anew() {
    let lost = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&lost);
    let service = tower::service_fn(move |_request: Request<Body>| {
        let nth = asked.fetch_add(1, Ordering::SeqCst);
        async move {
            if nth.is_multiple_of(2) {
                return pending().await;
            }
            let mut refused = Response::new(Body::from(b"you may not".to_vec()));
            *refused.status_mut() = http::StatusCode::FORBIDDEN;
            Ok::<_, Infallible>(refused)
        }
    });
    let mut probe = Box::pin(probe_api_server(Client::new(service, "default")));
    assert!(timeout(EVERY * 20, probe.next()).await.is_err());
    assert!(lost.load(Ordering::SeqCst) > 10);
}

/// Of which of the two an event says what is waited for.
type Concerns = fn(&Event) -> Option<Who>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Watch,
    Associated,
}

fn listed(event: &Event) -> Option<Who> {
    match event {
        Event::Listed { .. } => Some(Who::Watch),
        Event::Followed { news: AssociatedNews::Listed, .. } => Some(Who::Associated),
        _ => None,
    }
}

fn lost(event: &Event) -> Option<Who> {
    match event {
        Event::WatchLost { reason: Reason::Unavailable, .. } => Some(Who::Watch),
        Event::Followed { news: AssociatedNews::Lost { reason: Reason::Unavailable, .. }, .. } => Some(Who::Associated),
        _ => None,
    }
}

async fn both(events: &mut mpsc::Receiver<Event>, said: Concerns) {
    let mut heard = BTreeSet::new();
    while heard.len() < 2 {
        let event = timeout(EVERY * 10, events.recv()).await.expect("in time").expect("they live");
        heard.extend(said(&event));
    }
}

#[tokio::test(start_paused = true)]
async fn requests_to_a_silent_api_server_are_given_up_and_sent_again() {
    let server = Server::default();
    let (sender, mut events) = mpsc::channel(64);
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let client = server.client();
    let kinds = Arc::new(Kinds::new(client.clone()));
    let mut watches = Watches::new(client.clone(), kinds, sender.clone(), Namespaces::All, tasks.clone(), stop.clone());
    let mut associated = AssociatedWatchers::new(client, sender, Namespaces::All, tasks.clone(), stop.clone());
    let uuid = uuid::Uuid::from_u128;
    let scope = Scope {
        hub: HubId::from_uuid(uuid(1)),
        target: TargetId::from_uuid(uuid(2)),
        formers: tideline_common::Formers::default(),
    };
    watches.set(scope, BTreeMap::from([(GroupKind::new("", "ConfigMap"), Arc::from("v1"))]));
    associated.set(BTreeMap::from([(AssociatedKind::Pods, Follow { run: 1, namespace: None, depth: Depth::Links })]));
    both(&mut events, listed).await;

    server.hang(true);
    watches.lose();
    associated.lose();
    both(&mut events, lost).await;
    // Now the lists hang. Requests made after it is back are answered, and not those from before.
    let (configs, pods) = ("/api/v1/configmaps", "/api/v1/pods");
    while server.asked(configs) < 2 || server.asked(pods) < 2 {
        tokio::time::advance(Duration::from_millis(100)).await;
        tokio::task::yield_now().await;
    }
    server.hang(false);
    watches.begin_anew();
    associated.lose();
    both(&mut events, listed).await;
    assert_eq!((server.asked(configs), server.asked(pods)), (3, 3));

    stop.cancel();
    tasks.close();
    tasks.wait().await;
}

/// Nothing else is answered either, so nothing is known of the cluster; and those that are renewed are tried as soon.
#[tokio::test(start_paused = true)]
async fn credentials_that_are_not_accepted_are_silence_and_after_an_hour_the_end() {
    let server = Server::default();
    let mut probe = Box::pin(probe_api_server(server.client()));
    let mut next = async || timeout(EVERY * 10, probe.next()).await.expect("it tells").expect("it goes on");
    let begun = Instant::now();
    server.refuses.store(true, Ordering::SeqCst);
    let told = next().await;
    assert!(matches!(&told, ApiServerProbe::Silent(why) if why.contains("credentials")), "{told:?}");
    while begun.elapsed() < UNAUTHORIZED_MAX / 2 {
        assert!(matches!(next().await, ApiServerProbe::Silent(_)));
    }
    // Renewed in time: the hour begins anew with the next refusal.
    server.refuses.store(false, Ordering::SeqCst);
    assert_eq!(next().await, ApiServerProbe::Back);
    server.refuses.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    let mut lost = 0;
    loop {
        // Now and then a question is lost, which says nothing of the credentials.
        let is_lost = begun.elapsed() >= UNAUTHORIZED_MAX / 4 * (lost + 1);
        lost += u32::from(is_lost);
        server.hang(is_lost);
        match next().await {
            ApiServerProbe::Silent(_) => assert!(begun.elapsed() < UNAUTHORIZED_MAX + EVERY * 2),
            ApiServerProbe::Unauthorized(why) => break assert!(why.contains("Unauthorized"), "{why}"),
            ApiServerProbe::Back => panic!("it is not accepted"),
        }
    }
    assert!(begun.elapsed() >= UNAUTHORIZED_MAX && lost >= 3);
}

/// A refusal as it goes down, and another as it comes up.
#[tokio::test(start_paused = true)]
async fn an_api_server_that_was_away_for_hours_did_not_refuse_the_credentials_so_long() {
    let server = Server::default();
    let mut probe = Box::pin(probe_api_server(server.client()));
    let mut next = async || timeout(EVERY * 10, probe.next()).await.expect("it tells").expect("it goes on");
    server.refuses.store(true, Ordering::SeqCst);
    assert!(matches!(next().await, ApiServerProbe::Silent(_)));
    server.hang(true);
    let begun = Instant::now();
    while begun.elapsed() < UNAUTHORIZED_MAX * 2 {
        assert!(matches!(next().await, ApiServerProbe::Silent(_)));
    }
    server.hang(false);
    assert!(matches!(next().await, ApiServerProbe::Silent(why) if why.contains("credentials")));
}
