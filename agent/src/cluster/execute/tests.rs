use std::convert::Infallible;
use std::sync::Mutex;

use http::{Request, Response};
use kube::client::Body;
use tideline_common::{
    Digest, EntryState, GroupKind, HubId, Origin, Prune, PruneAdopted, SourceRef, SpaceName, TargetId,
};
use uuid::Uuid;

use super::*;
use api_server::{ApiServer, serve};

mod api_server;
mod contents;
mod refusals;
mod unanswered;

/// A 403: in the words of a policy, of a webhook, and of the API server itself.
const POLICY: &str =
    "namespaces \"shop\" is forbidden: ValidatingAdmissionPolicy 'names' with binding 'all' denied request: no shop";
const WEBHOOK: &str = "admission webhook \"policy.example\" denied the request: no shop";
const NO_RIGHT: &str =
    "namespaces is forbidden: User \"system:serviceaccount:shop:web\" cannot create resource \"namespaces\"";
/// Nobody refuses the namespace by this.
const NOT_WELL: &str = "Namespace \"shop\" is invalid: metadata.labels: Invalid value";

fn key() -> ObjectKey {
    ObjectKey::new(GroupKind::new("", "Namespace"), "", "shop")
}

fn source() -> SourceRef {
    SourceRef {
        space: SpaceName::root(),
        uid: "source".parse().expect("a UID"),
        namespace: "shop".into(),
        name: "web".into(),
    }
}

fn entry(implied: bool) -> Arc<Entry> {
    Arc::new(Entry {
        key: key(),
        version: "v1".into(),
        source: source(),
        generation: 1,
        state: EntryState::Apply,
        input: Digest::of(b"input"),
        policy: ApplyPolicy::default().digest(),
        wave: 0,
        impersonate: None,
        implied,
    })
}

fn scope() -> Scope {
    Scope {
        hub: HubId::from_uuid(Uuid::from_u128(1)),
        target: TargetId::from_uuid(Uuid::from_u128(2)),
        formers: tideline_common::Formers::default(),
    }
}

fn mark() -> Arc<Mark> {
    Arc::new(Mark {
        v: 1,
        hub: scope().hub,
        target: scope().target,
        source: source(),
        local: key(),
        generation: 1,
        input: Digest::of(b"input"),
        policy: None,
        prune: Prune::Delete,
        prune_adopted: PruneAdopted::Orphan,
        origin: Origin::Created,
    })
}

struct OneNamespace;

impl Bodies for OneNamespace {
    fn body(&self, _: Digest) -> Result<Arc<str>, BodyError> {
        Ok(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}).to_string().into())
    }
}

fn failure(code: u16, message: &str) -> (u16, Value) {
    let details = json!({"name": "shop", "kind": "namespaces"});
    (code, json!({"kind": "Status", "status": "Failure", "code": code, "message": message, "details": details}))
}

/// An API server that refuses to write namespaces with these words, and has this one or not.
fn server(code: u16, says: &'static str, is_there: bool) -> Executor {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (code, answer) = match (request.method(), request.uri().path()) {
            (&Method::GET, "/api/v1") => {
                let (name, kind) = ("namespaces", "Namespace");
                let served = json!({"name": name, "singularName": "", "namespaced": false, "kind": kind, "verbs": []});
                (200, json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [served]}))
            }
            (&Method::GET, "/api/v1/namespaces/shop") if is_there => {
                let metadata = json!({"name": "shop", "uid": "u1", "resourceVersion": "7"});
                (200, json!({"kind": "Namespace", "apiVersion": "v1", "metadata": metadata}))
            }
            (&Method::GET, "/api/v1/namespaces/shop") => failure(404, "namespaces \"shop\" not found"),
            (&Method::POST, "/api/v1/namespaces") | (&Method::PATCH, "/api/v1/namespaces/shop") => failure(code, says),
            (method, path) => panic!("{method} {path}"),
        };
        let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
        *response.status_mut() = code.try_into().expect("a status code");
        async { Ok::<_, Infallible>(response) }
    });
    let client = Client::new(service, "default");
    Executor::new(client.clone(), Arc::new(Kinds::new(client)), Arc::new(OneNamespace))
}

