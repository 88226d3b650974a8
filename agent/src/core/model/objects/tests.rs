use tideline_common::{DesiredSet, GroupKind, ObjectKey};

use super::{Objects, Slot};
use crate::core::model::object::ReportDigest;
use crate::core::model::work_state::AtRest;

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
    let queued = AtRest { queued: Some(20), tried: false };
    assert_eq!((object.work.at_rest(), object.told), (Some(queued), Some(told)));
}

#[test]
fn an_object_with_work_under_way_is_not_compacted() {
    let mut objects = Objects::default();
    objects.at(&key(1)).work.fail_at_least(2);
    objects.compact(&DesiredSet::default(), None);
    assert_eq!(whole(&objects), 1);
    assert_eq!(objects.get(&key(1)).unwrap().work.failures(), 2);
}
