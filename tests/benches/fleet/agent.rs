//! An agent without a cluster: what it is told it reports as applied at once. The rest of the link is as the real one has it.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail, ensure};
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};
use tideline_common::health::Health;
use tideline_common::limits::REPORT_PAGE_OBJECTS_MAX;
use tideline_common::replay::RunNumbers;
use tideline_common::wire::v1::{
    Accepted, ApprovedHeld, Attested, BODIES_PATH, BodiesAnswer, BodiesRequest, BodyWanted, ClusterFacts, Continuity,
    Decommission, DesiredAnswer, DesiredPage, DesiredRequest, Instance, ObjectReport, Progress, REPORTED_PATH,
    ReportedAnswer, ReportedRequest, SESSION_PATH, SessionAnswer, SessionRequest, Stands,
};
use tideline_common::{
    Capabilities, DesiredSet, Digest, Entry, InstanceId, ObjectKey, Reason, SessionName, Shown, Tombstone, Uid, Version,
};
use tokio::time::sleep;
use uuid::Uuid;

use crate::wire::{Identity, Wire};

/// Longest wait before a connection is made anew, and the shortest: as the real agent's.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Of so many objects one deviates, at another place of the set for each agent.
pub(crate) const DEVIATES: usize = 20;

/// What all agents of the process share.
pub(crate) struct Fleet {
    pub(crate) hub: SocketAddr,
    pub(crate) tls: Arc<ClientConfig>,
    pub(crate) counts: Counts,
    /// Equal entries are kept once.
    pub(crate) entries: Mutex<HashMap<(ObjectKey, Digest, Uid), Arc<Entry>>>,
}

/// What the agents have done so far.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) sessions: AtomicU64,
    pub(crate) bodies: AtomicU64,
    pub(crate) reports: AtomicU64,
    pub(crate) polls: AtomicU64,
    pub(crate) failures: AtomicU64,
    /// Agents that hold all that they were told last, and whose last report was acknowledged.
    pub(crate) at_rest: AtomicU64,
    /// Microseconds since 1970 when a body was verified last, and when an agent came to rest last.
    pub(crate) body_at: AtomicU64,
    pub(crate) rest_at: AtomicU64,
    pub(crate) failure: Mutex<String>,
}

/// The same, as it is told to the bench.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) sessions: u64,
    pub(crate) bodies: u64,
    pub(crate) reports: u64,
    pub(crate) polls: u64,
    pub(crate) failures: u64,
    pub(crate) at_rest: u64,
    pub(crate) body_at: u64,
    pub(crate) rest_at: u64,
    pub(crate) failure: String,
}

