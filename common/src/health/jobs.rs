use super::status::{Object, Verdict};
use crate::terminal::Terminal;

/// `FailureTarget` and `SuccessCriteriaMet` only announce how it will end; Pods may still run.
pub(super) fn job(object: Object<'_>) -> Verdict {
    if let Some(condition) = object.holds("Failed") {
        return Verdict::failed(condition.message());
    }
    if object.holds("Complete").is_some() {
        return Verdict::READY;
    }
    if object.spec["suspend"] == true {
        return Verdict::progressing("it is suspended");
    }
    if !object.has_status {
        return Verdict::silent();
    }
    let pods = format!("{} Pods active, {} succeeded", object.count("active"), object.count("succeeded"));
    match object.count("failed") {
        0 => Verdict::progressing(pods),
        failed => Verdict::progressing(format!("{pods}, {failed} failed")),
    }
}

/// What happened to a Job that must not happen again.
pub(super) fn terminal(object: Object<'_>) -> Option<Terminal> {
    if object.holds("Complete").is_some() || object.holds("Failed").is_some() {
        Some(Terminal::Finished)
    } else {
        object.spec["ttlSecondsAfterFinished"].is_number().then_some(Terminal::Started)
    }
}

/// What it starts is judged by itself; its own status says only when that was.
pub(super) fn cron_job(object: Object<'_>) -> Verdict {
    if object.spec["suspend"] == true { Verdict::ready_but("it is suspended") } else { Verdict::READY }
}
