//! The engine against a model that keeps every version in a map and is obviously right.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Default)]
struct Oracle {
    versions: BTreeMap<Bytes, Vec<(Revision, Option<Item>)>>,
    /// In commit order; unlike the store it never forgets.
    events: Vec<(Bytes, Event)>,
    revision: Revision,
    floor: Revision,
}

impl Oracle {
    fn item(&self, key: &Bytes, at: Revision) -> Option<Item> {
        let versions = self.versions.get(key)?;
        versions.iter().rev().find(|(revision, _)| *revision <= at)?.1.clone()
    }

    fn commit(&mut self, commit: &Commit) -> CommitOutcome {
        for (compare, condition) in commit.compare.iter().enumerate() {
            let (key, expected) = match condition {
                Compare::Absent(key) => (key, None),
                Compare::Modified(key, at) => (key, Some(*at)),
            };
            let found = self.item(key, self.revision);
            if found.as_ref().map(|item| item.modified) != expected {
                return CommitOutcome::Conflict { compare, found };
            }
        }
        let next = Revision(self.revision.0 + 1);
        for op in &commit.ops {
            let (Op::Put(key, _) | Op::Delete(key)) = op;
            let previous = self.item(key, next);
            let (version, event) = match (op, previous) {
                (Op::Put(key, value), previous) => {
                    let created = previous.as_ref().map_or(next, |item| item.created);
                    let item = Item { key: key.clone(), value: value.clone(), created, modified: next };
                    (Some(item.clone()), Event::Put { item, previous })
                }
                (Op::Delete(key), Some(previous)) => (None, Event::Delete { key: key.clone(), at: next, previous }),
                (Op::Delete(_), None) => continue,
            };
            self.versions.entry(key.clone()).or_default().push((next, version));
            self.events.push((key.clone(), event));
            self.revision = next;
        }
        CommitOutcome::Committed(self.revision)
    }

    fn page(&self, range: &KeyRange, at: Revision, limit: usize) -> Page {
        let keys = self.versions.keys().filter(|key| range.start <= **key && **key < range.end);
        let mut items: Vec<Item> = keys.filter_map(|key| self.item(key, at)).collect();
        let more = items.len() > limit;
        items.truncate(limit);
        Page { revision: at, items, more }
    }

    fn changes(&self, range: &KeyRange, after: Revision) -> Vec<Event> {
        let inside = |key: &Bytes| range.start <= *key && *key < range.end;
        let wanted = |(key, event): &&(Bytes, Event)| inside(key) && event.revision() > after;
        self.events.iter().filter(wanted).map(|(_, event)| event.clone()).collect()
    }
}

/// Revisions are drawn as percentages of the current one, so that they mean something in any state.
#[derive(Clone, Debug)]
enum Action {
    Commit { compare: Vec<(Bytes, Guess)>, ops: BTreeMap<Bytes, Option<Bytes>> },
    Range { range: KeyRange, at: Option<u64>, limit: usize },
    Watch { range: KeyRange, after: u64 },
    Compact { before: u64 },
    Reopen,
}

#[derive(Clone, Debug)]
enum Guess {
    Right,
    Absent,
    Modified(u64),
}

fn keys() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(0), Just(0xff)], 1..4).prop_map(Bytes::from)
}

fn ranges() -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        1 => Just(everything()),
        2 => (keys(), keys()).prop_map(|(start, end)| KeyRange { start, end }),
    ]
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let guess = prop_oneof![
        6 => Just(Guess::Right),
        1 => Just(Guess::Absent),
        1 => (0..=100u64).prop_map(Guess::Modified)
    ];
    let value = prop::option::weighted(0.7, prop::collection::vec(any::<u8>(), 0..6).prop_map(Bytes::from));
    let commit = (prop::collection::vec((keys(), guess), 0..3), prop::collection::btree_map(keys(), value, 0..5))
        .prop_map(|(compare, ops)| Action::Commit { compare, ops });
    let action = prop_oneof![
        12 => commit,
        4 => (ranges(), prop::option::of(0..=110u64), 0..6usize)
            .prop_map(|(range, at, limit)| Action::Range { range, at, limit }),
        3 => (ranges(), 0..=105u64).prop_map(|(range, after)| Action::Watch { range, after }),
        1 => (0..=105u64).prop_map(|before| Action::Compact { before }),
        1 => Just(Action::Reopen),
    ];
    prop::collection::vec(action, 1..80)
}

struct OpenWatch {
    stream: WatchStream,
    range: KeyRange,
    after: Revision,
}

struct Run {
    dir: TempDir,
    store: Arc<SqliteStore>,
    oracle: Oracle,
    watches: Vec<OpenWatch>,
}

