//! Reports states to the hub. Changes are collected for a moment and sent in pages; acknowledged reports are remembered by
//! their digests, so that nothing is sent twice.
//!
//! How much is reported of an object is for its policy to say (`class`). A change that only a watch showed waits if the object
//! was reported a moment ago (`rate`).

use std::collections::BTreeSet;
use std::time::Duration;

use tideline_common::health::{Health, truncate};
use tideline_common::limits::MESSAGE_BYTES_MAX;
use tideline_common::wire::v1::{
    Accepted, DecommissionReport, ObjectReport, Progress, ReportedAnswer, ReportedRequest, Stands, TargetCondition,
};
use tideline_common::{Digest, GroupKind, Monotonic, ObjectKey, Reason, SessionName, Tombstone, Uid, Version};

use super::rate::Rate;
use crate::core::audit::{copies, unexplained};
use crate::core::decide::remove::{Evidence, Ground, Verdict, may_delete};
use crate::core::interface::effect::{Effect, Effects, Request, RequestId, Timer};
use crate::core::interface::event::{Answer, LinkFailure};
use crate::core::interface::write::{AgentMode, RemovalPolicy, Write};
use crate::core::model::Model;
use crate::core::model::key_ref::KeyRef;
use crate::core::model::object::{Object, Outcome, ReportDigest};
use crate::core::model::removal::{Removal, RemovalState};
use crate::core::{Core, Phase};

mod class;
mod page;

use page::Page;

/// Changes are collected this long before they are sent.
const GATHER: Duration = Duration::from_millis(50);
/// Reports in the time after which the hub calls a target stale.
const HEARTBEATS: u32 = 3;
/// How late the next poll may be that says that the last report stands. If it is later, a report goes out all the same.
const POLL_LATE_MAX: Duration = Duration::from_secs(5);
/// So many polls say of one report that it stands, then another goes out: some quarter of an hour at rest. Who answers them may
/// have become another version of the hub meanwhile, which reads nothing of that.
const POLLS_OF_A_REPORT: u64 = 20;
/// Between two reports of one object that contain nothing but what a watch showed: twelve a minute for one whose status
/// changes all the time. A rollout of a minute is followed as well as a person can.
const OBSERVED_EVERY_SECONDS: u64 = 5;

#[derive(Debug, Default)]
pub(in crate::core) struct Reports {
    dirty: BTreeSet<KeyRef>,
    /// The objects that were reported within that time, by a digest of the results of our own operations, and those with
    /// further changes. At the end of the process these go out with the last report.
    rate: Rate<KeyRef, u64, OBSERVED_EVERY_SECONDS>,
    removed: BTreeSet<Tombstone>,
    /// Removals that ended without effect, because the same source is assigned there again.
    overtaken: BTreeSet<Tombstone>,
    /// Objects whose counts changed.
    associated: BTreeSet<ObjectKey>,
    /// Since when something waits to be sent.
    since: Option<Monotonic>,
    in_flight: Option<InFlight>,
    seq: u64,
    failures: u32,
    not_before: Option<Monotonic>,
    /// When the hub was told last that the cluster does well, by a report or a poll.
    last_said: Option<Monotonic>,
    /// Goodbye was said.
    parted: bool,
    /// The last id of the hub's memory of reports; earlier acknowledgements are void when that changes.
    memory: Option<u64>,
    told: Option<Told>,
    /// The highest version for which it was reported that every entry was tried.
    applied: Option<Version>,
    timer: Option<Monotonic>,
}

/// What the hub acknowledged last, in the present session.
#[derive(Debug)]
struct Told {
    facts: Facts,
    /// The number of the report.
    report: u64,
    /// Whether the hub reads in polls that it stands.
    in_polls: bool,
    /// How many polls said so.
    polls: u64,
    /// The hub may not know it: another report is to go out. Until that is answered polls name this one, and count for nothing.
    doubted: bool,
}

