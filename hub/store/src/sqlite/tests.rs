mod oracle;

use super::*;
use crate::Event;
use futures::StreamExt;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longer than anything here takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Opens a store as a process of its own would. Here, a child that another test starts holds all that is open until it is
/// a program of its own, so that a store that was closed just now may seem to be open a moment longer.
fn open(dir: &Path) -> Result<Arc<SqliteStore>, Error> {
    let begun = Instant::now();
    loop {
        match SqliteStore::open(dir) {
            Err(Error::Locked { .. }) if begun.elapsed() < PATIENCE => std::thread::yield_now(),
            outcome => return outcome,
        }
    }
}

fn key(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn everything() -> KeyRange {
    KeyRange { start: Bytes::new(), end: Bytes::from_static(&[0xff; 8]) }
}

fn between(start: &str, end: &str) -> KeyRange {
    KeyRange { start: key(start), end: key(end) }
}

fn put(name: &str, value: &str) -> Op {
    Op::Put(key(name), key(value))
}

fn delete(name: &str) -> Op {
    Op::Delete(key(name))
}

fn item(name: &str, value: &str, created: u64, modified: u64) -> Item {
    Item { key: key(name), value: key(value), created: Revision(created), modified: Revision(modified) }
}

async fn write(store: &SqliteStore, ops: Vec<Op>) -> Revision {
    match store.commit(Commit { compare: vec![], ops }).await.unwrap() {
        CommitOutcome::Committed(revision) => revision,
        conflict @ CommitOutcome::Conflict { .. } => panic!("no compare, yet {conflict:?}"),
    }
}

async fn next(stream: &mut WatchStream) -> Option<Result<Event, Error>> {
    tokio::time::timeout(PATIENCE, stream.next()).await.expect("the stream says something")
}

async fn next_event(stream: &mut WatchStream) -> Event {
    next(stream).await.expect("the stream goes on").expect("the stream is well")
}

/// The next `count` changes, whatever progress is told between them.
async fn changes(stream: &mut WatchStream, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        match next_event(stream).await {
            Event::Progress(_) => {}
            change @ (Event::Put { .. } | Event::Delete { .. }) => events.push(change),
        }
    }
    events
}

#[tokio::test]
async fn events_carry_what_they_replaced_live_and_replayed() {
    let store = SqliteStore::in_memory().unwrap();
    let mut live = store.watch(everything(), Revision(0)).unwrap();
    assert_eq!(next_event(&mut live).await, Event::Progress(Revision(0)));
    write(&store, vec![put("a", "1")]).await;
    write(&store, vec![put("a", "2"), put("b", "1")]).await;
    write(&store, vec![delete("a"), delete("nothing")]).await;
    write(&store, vec![put("a", "3")]).await;
    let expected = vec![
        Event::Put { item: item("a", "1", 1, 1), previous: None },
        Event::Put { item: item("a", "2", 1, 2), previous: Some(item("a", "1", 1, 1)) },
        Event::Put { item: item("b", "1", 2, 2), previous: None },
        Event::Delete { key: key("a"), at: Revision(3), previous: item("a", "2", 1, 2) },
        Event::Put { item: item("a", "3", 4, 4), previous: None },
    ];
    assert_eq!(changes(&mut live, expected.len()).await, expected);
    let mut replayed = store.watch(everything(), Revision(0)).unwrap();
    for event in expected {
        assert_eq!(next_event(&mut replayed).await, event);
    }
    assert_eq!(next_event(&mut replayed).await, Event::Progress(Revision(4)));
}

#[tokio::test]
async fn a_commit_without_effect_keeps_the_revision() {
    let store = SqliteStore::in_memory().unwrap();
    assert_eq!(write(&store, vec![put("a", "1")]).await, Revision(1));
    assert_eq!(write(&store, vec![delete("b")]).await, Revision(1));
    assert_eq!(write(&store, vec![]).await, Revision(1));
    assert_eq!(store.revision(), Revision(1));
}

#[tokio::test]
async fn a_conflict_names_the_first_compare_that_failed_and_writes_nothing() {
    let store = SqliteStore::in_memory().unwrap();
    write(&store, vec![put("a", "1")]).await;
    let compare = vec![
        Compare::Modified(key("a"), Revision(1)),
        Compare::Absent(key("a")),
        Compare::Modified(key("b"), Revision(1)),
    ];
    let outcome = store.commit(Commit { compare, ops: vec![put("b", "1")] }).await.unwrap();
    assert_eq!(outcome, CommitOutcome::Conflict { compare: 1, found: Some(item("a", "1", 1, 1)) });
    assert_eq!(store.get(key("b")).await.unwrap(), None);
}

