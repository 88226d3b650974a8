//! Drives a core against the cluster and the hub, effect by effect, in an order that a seed decides.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tideline_common::wire::v1::{ClusterFacts, Decommission, DecommissionReport, EnrolRequest, Progress, RefusalKind};
use tideline_common::{Formers, GroupKind, Monotonic, ObjectKey, Owner, Uid};

use super::hub::Hub;
use super::watches::{Watches, list_in_pages};
use super::{Random, heir, hub_id, key, target_id};
use crate::core::{
    AgentMode, Answer, Config, Core, Effect, Enrolled, Event, Failure, FuseLimits, LinkFailure, Loaded, Op, OpId,
    OpResult, PatrolTally, RemovalPolicy, Request, RequestId, Timer, Write,
};
use crate::simulated_cluster::{Backup, Cluster, Faults, Means, Stripped, is_deployment};

#[expect(clippy::struct_excessive_bools, reason = "each says whether one thing, independent of the others, is so")]
pub(in crate::core) struct World {
    seed: u64,
    fuse: FuseLimits,
    random: Random,
    now: Monotonic,
    pub(in crate::core) core: Core,
    pending: Vec<Effect>,
    /// Long polls, and when they are answered at the latest.
    waiting: Vec<(Monotonic, RequestId, Request)>,
    timers: BTreeMap<Timer, Monotonic>,
    pub(in crate::core) journal: Loaded,
    /// The facts of the cluster when an agent begins.
    facts: Option<ClusterFacts>,
    pub(in crate::core) cluster: Cluster,
    pub(in crate::core) watches: Watches,
    pub(in crate::core) hub: Hub,
    keys: Vec<ObjectKey>,
    link_up: bool,
    faults: bool,
    status: u64,
    pub(in crate::core) ops: u64,
    pub(in crate::core) patrols: Vec<PatrolTally>,
    persists: u64,
    /// The agent's mode, as the edges were told.
    pub(in crate::core) modes: Vec<String>,
    pub(in crate::core) decommissioned: Option<DecommissionReport>,
    /// No session can be kept.
    pub(in crate::core) session_store_fails: bool,
    /// Nothing can be written.
    pub(in crate::core) no_journal: bool,
    /// The process is to end.
    stopping: bool,
}

/// The fuse has tests of its own.
const NO_FUSE: FuseLimits = FuseLimits { always: usize::MAX, percent: 0 };

pub(crate) fn config(seed: u64, fuse: FuseLimits) -> Config {
    let enrolment = EnrolRequest {
        token: "token".into(),
        agent_key: Vec::new(),
        proof: Vec::new(),
        hub: hub_id(),
        facts: ClusterFacts::default(),
    };
    Config {
        hub: hub_id(),
        facts: ClusterFacts::default(),
        answered: true,
        instance: tideline_common::wire::v1::Instance::default(),
        enrolment: Some(enrolment),
        seed,
        fuse,
        patrol: Duration::from_mins(10),
        namespaces: crate::Namespaces::All,
        capabilities: tideline_common::Capabilities::all(),
    }
}

/// Whatever it comes to be, the agent's marks are its own, and the namespace of all objects is there.
fn cluster() -> Cluster {
    let formers = Formers::default().with(heir(0)).with(heir(1));
    let faults = Faults { finalizer_on_one_in: Some(5), ..Faults::default() };
    let agent = Owner { hub: hub_id(), target: target_id(), formers };
    Cluster { namespaces: ["shop".into()].into(), faults, ..Cluster::new(agent) }
}

impl World {
    pub(in crate::core) fn new(seed: u64) -> Self {
        Self::with_fuse(seed, NO_FUSE)
    }