#[derive(Debug)]
struct InFlight {
    id: RequestId,
    session: SessionName,
    seq: u64,
    objects: Vec<(ObjectKey, ReportDigest)>,
    associated: Vec<(ObjectKey, Uid, Digest)>,
    removed: Vec<Tombstone>,
    overtaken: Vec<Tombstone>,
    facts: Facts,
}

/// The report of the target as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Facts {
    applied: Option<Version>,
    in_sync: bool,
    conditions: Vec<TargetCondition>,
    decommission: Option<DecommissionReport>,
}

impl Reports {
    fn dirty(&mut self, name: KeyRef, now: Monotonic) {
        self.dirty.insert(name);
        self.since.get_or_insert(now);
    }

    pub(in crate::core) fn everything<'a>(&mut self, names: impl Iterator<Item = &'a KeyRef>, now: Monotonic) {
        self.dirty.extend(names.cloned());
        self.since.get_or_insert(now);
    }

    pub(in crate::core) fn associated(&mut self, key: &ObjectKey, now: Monotonic) {
        self.associated.insert(key.clone());
        self.since.get_or_insert(now);
    }

    pub(in crate::core) fn removed(&mut self, tombstone: Tombstone, now: Monotonic) {
        self.dirty(KeyRef::from(&tombstone.key), now);
        self.removed.insert(tombstone);
    }

    /// An object that was to be removed is assigned again, of the same source.
    pub(in crate::core) fn overtaken(&mut self, tombstone: Tombstone, now: Monotonic) {
        self.since.get_or_insert(now);
        self.overtaken.insert(tombstone);
    }

    /// The object that the hub was told of is gone, and nobody removed it.
    pub(in crate::core) fn vanished(&mut self, what: Tombstone) {
        self.removed.insert(what);
    }

    /// It is not reported any more, and if a report is in flight, its acknowledgement means nothing.
    pub(in crate::core) fn forget_removed(&mut self, tombstone: &Tombstone) {
        self.removed.remove(tombstone);
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.removed.retain(|told| told != tombstone);
        }
    }

    /// A report of an object in flight is outdated: its acknowledgement means nothing.
    pub(in crate::core) fn say_anew(&mut self, key: &ObjectKey) {
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.objects.retain(|(told, _)| told != key);
        }
    }

    pub(in crate::core) fn forget_overtaken(&mut self, tombstone: &Tombstone) {
        self.overtaken.remove(tombstone);
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.overtaken.retain(|told| told != tombstone);
        }
    }

    /// The status could not be read; the report goes without.
    pub(in crate::core) fn status_unread(&mut self, key: &ObjectKey, object: Option<&mut Object>) {
        // An operation in flight brings a status with it; until then the hub has the old one.
        if object.is_some_and(|object| object.live.status.unread()) {
            self.dirty.insert(key.into());
        }
    }

    fn is_empty(&self) -> bool {
        self.dirty.is_empty() && self.removed.is_empty() && self.overtaken.is_empty() && self.associated.is_empty()
    }

    /// Objects whose interval is over have news; everything, if this is the last report.
    fn wake(&mut self, now: Monotonic, phase: Phase) {
        let due = self.rate.take(now, phase);
        if !due.is_empty() {
            self.everything(due.iter(), now);
        }
    }

    pub(in crate::core) fn due(&mut self, now: Monotonic) {
        self.timer = None;
        self.since = self.since.map(|since| since.min(now));
    }

    pub(in crate::core) fn is_flying(&self, id: RequestId) -> bool {
        self.in_flight.as_ref().is_some_and(|in_flight| in_flight.id == id)
    }

    /// Whether the report under way was sent in this session.
    pub(in crate::core) fn is_of_session(&self, session: Option<SessionName>) -> bool {
        self.in_flight.as_ref().is_some_and(|in_flight| Some(in_flight.session) == session)
    }

    /// Whether nothing is left to report, or there is nobody to report to.
    pub(in crate::core) fn is_quiet(&self) -> bool {
        self.in_flight.is_none() && (self.is_empty() || self.failures > 0 || self.last_said.is_none())
    }

    /// Whether a last report may be sent: not to a hub that has not answered before.
    pub(in crate::core) fn may_part(&self) -> bool {
        !self.parted && self.failures == 0 && self.last_said.is_some()
    }

    fn is_told(&self, facts: &Facts) -> bool {
        self.told.as_ref().is_some_and(|told| told.facts == *facts && !told.doubted)
    }

    /// The hub may not know the last report, or may be another version of itself: it is told once more how the cluster does.
    pub(in crate::core) fn doubt(&mut self, now: Monotonic) {
        // Who is told by reports alone is told soon enough.
        if let Some(told) = self.told.as_mut().filter(|told| told.in_polls) {
            told.doubted = true;
            self.since.get_or_insert(now);
        }
    }

    /// The hub says that it does not know the report that stands. False if none was named to it.
    pub(in crate::core) fn are_unknown(&mut self, now: Monotonic) -> bool {
        let named = self.told.take_if(|told| told.in_polls).is_some();
        if named {
            self.since.get_or_insert(now);
        }
        named
    }

    pub(in crate::core) fn new_session(&mut self) {
        self.seq = 0;
        self.told = None;
    }
}

