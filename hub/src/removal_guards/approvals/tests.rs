use std::time::Duration;

use proptest::prelude::*;
use tideline_common::{GroupKind, ObjectKey};

use super::*;

const EAST: &str = "11111111-1111-4111-8111-111111111111";
const WEST: &str = "22222222-2222-4222-8222-222222222222";

fn target(id: &str) -> TargetId {
    id.parse().expect("a UUID")
}

fn object(name: &str) -> Uid {
    name.parse().expect("a UID")
}

fn at(seconds: u64) -> Monotonic {
    Monotonic::START + Duration::from_secs(seconds)
}

fn removals(from: usize, to: usize) -> Vec<Tombstone> {
    let kind = GroupKind::new("", "ConfigMap");
    let removal = |i| Tombstone {
        key: ObjectKey::new(kind.clone(), "shop", format!("c{i:05}")),
        source: object(&format!("s{i}")),
    };
    (from..to).map(removal).collect()
}

fn approval(id: &str, until: u64, removals: Vec<Tombstone>) -> Approval {
    Approval {
        target: target(id),
        expires: i64::try_from(until).expect("small"),
        until: at(until),
        removals: removals.into(),
        releases: false,
    }
}

/// What an agent is told, page by page, until there is nothing more; and how long each may be used.
fn told(approvals: &Approvals, now: Monotonic, id: &str) -> Vec<(Tombstone, u64)> {
    let (mut held, mut all) = (ApprovedHeld::default(), Vec::new());
    while let Some(page) = approvals.page(now, target(id), &held, |_, _| false) {
        assert_eq!(page.offset, held.count);
        assert!(!page.removals.is_empty());
        held = ApprovedHeld { list: page.list, count: page.offset + page.count };
        all.extend(page.removals.into_iter().map(|removal| (removal, page.expires_seconds)));
        assert!(page.total >= held.count);
    }
    all
}

fn read() -> Approvals {
    let mut approvals = Approvals::default();
    assert!(approvals.end_listing().is_empty());
    approvals
}

#[test]
fn a_target_is_told_all_of_its_own_and_when_each_ends() {
    let mut approvals = read();
    assert_eq!(approvals.put(at(0), object("a"), approval(EAST, 60, removals(0, 2))), [target(EAST)]);
    assert_eq!(approvals.put(at(0), object("b"), approval(EAST, 90, removals(2, 3))), [target(EAST)]);
    assert_eq!(approvals.put(at(0), object("c"), approval(WEST, 90, removals(3, 4))), [target(WEST)]);
    let seconds: Vec<_> = told(&approvals, at(10), EAST).iter().map(|(_, seconds)| *seconds).collect();
    assert_eq!(seconds, [50, 50, 80]);
    assert_eq!(told(&approvals, at(10), WEST).len(), 1);
}

#[test]
fn what_is_assigned_again_is_left_out() {
    let mut approvals = read();
    let all = removals(0, 3);
    let _changed = approvals.put(at(0), object("a"), approval(EAST, 60, all.clone()));
    let page = approvals.page(at(0), target(EAST), &ApprovedHeld::default(), |_, removal| *removal == all[1]);
    let page = page.expect("there is news");
    assert_eq!((page.count, page.removals), (3, vec![all[0].clone(), all[2].clone()]));
    let held = ApprovedHeld { list: page.list, count: 3 };
    assert_eq!(approvals.page(at(0), target(EAST), &held, |_, _| false), None);
}

#[test]
fn long_lists_come_in_pages() {
    let mut approvals = read();
    let long = removals(0, APPROVED_PAGE_REMOVALS_MAX * 2 + 1);
    let _changed = approvals.put(at(0), object("a"), approval(EAST, 60, long.clone()));
    let told: Vec<_> = told(&approvals, at(0), EAST).into_iter().map(|(removal, _)| removal).collect();
    assert_eq!(told, long);
}