    pub(in crate::core) fn with_fuse(seed: u64, fuse: FuseLimits) -> Self {
        let mut keys = Vec::new();
        for i in 0..3 {
            keys.push(key("", "ConfigMap", &format!("c{i}")));
            keys.push(key("apps", "Deployment", &format!("d{i}")));
        }
        // Nothing is in it, so that it may be deleted.
        keys.push(key("", "Namespace", "yard"));
        let mut world = Self {
            seed,
            fuse,
            random: Random(seed),
            now: Monotonic::START,
            core: Core::new(config(seed, fuse), Loaded::default()),
            pending: Vec::new(),
            waiting: Vec::new(),
            timers: BTreeMap::new(),
            journal: Loaded { token_spent: true, ..Loaded::default() },
            facts: Some(ClusterFacts::default()),
            cluster: cluster(),
            watches: Watches::default(),
            hub: Hub::with_pages_of(2),
            keys,
            link_up: true,
            faults: true,
            status: 0,
            ops: 0,
            patrols: Vec::new(),
            persists: 0,
            modes: Vec::new(),
            decommissioned: None,
            session_store_fails: false,
            no_journal: false,
            stopping: false,
        };
        world.step(Event::Started);
        world
    }

    /// Something happens at the hub or at the cluster, or to the agent.
    pub(in crate::core) fn mishap(&mut self) {
        let key = self.random.pick(&self.keys);
        match self.random.below(8) {
            0..=2 => {
                let (source, input) = (self.random.below(2) as u64, self.random.below(50) as u64);
                self.hub.put(&key, source, input);
            }
            3 => self.hub.remove(&key),
            4 | 5 => self.disturb_cluster(),
            6 => self.crash(),
            _ => self.lose_watch(&key.kind),
        }
    }

    pub(in crate::core) fn disturb_cluster(&mut self) {
        let key = self.random.pick(&self.keys);
        match self.random.below(6) {
            0 => {
                self.cluster.delete(&key);
            }
            1 => self.cluster.strip(&key, Stripped::Both),
            2 => self.cluster.edit(&key),
            3 => self.cluster.intrude(&key, Means::Declaratively),
            _ => {
                self.status += 1;
                self.cluster.set_status(&key, self.status);
            }
        }
    }

    /// The hub closes open polls, and refuses every request from now on.
    pub(in crate::core) fn shut_out(&mut self, refusal: RefusalKind) {
        self.hub.refuses = Some(refusal);
        let waiting = std::mem::take(&mut self.waiting);
        for (_, id, request) in waiting {
            let result = self.hub.reply(request);
            self.step(Event::Answered { id, result });
        }
    }

    /// The process ends; each operation in flight happened or did not.
    pub(in crate::core) fn crash(&mut self) {
        let mut disk = true;
        for effect in std::mem::take(&mut self.pending) {
            disk &= self.random.chance(50);
            match effect {
                Effect::Persist { writes, .. } if disk => self.persist(&writes),
                Effect::Execute { op, .. } if self.random.chance(50) => {
                    self.cluster.execute(&op);
                }
                Effect::Send { request, .. } if self.random.chance(50) && self.link_up => {
                    self.hub.answer(request);
                }
                _ => {}
            }
        }
        self.waiting.clear();
        self.timers.clear();
        self.watches.restart(&mut self.cluster);
        let config = Config {
            facts: self.facts.clone().unwrap_or_default(),
            answered: self.facts.is_some(),
            ..config(self.random.below(1 << 30) as u64, self.fuse)
        };
        self.core = Core::new(config, self.journal.clone());
        self.step(Event::Started);
    }

    /// The process ends, and restarts with an identity of this cluster, in one that reports these facts or does not answer.
    pub(in crate::core) fn begin_in(&mut self, cluster: Uid, facts: Option<ClusterFacts>) {
        self.journal.cluster = Some(cluster);
        self.facts = facts;
        self.crash();
    }

    pub(in crate::core) fn learn(&mut self, facts: ClusterFacts) {
        self.step(Event::Cluster(facts));
    }

    /// The API server falls silent, or answers again.
    pub(in crate::core) fn feel(&mut self, answers: bool) {
        self.step(Event::ApiServerProbe { answers });
    }

