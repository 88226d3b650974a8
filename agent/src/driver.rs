//! The one task that owns the core: it feeds it what happened and has done what it asks for.
//!
//! ```text
//!                 ┌────────── events (bounded) ◀──────────┐
//!                 ▼                                       │
//!   stop ──▶ core.step ──▶ effects ──▶ tasks: link, journal, cluster ; watches
//!   timers ──┘
//! ```
//!
//! The driver never waits for room in the channel, so tasks that do always get it.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::Client;
use tideline_common::wire::v1::{Attested, ClusterFacts, SessionAnswer};
use tideline_common::{Monotonic, SessionName, TargetId, Uid};
use tideline_runtime::health::{Health, ReadinessGate};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, error, info, info_span, warn};

use crate::cluster::{
    ApiServerProbe, AssociatedWatchers, EventRecorder, Executor, Kinds, MetadataList, Recorded, Scope, Watches,
    facts_from_now, probe_api_server,
};
use crate::core::{Answer, Core, Effect, Event, Op, OpId, Request, RequestId, Timer, Write};
use crate::core::{ConcurrencyReading, Effects, Heard, Loaded, PersistId, is_another};
use crate::identity::{self, Keeper};
use crate::journal::{self, Journal};
use crate::lease::Term;
use crate::link::Link;
use crate::metrics::Metrics;
use crate::mode_reporter::ModeReporter;
use crate::namespaces::Namespaces;
use crate::status_logger::StatusLogger;
use crate::write_watchdog::Disk;

mod ask;

/// Events that may wait for the core. One list of a kind is one event; operations under way are bounded by the core to
/// some tens, watches are one per kind: this is several of each.
const EVENTS_MAX: usize = 256;
/// The loop turns at least this often, for its heartbeat.
const BEAT_EVERY: Duration = Duration::from_secs(10);
/// A loop that did not turn for so long is stuck: three missed beats on a machine that swaps.
const BEAT_MAX: Duration = Duration::from_mins(1);
/// Longest time to finish operations in flight when asked to stop.
const STOP_MAX: Duration = Duration::from_secs(15);
const _: () = assert!(STOP_MAX.as_secs() + journal::CLOSE_MAX.as_secs() < tideline_runtime::GRACE.as_secs());

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{}", tideline_runtime::exit::chain(.0))]
    Journal(journal::Error),
    #[error(
        "another process took over this data directory (session {by}); this one exits. If this repeats, two agents \
         share one --data-dir"
    )]
    Replaced { by: SessionName },
    #[error(
        "the API server has rejected this agent's credentials for an hour ({0}); the agent exits so that a restart \
         reads new ones. Renew its kubeconfig or ServiceAccount token"
    )]
    Unauthorized(String),
}

/// Why a driver came to its end.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It was asked to.
    Stopped,
    /// The journal was away, and the disk let it be opened: another core has to begin from what it holds.
    JournalOpened(Box<(Journal, Loaded, Heard)>),
}

/// What the driver drives.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) client: Client,
    /// What the cluster said of itself, if it did.
    pub(crate) facts: Option<ClusterFacts>,
    pub(crate) kinds: Arc<Kinds>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) link: Arc<Link>,
    /// None until enrolled.
    pub(crate) scope: Option<Scope>,
    pub(crate) namespaces: Namespaces,
    pub(crate) identity: Arc<Keeper>,
    /// Gets every set that is accepted.
    pub(crate) newest: Arc<watch::Sender<Option<Attested>>>,
    pub(crate) metrics: Metrics,
    pub(crate) health: Health,
    /// A set was accepted before: the agent works without its hub.
    pub(crate) accepted: bool,
    /// None where Events are not wanted.
    pub(crate) recorder: Option<Arc<EventRecorder>>,
    /// Of the Lease, where replicas share one.
    pub(crate) term: Option<Term>,
}

