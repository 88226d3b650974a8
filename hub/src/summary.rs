//! What targets reported, and what that comes to: the rollup of every placed object, and the exact status of those that
//! are placed once.
//!
//! Reports are kept in memory: agents keep theirs until acknowledged, and send all again when this hub asks. A rollup is
//! computed when it is read, from the ledger's assignments and the reports, so it cannot drift from either.

mod alike;
mod exact;
mod held;
mod made;
mod screen;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tideline_common::health::Health;
use tideline_common::rollup::{Counts, Freshness, MadeOver, ObjectStatus};
use tideline_common::wire::v1::{
    Accepted, AssociatedReport, DecommissionReport, ObjectReport, Progress, ReportedRequest, TargetCondition,
    TerminalFact,
};
use tideline_common::{Digest, ObjectKey, Reason, SessionName, TargetId, Tombstone, Uid, Version};

use crate::limits::REPORTED_BYTES_BASE;
use crate::placement::Change;
use alike::Alike;
use held::is_held;

pub use exact::exact_status;
pub use held::Waiting;
pub use made::waiting;
pub use screen::{Breach, Concern, Scope, Screened, Service, screen};

/// Targets that a rollup names, worst first. More than a person reads at a glance.
pub const WORST_MAX: usize = 5;

/// So many statuses that no word says any more gather before they are looked at.
const SETTLED_AT: usize = 64;

/// The latest reports of all targets.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    targets: BTreeMap<TargetId, TargetReports>,
    alike: Alike,
    /// What is left of statuses of targets of which nothing else is known any more.
    left: BTreeMap<TargetId, Left>,
}

/// Bytes of statuses that were said of sources, and that no word says any more.
type Left = BTreeMap<ObjectKey, BTreeMap<Uid, usize>>;

/// What one target says.
#[derive(Clone, Debug, Default)]
pub struct TargetReports {
    pub accepted: Option<Accepted>,
    pub applied: Option<Version>,
    pub conditions: Vec<TargetCondition>,
    /// How far it has gone out of service.
    pub decommission: Option<DecommissionReport>,
    objects: BTreeMap<ObjectKey, Arc<ObjectReport>>,
    /// What was made of objects, as this session says.
    made: BTreeMap<ObjectKey, Arc<AssociatedReport>>,
    session: SessionName,
    /// They may stand in a space still, as long as the source is assigned there.
    left: Left,
    /// How many were left when that was looked at last.
    settled: usize,
    /// The keys of what is not removed for now.
    held: BTreeSet<ObjectKey>,
    waiting: Waiting,
    /// What all of it takes, about.
    bytes: usize,
}

/// What a report changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// The set that the target had accepted when it said so.
    pub accepted: Option<Accepted>,
    /// Keys of objects of which anything is known that was not before.
    pub news: Vec<ObjectKey>,
    /// Keys of which another status than before may be known.
    pub changed: Vec<ObjectKey>,
    /// Removals that the target says are done.
    pub confirmed: Vec<Tombstone>,
    /// Those that came to nothing, because their places were assigned again.
    pub overtaken: Vec<Tombstone>,
}

impl Taken {
    /// Whether the ledger is to be told of removals before the report is acknowledged.
    pub fn confirms(&self) -> bool {
        !self.confirmed.is_empty() || !self.overtaken.is_empty()
    }

    /// What the ledger is to be told of the report, `facts` in it included: what was created is created anew only where it
    /// was taken out and assigned again, and what is removed has run before.
    pub fn changes(
        self,
        target: TargetId,
        facts: impl IntoIterator<Item = TerminalFact>,
    ) -> impl Iterator<Item = Change> {
        // Who has accepted nothing was told of no removal.
        let at = self.accepted.map(|accepted| accepted.version).unwrap_or_default();
        let overtaken = self.overtaken.into_iter().map(move |tombstone| Change::Overtaken(target, at, tombstone));
        let happened = facts.into_iter().map(move |fact| Change::Happened(target, fact));
        let confirmed = self.confirmed.into_iter().map(move |tombstone| Change::Confirm(target, at, tombstone));
        overtaken.chain(happened).chain(confirmed)
    }
}

