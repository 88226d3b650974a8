//! A SyncTarget that cannot be read is not gone.

use super::*;

#[test]
fn what_is_placed_at_a_target_that_cannot_be_read_stays_there() {
    let mut hub = Hub::with(5);
    hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
    hub.persist();
    hub.engine.targets_reset();
    hub.engine.target_unreadable(hub.now, target());
    hub.engine.targets_listed(hub.now);
    hub.persist();
    hub.pass(SETTLE * 2);
    assert_eq!((hub.engine.ledger.assigned(), hub.removals()), (5, 0));
    assert!(hub.engine.is_registered(target()));

    let mut next = hub.started_again();
    next.engine.remember(hub.engine.all_remembered_after(None).map(|(id, it)| (id, it.clone())).collect());
    next.engine.target_unreadable(next.now, target());
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

/// What a hub writes of its SyncTargets now.
fn written(hub: &mut Hub) -> BTreeMap<TargetId, LastKnown> {
    let written = hub.engine.work(committer::fresh(hub.now)).inventory;
    written.into_iter().filter_map(|(target, known)| Some((target, known?))).collect()
}

#[test]
fn a_target_that_cannot_be_read_at_a_start_takes_part_as_it_was_last_read() {
    for in_service in [true, false].map(|is| Target { name: "shop".into(), ..in_service(is) }) {
        let mut hub = Hub::with(5);
        let before = hub.started_again();
        let record = TargetRecord { decommission: in_service.decommission, ..agent(1) };
        hub.engine.target_seen(hub.now, in_service.clone(), Some(record.clone()));
        let known = written(&mut hub);
        hub.engine.target_seen(hub.now, in_service.clone(), Some(record));
        assert!(written(&mut hub).is_empty(), "a heartbeat writes nothing");

        let mut next = before;
        next.engine.remember(hub.engine.all_remembered_after(None).map(|(id, it)| (id, it.clone())).collect());
        next.engine.know(known);
        assert_eq!(next.engine.target_named("shop"), Some(target()));
        next.engine.target_unreadable(next.now, target());
        next.engine.targets_listed(next.now);
        next.reads_spaces(7);
        next.delete(0);
        next.persist();
        next.pass(SETTLE * 2);
        let stays = in_service.decommission == Decommission::No;
        let comes_to = (next.engine.ledger.assigned(), next.removals());
        assert_eq!(comes_to, if stays { (6, 1) } else { (0, 5) }, "all goes on");
        assert!(next.engine.is_registered(target()));
        assert_eq!(super::told(&mut next), None, "its agent is served by the key that it had");
    }
}
