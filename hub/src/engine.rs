//! The hub's state, all of it, and what each thing that happens does to it.
//!
//! ```text
//!  SourceEvent ──▶ inventory, index ──Change──┐
//!  link request ─▶ link core ──Effect──┬──────┼──▶ to persist ──(committer)──▶ ledger ──▶ link core ──▶ answers
//!                                      └─▶ summary ──▶ statuses to write
//! ```
//!
//! One lock, held for a step and never across I/O. What must be written leaves as [`Gathered`], is planned and written as
//! [`Work`] on a copy of the ledger that shares all with the one in force, and comes back as [`Engine::committed`], which puts
//! the next ledger in place of it. Nobody waits for a plan, and nothing is told to anybody before it was persisted.

mod adoption;
mod approved;
mod bounds;
mod history;
mod inventory;
mod last_known;
mod lineage;
mod outline;
mod pages;
mod remembered;
mod sources;
mod targets;
mod unassigned;
mod view_changes;
mod work;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tideline_common::health::truncate;
use tideline_common::limits::BODY_BATCH_BYTES_MAX;
use tideline_common::rollup::Freshness;
use tideline_common::wire::v1::{
    BodiesAnswer, Body, BodyWanted, ClusterFacts, Decommission, DesiredAnswer, Refusal, RefusalKind, ReportedRequest,
};
use tideline_common::{Digest, Monotonic, ObjectKey, Reason, SpaceName, TargetId, Uid, upgrade};
use tokio::sync::oneshot;
use tracing::{info, warn};

use self::bounds::Bounds;
use crate::history_change::{Accepted, HistoryChange};
use crate::ledger::{Ledger, PlaceChange};
use crate::limits::FACT_BYTES_MAX;
use crate::link::LedgerView;
use crate::link::core::{self as link, HolderRecord, RequestId};
use crate::link::http::Reply;
use crate::placement::{Change, Index, SourceId};
use crate::removal_guards::{Approvals, Fuse};
use crate::summary::{Concern, Heard, Scope, Screened, Service, Summary, TargetReports, screen};
use last_known::Inventory;
use remembered::Memory;

pub use last_known::LastKnown;
pub use lineage::{Belongs, Lineage, belongs};
pub use outline::{ReportLine, SourceOutline, renamed};
pub use pages::{Page, PageBound, PagePosition, Within};
pub use remembered::{Deletion, REVOKED_MAX, RememberedTarget};
pub use sources::{SourceSeen, Sources, status_digest};
pub use targets::{Contact, TargetOutline, TargetRecord, Targets};
pub use unassigned::{KeptCounts, KeptSource};
pub use view_changes::{ChangedPlace, ChangedPlaces, ViewChanges};
pub use work::{Gathered, HolderWrite, Work};

/// An answer to a request on the link.
pub type Answer = Result<Reply, Refusal>;

/// Statuses that may differ from what they should be.
#[derive(Debug, Default)]
pub struct Dirty {
    /// Of these in their spaces.
    pub sources: BTreeSet<SourceId>,
    /// Of these SyncTargets.
    pub targets: BTreeSet<TargetId>,
    /// Of any Placement, Location or Space. What targets report changes none of them.
    pub described: bool,
}

