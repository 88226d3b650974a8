//! Histories that are not this one.

use tideline_common::{RevisionPoint, Shown};

use super::super::{Absence, Restored, TargetContinuity, Void, restored};
use super::*;

const WHOLE: TargetContinuity = TargetContinuity::Whole { absence: Absence::TakenOut };
const COVERED: TargetContinuity = TargetContinuity::Whole { absence: Absence::Unexplained };
const UNKNOWN: TargetContinuity = TargetContinuity::Broken { recorded: false };
const BROKEN: TargetContinuity = TargetContinuity::Broken { recorded: true };

/// Two targets that have the same, and a copy of the hub's directory from then.
fn copied() -> (Kept, Kept) {
    let mut hub = Kept::default();
    hub.begin_run();
    hub.change(vec![Change::Register(target(0)), Change::Register(target(1)), assign("a", "x", &[0, 1])]);
    hub.change(vec![assign("a", "y", &[0, 1])]);
    let copy = Kept { ledger: hub.ledger.clone(), records: hub.records.clone() };
    (hub, copy)
}

fn shown(hub: &Kept, nth: u32) -> Shown {
    let view = hub.ledger.target(target(nth)).unwrap();
    Shown { version: view.version(), point: view.point() }
}

fn change(change: HistoryChange) -> Vec<Change> {
    vec![Change::History(change)]
}

fn show(nth: u32, shown: Shown, proof: Proof) -> Vec<Change> {
    change(HistoryChange::Shown { target: target(nth), shown, proof })
}

/// By an object of its own.
fn accepts(accepted: Accepted) -> Vec<Change> {
    let object = Uuid::new_v4().to_string().parse().unwrap();
    change(HistoryChange::Accept { object, accepted: Box::new(accepted) })
}

fn acceptance(shown: Vec<(SegmentId, Version)>) -> Vec<Change> {
    let approvals = ["approval".parse().unwrap()].into();
    let accepted = Accepted { shown, restored: None, leaving: [target(1)].into(), approvals };
    accepts(accepted)
}

/// What comes of a change that is said again after a crash, by how many chunks of it were written by then.
fn after_every_crash(kept: &Kept, change: impl Fn() -> Vec<Change>) -> impl Iterator<Item = (usize, Kept)> {
    let batch = kept.ledger.plan(fresh(), change());
    assert!(batch.chunks().len() > 2, "{} chunks", batch.chunks().len());
    for chunk in batch.stages().filter(|stage| stage.len() > 1).flatten() {
        let in_order = ["broken", "leaving/", "released/", "claimed/", "seen/", "void/", "heeded/"];
        let begins = |write: &Write| {
            in_order.iter().any(|kind| write.key.starts_with(format!("{}{kind}", super::super::KEY_PREFIX).as_bytes()))
        };
        assert!(!chunk.iter().any(begins), "it is written in its order");
    }
    (0..=batch.chunks().len()).map(move |written| {
        let mut crashed = Kept { ledger: Ledger::default(), records: kept.records.clone() };
        batch.chunks()[..written].iter().for_each(|chunk| crashed.records.write(chunk));
        crashed.restart();
        crashed.change(change());
        (written, crashed)
    })
}

impl Kept {
    /// A person accepts all that is known to be missing.
    fn accept(&mut self) -> Committed {
        let shown = self.ledger.missing().map(|missing| (missing.shown.point.segment, missing.shown.version)).collect();
        self.accept_only(shown)
    }

    fn accept_only(&mut self, shown: Vec<(SegmentId, Version)>) -> Committed {
        self.change(acceptance(shown))
    }

    fn continuity(&self, nth: u32, shown: Shown) -> TargetContinuity {
        self.ledger.continuity(target(nth), Some(shown))
    }
}

