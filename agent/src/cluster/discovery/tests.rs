use std::convert::Infallible;

use http::{Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

/// The kinds of an API server that has these documents, and says of all others that there is no such page.
fn kinds(documents: impl IntoIterator<Item = (&'static str, Value)>) -> Kinds {
    let documents: Arc<BTreeMap<_, _>> = Arc::new(documents.into_iter().collect());
    let service = tower::service_fn(move |request: Request<Body>| {
        let document = documents.get(request.uri().path()).map(ToString::to_string);
        let is_found = document.is_some();
        let text = document.unwrap_or_else(|| "404 page not found\n".to_owned());
        let mut response = Response::new(Body::from(text.into_bytes()));
        if !is_found {
            *response.status_mut() = StatusCode::NOT_FOUND;
        }
        async move { Ok::<_, Infallible>(response) }
    });
    Kinds::new(Client::new(service, "default"))
}

fn groups(groups: &[(&str, &[&str])]) -> Value {
    let version =
        |group: &str, version: &str| json!({"groupVersion": format!("{group}/{version}"), "version": version});
    let groups = groups.iter().map(|(group, versions)| {
        let versions: Vec<_> = versions.iter().map(|name| version(group, name)).collect();
        json!({"name": group, "versions": versions})
    });
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups.collect::<Vec<_>>()})
}

fn deployments() -> Value {
    let resource = json!({"name": "deployments", "kind": "Deployment", "namespaced": true, "verbs": [],
        "singularName": "deployment"});
    json!({"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": [resource]})
}

fn deployment() -> (GroupKind, Arc<str>) {
    (GroupKind::new("apps", "Deployment"), "v1".into())
}

fn widget() -> (GroupKind, Arc<str>) {
    (GroupKind::new("example.com", "Widget"), "v1".into())
}

fn is_unknown<T>(outcome: &Result<T, Unresolved>) -> bool {
    // Not as a kind that is not served: its objects would count as gone.
    matches!(outcome, Err(Unresolved::Failed(failure)) if failure.reason == tideline_common::Reason::Unavailable)
}

#[tokio::test]
async fn an_answer_to_everything_says_nothing_of_any_kind() {
    let config = (GroupKind::new("", "ConfigMap"), Arc::from("v1"));
    for (kind, version) in [config, deployment(), widget()] {
        let kinds = kinds([]);
        assert!(is_unknown(&kinds.resolve(&kind, &version).await), "{kind}");
        assert!(is_unknown(&kinds.find(&kind, &version).await), "{kind}");
        let failed = confirm_missing(&kinds.client, &kind.group, Some(&version)).await;
        assert!(failed.is_err(), "{kind}");
    }
}

#[tokio::test]
async fn a_page_that_is_no_document_says_nothing_of_any_kind() {
    let (kind, version) = deployment();
    assert!(is_unknown(&kinds([("/apis", json!("Welcome"))]).find(&kind, &version).await));
}

#[tokio::test]
async fn a_group_is_not_served_where_the_document_of_all_lacks_it() {
    let (kind, version) = widget();
    let others = || kinds([("/apis", groups(&[("apps", &["v1"])])), ("/apis/apps/v1", deployments())]);
    assert!(matches!(others().resolve(&kind, &version).await, Err(Unresolved::Missing(_))));
    assert!(matches!(others().find(&kind, &version).await, Err(Unresolved::Missing(_))));
    assert!(confirm_missing(&others().client, &kind.group, Some(&version)).await.is_ok());
    let (kind, version) = deployment();
    assert!(others().find(&kind, &version).await.is_ok());
    assert!(confirm_missing(&others().client, &kind.group, Some(&version)).await.is_err(), "it is there");
    assert!(confirm_missing(&others().client, &kind.group, Some("v2")).await.is_ok(), "that version is not");
}

#[tokio::test]
async fn a_kind_is_found_at_another_version_where_its_own_is_not_served() {
    let group = json!({"name": "apps", "versions": [{"groupVersion": "apps/v1", "version": "v1"}]});
    let documents = [("/apis", groups(&[("apps", &["v1"])])), ("/apis/apps", group), ("/apis/apps/v1", deployments())];
    let found = kinds(documents).find(&deployment().0, &"v1beta1".into()).await;
    assert!(matches!(&found, Ok(resource) if &*resource.version == "v1"), "{found:?}");
}

#[tokio::test]
async fn a_group_that_is_named_and_cannot_be_read_is_neither_served_nor_not() {
    let (kind, version) = deployment();
    assert!(is_unknown(&kinds([("/apis", groups(&[("apps", &["v1"])]))]).find(&kind, &version).await));
}

/// Its objects are there as long as something defines their kind.
#[tokio::test]
async fn a_kind_that_is_not_served_is_gone_where_all_definitions_can_be_read_and_none_is_its_own() {
    let definition = |kind: &str| {
        json!({"spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": kind, "plural": "widgets"},
            "versions": [{"name": "v1", "served": false, "storage": true}]}})
    };
    let list = |names: &[&str]| {
        let items: Vec<_> = names.iter().map(|name| json!({"metadata": {"name": name}})).collect();
        json!({"metadata": {}, "items": items})
    };
    // Deeper than what a document may be.
    let deep = |kind: &str| {
        let schema = (0..200).fold(json!({}), |inner, _| json!({"properties": {"of": inner}}));
        let mut deep = definition(kind);
        deep["spec"]["versions"][0]["schema"] = json!({"openAPIV3Schema": schema});
        deep
    };
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";
    for (case, documents, gone) in [
        ("defined", vec![(DEFINITIONS, list(&["widgets.example.com"])), (path, definition("Widget"))], false),
        ("another kind", vec![(DEFINITIONS, list(&["widgets.example.com"])), (path, definition("Gadget"))], true),
        (
            "a deep one of another kind",
            vec![(DEFINITIONS, list(&["widgets.example.com"])), (path, deep("Gadget"))],
            true,
        ),
        ("another group", vec![(DEFINITIONS, list(&["widgets.more.example.com"]))], true),
        ("nothing is defined", vec![(DEFINITIONS, list(&[]))], true),
        ("definitions cannot be listed", vec![], false),
    ] {
        let confirmed = kinds(documents).confirm_gone(&widget().0).await;
        assert_eq!(confirmed.is_ok(), gone, "{case}: {confirmed:?}");
        if let Err(failure) = confirmed {
            assert_eq!(failure.reason, Reason::KindMissing, "{case}: {failure:?}");
        }
    }
    assert!(kinds([]).confirm_gone(&deployment().0).await.is_ok(), "nothing defines what is built in");
}