fn creates(implied: bool) -> Op {
    Op::Create { entry: entry(implied), policy: Arc::default(), mark: mark(), ran: None, earlier: Earlier::Answered }
}

fn marks(implied: bool) -> Op {
    Op::TransferOwnership { entry: entry(implied), mark: mark(), uid: "u1".parse().expect("a UID") }
}

/// Whoever refuses it: the namespace exists, and that is all that is asked of it.
#[tokio::test]
async fn a_namespace_that_is_only_implied_and_there_needs_nobody_s_leave() {
    for (code, says, reason) in [
        (422, POLICY, Reason::Denied),
        (400, WEBHOOK, Reason::Denied),
        (403, NO_RIGHT, Reason::Forbidden),
        (422, NOT_WELL, Reason::Invalid),
    ] {
        let spared = reason != Reason::Invalid;
        for (implied, is_there) in [(true, true), (true, false), (false, true)] {
            let case = format!("{says}, implied {implied}, there {is_there}");
            let server = server(code, says, is_there);
            match server.execute(scope(), &creates(implied)).await {
                OpResult::Create(Ok(Created::Exists(there))) => {
                    assert!(spared && implied && is_there && there.mark.is_none(), "{case}");
                }
                OpResult::Create(Err(failure)) => {
                    assert!(failure.reason == reason && !(spared && implied && is_there), "{case}: {failure:?}");
                }
                other => panic!("{case}: {other:?}"),
            }
            if !is_there {
                continue;
            }
            match server.execute(scope(), &marks(implied)).await {
                OpResult::TransferOwnership(Ok(OwnershipTransferred::Marked(there))) => {
                    assert!(spared && implied && there.mark.is_none(), "{case}");
                }
                OpResult::TransferOwnership(Err(NotDone::Failed(failure))) => {
                    assert!(failure.reason == reason && !(spared && implied), "{case}: {failure:?}");
                }
                other => panic!("{case}: {other:?}"),
            }
        }
    }
}

/// It was ours when it was judged, and another hub's agent has written its mark since.
#[tokio::test]
async fn an_object_that_is_another_hubs_by_now_is_not_orphaned() {
    let path = "/api/v1/namespaces/shop/configmaps/web";
    let of = |hub: u128, target: u128| {
        let (hub, target) = (HubId::from_uuid(Uuid::from_u128(hub)), TargetId::from_uuid(Uuid::from_u128(target)));
        let local = ObjectKey::new(GroupKind::new("", "ConfigMap"), "shop", "web");
        let (label, mark) = (target.to_string(), Mark { hub, target, local, ..(*mark()).clone() }.encode());
        (json!({MARK_LABEL: label}), json!({MARK_ANNOTATION: mark}))
    };
    let later = (json!({MARK_LABEL: "another"}), json!({MARK_ANNOTATION: "of a later layout"}));
    for ((labels, annotations), orphaned) in [(of(1, 2), true), (of(8, 9), false), (of(1, 9), false), (later, false)] {
        let case = format!("{labels} {annotations}");
        let metadata = json!({"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7", "labels": labels,
            "annotations": annotations});
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata});
        let server = Arc::new(Mutex::new(ApiServer::default()));
        server.lock().expect("no test has panicked").objects.insert(path.to_owned(), object.clone());
        let shared = Arc::clone(&server);
        let client = Client::new(tower::service_fn(move |request| serve(Arc::clone(&shared), request)), "default");
        let executor = Executor::new(client.clone(), Arc::new(Kinds::new(client)), Arc::new(OneNamespace));
        let key = ObjectKey::new(GroupKind::new("", "ConfigMap"), "shop", "web");
        let op = Op::Orphan { key, version: "v1".into(), uid: "u1".parse().expect("a UID"), impersonate: None };
        let OpResult::Orphan(result) = executor.execute(scope(), &op).await else { panic!("{case}") };
        assert_eq!(result, if orphaned { Ok(Orphaned::Done) } else { Err(NotDone::Stale) }, "{case}");
        let left = server.lock().expect("no test has panicked").objects[path] == object;
        assert_eq!(left, !orphaned, "{case}");
    }
}
