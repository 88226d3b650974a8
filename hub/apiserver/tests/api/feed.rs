use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use serde_json::json;
use tideline_apiserver::{FeedEvent, SpaceConfig};
use tideline_store::{Commit, Op, Revision, Store};

use super::custom::widgets;
use super::harness::*;

async fn next(feed: &mut BoxStream<'static, FeedEvent>) -> FeedEvent {
    tokio::time::timeout(PATIENCE, feed.next()).await.expect("an event in time").expect("a feed without end")
}

/// All events up to the next progress, and it.
async fn round(feed: &mut BoxStream<'static, FeedEvent>) -> (Vec<FeedEvent>, Revision) {
    let mut events = Vec::new();
    loop {
        match next(feed).await {
            FeedEvent::Progress(at) => return (events, at),
            event => events.push(event),
        }
    }
}

fn short(event: &FeedEvent) -> Option<String> {
    match event {
        FeedEvent::Object { space, resource, value, .. } => {
            Some(format!("{space} {} {}", resource.plural, value["metadata"]["name"].as_str().expect("name")))
        }
        FeedEvent::Unreadable { space, resource, namespace, name, why: _ } => {
            let namespace = namespace.as_deref().unwrap_or("-");
            Some(format!("{space} ?{} {namespace}/{name}", resource.plural))
        }
        FeedEvent::Unlisted { resource, .. } => Some(format!("not listed {}", resource.plural)),
        FeedEvent::Deleted { space, resource, name, .. } => Some(format!("{space} -{} {name}", resource.plural)),
        FeedEvent::Round => Some("round".to_owned()),
        FeedEvent::SpaceAdded { space } => Some(format!("+{space}")),
        FeedEvent::SpaceRemoved { space } => Some(format!("-{space}")),
        FeedEvent::ResourceRemoved { space, resource } => Some(format!("{space} gone {}", resource.plural)),
        FeedEvent::Listed { resource, .. } if resource.group == "example.com" => {
            Some(format!("listed {}", resource.plural))
        }
        FeedEvent::Listed { .. } | FeedEvent::Progress(_) => None,
    }
}

/// Everything but the listings of built-in kinds, until `last` comes.
async fn until(feed: &mut BoxStream<'static, FeedEvent>, last: &str) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        if let Some(text) = short(&next(feed).await) {
            seen.push(text);
            if seen.last().is_some_and(|text| text == last) {
                return seen;
            }
        }
    }
}

#[tokio::test]
async fn a_feed_lists_everything_and_goes_on_live() {
    let api = Api::start().await;
    api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &widgets()).await.ok();
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1}});
    api.post("/apis/example.com/v1/namespaces/default/widgets", &widget).await.ok();
    let mut feed = api.server.feed(None);
    let (events, _) = round(&mut feed).await;
    let seen: Vec<String> = events.iter().filter_map(short).collect();
    assert_eq!(
        seen,
        [
            "round",
            "+test",
            "test customresourcedefinitions widgets.example.com",
            "test namespaces default",
            "test namespaces kube-system",
            "test widgets w",
            "listed widgets"
        ]
    );
    let listed = events.iter().filter(|event| matches!(event, FeedEvent::Listed { .. })).count();
    assert!(listed > 45, "{listed}");

    api.server.create_space("other", SpaceConfig::default()).await.expect("a space");
    api.post(MAPS, &config_map("a")).await.ok();
    api.delete(&format!("{MAPS}/a")).await.ok();
    api.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com").await.ok();
    let seen = until(&mut feed, "test gone widgets").await;
    assert_eq!(seen[..3], ["+other", "other namespaces default", "other namespaces kube-system"]);
    assert!(seen.contains(&"test -configmaps a".to_owned()));
    assert!(seen.contains(&"test -widgets w".to_owned()));
    api.server.delete_space("other").await.expect("deleted");
    let seen = until(&mut feed, "-other").await;
    assert_eq!(seen, ["other -namespaces default", "other -namespaces kube-system", "-other"]);
}

#[tokio::test]
async fn objects_in_the_feed_are_as_they_were_written() {
    let api = Api::start().await;
    let (_, at) = round(&mut api.server.feed(None)).await;
    let service =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}});
    api.post("/api/v1/namespaces/default/services", &service).await.ok();
    let mut feed = api.server.feed(Some(at));
    let FeedEvent::Object { resource, value, revision, .. } = next(&mut feed).await else { panic!("an object") };
    assert_eq!((resource.plural.as_str(), resource.version.as_str()), ("services", "v1"));
    assert_eq!(value["spec"], json!({"ports": [{"port": 80}]}));
    assert_eq!(value["metadata"]["resourceVersion"], revision.0.to_string());
}

#[tokio::test]
async fn a_feed_that_lost_history_begins_a_new_round() {
    let api = Api::start().await;
    let (_, at) = round(&mut api.server.feed(None)).await;
    for n in 0..5 {
        api.post(MAPS, &config_map(&format!("m{n}"))).await.ok();
    }
    api.store.compact(api.store.revision()).await.expect("compacted");
    let mut feed = api.server.feed(Some(at));
    assert_eq!(next(&mut feed).await, FeedEvent::Round);
    let (events, _) = round(&mut feed).await;
    assert!(events.iter().filter_map(short).any(|text| text == "test configmaps m4"));
}

