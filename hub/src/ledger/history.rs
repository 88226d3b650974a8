//! Which history this is: segments of it, and a random id of every revision.
//!
//! ```text
//!  segment a: 1 2 3 4   │ segment b: 5 6   │ segment c: 7 8 9 …
//!         a start ──────┘     an hour ─────┘
//! ```
//!
//! A number alone does not tell two histories apart: a store that is set back counts the same numbers again. So a segment
//! begins with a fresh random id at every start, before anybody is answered, and with the first commit of each hour after
//! it; and each revision has a random id, for a machine that is set back while it runs begins no segment.
//!
//! Segments are kept for ever, a few bytes for each: 8,760 a year, and one for each start. One in which nothing was
//! committed gives its place to the next, so that a hub that crashes over and over piles up none. Ids are kept of the
//! newest [`REVISION_IDS_MAX`] revisions, of the last of each segment, of those that a set is at now, and of those that
//! targets were handed or confirmed last, as far as that was written: with each segment.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use tideline_common::{Monotonic, Revision, RevisionId, RevisionPoint, SegmentId, Shown};

use super::pages::Pages;
use super::{Retention, TargetIndex};

/// Newest revisions of which the ids are kept: with a commit every second, those of a day. Some 4 MB in memory.
pub const REVISION_IDS_MAX: u64 = 100_000;
/// Ids that are out of date are looked for once in so many revisions: what sets are at and what targets were told is gathered
/// for that, 20,000 numbers with 10,000 targets.
const IDS_DROPPED_EVERY: u64 = 1_000;
/// A segment lasts so long, until the next commit.
const SEGMENT_LASTS: Duration = Duration::from_hours(1);
/// Targets in one record of what they were told: 20 bytes each, far below what a commit of the store takes.
pub(super) const TOLD_PER_RECORD: u32 = 4096;

/// What no batch may share with another, nor with one of a copy of this hub: drawn anew for each.
#[derive(Clone, Copy, Debug)]
pub struct Fresh {
    pub now: Monotonic,
    pub revision: RevisionId,
    pub segment: SegmentId,
}

/// A part of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub id: SegmentId,
    pub first: Revision,
    /// Below `first` where nothing was committed in it.
    pub last: Revision,
}

/// Whether what an agent shows is part of this history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lineage {
    /// It is: the segment is listed and reaches the revision, and that has the same id.
    Same,
    /// As far as the segment says: the id of the revision is not kept any more. Nothing follows from absence.
    SameSegment,
    /// It is not. The segment ends here with this revision, if it is listed at all.
    Other { reaches: Option<Revision> },
}

/// The revisions that a target was told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) handed: Revision,
    pub(super) confirmed: Revision,
}

#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// By their first revisions; the last one is open.
    segments: Vec<(Revision, SegmentId)>,
    /// The places of all segments in that: an agent of another history asks for its own with every poll.
    places: BTreeMap<SegmentId, usize>,
    /// When the open one began, if that was in this run.
    began: Option<Monotonic>,
    ids: Pages<Revision, RevisionId>,
    told: Pages<TargetIndex, Told>,
    /// Records of `told` that are not as they are on disk.
    untold: BTreeSet<u32>,
}

/// What a batch adds to the history, and what is not kept any more.
#[derive(Clone, Debug, Default)]
pub(super) struct Advance {
    pub(super) segment: Option<(Revision, SegmentId)>,
    /// The open segment, in which nothing was committed.
    pub(super) replaced: Option<(Revision, SegmentId)>,
    began: Option<Monotonic>,
    pub(super) ids: Vec<(Revision, RevisionId)>,
    pub(super) dropped: Vec<Revision>,
    pub(super) told: BTreeMap<u32, Vec<(TargetIndex, Told)>>,
}

impl Advance {
    /// Whether nothing of it is written.
    pub(super) fn is_empty(&self) -> bool {
        let Self { segment, replaced, began: _, ids, dropped, told } = self;
        segment.is_none() && replaced.is_none() && ids.is_empty() && dropped.is_empty() && told.is_empty()
    }
}