impl Core {
    /// An object may have changed.
    pub(in crate::core) fn dirty(&mut self, key: &ObjectKey, now: Monotonic) {
        self.reporting.reports.dirty(self.model.objects.name(key), now);
    }

    /// Sends what is due, or sets the timer for it.
    pub(in crate::core) fn report(&mut self, now: Monotonic, out: &mut Effects) {
        let Some(session) = self.session_name() else { return };
        if self.reporting.reports.in_flight.is_some() {
            return;
        }
        self.reporting.reports.wake(now, self.phase);
        let facts = self.facts(now);
        if !self.reporting.reports.is_told(&facts) {
            self.reporting.reports.since.get_or_insert(now);
        }
        let gather = if self.phase == Phase::Running { GATHER } else { Duration::ZERO };
        let beat = self.beat();
        let heartbeat = self.reporting.reports.last_said.map(|sent| sent + beat);
        let change = self.reporting.reports.since.map(|since| since + gather);
        let Some(due) = [heartbeat, change, self.reporting.reports.rate.next_due()].into_iter().flatten().min() else {
            return;
        };
        let due = self.reporting.reports.not_before.map_or(due, |not_before| due.max(not_before));
        if due > now {
            if self.reporting.reports.timer != Some(due) {
                self.reporting.reports.timer = Some(due);
                out.push(Effect::SetTimer { timer: Timer::Report, at: due });
            }
            return;
        }
        let page = self.report_page(now);
        let beat_due = heartbeat.is_none_or(|at| at <= now);
        let silent = page.objects.is_empty() && page.associated.is_empty();
        let silent = silent && page.removed.is_empty() && page.overtaken.is_empty();
        let news = !silent || !self.reporting.reports.is_told(&facts);
        self.reporting.reports.since = (!self.reporting.reports.is_empty()).then_some(now);
        if !news && !beat_due {
            let rest = self.reporting.reports.since.map(|since| since + gather);
            if let Some(at) = [heartbeat, self.reporting.reports.rate.next_due(), rest].into_iter().flatten().min() {
                self.reporting.reports.timer = Some(at);
                out.push(Effect::SetTimer { timer: Timer::Report, at });
            }
            return;
        }
        self.send_page(now, session, page, facts, out);
    }

    /// How long after the hub was told last that the cluster does well it is told again by a report: so that it is told twice
    /// before it calls the target stale, whatever becomes of one word. Polls may say it often enough.
    fn beat(&self) -> Duration {
        let stale_after = self.sync.session.stale_after();
        let (beat, polls) = (stale_after / HEARTBEATS, self.sync.session.poll_wait() + POLL_LATE_MAX);
        let in_polls = self.reporting.reports.told.as_ref().is_some_and(|told| told.in_polls);
        if in_polls && polls <= stale_after / 2 { beat.max(polls) } else { beat }
    }

