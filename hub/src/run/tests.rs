use std::io::{Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use serde_json::{Value, json};
use tideline_runtime::exit;
use tideline_store::{Commit, CommitOutcome, Op};

use super::*;

/// Where SQLite keeps `user_version` in the header of a database: four bytes, big endian.
const USER_VERSION_AT: u64 = 60;

/// A run that ends as soon as it has begun.
async fn run_once(dir: &Path) -> Result<(), Error> {
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let options = Options { health_listen: anywhere, ..Options::new(dir, anywhere) };
    let shutdown = CancellationToken::new();
    shutdown.cancel();
    run(options, shutdown).await
}

fn raise_schema_of_store(dir: &Path) {
    let mut file = fs::OpenOptions::new().write(true).open(dir.join("store.db")).unwrap();
    file.seek(SeekFrom::Start(USER_VERSION_AT)).unwrap();
    file.write_all(&99_u32.to_be_bytes()).unwrap();
}

async fn raise_schema_of_ledger(dir: &Path) {
    let store = SqliteStore::open(dir).unwrap();
    let key = format!("{}head", ledger::KEY_PREFIX);
    let head = store.get(key.clone().into()).await.unwrap().unwrap();
    let mut head: Value = serde_json::from_slice(&head.value).unwrap();
    head["schema"] = json!(99);
    let ops = vec![Op::Put(key.into(), head.to_string().into())];
    let written = store.commit(Commit { compare: Vec::new(), ops }).await.unwrap();
    assert!(matches!(written, CommitOutcome::Committed(_)), "{written:?}");
    store.close().await;
}

/// The run fails, and says which part is of another version and which version reads it.
async fn is_refused(dir: &Path, part: &str) {
    let written_by = dir.join("written-by");
    fs::write(&written_by, "99.1.0\n").unwrap();
    let said = exit::chain(&run_once(dir).await.unwrap_err());
    assert!(said.contains("run version 99.1.0, or a newer one") && said.contains(part), "{said}");
    assert_eq!(fs::read_to_string(&written_by).unwrap(), "99.1.0\n", "who cannot read it has written nothing");
}

#[tokio::test]
async fn a_hub_whose_store_is_newer_ends_and_names_the_version_that_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    run_once(dir.path()).await.unwrap();
    raise_schema_of_store(dir.path());
    is_refused(dir.path(), "store.db has schema version 99").await;
}

#[tokio::test]
async fn a_hub_whose_ledger_is_newer_ends_and_names_the_version_that_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    run_once(dir.path()).await.unwrap();
    raise_schema_of_ledger(dir.path()).await;
    is_refused(dir.path(), "the ledger has schema version 99").await;
}

#[tokio::test]
async fn a_hub_whose_store_is_lost_begins_no_other_until_a_person_says_so() {
    let dir = tempfile::tempdir().unwrap();
    run_once(dir.path()).await.unwrap();
    let is_refused = async || {
        let lost = run_once(dir.path()).await.unwrap_err();
        assert!(matches!(lost, Error::StoreLost { .. }), "{lost}");
        assert!(lost.to_string().contains("tideline-hub restore FILE --data-dir"), "{lost}");
        assert!(!dir.path().join("store.db").exists(), "no other is made");
    };
    let backup = dir.path().join("backup");
    crate::backup::backup(dir.path(), &backup, jiff::Timestamp::UNIX_EPOCH).unwrap();
    for file in ["store.db", "store.db-wal", "store.db-shm"] {
        let _ = fs::remove_file(dir.path().join(file));
    }
    is_refused().await;
    is_refused().await;
    crate::backup::restore(&backup, dir.path()).unwrap();
    run_once(dir.path()).await.unwrap();

    // As when a restore into an empty directory ends after the keys and before the store.
    for file in ["store.db", "store.db-wal", "store.db-shm", "written-by", "identity.json"] {
        let _ = fs::remove_file(dir.path().join(file));
    }
    crate::backup::restore(&backup, dir.path()).unwrap();
    fs::remove_file(dir.path().join("store.db")).unwrap();
    is_refused().await;

    fs::remove_file(dir.path().join("written-by")).unwrap();
    run_once(dir.path()).await.unwrap();
}

/// As when the disk was full, or a copy of the directory ended early.
#[tokio::test]
async fn a_store_that_is_empty_is_lost_as_one_that_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    run_once(dir.path()).await.unwrap();
    for file in ["store.db-wal", "store.db-shm"] {
        let _ = fs::remove_file(dir.path().join(file));
    }
    fs::write(dir.path().join("store.db"), "").unwrap();
    let lost = run_once(dir.path()).await.unwrap_err();
    assert!(matches!(lost, Error::StoreLost { .. }), "{lost}");
    assert_eq!(fs::metadata(dir.path().join("store.db")).unwrap().len(), 0, "nothing is made of it");
    let backup = dir.path().join("backup");
    assert!(tideline_store::backup(dir.path(), &backup, &[]).is_err() && !backup.exists(), "nor is it backed up");

    // All that a young hub wrote is beside the file, and was lost with that: one page is left, and no table on it.
    let mut page = vec![0; 4096];
    page[..18].copy_from_slice(b"SQLite format 3\0\x10\0");
    page[18..24].copy_from_slice(&[2, 2, 0, 64, 32, 32]);
    page[100] = 13;
    page[105..107].copy_from_slice(&[16, 0]);
    fs::write(dir.path().join("store.db"), page).unwrap();
    let lost = run_once(dir.path()).await.unwrap_err();
    assert!(matches!(lost, Error::StoreLost { .. }), "{lost}");
    let refused = tideline_store::backup(dir.path(), &backup, &[]).unwrap_err();
    assert!(!backup.exists() && refused.to_string().contains("there is no store"), "{refused}");
}

/// What cannot be looked at is not taken for what is not there.
#[tokio::test]
async fn whether_there_was_a_store_is_not_guessed() {
    for file in ["written-by", "store.db"] {
        let dir = tempfile::tempdir().unwrap();
        run_once(dir.path()).await.unwrap();
        for file in [file, "store.db-wal", "store.db-shm"] {
            let _ = fs::remove_file(dir.path().join(file));
        }
        // It leads to itself, which is an error for everybody, root too.
        std::os::unix::fs::symlink(file, dir.path().join(file)).unwrap();
        let unknown = run_once(dir.path()).await.unwrap_err();
        assert!(matches!(unknown, Error::DataDir { .. }), "{unknown}");
    }
}

#[tokio::test]
async fn the_data_directory_of_an_agent_is_refused_before_anything_is_made_there() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("journal")).unwrap();
    let refused = run_once(dir.path()).await.unwrap_err();
    assert!(matches!(refused, Error::Identity(identity::Error::OfAgent(_))), "{refused}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}