/// Everything the hub knows, in memory.
#[derive(Debug)]
pub struct Engine {
    pub(crate) index: Index,
    pub(crate) ledger: Arc<Ledger>,
    /// What agents were handed and showed since a batch was begun: the ledger that follows does not know of it.
    meanwhile: Option<BTreeMap<TargetId, work::Told>>,
    approvals: Approvals,
    /// What a person accepted of other histories, until approvals and inventory were read.
    accepted: Vec<(Uid, Accepted)>,
    /// The objects that say so, as far as they were read.
    acceptances: BTreeSet<Uid>,
    /// What was last logged of a history that is not whole.
    history_said: Option<String>,
    fuse: Fuse,
    pub(crate) link: link::Core,
    pub(crate) summary: Summary,
    /// How far each target is believed, as the link has it.
    heard: Heard,
    pub(crate) targets: Targets,
    bounds: Bounds,
    memory: Memory,
    inventory: Inventory,
    /// Who is deleting which SyncTarget.
    deleting: BTreeMap<TargetId, String>,
    /// Whose facts were handed on in this run, and to whom.
    inherited: BTreeSet<(TargetId, TargetId)>,
    /// Whose agents came as the second, where what happened once at the first is remembered still.
    came: BTreeSet<(TargetId, TargetId)>,
    pub(crate) sources: Sources,
    /// What is to be said of what a space holds and nobody can read.
    unreadable: BTreeMap<SpaceName, String>,
    changes: Vec<Change>,
    holders: Vec<HolderWrite>,
    /// Answers to reports that are held until the removals confirmed so far are persisted.
    acknowledgements: Vec<(RequestId, Answer)>,
    /// Removals are confirmed in `changes`, or in what is being persisted.
    confirming: (bool, bool),
    waiting: HashMap<RequestId, oneshot::Sender<Answer>>,
    next_request: u64,
    timer: Option<Monotonic>,
    dirty: Dirty,
    /// Placement was told something that it has not drained yet.
    told: bool,
    /// What readers of rollups and reports may have to read again.
    pub(crate) view_changes: ViewChanges,
}

impl Engine {
    /// Begins with what earlier runs persisted.
    pub fn new(
        config: link::Config,
        settle: Duration,
        fuse: Fuse,
        ledger: impl Into<Arc<Ledger>>,
        holders: BTreeMap<TargetId, HolderRecord>,
    ) -> Self {
        let ledger = ledger.into();
        let mut index = Index::new(settle);
        index.restore(ledger.assignments());
        for (placement, chosen) in ledger.choices() {
            index.restore_choice(placement, chosen.clone());
        }
        Self {
            index,
            ledger,
            meanwhile: None,
            approvals: Approvals::default(),
            accepted: Vec::new(),
            acceptances: BTreeSet::new(),
            history_said: None,
            fuse,
            link: link::Core::new(config),
            summary: Summary::default(),
            heard: Heard::default(),
            targets: Targets::new(holders),
            bounds: Bounds::default(),
            memory: Memory::default(),
            inventory: Inventory::default(),
            deleting: BTreeMap::new(),
            inherited: BTreeSet::new(),
            came: BTreeSet::new(),
            sources: Sources::default(),
            unreadable: BTreeMap::new(),
            changes: Vec::new(),
            holders: Vec::new(),
            acknowledgements: Vec::new(),
            confirming: (false, false),
            waiting: HashMap::new(),
            next_request: 0,
            timer: None,
            dirty: Dirty::default(),
            told: false,
            view_changes: ViewChanges::default(),
        }
    }

    /// Begins with what earlier runs persisted of targets that have or had an agent.
    pub fn remember(&mut self, remembered: BTreeMap<TargetId, RememberedTarget>) {
        self.memory = Memory::new(remembered);
    }

    /// Begins with what earlier runs knew of SyncTargets.
    pub fn know(&mut self, targets: BTreeMap<TargetId, LastKnown>) {
        self.inventory = Inventory::new(targets);
    }

    /// Begins a request of a target; the answer comes when it is there. Dropping the receiver abandons it.
    pub fn request(
        &mut self,
        now: Monotonic,
        target: TargetId,
        request: link::Request,
    ) -> (RequestId, oneshot::Receiver<Answer>) {
        self.next_request += 1;
        let id = RequestId(self.next_request);
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(id, sender);
        if let Some(shown) = request.shown(target) {
            self.shown(target, shown);
        }
        let handover = match &request {
            link::Request::Session(request, _) => {
                self.inherit_from(&request.formers, target);
                self.handover(target, request)
            }
            link::Request::Desired(_) | link::Request::Bodies(_) | link::Request::Reported(_) => None,
        };
        // Served or not: people compare it before they hand an agent over.
        self.targets.asked(target, now);
        match (handover, self.closed(target)) {
            (Some(answer), _) => self.respond(id, Ok(Reply::Core(link::Answer::Session(answer)))),
            (None, Some(why)) => self.respond(id, Err(why)),
            (None, None) => self.step(now, link::Event::Requested { id, target, request }),
        }
        (id, receiver)
    }

