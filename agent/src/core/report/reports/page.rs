//! What one message holds of what is to be reported.

use std::sync::Arc;

use tideline_common::limits::{ASSOCIATED_BYTES_MAX, REPORT_PAGE_BYTES_MAX, REPORT_PAGE_OBJECTS_MAX, STATUS_BYTES_MAX};
use tideline_common::wire::v1::{AssociatedReport, ObjectReport, TerminalFact};
use tideline_common::{Digest, Monotonic, ObjectKey, Reason, Tombstone, Uid};

use super::{class, object_report, short};
use crate::core::model::Model;
use crate::core::model::key_ref::KeyRef;
use crate::core::model::live_status::Status;
use crate::core::model::object::ReportDigest;
use crate::core::work::in_flight::ReadFor;
use crate::core::{Core, Phase};

/// Bytes of a removal in a message: a key of 253 + 63 characters, a UID, and names of fields. As many again for the fact that
/// it ran.
const REMOVED_BYTES: usize = 512;
/// Objects that one page looks at, of which most may have nothing to say that the hub does not know. Few in tests, which have
/// few objects.
pub(super) const LOOKED_AT_MAX: usize = if cfg!(test) { 16 } else { 4 * REPORT_PAGE_OBJECTS_MAX };
/// With the last of them there is room for a status still.
const REMOVALS_BYTES_MAX: usize = REPORT_PAGE_BYTES_MAX - STATUS_BYTES_MAX - 2 * REMOVED_BYTES;

#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) objects: Vec<ObjectReport>,
    pub(super) told: Vec<(ObjectKey, ReportDigest)>,
    pub(super) associated: Vec<AssociatedReport>,
    pub(super) associated_told: Vec<(ObjectKey, Uid, Digest)>,
    pub(super) removed: Vec<Tombstone>,
    pub(super) terminal: Vec<TerminalFact>,
    pub(super) overtaken: Vec<Tombstone>,
    pub(super) bytes: usize,
}

impl Core {
    /// Takes as many changed objects as one message holds.
    pub(super) fn report_page(&mut self, now: Monotonic) -> Page {
        let mut page = Page::default();
        while page.removed.len() < REPORT_PAGE_OBJECTS_MAX
            && page.bytes < REMOVALS_BYTES_MAX
            && let Some(tombstone) = self.reporting.reports.removed.pop_first()
        {
            let ran = self.guards.ran.fact(&tombstone);
            page.bytes += if ran.is_some() { 2 * REMOVED_BYTES } else { REMOVED_BYTES };
            page.terminal.extend(ran);
            page.removed.push(tombstone);
        }
        while page.removed.len() + page.overtaken.len() < REPORT_PAGE_OBJECTS_MAX
            && page.bytes < REMOVALS_BYTES_MAX
            && let Some(tombstone) = self.reporting.reports.overtaken.pop_first()
        {
            page.bytes += REMOVED_BYTES;
            page.overtaken.push(tombstone);
        }
        let mut looked_at = 0;
        while page.objects.len() < REPORT_PAGE_OBJECTS_MAX
            && page.bytes < REPORT_PAGE_BYTES_MAX - STATUS_BYTES_MAX - REMOVED_BYTES
            && looked_at < LOOKED_AT_MAX
            && let Some(name) = self.reporting.reports.dirty.pop_first()
        {
            looked_at += 1;
            self.model.compact_if_many();
            self.add_report(now, name, &mut page);
        }
        while page.associated.len() < REPORT_PAGE_OBJECTS_MAX
            && page.bytes < REPORT_PAGE_BYTES_MAX - ASSOCIATED_BYTES_MAX
            && let Some(key) = self.reporting.reports.associated.pop_first()
        {
            self.add_associated(now, key, &mut page);
        }
        page
    }

    fn add_associated(&mut self, now: Monotonic, key: ObjectKey, page: &mut Page) {
        let Some((report, digest)) = self.reporting.associates.report(&self.model, &key) else {
            // The counts are unchanged: they are not counted again sooner.
            if self.reporting.associates.has_told(&key) {
                self.reporting.associates.said(now, &key);
            }
            return;
        };
        // Being counted no more delays no other count.
        if !report.made.is_empty() {
            self.reporting.associates.said(now, &key);
        }
        page.bytes += serde_json::to_vec(&report).map_or(0, |bytes| bytes.len());
        page.associated_told.push((key, report.source_uid.clone(), digest));
        page.associated.push(report);
    }

