//! One hub and one agent, their real cores and their real messages, in virtual time: over a wire that loses, delays,
//! doubles and reorders, with crashes between any two effects, failing disks, an API server that fails, and people who
//! interfere. What happens is decided by a seed; what must hold are the invariants in ARCHITECTURE.md.
//!
//! `TIDELINE_SEED=n` runs one seed, `TIDELINE_SEEDS=n` so many of each test instead of the usual number. The first seed
//! that fails is run again with a trace, of which the last `TIDELINE_TRACE` events (or sixty) are shown.

mod again;
mod away;
mod check;
mod copies;
mod faults;
mod handover;
mod history;
mod hub;
mod ids;
mod jobs;
mod journal;
mod plans;
mod random;
mod set_back;
mod traces;
mod versions;
mod wire;
mod workload;
mod world;

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tideline_agent::core::FuseLimits;
use tideline_common::rollup::Freshness;

use faults::PATROL;
use hub::Forgetting;
use world::{Scenario, World};

/// No fuse: what it holds waits for people, and there are none here.
const UNFUSED: FuseLimits = FuseLimits { always: usize::MAX, percent: 0 };
/// Nothing is deleted without approval.
const SHUT: FuseLimits = FuseLimits { always: 0, percent: 0 };
const PLAIN: Scenario = Scenario {
    config_maps: 6,
    fuse: UNFUSED,
    rest: REST,
    restores: 0,
    loses_journal: true,
    approves: false,
    shuts_out: false,
    unassigns: u64::MAX,
    patrol: PATROL,
    versions: false,
    meddles: false,
    moves: false,
    forgets: true,
};

/// Longer than every retry of any process, and than a patrol.
const SETTLING: Duration = Duration::from_mins(22);
/// Longer than every periodic task of both processes.
const REST: Duration = Duration::from_mins(12);
/// A day costs as much as a hundred other mishaps: one seed of so many has one.
const A_DAY: u64 = 30;
const LONG_REST: Duration = Duration::from_hours(5);

#[test]
fn every_assigned_object_exists_or_its_absence_is_explained_and_at_rest_nothing_writes() {
    let forgetting = each_seed(SEEDS, scenario, |world| {
        world.rage(22);
        world.heal();
        world.sleep(SETTLING);
        world.check_converged();
        world.check_at_rest(true);
    });
    check_forgetting(&forgetting);
}

#[test]
fn without_the_hub_the_accepted_set_is_kept_across_restarts() {
    each_seed(
        SEEDS,
        |_| Scenario { loses_journal: false, ..PLAIN },
        |world| {
            world.rage(8);
            world.heal();
            world.sleep(SETTLING);
            world.lose_hub();
            world.rage_alone(12);
            world.heal();
            world.sleep(SETTLING);
            world.check_kept();
            world.check_at_rest(false);
        },
    );
}

#[test]
fn after_the_hub_was_set_back_nothing_is_deleted_for_being_absent() {
    // With its journal the agent would lose the kinds that are no longer placed.
    let forgetting = each_seed(
        SEEDS,
        |seed| Scenario { restores: 1 + seed % 4, loses_journal: false, ..PLAIN },
        |world| {
            world.rage(40);
            world.heal();
            world.sleep(SETTLING);
            world.accept_history();
            world.check_converged();
            world.check_at_rest(true);
        },
    );
    check_forgetting(&forgetting);
}

#[test]
fn held_removals_go_when_a_person_approves_them_and_no_others_do() {
    each_seed(
        SEEDS,
        |seed| Scenario { approves: true, fuse: SHUT, restores: seed % 3, loses_journal: false, ..PLAIN },
        |world| {
            world.rage(30);
            world.heal();
            world.sleep(SETTLING);
            world.accept_history();
            world.approve_all();
            world.check_converged();
            world.check_at_rest(true);
        },
    );
}

#[test]
fn an_agent_that_lost_its_data_and_kept_its_identity_writes_nothing_again() {
    each_seed(
        SEEDS,
        |_| PLAIN,
        |world| {
            world.rage(12);
            world.heal();
            world.sleep(SETTLING);
            world.check_converged();
            let ((cluster, ..), marked) = (world.writes(), world.is_all_marked());
            world.lose_data();
            world.sleep(SETTLING);
            world.check_converged();
            assert!(!marked || world.writes().0 == cluster, "what stands is written again");
            world.check_at_rest(true);
        },
    );
}

#[test]
fn a_decommissioned_cluster_is_emptied_or_orphaned_and_its_agent_is_idle() {
    each_seed(
        SEEDS,
        |seed| Scenario { fuse: FuseLimits::default(), loses_journal: seed % 3 == 0, ..PLAIN },
        |world| {
            world.rage(12);
            let how = world.decommission();
            world.rage(10);
            world.heal();
            world.sleep(SETTLING);
            world.sleep(SETTLING);
            world.check_converged();
            world.check_decommissioned(how);
            world.check_at_rest(true);
        },
    );
}

#[test]
fn a_frozen_agent_changes_nothing_and_resumes_by_itself_when_the_cause_ends() {
    each_seed(
        SEEDS,
        |seed| Scenario { shuts_out: true, loses_journal: seed % 4 == 0, ..scenario(seed) },
        |world| {
            world.rage(22);
            world.heal();
            // A frozen agent asks every ten minutes, and then has everything to do.
            world.sleep(SETTLING);
            world.sleep(SETTLING);
            world.check_converged();
            world.check_at_rest(true);
        },
    );
}

