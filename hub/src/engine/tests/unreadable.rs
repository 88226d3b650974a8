//! A SyncTarget that cannot be read is not gone.

use super::*;

#[test]
fn what_is_placed_at_a_target_that_cannot_be_read_stays_there() {
    let mut hub = Hub::with(5);
    hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
    hub.persist();
    hub.engine.targets_reset();
    hub.engine.target_unreadable(target());
    hub.engine.targets_listed(hub.now);
    hub.persist();
    hub.pass(SETTLE * 2);
    assert_eq!((hub.engine.ledger.assigned(), hub.removals()), (5, 0));
    assert!(hub.engine.is_registered(target()));

    let mut next = hub.started_again();
    next.engine.remember(hub.engine.all_remembered().map(|(id, it)| (id, it.clone())).collect());
    next.engine.target_unreadable(target());
    next.engine.targets_listed(next.now);
    next.reads_spaces(5);
    next.persist();
    next.pass(SETTLE * 2);
    assert_eq!((next.engine.ledger.assigned(), next.removals()), (5, 0), "after a restart");
    assert!(next.engine.closed(target()).is_none(), "its agent is not told that it was deleted");

    next.engine.target_seen(next.now, in_service(true), Some(agent(1)));
    next.delete(0);
    next.persist();
    next.pass(SETTLE * 2);
    assert_eq!((next.engine.ledger.assigned(), next.removals()), (4, 1), "and all goes on when it can be read");
    next.engine.target_gone(next.now, target(), Deletion::default());
    next.persist();
    assert_eq!(next.engine.ledger.assigned(), 0);
}