#[test]
fn the_hub_s_own_word_of_a_later_history_concerns_everybody_until_a_person_accepts() {
    let (mut hub, mut copy) = copied();
    let same = shown(&hub, 1);
    hub.change(vec![assign("a", "z", &[0])]);
    let lost = shown(&hub, 0);
    copy.start();
    assert_eq!((copy.continuity(0, lost), copy.continuity(1, same)), (UNKNOWN, WHOLE));

    let committed = copy.change(show(0, lost, Proof::OwnWord));
    assert_eq!(committed.affected, bits(&[0, 1]), "every poll is answered");
    copy.restart();
    assert_eq!((copy.continuity(0, lost), copy.continuity(1, same)), (BROKEN, BROKEN));
    assert_eq!(copy.ledger.continuity(target(1), None), BROKEN, "who knows of nothing is given nothing either");
    let missing: Vec<_> = copy.ledger.missing().collect();
    assert_eq!((missing.len(), missing[0].target, missing[0].after), (1, target(0), Revision(2)));

    let committed = copy.accept();
    assert_eq!(committed.affected, bits(&[0, 1]));
    copy.restart();
    assert_eq!((copy.continuity(0, lost), copy.continuity(1, same)), (COVERED, WHOLE));
    assert!((0..2).all(|nth| copy.version(nth).epoch == Epoch(2)), "every epoch is raised");
    assert_eq!(copy.ledger.missing().count(), 0);
    copy.change(vec![Change::Register(target(2))]);
    assert_eq!(copy.version(2).epoch, Epoch(2), "also of those that come later");
}

/// After a restore every cluster that is ahead shows a segment, one after the other.
#[test]
fn what_more_is_shown_while_the_history_is_broken_concerns_who_shows_it() {
    let (hub, mut copy) = copied();
    let later = |revision| {
        let Shown { version, point } = shown(&hub, 0);
        let segment = SegmentId::from_uuid(Uuid::new_v4());
        let version = Version { revision: Revision(revision), ..version };
        Shown { version, point: RevisionPoint { segment, ..point } }
    };
    let (first, second) = (later(10), later(11));
    let broken = copy.change(show(0, first, Proof::OwnWord));
    assert_eq!((broken.history, broken.affected), (Some(bits(&[0, 1])), bits(&[0, 1])));
    let higher = Shown { version: Version { revision: Revision(12), ..first.version }, ..first };
    for shown in [second, higher] {
        let more = copy.change(show(1, shown, Proof::OwnWord));
        assert_eq!((more.history, more.affected), (Some(bits(&[1])), bits(&[1])));
    }
    let accepted = copy.accept_only(vec![(second.point.segment, second.version)]);
    assert_eq!(accepted.affected, bits(&[0, 1]), "it has another epoch");
    assert_eq!(copy.continuity(0, shown(&copy, 0)), BROKEN, "the first is not covered");
    assert_eq!(copy.accept().affected, bits(&[0, 1]));
    assert_eq!(copy.continuity(0, shown(&copy, 0)), WHOLE);
}

#[test]
fn what_is_only_claimed_concerns_the_one_that_claims_it() {
    let (hub, mut copy) = copied();
    let same = shown(&hub, 1);
    let version = Version { epoch: Epoch(1), revision: Revision(99) };
    let claimed = Shown { version, point: RevisionPoint::NOWHERE };
    copy.start();
    copy.change(show(0, claimed, Proof::Claim));
    assert_eq!((copy.continuity(0, claimed), copy.continuity(1, same)), (BROKEN, WHOLE));
    assert_eq!(copy.continuity(1, claimed), UNKNOWN, "it is claimed for one target");
    copy.accept();
    assert_eq!((copy.continuity(0, claimed), copy.continuity(1, claimed)), (COVERED, UNKNOWN));

    // A claim raises nobody's epoch beyond what is, and one that claims too much helps itself to nothing.
    let version = Version { epoch: Epoch(i64::MAX.unsigned_abs()), revision: Revision(1) };
    let claimed = Shown { version, point: RevisionPoint::NOWHERE };
    copy.change(show(0, claimed, Proof::Claim));
    copy.accept();
    assert_eq!(copy.version(1).epoch, Epoch(3));
    assert_eq!((copy.continuity(0, claimed), copy.continuity(1, shown(&copy, 1))), (BROKEN, WHOLE));
}

