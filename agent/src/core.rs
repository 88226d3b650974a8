//! The agent without its edges: a state machine that takes events and returns effects.
//!
//! ```text
//!  Answered ─▶ session ─▶ gather ─▶ fetch ─▶ switch ═ Persist ═▶ work ─▶ plan ────▶ Create, Apply
//!                                                                  ▲  └─▶ remove ──▶ Delete, Orphan, Inspect
//!  Kind, Listed, Observed, Vanished ─▶ kinds, objects ─────────────┤
//!  Executed ───────────────────────────────────────────────────────┴─▶ report ─▶ Send(Reported)
//! ```
//!
//! Rooms, from the bottom up: [`interface`], [`model`], [`decide`], [`work`], then [`audit`], [`report`] and [`sync`]. None
//! names a file of one above it, and what concerns one room alone is a method of what that owns. What concerns several is a
//! step of [`Core`], which holds them all: it stands in the room whose story it tells, and may reach the state of every other.
//! `model` and `decide` have no such step: they never name [`Core`].
//!
//! No clock, log, I/O or task: time comes with each event, and randomness from [`Config::seed`]. The process may end between
//! any two effects: a new [`Core`] made from the journal of that moment goes on from there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tideline_common::wire::v1::{
    Attested, ClusterFacts, Continuity, Decommission, EnrolRequest, Instance, ObjectReport,
};
use tideline_common::{
    ApplyPolicy, Capabilities, Digest, Entry, Formers, GroupKind, HubId, Monotonic, ObjectKey, Reason, SessionName,
    Tombstone, Uid,
};

mod audit;
mod counts;
mod decide;
mod interface;
mod jitter;
mod model;
mod observe;
mod report;
mod sync;
mod work;

pub use decide::fuse::FuseLimits;
pub use interface::effect::{
    ApplyTakeover, Depth, Earlier, Effect, Effects, Follow, KubeEvent, ListId, Marked, Op, OpId, PatrolTally,
    PersistId, Request, RequestId, Timer,
};
pub use interface::event::{Answer, AssociatedNews, Event, LinkFailure, ListFailure};
pub use interface::observed::{Associate, Condition, Details, ListedItem, Observed, ObservedStatus, Owner, Served};
pub use interface::op_result::{
    Applied, Compared, Created, Deleted, Difference, Failure, Fate, FieldConflict, Inspected, NotDone, OpResult,
    Orphaned, OwnershipTransferred, Values,
};
pub use interface::write::{
    AgentMode, AppliedRecord, ChangeDetector, Enrolled, FreezeReason, LeftToOthers, LocalField, RemovalPolicy,
    RestoredObject, Write,
};
pub(crate) use model::shared::Shared;
pub(crate) use sync::cluster_identity::is_another;
pub use work::aimd::ConcurrencyReading;

use crate::namespaces::Namespaces;
use audit::Audit;
use decide::Guards;
use decide::fuse::Fuse;
pub use decide::ran::RAN_MAX;
use decide::ran::Ran;
use decide::set_back::list_first_until;
use jitter::Jitter;
use model::Model;
use model::creations::Creations;
use model::disk::Then;
use model::inputs::Inputs;
use model::removal::Cause;
use report::Reporting;
use sync::HubSync;
use sync::accepted::AcceptedSets;
use sync::cluster_identity::ClusterIdentity;
use sync::mode::HubVerdict;
use sync::session::{Session, Token};
use work::queue::Work;

/// What does not change while the agent runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// The pinned hub.
    pub hub: HubId,
    /// The facts of the cluster when the agent began.
    pub facts: ClusterFacts,
    /// True once every fact of the cluster was answered.
    pub answered: bool,
    /// This process, as people tell it from another with the same identity.
    pub instance: Instance,
    /// How to join; not needed once the journal says that it was done.
    pub enrolment: Option<EnrolRequest>,
    /// The source of jitter. Different for every agent and run.
    pub seed: u64,
    pub fuse: FuseLimits,
    /// Between two patrols, about.
    pub patrol: Duration,
    /// Objects placed elsewhere are withheld.
    pub namespaces: Namespaces,
    /// What this build understands.
    pub capabilities: Capabilities,
}

/// Sizes, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreStats {
    /// Of the accepted set; 0 without one.
    pub revision: u64,
    /// Objects in it.
    pub assigned: usize,
    /// Those that are done included, until the hub knows.
    pub removals: usize,
}