pub(crate) struct Driver {
    core: Core,
    executor: Arc<Executor>,
    journal: Arc<Journal>,
    link: Arc<Link>,
    scope: Option<Scope>,
    identity: Arc<Keeper>,
    superseded: watch::Receiver<Option<String>>,
    newest: Arc<watch::Sender<Option<Attested>>>,
    metrics: Metrics,
    health: Health,
    watches: Watches,
    /// Polled by the driver itself, so that it ends with it; as are the facts.
    probe: BoxStream<'static, ApiServerProbe>,
    facts: BoxStream<'static, ClusterFacts>,
    /// Held while the API server does not answer.
    silent: Option<ReadinessGate>,
    /// None where Events are not wanted.
    recorder: Option<Arc<EventRecorder>>,
    /// Of the Lease, where replicas share one.
    term: Option<Term>,
    associated_watchers: AssociatedWatchers,
    /// Held until the agent knows what to keep.
    unready: Option<ReadinessGate>,
    /// Held while the journal takes no writes.
    unwritable: Option<ReadinessGate>,
    /// What the cluster said of itself last.
    located: Option<ClusterFacts>,
    /// Held while this is another cluster than that of the identity, as far as is known without the hub.
    wrong_cluster: Option<ReadinessGate>,
    mode_reporter: ModeReporter,
    /// The session of a later process in this one's session store.
    replaced: Option<SessionName>,
    /// Why the API server has not accepted the credentials for too long.
    unauthorized: Option<String>,
    /// Held while a write hangs.
    hanging: Option<ReadinessGate>,
    events: mpsc::Receiver<Event>,
    sender: mpsc::Sender<Event>,
    timers: BTreeMap<Timer, Instant>,
    tasks: TaskTracker,
    start: Instant,
    stop: CancellationToken,
    /// Ends requests in flight once the core has stopped: a poll that the hub holds back.
    end: CancellationToken,
    status_logger: StatusLogger,
    /// As metrics have it.
    concurrency: ConcurrencyReading,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// Until when operations in flight may end.
    Stopping(Instant),
    Stopped,
}

impl Driver {
    pub(crate) fn new(core: Core, parts: Parts, stop: CancellationToken) -> Self {
        let Parts {
            client,
            facts: known,
            kinds,
            journal,
            link,
            scope,
            namespaces,
            identity,
            newest,
            metrics,
            health,
            accepted,
            recorder,
            term,
        } = parts;
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let tasks = TaskTracker::new();
        let executor = Arc::new(Executor::new(client.clone(), Arc::clone(&kinds), Arc::clone(&journal) as _));
        let end = CancellationToken::new();
        if let Some(recorder) = recorder.clone() {
            let (client, metrics) = (client.clone(), metrics.clone());
            let tell = recorder.run(client, move |told| metrics.told(told));
            tasks.spawn(end.clone().run_until_cancelled_owned(tell));
        }
        let ended = stop.child_token();
        let associated_watchers =
            AssociatedWatchers::new(client.clone(), sender.clone(), namespaces.clone(), tasks.clone(), ended);
        let probe = probe_api_server(client.clone()).boxed();
        let facts = facts_from_now(client.clone(), known.is_some()).boxed();
        let watches = Watches::new(client, kinds, sender.clone(), namespaces, tasks.clone(), stop.child_token());
        let superseded = identity.superseded();
        let unready = (!accepted).then(|| health.gate("hub"));
        let away = journal.away().map(str::to_owned);
        let mut driver = Self {
            core,
            executor,
            journal,
            link,
            scope,
            identity,
            superseded,
            newest,
            metrics,
            health,
            watches,
            probe,
            facts,
            silent: None,
            recorder,
            term,
            associated_watchers,
            unready,
            unwritable: None,
            located: known.clone(),
            wrong_cluster: None,
            mode_reporter: ModeReporter::default(),
            replaced: None,
            unauthorized: None,
            hanging: None,
            events,
            sender,
            timers: BTreeMap::new(),
            tasks,
            start: Instant::now(),
            stop,
            end,
            status_logger: StatusLogger::default(),
            concurrency: ConcurrencyReading { limit: 0, decreases: 0 },
            state: State::Running,
        };
        if let Some(known) = known {
            driver.locate(&known);
        }
        if let Some(why) = away {
            error!(
                "the journal cannot be opened: {why}. Until it can, which is tried all the time, the agent only observes: it \
                 does not know what it applied, and changes nothing in its cluster"
            );
            driver.set_writable(false);
        }
        driver
    }

