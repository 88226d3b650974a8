//! Watches of associated objects: one task per kind, and none unless something asks.
//!
//! ```text
//!  ─▶ list, in pages ──▶ Listing, Seen …, Listed ──▶ watch ──▶ Seen, Gone
//!       ▲                                              │
//!       └──────────── Lost ◀── any failure ────────────┘
//! ```
//!
//! A kind that may be listed and not watched is listed now and then: Unwatched instead of Listed.
//!
//! These objects carry no label of ours, so that every object of the kind comes by, in one namespace or in all. Of each only
//! the counted fields are decoded, and nothing is kept here.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use kube::api::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use tideline_common::{AssociatedKind, Reason};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, debug, info_span};

use super::failure::Failure;
use super::watch::{Decoded, Ended, News, PAGE_METADATA, PAGE_WHOLE, Pauses, Watch, WatchPermission, decoded, silence};
use crate::core::{Associate, AssociatedNews, Depth, Event, Follow};
use crate::namespaces::Namespaces;

mod partial_decode;

use partial_decode::{EndpointSlice, Job, PartialDecode, Pod, ReplicaSet, associate, link};

/// Objects of a list that are sent to the core at once.
const TOLD_AT_ONCE: usize = 100;
/// Pause after what only a person can mend: this may not be watched, or the API server does not have it.
const REFUSED: Duration = Duration::from_mins(5);

/// The watches of all kinds that are followed.
pub struct AssociatedWatchers {
    client: Client,
    events: mpsc::Sender<Event>,
    namespaces: Namespaces,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Nothing is to be had of the API server.
    silent: Arc<Notify>,
    running: BTreeMap<AssociatedKind, (Follow, CancellationToken)>,
}

impl AssociatedWatchers {
    /// Tasks are spawned on `tasks` and end with `stop`.
    pub fn new(
        client: Client,
        events: mpsc::Sender<Event>,
        namespaces: Namespaces,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        Self { client, events, namespaces, tasks, stop, silent: Arc::default(), running: BTreeMap::new() }
    }

    /// Follows exactly these from now on.
    pub fn set(&mut self, wanted: BTreeMap<AssociatedKind, Follow>) {
        self.running.retain(|kind, (follow, stop)| {
            let keep = wanted.get(kind) == Some(follow);
            if !keep {
                stop.cancel();
            }
            keep
        });
        for (kind, follow) in wanted {
            if self.running.contains_key(&kind) {
                continue;
            }
            let stop = self.stop.child_token();
            self.running.insert(kind, (follow.clone(), stop.clone()));
            let task = Task {
                client: self.client.clone(),
                events: self.events.clone(),
                namespaces: self.namespaces.clone(),
                silent: Arc::clone(&self.silent),
                kind,
                follow,
            };
            let span = info_span!("follow", %kind);
            self.tasks.spawn(async move { stop.run_until_cancelled(task.run()).await }.instrument(span));
        }
    }

    /// Follows nothing from now on.
    pub fn set_none(&mut self) {
        self.set(BTreeMap::new());
    }

    /// Takes every watch and list under way for lost, with its connection, to be begun anew: the API server does not answer, or
    /// did not.
    pub fn lose(&self) {
        self.silent.notify_waiters();
    }

    pub fn len(&self) -> usize {
        self.running.len()
    }

    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }
}

impl std::fmt::Debug for AssociatedWatchers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AssociatedWatchers").field("running", &self.running).finish_non_exhaustive()
    }
}

struct Task {
    client: Client,
    events: mpsc::Sender<Event>,
    namespaces: Namespaces,
    silent: Arc<Notify>,
    kind: AssociatedKind,
    follow: Follow,
}

/// Nobody listens any more.
struct Closed;

