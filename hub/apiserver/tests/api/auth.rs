use std::sync::Arc;

use axum::body::Body;
use http::Request;
use serde_json::json;
use tideline_apiserver::{Attributes, Credentials, Identity, SpaceConfig, Target, Unauthenticated};
use tower::ServiceExt;

use super::harness::*;

fn authenticate(credentials: Credentials<'_>) -> Result<Identity, Unauthenticated> {
    match (credentials.space, credentials.bearer) {
        ("test" | "gone", Some("good")) => Ok(Identity::new("anna", ["readers".to_owned()])),
        ("other", Some("other")) => Ok(Identity::new("olga", Vec::new())),
        _ => Err(Unauthenticated),
    }
}

fn only_maps(_: &Identity, attributes: &Attributes<'_>) -> bool {
    match attributes.target {
        Target::Resource { resource, .. } => resource == "configmaps",
        Target::Path(_) => true,
    }
}

async fn start() -> Api {
    let api = Api::with(SpaceConfig { authorizer: Some(Arc::new(only_maps)), ..SpaceConfig::default() }).await;
    api.server.create_space("other", SpaceConfig::default()).await.expect("a space");
    api
}

async fn ask(api: &Api, path: &str, token: Option<&str>) -> Answer {
    let mut request = Request::builder().uri(path);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.body(Body::empty()).expect("a request");
    answer(api.server.router(Arc::new(authenticate)).oneshot(request).await.expect("infallible")).await
}

#[tokio::test]
async fn a_token_opens_its_space_and_no_other() {
    let api = start().await;
    let maps = "api/v1/namespaces/default/configmaps";
    assert_eq!(ask(&api, &format!("/spaces/test/{maps}"), Some("good")).await.code, 200);
    assert_eq!(ask(&api, &format!("/spaces/other/{maps}"), Some("other")).await.code, 200);
    for (space, token) in [
        ("test", None),
        ("test", Some("bad")),
        ("other", Some("good")),
        ("test", Some("other")),
        ("none", Some("good")),
    ] {
        let refused = ask(&api, &format!("/spaces/{space}/{maps}"), token).await;
        assert_eq!(refused.failure(), (401, "Unauthorized", "Unauthorized"), "{space} {token:?}");
    }
    assert_eq!(ask(&api, "/spaces/gone/api", Some("good")).await.code, 404);
    assert_eq!(ask(&api, "/elsewhere", Some("good")).await.code, 404);
}

#[tokio::test]
async fn what_is_not_allowed_is_forbidden_by_name() {
    let api = start().await;
    let refused = ask(&api, "/spaces/test/api/v1/namespaces/default/secrets/a", Some("good")).await;
    assert_eq!(
        refused.failure(),
        (
            403,
            "Forbidden",
            "secrets \"a\" is forbidden: User \"anna\" cannot get resource \"secrets\" in API group \"\" in the namespace \"default\""
        )
    );
    let refused = ask(&api, "/spaces/test/apis/apps/v1/deployments", Some("good")).await;
    assert_eq!(
        refused.failure().2,
        "deployments.apps is forbidden: User \"anna\" cannot list resource \"deployments\" in API group \"apps\" at the cluster scope"
    );
}

#[tokio::test]
async fn one_space_is_served_as_a_cluster_of_its_own() {
    let api = start().await;
    let router = api.server.router_at_root("test", Arc::new(authenticate));
    let request = Request::builder()
        .uri("/version")
        .header("authorization", "Bearer good")
        .body(Body::empty())
        .expect("a request");
    let version = answer(router.oneshot(request).await.expect("infallible")).await.ok();
    assert_eq!(version["gitVersion"], "v1.35.4");
}

#[tokio::test]
async fn callers_may_ask_what_they_may_do() {
    let api = start().await;
    let ask = |resource: &str| {
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "get", "resource": resource, "namespace": "default"}}});
        let request = Request::builder()
            .method("POST")
            .uri("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
            .body(Body::from(review.to_string()))
            .expect("a request");
        let api = &api;
        async move { answer(api.server.call("test", Identity::new("anna", Vec::new()), request).await).await.ok() }
    };
    assert_eq!(ask("configmaps").await["status"]["allowed"], true);
    assert_eq!(ask("secrets").await["status"]["allowed"], false);
}
