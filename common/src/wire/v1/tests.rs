//! One golden file per message, written once and kept for ever: what an old peer sends must stay readable.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;

use expect_test::expect_file;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;
use crate::associated::{AssociatedKind, Example, Made, Phase, Tally};
use crate::{
    Additions, ApplyPolicy, ApproveDeletions, EntryState, FieldMode, FieldPolicy, GroupKind, Prune, PruneAdopted,
    PrunePolicy, ReportClass, Revision, RevisionPoint, SourceRef, StatusPaths, Takeover,
};

/// Writing gives the golden file, and reading the golden file gives the message.
fn golden<T: Serialize + DeserializeOwned + PartialEq + Debug>(name: &str, message: &T) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/v1").join(format!("{name}.json"));
    let written = serde_json::to_string_pretty(message).expect("a message is JSON") + "\n";
    expect_file![&path].assert_eq(&written);
    let golden = std::fs::read_to_string(&path).expect("the golden file is there");
    assert_eq!(&serde_json::from_str::<T>(&golden).expect("it reads back"), message);
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(GroupKind::new("apps", "Deployment"), "shop", name)
}

fn target() -> TargetId {
    "11111111-1111-4111-8111-111111111111".parse().expect("a UUID")
}

fn hub() -> HubId {
    "22222222-2222-4222-8222-222222222222".parse().expect("a UUID")
}

fn uid() -> Uid {
    "33333333-3333-4333-8333-333333333333".parse().expect("a UID")
}

fn version(revision: u64) -> Version {
    Version { epoch: Epoch(1), revision: crate::Revision(revision) }
}

fn facts() -> ClusterFacts {
    ClusterFacts { cluster: Some(uid()), kubernetes_version: "v1.35.4".to_owned(), agent_version: "0.1.0".to_owned() }
}

fn accepted() -> Accepted {
    Accepted { version: version(71), digest: Digest::of(b"set") }
}

fn shown(version: Version) -> Shown {
    let id = uuid::Uuid::from_u128;
    let point =
        RevisionPoint { segment: crate::SegmentId::from_uuid(id(0xa)), id: crate::RevisionId::from_uuid(id(0xb)) };
    Shown { version, point }
}

fn attestation(version: Version) -> Attestation {
    Attestation::unsigned(target(), shown(version)).sign(&crate::signature::SigningKey::from_seed([1; 32]))
}

fn entry() -> Entry {
    Entry {
        key: key("web"),
        version: "v1".into(),
        source: SourceRef {
            space: "retail".parse().expect("a name"),
            uid: uid(),
            namespace: "shop".into(),
            name: "web".into(),
        },
        generation: 3,
        state: EntryState::Apply,
        input: Digest::of(b"input"),
        policy: ApplyPolicy::default().digest(),
        wave: 20,
        impersonate: None,
        implied: false,
    }
}

#[test]
fn enrolment_is_stable() {
    golden(
        "enrol-request",
        &EnrolRequest {
            token: "store-0042".to_owned(),
            agent_key: vec![1; 32],
            hub: hub(),
            facts: facts(),
            proof: Vec::new(),
        }
        .proven(&SigningKey::from_seed([1; 32])),
    );
    golden("enrol-answer", &EnrolAnswer { hub: hub(), target: target(), name: "store-0042".to_owned() });
}

#[test]
fn an_enrolment_is_proven_by_its_own_key_for_its_own_token_and_hub() {
    let with = |seed: u8| {
        let (token, facts) = ("store-0042".to_owned(), facts());
        let bare = EnrolRequest { token, agent_key: Vec::new(), hub: hub(), facts, proof: Vec::new() };
        bare.proven(&SigningKey::from_seed([seed; 32]))
    };
    assert_eq!(with(1).proven_key(), Some(SigningKey::from_seed([1; 32]).public()));
    let agent_key = with(2).agent_key;
    assert_eq!(EnrolRequest { agent_key, ..with(1) }.proven_key(), None, "somebody else's key");
    assert_eq!(EnrolRequest { token: "other".to_owned(), ..with(1) }.proven_key(), None);
    assert_eq!(EnrolRequest { hub: HubId::from_uuid(uuid::Uuid::from_u128(7)), ..with(1) }.proven_key(), None);
    assert_eq!(EnrolRequest { proof: Vec::new(), ..with(1) }.proven_key(), None);
}

