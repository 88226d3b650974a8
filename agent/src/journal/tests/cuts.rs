//! What a batch is cut into: how large a transaction gets, and what a crash between any two of them leaves.

use proptest::prelude::*;
use tideline_common::health::Health;
use tideline_common::wire::v1::{Continuity, Decommission, ObjectReport, Progress, Terminal};
use tideline_common::{FieldMode, FieldPolicy, GroupKind};

use super::super::bodies::Numbers;
use super::super::change::{Change, Table};
use super::super::engine::Engine;
use super::super::group::Group;
use super::super::slot::Slot;
use super::super::{record, stage};
use super::*;
use crate::core::RestoredObject;

/// Objects that a set may have.
const OBJECTS: u32 = 1_000;

/// A journal as it is open, with numbers for bodies that follow those of `count` objects.
pub(super) fn open(path: &Path, count: u64) -> Result<Slot, Error> {
    Ok(Slot::new(path, Engine::open(path)?, Numbers::new(count), 0, 0))
}

/// Writes a batch as the journal does, and returns the groups that it came to.
pub(super) fn write(slot: &Slot, writes: &[Write]) -> Result<Vec<Group>, Error> {
    let mut groups = Vec::new();
    stage::groups(writes, &mut slot.ahead(), &mut |group| {
        slot.commit(std::slice::from_ref(&group))?;
        groups.push(group);
        Ok(())
    })?;
    Ok(groups)
}

pub(super) fn staged(path: &Path) -> Result<usize, Error> {
    let mut staged = 0;
    Engine::open(path)?.scan(Table::Staged, |_, _| {
        staged += 1;
        Ok(())
    })?;
    Ok(staged)
}

/// Whether a group is within the bounds: 256 changes, and a mebibyte but for a body that is larger by itself, or a record.
fn is_bounded(group: &Group) -> bool {
    let changes = group.changes();
    let bytes: u64 = changes.iter().map(Change::bytes).sum();
    let one = changes.len() == 1 || (changes.len() == 2 && changes[0].table == Table::Bodies);
    changes.len() <= 256 && (bytes <= 1 << 20 || one)
}

/// Hardly compressible.
fn noise(seed: u32, length: usize) -> String {
    (0_u32..)
        .flat_map(|n| Digest::of(format!("{seed} {n}").as_bytes()).to_string().into_bytes())
        .map(char::from)
        .take(length)
        .collect()
}

fn report(n: u32, message: String) -> Write {
    Write::Unsent(Box::new(ObjectReport {
        key: entry(n).key.clone(),
        source_uid: entry(n).source.uid.clone(),
        progress: Progress::Applied,
        reason: None,
        message,
        input: None,
        health: Health::Ready,
        observed_generation: None,
        terminal: Some(Terminal::Finished),
        status: None,
    }))
}

/// Switches to the objects with these numbers, each under a policy of its own where there are few of them.
fn switch(objects: std::ops::Range<u32>) -> Write {
    let entries: Vec<_> = objects.clone().map(entry).collect();
    let remove = (0..OBJECTS).filter(|n| !objects.contains(n)).map(|n| entry(n).key.clone()).collect();
    let Write::Accept { accepted, put, remove, mut policies } = accept(8, &entries, &entries, remove) else {
        unreachable!("it is one")
    };
    policies.extend(objects.map(policy_of).map(|policy| (policy.digest(), Arc::new(policy))));
    Write::Accept { accepted, put, remove, policies }
}

fn policy_of(n: u32) -> ApplyPolicy {
    let field = FieldPolicy { path: format!(".data.key-{n}"), mode: FieldMode::Initial };
    ApplyPolicy { fields: vec![field], ..ApplyPolicy::default() }
}

