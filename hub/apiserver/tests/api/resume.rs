//! Clients of computed objects that list, watch, are cut off, and go on.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use tideline_apiserver::{
    Changed, ChangedGroup, Listed, Page, PageRequest, ResourceKind, SpaceConfig, UnknownKey, VirtualResource,
};
use tokio::sync::watch;

use super::harness::*;

/// What a resource knows of its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Book {
    /// That something changed.
    None,
    /// Which groups did.
    Groups,
    /// Which groups did, and what was in them.
    Names,
}

/// Changes that are known; with few of them some are soon forgotten.
const CHANGES_MAX: usize = 12;

#[derive(Debug, Default)]
struct State {
    colours: BTreeMap<String, u64>,
    at: u64,
    forgotten: u64,
    changes: BTreeMap<u64, char>,
    /// By group, what went from it and when.
    gone: BTreeMap<char, BTreeMap<String, u64>>,
    /// Groups that were read.
    read: Vec<String>,
    scans: usize,
}

/// Marbles are of the group of their first letter.
struct Marbles {
    state: Mutex<State>,
    book: Book,
    counter: watch::Sender<u64>,
}

fn group(name: &str) -> char {
    name.chars().next().expect("a name")
}

fn marble(name: &str, colour: u64) -> Value {
    let parity = if colour.is_multiple_of(2) { "even" } else { "odd" };
    json!({"metadata": {"name": name, "namespace": "default", "labels": {"parity": parity}}, "colour": colour})
}

impl Marbles {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics with it")
    }

    fn put(&self, name: &str, colour: Option<u64>) {
        let mut state = self.state();
        state.at += 2;
        let at = state.at;
        if let Some(colour) = colour {
            state.colours.insert(name.to_owned(), colour);
        } else {
            state.colours.remove(name);
            state.gone.entry(group(name)).or_default().insert(name.to_owned(), at);
        }
        state.changes.retain(|_, changed| *changed != group(name));
        state.changes.insert(at, group(name));
        if state.changes.len() > CHANGES_MAX {
            let first = state.changes.pop_first().expect("some");
            state.forgotten = first.0;
        }
        self.counter.send_replace(at);
    }
}

impl VirtualResource for Marbles {
    fn resource(&self) -> ResourceKind {
        let [group, version, kind, plural] = ["example.com", "v1", "Marble", "marbles"].map(str::to_owned);
        ResourceKind { group, version, kind, plural, namespaced: true }
    }

    fn list(&self, _: &str, request: &PageRequest<'_>) -> Result<Page, UnknownKey> {
        let mut state = self.state();
        match request.group {
            Some(group) => state.read.push(group.to_owned()),
            None => state.scans += usize::from(request.after.is_none()),
        }
        let from = request.after.map_or(Bound::Unbounded, Bound::Excluded);
        let listed = |(name, colour): (&String, &u64)| Listed {
            key: name.clone(),
            group: group(name).to_string().into(),
            object: marble(name, *colour),
        };
        let within = |name: &str| request.group.is_none_or(|wanted| wanted == group(name).to_string());
        let mut rest = state.colours.range::<str, _>((from, Bound::Unbounded)).filter(|(name, _)| within(name));
        // So short that a group has several.
        let objects: Vec<_> = rest.by_ref().take(request.rows.min(2)).map(listed).collect();
        let next = rest.next().and(objects.last()).map(|last| last.key.clone());
        Ok(Page { objects, next })
    }

    fn get(&self, _: &str, _: Option<&str>, name: &str) -> Option<Value> {
        Some(marble(name, *self.state().colours.get(name)?))
    }

    fn changes(&self, _: &str) -> Option<watch::Receiver<u64>> {
        Some(self.counter.subscribe())
    }

    fn changed(&self, _: &str, _: Option<&str>, since: u64) -> Option<Changed> {
        let state = self.state();
        if self.book == Book::None {
            return None;
        }
        if since < state.forgotten {
            let gone = state.gone.values().flatten().any(|(_, at)| *at > since);
            return Some(Changed::Any { until: state.forgotten, gone });
        }
        let changed = state.changes.range((Bound::Excluded(since), Bound::Unbounded)).map(|(at, group)| {
            let gone = state.gone.get(group).into_iter().flatten().filter(|(_, at)| **at > since);
            let gone: Vec<_> = gone.map(|(name, _)| (Some("default".to_owned()), name.clone())).collect();
            let gone = (self.book == Book::Names || gone.is_empty()).then_some(gone);
            ChangedGroup { at: *at, group: group.to_string(), gone }
        });
        Some(Changed::Groups(changed.collect()))
    }
}