#[test]
fn an_accept_covers_what_was_shown_and_seen_and_nothing_after_it() {
    let (mut hub, mut copy) = copied();
    hub.change(vec![assign("a", "z", &[0])]);
    let first = shown(&hub, 0);
    hub.change(vec![assign("a", "z", &[0, 1])]);
    let second = shown(&hub, 1);
    copy.start();
    copy.change(show(0, first, Proof::OwnWord));
    let seen = vec![(first.point.segment, first.version)];
    // Between the look of the person and its word a cluster shows more.
    copy.change(show(1, second, Proof::OwnWord));
    copy.accept_only(seen.clone());
    assert_eq!(copy.continuity(1, second), BROKEN);
    assert_eq!(copy.continuity(0, first), BROKEN, "it concerns everybody");
    copy.accept();
    assert_eq!((copy.continuity(0, first), copy.continuity(1, second)), (COVERED, COVERED));
    let epoch = copy.version(0).epoch;

    // The object that says it is read again at each start.
    copy.accept_only(seen);
    assert_eq!(copy.version(0).epoch, epoch);
    hub.change(vec![assign("a", "z", &[1])]);
    let third = shown(&hub, 0);
    copy.change(show(0, third, Proof::OwnWord));
    assert_eq!(copy.continuity(0, third), BROKEN, "a later break asks again");
}

#[test]
fn an_acceptance_is_heeded_once_whatever_a_target_claims_after_it() {
    let (_, mut copy) = copied();
    copy.start();
    let claimed = |epoch, revision| {
        let version = Version { epoch: Epoch(epoch), revision: Revision(revision) };
        Shown { version, point: RevisionPoint::NOWHERE }
    };
    copy.change(show(0, claimed(1, 10), Proof::Claim));
    let object: Uid = "acceptance".parse().unwrap();
    let told_again = || {
        let accepted =
            Accepted { shown: vec![(RevisionPoint::NOWHERE.segment, claimed(1, 10).version)], ..Accepted::default() };
        change(HistoryChange::Accept { object: object.clone(), accepted: Box::new(accepted) })
    };
    copy.change([told_again(), told_again()].concat());
    assert_eq!(copy.version(1).epoch, Epoch(2));
    assert_eq!(copy.writes(told_again()), 0);

    copy.change(show(0, claimed(1, 9), Proof::Claim));
    copy.restart();
    copy.change(told_again());
    assert_eq!(copy.continuity(0, claimed(1, 9)), BROKEN, "a person has not seen it");
    assert_eq!(copy.version(1).epoch, Epoch(2), "nobody said so");
    // Nor is what is higher in one of the two covered by what is higher in the other.
    copy.accept_only(vec![(RevisionPoint::NOWHERE.segment, Version { epoch: Epoch(2), revision: Revision(8) })]);
    assert_eq!(copy.continuity(0, claimed(1, 9)), BROKEN);

    assert_eq!(copy.ledger.heeded().collect::<Vec<_>>().len(), 2);
    copy.change(change(HistoryChange::AcceptanceGone(object.clone())));
    copy.restart();
    assert!(!copy.ledger.heeded().any(|heeded| *heeded == object), "of what is gone nothing is remembered");
    assert_eq!(copy.writes(change(HistoryChange::AcceptanceGone(object))), 0);
}

#[test]
fn what_was_accepted_is_of_a_lower_epoch() {
    let (mut hub, mut copy) = copied();
    hub.change(vec![assign("a", "z", &[0])]);
    let lost = shown(&hub, 0);
    copy.start();
    copy.change(show(0, lost, Proof::OwnWord));
    copy.accept();
    // The same segment goes on elsewhere, and a person accepts there, too.
    let later = Shown { version: Version { epoch: Epoch(5), ..lost.version }, ..lost };
    assert_eq!(copy.continuity(0, later), UNKNOWN);
    copy.change(show(0, later, Proof::OwnWord));
    assert_eq!(copy.continuity(0, lost), BROKEN);
    copy.accept();
    assert_eq!((copy.continuity(0, later), copy.version(0).epoch), (COVERED, Epoch(6)));
}

