//! What people do while a plan disturbs the rest. Small worlds: one object for each way in which objects differ.

use tideline_agent::simulated_cluster::{Means, Stripped};
use tideline_common::{
    ApplyMode, ApplyPolicy, ApproveDeletions, DriftPolicy, Gate, ObjectKey, Prune, SpaceName, Takeover,
};

use crate::ids::{key, parse};
use crate::workload::Targets;
use crate::world::World;

/// Until a change has had all its effects, if nothing disturbs it.
const DONE: u64 = 40_000;

pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) prepare: fn(&mut World),
    /// What is counted and disturbed.
    pub(crate) act: fn(&mut World),
    /// Whether the fuse holds what is too much.
    pub(crate) fused: bool,
    pub(crate) patrol_minutes: u64,
    /// Whether the hub may be away for so long that it misses an intermediate intent. Its agents cannot know that.
    pub(crate) hub_misses: bool,
    /// Whether the agent's data directory may be lost, except for its identity: an agent that does not know what it wrote
    /// records objects anew, which is another outcome for those due for orphaning and create-only ones.
    pub(crate) agent_is_emptied: bool,
}

const USUAL: Workload = Workload {
    name: "",
    prepare: placed,
    act: |_| (),
    fused: false,
    patrol_minutes: NEVER,
    hub_misses: true,
    agent_is_emptied: false,
};

/// No patrol comes: what only a patrol would repair is a defect.
const NEVER: u64 = 600;

pub(crate) const ALL: [Workload; 9] = [
    Workload { name: "create", prepare: strangers, act: create, ..USUAL },
    Workload { name: "update", act: update, ..USUAL },
    Workload { name: "delete", act: delete, ..USUAL },
    Workload { name: "recreate", act: recreate, ..USUAL },
    Workload { name: "mass-delete", prepare: many, act: mass_delete, fused: true, ..USUAL },
    Workload { name: "move", act: relocate, ..USUAL },
    Workload { name: "intent", prepare: meant, act: intent, hub_misses: false, ..USUAL },
    Workload { name: "adopt", act: adopt, agent_is_emptied: true, ..USUAL },
    Workload { name: "upkeep", act: upkeep, patrol_minutes: 3, ..USUAL },
];

fn config_map(name: &str) -> ObjectKey {
    key("", "ConfigMap", if name.starts_with('y') { "yard" } else { "shop" }, name)
}

fn deployment(name: &str) -> ObjectKey {
    key("apps", "Deployment", "shop", name)
}

fn widget() -> ObjectKey {
    key("example.com", "Widget", "shop", "widget")
}

fn definition() -> ObjectKey {
    key("apiextensions.k8s.io", "CustomResourceDefinition", "", "widgets.example.com")
}

fn gated() -> ApplyPolicy {
    let gate = Gate { placement: "default/shop".to_owned(), deadline_seconds: 60 };
    ApplyPolicy { gates: vec![gate], ..ApplyPolicy::default() }
}

fn once() -> ApplyPolicy {
    ApplyPolicy { mode: ApplyMode::CreateOnly, ..ApplyPolicy::default() }
}

/// One of each.
fn cast() -> Vec<(ObjectKey, ApplyPolicy)> {
    let plain = ApplyPolicy::default;
    vec![
        (definition(), plain()),
        (config_map("plain"), plain()),
        (config_map("y-implies"), plain()),
        (config_map("orphan"), ApplyPolicy { prune: Prune::Orphan, ..plain() }),
        (config_map("once"), once()),
        (config_map("watched"), ApplyPolicy { drift: DriftPolicy::Report, ..plain() }),
        (config_map("adopted"), ApplyPolicy { takeover: Takeover::Always, ..plain() }),
        (deployment("first"), gated()),
        (widget(), gated()),
    ]
}

/// An object of a kind that nothing else depends on.
fn common(key: &ObjectKey) -> bool {
    !key.kind.is_namespace() && !key.kind.is_definition()
}

fn strangers(world: &mut World) {
    world.touch(|cluster| {
        cluster.intrude(&key("", "Namespace", "", "shop"), Means::ByHand);
        cluster.intrude(&config_map("adopted"), Means::Declaratively);
    });
}