    /// Runs until the stop, and a little longer.
    pub(crate) async fn run(mut self) -> Result<Ended, Error> {
        let heartbeat = self.health.heartbeat("core", BEAT_MAX);
        let away = self.journal.away().is_some();
        let mut opening = away.then(|| Box::pin(self.journal.open_when_possible(self.stop.clone())));
        let mut effects = Effects::new();
        let mut events = vec![Event::Started];
        let outcome = loop {
            heartbeat.beat();
            // Operations in flight are broken off, and the hub gets no goodbye: both belong to another process by now.
            if self.term.as_ref().is_some_and(Term::is_over) {
                break Ok(Ended::Stopped);
            }
            self.step(&mut events, &mut effects);
            if let Err(defect) = self.watch_the_disk() {
                break Err(defect);
            }
            if let Some(by) = self.replaced {
                break Err(Error::Replaced { by });
            }
            if let Some(why) = self.unauthorized.take() {
                break Err(Error::Unauthorized(why));
            }
            let wake = match self.state {
                State::Stopped => break Ok(Ended::Stopped),
                State::Stopping(until) if until <= Instant::now() => {
                    warn!("stopped with operations in flight; the next start finishes them");
                    break Ok(Ended::Stopped);
                }
                State::Stopping(until) => self.next_wake().min(until),
                State::Running => self.next_wake(),
            };
            // Every arm is cancel-safe and none awaits in its body.
            tokio::select! {
                biased;
                () = self.stop.cancelled(), if self.state == State::Running => self.begin_stop(&mut events),
                opened = opened(&mut opening), if self.state == State::Running => match opened {
                    Ok((journal, loaded)) => {
                        let opened = (journal, loaded, self.core.heard());
                        info!("the journal can be opened now; the agent restarts with its content");
                        break Ok(Ended::JournalOpened(Box::new(opened)));
                    }
                    Err(error) => break Err(Error::Journal(error)),
                },
                Ok(()) = self.superseded.changed(), if self.state == State::Running => {
                    events.extend(self.superseded.borrow_and_update().clone().map(Event::Superseded));
                }
                Some(probe) = self.probe.next(), if self.state == State::Running => self.take_probe(probe, &mut events),
                Some(facts) = self.facts.next(), if self.state == State::Running => events.push(Event::Cluster(facts)),
                () = over(self.term.as_ref()) => break Ok(Ended::Stopped),
                _ = self.events.recv_many(&mut events, EVENTS_MAX) => {}
                () = sleep_until(wake) => self.fire_timers(&mut events),
            }
        };
        // Everything drops its handle of the journal now.
        self.watches.set_none();
        self.associated_watchers.set_none();
        self.end.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        outcome
    }

    fn begin_stop(&mut self, events: &mut Vec<Event>) {
        self.state = State::Stopping(Instant::now() + STOP_MAX);
        events.push(Event::Stop);
    }

    fn step(&mut self, events: &mut Vec<Event>, effects: &mut Effects) {
        for event in events.drain(..) {
            if self.state == State::Stopped {
                continue;
            }
            self.status_logger.log(&event);
            self.inform_edges(&event);
            let now = self.now();
            self.core.step(now, event, effects);
            for effect in effects.drain(..) {
                self.execute(effect);
            }
        }
        self.metrics.forbidden(self.core.kinds_forbidden());
        self.metrics.keeps(self.core.stats());
        self.mode_reporter.set_back(self.core.journal_is_set_back(), &self.health);
        self.mode_reporter.namespace_set_back(self.core.namespace_set_back());
        let concurrency = self.core.concurrency();
        if concurrency != self.concurrency {
            self.metrics.concurrency(concurrency, std::mem::replace(&mut self.concurrency, concurrency));
        }
    }

    fn become_target(&mut self, target: TargetId) {
        let scope = self.identity.owner(target);
        self.scope = Some(scope);
        self.watches.become_target(scope);
    }

