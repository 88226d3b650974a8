//! What somebody may do who has the key of an agent.

use tideline_common::health::Health;
use tideline_common::limits::{DESIRED_OBJECTS_MAX, REPORT_PAGE_OBJECTS_MAX};
use tideline_common::wire::v1::{ClusterFacts, Fenced, ObjectReport, Progress, SessionRequest, TargetCondition};
use tideline_common::{Reason, Uid};

use super::*;
use crate::limits::{BREACH_SHOWN, FACT_BYTES_MAX};
use crate::statuses::target_status;
use crate::summary::tests::all_is_well;

impl Hub {
    /// Three objects at a target whose agent has a session.
    pub(super) fn with_agent() -> Self {
        let mut hub = Self::with(3);
        hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
        let facts = ClusterFacts { agent_version: "v".repeat(1 << 20), ..ClusterFacts::default() };
        let link::Request::Session(request, from) = asks(1) else { unreachable!("it is one") };
        let request = link::Request::Session(Box::new(SessionRequest { facts, ..*request }), from);
        let (_, mut answer) = hub.engine.request(hub.now, target(), request);
        hub.persist();
        answer.try_recv().unwrap().unwrap();
        // The session is the agent's with its first use.
        hub.reports(0, Vec::new());
        hub.persist();
        hub
    }

    fn reports(&mut self, seq: u64, objects: Vec<ObjectReport>) -> u64 {
        self.says(ReportedRequest { objects, ..report(seq) })
    }

    fn says(&mut self, report: ReportedRequest) -> u64 {
        let (_, mut answer) = self.engine.request(self.now, target(), link::Request::Reported(Box::new(report)));
        match answer.try_recv().unwrap().unwrap() {
            Reply::Core(link::Answer::Reported(answer)) => answer.memory,
            other => panic!("{other:?}"),
        }
    }

    fn is_in_breach(&self) -> bool {
        self.engine.targets.get(target()).unwrap().problems.contains(&Reason::TooMuchReported)
    }

    fn known(&self) -> usize {
        self.engine.summary.target(target()).map_or(0, |reports| reports.objects().count())
    }
}

fn report(seq: u64) -> ReportedRequest {
    ReportedRequest { session: SessionName::new(1, 0), seq, ..all_is_well() }
}

fn word(nth: usize, source: &str, progress: Progress) -> ObjectReport {
    let source_uid: Uid = source.parse().unwrap();
    ObjectReport {
        key: key(nth),
        source_uid,
        progress,
        reason: None,
        message: "all is well".to_owned(),
        input: None,
        health: Health::Ready,
        observed_generation: None,
        terminal: Some(Terminal::Finished),
        status: None,
    }
}

#[test]
fn invented_objects_are_dropped_and_a_flood_of_them_is_shown() {
    let mut hub = Hub::with_agent();
    let pages = DESIRED_OBJECTS_MAX / REPORT_PAGE_OBJECTS_MAX;
    for page in 0..=pages {
        assert!(!hub.is_in_breach(), "{page}: as many may have been unassigned a moment ago");
        let invented = (0..REPORT_PAGE_OBJECTS_MAX).map(|nth| word(100 + nth, "invented", Progress::Applied));
        hub.reports(1 + page as u64, invented.collect());
    }
    assert!(hub.is_in_breach());
    assert_eq!(hub.known(), 0);
    assert!(!hub.engine.has_work(), "nothing of it is written");
    // It costs the target nothing that is its own affair.
    hub.reports(1_000, vec![word(0, "u0", Progress::Applied)]);
    assert_eq!(hub.known(), 1);
}

#[test]
fn nothing_is_said_of_what_other_targets_have() {
    let mut hub = Hub::with_agent();
    hub.reports(1, vec![word(1, "of another target", Progress::Applied), word(7, "u7", Progress::Applied)]);
    assert_eq!(hub.known(), 0);
    assert!(!hub.is_in_breach());
}

/// Whether its key is revoked, or another is in its place at once.
#[test]
fn what_a_thief_said_ends_with_its_key() {
    for revoked in [true, false] {
        let mut hub = Hub::with_agent();
        hub.reports(1, vec![word(0, "u0", Progress::Failed)]);
        for page in 0..=DESIRED_OBJECTS_MAX / REPORT_PAGE_OBJECTS_MAX {
            let first = 100 + page * REPORT_PAGE_OBJECTS_MAX;
            let invented = first..first + REPORT_PAGE_OBJECTS_MAX;
            let held = invented.map(|nth| word(nth, "invented", Progress::DeletionHeld));
            hub.reports(2 + page as u64, held.collect());
        }
        hub.persist();
        assert_eq!((hub.known(), hub.is_in_breach()), (1 + DESIRED_OBJECTS_MAX, true));
        if revoked {
            hub.engine.keys_revoked(target(), "shop", &[agent(1).key]);
            hub.engine.target_seen(hub.now, in_service(true), None);
            assert_eq!(hub.known(), 0);
        }
        hub.engine.target_seen(hub.now, in_service(true), Some(agent(2)));
        hub.persist();
        let session = begins(&mut hub, 1, SessionName::new(1, 0)).unwrap();
        let objects = vec![word(0, "u0", Progress::Applied), word(7, "of an orphan", Progress::DeletionHeld)];
        hub.says(ReportedRequest { session, objects, ..report(1) });
        assert_eq!((hub.known(), hub.is_in_breach()), (2, false), "revoked {revoked}");
        let facts = hub.engine.ledger.target(target()).unwrap().facts();
        assert_eq!(facts.len(), 1, "it is not for a word to be unsaid that something has run");
    }
}

