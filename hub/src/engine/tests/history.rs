//! What the hub does about history that it lost.

use tideline_common::wire::v1::{ApprovedHeld, ApprovedPage, Attested, Continuity, DesiredAnswer, DesiredRequest};
use tideline_common::{Epoch, RevisionPoint, Shown, Tombstone, Version};

use super::*;
use crate::history_change::Proof;
use crate::ledger::Void;
use crate::removal_guards::Approval;
use crate::statuses::target_status;
use crate::summary::tests::all_is_well;

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

#[test]
fn what_every_target_says_of_a_broken_history_stays_as_it_is_when_more_is_shown() {
    let mut hub = Hub::with(1);
    hub.shows(target(), unknown(100), Proof::OwnWord);
    let sentence = hub.engine.history_sentence(target());
    assert!(sentence.as_ref().is_some_and(|sentence| sentence.contains("tideline-hub history show")), "{sentence:?}");
    let segment = tideline_common::SegmentId::from_uuid(uuid::Uuid::new_v4());
    let more = Shown { point: RevisionPoint { segment, ..RevisionPoint::NOWHERE }, ..unknown(200) };
    hub.shows(target(), more, Proof::OwnWord);
    assert_eq!(hub.engine.ledger.missing().count(), 2);
    assert_eq!(hub.engine.history_sentence(target()), sentence);
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

/// Whether it could ever be read in this run or not. What it says when it is mended is as old as any manifest.
#[test]
fn leaving_service_waits_of_a_target_that_could_not_be_read_when_lost_history_was_accepted() {
    for (was_read, stays) in [(true, false), (false, false), (true, true), (false, true)] {
        let before = Hub::with(5);
        let mut hub = before.started_again();
        if was_read {
            hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
        }
        hub.engine.target_unreadable(hub.now, target());
        hub.engine.targets_listed(hub.now);
        hub.reads_spaces(5);
        hub.persist();
        hub.shows(target(), unknown(100), Proof::OwnWord);
        hub.accept(unknown(100));
        if stays {
            // While the accept is being written.
            hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
        }
        hub.persist();
        assert_eq!(hub.engine.ledger.leaving_is_unexplained(target()), !stays, "was read: {was_read}");
        hub.engine.target_seen(hub.now, in_service(false), Some(leaves(1)));
        hub.persist();
        hub.pass(SETTLE * 2);
        let left = if stays { (5, 0) } else { (0, 5) };
        assert_eq!((hub.removals() as u64, hub.kept()), left, "was read: {was_read}");

        // It is said anew.
        hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
        hub.persist();
        hub.engine.target_seen(hub.now, in_service(false), Some(leaves(1)));
        hub.persist();
        hub.pass(SETTLE * 2);
        assert_eq!((hub.removals(), hub.kept()), (5, 0), "was read: {was_read}");
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
            assert!(hub.tombstones().iter().all(|policy| !policy.orphans()));
        }
        let kept = TargetRecord { decommission: Decommission::Keep, ..agent(1) };
        hub.engine.target_seen(hub.now, keeps(false), has_key.then_some(kept));
        hub.persist();
        hub.pass(SETTLE * 2);
        let unselected = Target { labels: BTreeMap::new(), ..in_service(true) };
        hub.engine.target_seen(hub.now, unselected, Some(agent(1)));
        hub.persist();
        let tombstones = hub.tombstones();
        let all = tombstones.len() == 5 && tombstones.iter().all(|policy| policy.orphans());
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
    assert!(proven.contains("Clusters were given sets") && !proven.contains("7777"), "{proven}");
    assert!(claimed.contains("Clusters were given sets") && claimed.contains("1.7777"), "{claimed}");
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

fn removal(nth: usize) -> Tombstone {
    Tombstone { key: key(nth), source: format!("u{nth}").parse().unwrap() }
}

fn removals<const N: usize>(all: [usize; N]) -> Vec<Tombstone> {
    all.map(removal).into()
}

fn name(approval: &str) -> Uid {
    approval.parse().unwrap()
}

impl Hub {
    /// One target with an agent and so many ConfigMaps, and all approvals that there are were read: none.
    fn with_approvals_listed(objects: usize) -> Self {
        let mut hub = Self::with(objects);
        hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
        hub.engine.approvals_listed(hub.now);
        hub.persist();
        hub
    }

    /// Another run of this hub, which has read its ledger, and of its spaces nothing yet.
    pub(super) fn started_again(&self) -> Self {
        let (fuse, ledger) = (Fuse::new(UNASSIGN_LIMIT), self.engine.ledger.clone());
        let engine = Engine::new(link::Config::default(), SETTLE, fuse, ledger, BTreeMap::new());
        Self { engine, now: self.now, read: None }
    }

    fn unassign(&mut self, nth: usize) {
        self.delete(nth);
        self.persist();
        self.pass(SETTLE);
        let gone = self.engine.ledger.target(target()).unwrap().entry(&key(nth)).is_none();
        assert!(gone, "it is still assigned");
    }

    /// Another source is assigned to the place, which is not written yet.
    fn assign_another(&mut self, nth: usize) {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("c{nth}"), "namespace": "shop", "uid": format!("another{nth}")},
        });
        self.engine.index.apply(&space(), &config_maps(), clean::read(clean::SpaceServer::Embedded, &object).unwrap());
    }

    /// The space shows an approval, which is in force for a day.
    fn shows_approval(&mut self, approval: &str, nth: &[usize]) {
        let removals: Vec<_> = nth.iter().copied().map(removal).collect();
        let until = self.now + Duration::from_hours(24);
        let shown = Approval { target: target(), expires: 86_400, until, removals: removals.into(), releases: false };
        self.engine.approval_seen(self.now, name(approval), shown);
    }

    /// Its agent says that this is removed.
    fn removes(&mut self, nth: usize) {
        let report = ReportedRequest { removed: vec![removal(nth)], ..all_is_well() };
        self.engine.report(self.now, target(), report);
    }

    fn page(&self, held: ApprovedHeld) -> Option<ApprovedPage> {
        let desk = LedgerView { ledger: &self.engine.ledger, approvals: &self.engine.approvals };
        desk.approved(self.now, target(), &held)
    }

    /// What the agent is told of approvals, if it holds nothing of them.
    fn approved(&self) -> Vec<Tombstone> {
        assert!(self.engine.approvals.is_known(), "it is told of nothing yet");
        let mut held = ApprovedHeld::default();
        let mut told = Vec::new();
        while let Some(page) = self.page(held) {
            held = ApprovedHeld { list: page.list, count: held.count + page.count };
            told.extend(page.removals);
        }
        told
    }
}

