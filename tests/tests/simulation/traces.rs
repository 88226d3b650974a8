//! The shortest ways in which a hub that was set back does harm if one of the rules about histories is taken away, one for
//! each rule. Each runs with an agent that carries out its orders at once, and with one whose API server refuses until the
//! end, so that its orders are in flight when the hub is set back.
//!
//! The agent is connected only when a step says so; at the end it is, then a person accepts, and everything is as it should
//! be.

use std::collections::BTreeMap;

use tideline_common::wire::v1::Continuity;
use tideline_common::{ApplyPolicy, ObjectKey, Origin, Prune, Reason, SpaceName, Uid};

use crate::ids::key;
use crate::workload::Targets;
use crate::world::{Scenario, World};
use crate::{PLAIN, SETTLING, SHUT, each_seed};

/// Until a change has had all its effects and is reported.
const DONE: u64 = 60_000;

/// What somebody does to one object and one Job at two targets, of which the first has an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The object gets other content.
    Body,
    /// It is due for orphaning, or for deletion, in turn.
    Policy,
    /// It is unassigned from the first target, or assigned again.
    Unassign,
    Assign,
    /// It is deleted, and created again.
    Recreate,
    /// It is created as another object where its space was lost.
    Create,
    /// The agent is connected for a while.
    Contact,
    /// So is that of the second target.
    ContactThere,
    /// The hub's directory is copied.
    Save,
    /// The hub is started on the copy, and its own directory is the copy from then on.
    StartCopy,
    /// The hub's machine is set back while it runs.
    RollBack,
    Restart,
    /// Its directory is lost, with the content of its spaces.
    LoseStore,
    /// The agent is given a token, with which it becomes another SyncTarget.
    Enrol,
    LoseJournal,
    /// A person approves everything that waits.
    Approve,
    Accept,
    JobEnds,
    UnassignJob,
    AssignJob,
    /// The first target's SyncTarget is deleted and created again, and adopts the agent.
    RecreateTarget,
    /// The same, with something in between. What is in no set of the new one stays.
    DeleteTarget,
    Adopt,
    /// The first target's cluster goes out of service.
    Decommission,
}

use Step::{
    Accept, Adopt, Approve, Assign, AssignJob, Body, Contact, ContactThere, Create, Decommission, DeleteTarget, Enrol,
    JobEnds, LoseJournal, LoseStore, Policy, Recreate, RecreateTarget, Restart, RollBack, Save, StartCopy, Unassign,
    UnassignJob,
};

/// Rules whose traces leave a person nothing to accept.
const NOTHING_LOST: &str = "nothing was lost";

/// After it, at rest, only the mark shows that the rule was kept.
const LET_GO_OF: &str = "let go of, and assigned again";

