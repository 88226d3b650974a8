use super::*;

use expect_test::{Expect, expect};
use tideline_common::wire::v1::{Accepted, Attested, Instance};
use tideline_common::{DesiredSet, Epoch, PrunePolicy, SessionId, SessionName, Tombstone};

use crate::removal_guards::{Approval, Approvals};
use crate::summary::tests::all_is_well;

mod capabilities;
mod closed;
mod contact;
mod history;
mod news;
mod sessions;

/// One target's set, and the revision that each key last changed at.
#[derive(Default)]
struct OneSet {
    set: DesiredSet,
    changed: BTreeMap<ObjectKey, u64>,
    removed: Vec<(Tombstone, u64)>,
    revision: u64,
    epoch: u64,
    approvals: Approvals,
    continuity: Option<TargetContinuity>,
    /// As which agent understands it, it is told. None: as one that understands all.
    told_to: Option<Capabilities>,
    /// Its agent was set back.
    shown_later: bool,
}

impl Sets for OneSet {
    fn continuity(&self, _: TargetId, _: Option<Shown>) -> TargetContinuity {
        self.continuity.unwrap_or(TargetContinuity::Whole { absence: Absence::TakenOut })
    }

    fn has_shown_later(&self, _: TargetId, _: Shown) -> bool {
        self.shown_later
    }

    fn info(&self, id: TargetId) -> Option<SetInfo> {
        (id == target()).then(|| SetInfo {
            version: Version { epoch: Epoch(self.epoch), revision: Revision(self.revision) },
            point: RevisionPoint::NOWHERE,
            digest: self.set.digest(),
            entries: self.set.len() as u64,
        })
    }

    fn page(&self, _: TargetId, since: Option<Revision>, after: Option<&ObjectKey>, limit: usize) -> Option<SetPage> {
        let since = since.map_or(0, |since| since.0);
        let mut entries: Vec<_> = self
            .set
            .iter()
            .filter(|(key, _)| after.is_none_or(|after| *key > after) && self.changed[*key] > since)
            .map(|(_, entry)| Arc::clone(entry))
            .collect();
        let next = (entries.len() > limit).then(|| entries[limit - 1].key.clone());
        entries.truncate(limit);
        let tombstones = self
            .removed
            .iter()
            .filter(|(_, at)| *at > since)
            .map(|(stone, at)| stone.clone().under(PrunePolicy::LEAST, Revision(*at)))
            .collect();
        Some(SetPage { entries, tombstones, next, ..SetPage::default() })
    }

    fn is_told_to(&self, _: TargetId, understands: &Capabilities) -> bool {
        self.told_to.clone().unwrap_or_else(Capabilities::all).missing() == understands.missing()
    }

    fn names(&self, _: TargetId, key: &ObjectKey, input: Digest) -> bool {
        self.set.get(key).is_some_and(|entry| entry.input == input)
    }

    fn approved(&self, now: Monotonic, id: TargetId, held: &ApprovedHeld) -> Option<ApprovedPage> {
        self.approvals.page(now, id, held, |_, removal| self.set.get(&removal.key).is_some())
    }
}

impl OneSet {
    fn put(&mut self, name: &str) {
        self.revision += 1;
        let entry = Entry {
            key: key(name),
            version: "v1".into(),
            source: tideline_common::SourceRef {
                space: "default".parse().expect("a name"),
                uid: name.parse().expect("a UID"),
                namespace: "shop".into(),
                name: name.into(),
            },
            generation: 0,
            state: tideline_common::EntryState::Apply,
            input: Digest::of(name.as_bytes()),
            policy: Digest::of(b"policy"),
            wave: 0,
            impersonate: None,
            implied: false,
        };
        self.changed.insert(entry.key.clone(), self.revision);
        self.set.insert(Arc::new(entry));
    }