    /// What the edges learn from events on their way to the core.
    fn inform_edges(&mut self, event: &Event) {
        match event {
            Event::Answered { result: Ok(answer), .. } => match answer {
                Answer::Enrolled(enrolled) => {
                    self.become_target(enrolled.target);
                }
                Answer::Session(SessionAnswer { handover: Some(handover), .. }) => self.become_target(handover.target),
                Answer::Desired(_) => self.unready = None,
                Answer::Session(_) | Answer::Bodies(_) | Answer::Reported(_) => {}
            },
            Event::Cluster(facts) => {
                self.locate(facts);
                self.located = Some(facts.clone());
            }
            // The hub may have said that it is of another cluster than was known.
            Event::SessionKept { result: Ok(_) } => {
                if let Some(facts) = self.located.clone() {
                    self.locate(&facts);
                }
            }
            Event::Persisted { result: Ok(()), .. } if self.unwritable.is_some() => {
                info!("the journal takes writes again");
                self.set_writable(true);
            }
            Event::Persisted { result: Err(why), .. } if self.unwritable.is_none() => {
                warn!(
                    "{why}. It is tried again; until it succeeds, no new set is accepted, and what is done is not \
                     acknowledged to the hub"
                );
                self.set_writable(false);
            }
            Event::Started
            | Event::Answered { .. }
            | Event::Persisted { .. }
            | Event::ApiServerProbe { .. }
            | Event::Superseded(_)
            | Event::SessionKept { .. }
            | Event::StoredSessionRead { .. }
            | Event::Executed { .. }
            | Event::Timer(_)
            | Event::Kind { .. }
            | Event::Listed { .. }
            | Event::Observed(_)
            | Event::Gone { .. }
            | Event::WatchLost { .. }
            | Event::Unwatched { .. }
            | Event::Watched { .. }
            | Event::Followed { .. }
            | Event::ListPage { .. }
            | Event::ListEnded { .. }
            | Event::Stop => {}
        }
    }

    /// Says so if this is not the cluster that the identity is of: the core changes nothing there, and the hub will say what
    /// follows.
    fn locate(&mut self, facts: &ClusterFacts) {
        let cluster = self.identity.cluster();
        let wrong_cluster = is_another(cluster.as_ref(), facts);
        if wrong_cluster && self.wrong_cluster.is_none() {
            error!(
                "this is not the cluster this agent was enrolled in; the agent changes nothing. If the data directory or \
                 the Secret was copied, enrol this cluster with its own token, an empty data directory and no identity \
                 Secret"
            );
        }
        self.wrong_cluster = wrong_cluster.then(|| self.health.gate("wrong-cluster"));
    }

    fn take_probe(&mut self, probe: ApiServerProbe, events: &mut Vec<Event>) {
        match probe {
            ApiServerProbe::Silent(why) => {
                if self.silent.is_none() {
                    events.push(Event::ApiServerProbe { answers: false });
                    warn!("the API server does not answer; its watches are restarted: {why}");
                    self.silent = Some(self.health.gate("cluster"));
                    self.metrics.cluster_answers(false);
                }
                self.watches.lose();
                self.associated_watchers.lose();
            }
            ApiServerProbe::Back => {
                info!("the API server answers again");
                events.push(Event::ApiServerProbe { answers: true });
                self.silent = None;
                self.metrics.cluster_answers(true);
                self.watches.begin_anew();
                self.associated_watchers.lose();
            }
            ApiServerProbe::Unauthorized(why) => self.unauthorized = Some(why),
        }
    }

    /// A write that hangs tells nobody.
    fn watch_the_disk(&mut self) -> Result<(), Error> {
        match (self.journal.disk().max(self.identity.disk()), self.hanging.is_some()) {
            (Disk::Answers, false) | (Disk::Late, true) => {}
            (Disk::Answers, true) => {
                info!("the disk takes writes again");
                self.hanging = None;
                self.tell_writable();
            }
            (Disk::Late, false) => {
                warn!(
                    "journal write blocked; until it completes, no new set is accepted and nothing is acknowledged to the hub. \
                     If it stays blocked, the agent exits to be restarted"
                );
                self.hanging = Some(self.health.gate("journal"));
                self.tell_writable();
            }
            (Disk::Stuck, _) => return Err(Error::Journal(journal::Error::Stuck)),
        }
        if self.journal.ended() { Err(Error::Journal(journal::Error::Closed)) } else { Ok(()) }
    }