    /// What a poll that goes out now says of the last report.
    pub(in crate::core) fn report_that_stands(&mut self, now: Monotonic) -> Option<Stands> {
        let facts = self.facts(now);
        let reports = &mut self.reporting.reports;
        let told = reports.told.as_mut().filter(|told| told.in_polls && told.facts == facts)?;
        told.polls += 1;
        let stands = Stands { report: told.report, nth: told.polls };
        if facts.in_sync && !told.doubted {
            reports.last_said = Some(now);
        }
        if told.polls == POLLS_OF_A_REPORT {
            reports.doubt(now);
        }
        Some(stands)
    }

    fn send_page(&mut self, now: Monotonic, session: SessionName, page: Page, facts: Facts, out: &mut Effects) {
        let id = self.sync.session.request();
        self.reporting.reports.seq += 1;
        self.reporting.reports.last_said = Some(now);
        self.reporting.reports.applied = facts.applied;
        self.reporting.reports.in_flight = Some(InFlight {
            id,
            session,
            seq: self.reporting.reports.seq,
            objects: page.told,
            associated: page.associated_told,
            removed: page.removed.clone(),
            overtaken: page.overtaken.clone(),
            facts: facts.clone(),
        });
        let Facts { applied, in_sync, conditions, decommission } = facts;
        let request = ReportedRequest {
            session,
            seq: self.reporting.reports.seq,
            accepted: self.sync.sets.current(),
            applied,
            in_sync,
            conditions,
            objects: page.objects,
            associated: page.associated,
            removed: page.removed,
            terminal: page.terminal,
            overtaken: page.overtaken,
            decommission,
            goodbye: self.reporting.reports.parted,
        };
        out.push(Effect::Send { id, request: Request::Reported(request) });
    }

    /// Sends the last report, which says that this process uses its session no more. True while that is in flight: a hub that
    /// does not answer is not waited for, and one that has not answered before gets none.
    pub(in crate::core) fn say_goodbye(&mut self, now: Monotonic, out: &mut Effects) -> bool {
        let Some(session) = self.session_name().filter(|_| self.sync.mode == AgentMode::Active) else { return false };
        if !self.reporting.reports.may_part() {
            return false;
        }
        self.reporting.reports.parted = true;
        let facts = self.facts(now);
        self.send_page(now, session, Page::default(), facts, out);
        true
    }

    pub(in crate::core) fn reported(&mut self, now: Monotonic, result: Result<Answer, LinkFailure>, out: &mut Effects) {
        let Some(in_flight) = self.reporting.reports.in_flight.take() else { return };
        let InFlight { id: _, session, seq, objects, associated, removed, overtaken, facts } = in_flight;
        match result {
            Ok(Answer::Reported(ReportedAnswer { seq: _, memory, stands: in_polls })) => {
                self.reporting.reports.failures = 0;
                self.reporting.reports.not_before = None;
                let present = self.sync.session.name == Some(session);
                self.reporting.reports.told =
                    present.then_some(Told { facts, report: seq, in_polls, polls: 0, doubted: false });
                for (key, told) in objects {
                    self.model.compact_if_many();
                    self.acknowledged(&key, told);
                }
                for (key, source, digest) in associated {
                    self.reporting.associates.said_to_hub(key, source, Some(digest));
                }
                for tombstone in removed.iter().chain(&overtaken) {
                    self.model.compact_if_many();
                    self.removal_acknowledged(now, tombstone);
                }
                let former = self.reporting.reports.memory.replace(memory);
                if former.is_some_and(|former| former != memory) {
                    self.resend(now, out);
                }
            }
            other => {
                self.reporting.reports.failures = self.reporting.reports.failures.saturating_add(1);
                let wait = self.wait_after(self.reporting.reports.failures, other.err().as_ref());
                self.reporting.reports.not_before = Some(now + wait);
                // The hub may have taken it or not: earlier acknowledgements do not count.
                self.reporting.reports.told = None;
                for (key, _) in objects {
                    self.model.compact_if_many();
                    self.dirty(&key, now);
                    if let Some(object) = self.model.objects.get_mut(&key) {
                        object.told = None;
                    }
                }
                for (key, source, _) in associated {
                    self.reporting.reports.associated(&key, now);
                    self.reporting.associates.said_to_hub(key, source, None);
                }
                for tombstone in removed {
                    if self.model.removals.contains_key(&tombstone) || !is_reportable(&self.model, &tombstone) {
                        self.reporting.reports.removed.insert(tombstone);
                    }
                }
                let open = overtaken.into_iter().filter(|tombstone| self.model.removals.contains_key(tombstone));
                self.reporting.reports.overtaken.extend(open);
            }
        }
    }