/// So many writes of one kind. Bodies that go are none that an entry names.
fn some(kind: u8, first: u32, count: u32) -> Vec<Write> {
    let numbers = first..first + count;
    let body_of = |n: u32| Digest::of(format!("another {n}").as_bytes());
    let each = |write: &dyn Fn(u32) -> Write| numbers.clone().map(write).collect();
    match kind {
        0 => each(&|n| Write::Body { input: body_of(n), text: body(n) }),
        1 => vec![Write::Body { input: body_of(first), text: noise(first, 3_000_000).into() }],
        2 => vec![Write::DropBodies(numbers.map(body_of).collect())],
        3 => vec![switch(first..(first + count).min(OBJECTS))],
        4 => each(&applied),
        5 => each(&|n| Write::Forgotten { key: entry(n).key.clone() }),
        6 => each(&removing),
        7 => each(&|n| Write::Removed(tombstone(n))),
        8 => each(&|n| Write::Passed { number: u64::from(n), tombstone: tombstone(n) }),
        9 => each(&|n| Write::Lapsed { number: u64::from(n) }),
        10 => each(&|n| Write::Held(tombstone(n))),
        11 => each(&|n| Write::Unheld(tombstone(n))),
        12 => each(&|n| report(n, noise(n, 20_000))),
        13 => each(&|n| Write::Sent { key: entry(n).key.clone() }),
        14 => each(&|n| Write::Ran { number: u64::from(n), tombstone: tombstone(n) }),
        15 => each(&|n| Write::RanForgotten { number: u64::from(n) }),
        16 => each(&|n| Write::RestoredObject(came_back(n))),
        17 => each(&|n| Write::RestoredGone { key: entry(n).key.clone() }),
        18 => each(&|n| Write::Kind { kind: GroupKind::new("", format!("Kind{n}")), version: "v1".into() }),
        19 => vec![Write::Mode(AgentMode::Frozen(FreezeReason::Revoked(noise(first, 1_500_000))))],
        20 => each(&|n| Write::Creating(tombstone(n))),
        21 => each(&|n| Write::CreationKnown(tombstone(n))),
        22 => vec![Write::DropPolicies(numbers.map(|n| policy_of(n).digest()).collect())],
        23 => vec![Write::History(Continuity::Broken), Write::Decommission(Decommission::Keep)],
        _ => vec![Write::Enrolled(Enrolled {
            target: TargetId::from_uuid(Uuid::from_u128(first.into())),
            name: "store".into(),
        })],
    }
}

fn came_back(n: u32) -> RestoredObject {
    let Tombstone { key, source } = tombstone(n);
    RestoredObject { key, uid: source.clone(), source }
}

fn writes(count_max: u32) -> impl Strategy<Value = Vec<Write>> {
    let count = prop_oneof![2 => 1_u32..4, 1 => 250..count_max];
    let one = (0_u8..25, 0..OBJECTS - 1, count).prop_map(|(kind, first, count)| some(kind, first, count));
    prop::collection::vec(one, 1..6).prop_map(|writes| writes.concat())
}

/// What the core starts with, but for bodies, which come and go by themselves.
fn loaded_but_bodies(loaded: Loaded) -> String {
    format!("{:?}", Loaded { bodies: std::collections::BTreeSet::new(), ..loaded })
}

