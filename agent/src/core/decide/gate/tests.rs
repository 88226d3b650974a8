use std::time::Duration;

use expect_test::expect;
use proptest::prelude::*;
use tideline_common::wire::v1::Progress;
use tideline_common::{ApplyPolicy, Gate, Monotonic, ObjectKey, Reason};

use super::{Barrier, Gates};
use crate::core::interface::effect::{Effect, Timer};
use crate::core::interface::event::Event;
use crate::core::interface::write::FreezeReason;
use crate::core::sync::mode::HubVerdict;
use crate::core::tests::key;
use crate::core::tests::world::World;

const DEADLINE: u32 = 600;

fn gates(placements: &[&str]) -> Vec<Gate> {
    let gate = |placement: &&str| Gate { placement: (*placement).to_owned(), deadline_seconds: DEADLINE };
    placements.iter().map(gate).collect()
}

fn object(name: &str) -> ObjectKey {
    key("", "ConfigMap", name)
}

fn names(keys: impl IntoIterator<Item = ObjectKey>) -> Vec<String> {
    keys.into_iter().map(|key| key.name.to_string()).collect()
}

#[test]
fn a_wave_waits_for_the_one_before_it_and_for_that_alone() {
    let shop = gates(&["retail/shop"]);
    let mut all = Gates::default();
    for (name, wave) in [("a", 0), ("b", 10), ("c", 20)] {
        all.join(&shop, wave, &object(name));
    }
    let now = Monotonic::START;
    assert_eq!(all.hold(now, &shop, 0, &object("a")), None);
    let barrier = Barrier { placement: "retail/shop".into(), wave: 0, example: object("a") };
    assert_eq!(all.hold(now, &shop, 20, &object("c")), Some(barrier.clone()));
    assert_eq!(all.hold(now, &shop, 10, &object("b")), Some(barrier));
    all.tell(&shop, 0, &object("a"), true);
    assert_eq!(names(all.take_released(Monotonic::START)), ["b"]);
    assert_eq!(all.hold(now, &shop, 10, &object("b")), None);
    all.tell(&shop, 10, &object("b"), true);
    assert_eq!(names(all.take_released(Monotonic::START)), ["c"]);
    assert!(!all.hold_any());
}

#[test]
fn placements_do_not_wait_for_each_other() {
    let (shop, bank) = (gates(&["retail/shop"]), gates(&["retail/bank"]));
    let mut all = Gates::default();
    all.join(&shop, 0, &object("a"));
    all.join(&bank, 10, &object("b"));
    assert_eq!(all.hold(Monotonic::START, &bank, 10, &object("b")), None);
}

#[test]
fn the_next_wave_goes_when_the_time_of_the_one_before_is_over() {
    let shop = gates(&["retail/shop"]);
    let mut all = Gates::default();
    for (name, wave) in [("a", 0), ("b", 10), ("c", 20)] {
        all.join(&shop, wave, &object(name));
    }
    let at = |seconds| Monotonic::START + Duration::from_secs(seconds);
    for (name, wave) in [("b", 10), ("c", 20)] {
        all.hold(at(5), &shop, wave, &object(name));
    }
    assert_eq!(all.next_due(), Some(at(605)));
    all.due(at(604));
    assert!(all.take_released(at(604)).is_empty());
    all.due(at(605));
    assert_eq!(names(all.take_released(at(605))), ["b"], "and not the one after that");
    assert_eq!(all.hold(at(605), &shop, 10, &object("b")), None);
    assert!(all.hold_any());
    // The last one waits for the second from then on.
    all.due(at(1204));
    assert!(all.take_released(at(1204)).is_empty());
    all.due(at(1205));
    assert_eq!(names(all.take_released(at(1205))), ["c"]);
}

/// What happens to the objects of one Placement, each of a wave of its own.
#[derive(Clone, Debug)]
enum Happens {
    Changes(usize),
    Leaves(usize),
    Ready(usize, bool),
    Passes(u64),
}

const MEMBERS: [(&str, i32); 5] = [("a", 0), ("b", 0), ("c", 10), ("d", 20), ("e", 20)];

fn wave_of(key: &ObjectKey) -> i32 {
    MEMBERS.iter().find(|(name, _)| *name == &*key.name).map_or(0, |(_, wave)| *wave)
}

fn happens() -> impl Strategy<Value = Happens> {
    let member = 0..MEMBERS.len();
    prop_oneof![
        member.clone().prop_map(Happens::Changes),
        member.clone().prop_map(Happens::Leaves),
        (member, any::<bool>()).prop_map(|(member, ready)| Happens::Ready(member, ready)),
        (1..400_u64).prop_map(Happens::Passes),
    ]
}