#[test]
fn session_is_stable() {
    golden(
        "session-request",
        &SessionRequest {
            facts: facts(),
            accepted: Some(Attested { set: accepted(), attestation: attestation(version(71)) }),
            instance: Instance { id: InstanceId(0x3f9c_2b7d_10e8_a645), host: "store-0042-0".to_owned() },
            persisted: SessionName::new(7, 5),
            last: SessionNumber(9),
            fenced: Some(Fenced { session: SessionName::new(7, 5), by: SessionName::new(9, 6) }),
            capabilities: Capabilities::all(),
            ..SessionRequest::default()
        },
    );
    let poll = PollSettings { wait_seconds: 45, stale_after_seconds: 120 };
    let addresses = HubAddresses {
        urls: vec!["https://hub.example.com:8443".to_owned()],
        authorities: vec![Authority::from_der([2; 8]).unwrap()],
    };
    let answer = |history| SessionAnswer {
        session: SessionName::new(7, 1),
        outdated: false,
        epoch: Epoch(1),
        poll,
        addresses: addresses.clone(),
        history,
        cluster: facts().cluster,
        handover: None,
    };
    golden("session-answer", &answer(Continuity::Whole));
    golden("session-answer-broken", &answer(Continuity::Broken));
}

#[test]
fn refused_number_is_stable() {
    let refusal = Refusal {
        refusal: RefusalKind::BadRequestNumber,
        message: "no number that is free in this run of the hub".to_owned(),
        retry_after_seconds: None,
        fenced_by: None,
    };
    let addresses = HubAddresses { urls: vec!["https://hub.example.com".to_owned()], ..HubAddresses::default() };
    golden("number-refused", &NumberRefused { refusal, addresses });
}

#[test]
fn desired_is_stable() {
    golden(
        "desired-request",
        &DesiredRequest {
            session: SessionName::new(7, 1),
            since: Some(version(70)),
            digest: Some(Digest::of(b"set")),
            after: Some(key("api")),
            wait_seconds: 45,
            approved: ApprovedHeld::default(),
            decommission: Decommission::No,
            shown: Some(shown(version(70))),
            history: Continuity::Broken,
            stands: None,
        },
    );
    golden("desired-broken", &DesiredAnswer::Broken);
    golden("desired-report-again", &DesiredAnswer::ReportAgain);
    golden("desired-nothing-new", &DesiredAnswer::NothingNew);
    golden("desired-snapshot-required", &DesiredAnswer::SnapshotRequired { epoch: Epoch(2) });
    let withheld = Entry { key: key("api"), state: EntryState::Withheld(Reason::Conflict), ..entry() };
    let policy = Arc::new(ApplyPolicy::default());
    golden(
        "desired-page",
        &DesiredAnswer::Page(DesiredPage {
            at: version(71),
            attestation: attestation(version(71)),
            digest: Digest::of(b"set"),
            total: 9,
            snapshot: false,
            entries: vec![Arc::new(withheld), Arc::new(entry())],
            tombstones: vec![
                Tombstone { key: key("old"), source: uid() }
                    .under(PrunePolicy::of(&ApplyPolicy::default()), Revision(12)),
            ],
            policies: [(policy.digest(), policy)].into(),
            terminal: vec![TerminalFact { key: key("web"), source_uid: uid(), fact: Terminal::Finished }],
            next: Some(key("web")),
            decommission: Decommission::No,
            absence_unexplained: true,
        }),
    );
}

