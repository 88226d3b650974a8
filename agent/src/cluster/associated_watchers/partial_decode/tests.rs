use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

fn taken_of<K: PartialDecode + DeserializeOwned>(mut object: Value) -> Associate {
    object["metadata"]["name"] = json!("web-1");
    object["metadata"]["namespace"] = json!("shop");
    object["metadata"]["uid"] = json!("u");
    associate(serde_json::from_value::<K>(object).expect("it is read")).expect("it is taken")
}

fn condition<K: PartialDecode + DeserializeOwned>(object: Value) -> Condition {
    taken_of::<K>(object).condition
}

fn pod(status: &Value) -> Condition {
    condition::<Pod>(
        json!({"metadata": {}, "spec": {"nodeName": "n1", "containers": [{"name": "a"}]}, "status": status}),
    )
}

fn why(status: &Value) -> Option<String> {
    pod(status).reason.map(String::from)
}

#[test]
fn only_the_counted_fields_of_a_pod_are_decoded() {
    let running = pod(&json!({
        "phase": "Running", "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}],
        "initContainerStatuses": [{"restartCount": 2, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}],
        "containerStatuses": [{"restartCount": 3, "state": {"running": {}}}],
    }));
    let expected =
        Condition { phase: Phase::Running, ready: true, restarts: 5, node: Some("n1".into()), ..Condition::default() };
    assert_eq!(running, expected);
    assert_eq!(pod(&json!({})).phase, Phase::Unknown);
    assert_eq!(pod(&json!({"phase": "Melting", "conditions": null, "containerStatuses": null})).phase, Phase::Unknown);
}

#[test]
fn why_a_pod_does_not_run_is_what_kubelet_and_scheduler_say() {
    let waiting = |reason: &str| json!({"restartCount": 1, "state": {"waiting": {"reason": reason}}});
    let both = json!([waiting("ContainerCreating"), waiting("ImagePullBackOff")]);
    assert_eq!(why(&json!({"containerStatuses": both})).as_deref(), Some("ImagePullBackOff"));
    let usual = json!({"containerStatuses": [waiting("ContainerCreating")]});
    assert_eq!(why(&usual).as_deref(), Some("ContainerCreating"));
    let unscheduled = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]});
    assert_eq!(why(&unscheduled).as_deref(), Some("Unschedulable"));
    let killed = json!({"containerStatuses": [{"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]});
    assert_eq!(why(&killed).as_deref(), Some("OOMKilled"));
    let done = json!({"containerStatuses": [{"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]});
    assert_eq!(why(&done), None);
    assert_eq!(why(&json!({"phase": "Failed", "reason": "Evicted"})).as_deref(), Some("Evicted"));
    assert_eq!(why(&json!({"reason": "é".repeat(100)})).map(|reason| reason.len()), Some(64));
    let leaving = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Running"}});
    assert_eq!(condition::<Pod>(leaving).reason.as_deref(), Some("Terminating"));
}

#[test]
fn replica_sets_and_jobs_have_phases_like_pods() {
    let set = |replicas: i64, status: Value| {
        let set = condition::<ReplicaSet>(json!({"metadata": {}, "spec": {"replicas": replicas}, "status": status}));
        (set.phase, set.ready, set.reason.map(String::from))
    };
    assert_eq!(set(0, json!({})), (Phase::Idle, false, None));
    assert_eq!(set(2, json!({"readyReplicas": 2})), (Phase::Running, true, None));
    let failing = json!({"conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}]});
    assert_eq!(set(2, failing), (Phase::Pending, false, Some("FailedCreate".to_owned())));

    let job = |spec: Value, status: Value| {
        let job = condition::<Job>(json!({"metadata": {}, "spec": spec, "status": status}));
        (job.phase, job.reason.map(String::from))
    };
    let finished =
        |name: &str, reason: &str| json!({"conditions": [{"type": name, "status": "True", "reason": reason}]});
    assert_eq!(job(json!({}), json!({})), (Phase::Pending, None));
    assert_eq!(job(json!({}), json!({"active": 1})), (Phase::Running, None));
    assert_eq!(job(json!({"suspend": true}), json!({})), (Phase::Idle, None));
    assert_eq!(job(json!({}), finished("Complete", "CompletionsReached")), (Phase::Succeeded, None));
    let failed = (Phase::Failed, Some("BackoffLimitExceeded".to_owned()));
    assert_eq!(job(json!({}), finished("Failed", "BackoffLimitExceeded")), failed);
}

#[test]
fn endpoints_of_a_slice_are_counted() {
    let slice = |endpoints: Value| {
        let slice = condition::<EndpointSlice>(json!({"metadata": {}, "endpoints": endpoints, "ports": []}));
        (slice.phase, slice.ready, slice.endpoints, slice.endpoints_ready)
    };
    let endpoint = |ready: Value| json!({"addresses": ["10.0.0.1"], "conditions": {"ready": ready}});
    assert_eq!(slice(Value::Null), (Phase::Idle, false, 0, 0));
    assert_eq!(slice(json!([endpoint(json!(false))])), (Phase::Pending, false, 1, 0));
    let mixed = json!([endpoint(json!(false)), endpoint(json!(true)), endpoint(Value::Null)]);
    assert_eq!(slice(mixed), (Phase::Running, true, 3, 2));
}

#[test]
fn the_owner_is_the_controller_or_the_service_that_a_label_names() {
    let owners = json!([
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "c"},
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "r", "controller": true},
    ]);
    let owned = taken_of::<Pod>(json!({"metadata": {"ownerReferences": owners, "managedFields": [{"manager": "m"}]}}));
    let set = Owner { kind: GroupKind::new("apps", "ReplicaSet"), name: "web-1".to_owned(), uid: "r".parse().ok() };
    assert_eq!(owned.owner, Some(set));
    assert_eq!(taken_of::<Pod>(json!({"metadata": {"labels": {"app": "web"}}})).owner, None);
    let labelled = json!({"metadata": {"labels": {SERVICE_NAME_LABEL: "web", "app": "web"}}});
    let service = Owner { kind: GroupKind::new("", "Service"), name: "web".to_owned(), uid: None };
    assert_eq!(taken_of::<EndpointSlice>(labelled).owner, Some(service));
    assert_eq!(associate(serde_json::from_value::<Pod>(json!({"metadata": {}})).expect("it is read")), None);
}
