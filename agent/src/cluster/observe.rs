//! Watches: one task per kind.
//!
//! ```text
//!            ┌──── missing, or discovery failed: wait ────┐
//!            ▼                                            │
//!  ─▶ resolve the kind ──▶ list (paged) ──▶ Listed ──▶ watch ──▶ Observed, Vanished
//!            ▲                                            │
//!            └─ WatchLost ◀── any failure (410, 403, …) ──┘   relist: back to the list
//! ```
//!
//! A kind that may be listed and not watched is known all the same, as of the last list: it is Unwatched, not lost, and
//! listed again after a while. Each time the watch is tried as well.
//!
//! An agent that keeps some namespaces only has a list and a watch in each; together they are what one is otherwise.
//!
//! kube's watcher resumes by itself when a watch ends in order, which the API server does every few minutes; whatever
//! else happens starts over with a list, because only a list says what is gone.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, SelectAll};
use futures::{Stream, StreamExt, TryStreamExt};
use kube::api::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::core::DynamicResourceScope;
use kube::runtime::watcher::{self, Event as Watched};
use kube::{Api, Client};
use serde_json::Value;
use tideline_common::{GroupKind, Reason};
use tideline_runtime::Backoff;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, debug, info_span};

use super::Scope;
use super::discovery::{Kinds, Resource, Unresolved};
use super::failure::{Failure, classify};
use super::fold::fold;
use super::survey::Survey;
use crate::core::{Event, Observed, Served};
use crate::namespaces::Namespaces;

/// Objects on one page of a list. Whole ones have up to some 10 KiB each while they are folded, metadata 2 KiB.
const PAGE_WHOLE: u32 = 100;
const PAGE_METADATA: u32 = 500;
/// Seconds that a watch lasts. The API server would end it after five to ten minutes anyway; a connection that died
/// silently is noticed that much later.
pub(super) const WATCH_SECONDS: u32 = 290;
/// Time between looks for a kind that is not served.
const MISSING_EVERY: Duration = Duration::from_secs(30);
/// Time between looks, and how many, after some definition changed: its kind is served a moment after it says so.
const CHANGED_EVERY: Duration = Duration::from_secs(1);
const CHANGED_LOOKS: u32 = 10;
/// Pauses after failures: around the first, doubled up to around the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Between two lists of what may not be watched, after [`POLL_LEAST`]: drawn up to the first, doubled up to around the
/// second. A kind that is denied for good costs two requests in a minute.
pub(super) const POLL: (Duration, Duration) = (Duration::from_secs(15), Duration::from_mins(2));
pub(super) const POLL_LEAST: Duration = Duration::from_secs(5);
/// A watch that was denied before and is not within this time works: a refusal takes milliseconds.
pub(super) const WATCH_TRIAL: Duration = Duration::from_secs(10);
/// A watch that was not lost for so long is well: longer than the longest pause.
const STEADY: Duration = Duration::from_mins(1);

/// The watches of all kinds that are watched.
pub struct Watches {
    client: Client,
    kinds: Arc<Kinds>,
    events: mpsc::Sender<Event>,
    namespaces: Namespaces,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Nothing is to be had of the API server.
    silent: Arc<Notify>,
    running: BTreeMap<GroupKind, Running>,
}

#[derive(Debug)]
struct Running {
    version: Arc<str>,
    stop: CancellationToken,
    relist: Arc<Notify>,
}

impl Watches {
    /// Tasks are spawned on `tasks` and end with `stop`.
    pub fn new(
        client: Client,
        kinds: Arc<Kinds>,
        events: mpsc::Sender<Event>,
        namespaces: Namespaces,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        Self { client, kinds, events, namespaces, tasks, stop, silent: Arc::default(), running: BTreeMap::new() }
    }

