//! An operation that fails each time reports why.

use super::*;

/// That the API server has no time for the deletion says nothing about the object.
#[test]
fn a_replacement_that_is_throttled_has_not_failed() {
    let mut answers = [Says::Done; 8];
    (answers[1], answers[3]) = (Says::Failed(Reason::Immutable), Says::Failed(Reason::Throttled));
    let mut server = Server::new(&to_be_recreated(), answers);
    server.answer_all();
    assert_eq!(server.outcome(), (Progress::Pending, Some(Reason::Throttled)));
}

/// Somebody recreates it as soon as it is deleted.
#[test]
fn a_replacement_that_finds_an_object_each_time_is_reported_as_failed() {
    let mut answers = [Says::Done; 8];
    (answers[0], answers[1]) = (Says::Exists, Says::Failed(Reason::Immutable));
    let mut server = Server::new(&to_be_recreated(), answers);
    server.try_again(12);
    assert_eq!(server.outcome(), (Progress::Failed, Some(Reason::Conflict)));
}

/// It has no label, so that no watch shows it and each creation finds it.
#[test]
fn an_object_that_each_creation_finds_is_reported_as_unmanaged() {
    let never = ApplyPolicy { takeover: Takeover::Never, ..ApplyPolicy::default() };
    let known = Known { assigned: Some((EntryState::Apply, never)), ..Known::default() };
    let mut answers = [Says::Done; 8];
    answers[0] = Says::Exists;
    let mut server = Server::new(&known, answers);
    server.there = Observed { uid: uid("u5"), ..observed(None, false) };
    for _ in 0..30 {
        server.try_again(1);
        assert_eq!(server.outcome(), (Progress::Withheld, Some(Reason::Unmanaged)));
    }
}

#[test]
fn a_removal_that_fails_each_time_reports_why() {
    for (delete, expected) in [(Says::Failed(Reason::Throttled), Reason::Throttled), (Says::Another, Reason::Conflict)]
    {
        let known = Known {
            record: Some((1, "u1")),
            seen: Some((Some(1), false)),
            removals: [(1, Some(Prune::Delete))].into(),
            ..Known::default()
        };
        let mut answers = [Says::Done; 8];
        answers[3] = delete;
        let mut server = Server::new(&known, answers);
        server.try_again(12);
        let state = server.core.model.removals.values().map(|removal| removal.state().clone()).next();
        let said = |reason, message: &str| reason == expected && !message.is_empty();
        assert!(matches!(&state, Some(RemovalState::Held(reason, message)) if said(*reason, message)), "{state:?}");
    }
}

/// The executor is wrong, which no type rules out.
#[test]
fn an_operation_that_ends_as_another_backs_off() {
    let assigned = Some((EntryState::Apply, ApplyPolicy::default()));
    let removals = [(1, Some(Prune::Delete))].into();
    let stands = Known { record: Some((1, "u1")), seen: Some((Some(1), false)), ..Known::default() };
    for known in [Known { assigned, ..Known::default() }, Known { removals, ..stands }] {
        let mut server = Server::new(&known, [Says::Done; 8]);
        let (id, op) = server.waiting.pop().expect("it is to be created, or deleted");
        server.step(Event::Executed { id, result: OpResult::Compare(Err(NotDone::Stale)) });
        assert!(server.waiting.is_empty(), "{op:?}");
        let removal = server.core.model.removals.values().map(|removal| removal.state().clone()).next();
        match removal {
            Some(state) => assert!(matches!(state, RemovalState::Waiting), "{state:?}"),
            None => assert_eq!(server.outcome(), (Progress::Failed, Some(Reason::Unavailable))),
        }
        server.try_again(2);
        assert_eq!(server.asked.len(), 1, "it is tried again");
    }
}