    /// The process goes on elsewhere: with its identity, and without its journal.
    pub(in crate::core) fn lose_journal(&mut self) {
        self.crash();
        let journal = std::mem::take(&mut self.journal);
        let Loaded { enrolled, handed_to, formers, inherited, token_spent, floor, accepted, session, cluster, .. } =
            journal;
        // A set accepted as another target does not count.
        let accepted = accepted.filter(|_| handed_to.is_none());
        let floor = [floor, accepted].into_iter().flatten().max_by_key(|known| known.set.version);
        let enrolled = handed_to.or(enrolled);
        let journal =
            Loaded { enrolled, formers, inherited, token_spent, cluster, session, floor, ..Loaded::default() };
        self.journal = journal;
        self.crash();
    }

    pub(in crate::core) fn cut_off(&mut self) {
        self.link_up = false;
        self.faults = true;
    }

    /// The hub is away, and everything else is well.
    pub(in crate::core) fn hub_is_away(&mut self) {
        self.link_up = false;
    }

    pub(in crate::core) fn heal(&mut self) {
        self.link_up = true;
        self.heal_cluster();
    }

    /// The hub is reached again, and whatever people put in the cluster stays.
    pub(in crate::core) fn reconnect(&mut self) {
        self.link_up = true;
        self.faults = false;
    }