/// What journal and identity held when the agent started.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    pub enrolled: Option<Enrolled>,
    /// Set if the identity was handed over to this target, and the process ended before the journal recorded it.
    pub handed_to: Option<Enrolled>,
    pub formers: Formers,
    /// The newest set that it accepted as one of its former targets.
    pub inherited: Option<Attested>,
    /// Whether the given token is the one by which it was enrolled last.
    pub token_spent: bool,
    /// The cluster that this identity is of, if the hub was ever told.
    pub cluster: Option<Uid>,
    /// The newest session in this agent's session store.
    pub session: SessionName,
    /// The newest set that this identity is known to have accepted, whether or not the journal still has it. Nothing older
    /// is accepted again.
    pub floor: Option<Attested>,
    pub accepted: Option<Attested>,
    /// What the hub said last of its history.
    pub history: Continuity,
    /// The mode of the process before.
    pub mode: AgentMode,
    pub entries: Vec<Arc<Entry>>,
    /// By the digest that entries name.
    pub policies: BTreeMap<Digest, Arc<ApplyPolicy>>,
    /// The inputs whose bodies are there.
    pub bodies: BTreeSet<Digest>,
    pub applied: Vec<(ObjectKey, AppliedRecord)>,
    pub removing: Vec<(Tombstone, RemovalPolicy)>,
    /// The deletions of the last hour before this run, or of longer ago: those of [`Write::Passed`].
    pub passed: Vec<(u64, Tombstone)>,
    /// Removals that the fuse holds.
    pub held: Vec<Tombstone>,
    pub decommission: Decommission,
    /// What [`Write::Unsent`] left.
    pub unsent: Vec<ObjectReport>,
    /// What ran, of sources that are not assigned any more: those of [`Write::Ran`].
    pub ran: Vec<(u64, Tombstone)>,
    /// Jobs whose creation was begun: those of [`Write::Creating`].
    pub creating: Vec<Tombstone>,
    /// Every kind that ever had an object.
    pub kinds: Vec<(GroupKind, Arc<str>)>,
    pub came_back: Vec<RestoredObject>,
}

/// Mode and history received from the hub while the journal could not be opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    mode: Option<AgentMode>,
    history: Option<Continuity>,
}

/// The agent's state, by the room that owns it. Bounded by what is placed at its target: it keeps no body, and no status that
/// was reported.
pub struct Core {
    config: Config,
    model: Model,
    guards: Guards,
    work: Work,
    audit: Audit,
    reporting: Reporting,
    sync: HubSync,
    jitter: Jitter,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// Asked to end: operations in flight are finished, none is begun.
    Stopping,
    /// Nothing is done any more.
    Ended,
}

impl Core {
    pub fn new(config: Config, loaded: Loaded) -> Self {
        let Loaded {
            enrolled,
            handed_to,
            formers,
            inherited,
            token_spent,
            cluster,
            session,
            floor,
            accepted,
            history,
            mode,
            entries,
            policies,
            bodies,
            applied,
            removing,
            passed,
            held,
            decommission,
            unsent,
            ran,
            creating,
            kinds,
            came_back,
        } = loaded;
        let model = Model {
            target: enrolled.map(|enrolled| enrolled.target),
            formers,
            policies,
            inputs: Inputs::new(bodies),
            creations: Creations::new(creating),
            decommission,
            believe_marks: accepted.is_none(),
            ..Model::new(config.hub, config.namespaces.clone())
        };
        let sync = HubSync {
            session: Session::since(session),
            sets: AcceptedSets::new(accepted, floor, inherited),
            history,
            mode,
            asked: 0,
            token: if token_spent { Token::Spent } else { Token::Untried },
            handed_to,
            cluster_identity: ClusterIdentity::new(cluster, config.facts.clone(), config.answered),
        };
        let mut core = Self {
            model,
            guards: Guards::new(Fuse::new(config.fuse), Ran::new(ran)),
            work: Work::default(),
            audit: Audit::default(),
            reporting: Reporting::default(),
            sync,
            jitter: Jitter::new(config.seed),
            phase: Phase::Running,
            config,
        };
        // The entries first: records of objects that are as they say are kept with them.
        for entry in entries {
            core.put_entry(entry);
            core.model.compact_if_many();
        }
        core.model.resume_restored(kinds, came_back);
        let mut unassigned = Vec::new();
        for (key, record) in drain_from_end(applied) {
            core.model.kinds.refer(&key, &record.version);
            core.model.there_was(&key.kind, &record.version);
            if core.model.desired.get(&key).is_none() {
                unassigned.push((key.clone(), record.source.clone()));
            }
            core.model.objects.at(&key).record = Some(record);
            core.model.recorded += 1;
            core.guards.gates.update(&core.model, &key);
            core.model.compact_if_many();
        }
        for report in unsent {
            if let Some(fact) = report.terminal {
                core.guards.ran.resume(&mut core.model, &report.key, report.source_uid, fact);
            }
            core.guards.gates.update(&core.model, &report.key);
            core.model.compact_if_many();
        }
        for (tombstone, policy) in removing {
            core.put_removal(tombstone, policy, None, Cause::Unassigned);
            core.model.compact_if_many();
        }
        for (key, source) in unassigned {
            core.model.told_of_unexplained(&key, source);
            core.model.compact_if_many();
        }
        core.model.pack();
        core.guards.fuse.resume(passed, held, |tombstone| core.model.removals.contains_key(tombstone));
        core
    }

