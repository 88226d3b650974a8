use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use expect_test::{Expect, expect};
use tideline_common::wire::v1::{
    Accepted, ClusterFacts, DesiredPage, EnrolRequest, Handover, HubAddresses, PollSettings, ReportedAnswer,
    SessionAnswer,
};
use tideline_common::{Digest, Epoch, Reason, Revision, Version};

use super::*;
use crate::core::interface::write::Enrolled;
use crate::core::tests::hub::Hub;
use crate::core::tests::{attestation, attested, entry, hub_id, key, policies, target_id};
use crate::core::{Config, Event, FuseLimits, Loaded};

mod repair;

/// Runs a script against a core and prints the effects of each of its lines.
struct Script {
    core: Core,
    now: Monotonic,
    printed: String,
}

fn config() -> Config {
    let enrolment = EnrolRequest {
        token: "t".into(),
        agent_key: Vec::new(),
        proof: Vec::new(),
        hub: hub_id(),
        facts: ClusterFacts::default(),
    };
    Config {
        hub: hub_id(),
        facts: ClusterFacts::default(),
        answered: true,
        instance: tideline_common::wire::v1::Instance::default(),
        enrolment: Some(enrolment),
        seed: 1,
        fuse: FuseLimits::default(),
        patrol: Duration::from_mins(10),
        namespaces: crate::Namespaces::All,
        capabilities: tideline_common::Capabilities::all(),
    }
}

impl Script {
    fn new(loaded: Loaded) -> Self {
        Self { core: Core::new(config(), loaded), now: Monotonic::START, printed: String::new() }
    }

    fn enrolled() -> Loaded {
        Loaded { enrolled: Some(Enrolled { target: target_id(), name: "store".into() }), ..Loaded::default() }
    }

    fn event(&mut self, name: &str, event: Event) -> Vec<Effect> {
        let mut out = Vec::new();
        self.core.step(self.now, event, &mut out);
        let effects: Vec<String> = out.iter().map(|effect| self.text(effect)).collect();
        writeln!(self.printed, "{name}: {}", effects.join(", ")).unwrap();
        out
    }

    fn after(&mut self, seconds: u64) -> &mut Self {
        self.now = self.now + Duration::from_secs(seconds);
        self
    }

    fn answer(&mut self, id: u64, answer: Answer) {
        let effects = self.event(&format!("answer {id}"), Event::Answered { id: RequestId(id), result: Ok(answer) });
        for effect in effects {
            if let Effect::KeepSession { session, .. } = effect {
                self.event("kept", Event::SessionKept { result: Ok(session) });
            }
        }
    }

    fn no_answer(&mut self, id: u64) {
        let failure = LinkFailure::Unreachable { message: "cut".into(), retry_after: None };
        self.event(&format!("no answer {id}"), Event::Answered { id: RequestId(id), result: Err(failure) });
    }

    fn refused(&mut self, id: u64, refusal: RefusalKind) {
        let result = Err(LinkFailure::Refused(Refusal::new(refusal, "no")));
        self.event(&format!("refused {id}"), Event::Answered { id: RequestId(id), result });
    }

    fn refused_by(&mut self, id: u64, by: SessionName) {
        let refusal = Refusal { fenced_by: Some(by), ..Refusal::new(RefusalKind::Fenced, "no") };
        let result = Err(LinkFailure::Refused(refusal));
        self.event(&format!("refused {id}"), Event::Answered { id: RequestId(id), result });
    }

