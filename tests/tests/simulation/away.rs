//! An agent that was offline ends in the state of one that saw every step. Two worlds have the same people at their hubs: in
//! one the agent hears of each change and carries it out, in the other its link is cut, or its API server refuses, now and
//! then.

use std::collections::{BTreeMap, BTreeSet};

use tideline_common::{ApplyMode, ApplyPolicy, Digest, ObjectKey, Origin, Prune, Reason, SpaceName, Takeover, Uid};

use crate::hub::in_advance;
use crate::ids::{key, parse};
use crate::random::Random;
use crate::workload::{Targets, Workload};
use crate::world::World;
use crate::{PLAIN, SEEDS, SETTLING, each_seed};

/// Until a change has had all its effects, if nobody is offline.
const DONE: u64 = 40_000;
const STEPS: u64 = 14;
const NAMES: [&str; 3] = ["a", "b", "c"];

#[test]
fn an_agent_that_was_away_ends_where_one_that_saw_every_step_ends() {
    each_seed(SEEDS, |_| PLAIN, both);
}

fn both(away: &mut World) {
    let (mut random, mut seeing) = begin(away, &plain());
    let mut seen = Seen::default();
    for _ in 0..STEPS {
        match random.below(10) {
            0..=3 => away.set_link(false),
            4..=5 => away.set_link(true),
            6 => away.set_outage(Some(Reason::Unavailable)),
            7 => away.set_outage(None),
            8 => away.restart_agent(),
            _ => away.restart_hub(),
        }
        away.pass(DONE);
        Change::any(&mut random).make_in(away, &mut seeing);
        seen.follow(&seeing, away);
    }
    end(away, &mut seeing);
    for name in NAMES {
        seen.compare(&place(name), &seeing, away);
    }
}

/// The world beside this one, and what people do in both.
fn begin(away: &mut World, policy: &ApplyPolicy) -> (Random, World) {
    let random = Random::new(away.draw());
    let mut seeing = World::new(away.draw(), away.scenario, false);
    for world in [away, &mut seeing] {
        world.act(|spaces| {
            for name in NAMES {
                spaces.create(&SpaceName::root(), &place(name), policy.clone());
            }
        });
        world.pass(3 * DONE);
    }
    (random, seeing)
}

fn end(away: &mut World, seeing: &mut World) {
    away.set_link(true);
    away.set_outage(None);
    for world in [away, seeing] {
        world.sleep(SETTLING);
        world.check_converged();
    }
}

/// What is gone stays gone, for people may have wanted that; but a create-only object that was unassigned and assigned again
/// is created anew.
#[test]
fn a_create_only_object_ends_as_at_an_agent_that_saw_every_step() {
    each_seed(SEEDS, |_| PLAIN, both_once);
}

fn both_once(away: &mut World) {
    let (mut random, mut seeing) = begin(away, &ApplyPolicy { mode: ApplyMode::CreateOnly, ..plain() });
    for _ in 0..STEPS {
        match random.below(10) {
            0..=2 => away.set_link(false),
            3..=5 => away.set_link(true),
            6 => away.restart_agent(),
            7 => away.restart_hub(),
            _ => {}
        }
        away.pass(DONE);
        let key = place(random.pick::<&str>(&NAMES));
        let what = match random.below(8) {
            0..=2 => What::MoveTo(Targets::There),
            3..=5 => What::MoveTo(Targets::Here),
            6 => What::Renew,
            _ => What::Update,
        };
        // Somebody deletes the copy, and both agents know.
        if random.below(2) == 0 && is_in_step(away) && at_place(away, &key) == at_place(&seeing, &key) {
            away.note(|| format!("{key} is deleted at its cluster"));
            for world in [&mut *away, &mut seeing] {
                world.touch(|cluster| {
                    cluster.delete(&key);
                });
                world.pass(DONE);
            }
        }
        Change { key, what }.make_in(away, &mut seeing);
    }
    end(away, &mut seeing);
    for key in NAMES.map(place) {
        let there = |world: &World| match at_place(world, &key) {
            AtPlace::Ours { source, .. } => Some(source),
            AtPlace::Nothing | AtPlace::Orphaned => None,
        };
        assert_eq!(there(&*away), there(&seeing), "{key}, at one that was away and at one that saw every step");
    }
}

fn is_in_step(world: &World) -> bool {
    let set = world.hub.ledger.target(world.hub.target()).map(|view| view.version());
    world.is_active() && world.journal().accepted.map(|accepted| accepted.set.version) == set
}

fn place(name: &str) -> ObjectKey {
    key("", "ConfigMap", "shop", name)
}

fn plain() -> ApplyPolicy {
    ApplyPolicy::default()
}

/// What people do about one key.
#[derive(Clone, Debug)]
struct Change {
    key: ObjectKey,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Create(SpaceName, ApplyPolicy),
    Update,
    Policy(ApplyPolicy),
    /// Deleted, and created again at once.
    Renew,
    MoveTo(Targets),
    Delete,
}

