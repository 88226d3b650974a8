//! One hub, one agent, one cluster and the wire between them, in virtual time. Everything that happens is in one queue;
//! the seed decides when.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tideline_agent::addresses::Locator;
use tideline_agent::core::{
    AssociatedNews, Core, Event, FuseLimits, ListId, Op, OpId, OpResult, PatrolTally, PersistId, RequestId, Timer,
    Write,
};
use tideline_agent::simulated_cluster::{Chore, Cluster};
use tideline_common::replay::RunNumbers;
use tideline_common::wire::v1::RefusalKind;
use tideline_common::{AssociatedKind, Epoch, Formers, GroupKind, Monotonic, ObjectKey, SessionName, TargetId, Uid};
use tideline_hub::ledger::Retention;
use tideline_hub::link::core as link;

use crate::faults::{CHAOS, Faults, NONE};
use crate::hub::{Disk, Hub};
use crate::ids::{TARGET, owner, parse};
use crate::journal::Journal;
use crate::plans::Probe;
use crate::random::Random;
use crate::versions::Versions;
use crate::wire::{Reply, Sent, Travelling, Waiting};
use crate::workload::Workload;
use associates::Following;
use hub::Asked;
use mishaps::Fate;
use moves::Whereabouts;
use proxy::Proxy;

mod agent;
mod associates;
mod copies;
mod handover;
mod hub;
mod mishaps;
mod moves;
mod planned;
mod proxy;
mod versions;
mod watches;

pub(crate) use copies::{Copied, Which};

/// Events before a seed counts as one that never comes to rest, beside periodic ones.
const HAPPENINGS_MAX: u64 = 200_000;
/// Periodic events of all processes are rarer than this, at rest and on a bad wire.
const HAPPENS_EVERY_MILLIS: u64 = 100;

/// What may happen in a seed beyond what happens in all.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says whether one thing, independent of the others, is so")]
pub(crate) struct Scenario {
    pub(crate) config_maps: u64,
    pub(crate) fuse: FuseLimits,
    /// How long nothing may be written at the end.
    pub(crate) rest: Duration,
    /// How often the hub is set back, or started on another of its copies.
    pub(crate) restores: u64,
    /// The agent loses its data directory now and then.
    pub(crate) loses_journal: bool,
    /// Somebody approves removals that are held, now and then.
    pub(crate) approves: bool,
    /// Now and then the hub refuses the agent, or does not know it, for a while.
    pub(crate) shuts_out: bool,
    /// Sources that one change at the hub may unassign from targets before it waits for somebody.
    pub(crate) unassigns: u64,
    /// From one patrol to the next, about.
    pub(crate) patrol: Duration,
    /// The agent is upgraded and put back, now and then.
    pub(crate) versions: bool,
    /// A proxy interferes with every third message, not just with some.
    pub(crate) meddles: bool,
    /// The hub moves to other names and authorities, now and then.
    pub(crate) moves: bool,
    /// The hub remembers few of its former revisions, in most seeds.
    pub(crate) forgets: bool,
}

#[derive(Clone, Debug)]
enum Happening {
    /// A request arrives at the hub.
    Request(Box<Travelling>),
    Reply {
        to: Sent,
        reply: Box<Reply>,
    },
    /// There is no server there whose certificate is trusted.
    Unreached(Sent),
    GiveUp {
        run: u64,
        id: RequestId,
    },
    AgentTimer {
        run: u64,
        timer: Timer,
        at: Monotonic,
    },
    Written {
        run: u64,
    },
    /// The session that was offered is stored.
    SessionKept {
        run: u64,
    },
    StoredSessionRead {
        run: u64,
    },
    /// An operation takes effect.
    Lands {
        run: u64,
        id: OpId,
    },
    Ends {
        run: u64,
        id: OpId,
        result: Box<OpResult>,
    },
    Watch {
        run: u64,
        kind: GroupKind,
        stream: u64,
        event: Box<Event>,
    },
    Relist {
        run: u64,
        kind: GroupKind,
        stream: u64,
    },
    /// A watch of associated objects shows an event.
    Followed {
        run: u64,
        kind: AssociatedKind,
        follow: u32,
        news: AssociatedNews,
    },
    Refollow {
        run: u64,
        kind: AssociatedKind,
        follow: u32,
    },
    /// A list of a kind is made.
    ListMetadata {
        run: u64,
        id: ListId,
        kind: GroupKind,
    },
    AgentEnds,
    /// The process has not ended by itself.
    Killed {
        run: u64,
    },
    AgentStarts {
        run: u64,
    },
    HubStarts,
    HubWrites {
        run: u64,
    },
    HubTimer {
        run: u64,
        at: Monotonic,
    },
    Chore(Chore),
    OutageEnds,
    PartitionEnds,
    /// The hub accepts the agent again.
    ShutOutEnds,
    /// The hub has left its former address.
    MoveEnds,
}

