//! Lists of computed objects that are read page by page.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tideline_apiserver::{Listed, Page, PageRequest, ResourceKind, SpaceConfig, UnknownKey, VirtualResource};
use tokio::sync::watch;

use super::harness::*;

/// At most so many objects are looked at for one page, as where a page has its price.
const LOOKS: usize = 300;

/// Rows by number, each with its shade, and what was asked for them.
struct Rows {
    rows: Mutex<BTreeMap<u32, &'static str>>,
    asked: Mutex<Vec<usize>>,
    wanted: Mutex<Vec<(&'static str, String)>>,
    changes: watch::Sender<u64>,
}

impl Rows {
    fn new(count: u32) -> Self {
        let rows = (0..count).map(|nth| (nth, if nth % 100 == 7 { "dark" } else { "light" })).collect();
        Self {
            rows: Mutex::new(rows),
            asked: Mutex::default(),
            wanted: Mutex::default(),
            changes: watch::Sender::new(0),
        }
    }

    fn rows(&self) -> MutexGuard<'_, BTreeMap<u32, &'static str>> {
        self.rows.lock().expect("no test panics with it")
    }

    fn asked(&self) -> Vec<usize> {
        std::mem::take(&mut self.asked.lock().expect("no test panics with it"))
    }
}

fn row(nth: u32, shade: &str) -> Value {
    let parity = if nth.is_multiple_of(2) { "even" } else { "odd" };
    json!({
        "metadata": {"name": format!("r{nth:05}"), "namespace": parity, "labels": {"parity": parity}},
        "colour": {"shade": shade},
    })
}

impl VirtualResource for Rows {
    fn resource(&self) -> ResourceKind {
        let [group, version, kind, plural] = ["example.com", "v1", "Row", "rows"].map(str::to_owned);
        ResourceKind { group, version, kind, plural, namespaced: true }
    }

    fn selectable(&self) -> &'static [(&'static str, &'static str)] {
        &[("shade", "colour.shade")]
    }

    fn list(&self, _: &str, request: &PageRequest<'_>) -> Result<Page, UnknownKey> {
        self.asked.lock().expect("no test panics with it").push(request.rows);
        *self.wanted.lock().expect("no test panics with it") = request.wanted.to_vec();
        let after: Option<u32> = request.after.map(str::parse).transpose().map_err(|_| UnknownKey)?;
        let rows = self.rows();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut page, mut last) = (Page::default(), None);
        for (looks, (nth, shade)) in rows.range((from, Bound::Unbounded)).enumerate() {
            if page.objects.len() == request.rows || looks == LOOKS {
                page.next = last;
                break;
            }
            last = Some(nth.to_string());
            let object = row(*nth, shade);
            if request.namespace.is_none_or(|namespace| object["metadata"]["namespace"] == namespace) {
                page.objects.push(Listed { key: nth.to_string(), group: "".into(), object });
            }
        }
        Ok(page)
    }

    fn get(&self, _: &str, _: Option<&str>, name: &str) -> Option<Value> {
        let nth = name.strip_prefix('r')?.parse().ok()?;
        Some(row(nth, self.rows().get(&nth)?))
    }

    fn changes(&self, _: &str) -> Option<watch::Receiver<u64>> {
        Some(self.changes.subscribe())
    }
}

const ROWS: &str = "/apis/example.com/v1/rows";
const ODD: &str = "/apis/example.com/v1/namespaces/odd/rows";

async fn with_rows(count: u32) -> (Api, Arc<Rows>) {
    let rows = Arc::new(Rows::new(count));
    let virtual_resources: Vec<Arc<dyn VirtualResource>> = vec![Arc::clone(&rows) as _];
    (Api::with(SpaceConfig { virtual_resources, ..SpaceConfig::default() }).await, rows)
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().expect("items");
    items.iter().map(|item| item["metadata"]["name"].as_str().expect("name").to_owned()).collect()
}

/// The names of each page of a list, as a client reads them.
async fn pages(api: &Api, path: &str) -> Vec<Vec<String>> {
    let (mut pages, mut token) = (Vec::new(), String::new());
    loop {
        let page = api.get(&format!("{path}{token}")).await.ok();
        assert_eq!(page["metadata"].get("remainingItemCount"), None);
        let version = page["metadata"]["resourceVersion"].as_str().expect("a version");
        assert!(version.parse::<u64>().is_ok(), "{version}");
        pages.push(names(&page));
        let Some(next) = page["metadata"]["continue"].as_str() else { return pages };
        token = format!("&continue={next}");
    }
}

#[tokio::test]
async fn a_long_list_is_read_in_parts_and_is_whole() {
    let (api, rows) = with_rows(1_234).await;
    let all: Vec<String> = (0..1_234).map(|nth| format!("r{nth:05}")).collect();
    assert_eq!(names(&api.get(ROWS).await.ok()), all);
    let asked = rows.asked();
    assert!(asked.len() > 1 && asked.iter().all(|asked| *asked <= 500), "{asked:?}");
    let odd: Vec<String> = all.iter().skip(1).step_by(2).cloned().collect();
    assert_eq!(names(&api.get(ODD).await.ok()), odd);
    let selected = api.get(&format!("{ROWS}?fieldSelector=metadata.namespace%3Dodd")).await.ok();
    assert_eq!(names(&selected), odd);
}

