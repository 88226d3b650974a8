use super::*;
use crate::{KeyRange, SqliteStore, Store};
use std::os::unix::fs::PermissionsExt;

fn restore(from: &Path, dir: &Path) -> Result<(), Error> {
    Restore::begin(from, dir)?.finish()
}

/// What is in a directory, without the lock of the store.
fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name != "store.lock").collect();
    names.sort();
    names
}

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

    let mut restore = Restore::begin(&file, &other).unwrap();
    assert_eq!((restore.attachment("identity"), restore.attachment("made")), (Some(&b"secret"[..]), None));
    restore.add(vec![Op::Put("again".into(), "yes".into())]).unwrap();
    assert!(!other.join(DATABASE).exists(), "it is not there before all of it is");
    restore.finish().unwrap();
    assert_eq!(names(&other), [DATABASE]);
    let restored = SqliteStore::open(&other).unwrap();
    assert_eq!(keys(&restored).await, ["a", "again", "b"]);
    assert_eq!(restored.revision(), Revision(3));
    put(&restored, "d", "4").await;
    assert_eq!(keys(&restored).await, ["a", "again", "b", "d"]);
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
    assert!(matches!(restore(&file, &dir), Err(Error::Locked { .. })));
    store.close().await;
    assert!(restore(&file, &dir).unwrap_err().to_string().contains("store.db is there"));
}

#[tokio::test]
async fn nothing_is_restored_beside_what_is_left_of_another_store() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, file, other) = (scratch.path().join("hub"), scratch.path().join("b"), scratch.path().join("other"));
    let store = SqliteStore::open(&dir).unwrap();
    put(&store, "a", "1").await;
    backup(&dir, &file, &[]).unwrap();
    put(&store, "lost", "2").await;
    fs::create_dir(&other).unwrap();
    for left in ["store.db-wal", "store.db-shm", "store.db-journal"] {
        // Of a hub that was killed: what it committed is in the log alone.
        fs::copy(dir.join("store.db-wal"), other.join(left)).unwrap();
        assert!(restore(&file, &other).unwrap_err().to_string().contains(left));
        assert!(!other.join(DATABASE).exists());
        fs::remove_file(other.join(left)).unwrap();
    }
    restore(&file, &other).unwrap();
    assert_eq!(keys(&SqliteStore::open(&other).unwrap()).await, ["a"]);
}

#[tokio::test]
async fn nobody_makes_a_store_where_one_is_being_restored() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, file, other) = (scratch.path().join("hub"), scratch.path().join("b"), scratch.path().join("other"));
    let store = SqliteStore::open(&dir).unwrap();
    put(&store, "a", "1").await;
    backup(&dir, &file, &[]).unwrap();
    fs::create_dir(&other).unwrap();
    let held = lock(&other).unwrap();
    assert!(matches!(restore(&file, &other), Err(Error::Locked { .. })));
    drop(held);
    restore(&file, &other).unwrap();
}

/// The journal of a transaction that was cut off over the copy of a backup, as a power cut leaves it.
fn hot_journal(backup: &Path, scratch: &Path) -> Vec<u8> {
    let copy = scratch.join("copy");
    fs::copy(backup, &copy).unwrap();
    let cut_off = Connection::open(&copy).unwrap();
    // So little is kept in memory that the pages as they were have to be on the disk before the end.
    cut_off.execute_batch("PRAGMA cache_size = 2; BEGIN; UPDATE versions SET value = zeroblob(length(value))").unwrap();
    let journal = fs::read(&companions(&copy)[2]).unwrap();
    assert!(journal.len() > 4096);
    journal
}

#[tokio::test]
async fn what_an_attempt_that_died_has_left_is_in_no_later_one() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let store = SqliteStore::open(&path("hub")).unwrap();
    for nth in 0..64 {
        put(&store, &format!("a{nth:02}"), &"old".repeat(2_000)).await;
    }
    backup(&path("hub"), &path("first"), &[]).unwrap();
    for nth in 0..64 {
        put(&store, &format!("a{nth:02}"), &"new".repeat(2_000)).await;
    }
    let journal = hot_journal(&path("first"), scratch.path());
    fs::write(path("second.unfinished-journal"), &journal).unwrap();
    backup(&path("hub"), &path("second"), &[]).unwrap();
    fs::create_dir(path("other")).unwrap();
    fs::write(path("other").join("store.db.unfinished-journal"), &journal).unwrap();
    restore(&path("second"), &path("other")).unwrap();
    let restored = SqliteStore::open(&path("other")).unwrap();
    let page = restored.range(KeyRange { start: "a".into(), end: "b".into() }, None, 100).await.unwrap();
    assert_eq!(page.items.len(), 64);
    assert!(page.items.iter().all(|item| item.value.starts_with(b"new")));
}

#[tokio::test]
async fn of_what_is_not_restored_nothing_is_left() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, file, other) = (scratch.path().join("hub"), scratch.path().join("b"), scratch.path().join("other"));
    let not_a_backup = |file: &Path| {
        let error = restore(file, &other).unwrap_err().to_string();
        assert!(error.ends_with("it is not a backup; give a file that `tideline-hub backup` wrote"), "{error}");
        assert_eq!(names(&other), [""; 0]);
    };
    fs::write(&file, "no database").unwrap();
    not_a_backup(&file);
    fs::remove_file(&file).unwrap();

    let store = SqliteStore::open(&dir).unwrap();
    not_a_backup(&dir.join(DATABASE));
    for nth in 0..64 {
        put(&store, &format!("a{nth}"), &"a".repeat(6_000)).await;
    }
    backup(&dir, &file, &[]).unwrap();
    drop(Restore::begin(&file, &other).unwrap());
    assert_eq!(names(&other), [""; 0], "where somebody changes their mind");

    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    assert!(restore(&file, &other).unwrap_err().to_string().contains("damaged"));
    assert_eq!(names(&other), [""; 0]);

    fs::write(&file, &whole).unwrap();
    Connection::open(&file).unwrap().pragma_update(None, "user_version", 2).unwrap();
    assert!(matches!(restore(&file, &other), Err(Error::Schema { found: 2, .. })));
    assert_eq!(names(&other), [""; 0], "it would be there for the version that can read it, and say nothing");
}

/// Whoever may write to the directory would have root, who restores, make a file anywhere, or take it from its readers.
#[tokio::test]
async fn what_is_opened_follows_no_link() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, file, elsewhere) = (scratch.path().join("hub"), scratch.path().join("b"), scratch.path().join("there"));
    drop(SqliteStore::open(&dir).unwrap());
    backup(&dir, &file, &[]).unwrap();
    fs::write(&elsewhere, "of others").unwrap();
    let readable = || fs::metadata(&elsewhere).unwrap().permissions().mode() & 0o077;
    let before = readable();
    for (name, to) in [("store.lock", elsewhere.clone()), ("store.lock", scratch.path().join("nowhere"))] {
        let other = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(&to, other.path().join(name)).unwrap();
        let refused = [restore(&file, other.path()), SqliteStore::open(other.path()).map(drop)];
        for error in refused.map(|outcome| outcome.unwrap_err().to_string()) {
            assert!(error.contains("symbolic link"), "{error}");
        }
    }
    assert_eq!((readable(), fs::read_to_string(&elsewhere).unwrap().as_str()), (before, "of others"));
    assert!(!scratch.path().join("nowhere").exists());
}
