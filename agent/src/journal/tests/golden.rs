//! Data directories of an agent as they were written once, journal and identity, which every later version reads.
//!
//! `TIDELINE_RECORD=1` has that of the present layout written anew first.

use std::fs;
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use tideline_common::health::Health;
use tideline_common::wire::v1::{Continuity, Decommission, ObjectReport, Progress, Terminal};
use tideline_common::{EnrolmentToken, HubId, SessionName};
use tokio::sync::watch;

use super::*;
use crate::identity::{Found, SessionStore, TargetName};

/// What is recorded now. It rises with each release that changes a layout, so that recordings of earlier ones stay.
const RECORDING: &str = "v1";

/// Where the recordings are, a directory each.
fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/data")
}

/// Every file below a directory, by its path there.
fn files(directory: &Path, below: &Path, found: &mut Vec<PathBuf>) -> Result<(), anyhow::Error> {
    for file in fs::read_dir(directory.join(below))? {
        let below = below.join(file?.file_name());
        if directory.join(&below).is_dir() {
            files(directory, &below, found)?;
        } else {
            found.push(below);
        }
    }
    Ok(())
}

/// Copies a directory, and does this with every file's content.
fn copy(
    (from, to): (&Path, &Path),
    rename: impl Fn(&Path) -> PathBuf,
    convert: impl Fn(&[u8]) -> std::io::Result<Vec<u8>>,
) -> Result<(), anyhow::Error> {
    let mut found = Vec::new();
    files(from, Path::new(""), &mut found)?;
    for file in found {
        let to = to.join(rename(&file));
        fs::create_dir_all(to.parent().expect("it is in a directory"))?;
        fs::write(to, convert(&fs::read(from.join(file))?)?)?;
    }
    Ok(())
}

fn pack(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}

fn unpack(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut plain)?;
    Ok(plain)
}

fn token() -> EnrolmentToken {
    EnrolmentToken {
        name: "store-1".to_owned(),
        urls: vec!["https://hub.example".parse().expect("a URL")],
        hub: HubId::from_uuid(Uuid::from_u128(1)),
        hub_key: vec![7; 32],
        authorities: Vec::new(),
        seed: vec![9; 32],
    }
}

fn target() -> TargetId {
    TargetId::from_uuid(Uuid::from_u128(5))
}

/// What the agent was before, by the same key.
fn former() -> TargetId {
    TargetId::from_uuid(Uuid::from_u128(4))
}

const SESSION: SessionName = SessionName::new(3, 9);
const CLUSTER: &str = "kube-system-1";

/// The newest set that was accepted as this target.
fn floor(target: TargetId, revision: u64) -> Attested {
    let version = Version { epoch: Epoch(1), revision: Revision(revision) };
    let shown = Shown { version, point: RevisionPoint::NOWHERE };
    let set = Accepted { version, digest: Digest::of(&revision.to_be_bytes()) };
    Attested { set, attestation: Attestation::unsigned(target, shown) }
}

fn mode() -> AgentMode {
    AgentMode::Frozen(FreezeReason::Revoked("its key".to_owned()))
}

/// That a Job ran, which the cluster no longer shows.
fn unsent() -> ObjectReport {
    ObjectReport {
        key: entry(2).key.clone(),
        source_uid: entry(2).source.uid.clone(),
        progress: Progress::Applied,
        reason: None,
        message: "it ran".to_owned(),
        input: Some(entry(2).input),
        health: Health::Ready,
        observed_generation: Some(1),
        terminal: Some(Terminal::Finished),
        status: None,
    }
}

/// The identity of an agent that had another target before, and whose key was revoked.
async fn record_identity(directory: &Path) -> Result<(), anyhow::Error> {
    let keeper = Arc::new(Found::load(directory, Some(&token()), None, SessionStore::Directory).await?.keep()?);
    for (target, revision) in [(former(), 6), (target(), 7)] {
        keeper.enrol(TargetName { target, name: "store-1".to_owned() }, None).await?;
        // It writes the newest set before it ends, which it does when nobody tells of a set any more.
        let (_, newest) = watch::channel(Some(floor(target, revision)));
        Arc::clone(&keeper).follow(newest).await;
    }
    keeper.keep_session(SESSION, Some(CLUSTER.parse()?)).await?;
    Ok(keeper.revoked(&keeper.key().public()).await?)
}

