use tideline_common::{DesiredSet, GroupKind, ObjectKey};

use super::{Objects, Place};
use crate::core::model::object::{Object, ReportDigest, Turn};

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
        (object.turn, object.told) = (Turn::Queued { wave: 20 }, Some(told));
        if objects.is_wide_open() {
            objects.compact(&DesiredSet::default(), None);
        }
    }
    objects.compact(&DesiredSet::default(), None);
    assert_eq!(whole(&objects), 0);
    let Object { turn, told: known, .. } = objects.get_mut(&key(500)).unwrap();
    assert_eq!((*turn, *known), (Turn::Queued { wave: 20 }, Some(told)));
}

#[test]
fn what_something_is_the_matter_with_stays_as_it_is() {
    let mut objects = Objects::default();
    objects.at(&key(1)).failures = 2;
    objects.compact(&DesiredSet::default(), None);
    assert_eq!(whole(&objects), 1);
    assert_eq!(objects.get(&key(1)).unwrap().failures, 2);
}
