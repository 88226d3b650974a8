use super::*;
use crate::core::model::change::Change;
use crate::core::tests::hub::Hub;
use crate::core::tests::{Random, attestation, entry, key, policies, uid};

use tideline_common::wire::v1::{ApprovedHeld, Continuity, DesiredAnswer, DesiredRequest};
use tideline_common::{Epoch, PrunePolicy, Revision, SessionName};

/// Gathers from a hub that changes between pages, and checks that the result is the hub's set.
struct Agent {
    accepted: Option<Accepted>,
    desired: DesiredSet,
    policies: BTreeMap<Digest, Arc<ApplyPolicy>>,
}

impl Agent {
    fn gather(&mut self, hub: &mut Hub, mut between: impl FnMut(&mut Hub)) {
        let mut gather = match self.accepted {
            Some(accepted) => Gather::changes(accepted, &self.desired),
            None => Gather::everything(Absence::Removal),
        };
        for _ in 0..1_000 {
            let Question { since, digest, after } = gather.question();
            let request = DesiredRequest {
                session: SessionName::new(1, 1),
                since,
                digest,
                after,
                wait_seconds: 0,
                approved: ApprovedHeld::default(),
                decommission: Decommission::No,
                shown: None,
                history: Continuity::Whole,
                stands: None,
            };
            let last = LastAccepted {
                accepted: self.accepted,
                floor: self.accepted,
                decommission: Decommission::No,
                desired: &self.desired,
                policies: &self.policies,
            };
            let step = match hub.desired(&request) {
                DesiredAnswer::NothingNew => gather.nothing_new(&last),
                DesiredAnswer::Page(page) => gather.page(page, &last),
                DesiredAnswer::SnapshotRequired { .. }
                | DesiredAnswer::Approved(_)
                | DesiredAnswer::Broken
                | DesiredAnswer::ReportAgain
                | DesiredAnswer::Unknown => panic!("the hub has it all"),
            };
            match step {
                Step::Ask => between(hub),
                Step::NothingNew => return,
                Step::Complete(change) => return self.accept(*change),
                Step::Again(error) | Step::Refuse(error) => panic!("{error:?}"),
            }
        }
        panic!("it never ends");
    }

    fn accept(&mut self, change: Change) {
        for key in &change.remove {
            assert!(self.desired.remove(key).is_some(), "only what differs is removed");
        }
        for entry in change.put {
            assert_ne!(self.desired.get(&entry.key), Some(&entry), "only what differs is put");
            self.desired.insert(entry);
        }
        self.policies.extend(change.policies);
        self.accepted = Some(change.accepted.set);
        assert_eq!(self.desired.digest(), change.accepted.set.digest);
    }
}

fn change(hub: &mut Hub, random: &mut Random) {
    let key = key("", "ConfigMap", &format!("c{}", random.below(30)));
    if random.chance(60) {
        hub.put(&key, random.below(2) as u64, random.below(9) as u64);
    } else {
        hub.remove(&key);
    }
}

#[test]
fn the_gathered_set_equals_the_hubs_however_it_changes_between_pages() {
    for seed in 0..500 {
        let mut random = Random(seed);
        let mut hub = Hub::with_pages_of(1 + random.below(5));
        let mut agent = Agent { accepted: None, desired: DesiredSet::default(), policies: BTreeMap::new() };
        for _ in 0..5 {
            for _ in 0..random.below(20) {
                change(&mut hub, &mut random);
            }
            let mut changes = random.below(20);
            agent.gather(&mut hub, |hub| {
                if changes > 0 && random.chance(50) {
                    changes -= 1;
                    change(hub, &mut random);
                }
            });
            agent.gather(&mut hub, |_| {});
            assert_eq!(agent.desired.digest(), hub.desired.digest(), "seed {seed}");
            assert_eq!(agent.accepted.map(|accepted| accepted.version), Some(hub.version()), "seed {seed}");
        }
    }
}

#[test]
fn a_removed_or_replaced_entry_is_authorised_by_absence_within_its_epoch_only() {
    let a = key("", "ConfigMap", "a");
    let accepted_set: DesiredSet = [Arc::new(entry(&a, 1, 1))].into_iter().collect();
    let version = |epoch| Version { epoch: Epoch(epoch), revision: Revision(5) };
    let accepted = Accepted { version: Version { revision: Revision(4), ..version(1) }, digest: accepted_set.digest() };
    let known = policies();
    let gathered = |epoch, entries: &[Arc<Entry>]| {
        let last = LastAccepted {
            accepted: Some(accepted),
            floor: Some(accepted),
            decommission: Decommission::No,
            desired: &accepted_set,
            policies: &known,
        };
        match Gather::everything(Absence::Removal).page(snapshot(version(epoch), entries), &last) {
            Step::Complete(change) => (change.remove.len(), change.put.len(), change.tombstones),
            other => panic!("{other:?}"),
        }
    };
    let former = || {
        let last = PrunePolicy::of(&ApplyPolicy::default());
        BTreeMap::from([(Tombstone { key: a.clone(), source: uid("s1") }, RemovalPolicy::Absence(Some(last)))])
    };
    assert_eq!(gathered(1, &[]), (1, 0, former()));
    assert_eq!(gathered(2, &[]), (1, 0, BTreeMap::new()));
    let another = [Arc::new(entry(&a, 2, 1))];
    assert_eq!(gathered(1, &another), (0, 1, former()));
    assert_eq!(gathered(2, &another), (0, 1, BTreeMap::new()));
    assert_eq!(gathered(1, &[Arc::new(entry(&a, 1, 2))]), (0, 1, BTreeMap::new()), "it is changed");
}