    fn acknowledged(&mut self, key: &ObjectKey, told: ReportDigest) {
        let changed = self.reporting.reports.dirty.contains(key);
        if let Some(object) = self.model.objects.get_mut(key) {
            object.told = Some(told);
            if !changed {
                object.live.status.reported();
            }
        }
    }

    fn removal_acknowledged(&mut self, now: Monotonic, tombstone: &Tombstone) {
        if self.model.removals.get(tombstone).is_some_and(Removal::is_done) {
            self.model.disk.write(Write::Removed(tombstone.clone()));
            self.forget_removal(tombstone);
            // An object of ours may exist that the removal was not about.
            self.dirty(&tombstone.key, now);
        }
    }

    /// The hub forgot what it was told.
    pub(in crate::core) fn resend(&mut self, now: Monotonic, out: &mut Effects) {
        let names: Vec<KeyRef> = self.model.objects.names().cloned().collect();
        let mut awaited: BTreeSet<GroupKind> = BTreeSet::new();
        for name in &names {
            let asked = self.model.report_class(name.key()).has_body();
            if let Some(object) = self.model.objects.get_mut(name.key()) {
                object.told = None;
                // The list brings it again.
                if asked && object.live.status.list_again() && !awaited.contains(&name.key().kind) {
                    awaited.insert(name.key().kind.clone());
                }
            }
            self.model.compact_if_many();
        }
        self.reporting.reports.everything(names.iter(), now);
        self.repeat_associated(now);
        let done = self.model.removals.iter().filter(|(_, removal)| removal.is_done());
        let done: Vec<_> = done.map(|(tombstone, _)| tombstone.clone()).collect();
        let (overtaken, removed): (Vec<_>, Vec<_>) =
            done.into_iter().partition(|tombstone| self.model.is_assigned_again(tombstone));
        self.reporting.reports.removed.extend(removed);
        self.reporting.reports.overtaken.extend(overtaken);
        if !awaited.is_empty() {
            out.push(Effect::Relist(awaited.into_iter().collect()));
        }
    }

    fn facts(&self, now: Monotonic) -> Facts {
        let mut conditions = self.model.kinds.conditions(&self.model.forbidden_kinds);
        conditions.extend(self.sync.session.conditions());
        conditions.extend(self.guards.gates.conditions(&self.model));
        conditions.extend(self.work.awaited_wave(now));
        conditions.extend(copies::condition(&self.audit.copies));
        conditions.extend(unexplained::condition(&self.model, &self.audit.unexplained));
        conditions.extend(self.sync.history_condition());
        for condition in self.reporting.associates.conditions() {
            match conditions.iter_mut().find(|known| known.reason == condition.reason) {
                Some(known) => known.count += condition.count,
                None => conditions.push(condition),
            }
        }
        if let Some(problem) = self.model.disk.problem() {
            let message = format!("{problem}; retrying. Until a write succeeds, no new set is accepted");
            conditions.push(TargetCondition { reason: Reason::Unavailable, count: 1, message });
        }
        for condition in &mut conditions {
            truncate(&mut condition.message, MESSAGE_BYTES_MAX);
        }
        let tried = self.work.all_tried() && !self.guards.gates.hold_any();
        let applied = self
            .sync
            .sets
            .current()
            .filter(|_| tried)
            .map(|Accepted { version, .. }| version)
            .or(self.reporting.reports.applied);
        // Where nothing is to be watched, watches do not tell how the cluster does.
        let in_sync =
            self.sync.sets.current().is_some() && self.sync.cluster_identity.answers() && self.model.kinds.in_sync();
        Facts { applied, in_sync, conditions, decommission: self.model.decommissioned() }
    }
}

