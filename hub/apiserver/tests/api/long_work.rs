//! Requests that take long, beside those that do not.

use std::sync::Arc;

use serde_json::json;
use tideline_apiserver::{Attributes, Authorizer, Identity, SpaceConfig, Target};
use tokio::sync::Semaphore;

use super::harness::*;

/// Permits all, and tells of each request for a widget.
struct Announcing(Arc<Semaphore>);

impl Authorizer for Announcing {
    fn authorize(&self, _: &Identity, attributes: &Attributes<'_>) -> bool {
        if let Target::Resource { resource: "slows", .. } = attributes.target {
            self.0.add_permits(1);
        }
        true
    }
}

/// A kind of which a few kilobytes take long to validate.
fn slow() -> serde_json::Value {
    let branches: Vec<_> = (0..2_000).map(|at| json!({"enum": [at]})).collect();
    let items = json!({"type": "string", "not": {"anyOf": branches}});
    let schema = json!({"type": "object", "properties": {"list": {"type": "array", "items": items}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "slows.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "slows", "kind": "Slow"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_request_that_takes_long_holds_up_no_other() {
    let begun = Arc::new(Semaphore::new(0));
    let authorizer = Arc::new(Announcing(Arc::clone(&begun)));
    let api = Api::with(SpaceConfig { authorizer: Some(authorizer), ..SpaceConfig::default() }).await.as_user("anna");
    api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &slow()).await.ok();
    let api = Arc::new(api);
    let (slow, quick) = (Arc::clone(&api), Arc::clone(&api));
    // All run on the one thread that the runtime has.
    let slow = tokio::spawn(async move {
        // Refused at the end of it, after which nothing is waited for.
        let list: Vec<_> = std::iter::once(json!(1)).chain(vec![json!("x"); 5_000]).collect();
        let object = json!({"apiVersion": "example.com/v1", "kind": "Slow", "metadata": {"name": "a"}, "list": list});
        slow.post("/apis/example.com/v1/namespaces/default/slows", &object).await
    });
    let quick = tokio::spawn(async move {
        let _begun = begun.acquire().await.expect("nobody closes it");
        // Between them the slow one has its turn, and is computed.
        for _ in 0..20 {
            quick.get("/api/v1/namespaces/default").await.ok();
            tokio::task::yield_now().await;
        }
    });
    quick.await.expect("no panic");
    assert!(!slow.is_finished(), "the quick requests waited for the slow one");
    assert_eq!(slow.await.expect("no panic").failure().1, "Invalid");
}
