//! What the hub does about history that it lost.

use tideline_common::{Epoch, RevisionPoint, Shown, Version};

use super::*;
use crate::ledger::Proof;
use crate::statuses::target_status;

/// A set that this hub does not know of.
fn unknown(revision: u64) -> Shown {
    let version = Version { epoch: Epoch(1), revision: Revision(revision) };
    Shown { version, point: RevisionPoint::NOWHERE }
}

impl Hub {
    fn shows(&mut self, target: TargetId, shown: Shown, proof: Proof) {
        self.engine.changes.push(Change::History(HistoryChange::Shown { target, shown, proof }));
        self.persist();
    }

    /// A person accepts that this is lost, which is not written yet.
    fn accept(&mut self, shown: Shown) {
        self.engine.approvals_listed(self.now);
        let accepted = Accepted { shown: vec![(shown.point.segment, shown.version)], ..Accepted::default() };
        self.engine.history_accepted("accepted".parse().unwrap(), accepted);
    }

    fn condition(&self, target: TargetId, kind: &str) -> Option<serde_json::Value> {
        let (_, status) = target_status(&self.engine, target)?;
        status["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind).cloned()
    }
}

fn leaves(seed: u8) -> TargetRecord {
    TargetRecord { decommission: Decommission::Remove, ..agent(seed) }
}

/// The one that comes with a new token, or is adopted, hears no more than one that had a key at the accept; also where it comes
/// before that is written.
#[test]
fn leaving_service_from_before_an_accept_waits_also_where_no_agent_has_a_key_then() {
    for (revoked, at_once) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut hub = Hub::with(300);
        if revoked {
            hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
            hub.engine.keys_revoked(target(), "shop", &[agent(1).key]);
        }
        hub.place("p", "shops");
        hub.persist();
        hub.pass(SETTLE * 2);
        if !at_once {
            hub.engine.target_seen(hub.now, in_service(false), None);
        }
        hub.shows(target(), unknown(100), Proof::OwnWord);
        if at_once {
            hub.engine.target_seen(hub.now, in_service(false), None);
        }
        hub.accept(unknown(100));
        if !at_once {
            hub.persist();
            assert!(!hub.engine.ledger.is_broken());
        }

        hub.engine.target_seen(hub.now, in_service(false), Some(leaves(2)));
        hub.persist();
        hub.pass(SETTLE * 2);
        // What was asked to be removed before the accept is asked for no more; what leaves with it or later is kept.
        let left = if at_once { 300 } else { 0 };
        assert_eq!((hub.removals(), hub.kept()), (0, left), "revoked: {revoked}");
        let waits = hub.condition(target(), "Decommissioned").unwrap();
        assert_eq!((&waits["status"], &waits["reason"]), (&json!("False"), &json!("HistoryLost")));

        // It is taken back, with or without an agent, and said again.
        hub.engine.target_seen(hub.now, in_service(true), revoked.then(|| agent(2)));
        hub.persist();
        hub.engine.target_seen(hub.now, in_service(false), Some(leaves(2)));
        hub.persist();
        assert_eq!((hub.removals() as u64, hub.kept()), (left, 0), "revoked: {revoked}");
    }
}

/// It is set back to be in service while the accept is being written that takes it for leaving.
#[test]
fn what_is_in_service_again_before_an_accept_is_written_is_not_taken_for_leaving() {
    for has_key in [true, false] {
        let mut hub = Hub::with(1);
        hub.engine.target_seen(hub.now, in_service(false), has_key.then(|| leaves(1)));
        hub.persist();
        hub.shows(target(), unknown(100), Proof::OwnWord);
        hub.accept(unknown(100));
        hub.engine.target_seen(hub.now, in_service(true), has_key.then(|| agent(1)));
        hub.persist();
        assert!(!hub.engine.ledger.leaving_is_unexplained(target()), "has a key: {has_key}");
    }
}

/// What was placed there is taken from it only after the accept, and is less than may go unasked.
#[test]
fn what_leaves_a_target_whose_leaving_is_unexplained_is_kept_however_little_it_is() {
    let mut hub = Hub::with(5);
    hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
    hub.persist();
    hub.shows(target(), unknown(100), Proof::OwnWord);
    hub.engine.target_seen(hub.now, in_service(false), Some(leaves(1)));
    hub.accept(unknown(100));
    hub.persist();
    hub.pass(SETTLE * 2);
    assert_eq!((hub.removals(), hub.kept()), (0, 5));
    hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
    hub.persist();
    hub.pass(SETTLE * 2);
    assert_eq!((hub.removals(), hub.kept()), (0, 0), "it is assigned again");
}