impl Run {
    fn percent(&self, percent: u64) -> Revision {
        Revision((self.oracle.revision.0 * percent).div_ceil(100))
    }

    /// Whether the result is the refusal that is due for `asked`; `None` if none is due.
    fn refusal<T>(&self, asked: Revision, result: &Result<T, Error>) -> Option<bool> {
        if asked > self.oracle.revision {
            Some(matches!(result, Err(Error::Future { .. })))
        } else if asked < self.oracle.floor {
            Some(matches!(result, Err(Error::Compacted { .. })))
        } else {
            None
        }
    }

    async fn act(&mut self, action: Action) {
        match action {
            Action::Commit { compare, ops } => self.commit(compare, ops).await,
            Action::Range { range, at, limit } => {
                let at = at.map(|percent| self.percent(percent));
                let page = self.store.range(range.clone(), at, limit).await;
                let at = at.unwrap_or(self.oracle.revision);
                if let Some(refused) = self.refusal(at, &page) {
                    assert!(refused, "{at:?}: {page:?}");
                } else {
                    assert_eq!(page.unwrap(), self.oracle.page(&range, at, limit));
                    let all = self.oracle.page(&range, at, usize::MAX).items.len() as u64;
                    assert_eq!(self.store.count(range, at).await.unwrap(), all);
                }
            }
            Action::Watch { range, after } => {
                let after = self.percent(after);
                let opened = self.store.watch(range.clone(), after);
                match self.refusal(after, &opened) {
                    Some(refused) => assert!(refused, "{after:?}"),
                    None => self.watches.push(OpenWatch { stream: opened.unwrap(), range, after }),
                }
            }
            Action::Compact { before } => {
                let before = self.percent(before);
                let done = self.store.compact(before).await;
                if before > self.oracle.revision {
                    assert!(matches!(done, Err(Error::Future { .. })), "{done:?}");
                } else {
                    done.unwrap();
                    self.oracle.floor = self.oracle.floor.max(before);
                }
            }
            Action::Reopen => {
                self.finish_watches().await;
                self.store.close().await;
                self.store = open(self.dir.path()).unwrap();
                assert_eq!(self.store.revision(), self.oracle.revision);
            }
        }
    }

    async fn commit(&mut self, compare: Vec<(Bytes, Guess)>, ops: BTreeMap<Bytes, Option<Bytes>>) {
        let compare = compare
            .into_iter()
            .map(|(key, guess)| match (guess, self.oracle.item(&key, self.oracle.revision)) {
                (Guess::Right, Some(item)) => Compare::Modified(key, item.modified),
                (Guess::Right, None) | (Guess::Absent, _) => Compare::Absent(key),
                (Guess::Modified(percent), _) => Compare::Modified(key, self.percent(percent)),
            })
            .collect();
        let ops = ops
            .into_iter()
            .map(|(key, value)| match value {
                Some(value) => Op::Put(key, value),
                None => Op::Delete(key),
            })
            .collect();
        let commit = Commit { compare, ops };
        let expected = self.oracle.commit(&commit);
        assert_eq!(self.store.commit(commit).await.unwrap(), expected);
    }

    /// Every watch has delivered exactly what the model says, or lost its history before it was read.
    async fn finish_watches(&mut self) {
        for mut watch in std::mem::take(&mut self.watches) {
            let mut told = Vec::new();
            let expected = self.oracle.changes(&watch.range, watch.after);
            while told.len() < expected.len() {
                match next(&mut watch.stream).await {
                    Some(Ok(Event::Progress(at))) => {
                        // All up to there has been told, and nothing else.
                        let before = expected.iter().filter(|event| event.revision() <= at).count();
                        assert_eq!(told.len(), before);
                    }
                    Some(Ok(event)) => told.push(event),
                    Some(Err(Error::Compacted { .. })) if watch.after < self.oracle.floor => break,
                    other => panic!("a watch after {:?} says {other:?}", watch.after),
                }
            }
            assert_eq!(told[..], expected[..told.len()]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_agrees_with_the_model(actions in actions()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = TempDir::new().unwrap();
            let store = open(dir.path()).unwrap();
            let mut run = Run { dir, store, oracle: Oracle::default(), watches: Vec::new() };
            for action in actions {
                run.act(action).await;
            }
            run.finish_watches().await;
            // Everything that is still readable, once more.
            for at in run.oracle.floor.0..=run.oracle.revision.0 {
                let page = run.store.range(everything(), Some(Revision(at)), 3).await.unwrap();
                assert_eq!(page, run.oracle.page(&everything(), Revision(at), 3));
            }
        });
    }
}
