//! The hub's side of the link without its edges: sessions, long polls, pages, reports.
//!
//! A state machine that is told what happened and says what to do. It reads the desired sets through [`Sets`] and owns
//! only what may be forgotten: who is connected, who waits, when a target was last heard. Who holds a target is persisted
//! before a session is offered; a hub that restarts knows every session it gave.

mod contact;
mod history;
mod holder;
mod news;
mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tideline_common::limits::{
    BODY_BATCH_COUNT_MAX, DESIRED_PAGE_ENTRIES_MAX, POLL_WAIT_SECONDS_MAX, REPORT_PAGE_OBJECTS_MAX,
};
use tideline_common::rollup::Freshness;
use tideline_common::wire::v1::{
    ApprovedHeld, ApprovedPage, BodiesRequest, BodyWanted, ClusterFacts, Continuity, Decommission, DesiredAnswer,
    DesiredPage, DesiredRequest, PollSettings, Refusal, RefusalKind, ReportedAnswer, ReportedRequest, SessionAnswer,
    SessionRequest, TerminalFact,
};
use tideline_common::{
    ApplyPolicy, Attestation, Capabilities, Capability, Digest, Entry, InstanceId, Monotonic, ObjectKey, Revision,
    RevisionPoint, Shown, TargetId, Uid, Unassignment, Version, upgrade,
};

use crate::ledger::{Absence, TargetContinuity};

use crate::history_change::Proof;
pub use holder::{Record as HolderRecord, Seen};
use sessions::{Offered, Sessions};
pub use sessions::{Origin, handing_over};

/// One target's desired set by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetInfo {
    pub version: Version,
    /// Where in the hub's history its revision was made.
    pub point: RevisionPoint,
    pub digest: Digest,
    pub entries: u64,
}

/// A page as the ledger gives it; see [`DesiredPage`] for what it must hold.
#[derive(Clone, Debug, Default)]
pub struct SetPage {
    pub entries: Vec<Arc<Entry>>,
    pub tombstones: Vec<Unassignment>,
    pub policies: BTreeMap<Digest, Arc<ApplyPolicy>>,
    pub terminal: Vec<TerminalFact>,
    pub next: Option<ObjectKey>,
}

/// What the link reads of the ledger.
pub trait Sets {
    /// None if the target is not known.
    fn info(&self, target: TargetId) -> Option<SetInfo>;

    /// The page after `after` of everything, or of what changed since `since`; none if a delta cannot be had from there.
    fn page(
        &self,
        target: TargetId,
        since: Option<Revision>,
        after: Option<&ObjectKey>,
        limit: usize,
    ) -> Option<SetPage>;

    /// Whether the target may be told of its set, whose agent knows of this one.
    fn continuity(&self, target: TargetId, shown: Option<Shown>) -> TargetContinuity;

    /// Whether an agent of the target showed a later set before, which is of this history too.
    fn has_shown_later(&self, target: TargetId, shown: Shown) -> bool;

    /// Whether the set is told to an agent that understands this, and no more.
    fn is_told_to(&self, target: TargetId, understands: &Capabilities) -> bool;

    /// Whether the present set has this input at this key.
    fn names(&self, target: TargetId, key: &ObjectKey, input: Digest) -> bool;

    /// The removals approved at a target, as far as an agent that holds this much does not know of them; none if it does.
    /// What the present set assigns is left out, and not told later: the agent must not know of a later set.
    fn approved(&self, now: Monotonic, target: TargetId, held: &ApprovedHeld) -> Option<ApprovedPage>;
}

/// Names one request until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A request whose signature was verified by the key of the target it is from.
#[derive(Clone, Debug)]
pub enum Request {
    Session(Box<SessionRequest>, Origin),
    Desired(DesiredRequest),
    Bodies(BodiesRequest),
    Reported(Box<ReportedRequest>),
}