    fn set_writable(&mut self, writable: bool) {
        self.unwritable = (!writable).then(|| self.health.gate("journal"));
        self.tell_writable();
    }

    fn tell_writable(&self) {
        self.metrics.journal_writable(self.unwritable.is_none() && self.hanging.is_none());
    }

    fn execute(&mut self, effect: Effect) {
        match effect {
            Effect::Send { id, request } => self.send(id, request),
            Effect::Persist { id, writes } => self.persist(id, writes),
            Effect::Execute { id, op } => self.operate(id, op),
            Effect::SetTimer { timer, at } => {
                self.timers.insert(timer, self.start + Duration::from_millis(at.as_millis()));
            }
            Effect::Watch(kinds) => {
                let scope = self.scope();
                self.watches.set(scope, kinds);
                self.metrics.watching(self.watches.len() + self.associated_watchers.len());
            }
            Effect::Follow(kinds) => {
                self.associated_watchers.set(kinds);
                self.metrics.watching(self.watches.len() + self.associated_watchers.len());
            }
            Effect::Relist(kinds) => self.watches.relist(&kinds),
            Effect::ListMetadata { id, kind, version } => {
                self.watches.list(MetadataList { id, kind, version, scope: self.scope() });
            }
            Effect::RecordEvent(event) => {
                let dropped = self.recorder.as_ref().and_then(|recorder| recorder.record(event));
                if dropped.is_some() {
                    self.metrics.told(Recorded::Dropped);
                }
            }
            Effect::Patrolled(tally) => {
                self.metrics.patrolled(&tally);
                self.status_logger.patrolled(&tally);
            }
            Effect::Decommissioned(report) => self.status_logger.decommissioned(&report),
            Effect::Stopped => self.state = State::Stopped,
            Effect::Freeze(reason) => self.mode_reporter.freeze(&reason, &self.health, &self.metrics),
            Effect::UnknownToHub => self.mode_reporter.unknown(&self.health, &self.metrics),
            Effect::Thaw => self.mode_reporter.thaw(&self.metrics),
            Effect::KeepSession { session, cluster } => self.keep_session(session, cluster),
            Effect::ReadStoredSession => self.read_stored_session(),
            Effect::Replaced { by } => self.replaced = Some(by),
        }
    }