    /// Watches exactly these kinds, at these versions, from now on.
    pub fn set(&mut self, scope: Scope, wanted: BTreeMap<GroupKind, Arc<str>>) {
        self.running.retain(|kind, running| {
            let keep = wanted.get(kind) == Some(&running.version);
            if !keep {
                running.stop.cancel();
            }
            keep
        });
        for (kind, version) in wanted {
            if self.running.contains_key(&kind) {
                continue;
            }
            let running =
                Running { version: Arc::clone(&version), stop: self.stop.child_token(), relist: Arc::default() };
            let span = info_span!("watch", %kind);
            let task = Task {
                client: self.client.clone(),
                kinds: Arc::clone(&self.kinds),
                events: self.events.clone(),
                namespaces: self.namespaces.clone(),
                scope,
                relist: Arc::clone(&running.relist),
                silent: Arc::clone(&self.silent),
                kind: kind.clone(),
                version,
                told: None,
                denied: true,
            };
            let stop = running.stop.clone();
            self.tasks.spawn(async move { stop.run_until_cancelled(task.run()).await }.instrument(span));
            self.running.insert(kind, running);
        }
    }

    /// Watches nothing from now on.
    pub fn set_none(&mut self) {
        for running in std::mem::take(&mut self.running).into_values() {
            running.stop.cancel();
        }
    }

    /// Lists these kinds again.
    pub fn relist(&self, kinds: &[GroupKind]) {
        for running in kinds.iter().filter_map(|kind| self.running.get(kind)) {
            running.relist.notify_one();
        }
    }

    /// Takes every watch and list under way for lost, with its connection: the API server does not answer. What waits to be
    /// tried again does so anyway.
    pub fn lose(&self) {
        self.silent.notify_waiters();
    }

    /// Begins every watch and list under way anew: what was asked of a silent API server may stay without an answer for ever.
    pub fn begin_anew(&self) {
        for running in self.running.values() {
            running.relist.notify_waiters();
        }
    }

    /// Looks once at what there is of a kind, beside its watch.
    pub fn survey(&self, survey: Survey) {
        let (client, kinds, events) = (self.client.clone(), Arc::clone(&self.kinds), self.events.clone());
        let (namespaces, stop) = (self.namespaces.clone(), self.stop.child_token());
        let span = info_span!("survey", kind = %survey.kind);
        let look = async move { stop.run_until_cancelled(survey.run(&client, &kinds, &namespaces, &events)).await };
        self.tasks.spawn(look.instrument(span));
    }

    /// How many kinds are watched.
    pub fn len(&self) -> usize {
        self.running.len()
    }

    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }
}

impl std::fmt::Debug for Watches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watches").field("running", &self.running).finish_non_exhaustive()
    }
}

struct Task {
    client: Client,
    kinds: Arc<Kinds>,
    events: mpsc::Sender<Event>,
    namespaces: Namespaces,
    scope: Scope,
    relist: Arc<Notify>,
    silent: Arc<Notify>,
    kind: GroupKind,
    version: Arc<str>,
    /// What the core was told last.
    told: Option<Served>,
    /// Its watch was refused when it was tried last, or nothing is known of it yet.
    denied: bool,
}

/// Why a pass over list and watch ended.
enum Ended {
    Relist,
    Lost(Failure),
    /// All is listed, and may not be watched.
    Denied(Failure),
    /// Nobody listens any more.
    Closed,
}

