use axum::body::Body;
use http::Method;
use serde_json::json;

use super::custom::widgets;
use super::harness::*;

#[tokio::test]
async fn bodies_over_the_limit_are_refused() {
    let api = Api::start().await;
    let mut map = config_map("a");
    map["data"]["big"] = "x".repeat(4 << 20).into();
    let refused = api.post(MAPS, &map).await;
    assert_eq!(refused.failure(), (413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728"));
    map["data"]["big"] = "x".repeat(2 << 20).into();
    let refused = api.post(MAPS, &map).await;
    assert_eq!((refused.code, refused.failure().1), (413, "RequestEntityTooLarge"));
    // A Secret of 1 MiB, as large as one may be, is a third more as it is written.
    let secret = json!({"metadata": {"name": "a"}, "data": {"big": "AAAA".repeat((1 << 20) / 3)}});
    api.post("/api/v1/namespaces/default/secrets", &secret).await.ok();
    map["data"]["big"] = "x".repeat(1_500 << 10).into();
    api.post(MAPS, &map).await.ok();
    map["metadata"]["name"] = "b".into();
    map["data"]["big"] = "x".repeat(3 << 19).into();
    assert_eq!(api.post(MAPS, &map).await.code, 413);
}

#[tokio::test]
async fn malformed_bodies_are_refused() {
    let api = Api::start().await;
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    for body in [deep.as_str(), "", "{", "[]", "\"x\"", "{} {}"] {
        let refused = api.send(Method::POST, MAPS, "application/json", body.to_owned()).await;
        assert_eq!((refused.code, refused.failure().1), (400, "BadRequest"), "{body:.20}");
    }
    let refused = api.send(Method::POST, MAPS, "application/json", Body::from(&b"{\"kind\": \"\xff\"}"[..])).await;
    assert_eq!(refused.code, 400);
    assert_eq!(api.send(Method::POST, MAPS, "application/vnd.kubernetes.protobuf", "k8s").await.code, 400);
    let refused = api.send(Method::POST, MAPS, "application/cbor", "x").await;
    assert_eq!((refused.code, refused.failure().1), (415, "UnsupportedMediaType"));
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n\
                d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e]\n\
                g: &g [*f,*f,*f,*f,*f,*f,*f]\nh: [*g,*g,*g,*g,*g,*g,*g]\n";
    assert_eq!(api.send(Method::POST, MAPS, "application/yaml", bomb).await.code, 400);
}

#[tokio::test]
async fn names_and_labels_are_checked() {
    let api = Api::start().await;
    for name in ["UPPER", "a_b", "-a", &"x".repeat(254)] {
        let refused = api.post(MAPS, &config_map(name)).await;
        assert_eq!((refused.code, refused.failure().1), (422, "Invalid"), "{name}");
        assert_eq!(refused.body["details"]["causes"][0]["field"], "metadata.name");
    }
    let mut map = config_map("a");
    map["metadata"]["labels"] = json!({"l": "x".repeat(64)});
    let refused = api.post(MAPS, &map).await;
    assert_eq!(refused.body["details"]["causes"][0]["field"], "metadata.labels");
    map["metadata"]["labels"] = json!({"l": "x".repeat(63)});
    api.post(MAPS, &map).await.ok();
    let namespace = json!({"metadata": {"name": "with.dot"}});
    assert_eq!(api.post("/api/v1/namespaces", &namespace).await.code, 422);
    let role = json!({"metadata": {"name": "system:odd"}});
    api.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.ok();
    api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Aodd").await.ok();
}

#[tokio::test]
async fn odd_paths_and_queries_are_refused_in_order() {
    let api = Api::start().await;
    for (path, code) in [
        ("/", 200),
        ("/nothing", 404),
        ("/api/v2/pods", 404),
        ("/api/v1/namespaces/default/nodes", 404),
        ("/api/v1/configmaps/a", 404),
        ("/api/v1/watch/pods", 404),
        ("/api/v1/pods?limit=x", 400),
        ("/api/v1/pods?labelSelector=%zz", 400),
        ("/api/v1/namespaces/default/pods/..%2fx", 400),
    ] {
        assert_eq!(api.get(path).await.code, code, "{path}");
    }
    assert_eq!(api.post("/api/v1/configmaps", &config_map("a")).await.code, 405);
    assert_eq!(api.delete("/api/v1/configmaps").await.code, 405);
}

#[tokio::test]
async fn a_long_name_over_many_values_costs_no_product_of_both() {
    const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
    let api = Api::start().await;
    let mut definition = widgets();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["free"] =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.ok();
    // A hundred thousand times the name would be 30 GB, each time that it is written.
    let name = "n".repeat(300_000);
    let list = vec![0; 100_000];
    let map: serde_json::Map<_, _> = (0..20_000).map(|at| (format!("{at}"), json!({}))).collect();
    for (at, below) in [json!(list), json!(map)].into_iter().enumerate() {
        let widget = json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": format!("w{at}")},
            "spec": {"size": 1}, "free": {&name: below},
        });
        let answer = api.post(WIDGETS, &widget).await;
        assert!([201, 413].contains(&answer.code), "{at}: {} {:.200}", answer.code, answer.body.to_string());
    }
    assert_eq!(api.get(WIDGETS).await.code, 200);
}