impl Change {
    fn any(random: &mut Random) -> Self {
        let policies = [
            plain(),
            plain(),
            ApplyPolicy { prune: Prune::Orphan, ..plain() },
            ApplyPolicy { prune: Prune::Orphan, ..plain() },
            ApplyPolicy { prune: Prune::Orphan, takeover: Takeover::Never, ..plain() },
            in_advance(),
        ];
        let policy = random.pick(&policies).clone();
        // A policy that may no longer adopt leaves an object that it never adopted, though it might have before.
        let changed = ApplyPolicy { takeover: Takeover::IfUnmanaged, ..policy.clone() };
        let what = match random.below(11) {
            0..=1 => What::Create(SpaceName::root(), policy),
            2 => What::Create(parse("retail"), policy),
            3 => What::Update,
            4..=5 => What::Policy(changed),
            6 => What::Renew,
            7 => What::MoveTo(Targets::There),
            8 => What::MoveTo(Targets::Here),
            _ => What::Delete,
        };
        Self { key: place(random.pick::<&str>(&NAMES)), what }
    }

    fn make_in(&self, away: &mut World, seeing: &mut World) {
        away.note(|| format!("{self:?}"));
        for world in [away, seeing] {
            world.act(|spaces| self.make(spaces));
            world.pass(DONE);
        }
    }

    fn make(&self, spaces: &mut Workload) {
        let here = |key: &ObjectKey| *key == self.key;
        match self.what.clone() {
            What::Create(space, policy) => spaces.create(&space, &self.key, policy),
            What::Update => spaces.update(here),
            What::Policy(policy) => spaces.set_policy(here, policy),
            What::Renew => spaces.renew(here),
            What::MoveTo(targets) => spaces.move_to(here, targets),
            What::Delete => spaces.delete(here),
        }
    }
}

/// What exists under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AtPlace {
    Nothing,
    /// It was ours once.
    Orphaned,
    Ours {
        source: Uid,
        input: Option<Digest>,
        prune: Prune,
        origin: Origin,
    },
}

fn at_place(world: &World, key: &ObjectKey) -> AtPlace {
    let Some(local) = world.cluster.objects.get(key) else { return AtPlace::Nothing };
    let Some(mark) = &local.mark else { return AtPlace::Orphaned };
    AtPlace::Ours { source: mark.source.uid.clone(), input: local.input, prune: mark.prune, origin: mark.origin }
}

/// What happened to objects in the view of the one agent, and what the other had under their keys by then.
#[derive(Default)]
struct Seen {
    orphaned: BTreeMap<ObjectKey, BTreeSet<Uid>>,
    /// What the other may have been told to delete, and deletes when its API server permits, whatever it has not heard since.
    deleted: BTreeSet<Uid>,
    /// The object under the key was recreated since one was orphaned.
    anew: BTreeSet<ObjectKey>,
    last: BTreeMap<ObjectKey, AtPlace>,
}

impl Seen {
    fn follow(&mut self, seeing: &World, away: &World) {
        for key in NAMES.map(place) {
            let now = at_place(seeing, &key);
            let there = away.cluster.objects.get(&key).map(|local| local.uid.clone());
            let before = self.last.insert(key.clone(), now.clone());
            match now {
                AtPlace::Orphaned if before.is_some_and(|before| before != AtPlace::Orphaned) => {
                    self.orphaned.entry(key).or_default().extend(there);
                }
                AtPlace::Nothing => {
                    self.orphaned.remove(&key);
                    self.deleted.extend(there);
                    self.anew.insert(key);
                }
                AtPlace::Orphaned | AtPlace::Ours { .. } => {}
            }
        }
    }

    fn compare(&self, key: &ObjectKey, seeing: &World, away: &World) {
        let (saw, missed) = (at_place(seeing, key), at_place(away, key));
        let uid = away.cluster.objects.get(key).map(|local| &local.uid);
        let orphaned = self.orphaned.get(key);
        // It had the object that the other orphaned; or it had none by then, and may have created one since.
        let had = uid.is_some_and(|uid| orphaned.is_some_and(|orphaned| orphaned.contains(uid)));
        // It was adopted, and then assigned under a policy that may not adopt. An agent that heard of the latter alone leaves
        // it as it is.
        let may_adopt = assigned(seeing, key).is_none_or(|policy| policy.takeover != Takeover::Never);
        let same = match (&saw, &missed) {
            (AtPlace::Ours { origin: Origin::Adopted, .. }, AtPlace::Orphaned) if !may_adopt => had,
            (AtPlace::Orphaned, AtPlace::Nothing) => orphaned.is_none_or(|orphaned| orphaned.is_subset(&self.deleted)),
            (AtPlace::Orphaned, AtPlace::Ours { .. }) => !had && assigned(seeing, key).is_some(),
            (
                AtPlace::Ours { source, input, prune, origin },
                AtPlace::Ours { source: its_source, input: its_input, prune: its_prune, origin: its_origin },
            ) => {
                let whose = (source, input, prune) == (its_source, its_input, its_prune);
                let adopted = match (origin, its_origin) {
                    (Origin::Adopted, Origin::Created) => !had,
                    (Origin::Created, Origin::Adopted) => self.anew.contains(key),
                    (Origin::Created, Origin::Created) | (Origin::Adopted, Origin::Adopted) => true,
                };
                whose && adopted
            }
            (saw, missed) => saw == missed,
        };
        assert!(
            same,
            "{key} is {missed:?}, and was it seen at each step, {saw:?}; let go of: {orphaned:?}, here: {uid:?}"
        );
    }
}

/// The policy of what is assigned there.
fn assigned(world: &World, key: &ObjectKey) -> Option<ApplyPolicy> {
    let view = world.hub.ledger.target(world.hub.target())?;
    let (_, policy) = view.entries_with_policies().find(|(entry, _)| entry.key == *key)?;
    Some((**policy).clone())
}
