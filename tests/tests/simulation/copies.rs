//! Two agents with one identity, as after a data directory, a machine or a Secret was copied.

use std::time::Duration;

use crate::world::{Copied, Scenario, Which, World};
use crate::{A_DAY, PLAIN, SEEDS, SETTLING, each_seed};

/// A frozen agent asks every ten minutes; and then somebody is informed.
const HEARD: Duration = Duration::from_mins(45);

fn copied(seed: u64) -> Copied {
    if seed.is_multiple_of(3) { Copied::Secret } else { Copied::Directory }
}

/// At rest with everything, and then with a copy beside it.
fn cloned(world: &mut World, what: Copied) {
    world.rage(6);
    world.heal();
    world.sleep(SETTLING);
    world.check_converged();
    world.copy_agent(what);
}

/// Processes end and start, those of both agents and the hub's, in any order and at any time; in half of the seeds over a
/// bad wire, and behind partitions.
fn restart_some(world: &mut World) {
    let spoilt = world.draw().is_multiple_of(2);
    if spoilt {
        world.spoil_wire();
    }
    for _ in 0..6 {
        let which = if world.draw().is_multiple_of(2) { Which::Original } else { Which::Copy };
        match world.draw() % 7 {
            0..=3 => world.restart(which),
            4 | 5 if spoilt => {
                let cut_off = !world.draw().is_multiple_of(3);
                world.set_cut_off(which, cut_off);
            }
            _ => world.restart_hub(),
        }
        let pause = world.draw() % 900_000;
        world.pass(pause);
    }
}

#[test]
fn of_two_agents_with_one_identity_the_holder_stays_until_a_person_accepts_the_other() {
    each_seed(
        SEEDS,
        |_| Scenario { loses_journal: false, ..PLAIN },
        |world| {
            let what = copied(world.draw());
            cloned(world, what);
            let before = world.uids();
            world.sleep(HEARD);
            world.check_holder(Which::Original, true);
            restart_some(world);
            world.heal_all();
            world.sleep(HEARD);
            world.check_holder(Which::Original, true);

            world.accept_instance(Which::Copy);
            world.sleep(HEARD);
            world.check_holder(Which::Copy, true);
            restart_some(world);
            world.heal_all();
            world.sleep(HEARD);
            world.check_holder(Which::Copy, true);

            world.stop(Which::Original);
            if world.draw().is_multiple_of(A_DAY) {
                // A stopped process is shown for a day.
                world.sleep(Duration::from_hours(26));
                world.check_holder(Which::Copy, false);
            }
            assert_eq!(world.uids(), before, "something was deleted, or made again");
            world.turn_to_the(Which::Copy);
            world.check_converged();
        },
    );
}

/// The original's machine is gone, and nobody says anything: after a day of its silence the copy becomes the holder, however
/// often the hub restarts meanwhile.
#[test]
fn a_vanished_holder_is_replaced_after_a_day_in_which_the_hub_ran() {
    each_seed(
        SEEDS,
        |_| Scenario { loses_journal: false, ..PLAIN },
        |world| {
            if !world.draw().is_multiple_of(A_DAY) {
                return;
            }
            let what = copied(world.draw());
            cloned(world, what);
            world.sleep(HEARD);
            let before = world.uids();
            world.stop(Which::Original);
            for _ in 0..20 {
                world.sleep(Duration::from_hours(1));
                world.restart_hub();
            }
            world.check_frozen(Which::Copy);
            for _ in 0..12 {
                world.sleep(Duration::from_hours(1));
                world.restart_hub();
            }
            world.heal_all();
            world.sleep(HEARD);
            world.check_holder(Which::Copy, false);
            assert_eq!(world.uids(), before);
        },
    );
}

/// A machine is restored from a backup, or an old copy of the data directory is started where the first agent ended, and the
/// hub is away: nothing that was applied or unassigned since is undone, run again or removed.
#[test]
fn an_old_copy_changes_nothing_before_it_has_heard_the_hub() {
    each_seed(
        SEEDS,
        |_| Scenario { loses_journal: false, ..PLAIN },
        |world| {
            world.rage(6);
            world.heal();
            world.sleep(SETTLING);
            let old = world.journal().clone();
            world.rage(6);
            world.heal();
            world.sleep(SETTLING);
            world.check_converged();
            if !world.has_later_than(&old) {
                // Nothing shows how old the copy is.
                return;
            }
            world.stop(Which::Original);
            world.start_copy(Copied::Directory, old);
            world.set_cut_off(Which::Copy, true);
            let before = world.applied();
            world.sleep(HEARD);
            assert_eq!(world.applied(), before, "it has changed something");
            world.set_cut_off(Which::Copy, false);
            world.heal_all();
            world.sleep(HEARD);
            world.accept_instance(Which::Copy);
            world.sleep(HEARD);
            world.turn_to_the(Which::Copy);
            world.check_converged();
        },
    );
}
