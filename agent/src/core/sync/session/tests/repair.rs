//! What a set must repair, until one is complete.

use super::*;
use crate::core::{Op, Served};

/// The request among these effects.
fn question(effects: &[Effect]) -> (RequestId, DesiredRequest) {
    let asked = effects.iter().find_map(|effect| match effect {
        Effect::Send { id, request: Request::Desired(request) } => Some((*id, request.clone())),
        _ => None,
    });
    asked.unwrap_or_else(|| panic!("nothing is asked: {effects:?}"))
}

impl Script {
    fn answers(&mut self, id: RequestId, answer: DesiredAnswer) -> Vec<Effect> {
        self.event("answer", Event::Answered { id, result: Ok(Answer::Desired(answer)) })
    }

    /// The request after the pause.
    fn asks_on(&mut self) -> (RequestId, DesiredRequest) {
        question(&self.after(60).event("timer", Event::Timer(Timer::Link)))
    }
}

/// The complete set at this revision, or its last page.
fn whole(revision: u64, entries: &[Arc<tideline_common::Entry>]) -> DesiredPage {
    let Answer::Desired(DesiredAnswer::Page(page)) = page_of_another_history() else { unreachable!() };
    let at = Version { epoch: Epoch(1), revision: Revision(revision) };
    let set: tideline_common::DesiredSet = entries.iter().cloned().collect();
    let (digest, total) = (set.digest(), entries.len() as u64);
    DesiredPage { at, digest, total, snapshot: true, entries: entries.to_vec(), policies: policies(), ..page }
}

#[test]
fn a_body_that_is_found_missing_while_a_poll_is_open_is_fetched_when_that_ends() {
    let mut script = Script::new(held());
    let entries: Vec<_> = held().entries;
    script.event("start", Event::Started);
    script.answer(1, session());
    script.core.model.inputs.lost(&entries[0].input);
    script.core.sync.session.distrust();
    script.answers(RequestId(2), DesiredAnswer::NothingNew);
    let (asked, request) = script.asks_on();
    assert_eq!(request.since, None, "the hub said that of what was held before");
    // Another is lost while this is fetched.
    let effects = script.answers(asked, DesiredAnswer::Page(whole(5, &entries)));
    let fetches = effects.iter().find_map(|effect| match effect {
        Effect::Send { id, request: Request::Bodies(request) } => Some((*id, request.wanted[0].input)),
        _ => None,
    });
    let (fetching, input) = fetches.expect("the body is asked for");
    script.core.sync.session.distrust();
    let text = "{}".to_owned();
    let sha256 = Digest::of(text.as_bytes());
    let body = tideline_common::wire::v1::Body { input, sha256, size: 2, offset: 0, text };
    let answer = tideline_common::wire::v1::BodiesAnswer { bodies: vec![body], outdated: Vec::new() };
    let effects = script.event("body", Event::Answered { id: fetching, result: Ok(Answer::Bodies(answer)) });
    let effects = persisted(&mut script, effects);
    assert_eq!(question(&effects).1.since, None);
}

/// No body is applied, and the entry is unchanged: only the set says that it came.
#[test]
fn an_object_whose_body_was_missing_is_requeued_once_it_is_fetched() {
    let mut script = Script::new(held());
    let entries: Vec<_> = held().entries;
    script.event("start", Event::Started);
    script.answer(1, session());
    let missing = Arc::clone(&entries[0]);
    script.core.model.inputs.lost(&missing.input);
    script.core.sync.session.distrust();
    let kind = missing.key.kind.clone();
    let served = Served::Yes { namespaced: true, status: false };
    script.event("kind", Event::Kind { kind: kind.clone(), served });
    script.event("list", Event::Listed { kind, objects: Vec::new() });
    let reason = |script: &Script| script.core.model.objects.get(&missing.key).and_then(|object| object.outcome.reason);
    assert_eq!(reason(&script), Some(Reason::BodyMissing));
    script.answers(RequestId(2), DesiredAnswer::NothingNew);
    let (asked, _) = script.asks_on();
    let effects = script.answers(asked, DesiredAnswer::Page(whole(5, &entries)));
    let fetching = effects.iter().find_map(|effect| match effect {
        Effect::Send { id, request: Request::Bodies(_) } => Some(*id),
        _ => None,
    });
    let (input, text) = (missing.input, "{}".to_owned());
    let sha256 = Digest::of(text.as_bytes());
    let body = tideline_common::wire::v1::Body { input, sha256, size: 2, offset: 0, text };
    let answer = tideline_common::wire::v1::BodiesAnswer { bodies: vec![body], outdated: Vec::new() };
    let id = fetching.expect("the body is asked for");
    let effects = script.event("body", Event::Answered { id, result: Ok(Answer::Bodies(answer)) });
    let effects = persisted(&mut script, effects);
    let made = |effect: &Effect| matches!(effect, Effect::Execute { op: Op::Create { entry, .. }, .. } if entry.key == missing.key);
    assert!(effects.iter().any(made), "{effects:?}");
}

