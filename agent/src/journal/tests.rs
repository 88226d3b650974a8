use std::fs;
use std::path::Path;
use std::sync::Arc;

use tideline_common::wire::v1::{Accepted, Attested};
use tideline_common::{
    ApplyPolicy, Attestation, DesiredSet, Digest, Entry, EntryState, Epoch, GroupKind, ObjectKey, Origin, PrunePolicy,
    Revision, RevisionPoint, Shown, SourceRef, SpaceName, Takeover, TargetId, Tombstone, Version,
};
use uuid::Uuid;

use super::group::cut;
use super::{Error, Journal, record, writer};
use crate::core::{AgentMode, AppliedRecord, ChangeDetector, Enrolled, FreezeReason, Loaded, RemovalPolicy, Write};

mod crash;
mod cuts;
mod faults;
mod golden;
mod growth;
mod opening;

fn attested(set: Accepted) -> Attested {
    let shown = Shown { version: set.version, point: RevisionPoint::NOWHERE };
    Attested { set, attestation: Attestation::unsigned(TargetId::from_uuid(Uuid::nil()), shown) }
}

fn policy() -> Arc<ApplyPolicy> {
    Arc::new(ApplyPolicy::default())
}

fn entry(n: u32) -> Arc<Entry> {
    Arc::new(Entry {
        key: ObjectKey::new(GroupKind::new("", "ConfigMap"), "shop", format!("config-{n:05}")),
        version: "v1".into(),
        source: SourceRef {
            space: SpaceName::root(),
            uid: format!("uid-{n}").parse().expect("a UID"),
            namespace: "shop".into(),
            name: "config".into(),
        },
        generation: 0,
        state: EntryState::Apply,
        input: Digest::of(&n.to_be_bytes()),
        policy: policy().digest(),
        wave: 0,
        impersonate: None,
        implied: false,
    })
}

/// The write that switches to the set of `entries`, of which `put` are new.
fn accept(revision: u64, entries: &[Arc<Entry>], put: &[Arc<Entry>], remove: Vec<ObjectKey>) -> Write {
    let set: DesiredSet = entries.iter().cloned().collect();
    let version = Version { epoch: Epoch(1), revision: Revision(revision) };
    Write::Accept {
        accepted: Box::new(attested(Accepted { version, digest: set.digest() })),
        put: put.to_vec(),
        remove,
        policies: [(policy().digest(), policy())].into(),
    }
}

fn body(n: u32) -> Arc<str> {
    format!("{{\"n\":{n},\"text\":\"{}\"}}", "word ".repeat(100)).into()
}

fn bodies(entries: &[Arc<Entry>]) -> Vec<Write> {
    (0..).zip(entries).map(|(n, entry)| Write::Body { input: entry.input, text: body(n) }).collect()
}

fn applied(n: u32) -> Write {
    let record = AppliedRecord {
        uid: "local".parse().expect("a UID"),
        version: "v1".into(),
        source: entry(n).source.uid.clone(),
        input: entry(n).input,
        policy: policy().digest(),
        source_generation: 0,
        managed: None,
        generation: 0,
        resource_version: "5".into(),
        origin: Origin::Created,
        posted: true,
        implied: false,
        orphaning: false,
        wave: Some(-10),
        impersonate: None,
        drifted: None,
        change_detector: ChangeDetector::Owner,
        left: None,
        local: Arc::default(),
        template: None,
    };
    Write::Applied { key: entry(n).key.clone(), record: Box::new(record) }
}

const POLICY: RemovalPolicy =
    RemovalPolicy::Tombstone(PrunePolicy { adopted: Some(Takeover::Always), ..PrunePolicy::LEAST });

fn removing(n: u32) -> Write {
    Write::Removing { tombstone: tombstone(n), policy: POLICY }
}

fn tombstone(n: u32) -> Tombstone {
    Tombstone { key: entry(n).key.clone(), source: entry(n).source.uid.clone() }
}

/// A journal with `count` entries, closed.
async fn filled(path: &Path, count: u32) -> Result<Vec<Arc<Entry>>, Error> {
    let entries: Vec<_> = (0..count).map(entry).collect();
    let (journal, _) = Journal::open(path)?;
    journal.write(bodies(&entries)).await?;
    journal.write(vec![accept(7, &entries, &entries, Vec::new())]).await?;
    Ok(entries)
}

fn reopened(path: &Path) -> Result<Loaded, Error> {
    Ok(Journal::open(path)?.1)
}

fn is_empty(loaded: &Loaded) -> bool {
    loaded.accepted.is_none() && loaded.entries.is_empty() && loaded.bodies.is_empty() && loaded.enrolled.is_none()
}

/// A newer hub may say more of a policy than this build reads.
#[tokio::test]
async fn a_policy_keeps_the_name_that_entries_have_for_it() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    let name = Digest::of(b"what another build makes of it");
    let named = [Arc::new(Entry { policy: name, ..Entry::clone(&entry(1)) })];
    let mut write = accept(7, &named, &named, Vec::new());
    if let Write::Accept { policies, .. } = &mut write {
        *policies = [(name, policy())].into();
    }
    Journal::open(&path)?.0.write(vec![write]).await?;
    assert_eq!(reopened(&path)?.policies, [(name, policy())].into());
    Ok(())
}