#[tokio::test]
async fn pages_are_as_long_as_asked_and_cover_the_list() {
    let (api, rows) = with_rows(1_000).await;
    let pages_of = |path: String| {
        let api = &api;
        async move { pages(api, &path).await }
    };
    let all: Vec<String> = (0..1_000).map(|nth| format!("r{nth:05}")).collect();
    for limit in [1, 7, 300, 301, 500, 999, 1_000, 6_000] {
        let pages = pages_of(format!("{ROWS}?limit={limit}")).await;
        assert!(pages.iter().rev().skip(1).all(|page| page.len() == limit), "{limit}");
        assert_eq!(pages.concat(), all, "{limit}");
    }
    rows.asked();
    assert_eq!(pages_of(format!("{ROWS}?limit=400")).await.len(), 3);
    assert!(rows.asked().iter().all(|asked| *asked <= 400), "no more is computed than is wanted");
}

#[tokio::test]
async fn a_page_of_a_selector_is_filled_from_many_parts() {
    let (api, rows) = with_rows(1_000).await;
    let dark: Vec<String> = (0..10).map(|nth| format!("r{:05}", nth * 100 + 7)).collect();
    let by_field = format!("{ROWS}?fieldSelector=shade%3Ddark");
    assert_eq!(names(&api.get(&by_field).await.ok()), dark);
    assert_eq!(*rows.wanted.lock().expect("no test panics with it"), [("colour.shade", "dark".to_owned())]);
    let pages_of_four = pages(&api, &format!("{by_field}&limit=4")).await;
    assert_eq!(pages_of_four.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 2]);
    assert_eq!(pages_of_four.concat(), dark);
    let (longer, _rows) = with_rows(12_000).await;
    let few = pages(&longer, &format!("{by_field}&limit=1000")).await;
    assert!(few.len() > 1, "a page ends before it takes too long");
    assert_eq!(few.concat().len(), 120);
    let both = format!("{by_field}&labelSelector=parity%3Deven&limit=4");
    assert_eq!(pages(&api, &both).await.concat(), Vec::<String>::new());
    let unknown = api.get(&format!("{ROWS}?fieldSelector=colour.shade%3Ddark")).await;
    let (code, reason, message) = unknown.failure();
    assert_eq!((code, reason), (400, "BadRequest"));
    assert!(message.ends_with("field label not supported: colour.shade"), "{message}");
}

#[tokio::test]
async fn objects_that_come_and_go_between_pages_move_no_others() {
    let (api, rows) = with_rows(20).await;
    let page = api.get(&format!("{ROWS}?limit=5")).await.ok();
    let token = page["metadata"]["continue"].as_str().expect("a token").to_owned();
    // Before the key, the key itself, and behind it.
    rows.rows().retain(|nth, _| ![2, 4, 5].contains(nth));
    rows.rows().insert(30, "light");
    let rest = api.get(&format!("{ROWS}?limit=100&continue={token}")).await.ok();
    let expected: Vec<String> = (6..20).chain([30]).map(|nth| format!("r{nth:05}")).collect();
    assert_eq!(names(&rest), expected);
    assert_eq!(rest["metadata"]["resourceVersion"], page["metadata"]["resourceVersion"]);
    assert_eq!(rest["metadata"].get("continue"), None);
}

#[tokio::test]
async fn tokens_of_other_lists_and_runs_are_refused() {
    let (api, _rows) = with_rows(20).await;
    let page = api.get(&format!("{ROWS}?limit=5")).await.ok();
    let token = page["metadata"]["continue"].as_str().expect("a token");
    let refused = |answer: &Answer| (answer.code, answer.failure().1.to_owned());
    let bad = || (400, "BadRequest".to_owned());
    assert_eq!(refused(&api.get(&format!("{ROWS}?limit=5&continue=nonsense")).await), bad());
    assert_eq!(refused(&api.get(&format!("{ODD}?limit=5&continue={token}")).await), bad());
    assert_eq!(refused(&api.get(&format!("{MAPS}?limit=5&continue={token}")).await), bad());
    let (again, _rows) = with_rows(20).await;
    let gone = again.get(&format!("{ROWS}?limit=5&continue={token}")).await;
    assert_eq!(refused(&gone), (410, "Expired".to_owned()));
}

#[tokio::test]
async fn a_watch_reads_in_parts_and_tells_what_changes() {
    let (api, rows) = with_rows(800).await;
    let mut events = api.watch(&format!("{ROWS}?watch=1&fieldSelector=shade%3Ddark")).await;
    for nth in 0..8 {
        assert_eq!(events.short().await, pair("ADDED", &format!("r{:05}", nth * 100 + 7)));
    }
    let asked = rows.asked();
    assert!(asked.len() > 1 && asked.iter().all(|asked| *asked <= 500), "{asked:?}");
    rows.rows().insert(799, "dark");
    rows.rows().remove(&7);
    rows.changes.send_replace(1);
    assert_eq!(events.short().await, pair("ADDED", "r00799"));
    assert_eq!(events.short().await, pair("DELETED", "r00007"));
}