const MARBLES: &str = "/apis/example.com/v1/namespaces/default/marbles";

async fn with_marbles(book: Book) -> (Api, Arc<Marbles>) {
    let marbles = Arc::new(Marbles { state: Mutex::default(), book, counter: watch::Sender::new(0) });
    let virtual_resources: Vec<Arc<dyn VirtualResource>> = vec![Arc::clone(&marbles) as _];
    (Api::with(SpaceConfig { virtual_resources, ..SpaceConfig::default() }).await, marbles)
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().expect("a version").parse().expect("a number")
}

#[tokio::test(start_paused = true)]
async fn only_what_changed_is_computed_again() {
    let (api, marbles) = with_marbles(Book::Groups).await;
    for name in ["a1", "a2", "a3", "b1", "c1"] {
        marbles.put(name, Some(1));
    }
    let mut events = api.watch(&format!("{MARBLES}?watch=1")).await;
    for name in ["a1", "a2", "a3", "b1", "c1"] {
        assert_eq!(events.short().await, pair("ADDED", name));
    }
    marbles.put("a2", Some(2));
    assert_eq!(events.short().await, pair("MODIFIED", "a2"));
    marbles.put("c1", None);
    marbles.put("a4", Some(1));
    assert_eq!(events.short().await, pair("DELETED", "c1"));
    assert_eq!(events.short().await, pair("ADDED", "a4"));
    let state = marbles.state();
    assert_eq!(state.scans, 1);
    assert_eq!(state.read, ["a", "a", "c", "a", "a"], "groups have two pages");
}

