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
//! A kind that may be listed and not watched is Unwatched, not lost, and listed again after a while.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kube::api::ApiResource;
use kube::runtime::watcher;
use kube::{Api, Client};
use tideline_common::{GroupKind, Reason};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, debug, info_span};

use super::Scope;
use super::decode::decode_watched;
use super::discovery::{Kinds, Unresolved};
use super::failure::Failure;
use super::metadata_list::MetadataList;
use super::object::{MetadataOnly, Reach, Watched, Whole};
use super::resource::Resource;
use super::watch::{Decoded, Ended, News, PAGE_METADATA, PAGE_WHOLE, Pauses, Watch, WatchPermission, decoded, silence};
use crate::core::{Event, Observed, Served};
use crate::namespaces::Namespaces;

/// Time between checks for a kind that is not served.
const MISSING_EVERY: Duration = Duration::from_secs(30);
/// Time between checks, and how many, after some definition changed: its kind is served a moment after it says so.
const CHANGED_EVERY: Duration = Duration::from_secs(1);
const CHANGED_CHECKS: u32 = 10;

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
    /// The labels that it selects.
    scope: Scope,
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
            let keep = wanted.get(kind) == Some(&running.version) && running.scope == scope;
            if !keep {
                running.stop.cancel();
            }
            keep
        });
        for (kind, version) in wanted {
            if self.running.contains_key(&kind) {
                continue;
            }
            let (stop, relist) = (self.stop.child_token(), Arc::default());
            let running = Running { version: Arc::clone(&version), scope, stop, relist };
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
                permission: WatchPermission::new(true),
            };
            let stop = running.stop.clone();
            self.tasks.spawn(async move { stop.run_until_cancelled(task.run()).await }.instrument(span));
            self.running.insert(kind, running);
        }
    }

    /// The agent is another target from now on: what it placed is marked as of that, and would leave each watch.
    pub fn become_target(&mut self, scope: Scope) {
        let wanted = self.running.iter().map(|(kind, running)| (kind.clone(), Arc::clone(&running.version))).collect();
        self.set(scope, wanted);
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

    /// Restarts every watch and list under way: requests to a silent API server may stay without an answer for ever.
    pub fn begin_anew(&self) {
        for running in self.running.values() {
            running.relist.notify_waiters();
        }
    }

    /// Lists a kind once, beside its watch.
    pub fn list(&self, list: MetadataList) {
        let (client, kinds, events) = (self.client.clone(), Arc::clone(&self.kinds), self.events.clone());
        let (namespaces, stop) = (self.namespaces.clone(), self.stop.child_token());
        let span = info_span!("list", kind = %list.kind);
        let listing = async move { stop.run_until_cancelled(list.run(&client, &kinds, &namespaces, &events)).await };
        self.tasks.spawn(listing.instrument(span));
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
    /// What the core heard last.
    told: Option<Served>,
    /// At first taken to be forbidden, as nothing is known of it.
    permission: WatchPermission,
}

/// Why a pass over list and watch ended.
enum Over {
    Relist,
    Ended(Ended),
    /// Nobody listens any more.
    Closed,
}

impl Task {
    async fn run(mut self) {
        let mut pauses = Pauses::new();
        let relist = Arc::clone(&self.relist);
        let mut checks = 0;
        let kinds = Arc::clone(&self.kinds);
        loop {
            // From before the check, so that no change is missed between it and the wait.
            let change = kinds.change();
            let resource = match self.kinds.find(&self.kind, &self.version).await {
                Ok(resource) => resource,
                Err(Unresolved::Missing(_)) => {
                    self.tell(Served::No).await;
                    let wait = if checks > 0 { CHANGED_EVERY } else { MISSING_EVERY };
                    checks = match tokio::time::timeout(wait, change).await {
                        Ok(()) => CHANGED_CHECKS,
                        Err(_elapsed) => checks.saturating_sub(1),
                    };
                    continue;
                }
                Err(Unresolved::Failed(failure)) => {
                    debug!(reason = %failure.reason, "discovery failed: {}", failure.message);
                    if self.told.is_none() {
                        self.tell(Served::Unknown).await;
                    }
                    self.lost(&failure).await;
                    tokio::time::sleep(pauses.lost(failure.retry_after)).await;
                    continue;
                }
            };
            self.tell(Served::Yes { namespaced: resource.namespaced, status: resource.status }).await;
            match self.pass(&resource, &mut pauses).await {
                Over::Relist => pauses.begin_anew(),
                Over::Closed => return,
                Over::Ended(Ended::Forbidden(failure)) => {
                    debug!("watch forbidden: {}", failure.message);
                    pauses.forbidden();
                    let forbidden = Event::Unwatched { kind: self.kind.clone(), message: failure.message };
                    if self.events.send(forbidden).await.is_err() {
                        return;
                    }
                    // Either way it is listed next.
                    let _ = tokio::time::timeout(self.permission.forbidden(), relist.notified()).await;
                }
                Over::Ended(Ended::Lost(failure)) => {
                    debug!(reason = %failure.reason, "the watch is lost: {}", failure.message);
                    if failure.reason == Reason::KindMissing {
                        self.kinds.forget(&self.kind.group);
                    }
                    self.lost(&failure).await;
                    tokio::time::sleep(pauses.lost(failure.retry_after)).await;
                }
            }
        }
    }

    /// Lists, then watches, until something ends it.
    async fn pass(&mut self, resource: &Arc<Resource>, pauses: &mut Pauses) -> Over {
        let streams: Vec<_> = self.namespaces.each().map(|name| self.stream(resource, name)).collect();
        let mut watch = Watch::new(streams, &self.permission);
        let (mut all, mut is_listed) = (Vec::new(), false);
        // What happened in one namespace while another was still listed.
        let mut early = Vec::new();
        loop {
            // Every arm is cancel-safe: a permit of Notify is not lost.
            let news = tokio::select! {
                biased;
                () = self.relist.notified() => return Over::Relist,
                () = self.silent.notified() => return Over::Ended(Ended::Lost(silence())),
                news = watch.next() => match news {
                    Ok(news) => news,
                    Err(ended) => return Over::Ended(ended),
                },
            };
            let event = match news {
                News::Listed(observed) => {
                    all.push(observed);
                    continue;
                }
                News::AllListed => {
                    is_listed = true;
                    pauses.listed();
                    let listed = Event::Listed { kind: self.kind.clone(), objects: std::mem::take(&mut all) };
                    for event in std::iter::once(listed).chain(early.drain(..)) {
                        if self.events.send(event).await.is_err() {
                            return Over::Closed;
                        }
                    }
                    continue;
                }
                News::Granted => {
                    self.permission.granted();
                    Event::Watched { kind: self.kind.clone() }
                }
                News::Changed(observed) => {
                    if self.kind.is_definition() {
                        self.kinds.definitions_changed();
                    }
                    Event::Observed(Box::new(observed))
                }
                News::Gone(observed) => Event::Gone { key: observed.key, uid: observed.uid },
            };
            if !is_listed {
                early.push(event);
            } else if self.events.send(event).await.is_err() {
                return Over::Closed;
            }
        }
    }

    /// Whole objects only where there is a status to read.
    fn stream(&self, resource: &Arc<Resource>, namespace: Option<&str>) -> Decoded<Observed> {
        let client = self.client.clone();
        let api_resource = resource.api_resource();
        let config = watcher::Config::default().labels(&super::selector(&self.scope));
        let (scope, resource) = (self.scope, Arc::clone(resource));
        let is_whole = resource.status;
        let decode = move |object| decode_watched(&scope, &resource, object);
        if is_whole {
            let api = scoped::<Whole>(client, namespace, &api_resource);
            decoded(api, config.page_size(PAGE_WHOLE), move |Watched { object, .. }| decode(object))
        } else {
            let api = scoped::<MetadataOnly>(client, namespace, &api_resource);
            decoded(api, config.page_size(PAGE_METADATA), move |Watched { object, .. }| decode(object))
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

fn scoped<R: Reach>(client: Client, namespace: Option<&str>, resource: &ApiResource) -> Api<Watched<R>> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, resource),
        None => Api::all_with(client, resource),
    }
}
