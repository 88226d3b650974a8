//! Every plan by which one thing goes wrong, once: processes that end before or after each effect, old lists and indexes that
//! come again, events that never come. The patterns of Sieve (OSDI 2022): intermediate states, staleness, observability gaps.
//!
//! A workload runs undisturbed, and its effects are counted; then it runs once more for each disturbance. The oracle compares
//! the outcome, and the writes on the way, with the undisturbed run ([`Outcome::surplus`]); the invariants of the simulation
//! hold in all of them. `TIDELINE_PLAN=update/crash-after/17` runs one again, with a trace, `TIDELINE_PLAN=update/crash` all
//! whose names begin so, and `TIDELINE_PLAN=update/` all of a workload; without it some of each are run.

mod effects;
mod outcome;
mod plan;
mod probe;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tideline_agent::core::FuseLimits;

use crate::world::{Scenario, World};
use crate::{PLAIN, UNFUSED, panic_text};

use effects::Place;
use outcome::Outcome;
use plan::{Disturbance, disturbances};
use workloads::Workload;

pub(crate) use effects::{HubEffect, as_written, of_hub};
pub(crate) use plan::{Absence, When};
pub(crate) use probe::{End, HubProbe, Instead, Leaves, Probe, Record, Telling, place_of};

/// Longer than the consequences of a disturbance take, and shorter than the period of patrols and full passes: those would
/// repair what should not be broken.
const SETTLING: Duration = Duration::from_secs(9 * 60 + 30);
/// Plans of one workload that are run unless `TIDELINE_PLAN` names some, spread evenly over all: each takes some thirty
/// milliseconds, and a workload has up to fifteen hundred.
const PLANS_USUALLY: usize = 60;
/// Longer than a poll.
const REST: Duration = Duration::from_mins(2);

#[test]
fn disturbed_by_a_plan_a_creation_ends_as_if_undisturbed() {
    every_plan("create");
}

#[test]
fn disturbed_by_a_plan_an_update_ends_as_if_undisturbed() {
    every_plan("update");
}

#[test]
fn disturbed_by_a_plan_a_deletion_ends_as_if_undisturbed() {
    every_plan("delete");
}

#[test]
fn disturbed_by_a_plan_a_deletion_and_recreation_under_one_name_ends_as_if_undisturbed() {
    every_plan("recreate");
}

#[test]
fn disturbed_by_a_plan_a_mass_deletion_ends_as_if_undisturbed() {
    every_plan("mass-delete");
}

#[test]
fn disturbed_by_a_plan_a_move_ends_as_if_undisturbed() {
    every_plan("move");
}

#[test]
fn disturbed_by_a_plan_intent_that_changes_twice_ends_as_if_undisturbed() {
    every_plan("intent");
}

#[test]
fn disturbed_by_a_plan_an_adoption_ends_as_if_undisturbed() {
    every_plan("adopt");
}

#[test]
fn disturbed_by_a_plan_upkeep_ends_as_if_undisturbed() {
    every_plan("upkeep");
}

#[test]
fn every_kind_of_effect_is_disturbed_by_a_plan() {
    let (mut agent, mut hub) = (BTreeSet::new(), BTreeSet::new());
    for workload in &workloads::ALL {
        let (_, record) = run(&mut world(workload, None, false), workload);
        agent.extend(record.agent.iter().flat_map(|happened| happened.kinds.clone()));
        hub.extend(record.hub);
    }
    for (kind, place) in effects::AgentEffect::ALL {
        check_place(kind, *place, agent.contains(kind));
    }
    for (kind, place) in HubEffect::ALL {
        check_place(kind, *place, hub.contains(kind));
    }
}

fn check_place(kind: &impl std::fmt::Debug, place: Place, happens: bool) {
    match place {
        Place::Here => assert!(happens, "no workload brings about {kind:?}"),
        Place::Nowhere(reason) => println!("{kind:?} need not be disturbed: {reason}"),
    }
}