/// Completes all writes, until a request is sent.
fn persisted(script: &mut Script, mut effects: Vec<Effect>) -> Vec<Effect> {
    for _ in 0..5 {
        let id = effects.iter().find_map(|effect| match effect {
            Effect::Persist { id, .. } => Some(*id),
            _ => None,
        });
        let Some(id) = id else { break };
        effects = script.event("persisted", Event::Persisted { id, result: Ok(()) });
        if effects.iter().any(|effect| matches!(effect, Effect::Send { request: Request::Desired(_), .. })) {
            break;
        }
    }
    effects
}

fn removes(effects: &[Effect]) -> bool {
    let writes = effects.iter().filter_map(|effect| match effect {
        Effect::Persist { writes, .. } => Some(&**writes),
        _ => None,
    });
    writes.flatten().any(|write| matches!(write, Write::Removing { .. }))
}

/// The hub's delta does not lead from the accepted set to its own, and the set requested then fails as well.
#[test]
fn a_delta_that_contradicts_the_accepted_set_is_remembered_until_a_complete_set_is_accepted() {
    let b = Arc::new(entry(&key("", "ConfigMap", "b"), 1, 1));
    for bodies_are_outdated in [false, true] {
        let mut script = Script::new(held());
        script.event("start", Event::Started);
        script.answer(1, session());
        let contradicts = DesiredPage { snapshot: false, total: 7, ..whole(5, &[]) };
        script.answers(RequestId(2), DesiredAnswer::Page(contradicts));
        let (asked, request) = script.asks_on();
        assert_eq!(request.since, None);
        if bodies_are_outdated {
            let effects = script.answers(asked, DesiredAnswer::Page(whole(6, &[Arc::clone(&b)])));
            let fetching = effects.iter().find_map(|effect| match effect {
                Effect::Send { id, request: Request::Bodies(_) } => Some(*id),
                _ => None,
            });
            let outdated = vec![b.input];
            let answer = tideline_common::wire::v1::BodiesAnswer { bodies: Vec::new(), outdated };
            let id = fetching.expect("its body is asked for");
            script.event("outdated", Event::Answered { id, result: Ok(Answer::Bodies(answer)) });
        } else {
            let first = DesiredPage { next: Some(b.key.clone()), ..whole(6, &[]) };
            let (asked, _) = question(&script.answers(asked, DesiredAnswer::Page(first)));
            let (asked, request) = question(&script.answers(asked, DesiredAnswer::Page(whole(7, &[]))));
            assert!(request.since.is_some(), "what changed since the first page");
            script.answers(asked, DesiredAnswer::SnapshotRequired { epoch: Epoch(1) });
        }
        let (mut asked, request) = script.asks_on();
        if request.since.is_some() {
            let effects = script.answers(asked, DesiredAnswer::SnapshotRequired { epoch: Epoch(1) });
            asked = question(&effects).0;
        }
        let effects = script.answers(asked, DesiredAnswer::Page(whole(8, &[])));
        assert!(!removes(&effects), "nothing says that it was taken out: {effects:?}");
        let (asked, _) = question(&persisted(&mut script, effects));
        assert_eq!(script.core.model.desired.len(), 0);
        // Of the complete set absence counts again.
        let effects = script.answers(asked, DesiredAnswer::SnapshotRequired { epoch: Epoch(1) });
        assert_eq!(question(&effects).1.since, None);
        assert_eq!(script.core.sync.session.repair.everything().absence(), crate::core::sync::gather::Absence::Removal);
    }
}