#[tokio::test]
async fn pages_of_one_revision_are_consistent_and_say_whether_there_are_more() {
    let store = SqliteStore::in_memory().unwrap();
    write(&store, (0..10).map(|n| put(&format!("k{n}"), "old")).collect()).await;
    let first = store.range(between("k", "l"), None, 4).await.unwrap();
    assert_eq!((first.items.len(), first.more, first.revision), (4, true, Revision(1)));
    write(&store, vec![delete("k5"), put("k6", "new"), put("k99", "new")]).await;
    let rest = KeyRange { start: key("k4"), end: key("l") };
    let second = store.range(rest.clone(), Some(first.revision), 100).await.unwrap();
    assert_eq!((second.items.len(), second.more), (6, false));
    assert!(second.items.iter().all(|item| item.value == "old"));
    let none = store.range(rest.clone(), None, 0).await.unwrap();
    assert_eq!((none.items.len(), none.more), (0, true));
    assert!(!store.range(rest.clone(), None, 6).await.unwrap().more);
    assert_eq!(store.count(rest.clone(), first.revision).await.unwrap(), 6);
    write(&store, vec![delete("k99")]).await;
    assert_eq!(store.count(rest, store.revision()).await.unwrap(), 5);
}

#[tokio::test]
async fn the_future_and_the_compacted_past_are_refused() {
    let store = SqliteStore::in_memory().unwrap();
    for n in 0..5 {
        write(&store, vec![put("a", &n.to_string())]).await;
    }
    store.compact(Revision(3)).await.unwrap();
    store.compact(Revision(2)).await.unwrap();
    let at = |revision| store.range(everything(), Some(Revision(revision)), 10);
    let watch = |revision| store.watch(everything(), Revision(revision)).map(drop);
    assert!(matches!(at(2).await, Err(Error::Compacted { oldest: Revision(3), .. })));
    assert!(matches!(watch(2), Err(Error::Compacted { oldest: Revision(3), .. })));
    assert_eq!(at(3).await.unwrap().items, vec![item("a", "2", 1, 3)]);
    watch(3).unwrap();
    assert!(matches!(at(6).await, Err(Error::Future { current: Revision(5), .. })));
    assert!(matches!(watch(u64::MAX), Err(Error::Future { .. })));
    assert!(matches!(store.compact(Revision(6)).await, Err(Error::Future { .. })));
}