impl Task {
    async fn run(mut self) {
        let mut backoff = Backoff::new(RETRY.0, RETRY.1);
        let mut poll = Backoff::new(POLL.0, POLL.1);
        let relist = Arc::clone(&self.relist);
        let mut looks = 0;
        let kinds = Arc::clone(&self.kinds);
        loop {
            // From before the look, so that no change is missed between it and the wait.
            let change = kinds.change();
            let resource = match self.kinds.resolve(&self.kind, &self.version).await {
                Ok(resource) => resource,
                Err(Unresolved::Missing(_)) => {
                    self.tell(Served::No).await;
                    let wait = if looks > 0 { CHANGED_EVERY } else { MISSING_EVERY };
                    looks = match tokio::time::timeout(wait, change).await {
                        Ok(()) => CHANGED_LOOKS,
                        Err(_elapsed) => looks.saturating_sub(1),
                    };
                    continue;
                }
                Err(Unresolved::Failed(failure)) => {
                    debug!(reason = %failure.reason, "discovery failed: {}", failure.message);
                    if self.told.is_none() {
                        self.tell(Served::Unknown).await;
                    }
                    self.lost(&failure).await;
                    tokio::time::sleep(backoff.next_delay(failure.retry_after)).await;
                    continue;
                }
            };
            self.tell(Served::Yes { namespaced: resource.namespaced, status: resource.status }).await;
            let mut listed = false;
            let begun = Instant::now();
            match self.pass(&resource, &mut listed).await {
                Ended::Relist => {}
                Ended::Closed => return,
                Ended::Denied(failure) => {
                    debug!("it may not be watched: {}", failure.message);
                    if !std::mem::replace(&mut self.denied, true) {
                        poll.reset();
                    }
                    backoff.reset();
                    let denied = Event::Unwatched { kind: self.kind.clone(), message: failure.message };
                    if self.events.send(denied).await.is_err() {
                        return;
                    }
                    let pause = poll.next_delay(Some(POLL_LEAST));
                    // Either way it is listed next.
                    let _ = tokio::time::timeout(pause, relist.notified()).await;
                }
                Ended::Lost(failure) => {
                    debug!(reason = %failure.reason, "the watch is lost: {}", failure.message);
                    if failure.reason == Reason::KindMissing {
                        self.kinds.forget(&self.kind.group);
                    }
                    self.lost(&failure).await;
                    // A list alone is no success: where watching is what is refused, it would be listed all the time.
                    if listed && begun.elapsed() >= STEADY {
                        backoff.reset();
                    }
                    tokio::time::sleep(backoff.next_delay(failure.retry_after)).await;
                }
            }
        }
    }

    /// Lists, then watches, until something ends it.
    async fn pass(&mut self, resource: &Arc<Resource>, listed: &mut bool) -> Ended {
        let mut streams: SelectAll<_> = self.namespaces.each().map(|name| self.stream(resource, name)).collect();
        let (relist, silent) = (Arc::clone(&self.relist), Arc::clone(&self.silent));
        let mut denied = None;
        let mut tried = None;
        let mut unlisted = streams.len();
        let mut page = Vec::new();
        // What happened in one namespace while another was still listed.
        let mut early = Vec::new();
        loop {
            let trial = async move {
                match tried {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            // Every arm is cancel-safe: the stream keeps its state, and a permit of Notify is not lost.
            let next = tokio::select! {
                biased;
                () = relist.notified() => return Ended::Relist,
                () = silent.notified() => return Ended::Lost(silence()),
                next = streams.next() => Some(next),
                () = trial => None,
            };
            let Some(next) = next else {
                tried = None;
                self.denied = false;
                if self.events.send(Event::Watched { kind: self.kind.clone() }).await.is_err() {
                    return Ended::Closed;
                }
                continue;
            };
            let event = match next {
                None => return Ended::Lost(Failure::unavailable("the watch ended")),
                Some(Err(error)) => {
                    let failure = failure_of(&error);
                    match failure.reason == Reason::Forbidden && is_of_watch(&error) {
                        true if *listed => return Ended::Denied(failure),
                        // Other namespaces are still being listed.
                        true => denied = Some(failure),
                        false => return Ended::Lost(failure),
                    }
                    continue;
                }
                Some(Ok(Watched::Init)) if *listed => return Ended::Relist,
                Some(Ok(Watched::InitApply(observed))) => {
                    page.extend(observed);
                    continue;
                }
                Some(Ok(Watched::InitDone)) => {
                    unlisted -= 1;
                    if unlisted > 0 {
                        continue;
                    }
                    *listed = true;
                    let all = Event::Listed { kind: self.kind.clone(), objects: std::mem::take(&mut page) };
                    early.insert(0, all);
                    for event in early.drain(..) {
                        if self.events.send(event).await.is_err() {
                            return Ended::Closed;
                        }
                    }
                    if let Some(failure) = denied {
                        return Ended::Denied(failure);
                    }
                    tried = self.denied.then(|| Instant::now() + WATCH_TRIAL);
                    continue;
                }
                Some(Ok(Watched::Apply(Some(observed)))) => {
                    if self.kind.is("apiextensions.k8s.io", "CustomResourceDefinition") {
                        self.kinds.definitions_changed();
                    }
                    Event::Observed(Box::new(observed))
                }
                Some(Ok(Watched::Delete(Some(observed)))) => Event::Vanished { key: observed.key, uid: observed.uid },
                Some(Ok(Watched::Init | Watched::Apply(None) | Watched::Delete(None))) => continue,
            };
            if !*listed {
                early.push(event);
            } else if self.events.send(event).await.is_err() {
                return Ended::Closed;
            }
        }
    }

    /// Whole objects only where there is a status to read.
    fn stream(
        &self,
        resource: &Arc<Resource>,
        namespace: Option<&str>,
    ) -> BoxStream<'static, watcher::Result<Watched<Option<Observed>>>> {
        let client = self.client.clone();
        let api_resource = resource.api_resource();
        let config = watcher::Config::default().labels(&self.scope.selector()).timeout(WATCH_SECONDS);
        let (scope, resource) = (self.scope, Arc::clone(resource));
        if resource.status {
            let whole = move |DynamicObject { metadata, mut data, .. }| fold(&scope, &resource, &metadata, &mut data);
            let api: Api<DynamicObject> = scoped(client, namespace, &api_resource);
            until_failed(watcher::watcher(api, config.page_size(PAGE_WHOLE)).map_ok(move |event| map(event, &whole)))
        } else {
            let api: Api<PartialObjectMeta<DynamicObject>> = scoped(client, namespace, &api_resource);
            let bare = move |PartialObjectMeta { metadata, .. }: PartialObjectMeta<DynamicObject>| {
                fold(&scope, &resource, &metadata, &mut Value::Null)
            };
            until_failed(watcher::watcher(api, config.page_size(PAGE_METADATA)).map_ok(move |event| map(event, &bare)))
        }
    }

    async fn tell(&mut self, served: Served) {
        if self.told != Some(served) {
            self.told = Some(served);
            // A closed channel is noticed at the next object.
            let _ = self.events.send(Event::Kind { kind: self.kind.clone(), served }).await;
        }
    }

    fn lost(&self, failure: &Failure) -> impl Future<Output = ()> {
        let event =
            Event::WatchLost { kind: self.kind.clone(), reason: failure.reason, message: failure.message.clone() };
        async move {
            let _ = self.events.send(event).await;
        }
    }
}

/// Ends a stream with its first error: what follows would be another try of the same.
pub(super) fn until_failed<T: Send + 'static>(
    stream: impl Stream<Item = watcher::Result<T>> + Send + 'static,
) -> BoxStream<'static, watcher::Result<T>> {
    let once = |failed: &mut bool, next: watcher::Result<T>| {
        let over = std::mem::replace(failed, next.is_err());
        std::future::ready((!over).then_some(next))
    };
    stream.scan(false, once).boxed()
}