struct Stream {
    number: u64,
    /// When it showed its last event; none is shown before that.
    last: u64,
    lost: bool,
}

#[expect(clippy::struct_excessive_bools, reason = "each says whether one thing, independent of the others, is so")]
struct Agent {
    /// No other process has the same, of this agent or another.
    run: u64,
    /// Identifies the process to the hub.
    instance: u64,
    is_copy: bool,
    /// Its machine is gone.
    lost: bool,
    /// It was asked to stop.
    stopping: bool,
    /// It is partitioned from the hub; the other agent may be connected.
    cut_off: bool,
    core: Option<Core>,
    journal: Journal,
    writing: VecDeque<(PersistId, Vec<Write>)>,
    /// The session that is being stored.
    keeping: Option<SessionName>,
    /// Begun, and without effect yet.
    operations: BTreeMap<OpId, Op>,
    requests: BTreeMap<RequestId, Waiting>,
    numbers: RunNumbers,
    /// None while it is down.
    locator: Option<Locator>,
    timers: BTreeMap<Timer, Monotonic>,
    streams: BTreeMap<GroupKind, Stream>,
    following: BTreeMap<AssociatedKind, Following>,
    writes: u64,
    /// What the last patrol found.
    patrol: Option<PatrolTally>,
    mode: ToldMode,
    versions: Versions,
}

impl Agent {
    /// One that is to start with this journal.
    fn new(run: u64, journal: Journal) -> Self {
        Self {
            run,
            instance: 0,
            is_copy: false,
            lost: false,
            stopping: false,
            cut_off: false,
            core: None,
            mode: ToldMode::from(&journal.mode),
            journal,
            writing: VecDeque::new(),
            keeping: None,
            operations: BTreeMap::new(),
            requests: BTreeMap::new(),
            numbers: RunNumbers::default(),
            locator: None,
            timers: BTreeMap::new(),
            streams: BTreeMap::new(),
            following: BTreeMap::new(),
            writes: 0,
            patrol: None,
            versions: Versions::default(),
        }
    }
}

/// The mode that the agent was last told to be in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ToldMode {
    #[default]
    Good,
    UnknownToHub,
    Frozen,
}

impl From<&tideline_agent::core::AgentMode> for ToldMode {
    fn from(mode: &tideline_agent::core::AgentMode) -> Self {
        match mode {
            tideline_agent::core::AgentMode::Active => Self::Good,
            tideline_agent::core::AgentMode::UnknownToHub => Self::UnknownToHub,
            tideline_agent::core::AgentMode::Frozen(_) => Self::Frozen,
        }
    }
}

#[expect(clippy::struct_excessive_bools, reason = "each says whether one thing, independent of the others, is so")]
pub(crate) struct World {
    pub(crate) scenario: Scenario,
    random: Random,
    now: u64,
    sequence: u64,
    happened: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    faults: Faults,
    partitioned: bool,
    loses_acknowledgements: bool,
    /// What the hub refuses every request of the agent with.
    shut_out: Option<RefusalKind>,
    /// Somebody has given the agent a token that it has not used.
    token: bool,
    /// The hub is gone for good.
    hub_gone: bool,
    /// The agent that events concern now.
    agent: Agent,
    /// Another with a copy of its identity, if there is one; or it is the original.
    other: Option<Box<Agent>>,
    /// Runs of agents that were begun.
    runs: u64,
    pub(crate) hub: Hub,
    pub(crate) cluster: Cluster,
    pub(crate) workload: Workload,
    /// What waits at the hub.
    requests: BTreeMap<link::RequestId, Asked>,
    proxy: Proxy,
    whereabouts: Whereabouts,
    /// Requests that agents have sent, and which of them the hub has taken.
    sendings: u64,
    taken: BTreeSet<u64>,
    last_request: u64,
    streams: u64,
    backup: Option<(Disk, Workload)>,
    /// Given so far.
    approvals: u64,
    /// A restore takes longer than any message.
    restoring_until: u64,
    pub(crate) restored: bool,
    restores: u64,
    pub(crate) lost_journal: bool,
    /// The newest input of each source that was written under its key.
    applied: BTreeMap<(ObjectKey, Uid), i64>,
    /// The epoch of the set that was written so.
    applied_in: Option<(TargetId, Epoch)>,
    pub(crate) trace: Option<VecDeque<String>>,
    /// The probe that counts and disturbs, in a run by plan.
    pub(crate) probe: Option<Box<Probe>>,
}

