//! Targets that are not served any more, or again.

use super::*;

#[test]
fn deleted_target_is_told_so() {
    let mut script = Script::new();
    script.open(None);
    let accepted = script.accepted();
    script.desired(5, Some(accepted), 45);
    let why = Refusal::new(RefusalKind::TargetGone, "deleted");
    check(&script.event(Event::TargetClosed { target: target(), why }), &expect!["2: refused TargetGone"]);
    check(&script.desired(5, None, 0), &expect!["3: refused Busy"]);
}

/// A report from before may come late and be taken for the latest; the agent says all again, for it is told of another memory.
#[test]
fn a_target_that_is_served_again_is_remembered_anew() {
    let mut script = Script::new();
    script.open(None);
    script.report(5, 2, true);
    let (cluster, decommission) = (None, Decommission::No);
    let holder = Box::new(script.core.holder(target()).unwrap().clone());
    let why = Refusal::new(RefusalKind::Revoked, "its key is gone");
    script.event(Event::TargetClosed { target: target(), why });
    script.event(Event::TargetKnown { target: target(), cluster, holder, decommission });
    let late = script.report(5, 1, true);
    assert!(late.contains("reported 1 memory 3"), "{late}");
}
