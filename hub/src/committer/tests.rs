use std::iter::repeat_n;
use std::sync::Mutex;

use futures::FutureExt;
use futures::future::BoxFuture;

use tideline_common::wire::v1::{Terminal, TerminalFact};
use tideline_common::{GroupKind, ObjectKey};
use tideline_runtime::health::Health;
use tideline_store::{Item, Page, Revision, SqliteStore, WatchStream};

use super::*;
use crate::engine::{LastKnown, RememberedTarget};

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

#[tokio::test]
async fn what_is_known_of_a_target_is_there_at_the_next_start_until_it_is_gone() {
    let store = SqliteStore::in_memory().unwrap();
    let target = TargetId::from_uuid(Uuid::from_u128(1));
    let named = async || {
        let engine = load(store.as_ref(), Config::default(), Duration::ZERO, Fuse::new(20)).await.unwrap();
        engine.target_named("t")
    };
    let known = LastKnown { name: "t".to_owned(), ..LastKnown::default() };
    for (written, there) in [(Some(known.clone()), Some(target)), (None, None), (Some(known), Some(target))] {
        let mut work = Work::default();
        work.inventory.insert(target, written);
        write(store.as_ref(), &work).await.unwrap();
        assert_eq!(named().await, there);
    }
    // A hub that could not start for this would be worse off.
    let ops = vec![Op::Put(format!("{INVENTORY_PREFIX}{target}").into(), "[".into())];
    commit(store.as_ref(), ops).await.unwrap();
    assert_eq!(named().await, None);
}

/// A store in memory whose commits fail as it is told, the last in the list for ever.
struct Failing {
    store: Arc<SqliteStore>,
    errors: Mutex<Vec<StoreError>>,
    tries: Mutex<usize>,
}

impl Failing {
    fn with(errors: Vec<StoreError>) -> Arc<Self> {
        Arc::new(Self { store: SqliteStore::in_memory().unwrap(), errors: Mutex::new(errors), tries: Mutex::new(0) })
    }
}

impl Store for Failing {
    fn revision(&self) -> Revision {
        self.store.revision()
    }

    fn failure(&self) -> Option<StoreError> {
        self.errors.lock().unwrap().first().filter(|error| matches!(error, StoreError::Failed { .. })).cloned()
    }

    fn get(&self, key: Bytes) -> BoxFuture<'_, Result<Option<Item>, StoreError>> {
        self.store.get(key)
    }

    fn range(&self, range: KeyRange, at: Option<Revision>, limit: usize) -> BoxFuture<'_, Result<Page, StoreError>> {
        self.store.range(range, at, limit)
    }

    fn count(&self, range: KeyRange, at: Revision) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.store.count(range, at)
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<CommitOutcome, StoreError>> {
        *self.tries.lock().unwrap() += 1;
        match self.errors.lock().unwrap().first() {
            Some(error) => std::future::ready(Err(error.clone())).boxed(),
            None => self.store.commit(commit),
        }
    }

    fn watch(&self, range: KeyRange, after: Revision) -> Result<WatchStream, StoreError> {
        self.store.watch(range, after)
    }

    fn compact(&self, before: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        self.store.compact(before)
    }
}

fn something() -> Work {
    let mut work = Work::default();
    work.remembered.insert(TargetId::from_uuid(Uuid::from_u128(1)), RememberedTarget::default());
    work
}

const PATH: &str = "/data/store.db";

#[tokio::test(start_paused = true)]
async fn a_store_that_failed_is_told_as_unready_and_ends_the_hub_within_half_a_minute() {
    let reason = "disk I/O error".to_owned();
    let store = Failing::with(vec![StoreError::Failed { operation: "commit to", path: PATH.to_owned(), reason }]);
    let (health, shutdown) = (Health::new(), CancellationToken::new());
    let (watched, work, begun) = (StoreHealth::new(&health), something(), tokio::time::Instant::now());
    let mut writing = std::pin::pin!(persist(store.as_ref(), &work, &watched, &shutdown));
    assert!(futures::poll!(&mut writing).is_pending());
    assert_eq!(health.waiting_for(), ["the disk of the store, which failed"]);
    let Err(retry::Error::Permanent(error)) = writing.await else { panic!("it goes on") };
    assert!((Duration::from_secs(20)..Duration::from_secs(30)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    assert_eq!(*store.tries.lock().unwrap(), 5);
    let said: &str = &exit::chain(&Error::Failed(error));
    assert!(said.contains(PATH) && said.contains("tideline-hub restore"), "{said}");
}

/// As where the commit of somebody else met the disk.
#[tokio::test(start_paused = true)]
async fn a_store_that_failed_ends_a_hub_that_has_nothing_to_write_itself() {
    let reason = "disk I/O error".to_owned();
    let store = Failing::with(vec![StoreError::Failed { operation: "commit to", path: PATH.to_owned(), reason }]);
    let engine = Engine::new(Config::default(), Duration::ZERO, Fuse::new(20), Ledger::default(), BTreeMap::new());
    let (health, shutdown) = (Health::new(), CancellationToken::new());
    let run = run(Shared::new(engine), Arc::clone(&store) as _, StoreHealth::new(&health), shutdown);
    let ended = tokio::time::timeout(Duration::from_secs(30), run).await.unwrap();
    assert!(matches!(ended, Err(Error::Failed(_))), "{ended:?}");
    assert_eq!(*store.tries.lock().unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_without_room_is_tried_until_there_is_some() {
    let full = StoreError::Full { operation: "commit to", path: PATH.to_owned(), reason: "full".to_owned() };
    let large = StoreError::TooLarge { ops: 1, bytes: 2 << 20 };
    for (error, state) in [(full, StoreState::Full), (large, StoreState::Refusing)] {
        let store = Failing::with(vec![error]);
        let (health, shutdown) = (Health::new(), CancellationToken::new());
        let (watched, work) = (StoreHealth::new(&health), something());
        let mut writing = std::pin::pin!(persist(store.as_ref(), &work, &watched, &shutdown));
        assert!(tokio::time::timeout(Duration::from_hours(1), &mut writing).await.is_err());
        assert_eq!((watched.state(), health.waiting_for().len()), (state, 1));
        store.errors.lock().unwrap().clear();
        writing.await.unwrap();
        assert_eq!((watched.state(), health.waiting_for().len()), (StoreState::Writable, 0));
    }
}
