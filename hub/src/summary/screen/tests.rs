use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::value::RawValue;
use tideline_common::associated::Made;
use tideline_common::health::Health;
use tideline_common::wire::v1::{Decommission, DecommissionReport, Terminal, TerminalFact};
use tideline_common::{AssociatedKind, GroupKind, SessionName, TargetId, Tombstone};

use super::super::Summary;
use super::super::target::Known;
use super::super::tests::all_is_well;
use super::*;
use crate::bitmap::TargetIndex;

/// One object is assigned, and one is leaving.
struct Two;

impl Scope for Two {
    fn assigned(&self) -> usize {
        1
    }

    fn concern(&self, key: &ObjectKey, source: &Uid) -> Concern {
        match (&*key.name, source.to_string().as_str()) {
            ("assigned", "a") => Concern::Assigned,
            ("leaving", "l") => Concern::Leaving,
            _ => Concern::Nothing,
        }
    }
}

/// Everything is assigned, and there is room as for one object.
struct All;

impl Scope for All {
    fn assigned(&self) -> usize {
        1
    }

    fn concern(&self, _: &ObjectKey, _: &Uid) -> Concern {
        Concern::Assigned
    }
}

const INDEX: TargetIndex = 1;

/// What is known of a target, so many bytes of it.
fn known_of(bytes: usize) -> Known {
    let mut known = Known::new(INDEX, BTreeMap::new());
    known.bytes = bytes;
    known
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(GroupKind::new("", "ConfigMap"), "shop", name)
}

fn uid(text: &str) -> Uid {
    text.parse().expect("a UID")
}

fn target() -> TargetId {
    "00000000-0000-4000-8000-000000000001".parse().expect("a UUID")
}

fn word(name: &str, source: &str, progress: Progress) -> ObjectReport {
    ObjectReport {
        key: key(name),
        source_uid: uid(source),
        progress,
        reason: None,
        message: String::new(),
        input: None,
        health: Health::Unknown,
        observed_generation: None,
        terminal: None,
        status: None,
    }
}

fn status(bytes: usize) -> Arc<RawValue> {
    let text = format!("{{\"text\":\"{}\"}}", "x".repeat(bytes));
    RawValue::from_string(text).expect("JSON").into()
}

fn saying(objects: Vec<ObjectReport>) -> ReportedRequest {
    ReportedRequest { objects, ..all_is_well() }
}

fn screened(objects: Vec<ObjectReport>) -> Screened {
    screen(&Two, Service::InPlace, None, saying(objects))
}

fn names(screened: &Screened) -> Vec<&str> {
    screened.report.objects.iter().map(|object| &*object.key.name).collect()
}

#[test]
fn what_is_assigned_leaving_or_held_is_taken_in_and_nothing_else() {
    let all = [
        word("assigned", "a", Progress::Applied),
        word("assigned", "of another target", Progress::Applied),
        word("leaving", "l", Progress::Deleting),
        word("held", "h", Progress::DeletionHeld),
        word("invented", "i", Progress::Applied),
    ];
    let found = screened(all.into());
    assert_eq!(names(&found), ["assigned", "leaving", "held"]);
    assert_eq!((found.dropped, found.breaches.len()), (2, 0), "it may have been assigned a moment ago");
}

#[test]
fn what_is_held_has_no_status() {
    let found = screened(vec![ObjectReport { status: Some(status(1)), ..word("held", "h", Progress::DeletionHeld) }]);
    assert!(found.report.objects[0].status.is_none());
}