    /// Lets go of everybody who waits for an answer: the hub stops.
    pub fn stop(&mut self) {
        self.waiting.clear();
    }

    /// The one who asked went away, answered or not.
    pub fn abandon(&mut self, now: Monotonic, target: TargetId, id: RequestId) {
        if self.waiting.remove(&id).is_some() {
            self.step(now, link::Event::Abandoned { target, id });
        }
    }

    /// When [`Engine::tick`] or [`Engine::gather`] is to be called at the latest.
    pub fn timer(&self) -> Option<Monotonic> {
        self.next_tick().into_iter().chain(self.index.next_deadline()).min()
    }

    /// When [`Engine::tick`] is to be called at the latest, whatever else is under way.
    pub fn next_tick(&self) -> Option<Monotonic> {
        self.timer.into_iter().chain(self.approvals.next_end()).chain(self.bounds.next_end()).min()
    }

    /// Whether agents wait to be told what was committed: each [`Engine::tick`] tells some.
    pub fn is_telling(&self) -> bool {
        self.link.is_telling()
    }

    pub fn tick(&mut self, now: Monotonic) {
        if self.is_telling() {
            self.step(now, link::Event::TellMore);
        }
        self.approvals_due(now);
        self.problems_due(now);
        if self.timer.is_some_and(|at| at <= now) {
            self.timer = None;
            self.step(now, link::Event::Timer);
        }
    }

    /// Placement was told something: once it is drained, what it says of itself is to be looked at again.
    pub fn told(&mut self) {
        self.told = true;
    }

    /// Whether what Placements, Locations and Spaces say of themselves is to be looked at again.
    pub fn is_redescribed(&self) -> bool {
        self.dirty.described && !self.index.is_draining()
    }

    /// Of how many SyncTargets and sources the status is to be looked at again.
    pub fn statuses_to_write(&self) -> usize {
        self.dirty.targets.len() + self.dirty.sources.len()
    }

    /// What is to be looked at again.
    pub fn take_dirty(&mut self) -> Dirty {
        // A drain that is under way has worked out a part of what Placements say.
        let described = self.is_redescribed();
        let later = self.dirty.described && !described;
        Dirty { described, ..std::mem::replace(&mut self.dirty, Dirty { described: later, ..Dirty::default() }) }
    }

    /// What a person is to know of what a space holds and cannot be read; nothing where all can be.
    pub fn unreadable_in(&mut self, space: SpaceName, said: Option<String>) {
        match said {
            Some(said) => self.unreadable.insert(space, said),
            None => self.unreadable.remove(&space),
        };
    }

    /// What cannot be read of what a space holds, or of the root space, which concerns all.
    pub fn unreadable(&self, space: &SpaceName) -> Option<String> {
        let own = self.unreadable.get(space).cloned();
        let root = self.unreadable.get(&SpaceName::root()).map(|said| format!("in the space root: {said}"));
        let said: Vec<_> = own.into_iter().chain(root).collect();
        (!said.is_empty()).then(|| said.join("; "))
    }

    /// A space shows an object. What status it has there is shown by nothing that is read here.
    pub fn source_seen(&mut self, id: SourceId, seen: SourceSeen) {
        if self.sources.get(&id).is_none_or(|former| !former.is_placed_like(&seen)) {
            self.moved_with_a_source();
        }
        if self.sources.put(&id, seen) {
            self.dirty.sources.insert(id);
        }
    }

    pub fn source_gone(&mut self, id: &SourceId) {
        self.sources.remove(id);
        self.moved_with_a_source();
    }

    pub(crate) fn freshness(&self, target: TargetId) -> Freshness {
        self.link.freshness(target).unwrap_or(Freshness::Unheard)
    }

