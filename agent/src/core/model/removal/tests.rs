use tideline_common::Prune;

use super::*;

const LATER: Monotonic = Monotonic::from_millis(1_000);

fn removal(cause: Cause) -> Removal {
    Removal::new(cause, RemovalPolicy::default(), 3, None)
}

fn deletes() -> RemovalPolicy {
    RemovalPolicy::Tombstone(PrunePolicy { prune: Prune::Delete, ..PrunePolicy::LEAST })
}

#[test]
fn what_waits_for_finalizers_is_told_when_it_begins_and_when_it_ends() {
    let mut removal = removal(Cause::Unassigned);
    assert_eq!(removal.wait(), Moved::Nowhere);
    assert_eq!(removal.hold(Reason::FuseHeld, String::new()), Moved::Elsewhere);
    assert_eq!(removal.finalize(), Moved::IntoFinalizing);
    assert_eq!(removal.finalize(), Moved::Nowhere);
    assert_eq!(removal.hold(Reason::Finalizing, String::new()), Moved::OutOfFinalizing);
    assert_eq!(removal.finalize(), Moved::IntoFinalizing);
    assert_eq!(removal.end(), Moved::OutOfFinalizing);
}

/// Its object may be queued still for what happened before, and its wave wait by then.
#[test]
fn what_is_done_stays_done() {
    let mut removal = removal(Cause::Unassigned);
    assert_eq!(removal.end(), Moved::Elsewhere);
    assert_eq!(removal.wait(), Moved::Nowhere);
    assert_eq!(removal.wait_for_wave("wave 1 of Placement a/one is not ready".to_owned()), Moved::Nowhere);
    assert_eq!(removal.hold(Reason::Webhook, String::new()), Moved::Nowhere);
    assert_eq!(removal.finalize(), Moved::Nowhere);
    removal.come_back();
    removal.govern(deletes());
    assert!(removal.is_done());
    assert_eq!(removal.policy(), RemovalPolicy::default());
}

#[test]
fn nothing_holds_what_comes_back_and_what_finalizes_still_does() {
    let mut held = removal(Cause::Unassigned);
    let _ = held.hold(Reason::FuseHeld, String::new());
    held.come_back();
    assert_eq!(*held.state(), RemovalState::Waiting);
    let mut finalizes = removal(Cause::Unassigned);
    let _ = finalizes.finalize();
    finalizes.come_back();
    assert!(finalizes.is_finalizing());
}

#[test]
fn an_approval_governs_only_what_rests_on_it() {
    for cause in [Cause::Unassigned, Cause::Approved, Cause::Retired, Cause::Spared] {
        let mut removal = removal(cause);
        removal.approve(ORPHAN);
        assert_eq!(removal.policy() == ORPHAN, cause == Cause::Approved, "{cause:?}");
    }
}

#[test]
fn what_has_begun_is_seen_through_once_and_orphans_where_all_is_kept() {
    let mut retired = removal(Cause::Retired);
    assert!(retired.see_through(Decommission::Keep));
    assert!(!retired.see_through(Decommission::Keep), "the journal has it");
    assert_eq!((retired.cause(), retired.policy()), (Cause::Unassigned, ORPHAN));
    let mut approved = removal(Cause::Approved);
    assert!(approved.see_through(Decommission::No));
    assert_eq!((approved.cause(), approved.policy()), (Cause::Unassigned, RemovalPolicy::default()));
}

#[test]
fn what_is_spared_is_retired_again_and_nothing_else_is() {
    let mut spared = removal(Cause::Retired);
    spared.spare();
    assert!(spared.is_spared());
    spared.retire();
    assert_eq!(spared.cause(), Cause::Retired);
    let mut approved = removal(Cause::Approved);
    approved.retire();
    assert_eq!(approved.cause(), Cause::Approved);
}

#[test]
fn the_hub_outdoes_whatever_the_reason_was() {
    let mut approved = removal(Cause::Approved);
    approved.unassign(deletes());
    assert_eq!((approved.cause(), approved.policy()), (Cause::Unassigned, deletes()));
}

#[test]
fn a_removal_has_one_turn() {
    let mut removal = removal(Cause::Unassigned);
    removal.enqueue();
    assert!(!removal.is_backing_off());
    assert_eq!(removal.dequeue(), Turn::Queued { wave: 3 });
    removal.back_off(LATER);
    assert!(removal.is_backing_off());
    assert_eq!(removal.dequeue(), Turn::Waiting { until: LATER });
    removal.enqueue();
    removal.take_turn();
    assert_eq!(removal.dequeue(), Turn::Idle);
}
