//! What kube makes of lists and watch events, as its watcher has them decoded.

use kube::api::{ObjectList, WatchEvent};
use serde_json::json;

use super::*;

fn nested(levels: usize) -> String {
    format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels))
}

fn named(name: &str, status: &str, fields: &str) -> String {
    let entry = format!(r#"{{"manager":"controller","fieldsV1":{fields}}}"#);
    let metadata = format!(r#"{{"name":"{name}","uid":"u-{name}","resourceVersion":"7","managedFields":[{entry}]}}"#);
    format!(r#"{{"apiVersion":"v1","kind":"Thing","metadata":{metadata},"data":{status},"status":{status}}}"#)
}

fn is_whole(object: &Watched<Whole>, name: &str, status: &str, fields: &str) {
    let Object { metadata, spec, status: read } = &object.object;
    assert_eq!((metadata.name.as_deref(), object.meta().resource_version.as_deref()), (Some(name), Some("7")));
    assert_eq!(read.as_deref().map(RawValue::get), Some(status));
    assert_eq!(object.object.managed()[0].fields_v1.as_deref().map(RawValue::get), Some(fields));
    assert!(spec.is_none());
}

#[test]
fn an_object_of_any_depth_is_read_with_those_beside_it() {
    let (deep, flat) = (nested(5000), nested(1));
    let items = [named("a", &flat, &flat), named("b", &deep, &flat), named("c", &flat, &deep)].join(",");
    let list =
        format!(r#"{{"kind":"ThingList","apiVersion":"v1","metadata":{{"resourceVersion":"9"}},"items":[{items}]}}"#);
    let list: ObjectList<Watched<Whole>> = serde_json::from_str(&list).expect("a list");
    assert_eq!((list.items.len(), list.metadata.resource_version.as_deref()), (3, Some("9")));
    is_whole(&list.items[0], "a", &flat, &flat);
    is_whole(&list.items[1], "b", &deep, &flat);
    is_whole(&list.items[2], "c", &flat, &deep);

    let event = format!(r#"{{"type":"MODIFIED","object":{}}}"#, named("b", &deep, &deep));
    match serde_json::from_str(&event).expect("an event") {
        WatchEvent::Modified(object) => is_whole(&object, "b", &deep, &deep),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_may_be_assigned_of_an_object_is_read_whatever_its_status_and_managers() {
    let text = r#"{"kind":"Thing","metadata":{"name":"a","finalizers":["f"],"managedFields":DEEP},"spec":{"b":1},"status":DEEP}"#;
    let text = text.replace("DEEP", &nested(5000));
    let expected = json!({"kind": "Thing", "metadata": {"name": "a", "finalizers": ["f"]}, "spec": {"b": 1}});
    assert_eq!(assignable(text.as_bytes()).ok(), Some(expected));
    assert!(assignable(text.replace("status", "specs").as_bytes()).is_err());
}