    fn remove(&mut self, name: &str) {
        self.revision += 1;
        let entry = self.set.remove(&key(name)).expect("it was put");
        self.changed.insert(entry.key.clone(), self.revision);
        self.removed.push((Tombstone { key: entry.key.clone(), source: entry.source.uid.clone() }, self.revision));
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(tideline_common::GroupKind::new("", "ConfigMap"), "shop", name)
}

fn target() -> TargetId {
    "11111111-1111-4111-8111-111111111111".parse().expect("a UUID")
}

fn at(seconds: u64) -> Monotonic {
    Monotonic::from_millis(seconds * 1000)
}

/// A core that knows one target, and prints what it says.
struct Script {
    core: Core,
    sets: OneSet,
    now: u64,
    requests: u64,
    /// How many polls said that a report stands.
    polls: u64,
}

impl Script {
    fn new() -> Self {
        let sets = OneSet { epoch: 1, ..OneSet::default() };
        let mut script = Self { core: Core::new(Config::default()), sets, now: 0, requests: 0, polls: 0 };
        script.event(Event::TargetKnown {
            target: target(),
            cluster: None,
            holder: Box::new(HolderRecord::held(SessionName::new(4, 1), Instance::default())),
            decommission: Decommission::No,
        });
        script
    }

    fn event(&mut self, event: Event) -> String {
        let mut out = Effects::new();
        self.core.step(at(self.now), &self.sets, event, &mut out);
        out.iter().map(print).collect::<Vec<_>>().join("\n")
    }

    fn request(&mut self, request: Request) -> String {
        self.requests += 1;
        self.event(Event::Requested { id: RequestId(self.requests), target: target(), request })
    }

    /// A process of the holder's home opens a session.
    fn open(&mut self, accepted: Option<Accepted>) -> String {
        let persisted = self.core.holder(target()).expect("it is known").session();
        let accepted = accepted.map(|set| {
            let shown = Shown { version: set.version, point: RevisionPoint::NOWHERE };
            Attested { set, attestation: Attestation::unsigned(target(), shown) }
        });
        let request = SessionRequest { accepted, ..asks_from(persisted, self.requests + 1) };
        let from = Origin { id: SessionId(1), proof: Proof::OwnWord, ..Origin::default() };
        let asked = self.request(Request::Session(Box::new(request), from));
        let version = self.core.targets[&target()].sessions.version();
        format!("{asked}\n{}", self.event(Event::HolderStored { target: target(), version }))
    }

    fn asks(&mut self, request: SessionRequest) -> String {
        self.request(Request::Session(Box::new(request), Origin { id: SessionId(1), ..Origin::default() }))
    }

    /// The hub's process ends, and begins with what was persisted.
    fn restart(&mut self) {
        let holder = Box::new(self.core.holder(target()).expect("it is known").clone());
        self.core = Core::new(Config::default());
        let decommission = Decommission::No;
        self.event(Event::TargetKnown { target: target(), cluster: None, holder, decommission });
    }

    fn poll(session: u64, since: Option<Accepted>, wait_seconds: u64) -> DesiredRequest {
        DesiredRequest {
            session: SessionName::new(session, 1),
            since: since.map(|since| since.version),
            digest: since.map(|since| since.digest),
            after: None,
            wait_seconds,
            approved: ApprovedHeld::default(),
            decommission: Decommission::No,
            shown: None,
            history: Continuity::Whole,
            stands: None,
        }
    }

    fn desired(&mut self, session: u64, since: Option<Accepted>, wait_seconds: u64) -> String {
        let request = Self::poll(session, since, wait_seconds);
        self.request(Request::Desired(request))
    }

    /// As an agent that was told that the history is broken.
    fn desired_still(&mut self, session: u64, since: Option<Accepted>, wait_seconds: u64) -> String {
        let request = Self::poll(session, since, wait_seconds);
        self.request(Request::Desired(DesiredRequest { history: Continuity::Broken, ..request }))
    }

    fn report(&mut self, session: u64, seq: u64, in_sync: bool) -> String {
        self.request(Request::Reported(Box::new(ReportedRequest {
            session: SessionName::new(session, 1),
            seq,
            in_sync,
            ..all_is_well()
        })))
    }