impl Summary {
    /// Takes in a report. Absolute: taking it in again changes nothing.
    pub fn take(&mut self, target: TargetId, report: ReportedRequest) -> Taken {
        let left = &mut self.left;
        let known = self.targets.entry(target).or_insert_with(|| TargetReports::with(left.remove(&target)));
        known.accepted = report.accepted;
        known.applied = report.applied;
        known.conditions = report.conditions;
        known.decommission = report.decommission;
        let mut taken = Taken { accepted: report.accepted, overtaken: report.overtaken, ..Taken::default() };
        if known.session != report.session {
            known.session = report.session;
            taken.news.extend(known.made.keys().cloned());
            known.forget_made();
        }
        for made in report.associated {
            if known.made.get(&made.key).map_or(!made.made.is_empty(), |former| **former != made) {
                taken.news.push(made.key.clone());
            }
            known.remove_made(&made.key);
            if !made.made.is_empty() {
                known.bytes += screen::made_weight(&made);
                known.made.insert(made.key.clone(), Arc::new(made));
            }
        }
        for object in report.objects {
            if known.objects.get(&object.key).is_some_and(|former| **former == object) {
                continue;
            }
            taken.news.push(object.key.clone());
            if object.status.is_some() {
                taken.changed.push(object.key.clone());
            }
            known.insert(self.alike.once(object));
        }
        for tombstone in report.removed {
            taken.news.push(tombstone.key.clone());
            if known.objects.get(&tombstone.key).is_some_and(|object| object.source_uid == tombstone.source) {
                known.remove(&tombstone.key);
            }
            if known.made.get(&tombstone.key).is_some_and(|made| made.source_uid == tombstone.source) {
                known.remove_made(&tombstone.key);
            }
            taken.changed.push(tombstone.key.clone());
            taken.confirmed.push(tombstone);
        }
        taken
    }

    pub fn forget(&mut self, target: TargetId) {
        self.targets.remove(&target);
        self.left.remove(&target);
    }

    /// Forgets what a target has said. What it had written into spaces goes on being counted.
    pub fn forget_words(&mut self, target: TargetId) {
        if let Some(mut known) = self.targets.remove(&target) {
            for key in known.objects.keys().cloned().collect::<Vec<_>>() {
                known.leave(&key);
            }
            self.left.insert(target, known.left);
        }
    }

    /// Goes on counting the statuses that were said of these, which the target says are gone while something is assigned
    /// there.
    pub fn leave(&mut self, target: TargetId, keys: &[ObjectKey]) {
        let Some(known) = self.targets.get_mut(&target) else { return };
        for key in keys {
            known.leave(key);
        }
    }

    /// Where much is kept of a target: no longer counts the statuses that stand in no space, since the source is not
    /// `assigned` any more. That is looked at when twice as much is left as it was after the last time.
    pub fn settle(&mut self, target: TargetId, assigned: impl Fn(&ObjectKey, &Uid) -> bool) {
        let Some(known) = self.targets.get_mut(&target) else { return };
        if known.bytes < REPORTED_BYTES_BASE / 2 || known.left.len() <= 2 * known.settled + SETTLED_AT {
            return;
        }
        let mut gone = 0;
        known.left.retain(|key, by_source| {
            by_source.retain(|source, bytes| {
                let stays = assigned(key, source);
                gone += if stays { 0 } else { *bytes };
                stays
            });
            !by_source.is_empty()
        });
        known.bytes -= gone;
        known.settled = known.left.len();
    }

    pub fn target(&self, target: TargetId) -> Option<&TargetReports> {
        self.targets.get(&target)
    }

    /// What a target says of one object, if it speaks of this source.
    pub fn report(&self, target: TargetId, key: &ObjectKey, source: &Uid) -> Option<&Arc<ObjectReport>> {
        self.target(target)?.report(key, source)
    }

    /// What a target says was made of one object, if it speaks of this source.
    pub fn made(&self, target: TargetId, key: &ObjectKey, source: &Uid) -> Option<&Arc<AssociatedReport>> {
        self.target(target)?.made(key, source)
    }
}

impl TargetReports {
    fn with(left: Option<Left>) -> Self {
        let left = left.unwrap_or_default();
        Self { bytes: left.values().flat_map(BTreeMap::values).sum(), left, ..Self::default() }
    }

    fn report(&self, key: &ObjectKey, source: &Uid) -> Option<&Arc<ObjectReport>> {
        self.objects.get(key).filter(|report| report.source_uid == *source)
    }

    fn made(&self, key: &ObjectKey, source: &Uid) -> Option<&Arc<AssociatedReport>> {
        self.made.get(key).filter(|made| made.source_uid == *source)
    }

    pub fn objects(&self) -> impl Iterator<Item = &Arc<ObjectReport>> {
        self.objects.values()
    }

