//! The hub's process around the ledger and the link's core: what its edges do, in virtual time, on a disk that a crash
//! leaves as it is.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use tideline_common::signature::SigningKey;
use tideline_common::wire::v1::{
    ApprovedHeld, ApprovedPage, BodiesAnswer, Body, BodyWanted, Decommission, DesiredAnswer, DesiredRequest,
    HubAddresses, PollSettings, Refusal,
};
use tideline_common::{
    ApplyPolicy, ApproveDeletions, Capabilities, Digest, Monotonic, ObjectKey, Revision, RevisionId, RunId, SegmentId,
    SessionId, Shown, TargetId, Tombstone, Uid,
};
use tideline_hub::history_change::HistoryChange;
use tideline_hub::ledger::{self, Batch, Committed, Fresh, Ledger, Lineage, Restored, Retention, TargetContinuity};
use tideline_hub::link::LedgerView;
use tideline_hub::link::core::{self as link, HolderRecord, Origin, SetInfo, SetPage, Sets};
use tideline_hub::link::exchange::{Signer, Silences, TakenNumbers};
use tideline_hub::placement::Change;
use tideline_hub::removal_guards::{Approval, Approvals};
use tideline_hub::summary::{Screened, Service, Summary, screen};
use uuid::Uuid;

use crate::history::{CommitNumber, History};
use crate::ids::{CLUSTER, HEIR, HUB, OTHER_TARGET, SECOND_HEIR, TARGET, parse};
use crate::plans::{Absence, HubEffect, HubProbe, When, of_hub};

/// Entries on a page, and bytes in an answer with bodies: little, so that sets and bodies come in parts.
const PAGE: usize = 3;
const BODIES: usize = 100;

/// What outlives the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) decommission: Decommission,
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    holder: HolderRecord,
    /// The commits that led to what is here.
    pub(crate) line: BTreeSet<CommitNumber>,
    /// The commits that other agents than ours showed.
    pub(crate) heard: BTreeSet<CommitNumber>,
    /// The SyncTarget that was created after the first, with its agent.
    pub(crate) heir: Option<TargetId>,
    /// The first SyncTarget was in a store that is lost: nothing here shows that it ever existed.
    pub(crate) forgot_first: bool,
    /// Commits that are on record as missing here, and were not accepted.
    pub(crate) missing: BTreeSet<CommitNumber>,
    /// By number: what a person approved, of which target, and until when.
    pub(crate) approvals: BTreeMap<u64, (TargetId, Monotonic, Vec<Tombstone>)>,
}

impl Disk {
    fn target(&self) -> TargetId {
        self.heir.unwrap_or_else(|| parse(TARGET))
    }
}

/// What is being written.
#[derive(Debug)]
pub(crate) struct Writing {
    batch: Option<Batch>,
    written: usize,
    holder: Option<(u64, Box<HolderRecord>)>,
    answers: Vec<Demand>,
    told: Told,
}

/// What unwritten changes say of other histories.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// Commits that are shown to be missing.
    pub(crate) missing: BTreeSet<CommitNumber>,
    /// Those that a person accepts to be.
    pub(crate) accepted: BTreeSet<CommitNumber>,
}

/// What the world must do for the hub.
#[derive(Debug)]
pub(crate) enum Demand {
    Respond(link::RequestId, Result<link::Answer, Refusal>),
    RespondBodies(link::RequestId, BodiesAnswer),
    Timer(Monotonic),
    /// The process ends here.
    End(Absence),
}

