//! Agents of other versions.

use expect_test::expect;
use tideline_common::{SessionId, SessionName};

use super::*;

/// An agent that lacks these opens a session and has it used.
fn restarts_without(script: &mut Script, lacks: &[Capability]) -> SessionName {
    let persisted = script.core.holder(target()).expect("it is known").session();
    let capabilities = lacks.iter().fold(Capabilities::all(), |all, lacked| all.without(*lacked));
    let request = SessionRequest { capabilities, ..asks_from(persisted, script.requests + 1) };
    script.asks(request);
    let version = script.core.targets[&target()].sessions.version();
    script.event(Event::HolderStored { target: target(), version });
    SessionName { number: persisted.number.next(), id: SessionId(1) }
}

#[test]
fn nothing_is_told_before_the_set_is_as_its_agent_understands_it() {
    let mut script = Script::new();
    script.sets.put("a");
    // What is offered says nothing about who has the session now.
    let session = restarts_without(&mut script, &[Capability::Gates]);
    check(&script.desired(4, None, 0), &expect!["2: snapshot at 1.1 of 1: a"]);
    check(
        &script.desired(session.number.0, None, 0),
        &expect![[r#"
            store 2
            understands all but {Gates}
            3: refused Busy"#]],
    );
    let body = BodiesRequest { session, wanted: Vec::new() };
    check(
        &script.request(Request::Bodies(body)),
        &expect![[r#"
            understands all but {Gates}
            4: refused Busy"#]],
    );
    script.sets.told_to = Some(Capabilities::all().without(Capability::Gates));
    check(&script.desired(session.number.0, None, 0), &expect!["5: snapshot at 1.1 of 1: a"]);
    // It is remembered with the session, and so in the next run of the hub.
    script.restart();
    check(&script.desired(session.number.0, None, 0), &expect!["6: snapshot at 1.1 of 1: a"]);
    restarts_without(&mut script, &[]);
    check(
        &script.desired(session.number.0 + 1, None, 0),
        &expect![[r#"
            store 2
            understands all but {}
            8: refused Busy"#]],
    );
}

#[test]
fn who_does_not_know_of_decommissioning_or_approvals_is_told_of_none() {
    for lacked in [Capability::Decommission, Capability::Approvals] {
        let mut script = Script::new();
        script.sets.told_to = Some(Capabilities::all().without(lacked));
        let session = restarts_without(&mut script, &[lacked]).number.0;
        let accepted = script.accepted();
        let removal = Tombstone { key: key("b"), source: "s".parse().expect("a UID") };
        let approval =
            Approval { target: target(), expires: 60, until: at(60), removals: [removal].into(), releases: false };
        assert!(script.sets.approvals.end_listing().is_empty());
        let changed = script.sets.approvals.put(at(0), "o".parse().expect("a UID"), approval);
        let told = script.desired(session, Some(accepted), 45);
        let told = told + &script.event(Event::Approved(changed));
        assert_eq!(told.contains("Approved"), lacked != Capability::Approvals, "{told}");
        let holder = Box::new(script.core.holder(target()).expect("it is known").clone());
        let decommission = Decommission::Keep;
        let told = script.event(Event::TargetKnown { target: target(), cluster: None, holder, decommission })
            + &script.desired(session, None, 0);
        // The set is empty, and it would delete what is to be kept.
        assert_eq!(told.contains("snapshot"), lacked == Capability::Approvals, "{lacked}: {told}");
    }
}