#[test]
fn what_ended_or_was_withdrawn_is_taken_back() {
    let mut approvals = read();
    let _changed = approvals.put(at(0), object("a"), approval(EAST, 60, removals(0, 2)));
    let _changed = approvals.put(at(0), object("b"), approval(EAST, 90, removals(2, 4)));
    assert_eq!(approvals.next_end(), Some(at(60)));
    assert!(approvals.expire(at(59)).is_empty());
    assert_eq!(approvals.expire(at(60)), [target(EAST)]);
    assert_eq!(told(&approvals, at(60), EAST).len(), 2);
    let held = ApprovedHeld { list: approvals.lists.get(&target(EAST)).map(|list| list.name), count: 2 };
    assert_eq!(approvals.page(at(60), target(EAST), &held, |_, _| false), None);
    assert_eq!(approvals.remove(&object("b")), [target(EAST)]);
    let nothing = approvals.page(at(60), target(EAST), &held, |_, _| false).expect("it is to be taken back");
    assert_eq!((nothing.list, nothing.removals.len()), (None, 0));
    assert_eq!(approvals.page(at(60), target(EAST), &ApprovedHeld::default(), |_, _| false), None);
}

#[test]
fn nothing_is_taken_back_before_all_of_them_are_known() {
    let mut approvals = read();
    let _changed = approvals.put(at(0), object("a"), approval(EAST, 60, removals(0, 2)));
    let held = ApprovedHeld { list: approvals.lists.get(&target(EAST)).map(|list| list.name), count: 2 };

    let mut restarted = Approvals::default();
    assert_eq!(restarted.page(at(0), target(EAST), &held, |_, _| false), None);
    let _changed = restarted.put(at(0), object("a"), approval(EAST, 61, removals(0, 2)));
    assert_eq!(restarted.end_listing(), [target(EAST)]);
    assert_ne!(restarted.page(at(0), target(EAST), &held, |_, _| false), None, "another end is another list");

    let mut restarted = Approvals::default();
    let measured_later = Approval { until: at(30), ..approval(EAST, 60, removals(0, 2)) };
    let _changed = restarted.put(at(0), object("a"), measured_later);
    let _changed = restarted.end_listing();
    assert_eq!(restarted.page(at(0), target(EAST), &held, |_, _| false), None, "the same list has the same name");

    restarted.begin_listing();
    assert_eq!(restarted.page(at(0), target(EAST), &ApprovedHeld::default(), |_, _| false), None);
    assert_eq!(restarted.end_listing(), [target(EAST)], "it was not seen again");
    assert_ne!(restarted.page(at(0), target(EAST), &held, |_, _| false), None);
}

#[test]
fn reading_one_again_is_no_news() {
    let mut approvals = read();
    let _changed = approvals.put(at(0), object("a"), approval(EAST, 60, removals(0, 2)));
    let again = Approval { until: at(61), ..approval(EAST, 60, removals(0, 2)) };
    assert!(approvals.put(at(1), object("a"), again).is_empty());
    assert_eq!(approvals.next_end(), Some(at(61)));
    let ended = approval(EAST, 5, removals(0, 2));
    assert_eq!(approvals.put(at(6), object("a"), ended), [target(EAST)]);
    assert_eq!(approvals.next_end(), None);
}

#[test]
fn what_has_ended_approves_nothing_again_whatever_end_it_says_later() {
    let mut approvals = read();
    let _changed = approvals.put(at(0), object("a"), approval(EAST, 60, removals(0, 2)));
    let _changed = approvals.expire(at(60));
    let _changed = approvals.put(at(60), object("b"), approval(EAST, 60, removals(2, 4)));
    assert_eq!(approvals.take_over(), [object("a"), object("b")]);
    for name in ["a", "b"] {
        assert!(approvals.put(at(61), object(name), approval(EAST, 90, removals(0, 4))).is_empty());
    }
    assert!(told(&approvals, at(61), EAST).is_empty());
    assert!(approvals.take_over().is_empty(), "that is said once");
    approvals.begin_listing();
    let _changed = approvals.put(at(61), object("a"), approval(EAST, 90, removals(0, 4)));
    let _changed = approvals.end_listing();
    assert!(told(&approvals, at(61), EAST).is_empty());
    assert_eq!(approvals.over, [object("a")].into(), "the other is gone");
}

