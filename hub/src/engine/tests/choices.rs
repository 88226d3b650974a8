//! A choice by `numberOfTargets`, through the ledger.

use super::*;

impl Hub {
    fn sees(&mut self, other: bool, tier: &str) {
        let id = if other { "00000000-0000-4000-8000-000000000001".parse().unwrap() } else { target() };
        let labels = [("tier".to_owned(), tier.to_owned())].into();
        self.engine.target_seen(self.now, Target { id, labels, ..in_service(true) }, None);
        self.persist();
    }

    /// A Placement takes one of the shops.
    fn takes_one(&mut self, uid: &str) {
        let object = json!({
            "apiVersion": "tideline.dev/v1alpha1", "kind": "Placement", "metadata": {"name": "p"},
            "spec": {
                "targets": [{"matchLabels": {"tier": "shop"}}], "numberOfTargets": 1,
                "objects": [{"resources": ["configmaps"]}],
            },
        });
        let placement: Placement = tideline_api::decode(object).unwrap();
        let rule = PlacementRule::try_from(&placement.spec).unwrap();
        self.engine.index.apply_placement(&space(), "p", uid.parse().unwrap(), Ok(rule));
    }

    /// How many objects the first target has, and the other.
    fn held(&self) -> [usize; 2] {
        let other = "00000000-0000-4000-8000-000000000001".parse().unwrap();
        [target(), other].map(|id| self.engine.ledger.target(id).unwrap().len())
    }
}

#[test]
fn what_is_chosen_stays_over_what_passes_and_a_restart_and_moves_in_time() {
    let mut hub = Hub::with(3);
    hub.takes_one("p");
    hub.persist();
    hub.sees(true, "shop");
    hub.pass(SETTLE * 2);
    assert_eq!(hub.held(), [3, 0]);
    hub.engine.index.delete_placement(&space(), "p");
    hub.persist();
    hub.pass(SETTLE / 2);
    hub.takes_one("another");
    hub.persist();
    hub.sees(false, "oops");
    hub.pass(SETTLE / 2);
    assert_eq!((hub.held(), hub.removals()), ([3, 0], 0));

    let mut next = hub.started_again();
    next.sees(false, "oops");
    next.sees(true, "shop");
    next.engine.targets_listed(next.now);
    next.reads_spaces(3);
    next.takes_one("a-third");
    next.persist();
    assert_eq!((next.held(), next.removals()), ([3, 0], 0));
    next.pass(SETTLE);
    assert_eq!((next.held(), next.removals()), ([0, 3], 3), "all of it, once it has settled, and nothing else tells");
}