/// What a batch is for the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// The hub starts.
    Start,
    /// This revision is made.
    Commit(Revision),
    /// Something is written that is in no set.
    Other,
}

impl History {
    pub(super) fn restore_segment(&mut self, first: Revision, id: SegmentId) {
        self.segments.push((first, id));
    }

    /// All of it was restored, in whatever order.
    pub(super) fn restored(&mut self) {
        self.segments.sort();
        self.places = self.segments.iter().enumerate().map(|(nth, (_, id))| (*id, nth)).collect();
    }

    pub(super) fn restore_id(&mut self, revision: Revision, id: RevisionId) {
        self.ids.insert(revision, id);
    }

    pub(super) fn restore_told(&mut self, target: TargetIndex, told: Told) {
        self.told.insert(target, told);
    }

    /// What follows the present revision. `used` are revisions that sets are at.
    pub(super) fn advance(
        &self,
        fresh: Fresh,
        present: Revision,
        occasion: Occasion,
        retention: Retention,
        used: impl Fn() -> BTreeSet<Revision>,
    ) -> Advance {
        let mut advance = Advance::default();
        let lasts = |began: Monotonic| fresh.now.since(began) < SEGMENT_LASTS;
        let begins = match occasion {
            Occasion::Start => true,
            Occasion::Commit(_) => !self.began.is_some_and(lasts),
            Occasion::Other => false,
        };
        if begins || (self.segments.is_empty() && occasion != Occasion::Other) {
            // What was there before all segments belongs to the first.
            let first = if self.segments.is_empty() { Revision::default() } else { present.next() };
            advance.replaced = self.segments.last().copied().filter(|(open, _)| *open > present);
            advance.segment = Some((first, fresh.segment));
            advance.began = Some(fresh.now);
            for target in &self.untold {
                let chunk = target * TOLD_PER_RECORD..(target + 1).saturating_mul(TOLD_PER_RECORD);
                let told = self.told.range_from(Bound::Included(&chunk.start));
                let told = told.take_while(|(target, _)| chunk.contains(target));
                let told = told.map(|(target, told)| (*target, *told)).collect();
                advance.told.insert(*target, told);
            }
            if !self.ids.contains_key(&present) {
                // It is as random as any.
                advance.ids.push((present, RevisionId::from_uuid(uuid::Uuid::from_bytes(*fresh.segment.as_bytes()))));
            }
        }
        let at = if let Occasion::Commit(revision) = occasion {
            advance.ids.push((revision, fresh.revision));
            revision
        } else {
            present
        };
        if occasion != Occasion::Other {
            advance.dropped = self.outdated(at, retention, begins, used);
        }
        advance
    }

    /// Ids that need not be kept at `revision`: those that it and the ones before it push out, or all that are as old.
    fn outdated(
        &self,
        revision: Revision,
        retention: Retention,
        all: bool,
        used: impl Fn() -> BTreeSet<Revision>,
    ) -> Vec<Revision> {
        let Some(oldest) = revision.0.checked_sub(retention.revision_ids) else { return Vec::new() };
        let from = match revision.0 % IDS_DROPPED_EVERY {
            _ if all => 0,
            // What an earlier run has left behind was looked through when this one began.
            0 => oldest.saturating_sub(IDS_DROPPED_EVERY - 1),
            _ => return Vec::new(),
        };
        let outdated = self.ids.range_from(Bound::Included(&Revision(from))).map(|(revision, _)| *revision);
        let outdated = outdated.take_while(|revision| revision.0 <= oldest);
        let mut outdated: Vec<_> = outdated.filter(|revision| !self.is_last_of_a_segment(*revision)).collect();
        if !outdated.is_empty() {
            let used = used();
            let told: BTreeSet<_> = self.told.values().flat_map(|told| [told.handed, told.confirmed]).collect();
            outdated.retain(|revision| !used.contains(revision) && !told.contains(revision));
        }
        outdated
    }

