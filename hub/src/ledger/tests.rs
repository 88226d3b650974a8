use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use roaring::RoaringBitmap;
use tideline_common::wire::v1::{Terminal, TerminalFact};
use tideline_common::{
    ApplyMode, ApplyPolicy, Capabilities, Capability, DesiredSet, EntryState, Epoch, Gate, GroupKind, Monotonic,
    ObjectKey, Prune, PrunePolicy, Reason, Revision, RevisionId, SegmentId, SourceRef, TargetId, Tombstone, Uid,
    Version, needs,
};
use uuid::Uuid;

use super::happened::{DEPARTED_MAX, Happened, outlives_assignment};
use super::{CHUNK_BYTES_MAX, CHUNK_OPS_MAX, Committed, Error, Fresh, Ledger, PageData, Retention, Write};
use crate::clean::Input;
use crate::history_change::{Accepted, HistoryChange, Proof};
use crate::placement::{Assignment, Change, GroupResource, PlacementId, SourceId, Variant};

mod agent;
mod bounds;
mod broken;
mod capabilities;
mod conflicts;
mod history;
mod kept;
mod last_word;
mod mapping;
mod records;
mod tombstones;

/// The records of a ledger as a store holds them.
#[derive(Clone, Debug, Default)]
struct Records(BTreeMap<Vec<u8>, Vec<u8>>);

impl Records {
    fn write(&mut self, writes: &[Write]) {
        let keys: BTreeSet<_> = writes.iter().map(|write| &write.key).collect();
        assert_eq!(keys.len(), writes.len(), "a store takes no two writes of one key");
        for Write { key, value } in writes {
            match value {
                Some(value) => self.0.insert(key.clone(), value.clone()),
                None => self.0.remove(key),
            };
        }
    }

    fn load(&self) -> Ledger {
        Ledger::load(&self.0, Retention::default()).unwrap()
    }
}

/// Never the same ids.
fn fresh() -> Fresh {
    let (revision, segment) = (RevisionId::from_uuid(Uuid::new_v4()), SegmentId::from_uuid(Uuid::new_v4()));
    Fresh { now: Monotonic::from_millis(0), revision, segment }
}

/// A ledger with its records, as the hub has it.
#[derive(Default)]
struct Kept {
    ledger: Ledger,
    records: Records,
}

impl Kept {
    fn with_targets(count: u32) -> Self {
        let mut kept = Self::default();
        kept.change((0..count).map(|nth| Change::Register(target(nth))).collect());
        kept
    }

    fn change(&mut self, changes: Vec<Change>) -> Committed {
        let batch = self.ledger.plan(fresh(), changes);
        for chunk in batch.chunks() {
            assert!(chunk.len() <= CHUNK_OPS_MAX);
            let size = |write: &Write| write.key.len() + write.value.as_ref().map_or(0, Vec::len);
            assert!(chunk.iter().map(size).sum::<usize>() <= CHUNK_BYTES_MAX);
            let keys: BTreeSet<_> = chunk.iter().map(|write| &write.key).collect();
            assert_eq!(keys.len(), chunk.len(), "a store commit names a key once");
            self.records.write(chunk);
        }
        self.ledger.commit(batch).unwrap()
    }

    fn restart(&mut self) {
        self.ledger = self.records.load();
    }

    fn writes(&self, changes: Vec<Change>) -> usize {
        self.ledger.plan(fresh(), changes).chunks().iter().map(Vec::len).sum()
    }

    fn keys(&self, nth: u32) -> Vec<String> {
        let view = self.ledger.target(target(nth)).unwrap();
        let mut keys: Vec<_> =
            view.entries().map(|entry| format!("{} from {}", entry.key, entry.source.space)).collect();
        keys.sort();
        keys
    }

    fn tombstones(&self, nth: u32) -> Vec<String> {
        let view = self.ledger.target(target(nth)).unwrap();
        view.tombstones().map(|gone| format!("{} of {}", gone.tombstone.key, gone.tombstone.source)).collect()
    }

