//! Watches of what was made of placed objects: one task per kind, and none unless something asks.
//!
//! ```text
//!  ─▶ list, in pages ──▶ Listing, Seen …, Listed ──▶ watch ──▶ Seen, Gone
//!       ▲                                              │
//!       └──────────── Lost ◀── any failure ────────────┘
//! ```
//!
//! A kind that may be listed and not watched is listed now and then: Unwatched instead of Listed.
//!
//! These objects carry no label of ours, so that every one of the kind comes by, in the one namespace or in all. Of each
//! only what is counted is decoded, and nothing is kept here.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, SelectAll};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::NamespaceResourceScope;
use kube::api::PartialObjectMeta;
use kube::runtime::watcher::{self, Event as Watched};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use tideline_common::{AssociatedKind, Reason};
use tideline_runtime::Backoff;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, debug, info_span};

use super::failure::Failure;
use super::observe::{
    POLL, POLL_LEAST, WATCH_SECONDS, WATCH_TRIAL, failure_of, is_of_watch, map, silence, until_failed,
};
use crate::core::{Associate, Depth, Event, Follow, FollowNews};
use crate::namespaces::Namespaces;

mod lean;

use lean::{EndpointSlice, Job, Lean, Pod, ReplicaSet, associate, link};

/// Objects on one page of a list: a whole Pod has some 10 KiB as it is sent, metadata 2 KiB.
const PAGE_WHOLE: u32 = 100;
const PAGE_METADATA: u32 = 500;
/// Objects of a list that are told at once.
const TOLD_AT_ONCE: usize = 100;
/// Pauses after failures: around the first, doubled up to around the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Pause after what only a person can mend: this may not be watched, or the API server does not have it.
const REFUSED: Duration = Duration::from_mins(5);

/// The watches of all kinds that are followed.
pub struct Followers {
    client: Client,
    events: mpsc::Sender<Event>,
    namespaces: Namespaces,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Nothing is to be had of the API server.
    silent: Arc<Notify>,
    running: BTreeMap<AssociatedKind, (Follow, CancellationToken)>,
}

impl Followers {
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

    /// How many kinds are followed.
    pub fn len(&self) -> usize {
        self.running.len()
    }

    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }
}

impl std::fmt::Debug for Followers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Followers").field("running", &self.running).finish_non_exhaustive()
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

/// Why a pass over list and watch ended.
enum Ended {
    Lost(Failure),
    /// All is listed, and may not be watched.
    Denied(Failure),
}

type Stream = BoxStream<'static, watcher::Result<Watched<Option<Associate>>>>;

impl Task {
    async fn run(self) {
        let mut backoff = Backoff::new(RETRY.0, RETRY.1);
        let mut poll = Backoff::new(POLL.0, POLL.1);
        let mut denied = false;
        loop {
            let mut listed = false;
            let failure = match self.pass(&mut listed, &mut denied).await {
                Ok(Ended::Lost(failure)) => failure,
                Ok(Ended::Denied(Failure { message, .. })) => {
                    debug!("it may not be watched: {message}");
                    if !std::mem::replace(&mut denied, true) {
                        poll.reset();
                    }
                    backoff.reset();
                    if self.tell(FollowNews::Unwatched { message }).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(poll.next_delay(Some(POLL_LEAST))).await;
                    continue;
                }
                Err(Closed) => return,
            };
            debug!(reason = %failure.reason, "the watch is lost: {}", failure.message);
            let refused = matches!(failure.reason, Reason::Forbidden | Reason::KindMissing);
            let retry_after = failure.retry_after;
            let lost = FollowNews::Lost { reason: failure.reason, message: failure.message };
            if self.tell(lost).await.is_err() {
                return;
            }
            if listed {
                backoff.reset();
            }
            let pause = if refused { REFUSED } else { backoff.next_delay(retry_after) };
            tokio::time::sleep(pause).await;
        }
    }