/// Named for what would be missing.
const TRACES: &[(&str, &[Step])] = &[
    (
        "segments: a copy is started for a while, then the right one",
        &[Save, Body, Body, StartCopy, Body, Contact, StartCopy],
    ),
    ("segments: what a Job did is told to a copy", &[JobEnds, Save, Contact, LoseJournal, StartCopy, Policy, Policy]),
    ("names of when it was made: nothing was lost", &[Body, Save, StartCopy, Contact, StartCopy]),
    ("a segment before its first commit: nothing was lost", &[Body, Restart, Contact, Restart]),
    ("ids of revisions: set back by one", &[Save, Body, Contact, StartCopy]),
    (
        "the floor's segment, with the journal lost",
        &[Save, Body, Unassign, StartCopy, Policy, Contact, StartCopy, LoseJournal],
    ),
    (
        "the floor's segment, and assigned again",
        &[Save, Unassign, Assign, StartCopy, Policy, Contact, LoseJournal, StartCopy],
    ),
    ("the floor's segment, and an accept ends it", &[Save, Recreate, Contact, StartCopy, LoseJournal]),
    (
        "an accept covers what was shown, and no more, of a machine that is set back twice",
        &[Unassign, Save, Assign, Contact, RollBack, Contact, Accept, Assign, Save, Recreate, Contact, RollBack],
    ),
    (
        "an accept covers a lower epoch alone",
        &[Save, Policy, Contact, Unassign, StartCopy, Contact, Accept, StartCopy, Contact, StartCopy],
    ),
    (
        "an accept is of all that was made before it",
        &[Unassign, Contact, Save, Assign, ContactThere, StartCopy, ContactThere],
    ),
    ("the branch of the break does not count", &[Save, StartCopy, Unassign, StartCopy, Policy, Contact, StartCopy]),
    ("the number of the break does not count", &[Save, Body, Unassign, StartCopy, Body, Contact, StartCopy]),
    (
        "what is unexplained stays so",
        &[Unassign, Save, Assign, Contact, StartCopy, Contact, Accept, Contact, LoseJournal],
    ),
    ("ids of revisions: back, and then ahead, without a start", &[Body, Save, Body, Contact, RollBack, Policy, Policy]),
    (
        "who knows more concerns all, and the other tells it",
        &[Unassign, Save, Assign, ContactThere, StartCopy, ContactThere],
    ),
    ("no removal begins while history is broken", &[Save, Unassign, Contact, StartCopy, Body]),
    ("what was asked for before does not go on", &[Save, Unassign, Contact, StartCopy, Policy, Unassign]),
    ("what was approved before is void", &[Unassign, Contact, Approve, Save, Assign, Contact, StartCopy]),
    ("an approval is of a place", &[LoseStore, Enrol, Contact, Accept, Contact, Create, Policy, Approve, Unassign]),
    ("a tombstone speaks for its place", &[Recreate, Policy, Unassign]),
    ("the latest tombstone counts", &[Policy, Recreate, Contact, Unassign]),
    (LET_GO_OF, &[Policy, Unassign, Assign]),
    ("a Job that neither knows of waits", &[JobEnds, Save, Contact, LoseJournal, StartCopy]),
    ("that a Job ran outlives its assignment", &[JobEnds, Contact, UnassignJob, Contact, AssignJob, LoseJournal]),
    ("so does what it did when the hub did not hear it", &[JobEnds, UnassignJob, Contact, AssignJob, LoseJournal]),
    ("what a Job did is a revision", &[Save, JobEnds, Contact, StartCopy, LoseJournal]),
    ("a decommission from before the accept waits", &[Policy, Save, Policy, Contact, StartCopy, Decommission]),
    ("an epoch is of one target", &[RecreateTarget]),
    ("what left while nobody was the target is in no set of another", &[DeleteTarget, Unassign, Adopt]),
    ("what was let go of, at a target that is made again", &[Policy, Unassign, RecreateTarget]),
    (
        "a Job that ran has run at a target that is made again",
        &[JobEnds, Contact, RecreateTarget, AssignJob, LoseJournal],
    ),
];

/// Whether the agent's API server does what it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Works {
    AtOnce,
    AtTheEnd,
}

