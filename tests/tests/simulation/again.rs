//! One object is assigned and unassigned, again and again, while the hub's answers to reports are lost.

use tideline_common::{ApplyPolicy, Prune, PruneAdopted, SpaceName, Takeover};

use crate::ids::key;
use crate::random::Random;
use crate::workload::Targets;
use crate::world::World;
use crate::{PLAIN, SEEDS, SETTLING, each_seed};

/// Until a change has had all its effects, if nothing is lost.
const DONE: u64 = 40_000;

#[test]
fn an_object_unassigned_again_is_removed_again_whichever_acknowledgement_is_lost() {
    each_seed(SEEDS, |_| PLAIN, assigned_again);
}

fn assigned_again(world: &mut World) {
    let mut random = Random::new(world.draw());
    let place = key("", "ConfigMap", "shop", "a");
    let plain = ApplyPolicy::default;
    let policies = [
        plain(),
        ApplyPolicy { prune: Prune::Orphan, ..plain() },
        ApplyPolicy { prune: Prune::Orphan, takeover: Takeover::Always, ..plain() },
        ApplyPolicy { prune_adopted: PruneAdopted::AsCreated, ..plain() },
    ];
    world.act(|spaces| spaces.create(&SpaceName::root(), &place, plain()));
    world.pass(3 * DONE);
    for _ in 0..2 + random.below(4) {
        let policy = random.pick(&policies).clone();
        world.act(|spaces| spaces.set_policy(|key| *key == place, policy));
        for targets in [Targets::There, Targets::Here] {
            world.lose_acknowledgements(random.below(3) > 0);
            world.act(|spaces| spaces.move_to(|key| *key == place, targets));
            world.pass(random.below(DONE));
        }
    }
    world.act(|spaces| spaces.move_to(|key| *key == place, Targets::There));
    world.pass(random.below(DONE));
    world.lose_acknowledgements(false);
    world.sleep(SETTLING);
    world.check_converged();
    world.check_at_rest(true);
}