    /// Lists, then watches, until something fails; where it may look in some namespaces only, in each of them at once. Where
    /// the watch was `denied` before, all is listed only when the watch is known to be let through or not.
    async fn pass(&self, listed: &mut bool, denied: &mut bool) -> Result<Ended, Closed> {
        let mut streams: SelectAll<_> = match &self.follow.namespace {
            Some(namespace) => self.stream(Some(namespace)).into_iter().collect(),
            None => self.namespaces.each().filter_map(|namespace| self.stream(namespace)).collect(),
        };
        let mut unlisted = streams.len();
        let mut page = Vec::new();
        let mut refused = None;
        let mut tried: Option<Instant> = None;
        self.tell(FollowNews::Listing).await?;
        loop {
            let trial = async move {
                match tried {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            // Every arm is cancel-safe.
            let next = tokio::select! {
                biased;
                () = self.silent.notified() => return Ok(Ended::Lost(silence())),
                next = streams.next() => Some(next),
                () = trial => None,
            };
            let Some(next) = next else {
                (tried, *denied, *listed) = (None, false, true);
                self.tell(FollowNews::Listed).await?;
                continue;
            };
            match next {
                None => return Ok(Ended::Lost(Failure::unavailable("the watch ended"))),
                Some(Err(error)) => {
                    let failure = failure_of(&error);
                    if failure.reason != Reason::Forbidden || !is_of_watch(&error) {
                        return Ok(Ended::Lost(failure));
                    }
                    if unlisted == 0 {
                        return Ok(Ended::Denied(failure));
                    }
                    // Other namespaces are still being listed.
                    refused = Some(failure);
                }
                Some(Ok(Watched::Init)) if unlisted == 0 => {
                    return Ok(Ended::Lost(Failure::unavailable("the watch begins anew")));
                }
                Some(Ok(Watched::InitApply(associate))) => {
                    page.extend(associate);
                    if page.len() >= TOLD_AT_ONCE {
                        self.tell_page(&mut page).await?;
                    }
                }
                Some(Ok(Watched::InitDone)) => {
                    unlisted = unlisted.saturating_sub(1);
                    self.tell_page(&mut page).await?;
                    if unlisted > 0 {
                        continue;
                    }
                    if let Some(failure) = refused.take() {
                        return Ok(Ended::Denied(failure));
                    }
                    if *denied {
                        tried = Some(Instant::now() + WATCH_TRIAL);
                    } else {
                        *listed = true;
                        self.tell(FollowNews::Listed).await?;
                    }
                }
                Some(Ok(Watched::Apply(Some(associate)))) => self.tell(FollowNews::Seen(vec![associate])).await?,
                Some(Ok(Watched::Delete(Some(associate)))) => self.tell(FollowNews::Gone(associate.uid)).await?,
                Some(Ok(Watched::Init | Watched::Apply(None) | Watched::Delete(None))) => {}
            }
        }
    }

    async fn tell_page(&self, page: &mut Vec<Associate>) -> Result<(), Closed> {
        if page.is_empty() {
            return Ok(());
        }
        self.tell(FollowNews::Seen(std::mem::take(page))).await
    }

    async fn tell(&self, news: FollowNews) -> Result<(), Closed> {
        let event = Event::Followed { kind: self.kind, run: self.follow.run, news };
        self.events.send(event).await.map_err(|_closed| Closed)
    }

    fn stream(&self, namespace: Option<&str>) -> Option<Stream> {
        match self.kind {
            AssociatedKind::Pods => Some(self.watch::<Pod>(namespace)),
            AssociatedKind::ReplicaSets => Some(self.watch::<ReplicaSet>(namespace)),
            AssociatedKind::Jobs => Some(self.watch::<Job>(namespace)),
            AssociatedKind::EndpointSlices => Some(self.watch::<EndpointSlice>(namespace)),
            AssociatedKind::Unknown => None,
        }
    }

    fn watch<K: Lean + Clone + Debug + DeserializeOwned + Send + 'static>(&self, namespace: Option<&str>) -> Stream {
        let config = watcher::Config::default().timeout(WATCH_SECONDS);
        match self.follow.depth {
            Depth::Whole => {
                let api: Api<K> = self.api(namespace);
                until_failed(watcher::watcher(api, config.page_size(PAGE_WHOLE)).map_ok(|event| map(event, &associate)))
            }
            Depth::Links => {
                let api: Api<PartialObjectMeta<K>> = self.api(namespace);
                until_failed(watcher::watcher(api, config.page_size(PAGE_METADATA)).map_ok(|event| map(event, &link)))
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