fn scoped<K>(client: Client, namespace: Option<&str>, resource: &ApiResource) -> Api<K>
where
    K: kube::Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, resource),
        None => Api::all_with(client, resource),
    }
}

/// Folds whatever an event is about.
pub(super) fn map<K, T>(event: Watched<K>, fold: &impl Fn(K) -> Option<T>) -> Watched<Option<T>> {
    match event {
        Watched::Init => Watched::Init,
        Watched::InitDone => Watched::InitDone,
        Watched::InitApply(object) => Watched::InitApply(fold(object)),
        Watched::Apply(object) => Watched::Apply(fold(object)),
        Watched::Delete(object) => Watched::Delete(fold(object)),
    }
}

/// Whether it is the watch that failed, and not the list before it.
pub(super) fn is_of_watch(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchStartFailed(_) | watcher::Error::WatchFailed(_) | watcher::Error::WatchError(_) => true,
        watcher::Error::InitialListFailed(_) | watcher::Error::NoResourceVersion => false,
    }
}

/// Of a watch whose API server does not answer anything.
pub(super) fn silence() -> Failure {
    Failure::unavailable("the API server does not answer")
}

pub(super) fn failure_of(error: &watcher::Error) -> Failure {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Failure::of_client(error),
        watcher::Error::WatchError(status) if status.code == 410 => {
            Failure::unavailable("the watch fell behind what the API server remembers")
        }
        watcher::Error::WatchError(status) => classify(status.code, status, None),
        watcher::Error::NoResourceVersion => Failure::unavailable("the API server's list has no resourceVersion"),
    }
}