#[test]
fn texts_statuses_and_counts_that_are_too_long_are_cut_or_dropped() {
    let long = ObjectReport { message: "ü".repeat(MESSAGE_BYTES_MAX), ..word("assigned", "a", Progress::Failed) };
    let found = screened(vec![long]);
    assert_eq!(found.report.objects[0].message.len(), MESSAGE_BYTES_MAX);
    assert_eq!(found.breaches, BTreeSet::from([Breach::Size]));

    let large = ObjectReport { status: Some(status(STATUS_BYTES_MAX)), ..word("assigned", "a", Progress::Applied) };
    let found = screened(vec![large]);
    assert!(found.report.objects[0].status.is_none());
    assert_eq!(found.report.objects[0].reason, Some(Reason::StatusTooLarge));
    assert_eq!(found.breaches, BTreeSet::from([Breach::Size]));

    let deep = |levels: usize| {
        let text = format!("{}{}", "{\"a\":".repeat(levels - 1) + "{", "}".repeat(levels));
        let status = Some(RawValue::from_string(text).expect("JSON").into());
        screened(vec![ObjectReport { status, ..word("assigned", "a", Progress::Applied) }])
    };
    let found = deep(STATUS_LEVELS_MAX);
    assert!(found.report.objects[0].status.is_some() && found.breaches.is_empty());
    for levels in [STATUS_LEVELS_MAX + 1, 1_000, 10_000] {
        let found = deep(levels);
        assert!(found.report.objects[0].status.is_none(), "{levels}");
        assert_eq!(found.report.objects[0].reason, Some(Reason::StatusTooLarge));
        assert_eq!(found.breaches, BTreeSet::from([Breach::Size]));
    }

    let mut made = Made::default();
    made.tally.reasons = (0..ASSOCIATED_BYTES_MAX).map(|number| (number.to_string(), 1)).collect();
    let counts = |name: &str, source: &str, made: &Made| AssociatedReport {
        key: key(name),
        source_uid: uid(source),
        made: BTreeMap::from([(AssociatedKind::Pods, made.clone())]),
    };
    let report = ReportedRequest {
        associated: vec![
            counts("assigned", "a", &Made::default()),
            counts("leaving", "l", &made),
            counts("assigned", "other", &Made::default()),
        ],
        ..saying(Vec::new())
    };
    let found = screen(&Two, Service::InPlace, None, report);
    assert_eq!((found.report.associated.len(), found.dropped), (1, 1));
    assert_eq!(found.breaches, BTreeSet::from([Breach::Size]));
}

#[test]
fn conditions_are_one_of_each_reason() {
    let condition = |message: String| TargetCondition { reason: Reason::Copy, count: 1, message };
    let conditions = (0..10_000).map(|number| condition(format!("{number}"))).collect();
    let found = screen(&Two, Service::InPlace, None, ReportedRequest { conditions, ..saying(Vec::new()) });
    assert_eq!(found.report.conditions, [condition("0".to_owned())]);
}

#[test]
fn conditions_of_the_hub_are_no_agent_s_to_say() {
    let condition = |reason: &Reason| TargetCondition { reason: *reason, count: 1, message: String::new() };
    let conditions = Reason::ALL.iter().map(condition).collect();
    let found = screen(&Two, Service::InPlace, None, ReportedRequest { conditions, ..saying(Vec::new()) });
    let said: Vec<_> = found.report.conditions.iter().map(|condition| condition.reason).collect();
    let own = [Reason::Ready, Reason::MayHaveRun, Reason::DuplicateAgent, Reason::AgentTooOld, Reason::TooMuchReported];
    assert!(own.iter().all(|reason| !said.contains(reason)), "{said:?}");
    assert!([Reason::Copy, Reason::Forbidden, Reason::Unknown].iter().all(|reason| said.contains(reason)), "{said:?}");
}

#[test]
fn only_of_a_target_that_leaves_it_is_heard_how_far_it_is() {
    let decommission = Some(DecommissionReport { how: Decommission::Keep, left: 1 });
    for (service, heard) in [(Service::InPlace, None), (Service::Leaving, decommission)] {
        let found = screen(&Two, service, None, ReportedRequest { decommission, ..saying(Vec::new()) });
        assert_eq!(found.report.decommission, heard);
    }
}