#[test]
fn only_what_is_named_is_struck_and_nothing_else_is_looked_at() {
    let mut approvals = read();
    for (name, id) in [("a", EAST), ("b", EAST), ("c", WEST)] {
        let _changed = approvals.put(at(0), object(name), approval(id, 60, removals(0, 3)));
    }
    let looked_at = std::cell::Cell::new(0);
    let first = removals(0, 1);
    let is_void = |_: &Uid, removal: &Tombstone| {
        looked_at.set(looked_at.get() + 1);
        first.contains(removal)
    };
    assert_eq!(approvals.strike([&object("b"), &object("unknown")], is_void), [target(EAST)]);
    assert_eq!(looked_at.get(), 3);
    let left: Vec<_> = approvals.of(target(EAST)).map(|(_, removals)| removals.len()).collect();
    assert_eq!((left, approvals.of(target(WEST)).count()), (vec![3, 2], 1));
    assert_eq!(approvals.strike([&object("c")], |_, _| true), [target(WEST)]);
    assert_eq!((approvals.of(target(WEST)).count(), approvals.removals(&object("c")).len()), (0, 0));
}

#[derive(Clone, Debug)]
enum Happening {
    Relist,
    Put { object: u8, target: bool, until: u64, from: usize, count: usize },
    Remove(u8),
    Pass(u64),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        (0_u8..4, any::<bool>(), 0_u64..100, 0_usize..9, 0_usize..5)
            .prop_map(|(object, target, until, from, count)| { Happening::Put { object, target, until, from, count } }),
        (0_u8..4).prop_map(Happening::Remove),
        Just(Happening::Relist),
        (0_u64..30).prop_map(Happening::Pass),
    ]
}

proptest! {
    /// A target is told just what the approvals in force say, and everybody is told whose list became another.
    #[test]
    fn what_is_told_is_what_is_in_force(happenings in prop::collection::vec(happening(), 0..30)) {
        let mut approvals = read();
        let mut model: BTreeMap<u8, (bool, u64, Vec<Tombstone>)> = BTreeMap::new();
        let mut over: BTreeSet<u8> = BTreeSet::new();
        let mut now = 0;
        for happening in happenings {
            let before = [EAST, WEST].map(|id| approvals.lists.get(&target(id)).map(|list| list.name));
            let passes = matches!(happening, Happening::Pass(_));
            let changed = match happening {
                Happening::Put { object: name, target: east, until, from, count } => {
                    let listed = removals(from, from + count);
                    model.insert(name, (east, until, listed.clone()));
                    let id = if east { EAST } else { WEST };
                    approvals.put(at(now), object(&name.to_string()), approval(id, until, listed))
                }
                // All that is there is seen again.
                Happening::Relist => {
                    approvals.begin_listing();
                    for (name, (east, until, listed)) in &model {
                        let id = if *east { EAST } else { WEST };
                        let again = approval(id, *until, listed.clone());
                        let _changed = approvals.put(at(now), object(&name.to_string()), again);
                    }
                    // What is over was not seen again, and is not remembered.
                    over.clear();
                    approvals.end_listing()
                }
                Happening::Remove(name) => {
                    model.remove(&name);
                    over.remove(&name);
                    approvals.remove(&object(&name.to_string()))
                }
                Happening::Pass(seconds) => {
                    now += seconds;
                    approvals.expire(at(now))
                }
            };
            // Of one without removals nothing ends when time passes.
            let ends = |until: u64, all: &[Tombstone]| until <= now && !(passes && all.is_empty());
            over.extend(model.iter().filter(|(_, (_, until, all))| ends(*until, all)).map(|(name, _)| *name));
            model.retain(|name, (_, until, _)| *until > now && !over.contains(name));
            for id in [EAST, WEST].map(target) {
                let all = approvals.all.iter().filter(|(_, approval)| approval.target == id);
                let all: Vec<_> = all.map(|(object, approval)| (object, &*approval.removals)).collect();
                prop_assert_eq!(approvals.of(id).collect::<Vec<_>>(), all);
            }
            for (east, id, before) in [(true, EAST, before[0]), (false, WEST, before[1])] {
                let expected: BTreeSet<_> =
                    model.values().filter(|(at, ..)| *at == east).flat_map(|(_, _, all)| all.clone()).collect();
                let told: BTreeSet<_> = told(&approvals, at(now), id).into_iter().map(|(removal, _)| removal).collect();
                prop_assert_eq!(told, expected);
                let after = approvals.lists.get(&target(id)).map(|list| list.name);
                prop_assert!(before == after || changed.contains(&target(id)));
            }
        }
    }
}