#[test]
fn an_accept_voids_the_approvals_that_were_given_before_it_and_no_later_one() {
    let mut hub = Hub::with_approvals_listed(4);
    hub.unassign(0);
    hub.unassign(1);
    hub.shows_approval("before", &[0]);
    hub.shows(target(), unknown(100), Proof::OwnWord);
    assert_eq!(hub.approved(), removals([0]));
    hub.accept(unknown(100));
    hub.persist();
    assert_eq!(hub.approved(), []);
    hub.shows_approval("after", &[1]);
    assert_eq!(hub.approved(), removals([1]));

    let mut next = hub.started_again();
    next.shows_approval("before", &[0]);
    next.shows_approval("after", &[1]);
    next.engine.approvals_listed(next.now);
    next.persist();
    assert_eq!(next.approved(), removals([1]), "after a restart");
}

/// What comes back there later was not approved, and nobody holds the list again for it.
#[test]
fn what_was_done_is_not_approved_any_more_and_a_later_approval_of_the_place_is_good() {
    let mut hub = Hub::with_approvals_listed(4);
    hub.unassign(0);
    hub.unassign(1);
    hub.shows_approval("given", &[0, 1]);
    let list = |hub: &Hub| hub.page(ApprovedHeld::default()).and_then(|page| page.list);
    let told = list(&hub);
    hub.removes(0);
    hub.persist();
    assert_eq!(hub.approved(), removals([1]));
    assert_eq!(list(&hub), told, "whoever holds the list need not take it again");
    let mut next = hub.started_again();
    next.shows_approval("given", &[0, 1]);
    next.engine.approvals_listed(next.now);
    next.persist();
    assert_eq!(next.approved(), removals([1]), "after a restart");
    next.shows_approval("later", &[0]);
    let mut approved = next.approved();
    approved.sort();
    assert_eq!(approved, removals([0, 1]));
}