    fn version(&self, nth: u32) -> Version {
        self.ledger.target(target(nth)).unwrap().version()
    }
}

fn target(nth: u32) -> TargetId {
    format!("00000000-0000-4000-8000-{nth:012}").parse().unwrap()
}

fn bits(targets: &[u32]) -> RoaringBitmap {
    targets.iter().copied().collect()
}

fn config_map(name: &str) -> ObjectKey {
    ObjectKey::new(GroupKind::new("", "ConfigMap"), "shop", name)
}

fn id(space: &str, uid: &str) -> SourceId {
    let resource = GroupResource::new("", "configmaps");
    SourceId { space: space.parse().unwrap(), resource, uid: uid.parse().unwrap() }
}

/// A source of `space` with its name for a UID, unless it says otherwise.
fn assigned(space: &str, name: &str, uid: &str, body: &str, targets: &[u32]) -> Assignment {
    let key = config_map(name);
    Assignment {
        id: id(space, uid),
        source: SourceRef {
            space: space.parse().unwrap(),
            uid: uid.parse().unwrap(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
        },
        key,
        version: "v1".into(),
        generation: 0,
        wave: 0,
        impersonate: None,
        variants: vec![variant(body, false, targets)],
    }
}

fn variant(body: &str, implied: bool, targets: &[u32]) -> Variant {
    let prune = if implied { Prune::Orphan } else { Prune::Delete };
    let policy = Arc::new(ApplyPolicy { prune, ..ApplyPolicy::default() });
    Variant { destination: None, policy, input: Input::new(body), implied, targets: bits(targets) }
}

fn let_go() -> Arc<ApplyPolicy> {
    Arc::new(ApplyPolicy { prune: Prune::Orphan, ..ApplyPolicy::default() })
}

fn assign(space: &str, name: &str, targets: &[u32]) -> Change {
    Change::Assign(Box::new(assigned(space, name, &format!("{space}-{name}"), name, targets)))
}

fn gated() -> Arc<ApplyPolicy> {
    let gate = Gate { placement: "a/one".to_owned(), deadline_seconds: 60 };
    Arc::new(ApplyPolicy { gates: vec![gate], ..ApplyPolicy::default() })
}

fn once() -> Arc<ApplyPolicy> {
    Arc::new(ApplyPolicy { mode: ApplyMode::CreateOnly, ..ApplyPolicy::default() })
}

/// The agent of a target understands all but this.
fn understands(nth: u32, lacks: &[Capability]) -> Change {
    let understands = lacks.iter().fold(Capabilities::all(), |all, lacked| all.without(*lacked));
    Change::Understands(target(nth), understands)
}

fn happened(nth: u32, key: &ObjectKey, source: &Uid, fact: Terminal) -> Change {
    Change::Happened(target(nth), TerminalFact { key: key.clone(), source_uid: source.clone(), fact })
}

fn remove(space: &str, name: &str) -> Change {
    Change::Remove(id(space, &format!("{space}-{name}")))
}

/// Whatever else is checked, this holds of every ledger.
fn check_sound(ledger: &Ledger) {
    for (target, index) in ledger.targets() {
        let view = ledger.target(target).unwrap();
        let set: DesiredSet = view.entries().cloned().collect();
        assert_eq!(set.len(), view.len());
        assert_eq!(set.digest(), view.digest(), "the incremental digest is that of the set");
        for (key, entry) in set.iter() {
            assert_eq!(view.entry(key), Some(entry));
            let lacks: BTreeSet<_> = Capability::ALL.iter().copied().filter(|it| !view.understands(*it)).collect();
            let (_, policy) = view.entries_with_policies().find(|(other, _)| other.key == *key).unwrap();
            assert!(needs(entry, policy).is_disjoint(&lacks), "{entry:?} is told to one that lacks {lacks:?}");
            if entry.state == EntryState::Withheld(Reason::AgentTooOld) {
                assert_eq!(view.body(key, entry.input), None, "of what is withheld nothing is given");
                continue;
            }
            let body = view.body(key, entry.input).expect("every entry's body is held");
            assert_eq!(Input::new(body.text.clone()).digest, entry.input);
        }
        let too_old = |entry: &&Arc<tideline_common::Entry>| entry.state == EntryState::Withheld(Reason::AgentTooOld);
        assert_eq!(view.too_old_for().0, view.entries().filter(too_old).count());
        for (key, by_source) in &ledger.happened {
            let held = view.source(key).map(|source| &source.id().uid);
            let known = |(source, happened): (&Uid, &Happened)| {
                let lasts = happened.at(index).is_none_or(outlives_assignment);
                let left = ledger.tombstones.get(key, source).is_some_and(|tombstones| tombstones.at(index).is_some());
                !lasts && left && Some(source) != held
            };
            assert!(!by_source.iter().any(known), "of what has left is known alone that it ran, or may have");
        }
        for tombstone in view.tombstones() {
            assert_eq!(set.get(&tombstone.tombstone.key), None, "nothing is both assigned and to be removed");
        }
        for (key, by_source) in ledger.tombstones.places() {
            let here = by_source.values().filter(|tombstones| tombstones.at(index).is_some()).count();
            assert!(here <= 1, "{key}: a target has one tombstone for a place");
        }
        for source in ledger.sources() {
            assert!(!(source.waiting().contains(index) && source.held().contains(index)));
        }
    }
}

#[test]
fn one_change_on_ten_thousand_targets_is_a_handful_of_writes() {
    let mut kept = Kept::with_targets(10_000);
    let all: Vec<u32> = (0..10_000).collect();
    kept.change(vec![assign("a", "x", &all)]);
    let changed = assigned("a", "x", "a-x", "another body", &all);
    // The revision's id, source, new body, old body, head.
    assert_eq!(kept.writes(vec![Change::Assign(Box::new(changed.clone()))]), 5);
    let committed = kept.change(vec![Change::Assign(Box::new(changed))]);
    assert_eq!(committed.affected.len(), 10_000);
    assert_eq!(kept.version(7), Version { epoch: Epoch(1), revision: committed.revision });
}

#[test]
fn what_does_not_change_is_not_written() {
    let mut kept = Kept::with_targets(2);
    kept.change(vec![assign("a", "x", &[0, 1])]);
    assert_eq!(kept.writes(vec![assign("a", "x", &[0, 1])]), 0);
    assert_eq!(kept.writes(vec![remove("a", "y"), Change::Register(target(1))]), 0);
    kept.restart();
    assert_eq!(kept.writes(vec![assign("a", "x", &[0, 1])]), 0);
}

#[test]
fn a_change_touches_only_the_targets_it_concerns() {
    let mut kept = Kept::with_targets(3);
    kept.change(vec![assign("a", "x", &[0, 1])]);
    let before = kept.version(2);
    let committed = kept.change(vec![assign("a", "y", &[1])]);
    assert_eq!(committed.affected, bits(&[1]));
    assert_eq!(kept.version(0).revision, Revision(1));
    assert_eq!(kept.version(1).revision, Revision(2));
    assert_eq!(kept.version(2), before);
}

#[test]
fn what_was_created_once_is_known_while_it_is_assigned_and_what_ran_for_good() {
    let mut kept = Kept::with_targets(3);
    kept.change(vec![assign("a", "x", &[0, 1, 2]), assign("b", "x", &[2])]);
    let (key, version) = (config_map("x"), kept.version(0));
    let told = |nth, source: &str, fact| happened(nth, &key, &source.parse().unwrap(), fact);
    let known = |kept: &Kept| {
        let facts = (0..3).map(|nth| kept.ledger.target(target(nth))?.happened(&config_map("x")));
        facts.map(|fact| fact.map(|fact| fact.fact)).collect::<Vec<_>>()
    };
    let (created, finished) = (Some(Terminal::CreatedOnce), Some(Terminal::Finished));
    kept.change((0..3).map(|nth| told(nth, "a-x", Terminal::CreatedOnce)).collect());
    kept.change(vec![told(1, "a-x", Terminal::Finished)]);
    kept.restart();
    assert_eq!(known(&kept), [created, finished, created]);
    assert!(kept.version(0) > version, "it is in the history of both sides");
    let again = [
        (1, "a-x", Terminal::Finished),
        // What finished has finished, whatever comes late.
        (1, "a-x", Terminal::CreatedOnce),
        (1, "b-x", Terminal::Finished),
        (0, "a-x", Terminal::Unknown),
    ];
    assert_eq!(kept.writes(again.map(|(nth, source, fact)| told(nth, source, fact)).to_vec()), 0);

    // Changed, it is the same source; what was made is not made any more where it is not assigned, and what ran has run.
    let changed = assigned("a", "x", "a-x", "another body", &[0, 1, 2]);
    kept.change(vec![Change::Assign(Box::new(changed))]);
    assert_eq!(known(&kept), [created, finished, created]);
    kept.change(vec![assign("a", "x", &[1])]);
    assert_eq!(known(&kept), [None, finished, None]);
    kept.change(vec![assign("a", "x", &[0, 1, 2])]);
    kept.restart();
    assert_eq!(known(&kept), [None, finished, None]);
    kept.change(vec![remove("a", "x")]);
    kept.restart();
    check_sound(&kept.ledger);
    kept.change(vec![remove("b", "x")]);
    assert_eq!(known(&kept), [None, None, None]);
    kept.change(vec![assign("a", "x", &[0, 1, 2])]);
    assert_eq!(known(&kept), [None, finished, None], "it is the same that ran there");
    assert_eq!(kept.ledger.departed.len(), 0);
    kept.change(vec![Change::Forget(target(1))]);
    kept.restart();
    assert_eq!(kept.ledger.happened.len(), 0);
}

#[test]
fn a_target_that_goes_is_not_written_out_of_all_that_ran_elsewhere_too() {
    const JOBS: usize = 50;
    let mut kept = Kept::with_targets(3);
    let names: Vec<_> = (0..JOBS).map(|nth| format!("x{nth:02}")).collect();
    let ran =
        |nth, name: &str| happened(nth, &config_map(name), &format!("a-{name}").parse().unwrap(), Terminal::Finished);
    kept.change(names.iter().map(|name| assign("a", name, &[0, 1])).collect());
    kept.change(names.iter().flat_map(|name| [ran(0, name), ran(1, name)]).collect());
    kept.change(vec![assign("a", "alone", &[1])]);
    kept.change(vec![ran(1, "alone"), assign("a", "alone", &[])]);
    kept.change(names.iter().map(|name| remove("a", name)).collect());
    let gone: Vec<_> = (0..2).flat_map(|target| Op::Confirm { target }.changes(&kept.ledger)).collect();
    kept.change(gone);
    // What ran there alone, the target, and the head.
    assert_eq!(kept.writes(vec![Change::Forget(target(1))]), 3);
    kept.change(vec![Change::Forget(target(1)), Change::Register(target(3))]);
    for _ in 0..2 {
        let facts = |nth| kept.ledger.target(target(nth)).unwrap().facts().len();
        assert_eq!([0, 2, 3].map(facts), [JOBS, 0, 0]);
        assert_eq!((kept.ledger.departed.len(), kept.ledger.garbage.len()), (JOBS, 0));
        kept.restart();
    }
}

#[test]
fn what_ran_is_known_though_nobody_said_so_before_it_left() {
    let mut kept = Kept::with_targets(2);
    kept.change(vec![assign("a", "x", &[0, 1])]);
    kept.change(vec![remove("a", "x")]);
    let (key, source, left) = (config_map("x"), "a-x".parse::<Uid>().unwrap(), kept.version(0));
    let told = |fact| happened(0, &key, &source, fact);
    assert_eq!(kept.writes(vec![told(Terminal::CreatedOnce)]), 0, "it is to be made again");
    // As a report says it, and confirms the removal.
    let tombstone = Tombstone { key: key.clone(), source: source.clone() };
    kept.change(vec![told(Terminal::Finished), Change::Confirm(target(0), left, tombstone)]);
    assert!(kept.version(0) > left, "it is in the history of both sides");
    let departed = (left.revision, key.clone(), source.clone());
    for _ in 0..2 {
        assert!(kept.ledger.departed.keys().eq([&departed]));
        check_sound(&kept.ledger);
        kept.restart();
    }
    assert_eq!(kept.writes(vec![told(Terminal::Finished)]), 0, "it is known, and has left for good");
    kept.change(vec![assign("a", "x", &[0, 1])]);
    let known = |nth| kept.ledger.target(target(nth)).unwrap().happened(&key).map(|fact| fact.fact);
    assert_eq!((known(0), known(1)), (Some(Terminal::Finished), None));
}

#[test]
fn what_is_inherited_says_nothing_new_of_what_is_known_however_often_it_is_said() {
    let mut kept = Kept::with_targets(1);
    let names = ["finished", "finished later", "assigned later", "new"];
    let inherited = |fact, names: &[&str]| {
        let fact = |name: &&str| TerminalFact {
            key: config_map(name),
            source_uid: format!("a-{name}").parse().unwrap(),
            fact,
        };
        vec![Change::Inherit(target(0), names.iter().map(fact).collect())]
    };
    kept.change(names.iter().filter(|name| **name != "assigned later").map(|name| assign("a", name, &[0])).collect());
    kept.change(inherited(Terminal::MayHaveRun, &names));
    kept.change(vec![
        happened(0, &config_map("finished"), &"a-finished".parse().unwrap(), Terminal::Finished),
        Change::LetRun(target(0), "once".to_owned()),
        assign("a", "assigned later", &[0]),
    ]);
    kept.change(inherited(Terminal::Finished, &["finished later"]));
    for _ in 0..2 {
        kept.change(inherited(Terminal::MayHaveRun, &names));
        let view = kept.ledger.target(target(0)).unwrap();
        let facts: Vec<_> = names.iter().map(|name| view.happened(&config_map(name)).unwrap().fact).collect();
        // A release is of what was assigned by then, as people were shown.
        let later = Terminal::MayHaveRun;
        assert_eq!(facts, [Terminal::Finished, Terminal::Finished, later, Terminal::Released]);
        check_sound(&kept.ledger);
        kept.restart();
    }
    // What was created once at the former target, and left this one, is made when it is assigned again.
    let made = || inherited(Terminal::CreatedOnce, &["made"]);
    kept.change(vec![assign("a", "made", &[0])]);
    kept.change(made());
    kept.change(vec![remove("a", "made")]);
    kept.restart();
    assert_eq!(kept.writes(made()), 0);
    kept.change(vec![assign("a", "made", &[0])]);
    assert_eq!(kept.ledger.target(target(0)).unwrap().happened(&config_map("made")), None);
}

/// Placement assigns nothing to a target before it is registered, and it inherits with that.
#[test]
fn what_was_created_once_at_the_former_target_is_known_when_it_is_assigned_to_its_heir() {
    let (key, source) = (config_map("made"), "a-made".parse::<Uid>().unwrap());
    let fact = TerminalFact { key: key.clone(), source_uid: source.clone(), fact: Terminal::CreatedOnce };
    let mut kept = Kept::with_targets(0);
    kept.change(vec![Change::Register(target(0)), Change::Inherit(target(0), vec![fact.clone()])]);
    check_sound(&kept.ledger);
    kept.restart();
    kept.change(vec![assign("a", "made", &[0])]);
    let known = |kept: &Kept| kept.ledger.target(target(0)).unwrap().happened(&key);
    for _ in 0..2 {
        assert_eq!(known(&kept), Some(fact.clone()));
        check_sound(&kept.ledger);
        kept.restart();
    }
    kept.change(vec![remove("a", "made")]);
    kept.change(vec![assign("a", "made", &[0])]);
    assert_eq!(known(&kept), None, "it left its heir, and begins anew");
}

#[test]
fn what_was_created_once_begins_anew_where_its_agent_removed_it_before_it_was_assigned() {
    let (key, source) = (config_map("made"), "a-made".parse::<Uid>().unwrap());
    let fact = TerminalFact { key: key.clone(), source_uid: source.clone(), fact: Terminal::CreatedOnce };
    let mut kept = Kept::with_targets(0);
    kept.change(vec![Change::Register(target(0)), Change::Inherit(target(0), vec![fact])]);
    let removed = Tombstone { key: key.clone(), source };
    kept.change(vec![Change::Confirm(target(0), kept.version(0), removed)]);
    kept.change(vec![assign("a", "made", &[0])]);
    assert_eq!(kept.ledger.target(target(0)).unwrap().happened(&key), None);
}

#[test]
fn what_counts_most_of_what_happened_comes_first() {
    let mut kept = Kept::with_targets(1);
    let names = ["left first", "left last", "made", "runs"];
    kept.change(names.iter().map(|name| assign("a", name, &[0])).collect());
    let all = names.map(|name| (name, if name == "made" { Terminal::CreatedOnce } else { Terminal::Finished }));
    let told = |(name, fact)| happened(0, &config_map(name), &format!("a-{name}").parse().unwrap(), fact);
    kept.change(all.map(told).to_vec());
    kept.change(vec![remove("a", "left first")]);
    kept.change(vec![remove("a", "left last")]);
    let facts = kept.ledger.target(target(0)).unwrap().facts();
    let names: Vec<_> = facts.iter().map(|fact| &*fact.key.name).collect();
    assert_eq!(names, ["runs", "left last", "left first", "made"]);
}

#[test]
fn of_more_sources_that_ran_than_are_remembered_those_that_left_first_are_forgotten() {
    let mut kept = Kept::with_targets(1);
    let names: Vec<String> = (0..DEPARTED_MAX + 2).map(|n| format!("j{n:05}")).collect();
    let ran = |name: &String| happened(0, &config_map(name), &format!("a-{name}").parse().unwrap(), Terminal::Finished);
    kept.change(names.iter().map(|name| assign("a", name, &[0])).collect());
    kept.change(names.iter().map(ran).collect());
    kept.change(vec![remove("a", "j00001")]);
    kept.change(names.iter().filter(|name| **name != "j00001").map(|name| remove("a", name)).collect());
    kept.restart();
    assert_eq!(kept.ledger.departed.len(), names.len());
    kept.change(vec![assign("a", "another", &[0])]);
    for _ in 0..2 {
        assert_eq!((kept.ledger.departed.len(), kept.ledger.happened.len()), (DEPARTED_MAX, DEPARTED_MAX));
        assert!(!kept.ledger.happened.contains_key(&config_map("j00001")), "it left first");
        kept.restart();
    }
    // What is inherited for what may be assigned later is the youngest.
    let fact = Terminal::CreatedOnce;
    let inherited = TerminalFact { key: config_map("made"), source_uid: "a-made".parse().unwrap(), fact };
    kept.change(vec![Change::Register(target(1)), Change::Inherit(target(1), vec![inherited.clone()])]);
    kept.change(vec![assign("a", "yet-another", &[0])]);
    kept.restart();
    kept.change(vec![assign("a", "made", &[1])]);
    assert_eq!(kept.ledger.departed.len(), DEPARTED_MAX - 1);
    assert_eq!(kept.ledger.target(target(1)).unwrap().happened(&config_map("made")), Some(inherited));
}

#[test]
fn a_tombstone_stays_until_it_is_confirmed() {
    let mut kept = Kept::with_targets(2);
    kept.change(vec![assign("a", "x", &[0, 1])]);
    kept.change(vec![remove("a", "x")]);
    kept.restart();
    assert_eq!(kept.tombstones(0), ["ConfigMap shop/x of a-x"]);
    let origin = kept.ledger.removals().next().unwrap().origin.unwrap();
    assert_eq!((origin.space.as_str(), &*origin.namespace, &*origin.name), ("a", "shop", "x"));
    let tombstone = kept.ledger.target(target(0)).unwrap().tombstones().next().unwrap();
    let revision = kept.ledger.revision();
    kept.change(vec![Change::Confirm(target(0), kept.version(0), tombstone.tombstone)]);
    kept.restart();
    assert_eq!((kept.tombstones(0).len(), kept.tombstones(1).len()), (0, 1));
    assert_eq!(kept.ledger.revision(), revision, "a confirmation changes no set");
    let other = Tombstone { key: config_map("x"), source: "other".parse().unwrap() };
    assert_eq!(kept.writes(vec![Change::Confirm(target(1), kept.version(1), other)]), 0);
}

#[test]
fn a_forgotten_target_leaves_nothing_and_its_index_is_not_given_again() {
    let mut kept = Kept::with_targets(2);
    kept.change(vec![assign("a", "x", &[0, 1]), assign("a", "y", &[1]), assign("a", "z", &[1])]);
    kept.change(vec![remove("a", "z")]);
    kept.change(vec![Change::Forget(target(1))]);
    assert!(kept.ledger.target(target(1)).is_none());
    assert_eq!(kept.ledger.removals().count(), 0);
    assert_eq!(kept.ledger.sources().count(), 1);
    let committed = kept.change(vec![Change::Register(target(2))]);
    assert_eq!(committed.registered, [(target(2), 2)]);
    kept.restart();
    assert_eq!(kept.ledger.index_of(target(2)), Some(2));
    check_sound(&kept.ledger);
}

#[test]
fn a_batch_planned_before_another_was_committed_is_refused() {
    let mut kept = Kept::with_targets(1);
    let stale = kept.ledger.plan(fresh(), [assign("a", "x", &[0])]);
    kept.change(vec![assign("a", "y", &[0])]);
    assert!(kept.ledger.commit(stale).is_err());
    assert_eq!(kept.keys(0), ["ConfigMap shop/y from a"]);
}

#[test]
fn a_body_is_given_only_where_the_set_names_it() {
    let mut kept = Kept::with_targets(2);
    kept.change(vec![assign("a", "x", &[0])]);
    let input = Input::new("x").digest;
    let has = |kept: &Kept, nth| {
        kept.ledger.target(target(nth)).unwrap().body(&config_map("x"), input).map(|body| body.text.to_string())
    };
    assert_eq!((has(&kept, 0).as_deref(), has(&kept, 1)), (Some("x"), None));
    kept.change(vec![Change::Assign(Box::new(assigned("a", "x", "a-x", "newer", &[0])))]);
    assert_eq!(has(&kept, 0), None);
}

#[test]
fn a_choice_is_kept_until_it_is_forgotten() {
    let mut kept = Kept::with_targets(3);
    let space: tideline_common::SpaceName = "a".parse().unwrap();
    let named = PlacementId::Named { space: space.clone(), name: "p".into() };
    // As hubs before the sixth schema have written it.
    let former = PlacementId::Former { space, uid: "p".parse().unwrap() };
    for placement in [named, former] {
        kept.change(vec![Change::Choose { placement: placement.clone(), chosen: bits(&[0, 2]) }]);
        kept.restart();
        assert_eq!(kept.ledger.choices().collect::<Vec<_>>(), [(&placement, &bits(&[0, 2]))]);
        kept.change(vec![Change::Choose { placement, chosen: bits(&[]) }]);
        kept.restart();
        assert_eq!(kept.ledger.choices().count(), 0);
    }
}

/// What random tests do to a ledger: small enough to collide often.
#[derive(Clone, Debug)]
enum Op {
    Assign {
        space: usize,
        name: usize,
        body: u8,
        targets: u8,
        implied: u8,
    },
    Remove {
        space: usize,
        name: usize,
    },
    Confirm {
        target: u32,
    },
    /// Something happened once to all that the target has, or is to remove.
    Happen {
        target: u32,
        fact: Terminal,
    },
    /// The agent of the target is of another version.
    Understands {
        target: u32,
        lacks: Vec<Capability>,
    },
    Restart,
}

const SPACES: [&str; 3] = ["a", "b", "c"];
const NAMES: [&str; 4] = ["w", "x", "y", "z"];
const TARGETS: u32 = 4;

impl Op {
    fn changes(&self, ledger: &Ledger) -> Vec<Change> {
        let targets = |mask: u8| (0..TARGETS).filter(|nth| mask >> nth & 1 == 1).collect::<Vec<_>>();
        match self {
            Self::Assign { space, name, body, targets: mask, implied } => {
                let (space, name) = (SPACES[*space], NAMES[*name]);
                let mut assignment =
                    assigned(space, name, &format!("{space}-{name}"), &format!("{name}{body}"), &targets(*mask));
                let implied = variant("implied", true, &targets(*implied & !*mask));
                match body {
                    2 => assignment.variants[0].policy = let_go(),
                    3 => assignment.variants[0].policy = gated(),
                    4 => assignment.variants[0].policy = once(),
                    _ => {}
                }
                assignment.variants.push(implied);
                vec![Change::Assign(Box::new(assignment))]
            }
            Self::Remove { space, name } => vec![remove(SPACES[*space], NAMES[*name])],
            Self::Confirm { target: nth } => {
                let tombstones = ledger.target(target(*nth)).into_iter().flat_map(|view| view.tombstones());
                let at = ledger.target(target(*nth)).map(|view| view.version()).unwrap_or_default();
                tombstones.map(|gone| Change::Confirm(target(*nth), at, gone.tombstone)).collect()
            }
            Self::Happen { target: nth, fact } => {
                let views = || ledger.target(target(*nth)).into_iter();
                let entries = views().flat_map(|view| view.entries()).map(|it| (it.key.clone(), it.source.uid.clone()));
                let leaving = views().flat_map(|view| view.tombstones()).map(|it| it.tombstone);
                let all = entries.chain(leaving.map(|Tombstone { key, source }| (key, source)));
                all.map(|(key, source)| happened(*nth, &key, &source, *fact)).collect()
            }
            Self::Understands { target: nth, lacks } => vec![understands(*nth, lacks)],
            Self::Restart => Vec::new(),
        }
    }
}

fn ops() -> impl Strategy<Value = Vec<Vec<Op>>> {
    let assign = (0..SPACES.len(), 0..NAMES.len(), 0..5_u8, 0..16_u8, 0..16_u8)
        .prop_map(|(space, name, body, targets, implied)| Op::Assign { space, name, body, targets, implied });
    let op = prop_oneof![
        8 => assign,
        3 => (0..SPACES.len(), 0..NAMES.len()).prop_map(|(space, name)| Op::Remove { space, name }),
        2 => (0..TARGETS).prop_map(|target| Op::Confirm { target }),
        2 => (0..TARGETS, prop_oneof![Just(Terminal::Finished), Just(Terminal::CreatedOnce), Just(Terminal::Started)])
            .prop_map(|(target, fact)| Op::Happen { target, fact }),
        2 => (0..TARGETS, prop::sample::subsequence(vec![Capability::Gates, Capability::RunOnce, Capability::Takeover], 0..4))
            .prop_map(|(target, lacks)| Op::Understands { target, lacks }),
        1 => Just(Op::Restart),
    ];
    prop::collection::vec(prop::collection::vec(op, 1..4), 1..24)
}
