use std::sync::Arc;

use futures::stream;

use super::*;

fn of(group: &str, kind: &str, plural: &str) -> Arc<ResourceKind> {
    let [group, version, kind, plural] = [group, "v1", kind, plural].map(str::to_owned);
    Arc::new(ResourceKind { group, version, kind, plural, namespaced: false })
}

/// What is gone after a second round, in which these events come.
fn gone(second: Vec<FeedEvent>) -> Vec<String> {
    let mut source =
        EmbeddedSource { feed: stream::empty().boxed(), known: BTreeSet::new(), missing: None, ready: VecDeque::new() };
    let listed = |(group, plural)| FeedEvent::Listed { space: "default".into(), resource: of(group, "", plural) };
    let progress = || FeedEvent::Progress(tideline_store::Revision(1));
    let first = [("", "configmaps"), ("", "secrets"), ("example.com", "widgets")].map(listed);
    let events = [FeedEvent::Round].into_iter().chain(first).chain([progress(), FeedEvent::Round]).chain(second);
    for event in events.chain([progress()]) {
        source.take(event);
    }
    let gone = source.ready.iter().filter_map(|event| match event {
        SourceEvent::Gone(of) => Some(of.resource.to_string()),
        SourceEvent::Object { .. }
        | SourceEvent::Unreadable { .. }
        | SourceEvent::Deleted { .. }
        | SourceEvent::Listed(_)
        | SourceEvent::Unlisted(_)
        | SourceEvent::Lost { .. } => None,
    });
    gone.collect()
}

#[test]
fn what_a_round_does_not_list_is_gone_unless_a_key_of_it_is_unreadable() {
    assert_eq!(gone(Vec::new()), ["configmaps", "secrets", "widgets.example.com"]);
    let unlisted = |resource| FeedEvent::Unlisted { space: "default".into(), resource };
    let second = vec![unlisted(of("", "ConfigMap", "configmaps")), unlisted(of("example.com", "Widget", "widgets"))];
    assert_eq!(gone(second), ["secrets"]);
}

#[test]
fn what_cannot_be_read_comes_and_goes_by_its_key() {
    let mut source =
        EmbeddedSource { feed: stream::empty().boxed(), known: BTreeSet::new(), missing: None, ready: VecDeque::new() };
    let (space, resource): (Arc<str>, _) = ("default".into(), of("", "ConfigMap", "configmaps"));
    let (namespace, name, why) = (Some("shop".to_owned()), "a".to_owned(), "it is a list".to_owned());
    source.take(FeedEvent::Unreadable {
        space: Arc::clone(&space),
        resource: Arc::clone(&resource),
        namespace: namespace.clone(),
        name: name.clone(),
        why: why.clone(),
    });
    let (uid, revision) = (String::new(), tideline_store::Revision(1));
    source.take(FeedEvent::Deleted { space, resource, namespace, name, uid, revision });
    let of = SpaceResource { space: "default".parse().unwrap(), resource: GroupResource::new("", "configmaps") };
    let key = ObjectKey::new(GroupKind::new("", "ConfigMap"), "shop", "a");
    let there = SourceEvent::Unreadable { of: of.clone(), key: key.clone(), why };
    assert_eq!(source.ready, [there, SourceEvent::Deleted { of, key, uid: None }]);
}
