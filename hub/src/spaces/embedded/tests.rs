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
        | SourceEvent::Deleted { .. }
        | SourceEvent::Listed(_)
        | SourceEvent::Lost { .. } => None,
    });
    gone.collect()
}

#[test]
fn what_a_round_does_not_list_is_gone_unless_it_is_unreadable() {
    assert_eq!(gone(Vec::new()), ["configmaps", "secrets", "widgets.example.com"]);
    let unreadable = |resource: Arc<ResourceKind>, name: &str| FeedEvent::Unreadable {
        space: "default".into(),
        resource,
        name: name.to_owned(),
    };
    let crds = of("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions");
    let second = vec![unreadable(of("", "ConfigMap", "configmaps"), "a"), unreadable(crds, "widgets.example.com")];
    assert_eq!(gone(second), ["secrets"]);
}