    /// A target may be believed more or less than before.
    pub(super) fn believed_otherwise(&mut self, target: TargetId) {
        self.hear(target);
        self.target_reads_otherwise(target);
    }

    /// Has the set of targets that are believed be what the link says of this one.
    pub(super) fn hear(&mut self, target: TargetId) {
        if let Some(index) = self.ledger.index_of(target) {
            self.heard.set(index, self.freshness(target));
        }
    }

    fn step(&mut self, now: Monotonic, event: link::Event) {
        let mut effects = link::Effects::new();
        let desk = LedgerView { ledger: &self.ledger, approvals: &self.approvals };
        self.link.step(now, &desk, event, &mut effects);
        for effect in effects {
            self.execute(now, effect);
        }
    }

    fn execute(&mut self, now: Monotonic, effect: link::Effect) {
        match effect {
            link::Effect::Respond { id, answer: Ok(answer @ link::Answer::Reported(_)) }
                if self.confirming != (false, false) =>
            {
                self.acknowledgements.push((id, Ok(Reply::Core(answer))));
            }
            link::Effect::Respond { id, answer } => {
                if let Ok(link::Answer::Desired(DesiredAnswer::Page(page))) = &answer {
                    self.handed(page.attestation.target, page.attestation.version.revision);
                }
                self.respond(id, answer.map(Reply::Core));
            }
            link::Effect::StoreHolder { target, version, record } => {
                if record.is_taken_over(&self.targets.holder(target)) {
                    // The holder says all that it knows, and could take back nothing of what another said.
                    self.summary.forget_words(target);
                    self.moved_anywhere(PlaceChange::Reads);
                }
                self.targets.held(target, (*record).clone());
                self.dirty.targets.insert(target);
                self.holders.push(HolderWrite { target, version, record });
            }
            link::Effect::Facts { target, facts } => {
                self.targets.facts(target, bounded(facts));
                // Whoever is offered a session asks from the cluster that the target is of.
                self.targets.solved(target, Reason::Quarantined);
                self.targets.solved(target, Reason::AgentTooOld);
                self.dirty.targets.insert(target);
                self.claims_no_more(target);
            }
            link::Effect::Understands { target, capabilities } => {
                let missing = capabilities.missing();
                if !missing.is_empty() {
                    warn!(sync_target = %target, "{}; what needs that is withheld", upgrade(&missing));
                }
                self.changes.push(Change::Understands(target, capabilities));
            }
            link::Effect::Shown { target, shown, proof } => {
                warn!(sync_target = %target, shown = %shown.version, ?proof, "agent holds a set that is not of this hub's history");
                self.changes.push(Change::History(HistoryChange::Shown { target, shown, proof }));
            }
            link::Effect::ReadBodies { id, target, wanted, outdated } => {
                let answer = self.bodies(target, &wanted, outdated);
                self.respond(id, answer.map(Reply::Bodies));
            }
            link::Effect::Report { target, report } => self.report(now, target, *report),
            link::Effect::Heard { target, in_sync, became_fresh } => {
                let contact = if in_sync { Contact::InSync } else { Contact::OutOfSync };
                if self.targets.heard(target, contact) {
                    info!(sync_target = %target, in_sync, "target is heard from");
                    self.dirty.targets.insert(target);
                    self.moved_elsewhere();
                }
                if became_fresh {
                    self.believed_otherwise(target);
                }
            }
            link::Effect::Stale(target) => {
                self.targets.fell_silent(target);
                if self.targets.heard(target, Contact::Silent) {
                    warn!(sync_target = %target, "target is stale: nothing that says it is in sync within its deadline");
                }
                self.dirty.targets.insert(target);
                self.believed_otherwise(target);
            }
            link::Effect::Quarantined { target, cluster } => {
                self.quarantined(now, target, cluster.as_ref());
            }
            link::Effect::SetTimer(at) => self.timer = Some(self.timer.map_or(at, |timer| timer.min(at))),
        }
    }