#[derive(Clone, Debug)]
pub enum Event {
    /// A target is known to the inventory, with the cluster it enrolled from, who held it last, and whether it goes out of
    /// service. The holder counts only where none is known.
    TargetKnown {
        target: TargetId,
        cluster: Option<Uid>,
        holder: Box<HolderRecord>,
        decommission: Decommission,
    },
    /// Its agent is not served any more, for this reason.
    TargetClosed {
        target: TargetId,
        why: Refusal,
    },
    Requested {
        id: RequestId,
        target: TargetId,
        request: Request,
    },
    /// The client of a waiting request went away.
    Abandoned {
        target: TargetId,
        id: RequestId,
    },
    /// [`Effect::StoreHolder`] of this version was done, and so was every earlier one.
    HolderStored {
        target: TargetId,
        version: u64,
    },
    /// A person has said, in these words, which of several agents with one identity has the target.
    InstanceAccepted {
        target: TargetId,
        instance: InstanceId,
        word: String,
    },
    /// These targets' sets changed, or their epochs, or what is known of other histories.
    Committed(Vec<TargetId>),
    /// At these targets other removals are approved.
    Approved(Vec<TargetId>),
    /// The summary does not hold all reports of this target: ask for them.
    ReportsIncomplete(TargetId),
    /// Everybody else had a turn: further agents may be told what was committed.
    TellMore,
    Timer,
}

#[derive(Clone, Debug)]
pub enum Effect {
    Respond {
        id: RequestId,
        answer: Result<Answer, Refusal>,
    },
    /// Persist who holds the target, in place of what was known of that; then tell `HolderStored`.
    StoreHolder {
        target: TargetId,
        version: u64,
        record: Box<HolderRecord>,
    },
    /// What an agent that is offered a session says of its cluster.
    Facts {
        target: TargetId,
        facts: ClusterFacts,
    },
    /// The agent that has the session understands this: its set is to be told accordingly, before any of it is.
    Understands {
        target: TargetId,
        capabilities: Capabilities,
    },
    /// The agent knows of a set that is not of the hub's history: persist that, before the session that it asks for.
    Shown {
        target: TargetId,
        shown: Shown,
        proof: Proof,
    },
    /// Read, render and send these bodies, as many as fit, in this order.
    ReadBodies {
        id: RequestId,
        target: TargetId,
        wanted: Vec<BodyWanted>,
        outdated: Vec<Digest>,
    },
    /// Take in a report. It is of the present session and not older than what was taken in before. Where it confirms
    /// removals, the answer that follows is sent only when that is persisted: the agent forgets them then.
    Report {
        target: TargetId,
        report: Box<ReportedRequest>,
    },
    /// The target was heard from, now.
    Heard {
        target: TargetId,
        in_sync: bool,
        /// It was not fresh before.
        became_fresh: bool,
    },
    /// No authenticated contact that says "in sync" within the deadline.
    Stale(TargetId),
    /// An identity is used from another cluster than the one that enrolled.
    Quarantined {
        target: TargetId,
        cluster: Option<Uid>,
    },
    SetTimer(Monotonic),
}

pub type Effects = Vec<Effect>;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Answer {
    Session(SessionAnswer),
    Desired(DesiredAnswer),
    Reported(ReportedAnswer),
}

/// What the operator may set.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub poll: PollSettings,
    /// Different for every run of the hub: agents notice by it that their reports are not remembered.
    pub memory: u64,
}

impl Default for Config {
    /// Stale after two and a half heartbeats: an agent says that it is well every third of the deadline, or with every poll.
    fn default() -> Self {
        Self { poll: PollSettings { wait_seconds: POLL_WAIT_SECONDS_MAX, stale_after_seconds: 120 }, memory: 1 }
    }
}

#[derive(Debug)]
struct Waiting {
    id: RequestId,
    until: Monotonic,
    /// What the agent has.
    since: Version,
    approved: ApprovedHeld,
    decommission: Decommission,
    shown: Option<Shown>,
    history: Continuity,
}

#[derive(Debug)]
struct Target {
    /// The cluster whose agent is served: as recorded, or else the first that asked.
    cluster: Option<Uid>,
    /// As the inventory has it.
    recorded: Option<Uid>,
    /// Who named another cluster last, until somebody names this one.
    stranger: Option<InstanceId>,
    sessions: Sessions,
    /// What the session in use has shown.
    shown: Option<Shown>,
    /// The session that was offered last, and what was shown for it.
    offered: Option<Offered>,
    waiting: Option<Waiting>,
    /// The sequence number of the newest report of the session that was taken in.
    seq: u64,
    /// What that said.
    in_sync: bool,
    /// The last of the polls that said that it stands.
    stood: u64,
    /// Names what is remembered of its reports.
    memory: u64,
    /// When it was last fresh, or when the hub began to wait for it.
    fresh_at: Monotonic,
    freshness: Freshness,
    decommission: Decommission,
}