#[expect(clippy::struct_excessive_bools, reason = "each says whether one thing, independent of the others, is so")]
pub(crate) struct Hub {
    retention: Retention,
    pub(crate) forgetting: Forgetting,
    /// Sources that one change may unassign from targets.
    allowance: u64,
    /// Nothing sent to an ended process reaches the next one.
    pub(crate) run: u64,
    pub(crate) up: bool,
    /// The request numbers that this run took, and the key that signs its answers.
    pub(crate) taken: TakenNumbers,
    pub(crate) silences: Silences,
    pub(crate) signer: Signer,
    pub(crate) disk: Disk,
    pub(crate) ledger: Ledger,
    pub(crate) approvals: Approvals,
    link: link::Core,
    pub(crate) summary: Summary,
    /// Reports of the agent were dropped because they concerned nothing that it has.
    dropped: bool,
    changes: Vec<Change>,
    /// The workload changed during a write: removals were planned without it.
    pub(crate) outdated: bool,
    pub(crate) told: Told,
    holder: Option<(u64, Box<HolderRecord>)>,
    /// Answers that acknowledge what is not written yet.
    answers: Vec<Demand>,
    pub(crate) writing: Option<Writing>,
    pub(crate) history: History,
    /// A machine was set back while it ran: the next start is not a new one.
    pub(crate) rolled_back: bool,
    /// A store that was just created.
    pub(crate) empty: Disk,
    /// Random ids that were drawn. A hub that is set back does not draw the same again.
    drawn: u128,
    pub(crate) writes: u64,
    pub(crate) accepts: u64,
    /// How often somebody released Jobs that may have run.
    pub(crate) releases: u64,
    /// The probe that counts and disturbs, in a run by plan.
    pub(crate) probe: Option<HubProbe>,
    /// It has ended, and only its earlier effects are still seen by others.
    ending: bool,
}

/// The effects of the hub's small memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Forgetting {
    /// Sets that are sent whole within their epoch, because the log does not reach back.
    pub(crate) snapshots: Cell<u64>,
    /// Agents that show a revision whose id is not kept.
    pub(crate) same_segment: Cell<u64>,
}

impl Forgetting {
    pub(crate) fn add(&self, other: &Self) {
        count(&self.snapshots, other.snapshots.get());
        count(&self.same_segment, other.same_segment.get());
    }
}

fn count(counter: &Cell<u64>, more: u64) {
    counter.set(counter.get() + more);
}

/// The ledger with pages that are as small as a simulated set.
struct Small<'a>(LedgerView<'a>, &'a Forgetting);

impl Sets for Small<'_> {
    fn info(&self, target: TargetId) -> Option<SetInfo> {
        self.0.info(target)
    }

    fn page(
        &self,
        target: TargetId,
        since: Option<Revision>,
        after: Option<&ObjectKey>,
        limit: usize,
    ) -> Option<SetPage> {
        let page = self.0.page(target, since, after, limit.min(PAGE));
        count(&self.1.snapshots, u64::from(since.is_some() && page.is_none()));
        page
    }

    fn continuity(&self, target: TargetId, shown: Option<Shown>) -> TargetContinuity {
        let forgotten = shown.is_some_and(|shown| self.0.ledger.lineage(shown) == Lineage::SameSegment);
        count(&self.1.same_segment, u64::from(forgotten));
        self.0.continuity(target, shown)
    }

    fn has_shown_later(&self, target: TargetId, shown: Shown) -> bool {
        self.0.has_shown_later(target, shown)
    }

    fn is_told_to(&self, target: TargetId, understands: &Capabilities) -> bool {
        self.0.is_told_to(target, understands)
    }

    fn names(&self, target: TargetId, key: &ObjectKey, input: Digest) -> bool {
        self.0.names(target, key, input)
    }

    fn approved(&self, now: Monotonic, target: TargetId, held: &ApprovedHeld) -> Option<ApprovedPage> {
        let mut page = self.0.approved(now, target, held)?;
        // Withheld entries leave gaps in a page, so that it can be cut only where there are none.
        if page.count == page.removals.len() as u64 {
            page.removals.truncate(PAGE);
            page.count = page.removals.len() as u64;
        }
        Some(page)
    }
}

