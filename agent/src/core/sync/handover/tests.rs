use std::time::Duration;

use tideline_common::wire::v1::RefusalKind;
use tideline_common::{ApplyMode, DriftPolicy, EntryState, HubId, Mark, ObjectKey, Reason, TargetId, Tombstone};
use uuid::Uuid;

use crate::core::FuseLimits;
use crate::core::tests::world::World;
use crate::core::tests::{key, target_id, uid, with_refused_orphaning};

fn heir() -> TargetId {
    crate::core::tests::heir(0)
}

/// An agent that keeps three objects; its SyncTarget was deleted, and created again.
fn frozen(seed: u64) -> (World, [ObjectKey; 3]) {
    let mut world = World::new(seed);
    let keys = ["a", "b", "c"].map(|name| key("", "ConfigMap", name));
    for key in &keys {
        world.hub.put(key, 1, 1);
    }
    world.heal();
    world.quiesce();
    world.hub.refuses = Some(RefusalKind::TargetGone);
    world.run_for(Duration::from_mins(2));
    assert_eq!(world.modes.len(), 1, "{:?}", world.modes);
    (world, keys)
}

fn targets(world: &World) -> Vec<TargetId> {
    world.cluster.objects.values().filter_map(|local| local.mark.as_ref()).map(|mark| mark.target).collect()
}

#[test]
fn objects_of_a_former_target_pass_to_the_new_one_with_their_uids() {
    for seed in 0..40 {
        let (mut world, keys) = frozen(seed);
        let uids = keys.clone().map(|key| world.cluster.objects[&key].uid.clone());
        world.hub.refuses = None;
        world.hub.begin_epoch(1);
        world.hub.hands_to = Some(heir());
        for _ in 0..seed % 7 {
            world.run_with_faults(3);
            world.crash();
        }
        world.quiesce();
        assert_eq!(keys.clone().map(|key| world.cluster.objects[&key].uid.clone()), uids, "seed {seed}");
        assert_eq!(targets(&world), [heir(); 3], "seed {seed}: every mark names the new target");
        world.check_converged();
        // An object that is unassigned from now on is removed.
        world.hub.remove(&keys[0]);
        world.quiesce();
        assert!(!world.cluster.objects.contains_key(&keys[0]), "seed {seed}");
    }
}

#[test]
fn nothing_follows_from_absence_in_the_new_targets_first_set() {
    let (mut world, [_, lacking, _]) = frozen(3);
    world.hub.refuses = None;
    world.hub.hands_to = Some(heir());
    world.hub.remove(&lacking);
    // Of the same epoch, and without tombstones, as another target's set is.
    world.hub.begin_epoch(1);
    world.quiesce();
    assert!(world.cluster.objects.contains_key(&lacking), "nobody said that it is to go");
    assert_eq!(targets(&world), [heir(); 3], "what is in no set is marked anew, too");
    world.hub.put(&lacking, 1, 2);
    world.quiesce();
    world.check_converged();
    assert_eq!(targets(&world), [heir(); 3]);
}

#[test]
fn a_set_accepted_as_another_target_is_shown_and_not_compared_with() {
    let (mut world, _) = frozen(4);
    world.hub.begin_epoch(1);
    world.hub.refuses = None;
    world.hub.hands_to = Some(heir());
    world.quiesce();
    assert!(world.hub.shown.is_some(), "the hub is to judge its history by it");
    assert_eq!(world.modes.last().map(String::as_str), Some("Thaw"));
    // An epoch below the former one's is accepted, for it is of another target.
    let (mut world, keys) = frozen(5);
    world.hub.begin_epoch(0);
    world.hub.refuses = None;
    world.hub.hands_to = Some(heir());
    world.hub.put(&keys[0], 1, 9);
    world.quiesce();
    world.check_converged();
}

/// Unassigned by a set that the former target had, and held by the fuse.
#[test]
fn removals_under_way_end_with_the_target_that_they_were_of() {
    let mut world = World::with_fuse(6, FuseLimits { always: 0, percent: 0 });
    let held = key("", "ConfigMap", "held");
    world.hub.put(&held, 1, 1);
    world.heal();
    world.quiesce();
    world.hub.remove(&held);
    world.quiesce();
    assert_eq!(world.removals(), 1);
    world.hub.begin_epoch(1);
    world.hub.refuses = Some(RefusalKind::TargetGone);
    world.run_for(Duration::from_mins(2));
    world.hub.refuses = None;
    world.hub.hands_to = Some(heir());
    world.quiesce();
    assert_eq!(world.removals(), 0);
    assert!(world.cluster.objects.contains_key(&held));
    assert_eq!(targets(&world), [heir()]);
}

