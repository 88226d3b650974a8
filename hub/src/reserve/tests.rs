use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tideline_runtime::health::Health;
use tideline_store::{
    Commit, CommitOutcome, Error, Item, KeyRange, Op, Page, Revision, SqliteStore, Store, WatchStream,
};

use super::*;
use crate::committer::StoreState;

const BYTES: u64 = 3 << 20;

/// A reserve of some megabytes that has to leave so much room beside it.
fn reserve(dir: &Path, beside: u64) -> (Arc<Reserve>, StoreHealth, Health) {
    let health = Health::new();
    let store = StoreHealth::new(&health);
    let reserve = Reserve { bytes: BYTES, beside, ..Reserve::new(dir, store.clone()) };
    (Arc::new(reserve), store, health)
}

const TOO_MUCH: u64 = u64::MAX / 2;

#[test]
fn a_reserve_takes_room_and_gives_it_back() {
    let dir = tempfile::tempdir().unwrap();
    let (reserve, health, _) = reserve(dir.path(), 0);
    let taken =
        || fs::symlink_metadata(dir.path().join(FILE)).ok().map(|file| (file.len(), file.blocks() * 512, file.mode()));
    reserve.look();
    let (length, blocks, mode) = taken().unwrap();
    assert!(length == BYTES && blocks >= BYTES && mode & 0o777 == 0o600, "{length} {blocks} {mode:o}");
    assert!(!health.is_short());
    reserve.give_up();
    assert!(taken().is_none() && health.is_short());
    reserve.give_up();
    // Half of one is none.
    fs::write(dir.path().join(FILE), "half").unwrap();
    reserve.look();
    assert!(taken().is_some_and(|(length, ..)| length == BYTES) && !health.is_short());
    // Nor is what a link leads to.
    fs::rename(dir.path().join(FILE), dir.path().join("elsewhere")).unwrap();
    symlink("elsewhere", dir.path().join(FILE)).unwrap();
    reserve.look();
    assert!(fs::symlink_metadata(dir.path().join(FILE)).unwrap().is_file());
}

#[test]
fn without_room_beside_it_there_is_no_reserve_and_no_first_start() {
    let dir = tempfile::tempdir().unwrap();
    let (wanting, store, health) = reserve(dir.path(), TOO_MUCH);
    wanting.look();
    assert!(!dir.path().join(FILE).exists() && store.is_short());
    assert_eq!((store.state(), health.waiting_for()), (StoreState::Full, vec!["room on the disk of the store"]));
    let refused = wanting.allows_first_start().unwrap_err().to_string();
    assert!(refused.contains(&dir.path().display().to_string()) && refused.contains("MiB are free"), "{refused}");
    // It takes writes, and will not for long.
    store.written();
    assert_eq!(store.state(), StoreState::Full);
    let roomy = Reserve { beside: 0, ..Reserve::new(dir.path(), store.clone()) };
    roomy.allows_first_start().unwrap();
    roomy.look();
    assert_eq!((store.state(), health.waiting_for().len()), (StoreState::Writable, 0));
}

#[test]
fn a_start_leaves_the_reserve_where_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let (reserve, health, _) = reserve(dir.path(), 0);
    reserve.look();
    reserve.make_room_for_start();
    assert!(dir.path().join(FILE).exists() && !health.is_short());
    // Copied, it is a hole.
    File::create(dir.path().join(FILE)).unwrap().set_len(BYTES).unwrap();
    reserve.make_room_for_start();
    assert!(!dir.path().join(FILE).exists());
}

/// A store without room while a file is there.
struct Crowded {
    store: Arc<SqliteStore>,
    by: PathBuf,
    tries: AtomicUsize,
}

impl Crowded {
    fn refusal<T>(&self) -> Option<BoxFuture<'_, Result<T, Error>>>
    where
        T: Send + 'static,
    {
        self.tries.fetch_add(1, Ordering::Relaxed);
        let full = || Error::Full { operation: "commit to", path: String::new(), reason: "full".to_owned() };
        self.by.exists().then(|| std::future::ready(Err(full())).boxed())
    }
}

