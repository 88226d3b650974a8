//! What one target says: of itself, and of which objects. What it says of these is with the [`Objects`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use roaring::RoaringBitmap;
use tideline_common::wire::v1::{
    Accepted, AssociatedReport, DecommissionReport, ObjectReport, ReportedRequest, TargetCondition,
};
use tideline_common::{ObjectKey, SessionName, Uid, Version};

use super::held::{Waiting, is_held};
use super::objects::Objects;
use super::screen;
use crate::bitmap::{TargetIndex, grow, shrink};

/// Bytes of statuses that were said of sources, and that no word says any more.
pub(super) type Left = BTreeMap<ObjectKey, BTreeMap<Uid, usize>>;

#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Its number.
    pub(super) index: TargetIndex,
    pub(super) accepted: Option<Accepted>,
    pub(super) applied: Option<Version>,
    pub(super) conditions: Vec<TargetCondition>,
    /// How far it has gone out of service.
    pub(super) decommission: Option<DecommissionReport>,
    /// The objects that it speaks of.
    said: RoaringBitmap,
    /// Those of which it says what was made of them, as this session says.
    made: RoaringBitmap,
    pub(super) session: SessionName,
    /// They may stand in a space still, as long as the source is assigned there.
    pub(super) left: Left,
    /// How many were left when that was looked at last.
    pub(super) settled: usize,
    /// The keys of what is not removed for now.
    held: BTreeSet<ObjectKey>,
    waiting: Waiting,
    /// What all of it takes, about.
    pub(super) bytes: usize,
}

/// What one target says, to be read.
#[derive(Clone, Copy, Debug)]
pub struct TargetReports<'a> {
    pub(super) known: &'a Known,
    pub(super) objects: &'a Objects,
}

/// The same, to be changed.
pub(super) struct Speaker<'a> {
    pub(super) known: &'a mut Known,
    pub(super) objects: &'a mut Objects,
}

impl Known {
    pub(super) fn new(index: TargetIndex, left: Left) -> Self {
        Self { index, bytes: left.values().flat_map(BTreeMap::values).sum(), left, ..Self::default() }
    }
}

impl<'a> TargetReports<'a> {
    /// The set that it had accepted last.
    pub fn accepted(self) -> Option<Accepted> {
        self.known.accepted
    }

    pub fn applied(self) -> Option<Version> {
        self.known.applied
    }

    pub fn conditions(self) -> &'a [TargetCondition] {
        &self.known.conditions
    }

    /// How far it has gone out of service.
    pub fn decommission(self) -> Option<DecommissionReport> {
        self.known.decommission
    }

    pub fn objects(self) -> impl Iterator<Item = &'a Arc<ObjectReport>> {
        self.known.said.iter().filter_map(move |number| self.objects.get(number).report(self.known.index))
    }

    /// What is held that was to be removed, for whatever reason, by key.
    pub fn held(self) -> impl Iterator<Item = &'a Arc<ObjectReport>> {
        self.held_after(None)
    }

    /// The same behind a key.
    pub fn held_after(self, after: Option<&ObjectKey>) -> impl Iterator<Item = &'a Arc<ObjectReport>> + use<'a> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.known.held.range((after, Bound::Unbounded)).filter_map(move |key| self.said(key))
    }

    /// How much that is. Asked with every report.
    pub fn held_count(self) -> usize {
        self.known.held.len()
    }

    /// What is kept of it takes so many bytes, about.
    pub(super) fn bytes(self) -> usize {
        self.known.bytes
    }

    pub(super) fn is_held(self, key: &ObjectKey) -> bool {
        self.known.held.contains(key)
    }

    /// How much of that a person may approve.
    pub fn waiting(self) -> Waiting {
        self.known.waiting
    }

    /// What it says of a place, of whatever source.
    pub(super) fn said(self, key: &ObjectKey) -> Option<&'a Arc<ObjectReport>> {
        self.objects.get(self.objects.at(key, &self.known.said)?).report(self.known.index)
    }

    /// What it says was made at a place, of whatever source.
    pub(super) fn made(self, key: &ObjectKey) -> Option<&'a Arc<AssociatedReport>> {
        self.objects.get(self.objects.at(key, &self.known.made)?).made(self.known.index)
    }

    pub(super) fn all_made(self) -> impl Iterator<Item = &'a Arc<AssociatedReport>> {
        self.known.made.iter().filter_map(move |number| self.objects.get(number).made(self.known.index))
    }

    /// What was said before this, if this says no status in the place of its own.
    fn outlived(self, report: &ObjectReport) -> Option<&'a Arc<ObjectReport>> {
        self.said(&report.key).filter(|former| report.status.is_none() || former.source_uid != report.source_uid)
    }

    /// What is kept of an object before this is said, and after it.
    pub(super) fn weights(self, report: &ObjectReport) -> (usize, usize) {
        let ObjectReport { key, source_uid, status, .. } = report;
        let left =
            self.known.left.get(key).and_then(|by_source| by_source.get(source_uid)).copied().unwrap_or_default();
        // Without what keeping it costs besides: what is no longer than before has room.
        let stays = self.outlived(report).map_or(0, |former| screen::status_bytes(former));
        let left_stays = if status.is_none() { left } else { 0 };
        let former = self.said(key).map_or(0, |former| screen::weight(former));
        (former + left, screen::weight(report) + stays + left_stays)
    }

    pub(super) fn made_weight(self, key: &ObjectKey) -> usize {
        self.made(key).map_or(0, |made| screen::made_weight(made))
    }
}

