//! An agent passes to another SyncTarget, or to another key, while its process ends again and again, with its journal or the
//! journal with it: every object keeps its UID.

use std::collections::BTreeMap;
use std::time::Duration;

use tideline_agent::core::FuseLimits;
use tideline_common::{ObjectKey, Uid};

use crate::world::{Copied, Scenario, World};
use crate::{PLAIN, SEEDS, SETTLING, SHUT, UNFUSED, each_seed};

/// A frozen agent asks every ten minutes, and then has everything to do.
const HEARD: Duration = Duration::from_mins(45);

const QUIET: Scenario = Scenario { loses_journal: false, ..PLAIN };

/// Ends the processes a few times.
fn interrupt(world: &mut World, loses_journal: bool) {
    for _ in 0..4 {
        let pause = world.draw() % 400_000;
        world.pass(pause);
        match world.draw() % 4 {
            0 => world.restart_hub(),
            1 if loses_journal => world.lose_data(),
            _ => world.restart_agent(),
        }
    }
}

fn at_rest(world: &mut World) {
    world.rage(5);
    world.heal();
    world.sleep(SETTLING);
    world.check_converged();
}

/// It is adopted, and its hub runs on a copy from before that. Returns which objects there were, and whether the journal may
/// be lost from then on.
fn adopted_and_set_back(world: &mut World) -> (BTreeMap<ObjectKey, Uid>, bool) {
    at_rest(world);
    world.back_up();
    let before = world.uids();
    let loses_journal = world.draw().is_multiple_of(2);
    world.delete_target();
    world.adopt();
    let pause = world.draw() % 2_400_000;
    world.pass(pause);
    world.restore_before_adoption();
    (before, loses_journal)
}

#[test]
fn an_agent_that_is_adopted_keeps_every_object() {
    each_seed(
        SEEDS,
        |_| QUIET,
        |world| {
            at_rest(world);
            let before = world.uids();
            let loses_journal = world.draw().is_multiple_of(2);
            world.delete_target();
            interrupt(world, loses_journal);
            world.adopt();
            interrupt(world, loses_journal);
            world.sleep(HEARD);
            world.sleep(HEARD);
            assert_eq!(world.uids(), before, "something was deleted, or made again");
            world.check_marks();
            world.check_converged();
        },
    );
}

/// It is found by its former name, and is that target again.
#[test]
fn an_agent_whose_hub_is_set_back_to_before_its_adoption_keeps_every_object() {
    each_seed(
        SEEDS,
        |_| QUIET,
        |world| {
            let (before, loses_journal) = adopted_and_set_back(world);
            interrupt(world, loses_journal);
            world.sleep(HEARD);
            world.accept_history();
            world.sleep(HEARD);
            assert_eq!(world.uids(), before, "something was deleted, or made again");
            world.check_marks();
            world.check_converged();
        },
    );
}

#[test]
fn an_agent_with_a_new_key_keeps_every_object() {
    each_seed(
        SEEDS,
        |_| QUIET,
        |world| {
            at_rest(world);
            let before = world.uids();
            let loses_journal = world.draw().is_multiple_of(2);
            if world.draw().is_multiple_of(2) {
                // Revoked after it was adopted, perhaps before it has heard of that.
                world.delete_target();
                interrupt(world, loses_journal);
                world.adopt();
                let pause = world.draw() % 1_200_000;
                world.pass(pause);
            }
            world.revoke();
            interrupt(world, loses_journal);
            world.give_token();
            interrupt(world, loses_journal);
            world.sleep(HEARD);
            world.sleep(HEARD);
            assert_eq!(world.uids(), before, "something was deleted, or made again");
            world.check_converged();
        },
    );
}

/// What was being removed by then is not assigned under its new name either; only a person can say so.
#[test]
fn an_agent_that_is_adopted_amid_removals_keeps_what_is_assigned() {
    each_seed(
        SEEDS,
        |seed| Scenario {
            fuse: [UNFUSED, SHUT, FuseLimits::default()][usize::try_from(seed % 3).expect("it is small")],
            ..QUIET
        },
        |world| {
            at_rest(world);
            let assigned = world.unassign_some();
            let pause = world.draw() % 3_000;
            world.pass(pause);
            // With its journal it would lose the kinds that are no longer placed.
            world.delete_target();
            interrupt(world, false);
            world.adopt();
            interrupt(world, false);
            world.sleep(HEARD);
            world.sleep(HEARD);
            world.approve_all();
            let after = world.uids();
            let lost: Vec<_> = assigned.iter().filter(|(key, uid)| after.get(*key) != Some(*uid)).collect();
            assert!(lost.is_empty(), "these were deleted, or made again: {lost:?}");
            world.check_marks();
            world.check_converged();
        },
    );
}

#[test]
fn an_agent_that_is_adopted_twice_with_its_hub_set_back_between_keeps_every_object() {
    each_seed(
        SEEDS,
        |_| QUIET,
        |world| {
            let (before, loses_journal) = adopted_and_set_back(world);
            let pause = world.draw() % 1_200_000;
            world.pass(pause);
            world.delete_target();
            interrupt(world, loses_journal);
            world.adopt_again();
            interrupt(world, loses_journal);
            world.sleep(HEARD);
            world.accept_history();
            world.sleep(HEARD);
            assert_eq!(world.uids(), before, "something was deleted, or made again");
            world.check_marks();
            world.check_converged();
        },
    );
}

/// Whichever of the two the hub hears first: one works, and the other waits.
#[test]
fn an_agent_that_is_adopted_beside_a_copy_keeps_every_object() {
    each_seed(
        SEEDS,
        |_| QUIET,
        |world| {
            at_rest(world);
            let before = world.uids();
            let what = if world.draw().is_multiple_of(3) { Copied::Secret } else { Copied::Directory };
            world.copy_agent(what);
            let pause = world.draw() % 1_800_000;
            world.pass(pause);
            world.delete_target();
            interrupt(world, false);
            world.adopt();
            interrupt(world, false);
            world.heal_all();
            world.sleep(HEARD);
            world.sleep(HEARD);
            assert_eq!(world.uids(), before, "something was deleted, or made again");
            world.turn_to_the_one_that_works();
            world.check_marks();
            world.check_converged();
        },
    );
}
