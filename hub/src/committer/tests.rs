use std::iter::repeat_n;

use tideline_common::wire::v1::{Terminal, TerminalFact};
use tideline_common::{GroupKind, ObjectKey};
use tideline_store::SqliteStore;

use super::*;
use crate::engine::RememberedTarget;

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
