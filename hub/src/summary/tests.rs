mod recomputed;

use std::sync::Arc;

use roaring::RoaringBitmap;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tideline_common::associated::{Made, Tally};
use tideline_common::health::Health;
use tideline_common::rollup::Freshness;
use tideline_common::wire::v1::{AssociatedReport, ObjectReport, Progress, ReportedRequest};
use tideline_common::{AssociatedKind, Digest, GroupKind, ObjectKey, Reason, SessionName, TargetId, Tombstone, Uid};

use super::{Due, Expectation, Heard, Overview, Summary, exact_status, overview};

fn key() -> ObjectKey {
    ObjectKey::new(GroupKind::new("apps", "Deployment"), "shop", "web")
}

fn uid(text: &str) -> Uid {
    text.parse().expect("a UID")
}

fn target(n: u8) -> TargetId {
    format!("00000000-0000-4000-8000-{n:012}").parse().expect("a UUID")
}

fn report(progress: Progress, health: Health, input: &str) -> ObjectReport {
    ObjectReport {
        key: key(),
        source_uid: uid("source"),
        progress,
        reason: None,
        message: String::new(),
        input: Some(Digest::of(input.as_bytes())),
        health,
        observed_generation: None,
        terminal: None,
        status: None,
    }
}

/// The first report of a session, which says that all is well and nothing else.
pub(crate) fn all_is_well() -> ReportedRequest {
    ReportedRequest {
        session: SessionName::new(1, 1),
        seq: 1,
        accepted: None,
        applied: None,
        in_sync: true,
        conditions: Vec::new(),
        objects: Vec::new(),
        associated: Vec::new(),
        removed: Vec::new(),
        terminal: Vec::new(),
        overtaken: Vec::new(),
        decommission: None,
        goodbye: false,
    }
}

fn request(objects: Vec<ObjectReport>, removed: Vec<Tombstone>) -> ReportedRequest {
    ReportedRequest { objects, removed, ..all_is_well() }
}

/// Targets from the first on that are believed so far.
fn heard(freshness: &[Freshness]) -> (Heard, RoaringBitmap) {
    let mut heard = Heard::default();
    for (freshness, index) in freshness.iter().zip(1..) {
        heard.set(index, *freshness);
    }
    (heard, (1..).take(freshness.len()).collect())
}

fn sum(summary: &Summary, freshness: &[Freshness], desired: &str) -> Overview {
    let key = key();
    let (heard, targets) = heard(freshness);
    let due = Due::Input(Digest::of(desired.as_bytes()));
    let expected = Expectation { key: &key, due, targets };
    overview(summary, &heard, &uid("source"), std::iter::once(expected), std::iter::empty())
}

#[test]
fn what_many_targets_say_in_the_same_words_is_kept_once() {
    let mut summary = Summary::default();
    let (ready, failed) =
        (|| report(Progress::Applied, Health::Ready, "b"), || report(Progress::Failed, Health::Ready, "b"));
    for n in 1..=10 {
        let said = if n % 5 == 0 { failed() } else { ready() };
        summary.take(target(n), n.into(), request(vec![said], Vec::new()));
    }
    let kept = |n| summary.report(target(n), &key(), &uid("source")).expect("it was said");
    let same = |a, b| Arc::ptr_eq(kept(a), kept(b));
    assert!((1..=9).filter(|n| n % 5 != 0).all(|n| same(1, n)) && same(5, 10) && !same(1, 5));
    assert_eq!((&**kept(1), &**kept(5)), (&ready(), &failed()));
    // Each is changed for itself.
    summary.take(target(1), 1, request(vec![failed()], Vec::new()));
    let kept = |n| summary.report(target(n), &key(), &uid("source")).expect("it was said");
    assert_eq!((&**kept(1), &**kept(2)), (&failed(), &ready()));
}

#[test]
fn silence_is_unknown_and_an_old_input_is_not_ready() {
    let mut summary = Summary::default();
    summary.take(target(1), 1, request(vec![report(Progress::Applied, Health::Ready, "v2")], Vec::new()));
    summary.take(target(2), 2, request(vec![report(Progress::Applied, Health::Ready, "v1")], Vec::new()));
    let Overview { counts, worst, made: _ } = sum(&summary, &[Freshness::Fresh; 3], "v2");
    assert_eq!((counts.expected, counts.reported, counts.applied, counts.ready), (3, 2, 1, 1));
    assert_eq!((counts.progressing, counts.unknown), (1, 1));
    let worst: Vec<_> = worst.into_iter().map(|worst| (worst.target, worst.reason)).collect();
    assert_eq!(worst, [(3, Reason::Unknown), (2, Reason::Progressing)]);
}