#[test]
fn what_was_to_be_removed_before_an_accept_is_told_no_more() {
    let (mut hub, mut copy) = copied();
    hub.change(vec![assign("a", "z", &[0])]);
    let lost = shown(&hub, 0);
    copy.start();
    copy.change(vec![remove("a", "x")]);
    assert_eq!(copy.tombstones(0).len(), 1);
    copy.change(show(0, lost, Proof::OwnWord));
    let batch = {
        let shown = vec![(lost.point.segment, lost.version)];
        let accepted = Accepted { shown, ..Accepted::default() };
        copy.ledger.plan(fresh(), accepts(accepted))
    };
    // A crash before the records of tombstones are gone.
    let mut crashed = copy.records.clone();
    for write in batch.chunks().iter().flatten().filter(|write| write.value.is_some()) {
        crashed.write(std::slice::from_ref(write));
    }
    copy.write(batch);
    assert_eq!(copy.tombstones(0), [""; 0]);
    copy.records = crashed;
    copy.restart();
    assert_eq!(copy.tombstones(0), [""; 0]);
    copy.change(vec![remove("a", "y")]);
    copy.restart();
    assert_eq!(copy.tombstones(0).len(), 1, "what is unassigned after it is told");
}

/// Where something is assigned again it says how that finds the place, and would have what is made once made anew.
#[test]
fn of_what_is_assigned_again_an_accept_keeps_what_was_to_be_removed_unless_it_is_made_once() {
    for (mode, stays) in [(ApplyMode::CreateOnly, 0), (ApplyMode::Continuous, 1)] {
        let (mut hub, mut copy) = copied();
        hub.change(vec![assign("a", "z", &[0])]);
        let lost = shown(&hub, 0);
        copy.start();
        copy.change(vec![assign("a", "w", &[0])]);
        copy.change(vec![remove("a", "w")]);
        let mut assignment = assigned("a", "w", "a-w", "w", &[0]);
        assignment.variants[0].policy = Arc::new(ApplyPolicy { mode, ..ApplyPolicy::default() });
        copy.change(vec![Change::Assign(Box::new(assignment))]);
        copy.change(show(0, lost, Proof::OwnWord));
        assert_eq!(copy.ledger.tombstones.places().len(), 1);
        copy.accept();
        assert_eq!(copy.ledger.tombstones.places().len(), stays);
        copy.restart();
        assert_eq!(copy.ledger.tombstones.places().len(), stays);
    }
}

/// Whether it is to leave service was perhaps taken back by what is lost, and so was what goes with that.
#[test]
fn nothing_goes_from_a_target_whose_leaving_is_unexplained_also_if_that_was_approved_in_advance() {
    let (mut hub, mut copy) = copied();
    let mut assignment = assigned("a", "w", "a-w", "w", &[0, 1]);
    let in_advance =
        ApplyPolicy { approve_deletions: tideline_common::ApproveDeletions::InAdvance, ..ApplyPolicy::default() };
    assignment.variants[0].policy = Arc::new(in_advance);
    copy.change(vec![Change::Assign(Box::new(assignment))]);
    hub.change(vec![assign("a", "z", &[0])]);
    copy.start();
    copy.change(show(0, shown(&hub, 0), Proof::OwnWord));
    copy.accept();
    // It is selected no more, and the other is.
    copy.change(vec![assign("a", "w", &[])]);
    assert_eq!((copy.tombstones(0).len(), copy.tombstones(1).len()), (1, 0));
    assert_eq!(copy.ledger.kept().filter(|source| source.kept().contains(1)).count(), 1);
}