#[tokio::test]
async fn what_was_written_is_read_back() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    let entries = filled(&path, 50).await?;
    assert_eq!(reopened(&path)?.accepted.map(|accepted| accepted.set.version.revision), Some(Revision(7)));
    let enrolled = Enrolled { target: TargetId::from_uuid(Uuid::from_u128(1)), name: "store".to_owned() };
    let frozen = AgentMode::Frozen(FreezeReason::Revoked("its key".to_owned()));
    {
        let (journal, _) = Journal::open(&path)?;
        let writes = vec![
            Write::Enrolled(enrolled.clone()),
            Write::Mode(frozen.clone()),
            applied(1),
            applied(2),
            Write::Forgotten { key: entry(2).key.clone() },
            removing(3),
            removing(4),
            Write::Removed(tombstone(4)),
            Write::Held(tombstone(3)),
            Write::Held(tombstone(5)),
            Write::Unheld(tombstone(5)),
            Write::DropBodies(vec![entry(9).input]),
        ];
        journal.write(writes).await?;
        assert_eq!(journal.body(entry(8).input)?, body(8));
        assert!(matches!(journal.body(entry(9).input), Err(Error::NoBody(_))));
    }
    let loaded = reopened(&path)?;
    assert_eq!(loaded.enrolled, Some(enrolled));
    assert_eq!(loaded.mode, frozen);
    assert_eq!(loaded.accepted, None, "a set is of one target");
    assert_eq!(loaded.entries, entries, "and is kept until that has another");
    assert_eq!(loaded.policies.keys().copied().collect::<Vec<_>>(), [policy().digest()]);
    assert_eq!(loaded.applied.iter().map(|(key, _)| key).collect::<Vec<_>>(), [&entry(1).key]);
    assert_eq!(loaded.removing, [(tombstone(3), POLICY)]);
    assert_eq!(loaded.held, [tombstone(3)]);
    assert_eq!(loaded.bodies.len(), 49);
    Ok(())
}

#[tokio::test]
async fn a_delta_keeps_the_entries_it_does_not_name() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    let mut entries = filled(&path, 5).await?;
    let gone = entries.remove(2);
    let new = entry(9);
    entries.push(Arc::clone(&new));
    let (journal, _) = Journal::open(&path)?;
    journal.write(vec![accept(8, &entries, &[new], vec![gone.key.clone()])]).await?;
    drop(journal);
    assert_eq!(reopened(&path)?.entries, entries);
    Ok(())
}

#[tokio::test]
async fn batches_are_written_in_the_order_of_the_calls() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    let (journal, _) = Journal::open(&path)?;
    let first = journal.write(vec![removing(1)]);
    let second = journal.write(vec![Write::Removed(tombstone(1))]);
    second.await?;
    first.await?;
    drop(journal);
    assert_eq!(reopened(&path)?.removing, []);
    Ok(())
}

/// What a crash leaves: the files as they were when the last write was acknowledged, without anything done on closing.
#[tokio::test]
async fn what_was_acknowledged_survives_a_crash() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let (path, copy) = (directory.path().join("journal"), directory.path().join("copy"));
    let entries: Vec<_> = (0..200).map(entry).collect();
    let (journal, _) = Journal::open(&path)?;
    journal.write(bodies(&entries)).await?;
    journal.write(vec![accept(7, &entries, &entries, Vec::new()), applied(1)]).await?;
    copy_directory(&path, &copy)?;
    drop(journal);
    let (crashed, loaded) = Journal::open(&copy)?;
    assert_eq!((loaded.entries, loaded.applied.len()), (entries, 1));
    assert_eq!(crashed.body(entry(150).input)?, body(150));
    Ok(())
}

#[tokio::test]
async fn a_large_body_comes_back_whole() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    // Digits of a linear congruence: hardly compressible, so that it is larger than sled keeps in its log.
    let mut state = 1_u64;
    let text: Arc<str> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        format!("{state:x}")
    })
    .take(100_000)
    .collect::<String>()
    .into();
    let input = Digest::of(b"large");
    let (journal, _) = Journal::open(&path)?;
    journal.write(vec![Write::Body { input, text: Arc::clone(&text) }]).await?;
    drop(journal);
    assert!(Journal::open(&path)?.0.body(input)? == text);
    Ok(())
}