#[test]
fn approvals_are_stable() {
    golden(
        "desired-request-approved",
        &DesiredRequest {
            session: SessionName::new(7, 1),
            since: None,
            digest: None,
            after: None,
            wait_seconds: 0,
            approved: ApprovedHeld { list: Some(Digest::of(b"list")), count: 1 },
            decommission: Decommission::No,
            shown: None,
            history: Continuity::Whole,
            stands: None,
        },
    );
    golden(
        "desired-approved",
        &DesiredAnswer::Approved(ApprovedPage {
            list: Some(Digest::of(b"list")),
            offset: 1,
            count: 1,
            total: 2,
            expires_seconds: 3600,
            removals: vec![Tombstone { key: key("old"), source: uid() }],
            releases: Vec::new(),
        }),
    );
    golden("desired-approved-none", &DesiredAnswer::Approved(ApprovedPage::default()));
    let list = Some(Digest::of(b"list"));
    let releases = vec![Tombstone { key: key("old"), source: uid() }];
    let released =
        ApprovedPage { list, count: 1, total: 1, expires_seconds: 3600, releases, ..ApprovedPage::default() };
    golden("desired-released", &DesiredAnswer::Approved(released));
}

#[test]
fn decommissioning_is_stable() {
    golden(
        "desired-request-decommission",
        &DesiredRequest {
            session: SessionName::new(7, 1),
            since: None,
            digest: None,
            after: None,
            wait_seconds: 0,
            approved: ApprovedHeld::default(),
            decommission: Decommission::Keep,
            shown: None,
            history: Continuity::Whole,
            stands: None,
        },
    );
    let policy = PrunePolicy {
        prune: Prune::Delete,
        prune_adopted: PruneAdopted::AsCreated,
        approve_deletions: ApproveDeletions::InAdvance,
        adopted: Some(Takeover::IfUnmanaged),
    };
    golden(
        "desired-page-decommission",
        &DesiredAnswer::Page(DesiredPage {
            at: version(72),
            attestation: attestation(version(72)),
            digest: Digest::of(b"empty"),
            total: 0,
            snapshot: false,
            entries: Vec::new(),
            tombstones: vec![Tombstone { key: key("old"), source: uid() }.under(policy, Revision(11))],
            policies: BTreeMap::new(),
            terminal: Vec::new(),
            next: None,
            decommission: Decommission::Remove,
            absence_unexplained: false,
        }),
    );
    golden(
        "reported-request-decommission",
        &ReportedRequest {
            session: SessionName::new(7, 1),
            seq: 12,
            accepted: Some(accepted()),
            applied: Some(version(72)),
            in_sync: true,
            conditions: Vec::new(),
            objects: Vec::new(),
            associated: Vec::new(),
            removed: Vec::new(),
            terminal: Vec::new(),
            overtaken: Vec::new(),
            decommission: Some(DecommissionReport { how: Decommission::Keep, left: 3 }),
            goodbye: false,
        },
    );
}

#[test]
fn policies_are_stable() {
    let pair = |name: &str, value: &str| [(name.to_owned(), value.to_owned())].into();
    let policy = ApplyPolicy {
        additions: Additions { labels: pair("team", "shop"), annotations: pair("cost/centre", "42") },
        fields: vec![FieldPolicy { path: "/spec/replicas".to_owned(), mode: FieldMode::Initial }],
        ..ApplyPolicy::default()
    };
    golden("policy-additions", &policy);
    let associated = [AssociatedKind::Pods, AssociatedKind::ReplicaSets].into();
    golden("policy-associated", &ApplyPolicy { associated, ..ApplyPolicy::default() });
    golden("policy-report-health", &ApplyPolicy { report: ReportClass::Health, ..ApplyPolicy::default() });
    let paths = ["/status/readyReplicas", "$.status.conditions[?(@.type=='Available')].status"];
    let report = ReportClass::Paths(StatusPaths::new(paths).unwrap());
    golden("policy-report-paths", &ApplyPolicy { report, ..ApplyPolicy::default() });
}