fn world(workload: &Workload, plan: Option<Disturbance>, traced: bool) -> World {
    let fuse = if workload.fused { FuseLimits::default() } else { UNFUSED };
    let patrol = Duration::from_mins(workload.patrol_minutes);
    let mut world = World::new(
        0,
        Scenario { config_maps: 0, fuse, patrol, rest: REST, loses_journal: false, forgets: false, ..PLAIN },
        traced,
    );
    world.set_probes(Probe::new(plan), HubProbe::new(plan));
    world
}

/// Runs a workload. Returns its outcome and what happened in it.
fn run(world: &mut World, workload: &Workload) -> (Outcome, Record) {
    (workload.prepare)(world);
    world.arm();
    (workload.act)(world);
    let record = world.disarm();
    world.sleep(SETTLING);
    world.check_converged();
    let outcome = Outcome::of(world);
    world.check_at_rest(true);
    (outcome, record)
}

fn every_plan(name: &str) {
    let workload = workloads::ALL.iter().find(|workload| workload.name == name).expect("it is one of them");
    let (undisturbed, record) = run(&mut world(workload, None, false), workload);
    let chosen = std::env::var("TIDELINE_PLAN").ok();
    let all: Vec<(String, Disturbance)> = disturbances(&record)
        .into_iter()
        .filter(|disturbance| match disturbance {
            Disturbance::Hub { absence: Absence::Long, .. } => workload.hub_misses,
            Disturbance::Emptied { .. } => workload.agent_is_emptied,
            _ => true,
        })
        .map(|disturbance| (format!("{name}/{disturbance}"), disturbance))
        .filter(|(name, _)| chosen.as_ref().is_none_or(|chosen| name.starts_with(chosen)))
        .collect();
    assert!(!record.agent.is_empty() && !record.hub.is_empty(), "nothing can be disturbed in {name}");
    let (total, usually) = (all.len(), if chosen.is_some() { usize::MAX } else { PLANS_USUALLY });
    let all: Vec<_> = all.into_iter().step_by(total.div_ceil(usually).max(1)).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut failed = Vec::new();
    for (name, disturbance) in &all {
        *counts.entry(disturbance.kind()).or_default() += 1;
        if let Err(text) = carry_out(&mut world(workload, Some(*disturbance), false), workload, &undisturbed) {
            failed.push((name, *disturbance, text));
        }
    }
    let counts: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    println!("{name}: {} of {total} plans: {}", all.len(), counts.join(", "));
    let Some((first, disturbance, _)) = failed.first() else { return };
    let mut again = world(workload, Some(*disturbance), true);
    let _same = carry_out(&mut again, workload, &undisturbed);
    for line in again.trace.iter().flatten() {
        eprintln!("{line}");
    }
    eprintln!("this was TIDELINE_PLAN={first}");
    let list: Vec<_> = failed.iter().map(|(name, _, text)| format!("{name}: {text}")).collect();
    panic!("{} of {} plans failed:\n  {}", failed.len(), all.len(), list.join("\n  "));
}

/// Runs a workload disturbed. Returns what is wrong with the outcome.
fn carry_out(world: &mut World, workload: &Workload, undisturbed: &Outcome) -> Result<(), String> {
    let attempt = catch_unwind(AssertUnwindSafe(|| run(world, workload)));
    let (outcome, _) = attempt.map_err(|panic| panic_text(&*panic))?;
    let struck = world.hub.probe.as_ref().is_some_and(|probe| probe.struck)
        || world.probe.as_ref().is_some_and(|probe| probe.struck);
    if !struck {
        return Err("nothing was disturbed".to_owned());
    }
    let mut unacknowledged = world.probe.as_ref().map(|probe| probe.unacknowledged.clone()).unwrap_or_default();
    if world.lost_journal {
        // The agent has forgotten what it applied: each object is applied once more, and what exists stays.
        world.cluster.objects.keys().for_each(|key| *unacknowledged.entry(key.clone()).or_default() += 1);
    }
    match outcome.surplus(undisturbed, &unacknowledged) {
        surplus if surplus.is_empty() => Ok(()),
        surplus => Err(surplus),
    }
}