/// The first eight bytes of the digest.
fn short(bytes: &[u8]) -> u64 {
    let digest = Digest::of(bytes);
    digest.as_bytes().iter().take(size_of::<u64>()).fold(0, |short, byte| short << 8 | u64::from(*byte))
}

/// Truncates a message that is too long.
fn bounded(mut message: String) -> String {
    truncate(&mut message, MESSAGE_BYTES_MAX);
    message
}

/// Whether an object that the hub is told of exists for this source.
fn is_reportable(model: &Model, Tombstone { key, source }: &Tombstone) -> bool {
    let assigned = model.assigns(key, source);
    assigned || model.objects.get(key).is_some_and(|object| object.unexplained.as_ref() == Some(source))
}

/// The results of our own operations on one object; none if there is nothing to report.
fn object_report(model: &Model, key: &ObjectKey, object: &Object) -> Option<ObjectReport> {
    let (source_uid, progress, reason, message) = if let Some(entry) = model.desired.get(key) {
        let Outcome { progress, reason, message } = &object.outcome;
        (entry.source.uid.clone(), *progress, *reason, message.clone())
    } else {
        leaving(model, key, object)?
    };
    let terminal = object.happened(&source_uid).filter(|fact| fact.happened());
    Some(ObjectReport {
        key: key.clone(),
        source_uid,
        progress,
        reason,
        message: bounded(message),
        input: object.record.as_ref().map(|record| record.input),
        health: Health::Unknown,
        observed_generation: None,
        terminal,
        status: None,
    })
}

/// The report of an object that is not assigned.
fn leaving(model: &Model, key: &ObjectKey, object: &Object) -> Option<(Uid, Progress, Option<Reason>, String)> {
    let mut removals = model.removals_of(key).peekable();
    if removals.peek().is_some() {
        // A held removal waits for a person; the other removals of the key wait for it.
        let (tombstone, removal) =
            removals.filter(|(_, removal)| !removal.is_done()).max_by_key(|(_, removal)| removal.is_held())?;
        let (progress, reason, message) = match removal.state() {
            RemovalState::Waiting | RemovalState::Done => (Progress::Deleting, None, String::new()),
            RemovalState::WaitingForWave(what) => (Progress::Deleting, Some(Reason::WaitingForWave), what.clone()),
            RemovalState::Finalizing => (Progress::Deleting, Some(Reason::Finalizing), String::new()),
            RemovalState::Held(reason, message) => (Progress::DeletionHeld, Some(*reason), message.clone()),
        };
        return Some((tombstone.source.clone(), progress, reason, message));
    }
    let source = model.left_over(key)?;
    let seen = object.seen().filter(|seen| !seen.deleting);
    let verdict = may_delete(&Evidence {
        me: model.me()?,
        key,
        ground: if model.is_restored(key) { Ground::Restored } else { Ground::Unexplained },
        entry: None,
        record: object.record.as_ref(),
        policy: RemovalPolicy::default(),
        applied: None,
        assigned: None,
        seen,
        unshown: false,
        view: model.kinds.view(key),
        inspection: None,
        fresh: false,
        journal: model.journal_age,
        leaves_too: false,
        decommission: model.decommission,
    });
    match verdict {
        Verdict::Hold(reason) => Some((source, Progress::DeletionHeld, Some(reason), String::new())),
        Verdict::Delete(_)
        | Verdict::Orphan(_)
        | Verdict::Inspect
        | Verdict::Read
        | Verdict::TransferOwnership
        | Verdict::Forget
        | Verdict::Wait => None,
    }
}

#[cfg(test)]
mod tests;