/// The policy whose objects may all go at once.
pub(crate) fn in_advance() -> ApplyPolicy {
    ApplyPolicy { approve_deletions: ApproveDeletions::InAdvance, ..ApplyPolicy::default() }
}

/// The key for attestations; of other histories, too.
pub(crate) fn key() -> SigningKey {
    SigningKey::from_seed([7; 32])
}

pub(crate) fn approval_name(number: u64) -> Uid {
    parse(&format!("approval-{number}"))
}

fn approval(target: TargetId, until: Monotonic, removals: &[Tombstone]) -> Approval {
    let expires = i64::try_from(until.as_millis()).expect("it is hours");
    Approval { target, expires, until, removals: removals.into(), releases: false }
}

/// The key that signs in one run of the hub.
fn signer(run: u64) -> Signer {
    let run = RunId::from_uuid(Uuid::from_u128(u128::from(run) + 1));
    Signer { hub: parse(HUB), key: key(), run, addresses: HubAddresses::default() }
}

fn config(run: u64) -> link::Config {
    // A hub draws it at random; here each run has a range of its own, so that adding to it never makes it another run's.
    link::Config { poll: PollSettings { wait_seconds: 45, stale_after_seconds: 1800 }, memory: run << 32 }
}

impl Hub {
    pub(crate) fn new(allowance: u64, retention: Retention) -> Self {
        let mut hub = Self {
            retention,
            forgetting: Forgetting::default(),
            allowance,
            run: 0,
            up: false,
            taken: TakenNumbers::default(),
            silences: Silences::default(),
            signer: signer(0),
            disk: Disk::default(),
            ledger: Ledger::default(),
            approvals: Approvals::default(),
            link: link::Core::new(config(0)),
            summary: Summary::default(),
            dropped: false,
            changes: Vec::new(),
            outdated: false,
            told: Told::default(),
            holder: None,
            answers: Vec::new(),
            writing: None,
            history: History::default(),
            rolled_back: false,
            empty: Disk::default(),
            drawn: 0,
            writes: 0,
            accepts: 0,
            releases: 0,
            probe: None,
            ending: false,
        };
        let fresh = hub.fresh(Monotonic::from_millis(0));
        let targets = [TARGET, OTHER_TARGET, HEIR, SECOND_HEIR].map(|target| Change::Register(parse(target)));
        let batch = hub.ledger.plan(fresh, targets);
        hub.write_chunks(&batch, batch.chunks().len());
        hub.empty = hub.disk.clone();
        hub
    }

    /// The identity of the agent.
    pub(crate) fn target(&self) -> TargetId {
        self.disk.target()
    }

    /// What the edge says of a request.
    pub(crate) fn origin(&mut self, now: Monotonic) -> Origin {
        self.drawn += 1;
        let id = u64::try_from(self.drawn).expect("few are drawn");
        Origin { at: now.as_millis() / 1000, id: SessionId(id), ..link::Origin::default() }
    }

    fn fresh(&mut self, now: Monotonic) -> Fresh {
        self.drawn += 2;
        let id = Uuid::from_u128;
        Fresh {
            now,
            revision: RevisionId::from_uuid(id(self.drawn)),
            segment: SegmentId::from_uuid(id(self.drawn + 1)),
        }
    }

    fn write_chunks(&mut self, batch: &Batch, until: usize) {
        for write in batch.chunks()[..until].iter().flatten() {
            match &write.value {
                Some(value) => self.disk.records.insert(write.key.clone(), value.clone()),
                None => self.disk.records.remove(&write.key),
            };
        }
    }

    /// The process ends; what is on the disk stays.
    pub(crate) fn crash(&mut self) {
        self.up = false;
        self.ending = false;
        self.run += 1;
        self.changes.clear();
        self.holder = None;
        self.answers.clear();
        self.writing = None;
    }

    /// The disk is an older one.
    pub(crate) fn set_back(&mut self) {
        let ledger = Ledger::load(&self.disk.records, self.retention).expect("it was whole when it was copied");
        self.history.jump(&ledger, self.disk.target());
    }