    fn is_last_of_a_segment(&self, revision: Revision) -> bool {
        self.segments.binary_search_by_key(&revision.next(), |(first, _)| *first).is_ok()
    }

    pub(super) fn take(&mut self, advance: Advance) {
        let Advance { segment, replaced, began, ids, dropped, told } = advance;
        if let Some(segment) = segment {
            if replaced.is_some()
                && let Some((_, id)) = self.segments.pop()
            {
                self.places.remove(&id);
            }
            self.places.insert(segment.1, self.segments.len());
            self.segments.push(segment);
            self.began = began;
        }
        for revision in dropped {
            self.ids.remove(&revision);
        }
        for (revision, id) in ids {
            self.ids.insert(revision, id);
        }
        for chunk in told.keys() {
            self.untold.remove(chunk);
        }
    }

    /// A target was handed the set of a revision.
    pub(super) fn handed(&mut self, target: TargetIndex, revision: Revision) {
        self.tell(target, |told| told.handed = revision);
    }

    #[cfg(test)]
    pub(super) fn handed_last(&self, target: TargetIndex) -> Option<Revision> {
        self.told.get(&target).map(|told| told.handed)
    }

    /// A target says that it accepted the set of a revision. One that says less than before was set back.
    pub(super) fn confirmed(&mut self, target: TargetIndex, revision: Revision) {
        self.tell(target, |told| told.confirmed = told.confirmed.max(revision));
    }

    /// The latest revision that a target said it accepted.
    pub(super) fn confirmed_last(&self, target: TargetIndex) -> Option<Revision> {
        self.told.get(&target).map(|told| told.confirmed)
    }

    fn tell(&mut self, target: TargetIndex, change: impl FnOnce(&mut Told)) {
        let former = self.told.get(&target).copied();
        let mut told = former.unwrap_or_default();
        change(&mut told);
        if former.unwrap_or_default() != told {
            self.told.insert(target, told);
            self.untold.insert(target / TOLD_PER_RECORD);
        }
    }

    pub(super) fn forget(&mut self, target: TargetIndex) {
        if self.told.remove(&target).is_some() {
            self.untold.insert(target / TOLD_PER_RECORD);
        }
    }

    /// What names a revision of this history.
    pub(super) fn point(&self, revision: Revision) -> RevisionPoint {
        let segment = self.at(revision).map(|nth| self.segments[nth].1);
        RevisionPoint {
            segment: segment.unwrap_or(RevisionPoint::NOWHERE.segment),
            id: self.ids.get(&revision).copied().unwrap_or(RevisionPoint::NOWHERE.id),
        }
    }

    /// The place of the segment that a revision is in.
    fn at(&self, revision: Revision) -> Option<usize> {
        self.segments.partition_point(|(first, _)| *first <= revision).checked_sub(1)
    }

    pub(super) fn segments(&self, present: Revision) -> impl DoubleEndedIterator<Item = Segment> + ExactSizeIterator {
        (0..self.segments.len()).map(move |nth| self.segment(nth, present))
    }

    fn segment(&self, nth: usize, present: Revision) -> Segment {
        let (first, id) = self.segments[nth];
        let last = self.segments.get(nth + 1).map_or(present, |(next, _)| Revision(next.0.saturating_sub(1)));
        Segment { id, first, last }
    }

    /// Whether what an agent shows is part of this history, which is at `present`.
    pub(super) fn lineage(&self, present: Revision, shown: Shown) -> Lineage {
        let Shown { version, point: RevisionPoint { segment, id } } = shown;
        let Some(nth) = self.places.get(&segment) else { return Lineage::Other { reaches: None } };
        let listed = self.segment(*nth, present);
        if !(listed.first..=listed.last).contains(&version.revision) {
            return Lineage::Other { reaches: Some(listed.last) };
        }
        match self.ids.get(&version.revision) {
            Some(known) if *known == id => Lineage::Same,
            Some(_) => Lineage::Other { reaches: Some(Revision(version.revision.0.saturating_sub(1))) },
            None => Lineage::SameSegment,
        }
    }
}