    /// What this core heard from the hub and a core that begins from a journal must know, and write there. That nothing
    /// restricts the agent is not included: the hub says so again.
    pub fn heard(&self) -> Heard {
        Heard {
            mode: (self.sync.mode != AgentMode::Active).then(|| self.sync.mode.clone()),
            history: self.sync.is_broken().then_some(self.sync.history),
        }
    }

    /// Begins with what a core without a journal has heard, and writes it to the journal.
    #[must_use]
    pub fn having(mut self, heard: Heard) -> Self {
        let Heard { mode, history } = heard;
        let known = std::mem::take(&mut self.sync.mode);
        let mode = mode.map_or_else(|| known.clone(), |heard| known.clone().having_heard(heard));
        if mode != known {
            self.model.disk.write(Write::Mode(mode.clone()));
        }
        self.sync.mode = mode;
        if let Some(history) = history {
            self.sync.history = history;
            self.model.disk.write(Write::History(history));
        }
        self
    }

    /// Takes one event and appends what must happen next.
    pub fn step(&mut self, now: Monotonic, event: Event, out: &mut Effects) {
        if self.phase == Phase::Ended {
            return;
        }
        if is_word_of_the_api_server(&event) {
            self.model.heard_at.get_or_insert(now);
        }
        match event {
            Event::Started => self.started(now, out),
            Event::Cluster(facts) => self.on_facts(facts, out),
            Event::ApiServerProbe { answers } => self.sync.on_probe(answers),
            Event::Superseded(why) => {
                self.take_verdict(now, HubVerdict::Frozen(FreezeReason::Fenced(why)), out);
            }
            Event::SessionKept { result } => self.session_kept(now, result, out),
            Event::StoredSessionRead { result } => self.stored_session_read(now, result, out),
            Event::Answered { id, result } => self.answered(now, id, result, out),
            Event::Persisted { id, result } => self.persisted(now, id, result, out),
            Event::Executed { id, result } => self.executed(now, id, result, out),
            Event::Timer(Timer::Link) => self.link_due(now, out),
            Event::Timer(Timer::Report) => self.reporting.reports.due(now),
            Event::Timer(Timer::Retry) => self.retries_due(now),
            Event::Timer(Timer::Patrol) => self.patrol_due(now, out),
            Event::Timer(Timer::Associated) => self.reporting.associates.timer_fired(),
            Event::Kind { kind, served } => self.kind_served(now, &kind, served),
            Event::Listed { kind, objects } => self.listed(now, &kind, objects),
            Event::Observed(observed) => self.observed(now, *observed),
            Event::Gone { key, uid } => self.vanished(now, &key, &uid),
            Event::WatchLost { kind, reason, message } => self.watch_lost(now, &kind, reason, message),
            Event::Unwatched { kind, message } => self.model.kinds.unwatched(&kind, Some(message)),
            Event::Watched { kind } => self.model.kinds.unwatched(&kind, None),
            Event::Followed { kind, run, news } => self.reporting.associates.followed(now, kind, run, news),
            Event::ListPage { list, objects } => self.list_page(now, list, &objects),
            Event::ListEnded { list, result } => self.list_ended(now, list, &result, out),
            Event::Stop => self.phase = Phase::Stopping,
        }
        self.flush_effects(now, out);
    }

    /// Sizes, for metrics.
    pub fn stats(&self) -> CoreStats {
        CoreStats {
            revision: self.sync.sets.current().map_or(0, |accepted| accepted.version.revision.0),
            assigned: self.model.desired.len(),
            removals: self.model.removals.len(),
        }
    }

