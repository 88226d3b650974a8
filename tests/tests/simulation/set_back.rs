//! The API server of the cluster is restored from a backup while the agent runs: the same objects, of earlier versions.

use tideline_common::{ApplyPolicy, ObjectKey, SpaceName};

use crate::ids::key;
use crate::random::Random;
use crate::world::World;
use crate::{PLAIN, SEEDS, SETTLING, each_seed};

/// Until a change has had all its effects and is reported.
const DONE: u64 = 60_000;
const STEPS: u64 = 8;

#[test]
fn a_cluster_that_is_set_back_under_its_agent_is_brought_up_to_date() {
    each_seed(SEEDS, |_| PLAIN, set_back);
}

/// Now and then, as the agent has just written, or was away, or somebody has changed something.
fn set_back(world: &mut World) {
    let mut random = Random::new(world.draw());
    let kinds = [("", "ConfigMap"), ("apps", "Deployment")];
    let keys: Vec<ObjectKey> =
        kinds.iter().flat_map(|(group, kind)| ["a", "b", "c"].map(|name| key(group, kind, "shop", name))).collect();
    for key in &keys {
        world.act(|spaces| spaces.create(&SpaceName::root(), key, ApplyPolicy::default()));
    }
    world.pass(3 * DONE);
    for _ in 0..3 {
        let backup = world.cluster.back_up();
        for _ in 0..STEPS {
            let key = random.pick(&keys).clone();
            match random.below(8) {
                0 => world.set_link(false),
                1 => world.set_link(true),
                2 => world.restart_agent(),
                3 => world.touch(|cluster| cluster.edit(&key)),
                4 => world.touch(|cluster| cluster.progress(&key)),
                5 => world.touch(|cluster| _ = cluster.delete(&key)),
                _ => world.act(|spaces| spaces.update(|updated| *updated == key)),
            }
            world.pass(random.below(DONE));
        }
        world.set_back_cluster(backup);
        world.pass(random.below(DONE));
    }
    world.set_link(true);
    world.sleep(SETTLING);
    world.check_converged();
    world.check_at_rest(true);
}
