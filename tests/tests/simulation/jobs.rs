//! Jobs run once, whatever is lost: at the agent its journal, at the hub what it was told since a backup.

use tideline_agent::simulated_cluster::Stripped;
use tideline_common::wire::v1::Terminal;
use tideline_common::{ApplyMode, ApplyPolicy, ObjectKey, Reason, Recreate, SpaceName};
use tideline_hub::summary::TargetReports;

use crate::ids::key;
use crate::random::Random;
use crate::workload::Targets;
use crate::world::World;
use crate::{PLAIN, SEEDS, SETTLING, each_seed};

/// Until a change has had all its effects and is reported.
const DONE: u64 = 60_000;
const STEPS: u64 = 12;

#[test]
fn no_job_runs_twice_and_what_is_released_runs_once() {
    each_seed(SEEDS, |_| PLAIN, jobs);
}

/// The shortest case: reported, set back, and the journal lost.
#[test]
fn a_job_that_neither_hub_nor_agent_remembers_waits_for_its_release() {
    each_seed(
        10,
        |_| PLAIN,
        |world| {
            let job = place("migrate");
            world.act(|spaces| spaces.create(&SpaceName::root(), &job, ApplyPolicy::default()));
            world.pass(DONE);
            world.back_up();
            run(world, &job);
            // Something that the backup does not know, so that the agent's floor is not of its history.
            world.act(|spaces| spaces.create(&SpaceName::root(), &place("other"), ApplyPolicy::default()));
            world.pass(DONE);
            world.restore(false);
            world.lose_data();
            world.sleep(SETTLING);
            world.accept_history();
            assert_eq!(withheld(world), std::slice::from_ref(&job));
            world.restart_hub();
            world.restart_agent();
            world.sleep(SETTLING);
            assert_eq!(withheld(world).len(), 1, "a restart releases nothing");
            world.let_run();
            world.pass(3 * DONE);
            assert_eq!(withheld(world), Vec::new());
            assert!(world.cluster.objects.contains_key(&job), "it was released, and does not run");
            run(world, &job);
            world.restart_hub();
            world.lose_data();
            world.sleep(SETTLING);
            world.check_converged();
            world.check_at_rest(true);
        },
    );
}

/// It ends, and is removed, while the agent is cut off from the hub, which had unassigned it before.
#[test]
fn a_terminal_fact_reported_with_a_removal_outlives_the_journal() {
    each_seed(
        10,
        |_| PLAIN,
        |world| {
            let job = place("migrate");
            for key in [&job, &place("other")] {
                world.act(|spaces| spaces.create(&SpaceName::root(), key, ApplyPolicy::default()));
            }
            world.pass(DONE);
            world.set_outage(Some(Reason::Unavailable));
            world.act(|spaces| spaces.move_to(|key| *key == job, Targets::There));
            world.pass(DONE);
            world.set_link(false);
            world.touch(|cluster| cluster.finish(&job));
            world.set_outage(None);
            world.pass(3 * DONE);
            assert!(!world.cluster.objects.contains_key(&job), "it is removed without the hub");
            world.set_link(true);
            world.pass(3 * DONE);
            world.act(|spaces| spaces.move_to(|key| *key == job, Targets::Here));
            world.lose_data();
            world.sleep(SETTLING);
            world.check_converged();
            world.check_at_rest(true);
        },
    );
}

/// It has a TTL: once it is gone, nobody knows whether it ended.
#[test]
fn no_job_that_ended_unseen_runs_again_unless_it_is_another() {
    each_seed(SEEDS, |_| PLAIN, unseen);
}

#[test]
fn a_job_that_ended_unseen_runs_again_with_another_pod_template_where_that_is_asked_for() {
    each_seed(
        10,
        |_| PLAIN,
        |world| {
            let job = place("ttl");
            let policy = ApplyPolicy { recreate: Recreate::OnImmutable, ..ApplyPolicy::default() };
            world.act(|spaces| spaces.create(&SpaceName::root(), &job, policy));
            world.pass(DONE);
            let (mut ran, mut stayed) = (0, 0);
            while ran < 2 || stayed < 2 {
                assert!(ran + stayed < 60, "it ran {ran} times, and stayed as it was {stayed} times");
                world.touch(|cluster| cluster.end_unseen(&job));
                world.pass(DONE);
                assert!(!world.cluster.objects.contains_key(&job), "it runs again as it was");
                assert_eq!(reasons(world, Reason::Vanished), std::slice::from_ref(&job));
                loop {
                    world.act(|spaces| spaces.update(|key| *key == job));
                    world.pass(DONE);
                    if world.cluster.objects.contains_key(&job) {
                        break ran += 1;
                    }
                    assert_eq!(reasons(world, Reason::Vanished), std::slice::from_ref(&job));
                    stayed += 1;
                }
            }
            world.check_converged();
            world.check_at_rest(true);
        },
    );
}