/// It could not be written, so that the order to orphan it ended with the former target before it was done.
#[test]
fn an_approved_deletion_is_carried_out_after_an_orphaning_that_ended_with_its_target() {
    let key = key("", "ConfigMap", "held");
    let mut world = with_refused_orphaning(6, &key);
    world.hub.begin_epoch(1);
    world.hub.hands_to = Some(heir());
    world.crash();
    world.quiesce();
    assert_eq!((world.removals(), targets(&world)), (0, vec![target_id()]));
    world.cluster.faults.unwritable.clear();
    world.quiesce();
    assert_eq!(targets(&world), [heir()]);
    world.hub.approved = vec![Tombstone { key: key.clone(), source: uid("s1") }];
    world.quiesce();
    assert!(!world.cluster.objects.contains_key(&key), "a person approved that it goes");
}

/// Two marks of objects that are not applied, in either state.
fn adopted_while(seed: u64, state: EntryState, drift: DriftPolicy) -> (World, [ObjectKey; 3]) {
    let mut world = World::new(seed);
    world.hub.policy.drift = drift;
    let keys = ["a", "b", "c"].map(|name| key("", "ConfigMap", name));
    for key in &keys {
        world.hub.put(key, 1, 1);
    }
    world.heal();
    world.quiesce();
    for key in &keys[..2] {
        world.hub.set_state(key, state);
    }
    world.quiesce();
    world.shut_out(RefusalKind::TargetGone);
    world.run_for(Duration::from_mins(2));
    assert_eq!(targets(&world), [target_id(); 3], "seed {seed}: a frozen agent writes nothing");
    world.hub.begin_epoch(1);
    world.hub.refuses = None;
    world.hub.hands_to = Some(heir());
    (world, keys)
}

#[test]
fn held_and_withheld_objects_get_the_new_targets_mark_and_nothing_else() {
    for state in [EntryState::Hold(Reason::Conflict), EntryState::Withheld(Reason::AgentTooOld)] {
        for seed in 0..20 {
            let (mut world, keys) = adopted_while(seed, state, DriftPolicy::Correct);
            let stood = keys.clone().map(|key| world.cluster.objects[&key].clone());
            for _ in 0..seed % 4 {
                world.run_with_faults(4);
                world.crash();
            }
            world.quiesce();
            for (key, before) in keys.iter().zip(&stood) {
                let now = &world.cluster.objects[key];
                assert_eq!((&now.uid, now.input), (&before.uid, before.input), "seed {seed}, {state:?}: {key}");
                let (now, before) = (now.mark.as_ref().unwrap(), before.mark.as_ref().unwrap());
                assert_eq!(**now, Mark { target: heir(), ..(**before).clone() }, "seed {seed}, {state:?}: {key}");
            }
            world.check_at_rest();
        }
    }
}

/// The mark is in another entry of managedFields then; that is not taken for somebody else's change.
#[test]
fn an_object_marked_anew_while_on_hold_has_not_drifted_when_the_hold_ends() {
    let (mut world, keys) = adopted_while(1, EntryState::Hold(Reason::Conflict), DriftPolicy::Report);
    world.quiesce();
    for key in &keys {
        world.hub.set_state(key, EntryState::Apply);
    }
    world.quiesce();
    world.check_reported();
    for key in &keys {
        let (_, _, report) = &world.hub.reports[key];
        assert_eq!(report.reason, None, "{key}: {report:?}");
    }
    assert_eq!(world.cluster.comparisons, 0, "nothing gave a reason to look at them");
    // A change by somebody else from before is still reported.
    let (mut world, keys) = adopted_while(2, EntryState::Hold(Reason::Conflict), DriftPolicy::Report);
    world.cluster.edit(&keys[0]);
    world.quiesce();
    world.hub.set_state(&keys[0], EntryState::Apply);
    world.quiesce();
    let (_, _, report) = &world.hub.reports[&keys[0]];
    assert_eq!(report.reason, Some(Reason::Drifted), "{report:?}");
    assert_eq!(targets(&world), [heir(); 3]);
}

/// The object is somebody else's copy, or marked by another hub.
#[test]
fn no_mark_is_written_over_that_is_not_the_agents_own() {
    let (mut world, keys) = adopted_while(3, EntryState::Hold(Reason::Conflict), DriftPolicy::Correct);
    let strange = |world: &mut World, key: &ObjectKey, mark: &dyn Fn(Mark) -> Mark| {
        let local = world.cluster.objects.get_mut(key).unwrap();
        let marked = mark((**local.mark.as_ref().unwrap()).clone());
        local.mark = Some(marked.into());
        world.list(&key.kind);
    };
    strange(&mut world, &keys[0], &|mark| Mark { hub: HubId::from_uuid(Uuid::nil()), ..mark });
    strange(&mut world, &keys[1], &|mark| Mark { local: key("", "ConfigMap", "elsewhere"), ..mark });
    world.quiesce();
    assert_eq!(targets(&world), [target_id(), target_id(), heir()]);
}

