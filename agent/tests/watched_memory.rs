//! What a list costs in memory, through a client in memory: no more than its text a few times over, whatever is in it.

#![expect(unsafe_code, reason = "an allocator that counts is one")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tideline_agent::Namespaces;
use tideline_agent::cluster::{Kinds, Scope, Watches};
use tideline_agent::core::{Event, Observed, ObservedStatus};
use tideline_common::health::Health;
use tideline_common::{Formers, GroupKind, HubId, TargetId};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

thread_local! {
    /// Bytes that this thread has of the allocator, and the most that it ever had. What one thread frees for another counts
    /// here and is missing there; each test is one thread.
    static ALLOCATED: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let allocated = ALLOCATED.get() + bytes;
    ALLOCATED.set(allocated);
    MOST.set(MOST.get().max(allocated));
}

struct Counting;

// SAFETY: everything is the system's; the count allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const WAIT_MAX: Duration = Duration::from_mins(1);

fn kind() -> GroupKind {
    GroupKind::new("example.com", "Thing")
}

/// An object that carries the label, with this status and this spec.
fn thing(name: usize, spec: &str, status: &str) -> String {
    let metadata = format!(r#"{{"name":"t{name}","namespace":"shop","uid":"u-{name}","resourceVersion":"7"}}"#);
    format!(r#"{{"apiVersion":"example.com/v1","kind":"Thing","metadata":{metadata},"spec":{spec},"status":{status}}}"#)
}

/// The answer of an API server that serves one kind: the objects of a page by its number, of so many pages.
fn answer(uri: &http::Uri, pages: usize, page: impl Fn(usize) -> Vec<String>) -> String {
    if uri.path() == "/apis/example.com/v1" {
        let resource = |name: &str| {
            let verbs = ["list", "watch"];
            json!({"name": name, "kind": "Thing", "namespaced": true, "singularName": "", "verbs": verbs})
        };
        let resources = [resource("things"), resource("things/status")];
        return json!({"kind": "APIResourceList", "groupVersion": "example.com/v1", "resources": resources})
            .to_string();
    }
    let query = uri.query().unwrap_or_default();
    let number = query.split('&').find_map(|part| part.strip_prefix("continue=")?.parse().ok()).unwrap_or(0);
    let next = if number + 1 < pages { (number + 1).to_string() } else { String::new() };
    let items = page(number).join(",");
    format!(r#"{{"metadata":{{"resourceVersion":"9","continue":"{next}"}},"items":[{items}]}}"#)
}

/// What a list comes to, and how many bytes it took at most, and takes at its end.
async fn listed(
    pages: usize,
    page: impl Fn(usize) -> Vec<String> + Clone + Send + 'static,
) -> (Vec<Observed>, isize, isize) {
    let service = tower::service_fn(move |request: Request<Body>| {
        let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let page = page.clone();
        async move {
            if watch {
                std::future::pending::<()>().await;
            }
            Ok::<_, Infallible>(Response::new(Body::from(answer(request.uri(), pages, page).into_bytes())))
        }
    });
    let client = Client::new(service, "default");
    let (sender, mut events) = mpsc::channel(4);
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let kinds = Arc::new(Kinds::new(client.clone()));
    let mut watches = Watches::new(client, kinds, sender, Namespaces::All, tasks.clone(), stop.clone());
    let uuid = uuid::Uuid::from_u128;
    let scope =
        Scope { hub: HubId::from_uuid(uuid(1)), target: TargetId::from_uuid(uuid(2)), formers: Formers::default() };
    let before = ALLOCATED.get();
    MOST.set(before);
    watches.set(scope, BTreeMap::from([(kind(), Arc::from("v1"))]));
    let objects = loop {
        let event = tokio::time::timeout(WAIT_MAX, events.recv()).await.expect("it is listed in time");
        match event.expect("it is watched") {
            Event::Kind { .. } => {}
            Event::Listed { objects, .. } => break objects,
            other => panic!("{other:?}"),
        }
    };
    let (most, end) = (MOST.get() - before, ALLOCATED.get() - before);
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    (objects, most, end)
}

/// As large as etcd permits, in spec and status, where a text of eight bytes is a map of several hundred.
#[tokio::test]
async fn an_object_that_is_dense_in_small_maps_costs_its_text_a_few_times_over() {
    let dense = format!("[{}0]", r#"{"a":0},"#.repeat(90_000));
    let [aside, judged] =
        ["anything", "conditions"].map(|field| thing(0, &dense, &format!(r#"{{"{field}":{dense}}}"#)));
    for (text, health) in [(aside, Health::Ready), (judged, Health::Unknown)] {
        let bytes = text.len().cast_signed();
        let (objects, most, _) = listed(1, move |_| vec![text.clone()]).await;
        assert_eq!((objects.len(), objects[0].health), (1, health), "{}", objects[0].health_message);
        assert!(matches!(objects[0].status, ObservedStatus::TooLarge));
        // The page as it is made here, as kube receives and decodes it, and the parts of the object.
        assert!(most < 8 * bytes, "{most} bytes for an object of {bytes}");
    }
}

#[tokio::test]
async fn a_list_of_strangers_keeps_nothing_of_their_large_statuses() {
    const PAGES: usize = 40;
    const IN_PAGE: usize = 10;
    let status = format!(r#"{{"a":"{}"}}"#, "x".repeat(200 << 10));
    let of_page = (IN_PAGE * status.len()).cast_signed();
    let page = move |number| (0..IN_PAGE).map(|nth| thing(number * IN_PAGE + nth, "{}", &status)).collect();
    let (objects, most, end) = listed(PAGES, page).await;
    assert_eq!(objects.len(), PAGES * IN_PAGE);
    assert!(objects.iter().all(|object| matches!(object.status, ObservedStatus::Left)));
    assert!(most < 8 * of_page, "{most} bytes for pages of {of_page}");
    assert!(end < of_page, "{end} bytes are kept of {} objects", objects.len());
}
