use std::sync::Arc;

use tideline_common::{ApplyPolicy, Digest, Entry, Reason, Uid};
use uuid::Uuid;

use super::*;
use crate::core::decide::plan::{mark_of, record_of};
use crate::core::interface::effect::OpId;
use crate::core::interface::write::{LeftToOthers, LocalField};
use crate::core::tests::{entry, key, me};

fn object(entry: &Entry) -> Object {
    let seen = Seen {
        uid: Uid::from_uuid(Uuid::from_u128(7)),
        resource_version: "5".into(),
        generation: 3,
        managed: Some(Digest::of(b"managed")),
        mark: Some(Arc::new(mark_of(me(), entry, &ApplyPolicy::default(), Origin::Created))),
        labelled: true,
        deleting: false,
        illegible: false,
        managed_elsewhere: false,
        observed_generation: Some(3),
        others: None,
    };
    Object {
        record: Some(record_of(entry, &seen, Origin::Created, true)),
        presence: Presence::from(Some(Seen { resource_version: "17".into(), ..seen })),
        work: WorkState::from(AtRest { turn: Turn::Idle, tried: true, failures: 0 }),
        outcome: Outcome { progress: Progress::Applied, ..Outcome::default() },
        live: Live {
            health: Health::Progressing,
            message: "1 of 2 are ready".to_owned(),
            observed_generation: Some(1),
            status: LiveStatus::new(Status::Dropped { failed: 0 }),
        },
        listed_in: ListId(4),
        told: Some(ReportDigest { facts: 1, status: Some(2) }),
        ..Object::default()
    }
}

fn change_seen(object: &mut Object, change: impl FnOnce(&mut Seen)) {
    let mut seen = object.seen().cloned().expect("it is seen");
    change(&mut seen);
    object.presence = Presence::from(Some(seen));
}

fn change_mark(object: &mut Object, change: impl FnOnce(&mut Mark)) {
    change_seen(object, |seen| change(Arc::make_mut(seen.mark.as_mut().expect("it has one"))));
}

fn compacted(object: &Object, entry: &Arc<Entry>) -> Option<Compact> {
    Compact::of(object, entry, Some(&Arc::new(me())), &mut Shared::default())
}

#[test]
fn an_object_that_is_as_recorded_is_at_rest() {
    let entry = Arc::new(entry(&key("apps", "Deployment", "web"), 1, 1));
    let at_rest = |change: fn(&mut Object)| {
        let mut object = object(&entry);
        change(&mut object);
        compacted(&object, &entry).expect("it can be compact").is_at_rest()
    };
    assert!(at_rest(|_| {}));
    // Perhaps it is gone.
    assert!(!at_rest(|object| object.presence = Presence::default()));
    assert!(!at_rest(|object| object.work = WorkState::default()));
    assert!(!at_rest(|object| object.work.enqueue(-3)));
    // Something is the matter with it.
    assert!(!at_rest(|object| object.work.fail()));
    assert!(!at_rest(|object| object.outcome.reason = Some(Reason::FieldConflict)));
    assert!(!at_rest(|object| object.presence.may_be_unshown()));
    assert!(!at_rest(|object| change_seen(object, |seen| seen.labelled = false)));
}

/// As a list of metadata says it of what the watch told.
fn item(object: &Object, entry: &Entry) -> ListedItem {
    let Seen { uid, resource_version, labelled, .. } = object.seen().cloned().expect("it is seen");
    ListedItem::new(entry.key.clone(), uid, resource_version, labelled, || panic!("nobody asks for more"))
}

#[test]
fn a_listed_item_of_an_object_at_rest_that_is_as_watched_changes_nothing() {
    let entry = Arc::new(entry(&key("apps", "Deployment", "web"), 1, 1));
    let listed_again = |change: fn(&mut Object), other: fn(&mut ListedItem), now: &Arc<Entry>| {
        let mut object = object(&entry);
        change(&mut object);
        let mut item = item(&object, &entry);
        other(&mut item);
        let mut compact = compacted(&object, &entry).expect("it can be compact");
        let nothing = compact.listed_again(ListId(9), &item, now);
        assert_eq!(compact.listed_in(), if nothing { ListId(9) } else { ListId(4) });
        nothing
    };
    assert!(listed_again(|_| {}, |_| {}, &entry));
    assert!(!listed_again(|_| {}, |item| item.uid = Uid::from_uuid(Uuid::from_u128(8)), &entry));
    // The one that was recorded, of before its status changed; and one that the watch has yet to tell of.
    assert!(!listed_again(|_| {}, |item| item.resource_version = "5".into(), &entry));
    assert!(!listed_again(|_| {}, |item| item.resource_version = "18".into(), &entry));
    assert!(!listed_again(|object| object.work = WorkState::default(), |_| {}, &entry));
    assert!(!listed_again(|object| object.outcome = Outcome::default(), |_| {}, &entry));
    // Assigned anew since.
    assert!(!listed_again(|_| {}, |_| {}, &Arc::new(Entry::clone(&entry))));
}

#[test]
fn a_withheld_object_is_not_taken_for_an_applied_one() {
    let state = EntryState::Withheld(Reason::Conflict);
    let entry = Arc::new(Entry { state, ..entry(&key("apps", "Deployment", "web"), 1, 1) });
    let object = object(&entry);
    let mut compact = compacted(&object, &entry).expect("it can be compact");
    assert!(!compact.listed_again(ListId(9), &item(&object, &entry), &entry));
}