proptest! {
    /// Whatever joins, changes or fails meanwhile: each wait has a deadline, and ends when all waves in turn have had their
    /// time.
    #[test]
    fn no_wave_waits_longer_than_the_deadlines_of_all_before_it(
        happened in prop::collection::vec(happens(), 1..40),
    ) {
        let shop = gates(&["retail/shop"]);
        let deadline = Duration::from_secs(u64::from(DEADLINE));
        let mut all = Gates::default();
        let mut now = Monotonic::START;
        let mut inside = [false; MEMBERS.len()];
        // Since when something waits, and nothing that waited went.
        let mut stuck: Option<Monotonic> = None;
        for happens in happened.into_iter().chain([Happens::Passes(u64::from(DEADLINE)), Happens::Passes(1)]) {
            match happens {
                Happens::Changes(member) => {
                    let (name, wave) = MEMBERS[member];
                    if std::mem::replace(&mut inside[member], true) {
                        all.leave(&shop, wave, &object(name));
                    }
                    all.join(&shop, wave, &object(name));
                    for released in all.take_released(now) {
                        stuck = None;
                        all.hold(now, &shop, wave_of(&released), &released);
                    }
                    all.hold(now, &shop, wave, &object(name));
                }
                Happens::Leaves(member) => {
                    let (name, wave) = MEMBERS[member];
                    if std::mem::replace(&mut inside[member], false) {
                        all.leave(&shop, wave, &object(name));
                    }
                }
                Happens::Ready(member, ready) => {
                    let (name, wave) = MEMBERS[member];
                    if inside[member] {
                        all.tell(&shop, wave, &object(name), ready);
                    }
                }
                Happens::Passes(seconds) => now = now + Duration::from_secs(seconds),
            }
            all.due(now);
            let released = all.take_released(now);
            if !released.is_empty() {
                stuck = None;
            }
            for released in released {
                all.hold(now, &shop, wave_of(&released), &released);
            }
            if all.hold_any() {
                let due = all.next_due();
                prop_assert!(due.is_some_and(|due| now < due && due <= now + deadline), "{:?} at {:?}", due, now);
                let since = *stuck.get_or_insert(now);
                prop_assert!(now < since + 3 * deadline, "{:?} at {:?}", since, now);
            } else {
                stuck = None;
            }
        }
    }
}

#[test]
fn a_change_in_a_wave_does_not_extend_its_deadline_while_others_wait() {
    let shop = gates(&["retail/shop"]);
    let at = |seconds| Monotonic::START + Duration::from_secs(seconds);
    let mut all = Gates::default();
    for (name, wave) in [("b", 0), ("c", 10)] {
        all.join(&shop, wave, &object(name));
    }
    assert!(all.hold(at(0), &shop, 10, &object("c")).is_some());
    for seconds in (100..=500).step_by(100) {
        all.leave(&shop, 0, &object("b"));
        all.join(&shop, 0, &object("b"));
        all.due(at(seconds));
        assert!(all.take_released(at(seconds)).is_empty());
    }
    all.due(at(600));
    assert_eq!(names(all.take_released(at(600))), ["c"]);
}

/// Two waves that are never ready, each with a deadline that never comes: the next one goes, and none of those after it.
#[test]
fn a_wave_that_waits_itself_is_not_given_up_with_those_that_it_waits_for() {
    let shop = gates(&["retail/shop"]);
    let at = |seconds| Monotonic::START + Duration::from_secs(seconds);
    let mut all = Gates::default();
    for (name, wave) in [("a", 0), ("b", 10), ("c", 20), ("d", 40)] {
        all.join(&shop, wave, &object(name));
    }
    for (name, wave) in [("c", 20), ("d", 40)] {
        all.hold(at(0), &shop, wave, &object(name));
    }
    for seconds in (100..=2_300).step_by(100) {
        all.tell(&shop, 0, &object("a"), (seconds / 100) % 2 == 0);
        all.tell(&shop, 10, &object("b"), (seconds / 100) % 2 == 1);
        all.due(at(seconds));
        assert!(all.take_released(at(seconds)).is_empty(), "at {seconds}");
    }
    all.due(at(2_400));
    assert_eq!(names(all.take_released(at(2_400))), ["c"]);
    let due = all.next_due();
    assert!(due.is_some_and(|due| due <= at(3_000)), "{due:?}");
}

/// While nothing could be tried no deadline ran.
#[test]
fn deadlines_do_not_run_while_nothing_can_begin() {
    let shop = gates(&["retail/shop"]);
    let at = |seconds| Monotonic::START + Duration::from_secs(seconds);
    let mut all = Gates::default();
    for (name, wave) in [("a", 0), ("b", 10)] {
        all.join(&shop, wave, &object(name));
    }
    all.hold(at(0), &shop, 10, &object("b"));
    all.pause();
    all.resume(at(5_000));
    all.due(at(5_000));
    assert!(all.take_released(at(5_000)).is_empty());
    assert_eq!(all.next_due(), Some(at(5_600)));
}

/// It gives up no wave, and so would be woken for it for ever.
#[test]
fn an_agent_that_is_frozen_is_not_woken_for_what_waits() {
    let (mut world, _) = gated();
    world.run_for(Duration::from_mins(5));
    let verdict = HubVerdict::Frozen(FreezeReason::Fenced("another".into()));
    let later = Monotonic::START + Duration::from_hours(1);
    world.core.take_verdict(later, verdict, &mut Vec::new());
    let mut out = Vec::new();
    world.core.step(later, Event::Timer(Timer::Retry), &mut out);
    let is_due = |effect: &Effect| matches!(effect, Effect::SetTimer { timer: Timer::Retry, at } if *at <= later);
    assert!(!out.iter().any(is_due), "{out:?}");
}

