//! Several agents with one identity, as the hub hears them.

use expect_test::expect;
use tideline_common::wire::v1::Fenced;
use tideline_common::{SessionName, SessionNumber};

use super::*;

/// One on a copy of the home that was made before the holder opened the session in use, which it has heard of.
fn stranger(script: &Script) -> SessionRequest {
    let session = script.core.holder(target()).expect("it is known").session();
    SessionRequest { last: session.number, ..asks_from(SessionName::new(2, 1), 77) }
}

fn others(script: &Script) -> Vec<String> {
    let record = script.core.holder(target()).expect("it is known");
    record.others().iter().map(|other| other.instance.host.clone()).collect()
}

#[test]
fn whose_home_does_not_know_the_session_in_use_waits_until_the_holder_was_silent_for_a_day() {
    let mut script = Script::new();
    script.open(None);
    script.desired(5, None, 0);
    let asks = stranger(&script);
    check(
        &script.asks(asks.clone()),
        &expect![[r#"
        3: refused Fenced by 5
        store 3"#]],
    );
    assert_eq!(others(&script), ["host-77"]);
    script.now += 23 * 3600;
    script.desired(5, None, 0);
    script.now += 23 * 3600;
    check(
        &script.asks(asks.clone()),
        &expect![[r#"
        5: refused Fenced by 5
        store 4"#]],
    );
    script.now += 3600;
    check(
        &script.asks(asks),
        &expect![[r#"
        facts
        store 5"#]],
    );
}

/// A person reads it on a terminal.
#[test]
fn of_a_host_s_name_letters_are_kept() {
    let mut script = Script::new();
    script.open(None);
    script.desired(5, None, 0);
    let host = format!("\u{1b}]0;x\u{7}a\u{202e}b\n{}", "é".repeat(100));
    let asks = stranger(&script);
    script.asks(SessionRequest { instance: Instance { host, ..asks.instance }, ..asks });
    assert_eq!(others(&script), [format!("]0;xab{}", "é".repeat(58))]);
}

#[test]
fn silence_is_counted_over_restarts_of_the_hub() {
    let mut script = Script::new();
    script.open(None);
    script.desired(5, None, 0);
    let asks = stranger(&script);
    for hours in [8, 16, 24] {
        script.now += 8 * 3600;
        let answer = script.asks(asks.clone());
        assert_eq!(answer.contains("refused Fenced"), hours < 24, "after {hours} hours: {answer}");
        script.restart();
    }
}

#[test]
fn a_person_says_which_of_two_holds_the_target_and_says_it_once() {
    let mut script = Script::new();
    script.open(None);
    script.desired(5, None, 0);
    let asks = stranger(&script);
    script.asks(asks.clone());
    let says = |script: &mut Script, instance: u64| {
        let word = Event::InstanceAccepted { target: target(), instance: InstanceId(instance), word: "today".into() };
        script.event(word)
    };
    check(&says(&mut script, 78), &expect![[""]]);
    check(&says(&mut script, 77), &expect!["store 4"]);
    check(
        &script.asks(asks),
        &expect![[r#"
        facts
        store 5"#]],
    );
    let version = script.core.targets[&target()].sessions.version();
    check(&script.event(Event::HolderStored { target: target(), version }), &expect!["4: session 6 epoch 1"]);
    check(
        &script.desired(6, None, 0),
        &expect![[r#"
        store 6
        5: snapshot at 1.0 of 0: "#]],
    );
    check(&script.desired(5, None, 0), &expect!["6: refused Fenced by 6"]);
    assert_eq!(others(&script), [""; 0], "the other is spoken of again when it is heard");
    check(&says(&mut script, 77), &expect![[""]]);
}

#[test]
fn a_holder_that_was_displaced_by_a_copy_of_its_home_gets_the_place_back() {
    let mut script = Script::new();
    script.open(None);
    script.desired(5, None, 0);
    // The copy knows session 5, as a restart would.
    script.open(None);
    script.desired(6, None, 0);
    check(&script.desired(5, None, 0), &expect!["5: refused Fenced by 6"]);
    let own = SessionName::new(5, 1);
    let fenced = Some(Fenced { session: own, by: SessionName::new(6, 1) });
    let proves = SessionRequest { last: SessionNumber(6), fenced, ..asks_from(own, 1) };
    check(
        &script.asks(proves.clone()),
        &expect![[r#"
        6: refused SessionUnknown
        store 5"#]],
    );
    check(
        &script.asks(SessionRequest { fenced: None, ..proves }),
        &expect![[r#"
        facts
        store 6"#]],
    );
    check(
        &script.desired(7, None, 0),
        &expect![[r#"
        store 7
        8: snapshot at 1.0 of 0: "#]],
    );
    check(&script.desired(6, None, 0), &expect!["9: refused Fenced by 7"]);
    assert_eq!(others(&script), ["host-3"]);
}

/// What the hub names its memory of the target's reports, as this session is told.
fn memory(script: &mut Script, session: u64, seq: u64) -> u64 {
    let said = script.report(session, seq, true);
    let (_, memory) = said.rsplit_once("memory ").expect("it is taken in");
    memory.lines().next().expect("a number").parse().expect("a number")
}

/// It has nothing to say by itself: all that it knows was acknowledged to it before the other spoke.
#[test]
fn who_gets_its_place_back_is_to_say_all_again() {
    let mut script = Script::new();
    script.open(None);
    let own = memory(&mut script, 5, 1);
    assert_eq!(memory(&mut script, 5, 2), own);
    script.open(None);
    let others = memory(&mut script, 6, 1);
    assert_eq!(memory(&mut script, 6, 2), others, "a start says all once");
    let persisted = SessionName::new(5, 1);
    let fenced = Some(Fenced { session: persisted, by: SessionName::new(6, 1) });
    let proves = SessionRequest { last: SessionNumber(6), fenced, ..asks_from(persisted, 1) };
    script.asks(proves.clone());
    script.asks(SessionRequest { fenced: None, ..proves.clone() });
    let back = memory(&mut script, 7, 1);
    assert!(back != own && back != others, "{back}");
    // The same process opens another session, as where a proxy lost the answer.
    let last = SessionNumber(7);
    script.asks(SessionRequest { persisted: SessionName::new(7, 1), last, fenced: None, ..proves });
    assert_eq!(memory(&mut script, 8, 1), back);
}

#[test]
fn another_instance_that_is_heard_no_more_is_spoken_of_for_a_day() {
    let mut script = Script::new();
    script.open(None);
    script.desired(5, None, 0);
    let asks = stranger(&script);
    script.asks(asks);
    script.now += 24 * 3600;
    assert_eq!(others(&script), ["host-77"]);
    check(
        &script.event(Event::Timer),
        &expect![[r#"
        stale
        store 4"#]],
    );
    assert_eq!(others(&script), [""; 0]);
}

fn goodbye(script: &mut Script, session: u64) -> String {
    let report = ReportedRequest { session: SessionName::new(session, 1), goodbye: true, ..all_is_well() };
    script.request(Request::Reported(Box::new(report)))
}

#[test]
fn a_goodbye_frees_the_place_for_whoever_asks_first() {
    let mut script = Script::new();
    script.open(None);
    script.desired(5, None, 0);
    let asks = stranger(&script);
    goodbye(&mut script, 5);
    check(
        &script.asks(asks),
        &expect![[r#"
        facts
        store 4"#]],
    );
    assert_eq!(others(&script), [""; 0]);
}

/// One that was stopped and is started again comes back to its place, though another waits for it.
#[test]
fn a_goodbye_keeps_the_place_for_a_restart_where_two_are_known_to_live() {
    let mut script = Script::new();
    script.open(None);
    script.desired(5, None, 0);
    let asks = stranger(&script);
    script.asks(asks.clone());
    assert_eq!(others(&script), ["host-77"]);
    goodbye(&mut script, 5);
    check(&script.asks(asks.clone()), &expect!["5: refused Fenced by 5"]);
    check(
        &script.open(None),
        &expect![[r#"
        facts
        store 5
        6: session 6 epoch 1"#]],
    );
    check(
        &script.desired(6, None, 0),
        &expect![[r#"
        store 6
        7: snapshot at 1.0 of 0: "#]],
    );
    check(&script.asks(SessionRequest { last: SessionNumber(6), ..asks }), &expect!["8: refused Fenced by 6"]);
    assert_eq!(others(&script), ["host-77"]);
}