/// The run of the hub that it was given in was told of the object, and this one was not.
#[test]
fn what_was_done_is_not_approved_any_more_though_this_run_was_never_told_that_it_was_held() {
    let mut hub = Hub::with_approvals_listed(4);
    hub.shows_approval("given", &[9]);
    assert_eq!(hub.approved(), removals([9]));
    hub.removes(9);
    hub.persist();
    assert_eq!(hub.approved(), []);
}

/// Those that it does not know yet were given before the accept all the same, and so was what it does not know of targets.
#[test]
fn a_hub_that_starts_accepts_nothing_before_it_has_read_its_approvals_and_targets() {
    let mut hub = Hub::with_approvals_listed(4);
    hub.unassign(0);
    hub.shows(target(), unknown(100), Proof::OwnWord);
    for approvals_first in [true, false] {
        let mut next = hub.started_again();
        let accepted =
            Accepted { shown: vec![(unknown(100).point.segment, unknown(100).version)], ..Accepted::default() };
        next.engine.history_accepted(name("accepted"), accepted);
        next.persist();
        assert!(next.engine.ledger.is_broken(), "nothing was read yet");
        for approvals in [approvals_first, !approvals_first] {
            assert!(next.engine.ledger.is_broken(), "approvals first: {approvals_first}");
            if approvals {
                next.shows_approval("before", &[0]);
                next.engine.approvals_listed(next.now);
            } else {
                next.engine.target_seen(next.now, in_service(false), Some(leaves(1)));
                next.engine.targets_listed(next.now);
            }
            next.persist();
        }
        assert!(!next.engine.ledger.is_broken(), "approvals first: {approvals_first}");
        assert_eq!(next.approved(), [], "approvals first: {approvals_first}");
        assert!(next.engine.ledger.leaving_is_unexplained(target()), "approvals first: {approvals_first}");
    }
}

#[test]
fn what_is_assigned_to_a_place_voids_what_was_approved_there_for_good() {
    let mut hub = Hub::with_approvals_listed(4);
    hub.unassign(0);
    hub.unassign(1);
    hub.shows_approval("a", &[0, 1]);
    assert_eq!(hub.approved(), removals([0, 1]));
    hub.assign_another(0);
    hub.persist();
    hub.unassign(0);
    assert_eq!(hub.approved(), removals([1]), "it was approved before something was assigned there");

    let mut next = hub.started_again();
    next.shows_approval("a", &[0, 1]);
    next.engine.approvals_listed(next.now);
    assert_eq!(next.approved(), removals([1]), "after a restart");

    assert_eq!(hub.engine.ledger.void(&name("a")), Some(&Void::At([key(0)].into())));
    hub.engine.approval_gone(hub.now, &name("a"));
    hub.persist();
    assert_eq!(hub.approved(), []);
    assert_eq!(hub.engine.ledger.void(&name("a")), None, "nobody asks any more");
}

#[test]
fn an_approval_that_could_not_be_read_stays_void_when_it_can_be_read_again() {
    for voided_before in [true, false] {
        let mut hub = Hub::with_approvals_listed(4);
        hub.unassign(0);
        hub.unassign(1);
        hub.shows_approval("a", &[0, 1]);
        hub.shows(target(), unknown(100), Proof::OwnWord);
        if voided_before {
            hub.accept(unknown(100));
            hub.persist();
        }
        hub.engine.approval_unreadable(hub.now, &name("a"));
        assert_eq!(hub.approved(), []);
        hub.shows_approval("a", &[0, 1]);
        assert_eq!(hub.approved(), [], "also before that is written");
        hub.persist();
        assert_eq!(hub.engine.ledger.void(&name("a")), Some(&Void::All));

        let mut next = hub.started_again();
        next.engine.approval_unreadable(next.now, &name("a"));
        next.engine.approvals_listed(next.now);
        next.persist();
        next.shows_approval("a", &[0, 1]);
        assert_eq!(next.approved(), [], "after a restart");
        next.engine.approval_gone(next.now, &name("a"));
        next.persist();
        assert_eq!(next.engine.ledger.void(&name("a")), None, "nobody asks any more");
    }
}