#[test]
fn stale_target_is_never_ready_and_never_dropped() {
    let mut summary = Summary::default();
    summary.take(target(1), 1, request(vec![report(Progress::Applied, Health::Ready, "v1")], Vec::new()));
    let counts = sum(&summary, &[Freshness::Stale], "v1").counts;
    assert_eq!((counts.expected, counts.stale, counts.ready), (1, 1, 0));
}

#[test]
fn report_of_another_source_at_the_same_place_says_nothing() {
    let mut summary = Summary::default();
    let other = ObjectReport { source_uid: uid("other"), ..report(Progress::Applied, Health::Ready, "v1") };
    summary.take(target(1), 1, request(vec![other], Vec::new()));
    assert_eq!(sum(&summary, &[Freshness::Fresh], "v1").counts.unknown, 1);
}

#[test]
fn what_waits_for_another_s_place_is_withheld_and_says_so() {
    let key = key();
    let (heard, targets) = heard(&[Freshness::Fresh, Freshness::Stale]);
    let expected = std::iter::once(Expectation { key: &key, due: Due::Another, targets });
    let Overview { counts, worst, made: _ } =
        overview(&Summary::default(), &heard, &uid("source"), expected, std::iter::empty());
    assert_eq!((counts.expected, counts.withheld, counts.unknown, counts.reported), (2, 2, 0, 0));
    assert!(counts.is_consistent());
    let worst: Vec<_> = worst.into_iter().map(|worst| (worst.target, worst.reason)).collect();
    assert_eq!(worst, [(1, Reason::Conflict), (2, Reason::Conflict)]);
}

#[test]
fn removal_that_is_held_is_counted_and_named_until_it_is_confirmed() {
    let mut summary = Summary::default();
    let leaving = |summary: &Summary| {
        let key = key();
        let (heard, targets) = heard(&[Freshness::Fresh; 2]);
        let leaving = std::iter::once((&key, targets));
        overview(summary, &heard, &uid("source"), std::iter::empty(), leaving)
    };
    summary.take(target(1), 1, request(vec![report(Progress::Applied, Health::Ready, "v1")], Vec::new()));
    assert_eq!((leaving(&summary).counts.deleting, leaving(&summary).worst), (2, Vec::new()));

    let held = ObjectReport {
        reason: Some(Reason::NotEmpty),
        message: "it holds a PersistentVolumeClaim".to_owned(),
        ..report(Progress::DeletionHeld, Health::Ready, "v1")
    };
    summary.take(target(1), 1, request(vec![held], Vec::new()));
    let Overview { counts, worst, made: _ } = leaving(&summary);
    assert_eq!((counts.expected, counts.deleting, counts.withheld), (0, 2, 0));
    let worst: Vec<_> = worst.iter().map(|worst| (worst.target, worst.reason, worst.message.as_str())).collect();
    assert_eq!(worst, [(1, Reason::NotEmpty, "it holds a PersistentVolumeClaim")]);
}

fn pods(source: &str, total: u64, reason: &str) -> AssociatedReport {
    let reasons = [(reason.to_owned(), total)].into();
    let tally = Tally { total, ready: 1, reasons, restarts: 2, ..Tally::default() };
    let made = [(AssociatedKind::Pods, Made { tally, worst: Vec::new() })].into();
    AssociatedReport { key: key(), source_uid: uid(source), made }
}

#[test]
fn what_was_made_is_summed_over_the_targets_and_says_why_one_is_not_well() {
    let mut summary = Summary::default();
    let unready =
        || ObjectReport { message: "1 of 3".to_owned(), ..report(Progress::Applied, Health::Progressing, "v1") };
    for n in 1..=3 {
        let associated = vec![pods("source", n.into(), "CrashLoopBackOff")];
        summary.take(target(n), n.into(), ReportedRequest { associated, ..request(vec![unready()], Vec::new()) });
    }
    let Overview { made, worst, .. } = sum(&summary, &[Freshness::Fresh, Freshness::Fresh, Freshness::Stale], "v1");
    let sum = &made.0[&AssociatedKind::Pods];
    assert_eq!((sum.targets, sum.tally.total, sum.tally.ready, sum.tally.restarts), (3, 6, 2, 6));
    assert_eq!(sum.tally.reasons["CrashLoopBackOff"], 6);
    let messages: Vec<_> = worst.iter().map(|worst| worst.message.as_str()).collect();
    assert_eq!(messages[1..], ["1 of 3; pods: 1 CrashLoopBackOff", "1 of 3; pods: 2 CrashLoopBackOff"]);
}