fn placed(world: &mut World) {
    strangers(world);
    create(world);
    world.pass(DONE);
}

fn create(world: &mut World) {
    world.act(|spaces| cast().into_iter().for_each(|(key, policy)| spaces.create(&SpaceName::root(), &key, policy)));
    world.pass(DONE);
}

fn update(world: &mut World) {
    world.act(|spaces| spaces.update(|_| true));
    world.pass(DONE);
    world.touch(|cluster| {
        cluster.edit(&config_map("plain"));
        cluster.strip(&deployment("first"), Stripped::Mark);
    });
    world.pass(DONE);
    world.act(|spaces| {
        spaces.update(common);
        spaces.set_policy(|key| *key == config_map("orphan"), ApplyPolicy::default());
        spaces.set_policy(|key| *key == deployment("first"), ApplyPolicy::default());
    });
    world.pass(DONE);
}

fn delete(world: &mut World) {
    world.touch(|cluster| cluster.hold(&config_map("plain")));
    world.pass(DONE);
    world.act(|spaces| spaces.delete(common));
    world.pass(DONE);
    world.act(|spaces| {
        spaces.delete(|key| *key == definition());
        spaces.place_namespace("shop", false);
    });
    world.pass(2 * DONE);
}

fn recreate(world: &mut World) {
    // In one commit, as with `kubectl replace --force`.
    again(world, common);
    // An object that is orphaned, was not created by us, or is create-only ends otherwise after a hub that did not see that it
    // was gone in between; and so does an implied namespace.
    let kept = ["orphan", "adopted", "once", "y-implies"].map(config_map);
    let made = |key: &ObjectKey| common(key) && !kept.contains(key);
    world.act(|spaces| spaces.delete(made));
    world.pass(DONE);
    again(world, made);
}

fn again(world: &mut World, which: impl Fn(&ObjectKey) -> bool) {
    world.act(|spaces| {
        for (key, policy) in cast().into_iter().filter(|(key, _)| which(key)) {
            spaces.create(&SpaceName::root(), &key, policy);
        }
    });
    world.pass(DONE);
}

/// As many as may be deleted in an hour, and a few more, twice.
const MANY: usize = 12;
const MORE: usize = 8;
/// Longer in all than an agent stays silent while nothing happens to it: after that a new hub shows what it reported.
const LOOKS_MAX: u32 = 20;

fn many(world: &mut World) {
    world.act(|spaces| {
        let in_advance = ApplyPolicy { approve_deletions: ApproveDeletions::InAdvance, ..ApplyPolicy::default() };
        for number in 0..MANY + MORE {
            spaces.create(&SpaceName::root(), &config_map(&format!("c{number:02}")), ApplyPolicy::default());
        }
        spaces.create(&SpaceName::root(), &config_map("z-free"), in_advance);
    });
    world.pass(DONE);
}

fn mass_delete(world: &mut World) {
    let among = |from: usize, to: usize| {
        move |key: &ObjectKey| {
            let number = key.name.strip_prefix('c').and_then(|number| number.parse::<usize>().ok());
            number.is_some_and(|number| (from..to).contains(&number))
        }
    };
    // More than passes by itself: it is held, and goes when a person has approved it.
    world.act(|spaces| spaces.delete(among(0, MANY)));
    world.pass(3 * DONE);
    // A hub that has just started has no held removals to show: the person comes back until there are some.
    for _ in 0..LOOKS_MAX {
        if world.approve_held() {
            break;
        }
        world.pass(DONE);
    }
    world.pass(DONE);
    // Less than that, but within the same hour: it is held, and stays so.
    world.act(|spaces| spaces.delete(|key| among(MANY, MANY + MORE)(key) || key.name.starts_with('z')));
    world.pass(DONE);
}

