use std::time::Duration;

use tideline_store::{Commit, Revision, SqliteStore, Store};

use super::*;
use crate::history_change::{Accepted, HistoryChange};
use crate::identity::{Identity, Rotation};
use crate::link::core::Config;
use crate::placement::Change;
use crate::removal_guards::Fuse;
use crate::{committer, options};

/// Starts the engine of a data directory, as far as its ledger goes.
async fn started(dir: &Path) -> (crate::engine::Engine, std::sync::Arc<SqliteStore>) {
    let store = SqliteStore::open(dir).unwrap();
    let fuse = Fuse::new(options::Options::new(dir, ([127, 0, 0, 1], 0).into()).unassign_limit);
    let engine = committer::load(store.as_ref(), Config::default(), Duration::ZERO, fuse).await.unwrap();
    (engine, store)
}

/// A hub with its store and its keys, as it is at work.
async fn made(dir: &Path) -> (crate::engine::Engine, tideline_common::HubId) {
    tideline_runtime::tls::install_provider();
    fs::create_dir(dir).unwrap();
    let hub = Identity::open(dir, Revision(0)).unwrap().hub;
    let (engine, store) = started(dir).await;
    store.close().await;
    (engine, hub)
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_restored_hub_is_the_same_hub_and_waits_for_a_person() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, file, other) = (scratch.path().join("hub"), scratch.path().join("b"), scratch.path().join("other"));
    let (engine, hub) = made(&dir).await;
    assert!(!engine.ledger.is_broken());
    backup(&dir, &file, "2026-11-20T10:00:00.2Z".parse().unwrap()).unwrap();

    let outcome = Outcome { made: "2026-11-20T10:00:00Z".to_owned(), keys: Keys::OfBackup };
    assert_eq!(restore(&file, &other).unwrap(), outcome);
    let (engine, store) = started(&other).await;
    assert_eq!(Identity::open(&other, store.revision()).unwrap().hub, hub);
    assert!(engine.ledger.is_broken(), "nothing goes out before a person accepts it");
    let restored = engine.ledger.restored().unwrap().clone();
    assert_eq!(restored.made, "2026-11-20T10:00:00Z");

    let accepted = Accepted { restored: Some(restored.id), ..Accepted::default() };
    let object = "acceptance".parse().unwrap();
    let accept = Change::History(HistoryChange::Accept { object, accepted: Box::new(accepted) });
    let batch = engine.ledger.plan(committer::fresh(tideline_common::Monotonic::from_millis(0)), [accept]);
    for write in batch.chunks().iter().flatten() {
        let op = match write.value.clone() {
            Some(value) => Op::Put(write.key.clone().into(), value.into()),
            None => Op::Delete(write.key.clone().into()),
        };
        store.commit(Commit { compare: Vec::new(), ops: vec![op] }).await.unwrap();
    }
    store.close().await;
    let (engine, _store) = started(&other).await;
    assert!(!engine.ledger.is_broken(), "once, and not at every start");
}

#[tokio::test]
async fn another_database_is_no_backup_of_a_hub() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, file, other) = (scratch.path().join("hub"), scratch.path().join("b"), scratch.path().join("other"));
    let (_engine, _running) = started(&dir).await;
    tideline_store::backup(&dir, &file, &[]).unwrap();
    let error = restore(&file, &other).unwrap_err().to_string();
    assert!(
        error.ends_with("is not a backup of a hub: it lacks made; give a file that `tideline-hub backup` wrote"),
        "{error}"
    );
    assert_eq!(names(&other), ["store.lock"]);
}

#[tokio::test]
async fn where_the_keys_cannot_be_used_or_written_there_is_no_store() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    made(&path("hub")).await;
    backup(&path("hub"), &path("b"), jiff::Timestamp::UNIX_EPOCH).unwrap();
    fs::create_dir_all(path("other/identity.new")).unwrap();
    assert!(matches!(restore(&path("b"), &path("other")), Err(Error::Write { .. })));
    assert_eq!(names(&path("other")), ["identity.new", "store.lock", "written-by"]);
    // What was in the way is not any more, and nothing else is.
    fs::remove_dir(path("other/identity.new")).unwrap();
    restore(&path("b"), &path("other")).unwrap();
    assert_eq!(names(&path("other")), ["identity.json", "store.db", "store.lock", "written-by"]);

    fs::write(path("hub/identity.json"), r#"{"schema": 2}"#).unwrap();
    backup(&path("hub"), &path("newer"), jiff::Timestamp::UNIX_EPOCH).unwrap();
    assert!(matches!(restore(&path("newer"), &path("third")), Err(Error::Keys(..))));
    assert_eq!(names(&path("third")), ["store.lock"]);
}

#[tokio::test]
async fn keys_that_are_there_are_never_written_over() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    made(&path("hub")).await;
    backup(&path("hub"), &path("b"), jiff::Timestamp::UNIX_EPOCH).unwrap();
    identity::rotate(&path("hub"), Rotation::Prepare).unwrap();
    let newer = fs::read(path("hub/identity.json")).unwrap();
    fs::create_dir(path("other")).unwrap();
    let present = path("other/identity.json");
    fs::write(&present, &newer).unwrap();
    assert_eq!(restore(&path("b"), &path("other")).unwrap().keys, Keys::Kept);
    assert_eq!(fs::read(&present).unwrap(), newer, "nothing else has the key of the next authority");
    assert!(started(&path("other")).await.0.ledger.restored().is_some());

    made(&path("third")).await;
    let of_another = fs::read(path("third/identity.json")).unwrap();
    fs::remove_file(path("third/store.db")).unwrap();
    assert!(matches!(restore(&path("b"), &path("third")), Err(Error::OtherHub { .. })));
    assert_eq!(fs::read(path("third/identity.json")).unwrap(), of_another);
    fs::write(path("third/identity.json"), "cut sh").unwrap();
    assert!(matches!(restore(&path("b"), &path("third")), Err(Error::Unreadable { .. })));
    assert_eq!(names(&path("third")), ["identity.json", "store.lock"]);
}