#[test]
fn an_entry_that_leaves_the_set_delays_nobody() {
    let shop = gates(&["retail/shop"]);
    let mut all = Gates::default();
    all.join(&shop, 0, &object("a"));
    all.join(&shop, 10, &object("b"));
    all.hold(Monotonic::START, &shop, 10, &object("b"));
    all.leave(&shop, 0, &object("a"));
    assert_eq!(names(all.take_released(Monotonic::START)), ["b"]);
    all.leave(&shop, 10, &object("b"));
    assert!(all.is_empty());
}

/// A Deployment, a ConfigMap that waits for it, and a ConfigMap of a Placement without a gate.
fn gated() -> (World, [ObjectKey; 3]) {
    let mut world = World::new(11);
    let keys = [key("apps", "Deployment", "d"), object("after"), object("other")];
    world.hub.waves.insert(keys[1].clone(), 10);
    world.hub.waves.insert(keys[2].clone(), 20);
    world.cluster.faults.slow = true;
    world.hub.put(&keys[2], 1, 1);
    world.hub.policy = ApplyPolicy { gates: gates(&["retail/shop"]), ..ApplyPolicy::default() };
    world.hub.put(&keys[0], 1, 1);
    world.hub.put(&keys[1], 1, 1);
    world.heal();
    (world, keys)
}

#[test]
fn the_next_wave_goes_when_the_one_before_it_is_ready() {
    let (mut world, [first, after, other]) = gated();
    world.run_for(Duration::from_mins(5));
    assert!(world.cluster.objects.contains_key(&first));
    assert!(!world.cluster.objects.contains_key(&after), "it does not wait");
    assert!(world.cluster.objects.contains_key(&other), "what has no gate waits");
    let (_, _, report) = &world.hub.reports[&after];
    assert_eq!((report.progress, report.reason), (Progress::Pending, Some(Reason::WaitingForWave)));
    expect!["wave 0 of Placement retail/shop is not ready: Deployment.apps shop/d: it starts"]
        .assert_eq(&report.message);
    world.cluster.become_ready(&first);
    world.run_for(Duration::from_secs(30));
    assert!(world.cluster.objects.contains_key(&after));
    world.check_converged();
    assert!(world.hub.conditions().is_empty());
}

#[test]
fn after_the_deadline_the_next_wave_goes_anyway_and_that_is_reported() {
    let (mut world, [first, after, _]) = gated();
    world.run_for(Duration::from_mins(11));
    assert!(world.cluster.objects.contains_key(&after));
    expect!["WaitingForWave 1: wave 0 of Placement retail/shop was not ready within 600 s: Deployment.apps shop/d: it starts; the next wave was started"]
    .assert_eq(&world.hub.conditions().join("\n"));
    world.cluster.become_ready(&first);
    world.run_for(Duration::from_mins(1));
    assert!(world.hub.conditions().is_empty());
    world.check_reported();
}

#[test]
fn drift_is_corrected_though_its_wave_would_wait() {
    let (mut world, [first, after, _]) = gated();
    world.run_for(Duration::from_mins(5));
    world.cluster.become_ready(&first);
    world.run_for(Duration::from_mins(1));
    world.cluster.delete(&first);
    world.run_for(Duration::from_secs(5));
    world.cluster.delete(&after);
    world.run_for(Duration::from_secs(5));
    assert!(world.cluster.objects.contains_key(&after), "the one before it is not ready, and that is no matter");
}

#[test]
fn a_gate_delays_only_removals_of_its_own_placement() {
    let (mut world, [first, after, other]) = gated();
    let old = object("old");
    world.hub.put(&old, 1, 1);
    world.run_for(Duration::from_mins(1));
    assert!(world.cluster.objects.contains_key(&old) && !world.cluster.objects.contains_key(&after));
    world.hub.remove(&other);
    world.hub.remove(&old);
    world.run_for(Duration::from_mins(2));
    world.cluster.do_chores();
    assert!(!world.cluster.objects.contains_key(&other), "another Placement's");
    assert!(world.cluster.objects.contains_key(&old), "what is held may replace it");
    let (_, _, report) = &world.hub.reports[&old];
    assert_eq!((report.progress, report.reason), (Progress::Deleting, Some(Reason::WaitingForWave)));
    expect!["removal waits until its possible replacement is applied, which waits for wave 0 of Placement retail/shop: Deployment.apps shop/d is not ready"]
        .assert_eq(&report.message);
    expect![
        "WaitingForWave 2: 2 objects wait for wave 0 of Placement retail/shop: Deployment.apps shop/d is not ready"
    ]
    .assert_eq(&world.hub.conditions().join("\n"));
    world.cluster.become_ready(&first);
    world.run_for(Duration::from_mins(1));
    world.cluster.do_chores();
    assert!(world.cluster.objects.contains_key(&after) && !world.cluster.objects.contains_key(&old));
}