/// What today's code makes of a small site.
async fn record() -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    record_identity(directory.path()).await?;
    let path = directory.path().join("journal");
    {
        let (journal, _) = Journal::open(&path)?;
        journal.write(vec![Write::Enrolled(Enrolled { target: target(), name: "store-1".to_owned() })]).await?;
    }
    filled(&path, 5).await?;
    {
        let (journal, _) = Journal::open(&path)?;
        let passed = Write::Passed { number: 1, tombstone: tombstone(7) };
        journal.write(vec![applied(1), applied(2), removing(7), passed]).await?;
        journal.write(vec![Write::History(Continuity::Broken), Write::Decommission(Decommission::Keep)]).await?;
        let ran = Write::Ran { number: 3, tombstone: tombstone(8) };
        journal.write(vec![ran, Write::Unsent(Box::new(unsent())), Write::Mode(mode())]).await?;
    }
    let recording = golden().join(RECORDING);
    let _none = fs::remove_dir_all(&recording);
    let packed = |file: &Path| PathBuf::from(format!("{}.gz", file.display()));
    copy((directory.path(), &recording), packed, pack)
}

#[tokio::test]
async fn every_golden_data_directory_is_read() -> Result<(), anyhow::Error> {
    if std::env::var_os("TIDELINE_RECORD").is_some() {
        record().await?;
    }
    let recordings = fs::read_dir(golden())?.map(|recording| Ok(recording?.path()));
    let recordings: Vec<_> = recordings.collect::<std::io::Result<_>>()?;
    assert!(recordings.contains(&golden().join(RECORDING)), "{recordings:?}");
    for recording in recordings {
        is_read(&recording).await.with_context(|| recording.display().to_string())?;
    }
    Ok(())
}

async fn is_read(recording: &Path) -> Result<(), anyhow::Error> {
    let directory = tempfile::tempdir()?;
    copy((recording, directory.path()), |file| file.with_extension(""), unpack)?;
    let found = Found::load(directory.path(), None, None, SessionStore::Directory).await?.keep()?;
    assert_eq!(found.enrolled().map(|enrolled| enrolled.target), Some(target()));
    assert_eq!(found.newest_session_and_floor(), (SESSION, Some(floor(target(), 7))));
    assert_eq!(found.pin().hub, token().hub);
    assert_eq!(found.formers().iter().collect::<Vec<_>>(), [former()]);
    assert_eq!(found.inherited(), Some(floor(former(), 6)));
    assert_eq!(found.cluster(), Some(CLUSTER.parse()?));
    assert_ne!(found.enrolling_key().await?.seed(), found.key().seed(), "it has a key for its next token");
    assert_eq!(found.addresses().first().map(ToString::to_string).as_deref(), Some("https://hub.example"));

    let path = directory.path().join("journal");
    let (journal, loaded) = Journal::open(&path)?;
    let mut names = Vec::new();
    for file in fs::read_dir(directory.path())? {
        names.push(file?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    assert_eq!(names, ["identity.json", "journal", "journal.reserve"], "nothing is set aside");
    assert_eq!(loaded.enrolled.map(|enrolled| enrolled.target), Some(target()));
    assert_eq!(loaded.accepted.map(|accepted| accepted.set.version.revision), Some(Revision(7)));
    let keys: Vec<_> = loaded.entries.iter().map(|entry| entry.key.clone()).collect();
    assert_eq!(keys, (0..5).map(|n| entry(n).key.clone()).collect::<Vec<_>>());
    let set: DesiredSet = loaded.entries.iter().cloned().collect();
    assert_eq!(Some(set.digest()), loaded.accepted.map(|accepted| accepted.set.digest), "it is the set that it names");
    assert!(loaded.entries.iter().all(|entry| loaded.policies.contains_key(&entry.policy)));
    for (n, entry) in (0..5).zip(&loaded.entries) {
        assert_eq!(journal.body(entry.input)?, body(n));
    }
    let applied: Vec<_> = loaded.applied.iter().map(|(key, record)| (key.clone(), record.origin)).collect();
    assert_eq!(applied, [1, 2].map(|n| (entry(n).key.clone(), Origin::Created)));
    assert_eq!(loaded.removing, [(tombstone(7), POLICY)]);
    assert_eq!((loaded.history, loaded.decommission), (Continuity::Broken, Decommission::Keep));
    assert_eq!((loaded.ran, loaded.unsent), (vec![(3, tombstone(8))], vec![unsent()]));
    assert_eq!(loaded.mode, mode());
    Ok(())
}
