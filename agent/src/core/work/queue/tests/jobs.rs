//! Jobs run once.

use tideline_common::health::Health;
use tideline_common::wire::v1::{ObjectReport, TerminalFact};
use tideline_common::{HubId, Mark};

use super::*;
use crate::core::interface::effect::PersistId;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disk {
    Quick,
    /// It says nothing.
    Silent,
}

/// What the journal has of a creation that was begun.
pub(super) fn creation(entry: &Entry) -> Tombstone {
    Tombstone { key: entry.key.clone(), source: entry.source.uid.clone() }
}

/// Has the journal hold what is written.
pub(super) fn keep(loaded: &mut Loaded, writes: &[Write]) {
    for write in writes.iter().cloned() {
        match write {
            Write::Applied { key, record } => loaded.applied.push((key, *record)),
            Write::Unsent(report) => loaded.unsent.push(*report),
            Write::Kind { kind, version } => loaded.kinds.push((kind, version)),
            Write::Creating(creation) => loaded.creating.push(creation),
            Write::CreationKnown(creation) => loaded.creating.retain(|it| *it != creation),
            other => panic!("{other:?}"),
        }
    }
}

fn try_again(offline: &mut Offline) {
    offline.now = offline.now + RETRY.1;
    offline.step(Event::Timer(Timer::Retry));
}

fn no_answer() -> Failure {
    Failure::new(Reason::Unavailable, "no").unanswered()
}

/// The process ends before it hears of it, or goes on without an answer.
#[test]
fn a_job_whose_creation_had_no_answer_is_looked_for_and_counts_as_started_if_it_is_not_there() {
    for crashes in [true, false] {
        let job = entry(&key("batch", "Job", "once"), 1, 1);
        let mut offline = Offline::new(vec![job.clone()]);
        assert_eq!(offline.earlier, Some(Earlier::Answered));
        let (id, key) = offline.begun.remove(0);
        if crashes {
            offline.restart();
        } else {
            offline.step(Event::Executed { id, result: OpResult::Create(Err(no_answer())) });
            try_again(&mut offline);
            // That one is not sent does not say that the one before it was not carried out.
            offline.fail(Reason::Unavailable);
            try_again(&mut offline);
        }
        assert_eq!(offline.earlier, Some(Earlier::Unanswered), "crashes: {crashes}");
        let (id, _) = offline.begun.remove(0);
        offline.step(Event::Executed { id, result: OpResult::Create(Ok(Created::Vanished { template: None })) });
        for restart in [false, true] {
            if restart {
                offline.restart();
            }
            let id = offline.core.model.objects.get(&key).unwrap().work.in_flight().expect("it is looked for");
            offline.step(Event::Executed { id, result: OpResult::Get(Ok(None)) });
            let object = offline.core.model.objects.get(&key).unwrap();
            assert_eq!((object.outcome.progress, object.outcome.reason), (Progress::Withheld, Some(Reason::Vanished)));
            assert!(offline.begun.is_empty(), "crashes: {crashes}");
        }
        assert!(offline.loaded.creating.is_empty(), "it is known by now");
    }
}

#[test]
fn a_creation_that_was_refused_or_answered_or_seen_is_known() {
    type End = fn(&mut Offline, OpId, &Entry);
    let ends: [(&str, End); 4] = [
        ("it was refused", |offline, id, _| {
            let failure = Failure::new(Reason::Invalid, "no");
            offline.step(Event::Executed { id, result: OpResult::Create(Err(failure)) });
        }),
        ("it was made", |offline, id, job| {
            offline.step(Event::Executed { id, result: made(created(&job.key, Some(Terminal::Started))) });
        }),
        ("another is there", |offline, id, job| {
            let there = Box::new(created(&job.key, None));
            offline.step(Event::Executed { id, result: OpResult::Create(Ok(Created::Exists(there))) });
        }),
        ("it had no answer, and is seen", |offline, id, job| {
            offline.step(Event::Executed { id, result: OpResult::Create(Err(no_answer())) });
            assert_eq!(offline.loaded.creating, [creation(job)]);
            let mark = mark_of(me(), job, &ApplyPolicy::default(), Origin::Created);
            let seen = Observed { mark: Some(Arc::new(mark)), ..created(&job.key, Some(Terminal::Started)) };
            offline.step(Event::Observed(Box::new(seen)));
        }),
    ];
    for (what, end) in ends {
        let job = entry(&key("batch", "Job", "once"), 1, 1);
        let mut offline = Offline::new(vec![job.clone()]);
        let (id, _) = offline.begun.remove(0);
        end(&mut offline, id, &job);
        assert_eq!(offline.loaded.creating, [], "{what}");
    }
}