#[test]
fn leaving_service_and_approvals_from_before_an_accept_are_void() {
    let (mut hub, mut copy) = copied();
    hub.change(vec![assign("a", "z", &[0])]);
    copy.start();
    copy.change(show(0, shown(&hub, 0), Proof::OwnWord));
    copy.accept();
    copy.restart();
    let approval: Uid = "approval".parse().unwrap();
    assert_eq!(copy.ledger.void(&approval), Some(&Void::All));
    assert!(copy.ledger.leaving_is_unexplained(target(1)) && !copy.ledger.leaving_is_unexplained(target(0)));
    copy.change(change(HistoryChange::Stays(target(1))));
    copy.change(change(HistoryChange::ApprovalGone(approval.clone())));
    copy.restart();
    assert!(!copy.ledger.leaving_is_unexplained(target(1)));
    assert_eq!(copy.ledger.void(&approval), None);
}

#[test]
fn approvals_from_before_an_accept_are_void_also_after_a_crash_in_the_middle_of_it() {
    const APPROVALS: usize = 250;
    let (mut hub, mut copy) = copied();
    hub.change(vec![assign("a", "z", &[0])]);
    let lost = shown(&hub, 0);
    copy.start();
    copy.change(show(0, lost, Proof::OwnWord));
    let approvals: BTreeSet<Uid> = (0..APPROVALS).map(|nth| format!("approval-{nth}").parse().unwrap()).collect();
    let accept = || {
        let shown = vec![(lost.point.segment, lost.version)];
        let accepted = Box::new(Accepted { shown, approvals: approvals.clone(), ..Accepted::default() });
        change(HistoryChange::Accept { object: "acceptance".parse().unwrap(), accepted })
    };
    for (written, crashed) in after_every_crash(&copy, accept) {
        let void = approvals.iter().filter(|approval| crashed.ledger.void(approval) == Some(&Void::All));
        assert_eq!(void.count(), APPROVALS, "after {written} chunks");
    }
}

#[test]
fn a_restored_store_asks_everybody_to_wait_until_a_person_accepts_that_it_was() {
    let (mut hub, _) = copied();
    hub.change(vec![remove("a", "x")]);
    assert_eq!(hub.tombstones(0).len(), 1);
    // Nobody was told of anything since the backup: no agent can show that the hub was set back.
    let same = shown(&hub, 0);
    let made = Restored { id: "second".to_owned(), made: "yesterday".to_owned() };
    hub.records.write(&[restored(&made)]);
    hub.start();
    assert_eq!((hub.continuity(0, same), hub.ledger.continuity(target(1), None)), (BROKEN, BROKEN));
    assert_eq!(hub.ledger.restored(), Some(&made));

    let of = |id: &str| accepts(Accepted { restored: Some(id.to_owned()), ..Accepted::default() });
    hub.change(of("first"));
    hub.accept_only(Vec::new());
    hub.start();
    assert_eq!(hub.continuity(0, same), BROKEN, "that was not accepted");
    let before = hub.version(0).epoch;
    let committed = hub.change(of("second"));
    assert_eq!(committed.affected, bits(&[0, 1]), "every poll is answered");
    for _ in 0..2 {
        assert_eq!((hub.continuity(0, same), hub.ledger.restored()), (WHOLE, None));
        assert!(hub.version(0).epoch > before && hub.version(1).epoch > before);
        assert_eq!(hub.tombstones(0), [""; 0], "a later history may have taken it back");
        hub.start();
    }
}

#[test]
fn where_something_was_assigned_an_approval_stays_void() {
    let (mut hub, _) = copied();
    let approval: Uid = "approval".parse().unwrap();
    let assigned = |name: &str| HistoryChange::Assigned { approval: approval.clone(), at: [config_map(name)].into() };
    hub.change(change(assigned("x")));
    hub.change(change(assigned("y")));
    assert_eq!(hub.writes(change(assigned("x"))), 0);
    hub.restart();
    let void = hub.ledger.void(&approval).unwrap();
    assert_eq!(["x", "y", "z"].map(|name| void.covers(&config_map(name))), [true, true, false]);
}

