//! What is shown of an identity that is used from another cluster than the one that enrolled.

use tideline_common::Reason;
use tideline_common::wire::v1::ClusterFacts;

use super::*;
use crate::limits::QUARANTINE_SHOWN;

impl Hub {
    /// A target that has enrolled from a cluster.
    fn with_cluster(cluster: &str) -> Self {
        let mut hub = Self::with(1);
        hub.is_of(cluster);
        hub
    }

    fn is_of(&mut self, cluster: &str) {
        let record = TargetRecord { cluster: Some(cluster.parse().unwrap()), ..agent(1) };
        self.engine.target_seen(self.now, in_service(true), Some(record));
    }

    /// An agent of that cluster asks for a session. Returns whether it is quarantined, by what is shown as well as told.
    fn asks_from(&mut self, cluster: &str, instance: u64) -> bool {
        let link::Request::Session(request, from) = asks(instance) else { unreachable!("it is one") };
        let facts = ClusterFacts { cluster: Some(cluster.parse().unwrap()), ..ClusterFacts::default() };
        let request = link::Request::Session(Box::new(SessionRequest { facts, ..*request }), from);
        let (_, mut answer) = self.engine.request(self.now, target(), request);
        self.persist();
        matches!(answer.try_recv(), Ok(Err(refusal)) if refusal.refusal == RefusalKind::Quarantined)
    }

    fn is_quarantined(&self) -> bool {
        self.engine.targets.get(target()).unwrap().problems.contains(&Reason::Quarantined)
    }
}

#[test]
fn a_copy_of_a_cluster_is_shown_for_an_hour_after_it_asked_last() {
    let mut hub = Hub::with_cluster("home");
    assert!(!hub.asks_from("home", 1) && !hub.is_quarantined());
    for _ in 0..3 {
        assert!(hub.asks_from("copy", 2) && hub.is_quarantined());
        hub.pass(QUARANTINE_SHOWN * 3 / 4);
        assert!(hub.is_quarantined());
    }
    hub.engine.take_dirty();
    hub.pass(QUARANTINE_SHOWN);
    assert!(!hub.is_quarantined());
    assert!(hub.engine.take_dirty().targets.contains(&target()), "its status is written");
    assert!(hub.asks_from("copy", 2) && hub.is_quarantined(), "it is there again");
}

#[test]
fn a_cluster_that_is_the_right_one_by_now_is_shown_no_more_at_once() {
    let mut hub = Hub::with_cluster("home");
    assert!(hub.asks_from("built-anew", 1) && hub.is_quarantined());
    hub.is_of("built-anew");
    assert!(!hub.asks_from("built-anew", 1) && !hub.is_quarantined());
    // What ends later of what was shown before says nothing of what is shown then.
    assert!(hub.asks_from("home", 2) && hub.is_quarantined());
    hub.pass(QUARANTINE_SHOWN * 3 / 4);
    assert!(hub.is_quarantined());
}