#[test]
fn a_job_is_not_created_before_the_journal_has_it_nor_by_an_agent_that_was_frozen_meanwhile() {
    for frozen in [false, true] {
        let job = entry(&key("batch", "Job", "once"), 1, 1);
        let mut offline = Offline::new(vec![]);
        offline.loaded = Offline::new(vec![job.clone()]).loaded;
        offline.loaded.creating.clear();
        offline.disk = Disk::Silent;
        offline.restart();
        assert_eq!(offline.names(), Vec::<&str>::new(), "the disk has not said that it has it");
        if frozen {
            let verdict = HubVerdict::Frozen(FreezeReason::TargetGone("deleted".to_owned()));
            offline.core.take_verdict(offline.now, verdict, &mut Vec::new());
        }
        offline.loaded.creating.push(creation(&job));
        offline.step(Event::Persisted { id: PersistId(1), result: Ok(()) });
        assert_eq!(offline.begun.len(), usize::from(!frozen));
    }
}

/// Nothing of it is sent, and it takes no other object's turn.
#[test]
fn a_job_is_not_created_while_the_journal_cannot_be_written_and_says_so() {
    let job = entry(&key("batch", "Job", "once"), 1, 1);
    let mut offline = Offline::new(vec![]);
    offline.loaded = Offline::new(vec![job.clone()]).loaded;
    offline.loaded.creating.clear();
    offline.disk = Disk::Silent;
    offline.restart();
    for id in 1..=3 {
        offline.step(Event::Persisted { id: PersistId(id), result: Err("the disk is full".to_owned()) });
        let outcome = offline.core.model.objects.get(&job.key).unwrap().outcome.clone();
        assert!(outcome.message.ends_with(": the disk is full"), "{outcome:?}");
        assert_eq!(outcome.progress, Progress::Pending, "the disk is at fault, not the Job");
        assert!(offline.core.work.is_idle());
        try_again(&mut offline);
    }
    assert!(offline.begun.is_empty());
    offline.disk = Disk::Quick;
    offline.loaded.creating.push(creation(&job));
    offline.step(Event::Persisted { id: PersistId(4), result: Ok(()) });
    try_again(&mut offline);
    assert_eq!(offline.names(), ["once"]);
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

/// A Job of a source, as it is seen once it has ended.
fn ended(entry: &Entry) -> Observed {
    let mark = mark_of(me(), entry, &ApplyPolicy::default(), Origin::Created);
    Observed { mark: Some(Arc::new(mark)), ..created(&entry.key, Some(Terminal::Finished)) }
}

fn known(core: &Core, of: &Entry) -> Option<Terminal> {
    core.model.objects.get(&of.key).and_then(|object| object.happened(&of.source.uid))
}

fn remembered(core: &Core, of: &Entry) -> bool {
    core.guards.ran.fact(&Tombstone { key: of.key.clone(), source: of.source.uid.clone() }).is_some()
}

/// What somebody else has in the place of an object, and what the journal knows to be ours whatever it says.
#[test]
fn only_an_object_of_ours_says_that_its_source_ran() {
    let job = entry(&key("batch", "Job", "once"), 1, 1);
    let key = &job.key;
    let mark = mark_of(me(), &job, &ApplyPolicy::default(), Origin::Created);
    let with = |mark: Option<Mark>| Observed { mark: mark.map(Arc::new), ..ended(&job) };
    let foreign = Mark { hub: HubId::from_uuid(uuid::Uuid::from_u128(9)), ..mark.clone() };
    let copy = Mark { local: ObjectKey { name: "other".into(), ..key.clone() }, ..mark.clone() };
    for (what, seen, expected) in [
        ("no mark", with(None), None),
        ("another hub's mark", with(Some(foreign.clone())), None),
        ("a copy", with(Some(copy)), None),
        ("its own mark", with(Some(mark)), Some(Terminal::Finished)),
    ] {
        let mut offline = Offline::new(vec![job.clone()]);
        offline.core.see(key, seen);
        assert_eq!(known(&offline.core, &job), expected, "{what}");
    }
    for mark in [None, Some(foreign)] {
        let mut offline = Offline::new(vec![job.clone()]);
        let record = plan::record_of(&job, &Seen::from(&with(None)), Origin::Created, true);
        offline.core.model.set_record(key, record);
        offline.core.see(key, with(mark));
        assert_eq!(known(&offline.core, &job), Some(Terminal::Finished), "the journal knows it");
    }
}

#[test]
fn what_another_source_did_in_the_same_place_takes_nothing_from_the_one_that_is_assigned() {
    let (job, other) = (entry(&key("batch", "Job", "once"), 1, 1), entry(&key("batch", "Job", "once"), 2, 1));
    for fact in [Terminal::Finished, Terminal::MayHaveRun] {
        let mut offline = Offline::new(vec![]);
        let told = TerminalFact { key: job.key.clone(), source_uid: job.source.uid.clone(), fact };
        offline.core.guards.ran.note_told(&mut offline.core.model, &told);
        offline.core.put_entry(Arc::new(job.clone()));
        offline.core.see(&job.key, ended(&other));
        assert_eq!(known(&offline.core, &job), Some(fact));
        assert!(remembered(&offline.core, &other));
    }
    // Nothing is known of the one that is assigned: it has its place all the same.
    let mut offline = Offline::new(vec![job.clone()]);
    offline.core.see(&job.key, ended(&other));
    assert!(remembered(&offline.core, &other));
    offline.core.put_entry(Arc::new(other.clone()));
    assert_eq!(known(&offline.core, &other), Some(Terminal::Finished), "it is assigned again");
}

/// The set that assigns it is not on disk yet, and the Job of the source before it ends.
#[test]
fn what_the_hub_says_of_a_source_ahead_of_its_set_is_kept_whatever_happens_meanwhile() {
    let (job, other) = (entry(&key("batch", "Job", "once"), 1, 1), entry(&key("batch", "Job", "once"), 2, 1));
    let mut offline = Offline::new(vec![other.clone()]);
    let (key, source_uid) = (job.key.clone(), job.source.uid.clone());
    offline
        .core
        .guards
        .ran
        .note_told(&mut offline.core.model, &TerminalFact { key: key.clone(), source_uid, fact: Terminal::MayHaveRun });
    offline.core.model.told_ahead.insert(key.clone());
    offline.core.see(&key, ended(&other));
    assert_eq!(known(&offline.core, &job), Some(Terminal::MayHaveRun));
    assert!(remembered(&offline.core, &other));
}

#[test]
fn after_a_restart_what_the_journal_knows_of_another_source_takes_nothing_from_the_one_that_is_assigned() {
    let (job, other) = (entry(&key("batch", "Job", "once"), 1, 1), entry(&key("batch", "Job", "once"), 2, 1));
    let mut offline = Offline::new(vec![job.clone()]);
    let ran = Tombstone { key: job.key.clone(), source: job.source.uid.clone() };
    offline.loaded.ran = vec![(0, ran)];
    offline.loaded.unsent = vec![ObjectReport {
        key: job.key.clone(),
        source_uid: other.source.uid.clone(),
        progress: Progress::Applied,
        reason: None,
        message: String::new(),
        input: None,
        health: Health::Unknown,
        observed_generation: None,
        terminal: Some(Terminal::Finished),
        status: None,
    }];
    let core = Core::new(config(), offline.loaded.clone());
    assert_eq!(known(&core, &job), Some(Terminal::Finished));
    assert!(remembered(&core, &other));
}