#[tokio::test]
async fn an_oversized_or_ambiguous_commit_is_refused() {
    let store = SqliteStore::in_memory().unwrap();
    let many = (0..=MAX_COMMIT_OPS).map(|n| put(&n.to_string(), "")).collect();
    let large = vec![Op::Put(key("a"), vec![0; MAX_COMMIT_BYTES].into())];
    for ops in [many, large] {
        let refused = store.commit(Commit { compare: vec![], ops }).await;
        assert!(matches!(refused, Err(Error::TooLarge { .. })), "{refused:?}");
    }
    let twice = vec![put("a", "1"), delete("a")];
    let refused = store.commit(Commit { compare: vec![], ops: twice }).await.unwrap_err();
    assert!(refused.to_string().contains("two operations"), "{refused}");
    assert_eq!(store.revision(), Revision(0));
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_cut_off() {
    let store = SqliteStore::in_memory().unwrap();
    let mut slow = store.watch(everything(), Revision(0)).unwrap();
    assert_eq!(next_event(&mut slow).await, Event::Progress(Revision(0)));
    let batch: Vec<Op> = (0..MAX_COMMIT_OPS).map(|n| put(&n.to_string(), "")).collect();
    for _ in 0..=limits::WATCH_EVENTS / MAX_COMMIT_OPS {
        write(&store, batch.clone()).await;
    }
    assert!(matches!(next(&mut slow).await, Some(Err(Error::Lagged(limits::WATCH_EVENTS)))));
    assert!(next(&mut slow).await.is_none());
}

#[tokio::test]
async fn a_watcher_far_behind_reads_all_history_without_lagging() {
    let store = SqliteStore::in_memory().unwrap();
    let batch: Vec<Op> = (0..MAX_COMMIT_OPS).map(|n| put(&n.to_string(), "")).collect();
    let commits = 2 * limits::WATCH_EVENTS / MAX_COMMIT_OPS;
    for _ in 0..commits {
        write(&store, batch.clone()).await;
    }
    let mut late = store.watch(everything(), Revision(0)).unwrap();
    for place in 0..commits * MAX_COMMIT_OPS {
        let expected = Revision((place / MAX_COMMIT_OPS) as u64 + 1);
        assert_eq!(next_event(&mut late).await.revision(), expected);
    }
    assert_eq!(next_event(&mut late).await, Event::Progress(store.revision()));
}

#[tokio::test]
async fn history_compacted_under_a_replay_ends_it() {
    let store = SqliteStore::in_memory().unwrap();
    for _ in 0..=limits::HANDOVER_COMMITS {
        write(&store, vec![put("a", "")]).await;
    }
    let mut late = store.watch(everything(), Revision(0)).unwrap();
    store.compact(store.revision()).await.unwrap();
    assert!(matches!(next(&mut late).await, Some(Err(Error::Compacted { asked: Revision(0), .. }))));
    assert!(next(&mut late).await.is_none());
}

#[tokio::test]
async fn an_idle_watcher_is_told_how_far_the_store_is() {
    let store = SqliteStore::in_memory().unwrap();
    let mut idle = store.watch(between("quiet/", "quiet0"), Revision(0)).unwrap();
    assert_eq!(next_event(&mut idle).await, Event::Progress(Revision(0)));
    // The first is told at once, the second when the interval is over.
    for _ in 0..2 {
        let at = write(&store, vec![put("loud/a", "")]).await;
        assert_eq!(next_event(&mut idle).await, Event::Progress(at));
    }
}

#[tokio::test]
async fn every_watcher_hears_exactly_its_range() {
    let store = SqliteStore::in_memory().unwrap();
    let ranges = [
        between("", "zzz"),
        between("a/", "a0"),
        between("a/b", "a/b\0"),
        between("a/b", "a/d"),
        between("b", "a"),
        between("a/c/", "a/c0"),
        between("a", "b"),
    ];
    let mut streams: Vec<WatchStream> =
        ranges.iter().map(|range| store.watch(range.clone(), Revision(0)).unwrap()).collect();
    let names = ["a/b", "a/b/x", "a/c/x", "a", "b", "a0", "a/d", "z"];
    for name in names {
        write(&store, vec![put(name, "")]).await;
    }
    for (range, stream) in ranges.iter().zip(&mut streams) {
        let expected: Vec<Bytes> =
            names.into_iter().map(key).filter(|key| range.start <= *key && *key < range.end).collect();
        let heard: Vec<Bytes> = changes(stream, expected.len())
            .await
            .into_iter()
            .map(|event| match event {
                Event::Put { item, .. } => item.key,
                Event::Delete { .. } | Event::Progress(_) => panic!("nothing was deleted"),
            })
            .collect();
        assert_eq!(heard, expected, "{range:?}");
        // The next thing said is progress, not another change.
        if let Some(Some(Ok(event))) = futures::FutureExt::now_or_never(stream.next()) {
            assert!(matches!(event, Event::Progress(_)), "{range:?} also heard {event:?}");
        }
    }
    streams.clear();
    assert!(store.watchers.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_concurrent_commits_on_one_version_exactly_one_wins() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path()).unwrap();
    let mut current = write(&store, vec![put("a", "start")]).await;
    for _ in 0..10 {
        let attempts = (0..32).map(|n| {
            let (store, compare) = (Arc::clone(&store), vec![Compare::Modified(key("a"), current)]);
            tokio::spawn(
                async move { store.commit(Commit { compare, ops: vec![put("a", &n.to_string())] }).await.unwrap() },
            )
        });
        let outcomes = futures::future::join_all(attempts.collect::<Vec<_>>()).await;
        let (mut won, mut found) = (Vec::new(), Vec::new());
        for outcome in outcomes {
            match outcome.unwrap() {
                CommitOutcome::Committed(revision) => won.push(revision),
                CommitOutcome::Conflict { found: item, .. } => found.push(item.unwrap().modified),
            }
        }
        assert_eq!(won, vec![Revision(current.0 + 1)]);
        assert!(found.iter().all(|revision| *revision == won[0]), "{found:?}");
        current = won[0];
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_joining_amid_commits_misses_and_repeats_nothing() {
    const COMMITS: u64 = 400;
    let store = SqliteStore::in_memory().unwrap();
    let writer = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            for n in 0..COMMITS {
                write(&store, vec![put("a", &n.to_string())]).await;
            }
        }
    });
    while !writer.is_finished() {
        let after = Revision(store.revision().0 / 2);
        let mut stream = store.watch(everything(), after).unwrap();
        let upto = store.revision();
        for revision in after.0 + 1..=upto.0 {
            let event = changes(&mut stream, 1).await.remove(0);
            assert_eq!(event.revision(), Revision(revision));
            // Whoever has an event can read at its revision.
            store.range(everything(), Some(event.revision()), 1).await.unwrap();
        }
    }
    writer.await.unwrap();
}