/// The target gets the object again, which is unassigned later, and the hub starts with a clock that is late.
#[test]
fn an_approval_that_has_ended_is_void_for_later_runs() {
    let mut hub = Hub::with_approvals_listed(4);
    hub.unassign(0);
    hub.shows_approval("a", &[0]);
    hub.pass(Duration::from_hours(25));
    assert_eq!(hub.approved(), []);
    let mut next = hub.started_again();
    next.shows_approval("a", &[0]);
    next.engine.approvals_listed(next.now);
    next.persist();
    assert_eq!(next.approved(), []);
    assert_eq!(next.engine.ledger.void(&name("a")), Some(&Void::All));
    // It was deleted while no hub ran.
    let mut next = next.started_again();
    next.engine.approvals_listed(next.now);
    next.persist();
    assert_eq!(next.engine.ledger.void(&name("a")), None);
}

#[test]
fn an_acceptance_that_cannot_be_read_is_not_forgotten_to_have_been_heeded() {
    let mut hub = Hub::with_approvals_listed(1);
    hub.shows(target(), unknown(100), Proof::OwnWord);
    hub.accept(unknown(100));
    hub.persist();
    hub.engine.acceptances_reset();
    hub.engine.acceptance_unreadable(name("accepted"));
    hub.engine.acceptances_listed();
    hub.persist();
    assert_eq!(hub.engine.ledger.heeded().collect::<Vec<_>>(), [&name("accepted")]);
}

/// As when the approval was given while the hub was down, and the assignment is older.
#[test]
fn an_approval_of_a_place_that_has_something_is_void_there() {
    let mut hub = Hub::with_approvals_listed(4);
    hub.unassign(1);
    hub.shows_approval("a", &[0, 1]);
    hub.persist();
    hub.unassign(0);
    assert_eq!(hub.approved(), removals([1]));
}

impl Hub {
    /// The answer to the agent's poll, which holds this of approvals and the set that there is.
    fn polls(&mut self, session: SessionName, approved: ApprovedHeld) -> oneshot::Receiver<Answer> {
        let view = self.engine.ledger.target(target()).unwrap();
        let request = DesiredRequest {
            session,
            since: Some(view.version()),
            digest: Some(view.digest()),
            after: None,
            wait_seconds: 45,
            approved,
            decommission: Decommission::No,
            shown: None,
            history: Continuity::Whole,
            stands: None,
        };
        self.engine.request(self.now, target(), link::Request::Desired(request)).1
    }

    fn opens_session(&mut self) -> SessionName {
        let (_, mut answer) = self.engine.request(self.now, target(), asks(1));
        self.persist();
        match answer.try_recv().unwrap() {
            Ok(Reply::Core(link::Answer::Session(answer))) => answer.session,
            Ok(other) => panic!("{other:?}"),
            Err(refusal) => panic!("{refusal:?}"),
        }
    }
}

