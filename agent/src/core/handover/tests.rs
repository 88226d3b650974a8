use std::time::Duration;

use tideline_common::wire::v1::RefusalKind;
use tideline_common::{ObjectKey, TargetId};
use uuid::Uuid;

use super::super::FuseLimits;
use super::super::tests::world::World;
use super::super::tests::{key, target_id};

fn heir() -> TargetId {
    TargetId::from_uuid(Uuid::from_u128(77))
}

/// An agent that keeps three objects; its SyncTarget was deleted, and is there again.
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
    assert_eq!(world.standings.len(), 1, "{:?}", world.standings);
    (world, keys)
}

fn targets(world: &World) -> Vec<TargetId> {
    world.cluster.objects.values().filter_map(|local| local.mark.as_ref()).map(|mark| mark.target).collect()
}

#[test]
fn what_a_former_target_placed_is_the_new_ones_with_its_uid() {
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
        // An object that is taken out from now on goes.
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
    // Of the same epoch, and without a word of what was removed, as another target's set is.
    world.hub.begin_epoch(1);
    world.quiesce();
    assert!(world.cluster.objects.contains_key(&lacking), "nobody said that it is to go");
    world.hub.put(&lacking, 1, 2);
    world.quiesce();
    world.check_converged();
    assert_eq!(targets(&world), [heir(); 3]);
}

#[test]
fn what_was_accepted_as_another_target_is_shown_and_not_compared_with() {
    let (mut world, _) = frozen(4);
    world.hub.begin_epoch(1);
    world.hub.refuses = None;
    world.hub.hands_to = Some(heir());
    world.quiesce();
    assert!(world.hub.shown.is_some(), "the hub is to judge its history by it");
    assert_eq!(world.standings.last().map(String::as_str), Some("Thaw"));
    // An epoch below the former one's is accepted, for it is of another target.
    let (mut world, keys) = frozen(5);
    world.hub.begin_epoch(0);
    world.hub.refuses = None;
    world.hub.hands_to = Some(heir());
    world.hub.put(&keys[0], 1, 9);
    world.quiesce();
    world.check_converged();
}

/// Told by a set that the former target had, and held by the fuse.
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
}

/// The hub knows the target no more; whoever runs it gives the agent a token.
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

/// How an agent comes from one target to another.
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
        let (own, next) = (target_id(), TargetId::from_uuid(Uuid::from_u128(78)));
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
fn wherever_an_agent_is_cut_off_on_its_way_to_another_target_every_object_keeps_its_uid() {
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