#[tokio::test]
async fn a_closed_store_refuses_and_its_watchers_end() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path()).unwrap();
    write(&store, vec![put("a", "1")]).await;
    let mut stream = store.watch(everything(), Revision(0)).unwrap();
    changes(&mut stream, 1).await;
    store.close().await;
    assert!(matches!(store.commit(Commit::default()).await, Err(Error::Closed)));
    assert!(matches!(store.get(key("a")).await, Err(Error::Closed)));
    assert!(matches!(store.watch(everything(), Revision(0)).map(drop), Err(Error::Closed)));
    assert_eq!(next_event(&mut stream).await, Event::Progress(Revision(1)));
    assert!(matches!(next(&mut stream).await, Some(Err(Error::Closed))));
    assert!(next(&mut stream).await.is_none());
    let again = open(dir.path()).unwrap();
    assert_eq!(again.get(key("a")).await.unwrap(), Some(item("a", "1", 1, 1)));
}

#[tokio::test]
async fn a_data_dir_in_use_is_refused_until_it_is_free() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path()).unwrap();
    let refused = SqliteStore::open(dir.path()).map(drop).unwrap_err();
    assert!(matches!(refused, Error::Locked { .. }), "{refused}");
    assert!(refused.to_string().contains("in use by another process"), "{refused}");
    drop(store);
    open(dir.path()).unwrap();
}

#[tokio::test]
async fn the_files_are_their_owners_alone_also_those_that_were_not() {
    let dir = TempDir::new().unwrap();
    let files = ["store.db", "store.db-shm", "store.db-wal", "store.lock"];
    let set = |mode: u32| {
        for file in files.map(|name| dir.path().join(name)).iter().filter(|file| file.exists()) {
            std::fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
        }
    };
    let modes = || files.map(|name| std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777);

    let store = open(dir.path()).unwrap();
    write(&store, vec![put("a", "secret")]).await;
    assert_eq!(modes(), [0o600; 4], "{files:?}");
    drop(store);

    // As an earlier version, or a careless copy, left them.
    set(0o644);
    let store = open(dir.path()).unwrap();
    write(&store, vec![put("a", "another secret")]).await;
    assert_eq!(modes(), [0o600; 4], "{files:?}");
}

#[tokio::test]
async fn an_unknown_schema_version_is_refused() {
    let dir = TempDir::new().unwrap();
    drop(open(dir.path()).unwrap());
    let file = rusqlite::Connection::open(dir.path().join("store.db")).unwrap();
    file.pragma_update(None, "user_version", 7).unwrap();
    drop(file);
    let refused = open(dir.path()).map(drop).unwrap_err();
    assert!(matches!(refused, Error::Schema { found: 7, known: 1, .. }), "{refused}");
}

#[tokio::test]
async fn a_damaged_file_is_refused_with_advice() {
    let garbage = TempDir::new().unwrap();
    std::fs::write(garbage.path().join("store.db"), vec![0x5a; 64 * 1024]).unwrap();

    let scribbled = TempDir::new().unwrap();
    let store = open(scribbled.path()).unwrap();
    for n in 0..20 {
        write(&store, vec![Op::Put(key(&n.to_string()), vec![n; 3000].into())]).await;
    }
    store.close().await;
    let file = scribbled.path().join("store.db");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[8 * 1024..32 * 1024].fill(0x5a);
    std::fs::write(&file, bytes).unwrap();

    for dir in [&garbage, &scribbled] {
        let refused = open(dir.path()).map(drop).unwrap_err();
        assert!(matches!(refused, Error::Failed { .. }), "{refused}");
        assert!(refused.to_string().contains("restore the data dir from a backup"), "{refused}");
    }
}