    pub(in crate::core) fn heal_cluster(&mut self) {
        self.faults = false;
        // People remove foreign objects that have assigned keys.
        let strangers = self.cluster.objects.iter().filter(|(_, local)| local.declarative);
        for key in strangers.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.cluster.delete(&key);
        }
    }

    /// A watch breaks, misses whatever it has not said, and is begun again.
    pub(in crate::core) fn lose_watch(&mut self, kind: &GroupKind) {
        self.watches.lose(kind, &mut self.cluster);
    }

    /// The API server's store is restored from a backup: every watch begins again with a list.
    pub(in crate::core) fn set_back_cluster(&mut self, to: Backup) {
        self.cluster.set_back(to);
        self.watches.feed.clear();
        for kind in self.keys.iter().map(|key| key.kind.clone()).collect::<BTreeSet<_>>() {
            self.lose_watch(&kind);
        }
    }

    /// A watch lists all there is once more.
    pub(in crate::core) fn list(&mut self, kind: &GroupKind) {
        self.watches.list(kind, &mut self.cluster);
    }

    pub(in crate::core) fn run_with_faults(&mut self, steps: usize) {
        for _ in 0..steps {
            self.advance();
        }
    }

    pub(in crate::core) fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.advance();
        }
    }

    /// Runs whatever is due next, for as long as that and no longer.
    pub(in crate::core) fn run_just(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            self.watches.hear(&mut self.cluster);
            let news = self.waiting.iter().any(|(_, _, request)| !self.hub.would_wait(request));
            let busy = news || !self.watches.feed.is_empty() || !self.pending.is_empty();
            let due = self.timers.values().chain(self.waiting.iter().map(|(at, ..)| at)).any(|at| *at <= until);
            if !busy && !due {
                self.now = until;
                return;
            }
            self.advance();
        }
    }

    /// The process ends in order, with its last messages.
    pub(in crate::core) fn stop(&mut self) {
        self.stopping = true;
        self.step(Event::Stop);
        while !self.pending.is_empty() {
            self.advance();
        }
    }

    /// Until a patrol has made its first lists, and has its suspects.
    pub(in crate::core) fn until_patrol_pauses(&mut self) {
        while !self.core.audit.patrol.pauses() {
            self.advance();
        }
    }

    /// Until the agent asks for the deletion of this object, which is in flight from then on.
    pub(in crate::core) fn until_deletion_of(&mut self, key: &ObjectKey) -> OpId {
        let deletes =
            |effect: &Effect| matches!(effect, Effect::Execute { op: Op::Delete { key: of, .. }, .. } if of == key);
        loop {
            if let Some(at) = self.pending.iter().position(deletes)
                && let Effect::Execute { id, .. } = self.pending.remove(at)
            {
                return id;
            }
            self.advance();
        }
    }

    /// A deletion that is in flight fails, and nothing was done.
    pub(in crate::core) fn deletion_fails(&mut self, id: OpId) {
        let failure = Failure::new(tideline_common::Reason::Unavailable, "timeout");
        self.step(Event::Executed { id, result: OpResult::Delete(Err(failure.into())) });
    }

    /// Until the next patrol has ended.
    pub(in crate::core) fn next_patrol(&mut self) -> PatrolTally {
        let ended = self.patrols.len();
        while self.patrols.len() == ended {
            self.advance();
        }
        self.patrols[ended]
    }

    /// Half an hour without faults.
    pub(in crate::core) fn quiesce(&mut self) {
        let until = self.now + Duration::from_mins(30);
        let mut steps = 0_u64;
        while self.now < until {
            self.advance();
            steps += 1;
            assert!(steps < 100_000, "seed {}: it does not come to rest", self.seed);
        }
    }

    pub(in crate::core) fn advance(&mut self) {
        self.watches.hear(&mut self.cluster);
        let feed = !self.watches.feed.is_empty();
        if feed && (self.pending.is_empty() || self.random.chance(50)) {
            let event = self.watches.feed.pop_front().unwrap();
            self.step(event);
        } else if !self.pending.is_empty() {
            let at = self.random.below(self.pending.len());
            let effect = self.pending.remove(at);
            self.carry_out(effect);
        } else {
            self.pass_time();
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send { id, request } => {
                if !self.link_up || (self.faults && self.random.chance(15)) {
                    let result = Err(LinkFailure::Unreachable { message: "cut".into(), retry_after: None });
                    if self.link_up && self.random.chance(50) {
                        // The request arrived and the answer did not.
                        self.hub.answer(request);
                    }
                    self.step(Event::Answered { id, result });
                } else if self.hub.would_wait(&request) {
                    self.waiting.push((self.now + Duration::from_secs(40), id, request));
                } else {
                    let result = self.hub.reply(request);
                    self.keep_identity(&result);
                    self.step(Event::Answered { id, result });
                }
            }
            Effect::KeepSession { session, cluster } => {
                let result = if self.session_store_fails || (self.faults && self.random.chance(10)) {
                    Err("full".into())
                } else {
                    self.journal.session = session;
                    self.journal.cluster = cluster;
                    Ok(session)
                };
                self.step(Event::SessionKept { result });
            }
            Effect::ReadStoredSession => {
                let fails = self.faults && self.random.chance(10);
                let result = if fails { Err("no".into()) } else { Ok(self.journal.session) };
                self.step(Event::StoredSessionRead { result });
            }
            Effect::Persist { id, writes } => {
                self.persists += 1;
                let result = if self.no_journal || (self.faults && self.random.chance(10)) {
                    // As the edge says it.
                    Err("cannot write to the journal: No space left on device".into())
                } else {
                    self.persist(&writes);
                    Ok(())
                };
                self.step(Event::Persisted { id, result });
            }
            Effect::Execute { id, op } => {
                self.ops += 1;
                let result = if self.faults && self.random.chance(10) {
                    if self.random.chance(50) {
                        self.cluster.execute(&op);
                    }
                    op.failed(Failure::new(tideline_common::Reason::Unavailable, "timeout").unanswered())
                } else {
                    self.cluster.execute(&op)
                };
                self.step(Event::Executed { id, result });
            }
            Effect::ListMetadata { id, kind, .. } => {
                for event in list_in_pages(&self.cluster, id, &kind) {
                    self.step(event);
                }
            }
            other => panic!("{other:?} does not wait"),
        }
    }

    fn pass_time(&mut self) {
        self.cluster.do_chores();
        if let Some(at) = self.waiting.iter().position(|(_, _, request)| !self.hub.would_wait(request)) {
            let (_, id, request) = self.waiting.remove(at);
            let result = self.hub.reply(request);
            self.keep_identity(&result);
            return self.step(Event::Answered { id, result });
        }
        let timer = self.timers.iter().map(|(timer, at)| (*at, Some(*timer))).min();
        let poll = self.waiting.iter().map(|(at, ..)| (*at, None)).min();
        let (at, timer) = [timer, poll].into_iter().flatten().min().expect("something always waits");
        self.now = self.now.max(at);
        if let Some(timer) = timer {
            self.timers.remove(&timer);
            self.step(Event::Timer(timer));
        } else {
            let (_, id, request) = self.waiting.remove(0);
            let result = self.hub.reply(request);
            self.keep_identity(&result);
            self.step(Event::Answered { id, result });
        }
    }

    pub(in crate::core) fn step(&mut self, event: Event) {
        let mut out = Vec::new();
        self.core.step(self.now, event, &mut out);
        for effect in out {
            match effect {
                Effect::SetTimer { timer, at } => {
                    self.timers.insert(timer, at);
                }
                Effect::Watch(kinds) => self.watches.watch(kinds, &mut self.cluster),
                Effect::Relist(kinds) => kinds.iter().for_each(|kind| self.list(kind)),
                Effect::Stopped => assert!(self.stopping, "nobody asked for it"),
                Effect::Freeze(_) | Effect::UnknownToHub | Effect::Thaw => self.modes.push(format!("{effect:?}")),
                Effect::Execute { ref op, .. } => {
                    self.check_op(op);
                    self.pending.push(effect);
                }
                Effect::Decommissioned(report) => self.decommissioned = Some(report),
                Effect::Patrolled(tally) => self.patrols.push(tally),
                Effect::RecordEvent(_) => {}
                Effect::Replaced { by } => panic!("no other process has its store, and {by} is there"),
                Effect::Follow(follow) => {
                    assert_eq!(follow.is_empty(), self.hub.policy.associated.is_empty(), "as is asked for");
                }
                Effect::Send { .. }
                | Effect::Persist { .. }
                | Effect::KeepSession { .. }
                | Effect::ReadStoredSession
                | Effect::ListMetadata { .. } => self.pending.push(effect),
            }
        }
    }

    /// Invariant 7: only our own objects that the journal says are not assigned are deleted.
    fn check_op(&self, op: &Op) {
        let told = self.core.mode();
        let reads = matches!(op, Op::Get { .. } | Op::Inspect { .. } | Op::Compare { .. });
        let frozen = matches!(told, AgentMode::Frozen(_));
        assert!(reads || !frozen, "seed {}: {op:?}, and the agent is frozen", self.seed);
        let removes = matches!(op, Op::Delete { .. } | Op::Orphan { .. });
        assert!(!removes || *told == AgentMode::Active, "seed {}: {op:?}, and the agent is {told:?}", self.seed);
        let (Op::Delete { key, uid, .. } | Op::Orphan { key, uid, .. }) = op else { return };
        let Some(local) = self.cluster.objects.get(key).filter(|local| local.uid == *uid) else { return };
        let seed = self.seed;
        assert!(!local.declarative, "seed {seed}: {key} is not ours");
        let orphans = matches!(op, Op::Orphan { .. });
        assert!(local.created || orphans, "seed {seed}: {key} is deleted and was not created by the agent");
        // What was due for orphaning before it was assigned again is orphaned where it may not be taken over.
        let says_orphan =
            |policy: &RemovalPolicy| matches!(policy, RemovalPolicy::Tombstone(policy) if policy.orphans());
        let mut removing = self.journal.removing.iter();
        let overtaken = removing.any(|(tombstone, policy)| tombstone.key == *key && says_orphan(policy));
        let assigned = self.journal.entries.iter().any(|entry| entry.key == *key);
        let allowed = !assigned || (overtaken && orphans);
        assert!(allowed, "seed {seed}: {key} is assigned");
        let authorised = self.journal.removing.iter().any(|(tombstone, policy)| {
            let marked = local.mark.as_ref().is_none_or(|mark| mark.source.uid == tombstone.source);
            tombstone.key == *key && (marked || matches!(policy, RemovalPolicy::Tombstone(_)))
        });
        let keeps = self.core.model.decommission.keeps();
        assert!(!keeps || !matches!(op, Op::Delete { .. }), "seed {seed}: {key} is deleted, and all is to be kept");
        let authorised = authorised || self.core.model.decommission != Decommission::No;
        let authorised = authorised || self.hub.approved.iter().any(|removal| removal.key == *key);
        let releases = orphans && self.hub.released.iter().any(|removal| removal.key == *key);
        let authorised = authorised || releases;
        assert!(authorised, "seed {seed}: nothing authorises the removal of {key}");
    }

    pub(in crate::core) fn check_converged(&self) {
        let seed = self.seed;
        let expected = if self.link_up {
            self.hub.desired.iter().map(|(_, entry)| entry.clone()).collect()
        } else {
            self.journal.entries.clone()
        };
        for entry in &expected {
            let key = &entry.key;
            let local = self.cluster.objects.get(key).unwrap_or_else(|| panic!("seed {seed}: {key} is missing"));
            assert_eq!(local.input, Some(entry.input), "seed {seed}: {key} differs");
            let mark = local.mark.as_ref().unwrap_or_else(|| panic!("seed {seed}: {key} has no mark"));
            assert_eq!(mark.source.uid, entry.source.uid, "seed {seed}: {key} carries another's identity");
        }
        for (key, local) in &self.cluster.objects {
            let assigned = expected.iter().any(|entry| entry.key == *key);
            assert!(assigned || local.mark.is_none(), "seed {seed}: {key} is left over");
        }
    }

    pub(in crate::core) fn check_reported(&self) {
        let seed = self.seed;
        assert!(self.hub.tombstones.is_empty(), "seed {seed}: unconfirmed {:?}", self.hub.tombstones);
        for (key, entry) in self.hub.desired.iter() {
            let (_, _, report) =
                self.hub.reports.get(key).unwrap_or_else(|| panic!("seed {seed}: {key} is not reported"));
            assert_eq!(report.progress, Progress::Applied, "seed {seed}: {key}: {report:?}");
            assert_eq!(report.input, Some(entry.input), "seed {seed}: {key}");
            assert_eq!(report.source_uid, entry.source.uid, "seed {seed}: {key}");
            let status = report.status.as_ref().map(|status| status.get().to_owned());
            let expected = is_deployment(&key.kind).then(|| self.cluster.objects[key].status_text());
            assert_eq!(status, expected, "seed {seed}: {key}");
        }
        assert_eq!(self.hub.reports.len(), self.hub.desired.len(), "seed {seed}: reports of what is gone");
    }

    /// Invariant 6: at rest nothing is written anywhere.
    pub(in crate::core) fn check_at_rest(&mut self) {
        let before = (self.ops, self.persists);
        self.quiesce();
        assert_eq!((self.ops, self.persists), before, "seed {}: it writes at rest", self.seed);
    }

    /// As the edge does, before the core hears of it.
    fn keep_identity(&mut self, result: &Result<Answer, LinkFailure>) {
        let became = match result {
            Ok(Answer::Session(answer)) => answer.handover.as_ref().map(|it| (it.target, it.name.clone())),
            Ok(Answer::Enrolled(answer)) => Some((answer.target, answer.name.clone())),
            Ok(Answer::Desired(_) | Answer::Bodies(_) | Answer::Reported(_)) | Err(_) => None,
        };
        let known = self.journal.handed_to.as_ref().or(self.journal.enrolled.as_ref()).map(|it| it.target);
        if let (Some((target, name)), Some(former)) = (became, known)
            && target != former
        {
            let journal = &mut self.journal;
            journal.formers = journal.formers.with(former).without(target);
            journal.inherited = [journal.floor.take(), journal.accepted]
                .into_iter()
                .flatten()
                .max_by_key(|it| it.set.version)
                .or(journal.inherited);
            journal.handed_to = Some(Enrolled { target, name });
        }
    }

    /// The journal was unavailable, and can be opened now: another core begins from it, as the driver has it.
    pub(in crate::core) fn journal_opens(&mut self) {
        self.no_journal = false;
        let heard = self.core.heard();
        self.pending.clear();
        self.waiting.clear();
        self.timers.clear();
        self.watches.restart(&mut self.cluster);
        self.core = Core::new(config(self.seed, self.fuse), self.journal.clone()).having(heard);
        self.step(Event::Started);
    }

    /// Whether the process ends at once when it is asked to.
    pub(in crate::core) fn ends_at_once(&mut self) -> bool {
        let mut out = Vec::new();
        self.core.step(self.now, Event::Stop, &mut out);
        out.iter().any(|effect| matches!(effect, Effect::Stopped))
    }

    /// Somebody restarts it with a token that it has not seen.
    pub(in crate::core) fn give_token(&mut self) {
        self.journal.token_spent = false;
        self.crash();
    }

    /// Removals that the journal knows of.
    pub(in crate::core) fn removals(&self) -> usize {
        self.journal.removing.len()
    }

    fn persist(&mut self, writes: &[Write]) {
        let journal = &mut self.journal;
        for write in writes.iter().cloned() {
            match write {
                Write::Enrolled(enrolled) => {
                    journal.enrolled = Some(enrolled);
                    journal.accepted = None;
                    journal.handed_to = None;
                }
                Write::Body { input, .. } => {
                    journal.bodies.insert(input);
                }
                Write::Accept { accepted, put, remove, policies } => {
                    journal.accepted = Some(*accepted);
                    let replaced = |key: &ObjectKey| remove.contains(key) || put.iter().any(|entry| entry.key == *key);
                    journal.entries.retain(|entry| !replaced(&entry.key));
                    for entry in &put {
                        assert!(journal.bodies.contains(&entry.input), "a set is accepted without its bodies");
                    }
                    journal.entries.extend(put);
                    journal.policies.extend(policies);
                }
                Write::Applied { key, record } => {
                    journal.applied.retain(|(other, _)| *other != key);
                    journal.applied.push((key, *record));
                }
                Write::Forgotten { key } => journal.applied.retain(|(other, _)| *other != key),
                Write::Removing { tombstone, policy } => {
                    journal.removing.retain(|(other, _)| *other != tombstone);
                    journal.removing.push((tombstone, policy));
                }
                Write::Passed { number, tombstone } => journal.passed.push((number, tombstone)),
                Write::Lapsed { number } => journal.passed.retain(|(other, _)| *other != number),
                Write::Held(tombstone) => journal.held.push(tombstone),
                Write::Unheld(tombstone) => journal.held.retain(|other| *other != tombstone),
                Write::History(history) => journal.history = history,
                Write::Mode(mode) => journal.mode = mode,
                Write::Decommission(how) => journal.decommission = how,
                Write::Removed(tombstone) => journal.removing.retain(|(other, _)| *other != tombstone),
                Write::Unsent(report) => {
                    journal.unsent.retain(|other| other.key != report.key);
                    journal.unsent.push(*report);
                }
                Write::Sent { key } => journal.unsent.retain(|other| other.key != key),
                Write::Ran { number, tombstone } => journal.ran.push((number, tombstone)),
                Write::RanForgotten { number } => journal.ran.retain(|(other, _)| *other != number),
                Write::Creating(creation) => journal.creating.push(creation),
                Write::CreationKnown(creation) => journal.creating.retain(|other| *other != creation),
                Write::Kind { kind, version } => {
                    journal.kinds.retain(|(other, _)| *other != kind);
                    journal.kinds.push((kind, version));
                }
                Write::RestoredObject(it) => {
                    journal.came_back.retain(|other| other.key != it.key);
                    journal.came_back.push(it);
                }
                Write::RestoredGone { key } => journal.came_back.retain(|other| other.key != key),
                Write::DropBodies(bodies) => bodies.iter().for_each(|body| {
                    journal.bodies.remove(body);
                }),
                Write::DropPolicies(policies) => journal.policies.retain(|digest, _| !policies.contains(digest)),
            }
        }
    }
}
