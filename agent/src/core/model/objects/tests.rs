use tideline_common::{DesiredSet, GroupKind, ObjectKey};

use super::{Objects, Place};
use crate::core::model::object::ReportDigest;
use crate::core::model::work_state::AtRest;

fn key(number: u32) -> ObjectKey {
    ObjectKey::new(GroupKind::new("", "ConfigMap"), "shop", format!("settings-{number}"))
}

/// Those that hold an object as it is.
fn whole(objects: &Objects) -> usize {
    objects.places.values().filter(|place| matches!(place, Place::Whole(_) | Place::Open(_))).count()
}

#[test]
fn what_waits_is_not_held_whole_because_the_hub_was_told_of_it() {
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
fn what_something_is_the_matter_with_stays_as_it_is() {
    let mut objects = Objects::default();
    objects.at(&key(1)).work.fail_at_least(2);
    objects.compact(&DesiredSet::default(), None);
    assert_eq!(whole(&objects), 1);
    assert_eq!(objects.get(&key(1)).unwrap().work.failures(), 2);
}