impl World {
    pub(crate) fn new(seed: u64, scenario: Scenario, traced: bool) -> Self {
        let mut world = Self {
            scenario,
            random: Random::new(seed),
            now: 0,
            sequence: 0,
            happened: 0,
            queue: BTreeMap::new(),
            faults: NONE,
            partitioned: false,
            loses_acknowledgements: false,
            shut_out: None,
            token: false,
            hub_gone: false,
            agent: Agent::new(0, Journal::default()),
            other: None,
            runs: 0,
            hub: Hub::new(scenario.unassigns, retention(scenario, seed)),
            cluster: Cluster::new(owner(parse(TARGET), Formers::default())),
            workload: Workload::new(scenario.config_maps),
            requests: BTreeMap::new(),
            proxy: Proxy::default(),
            whereabouts: Whereabouts::default(),
            sendings: 0,
            taken: BTreeSet::new(),
            last_request: 0,
            streams: 0,
            backup: None,
            approvals: 0,
            restoring_until: 0,
            restored: false,
            restores: 0,
            lost_journal: false,
            applied: BTreeMap::new(),
            applied_in: None,
            trace: traced.then(VecDeque::new),
            probe: None,
        };
        world.schedule(0, Happening::HubStarts);
        world.schedule(1, Happening::AgentStarts { run: 0 });
        world
    }