    /// How many requests the API server gets at once, for metrics.
    pub fn concurrency(&self) -> ConcurrencyReading {
        self.work.concurrency()
    }

    /// Whether nothing is changed because the journal was set back, and the hub was not heard since.
    pub fn journal_is_set_back(&self) -> bool {
        self.model.is_set_back()
    }

    /// The namespace in which alone nothing is changed for that.
    pub fn namespace_set_back(&self) -> Option<&str> {
        self.model.later_in.as_deref().filter(|_| !self.model.is_set_back())
    }

    /// How many kinds the agent was refused, for metrics.
    pub fn kinds_forbidden(&self) -> usize {
        self.model.kinds.forbidden(&self.model.forbidden_kinds).len()
    }

    fn started(&mut self, now: Monotonic, out: &mut Effects) {
        self.recall_mode(out);
        self.model.drop_bodies();
        self.guards.fuse.started(now);
        self.retire_all();
        self.reporting.reports.everything(self.model.objects.names(), now);
        // No watch reports a namespace that is excluded; an untried entry there would delay every later wave.
        let elsewhere = self.model.objects.keys().filter(|key| !self.config.namespaces.keep(key));
        for key in elsewhere.cloned().collect::<Vec<_>>() {
            self.enqueue(&key);
        }
        match self.sync.handed_to.take() {
            Some(heir) => self.become_target(now, heir, out),
            None => self.session_start(out),
        }
    }

    fn persisted(&mut self, now: Monotonic, id: PersistId, result: Result<(), String>, out: &mut Effects) {
        for then in self.model.disk.persisted(now, id, result, &mut self.jitter) {
            self.model.compact_if_many();
            match then {
                Then::Recorded(key) => self.recorded(now, &key),
                Then::Switched(change) => self.switched(now, *change, out),
                Then::Enrolled => self.became_target(out),
                Then::Passed(tombstone, wave) => self.passed(now, &tombstone, wave),
                Then::Create(id, op) => self.creation_recorded(now, id, *op, out),
            }
        }
        self.call_off_creations(now);
        self.fetch_more(out);
    }

    /// The consequences of an event: operations, writes, reports, watches, timers.
    fn flush_effects(&mut self, now: Monotonic, out: &mut Effects) {
        if self.phase == Phase::Ended {
            return;
        }
        self.pump(now, out);
        self.tell_decommission(out);
        self.keep_held();
        self.forget_passed(now);
        self.model.disk.flush(now, out);
        self.reporting.kube_events.flush(out);
        self.flush_associated(now, out);
        self.report(now, out);
        if self.work.is_to_read() {
            self.pump(now, out);
        }
        if let Some(watch) = self.model.kinds.take_change() {
            self.audit.copies.watched(&watch);
            self.audit.unexplained.watched(&watch);
            out.push(Effect::Watch(watch));
        }
        self.model.compact();
        self.patrol(now, out);
        // While nothing begins, no wave is given up, and the agent would be woken for that over and over.
        let gates = self.guards.gates.next_due().filter(|_| self.begins(now));
        let due = [self.work.next_retry(), self.work.next_wave_due(now), gates, self.model.disk.next_retry()];
        let retry = due.into_iter().flatten().chain(list_first_until(&self.model, now)).min();
        self.work.set_timer(retry, out);
        // Without a session nothing can be reported. One that is being renewed is waited for.
        let quiet = !self.renews_session() && (self.session_name().is_none() || self.reporting.reports.is_quiet());
        let idle = self.work.is_idle() && self.model.disk.is_idle() && quiet;
        if self.phase == Phase::Stopping && idle && !self.say_goodbye(now, out) {
            self.phase = Phase::Ended;
            out.push(Effect::Stopped);
        }
    }
}

/// What is in a vector, from its end, and with its memory given back on the way: what is made of it takes as much.
fn drain_from_end<T>(mut all: Vec<T>) -> impl Iterator<Item = T> {
    std::iter::from_fn(move || {
        let last = all.pop();
        if all.len() < all.capacity() / 2 {
            all.shrink_to_fit();
        }
        last
    })
}

/// Whether an API server has answered a list, and is not just away.
fn is_word_of_the_api_server(event: &Event) -> bool {
    match event {
        Event::Listed { .. } => true,
        Event::Kind { served, .. } => *served != Served::Unknown,
        Event::WatchLost { reason, .. } => *reason != Reason::Unavailable,
        _ => false,
    }
}

#[cfg(test)]
pub(crate) mod tests;
