//! An agent that reads pages as the wire's documentation says, and nothing else.

use super::*;
use crate::ledger::page::Room;

#[derive(Default)]
struct Agent {
    /// The set last accepted.
    accepted: Option<Version>,
    held: BTreeMap<ObjectKey, Arc<tideline_common::Entry>>,
    gathering: Option<Gathering>,
    snapshots: usize,
}

struct Gathering {
    /// The first page's version: where the next delta is to begin.
    first: Version,
    since: Option<Version>,
    after: Option<ObjectKey>,
    pages: usize,
}

const LIMIT: usize = 2;

impl Agent {
    /// Asks for one page. Returns whether what it holds is the whole set now.
    fn poll(&mut self, ledger: &Ledger, nth: u32) -> bool {
        let view = ledger.target(target(nth)).unwrap();
        let (since, after) = match &self.gathering {
            Some(gathering) => (gathering.since, gathering.after.clone()),
            None => (self.accepted, None),
        };
        let Some(page) = view.page(since, after.as_ref(), LIMIT) else {
            self.start_over();
            return false;
        };
        assert_eq!(page.snapshot, since.is_none());
        let removed = page.tombstones.iter().map(|unassigned| &unassigned.tombstone.key);
        let keys: BTreeSet<_> = page.entries.iter().map(|entry| &entry.key).chain(removed).collect();
        assert!(keys.len() <= LIMIT);
        assert!(page.entries.iter().all(|entry| page.policies.contains_key(&entry.policy)));
        let mut gathering = self.gathering.take().unwrap_or_else(|| {
            if since.is_none() {
                self.held.clear();
                self.snapshots += 1;
            }
            Gathering { first: page.at, since, after: None, pages: 0 }
        });
        gathering.pages += 1;
        let PageData { at, point: _, digest, total, snapshot: _, entries, tombstones, policies: _, next } = page;
        for unassigned in tombstones {
            self.held.remove(&unassigned.tombstone.key);
        }
        self.held.extend(entries.into_iter().map(|entry| (entry.key.clone(), entry)));
        if next.is_some() {
            gathering.after = next;
            self.gathering = Some(gathering);
            return false;
        }
        if gathering.pages > 1 {
            // Several pages, each of its own revision: what changed in the meantime is a delta from the first.
            self.gathering = Some(Gathering { first: at, since: Some(gathering.first), after: None, pages: 0 });
            return false;
        }
        let whole: DesiredSet = self.held.values().cloned().collect();
        if whole.digest() != digest || whole.len() != total {
            self.start_over();
            return false;
        }
        self.accepted = Some(at);
        true
    }

    fn start_over(&mut self) {
        self.accepted = None;
        self.gathering = None;
    }