/// The agent is away, and hears of it only when the target is in service again.
#[test]
fn what_a_target_is_to_keep_is_let_go_of_whether_or_not_an_agent_has_a_key_then() {
    let keeps = |is: bool| Target { decommission: Decommission::Keep, ..in_service(is) };
    for (before, has_key) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut hub = Hub::with(5);
        hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
        hub.persist();
        if before {
            // It was to be emptied first, and that was put right.
            hub.engine.target_seen(hub.now, in_service(false), Some(leaves(1)));
            hub.persist();
            hub.pass(SETTLE * 2);
            assert!(hub.tombstones().iter().all(|policy| !policy.lets_go()));
        }
        let kept = TargetRecord { decommission: Decommission::Keep, ..agent(1) };
        hub.engine.target_seen(hub.now, keeps(false), has_key.then_some(kept));
        hub.persist();
        hub.pass(SETTLE * 2);
        let unselected = Target { labels: BTreeMap::new(), ..in_service(true) };
        hub.engine.target_seen(hub.now, unselected, Some(agent(1)));
        hub.persist();
        let tombstones = hub.tombstones();
        let all = tombstones.len() == 5 && tombstones.iter().all(|policy| policy.lets_go());
        assert!(all, "Remove before: {before}, has a key: {has_key}: {tombstones:?}");
    }
}

fn other() -> TargetId {
    "00000000-0000-4000-8000-000000000002".parse().unwrap()
}

/// Whoever has the key of one agent says nothing of another's cluster.
#[test]
fn what_is_claimed_without_proof_is_said_of_the_target_that_claims_it_alone() {
    let mut hub = Hub::with(1);
    for (id, seed) in [(target(), 1), (other(), 2)] {
        let record = TargetRecord { name: format!("shop-{seed}"), ..agent(seed) };
        hub.engine.target_seen(hub.now, Target { id, ..in_service(true) }, Some(record));
    }
    hub.persist();
    let _before = hub.engine.take_dirty();
    hub.shows(target(), unknown(7_777), Proof::Claim);
    assert_eq!(hub.engine.take_dirty().targets, [target()].into());
    let said = |hub: &Hub, target| hub.condition(target, "HistoryLost").map(|it| it["message"].to_string());
    let claimed = said(&hub, target()).unwrap();
    assert!(claimed.contains("1.7777") && claimed.contains("targets revoke shop-1"), "{claimed}");
    assert_eq!(said(&hub, other()), None);

    // Also where the history is broken for all.
    hub.shows(other(), unknown(5), Proof::OwnWord);
    let (claimed, proven) = (said(&hub, target()).unwrap(), said(&hub, other()).unwrap());
    assert!(proven.contains("shop-2 (at 1.5)") && !proven.contains("7777"), "{proven}");
    assert!(claimed.contains("shop-2 (at 1.5)") && claimed.contains("1.7777"), "{claimed}");
    let _before = hub.engine.take_dirty();
    hub.shows(target(), unknown(8_888), Proof::Claim);
    assert_eq!(hub.engine.take_dirty().targets, [target()].into());
    assert!(said(&hub, target()).unwrap().contains("1.8888"));
    let log = hub.engine.history_said.clone().unwrap();
    assert!(!log.contains("8888"), "{log}");
}

/// Who did it is shut out as the condition says, and its successor is served: nothing is left to be settled.
#[test]
fn a_claim_ends_with_the_key_that_made_it() {
    let named = |seed| TargetRecord { name: "shop-1".to_owned(), ..agent(seed) };
    for revoked in [true, false] {
        let mut hub = Hub::with(1);
        hub.engine.target_seen(hub.now, in_service(true), Some(named(1)));
        hub.persist();
        hub.shows(target(), unknown(7_777), Proof::Claim);
        assert!(hub.condition(target(), "HistoryLost").is_some());
        hub.engine.target_seen(hub.now, in_service(true), None);
        let withdrawn = hub.engine.history_sentence(target()).unwrap();
        assert!(withdrawn.contains("targets revoke shop-1"), "{withdrawn}");
        if revoked {
            hub.engine.keys_revoked(target(), "shop-1", &[agent(1).key]);
        } else {
            hub.engine.target_seen(hub.now, in_service(true), Some(named(1)));
            hub.engine.target_seen(hub.now, in_service(true), Some(named(2)));
        }
        hub.persist();
        assert_eq!(hub.engine.history_sentence(target()), None, "revoked: {revoked}");
    }
}