    fn text(&self, effect: &Effect) -> String {
        match effect {
            Effect::Send { id, request } => {
                let request = match request {
                    Request::Enrol(_) => "Enrol".to_owned(),
                    Request::Session(SessionRequest { facts, .. }) if facts.kubernetes_version.is_empty() => {
                        "Session".to_owned()
                    }
                    Request::Session(SessionRequest { facts, .. }) => {
                        format!("Session of {}", facts.kubernetes_version)
                    }
                    Request::Desired(request) => {
                        let since = request.since.map(|since| format!(" since {since}")).unwrap_or_default();
                        format!("Desired{since} wait {}", request.wait_seconds)
                    }
                    Request::Bodies(request) => format!("Bodies of {}", request.wanted.len()),
                    Request::Reported(request) => format!("Reported {} objects", request.objects.len()),
                };
                format!("{} {request}", id.0)
            }
            Effect::Persist { id, writes } => format!("Persist {} of {}", id.0, writes.len()),
            // Jitter decides when; the script shows only whether it is long.
            Effect::SetTimer { timer, at } => format!("{timer:?} in {} s", at.since(self.now).as_secs()),
            Effect::Execute { .. } => "Execute".to_owned(),
            Effect::Watch(kinds) => format!("Watch {}", kinds.len()),
            Effect::Relist(kinds) => format!("Relist {}", kinds.len()),
            Effect::ListMetadata { kind, .. } => format!("MetadataList {kind}"),
            Effect::Follow(kinds) => format!("Follow {}", kinds.len()),
            Effect::Patrolled(_) => "Patrolled".to_owned(),
            Effect::RecordEvent(kube_event) => format!("Tell {}", kube_event.reason),
            Effect::Decommissioned(report) => format!("{report:?}"),
            Effect::Stopped => "Stopped".to_owned(),
            Effect::Freeze(reason) => format!("{reason:?}"),
            Effect::UnknownToHub => "UnknownToHub".to_owned(),
            Effect::Thaw => "Thaw".to_owned(),
            Effect::KeepSession { session, .. } => format!("Keep session {}", session.number),
            Effect::ReadStoredSession => "Read stored session".to_owned(),
            Effect::Replaced { by } => format!("Replaced by {}", by.number),
        }
    }

    fn check(&self, expected: &Expect) {
        expected.assert_eq(&self.printed);
    }
}

fn session() -> Answer {
    let poll = PollSettings { wait_seconds: 40, stale_after_seconds: 90 };
    let (session, epoch, addresses) = (SessionName::new(3, 1), Epoch(1), HubAddresses::default());
    let history = tideline_common::wire::v1::Continuity::Whole;
    let (cluster, handover) = (None, None);
    Answer::Session(SessionAnswer { session, outdated: false, epoch, poll, addresses, history, cluster, handover })
}

fn held() -> Loaded {
    let entry = Arc::new(entry(&key("", "ConfigMap", "a"), 1, 1));
    let set: tideline_common::DesiredSet = [Arc::clone(&entry)].into_iter().collect();
    let version = Version { epoch: Epoch(1), revision: Revision(4) };
    Loaded {
        accepted: Some(attested(Accepted { version, digest: set.digest() })),
        bodies: [entry.input].into(),
        policies: policies(),
        entries: vec![entry],
        ..Script::enrolled()
    }
}