    /// What is held that was to be removed, for whatever reason.
    pub fn held(&self) -> impl Iterator<Item = &Arc<ObjectReport>> {
        self.held.iter().filter_map(|key| self.objects.get(key))
    }

    /// How much that is. Asked with every report.
    pub fn held_count(&self) -> usize {
        self.held.len()
    }

    /// How much of that a person may approve.
    pub fn waiting(&self) -> Waiting {
        self.waiting
    }

    fn insert(&mut self, report: Arc<ObjectReport>) {
        let key = report.key.clone();
        if self.outlives(&report).is_some() {
            self.leave(&key);
        }
        self.remove(&key);
        if report.status.is_some() {
            self.take_left(&key, &report.source_uid);
        }
        if is_held(&report) {
            self.held.insert(key.clone());
        }
        self.waiting.add(Waiting::of(&report));
        self.bytes += screen::weight(&report);
        self.objects.insert(key, report);
    }

    fn remove(&mut self, key: &ObjectKey) {
        if let Some(former) = self.objects.remove(key) {
            self.held.remove(key);
            self.waiting.subtract(Waiting::of(&former));
            self.bytes -= screen::weight(&former);
        }
    }

    /// What was said before this, if this says no status in the place of its own.
    fn outlives(&self, report: &ObjectReport) -> Option<&ObjectReport> {
        let former = self.objects.get(&report.key)?;
        (report.status.is_none() || former.source_uid != report.source_uid).then_some(former)
    }

    /// The status that is said there goes on being counted, whatever is said next.
    fn leave(&mut self, key: &ObjectKey) {
        let said = self.objects.get(key).map(|object| (object.source_uid.clone(), screen::left_weight(object)));
        if let Some((source, bytes)) = said.filter(|(_, bytes)| *bytes > 0) {
            self.take_left(key, &source);
            self.bytes += bytes;
            self.left.entry(key.clone()).or_default().insert(source, bytes);
        }
    }

    fn take_left(&mut self, key: &ObjectKey, source: &Uid) {
        if let Some(by_source) = self.left.get_mut(key) {
            self.bytes -= by_source.remove(source).unwrap_or_default();
            if by_source.is_empty() {
                self.left.remove(key);
            }
        }
    }

    fn remove_made(&mut self, key: &ObjectKey) {
        if let Some(former) = self.made.remove(key) {
            self.bytes -= screen::made_weight(&former);
        }
    }

    fn forget_made(&mut self) {
        let former = std::mem::take(&mut self.made);
        self.bytes -= former.values().map(|made| screen::made_weight(made)).sum::<usize>();
    }

    /// What is kept of an object before this is said, and after it.
    fn weights(&self, report: &ObjectReport) -> (usize, usize) {
        let ObjectReport { key, source_uid, status, .. } = report;
        let left = self.left.get(key).and_then(|by_source| by_source.get(source_uid)).copied().unwrap_or_default();
        // Without what keeping it costs besides: what is no longer than before has room.
        let stays = self.outlives(report).map_or(0, screen::status_bytes);
        let left_stays = if status.is_none() { left } else { 0 };
        let former = self.objects.get(key).map_or(0, |former| screen::weight(former));
        (former + left, screen::weight(report) + stays + left_stays)
    }

    fn made_weight(&self, key: &ObjectKey) -> usize {
        self.made.get(key).map_or(0, |made| screen::made_weight(made))
    }
}

/// One target to which an object is assigned, as the ledger and the link see it.
#[derive(Clone, Debug)]
pub struct Expectation<'a> {
    pub target: TargetId,
    /// The place there.
    pub key: &'a ObjectKey,
    pub due: Due,
    pub freshness: Freshness,
}

/// What a target should hold by now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    Input(Digest),
    /// What it has, if anything.
    NothingNew,
    /// Nothing: another source holds the destination, and the target knows of that one only.
    Another,
    /// What it has, if anything: its agent does not understand what is to be done. What to do about that, for people.
    TooOld(String),
}

/// What is said of a target where another source holds the destination. Whose that is may be none of this space's business.
const ANOTHER: &str = "another source has its place there, and it gets that when the other goes";

/// What a target would report of such an object, if it knew of it.
pub fn withheld_for_another(key: &ObjectKey, source: &Uid) -> ObjectReport {
    ObjectReport {
        key: key.clone(),
        source_uid: source.clone(),
        progress: Progress::Withheld,
        reason: Some(Reason::Conflict),
        message: ANOTHER.to_owned(),
        input: None,
        health: Health::Unknown,
        observed_generation: None,
        terminal: None,
        status: None,
    }
}