#[tokio::test]
async fn damage_is_moved_aside_or_harmless() -> Result<(), anyhow::Error> {
    type Damage = fn(&Path) -> std::io::Result<()>;
    let cases: [(&str, Damage); 7] = [
        ("log cut in half", |path| {
            let log = fs::OpenOptions::new().write(true).open(path.join("db"))?;
            log.set_len(log.metadata()?.len() / 2)
        }),
        ("log emptied", |path| fs::write(path.join("db"), b"")),
        ("log missing", |path| fs::remove_file(path.join("db"))),
        ("page zeroed", |path| overwrite(path, 0)),
        ("page of ones", |path| overwrite(path, 0xff)),
        ("settings cut", |path| fs::write(path.join("conf"), b"x")),
        ("all but the settings gone", |path| {
            for file in fs::read_dir(path)? {
                let file = file?;
                if file.file_type()?.is_file() && file.file_name() != "conf" {
                    fs::remove_file(file.path())?;
                }
            }
            Ok(())
        }),
    ];
    for (name, damage) in cases {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("journal");
        let entries = filled(&path, 300).await?;
        damage(&path)?;
        let (journal, loaded) = Journal::open(&path).map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
        let aside = directory.path().join("journal.damaged-1").exists();
        if aside {
            assert!(is_empty(&loaded), "{name}: {} entries of a damaged journal", loaded.entries.len());
        } else {
            // The byte was not used, or the lost write is as if it had never been made.
            assert!(loaded.entries == entries || is_empty(&loaded) || loaded.entries.is_empty(), "{name}");
        }
        journal.write(vec![applied(1)]).await.map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
        drop(journal);
        assert_eq!(reopened(&path)?.applied.len(), 1, "{name}");
    }
    Ok(())
}

#[test]
fn records_of_a_sync_wait_for_more_and_nothing_that_work_waits_for_does() {
    let one = accept(1, &[], &[], Vec::new());
    assert!(writer::may_gather(&[applied(1), applied(2)]));
    assert!(!writer::may_gather(&[applied(1)]), "of one object, as when it drifted");
    assert!(!writer::may_gather(&[applied(1), one]));
    assert!(!writer::may_gather(&[applied(1), removing(2)]));
}

fn overwrite(path: &Path, byte: u8) -> std::io::Result<()> {
    let log = path.join("db");
    let mut bytes = fs::read(&log)?;
    let middle = bytes.len() / 2;
    let end = (middle + 4096).min(bytes.len());
    bytes[middle..end].fill(byte);
    fs::write(log, bytes)
}

#[tokio::test]
async fn an_unreadable_snapshot_is_renamed_and_the_journal_read_without_it() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    let entries = filled(&path, 20).await?;
    fs::write(path.join("snap.7fffffffffffffff"), b"cut")?;
    assert_eq!(reopened(&path)?.entries, entries);
    assert!(path.join("unreadable.snap.7fffffffffffffff").exists());
    assert!(!directory.path().join("journal.damaged-1").exists());
    Ok(())
}

#[tokio::test]
async fn entries_that_are_not_the_accepted_set_are_damage() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    let entries = filled(&path, 5).await?;
    let (journal, _) = Journal::open(&path)?;
    // A set of five named, four written.
    journal.write(vec![accept(8, &entries, &[], vec![entry(0).key.clone()])]).await?;
    drop(journal);
    assert!(is_empty(&reopened(&path)?));
    assert!(directory.path().join("journal.damaged-1").exists());
    Ok(())
}

#[tokio::test]
async fn a_newer_journal_is_set_aside_and_a_new_one_begun() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    filled(&path, 1).await?;
    let engine = super::engine::Engine::open(&path)?;
    engine.commit(&[[record::put(super::change::Table::Meta, record::SCHEMA_KEY.to_vec(), "99")].into()])?;
    drop(engine);
    assert!(is_empty(&reopened(&path)?), "nothing of it is believed");
    let aside = directory.path().join("journal.newer");
    assert!(aside.exists() && !directory.path().join("journal.damaged-1").exists());
    // Where it is taken up again, it is not by mistake.
    fs::remove_dir_all(&path)?;
    fs::rename(&aside, &path)?;
    assert!(is_empty(&reopened(&path)?), "and again");
    assert!(aside.exists());
    Ok(())
}

/// An older version would keep its objects without what it does not know of.
#[tokio::test]
async fn a_journal_whose_writer_understood_more_is_set_aside() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    filled(&path, 1).await?;
    assert!(!is_empty(&reopened(&path)?));
    let write = |names: &[&str]| -> Result<(), Error> {
        let engine = super::engine::Engine::open(&path)?;
        let key = record::CAPABILITIES_KEY.to_vec();
        engine.commit(&[[record::put(super::change::Table::Meta, key, names)].into()]).map(drop)
    };
    // One that understood less wrote nothing that this one does not.
    write(&["gates"])?;
    assert!(!is_empty(&reopened(&path)?));
    write(&["gates", "teleport"])?;
    assert!(is_empty(&reopened(&path)?), "nothing of it is believed");
    assert!(directory.path().join("journal.newer").exists());
    assert!(is_empty(&reopened(&path)?), "what is begun anew is its own");
    Ok(())
}

#[tokio::test]
async fn a_journal_in_use_is_refused() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("journal");
    let (_journal, _) = Journal::open(&path)?;
    assert!(matches!(Journal::open(&path), Err(Error::InUse { .. })));
    Ok(())
}

fn copy_directory(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for file in fs::read_dir(from)? {
        let file = file?;
        if file.file_type()?.is_dir() {
            copy_directory(&file.path(), &to.join(file.file_name()))?;
        } else {
            fs::copy(file.path(), to.join(file.file_name()))?;
        }
    }
    Ok(())
}
