use super::status::{Object, Truth, Verdict};

/// Any kind: the conditions that kstatus agreed on, the abnormal ones first.
pub(super) fn resource(object: Object<'_>) -> Verdict {
    if let Some(condition) = object.holds("Stalled") {
        return Verdict::failed(condition.message());
    }
    if let Some(condition) = object.holds("Reconciling") {
        return Verdict::progressing(condition.message());
    }
    match object.condition("Ready").or_else(|| object.condition("Available")) {
        Some(condition) if condition.truth != Truth::True => Verdict::progressing(condition.message()),
        Some(_) | None => Verdict::READY,
    }
}