    /// The disk is what `tideline-hub restore` makes of a backup.
    pub(crate) fn says_restored(&mut self) {
        self.drawn += 1;
        let restored = Restored { id: Uuid::from_u128(self.drawn).to_string(), made: "some time ago".to_owned() };
        let record = ledger::restored(&restored);
        self.disk.records.insert(record.key, record.value.expect("it says something"));
    }

    pub(crate) fn start(&mut self, now: Monotonic, out: &mut Vec<Demand>) {
        self.up = true;
        self.told = Told::default();
        self.taken = TakenNumbers::default();
        self.signer = signer(self.run);
        let ledger = Ledger::load(&self.disk.records, self.retention);
        self.ledger = ledger.expect("whatever a crash leaves can be loaded");
        if !std::mem::take(&mut self.rolled_back) {
            let fresh = self.fresh(now);
            let batch = self.ledger.begin_run(fresh);
            self.write_chunks(&batch, batch.chunks().len());
            self.ledger.commit(batch).expect("there is one writer");
        }
        self.summary = Summary::default();
        self.dropped = false;
        self.read_approvals(now, out);
        self.link = link::Core::new(config(self.run));
        let target = self.target();
        self.history.follow(&self.ledger, target, &mut self.disk.line);
        self.step(now, self.known(), out);
        let (holder, decommission) = (Box::default(), Decommission::No);
        let other = link::Event::TargetKnown { target: parse(OTHER_TARGET), cluster: None, holder, decommission };
        self.step(now, other, out);
    }

    /// The target goes out of service, or is in service again.
    pub(crate) fn decommission(&mut self, now: Monotonic, how: Decommission, out: &mut Vec<Demand>) {
        self.disk.decommission = how;
        self.step(now, self.known(), out);
    }

    /// The inventory shows the target.
    pub(crate) fn known(&self) -> link::Event {
        let (target, cluster, holder) = (self.target(), Some(parse(CLUSTER)), Box::new(self.disk.holder.clone()));
        link::Event::TargetKnown { target, cluster, holder, decommission: self.leaving() }
    }

    /// That it leaves service may have been withdrawn by a commit that was lost.
    fn leaving(&self) -> Decommission {
        let unexplained = self.ledger.leaving_is_unexplained(self.target());
        if unexplained { Decommission::No } else { self.disk.decommission }
    }

    fn read_approvals(&mut self, now: Monotonic, out: &mut Vec<Demand>) {
        self.approvals = Approvals::default();
        for (number, (target, until, removals)) in &self.disk.approvals {
            let _nobody_asks_yet = self.approvals.put(now, approval_name(*number), approval(*target, *until, removals));
        }
        let _nobody_asks_yet = self.approvals.end_listing();
        let all = self.approvals.objects().cloned().collect();
        self.strike_void(now, &all, out);
        self.assigned_since();
        out.extend(self.approvals.next_end().map(Demand::Timer));
    }

    /// A person approves removals, and it is stored.
    pub(crate) fn approve(
        &mut self,
        now: Monotonic,
        number: u64,
        until: Monotonic,
        removals: Vec<Tombstone>,
        out: &mut Vec<Demand>,
    ) {
        for removal in &removals {
            self.history.approve(&removal.key, &removal.source);
        }
        let target = self.target();
        let changed = self.approvals.put(now, approval_name(number), approval(target, until, &removals));
        self.disk.approvals.insert(number, (target, until, removals));
        out.push(Demand::Timer(until));
        self.step(now, link::Event::Approved(changed), out);
        self.assigned_since();
    }

    pub(crate) fn change(&mut self, changes: impl IntoIterator<Item = Change>) {
        self.changes.extend(changes);
    }

    /// Whether targets keep objects that nothing wants any more.
    pub(crate) fn holds(&self) -> bool {
        self.ledger.kept().next().is_some()
    }

