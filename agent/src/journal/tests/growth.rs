//! How large it gets, on disk and in its parts.

use std::path::PathBuf;

use proptest::prelude::*;

use super::super::bodies::{Numbers, read};
use super::super::change::{Change, Table};
use super::super::disk_bytes_max;
use super::super::engine::Engine;
use super::super::slot::{Activity, FRESH_BYTES, FRESH_TIMES, GROWTH_TIMES, Slot};
use super::cuts::{in_test, write};
use super::*;

fn size(path: &Path) -> std::io::Result<u64> {
    let mut size = 0;
    for file in fs::read_dir(path)? {
        let file = file?;
        size += if file.file_type()?.is_dir() { self::size(&file.path())? } else { file.metadata()?.len() };
    }
    Ok(size)
}

/// Hardly compressible, other in each round.
fn noise(round: u32, n: u32, length: usize) -> Arc<str> {
    let digests = (0_u32..).map(|k| Digest::of(format!("{round} {n} {k}").as_bytes()).to_string());
    digests.flat_map(String::into_bytes).take(length).map(char::from).collect::<String>().into()
}

/// A hundred megabytes in all. Whether sled's own collection or the rewriting keeps it there is not told apart here.
#[tokio::test]
async fn the_journal_stays_bounded_under_churn() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    let entries = filled(&path, 300).await?;
    let (journal, _) = Journal::open(&path)?;
    let (mut most, mut live) = (0, 0);
    for round in 0..150 {
        let write = |(n, entry): (u32, &Arc<Entry>)| Write::Body { input: entry.input, text: noise(round, n, 2_048) };
        journal.write((0..).zip(&entries).map(write).collect::<Vec<_>>()).await?;
        most = most.max(size(directory.path())?);
        live = live.max(journal.live_bytes());
    }
    assert!(live < 300 * 4_096, "{live}");
    assert!(most <= disk_bytes_max(live), "{most} bytes were taken at most for {live}");
    for (n, entry) in (0..).zip(&entries) {
        assert_eq!(journal.body(entry.input)?, noise(149, n, 2_048));
    }
    drop(journal);
    assert_eq!(reopened(&path)?.entries, entries);
    Ok(())
}

/// What one round of a property test does.
#[derive(Clone, Debug)]
struct Round {
    bodies: std::ops::Range<u32>,
    length: usize,
    applied: std::ops::Range<u32>,
    goes: std::ops::Range<u32>,
    reopened: bool,
}

fn round() -> impl Strategy<Value = Round> {
    let some = || (0_u32..400, 1_u32..400).prop_map(|(first, count)| first..first + count);
    (some(), 10_usize..12_000, some(), some(), any::<bool>())
        .prop_map(|(bodies, length, applied, goes, reopened)| Round { bodies, length, applied, goes, reopened })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// Whatever is written, and how large it is; and a log that is written anew is as small as the bound has it.
    #[test]
    fn the_size_on_disk_is_bounded(rounds in prop::collection::vec(round(), 1..12)) {
        let directory = in_test(tempfile::tempdir())?;
        let path = directory.path().join("journal");
        drop(in_test(Journal::open(&path))?);
        let open = |next| Ok::<_, Error>(Slot::new(&path, Engine::open(&path)?, Numbers::new(next), 0, 0));
        let (mut slot, mut live) = (in_test(open(0))?, 0);
        for (nth, round) in (0_u32..).zip(rounds) {
            let Round { bodies, length, applied: stand, goes, reopened } = round;
            let input = |n: u32| Digest::of(&n.to_be_bytes());
            let body = |n: u32| Write::Body { input: input(n), text: noise(nth, n, length) };
            let writes = [bodies.map(body).collect(), stand.map(applied).collect(), vec![Write::DropBodies(goes.map(input).collect())]];
            for writes in writes {
                in_test(write(&slot, &writes))?;
                live = live.max(slot.live());
                tidied(&slot);
                let taken = in_test(size(directory.path()))?;
                prop_assert!(taken <= disk_bytes_max(live), "{} bytes for {}", taken, live);
            }
            if reopened {
                drop(slot);
                let (journal, _) = in_test(Journal::open(&path))?;
                let held = journal.live_bytes();
                drop(journal);
                slot = Slot::new(&path, in_test(Engine::open(&path))?, Numbers::new(1_000 * u64::from(nth + 1)), held, 0);
            }
        }
        in_test(slot.rebuild(slot.bytes()))?;
        let held: u64 = in_test(contents(&slot))?.iter().map(Change::bytes).sum();
        prop_assert_eq!(slot.live(), held);
        prop_assert!(slot.bytes() <= FRESH_TIMES * held + FRESH_BYTES, "{} bytes for {}", slot.bytes(), held);
    }
}

/// Writing it anew takes as much memory again, and gains nothing while it only grows.
#[tokio::test]
async fn a_first_fill_counts_as_live_data_and_causes_no_rewrite() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    let slot = Slot::new(&path, Engine::open(&path)?, Numbers::default(), 0, 0);
    let before = slot.bytes_max();
    let body = |n: u32, len| record::put_bytes(Table::Bodies, n.to_be_bytes().to_vec(), &vec![b'x'; len]);
    slot.commit(&cut((0..200).map(|n| body(n, 10_000))))?;
    let first = slot.bytes_max();
    assert!(first > before + GROWTH_TIMES * 2_000_000, "{before} became {first}");
    slot.commit(&cut((0..200).map(|n| body(n, 10_000))))?;
    assert_eq!(slot.bytes_max(), first, "what is written again is no more");
    slot.commit(&cut((0..200_u32).map(|n| record::take(Table::Bodies, n.to_be_bytes().to_vec()))))?;
    assert_eq!(slot.bytes_max(), before, "what was taken out is not held");
    Ok(())
}