impl Counts {
    pub(crate) fn told(&self) -> Told {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Told {
            sessions: read(&self.sessions),
            bodies: read(&self.bodies),
            reports: read(&self.reports),
            polls: read(&self.polls),
            failures: read(&self.failures),
            at_rest: read(&self.at_rest),
            body_at: read(&self.body_at),
            rest_at: read(&self.rest_at),
            failure: self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

pub(crate) fn micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

/// An agent, with what the real one keeps on disk.
pub(crate) struct Agent {
    fleet: Arc<Fleet>,
    identity: Identity,
    index: usize,
    cluster: Uid,
    numbers: RunNumbers,
    session: Option<SessionAnswer>,
    set: DesiredSet,
    /// The last set that was accepted.
    accepted: Option<Attested>,
    approved: ApprovedHeld,
    seq: u64,
    memory: Option<u64>,
    /// The report that stands, and in how many polls that was said.
    stands: Option<(u64, u64)>,
    at_rest: bool,
    /// A set is being read, onto the one that was accepted.
    walk: Option<Walk>,
}

/// Where the reading of a set in pages is.
#[derive(Clone)]
struct Walk {
    since: Option<Version>,
    after: Option<ObjectKey>,
    /// Of the first page.
    first: Version,
}

/// What is to be told of one page of changes.
#[derive(Default)]
struct Changes {
    entries: Vec<Arc<Entry>>,
    removed: Vec<Tombstone>,
}

impl Agent {
    pub(crate) fn new(fleet: Arc<Fleet>, identity: Identity, index: usize) -> Self {
        let cluster = Uid::from_uuid(Uuid::new_v4());
        Self {
            fleet,
            identity,
            index,
            cluster,
            numbers: RunNumbers::default(),
            session: None,
            set: DesiredSet::default(),
            accepted: None,
            approved: ApprovedHeld::default(),
            seq: 0,
            memory: None,
            stands: None,
            at_rest: false,
            walk: None,
        }
    }

    /// Works until the process ends, and dials again when the connection is lost.
    pub(crate) async fn run(mut self) {
        let mut wait = RETRY.0;
        loop {
            let before = self.fleet.counts.polls.load(Ordering::Relaxed);
            let Err(error) = self.connected().await;
            self.set_at_rest(false);
            self.fleet.counts.failures.fetch_add(1, Ordering::Relaxed);
            *self.fleet.counts.failure.lock().unwrap_or_else(PoisonError::into_inner) = format!("{error:#}");
            let answered = self.fleet.counts.polls.load(Ordering::Relaxed) != before;
            wait = if answered { RETRY.0 } else { (wait * 2).min(RETRY.1) };
            // Full jitter, by bits that differ from agent to agent.
            let part = u32::from(Uuid::new_v4().as_bytes()[0]);
            sleep(wait * part / 255).await;
        }
    }

    async fn connected(&mut self) -> Result<std::convert::Infallible> {
        let mut wire = Wire::connect(self.fleet.hub, Arc::clone(&self.fleet.tls)).await?;
        if self.session.is_none() {
            self.open(&mut wire).await?;
        }
        if self.walk.take().is_some() {
            // Some of it may be there and some not.
            (self.set, self.accepted) = (DesiredSet::default(), None);
        }
        loop {
            let Some(answer) = &self.session else { bail!("no session") };
            let shown =
                self.accepted.map(|known| Shown { version: known.attestation.version, point: known.attestation.point });
            let at_rest = self.walk.is_none();
            if let Some((_, polls)) = self.stands.as_mut().filter(|_| at_rest) {
                *polls += 1;
            }
            let known = self.accepted.map(|known| known.set.version);
            let request = DesiredRequest {
                session: answer.session,
                since: self.walk.as_ref().map_or(known, |walk| walk.since),
                digest: self.accepted.filter(|_| at_rest).map(|known| known.set.digest),
                after: self.walk.as_ref().and_then(|walk| walk.after.clone()),
                wait_seconds: if at_rest { answer.poll.wait_seconds } else { 0 },
                approved: self.approved,
                decommission: Decommission::No,
                shown,
                history: Continuity::Whole,
                stands: self.stands.filter(|_| at_rest).map(|(report, nth)| Stands { report, nth }),
            };
            let answer = wire.poll((&self.identity, &mut self.numbers), &request).await?;
            self.fleet.counts.polls.fetch_add(1, Ordering::Relaxed);
            match answer {
                DesiredAnswer::NothingNew => {}
                DesiredAnswer::Page(page) => {
                    self.set_at_rest(false);
                    self.take(&mut wire, page).await?;
                }
                DesiredAnswer::Approved(page) => {
                    self.approved = ApprovedHeld { list: page.list, count: page.offset + page.count };
                }
                DesiredAnswer::ReportAgain => self.report(&mut wire, Changes::default()).await?,
                DesiredAnswer::SnapshotRequired { .. } => {
                    (self.set, self.accepted, self.walk) = (DesiredSet::default(), None, None);
                }
                answer @ (DesiredAnswer::Broken | DesiredAnswer::Unknown) => bail!("the hub answers {answer:?}"),
            }
        }
    }

    async fn open(&mut self, wire: &mut Wire) -> Result<()> {
        let mut last = SessionName::default();
        for _ in 0..2 {
            let request = SessionRequest {
                facts: ClusterFacts {
                    cluster: Some(self.cluster.clone()),
                    kubernetes_version: "v1.35.0".to_owned(),
                    agent_version: env!("CARGO_PKG_VERSION").to_owned(),
                },
                accepted: self.accepted,
                instance: Instance {
                    id: InstanceId(u64::try_from(self.index)? + 1),
                    host: format!("light-{}", self.index),
                },
                persisted: last,
                last: last.number,
                capabilities: Capabilities::all(),
                ..SessionRequest::default()
            };
            let who = (&self.identity, &mut self.numbers);
            let answer: SessionAnswer = wire.say(who, ("POST", SESSION_PATH), &request).await?;
            if !answer.outdated {
                self.session = Some(answer);
                self.fleet.counts.sessions.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            last = answer.session;
        }
        bail!("no session is offered")
    }

    /// Takes a page, has its bodies fetched and tells that all is applied.
    async fn take(&mut self, wire: &mut Wire, page: DesiredPage) -> Result<()> {
        let known = self.accepted.map(|known| known.set.version);
        let walk = self.walk.take().unwrap_or(Walk { since: known, after: None, first: page.at });
        let is_first = walk.after.is_none();
        let walk = Walk { first: if is_first { page.at } else { walk.first }, ..walk };
        self.walk = Some(walk.clone());
        if page.snapshot && is_first {
            self.set = DesiredSet::default();
        }
        let mut changes = Changes::default();
        for gone in &page.tombstones {
            self.set.remove(&gone.tombstone.key);
            changes.removed.push(gone.tombstone.clone());
        }
        for entry in page.entries {
            let entry = self.fleet.once(entry);
            self.set.insert(Arc::clone(&entry));
            changes.entries.push(entry);
        }
        self.fetch(wire, &changes.entries).await?;
        self.walk = match page.next {
            Some(next) => Some(Walk { after: Some(next), ..walk }),
            None if is_first => None,
            // The pages are of different revisions: what changed since the first is asked for until that fits one page.
            None => Some(Walk { since: Some(walk.first), after: None, ..walk }),
        };
        if self.walk.is_none() {
            ensure!(self.set.digest() == page.digest, "the set has another digest than the hub's");
            let set = Accepted { version: page.at, digest: page.digest };
            self.accepted = Some(Attested { set, attestation: page.attestation });
        }
        self.report(wire, changes).await
    }

    async fn fetch(&mut self, wire: &mut Wire, entries: &[Arc<Entry>]) -> Result<()> {
        let Some(session) = self.session.as_ref().map(|answer| answer.session) else { bail!("no session") };
        let wanted = |entry: &Arc<Entry>| BodyWanted { key: entry.key.clone(), input: entry.input, offset: 0 };
        let mut wanted: BTreeMap<Digest, BodyWanted> =
            entries.iter().filter(|entry| !entry.implied).map(|entry| (entry.input, wanted(entry))).collect();
        while !wanted.is_empty() {
            let request = BodiesRequest { session, wanted: wanted.values().cloned().collect() };
            let who = (&self.identity, &mut self.numbers);
            let answer: BodiesAnswer = wire.say(who, ("POST", BODIES_PATH), &request).await?;
            ensure!(!answer.bodies.is_empty() || !answer.outdated.is_empty(), "neither bodies nor why not");
            for body in answer.bodies {
                ensure!(body.text.len() as u64 == body.size, "a part of a body");
                ensure!(Digest::of(body.text.as_bytes()) == body.sha256, "another body than its digest says");
                wanted.remove(&body.input);
                self.fleet.counts.bodies.fetch_add(1, Ordering::Relaxed);
                self.fleet.counts.body_at.fetch_max(micros(), Ordering::Relaxed);
            }
            for outdated in answer.outdated {
                wanted.remove(&outdated);
            }
        }
        Ok(())
    }

    /// Tells the changes, and everything once more to a hub that has forgotten it.
    async fn report(&mut self, wire: &mut Wire, changes: Changes) -> Result<()> {
        let mut pages = pages(changes);
        while let Some(page) = pages.pop() {
            let Some(session) = self.session.as_ref().map(|answer| answer.session) else { bail!("no session") };
            self.seq += 1;
            let request = ReportedRequest {
                session,
                seq: self.seq,
                accepted: self.accepted.map(|known| known.set),
                applied: self.accepted.map(|known| known.set.version),
                in_sync: true,
                conditions: Vec::new(),
                objects: page.entries.iter().map(|entry| self.report_of(entry)).collect(),
                associated: Vec::new(),
                removed: page.removed,
                terminal: Vec::new(),
                overtaken: Vec::new(),
                decommission: None,
                goodbye: false,
            };
            let who = (&self.identity, &mut self.numbers);
            let answer: ReportedAnswer = wire.say(who, ("PUT", REPORTED_PATH), &request).await?;
            self.fleet.counts.reports.fetch_add(1, Ordering::Relaxed);
            self.stands = answer.stands.then_some((self.seq, 0));
            if self.memory.replace(answer.memory).is_some_and(|former| former != answer.memory) {
                let entries = self.set.iter().map(|(_, entry)| Arc::clone(entry)).collect();
                pages = self::pages(Changes { entries, removed: Vec::new() });
            }
        }
        self.set_at_rest(self.walk.is_none() && self.accepted.is_some());
        Ok(())
    }

    fn report_of(&self, entry: &Entry) -> ObjectReport {
        let bytes = entry.key.name.bytes().map(usize::from).sum::<usize>();
        let deviates = !entry.implied && (bytes + self.index).is_multiple_of(DEVIATES);
        ObjectReport {
            key: entry.key.clone(),
            source_uid: entry.source.uid.clone(),
            progress: if deviates { Progress::Failed } else { Progress::Applied },
            reason: deviates.then_some(Reason::Denied),
            message: if deviates {
                "admission webhook \"quota.example.com\" denied the request".to_owned()
            } else {
                String::new()
            },
            input: Some(entry.input),
            health: if deviates { Health::Unknown } else { Health::Ready },
            observed_generation: None,
            terminal: None,
            status: None,
        }
    }

    fn set_at_rest(&mut self, at_rest: bool) {
        let counts = &self.fleet.counts;
        match (self.at_rest, at_rest) {
            (false, true) => {
                counts.at_rest.fetch_add(1, Ordering::Relaxed);
                counts.rest_at.fetch_max(micros(), Ordering::Relaxed);
            }
            (true, false) => drop(counts.at_rest.fetch_sub(1, Ordering::Relaxed)),
            (false, false) | (true, true) => {}
        }
        self.at_rest = at_rest;
    }
}

impl Fleet {
    fn once(&self, entry: Arc<Entry>) -> Arc<Entry> {
        let name = (entry.key.clone(), entry.input, entry.source.uid.clone());
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let known = entries.entry(name).or_insert_with(|| Arc::clone(&entry));
        if **known == *entry { Arc::clone(known) } else { entry }
    }
}

/// At least one; the last of them first.
fn pages(changes: Changes) -> Vec<Changes> {
    let Changes { entries, removed } = changes;
    let mut pages: Vec<_> = entries
        .chunks(REPORT_PAGE_OBJECTS_MAX)
        .map(|entries| Changes { entries: entries.to_vec(), removed: Vec::new() })
        .collect();
    pages.extend(
        removed
            .chunks(REPORT_PAGE_OBJECTS_MAX)
            .map(|removed| Changes { entries: Vec::new(), removed: removed.to_vec() }),
    );
    if pages.is_empty() {
        pages.push(Changes::default());
    }
    pages
}