    /// A person approves that all of them are removed.
    pub(crate) fn release(&mut self) {
        let revisions: BTreeSet<Revision> = self.ledger.kept().map(|source| source.kept_at()).collect();
        self.changes.extend(revisions.into_iter().map(Change::Release));
    }

    /// Begins a write, if there is something to write and none is under way. True if so.
    pub(crate) fn begin_write(&mut self, now: Monotonic) -> bool {
        if self.writing.is_some() || !self.up {
            return false;
        }
        let changes = std::mem::take(&mut self.changes);
        let told = std::mem::take(&mut self.told);
        let fresh = self.fresh(now);
        let batch = Some(self.ledger.plan_within(fresh, changes, self.allowance)).filter(|batch| !batch.is_empty());
        let holder = self.holder.take();
        let answers = std::mem::take(&mut self.answers);
        if batch.is_none() && holder.is_none() && answers.is_empty() {
            return false;
        }
        self.writing = Some(Writing { batch, written: 0, holder, answers, told });
        true
    }

    pub(crate) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Writes one more piece. True if that was not the last.
    pub(crate) fn go_on_writing(&mut self, now: Monotonic, out: &mut Vec<Demand>) -> bool {
        let Some(mut writing) = self.writing.take() else { return false };
        self.writes += u64::from(writing.batch.is_some() || writing.holder.is_some());
        let chunks = writing.batch.as_ref().map_or(0, |batch| batch.chunks().len());
        let kind = if writing.written < chunks {
            Some(HubEffect::WriteChunk)
        } else {
            writing.holder.as_ref().map(|_| HubEffect::WriteHolder)
        };
        let end = kind.and_then(|kind| self.end_over(kind));
        if let Some((When::Before, absence)) = end {
            self.ends(absence, out);
            return false;
        }
        if writing.written < chunks {
            let batch = writing.batch.take().expect("it has chunks");
            writing.written += 1;
            self.write_chunks(&batch, writing.written);
            writing.batch = Some(batch);
        } else if let Some((_, record)) = &writing.holder {
            self.disk.holder = (**record).clone();
        }
        if let Some((When::After, absence)) = end {
            self.ends(absence, out);
            return false;
        }
        let left =
            writing.written < chunks || writing.holder.as_ref().is_some_and(|(_, record)| self.disk.holder != **record);
        if left {
            self.writing = Some(writing);
            return true;
        }
        self.written(now, writing, out);
        false
    }

    fn end_over(&mut self, kind: HubEffect) -> Option<(When, Absence)> {
        self.probe.as_mut().and_then(|probe| probe.effect(kind))
    }

    fn ends(&mut self, absence: Absence, out: &mut Vec<Demand>) {
        out.push(Demand::End(absence));
        self.ending = true;
    }

    /// The write failed part of the way, and is started over.
    pub(crate) fn write_again(&mut self) {
        if let Some(writing) = &mut self.writing {
            writing.written = 0;
        }
    }

    fn written(&mut self, now: Monotonic, writing: Writing, out: &mut Vec<Demand>) {
        out.extend(writing.answers);
        if let Some(batch) = writing.batch {
            let committed = self.ledger.commit(batch).expect("there is one writer");
            let Committed { affected, history, voided, .. } = committed;
            let target = self.target();
            self.history.follow(&self.ledger, target, &mut self.disk.line);
            self.disk.missing.extend(&writing.told.missing);
            self.disk.missing.retain(|commit| !writing.told.accepted.contains(commit));
            if let Some(probe) = &mut self.probe {
                probe.commits.push(self.disk.records.clone());
            }
            let affected: Vec<_> = affected.iter().filter_map(|index| self.ledger.target_at(index)).collect();
            if !affected.is_empty() && std::mem::take(&mut self.dropped) {
                self.step(now, link::Event::ReportsIncomplete(self.target()), out);
            }
            self.history_committed(now, history.is_some(), &voided, out);
            self.step(now, link::Event::Committed(affected), out);
        }
        if let Some((version, _)) = writing.holder {
            self.step(now, link::Event::HolderStored { target: self.target(), version }, out);
        }
    }