/// What a poll was told of approvals: that the list is another, of so many.
fn told_of_approvals(mut answer: oneshot::Receiver<Answer>) -> ApprovedHeld {
    match answer.try_recv().expect("the poll is answered") {
        Ok(Reply::Core(link::Answer::Desired(DesiredAnswer::Approved(page)))) => {
            ApprovedHeld { list: page.list, count: page.count }
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_agent_that_waits_is_told_at_once_what_is_approved_and_what_is_not_any_more() {
    let mut hub = Hub::with_approvals_listed(4);
    hub.unassign(0);
    hub.unassign(1);
    let session = hub.opens_session();
    let first = hub.polls(session, ApprovedHeld::default());
    hub.persist();
    hub.shows_approval("a", &[0]);
    let held = told_of_approvals(first);
    assert_eq!(held.count, 1);

    // That something is assigned there is told, and not written yet that it voids the approval.
    hub.assign_another(0);
    let work = hub.engine.work(committer::fresh(hub.now));
    hub.engine.committed(hub.now, work);
    let waiting = hub.polls(session, held);
    hub.persist();
    let held = told_of_approvals(waiting);
    assert_eq!(held, ApprovedHeld::default(), "nothing is approved");
}

/// A hub that was set back does not know what is assigned, and drops the same each time it is told of it.
#[test]
fn what_is_dropped_while_history_is_broken_is_asked_for_once_that_is_accepted() {
    let mut hub = Hub::with(3);
    hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
    hub.persist();
    let session = begins(&mut hub, 1, SessionName::default()).unwrap();
    hub.shows(target(), unknown(100), Proof::OwnWord);
    let mut seq = 0;
    let mut memory_told = |hub: &mut Hub| {
        seq += 1;
        let report = json!({
            "session": session, "seq": seq, "inSync": true,
            "objects": [{
                "group": "", "kind": "ConfigMap", "namespace": "shop", "name": "lost", "sourceUid": "lost",
                "progress": "Applied", "health": "Ready",
            }],
        });
        let report = link::Request::Reported(Box::new(serde_json::from_value(report).unwrap()));
        let (_, mut answer) = hub.engine.request(hub.now, target(), report);
        match answer.try_recv().unwrap().unwrap() {
            Reply::Core(link::Answer::Reported(answer)) => answer.memory,
            other => panic!("{other:?}"),
        }
    };
    let memory = memory_told(&mut hub);
    for nth in 0..2 {
        hub.delete(nth);
        hub.persist();
        hub.pass(SETTLE);
        assert_eq!(memory_told(&mut hub), memory);
    }
    hub.accept(unknown(100));
    hub.persist();
    assert_eq!(memory_told(&mut hub), memory + 1);
}

/// Whoever has a copy of its home, or its key, is refused a session and shows what this history does not have.
#[test]
fn what_is_shown_by_who_is_refused_a_session_does_not_keep_the_hub_from_asking_the_holder_again() {
    let mut hub = Hub::with_agent();
    let dropped = |seq: u64| {
        let object = json!({
            "group": "", "kind": "ConfigMap", "namespace": "shop", "name": "c3", "sourceUid": "u3",
            "progress": "Applied", "health": "Ready",
        });
        let report = json!({"session": "1.0000000000000000", "seq": seq, "inSync": true, "objects": [object]});
        link::Request::Reported(Box::new(serde_json::from_value(report).unwrap()))
    };
    let memory_told = |hub: &mut Hub, seq| {
        let (_, mut answer) = hub.engine.request(hub.now, target(), dropped(seq));
        match answer.try_recv().unwrap().unwrap() {
            Reply::Core(link::Answer::Reported(answer)) => answer.memory,
            other => panic!("{other:?}"),
        }
    };
    let memory = memory_told(&mut hub, 1);
    let link::Request::Session(request, from) = asks(66) else { unreachable!("it is one") };
    let shown = unknown(7_777);
    let accepted = Some(Attested {
        set: tideline_common::wire::v1::Accepted { version: shown.version, digest: Digest::of(b"set") },
        attestation: tideline_common::Attestation::unsigned(target(), shown),
    });
    let request = SessionRequest { accepted, last: SessionNumber(1), ..*request };
    let (_, mut answer) = hub.engine.request(hub.now, target(), link::Request::Session(Box::new(request), from));
    assert_eq!(answer.try_recv().unwrap().unwrap_err().refusal, RefusalKind::Fenced);
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c3", "namespace": "shop", "uid": "u3"},
    });
    hub.engine.index.apply(&space(), &config_maps(), clean::read(clean::SpaceServer::Embedded, &object).unwrap());
    hub.persist();
    assert_eq!(memory_told(&mut hub, 2), memory + 1);
}