/// The API server makes it, and nobody hears of that. It runs, ends and is collected before the API server is there again.
#[test]
fn a_job_whose_creation_had_no_answer_does_not_run_twice() {
    each_seed(
        SEEDS,
        |_| PLAIN,
        |world| {
            let (job, other) = (place("ttl"), place("other"));
            let (crashes, ends) = (world.draw().is_multiple_of(2), !world.draw().is_multiple_of(4));
            world.act(|spaces| spaces.create(&SpaceName::root(), &other, ApplyPolicy::default()));
            world.pass(DONE);
            world.touch(|cluster| cluster.faults.unanswered.extend([job.clone()]));
            world.act(|spaces| spaces.create(&SpaceName::root(), &job, ApplyPolicy::default()));
            for _ in 0..DONE {
                if world.cluster.objects.contains_key(&job) {
                    break;
                }
                world.pass(1);
            }
            assert!(world.cluster.objects.contains_key(&job), "it is created");
            world.set_outage(Some(Reason::Unavailable));
            if ends {
                world.touch(|cluster| cluster.end_unseen(&job));
            }
            if crashes {
                world.restart_agent();
            }
            world.pass(DONE);
            world.set_outage(None);
            world.sleep(SETTLING);
            assert_eq!(world.cluster.objects.contains_key(&job), !ends);
            assert_eq!(reasons(world, Reason::Vanished), if ends { vec![job.clone()] } else { Vec::new() });
            world.check_converged();
            // Another source is another Job.
            world.act(|spaces| spaces.renew(|key| *key == job));
            world.sleep(SETTLING);
            assert!(world.cluster.objects.contains_key(&job));
            world.check_converged();
            world.check_at_rest(true);
        },
    );
}

/// While the API server cannot be reached, or refuses, nothing is sent of which the end would not be known.
#[test]
fn an_outage_keeps_no_job_from_running_that_was_not_created() {
    each_seed(
        10,
        |_| PLAIN,
        |world| {
            let jobs = [place("ttl-a"), place("ttl-b")];
            world.act(|spaces| spaces.create(&SpaceName::root(), &place("other"), ApplyPolicy::default()));
            world.pass(DONE);
            world.set_outage(Some(Reason::Unavailable));
            for job in &jobs {
                world.act(|spaces| spaces.create(&SpaceName::root(), job, ApplyPolicy::default()));
            }
            world.pass(DONE);
            if world.draw().is_multiple_of(2) {
                world.restart_agent();
            }
            world.pass(DONE);
            world.set_outage(None);
            world.sleep(SETTLING);
            assert!(jobs.iter().all(|job| world.cluster.objects.contains_key(job)), "they run");
            world.check_converged();
            world.check_at_rest(true);
        },
    );
}

/// A label was wrong for a while: a Job that was deleted for that, and had not ended, runs when it is assigned again.
#[test]
fn a_job_that_its_agent_deleted_runs_when_it_is_assigned_again() {
    each_seed(
        10,
        |_| PLAIN,
        |world| {
            let job = place("ttl");
            for key in [&job, &place("other")] {
                world.act(|spaces| spaces.create(&SpaceName::root(), key, ApplyPolicy::default()));
            }
            world.pass(DONE);
            world.act(|spaces| spaces.move_to(|key| *key == job, Targets::There));
            world.pass(DONE);
            assert!(!world.cluster.objects.contains_key(&job));
            if world.draw().is_multiple_of(2) {
                world.restart_agent();
                world.restart_hub();
                world.pass(DONE);
            }
            world.act(|spaces| spaces.move_to(|key| *key == job, Targets::Here));
            world.pass(2 * DONE);
            assert!(world.cluster.objects.contains_key(&job), "it did not run, and does not");
            world.check_converged();
            world.check_at_rest(true);
        },
    );
}

/// Somebody has removed its label: it runs.
#[test]
fn a_job_that_no_list_shows_is_not_taken_for_gone() {
    each_seed(
        10,
        |_| PLAIN,
        |world| {
            let job = place("ttl");
            world.act(|spaces| spaces.create(&SpaceName::root(), &job, ApplyPolicy::default()));
            world.pass(DONE);
            let before = world.uids();
            if world.draw().is_multiple_of(2) {
                world.restart_agent();
            }
            world.touch(|cluster| cluster.strip(&job, Stripped::Label));
            world.pass(2 * DONE);
            assert_eq!(world.uids(), before, "it lost its label, and was not given it again");
            world.check_converged();
            world.check_at_rest(true);
        },
    );
}