/// Any page says it for the whole set.
#[test]
fn a_page_that_calls_absence_unexplained_lets_nothing_follow_from_it_within_the_epoch() {
    let [a, b] = ["a", "b"].map(|name| key("", "ConfigMap", name));
    let accepted_set: DesiredSet = [&a, &b].map(|key| Arc::new(entry(key, 1, 1))).into_iter().collect();
    let version = |revision| Version { epoch: Epoch(1), revision: Revision(revision) };
    let accepted = Accepted { version: version(4), digest: accepted_set.digest() };
    let known = policies();
    let last = LastAccepted {
        accepted: Some(accepted),
        floor: Some(accepted),
        decommission: Decommission::No,
        desired: &accepted_set,
        policies: &known,
    };
    // The first is gone, and the second is another source's by now.
    let set = [Arc::new(entry(&b, 2, 1))];
    let removals = |first: bool, second: bool| {
        let mut gather = Gather::everything(Absence::Removal);
        let page = DesiredPage { absence_unexplained: first, next: Some(b.clone()), ..snapshot(version(5), &set) };
        assert!(matches!(gather.page(page, &last), Step::Ask));
        let page = DesiredPage { absence_unexplained: second, entries: Vec::new(), ..snapshot(version(5), &set) };
        let Step::Ask = gather.page(page, &last) else { panic!("what changed since the first page is asked for") };
        match gather.nothing_new(&last) {
            Step::Complete(change) => {
                assert_eq!((change.remove.len(), change.put.len()), (1, 1), "the set is taken as it is");
                change.tombstones.len()
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(removals(false, false), 2);
    assert_eq!([removals(true, true), removals(true, false), removals(false, true)], [0, 0, 0]);
}

#[test]
fn an_older_set_or_one_of_another_history_is_refused() {
    let known = policies();
    let set = DesiredSet::default();
    let version = |epoch, revision| Version { epoch: Epoch(epoch), revision: Revision(revision) };
    let accepted = Accepted { version: version(2, 5), digest: set.digest() };
    let last = LastAccepted {
        accepted: Some(accepted),
        floor: Some(accepted),
        decommission: Decommission::No,
        desired: &set,
        policies: &known,
    };
    let other = Arc::new(entry(&key("", "ConfigMap", "a"), 1, 1));
    let answer = |version, entries: &[Arc<Entry>]| match Gather::everything(Absence::Removal)
        .page(snapshot(version, entries), &last)
    {
        Step::Refuse(error) | Step::Again(error) => Some(error),
        Step::Ask | Step::Complete(_) | Step::NothingNew => None,
    };
    assert_eq!(answer(version(2, 4), &[]), Some(SyncError::Older));
    assert_eq!(answer(version(1, 9), &[]), Some(SyncError::Older));
    assert_eq!(answer(version(2, 5), std::slice::from_ref(&other)), Some(SyncError::OtherHistory));
    assert_eq!(answer(version(2, 6), &[other]), None);
}

#[test]
fn a_set_that_is_not_what_its_digest_says_is_asked_for_again() {
    let (set, known) = (DesiredSet::default(), policies());
    let last =
        LastAccepted { accepted: None, floor: None, decommission: Decommission::No, desired: &set, policies: &known };
    let all = [1, 2].map(|n| Arc::new(entry(&key("", "ConfigMap", &format!("c{n}")), 1, 1)));
    let mut page = snapshot(Version::default(), &all);
    page.entries.pop();
    assert!(matches!(Gather::everything(Absence::Removal).page(page, &last), Step::Again(SyncError::Incomplete)));
}

fn snapshot(at: Version, entries: &[Arc<Entry>]) -> DesiredPage {
    let set: DesiredSet = entries.iter().cloned().collect();
    DesiredPage {
        at,
        attestation: attestation(at),
        digest: set.digest(),
        total: entries.len() as u64,
        snapshot: true,
        entries: entries.to_vec(),
        tombstones: Vec::new(),
        policies: BTreeMap::new(),
        terminal: Vec::new(),
        next: None,
        decommission: Decommission::No,
        absence_unexplained: false,
    }
}