#[test]
fn expanding_a_compact_object_gives_the_object_back() {
    let entry = Arc::new(entry(&key("apps", "Deployment", "web"), 1, 1));
    let changes: [fn(&mut Object); 21] = [
        |_| {},
        // Told of otherwise than by default, and of a Job.
        |object| {
            change_mark(object, |mark| mark.policy = Some(Digest::of(b"written alike")));
        },
        |object| object.record.as_mut().expect("it has one").template = Some(Digest::of(b"template")),
        |object| object.presence = Presence::default(),
        |object| object.work = WorkState::default(),
        |object| object.work.enqueue(-3),
        |object| object.told = None,
        |object| object.live = Live::default(),
        |object| object.live.status.read_again(),
        |object| object.live.status = LiveStatus::new(Status::TooLarge),
        |object| {
            let status = RawValue::from_string(r#"{"replicas":3}"#.to_owned());
            object.live.status = LiveStatus::new(Status::Known(status.expect("it is JSON").into()));
        },
        |object| object.terminal = object.record.as_ref().map(|it| (it.source.clone(), Terminal::CreatedOnce)),
        |object| object.outcome = Outcome::default(),
        |object| {
            let record = object.record.as_mut().expect("it has one");
            (record.managed, record.wave, record.generation) = (None, None, 0);
            object.presence = Presence::default();
        },
        // It waits for others, or failed: before it was ever there, or when it was.
        |object| {
            (object.record, object.presence) = (None, Presence::default());
            let message = "waits for wave 0".to_owned();
            object.outcome = Outcome { progress: Progress::Pending, reason: Some(Reason::WaitingForWave), message };
        },
        |object| object.work.wait(Monotonic::from_millis(1)),
        |object| object.work.fail_at_least(7),
        |object| object.presence.may_be_unshown(),
        |object| {
            object.presence = Presence::default();
            object.presence.may_be_unshown();
        },
        |object| object.outcome.reason = Some(Reason::FieldConflict),
        |object| object.outcome.message = "left to others".to_owned(),
    ];
    for (index, change) in changes.iter().enumerate() {
        let mut object = object(&entry);
        change(&mut object);
        let compact = compacted(&object, &entry).unwrap_or_else(|| panic!("change {index} can be compact"));
        object.stood_as = Some(Arc::clone(&entry));
        // Neither can be compared: a status is text as it came.
        assert_eq!(format!("{:#?}", compact.expand()), format!("{object:#?}"), "change {index}");
    }
}

#[test]
fn an_object_that_is_not_as_its_entry_says_is_not_compacted() {
    let entry = Arc::new(entry(&key("apps", "Deployment", "web"), 1, 1));
    let left = || LeftToOthers { message: "left to others: /data/a".to_owned(), others: None };
    let local = || LocalField { field: "/data/a".into(), assigned: Digest::of(b"1") };
    let changes: [&dyn Fn(&mut Object); 16] = [
        &|object| object.record = None,
        &|object| object.unrecorded = 1,
        &|object| object.doubt(),
        &|object| object.presence.probe(object.seen().cloned().expect("it is seen")),
        &|object| object.work.begin(OpId(1)),
        &|object| object.record.as_mut().expect("it has one").policy = Digest::of(b"other"),
        &|object| object.record.as_mut().expect("it has one").orphaning = true,
        &|object| object.record.as_mut().expect("it has one").drifted = Some("2026-01-01T00:00:00Z".into()),
        &|object| object.record.as_mut().expect("it has one").local = [local()].into(),
        &|object| object.record.as_mut().expect("it has one").left = Some(Arc::new(left())),
        &|object| change_seen(object, |seen| seen.generation = 4),
        &|object| change_seen(object, |seen| seen.deleting = true),
        &|object| change_seen(object, |seen| seen.resource_version = "08".into()),
        &|object| change_seen(object, |seen| seen.mark = None),
        &|object| change_mark(object, |mark| mark.generation += 1),
        &|object| change_mark(object, |mark| mark.local.name = "copy".into()),
    ];
    for (index, change) in changes.iter().enumerate() {
        let mut object = object(&entry);
        change(&mut object);
        assert!(compacted(&object, &entry).is_none(), "change {index}");
    }
}

#[test]
fn an_object_of_another_entry_by_now_is_compact_as_it_stood_and_not_at_rest() {
    let former = Arc::new(entry(&key("apps", "Deployment", "web"), 1, 1));
    let next = Arc::new(entry(&key("apps", "Deployment", "web"), 2, 2));
    let as_it_stood = |object: &Object| Compact::as_it_stood(object, Some(&Arc::new(me())), &mut Shared::default());
    let stood = object(&former);
    assert!(as_it_stood(&stood).is_none(), "it was never compact");
    let mut object = compacted(&stood, &former).expect("it can be compact").expand();
    object.work.assign();
    object.work.enqueue(-3);
    assert!(compacted(&object, &next).is_none(), "it is not as that entry says");
    let compact = as_it_stood(&object).expect("it can be compact");
    assert_eq!(format!("{:#?}", compact.expand()), format!("{object:#?}"));
    object.work = WorkState::from(AtRest { turn: Turn::Idle, tried: true, failures: 0 });
    let compact = as_it_stood(&object).expect("it can be compact");
    assert!(!compact.is_at_rest(), "its entry was not looked at, or it is to be removed");
}

#[test]
fn a_compact_object_is_small() {
    assert!(size_of::<Compact>() <= 176, "{}", size_of::<Compact>());
}