fn unseen(world: &mut World) {
    let mut random = Random::new(world.draw());
    let names = placed(world, ["ttl-a", "ttl-b"]);
    for _ in 0..STEPS {
        let job = random.pick(&names).clone();
        let here = |key: &ObjectKey| *key == job;
        match random.below(12) {
            0..=2 => world.touch(|cluster| cluster.end_unseen(&job)),
            3 => world.touch(|cluster| {
                cluster.finish(&job);
                cluster.collect(&job);
            }),
            4 => {
                world.restart_agent();
                world.touch(|cluster| cluster.end_unseen(&job));
            }
            5 => world.lose_data(),
            6 => world.restart_hub(),
            intent @ 7..=9 => changes(world, &job, intent - 7),
            10 => world.act(|spaces| spaces.update(here)),
            _ => {
                let (mode, recreate) = *random.pick(&[
                    (ApplyMode::Continuous, Recreate::Never),
                    (ApplyMode::Continuous, Recreate::OnImmutable),
                    (ApplyMode::CreateOnly, Recreate::Never),
                ]);
                world.act(|spaces| spaces.set_policy(here, ApplyPolicy { mode, recreate, ..ApplyPolicy::default() }));
            }
        }
        world.pass(DONE);
    }
    world.sleep(SETTLING);
    world.check_converged();
    world.act(|spaces| {
        spaces.move_to(|_| true, Targets::Here);
        spaces.renew(|_| true);
    });
    world.sleep(SETTLING);
    assert_eq!(
        world.uids().keys().filter(|key| names.contains(key)).count(),
        names.len(),
        "other sources are other Jobs"
    );
    world.check_converged();
    world.check_at_rest(true);
}

/// They run.
fn placed(world: &mut World, names: [&str; 2]) -> [ObjectKey; 2] {
    let jobs = names.map(place);
    for job in &jobs {
        world.act(|spaces| spaces.create(&SpaceName::root(), job, ApplyPolicy::default()));
    }
    world.pass(DONE);
    jobs
}

/// A person unassigns it from the target, assigns it again, or deletes and creates it.
fn changes(world: &mut World, job: &ObjectKey, how: u64) {
    let here = |key: &ObjectKey| key == job;
    world.act(|spaces| match how {
        0 => spaces.move_to(here, Targets::There),
        1 => spaces.move_to(here, Targets::Here),
        _ => spaces.renew(here),
    });
}

fn place(name: &str) -> ObjectKey {
    key("batch", "Job", "shop", name)
}

/// It ends, the hub hears of it, and only then it is collected: nobody knows of a Job that was gone before anybody saw it end.
fn run(world: &mut World, job: &ObjectKey) {
    world.touch(|cluster| cluster.finish(job));
    world.pass(DONE);
    let mut reports = world.hub.summary.target(world.hub.target()).into_iter().flat_map(TargetReports::objects);
    let told = reports.any(|report| report.key == *job && report.terminal == Some(Terminal::Finished));
    drop(reports);
    if told {
        world.touch(|cluster| cluster.collect(job));
        world.pass(DONE);
    }
}

fn withheld(world: &World) -> Vec<ObjectKey> {
    reasons(world, Reason::MayHaveRun)
}

/// What is reported for this reason.
fn reasons(world: &World, reason: Reason) -> Vec<ObjectKey> {
    let reports = world.hub.summary.target(world.hub.target()).into_iter().flat_map(TargetReports::objects);
    reports.filter(|report| report.reason == Some(reason)).map(|report| report.key.clone()).collect()
}

fn jobs(world: &mut World) {
    let mut random = Random::new(world.draw());
    let names = placed(world, ["a", "b"]);
    for _ in 0..STEPS {
        let job = random.pick(&names).clone();
        match random.below(12) {
            0..=2 => run(world, &job),
            3 => world.back_up(),
            4 => drop(world.restore(random.below(2) == 0)),
            5 => world.lose_data(),
            6 => world.restart_agent(),
            7 => world.restart_hub(),
            intent @ 8..=10 => changes(world, &job, intent - 8),
            _ => world.accept_history(),
        }
        world.pass(DONE);
    }
    // The most recent loss is shown first.
    world.sleep(SETTLING);
    world.accept_history();
    world.sleep(SETTLING);
    world.check_converged();
    let waiting = withheld(world);
    world.let_run();
    world.sleep(SETTLING);
    for job in &waiting {
        assert!(world.cluster.objects.contains_key(job), "{job} was released, and does not run");
    }
    assert_eq!(withheld(world), Vec::new());
    for job in &names {
        run(world, job);
    }
    world.lose_data();
    world.sleep(SETTLING);
    world.check_converged();
    world.check_at_rest(true);
}