/// What a target reports of such an object, with what its agent cannot say: what it lacks.
pub fn withheld_from_too_old(
    report: Option<ObjectReport>,
    key: &ObjectKey,
    source: &Uid,
    message: String,
) -> ObjectReport {
    let (progress, reason) = (Progress::Withheld, Some(Reason::AgentTooOld));
    let report = report.unwrap_or_else(|| withheld_for_another(key, source));
    ObjectReport { progress, reason, message, ..report }
}

/// The state of one object over all of its targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    pub counts: Counts,
    /// Targets where it does worst, at most [`WORST_MAX`].
    pub worst: Vec<Worst>,
    /// What was made of it.
    pub made: MadeOver,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worst {
    pub target: TargetId,
    /// The place there.
    pub key: ObjectKey,
    pub reason: Reason,
    pub message: String,
    rank: u8,
}

/// Sums up one object. `leaving` is where it is no longer assigned and not gone.
pub fn overview<'a>(
    summary: &Summary,
    source: &Uid,
    expected: impl Iterator<Item = Expectation<'a>>,
    leaving: impl Iterator<Item = (TargetId, &'a ObjectKey)>,
) -> Overview {
    let mut overview = Overview::default();
    for Expectation { target, key, due, freshness } in expected {
        let input = match due {
            Due::Input(input) => Some(input),
            Due::NothingNew => None,
            Due::Another => {
                overview.counts += Counts::withheld();
                let (reason, message) = (Reason::Conflict, ANOTHER.to_owned());
                overview.name(Worst { target, key: key.clone(), reason, message, rank: WITHHELD_RANK });
                continue;
            }
            Due::TooOld(message) => {
                overview.counts += Counts::withheld();
                let reason = Reason::AgentTooOld;
                overview.name(Worst { target, key: key.clone(), reason, message, rank: WITHHELD_RANK });
                continue;
            }
        };
        let known = summary.target(target);
        let report = known.and_then(|known| known.report(key, source));
        let standing = report.map(|report| ObjectStatus {
            progress: report.progress,
            health: report.health,
            current: input.is_some() && report.input == input,
            fresh: freshness,
        });
        let made = known.filter(|_| report.is_some()).and_then(|known| known.made(key, source));
        if let Some(made) = made {
            overview.made.add(made.made.iter().map(|(kind, made)| (*kind, &made.tally)), freshness);
        }
        let counts = Counts::of(standing);
        overview.counts += counts;
        if let Some((rank, reason)) = badness(&counts, report.and_then(|report| report.reason)) {
            let message = report.map_or_else(String::new, |report| made::message(report, made.map(|made| &**made)));
            overview.name(Worst { target, key: key.clone(), reason, message, rank });
        }
    }
    for (target, key) in leaving {
        overview.counts += Counts::deleting();
        if let Some(report) = summary.report(target, key, source)
            && report.progress == Progress::DeletionHeld
        {
            let reason = report.reason.unwrap_or(Reason::Unknown);
            let message = report.message.clone();
            overview.name(Worst { target, key: key.clone(), reason, message, rank: WITHHELD_RANK });
        }
    }
    overview.worst.sort_by_key(|worst| (worst.rank, worst.target));
    overview
}

impl Overview {
    /// Names a target, unless enough are named where it does worse.
    fn name(&mut self, worst: Worst) {
        self.worst.push(worst);
        if self.worst.len() > WORST_MAX {
            self.worst.sort_by_key(|worst| (worst.rank, worst.target));
            self.worst.truncate(WORST_MAX);
        }
    }
}

/// How bad it is that something was decided against: nothing fails, and a person may have to act.
const WITHHELD_RANK: u8 = 2;

/// How bad it is at one target, zero first, and why; none where it is well.
fn badness(counts: &Counts, reported: Option<Reason>) -> Option<(u8, Reason)> {
    if counts.failed > 0 {
        Some((0, reported.unwrap_or(Reason::Failed)))
    } else if counts.stale > 0 {
        Some((1, Reason::Stale))
    } else if counts.withheld > 0 {
        Some((WITHHELD_RANK, reported.unwrap_or(Reason::Conflict)))
    } else if counts.unknown > 0 {
        Some((3, reported.unwrap_or(Reason::Unknown)))
    } else if counts.progressing > 0 {
        Some((4, reported.unwrap_or(Reason::Progressing)))
    } else {
        None
    }
}

#[cfg(test)]
pub(crate) mod tests;
