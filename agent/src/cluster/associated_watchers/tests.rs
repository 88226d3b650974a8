use std::convert::Infallible;
use std::sync::Mutex;

use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use serde_json::{Value, json};
use tideline_common::{GroupKind, HubId, TargetId};
use tokio::time::timeout;

use super::super::{Kinds, Scope, Watches};
use super::*;

/// The answers of an API server whose lists succeed and whose watches fail at once with this code.
fn answer(path: &str, watch: bool, code: u16) -> Response<BoxBody<bytes::Bytes, Infallible>> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "Other",
        "message": "not now"});
    if watch && code == 410 {
        // The watch begins, and the first that it tells is its end.
        let line = format!("{}\n", json!({"type": "ERROR", "object": status}));
        let frame = Ok(http_body::Frame::data(bytes::Bytes::from(line)));
        return Response::new(BodyExt::boxed(StreamBody::new(futures::stream::once(async { frame }))));
    }
    let answer = match path {
        _ if watch => status,
        "/api/v1" => {
            let resource = json!({"name": "configmaps", "kind": "ConfigMap", "namespaced": true, "verbs": [],
                "singularName": ""});
            json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [resource]})
        }
        _ => json!({"metadata": {"resourceVersion": "1"}, "items": Value::Array(Vec::new())}),
    };
    let mut response = Response::new(BodyExt::boxed(Full::from(answer.to_string())));
    if watch {
        *response.status_mut() = StatusCode::from_u16(code).expect("a code");
    }
    response
}

#[tokio::test(start_paused = true)]
async fn a_kind_whose_watch_fails_is_listed_with_growing_pauses() {
    for code in [400, 410, 429] {
        let lists: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
        let counted = Arc::clone(&lists);
        let service = tower::service_fn(move |request: Request<Body>| {
            let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let path = request.uri().path().to_owned();
            if !watch {
                *counted.lock().expect("no holder panics").entry(path.clone()).or_default() += 1;
            }
            async move { Ok::<_, Infallible>(answer(&path, watch, code)) }
        });
        let client = Client::new(service, "default");
        let (sender, mut events) = mpsc::channel(64);
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let kinds = Arc::new(Kinds::new(client.clone()));
        let mut watches =
            Watches::new(client.clone(), kinds, sender.clone(), Namespaces::All, tasks.clone(), stop.clone());
        let mut followers = AssociatedWatchers::new(client, sender, Namespaces::All, tasks.clone(), stop.clone());
        let uuid = uuid::Uuid::from_u128;
        let scope = Scope {
            hub: HubId::from_uuid(uuid(1)),
            target: TargetId::from_uuid(uuid(2)),
            formers: tideline_common::Formers::default(),
        };
        watches.set(scope, BTreeMap::from([(GroupKind::new("", "ConfigMap"), Arc::from("v1"))]));
        followers
            .set(BTreeMap::from([(AssociatedKind::Pods, Follow { run: 1, namespace: None, depth: Depth::Links })]));

        let heard = async { while events.recv().await.is_some() {} };
        assert!(timeout(Duration::from_mins(10), heard).await.is_err(), "{code}: they go on");
        for path in ["/api/v1/configmaps", "/api/v1/pods"] {
            let lists = lists.lock().expect("no holder panics").get(path).copied().unwrap_or_default();
            // Pauses of up to thirty seconds, drawn: some fifty.
            assert!((10..=120).contains(&lists), "{code}: {path} was listed {lists} times in ten minutes");
        }
        stop.cancel();
        tasks.close();
        tasks.wait().await;
    }
}