    pub(crate) fn step(&mut self, now: Monotonic, event: link::Event, out: &mut Vec<Demand>) {
        if self.ending {
            return;
        }
        let ended = self.approvals.expire(now);
        if !ended.is_empty() {
            self.step(now, link::Event::Approved(ended), out);
        }
        if let link::Event::Requested { target, request, .. } = &event
            && let Some(shown) = request.shown(*target)
        {
            self.ledger.confirmed(*target, shown);
        }
        let mut effects = link::Effects::new();
        let desk = LedgerView { ledger: &self.ledger, approvals: &self.approvals };
        self.link.step(now, &Small(desk, &self.forgetting), event, &mut effects);
        // A report that comes twice is not acknowledged by its second copy before the first is persisted.
        let mut confirms =
            !self.answers.is_empty() || self.writing.as_ref().is_some_and(|writing| !writing.answers.is_empty());
        for effect in effects {
            let end = self.end_over(of_hub(&effect));
            if let Some((When::Before, absence)) = end {
                return self.ends(absence, out);
            }
            self.carry_out(effect, &mut confirms, out);
            if let Some((When::After, absence)) = end {
                return self.ends(absence, out);
            }
        }
    }

    fn carry_out(&mut self, effect: link::Effect, confirms: &mut bool, out: &mut Vec<Demand>) {
        match effect {
            link::Effect::Respond { id, answer: answer @ Ok(link::Answer::Reported(_)) } if *confirms => {
                self.answers.push(Demand::Respond(id, answer));
            }
            link::Effect::Respond { id, answer } => {
                if let Ok(link::Answer::Desired(DesiredAnswer::Page(page))) = &answer {
                    let missing = &self.disk.missing;
                    assert!(missing.is_empty(), "a set goes out, and the hub was shown that it lost {missing:?}");
                    let restored = self.ledger.restored();
                    assert_eq!(restored, None, "a set goes out, and nobody accepted that it is an old one");
                    let attestation = &page.attestation;
                    self.ledger.handed(attestation.target, attestation.version.revision);
                    self.history.answered(page.attestation, &self.disk.heard);
                }
                if let Ok(link::Answer::Desired(DesiredAnswer::Approved(page))) = &answer
                    && self.is_idle()
                {
                    self.history.check_approved(&page.removals, &self.disk.line);
                }
                out.push(Demand::Respond(id, answer));
            }
            link::Effect::StoreHolder { version, record, .. } => self.holder = Some((version, record)),
            link::Effect::Understands { target, capabilities } => {
                self.changes.push(Change::Understands(target, capabilities));
            }
            link::Effect::Shown { target, shown, proof } => {
                self.changes.push(Change::History(HistoryChange::Shown { target, shown, proof }));
            }
            link::Effect::ReadBodies { id, target, wanted, outdated } => {
                out.push(Demand::RespondBodies(id, self.bodies(target, &wanted, outdated)));
            }
            link::Effect::Report { target, report } => {
                let view = self.ledger.target(target).expect("the target is registered");
                let leaves = self.disk.decommission != Decommission::No;
                let service = if leaves { Service::Leaving } else { Service::InPlace };
                let Screened { report, dropped, breaches, .. } =
                    screen(&view, service, self.summary.target(target), *report);
                assert!(breaches.is_empty(), "an agent that keeps to the protocol is in breach: {breaches:?}");
                self.dropped |= dropped > 0;
                let facts: Vec<_> = view.news(&report).collect();
                let taken = self.summary.take(target, view.index(), report);
                *confirms |= taken.confirms();
                self.changes.extend(taken.changes(target, facts));
            }
            link::Effect::SetTimer(at) => out.push(Demand::Timer(at)),
            link::Effect::Quarantined { .. } => panic!("there is one cluster"),
            link::Effect::Stale(_) => self.silences.0 += 1,
            link::Effect::Heard { .. } | link::Effect::Facts { .. } => {}
        }
    }