pub(super) fn in_test<T>(outcome: Result<T, impl std::fmt::Display>) -> Result<T, TestCaseError> {
    outcome.map_err(|error| TestCaseError::fail(error.to_string()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_transaction_is_large_whatever_is_written(batches in prop::collection::vec(writes(900), 1..3)) {
        let directory = in_test(tempfile::tempdir())?;
        let slot = in_test(open(&directory.path().join("journal"), 0))?;
        for batch in batches {
            for group in in_test(write(&slot, &batch))? {
                prop_assert!(is_bounded(&group), "{} changes, {} bytes", group.changes().len(), group.bytes());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2))]

    /// Other than what only says something of one object by itself, and bodies.
    #[test]
    fn a_batch_is_atomic_wherever_a_crash_comes(
        former in writes(300),
        with in writes(300),
        first in 0..OBJECTS / 2,
        removed in 300_u32..600,
    ) {
        let directory = in_test(tempfile::tempdir())?;
        let [written, walked, crashed] = ["written", "walked", "crashed"].map(|name| directory.path().join(name).join("journal"));
        for path in [&written, &walked] {
            in_test(std::fs::create_dir(path.parent().expect("it has one")))?;
            drop(in_test(Journal::open(path))?);
        }
        let former = [former, vec![switch(0..OBJECTS / 2)]].concat();
        in_test(write(&in_test(open(&walked, 0))?, &former))?;
        in_test(write(&in_test(open(&written, 0))?, &former))?;
        let before = loaded_but_bodies(in_test(reopened(&walked))?);
        let removals = (0..removed).map(removing).collect();
        let batch = [some(1, 9_999, 1), with, vec![switch(first..first + OBJECTS / 2)], removals].concat();
        let groups = in_test(write(&in_test(open(&written, 3_000))?, &batch))?;
        let after = loaded_but_bodies(in_test(reopened(&written))?);
        prop_assert_ne!(&before, &after);

        let mut switched = false;
        for crash in 0..=groups.len() {
            if let Some(last) = crash.checked_sub(1) {
                in_test(in_test(Engine::open(&walked))?.commit(&groups[last..crash]))?;
            }
            in_test(copy_directory(&walked, &crashed))?;
            let (journal, loaded) = in_test(Journal::open(&crashed))?;
            for input in &loaded.bodies {
                let goes = batch.iter().any(|write| matches!(write, Write::DropBodies(going) if going.contains(input)));
                prop_assert!(goes || journal.body(*input).is_ok(), "after {crash} groups a body is missing");
            }
            drop(journal);
            let loaded = loaded_but_bodies(loaded);
            prop_assert!(loaded == after || (loaded == before && !switched), "after {crash} groups of {}", groups.len());
            switched = loaded == after;
            prop_assert_eq!(in_test(staged(&crashed))?, 0);
            in_test(std::fs::remove_dir_all(crashed.parent().expect("it has one")))?;
        }
        prop_assert!(switched);
    }
}

fn is_switch(group: &Group) -> bool {
    group.changes().iter().any(|change| change.table == Table::Meta && change.key == b"switch")
}

/// The groups of a batch that a journal of 600 objects gets: another set, and removals, all of them too many for one.
fn switched() -> Result<(Vec<Arc<Entry>>, Vec<Group>), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let second: Vec<_> = (300..1_200).map(entry).collect();
    let mut batch = vec![accept(8, &second, &second[300..], (0..300).map(|n| entry(n).key.clone()).collect())];
    batch.extend((0..300).map(removing));
    let groups = write(&open(&directory.path().join("journal"), 0)?, &batch)?;
    Ok((second, groups))
}

#[tokio::test]
async fn a_set_comes_with_its_removals_wherever_a_crash_comes() -> Result<(), anyhow::Error> {
    let (second, groups) = switched()?;
    let directory = tempfile::tempdir()?;
    let first = filled(&directory.path().join("journal"), 600).await?;
    let removals: Vec<_> = (0..300).map(|n| (tombstone(n), POLICY)).collect();
    let mut after = 0;
    for crash in 0..=groups.len() {
        let path = directory.path().join(format!("crash-{crash}")).join("journal");
        copy_directory(&directory.path().join("journal"), &path)?;
        Engine::open(&path)?.commit(&groups[..crash])?;
        let loaded = reopened(&path)?;
        if loaded.accepted.is_some_and(|accepted| accepted.set.version.revision == Revision(8)) {
            assert!(loaded.entries == second && loaded.removing == removals, "after {crash} groups");
            after += 1;
        } else {
            assert!(loaded.entries == first && loaded.removing.is_empty(), "after {crash} groups");
            assert_eq!(after, 0, "after {crash} groups: it was switched, and is not");
        }
        assert_eq!(staged(&path)?, 0, "after {crash} groups");
    }
    assert!(after > 5 && groups.len() >= after + 5, "{after} of {} groups are after the switch", groups.len());
    Ok(())
}

/// The next start would finish it too, and undo later writes.
#[tokio::test]
async fn a_batch_written_in_part_is_finished_before_anything_else_is_written() -> Result<(), anyhow::Error> {
    let (second, groups) = switched()?;
    let switch = groups.iter().position(is_switch).expect("it is switched");
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    filled(&path, 600).await?;
    let slot = open(&path, 600)?;
    slot.commit(&groups[..=switch])?;
    slot.leave_unfinished();
    write(&slot, &[Write::Removed(tombstone(1))])?;
    drop(slot);
    assert_eq!(staged(&path)?, 0);
    let loaded = reopened(&path)?;
    assert!(loaded.entries == second);
    assert_eq!(loaded.removing.len(), 299, "one was done since");
    Ok(())
}

/// A journal that was just switched, with nothing put in place yet, and the number of its parts.
pub(super) async fn just_switched(path: &Path) -> Result<(Vec<Arc<Entry>>, usize), anyhow::Error> {
    let (second, groups) = switched()?;
    filled(path, 600).await?;
    let switch = groups.iter().position(is_switch).expect("it is switched");
    Engine::open(path)?.commit(&groups[..=switch])?;
    Ok((second, switch))
}

#[tokio::test]
async fn a_crash_while_a_switch_is_finished_leaves_it_to_the_next_start() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    let (second, _) = just_switched(&path).await?;
    let (engine, mut groups) = (Engine::open(&path)?, Vec::new());
    stage::finish(&engine, &mut |group| {
        groups.push(group);
        Ok(())
    })?;
    drop(engine);
    for crash in 0..groups.len() {
        let crashed = directory.path().join(format!("crash-{crash}")).join("journal");
        copy_directory(&path, &crashed)?;
        Engine::open(&crashed)?.commit(&groups[..crash])?;
        let loaded = reopened(&crashed)?;
        assert!(loaded.entries == second && loaded.removing.len() == 300, "after {crash} of {} groups", groups.len());
        assert_eq!(staged(&crashed)?, 0, "after {crash} groups");
    }
    assert!(groups.len() >= 5, "{} groups", groups.len());
    Ok(())
}