/// Checks which answers are believed and which requests are taken.
#[test]
fn whatever_a_proxy_does_hub_and_agent_act_only_on_each_others_messages() {
    each_seed(
        SEEDS,
        // What was lost with the hub's history and the journal is of kinds that nobody knows any more.
        |seed| Scenario { meddles: true, restores: seed % 2, loses_journal: seed % 2 == 0, ..scenario(seed) },
        |world| {
            world.rage(22);
            while world.tricks() == 0 {
                world.rage(4);
            }
            world.heal();
            world.sleep(SETTLING);
            world.accept_history();
            world.check_converged();
            world.check_at_rest(true);
        },
    );
}

#[test]
fn no_delayed_request_makes_a_dead_target_fresh() {
    each_seed(
        SEEDS,
        |_| PLAIN,
        |world| {
            world.heal();
            world.sleep(Duration::from_mins(5));
            assert_eq!(world.hub.freshness(), Some(Freshness::Fresh));
            world.cut();
            world.sleep(Duration::from_mins(10));
            world.lose_agent();
            world.sleep(Duration::from_mins(20));
            world.heal();
            for _ in 0..10 {
                assert_eq!(world.hub.freshness(), Some(Freshness::Stale));
                world.replay_all();
                world.sleep(Duration::from_secs(10));
            }
        },
    );
}

#[test]
fn no_replayed_request_makes_a_dead_target_fresh() {
    each_seed(
        SEEDS,
        |_| PLAIN,
        |world| {
            world.rage(6);
            world.heal();
            world.sleep(Duration::from_mins(5));
            world.lose_agent();
            for round in 0..20 {
                if round % 5 == 2 {
                    world.restart_hub();
                }
                world.sleep(Duration::from_mins(3));
                world.replay_all();
            }
            assert_ne!(world.hub.freshness(), Some(Freshness::Fresh));
        },
    );
}

#[test]
fn an_agent_of_another_version_is_told_what_it_understands_and_nothing_is_deleted_for_it() {
    // A history that is lost with the journal besides leaves kinds that nobody knows any more.
    each_seed(
        SEEDS,
        |seed| Scenario { versions: true, ..scenario(seed) },
        |world| {
            world.rage(30);
            world.heal();
            world.sleep(SETTLING);
            world.check_converged();
            world.check_at_rest(true);
            world.upgrade();
            world.sleep(SETTLING);
            world.check_converged();
            world.check_nothing_withheld();
            world.check_at_rest(true);
        },
    );
}

/// An agent that was told in time finds it by itself; another needs one word from a person.
#[test]
fn an_agent_follows_its_hub_to_any_address_and_nothing_else_changes() {
    each_seed(
        SEEDS,
        |seed| Scenario { moves: true, loses_journal: seed % 4 == 0, ..scenario(seed) },
        |world| {
            world.rage(22);
            while world.followed() == 0 {
                world.rage(4);
            }
            world.heal();
            world.sleep(SETTLING);
            world.sleep(SETTLING);
            world.check_converged();
            world.check_at_rest(true);
            if world.draw().is_multiple_of(A_DAY) {
                world.sleep(Duration::from_hours(26));
                world.restart_both();
                world.sleep(SETTLING);
                world.move_hub();
                world.sleep(2 * SETTLING);
                world.check_converged();
            }
        },
    );
}

/// Some seeds have what is rare: a set that takes several commits, a fuse at either extreme, or a long rest.
fn scenario(seed: u64) -> Scenario {
    match seed % 20 {
        7 => Scenario { config_maps: 60, ..PLAIN },
        8 => Scenario { rest: LONG_REST, ..PLAIN },
        9 => Scenario { unassigns: 2, ..PLAIN },
        0..=4 => Scenario { fuse: FuseLimits::default(), ..PLAIN },
        _ => PLAIN,
    }
}

/// Of each test that draws events at random.
const SEEDS: u64 = 1000;

/// Runs every seed, and names all that failed: one fault often shows in many ways. Returns what all of them have seen.
fn each_seed(usually: u64, scenario: impl Fn(u64) -> Scenario, run: impl Fn(&mut World)) -> Forgetting {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("it is a number"));
    let seeds = match number("TIDELINE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TIDELINE_SEEDS").unwrap_or(usually),
    };
    let (mut failed, forgetting) = (BTreeMap::new(), Forgetting::default());
    for seed in seeds {
        let mut world = World::new(seed, scenario(seed), false);
        let attempt = catch_unwind(AssertUnwindSafe(|| run(&mut world)));
        forgetting.add(&world.hub.forgetting);
        if let Err(panic) = attempt {
            failed.insert(seed, panic_text(&*panic));
        }
    }
    let Some((&first, _)) = failed.first_key_value() else { return forgetting };
    let mut world = World::new(first, scenario(first), true);
    let _same = catch_unwind(AssertUnwindSafe(|| run(&mut world)));
    for line in world.trace.iter().flatten() {
        eprintln!("{line}");
    }
    eprintln!("this was TIDELINE_SEED={first}");
    let list: Vec<_> = failed.iter().map(|(seed, text)| format!("seed {seed}: {text}")).collect();
    panic!("{} seeds failed:\n  {}", failed.len(), list.join("\n  "));
}

/// Where the hub remembers little, some agents must read their sets anew, and some sets must let nothing follow from absence.
fn check_forgetting(forgetting: &Forgetting) {
    if std::env::var_os("TIDELINE_SEED").is_none() {
        let (snapshots, same_segment) = (forgetting.snapshots.get(), forgetting.same_segment.get());
        assert!(snapshots > 0 && same_segment > 0, "it does not happen over all seeds: {forgetting:?}");
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}