/// The hub's link core. See the module.
#[derive(Debug)]
pub struct Core {
    config: Config,
    targets: BTreeMap<TargetId, Target>,
    /// Polls and freshness by deadline, so that a step costs nothing for targets that nothing happens to.
    polls: BTreeSet<(Monotonic, TargetId)>,
    deadlines: BTreeSet<(Monotonic, TargetId)>,
    /// When it is looked at whether another instance is still heard.
    lapses: BTreeSet<(Monotonic, TargetId)>,
    /// Targets whose sets changed, and whose agents were not told yet if they wait for that.
    unanswered: BTreeSet<TargetId>,
    /// The last of them that was looked at.
    answered: Option<TargetId>,
    timer: Option<Monotonic>,
    /// Names what is remembered of the reports of a target that is known from now on. Not what was named so before one was
    /// closed: by whatever came late of then, what its agent said last may be overwritten, so it is to say all again.
    memory: u64,
    /// How often a holder was handed out to be persisted, of whichever target: what was stored for a target before it was
    /// closed says nothing of what it offers since.
    stores: u64,
}

impl Core {
    pub fn new(config: Config) -> Self {
        let (polls, deadlines, lapses) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let memory = config.memory;
        Self {
            config,
            targets: BTreeMap::new(),
            polls,
            deadlines,
            lapses,
            unanswered: BTreeSet::new(),
            answered: None,
            timer: None,
            memory,
            stores: 0,
        }
    }

    /// Takes one event and appends what must happen next; never blocks, reads no clock.
    pub fn step(&mut self, now: Monotonic, sets: &impl Sets, event: Event, out: &mut Effects) {
        match event {
            Event::TargetKnown { target, cluster, holder, decommission } => {
                self.on_known(now, target, cluster, *holder, decommission);
                self.answer_waiting(sets, target, out);
            }
            Event::TargetClosed { target, why } => self.on_closed(target, &why, out),
            Event::Requested { id, target, request } => self.on_request(now, sets, id, target, request, out),
            Event::Abandoned { target, id } => self.on_abandoned(target, id),
            Event::HolderStored { target, version } => self.on_holder_stored(sets, target, version, out),
            Event::InstanceAccepted { target, instance, word } => self.on_accepted(target, instance, &word, out),
            Event::Committed(targets) => {
                let waits = |target: &TargetId| self.targets.get(target).is_some_and(|known| known.waiting.is_some());
                self.unanswered.extend(targets.into_iter().filter(waits));
                self.answer_some(sets, out);
            }
            Event::Approved(targets) => {
                for target in targets {
                    self.tell_waiting(now, sets, target, out);
                }
            }
            Event::ReportsIncomplete(target) => {
                if let Some(target) = self.targets.get_mut(&target) {
                    target.memory = target.memory.wrapping_add(1);
                }
            }
            Event::TellMore => self.answer_some(sets, out),
            Event::Timer => {
                self.timer = None;
                self.on_timer(now, sets, out);
            }
        }
        self.arm(out);
    }

    /// Whether what was last heard of a target may be believed to still hold; none if it is not known.
    pub fn freshness(&self, target: TargetId) -> Option<Freshness> {
        self.targets.get(&target).map(|target| target.freshness)
    }

    /// Who holds a target, and who else lives with its identity; none if it is not known.
    pub fn holder(&self, target: TargetId) -> Option<&HolderRecord> {
        self.targets.get(&target).map(|target| target.sessions.record())
    }