impl Store for Crowded {
    fn revision(&self) -> Revision {
        self.store.revision()
    }

    fn failure(&self) -> Option<Error> {
        None
    }

    fn get(&self, key: Bytes) -> BoxFuture<'_, Result<Option<Item>, Error>> {
        self.store.get(key)
    }

    fn range(&self, range: KeyRange, at: Option<Revision>, limit: usize) -> BoxFuture<'_, Result<Page, Error>> {
        self.store.range(range, at, limit)
    }

    fn count(&self, range: KeyRange, at: Revision) -> BoxFuture<'_, Result<u64, Error>> {
        self.store.count(range, at)
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<CommitOutcome, Error>> {
        self.refusal().unwrap_or_else(|| self.store.commit(commit))
    }

    fn watch(&self, range: KeyRange, after: Revision) -> Result<WatchStream, Error> {
        self.store.watch(range, after)
    }

    fn compact(&self, before: Revision) -> BoxFuture<'_, Result<(), Error>> {
        self.refusal().unwrap_or_else(|| self.store.compact(before))
    }
}

fn put() -> Commit {
    Commit { compare: Vec::new(), ops: vec![Op::Put(Bytes::from_static(b"k"), Bytes::from_static(b"v"))] }
}

#[tokio::test]
async fn what_meets_a_full_disk_is_written_into_the_room_of_the_reserve() {
    let dir = tempfile::tempdir().unwrap();
    for compacts in [false, true] {
        let (reserve, health, _) = reserve(dir.path(), 0);
        reserve.look();
        let crowded =
            Crowded { store: SqliteStore::in_memory().unwrap(), by: dir.path().join(FILE), tries: AtomicUsize::new(0) };
        let crowded = Arc::new(crowded);
        let store = Reserving::new(Arc::clone(&crowded) as _, &reserve);
        assert!(store.shortage().is_none());
        if compacts {
            store.compact(Revision(0)).await.unwrap();
        } else {
            store.commit(put()).await.unwrap();
        }
        assert_eq!(crowded.tries.load(Ordering::Relaxed), 2);
        assert!(health.is_short() && health.state() == StoreState::Full);
        let why = store.shortage().unwrap().to_string();
        assert!(why.contains("its disk is full") && why.contains(&dir.path().display().to_string()), "{why}");
        reserve.look();
        assert!(store.shortage().is_none() && health.state() == StoreState::Writable);
    }
}

#[tokio::test]
async fn a_disk_that_is_full_without_the_reserve_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (reserve, health, _) = reserve(dir.path(), 0);
    let by = dir.path().join("taken");
    fs::write(&by, "").unwrap();
    let crowded = Crowded { store: SqliteStore::in_memory().unwrap(), by, tries: AtomicUsize::new(0) };
    let store = Reserving::new(Arc::new(crowded), &reserve);
    let full = store.commit(put()).await;
    assert!(matches!(full, Err(Error::Full { .. })) && health.is_short(), "{full:?}");
}

#[tokio::test(start_paused = true)]
async fn the_reserve_is_put_aside_at_once_and_again_within_a_minute() {
    let dir = tempfile::tempdir().unwrap();
    let (reserve, health, _) = reserve(dir.path(), 0);
    let shutdown = CancellationToken::new();
    let keeping = tokio::spawn(keep(Arc::clone(&reserve), shutdown.clone()));
    let is_there = async |there: bool| {
        while dir.path().join(FILE).exists() != there || health.is_short() == there {
            tokio::task::yield_now().await;
        }
    };
    is_there(true).await;
    reserve.give_up();
    is_there(false).await;
    let begun = tokio::time::Instant::now();
    while health.is_short() {
        sleep(RESERVE_LOOK_EVERY / 60).await;
    }
    assert!(begun.elapsed() <= RESERVE_LOOK_EVERY * 2, "{:?}", begun.elapsed());
    shutdown.cancel();
    keeping.await.unwrap().unwrap();
}
