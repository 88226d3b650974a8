//! Fields that are filled in when objects are read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tideline_apiserver::{FilledField, Identity, SpaceConfig};
use tideline_store::Store;

use super::custom::widgets;
use super::harness::*;

const KEEPER: &str = "keeper";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// `.status.heard` of every widget, for everybody but its keeper.
#[derive(Default)]
struct Heard {
    now: Mutex<Option<&'static str>>,
    asked: AtomicUsize,
}

impl Heard {
    fn becomes(&self, now: &'static str) {
        *self.now.lock().expect("no test panics with it") = Some(now);
    }
}

impl FilledField for Heard {
    fn resource(&self) -> (&'static str, &'static str) {
        ("example.com", "widgets")
    }

    fn path(&self) -> &'static [&'static str] {
        &["status", "heard"]
    }

    fn is_shown_to(&self, reader: &Identity) -> bool {
        &*reader.user != KEEPER
    }

    fn values(&self, objects: &[Value]) -> Vec<Option<Value>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let now = *self.now.lock().expect("no test panics with it");
        objects.iter().map(|_| now.map(Value::from)).collect()
    }
}

/// A server with so many widgets, as a person and as the keeper of the field.
async fn server(count: usize) -> (Api, Api, Arc<Heard>) {
    let mut crd = widgets();
    let columns = &mut crd["spec"]["versions"][0]["additionalPrinterColumns"];
    *columns = json!([{"name": "Heard", "type": "string", "jsonPath": ".status.heard"}]);
    let heard = Arc::new(Heard::default());
    let filled_fields: Vec<Arc<dyn FilledField>> = vec![Arc::clone(&heard) as _];
    let api = Api::with(SpaceConfig { crds: vec![crd], filled_fields, ..SpaceConfig::default() }).await;
    for nth in 0..count {
        let name = format!("w{nth:03}");
        let widget =
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 3}});
        api.post(WIDGETS, &widget).await.ok();
    }
    (api.as_user("person"), api.as_user(KEEPER), heard)
}

fn heard_in(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("items");
    items.iter().map(|item| item["status"]["heard"].as_str().unwrap_or("-")).collect()
}

#[tokio::test]
async fn a_field_is_filled_in_wherever_an_object_is_read() {
    let (api, keeper, heard) = server(2).await;
    let one = format!("{WIDGETS}/w000");
    assert_eq!(heard_in(&api.get(WIDGETS).await.ok()), ["-", "-"]);
    heard.becomes("1");
    assert_eq!(api.get(&one).await.ok()["status"]["heard"], "1");
    assert_eq!(api.get(&format!("{one}/status")).await.ok()["status"]["heard"], "1");
    assert_eq!(heard_in(&api.get(WIDGETS).await.ok()), ["1", "1"]);
    assert_eq!(heard_in(&api.get(&format!("{WIDGETS}?limit=1")).await.ok()), ["1"]);
    for (path, rows) in [(one.as_str(), 1), (WIDGETS, 2)] {
        let table = api.get_as(path, TABLE).await.ok();
        let cells: Vec<_> = table["rows"].as_array().expect("rows").iter().map(|row| &row["cells"][1]).collect();
        assert_eq!(cells, vec!["1"; rows], "{table}");
    }
    let mut watch = api.watch(&format!("{WIDGETS}?watch=true")).await;
    for _ in 0..2 {
        assert_eq!(watch.next().await.expect("an event")["object"]["status"]["heard"], "1");
    }
    heard.becomes("2");
    let changed = api.merge(&one, &json!({"spec": {"size": 4}})).await.ok();
    assert_eq!((&changed["spec"]["size"], &changed["status"]["heard"]), (&json!(4), &json!("2")));
    // What became of the field was no event: this one is the next.
    let event = watch.next().await.expect("an event");
    assert_eq!((&event["object"]["spec"]["size"], &event["object"]["status"]["heard"]), (&json!(4), &json!("2")));
    api.delete(&one).await.ok();
    let event = watch.next().await.expect("an event");
    assert_eq!((&event["type"], &event["object"]["status"]["heard"]), (&json!("DELETED"), &json!("2")));
    assert!(keeper.get(WIDGETS).await.ok()["items"][0]["status"].is_null(), "the keeper reads what is stored");
}