    fn on_known(
        &mut self,
        now: Monotonic,
        id: TargetId,
        cluster: Option<Uid>,
        holder: HolderRecord,
        decommission: Decommission,
    ) {
        if let Some(target) = self.targets.get_mut(&id) {
            target.decommission = decommission;
            // It was made again, and is handed the agent of another only now.
            if *target.sessions.record() == HolderRecord::default() {
                target.sessions = Sessions::new(holder, now);
            }
            // A person may correct it.
            target.recorded.clone_from(&cluster);
            target.stranger = target.stranger.filter(|_| cluster.is_none() || cluster == target.cluster);
            target.cluster = cluster.or(target.cluster.take());
            return;
        }
        let target = Target {
            recorded: cluster.clone(),
            cluster,
            stranger: None,
            sessions: Sessions::new(holder, now),
            shown: None,
            offered: None,
            waiting: None,
            seq: 0,
            in_sync: false,
            stood: 0,
            memory: self.memory,
            fresh_at: now,
            freshness: Freshness::Unheard,
            decommission,
        };
        self.targets.insert(id, target);
        self.deadlines.insert((now + self.stale_after(), id));
    }

    fn on_closed(&mut self, id: TargetId, why: &Refusal, out: &mut Effects) {
        let Some(target) = self.targets.remove(&id) else { return };
        self.memory = self.memory.max(target.memory.wrapping_add(1));
        self.deadlines.remove(&(target.fresh_at + self.stale_after(), id));
        if let Some(waiting) = target.waiting {
            self.polls.remove(&(waiting.until, id));
            out.push(Effect::Respond { id: waiting.id, answer: Err(why.clone()) });
        }
        for id in target.sessions.waiting() {
            out.push(Effect::Respond { id, answer: Err(why.clone()) });
        }
    }

    fn on_request(
        &mut self,
        now: Monotonic,
        sets: &impl Sets,
        id: RequestId,
        target: TargetId,
        request: Request,
        out: &mut Effects,
    ) {
        if !self.targets.contains_key(&target) {
            out.push(refuse(id, RefusalKind::Busy, "the hub does not serve this target at the moment"));
            return;
        }
        if sets.info(target).is_none() {
            out.push(refuse(id, RefusalKind::Busy, "the hub has not registered this target yet"));
            return;
        }
        match request {
            Request::Session(request, from) => self.on_session(now, sets, id, target, (*request, from), out),
            Request::Desired(request) => {
                if self.admit(now, id, target, request.session, out)
                    && self.stands(now, id, target, request.stands, out)
                    && self.is_told(sets, id, target, out)
                {
                    self.on_desired(now, sets, id, target, &request, out);
                }
            }
            Request::Bodies(request) => {
                if self.admit(now, id, target, request.session, out) && self.is_told(sets, id, target, out) {
                    on_bodies(sets, id, target, request, out);
                }
            }
            Request::Reported(request) => {
                if self.admit(now, id, target, request.session, out) {
                    self.on_reported(now, id, target, request, out);
                }
            }
        }
    }

    fn on_desired(
        &mut self,
        now: Monotonic,
        sets: &impl Sets,
        id: RequestId,
        key: TargetId,
        request: &DesiredRequest,
        out: &mut Effects,
    ) {
        let Some(present) = sets.info(key) else { return };
        let Some(absence) = self.admit_to_history(now, sets, id, key, request, out) else { return };
        // Before all else, so that a set that changes all the time does not keep it back. But not to an agent that has heard
        // of a later set than there is here: what the earlier one assigned is left out of a page, and that counts as told.
        let behind = request.since.is_some_and(|since| since > present.version);
        let held = Some(&request.approved).filter(|_| !behind && self.understands(key, Capability::Approvals));
        if let Some(page) = held.and_then(|held| sets.approved(now, key, held)) {
            out.push(respond_desired(id, DesiredAnswer::Approved(page)));
            return;
        }
        let how = self.targets.get(&key).map(|target| target.decommission).unwrap_or_default();
        if let Some(refusal) = leaving(id, how, self.understands(key, Capability::Decommission), present) {
            out.push(refusal);
            return;
        }
        // A delta onto what the agent has needs that to be known whole; one onto pages that it gathers now does not.
        let known = |since: &Version| {
            let same = request.digest.is_none_or(|digest| digest == present.digest);
            let gathered = request.shown.is_none_or(|shown| shown.version != *since);
            let whole = absence == Absence::TakenOut || gathered;
            *since <= present.version && (*since < present.version || same) && whole
        };
        if request.since.as_ref().is_some_and(|since| !known(since)) {
            out.push(respond_desired(id, DesiredAnswer::SnapshotRequired { epoch: present.version.epoch }));
            return;
        }
        let told = request.decommission == how;
        if request.since == Some(present.version) && request.after.is_none() && told {
            // Whoever keeps still is to go on at once.
            if request.wait_seconds == 0 || request.history != Continuity::Whole {
                out.push(respond_desired(id, DesiredAnswer::NothingNew));
            } else {
                let until = now + wait(request.wait_seconds);
                let DesiredRequest { approved, decommission, shown, history, .. } = *request;
                let since = present.version;
                self.wait(Waiting { id, until, since, approved, decommission, shown, history }, key, out);
            }
            return;
        }
        let answer = answer_desired(sets, key, request.since, request.after.as_ref(), (present, how, absence));
        out.push(respond_desired(id, answer));
    }

