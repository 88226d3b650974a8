//! What a read says, and what follows from it.

use super::*;
use crate::core::work::in_flight::ReadFor;

fn placed() -> Known {
    Known { assigned: Some((EntryState::Apply, ApplyPolicy::default())), ..Known::default() }
}

/// As it was created, at version 6.
fn as_seen(server: &Server) -> Observed {
    let seen = server.core.model.objects.get(&web()).and_then(|object| object.seen().cloned()).expect("it was created");
    assert_eq!(&*seen.resource_version, "6");
    Observed { uid: seen.uid, mark: seen.mark, ..observed(Some(1), false) }
}

/// What the watch shows at version 8, while the object is read, is later than an answer of version 7. An answer of before what
/// was seen when it was asked for shows that the cluster was set back.
#[test]
fn an_answer_is_ignored_once_something_newer_was_seen_unless_the_cluster_was_set_back() {
    for (version, expected) in [("5", &["Apply"][..]), ("7", &[]), ("9", &["Apply"])] {
        let mut server = Server::new(&placed(), [Says::Done; 8]);
        server.answer_all();
        let seen = as_seen(&server);
        let read = server.begin_read(Purpose::Read(ReadFor::Write));
        server.step(Event::Observed(Box::new(Observed { resource_version: "8".into(), ..seen.clone() })));
        let answer = Observed { resource_version: version.into(), managed: Some(Digest::of(b"changed")), ..seen };
        server.end_read(read, Ok(Some(Box::new(answer))));
        server.step(Event::Timer(Timer::Retry));
        let begun: Vec<_> = server.waiting.iter().map(|(_, op)| name(op)).collect();
        assert_eq!(begun, expected, "it is read at version {version}");
    }
}

/// Its journal was lost as well, so that what is seen proves nothing, and each answer is older than that.
#[test]
fn what_no_record_proves_is_not_read_over_and_over_where_the_cluster_was_set_back() {
    let known = Known { seen: Some((Some(1), true)), ..placed() };
    let mut server = Server::new(&known, [Says::Done; 8]);
    server.step(Event::Observed(Box::new(Observed { resource_version: "50".into(), ..observed(Some(1), true) })));
    server.version = 0;
    assert!(server.answer_all() <= AT_ONCE_MAX, "{:?}", server.asked);
    assert_eq!(server.outcome(), (Progress::Applied, None));
}

/// The answer to a write is what stands there now, also where that is older than what was seen.
#[test]
fn an_apply_to_a_cluster_that_was_set_back_is_made_once() {
    let mut server = Server::new(&placed(), [Says::Done; 8]);
    server.answer_all();
    let changed = Observed { managed: Some(Digest::of(b"changed")), ..as_seen(&server) };
    server.step(Event::Observed(Box::new(Observed { resource_version: "50".into(), ..changed })));
    let before = server.asked.len();
    server.answer_all();
    assert_eq!(server.asked.len() - before, 1, "{:?}", server.asked);
    assert_eq!(server.outcome(), (Progress::Applied, None));
}

type Found = fn(Observed) -> Option<Box<Observed>>;

/// What fails is reported, and read for its status for that: where each failure says something else, over and over.
#[test]
fn a_read_for_the_status_ends_no_wait_unless_it_shows_a_change() {
    let failed = Failure::new(Reason::Unavailable, "timeout");
    let status: Found = |seen| Some(Box::new(Observed { resource_version: "7".into(), ..seen }));
    let changed: Found = |seen| {
        let managed = Some(Digest::of(b"changed"));
        Some(Box::new(Observed { resource_version: "7".into(), managed, ..seen }))
    };
    let gone: Found = |_| None;
    for (what, found, waits) in [
        ("its status", Some(status), true),
        ("no answer", None, true),
        ("a change", Some(changed), false),
        ("nothing", Some(gone), false),
    ] {
        let mut server = Server::new(&placed(), [Says::Done; 8]);
        server.answer_all();
        let seen = as_seen(&server);
        server.core.retry(server.now, &web(), None);
        let due = server.core.work.next_retry();
        let read = server.begin_read(Purpose::Read(ReadFor::Status));
        server.end_read(read, found.map_or_else(|| Err(failed.clone()), |found| Ok(found(seen))));
        let object = server.core.model.objects.get_mut(&web()).expect("it is assigned");
        assert_eq!(object.work.is_waiting(), waits, "{what}");
        if waits {
            assert_eq!((object.work.failures(), object.presence.take_probe().is_some()), (1, false), "{what}");
            assert_eq!(server.core.work.next_retry(), due, "{what}");
        }
    }
}

/// As where the hub has forgotten what it was told, and everything is listed for that.
#[test]
fn a_list_that_follows_on_another_ends_no_wait_of_what_it_shows_as_it_was() {
    for (what, stands, waits) in [("it stands", true, true), ("it is gone", false, false)] {
        let mut server = Server::new(&placed(), [Says::Done; 8]);
        server.answer_all();
        let seen = as_seen(&server);
        server.core.retry(server.now, &web(), None);
        for _ in 0..2 {
            let objects = stands.then(|| Observed { resource_version: "7".into(), ..seen.clone() });
            server.step(Event::Listed { kind: web().kind, objects: objects.into_iter().collect() });
        }
        let object = server.core.model.objects.get(&web()).expect("it is assigned");
        assert_eq!(object.work.is_waiting(), waits, "{what}");
        assert_eq!(server.waiting.is_empty(), waits, "{what}");
    }
}
