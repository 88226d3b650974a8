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
        // More than may go unasked, so that the target keeps all of it.
        hub.place("p", "shops");
        hub.persist();
        hub.pass(SETTLE * 2);
        hub.engine.target_seen(hub.now, in_service(false), None);
        hub.persist();
        hub.shows(target(), unknown(100), Proof::OwnWord);
        hub.accept(unknown(100));
        if !at_once {
            hub.persist();
            assert!(!hub.engine.ledger.is_broken());
        }

        hub.engine.target_seen(hub.now, in_service(false), Some(leaves(2)));
        hub.persist();
        hub.pass(SETTLE * 2);
        assert_eq!((hub.removals(), hub.kept()), (0, 300), "revoked: {revoked}");
        let waits = hub.condition(target(), "Decommissioned").unwrap();
        assert_eq!((&waits["status"], &waits["reason"]), (&json!("False"), &json!("HistoryLost")));

        // It is taken back, with or without an agent, and said again.
        hub.engine.target_seen(hub.now, in_service(true), revoked.then(|| agent(2)));
        hub.persist();
        hub.engine.target_seen(hub.now, in_service(false), Some(leaves(2)));
        hub.persist();
        assert_eq!((hub.removals(), hub.kept()), (300, 0), "revoked: {revoked}");
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