#[tokio::test(start_paused = true)]
async fn what_changes_between_a_list_and_its_watch_is_told() {
    for book in [Book::None, Book::Groups, Book::Names] {
        let (api, marbles) = with_marbles(book).await;
        for name in ["a1", "b1", "c1"] {
            marbles.put(name, Some(1));
        }
        let list = api.get(&format!("{MARBLES}?limit=2")).await.ok();
        let unchanged = format!("{MARBLES}?watch=1&resourceVersion={}", version(&list));
        let mut quiet = api.watch(&unchanged).await;
        marbles.put("b1", Some(2));
        while quiet.short().await != pair("MODIFIED", "b1") {
            assert_eq!(book, Book::None, "of what changed nothing is known: all is told");
        }
        let mut late = api.watch(&unchanged).await;
        let told = late.next().await.expect("an event");
        if book == Book::None {
            assert_eq!(told["type"], "ADDED", "of what changed nothing is known: all is told");
        } else {
            assert_eq!((&told["type"], &told["object"]["metadata"]["name"]), (&json!("MODIFIED"), &json!("b1")));
        }
        assert!(version(&told["object"]) > version(&list) || book == Book::None);
        marbles.put("c1", None);
        if book == Book::Names {
            let mut later = api.watch(&unchanged).await;
            assert_eq!(later.short().await, pair("DELETED", "c1"), "what went is told first");
            assert_eq!(later.short().await, pair("MODIFIED", "b1"));
        } else if book == Book::Groups {
            let refused = api.get(&format!("{unchanged}&timeoutSeconds=1")).await;
            assert_eq!((refused.code, refused.failure().1), (410, "Expired"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn versions_of_other_runs_and_of_the_future_are_refused() {
    let (api, marbles) = with_marbles(Book::Names).await;
    marbles.put("a1", Some(1));
    let now = version(&api.get(MARBLES).await.ok());
    let refused = |answer: Answer| (answer.code, answer.failure().1.to_owned());
    let watch = |version: u64| format!("{MARBLES}?watch=1&timeoutSeconds=1&resourceVersion={version}");
    let later = format!("{MARBLES}?resourceVersion={}", now + 1);
    assert_eq!(refused(api.get(&later).await), (504, "Timeout".to_owned()));
    assert_eq!(refused(api.get(&later.replace('?', "/a1?")).await), (504, "Timeout".to_owned()));
    assert_eq!(refused(api.get(&watch(now + 1)).await), (504, "Timeout".to_owned()));
    assert_eq!(refused(api.get(&watch(now - 1_000_000)).await), (410, "Expired".to_owned()));
    assert_eq!(
        refused(api.get(&format!("{MARBLES}?resourceVersionMatch=Exact&resourceVersion={}", now - 2)).await),
        (410, "Expired".to_owned())
    );
    assert_eq!(api.get(&format!("{MARBLES}?resourceVersionMatch=Exact&resourceVersion={now}")).await.code, 200);
    assert_eq!(
        api.get(&format!("{MARBLES}?resourceVersionMatch=NotOlderThan&resourceVersion={}", now - 2)).await.code,
        200
    );
    let (again, _marbles) = with_marbles(Book::Names).await;
    assert!(version(&again.get(MARBLES).await.ok()) > now, "versions rise from run to run");
}

/// Numbers by a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn index(&mut self, bound: u64) -> usize {
        usize::try_from(self.below(bound)).expect("it is small")
    }
}

fn changes(dice: &mut Dice, marbles: &Marbles) {
    for _ in 0..dice.below(4) {
        let name = format!("{}{}", ["a", "b", "c", "d", "e"][dice.index(5)], dice.below(4));
        marbles.put(&name, (dice.below(3) > 0).then(|| dice.below(10)));
    }
    if dice.below(20) == 0 {
        for group in 'f'..='t' {
            marbles.put(&format!("{group}1"), Some(dice.below(10)));
        }
    }
}

/// A client as those that cache: it lists, watches from the list's version, and goes on from the last event's; what it is
/// refused it lists again.
async fn follows(book: Book, selector: &str, seed: u64) {
    let (api, marbles) = with_marbles(book).await;
    let mut dice = Dice(seed);
    let (mut known, mut at) = (BTreeMap::new(), None);
    for round in 0..60 {
        changes(&mut dice, &marbles);
        let from = if let Some(at) = at {
            format!("&resourceVersion={at}")
        } else if dice.below(3) == 0 {
            // A watch that begins with the state.
            known.clear();
            String::new()
        } else {
            let list = api.get(&format!("{MARBLES}?{selector}")).await.ok();
            let items = list["items"].as_array().expect("items");
            known = items
                .iter()
                .map(|item| (item["metadata"]["name"].clone().to_string(), item["colour"].clone()))
                .collect();
            at = Some(version(&list));
            format!("&resourceVersion={}", version(&list))
        };
        changes(&mut dice, &marbles);
        let path = format!("{MARBLES}?watch=1{from}&allowWatchBookmarks=true&{selector}");
        if api.get(&format!("{path}&timeoutSeconds=0")).await.code == 410 {
            at = None;
            continue;
        }
        let mut events = api.watch(&path).await;
        let last = round == 59;
        let mut left = dice.below(6);
        while left > 0 || last {
            left = left.saturating_sub(1);
            if dice.below(3) == 0 && !last {
                changes(&mut dice, &marbles);
            }
            let shown: BTreeMap<_, _> = {
                let state = marbles.state();
                let all = state.colours.iter().filter(|(_, colour)| selector.is_empty() || colour.is_multiple_of(2));
                all.map(|(name, colour)| (json!(name).to_string(), json!(colour))).collect()
            };
            if known == shown && last {
                return;
            }
            if known == shown {
                break;
            }
            let next = tokio::time::timeout(Duration::from_secs(7), events.next()).await;
            let Ok(event) = next else {
                panic!("{book:?} {selector} {seed} in round {round}: {known:?} is not {shown:?}")
            };
            let event = event.expect("an event");
            let object = &event["object"];
            let name = object["metadata"]["name"].to_string();
            match event["type"].as_str().expect("a type") {
                "ADDED" | "MODIFIED" => _ = known.insert(name, object["colour"].clone()),
                "DELETED" => _ = known.remove(&name),
                "BOOKMARK" => {}
                other => {
                    assert_eq!((other, &object["code"]), ("ERROR", &json!(410)));
                    at = None;
                    break;
                }
            }
            let seen = version(object);
            assert!(Some(seen) >= at, "versions never fall");
            at = Some(seen);
        }
        assert!(!last, "{book:?}, seed {seed}: the watch ended before all was told");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_cut_off_anywhere_misses_nothing() {
    for seed in 1..=25 {
        follows(Book::Groups, "", seed).await;
        follows(Book::Names, "", seed).await;
        follows(Book::Names, "labelSelector=parity%3Deven", seed).await;
    }
}

#[test]
fn groups_of_marbles_are_few() {
    let groups: BTreeSet<_> = ('a'..='t').collect();
    assert!(groups.len() > CHANGES_MAX, "so some are forgotten");
}
