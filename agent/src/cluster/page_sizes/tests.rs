use std::convert::Infallible;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use futures::{FutureExt, Stream, StreamExt, stream};
use http_body::Frame;
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::yield_now;
use tokio::time::{Instant, advance};
use tower::service_fn;

use super::super::deadlines::Deadlines;
use super::super::request::{CALL_MAX, Call, Want, call};
use super::*;

const DEADLINES: Deadlines = Deadlines { head: Duration::from_secs(30), part: Duration::from_secs(30) };
/// What a page was asked to hold, and the bytes that it was answered with.
type Asked = Arc<Mutex<Vec<(u32, usize)>>>;

/// The parameter of a query.
fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|parameter| parameter.strip_prefix(name)?.strip_prefix('='))
}

/// A client of an API server with ConfigMaps of so many bytes each. It turns pages, and a watch says nothing.
fn client(sizes: Vec<usize>) -> (Client, Asked) {
    let (sizes, page_sizes) = (Arc::new(sizes), Arc::<PageSizes>::default());
    let asked = Asked::default();
    let told = Arc::clone(&asked);
    let service = service_fn(move |request: Request<Body>| {
        let (sizes, asked, page_sizes) = (Arc::clone(&sizes), Arc::clone(&asked), Arc::clone(&page_sizes));
        async move {
            let serve = |request: Request<Body>| {
                let answer = answer(&sizes, request.uri().query().unwrap_or_default(), &asked);
                let answer = async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(answer)))) };
                DEADLINES.bound(request.uri().clone(), answer)
            };
            page_sizes.fit(request, serve).await
        }
    });
    (Client::new(service, "default"), told)
}

fn answer(sizes: &[usize], query: &str, asked: &Asked) -> String {
    let Some(limit) = parameter(query, "limit").map(|limit| limit.parse().expect("a number")) else {
        return String::new();
    };
    let begin: usize = parameter(query, "continue").map_or(0, |token| token.parse().expect("a token of ours"));
    let end = sizes.len().min(begin + limit as usize);
    let items = (begin..end).map(|at| {
        let annotations = json!({"note": "x".repeat(sizes[at])});
        json!({"metadata": {"name": format!("c{at}"), "uid": format!("u{at}"), "annotations": annotations}})
    });
    let token = if end < sizes.len() { end.to_string() } else { String::new() };
    let list = json!({"kind": "ConfigMapList", "apiVersion": "v1",
        "metadata": {"resourceVersion": "1", "continue": token}, "items": items.collect::<Vec<_>>()});
    let list = list.to_string();
    asked.lock().expect("no test has panicked").push((limit, list.len()));
    list
}

/// The names that a watch lists first.
async fn listed(client: Client) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    let mut events = watcher(Api::<ConfigMap>::all(client), Config::default().page_size(500)).boxed();
    while let Some(event) = events.next().await {
        match event.map_err(|error| format!("{error:?}"))? {
            Event::InitApply(object) => names.extend(object.metadata.name),
            Event::InitDone => return Ok(names),
            Event::Init | Event::Apply(_) | Event::Delete(_) => {}
        }
    }
    Err("the watch ended".to_owned())
}

#[tokio::test]
async fn a_list_of_large_objects_is_read_whole_in_pages_that_fit() {
    let large = 256 << 10;
    // Beside those that somebody made large there are usual ones, before them and after.
    let sizes = [vec![100; 300], vec![large; 100], vec![100; 1_500]].concat();
    let names: Vec<_> = (0..sizes.len()).map(|at| format!("c{at}")).collect();
    let (client, asked) = client(sizes);
    assert_eq!(listed(client).await.expect("it is listed"), names);
    let asked = std::mem::take(&mut *asked.lock().expect("no test has panicked"));
    let smallest = asked.iter().map(|(limit, _)| *limit).min().expect("pages were asked for");
    assert!((4..16).contains(&smallest), "as many as fit: {asked:?}");
    assert_eq!(asked.last().map(|(limit, _)| *limit), Some(500), "the usual size again: {asked:?}");
    assert!(asked.len() < 60, "{asked:?}");
}

#[tokio::test]
async fn usual_objects_come_in_pages_as_asked_for() {
    let (client, asked) = client(vec![2 << 10; 1_200]);
    assert_eq!(listed(client).await.expect("it is listed").len(), 1_200);
    let asked: Vec<_> = asked.lock().expect("no test has panicked").iter().map(|(limit, _)| *limit).collect();
    assert_eq!(asked, [500; 3]);
}

/// Larger than a page, and no larger than an object may be.
#[tokio::test]
async fn the_largest_object_is_a_page_of_its_own() {
    let (client, _) = client(vec![100, 2 * PAGE_BYTES_MAX, 100]);
    assert_eq!(listed(client).await.expect("it is listed").len(), 3);
}

