//! One object over all of its targets, summed up by sets of these.

use roaring::RoaringBitmap;
use tideline_common::health::Health;
use tideline_common::rollup::{Counts, Freshness, MadeOver, ObjectStatus};
use tideline_common::wire::v1::{ObjectReport, Progress};
use tideline_common::{Digest, ObjectKey, Reason, Uid};

use super::objects::Object;
use super::{Summary, made};
use crate::bitmap::TargetIndex;

/// Targets that a rollup names, worst first. More than a person reads at a glance.
pub const WORST_MAX: usize = 5;

/// Targets to which an object is assigned, as the ledger sees it: those that should hold the same.
#[derive(Clone, Debug)]
pub struct Expectation<'a> {
    /// The place there.
    pub key: &'a ObjectKey,
    pub due: Due,
    /// None of them in another of the same object and place.
    pub targets: RoaringBitmap,
}

/// What targets should hold by now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    Input(Digest),
    /// What they have, if anything.
    NothingNew,
    /// Nothing: another source holds the destination, and the targets know of that one only.
    Another,
    /// What they have, if anything: their agents do not understand what is to be done. What to do about that, for people.
    TooOld(String),
}

/// How far targets are believed: all others are unheard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    fresh: RoaringBitmap,
    stale: RoaringBitmap,
}

impl Heard {
    pub fn set(&mut self, target: TargetIndex, freshness: Freshness) {
        self.fresh.remove(target);
        self.stale.remove(target);
        match freshness {
            Freshness::Fresh => self.fresh.insert(target),
            Freshness::Stale => self.stale.insert(target),
            Freshness::Unheard => false,
        };
    }

    pub fn of(&self, target: TargetIndex) -> Freshness {
        if self.fresh.contains(target) {
            Freshness::Fresh
        } else if self.stale.contains(target) {
            Freshness::Stale
        } else {
            Freshness::Unheard
        }
    }

    /// These, by how far they are believed.
    fn parts(&self, targets: &RoaringBitmap) -> impl Iterator<Item = (Freshness, RoaringBitmap)> {
        let (fresh, stale) = (targets & &self.fresh, targets & &self.stale);
        let unheard =
            if fresh.len() + stale.len() < targets.len() { targets - &fresh - &stale } else { RoaringBitmap::new() };
        let parts = [(Freshness::Fresh, fresh), (Freshness::Stale, stale), (Freshness::Unheard, unheard)];
        parts.into_iter().filter(|(_, targets)| !targets.is_empty())
    }
}

/// What is said of targets where another source holds the destination. Whose that is may be none of this space's business.
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
    pub target: TargetIndex,
    /// The place there.
    pub key: ObjectKey,
    pub reason: Reason,
    pub message: String,
    rank: u8,
}

/// Sums up one object. `leaving` is where it is no longer assigned and not gone.
pub fn overview<'a>(
    summary: &Summary,
    heard: &Heard,
    source: &Uid,
    expected: impl Iterator<Item = Expectation<'a>>,
    leaving: impl Iterator<Item = (&'a ObjectKey, RoaringBitmap)>,
) -> Overview {
    let mut overview = Overview::default();
    for Expectation { key, due, targets } in expected {
        let input = match due {
            Due::Input(input) => Some(input),
            Due::NothingNew => None,
            Due::Another => {
                overview.withheld(key, &targets, Reason::Conflict, ANOTHER);
                continue;
            }
            Due::TooOld(what_to_do) => {
                overview.withheld(key, &targets, Reason::AgentTooOld, &what_to_do);
                continue;
            }
        };
        match summary.objects.of(key, source) {
            Some(object) => overview.reported(key, input, object, heard, targets),
            None => overview.silent(key, &targets),
        }
    }
    for (key, targets) in leaving {
        overview.counts += Counts::deleting() * targets.len();
        let said = summary.objects.of(key, source).into_iter().flat_map(|object| object.said_by(&targets));
        for (report, by) in said.filter(|(report, _)| report.progress == Progress::DeletionHeld) {
            let reason = report.reason.unwrap_or(Reason::Unknown);
            overview.name(key, &by, (WITHHELD_RANK, reason), |_| report.message.clone());
        }
    }
    overview.worst.sort_by_key(|worst| (worst.rank, worst.target));
    overview.worst.truncate(WORST_MAX);
    overview
}

impl Overview {
    fn withheld(&mut self, key: &ObjectKey, targets: &RoaringBitmap, reason: Reason, message: &str) {
        self.counts += Counts::withheld() * targets.len();
        self.name(key, targets, (WITHHELD_RANK, reason), |_| message.to_owned());
    }

    /// Targets that have said nothing.
    fn silent(&mut self, key: &ObjectKey, targets: &RoaringBitmap) {
        self.add(key, targets, None, None, |_| String::new());
    }

    fn reported(
        &mut self,
        key: &ObjectKey,
        input: Option<Digest>,
        object: &Object,
        heard: &Heard,
        targets: RoaringBitmap,
    ) {
        let mut silent = targets.clone();
        for (report, by) in object.said_by(&targets) {
            silent -= &by;
            let current = input.is_some() && report.input == input;
            for (fresh, part) in heard.parts(&by) {
                let ObjectReport { progress, health, .. } = *report;
                let standing = ObjectStatus { progress, health, current, fresh };
                let message = |target| made::message(report, object.made(target).map(|made| &**made));
                self.add(key, &part, Some(standing), report.reason, message);
            }
        }
        let spoke = targets - &silent;
        for (target, made) in object.made_at(&spoke) {
            self.made.add(made.made.iter().map(|(kind, made)| (*kind, &made.tally)), heard.of(target));
        }
        self.silent(key, &silent);
    }

    /// Counts targets where it stands in one way.
    fn add(
        &mut self,
        key: &ObjectKey,
        targets: &RoaringBitmap,
        standing: Option<ObjectStatus>,
        reason: Option<Reason>,
        message: impl Fn(TargetIndex) -> String,
    ) {
        let counts = Counts::of(standing);
        self.counts += counts * targets.len();
        if let Some(badness) = badness(&counts, reason) {
            self.name(key, targets, badness, message);
        }
    }

    /// Names the first of these targets, unless enough are named where it does worse.
    fn name(
        &mut self,
        key: &ObjectKey,
        targets: &RoaringBitmap,
        (rank, reason): (u8, Reason),
        message: impl Fn(TargetIndex) -> String,
    ) {
        for target in targets.iter().take(WORST_MAX) {
            if self.worst.len() >= WORST_MAX {
                self.worst.sort_by_key(|worst| (worst.rank, worst.target));
                self.worst.truncate(WORST_MAX);
                if self.worst.last().is_some_and(|last| (last.rank, last.target) <= (rank, target)) {
                    return;
                }
            }
            self.worst.push(Worst { target, key: key.clone(), reason, message: message(target), rank });
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