fn relocate(world: &mut World) {
    let made = |key: &ObjectKey| common(key) && *key != config_map("orphan") && *key != config_map("adopted");
    world.act(|spaces| spaces.move_to(made, Targets::There));
    world.pass(DONE);
    world.act(|spaces| {
        spaces.move_to(made, Targets::Here);
        // From one space to another, under the same name.
        for name in ["plain", "y-implies"] {
            spaces.create(&parse("retail"), &config_map(name), ApplyPolicy::default());
        }
        spaces.create(&parse("retail"), &config_map("once"), once());
    });
    world.pass(DONE);
    world.act(|spaces| {
        spaces.delete_in(&SpaceName::root(), |key| key.kind.is("", "ConfigMap"));
        spaces.move_to(|key| *key == deployment("first"), Targets::There);
    });
    world.pass(DONE);
    // Objects of the one space change with those of the other.
    world.act(|spaces| spaces.delete(|key| *key == config_map("once")));
    world.pass(DONE);
}

/// The intent for each changes more than once; see [`intent`].
const MEANT: [&str; 8] = ["orphaned", "deleted", "replaced", "followed", "again", "back", "renewed", "spared"];

fn meant(world: &mut World) {
    strangers(world);
    world.act(|spaces| {
        for name in MEANT {
            let policy = if name == "deleted" { orphan() } else { ApplyPolicy::default() };
            spaces.create(&SpaceName::root(), &config_map(name), policy);
        }
    });
    world.pass(DONE);
}

fn orphan() -> ApplyPolicy {
    ApplyPolicy { prune: Prune::Orphan, ..ApplyPolicy::default() }
}

/// The intent changes again before an offline agent has heard of the former: it ends as one that saw every step. A move there
/// and back is an unassignment, and an assignment of the same source.
fn intent(world: &mut World) {
    let among = |names: &'static [&str]| move |key: &ObjectKey| names.iter().any(|name| *key == config_map(name));
    world.act(|spaces| {
        spaces.set_policy(among(&["orphaned", "followed", "again", "renewed"]), orphan());
        spaces.set_policy(among(&["deleted"]), ApplyPolicy::default());
        spaces.set_policy(among(&["spared"]), ApplyPolicy { takeover: Takeover::Never, ..orphan() });
        spaces.move_to(among(&["back"]), Targets::There);
        spaces.renew(among(&["replaced"]));
    });
    world.pass(DONE);
    world.act(|spaces| {
        spaces.renew(among(&["followed"]));
        spaces.set_policy(among(&["replaced"]), orphan());
        spaces.move_to(among(&["again", "renewed", "spared"]), Targets::There);
        spaces.delete(among(&["orphaned", "deleted"]));
    });
    world.pass(DONE);
    world.act(|spaces| {
        spaces.delete(among(&["replaced", "followed"]));
        spaces.set_policy(among(&["again", "renewed"]), ApplyPolicy::default());
        spaces.move_to(among(&["again", "back", "renewed", "spared"]), Targets::Here);
    });
    world.pass(DONE);
    world.act(|spaces| spaces.delete(among(&["renewed"])));
    world.pass(DONE);
}

/// Longer than a frozen agent takes to ask again.
const ASKED: u64 = 11 * 60_000;

/// Its SyncTarget is deleted and created again, and the agent is handed over to the new one.
fn adopt(world: &mut World) {
    world.delete_target();
    world.pass(ASKED);
    world.adopt();
    world.pass(2 * ASKED);
}

/// Periodic work: patrols, and processes that are restarted.
fn upkeep(world: &mut World) {
    world.pass(DONE);
    world.restart_hub();
    world.pass(DONE);
    // A report is how the agent learns that former ones are forgotten.
    world.touch(|cluster| cluster.progress(&deployment("first")));
    world.pass(DONE);
    world.restart_agent();
    world.pass(DONE);
    // People interfere, where nothing else is to be written.
    world.touch(|cluster| {
        cluster.edit(&config_map("watched"));
        cluster.edit(&config_map("plain"));
        cluster.delete(&config_map("y-implies"));
        cluster.strip(&config_map("orphan"), Stripped::Both);
    });
    world.pass(DONE);
    // Long enough for a patrol, of whichever agent.
    world.pass(8 * DONE);
}