#[tokio::test]
async fn compaction_frees_history_and_keeps_live_values() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path()).unwrap();
    let keys = 3 * limits::COMPACTION_SCAN / MAX_COMMIT_OPS * MAX_COMMIT_OPS;
    for generation in ["old", "new"] {
        for chunk in (0..keys).collect::<Vec<_>>().chunks(MAX_COMMIT_OPS) {
            write(&store, chunk.iter().map(|n| put(&format!("{n:05}"), generation)).collect()).await;
        }
    }
    write(&store, vec![delete("00000")]).await;
    let floor = store.revision();
    store.compact(floor).await.unwrap();
    let page = store.range(everything(), Some(floor), usize::MAX).await.unwrap();
    assert_eq!(page.items.len(), keys - 1);
    assert!(page.items.iter().all(|item| item.value == "new"));
    store.close().await;
    let file = rusqlite::Connection::open(dir.path().join("store.db")).unwrap();
    let rows: usize = file.query_row("SELECT count(*) FROM versions", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, keys - 1);
    drop(file);
    // The tombstone with the highest revision is gone; the revision is not.
    assert_eq!(open(dir.path()).unwrap().revision(), floor);
}

const CHILD_DIR: &str = "TIDELINE_STORE_TEST_DIR";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_kill_9() {
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        return commit_until_killed(Path::new(&dir)).await;
    }
    let dir = TempDir::new().unwrap();
    let mut acknowledged = Vec::new();
    for _round in 0..3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sqlite::tests::what_was_acknowledged_survives_kill_9", "--nocapture"])
            .env(CHILD_DIR, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ack = |line: String| -> Option<u64> {
            // A line torn by the kill has no full stop.
            line.strip_prefix("acknowledged ")?.strip_suffix('.')?.parse().ok()
        };
        acknowledged.extend(lines.by_ref().map_while(Result::ok).filter_map(ack).take(200));
        child.kill().unwrap();
        child.wait().unwrap();
        // What was printed between the last line read and the kill counts as well.
        acknowledged.extend(lines.map_while(Result::ok).filter_map(ack));
        let store = open(dir.path()).unwrap();
        assert!(acknowledged.len() >= 200);
        for revision in &acknowledged {
            let found = store.get(key(&format!("{revision:08}"))).await.unwrap();
            assert!(found.is_some_and(|item| item.modified.0 >= *revision), "{revision} is lost");
        }
    }
}

/// Eight committers, each putting a key named by the revision it expects and retrying on conflict.
async fn commit_until_killed(dir: &Path) {
    let store = open(dir).unwrap();
    let committers = (0..8).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            loop {
                let name = format!("{:08}", store.revision().0 + 1);
                let commit = Commit { compare: vec![Compare::Absent(key(&name))], ops: vec![put(&name, "x")] };
                if let CommitOutcome::Committed(_) = store.commit(commit).await.unwrap() {
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "\nacknowledged {name}.").unwrap();
                    out.flush().unwrap();
                }
            }
        })
    });
    futures::future::join_all(committers.collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn a_store_without_room_says_so_and_goes_on_when_there_is_some() {
    let opened = file::open_in_memory().unwrap();
    let connection = Arc::clone(&opened.writer);
    let store = SqliteStore::start(opened).unwrap();
    write(&store, vec![put("a", "1")]).await;
    let pages = |pragma: &str| locked(&connection).query_row(pragma, [], |row| row.get::<_, i64>(0)).unwrap();
    let used = pages("PRAGMA page_count");
    pages(&format!("PRAGMA max_page_count = {used}"));
    let large = || Commit { compare: vec![], ops: vec![Op::Put(key("b"), vec![0; 100 << 10].into())] };
    for _ in 0..2 {
        let full = store.commit(large()).await;
        assert!(matches!(full, Err(Error::Full { .. })), "{full:?}");
    }
    pages(&format!("PRAGMA max_page_count = {}", used + 1_000));
    assert_eq!(store.commit(large()).await.unwrap(), CommitOutcome::Committed(Revision(2)));
}

/// SQLite makes that index anew at each start, before anything can be read.
#[test]
fn no_room_for_the_index_of_the_log_is_a_full_disk() {
    let error = |code| rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
    let no_room = file::from_sqlite("open", "store.db", &error(rusqlite::ffi::SQLITE_IOERR_SHMSIZE));
    assert!(matches!(no_room, Error::Full { .. }) && no_room.to_string().contains("free some space"), "{no_room}");
    let failed = file::from_sqlite("open", "store.db", &error(rusqlite::ffi::SQLITE_IOERR_FSYNC));
    assert!(matches!(failed, Error::Failed { .. }), "{failed}");
}