/// Of each set some bodies come, and one is no longer available.
#[test]
fn a_set_that_moves_on_while_its_bodies_come_is_asked_for_as_soon_as_ever() {
    for bodies_come in [true, false] {
        let mut script = Script::new(Script::enrolled());
        script.event("start", Event::Started);
        script.answer(1, session());
        let mut asked = RequestId(2);
        let mut longest = Duration::ZERO;
        for round in 0..9 {
            let entries = [0, 1].map(|n| Arc::new(entry(&key("", "ConfigMap", &format!("c{n}")), 1, 2 * round + n)));
            let effects = script.answers(asked, DesiredAnswer::Page(whole(5 + round, &entries)));
            let fetches = effects.iter().find_map(|effect| match effect {
                Effect::Send { id, request: Request::Bodies(_) } => Some(*id),
                _ => None,
            });
            let (input, text) = (entries[0].input, "{}".to_owned());
            let sha256 = Digest::of(text.as_bytes());
            let body = tideline_common::wire::v1::Body { input, sha256, size: 2, offset: 0, text };
            let bodies = bodies_come.then_some(body).into_iter().collect();
            let answer = tideline_common::wire::v1::BodiesAnswer { bodies, outdated: vec![entries[1].input] };
            let id = fetches.expect("bodies are asked for");
            let effects = script.event("outdated", Event::Answered { id, result: Ok(Answer::Bodies(answer)) });
            let at = effects.iter().find_map(|effect| match effect {
                Effect::SetTimer { timer: Timer::Link, at } => Some(*at),
                _ => None,
            });
            let at = at.expect("it rests");
            longest = longest.max(at.since(script.now));
            script.now = at;
            asked = question(&script.event("timer", Event::Timer(Timer::Link))).0;
        }
        assert_eq!(longest < Duration::from_secs(1), bodies_come, "{longest:?}");
    }
}

/// A hub was exchanged for an older copy of it, for a minute; and then a set is accepted, or there is nothing new.
#[test]
fn faults_of_answers_are_reported_until_a_complete_set_is_accepted() {
    let accepted = held().accepted.expect("it is held").set.version;
    let whole = DesiredAnswer::Page(whole(5, &held().entries));
    for (since, after) in [(Some(accepted), DesiredAnswer::NothingNew), (None, whole)] {
        let mut script = Script::new(held());
        script.event("start", Event::Started);
        let Answer::Session(answer) = session() else { unreachable!() };
        script.answer(1, Answer::Session(SessionAnswer { epoch: Epoch(0), ..answer }));
        let said: Vec<_> = script.core.sync.session.conditions().into_iter().map(|it| (it.reason, it.count)).collect();
        assert_eq!(said, [(Reason::HistoryLost, 1)]);
        if since.is_none() {
            script.core.sync.session.distrust();
        }
        let effects = script.after(60).event("timer", Event::Timer(Timer::Link));
        let Some(Effect::Send { id, request: Request::Session(_) }) = effects.first() else { panic!("{effects:?}") };
        let effects = script.event("session", Event::Answered { id: *id, result: Ok(session()) });
        assert!(matches!(effects.first(), Some(Effect::KeepSession { .. })), "{effects:?}");
        let (asked, request) =
            question(&script.event("kept", Event::SessionKept { result: Ok(SessionName::new(3, 1)) }));
        assert_eq!(request.since, since);
        assert_eq!(script.core.sync.session.conditions().len(), 1, "a session alone shows no set");
        script.answers(asked, after);
        assert_eq!(script.core.sync.session.conditions(), []);
    }
}
