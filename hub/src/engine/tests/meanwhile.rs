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