#[test]
fn a_new_agent_enrols_opens_gathers_fetches_and_switches() {
    let mut hub = Hub::with_pages_of(10);
    hub.put(&key("", "ConfigMap", "a"), 1, 1);
    let mut script = Script::new(Loaded::default());
    let mut effects = script.event("start", Event::Started);
    for _ in 0..8 {
        for effect in std::mem::take(&mut effects) {
            effects.extend(match effect {
                Effect::Send { id, request } if !hub.would_wait(&request) => {
                    let result = Ok(hub.answer(request));
                    script.event(&format!("answer {}", id.0), Event::Answered { id, result })
                }
                Effect::Persist { id, .. } => {
                    script.event(&format!("persisted {}", id.0), Event::Persisted { id, result: Ok(()) })
                }
                _ => Vec::new(),
            });
        }
    }
    script.check(&expect![[r#"
        start: 1 Enrol
        answer 1: Persist 1 of 1, Retry in 600 s
        persisted 1: 2 Session
        answer 2: Keep session 1
    "#]]);
}

#[test]
fn every_failed_request_is_retried_for_ever() {
    let mut script = Script::new(Script::enrolled());
    script.event("start", Event::Started);
    for id in 1..=40 {
        script.no_answer(id);
        script.after(60).event("timer", Event::Timer(Timer::Link));
    }
    assert_eq!(script.printed.matches("Session").count(), 41);
}

#[test]
fn an_identity_that_is_refused_comes_back_slowly() {
    let mut script = Script::new(Loaded::default());
    script.event("start", Event::Started);
    for id in 1..=3 {
        script.refused(id, RefusalKind::TokenRefused);
        script.after(400).event("timer", Event::Timer(Timer::Link));
    }
    script.check(&expect![[r"
        start: 1 Enrol
        refused 1: Link in 4 s
        timer: 2 Enrol
        refused 2: Link in 8 s
        timer: 3 Enrol
        refused 3: Link in 18 s
        timer: 4 Enrol
    "]]);
}

/// A hub that was set back knows it by another key. Its administrator gives it a token.
#[test]
fn an_agent_whose_signature_the_hub_cannot_verify_shows_its_token_once() {
    let unspent = Loaded { token_spent: false, ..Script::enrolled() };
    let mut script = Script::new(unspent);
    script.event("start", Event::Started);
    for refusal in [RefusalKind::Unauthenticated, RefusalKind::TokenRefused, RefusalKind::Unauthenticated] {
        script.refused(script.core.sync.session.requests.0, refusal);
        script.after(400).event("timer", Event::Timer(Timer::Link));
    }
    script.check(&expect![[r#"
        start: 1 Session, Retry in 600 s
        refused 1: Link in 4 s
        timer: 2 Enrol
        refused 2: Link in 5 s
        timer: 3 Session
        refused 3: Link in 8 s
        timer: 4 Session
    "#]]);
}

/// By then it had heard otherwise, and asked again; but the new target was on disk before.
#[test]
fn a_handover_that_arrives_after_a_superseded_request_takes_effect() {
    let mut script = Script::new(held());
    script.event("start", Event::Started);
    script.event("superseded", Event::Superseded("another".into()));
    let heir = tideline_common::TargetId::from_uuid(uuid::Uuid::from_u128(77));
    let Answer::Session(answer) = session() else { unreachable!() };
    let handover = Handover { key: Vec::new(), former: target_id(), target: heir, name: "store".into() };
    script.answer(1, Answer::Session(SessionAnswer { handover: Some(handover), ..answer }));
    assert_eq!((script.core.model.target, script.core.sync.sets.current()), (Some(heir), None));
}

#[test]
fn a_stop_with_nothing_under_way_ends_at_once() {
    let mut script = Script::new(held());
    script.event("start", Event::Started);
    script.event("stop", Event::Stop);
    assert!(script.printed.ends_with("stop: Stopped\n"), "{}", script.printed);
}

#[test]
fn a_stop_waits_for_the_last_report_and_says_goodbye() {
    let mut script = Script::new(held());
    script.event("start", Event::Started);
    script.answer(1, session());
    script.after(1).event("timer", Event::Timer(Timer::Report));
    script.event("stop", Event::Stop);
    assert!(script.printed.ends_with("stop: \n"), "{}", script.printed);
    let answer = Event::Answered {
        id: RequestId(3),
        result: Ok(Answer::Reported(ReportedAnswer { seq: 1, memory: 1, stands: false })),
    };
    let effects = script.event("answer 3", answer);
    let Some(Effect::Send { id, request: Request::Reported(last) }) = effects.last() else { panic!("{effects:?}") };
    assert!(last.goodbye, "{last:?}");
    // A hub that does not answer now is not asked again.
    script.no_answer(id.0);
    assert!(script.printed.ends_with("Stopped\n"), "{}", script.printed);
}

#[test]
fn a_stop_while_the_session_is_renewed_says_goodbye_in_the_new_one_or_waits_for_none() {
    for opens in [true, false] {
        let mut script = Script::new(held());
        script.event("start", Event::Started);
        script.answer(1, session());
        script.after(1).event("timer", Event::Timer(Timer::Report));
        script.answer(3, Answer::Reported(ReportedAnswer { seq: 1, memory: 1, stands: false }));
        let later = ClusterFacts { kubernetes_version: "v1.35".into(), ..ClusterFacts::default() };
        let effects = script.event("facts", Event::Cluster(later));
        let Some(Effect::Send { id, request: Request::Session(_) }) = effects.first() else { panic!("{effects:?}") };
        script.event("stop", Event::Stop);
        assert!(script.printed.ends_with("stop: \n"), "{}", script.printed);
        if !opens {
            script.no_answer(id.0);
            assert!(script.printed.ends_with("Stopped\n"), "{}", script.printed);
            continue;
        }
        script.event("answer", Event::Answered { id: *id, result: Ok(session()) });
        let mut effects = script.event("kept", Event::SessionKept { result: Ok(SessionName::new(3, 1)) });
        for _ in 0..3 {
            let sent = effects.iter().find_map(|effect| match effect {
                Effect::Send { id, request: Request::Reported(report) } => Some((*id, report.goodbye)),
                _ => None,
            });
            let Some((id, goodbye)) = sent else { break };
            effects = script.event(
                if goodbye { "goodbye" } else { "report" },
                Event::Answered {
                    id,
                    result: Ok(Answer::Reported(ReportedAnswer { seq: 1, memory: 1, stands: false })),
                },
            );
        }
        assert!(script.printed.contains("goodbye: Stopped\n"), "{}", script.printed);
    }
}

#[test]
fn a_poll_that_is_cut_is_made_shorter() {
    let mut script = Script::new(held());
    script.event("start", Event::Started);
    script.answer(1, session());
    // The first report takes a number of its own.
    script.after(1).event("timer", Event::Timer(Timer::Report));
    script.answer(3, Answer::Reported(ReportedAnswer { seq: 1, memory: 1, stands: false }));
    for id in [2, 4, 5, 6] {
        script.after(20).no_answer(id);
        script.after(1).event("timer", Event::Timer(Timer::Link));
    }
    script.check(&expect![[r#"
        start: 1 Session, Watch 1, Patrol in 316 s
        answer 1: Keep session 3
        kept: 2 Desired since 1.4 wait 40, Report in 0 s
        timer: 3 Reported 1 objects
        answer 3: Report in 30 s
        no answer 2: Link in 0 s
        timer: 4 Desired since 1.4 wait 20
        no answer 4: Link in 0 s, 5 Reported 0 objects
        timer: 6 Desired since 1.4 wait 10
        no answer 5: Report in 0 s
        timer: 7 Reported 0 objects
        no answer 6: Link in 1 s
        timer: 8 Desired since 1.4 wait 5
    "#]]);
}

/// At the accepted version, with another digest.
fn page_of_another_history() -> Answer {
    let page = DesiredPage {
        at: Version { epoch: Epoch(1), revision: Revision(4) },
        attestation: attestation(Version::default()),
        absence_unexplained: false,
        digest: Digest::of(b"other"),
        total: 0,
        snapshot: false,
        entries: Vec::new(),
        tombstones: Vec::new(),
        policies: BTreeMap::new(),
        terminal: Vec::new(),
        next: None,
        decommission: tideline_common::wire::v1::Decommission::No,
    };
    Answer::Desired(DesiredAnswer::Page(page))
}

#[test]
fn a_set_of_another_history_is_refused_and_the_session_opened_anew() {
    let mut script = Script::new(held());
    script.event("start", Event::Started);
    script.answer(1, session());
    script.answer(2, page_of_another_history());
    script.after(60).event("timer", Event::Timer(Timer::Link));
    script.check(&expect![[r#"
        start: 1 Session, Watch 1, Patrol in 316 s
        answer 1: Keep session 3
        kept: 2 Desired since 1.4 wait 40, Report in 0 s
        answer 2: Link in 0 s
        timer: 3 Session
    "#]]);
}

/// Opening a session goes well each time.
#[test]
fn a_set_that_is_refused_again_and_again_is_asked_for_less_and_less() {
    let mut script = Script::new(held());
    script.event("start", Event::Started);
    for id in [1, 3, 6, 8, 10] {
        script.answer(id, session());
        script.answer(id + 1, page_of_another_history());
        script.after(400).event("timer", Event::Timer(Timer::Link));
    }
    script.check(&expect![[r#"
        start: 1 Session, Watch 1, Patrol in 316 s
        answer 1: Keep session 3
        kept: 2 Desired since 1.4 wait 40, Report in 0 s
        answer 2: Link in 0 s
        timer: 3 Session
        answer 3: Keep session 3
        kept: 4 Desired since 1.4 wait 40, 5 Reported 1 objects
        answer 4: Link in 4 s
        timer: 6 Session
        answer 6: Keep session 3
        kept: 7 Desired since 1.4 wait 40
        answer 7: Link in 8 s
        timer: 8 Session
        answer 8: Keep session 3
        kept: 9 Desired since 1.4 wait 40
        answer 9: Link in 14 s
        timer: 10 Session
        answer 10: Keep session 3
        kept: 11 Desired since 1.4 wait 40
        answer 11: Link in 21 s
        timer: 12 Session
    "#]]);
}

/// Each page is taken, and the result is not what the hub says.
#[test]
fn a_set_that_comes_to_nothing_is_asked_for_less_and_less_though_its_pages_come() {
    let mut script = Script::new(held());
    script.event("start", Event::Started);
    script.answer(1, session());
    let page = |next: Option<&str>| {
        let Answer::Desired(DesiredAnswer::Page(page)) = page_of_another_history() else { unreachable!() };
        let at = Version { epoch: Epoch(1), revision: Revision(5) };
        let next = next.map(|name| key("", "ConfigMap", name));
        DesiredAnswer::Page(DesiredPage { at, snapshot: true, total: 3, next, ..page })
    };
    let mut asked = RequestId(2);
    let mut waits = Vec::new();
    let snapshot_required = DesiredAnswer::SnapshotRequired { epoch: Epoch(1) };
    let mut answers = vec![snapshot_required];
    for _ in 0..9 {
        answers.extend([page(Some("b")), page(None), DesiredAnswer::NothingNew]);
        for answer in answers.drain(..) {
            let result = Ok(Answer::Desired(answer));
            let mut effects = script.event("answer", Event::Answered { id: asked, result });
            let waits_until = effects.iter().find_map(|effect| match effect {
                Effect::SetTimer { timer: Timer::Link, at } => Some(*at),
                _ => None,
            });
            if let Some(at) = waits_until {
                waits.push(at.since(script.now));
                script.now = at;
                effects = script.event("timer", Event::Timer(Timer::Link));
            }
            let sent = effects.iter().find_map(|effect| match effect {
                Effect::Send { id, request: Request::Desired(_) } => Some(*id),
                _ => None,
            });
            asked = sent.expect("it asks on");
        }
    }
    assert_eq!(waits.len(), 9, "{waits:?}");
    assert!(waits[8] >= Duration::from_secs(15), "{waits:?}");
}

/// It started while its API server was away, or that was upgraded since.
#[test]
fn cluster_facts_that_come_later_are_sent_with_another_session() {
    let cluster = |version: &str| {
        Event::Cluster(ClusterFacts { kubernetes_version: version.to_owned(), ..ClusterFacts::default() })
    };
    let mut script = Script::new(held());
    script.event("start", Event::Started);
    script.event("while it is opened", cluster("v1.34"));
    script.answer(1, session());
    script.answer(2, session());
    script.event("the same", cluster("v1.34"));
    script.event("while the hub is waited for", cluster("v1.35"));
    script.refused(3, RefusalKind::Fenced);
    script.answer(4, session());
    script.no_answer(5);
    script.event("while there is no hub", cluster("v1.36"));
    script.after(60).event("timer", Event::Timer(Timer::Link));
    script.check(&expect![[r#"
        start: 1 Session, Watch 1, Patrol in 316 s
        while it is opened: 
        answer 1: Keep session 3
        kept: 2 Session of v1.34
        answer 2: Keep session 3
        kept: 3 Desired since 1.4 wait 40, Report in 0 s
        the same: 
        while the hub is waited for: 4 Session of v1.35
        refused 3: 
        answer 4: Keep session 3
        kept: 5 Desired since 1.4 wait 40
        no answer 5: Link in 0 s
        while there is no hub: 
        timer: 6 Session of v1.36
    "#]]);
}

/// What a fenced agent does about the session that it finds stored.
fn fenced(persisted: SessionName) -> Script {
    let mut script = Script::new(Script::enrolled());
    script.event("start", Event::Started);
    script.answer(1, session());
    script.printed.clear();
    let by = Some(SessionName::new(8, 2));
    let refusal = Refusal { fenced_by: by, ..Refusal::new(RefusalKind::Fenced, "another is in use") };
    script.event("fenced", Event::Answered { id: RequestId(2), result: Err(LinkFailure::Refused(refusal)) });
    let effects = script.event("stored", Event::StoredSessionRead { result: Ok(persisted) });
    let proof = effects.iter().find_map(|effect| match effect {
        Effect::Send { request: Request::Session(request), .. } => request.fenced,
        _ => None,
    });
    writeln!(script.printed, "{proof:?}").unwrap();
    script
}

#[test]
fn a_fenced_process_ends_if_a_later_one_has_written_its_session_store() {
    fenced(SessionName::new(8, 2)).check(&expect![[r#"
        fenced: Fenced("another is in use"), Link in 96 s, Read stored session, Persist 1 of 1
        stored: Replaced by 8
        None
    "#]]);
    fenced(SessionName::new(9, 7)).check(&expect![[r#"
        fenced: Fenced("another is in use"), Link in 96 s, Read stored session, Persist 1 of 1
        stored: Replaced by 9
        None
    "#]]);
}

#[test]
fn a_fenced_process_that_does_not_find_the_other_session_in_its_store_reports_that_at_once_and_then_waits() {
    let mut script = fenced(SessionName::new(3, 1));
    script.refused_by(3, SessionName::new(8, 2));
    script.check(&expect![[r#"
        fenced: Fenced("another is in use"), Link in 96 s, Read stored session, Persist 1 of 1
        stored: 3 Session
        Some(Fenced { session: SessionName { number: SessionNumber(3), id: SessionId(0000000000000001) }, by: SessionName { number: SessionNumber(8), id: SessionId(0000000000000002) } })
        refused 3: Link in 77 s
    "#]]);
}

#[test]
fn a_session_is_used_only_once_it_is_stored() {
    let mut script = Script::new(Script::enrolled());
    script.event("start", Event::Started);
    script.event("answer", Event::Answered { id: RequestId(1), result: Ok(session()) });
    script.event("not kept", Event::SessionKept { result: Err("full".into()) });
    script.after(60).event("timer", Event::Timer(Timer::Link));
    script.event("answer", Event::Answered { id: RequestId(2), result: Ok(session()) });
    script.event("kept", Event::SessionKept { result: Ok(SessionName::new(3, 1)) });
    script.check(&expect![[r#"
        start: 1 Session, Retry in 600 s
        answer: Keep session 3
        not kept: Link in 0 s
        timer: 2 Session
        answer: Keep session 3
        kept: 3 Desired wait 0, 4 Reported 0 objects
    "#]]);
}

#[test]
fn an_offered_process_ends_if_a_later_one_has_written_its_session_store() {
    let mut script = Script::new(Script::enrolled());
    script.event("start", Event::Started);
    script.event("answer", Event::Answered { id: RequestId(1), result: Ok(session()) });
    script.event("kept", Event::SessionKept { result: Ok(SessionName::new(5, 1)) });
    script.check(&expect![[r#"
        start: 1 Session, Retry in 600 s
        answer: Keep session 3
        kept: Replaced by 5
    "#]]);
}

#[test]
fn a_process_that_heard_of_a_newer_session_reads_its_session_store_before_it_asks_again() {
    let mut script = Script::new(Script::enrolled());
    script.event("start", Event::Started);
    let Answer::Session(answer) = session() else { unreachable!("it is one") };
    let outdated = Answer::Session(SessionAnswer { outdated: true, ..answer });
    script.event("outdated", Event::Answered { id: RequestId(1), result: Ok(outdated) });
    let effects = script.event("stored", Event::StoredSessionRead { result: Ok(SessionName::new(3, 1)) });
    let Some(Effect::Send { request: Request::Session(request), .. }) = effects.first() else { panic!("{effects:?}") };
    assert_eq!((request.persisted, request.last.0), (SessionName::new(3, 1), 3));
}
