use super::*;
use crate::core::tests::world::World;
use crate::core::tests::{key, uid};

fn ran(n: usize) -> Tombstone {
    Tombstone { key: key("batch", "Job", &format!("j{n}")), source: uid("s1") }
}

#[test]
fn the_oldest_terminal_facts_are_forgotten_first() {
    let mut all = Ran::default();
    for n in 0..RAN_MAX {
        assert!(all.put(&ran(n)).is_some());
        assert_eq!(all.take_first(), None);
    }
    assert_eq!(all.put(&ran(0)), None, "it is remembered");
    // It was assigned again, ran, and left again: it is the last by now.
    let number = all.take(&ran(0)).unwrap();
    assert!(all.put(&ran(0)).unwrap() > number);
    all.put(&ran(RAN_MAX));
    assert_eq!(all.take_first(), Some(1));
    assert_eq!(all.take_first(), None);
    let loaded = Ran::new(all.by_number.clone().into_iter().collect());
    assert_eq!((loaded.numbers, loaded.by_number), (all.numbers, all.by_number));
}

/// A fact about a Job comes with the set that assigns it, which is not on disk at once.
#[test]
fn a_job_that_may_have_run_waits_though_it_is_missing_from_a_list_before_its_set_is_on_disk() {
    let (other, job) = (key("batch", "Job", "other"), key("batch", "Job", "j"));
    for seed in 0..60 {
        let mut world = World::new(seed);
        world.hub.put(&other, 1, 1);
        world.heal();
        world.quiesce();
        world.hub.put(&job, 2, 1);
        let source_uid = world.hub.desired.get(&job).unwrap().source.uid.clone();
        world.hub.terminal = vec![TerminalFact { key: job.clone(), source_uid, fact: Terminal::MayHaveRun }];
        for _ in 0..60 {
            world.list(&job.kind);
            world.advance();
        }
        world.quiesce();
        assert!(!world.cluster.objects.contains_key(&job), "seed {seed}: it runs");
        world.crash();
        world.quiesce();
        assert!(!world.cluster.objects.contains_key(&job), "seed {seed}: it runs after a restart");
    }
}

/// Two sources take turns at one key. The Job of the one that left ends, and is collected, before the one that came back has
/// its place.
#[test]
fn a_job_that_ran_does_not_run_again_because_another_source_s_job_ends_in_its_place() {
    for restart in [false, true] {
        let (mut world, job) = (World::new(3), key("batch", "Job", "j"));
        world.hub.put(&job, 1, 1);
        world.heal();
        world.quiesce();
        world.cluster.finish(&job);
        world.quiesce();
        world.cluster.collect(&job);
        world.quiesce();
        world.hub.put(&job, 2, 2);
        world.quiesce();
        assert_eq!(world.cluster.objects[&job].owner, Some(uid("s2")));
        world.cluster.faults.outage = Some(Reason::Unavailable);
        world.hub.put(&job, 1, 3);
        world.quiesce();
        world.cluster.finish(&job);
        world.quiesce();
        world.cluster.collect(&job);
        world.quiesce();
        if restart {
            world.crash();
        }
        world.cluster.faults.outage = None;
        world.quiesce();
        assert!(!world.cluster.objects.contains_key(&job), "restart: {restart}");
    }
}