#[test]
fn an_agent_that_shows_less_than_before_was_set_back_also_after_a_restart() {
    let (mut hub, _) = copied();
    let former = shown(&hub, 0);
    hub.ledger.confirmed(target(0), former);
    assert!(!hub.ledger.has_shown_later(target(0), former));
    hub.change(vec![assign("a", "z", &[0])]);
    let present = shown(&hub, 0);
    hub.ledger.confirmed(target(0), present);
    hub.ledger.confirmed(target(0), former);
    hub.begin_run();
    hub.restart();
    assert!(hub.ledger.has_shown_later(target(0), former), "though it has shown that one since");
    assert!(!hub.ledger.has_shown_later(target(0), present));
    assert!(!hub.ledger.has_shown_later(target(1), former), "that was another's");
}

#[test]
fn a_run_on_a_copy_that_committed_nothing_leaves_nobody_behind() {
    let (mut hub, mut copy) = copied();
    hub.change(vec![assign("a", "z", &[0])]);
    copy.records = hub.records.clone();
    // The copy starts, and gives the second target's set under the newest revision.
    copy.start();
    let given = shown(&copy, 1);
    assert!(given.version > hub.version(1));
    assert_eq!(hub.continuity(1, given), WHOLE);
    hub.ledger.confirmed(target(1), given);
    assert_eq!(hub.version(1), given.version, "else it would be told of an older one");
}

fn run_once(kind: &GroupKind, name: &str, text: &str, targets: &[u32]) -> Change {
    let mut assigned = assigned("a", name, &format!("a-{name}"), text, targets);
    assigned.key.kind = kind.clone();
    Change::Assign(Box::new(assigned))
}

