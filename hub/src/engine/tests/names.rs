//! What targets are called wherever people read of them.

use super::*;

#[test]
fn a_target_is_called_by_its_name_whether_or_not_an_agent_has_enrolled() {
    let mut hub = Hub::with(1);
    let named = |hub: &Hub| hub.lines().into_iter().map(|line| line.target_name).collect::<BTreeSet<_>>();
    let before = hub.engine.view_changes.number();
    hub.engine.call_target(hub.now, target(), "shop-12");
    assert!(hub.engine.view_changes.number() > before, "who reads reports reads them again");
    assert_eq!((named(&hub), hub.engine.target_name(target())), (["shop-12".to_owned()].into(), "shop-12".to_owned()));
    // After a restart also where nothing else of it can be read.
    let mut next = hub.started_again();
    next.engine.call_target(next.now, target(), "shop-12");
    next.engine.target_unreadable(next.now, target());
    assert_eq!(next.engine.target_name(target()), "shop-12");

    hub.engine.target_gone(hub.now, target(), Deletion::default());
    assert_eq!(hub.engine.target_name(target()), target().to_string());
}