    fn respond(&mut self, id: RequestId, answer: Answer) {
        if let Some(waiting) = self.waiting.remove(&id) {
            // A receiver that is gone has abandoned the request.
            let _gone = waiting.send(answer);
        }
    }

    fn report(&mut self, now: Monotonic, target: TargetId, report: ReportedRequest) {
        let Some(view) = self.ledger.target(target) else { return };
        let leaves = self.targets.get(target).is_some_and(|outline| outline.record.decommission != Decommission::No);
        let service = if leaves { Service::Leaving } else { Service::InPlace };
        // Whatever else is made of its words: an approval that was made use of is not made use of again.
        let spent = self.spent(target, &report.removed);
        self.summary.settle(target, |key, source| view.concern(key, source) == Concern::Assigned);
        let known = self.summary.target(target);
        let Screened { report, gone_while_assigned, dropped, unfounded, breaches } =
            screen(&view, service, known, report);
        self.summary.leave(target, &gone_while_assigned);
        let told = |summary: &Summary| {
            let told = |known: TargetReports<'_>| {
                let leaving = known.decommission().map(|report| (report, known.held_count()));
                (known.accepted(), known.applied(), known.conditions().to_vec(), known.waiting(), leaving)
            };
            summary.target(target).map(told)
        };
        let former = told(&self.summary);
        let facts: Vec<_> = view.news(&report).collect();
        let taken = self.summary.take(target, view.index(), report);
        let told_otherwise = told(&self.summary) != former;
        if told_otherwise {
            self.dirty.targets.insert(target);
        }
        // Most reports only say that all is as it was.
        if !taken.news.is_empty() {
            self.reads_otherwise(taken.news.iter());
        } else if told_otherwise || dropped + unfounded > 0 || !breaches.is_empty() {
            self.moved_elsewhere();
        }
        for key in &taken.changed {
            self.dirty.sources.extend(self.sources_at(target, key));
        }
        self.confirming.0 |= taken.confirms();
        self.changes.extend(taken.changes(target, facts));
        self.changes.extend(spent.into_iter().map(Change::History));
        self.dropped(now, target, dropped, unfounded);
        for breach in breaches {
            self.breached(now, target, breach);
        }
    }

    fn sources_at(&self, target: TargetId, key: &ObjectKey) -> Option<SourceId> {
        self.ledger.target(target)?.source(key).map(|source| source.id().clone())
    }

    /// As many whole bodies as fit, in the order asked for; one that is larger than an answer, in parts.
    fn bodies(&self, target: TargetId, wanted: &[BodyWanted], outdated: Vec<Digest>) -> Result<BodiesAnswer, Refusal> {
        let gone = || Refusal::new(RefusalKind::TargetGone, "the SyncTarget of this agent was deleted");
        let view = self.ledger.target(target).ok_or_else(gone)?;
        let mut answer = BodiesAnswer { bodies: Vec::new(), outdated };
        let mut room = BODY_BATCH_BYTES_MAX;
        for wanted in wanted {
            let Some(body) = view.body(&wanted.key, wanted.input) else {
                answer.outdated.push(wanted.input);
                continue;
            };
            let offset = usize::try_from(wanted.offset).unwrap_or(usize::MAX).min(body.text.len());
            let Some(rest) = body.text.get(offset..) else {
                return Err(Refusal::new(RefusalKind::Malformed, "the offset is inside a character"));
            };
            if rest.len() > room && !answer.bodies.is_empty() {
                break;
            }
            let end = rest.floor_char_boundary(room);
            room -= end;
            answer.bodies.push(Body {
                input: body.input,
                sha256: body.sha256,
                size: body.text.len() as u64,
                offset: offset as u64,
                text: rest[..end].to_owned(),
            });
        }
        Ok(answer)
    }
}

/// What an agent says of itself, in as many bytes as that may take.
fn bounded(mut facts: ClusterFacts) -> ClusterFacts {
    for text in [&mut facts.kubernetes_version, &mut facts.agent_version] {
        truncate(text, FACT_BYTES_MAX);
    }
    facts
}

#[cfg(test)]
mod tests;