    fn add_report(&mut self, now: Monotonic, name: KeyRef, page: &mut Page) {
        let key = name.key().clone();
        let Some(object) = self.model.objects.get(&key) else { return };
        // A result is not reported before the journal knows it; then the key comes again.
        if object.unrecorded > 0 {
            return;
        }
        let Some(mut report) = object_report(&self.model, &key, &object) else {
            // It is not known to be gone before its kind was listed.
            if self.model.restored.awaits(&key) {
                return;
            }
            if let Some(source) = explain(&mut self.model, &key, None) {
                self.reporting.reports.vanished(Tombstone { key, source });
            }
            return;
        };
        let explained = self.model.desired.get(&key).is_some() || self.model.removals_of(&key).next().is_some();
        let unexplained = (!explained).then(|| report.source_uid.clone());
        // It exists again, if it was ever gone.
        let there = Tombstone { key: key.clone(), source: report.source_uid.clone() };
        self.reporting.reports.forget_removed(&there);
        if let Ok(at) = page.removed.binary_search(&there) {
            page.removed.remove(at);
        }
        // The report that names its present source may be lost, or wait for a status, and then never be due again.
        if let Some(source) = explain(&mut self.model, &key, unexplained) {
            let former = Tombstone { key: key.clone(), source };
            if former != there && !self.model.removals.contains_key(&former) {
                self.reporting.reports.vanished(former);
            }
        }
        let class = self.model.report_class(&key).clone();
        if !class.has_body()
            && let Some(object) = self.model.objects.get_mut(&key)
        {
            object.live.status.drop();
        }
        let Some(object) = self.model.objects.get(&key) else { return };
        let own = short(&serde_json::to_vec(&report).unwrap_or_default());
        class::add_observed(&self.model, &mut report, &object, &class);
        let marked = |report: &ObjectReport| {
            let said = [serde_json::to_vec(report).unwrap_or_default(), class::mark(&class)];
            short(&said.concat())
        };
        let mut told = ReportDigest { facts: marked(&report), status: None };
        let mut lacks = None;
        match object.live.status.get() {
            Status::None => {}
            Status::Known(status) => {
                if let Some(status) = class::cut(&class, status) {
                    told.status = Some(short(status.get().as_bytes()));
                    report.status = Some(status);
                } else {
                    report.reason = report.reason.or(Some(Reason::StatusTooLarge));
                    told.facts = marked(&report);
                }
            }
            Status::TooLarge => {
                report.reason = report.reason.or(Some(Reason::StatusTooLarge));
                told.facts = marked(&report);
            }
            Status::Dropped { .. } if !class.has_body() => {}
            Status::Dropped { .. } if object.told.is_some_and(|former| former.facts == told.facts) => return,
            Status::Dropped { .. } => lacks = Some(Lacks::Read),
            // The read marks it changed again.
            Status::Awaited { .. } => return,
            Status::Unreadable { .. } => lacks = Some(Lacks::Status),
        }
        let same = object.told == Some(told) && lacks.is_none();
        let may_wait = !same && object.told.is_some() && self.phase == Phase::Running;
        if may_wait && self.reporting.reports.rate.holds(now, &name, &own) {
            return;
        }
        let Some(object) = self.model.objects.get_mut(&key) else { return };
        match lacks {
            Some(Lacks::Read) => {
                object.live.status.read_again();
                return self.work.read(key, ReadFor::Status);
            }
            Some(Lacks::Status) => {
                object.live.status.reported();
                // The status that it was reported with before does not hold any more.
                object.told = None;
                // Its retry may have come while the hub was away, and found that this was still to be reported. One that is yet to
                // come, or an operation that ends, has it looked at again.
                if !object.work.is_waiting() && !object.work.is_in_flight() {
                    self.reporting.reports.dirty.insert(name.clone());
                }
            }
            None if same => {
                return object.live.status.reported();
            }
            None => page.told.push((key, told)),
        }
        self.reporting.reports.rate.said(now, name, own);
        page.bytes += serde_json::to_vec(&report).map_or(0, |bytes| bytes.len());
        page.objects.push(report);
    }
}

/// What the report of an object is still to have.
enum Lacks {
    /// Its status is read before it is reported.
    Read,
    /// Its status cannot be read; it is reported without.
    Status,
}

/// Notes what the hub is told of an unexplained object, if anything, and returns what it was told before. As long as the
/// hub believes that the object exists, the kind is watched for its end, whatever else needs it.
fn explain(model: &mut Model, key: &ObjectKey, unexplained: Option<Uid>) -> Option<Uid> {
    let object = model.objects.get_mut(key)?;
    let former = std::mem::replace(&mut object.unexplained, unexplained);
    match (&former, &object.unexplained) {
        (None, Some(_)) => {
            model.kinds.refer(key, &Arc::default());
            let version = model.kinds.version(&key.kind);
            model.there_was(&key.kind, &version);
        }
        (Some(_), None) => model.kinds.unrefer(key),
        (None, None) | (Some(_), Some(_)) => {}
    }
    former
}