    fn bodies(&self, target: TargetId, wanted: &[BodyWanted], outdated: Vec<Digest>) -> BodiesAnswer {
        let view = self.ledger.target(target).expect("the target is registered");
        let mut answer = BodiesAnswer { bodies: Vec::new(), outdated };
        let mut room = BODIES;
        for wanted in wanted {
            let Some(body) = view.body(&wanted.key, wanted.input) else {
                answer.outdated.push(wanted.input);
                continue;
            };
            let from = usize::try_from(wanted.offset).expect("it is an offset of a short text").min(body.text.len());
            let to = (from + room).min(body.text.len());
            room -= to - from;
            answer.bodies.push(Body {
                input: body.input,
                sha256: body.sha256,
                size: body.text.len() as u64,
                offset: wanted.offset,
                text: body.text[from..to].to_owned(),
            });
            if room == 0 {
                break;
            }
        }
        answer
    }

    /// What a replica that has heard of no commit after this one answers to a poll, and when.
    pub(crate) fn lagging(
        &self,
        now: Monotonic,
        commit: usize,
        request: &DesiredRequest,
    ) -> Option<(Monotonic, Result<link::Answer, Refusal>)> {
        let records = &self.probe.as_ref()?.commits[commit];
        let ledger = Ledger::load(records, self.retention).expect("it was whole when it was written");
        let desk = Small(LedgerView { ledger: &ledger, approvals: &self.approvals }, &self.forgetting);
        let target = self.target();
        let holder = Box::new(self.link.holder(target).cloned().unwrap_or_default());
        let mut replica = link::Core::new(config(self.run));
        let decommission = Decommission::No;
        let known = link::Event::TargetKnown { target, cluster: Some(parse(CLUSTER)), holder, decommission };
        let request = link::Request::Desired(request.clone());
        let asked = link::Event::Requested { id: link::RequestId(0), target, request };
        let mut effects = link::Effects::new();
        replica.step(now, &desk, known, &mut effects);
        replica.step(now, &desk, asked, &mut effects);
        let mut at = now;
        for _ in 0..2 {
            let waits = effects
                .iter()
                .filter_map(|effect| if let link::Effect::SetTimer(at) = effect { Some(*at) } else { None });
            let until = waits.min();
            let answer = effects
                .drain(..)
                .find_map(|effect| if let link::Effect::Respond { answer, .. } = effect { Some(answer) } else { None });
            match (answer, until) {
                (Some(answer), _) => return Some((at, answer)),
                (None, Some(until)) => {
                    at = until;
                    replica.step(at, &desk, link::Event::Timer, &mut effects);
                }
                (None, None) => return None,
            }
        }
        None
    }

    /// Whether it was asked about a revision whose id it does not know any more.
    pub(crate) fn has_forgotten(&self) -> bool {
        self.forgetting.same_segment.get() > 0
    }

    /// Who holds the target.
    pub(crate) fn holder(&self) -> Option<&HolderRecord> {
        self.link.holder(self.target())
    }

    pub(crate) fn freshness(&self) -> Option<tideline_common::rollup::Freshness> {
        self.link.freshness(self.target())
    }

    /// Removals that the agent has not confirmed.
    pub(crate) fn tombstones(&self) -> Vec<Tombstone> {
        let view = self.ledger.target(self.target()).expect("the target is registered");
        view.tombstones().map(|gone| gone.tombstone).collect()
    }

    /// Whether nothing waits for anything.
    pub(crate) fn is_idle(&self) -> bool {
        self.writing.is_none() && self.changes.is_empty() && self.holder.is_none()
    }
}