    fn converge(&mut self, ledger: &Ledger, nth: u32) {
        for _ in 0..100 {
            if self.poll(ledger, nth) {
                let held: DesiredSet = self.held.values().cloned().collect();
                assert_eq!(held.digest(), ledger.target(target(nth)).unwrap().digest());
                return;
            }
        }
        panic!("the agent of {nth} has not converged");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn an_agent_that_follows_pages_converges_while_the_set_changes(steps in ops()) {
        let mut kept = Kept::with_targets(TARGETS);
        let mut agents: Vec<Agent> = (0..TARGETS).map(|_| Agent::default()).collect();
        let mut restarts = 0;
        for (step, ops) in steps.iter().enumerate() {
            let changes = ops.iter().flat_map(|op| op.changes(&kept.ledger)).collect();
            kept.change(changes);
            check_sound(&kept.ledger);
            if ops.iter().any(|op| matches!(op, Op::Restart)) {
                kept.restart();
                restarts += 1;
            }
            // Each asks now and then, so that commits fall between its pages.
            for nth in 0..TARGETS {
                if step % (nth as usize + 1) == 0 {
                    agents[nth as usize].poll(&kept.ledger, nth);
                }
            }
        }
        for nth in 0..TARGETS {
            agents[nth as usize].converge(&kept.ledger, nth);
            // Deltas are exact: without a restart, an agent needs its first snapshot, and one for each change of what it
            // understands.
            let upgrade = |op: &&Op| matches!(op, Op::Understands { target, .. } if *target == nth);
            let upgrades = steps.iter().flatten().filter(upgrade).count();
            if restarts == 0 {
                prop_assert!((1..=1 + upgrades).contains(&agents[nth as usize].snapshots));
            }
        }
    }
}

#[test]
fn a_delta_holds_what_changed_and_no_more() {
    let mut kept = Kept::with_targets(2);
    kept.change(vec![assign("a", "w", &[0, 1]), assign("a", "x", &[0, 1]), assign("a", "y", &[0])]);
    let since = kept.version(0);
    kept.change(vec![Change::Assign(Box::new(assigned("a", "x", "a-x", "changed", &[0, 1]))), remove("a", "y")]);
    let page = kept.ledger.target(target(0)).unwrap().page(Some(since), None, 10).unwrap();
    let keys: Vec<_> = page.entries.iter().map(|entry| entry.key.to_string()).collect();
    assert_eq!(keys, ["ConfigMap shop/x"]);
    let policy = PrunePolicy::of(&ApplyPolicy::default());
    let gone = Tombstone { key: config_map("y"), source: "a-y".parse().unwrap() };
    assert_eq!(page.tombstones, [gone.under(policy, page.at.revision)]);
    assert_eq!((page.total, page.snapshot, page.next), (2, false, None));
}

/// Let go of, assigned again before that was confirmed, and unassigned once more: the removal is the same as the first.
#[test]
fn a_delta_tells_of_what_left_again_in_the_same_way() {
    let mut kept = Kept::with_targets(1);
    let mut first = assigned("a", "x", "a-x", "body", &[0]);
    first.variants[0].policy = let_go();
    let again = || Change::Assign(Box::new(first.clone()));
    for _ in 0..2 {
        kept.change(vec![again()]);
        kept.change(vec![remove("a", "x")]);
    }
    kept.change(vec![again()]);
    let since = kept.version(0);
    kept.change(vec![remove("a", "x")]);
    let page = kept.ledger.target(target(0)).unwrap().page(Some(since), None, 10).unwrap();
    let keys: Vec<_> = page.tombstones.iter().map(|gone| gone.tombstone.key.to_string()).collect();
    assert_eq!((keys, page.entries, page.total), (vec!["ConfigMap shop/x".to_owned()], vec![], 0));
}

#[test]
fn a_delta_from_beyond_the_log_or_the_present_is_refused() {
    let mut kept = Kept::with_targets(1);
    kept.change(vec![assign("a", "x", &[0])]);
    let since = kept.version(0);
    kept.change(vec![assign("a", "y", &[0])]);
    let view = kept.ledger.target(target(0)).unwrap();
    assert!(view.page(Some(since), None, 10).is_some());
    let ahead = Version { revision: view.version().revision.next(), ..view.version() };
    assert_eq!(view.page(Some(ahead), None, 10), None);
    kept.ledger = Ledger::load(&kept.records.0, Retention { log_entries: 0, ..Retention::default() }).unwrap();
    let view = kept.ledger.target(target(0)).unwrap();
    assert_eq!(view.page(Some(since), None, 10), None);
    assert_eq!(view.page(Some(view.version()), None, 10).unwrap().entries, []);
}

/// However many they are: each page has as many keys as it may.
#[test]
fn a_snapshot_has_every_unconfirmed_removal_in_the_place_of_its_key() {
    let mut kept = Kept::with_targets(1);
    kept.change(NAMES.iter().map(|name| assign("a", name, &[0])).collect());
    kept.change(vec![remove("a", "x"), remove("a", "z")]);
    let view = kept.ledger.target(target(0)).unwrap();
    let page = |after: Option<&ObjectKey>, limit| {
        let page = view.page(None, after, limit).unwrap();
        let entries = page.entries.iter().map(|entry| entry.key.name.to_string()).collect::<String>();
        let gone = page.tombstones.iter().map(|gone| gone.tombstone.key.name.to_string()).collect::<String>();
        (entries, gone, page.next.map(|key| key.name.to_string()).unwrap_or_default())
    };
    let pages = |limit, afters: &[&str]| -> Vec<_> {
        let after = |name: &&str| Some(config_map(name)).filter(|key| !key.name.is_empty());
        afters.iter().map(|name| page(after(name).as_ref(), limit)).collect()
    };
    let shown = |entries: &str, gone: &str, next: &str| (entries.to_owned(), gone.to_owned(), next.to_owned());
    assert_eq!(pages(2, &["", "x"]), [shown("w", "x", "x"), shown("y", "z", "")]);
    assert_eq!(pages(3, &["", "y"]), [shown("wy", "x", "y"), shown("", "z", "")]);
    assert_eq!(pages(4, &[""]), [shown("wy", "xz", "")]);
}

/// As many policies as entries, each of 60 KiB: with all of them in one page no agent could receive it.
#[test]
fn a_page_has_no_more_than_an_agent_receives_and_at_least_one_entry() {
    let mut kept = Kept::with_targets(1);
    let since = kept.version(0);
    let changes = (0..100).map(|nth| {
        let name = format!("{nth:03}");
        let mut assignment = assigned("a", &name, &name, "1", &[0]);
        let mut policy = ApplyPolicy::default();
        policy.additions.annotations.insert(name, "x".repeat(60 << 10));
        assignment.variants[0].policy = Arc::new(policy);
        Change::Assign(Box::new(assignment))
    });
    kept.change(changes.collect());
    let view = kept.ledger.target(target(0)).unwrap();
    for since in [None, Some(since)] {
        let (mut after, mut told, mut pages) = (None, Vec::new(), 0);
        loop {
            let page = view.page(since, after.as_ref(), 2_000).unwrap();
            let bytes = |value: &dyn Fn() -> serde_json::Result<Vec<u8>>| value().unwrap().len();
            let size = bytes(&|| serde_json::to_vec(&page.entries)) + bytes(&|| serde_json::to_vec(&page.policies));
            assert!(size <= 2 << 20, "{size}");
            told.extend(page.entries.iter().map(|entry| entry.key.name.to_string()));
            pages += 1;
            let Some(next) = page.next else { break };
            assert_eq!(told.last().map(String::as_str), Some(&*next.name));
            after = Some(next);
        }
        assert_eq!(told, (0..100).map(|nth| format!("{nth:03}")).collect::<Vec<_>>());
        assert_eq!(pages, 4);
        let one = view.page_within(since, None, Room { keys: 10, bytes: 0 }).unwrap();
        assert_eq!((one.entries.len(), one.next), (1, Some(config_map("000"))));
    }
}