#[test]
fn a_mark_that_may_not_be_written_is_tried_again_ever_less_often() {
    let (mut world, keys) = adopted_while(4, EntryState::Hold(Reason::Conflict), DriftPolicy::Correct);
    world.cluster.faults.unwritable.extend(keys[..2].iter().cloned());
    world.quiesce();
    let before = world.ops;
    world.quiesce();
    let tries = world.ops - before;
    assert!((2..40).contains(&tries), "{tries} in half an hour, for two");
    world.cluster.faults.unwritable.clear();
    world.quiesce();
    assert_eq!(targets(&world), [heir(); 3]);
}

/// Its entry accepts whatever mark it has, so that nothing of the entry fails.
#[test]
fn the_mark_of_an_implied_namespace_that_may_not_be_written_is_tried_ever_less_often() {
    let mut world = World::new(5);
    let namespace = key("", "Namespace", "shop");
    world.hub.put(&namespace, 1, 1);
    world.hub.imply(&namespace);
    world.heal();
    world.quiesce();
    world.hub.refuses = Some(RefusalKind::TargetGone);
    world.run_for(Duration::from_mins(2));
    world.cluster.faults.unwritable.insert(namespace);
    world.hub.begin_epoch(1);
    world.hub.refuses = None;
    world.hub.hands_to = Some(heir());
    world.quiesce();
    assert_eq!(targets(&world), [target_id()]);
    let before = world.ops;
    world.quiesce();
    let tries = world.ops - before;
    assert!((2..20).contains(&tries), "{tries} in half an hour");
    world.cluster.faults.unwritable.clear();
    world.quiesce();
    assert_eq!(targets(&world), [heir()]);
}

#[test]
fn marks_that_somebody_puts_back_are_written_ever_less_often() {
    for mode in [ApplyMode::CreateOnly, ApplyMode::Continuous] {
        let mut world = World::new(6);
        world.hub.policy.mode = mode;
        let keys = ["a", "b"].map(|name| key("", "ConfigMap", name));
        for key in &keys {
            world.hub.put(key, 1, 1);
        }
        world.heal();
        world.quiesce();
        if mode == ApplyMode::Continuous {
            for key in &keys {
                world.hub.set_state(key, EntryState::Hold(Reason::Conflict));
            }
        }
        world.quiesce();
        world.shut_out(RefusalKind::TargetGone);
        world.run_for(Duration::from_mins(2));
        world.cluster.faults.keeps_marks.extend(keys);
        world.hub.begin_epoch(1);
        world.hub.refuses = None;
        world.hub.hands_to = Some(heir());
        world.quiesce();
        let before = world.ops;
        world.quiesce();
        let tries = world.ops - before;
        assert!((2..60).contains(&tries), "{mode:?}: {tries} in half an hour, for two");
        world.cluster.faults.keeps_marks.clear();
        world.quiesce();
        assert_eq!(targets(&world), [heir(); 2], "{mode:?}");
    }
}

/// The hub does not know the target any more; its administrator gives the agent a token.
#[test]
fn a_new_token_makes_it_another_target_with_its_objects_in_place() {
    for refusal in [RefusalKind::UnknownTarget, RefusalKind::Revoked, RefusalKind::TargetGone] {
        let (mut world, keys) = frozen(7);
        let uids = keys.clone().map(|key| world.cluster.objects[&key].uid.clone());
        world.hub.refuses = Some(refusal);
        world.hub.begin_epoch(1);
        world.hub.enrols_as = Some(heir());
        world.give_token();
        world.quiesce();
        assert_eq!(keys.map(|key| world.cluster.objects[&key].uid.clone()), uids, "{refusal:?}");
        assert_eq!(targets(&world), [heir(); 3], "{refusal:?}");
        world.check_converged();
    }
}