#[test]
fn a_message_has_so_many_words() {
    let held = |nth: usize| word(&nth.to_string(), "h", Progress::DeletionHeld);
    let found = screened((0..=REPORT_PAGE_OBJECTS_MAX).map(held).collect());
    assert_eq!(found.report.objects.len(), REPORT_PAGE_OBJECTS_MAX);
    assert_eq!(found.breaches, BTreeSet::from([Breach::Words]));
}

#[test]
fn removals_are_confirmed_of_what_is_leaving_or_was_told() {
    let mut summary = Summary::default();
    summary.take(target(), INDEX, saying(vec![word("held", "h", Progress::DeletionHeld)]));
    let removed = [("leaving", "l"), ("held", "h"), ("invented", "i")];
    let removed = removed.map(|(name, source)| Tombstone { key: key(name), source: uid(source) });
    let ran = |Tombstone { key, source }: &Tombstone| TerminalFact {
        key: key.clone(),
        source_uid: source.clone(),
        fact: Terminal::Finished,
    };
    let terminal: Vec<_> = removed.iter().map(ran).collect();
    let report = ReportedRequest { removed: removed.to_vec(), terminal: terminal.clone(), ..saying(Vec::new()) };
    let found = screen(&Two, Service::InPlace, summary.target(target()), report);
    assert_eq!(found.report.removed, removed[..2]);
    assert_eq!(found.report.terminal, terminal[..1], "of what is leaving");
    assert_eq!((found.dropped, found.unfounded), (0, 1));
}

#[test]
fn a_target_has_room_for_so_much_and_what_it_says_again_takes_none() {
    let mut summary = Summary::default();
    let statuses = REPORTED_BYTES_BASE / STATUS_BYTES_MAX;
    let page = |from: usize, to: usize| {
        let objects = (from..to).map(|number| ObjectReport {
            message: "m".repeat(MESSAGE_BYTES_MAX),
            ..word(&number.to_string(), "h", Progress::DeletionHeld)
        });
        saying(objects.collect())
    };
    let mut kept = 0;
    for number in 0..statuses {
        let found =
            screen(&Two, Service::InPlace, summary.target(target()), page(number * 1_000, (number + 1) * 1_000));
        kept += found.report.objects.len();
        summary.take(target(), INDEX, found.report);
    }
    assert!(kept > 10_000 && kept < statuses * 1_000, "{kept}");
    let known = summary.target(target()).expect("it was taken in");
    assert!(known.bytes() <= REPORTED_BYTES_BASE + REPORTED_BYTES_PER_OBJECT);
    assert_eq!(
        screen(&Two, Service::InPlace, Some(known), page(0, 1_000)).report.objects.len(),
        1_000,
        "in the place of what it was"
    );
    let found = screen(&Two, Service::InPlace, Some(known), page(1 << 20, (1 << 20) + 1_000));
    assert!(found.breaches.contains(&Breach::Bytes) && found.report.objects.len() < 100);
}

/// Its Placement was deleted, and its fuse holds what is to go: there is less room than what was said before takes.
#[test]
fn what_a_target_says_of_what_leaves_it_has_the_room_that_it_had() {
    let mut summary = Summary::default();
    let said = |status| {
        saying(vec![ObjectReport { status, message: "m".repeat(9), ..word("leaving", "l", Progress::DeletionHeld) }])
    };
    summary.take(target(), INDEX, said(Some(status(STATUS_BYTES_MAX / 2))));
    let more = REPORTED_BYTES_BASE + 2 * REPORTED_BYTES_PER_OBJECT;
    summary.targets.get_mut(&target()).expect("it was taken in").bytes += more;
    let shorter = said(Some(status(1)));
    let found = screen(&Two, Service::InPlace, summary.target(target()), shorter.clone());
    assert_eq!((found.breaches, &found.report.objects), (BTreeSet::new(), &shorter.objects));
    summary.take(target(), INDEX, found.report);
    let known = summary.target(target()).expect("it was taken in");
    assert_eq!(known.bytes(), more + weight(&shorter.objects[0]));
    // What is longer than before has no room but without its status.
    let found = screen(&Two, Service::InPlace, Some(known), said(Some(status(2))));
    assert_eq!(found.breaches, BTreeSet::from([Breach::Bytes]));
    assert!(found.report.objects[0].status.is_none());
}