#[tokio::test]
async fn a_rewritten_log_has_the_same_content() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    let entries = filled(&path, 2_000).await?;
    let slot = Slot::new(&path, Engine::open(&path)?, Numbers::default(), 0, 0);
    let before = contents(&slot)?;
    slot.rebuild(slot.bytes())?;
    assert!(contents(&slot)? == before);
    tidied(&slot);
    drop(slot);
    assert_eq!(reopened(&path)?.entries, entries);
    let left: Vec<PathBuf> =
        fs::read_dir(directory.path())?.map(|file| Ok(file?.path())).collect::<std::io::Result<_>>()?;
    assert!(left.iter().all(|path| !path.ends_with("journal.next") && !path.ends_with("journal.former")), "{left:?}");
    Ok(())
}

/// A journal of more bytes than [`Slot::bytes_max`], most of which nothing names.
async fn grown(path: &Path, count: u32) -> Result<(Vec<Arc<Entry>>, Engine), Error> {
    let entries = filled(path, count).await?;
    let engine = Engine::open(path)?;
    let unnamed = |n: u64| record::put_bytes(Table::Bodies, (1_000 + n).to_be_bytes().to_vec(), &[b'x'; 10_000]);
    for part in 0..20 {
        engine.commit(&cut((part * 100..(part + 1) * 100).map(unnamed)))?;
    }
    Ok((entries, engine))
}

#[tokio::test]
async fn bodies_that_cannot_be_read_are_left_out_of_what_is_written_anew_and_count_as_missing()
-> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    let (entries, engine) = grown(&path, 50).await?;
    let rotten = Change { table: Table::Bodies, key: 7_u64.to_be_bytes().to_vec(), value: Some(b"rotten".to_vec()) };
    engine.commit(&cut([rotten, record::take(Table::Bodies, 8_u64.to_be_bytes().to_vec())]))?;
    let slot = Slot::new(&path, engine, Numbers::new(50), 0, 0);
    let before = slot.bytes();
    assert!(before > slot.bytes_max(), "{before} bytes");
    for round in 0..2 {
        tidied(&slot);
        let after = slot.bytes();
        assert!(after < before / 4, "round {round}: {before} bytes became {after}");
    }
    for (n, entry) in (0..).zip(&entries) {
        match read(&slot, entry.input) {
            Err(error) => assert!(matches!((n, &error), (7 | 8, Error::NoBody(_))), "{n}: {error}"),
            text => assert_eq!(text?, body(n)),
        }
    }
    drop(slot);
    let loaded = reopened(&path)?;
    assert_eq!((loaded.entries, loaded.bodies.len()), (entries, 48));
    Ok(())
}

#[tokio::test]
async fn a_failed_rewrite_is_not_retried_at_once() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    let (_, engine) = grown(&path, 1).await?;
    let slot = Slot::new(&path, engine, Numbers::default(), 0, 0);
    let before = slot.bytes();
    // In the way of the copy.
    fs::write(path.with_extension("next"), b"")?;
    tidied(&slot);
    fs::remove_file(path.with_extension("next"))?;
    tidied(&slot);
    assert!(slot.bytes() >= before, "it was tried again");
    Ok(())
}

#[tokio::test]
async fn an_incomplete_copy_is_removed() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    let entries = filled(&path, 20).await?;
    let engine = Engine::open(&path)?;
    let key = record::object_key(&entries[3].key);
    engine.commit(&cut([Change { table: Table::Entries, key, value: Some(b"rotten".to_vec()) }]))?;
    let slot = Slot::new(&path, engine, Numbers::default(), 0, 0);
    assert!(matches!(slot.rebuild(slot.bytes()), Err(Error::Damaged(_))));
    assert!(!path.with_extension("next").exists());
    assert_eq!(read(&slot, entries[5].input)?, body(5), "what is there is left alone");
    Ok(())
}

fn contents(slot: &Slot) -> Result<Vec<Change>, Error> {
    let mut all = Vec::new();
    for table in Table::ALL {
        all.extend(slot.engine()?.part(*table, None, u64::MAX)?);
    }
    Ok(all)
}

#[tokio::test]
async fn a_crash_while_it_is_written_anew_loses_nothing() -> Result<(), anyhow::Error> {
    type Crash = fn(&Path) -> std::io::Result<()>;
    let cases: [(&str, Crash); 3] = [
        ("half a copy", |path| {
            copy_directory(path, &path.with_extension("next"))?;
            fs::write(path.with_extension("next").join("db"), b"half")
        }),
        ("between the renames", |path| {
            copy_directory(path, &path.with_extension("next"))?;
            fs::rename(path, path.with_extension("former"))
        }),
        ("before the former is removed", |path| copy_directory(path, &path.with_extension("former"))),
    ];
    for (name, crash) in cases {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("journal");
        let entries = filled(&path, 50).await?;
        crash(&path)?;
        assert_eq!(reopened(&path)?.entries, entries, "{name}");
        assert!(!path.with_extension("next").exists() && !path.with_extension("former").exists(), "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn opening_what_did_not_change_lets_nothing_grow() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    filled(&path, 500).await?;
    // The first opening may end what the last run left: the end of a segment, a snapshot.
    drop(Journal::open(&path)?);
    let before = size(&path)?;
    for _start in 0..5 {
        drop(Journal::open(&path)?);
    }
    let after = size(&path)?;
    assert!(after <= before + (1 << 10), "{before} bytes became {after}");
    Ok(())
}

fn tidied(slot: &Slot) {
    let outcome = slot.tidy(Activity::AtRest).map_or(Ok(()), |(_, outcome)| outcome);
    assert!(outcome.as_ref().err().is_none_or(|error| !error.is_of_damage()), "{outcome:?}");
}