#[tokio::test]
async fn what_no_object_may_be_is_not_read() {
    let (client, asked) = client(vec![100, ANSWER_BYTES_MAX, 100]);
    let error = listed(client).await.expect_err("it is too large");
    assert!(error.contains("TooLong"), "{error}");
    assert_eq!(asked.lock().expect("no test has panicked").last().map(|(limit, _)| *limit), Some(1));
}

#[tokio::test]
async fn only_a_watch_goes_on_for_as_long_as_it_likes() {
    for (query, ends) in [("", true), ("?watch=true", false)] {
        let uri: Uri = format!("/api/v1/configmaps{query}").parse().expect("a path");
        let body = Full::new(Bytes::from(vec![0; ANSWER_BYTES_MAX + 1]));
        let answer = async { Ok::<_, Infallible>(Response::new(body)) };
        let read = DEADLINES.bound(uri, answer).await.expect("it answers").into_body().collect().await;
        assert_eq!(read.is_err(), ends, "{query}");
    }
}

/// What there is of the bodies of pages: how many are being read, and how many were at most.
#[derive(Debug, Default)]
struct Reading {
    now: AtomicUsize,
    most: AtomicUsize,
}

type SlowBody = StreamBody<Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, BoxError>> + Send>>>;

/// A body that comes by and by.
fn slow_body(reading: &Arc<Reading>) -> SlowBody {
    let reading = Arc::clone(reading);
    let frame = async move {
        let now = reading.now.fetch_add(1, Ordering::SeqCst) + 1;
        reading.most.fetch_max(now, Ordering::SeqCst);
        for _ in 0..10 {
            yield_now().await;
        }
        reading.now.fetch_sub(1, Ordering::SeqCst);
        Ok(Frame::data(Bytes::from_static(b"{}")))
    };
    StreamBody::new(stream::once(frame).boxed())
}

fn page() -> Request<Body> {
    Request::get("/api/v1/configmaps?limit=500").body(Body::empty()).expect("a request")
}

#[tokio::test]
async fn few_pages_are_read_at_once() {
    let (page_sizes, reading) = (PageSizes::default(), Arc::<Reading>::default());
    let send = |_request| async { Ok::<_, BoxError>(Response::new(slow_body(&reading))) };
    let read = join_all((0..50).map(|_| page_sizes.fit(page(), send))).await;
    assert!(read.iter().all(Result::is_ok));
    assert_eq!(reading.most.load(Ordering::SeqCst), PAGES_AT_ONCE);
}

#[tokio::test(start_paused = true)]
async fn lists_that_hang_keep_no_other_waiting_for_long() {
    let (page_sizes, reading) = (PageSizes::default(), Arc::<Reading>::default());
    let silent = |_request| pending::<Result<Response<SlowBody>, BoxError>>();
    let mut hanging: Vec<_> = (0..2 * PAGES_AT_ONCE).map(|_| page_sizes.fit(page(), silent).boxed()).collect();
    // Each gets in line.
    for hangs in &mut hanging {
        assert!(hangs.now_or_never().is_none());
    }
    let begun = Instant::now();
    let send = |_request| async { Ok::<_, BoxError>(Response::new(slow_body(&reading))) };
    let answered = page_sizes.fit(page(), send);
    let answered = tokio::select! {
        answered = answered => answered,
        _ = join_all(hanging) => unreachable!("they hang"),
    };
    assert!(answered.is_ok());
    assert!(begun.elapsed() <= 2 * BEGINS_SOON, "{:?}", begun.elapsed());
}

/// While it waits for its turn, nothing of it is asked for.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_read_yet_is_not_late() {
    let uri: Uri = "/api/v1/configmaps?limit=500".parse().expect("a path");
    let answer = async { Ok::<_, BoxError>(Response::new(slow_body(&Arc::default()))) };
    let body = DEADLINES.bound(uri, answer).await.expect("it answers").into_body();
    advance(2 * DEADLINES.part).await;
    assert!(body.collect().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_page_may_wait_for_its_turn_longer_than_any_other_request_for_its_answer() {
    let service = service_fn(|_request: Request<Body>| async {
        let _elapsed = timeout(2 * CALL_MAX, pending::<()>()).await;
        Ok::<_, Infallible>(Response::new(Body::from(b"{}".to_vec())))
    });
    let client = Client::new(service, "default");
    for (uri, waits) in [("/api/v1/configmaps?limit=500", true), ("/api/v1/configmaps/c", false)] {
        let answer = call::<Value>(&client, Call::get(uri.to_owned(), Want::Whole)).await;
        assert_eq!(answer.is_ok(), waits, "{uri}: {answer:?}");
    }
}