/// A status that was said once may stand in a space, though the target says no more of it, or that the object is gone.
#[test]
fn a_status_takes_its_room_until_another_is_said_or_nothing_is_assigned() {
    let mut summary = Summary::default();
    let says = |summary: &mut Summary, report: ReportedRequest| {
        let Screened { report, gone_while_assigned, breaches, .. } =
            screen(&All, Service::InPlace, summary.target(target()), report);
        summary.leave(target(), &gone_while_assigned);
        summary.take(target(), INDEX, report.clone());
        (report, breaches)
    };
    let object = |name: usize, status| ObjectReport { status, ..word(&name.to_string(), "a", Progress::Applied) };
    let most = REPORTED_BYTES_BASE / STATUS_BYTES_MAX;
    let mut names = 0..;
    let full = names.find(|name| {
        let (report, breaches) = says(&mut summary, saying(vec![object(*name, Some(status(STATUS_BYTES_MAX - 20)))]));
        let said = Tombstone { key: key(&name.to_string()), source: uid("a") };
        let after = match name % 3 {
            0 => saying(vec![object(*name, None)]),
            1 => saying(vec![word(&name.to_string(), "another", Progress::DeletionHeld)]),
            _ => ReportedRequest { removed: vec![said], ..saying(Vec::new()) },
        };
        assert_eq!(says(&mut summary, after).1, BTreeSet::new());
        report.objects.first().is_none_or(|object| object.status.is_none()) && breaches.contains(&Breach::Bytes)
    });
    assert!(full.is_some_and(|full| full <= most + 1), "{full:?}");
    // Nor does it begin anew when what it said is forgotten.
    let before = summary.target(target()).unwrap().bytes();
    summary.forget_words(target());
    assert!(summary.target(target()).is_none());
    summary.take(target(), INDEX, saying(Vec::new()));
    let after = summary.target(target()).unwrap().bytes();
    assert!(after > before - before / 10, "{before}, {after}");
    // In the place of what it said before.
    let (report, _) = says(&mut summary, saying(vec![object(0, Some(status(STATUS_BYTES_MAX - 20)))]));
    assert!(report.objects[0].status.is_some());
    summary.settle(target(), |_, _| true);
    let before = summary.target(target()).unwrap().bytes();
    summary.settle(target(), |_, _| panic!("no more is left than was"));
    summary.targets.get_mut(&target()).unwrap().settled = 0;
    summary.settle(target(), |_, _| false);
    let known = summary.target(target()).unwrap();
    assert!(known.known.left.is_empty() && known.bytes() < before / 2, "{before}, {}", known.bytes());
}

#[test]
fn no_more_is_held_than_a_set_has() {
    let mut summary = Summary::default();
    for page in 0..=DESIRED_OBJECTS_MAX / REPORT_PAGE_OBJECTS_MAX {
        let numbers = page * REPORT_PAGE_OBJECTS_MAX..(page + 1) * REPORT_PAGE_OBJECTS_MAX;
        let objects = numbers.map(|number| word(&number.to_string(), "h", Progress::DeletionHeld)).collect();
        let found = screen(&Two, Service::InPlace, summary.target(target()), saying(objects));
        if page < DESIRED_OBJECTS_MAX / REPORT_PAGE_OBJECTS_MAX {
            assert_eq!(found.breaches, BTreeSet::new(), "{page}");
        } else {
            assert_eq!((found.breaches, found.report.objects.len()), (BTreeSet::from([Breach::Held]), 0));
            return;
        }
        summary.take(target(), INDEX, found.report);
    }
}

