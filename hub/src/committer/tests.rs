use std::iter::repeat_n;

use tideline_common::wire::v1::{Terminal, TerminalFact};
use tideline_common::{GroupKind, ObjectKey};
use tideline_store::SqliteStore;

use super::*;
use crate::engine::RememberedTarget;

#[tokio::test]
async fn however_many_records_there_are_all_are_read() {
    let store = SqliteStore::in_memory().unwrap();
    for count in [0, 1, LOAD_PAGE - 1, LOAD_PAGE, LOAD_PAGE + 1, 3 * LOAD_PAGE] {
        let prefix = format!("{count:04}/");
        let record = |nth: usize| Write { key: format!("{prefix}{nth:04}").into(), value: Some(b"1".to_vec()) };
        write_chunks(store.as_ref(), &chunked((0..count).map(|nth| vec![record(nth)]).collect())).await.unwrap();
        let all = read_all(store.as_ref(), &prefix).await.unwrap();
        assert!(all.iter().map(|(key, _)| key).is_sorted());
        assert_eq!(all.len(), count);
    }
}

/// As when a label selects what somebody deletes.
#[tokio::test]
async fn many_targets_that_go_at_once_are_remembered() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).unwrap();
    let fact = TerminalFact {
        key: ObjectKey::new(GroupKind::new("batch", "Job"), "n".repeat(63), "j".repeat(63)),
        source_uid: Uuid::from_u128(1).to_string().parse().unwrap(),
        fact: Terminal::Finished,
    };
    let remembered = RememberedTarget { ran: repeat_n(fact, 1_000).collect(), ..RememberedTarget::default() };
    let targets = (1..=20).map(|nth| TargetId::from_uuid(Uuid::from_u128(nth)));
    let mut work = Work::default();
    work.remembered = targets.map(|target| (target, remembered.clone())).collect();
    write(store.as_ref(), &work).await.unwrap();
    assert_eq!(read_all(store.as_ref(), TARGET_PREFIX).await.unwrap().len(), 20);
}
