use std::time::Duration;

use super::*;
use crate::fuse::Fuse;
use crate::identity::Identity;
use crate::ledger::{Accepted, HistoryChange};
use crate::link::core::Config;
use crate::placement::Change;
use crate::{committer, options};

/// Starts the engine of a data directory, as far as its ledger goes.
async fn started(dir: &Path) -> (crate::engine::Engine, std::sync::Arc<SqliteStore>) {
    let store = SqliteStore::open(dir).unwrap();
    let fuse = Fuse::new(options::Options::new(dir, ([127, 0, 0, 1], 0).into()).unassign_limit);
    let engine = committer::load(store.as_ref(), Config::default(), Duration::ZERO, fuse).await.unwrap();
    (engine, store)
}

#[tokio::test]
async fn a_restored_hub_is_the_same_hub_and_waits_for_a_person() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, file, other) = (scratch.path().join("hub"), scratch.path().join("b"), scratch.path().join("other"));
    let (engine, _running) = started(&dir).await;
    let hub = Identity::open(&dir).unwrap().hub;
    assert!(!engine.ledger.is_broken());
    backup(&dir, &file, "2026-11-20T10:00:00.2Z".parse().unwrap()).unwrap();

    assert_eq!(restore(&file, &other).await.unwrap(), "2026-11-20T10:00:00Z");
    assert_eq!(Identity::open(&other).unwrap().hub, hub);
    let (engine, store) = started(&other).await;
    assert!(engine.ledger.is_broken(), "nothing goes out before a person accepts it");
    let restored = engine.ledger.restored().unwrap().clone();
    assert_eq!(restored.made, "2026-11-20T10:00:00Z");

    let accepted = Accepted { restored: Some(restored.id), ..Accepted::default() };
    let accept = Change::History(HistoryChange::Accept(Box::new(accepted)));
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
    assert!(matches!(restore(&file, &other).await, Err(Error::Incomplete(..))));
}
