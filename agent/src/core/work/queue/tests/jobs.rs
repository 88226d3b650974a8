//! Jobs run once.

use tideline_common::wire::v1::TerminalFact;

use super::*;

#[test]
fn a_finished_job_that_its_ttl_removed_is_not_run_again_after_a_restart() {
    for terminal in [None, Some(Terminal::Finished)] {
        let mut offline = Offline::new(vec![entry(&key("batch", "Job", "once"), 1, 1)]);
        let (id, key) = offline.begun.remove(0);
        let written = made(created(&key, terminal));
        offline.step(Event::Executed { id, result: written });
        offline.restart();
        assert_eq!(offline.begun.is_empty(), terminal.is_some());
    }
}

/// A Job with a TTL that is gone may have ended, though nobody has seen that.
#[test]
fn a_job_that_is_gone_after_a_restart_is_read_and_not_run_again() {
    let mut offline = Offline::new(vec![entry(&key("batch", "Job", "once"), 1, 1)]);
    let (id, key) = offline.begun.remove(0);
    let written = made(created(&key, Some(Terminal::Started)));
    offline.step(Event::Executed { id, result: written });
    offline.restart();
    assert!(offline.begun.is_empty());
    let id = offline.core.model.objects.get(&key).unwrap().work.in_flight().expect("it is looked for");
    offline.step(Event::Executed { id, result: OpResult::Get(Ok(None)) });
    let object = offline.core.model.objects.get(&key).unwrap();
    assert_eq!((object.outcome.progress, object.outcome.reason), (Progress::Withheld, Some(Reason::Vanished)));
    assert!(offline.begun.is_empty());
}

#[test]
fn after_lost_history_an_existing_object_may_be_recreated_unless_it_is_a_job() {
    let mut offline = Offline::new(vec![]);
    for (group, kind, expected) in [("", "Pod", Terminal::Released), ("batch", "Job", Terminal::MayHaveRun)] {
        let entry = entry(&key(group, kind, "once"), 1, 1);
        let (key, source_uid) = (&entry.key, &entry.source.uid);
        let told = |fact| TerminalFact { key: key.clone(), source_uid: source_uid.clone(), fact };
        let known = |core: &Core| core.model.objects.get(key).and_then(|object| object.happened(source_uid));
        let core = &mut offline.core;
        core.guards.ran.note_told(&mut core.model, &told(Terminal::MayHaveRun));
        core.see(key, Observed { key: key.clone(), ..created(key, None) });
        assert_eq!(known(core), Some(Terminal::MayHaveRun), "it is not ours");
        let mark = mark_of(me(), &entry, &ApplyPolicy::default(), Origin::Created);
        core.see(key, Observed { mark: Some(Arc::new(mark)), resource_version: "8".into(), ..created(key, None) });
        assert_eq!(known(core), Some(expected));
        core.guards.ran.note_told(&mut core.model, &told(Terminal::MayHaveRun));
        assert_eq!(known(core), Some(expected));
    }
}

#[test]
fn a_finished_job_stays_finished_whatever_the_hub_says_later() {
    let mut offline = Offline::new(vec![]);
    let (key, source_uid) = (key("batch", "Job", "once"), uid("s1"));
    let told = |fact| TerminalFact { key: key.clone(), source_uid: source_uid.clone(), fact };
    for fact in [Terminal::CreatedOnce, Terminal::Finished, Terminal::CreatedOnce, Terminal::MayHaveRun] {
        offline.core.guards.ran.note_told(&mut offline.core.model, &told(fact));
    }
    let known = offline.core.model.objects.get(&key).and_then(|object| object.happened(&source_uid));
    assert_eq!(known, Some(Terminal::Finished));
}
