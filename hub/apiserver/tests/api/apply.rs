use serde_json::json;

use super::harness::*;

#[tokio::test]
async fn apply_creates_once_and_an_unchanged_apply_writes_nothing() {
    let api = Api::start().await;
    let path = format!("{DEPLOYMENTS}/a?fieldManager=one");
    let made = api.apply(&path, &deployment("a")).await;
    assert_eq!(made.code, 201);
    let made = made.ok();
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(made["metadata"]["managedFields"][0]["operation"], "Apply");
    let again = api.apply(&path, &deployment("a")).await;
    assert_eq!(again.code, 200);
    assert_eq!(again.ok(), made);
}

#[tokio::test]
async fn a_conflicting_apply_names_managers_and_fields() {
    let api = Api::start().await;
    api.apply(&format!("{DEPLOYMENTS}/a?fieldManager=one"), &deployment("a")).await.ok();
    let mut other = deployment("a");
    other["spec"]["replicas"] = 5.into();
    let path = format!("{DEPLOYMENTS}/a?fieldManager=two");
    let refused = api.apply(&path, &other).await;
    assert_eq!(
        refused.failure(),
        (409, "Conflict", "Apply failed with 1 conflict: conflict with \"one\": .spec.replicas")
    );
    assert_eq!(
        refused.body["details"]["causes"],
        json!([{"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".spec.replicas"}])
    );
    let forced = api.apply(&format!("{path}&force=true"), &other).await.ok();
    assert_eq!(forced["spec"]["replicas"], 5);
    assert_eq!(forced["metadata"]["generation"], 2);
}

#[tokio::test]
async fn a_field_left_out_of_an_apply_goes() {
    let api = Api::start().await;
    let path = format!("{MAPS}/a?fieldManager=one");
    let mut map = config_map("a");
    map["data"]["second"] = "x".into();
    api.apply(&path, &map).await.ok();
    let applied = api.apply(&path, &config_map("a")).await.ok();
    assert_eq!(applied["data"], json!({"key": "value"}));
}

#[tokio::test]
async fn apply_needs_a_manager_and_fits_its_path() {
    let api = Api::start().await;
    let refused = api.apply(&format!("{MAPS}/a"), &config_map("a")).await;
    assert_eq!(refused.code, 422);
    assert!(refused.failure().2.contains("fieldManager: Required value"));
    assert_eq!(api.apply(&format!("{MAPS}/b?fieldManager=m"), &config_map("a")).await.code, 400);
    assert_eq!(api.apply(&format!("{MAPS}/a?fieldManager=m"), &json!({"metadata": {"name": "a"}})).await.code, 400);
    let nowhere = "/api/v1/namespaces/none/configmaps/a?fieldManager=m";
    assert_eq!(api.apply(nowhere, &config_map("a")).await.failure().2, "namespaces \"none\" not found");
}

#[tokio::test]
async fn defaults_of_reads_are_owned_by_nobody() {
    let api = Api::start().await;
    let service =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}});
    let path = "/api/v1/namespaces/default/services/a?fieldManager=m";
    let made = api.apply(path, &service).await.ok();
    assert_eq!(made["spec"]["type"], "ClusterIP");
    assert!(!made["metadata"]["managedFields"].to_string().contains("f:type"));
    assert_eq!(
        api.apply(path, &service).await.ok()["metadata"]["resourceVersion"],
        made["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn status_can_be_applied_by_another_manager() {
    let api = Api::start().await;
    api.apply(&format!("{DEPLOYMENTS}/a?fieldManager=one"), &deployment("a")).await.ok();
    let status =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "status": {"replicas": 2}});
    let written = api.apply(&format!("{DEPLOYMENTS}/a/status?fieldManager=two"), &status).await.ok();
    assert_eq!(written["status"]["replicas"], 2);
    assert_eq!(written["spec"]["replicas"], 2);
    let managers = written["metadata"]["managedFields"].as_array().expect("managers");
    assert!(managers.iter().any(|one| one["manager"] == "two" && one["subresource"] == "status"), "{managers:?}");
}
