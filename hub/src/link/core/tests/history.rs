//! What follows from absence, of an agent that shows this or that.

use super::*;

/// The first page of the whole set.
fn whole(script: &mut Script, shown: Option<Shown>) -> DesiredPage {
    let mut out = Effects::new();
    let request = Request::Desired(DesiredRequest { since: None, shown, ..Script::poll(5, None, 0) });
    let requested = Event::Requested { id: RequestId(9), target: target(), request };
    script.core.step(at(0), &script.sets, requested, &mut out);
    match &*out {
        [.., Effect::Respond { answer: Ok(Answer::Desired(DesiredAnswer::Page(page))), .. }] => page.clone(),
        _ => panic!("{out:?}"),
    }
}

#[test]
fn what_the_segment_alone_says_is_told_whole_and_nothing_follows_from_absence() {
    let mut script = Script::new();
    script.sets.put("a");
    let accepted = script.accepted();
    script.sets.put("b");
    script.open(None);
    script.sets.continuity = Some(TargetContinuity::Whole { absence: Absence::Unexplained });
    let shown = Some(Shown { version: accepted.version, point: RevisionPoint::NOWHERE });
    let onto = Request::Desired(DesiredRequest { shown, ..Script::poll(5, Some(accepted), 45) });
    check(
        &script.request(onto),
        &expect![[r#"
        store 2
        2: SnapshotRequired { epoch: Epoch(1) }"#]],
    );
    let later = Some(Shown { version: Version::default(), point: RevisionPoint::NOWHERE });
    let pages = Request::Desired(DesiredRequest { shown: later, digest: None, ..Script::poll(5, Some(accepted), 0) });
    check(&script.request(pages), &expect!["3: delta at 1.2 of 2: b"]);
    assert!(whole(&mut script, None).absence_unexplained);
}

/// What it showed last, the hub let it have no more, and it may have been told to let that go: a delta says so of each, and a
/// whole set of none.
#[test]
fn of_an_agent_that_was_set_back_nothing_follows_from_absence_but_by_a_delta() {
    let mut script = Script::new();
    script.sets.put("a");
    let accepted = script.accepted();
    script.sets.put("b");
    script.open(None);
    let shown = Some(Shown { version: accepted.version, point: RevisionPoint::NOWHERE });
    assert!(!whole(&mut script, shown).absence_unexplained);
    script.sets.shown_later = true;
    assert!(whole(&mut script, shown).absence_unexplained);
    let onto = Request::Desired(DesiredRequest { shown, ..Script::poll(5, Some(accepted), 45) });
    check(&script.request(onto), &expect!["2: delta at 1.2 of 2: b"]);
}