    /// Runs one effect's work beside the driver.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let end = self.end.clone();
        self.tasks.spawn(async move { end.run_until_cancelled(work).await });
    }

    fn send(&self, id: RequestId, request: Request) {
        let (link, identity, metrics) = (Arc::clone(&self.link), Arc::clone(&self.identity), self.metrics.clone());
        let sender = self.sender.clone();
        self.spawn(async move {
            let (request, result) = ask::ask(&identity, &link, request).await;
            metrics.answered(&request, &result);
            // Closed only when the driver has ended; then nobody needs it.
            let _ = sender.send(Event::Answered { id, result }).await;
            // Nothing waits for it, so a disk that hangs delays nothing else.
            if let Some(addresses) = link.take_unsaved_addresses() {
                identity.keep_addresses(addresses).await;
            }
        });
    }

    fn keep_session(&self, session: SessionName, cluster: Option<Uid>) {
        let (identity, sender) = (Arc::clone(&self.identity), self.sender.clone());
        self.spawn(async move {
            let result = identity.keep_session(session, cluster).await;
            let is_kept = result.is_ok();
            let result = result.map_err(|error| said("the session that the hub offers is not used", &error));
            let _ = sender.send(Event::SessionKept { result }).await;
            if is_kept {
                identity.copy_to_secret().await;
            }
        });
    }

    fn read_stored_session(&self) {
        let (identity, sender) = (Arc::clone(&self.identity), self.sender.clone());
        self.spawn(async move {
            let result = identity.read_stored_session().await;
            let result = result.map_err(|error| said("who holds the identity is not known", &error));
            let _ = sender.send(Event::StoredSessionRead { result }).await;
        });
    }

    fn persist(&self, id: PersistId, writes: Arc<Vec<Write>>) {
        let (journal, metrics, sender) = (Arc::clone(&self.journal), self.metrics.clone(), self.sender.clone());
        let accepted = writes.iter().rev().find_map(|write| match write {
            Write::Accept { accepted, .. } => Some(**accepted),
            Write::Enrolled(_)
            | Write::Body { .. }
            | Write::Applied { .. }
            | Write::Forgotten { .. }
            | Write::Removing { .. }
            | Write::Removed(_)
            | Write::Passed { .. }
            | Write::Lapsed { .. }
            | Write::Held(_)
            | Write::Unheld(_)
            | Write::History(_)
            | Write::Mode(_)
            | Write::Decommission(_)
            | Write::Unsent(_)
            | Write::Sent { .. }
            | Write::Ran { .. }
            | Write::RanForgotten { .. }
            | Write::Creating(_)
            | Write::CreationKnown(_)
            | Write::Kind { .. }
            | Write::RestoredObject(_)
            | Write::RestoredGone { .. }
            | Write::DropBodies(_)
            | Write::DropPolicies(_) => None,
        });
        let newest = Arc::clone(&self.newest);
        let begun = Instant::now();
        // Queued here, so that the order of effects is the order on disk.
        let written = journal.write(writes);
        self.spawn(async move {
            let result = written.await;
            metrics.persisted(begun.elapsed(), result.is_ok(), journal.bytes());
            if let (Ok(()), Some(accepted)) = (&result, accepted) {
                newest.send_replace(Some(accepted));
            }
            let result = result.map_err(|error| tideline_runtime::exit::chain(&error));
            let _ = sender.send(Event::Persisted { id, result }).await;
        });
    }

    fn operate(&self, id: OpId, op: Op) {
        let (executor, metrics, sender) = (Arc::clone(&self.executor), self.metrics.clone(), self.sender.clone());
        let scope = self.scope();
        let span = match &op {
            Op::Create { entry, .. }
            | Op::DryRunCreate { entry, .. }
            | Op::Apply { entry, .. }
            | Op::TransferOwnership { entry, .. }
            | Op::Compare { entry, .. } => {
                info_span!("operation", key = %entry.key, trace = entry.trace_id())
            }
            Op::ReTarget { key, .. }
            | Op::Delete { key, .. }
            | Op::Orphan { key, .. }
            | Op::Inspect { key, .. }
            | Op::Get { key, .. } => info_span!("operation", %key),
        };
        self.spawn(
            async move {
                let result = executor.execute(scope, &op).await;
                metrics.executed(&op, &result);
                let _ = sender.send(Event::Executed { id, result }).await;
            }
            .instrument(span),
        );
    }

    fn fire_timers(&mut self, events: &mut Vec<Event>) {
        let now = Instant::now();
        self.timers.retain(|timer, at| {
            let due = *at <= now;
            if due {
                events.push(Event::Timer(*timer));
            }
            !due
        });
    }

    fn next_wake(&self) -> Instant {
        let beat = Instant::now() + BEAT_EVERY;
        self.timers.values().copied().min().map_or(beat, |timer| timer.min(beat))
    }

    fn now(&self) -> Monotonic {
        Monotonic::from_millis(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn scope(&self) -> Scope {
        self.scope.expect("the core asks for nothing at the cluster before it is enrolled")
    }
}

/// Logs why something was not done, and returns it.
fn said(what: &str, error: &identity::Error) -> String {
    let why = tideline_runtime::exit::chain(error);
    warn!("{what}; retrying: {why}");
    why
}

/// Waits until the Lease is lost; for ever, if there is none.
async fn over(term: Option<&Term>) {
    match term {
        Some(term) => term.over().await,
        None => pending().await,
    }
}

/// Waits for a journal that is away; for ever, if none is.
async fn opened(
    opening: &mut Option<impl Future<Output = Result<(Journal, Loaded), journal::Error>> + Unpin>,
) -> Result<(Journal, Loaded), journal::Error> {
    match opening {
        Some(opening) => opening.await,
        None => pending().await,
    }
}
