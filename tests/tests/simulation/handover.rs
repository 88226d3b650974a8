//! An agent comes to another SyncTarget, or to another key, while its process ends again and again, with its journal or the
//! journal with it: every object keeps its UID.

use std::time::Duration;

use crate::world::{Scenario, World};
use crate::{PLAIN, SETTLING, each_seed};

/// A frozen agent asks every ten minutes, and then has all before it.
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

#[test]
fn an_agent_that_is_adopted_keeps_every_object() {
    each_seed(
        300,
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

/// It is found by the name that it had, and is that again.
#[test]
fn an_agent_whose_hub_is_set_back_to_before_its_adoption_keeps_every_object() {
    each_seed(
        60,
        |_| QUIET,
        |world| {
            at_rest(world);
            world.back_up();
            let before = world.uids();
            let loses_journal = world.draw().is_multiple_of(2);
            world.delete_target();
            world.adopt();
            let pause = world.draw() % 2_400_000;
            world.pass(pause);
            world.restore_before_adoption();
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
        300,
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