#[tokio::test]
async fn a_list_asks_for_its_values_page_by_page() {
    let (api, keeper, heard) = server(300).await;
    heard.becomes("1");
    for (path, at_most) in [(WIDGETS.to_owned(), 3), (format!("{WIDGETS}?limit=200"), 2)] {
        let before = heard.asked.load(Ordering::Relaxed);
        let list = api.get(&path).await.ok();
        assert!(heard_in(&list).iter().all(|heard| *heard == "1"));
        let asked = heard.asked.load(Ordering::Relaxed) - before;
        assert!((1..=at_most).contains(&asked), "{path}: {asked}");
    }
    let before = heard.asked.load(Ordering::Relaxed);
    let mut watch = api.watch(&format!("{WIDGETS}?watch=true")).await;
    for _ in 0..300 {
        assert_eq!(watch.next().await.expect("an event")["object"]["status"]["heard"], "1");
    }
    keeper.get(WIDGETS).await.ok();
    api.get(MAPS).await.ok();
    assert_eq!(heard.asked.load(Ordering::Relaxed) - before, 3);
}

#[tokio::test]
async fn who_is_shown_a_filled_field_does_not_write_it() {
    let (api, keeper, heard) = server(1).await;
    let (one, status) = (format!("{WIDGETS}/w000"), format!("{WIDGETS}/w000/status"));
    heard.becomes("1");
    // Nothing is stored yet, and what comes back with the object is no change.
    let read = api.get(&one).await.ok();
    let revision = api.store.revision();
    api.put(&one, &read).await.ok();
    api.put(&status, &read).await.ok();
    api.merge(&status, &json!({"status": {"heard": "1"}})).await.ok();
    assert_eq!(api.store.revision(), revision);
    let stored = keeper.merge(&status, &json!({"status": {"heard": "0"}})).await.ok();
    assert_eq!(stored["status"], json!({"heard": "0"}), "the keeper writes it");
    let mut read = api.get(&one).await.ok();
    assert_eq!(read["metadata"]["resourceVersion"], stored["metadata"]["resourceVersion"]);
    let revision = api.store.revision();
    api.put(&one, &read).await.ok();
    api.put(&status, &read).await.ok();
    assert_eq!(api.store.revision(), revision);
    // What else was written beside it is.
    read["status"]["phase"] = "Ready".into();
    let shown = api.put(&status, &read).await.ok();
    assert_eq!(shown["status"], json!({"heard": "1", "phase": "Ready"}));
    let patch = json!([{"op": "replace", "path": "/status", "value": {"heard": "1", "phase": "Stale"}}]);
    api.send(http::Method::PATCH, &status, "application/json-patch+json", patch.to_string()).await.ok();
    assert_eq!(keeper.get(&one).await.ok()["status"], json!({"heard": "0", "phase": "Stale"}));
    // It is the keeper's, and no conflict for who applies what was read.
    let applied = json!({"apiVersion": "example.com/v1", "kind": "Widget", "status": {"heard": "1", "size": 1}});
    api.apply(&format!("{status}?fieldManager=person"), &applied).await.ok();
    let object = keeper.get(&one).await.ok();
    assert_eq!(object["status"], json!({"heard": "0", "phase": "Stale", "size": 1}));
    let owners: Vec<_> = object["metadata"]["managedFields"].as_array().expect("owners").iter().collect();
    let owns = |owner: &&&Value| !owner["fieldsV1"]["f:status"]["f:heard"].is_null();
    assert_eq!(owners.iter().filter(owns).count(), 1, "{owners:?}");
}
