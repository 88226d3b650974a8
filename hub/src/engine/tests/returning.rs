//! What returns of the status of placed objects.

use super::*;
use crate::placement::SourceId;

/// The target says how the first object does, with a status.
fn says_status(hub: &mut Hub) {
    let report = json!({
        "session": "1.0000000000000001", "seq": 0, "inSync": true,
        "objects": [{
            "group": "", "kind": "ConfigMap", "namespace": "shop", "name": "c0", "sourceUid": "u0",
            "progress": "Applied", "health": "Ready", "status": {"replicas": 2},
        }],
    });
    hub.engine.report(hub.now, target(), serde_json::from_value(report).unwrap());
    hub.persist();
}

#[test]
fn a_status_that_is_not_to_return_is_cleared_and_comes_back_when_it_is() {
    let mut hub = Hub::with(1);
    let source = SourceId { space: space(), resource: config_maps(), uid: "u0".parse().unwrap() };
    says_status(&mut hub);
    assert_eq!(hub.engine.status_of(&source), Some(Some(json!({"replicas": 2}))));
    let _before = hub.engine.take_dirty();
    let set = |hub: &Hub| hub.engine.ledger.target(target()).unwrap().version();
    for (returns, status) in [("Never", None), ("Auto", Some(json!({"replicas": 2})))] {
        let before = set(&hub);
        hub.place_with("p", "shop", &json!({"return": returns}));
        hub.persist();
        // The agent is told, and whoever writes statuses looks again.
        assert!(set(&hub) > before, "{returns}");
        assert!(hub.engine.take_dirty().sources.contains(&source), "{returns}");
        assert_eq!(hub.engine.status_of(&source), Some(status), "{returns}");
        // Also where an agent sends what nobody asks for.
        says_status(&mut hub);
    }
    // Either of two Placements is enough.
    hub.place_with("p", "shop", &json!({"return": "Never"}));
    hub.place_with("q", "shop", &json!({}));
    hub.persist();
    assert_eq!(hub.engine.status_of(&source), Some(Some(json!({"replicas": 2}))));
}