#[test]
fn no_trace_ends_in_what_a_rule_prevents() {
    let mut failed = BTreeMap::new();
    for (name, steps) in TRACES {
        // Where somebody approves, nothing is deleted without approval.
        let scenario = if steps.contains(&Approve) { Scenario { fuse: SHUT, ..PLAIN } } else { PLAIN };
        for works in [Works::AtOnce, Works::AtTheEnd] {
            let gone = std::panic::catch_unwind(|| each_seed(4, |_| scenario, |world| go(world, name, steps, works)));
            if let Err(panic) = gone {
                failed.insert((name, format!("{works:?}")), crate::panic_text(&*panic));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

fn go(world: &mut World, name: &str, steps: &[Step], works: Works) {
    let (object, job) = (key("", "ConfigMap", "shop", "a"), key("batch", "Job", "shop", "j"));
    world.act(|spaces| {
        // The third has the agent list its kind, whatever it remembers.
        for key in [&object, &job, &key("", "ConfigMap", "shop", "b")] {
            spaces.create(&SpaceName::root(), key, ApplyPolicy::default());
            spaces.move_to(|known| known == key, Targets::Both);
        }
    });
    world.pass(DONE);
    world.hear_the_other();
    world.pass(DONE);
    world.set_link(false);
    let mut going = Going { object, job, lets_go: false, stays: None };
    if works == Works::AtTheEnd {
        world.set_outage(Some(Reason::Unavailable));
    }
    for step in steps {
        world.note(|| format!("{step:?}"));
        going.step(world, *step);
        world.pass(1_000);
    }
    world.set_outage(None);
    world.set_link(true);
    world.sleep(SETTLING);
    assert!(!(name.contains(NOTHING_LOST) && world.hub.is_broken()), "there is something to accept");
    world.accept_history();
    if steps.contains(&Approve) {
        world.sleep(SETTLING);
        world.approve_held();
        world.sleep(SETTLING);
    }
    world.check_converged();
    let uid = world.cluster.objects.get(&going.object).map(|local| local.uid.clone());
    assert!(going.stays.is_none() || going.stays == uid, "it is deleted, or made again");
    if name == LET_GO_OF {
        let mark = world.cluster.objects[&going.object].mark.as_ref().map(|mark| mark.origin);
        assert_eq!(mark, Some(Origin::Adopted), "what was to be let go of counts as created");
    }
    world.let_run();
    world.sleep(SETTLING);
    world.check_converged();
    world.check_at_rest(true);
}

struct Going {
    object: ObjectKey,
    job: ObjectKey,
    lets_go: bool,
    stays: Option<Uid>,
}

impl Going {
    fn step(&mut self, world: &mut World, step: Step) {
        let (object, job) = (self.object.clone(), self.job.clone());
        match step {
            Body => world.act(|spaces| spaces.update(|key| *key == object)),
            Policy => {
                self.lets_go = !self.lets_go;
                let prune = if self.lets_go { Prune::Orphan } else { Prune::Delete };
                let policy = ApplyPolicy { prune, ..ApplyPolicy::default() };
                world.act(|spaces| spaces.set_policy(|key| *key == object, policy));
            }
            Unassign => self.move_to(world, Targets::There),
            Assign => self.move_to(world, Targets::Both),
            Recreate => world.act(|spaces| spaces.renew(|key| *key == object)),
            Create => world.act(|spaces| {
                spaces.create(&SpaceName::root(), &object, ApplyPolicy::default());
                spaces.move_to(|key| *key == object, Targets::Both);
            }),
            Contact => {
                world.set_link(true);
                world.pass(DONE);
                world.set_link(false);
            }
            ContactThere => {
                world.hear_the_other();
                world.pass(1_000);
                world.hear_the_other();
            }
            Save => world.back_up(),
            StartCopy => drop(world.restore(true)),
            RollBack => drop(world.roll_back()),
            Restart => world.restart_hub(),
            LoseStore => world.lose_store(),
            Enrol => world.enrol_anew(),
            LoseJournal => world.lose_data(),
            Approve => assert!(world.approve_held(), "nothing waits for an approval"),
            Accept => world.accept_once(),
            JobEnds => world.touch(|cluster| {
                cluster.finish(&job);
                cluster.collect(&job);
            }),
            UnassignJob => world.act(|spaces| spaces.move_to(|key| *key == job, Targets::There)),
            AssignJob => world.act(|spaces| spaces.move_to(|key| *key == job, Targets::Both)),
            Decommission => drop(world.decommission()),
            RecreateTarget => {
                world.delete_target();
                world.adopt();
            }
            DeleteTarget => world.delete_target(),
            Adopt => {
                world.adopt();
                self.stays = world.cluster.objects.get(&object).map(|local| local.uid.clone());
            }
        }
    }

    fn move_to(&self, world: &mut World, targets: Targets) {
        let object = self.object.clone();
        world.act(|spaces| spaces.move_to(|key| *key == object, targets));
    }
}

/// The agent was told of a removal, and the API server refuses it until after the agent was told that the hub lost history.
#[test]
fn a_removal_that_is_due_while_history_is_broken_waits() {
    each_seed(
        10,
        |_| PLAIN,
        |world| {
            let object = key("", "ConfigMap", "shop", "a");
            world.act(|spaces| spaces.create(&SpaceName::root(), &object, ApplyPolicy::default()));
            world.pass(DONE);
            world.back_up();
            world.set_outage(Some(Reason::Unavailable));
            world.act(|spaces| spaces.move_to(|key| *key == object, Targets::There));
            world.pass(DONE);
            world.restore(false);
            world.pass(5 * DONE);
            assert_eq!(world.journal().history, Continuity::Broken);
            world.set_outage(None);
            world.sleep(SETTLING);
            world.restart_agent();
            world.sleep(SETTLING);
            assert_eq!(world.journal().history, Continuity::Broken);
            assert!(world.cluster.objects.contains_key(&object), "it is removed");
            world.accept_history();
            world.check_converged();
            world.check_at_rest(true);
        },
    );
}
