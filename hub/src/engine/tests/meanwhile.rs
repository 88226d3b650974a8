//! What happens while a batch is planned and written.

use super::*;

#[test]
fn what_is_handed_out_while_a_batch_is_written_is_known_after_it() {
    let mut hub = Hub::with(3);
    let set = |hub: &Hub| hub.engine.ledger.target(target()).unwrap().version().revision;
    let before = set(&hub);
    hub.place_with("p", "shop", &json!({"return": "Never"}));
    let gathered = hub.engine.gather(hub.now, usize::MAX).unwrap();
    hub.engine.handed(target(), before);
    assert_eq!(hub.engine.ledger.handed_last(target()), Some(before));
    let work = gathered.plan(committer::fresh(hub.now)).written();
    assert_eq!(set(&hub), before, "nothing is visible before it is in force");
    hub.engine.committed(hub.now, work);
    assert!(set(&hub) > before);
    assert_eq!(hub.engine.ledger.handed_last(target()), Some(before), "the next ledger was made without it");
}

#[test]
fn what_is_said_while_a_batch_is_planned_comes_with_the_next() {
    let mut hub = Hub::with(3);
    hub.place_with("p", "shop", &json!({"return": "Never"}));
    let gathered = hub.engine.gather(hub.now, 1);
    assert!(gathered.is_none(), "there is more than one object");
    hub.delete(0);
    let gathered = hub.engine.gather(hub.now, 1).expect("the rest of it was done before the deletion");
    let work = gathered.plan(committer::fresh(hub.now));
    hub.engine.committed(hub.now, work);
    assert_eq!((hub.engine.ledger.assigned(), hub.removals()), (3, 0));
    hub.persist();
    hub.pass(SETTLE);
    assert_eq!((hub.engine.ledger.assigned(), hub.removals()), (2, 1));
}

#[test]
fn what_a_placement_says_of_itself_is_looked_at_when_all_of_it_is_worked_out() {
    let mut hub = Hub::with(3);
    hub.place_with("p", "shop", &json!({"return": "Never"}));
    hub.engine.told();
    let _before = hub.engine.take_dirty();
    assert!(hub.engine.gather(hub.now, 1).is_none());
    // It changes nothing that is placed: no batch tells anybody to look.
    hub.place("none", "none");
    hub.engine.told();
    assert!(!hub.engine.take_dirty().described, "a part of it is worked out");
    hub.engine.gather(hub.now, 1).expect("the rest was done before");
    let _earlier = hub.engine.take_dirty();
    while hub.engine.gather(hub.now, 1).is_none() {}
    assert!(hub.engine.is_redescribed());
}