#[tokio::test]
async fn a_feed_resumes_after_a_progress() {
    let api = Api::start().await;
    let mut feed = api.server.feed(None);
    let (_, at) = round(&mut feed).await;
    api.post(MAPS, &config_map("a")).await.ok();
    let mut resumed = api.server.feed(Some(at));
    let FeedEvent::Object { value, .. } = next(&mut resumed).await else { panic!("an object") };
    assert_eq!(value["metadata"]["name"], "a");
    drop(feed);
    let quiet = tokio::time::timeout(Duration::from_millis(10), async {
        while let FeedEvent::Progress(_) = next(&mut resumed).await {}
    });
    assert!(quiet.await.is_err());
    assert_eq!(Arc::strong_count(&api.server), 1);
}

/// The widgets `a` and `b`, and gadgets, which are of another definition.
async fn with_widgets() -> Api {
    let api = Api::start().await;
    let gadgets =
        widgets().to_string().replace("widget", "gadget").replace("Widget", "Gadget").replace("\"wd\"", "\"gd\"");
    for crd in [widgets(), serde_json::from_str(&gadgets).expect("a definition")] {
        api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await.ok();
    }
    for name in ["a", "b"] {
        let widget =
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1}});
        api.post("/apis/example.com/v1/namespaces/default/widgets", &widget).await.ok();
    }
    api
}

#[tokio::test]
async fn what_cannot_be_read_is_told_by_its_key_and_its_resource_is_listed() {
    let api = with_widgets().await;
    let mut live = api.server.feed(None);
    round(&mut live).await;
    let stored = api.overwrite("/widgets/default/a", "[]".into()).await;
    assert_eq!(until(&mut live, "test ?widgets default/a").await, ["test ?widgets default/a"]);

    let widgets_of = |events: &[FeedEvent]| -> Vec<String> {
        events.iter().filter_map(short).filter(|text| text.contains("widgets") && !text.contains("custom")).collect()
    };
    let (events, _) = round(&mut api.server.feed(None)).await;
    assert_eq!(widgets_of(&events), ["test ?widgets default/a", "test widgets b", "listed widgets"]);

    // Whatever is written in it, an object is what its key says.
    let mut strange: serde_json::Value = serde_json::from_slice(&stored).expect("what was stored");
    strange["kind"] = json!(7);
    strange["metadata"]["name"] = "b".into();
    strange["metadata"]["namespace"] = json!(null);
    api.overwrite("/widgets/default/a", strange.to_string().into()).await;
    let (events, _) = round(&mut api.server.feed(None)).await;
    assert_eq!(widgets_of(&events), ["test widgets a", "test widgets b", "listed widgets"]);
    let object = events.iter().find_map(|event| match event {
        FeedEvent::Object { resource, value, .. } if resource.plural == "widgets" => Some(value),
        _ => None,
    });
    let object = object.expect("it is there");
    assert_eq!((&object["kind"], &object["metadata"]["namespace"]), (&json!("Widget"), &json!("default")));

    let key = b"/registry/test/example.com/widgets/default/\xff";
    let ops = vec![Op::Put(Bytes::from_static(key), stored)];
    api.store.commit(Commit { compare: Vec::new(), ops }).await.expect("committed");
    let (events, _) = round(&mut api.server.feed(None)).await;
    assert_eq!(widgets_of(&events), ["test widgets a", "test widgets b", "not listed widgets"]);
    assert!(events.iter().filter_map(short).any(|text| text == "listed gadgets"), "the others are");

    // Where that is gone, everything is read anew.
    let (_, at) = round(&mut api.server.feed(None)).await;
    let mut live = api.server.feed(Some(at));
    let ops = vec![Op::Delete(Bytes::from_static(key))];
    api.store.commit(Commit { compare: Vec::new(), ops }).await.expect("committed");
    assert_eq!(until(&mut live, "listed widgets").await[0], "round");
}

#[tokio::test]
async fn a_definition_that_is_repaired_has_its_objects_before_they_are_listed() {
    let api = with_widgets().await;
    let unaccepted = |stored: &[u8]| String::from_utf8_lossy(stored).replace("Established", "Otherwise");
    let stored = api.overwrite("/widgets.example.com", "42".into()).await;
    for damaged in ["42".to_owned(), unaccepted(&stored)] {
        api.overwrite("/widgets.example.com", damaged.into()).await;
        let mut feed = api.server.feed(None);
        let (events, _) = round(&mut feed).await;
        let seen: Vec<_> = events.iter().filter_map(short).filter(|text| !text.contains("customresource")).collect();
        assert!(!seen.iter().any(|text| text.contains("widgets")), "{seen:?}");
        api.overwrite("/widgets.example.com", stored.clone()).await;
        let seen = until(&mut feed, "listed widgets").await;
        assert_eq!(seen[..2], ["test customresourcedefinitions widgets.example.com", "round"]);
        assert!(["test widgets a", "test widgets b"].iter().all(|one| seen.contains(&(*one).to_owned())), "{seen:?}");
    }
}

#[tokio::test]
async fn a_definition_that_cannot_be_read_makes_what_it_made_last() {
    let api = with_widgets().await;
    let gadgets = api.overwrite("/gadgets.example.com", "42".into()).await;
    let mut feed = api.server.feed(None);
    round(&mut feed).await;
    api.make_unreadable("/widgets.example.com").await;
    // Everything is read anew.
    api.overwrite("/gadgets.example.com", gadgets).await;
    until(&mut feed, "round").await;
    let seen = until(&mut feed, "listed widgets").await;
    assert!(["test widgets a", "test widgets b"].iter().all(|one| seen.contains(&(*one).to_owned())), "{seen:?}");
}