impl Task {
    async fn run(self) {
        let mut pauses = Pauses::new();
        let mut permission = WatchPermission::new(false);
        loop {
            let failure = match self.pass(&mut pauses, &mut permission).await {
                Ok(Ended::Lost(failure)) => failure,
                Ok(Ended::Forbidden(Failure { message, .. })) => {
                    debug!("watch forbidden: {message}");
                    pauses.forbidden();
                    if self.tell(AssociatedNews::Unwatched { message }).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(permission.forbidden()).await;
                    continue;
                }
                Err(Closed) => return,
            };
            debug!(reason = %failure.reason, "the watch is lost: {}", failure.message);
            let refused = matches!(failure.reason, Reason::Forbidden | Reason::KindMissing);
            let retry_after = failure.retry_after;
            let lost = AssociatedNews::Lost { reason: failure.reason, message: failure.message };
            if self.tell(lost).await.is_err() {
                return;
            }
            let pause = pauses.lost(retry_after);
            tokio::time::sleep(if refused { REFUSED } else { pause }).await;
        }
    }

    /// Lists, then watches, until something fails; where only some namespaces may be read, in each of them at once. Where the
    /// watch was forbidden before, the kind counts as listed only once the watch is known to be granted or not.
    async fn pass(&self, pauses: &mut Pauses, permission: &mut WatchPermission) -> Result<Ended, Closed> {
        let streams: Vec<_> = match &self.follow.namespace {
            Some(namespace) => self.stream(Some(namespace)).into_iter().collect(),
            None => self.namespaces.each().filter_map(|namespace| self.stream(namespace)).collect(),
        };
        let mut watch = Watch::new(streams, permission);
        let mut page = Vec::new();
        self.tell(AssociatedNews::Listing).await?;
        loop {
            // Every arm is cancel-safe.
            let news = tokio::select! {
                biased;
                () = self.silent.notified() => return Ok(Ended::Lost(silence())),
                news = watch.next() => news,
            };
            match news {
                Err(ended) => return Ok(ended),
                Ok(News::Listed(associate)) => {
                    page.push(associate);
                    if page.len() >= TOLD_AT_ONCE {
                        self.tell(AssociatedNews::Seen(std::mem::take(&mut page))).await?;
                    }
                }
                Ok(News::AllListed) => {
                    self.tell(AssociatedNews::Seen(std::mem::take(&mut page))).await?;
                    if !permission.is_forbidden() {
                        pauses.listed();
                        self.tell(AssociatedNews::Listed).await?;
                    }
                }
                Ok(News::Granted) => {
                    permission.granted();
                    pauses.listed();
                    self.tell(AssociatedNews::Listed).await?;
                }
                Ok(News::Changed(associate)) => self.tell(AssociatedNews::Seen(vec![associate])).await?,
                Ok(News::Gone(associate)) => self.tell(AssociatedNews::Gone(associate.uid)).await?,
            }
        }
    }

    async fn tell(&self, news: AssociatedNews) -> Result<(), Closed> {
        let event = Event::Followed { kind: self.kind, run: self.follow.run, news };
        self.events.send(event).await.map_err(|_closed| Closed)
    }

    fn stream(&self, namespace: Option<&str>) -> Option<Decoded<Associate>> {
        match self.kind {
            AssociatedKind::Pods => Some(self.watch::<Pod>(namespace)),
            AssociatedKind::ReplicaSets => Some(self.watch::<ReplicaSet>(namespace)),
            AssociatedKind::Jobs => Some(self.watch::<Job>(namespace)),
            AssociatedKind::EndpointSlices => Some(self.watch::<EndpointSlice>(namespace)),
            AssociatedKind::Unknown => None,
        }
    }

    fn watch<K: PartialDecode + Clone + Debug + DeserializeOwned + Send + 'static>(
        &self,
        namespace: Option<&str>,
    ) -> Decoded<Associate> {
        let config = watcher::Config::default();
        match self.follow.depth {
            Depth::Whole => decoded(self.api::<K>(namespace), config.page_size(PAGE_WHOLE), |object| associate(object)),
            Depth::Links => {
                decoded(self.api::<PartialObjectMeta<K>>(namespace), config.page_size(PAGE_METADATA), |object| {
                    link(object)
                })
            }
        }
    }

    fn api<K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>>(
        &self,
        namespace: Option<&str>,
    ) -> Api<K> {
        match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
