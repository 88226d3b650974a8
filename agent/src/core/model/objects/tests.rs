use std::sync::Arc;

use tideline_common::wire::v1::Progress;
use tideline_common::{DesiredSet, GroupKind, Monotonic, ObjectKey, Reason};

use super::{Objects, Slot};
use crate::core::interface::effect::OpId;
use crate::core::model::object::{Outcome, ReportDigest};
use crate::core::model::turn::Turn;
use crate::core::model::work_state::AtRest;
use crate::core::tests::entry;

fn key(number: u32) -> ObjectKey {
    ObjectKey::new(GroupKind::new("", "ConfigMap"), "shop", format!("settings-{number}"))
}

/// Those that hold an object as it is.
fn whole(objects: &Objects) -> usize {
    objects.slots.values().filter(|slot| matches!(slot, Slot::Whole(_) | Slot::Open(_))).count()
}

#[test]
fn a_reported_pending_object_stays_compact() {
    let mut objects = Objects::default();
    let told = ReportDigest { facts: 7, status: None };
    for number in 0..1_000 {
        let object = objects.at(&key(number));
        object.work.enqueue(20);
        object.told = Some(told);
        if objects.is_wide_open() {
            objects.compact(&DesiredSet::default(), None);
        }
    }
    objects.compact(&DesiredSet::default(), None);
    assert_eq!(whole(&objects), 0);
    let object = objects.get(&key(500)).unwrap();
    let queued = AtRest { turn: Turn::Queued { wave: 20 }, tried: false, failures: 0 };
    assert_eq!((object.work.at_rest(), object.told), (Some(queued), Some(told)));
}

#[test]
fn an_object_with_work_under_way_is_not_compacted() {
    let mut objects = Objects::default();
    objects.at(&key(1)).work.begin(OpId(2));
    objects.compact(&DesiredSet::default(), None);
    assert_eq!(whole(&objects), 1);
    assert_eq!(objects.get(&key(1)).unwrap().work.in_flight(), Some(OpId(2)));
}

/// Of a large set all may wait behind a gate, or be refused.
#[test]
fn what_waits_or_failed_is_compact_and_shares_what_is_said_of_it() {
    let (mut objects, mut desired) = (Objects::default(), DesiredSet::default());
    let until = Monotonic::from_millis(5_000);
    let outcomes = [(Progress::Pending, Reason::WaitingForWave), (Progress::Failed, Reason::Denied)];
    let message = |reason: Reason| format!("{reason:?}, as all others of its kind");
    for number in 0..1_000 {
        let entry = Arc::new(entry(&key(number), 1, 1));
        desired.insert(Arc::clone(&entry));
        let (progress, reason) = outcomes[number as usize % 2];
        let object = objects.assign(&entry);
        object.outcome = Outcome { progress, reason: Some(reason), message: message(reason) };
        object.work.mark_tried();
        if progress == Progress::Failed {
            object.work.fail();
            object.work.wait(until);
        }
        if objects.is_wide_open() {
            objects.compact(&desired, None);
        }
    }
    objects.compact(&desired, None);
    assert_eq!(whole(&objects), 0);
    let failed = objects.get(&key(501)).unwrap();
    assert_eq!(failed.outcome.message, message(Reason::Denied));
    let waiting = AtRest { turn: Turn::Waiting { until }, tried: true, failures: 1 };
    assert_eq!(failed.work.at_rest(), Some(waiting));
    // What has its next try is not looked at before that; what waits for others is.
    assert_eq!(objects.not_at_rest().count(), 500);
}
