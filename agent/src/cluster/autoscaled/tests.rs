use std::convert::Infallible;
use std::sync::atomic::AtomicUsize;

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::*;

/// An API server that answers everything so, once for each permit.
fn server(code: u16, answer: Value) -> (Autoscaled, Arc<AtomicUsize>, Arc<Semaphore>) {
    let (asked, permits) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let (count, wait) = (Arc::clone(&asked), Arc::clone(&permits));
    let service = tower::service_fn(move |_request: Request<Body>| {
        count.fetch_add(1, Ordering::SeqCst);
        let (wait, text) = (Arc::clone(&wait), answer.to_string());
        async move {
            wait.acquire().await.expect("it is never closed").forget();
            let mut response = Response::new(Body::from(text.into_bytes()));
            *response.status_mut() = code.try_into().expect("a status code");
            Ok::<_, Infallible>(response)
        }
    });
    (Autoscaled::new(Client::new(service, "default")), asked, permits)
}

fn deployment(name: &str) -> ObjectKey {
    ObjectKey::new(GroupKind::new("apps", "Deployment"), "shop", name)
}

fn autoscalers() -> Value {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    json!({"metadata": {}, "items": [{"spec": {"scaleTargetRef": target, "maxReplicas": 3}}]})
}

#[tokio::test]
async fn callers_during_a_list_share_the_next_one() {
    let (autoscaled, asked, permits) = server(200, autoscalers());
    let (web, other) = (deployment("web"), deployment("other"));
    let set = ObjectKey::new(GroupKind::new("apps", "StatefulSet"), "shop", "web");
    let (first, second, third, fourth) = tokio::join!(
        biased;
        autoscaled.holds(&web),
        autoscaled.holds(&other),
        autoscaled.holds(&set),
        async {
            permits.add_permits(9);
            autoscaled.holds(&web).await
        },
    );
    assert_eq!((first, second, third, fourth), (Ok(Some(true)), Ok(Some(false)), Ok(Some(false)), Ok(Some(true))));
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert!(autoscaled.namespaces.lock().expect("no holder panics").is_empty());

    // An answer is for callers from before it began, and for none after.
    assert_eq!(autoscaled.holds(&web).await, Ok(Some(true)));
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_forbidden_list_of_autoscalers_is_unknown_and_a_failed_one_an_error() {
    // A 404 to everything does not say that there are none.
    for (code, expected) in [(403, Some(None)), (404, None), (503, None)] {
        let (autoscaled, _, permits) = server(code, json!({"kind": "Status", "status": "Failure", "code": code}));
        permits.add_permits(1);
        assert_eq!(autoscaled.holds(&deployment("web")).await.ok(), expected, "{code}");
        assert!(autoscaled.namespaces.lock().expect("no holder panics").is_empty());
    }
}