    /// Whether the set is told as the agent understands it whose session it is; if not yet, has that done.
    fn is_told(&self, sets: &impl Sets, id: RequestId, key: TargetId, out: &mut Effects) -> bool {
        let Some(capabilities) = self.targets.get(&key).map(|target| target.sessions.record().capabilities()) else {
            return false;
        };
        if sets.is_told_to(key, capabilities) {
            return true;
        }
        out.push(Effect::Understands { target: key, capabilities: capabilities.clone() });
        let refusal = Refusal::new(RefusalKind::Busy, "what this agent understands is being taken into account");
        out.push(Effect::Respond { id, answer: Err(refusal.retry_after(RETELLING_SECONDS)) });
        false
    }

    fn understands(&self, key: TargetId, capability: Capability) -> bool {
        self.targets.get(&key).is_some_and(|target| target.sessions.record().capabilities().has(capability))
    }

    fn wait(&mut self, waiting: Waiting, key: TargetId, out: &mut Effects) {
        let Some(target) = self.targets.get_mut(&key) else { return };
        self.polls.insert((waiting.until, key));
        if let Some(former) = target.waiting.replace(waiting) {
            // The agent has one poll at a time, so nobody listens to the former any more.
            self.polls.remove(&(former.until, key));
            out.push(history::nothing_happened(&former));
        }
    }

    fn on_abandoned(&mut self, key: TargetId, id: RequestId) {
        let Some(target) = self.targets.get_mut(&key) else { return };
        if let Some(waiting) = target.waiting.take_if(|waiting| waiting.id == id) {
            self.polls.remove(&(waiting.until, key));
        }
    }

    fn on_reported(
        &mut self,
        now: Monotonic,
        id: RequestId,
        key: TargetId,
        request: Box<ReportedRequest>,
        out: &mut Effects,
    ) {
        if request.objects.len() > REPORT_PAGE_OBJECTS_MAX {
            out.push(refuse(id, RefusalKind::TooLarge, "too many objects in one report"));
            return;
        }
        let Some(target) = self.targets.get_mut(&key) else { return };
        let (seq, memory) = (request.seq, target.memory);
        let ends = request.goodbye.then_some(request.session);
        // What comes late or twice says nothing about now.
        if seq > target.seq {
            (target.seq, target.in_sync, target.stood) = (seq, request.in_sync, 0);
            self.heard(now, key, out);
            out.push(Effect::Report { target: key, report: request });
        }
        out.push(Effect::Respond { id, answer: Ok(Answer::Reported(ReportedAnswer { seq, memory, stands: true })) });
        if let Some(session) = ends {
            self.goodbye(key, session, out);
        }
    }

    fn on_timer(&mut self, now: Monotonic, sets: &impl Sets, out: &mut Effects) {
        while let Some(&(until, key)) = self.polls.first().filter(|(until, _)| *until <= now) {
            if self.unanswered.remove(&key) {
                self.answer_waiting(sets, key, out);
            }
            self.polls.remove(&(until, key));
            if let Some(waiting) = self.targets.get_mut(&key).and_then(|target| target.waiting.take()) {
                out.push(history::nothing_happened(&waiting));
            }
        }
        while let Some(&(deadline, key)) = self.deadlines.first().filter(|(deadline, _)| *deadline <= now) {
            self.deadlines.remove(&(deadline, key));
            if let Some(target) = self.targets.get_mut(&key) {
                target.freshness = Freshness::Stale;
                out.push(Effect::Stale(key));
            }
        }
        self.lapse(now, out);
    }