    fn schedule(&mut self, after: u64, happening: Happening) {
        self.sequence += 1;
        self.queue.insert((self.now + after, self.sequence), happening);
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic::from_millis(self.now)
    }

    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            if trace.len() == trace_length() {
                trace.pop_front();
            }
            trace.push_back(format!("{:>9} {}", self.now, what()));
        }
    }
    /// Everything goes wrong, over and over.
    pub(crate) fn rage(&mut self, mishaps: u64) {
        self.faults = if self.scenario.meddles { Faults { meddle: 300, ..CHAOS } } else { CHAOS };
        for _ in 0..mishaps {
            self.mishap();
            self.replay_some();
            let pause = if self.random.chance(50) { 600_000 } else { 8_000 };
            let pause = self.random.below(pause);
            self.pass(pause);
        }
    }

    /// Nothing goes wrong any more, and processes that are down come up.
    pub(crate) fn heal(&mut self) {
        self.note(|| "HEALED".to_owned());
        self.faults = NONE;
        self.partitioned = self.hub_gone;
        self.let_in();
        self.cluster.faults.outage = None;
        self.heal_agent();
        if !self.hub.up && !self.hub_gone {
            self.hub_starts();
        }
    }

    fn heal_agent(&mut self) {
        self.agent.cut_off = false;
        self.point_at_hub();
        if self.agent.core.is_none() && !self.agent.lost {
            self.agent_starts();
        }
    }

    /// No message arrives any more, either way.
    pub(crate) fn cut(&mut self) {
        self.note(|| "the wire is cut".to_owned());
        self.partitioned = true;
    }

    pub(crate) fn lose_hub(&mut self) {
        self.note(|| "the hub is gone for ever".to_owned());
        self.hub.crash();
        self.hub_gone = true;
        self.partitioned = true;
    }

    /// The agent alone, with what it has, while people change the cluster.
    pub(crate) fn rage_alone(&mut self, mishaps: u64) {
        self.faults = CHAOS;
        for _ in 0..mishaps {
            match self.random.below(6) {
                0 => self.agent_crashes(),
                1 => self.lose_watch(),
                2 => self.cluster_outage(),
                _ => self.disturb(false),
            }
            let pause = self.random.below(20_000);
            self.pass(pause);
        }
    }

    /// Lets time pass, with all its events.
    pub(crate) fn pass(&mut self, millis: u64) {
        let until = self.now + millis;
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= until) {
            let ((at, _), happening) = entry.remove_entry();
            self.now = self.now.max(at);
            self.happened += 1;
            let comes_round = self.now / HAPPENS_EVERY_MILLIS;
            assert!(self.happened < HAPPENINGS_MAX + comes_round, "it does not come to rest");
            self.happens(happening);
        }
        self.now = until;
    }

    /// Counts of everything that is written anywhere.
    pub(crate) fn writes(&self) -> (u64, u64, u64) {
        (self.cluster.versions, self.agent.writes, self.hub.writes)
    }

    /// Whether the agent works: it is neither frozen nor unknown to the hub.
    pub(crate) fn is_active(&self) -> bool {
        self.agent.mode == ToldMode::Good
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.agent.journal
    }

    /// What the last patrol of this agent found.
    pub(crate) fn patrol(&self) -> Option<PatrolTally> {
        self.agent.patrol
    }

    /// Work in flight: it must not grow without bound, and at rest there is one poll.
    pub(crate) fn under_way(&self) -> (usize, usize, usize, usize) {
        let Agent { writing, operations, requests, .. } = &self.agent;
        (writing.len(), operations.len(), requests.len(), self.requests.len())
    }

    pub(crate) fn sleep(&mut self, duration: Duration) {
        self.pass(u64::try_from(duration.as_millis()).expect("it is hours"));
    }

    fn happens(&mut self, happening: Happening) {
        self.turn_to(happening.run());
        match happening {
            Happening::Request(travelling) => self.request_arrives(*travelling),
            Happening::Reply { to, reply } if to.run == self.agent.run => self.reply_arrives(to, &reply),
            Happening::GiveUp { run, id } if run == self.agent.run && self.agent.requests.contains_key(&id) => {
                self.note(|| format!("agent gives up {id:?}"));
                self.goes_unanswered(id);
            }
            Happening::Unreached(to) if to.run == self.agent.run => self.unreached(to),
            Happening::AgentTimer { run, timer, at } if run == self.agent.run => {
                if self.agent.timers.get(&timer) == Some(&at) {
                    self.agent.timers.remove(&timer);
                    self.agent_steps(Event::Timer(timer));
                }
            }
            Happening::Written { run } if run == self.agent.run => self.written(),
            Happening::SessionKept { run } if run == self.agent.run => self.session_kept(),
            Happening::StoredSessionRead { run } if run == self.agent.run => self.stored_session_read(),
            Happening::Lands { run, id } if run == self.agent.run => self.operation_lands(id),
            Happening::Ends { run, id, result } if run == self.agent.run => {
                self.note(|| format!("agent: {id:?} ended: {result:?}"));
                self.agent_steps(Event::Executed { id, result: *result });
            }
            Happening::Watch { run, kind, stream, event } if run == self.agent.run => {
                if self.agent.streams.get(&kind).is_some_and(|known| known.number == stream) {
                    self.note(|| format!("watch: {event:?}"));
                    self.agent_steps(*event);
                }
            }
            Happening::Relist { run, kind, stream } if run == self.agent.run => self.relist(&kind, stream),
            Happening::Followed { run, kind, follow, news } if run == self.agent.run => {
                self.note(|| format!("watch of {kind}: {news:?}"));
                self.agent_steps(Event::Followed { kind, run: follow, news });
            }
            Happening::Refollow { run, kind, follow } if run == self.agent.run => self.refollow(kind, follow),
            Happening::ListMetadata { run, id, kind } if run == self.agent.run => self.list_metadata(id, &kind),
            Happening::AgentEnds => self.restart_agent(),
            Happening::Killed { run } if run == self.agent.run => self.agent_ends_after_all(Fate::Chance),
            Happening::AgentStarts { run } if run == self.agent.run => self.agent_starts(),
            Happening::HubStarts => self.hub_starts(),
            Happening::HubWrites { run } if run == self.hub.run => self.hub_writes(),
            Happening::HubTimer { run, at } if run == self.hub.run && self.hub.up && at.as_millis() <= self.now => {
                self.hub_steps(link::Event::Timer);
            }
            Happening::Chore(chore) => {
                self.cluster.do_chore(&chore);
                self.cluster_changed();
            }
            Happening::OutageEnds => self.cluster.faults.outage = None,
            Happening::PartitionEnds => self.partitioned = self.hub_gone,
            Happening::ShutOutEnds => self.let_in(),
            Happening::MoveEnds => self.move_ends(),
            // Of a run that is over.
            Happening::AgentStarts { .. }
            | Happening::Reply { .. }
            | Happening::Unreached(_)
            | Happening::GiveUp { .. }
            | Happening::AgentTimer { .. }
            | Happening::Written { .. }
            | Happening::SessionKept { .. }
            | Happening::StoredSessionRead { .. }
            | Happening::Lands { .. }
            | Happening::Ends { .. }
            | Happening::Watch { .. }
            | Happening::Relist { .. }
            | Happening::Followed { .. }
            | Happening::Refollow { .. }
            | Happening::ListMetadata { .. }
            | Happening::Killed { .. }
            | Happening::HubWrites { .. }
            | Happening::HubTimer { .. } => {}
        }
    }
}

/// How much the hub remembers: about as much as happens while an agent is away, or everything.
fn retention(scenario: Scenario, seed: u64) -> Retention {
    // A stream of its own, so that everything else happens as with a hub that remembers everything.
    let mut random = Random::new(!seed);
    if !scenario.forgets || random.chance(250) {
        return Retention::default();
    }
    let log_entries = usize::try_from(random.within((1, 21))).expect("it is little");
    Retention { log_entries, revision_ids: random.within((1, 21)) }
}

/// Events that are kept to be shown when an invariant does not hold: `TIDELINE_TRACE`, or sixty.
fn trace_length() -> usize {
    std::env::var("TIDELINE_TRACE").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}