#[test]
fn of_several_words_about_one_object_the_first_is_taken_in() {
    let twice = |message: &str| ObjectReport { message: message.into(), ..word("assigned", "a", Progress::Applied) };
    let found = screened(vec![twice("first"), twice("second"), word("leaving", "l", Progress::Deleting)]);
    assert_eq!(names(&found), ["assigned", "leaving"]);
    assert_eq!((&*found.report.objects[0].message, found.breaches), ("first", BTreeSet::from([Breach::Words])));
}

/// Some objects of a report, each with what it weighs: of few names, so that many come twice.
fn heavy() -> impl Strategy<Value = Vec<(u8, usize)>> {
    prop::collection::vec((0..4u8, 0..=4usize), 0..20)
}

proptest! {
    /// However often a report names an object, no more is kept of a target than it has room for.
    #[test]
    fn no_report_brings_more_than_there_is_room_for(
        reports in prop::collection::vec((heavy(), heavy()), 1..4),
        room in 1..6usize,
    ) {
        let known_before = known_of(REPORTED_BYTES_BASE + REPORTED_BYTES_PER_OBJECT - room * (STATUS_BYTES_MAX / 4));
        let mut summary = Summary::default();
        summary.targets.insert(target(), known_before);
        for (objects, associated) in reports {
            let object = |(name, quarters): (u8, usize)| ObjectReport {
                status: Some(status(quarters * (STATUS_BYTES_MAX / 4 - 10))),
                ..word(&name.to_string(), "a", Progress::Applied)
            };
            let associated = associated.into_iter().map(|(name, tenths)| {
                let mut made = Made::default();
                made.tally.reasons = (0..tenths * 100).map(|number| (number.to_string(), 1)).collect();
                let made = BTreeMap::from([(AssociatedKind::Pods, made)]);
                AssociatedReport { key: key(&name.to_string()), source_uid: uid("a"), made }
            });
            let report = ReportedRequest {
                associated: associated.collect(),
                ..saying(objects.into_iter().map(object).collect())
            };
            let found = screen(&All, Service::InPlace, summary.target(target()), report);
            summary.take(target(), INDEX, found.report);
            let bytes = summary.target(target()).expect("it was taken in").bytes();
            prop_assert!(bytes <= REPORTED_BYTES_BASE + REPORTED_BYTES_PER_OBJECT, "{}", bytes);
        }
    }

    /// What is counted as kept is what is kept, whatever comes after what.
    #[test]
    fn weights_add_up(words in prop::collection::vec((0..4u8, 0..300usize, any::<bool>(), 0..3u64), 0..60)) {
        let mut summary = Summary::default();
        for (name, bytes, gone, session) in words {
            let name = name.to_string();
            let source = if bytes % 5 == 0 { "another" } else { "s" };
            let (key, source_uid) = (key(&name), uid(source));
            if gone && bytes % 2 == 0 {
                summary.leave(target(), std::slice::from_ref(&key));
            }
            let report = if gone {
                ReportedRequest { removed: vec![Tombstone { key, source: source_uid }], ..saying(Vec::new()) }
            } else {
                let status = (bytes % 3 > 0).then(|| status(bytes));
                let object = ObjectReport { status, message: "m".repeat(bytes), ..word(&name, source, Progress::Applied) };
                let made = (bytes % 2 == 0).then(|| (AssociatedKind::Pods, Made::default())).into_iter().collect();
                let made = AssociatedReport { key, source_uid, made };
                ReportedRequest { associated: vec![made], ..saying(vec![object]) }
            };
            summary.take(target(), INDEX, ReportedRequest { session: SessionName::new(session, 1), ..report });
            let known = summary.target(target()).expect("it was taken in");
            let objects: usize = known.objects().map(|object| weight(object)).sum();
            let made: usize = known.all_made().map(|made| made_weight(made)).sum();
            let left: usize = known.known.left.values().flat_map(BTreeMap::values).sum();
            prop_assert_eq!(known.bytes(), objects + made + left);
            prop_assert_eq!(known.held_count(), known.held().count());
        }
    }
}