impl Speaker<'_> {
    pub(super) fn as_read(&self) -> TargetReports<'_> {
        TargetReports { known: self.known, objects: self.objects }
    }

    /// Takes in what is said of the target as a whole.
    pub(super) fn stands(&mut self, report: &mut ReportedRequest) {
        self.known.accepted = report.accepted;
        self.known.applied = report.applied;
        self.known.conditions = std::mem::take(&mut report.conditions);
        self.known.decommission = report.decommission;
    }

    pub(super) fn insert(&mut self, report: ObjectReport) {
        let key = report.key.clone();
        if self.as_read().outlived(&report).is_some() {
            self.leave(&key);
        }
        self.remove(&key);
        if report.status.is_some() {
            self.take_left(&key, &report.source_uid);
        }
        if is_held(&report) {
            self.known.held.insert(key);
        }
        self.known.waiting.add(Waiting::of(&report));
        self.known.bytes += screen::weight(&report);
        let number = self.objects.insert(self.known.index, report);
        grow(&mut self.known.said, number);
    }

    /// It says nothing of a place any more.
    pub(super) fn remove(&mut self, key: &ObjectKey) {
        let Some(number) = self.objects.at(key, &self.known.said) else { return };
        if let Some(former) = self.objects.remove(self.known.index, number) {
            shrink(&mut self.known.said, number);
            self.known.held.remove(key);
            self.known.waiting.subtract(Waiting::of(&former));
            self.known.bytes -= screen::weight(&former);
        }
    }

    pub(super) fn insert_made(&mut self, made: AssociatedReport) {
        self.known.bytes += screen::made_weight(&made);
        let number = self.objects.insert_made(self.known.index, made);
        grow(&mut self.known.made, number);
    }

    pub(super) fn remove_made(&mut self, key: &ObjectKey) {
        let Some(number) = self.objects.at(key, &self.known.made) else { return };
        self.made_no_more(number);
    }

    fn made_no_more(&mut self, number: u32) {
        if let Some(former) = self.objects.remove_made(self.known.index, number) {
            shrink(&mut self.known.made, number);
            self.known.bytes -= screen::made_weight(&former);
        }
    }

    pub(super) fn forget_made(&mut self) {
        for number in std::mem::take(&mut self.known.made) {
            self.made_no_more(number);
        }
    }

    /// Forgets what it says of objects. The weights are not kept.
    pub(super) fn forget(&mut self) {
        self.forget_made();
        for number in std::mem::take(&mut self.known.said) {
            self.objects.remove(self.known.index, number);
        }
    }

    /// The same, and goes on counting the statuses that were said.
    pub(super) fn leave_all(&mut self) {
        let keys: Vec<_> = self.as_read().objects().map(|report| report.key.clone()).collect();
        for key in keys {
            self.leave(&key);
        }
        self.forget();
    }

    /// The status that is said there goes on being counted, whatever is said next.
    pub(super) fn leave(&mut self, key: &ObjectKey) {
        let said = self.as_read().said(key).map(|report| (report.source_uid.clone(), screen::left_weight(report)));
        if let Some((source, bytes)) = said.filter(|(_, bytes)| *bytes > 0) {
            self.take_left(key, &source);
            self.known.bytes += bytes;
            self.known.left.entry(key.clone()).or_default().insert(source, bytes);
        }
    }

    fn take_left(&mut self, key: &ObjectKey, source: &Uid) {
        if let Some(by_source) = self.known.left.get_mut(key) {
            self.known.bytes -= by_source.remove(source).unwrap_or_default();
            if by_source.is_empty() {
                self.known.left.remove(key);
            }
        }
    }
}