#[test]
fn bodies_are_stable() {
    golden(
        "bodies-request",
        &BodiesRequest {
            session: SessionName::new(7, 1),
            wanted: vec![BodyWanted { key: key("web"), input: Digest::of(b"input"), offset: 0 }],
        },
    );
    let text = r#"{"apiVersion":"apps/v1","kind":"Deployment"}"#;
    golden(
        "bodies-answer",
        &BodiesAnswer {
            bodies: vec![Body {
                input: Digest::of(b"input"),
                sha256: Digest::of(text.as_bytes()),
                size: text.len() as u64,
                offset: 0,
                text: text.to_owned(),
            }],
            outdated: vec![Digest::of(b"older")],
        },
    );
}

#[test]
fn reported_is_stable() {
    let status = RawValue::from_string(r#"{"observedGeneration":3,"readyReplicas":2}"#.to_owned()).expect("JSON");
    golden(
        "reported-request",
        &ReportedRequest {
            session: SessionName::new(7, 1),
            seq: 12,
            accepted: Some(accepted()),
            applied: Some(version(70)),
            in_sync: true,
            conditions: vec![TargetCondition { reason: Reason::Forbidden, count: 2, message: "secrets".to_owned() }],
            objects: vec![ObjectReport {
                key: key("web"),
                source_uid: uid(),
                progress: Progress::Applied,
                reason: None,
                message: String::new(),
                input: Some(Digest::of(b"input")),
                health: Health::Ready,
                observed_generation: Some(3),
                terminal: None,
                status: Some(Arc::from(status)),
            }],
            associated: Vec::new(),
            removed: vec![Tombstone { key: key("old"), source: uid() }],
            terminal: Vec::new(),
            overtaken: vec![Tombstone { key: key("web"), source: uid() }],
            decommission: None,
            goodbye: false,
        },
    );
    golden(
        "reported-request-ran",
        &ReportedRequest {
            session: SessionName::new(7, 1),
            seq: 13,
            accepted: None,
            applied: None,
            in_sync: true,
            conditions: Vec::new(),
            objects: Vec::new(),
            associated: Vec::new(),
            removed: vec![Tombstone { key: key("old"), source: uid() }],
            terminal: vec![TerminalFact { key: key("old"), source_uid: uid(), fact: Terminal::Finished }],
            overtaken: Vec::new(),
            decommission: None,
            goodbye: false,
        },
    );
    golden("reported-answer", &ReportedAnswer { seq: 12, memory: 7, stands: false });
    golden("reported-answer-stands", &ReportedAnswer { seq: 12, memory: 7, stands: true });
}

#[test]
fn the_encoding_of_associated_counts_is_stable() {
    let pods = Tally {
        total: 3,
        ready: 1,
        phases: [(Phase::Running, 2), (Phase::Pending, 1)].into(),
        reasons: [("CrashLoopBackOff".to_owned(), 1), ("Unschedulable".to_owned(), 1)].into(),
        restarts: 17,
        ..Tally::default()
    };
    let worst = Example {
        name: "web-7d4b9c-x2x2x".to_owned(),
        phase: Phase::Running,
        reason: Some("CrashLoopBackOff".to_owned()),
        restarts: 17,
        node: Some("node-1".to_owned()),
    };
    let slices = Tally {
        total: 1,
        ready: 1,
        phases: [(Phase::Running, 1)].into(),
        endpoints: 3,
        endpoints_ready: 2,
        ..Tally::default()
    };
    let made = [
        (AssociatedKind::Pods, Made { tally: pods, worst: vec![worst] }),
        (AssociatedKind::EndpointSlices, Made { tally: slices, worst: Vec::new() }),
    ];
    let report = AssociatedReport { key: key("web"), source_uid: uid(), made: made.into() };
    let nothing = AssociatedReport { key: key("api"), source_uid: uid(), made: BTreeMap::new() };
    golden(
        "reported-request-associated",
        &ReportedRequest {
            session: SessionName::new(7, 1),
            seq: 13,
            accepted: None,
            applied: None,
            in_sync: true,
            conditions: Vec::new(),
            objects: Vec::new(),
            associated: vec![report, nothing],
            removed: Vec::new(),
            terminal: Vec::new(),
            overtaken: Vec::new(),
            decommission: None,
            goodbye: true,
        },
    );
}

#[test]
fn refusal_is_stable() {
    golden(
        "refusal",
        &Refusal {
            refusal: RefusalKind::Fenced,
            message: "another session is in use".to_owned(),
            retry_after_seconds: None,
            fenced_by: Some(SessionName::new(9, 6)),
        },
    );
}

#[test]
fn an_unknown_policy_value_of_a_tombstone_destroys_nothing() {
    let text = r#"{"kind": "Job", "group": "batch", "namespace": "a", "name": "b", "sourceUid": "u",
        "prune": "Shred", "pruneAdopted": "Shred", "approveDeletions": "Always"}"#;
    let read: Unassignment = serde_json::from_str(text).expect("it reads");
    assert_eq!(read.policy, PrunePolicy::LEAST);
    let silent = r#"{"kind": "Job", "group": "batch", "namespace": "a", "name": "b", "sourceUid": "u"}"#;
    assert!(serde_json::from_str::<Unassignment>(silent).is_err(), "what says nothing is no tombstone");
}