#[test]
fn what_was_made_stands_while_it_is_asked_for_and_only_in_its_session() {
    let mut summary = Summary::default();
    let saying = |associated: Vec<AssociatedReport>| ReportedRequest { associated, ..request(Vec::new(), Vec::new()) };
    let total = |summary: &Summary| {
        summary.made(target(1), &key(), &uid("source")).map(|made| made.made[&AssociatedKind::Pods].tally.total)
    };
    summary.take(target(1), 1, saying(vec![pods("source", 3, "Why")]));
    summary.take(target(1), 1, saying(Vec::new()));
    assert_eq!(total(&summary), Some(3));
    assert_eq!(summary.made(target(1), &key(), &uid("other")), None);
    let nothing = AssociatedReport { made: std::collections::BTreeMap::new(), ..pods("source", 0, "") };
    summary.take(target(1), 1, saying(vec![nothing]));
    assert_eq!(total(&summary), None);

    summary.take(target(1), 1, saying(vec![pods("source", 3, "Why")]));
    let stone = Tombstone { key: key(), source: uid("source") };
    summary.take(target(1), 1, request(Vec::new(), vec![stone]));
    assert_eq!(total(&summary), None, "it was removed");

    summary.take(target(1), 1, saying(vec![pods("source", 3, "Why")]));
    summary.take(target(1), 1, ReportedRequest { session: SessionName::new(2, 1), ..saying(Vec::new()) });
    assert_eq!(total(&summary), None, "another session began");
}

#[test]
fn taking_a_report_twice_changes_nothing() {
    let mut summary = Summary::default();
    let status = || RawValue::from_string(r#"{"replicas":1}"#.to_owned()).expect("JSON").into();
    let with =
        |status| request(vec![ObjectReport { status, ..report(Progress::Applied, Health::Ready, "v1") }], Vec::new());
    assert_eq!(summary.take(target(1), 1, with(Some(status()))).changed, [key()]);
    assert_eq!(summary.take(target(1), 1, with(Some(status()))).changed, []);
    // Of what has none, as ConfigMaps, there is none to be written.
    assert_eq!(summary.take(target(1), 1, with(None)).changed, []);
}

#[test]
fn confirmed_removal_takes_the_report_of_that_source_only() {
    let mut summary = Summary::default();
    summary.take(target(1), 1, request(vec![report(Progress::Applied, Health::Ready, "v1")], Vec::new()));
    let stone = |source: &str| Tombstone { key: key(), source: uid(source) };
    summary.take(target(1), 1, request(Vec::new(), vec![stone("former")]));
    assert!(summary.report(target(1), &key(), &uid("source")).is_some());
    let taken = summary.take(target(1), 1, request(Vec::new(), vec![stone("source")]));
    assert_eq!(taken.confirmed, [stone("source")]);
    assert!(summary.report(target(1), &key(), &uid("source")).is_none());
}

#[test]
fn of_whom_nothing_is_asked_but_progress_it_is_known_that_it_is_applied_and_no_more() {
    let mut summary = Summary::default();
    summary.take(target(1), 1, request(vec![report(Progress::Applied, Health::Unknown, "v1")], Vec::new()));
    let counts = sum(&summary, &[Freshness::Fresh], "v1").counts;
    assert_eq!((counts.reported, counts.applied, counts.unknown, counts.ready), (1, 1, 1, 0));
    let failed = ObjectReport { reason: Some(Reason::Denied), ..report(Progress::Failed, Health::Unknown, "v1") };
    summary.take(target(1), 1, request(vec![failed], Vec::new()));
    let Overview { counts, worst, .. } = sum(&summary, &[Freshness::Fresh], "v1");
    assert_eq!((counts.failed, worst[0].reason), (1, Reason::Denied));
}

#[test]
fn exact_status_speaks_of_source_generations() {
    let local = json!({
        "observedGeneration": 14, "readyReplicas": 2, "collisionCount": 1,
        "conditions": [{"type": "Available", "status": "True", "observedGeneration": 14}, {"type": "Progressing"}],
    });
    let status = |observed_generation| {
        let raw = RawValue::from_string(local.to_string()).expect("JSON");
        let report = ObjectReport {
            status: Some(Arc::from(raw)),
            observed_generation,
            ..report(Progress::Applied, Health::Ready, "v1")
        };
        exact_status(&report).expect("there is one")
    };
    let expected: Value = json!({
        "observedGeneration": 3, "readyReplicas": 2,
        "conditions": [{"type": "Available", "status": "True", "observedGeneration": 3}, {"type": "Progressing"}],
    });
    assert_eq!(status(Some(3)), expected);
    assert_eq!(status(None).get("observedGeneration"), None);
}
