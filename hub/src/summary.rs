//! What targets reported, and what that comes to: the rollup of every placed object, and the exact status of those that
//! are placed once.
//!
//! Reports are kept in memory: agents keep theirs until acknowledged, and send all again when this hub asks. They are kept by
//! object, as sets of those who say the same. So a rollup, which is computed when it is read, from the ledger's assignments
//! and these, costs a few operations on sets, and cannot drift from either.

mod exact;
mod held;
mod made;
mod objects;
mod overview;
mod screen;
mod target;

use std::collections::BTreeMap;
use std::sync::Arc;

use tideline_common::wire::v1::{Accepted, AssociatedReport, ObjectReport, ReportedRequest, TerminalFact};
use tideline_common::{ObjectKey, TargetId, Tombstone, Uid};

use crate::bitmap::TargetIndex;
use crate::limits::REPORTED_BYTES_BASE;
use crate::placement::Change;
use objects::{Object, Objects};
use target::{Known, Left, Speaker};

pub use exact::exact_status;
pub use held::Waiting;
pub use made::waiting;
pub use overview::{
    Due, Expectation, Heard, Overview, WORST_MAX, Worst, overview, withheld_for_another, withheld_from_too_old,
};
pub use screen::{Breach, Concern, Scope, Screened, Service, screen};
pub use target::TargetReports;

/// So many statuses that no word says any more gather before they are looked at.
const SETTLED_AT: usize = 64;

/// The latest reports of all targets.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    targets: BTreeMap<TargetId, Known>,
    objects: Objects,
    /// What is left of statuses of targets of which nothing else is known any more.
    left: BTreeMap<TargetId, Left>,
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
    /// Takes in a report of the target of this number. Absolute: taking it in again changes nothing.
    pub fn take(&mut self, target: TargetId, index: TargetIndex, mut report: ReportedRequest) -> Taken {
        if self.targets.get(&target).is_some_and(|known| known.index != index) {
            self.forget(target);
        }
        let left = &mut self.left;
        let known = self.targets.entry(target);
        let known = known.or_insert_with(|| Known::new(index, left.remove(&target).unwrap_or_default()));
        let mut speaker = Speaker { known, objects: &mut self.objects };
        speaker.stands(&mut report);
        let mut taken = Taken { accepted: report.accepted, overtaken: report.overtaken, ..Taken::default() };
        if speaker.known.session != report.session {
            speaker.known.session = report.session;
            taken.news.extend(speaker.as_read().all_made().map(|made| made.key.clone()));
            speaker.forget_made();
        }
        for made in report.associated {
            if speaker.as_read().made(&made.key).map_or(!made.made.is_empty(), |former| **former != made) {
                taken.news.push(made.key.clone());
            }
            speaker.remove_made(&made.key);
            if !made.made.is_empty() {
                speaker.insert_made(made);
            }
        }
        for object in report.objects {
            if speaker.as_read().said(&object.key).is_some_and(|former| **former == object) {
                continue;
            }
            taken.news.push(object.key.clone());
            if object.status.is_some() {
                taken.changed.push(object.key.clone());
            }
            speaker.insert(object);
        }
        for tombstone in report.removed {
            let known = speaker.as_read();
            taken.news.push(tombstone.key.clone());
            let told = known.said(&tombstone.key).is_some_and(|object| object.source_uid == tombstone.source);
            let made = known.made(&tombstone.key).is_some_and(|made| made.source_uid == tombstone.source);
            if told {
                speaker.remove(&tombstone.key);
            }
            if made {
                speaker.remove_made(&tombstone.key);
            }
            taken.changed.push(tombstone.key.clone());
            taken.confirmed.push(tombstone);
        }
        taken
    }

    pub fn forget(&mut self, target: TargetId) {
        if let Some(mut known) = self.targets.remove(&target) {
            Speaker { known: &mut known, objects: &mut self.objects }.forget();
        }
        self.left.remove(&target);
    }

    /// Forgets what a target has said. What it had written into spaces goes on being counted.
    pub fn forget_words(&mut self, target: TargetId) {
        if let Some(mut known) = self.targets.remove(&target) {
            Speaker { known: &mut known, objects: &mut self.objects }.leave_all();
            self.left.insert(target, known.left);
        }
    }

    /// Goes on counting the statuses that were said of these, which the target says are gone while something is assigned
    /// there.
    pub fn leave(&mut self, target: TargetId, keys: &[ObjectKey]) {
        let Some(known) = self.targets.get_mut(&target) else { return };
        let mut speaker = Speaker { known, objects: &mut self.objects };
        for key in keys {
            speaker.leave(key);
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

    pub fn target(&self, target: TargetId) -> Option<TargetReports<'_>> {
        Some(TargetReports { known: self.targets.get(&target)?, objects: &self.objects })
    }

    /// What a target says of one object, if it speaks of this source.
    pub fn report(&self, target: TargetId, key: &ObjectKey, source: &Uid) -> Option<&Arc<ObjectReport>> {
        let index = self.targets.get(&target)?.index;
        self.objects.of(key, source)?.report(index)
    }

    /// How much of what is said of one object is kept by target.
    pub fn kept_apart(&self, key: &ObjectKey, source: &Uid) -> usize {
        self.objects.of(key, source).map_or(0, Object::kept_apart)
    }

    /// What a target says was made of one object, if it speaks of this source.
    pub fn made(&self, target: TargetId, key: &ObjectKey, source: &Uid) -> Option<&Arc<AssociatedReport>> {
        let index = self.targets.get(&target)?.index;
        self.objects.of(key, source)?.made(index)
    }
}

#[cfg(test)]
pub(crate) mod tests;