#[test]
fn what_runs_once_may_have_run_in_the_history_that_is_lost_until_a_person_releases_it() {
    let (job, pod) = (GroupKind::new("batch", "Job"), GroupKind::new("", "Pod"));
    let pod_text = |restart: &str| format!(r#"{{"kind":"Pod","spec":{{"restartPolicy":"{restart}"}}}}"#);
    let mut hub = Kept::default();
    hub.begin_run();
    hub.change(vec![Change::Register(target(0)), Change::Register(target(1)), assign("a", "x", &[0, 1])]);
    hub.change(vec![
        run_once(&job, "ran", "{}", &[0, 1]),
        run_once(&job, "new", "{}", &[0, 1]),
        run_once(&pod, "ends", &pod_text("Never"), &[0]),
        run_once(&pod, "serves", &pod_text("Always"), &[0]),
    ]);
    let key = |kind: &GroupKind, name: &str| ObjectKey { kind: kind.clone(), ..config_map(name) };
    let ran = |nth| happened(nth, &key(&job, "ran"), &"a-ran".parse().unwrap(), Terminal::Finished);
    hub.change(vec![ran(0)]);
    let mut copy = Kept { ledger: hub.ledger.clone(), records: hub.records.clone() };
    hub.change(vec![assign("a", "z", &[0])]);
    copy.start();
    copy.change(show(0, shown(&hub, 0), Proof::OwnWord));
    let facts = |copy: &Kept, nth| {
        let known = [(&job, "ran"), (&job, "new"), (&pod, "ends"), (&pod, "serves")];
        let view = copy.ledger.target(target(nth)).unwrap();
        known.map(|(kind, name)| view.happened(&key(kind, name)).map(|fact| fact.fact))
    };
    let (finished, doubted, released) =
        (Some(Terminal::Finished), Some(Terminal::MayHaveRun), Some(Terminal::Released));
    assert_eq!(facts(&copy, 0), [finished, None, None, None]);
    copy.accept();
    // What is assigned since is known to be new.
    copy.change(vec![run_once(&job, "late", "{}", &[0])]);
    for _ in 0..2 {
        assert_eq!(facts(&copy, 0), [finished, doubted, doubted, None]);
        assert_eq!(facts(&copy, 1), [doubted, doubted, None, None]);
        assert_eq!(copy.ledger.target(target(0)).unwrap().happened(&key(&job, "late")), None);
        check_sound(&copy.ledger);
        copy.restart();
    }
    // Away and back is no word that it has not run.
    copy.change(vec![run_once(&job, "new", "{}", &[1]), run_once(&pod, "ends", &pod_text("Never"), &[])]);
    copy.restart();
    copy.change(vec![run_once(&job, "new", "{}", &[0, 1]), run_once(&pod, "ends", &pod_text("Never"), &[0])]);
    assert_eq!(facts(&copy, 0), [finished, doubted, doubted, None]);
    // The agent knows better, and says so.
    copy.change(vec![ran(1)]);
    let word = || Change::LetRun(target(0), "once".to_owned());
    let before = copy.version(0);
    copy.change(vec![word()]);
    assert!(copy.version(0) > before, "the agent is told");
    copy.restart();
    assert_eq!(facts(&copy, 0), [finished, released, released, None]);
    assert_eq!(facts(&copy, 1), [finished, doubted, None, None], "that is another's");
    // Its agent may have been away, and is to hear of the release whatever happened since.
    copy.change(vec![run_once(&job, "new", "{}", &[1])]);
    copy.restart();
    copy.change(vec![run_once(&job, "new", "{}", &[0, 1])]);
    assert_eq!(facts(&copy, 0), [finished, released, released, None]);
    // History is lost once more: what was released may have run since, and the former words do not release it again.
    let mut again = Kept { ledger: copy.ledger.clone(), records: copy.records.clone() };
    copy.change(vec![assign("a", "y", &[0])]);
    again.start();
    again.change(show(0, shown(&copy, 0), Proof::OwnWord));
    again.accept();
    again.change(vec![word()]);
    assert_eq!(facts(&again, 0), [finished, doubted, doubted, None]);
}

#[test]
fn what_may_have_run_is_doubted_also_after_a_crash_in_the_middle_of_the_acceptance() {
    const JOBS: usize = 250;
    let job = GroupKind::new("batch", "Job");
    let mut hub = Kept::default();
    hub.begin_run();
    hub.change(vec![Change::Register(target(0)), Change::Register(target(1))]);
    hub.change((0..JOBS).map(|nth| run_once(&job, &format!("j{nth:03}"), "{}", &[0])).collect());
    let mut copy = Kept { ledger: hub.ledger.clone(), records: hub.records.clone() };
    hub.change(vec![assign("a", "z", &[0])]);
    copy.start();
    let lost = shown(&hub, 0);
    copy.change(show(0, lost, Proof::OwnWord));
    let accept = || acceptance(vec![(lost.point.segment, lost.version)]);
    for (written, crashed) in after_every_crash(&copy, accept) {
        let doubted = crashed.ledger.target(target(0)).unwrap().facts();
        assert_eq!(doubted.len(), JOBS, "after {written} chunks");
        assert!(doubted.iter().all(|fact| fact.fact == Terminal::MayHaveRun));
    }
}

fn word(nth: u32, text: &str) -> Change {
    Change::LetRun(target(nth), text.to_owned())
}

#[test]
fn what_is_known_of_one_target_is_a_record_of_its_own() {
    const TARGETS: u32 = 2_000;
    let mut hub = Kept::default();
    hub.begin_run();
    hub.change((0..TARGETS).map(|nth| Change::Register(target(nth))).collect());
    let long = "x".repeat(CHUNK_BYTES_MAX);
    let mut changes: Vec<_> = (0..TARGETS).map(|nth| word(nth, &long)).collect();
    let version = Version { epoch: Epoch(1), revision: Revision(99) };
    let claimed = Shown { version, point: RevisionPoint::NOWHERE };
    changes.extend((0..TARGETS).flat_map(|nth| show(nth, claimed, Proof::Claim)));
    hub.change(changes);
    assert!(hub.records.0.values().all(|value| value.len() < 1_000), "none grows with the targets");

    let batch = hub.ledger.plan(fresh(), vec![word(7, "again")]);
    let keys: Vec<_> = batch.chunks().iter().flatten().map(|write| String::from_utf8_lossy(&write.key)).collect();
    assert_eq!(keys, [format!("ledger/released/{}", target(7)), "ledger/head".to_owned()]);
    let committed = hub.ledger.commit(batch).unwrap();
    assert_eq!((committed.affected, committed.history), (bits(&[]), None), "a release is no change of history");

    let committed = hub.change(show(7, Shown { point: shown(&hub, 0).point, ..claimed }, Proof::Claim));
    assert_eq!((committed.affected, committed.history), (bits(&[7]), Some(bits(&[7]))));
}

#[test]
fn what_an_older_hub_kept_in_one_record_is_read_and_divided() {
    let (mut hub, mut copy) = copied();
    hub.change(vec![assign("a", "z", &[0])]);
    let lost = shown(&hub, 0);
    copy.start();
    copy.change(show(0, lost, Proof::OwnWord));
    let claimed = Shown { point: RevisionPoint::NOWHERE, ..lost };
    copy.change(show(1, claimed, Proof::Claim));
    copy.accept();
    copy.change(vec![word(0, "once")]);
    let divided = copy.records.clone();
    // As it was written then.
    let json = |key: &str| {
        let value = &divided.0[format!("ledger/{key}").as_bytes()];
        serde_json::from_slice::<serde_json::Value>(value).unwrap()
    };
    let (segment, zeroth, first) = (lost.point.segment.to_string(), target(0).to_string(), target(1).to_string());
    let mut whole = json("broken");
    whole["seen"][&segment] = json(&format!("seen/{segment}"));
    whole["claims"][&first] = json(&format!("claimed/{first}"));
    whole["leaving"] = serde_json::json!([first]);
    whole["released"][&zeroth] = "once".into();
    whole["acceptedRestore"] = serde_json::Value::Null;
    let kinds = [&b"ledger/seen/"[..], b"ledger/claimed/", b"ledger/leaving/", b"ledger/released/"];
    copy.records.0.retain(|key, _| !kinds.iter().any(|kind| key.starts_with(kind)));
    copy.records.0.insert(b"ledger/broken".to_vec(), whole.to_string().into_bytes());

    let known = copy.ledger.broken.clone();
    copy.restart();
    assert!(copy.ledger.broken != known, "it is to be divided");
    assert_eq!((copy.continuity(0, lost), copy.continuity(1, claimed)), (COVERED, COVERED));
    copy.begin_run();
    assert_eq!(copy.ledger.broken, known);
    copy.restart();
    assert_eq!(copy.ledger.broken, known);
    let of_it = |records: &Records| {
        let kept = records.0.iter().filter(|(key, _)| kinds.iter().any(|kind| key.starts_with(kind)));
        kept.map(|(key, value)| (key.clone(), value.clone())).collect::<Vec<_>>()
    };
    assert_eq!(of_it(&copy.records), of_it(&divided));
    assert_eq!(copy.writes(vec![word(0, "once")]), 0, "these words were heard");
}

#[test]
fn an_acceptance_that_is_cut_is_given_again_whole() {
    const TARGETS: u32 = 250;
    let mut hub = Kept::default();
    hub.begin_run();
    hub.change((0..TARGETS).map(|nth| Change::Register(target(nth))).collect());
    let version = Version { epoch: Epoch(1), revision: Revision(99) };
    let claimed = Shown { version, point: RevisionPoint::NOWHERE };
    hub.change((0..TARGETS).flat_map(|nth| show(nth, claimed, Proof::Claim)).collect());
    let accept = || acceptance(vec![(claimed.point.segment, version)]);
    for (written, mut crashed) in after_every_crash(&hub, accept) {
        crashed.restart();
        let all = (0..TARGETS).all(|nth| crashed.continuity(nth, claimed) == COVERED);
        assert!(all && crashed.ledger.leaving_is_unexplained(target(1)), "after {written} chunks");
        assert!(crashed.ledger.void(&"approval".parse().unwrap()).is_some(), "after {written} chunks");
    }
}