#[tokio::test]
async fn a_switch_of_which_a_part_is_missing_is_damage() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let whole = directory.path().join("whole");
    let (_, parts) = just_switched(&whole).await?;
    assert!(parts > 4, "{parts} parts");
    for missing in 0..parts {
        let path = directory.path().join(format!("without-{missing}")).join("journal");
        copy_directory(&whole, &path)?;
        let key = u32::try_from(missing)?.to_be_bytes().to_vec();
        Engine::open(&path)?.commit(&[[record::take(Table::Staged, key)].into()])?;
        assert!(is_empty(&reopened(&path)?), "without part {missing}");
        assert!(path.with_file_name("journal.damaged-1").exists(), "without part {missing}");
    }
    Ok(())
}

/// An earlier version dropped each part as it was put in place, and the switch last.
#[tokio::test]
async fn a_switch_that_an_earlier_version_left_lacks_its_first_parts_at_most() -> Result<(), anyhow::Error> {
    let (second, groups) = switched()?;
    let directory = tempfile::tempdir()?;
    let left = directory.path().join("left");
    let (_, parts) = just_switched(&left).await?;
    let engine = Engine::open(&left)?;
    for group in &groups[parts + 1..] {
        let is_content = |change: &&Change| change.table != Table::Staged && change.key != b"switch";
        engine.commit(&cut(group.changes().iter().filter(is_content).cloned()))?;
    }
    let switch = serde_json::json!({ "parts": parts });
    engine.commit(&[[record::put(Table::Meta, b"switch".to_vec(), &switch)].into()])?;
    drop(engine);
    for (missing, is_sound) in [(0..1, true), (0..parts - 1, true), (0..parts, true), (1..2, false), (2..parts, false)]
    {
        let path = directory.path().join(format!("without-{missing:?}")).join("journal");
        copy_directory(&left, &path)?;
        let keys = missing.clone().map(u32::try_from).collect::<Result<Vec<_>, _>>()?;
        let takes = keys.iter().map(|key| record::take(Table::Staged, key.to_be_bytes().to_vec()));
        Engine::open(&path)?.commit(&cut(takes))?;
        let loaded = reopened(&path)?;
        assert_eq!(is_sound, !is_empty(&loaded), "without {missing:?}");
        assert_eq!(is_sound, !path.with_file_name("journal.damaged-1").exists(), "without {missing:?}");
        if is_sound {
            assert_eq!(loaded.entries, second, "without {missing:?}");
        }
    }
    Ok(())
}

#[test]
fn a_large_body_and_what_says_that_it_is_there_are_never_parted() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let slot = open(&directory.path().join("journal"), 0)?;
    let body = |n: u32, length| Write::Body { input: entry(n).input, text: noise(n, length).into() };
    // One that is larger than a group may be, and many that together are.
    let batch: Vec<_> = std::iter::once(body(0, 3_000_000)).chain((1..60).map(|n| body(n, 60_000))).collect();
    let groups = write(&slot, &batch)?;
    assert!(groups.len() > 2, "{} groups", groups.len());
    for group in &groups {
        let tables: Vec<_> = group.changes().iter().map(|change| change.table).collect();
        assert!(tables.chunks(2).all(|pair| pair == [Table::Bodies, Table::Inputs]), "{tables:?}");
        assert!(is_bounded(group));
    }
    Ok(())
}

#[tokio::test]
async fn a_body_that_is_dropped_and_comes_again_stays() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    let entries = filled(&path, 3).await?;
    let input = |n: usize| entries[n].input;
    let (journal, _) = Journal::open(&path)?;
    let again = |n| Write::Body { input: input(n), text: "again".into() };
    let writes =
        vec![Write::DropBodies(vec![input(0), input(1)]), again(0), again(2), Write::DropBodies(vec![input(2)])];
    journal.write(writes).await?;
    assert_eq!(&*journal.body(input(0))?, "again");
    for gone in [1, 2] {
        assert!(matches!(journal.body(input(gone)), Err(Error::NoBody(_))), "{gone}");
    }
    drop(journal);
    assert_eq!(reopened(&path)?.bodies.into_iter().collect::<Vec<_>>(), [input(0)]);
    Ok(())
}

/// Its parts were entries alone, and removals came after them.
#[tokio::test]
async fn a_journal_that_was_being_switched_by_an_earlier_layout_is_set_aside() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    let entries = filled(&path, 3).await?;
    let Write::Accept { accepted, .. } = accept(8, &entries, &[], Vec::new()) else { unreachable!("it is one") };
    let switch = record::put(Table::Meta, b"switch".to_vec(), &serde_json::json!({ "accepted": accepted }));
    Engine::open(&path)?.commit(&[[switch].into()])?;
    assert!(is_empty(&reopened(&path)?), "nothing of it is believed");
    assert!(directory.path().join("journal.damaged-1").exists());
    Ok(())
}