/// Also of a copy that was started by mistake. What the holder said before its restart stands meanwhile.
#[test]
fn what_a_copy_said_ends_when_the_place_passes_to_another_home() {
    let mut hub = Hub::with_agent();
    hub.reports(1, vec![word(0, "u0", Progress::Applied)]);
    let own = begins(&mut hub, 2, SessionName::new(1, 0)).unwrap();
    assert_eq!(hub.known(), 1, "its own restart, or a copy of its home");
    let copied = begins(&mut hub, 66, own).unwrap();
    let invented = (100..200).map(|nth| word(nth, "invented", Progress::DeletionHeld)).collect();
    hub.says(ReportedRequest { session: copied, objects: invented, goodbye: true, ..report(1) });
    assert_eq!(hub.known(), 101);

    let session = begins(&mut hub, 3, own).unwrap();
    assert_eq!(hub.known(), 0);
    hub.says(ReportedRequest { session, objects: vec![word(0, "u0", Progress::Applied)], ..report(1) });
    let again = begins(&mut hub, 4, session).unwrap();
    hub.says(ReportedRequest { session: again, ..report(1) });
    assert_eq!(hub.known(), 1);
}

/// By whichever way it gets the place back.
#[test]
fn a_holder_that_gets_its_place_back_is_asked_for_all_and_what_was_said_instead_is_forgotten() {
    let mut hub = Hub::with_agent();
    let copied = begins(&mut hub, 66, SessionName::new(1, 0)).unwrap();
    let invented = (100..200).map(|nth| word(nth, "invented", Progress::DeletionHeld)).collect();
    hub.says(ReportedRequest { session: copied, objects: invented, ..report(1) });
    let link::Request::Session(request, from) = asks(1) else { unreachable!("it is one") };
    let own = SessionName::new(1, 0);
    let fenced = Some(Fenced { session: own, by: copied });
    let request = SessionRequest { persisted: own, last: copied.number, fenced, ..*request };
    let (_, _answer) = hub.engine.request(hub.now, target(), link::Request::Session(Box::new(request), from));
    let session = begins(&mut hub, 1, own).unwrap();
    assert_ne!(session, copied);
    assert_eq!(hub.known(), 0);
}

/// Nobody hears from it meanwhile, and what was kept back on the way since before says nothing of it.
#[test]
fn a_target_that_is_not_served_any_more_has_fallen_silent() {
    let mut hub = Hub::with_agent();
    let said = hub.engine.targets.silences(target());
    hub.engine.target_seen(hub.now, in_service(true), None);
    hub.engine.target_seen(hub.now, in_service(true), None);
    hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
    let lost_and_put_back = hub.engine.targets.silences(target());
    assert_ne!(lost_and_put_back, said);
    hub.engine.target_seen(hub.now, in_service(true), Some(agent(2)));
    assert_ne!(hub.engine.targets.silences(target()), lost_and_put_back, "its key was replaced");
}

#[test]
fn a_breach_is_shown_for_an_hour_after_the_last() {
    let mut hub = Hub::with_agent();
    let long = |text: usize| vec![ObjectReport { message: "x".repeat(text), ..word(0, "u0", Progress::Failed) }];
    hub.reports(1, long(1 << 20));
    assert!(hub.is_in_breach());
    hub.pass(BREACH_SHOWN / 2);
    hub.reports(2, long(1 << 21));
    hub.pass(BREACH_SHOWN * 3 / 4);
    assert!(hub.is_in_breach());
    hub.reports(3, long(10));
    hub.pass(BREACH_SHOWN);
    assert!(!hub.is_in_breach());
}

#[test]
fn what_was_dropped_is_asked_for_again_once_it_is_assigned() {
    let mut hub = Hub::with_agent();
    let before = hub.reports(1, vec![word(3, "u3", Progress::Applied)]);
    assert_eq!(hub.reports(2, Vec::new()), before, "nothing has changed yet");
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c3", "namespace": "shop", "uid": "u3"},
    });
    hub.engine.index.apply(&space(), &config_maps(), clean::read(clean::SpaceServer::Embedded, &object).unwrap());
    hub.persist();
    let after = hub.reports(3, Vec::new());
    assert_ne!(after, before);
    hub.reports(4, vec![word(3, "u3", Progress::Applied)]);
    assert_eq!(hub.known(), 1);
    hub.delete(2);
    hub.pass(SETTLE);
    assert_eq!(hub.reports(5, Vec::new()), after, "nothing was dropped since");
}

#[test]
fn what_an_agent_says_of_itself_is_short() {
    let hub = Hub::with_agent();
    assert_eq!(hub.engine.targets.get(target()).unwrap().facts.agent_version.len(), FACT_BYTES_MAX);
}

#[test]
fn no_word_of_an_agent_is_shown_as_the_hub_s() {
    let mut hub = Hub::with_agent();
    let may_have_run = ObjectReport { reason: Some(Reason::MayHaveRun), ..word(0, "u0", Progress::Withheld) };
    let condition = |reason: &Reason| TargetCondition { reason: *reason, count: 1, message: "of the agent".to_owned() };
    let conditions = Reason::ALL.iter().map(condition).collect();
    hub.says(ReportedRequest { conditions, objects: vec![may_have_run], ..report(1) });
    let (_, status) = target_status(&hub.engine, target()).unwrap();
    let said = |kind: &str| {
        let of = status["conditions"].as_array().unwrap().iter().filter(|condition| condition["type"] == kind);
        of.map(|condition| condition["message"] == "of the agent").collect::<Vec<_>>()
    };
    assert_eq!([said("Ready"), said("MayHaveRun"), said("Copy")], [[false], [false], [true]]);
    assert_eq!(said("DuplicateAgent"), [false; 0]);
}