#[test]
fn what_a_newer_peer_adds_is_ignored_or_unknown() {
    let refusal: Refusal =
        serde_json::from_str(r#"{"refusal": "OnFire", "message": "", "later": {"a": 1}}"#).expect("it reads");
    assert_eq!(refusal.refusal, RefusalKind::Unknown);
    let answer: DesiredAnswer = serde_json::from_str(r#"{"answer": "Perhaps", "odds": 0.5}"#).expect("it reads");
    assert_eq!(answer, DesiredAnswer::Unknown);
    let report = r#"{"kind": "Job", "group": "batch", "namespace": "a", "name": "b", "sourceUid": "u",
        "progress": "Melting", "health": "Molten", "reason": "Heat"}"#;
    let report: ObjectReport = serde_json::from_str(report).expect("it reads");
    assert_eq!(
        (report.progress, report.health, report.reason),
        (Progress::Unknown, Health::Unknown, Some(Reason::Unknown))
    );
}

#[test]
fn handover_has_its_file() {
    let handover = Some(Handover { key: vec![7; 32], former: target(), target: target(), name: "store-42".to_owned() });
    let poll = PollSettings { wait_seconds: 45, stale_after_seconds: 120 };
    let (session, epoch) = (SessionName::default(), Epoch(0));
    golden(
        "session-handover",
        &SessionAnswer {
            session,
            outdated: true,
            epoch,
            poll,
            addresses: HubAddresses::default(),
            history: Continuity::Whole,
            cluster: None,
            handover,
        },
    );
}

#[test]
fn a_terminal_state_is_kept_whatever_is_heard_late() {
    use Terminal::{CreatedOnce, Finished, MayHaveRun, Released, Started, Unknown};
    for fact in [Finished, CreatedOnce, Started, MayHaveRun, Released, Unknown] {
        assert_eq!(fact.is_news_after(None), fact != Unknown);
        assert!(!fact.is_news_after(Some(fact)) && !fact.is_news_after(Some(Finished)));
    }
    assert!(Started.is_news_after(Some(CreatedOnce)) && !CreatedOnce.is_news_after(Some(Started)));
    assert!(Finished.is_news_after(Some(Started)) && MayHaveRun.is_news_after(Some(Started)));
}
