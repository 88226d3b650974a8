//! What counts as content of a namespace.

use std::sync::Mutex;

use tideline_common::GroupKind;

use super::super::*;
use super::api_server::{ApiServer, Fault, Refusal, Verb, root_of, serve};
use super::{OneNamespace, key, scope};

/// An API server with one object of this kind, that nobody marked, in the namespace.
fn with_object(kind: &str) -> ApiServer {
    let (root, plural) = root_of(kind);
    let object = json!({"kind": kind, "metadata": {"name": "it", "namespace": "shop", "uid": "u2"}});
    let mut server = ApiServer::default();
    server.objects.insert(format!("{root}/namespaces/shop/{plural}/it"), object);
    server
}

/// Inspects the namespace, which is there.
async fn inspect(mut server: ApiServer) -> Result<(u64, Option<String>, u64), Failure> {
    let shop = json!({"kind": "Namespace", "metadata": {"name": "shop", "uid": "u1", "resourceVersion": "7"}});
    server.objects.insert("/api/v1/namespaces/shop".to_owned(), shop);
    inspect_at(server, &key()).await
}

async fn inspect_at(server: ApiServer, key: &ObjectKey) -> Result<(u64, Option<String>, u64), Failure> {
    let server = Arc::new(Mutex::new(server));
    let client = Client::new(tower::service_fn(move |request| serve(Arc::clone(&server), request)), "default");
    let executor = Executor::new(client.clone(), Arc::new(Kinds::new(client)), Arc::new(OneNamespace));
    match executor.inspect(&scope(), key, &"v1".into()).await {
        Ok(Inspected::Holds { foreign, example, ours, itself }) => {
            assert_eq!((&itself.key, &*itself.resource_version), (key, "7"));
            Ok((foreign, example, ours))
        }
        Ok(Inspected::Gone) => panic!("it is there"),
        Err(refused) => Err(refused.failure()),
    }
}

#[tokio::test]
async fn an_empty_namespace_is_empty() {
    assert_eq!(inspect(ApiServer::default()).await.expect("it is listed"), (0, None, 0));
}

#[tokio::test]
async fn an_object_counts_whichever_version_its_kind_is_served_at() {
    for kind in ["ConfigMap", "Job", "CronJob"] {
        match inspect(with_object(kind)).await.expect("it is listed") {
            (1, Some(example), 0) => {
                assert!(example.starts_with(kind), "{example}");
            }
            other => panic!("{kind}: {other:?}"),
        }
    }
}

/// What is not seen may be there.
#[tokio::test]
async fn a_namespace_with_a_kind_that_is_deleted_and_not_listed_is_not_empty() {
    let mut sealed = with_object("CronJob");
    sealed.sealed = Some("CronJob");
    let mut refusing = with_object("CronJob");
    let status = json!({"kind": "Status", "status": "Failure", "code": 405, "reason": "MethodNotAllowed"});
    let refusal = Refusal::Status { code: 405, retry_after: None, status };
    refusing.fault = Some(Fault { verb: Verb::List, about: "shop", refusal, times: None });
    for (case, server) in [("without the verb", sealed), ("405", refusing)] {
        let failure = inspect(server).await.expect_err(case);
        assert_eq!(failure.reason, Reason::NotEmpty, "{case}: {failure:?}");
    }
}

/// As of a definition that was just made, or where the handlers of the API server are behind.
#[tokio::test]
async fn a_definition_whose_kind_is_not_served_yet_is_not_empty() {
    let mut server = ApiServer::default();
    let spec = json!({"group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
        "versions": [{"name": "v1", "served": true, "storage": true}]});
    let metadata = json!({"name": "widgets.example.com", "uid": "u1", "resourceVersion": "7"});
    let definition = json!({"kind": "CustomResourceDefinition", "metadata": metadata, "spec": spec});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";
    server.objects.insert(path.to_owned(), definition);
    let kind = GroupKind::new("apiextensions.k8s.io", "CustomResourceDefinition");
    let failure = inspect_at(server, &ObjectKey::new(kind, "", "widgets.example.com")).await.expect_err("it is held");
    assert_eq!(failure.reason, Reason::NotEmpty, "{failure:?}");
    assert!(failure.message.starts_with("Widget.example.com "), "{failure:?}");
}