/// As where the name was another agent's, whose SyncTarget was deleted then.
#[test]
fn a_token_that_was_refused_is_shown_again_from_time_to_time() {
    for refusal in [RefusalKind::UnknownTarget, RefusalKind::Revoked, RefusalKind::TargetGone] {
        let (mut world, _) = frozen(8);
        world.hub.refuses = Some(refusal);
        world.hub.refuses_token = true;
        world.hub.enrolments_asked = 0;
        world.give_token();
        world.run_for(Duration::from_mins(30));
        assert_eq!(world.hub.enrolments_asked, 1, "{refusal:?}");
        world.run_for(Duration::from_hours(8));
        let shown = world.hub.enrolments_asked;
        assert!((6..=12).contains(&shown), "{refusal:?}: {shown} in eight hours");
        world.hub.refuses_token = false;
        world.hub.begin_epoch(1);
        world.hub.enrols_as = Some(heir());
        world.run_for(Duration::from_hours(2));
        world.quiesce();
        assert_eq!(targets(&world), [heir(); 3], "{refusal:?}");
    }
}

/// An agent that was fenced, and whose SyncTarget was deleted then, enrols without a restart.
#[test]
fn the_session_that_fenced_an_agent_is_shown_for_its_former_target_alone() {
    for (target, said) in [(heir(), false), (target_id(), true)] {
        let (mut world, _) = frozen(9);
        world.hub.refuses = None;
        world.give_token();
        world.quiesce();
        world.shut_out(RefusalKind::Fenced);
        world.run_for(Duration::from_mins(5));
        assert!(world.hub.proved.is_some());
        world.hub.begin_epoch(1);
        world.hub.enrols_as = Some(target);
        world.hub.enrolments_asked = 0;
        world.shut_out(RefusalKind::TargetGone);
        world.run_for(Duration::from_mins(30));
        assert_eq!(world.hub.enrolments_asked, 1);
        assert_eq!(world.hub.proved.is_some(), said, "{target}");
    }
}

/// How an agent passes from one target to another.
#[derive(Clone, Copy, Debug)]
enum Way {
    Adopted,
    /// To one, and while it is on its way to the next.
    AdoptedTwice,
    /// To another and back, as where the hub was set back to before the adoption.
    AdoptedAndBack,
    /// By a new token, which makes it another target.
    Token,
    /// The same SyncTarget with a new key.
    Revoked,
    /// Adopted, and its key revoked before it was through with that.
    AdoptedAndRevoked,
}

impl Way {
    /// The target that it is in the end.
    fn goes(self, world: &mut World, steps: u64) -> TargetId {
        let (own, next) = (target_id(), crate::core::tests::heir(1));
        let half = |world: &mut World| (0..steps / 2).for_each(|_| world.advance());
        let adopted = |world: &mut World, heir| {
            world.hub.refuses = None;
            world.hub.begin_epoch(1);
            world.hub.hands_to = Some(heir);
        };
        match self {
            Self::Adopted => {
                adopted(world, heir());
                heir()
            }
            Self::AdoptedTwice | Self::AdoptedAndBack => {
                let last = if let Self::AdoptedTwice = self { next } else { own };
                adopted(world, heir());
                half(world);
                world.hub.hands_to = None;
                world.shut_out(RefusalKind::TargetGone);
                world.run_for(Duration::from_mins(2));
                adopted(world, last);
                last
            }
            Self::Token | Self::Revoked => {
                let target = if let Self::Token = self { heir() } else { own };
                world.hub.refuses = Some(RefusalKind::Revoked);
                world.hub.enrols_as = Some(target);
                world.give_token();
                target
            }
            Self::AdoptedAndRevoked => {
                adopted(world, heir());
                half(world);
                world.shut_out(RefusalKind::Revoked);
                world.hub.hands_to = None;
                world.hub.enrols_as = Some(next);
                world.give_token();
                next
            }
        }
    }
}

/// Whether the process ends with its journal or the journal with it, and between whichever two steps.
#[test]
fn an_agent_interrupted_anywhere_on_its_way_to_another_target_keeps_the_uid_of_every_object() {
    let ways = [Way::Adopted, Way::AdoptedTwice, Way::AdoptedAndBack, Way::Token, Way::Revoked, Way::AdoptedAndRevoked];
    for way in ways {
        for loses_journal in [false, true] {
            for steps in (0..50).step_by(3) {
                let context = format!("{way:?}, {steps} steps, without its journal: {loses_journal}");
                let (mut world, keys) = frozen(steps);
                let uids = keys.clone().map(|key| world.cluster.objects[&key].uid.clone());
                let target = way.goes(&mut world, steps);
                for _ in 0..steps {
                    world.advance();
                }
                if loses_journal {
                    world.lose_journal();
                } else {
                    world.crash();
                }
                world.quiesce();
                let kept = keys.clone().map(|key| world.cluster.objects.get(&key).map(|local| local.uid.clone()));
                assert_eq!(kept, uids.map(Some), "{context}");
                assert_eq!(targets(&world), [target; 3], "{context}");
                world.check_converged();
            }
        }
    }
}
