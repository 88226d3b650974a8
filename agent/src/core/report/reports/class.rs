//! How much is reported of an object, as its policy asks.

use std::sync::Arc;

use serde_json::value::RawValue;
use tideline_common::wire::v1::ObjectReport;
use tideline_common::{Hasher, ReportClass};

use super::bounded;
use crate::core::interface::observed::is_too_large;
use crate::core::model::Model;
use crate::core::model::object::Object;

/// The part of a status that is reported; none if the hub would refuse that, and report that this agent sends too much.
pub(super) fn cut(class: &ReportClass, status: &Arc<RawValue>) -> Option<Arc<RawValue>> {
    let cut = match class {
        ReportClass::Paths(paths) => {
            let cut = paths.cut(serde_json::from_str(status.get()).ok()?);
            Arc::from(serde_json::value::to_raw_value(&cut).ok()?)
        }
        ReportClass::Status | ReportClass::Health | ReportClass::Nothing => Arc::clone(status),
    };
    (!is_too_large(&cut)).then_some(cut)
}

/// Distinguishes reports of one class from those of another: another class needs another report, though nothing else changed.
pub(super) fn mark(class: &ReportClass) -> Vec<u8> {
    if *class == ReportClass::Status {
        return Vec::new();
    }
    let mut hasher = Hasher::new("tideline/report/v1");
    class.hash_into(&mut hasher);
    hasher.finish().as_bytes().to_vec()
}

/// Adds what a watch showed of the object, except its status.
pub(super) fn add_observed(model: &Model, report: &mut ObjectReport, object: &Object, class: &ReportClass) {
    if !class.has_health() {
        return;
    }
    if object.seen().is_some() && !model.kinds.is_forbidden(&report.key.kind) {
        report.health = object.live.health;
    }
    if report.message.is_empty() && model.desired.get(&report.key).is_some() {
        report.message = bounded(object.live.message.clone());
    }
    report.observed_generation = object.live.observed_generation;
}
