use tideline_common::AssociatedKind;
use tideline_common::wire::v1::{AssociatedReport, ObjectReport, Progress};

/// What to tell a person of an object that is not well: what its controller says, and why its Pods are not.
pub(super) fn message(report: &ObjectReport, made: Option<&AssociatedReport>) -> String {
    let why = made.filter(|_| report.progress == Progress::Applied).map(waiting).unwrap_or_default();
    match (report.message.as_str(), why.as_str()) {
        (message, "") => message.to_owned(),
        ("", why) => why.to_owned(),
        (message, why) => format!("{message}; {why}"),
    }
}

/// Why what was made waits or failed, in a few words; empty if none of it does. Pods know more than what made them.
pub fn waiting(report: &AssociatedReport) -> String {
    let kinds = [AssociatedKind::Pods, AssociatedKind::Jobs, AssociatedKind::ReplicaSets];
    let why = kinds.iter().filter_map(|kind| Some((kind, report.made.get(kind)?.tally.why())));
    why.filter(|(_, why)| !why.is_empty()).map(|(kind, why)| format!("{kind}: {why}")).next().unwrap_or_default()
}