    fn accepted(&self) -> Accepted {
        let info = self.sets.info(target()).expect("it is known");
        Accepted { version: info.version, digest: info.digest }
    }
}

fn print(effect: &Effect) -> String {
    match effect {
        Effect::Respond { id, answer: Ok(Answer::Session(answer)) } => {
            let outdated = if answer.outdated { ", outdated" } else { "" };
            let broken = if answer.history == Continuity::Whole { "" } else { ", broken" };
            format!("{}: session {} epoch {}{outdated}{broken}", id.0, answer.session.number, answer.epoch)
        }
        Effect::Respond { id, answer: Ok(Answer::Desired(DesiredAnswer::Page(page))) } => {
            let names: Vec<_> = page.entries.iter().map(|entry| &*entry.key.name).collect();
            let form = if page.snapshot { "snapshot" } else { "delta" };
            format!("{}: {form} at {} of {}: {}", id.0, page.at, page.total, names.join(" "))
        }
        Effect::Respond { id, answer: Ok(Answer::Desired(answer)) } => format!("{}: {answer:?}", id.0),
        Effect::Respond { id, answer: Ok(Answer::Reported(answer)) } => {
            format!("{}: reported {} memory {}", id.0, answer.seq, answer.memory)
        }
        Effect::Respond { id, answer: Err(refusal) } => {
            let by = refusal.fenced_by.map_or_else(String::new, |by| format!(" by {}", by.number));
            format!("{}: refused {:?}{by}", id.0, refusal.refusal)
        }
        Effect::StoreHolder { version, .. } => format!("store {version}"),
        Effect::Facts { .. } => "facts".to_owned(),
        Effect::Understands { capabilities, .. } => format!("understands all but {:?}", capabilities.missing()),
        Effect::Shown { shown, proof, .. } => format!("shown {}, {proof:?}", shown.version),
        Effect::ReadBodies { wanted, outdated, .. } => {
            let names: Vec<_> = wanted.iter().map(|wanted| &*wanted.key.name).collect();
            format!("read {} ({} outdated)", names.join(" "), outdated.len())
        }
        Effect::Report { report, .. } => format!("report {}", report.seq),
        Effect::Heard { in_sync, .. } => format!("heard, in sync {in_sync}"),
        Effect::Stale(_) => "stale".to_owned(),
        Effect::Quarantined { .. } => "quarantined".to_owned(),
        Effect::SetTimer(at) => format!("timer {}", at.as_millis() / 1000),
    }
}

fn check(found: &str, expected: &Expect) {
    expected.assert_eq(found);
}

#[test]
fn session_is_told_only_once_it_is_stored() {
    let mut script = Script::new();
    check(
        &script.open(None),
        &expect![[r#"
            facts
            store 1
            1: session 5 epoch 1"#]],
    );
}

#[test]
fn newer_session_fences_the_older_with_its_poll() {
    let mut script = Script::new();
    script.open(None);
    let accepted = script.accepted();
    script.desired(5, Some(accepted), 45);
    check(
        &script.open(None),
        &expect![[r#"
            facts
            store 3
            3: session 6 epoch 1"#]],
    );
    check(&script.desired(5, None, 0), &expect!["4: snapshot at 1.0 of 0: "]);
    check(
        &script.desired(6, None, 0),
        &expect![[r#"
        2: refused Fenced by 6
        store 4
        5: snapshot at 1.0 of 0: "#]],
    );
}

#[test]
fn session_request_that_is_late_or_doubled_fences_nobody() {
    let mut script = Script::new();
    script.open(None);
    check(&script.asks(asks_from(SessionName::new(4, 1), 9)), &expect!["2: refused Busy"]);
    check(
        &script.desired(5, None, 0),
        &expect![[r#"
        store 2
        3: snapshot at 1.0 of 0: "#]],
    );
}

#[test]
fn session_of_a_lost_history_is_to_be_opened_anew_under_a_higher_number() {
    let mut script = Script::new();
    check(&script.desired(9, None, 0), &expect!["1: refused SessionUnknown"]);
    check(
        &script.asks(asks_from(SessionName::new(9, 7), 9)),
        &expect![[r#"
        facts
        store 1"#]],
    );
}

/// A process whose home has this session.
fn asks_from(persisted: SessionName, instance: u64) -> SessionRequest {
    SessionRequest {
        instance: Instance { id: InstanceId(instance), host: format!("host-{instance}") },
        persisted,
        last: persisted.number,
        capabilities: Capabilities::all(),
        ..SessionRequest::default()
    }
}

#[test]
fn session_goes_on_over_a_restart_of_the_hub() {
    let mut script = Script::new();
    check(&script.desired(4, None, 0), &expect!["1: snapshot at 1.0 of 0: "]);
    check(
        &script.report(4, 120, true),
        &expect![[r#"
        heard, in sync true
        report 120
        2: reported 120 memory 1"#]],
    );
    check(&script.report(3, 121, true), &expect!["3: refused Fenced by 4"]);
}

#[test]
fn waiting_poll_is_answered_with_the_change() {
    let mut script = Script::new();
    script.open(None);
    script.sets.put("a");
    let accepted = script.accepted();
    check(
        &script.desired(5, Some(accepted), 45),
        &expect![[r#"
        store 2
        timer 45"#]],
    );
    script.sets.put("b");
    check(&script.event(Event::Committed(vec![target()])), &expect!["2: delta at 1.2 of 2: b"]);
}

#[test]
fn poll_ends_with_nothing_new_after_its_time() {
    let mut script = Script::new();
    script.open(None);
    let accepted = script.accepted();
    script.desired(5, Some(accepted), 1000);
    script.now = 45;
    check(
        &script.event(Event::Timer),
        &expect![[r#"
        2: NothingNew
        timer 120"#]],
    );
}

#[test]
fn commit_that_does_not_concern_a_set_wakes_nobody() {
    let mut script = Script::new();
    script.open(None);
    let accepted = script.accepted();
    script.desired(5, Some(accepted), 45);
    check(&script.event(Event::Committed(vec![target()])), &expect![[""]]);
}

#[test]
fn a_set_that_is_not_of_the_history_is_recorded_with_a_session_and_then_kept_still_over() {
    let mut script = Script::new();
    script.sets.put("a");
    let accepted = script.accepted();
    script.open(None);
    script.sets.continuity = Some(TargetContinuity::Broken { recorded: false });
    check(
        &script.desired(5, Some(accepted), 45),
        &expect![[r#"
        store 2
        2: refused SessionUnknown"#]],
    );
    check(
        &script.open(Some(accepted)),
        &expect![[r#"
            shown 1.1, OwnWord
            facts
            store 3
            3: session 6 epoch 1, broken"#]],
    );
    script.sets.continuity = Some(TargetContinuity::Broken { recorded: true });
    check(
        &script.desired(6, Some(accepted), 45),
        &expect![[r#"
        store 4
        4: Broken"#]],
    );
    check(&script.desired_still(6, Some(accepted), 45), &expect!["timer 45"]);
    script.now = 45;
    check(
        &script.event(Event::Timer),
        &expect![[r#"
        5: Broken
        timer 120"#]],
    );
}

#[test]
fn a_history_that_breaks_is_told_at_once_and_so_is_one_that_is_whole_again() {
    let mut script = Script::new();
    script.sets.put("a");
    script.open(None);
    let accepted = script.accepted();
    script.desired(5, Some(accepted), 45);
    script.sets.continuity = Some(TargetContinuity::Broken { recorded: true });
    check(&script.event(Event::Committed(vec![target()])), &expect!["2: Broken"]);
    script.desired_still(5, Some(accepted), 45);
    script.sets.put("b");
    check(&script.event(Event::Committed(vec![target()])), &expect![""]);
    script.sets.continuity = None;
    script.sets.epoch = 2;
    check(&script.event(Event::Committed(vec![target()])), &expect!["3: SnapshotRequired { epoch: Epoch(2) }"]);
    let accepted = script.accepted();
    check(&script.desired_still(5, Some(accepted), 45), &expect!["4: NothingNew"]);
}

#[test]
fn a_word_of_another_hub_or_another_set_is_a_claim() {
    let key = tideline_common::signature::SigningKey::from_seed([1; 32]);
    let set = Script::new().accepted();
    let shown = Shown { version: set.version, point: RevisionPoint::NOWHERE };
    let attestation = Attestation::unsigned(target(), shown).sign(&key);
    let proof = |set: Accepted, attestation: Attestation, hub: u8| {
        let hub = tideline_common::signature::SigningKey::from_seed([hub; 32]).public();
        let accepted = Some(Attested { set, attestation });
        let request = SessionRequest { accepted, ..asks_from(SessionName::new(4, 1), 9) };
        match Request::session(request, Origin::default(), &hub) {
            Request::Session(_, from) => from.proof,
            other => panic!("{other:?}"),
        }
    };
    let later = Accepted { version: Version { revision: Revision(9), ..set.version }, ..set };
    assert_eq!(proof(set, attestation, 1), Proof::OwnWord);
    assert_eq!(proof(set, attestation, 2), Proof::Claim);
    assert_eq!(proof(later, attestation, 1), Proof::Claim, "it attests another set");
    assert_eq!(proof(set, Attestation::unsigned(target(), shown), 1), Proof::Claim);
}

#[test]
fn delta_over_an_epoch_is_not_to_be_had() {
    let mut script = Script::new();
    script.open(None);
    let accepted = script.accepted();
    script.sets.epoch = 2;
    check(
        &script.desired(5, Some(accepted), 45),
        &expect![[r#"
        store 2
        2: SnapshotRequired { epoch: Epoch(2) }"#]],
    );
}

#[test]
fn silence_becomes_stale_after_its_deadline_and_a_word_makes_it_fresh() {
    let mut script = Script::new();
    assert_eq!(script.core.freshness(target()), Some(Freshness::Unheard));
    script.open(None);
    script.report(5, 1, true);
    assert_eq!(script.core.freshness(target()), Some(Freshness::Fresh));
    script.now = 119;
    check(&script.event(Event::Timer), &expect!["timer 120"]);
    script.now = 120;
    check(&script.event(Event::Timer), &expect!["stale"]);
    assert_eq!(script.core.freshness(target()), Some(Freshness::Stale));
    script.report(5, 2, true);
    assert_eq!(script.core.freshness(target()), Some(Freshness::Fresh));
}

#[test]
fn agent_whose_own_view_is_not_in_sync_is_stale_however_often_it_calls() {
    let mut script = Script::new();
    script.open(None);
    for seq in 1..=13 {
        script.now += 10;
        script.event(Event::Timer);
        script.report(5, seq, false);
    }
    assert_eq!(script.core.freshness(target()), Some(Freshness::Stale));
}

#[test]
fn report_that_comes_late_or_twice_is_answered_and_not_taken_in() {
    let mut script = Script::new();
    script.open(None);
    check(
        &script.report(5, 2, true),
        &expect![[r#"
            store 2
            heard, in sync true
            report 2
            2: reported 2 memory 2"#]],
    );
    check(&script.report(5, 2, true), &expect!["3: reported 2 memory 2"]);
    check(&script.report(5, 1, true), &expect!["4: reported 1 memory 2"]);
}

#[test]
fn body_is_given_only_to_whom_it_is_assigned() {
    let mut script = Script::new();
    script.open(None);
    script.sets.put("a");
    let wanted = |name: &str, of: &str| BodyWanted { key: key(name), input: Digest::of(of.as_bytes()), offset: 0 };
    let wanted = vec![wanted("a", "a"), wanted("a", "older"), wanted("b", "b")];
    let request = BodiesRequest { session: SessionName::new(5, 1), wanted };
    check(
        &script.request(Request::Bodies(request)),
        &expect![[r#"
        store 2
        read a (2 outdated)"#]],
    );
}

#[test]
fn identity_used_from_another_cluster_is_quarantined() {
    let mut script = Script::new();
    let from = |uid: &str| SessionRequest {
        facts: ClusterFacts { cluster: uid.parse().ok(), ..ClusterFacts::default() },
        ..asks_from(SessionName::new(4, 1), 9)
    };
    script.asks(from("first"));
    check(
        &script.asks(from("second")),
        &expect![[r#"
        quarantined
        2: refused Quarantined"#]],
    );
    // It names none, and is another process by then: that is no proof.
    let silent = |host| asks_from(SessionName::new(4, 1), host);
    check(
        &script.asks(silent(8)),
        &expect![[r#"
        quarantined
        3: refused Quarantined"#]],
    );
    // The one at home is served, and from then on whoever names none.
    assert!(!script.asks(from("first")).contains("refused"));
    assert!(!script.asks(silent(8)).contains("Quarantined"));
}

#[test]
fn approval_is_told_at_once_before_all_else_and_taken_back_when_it_ends() {
    let mut script = Script::new();
    script.open(None);
    script.sets.put("a");
    let accepted = script.accepted();
    let asks = |script: &mut Script, held: ApprovedHeld, wait_seconds: u64| {
        script.request(Request::Desired(DesiredRequest {
            session: SessionName::new(5, 1),
            since: Some(accepted.version),
            digest: Some(accepted.digest),
            after: None,
            wait_seconds,
            approved: held,
            decommission: Decommission::No,
            shown: None,
            history: Continuity::Whole,
            stands: None,
        }))
    };
    let none = ApprovedHeld::default();
    assert!(script.sets.approvals.end_listing().is_empty());
    check(
        &asks(&mut script, none, 45),
        &expect![[r#"
        store 2
        timer 45"#]],
    );
    // Of no news to one that waits for nothing else.
    check(&script.event(Event::Approved(vec![target()])), &expect![""]);

    let removal = Tombstone { key: key("b"), source: "s".parse().expect("a UID") };
    let approval =
        Approval { target: target(), expires: 60, until: at(60), removals: [removal].into(), releases: false };
    let changed = script.sets.approvals.put(at(0), "o".parse().expect("a UID"), approval);
    let told = script.event(Event::Approved(changed));
    let page = script.sets.approvals.page(at(0), target(), &none, |_, _| false).expect("it is in force");
    assert_eq!(told, format!("2: {:?}", DesiredAnswer::Approved(page.clone())));

    // The set moves on all the time, and the approval comes first all the same.
    script.sets.put("c");
    let told = asks(&mut script, none, 45);
    assert_eq!(told, format!("3: {:?}", DesiredAnswer::Approved(page.clone())));
    let held = ApprovedHeld { list: page.list, count: 1 };
    check(&asks(&mut script, held, 45), &expect!["4: delta at 1.2 of 2: c"]);

    script.now = 60;
    let changed = script.sets.approvals.expire(at(60));
    assert_eq!(changed, [target()]);
    let told = asks(&mut script, held, 45);
    assert_eq!(told, format!("5: {:?}", DesiredAnswer::Approved(ApprovedPage::default())));
}

#[test]
fn nothing_of_an_approval_is_lost_to_an_agent_that_is_ahead_of_a_replica() {
    let mut script = Script::new();
    script.open(None);
    script.sets.put("a");
    let before = script.sets.revision;
    script.sets.remove("a");
    let since = script.accepted();
    let removal = Tombstone { key: key("a"), source: "a".parse().expect("a UID") };
    let approval =
        Approval { target: target(), expires: 60, until: at(60), removals: [removal.clone()].into(), releases: false };
    assert!(script.sets.approvals.end_listing().is_empty());
    let _changed = script.sets.approvals.put(at(0), "o".parse().expect("a UID"), approval);
    let asks = |script: &mut Script| {
        script.request(Request::Desired(DesiredRequest {
            session: SessionName::new(5, 1),
            since: Some(since.version),
            digest: Some(since.digest),
            after: None,
            wait_seconds: 45,
            approved: ApprovedHeld::default(),
            decommission: Decommission::No,
            shown: None,
            history: Continuity::Whole,
            stands: None,
        }))
    };
    let now = std::mem::replace(&mut script.sets, OneSet { epoch: 1, ..OneSet::default() });
    script.sets.put("a");
    script.sets.approvals = now.approvals.clone();
    assert_eq!(script.sets.revision, before);
    let told = asks(&mut script);
    assert!(!told.contains("Approved"), "a replica that has not heard of the removal tells of its approval: {told}");

    script.sets = now;
    let told = asks(&mut script);
    assert!(told.contains("Approved") && told.contains(&format!("{removal:?}")), "{told}");
}