    fn arm(&mut self, out: &mut Effects) {
        let firsts = [self.polls.first(), self.deadlines.first(), self.lapses.first()];
        let next = firsts.into_iter().flatten().map(|(at, _)| *at).min();
        if let Some(at) = next
            && self.timer.is_none_or(|armed| at < armed)
        {
            self.timer = Some(at);
            out.push(Effect::SetTimer(at));
        }
    }
}

/// When an agent is to ask again whose set is being emptied: that takes the settle time.
const EMPTYING_SECONDS: u64 = 2;
/// The same for one that must be upgraded first.
const TOO_OLD_SECONDS: u64 = 60;
/// The same for one that understands more or less than the one before it: that takes one commit.
const RETELLING_SECONDS: u64 = 1;

/// Whether an agent may see the present set. That of a target that goes out of service is shown when it is empty, with the
/// reason, and to who knows what to do then: an agent that saw it shrink without would delete what is to be kept.
fn may_be_told(how: Decommission, understands: bool, present: SetInfo) -> bool {
    how == Decommission::No || (understands && present.entries == 0)
}

fn leaving(id: RequestId, how: Decommission, understands: bool, present: SetInfo) -> Option<Effect> {
    if may_be_told(how, understands, present) {
        return None;
    }
    let (message, seconds) = if understands {
        ("this target goes out of service; its set is being taken back".to_owned(), EMPTYING_SECONDS)
    } else {
        let what = upgrade(&[Capability::Decommission]);
        (format!("this target goes out of service, and {what}"), TOO_OLD_SECONDS)
    };
    let refusal = Refusal::new(RefusalKind::Busy, message).retry_after(seconds);
    Some(Effect::Respond { id, answer: Err(refusal) })
}

fn wait(seconds: u64) -> Duration {
    Duration::from_secs(seconds.min(POLL_WAIT_SECONDS_MAX))
}

fn answer_desired(
    sets: &impl Sets,
    target: TargetId,
    since: Option<Version>,
    after: Option<&ObjectKey>,
    (present, decommission, absence): (SetInfo, Decommission, Absence),
) -> DesiredAnswer {
    let epoch = present.version.epoch;
    if since.is_some_and(|since| since.epoch != epoch) {
        return DesiredAnswer::SnapshotRequired { epoch };
    }
    let revision = since.map(|since| since.revision);
    let Some(page) = sets.page(target, revision, after, DESIRED_PAGE_ENTRIES_MAX) else {
        return DesiredAnswer::SnapshotRequired { epoch };
    };
    let SetPage { entries, tombstones, policies, terminal, next } = page;
    DesiredAnswer::Page(DesiredPage {
        at: present.version,
        attestation: Attestation::unsigned(target, Shown { version: present.version, point: present.point }),
        digest: present.digest,
        total: present.entries,
        snapshot: since.is_none(),
        entries,
        tombstones,
        policies,
        terminal,
        next,
        decommission,
        absence_unexplained: absence == Absence::Unexplained,
    })
}

fn on_bodies(sets: &impl Sets, id: RequestId, target: TargetId, request: BodiesRequest, out: &mut Effects) {
    if request.wanted.len() > BODY_BATCH_COUNT_MAX {
        out.push(refuse(id, RefusalKind::TooLarge, "too many bodies in one request"));
        return;
    }
    // Only what is assigned to the one who asks, however well it knows the digests of others.
    let (wanted, outdated): (Vec<_>, Vec<_>) =
        request.wanted.into_iter().partition(|wanted| sets.names(target, &wanted.key, wanted.input));
    let outdated = outdated.into_iter().map(|wanted| wanted.input).collect();
    out.push(Effect::ReadBodies { id, target, wanted, outdated });
}

fn respond_desired(id: RequestId, answer: DesiredAnswer) -> Effect {
    Effect::Respond { id, answer: Ok(Answer::Desired(answer)) }
}

fn refuse(id: RequestId, refusal: RefusalKind, message: &str) -> Effect {
    Effect::Respond { id, answer: Err(Refusal::new(refusal, message)) }
}

#[cfg(test)]
mod tests;
