use std::convert::Infallible;

use http::{Request, Response};
use kube::client::Body;
use serde_json::json;

use super::*;

/// An API server whose group has these resources at versions of which the first is preferred.
fn client(versions: &'static [(&'static str, &'static [&'static str])]) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let version = |version: &str| json!({"groupVersion": format!("example.com/{version}"), "version": version});
        let document = match request.uri().path() {
            "/api" => json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
            "/apis" => {
                let all: Vec<_> = versions.iter().map(|(name, _)| version(name)).collect();
                let group = json!({"name": "example.com", "versions": all, "preferredVersion": all[0]});
                json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]})
            }
            path => {
                let of = versions.iter().find(|(name, _)| path == format!("/apis/example.com/{name}"));
                let resources = of.map(|(_, plurals)| *plurals).unwrap_or_default().iter().map(|plural| {
                    json!({"name": plural, "kind": plural, "singularName": "", "namespaced": true,
                        "verbs": ["list", "watch"]})
                });
                let version = path.trim_start_matches("/apis/").trim_start_matches("/api/");
                json!({"kind": "APIResourceList", "groupVersion": version, "resources": resources.collect::<Vec<_>>()})
            }
        };
        let response = Response::new(Body::from(document.to_string().into_bytes()));
        async { Ok::<_, Infallible>(response) }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn a_resource_is_watched_whichever_version_it_is_served_at() {
    let client = client(&[("v1beta1", &["gateways"]), ("v1", &["gateways", "routes"]), ("v1alpha1", &["grants"])]);
    let source = ClusterSource::new(SpaceName::root(), client).await.expect("it says what it serves");
    let watched: Vec<_> = source.types.values().map(|it| format!("{} {}", it.plural, it.version)).collect();
    assert_eq!(watched, ["gateways v1beta1", "grants v1alpha1", "routes v1"]);
}
