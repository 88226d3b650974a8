use super::*;
use crate::{Commit, KeyRange, Op, SqliteStore, Store};
use std::os::unix::fs::PermissionsExt;

async fn put(store: &SqliteStore, key: &str, value: &str) {
    let ops = vec![Op::Put(key.to_owned().into(), value.to_owned().into())];
    store.commit(Commit { compare: Vec::new(), ops }).await.unwrap();
}

async fn keys(store: &SqliteStore) -> Vec<String> {
    let all = KeyRange { start: "".into(), end: "~".into() };
    let page = store.range(all, None, 100).await.unwrap();
    page.items.iter().map(|item| String::from_utf8_lossy(&item.key).into_owned()).collect()
}

#[tokio::test]
async fn a_backup_of_a_store_in_use_has_all_that_was_acknowledged_and_nothing_after_it() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, file, other) = (scratch.path().join("hub"), scratch.path().join("b"), scratch.path().join("other"));
    let store = SqliteStore::open(&dir).unwrap();
    put(&store, "a", "1").await;
    put(&store, "b", "2").await;
    backup(&dir, &file, &[("identity", b"secret")]).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    put(&store, "c", "3").await;
    let at = store.revision();

    assert_eq!(restore(&file, &other).unwrap(), [("identity".to_owned(), b"secret".to_vec())]);
    let restored = SqliteStore::open(&other).unwrap();
    assert_eq!(keys(&restored).await, ["a", "b"]);
    assert!(restored.revision() < at);
    put(&restored, "d", "4").await;
    assert_eq!(keys(&store).await, ["a", "b", "c"], "they are two stores");
    let left: Vec<_> = fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[tokio::test]
async fn neither_a_backup_nor_a_store_is_written_over() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, file) = (scratch.path().join("hub"), scratch.path().join("b"));
    assert!(backup(&dir, &file, &[]).unwrap_err().to_string().contains("no store"));
    let store = SqliteStore::open(&dir).unwrap();
    put(&store, "a", "1").await;
    backup(&dir, &file, &[]).unwrap();
    assert!(backup(&dir, &file, &[]).unwrap_err().to_string().contains("already"));
    assert!(restore(&file, &dir).unwrap_err().to_string().contains("already"));
}

#[tokio::test]
async fn what_is_no_backup_is_not_restored() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, file) = (scratch.path().join("hub"), scratch.path().join("b"));
    fs::write(&file, "no database").unwrap();
    assert!(restore(&file, &dir).is_err());
    assert!(!dir.join(DATABASE).exists());
}
