use http::Method;
use serde_json::json;

use super::harness::*;

#[tokio::test]
async fn an_object_is_created_read_replaced_and_deleted() {
    let api = Api::start().await;
    let made = api.post(MAPS, &config_map("a")).await;
    assert_eq!(made.code, 201);
    let mut made = made.ok();
    assert_eq!(made["metadata"]["namespace"], "default");
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        assert!(!made["metadata"][field].is_null(), "{field}");
    }
    assert!(made["metadata"]["generation"].is_null());
    assert_eq!(made["metadata"]["managedFields"][0]["manager"], "tester");
    let one = format!("{MAPS}/a");
    assert_eq!(api.get(&one).await.ok(), made);

    made["data"]["key"] = "other".into();
    let changed = api.put(&one, &made).await.ok();
    assert_eq!(changed["data"]["key"], "other");
    assert_ne!(changed["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    assert_eq!(changed["metadata"]["uid"], made["metadata"]["uid"]);

    let gone = api.delete(&one).await.ok();
    assert_eq!((&gone["kind"], &gone["status"]), (&json!("Status"), &json!("Success")));
    assert_eq!(gone["details"]["uid"], made["metadata"]["uid"]);
    assert_eq!(api.get(&one).await.failure(), (404, "NotFound", "configmaps \"a\" not found"));
}

#[tokio::test]
async fn what_exists_is_not_created_again() {
    let api = Api::start().await;
    api.post(DEPLOYMENTS, &deployment("a")).await.ok();
    let again = api.post(DEPLOYMENTS, &deployment("a")).await;
    assert_eq!(again.failure(), (409, "AlreadyExists", "deployments.apps \"a\" already exists"));
    assert_eq!(again.body["details"], json!({"name": "a", "group": "apps", "kind": "deployments"}));
}

#[tokio::test]
async fn of_two_writers_with_one_version_one_gets_a_conflict() {
    let api = Api::start().await;
    let made = api.post(MAPS, &config_map("a")).await.ok();
    let one = format!("{MAPS}/a");
    let (mut left, mut right) = (made.clone(), made);
    left["data"]["by"] = "left".into();
    right["data"]["by"] = "right".into();
    let (left, right) = tokio::join!(api.put(&one, &left), api.put(&one, &right));
    let mut codes = [left.code, right.code];
    codes.sort_unstable();
    assert_eq!(codes, [200, 409]);
    let lost = if left.code == 409 { left } else { right };
    assert_eq!(
        lost.failure(),
        (
            409,
            "Conflict",
            "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your \
             changes to the latest version and try again"
        )
    );
}

#[tokio::test]
async fn concurrent_patches_without_a_version_all_land() {
    let api = Api::start().await;
    api.post(MAPS, &config_map("a")).await.ok();
    let one = format!("{MAPS}/a");
    let patches = (0..10).map(|n| json!({"data": {format!("n{n}"): "x"}})).collect::<Vec<_>>();
    let all = futures::future::join_all(patches.iter().map(|patch| api.merge(&one, patch))).await;
    assert!(all.iter().all(|answer| answer.code == 200));
    assert_eq!(api.get(&one).await.ok()["data"].as_object().map(serde_json::Map::len), Some(11));
}

#[tokio::test]
async fn a_write_that_changes_nothing_keeps_the_version() {
    let api = Api::start().await;
    let made = api.post(DEPLOYMENTS, &deployment("a")).await.ok();
    let one = format!("{DEPLOYMENTS}/a");
    let version = &made["metadata"]["resourceVersion"];
    assert_eq!(api.put(&one, &made).await.ok()["metadata"]["resourceVersion"], *version);
    let patched = api.merge(&one, &json!({"spec": {"replicas": 2}})).await.ok();
    assert_eq!(patched["metadata"]["resourceVersion"], *version);
}

#[tokio::test]
async fn generation_counts_changes_of_the_spec_alone() {
    let api = Api::start().await;
    let one = format!("{DEPLOYMENTS}/a");
    let generation = |value: serde_json::Value| value["metadata"]["generation"].as_i64();
    assert_eq!(generation(api.post(DEPLOYMENTS, &deployment("a")).await.ok()), Some(1));
    assert_eq!(generation(api.merge(&one, &json!({"metadata": {"labels": {"a": "b"}}})).await.ok()), Some(1));
    let status = api.merge(&format!("{one}/status"), &json!({"status": {"replicas": 3}})).await.ok();
    assert_eq!(generation(status), Some(1));
    assert_eq!(generation(api.merge(&one, &json!({"spec": {"replicas": 5}})).await.ok()), Some(2));
}

#[tokio::test]
async fn status_is_written_through_its_subresource_only() {
    let api = Api::start().await;
    let mut new = deployment("a");
    new["status"] = json!({"replicas": 9});
    assert!(api.post(DEPLOYMENTS, &new).await.ok()["status"].is_null());
    let one = format!("{DEPLOYMENTS}/a");
    assert!(api.merge(&one, &json!({"status": {"replicas": 9}})).await.ok()["status"].is_null());
    let change = json!({"spec": {"replicas": 7}, "metadata": {"labels": {"x": "y"}}, "status": {"replicas": 9}});
    let written = api.merge(&format!("{one}/status"), &change).await.ok();
    assert_eq!(written["status"]["replicas"], 9);
    assert_eq!(written["spec"]["replicas"], 2);
    let mut object = api.get(&one).await.ok();
    object["status"]["replicas"] = 10.into();
    object["spec"]["replicas"] = 4.into();
    let written = api.put(&one, &object).await.ok();
    assert_eq!((&written["status"]["replicas"], &written["spec"]["replicas"]), (&json!(9), &json!(4)));
}

#[tokio::test]
async fn a_generated_name_has_its_prefix() {
    let api = Api::start().await;
    let mut map = config_map("");
    map["metadata"] = json!({"generateName": "gen-"});
    let made = api.post(MAPS, &map).await.ok();
    let name = made["metadata"]["name"].as_str().expect("a name");
    assert!(name.starts_with("gen-") && name.len() == 9, "{name}");
    map["metadata"] = json!({});
    let failed = api.post(MAPS, &map).await;
    assert_eq!(failed.code, 422, "{}", failed.body);
}

#[tokio::test]
async fn a_namespace_must_exist() {
    let api = Api::start().await;
    let failed = api.post("/api/v1/namespaces/none/configmaps", &config_map("a")).await;
    assert_eq!(failed.failure(), (404, "NotFound", "namespaces \"none\" not found"));
    let mut map = config_map("a");
    map["metadata"]["namespace"] = "other".into();
    assert_eq!(api.post(MAPS, &map).await.code, 400);
}

#[tokio::test]
async fn dry_runs_answer_and_store_nothing() {
    let api = Api::start().await;
    let before = api.get(MAPS).await.ok()["metadata"]["resourceVersion"].clone();
    let made = api.post(&format!("{MAPS}?dryRun=All"), &config_map("a")).await;
    assert_eq!(made.code, 201);
    assert_eq!(api.get(&format!("{MAPS}/a")).await.code, 404);
    let applied = api.apply(&format!("{MAPS}/b?dryRun=All&fieldManager=m"), &config_map("b")).await;
    assert_eq!(applied.code, 201);
    assert_eq!(api.get(MAPS).await.ok()["metadata"]["resourceVersion"], before);
    api.post(MAPS, &config_map("a")).await.ok();
    let patched = api.merge(&format!("{MAPS}/a?dryRun=All"), &json!({"data": {"x": "y"}})).await.ok();
    assert_eq!(patched["data"]["x"], "y");
    assert!(api.get(&format!("{MAPS}/a")).await.ok()["data"]["x"].is_null());
    api.delete(&format!("{MAPS}/a?dryRun=All")).await.ok();
    assert_eq!(api.get(&format!("{MAPS}/a")).await.code, 200);
    assert_eq!(api.post(&format!("{MAPS}?dryRun=Some"), &config_map("c")).await.code, 422);
}

#[tokio::test]
async fn unknown_fields_warn_are_refused_or_pass_in_silence() {
    let api = Api::start().await;
    let mut object = deployment("a");
    object["spec"]["replcas"] = 3.into();
    let strict = api.post(&format!("{DEPLOYMENTS}?fieldValidation=Strict"), &object).await;
    assert_eq!(strict.code, 400);
    assert_eq!(
        strict.failure().2,
        "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: unknown field \
         \"spec.replcas\""
    );
    let warned = api.post(&format!("{DEPLOYMENTS}?fieldValidation=Warn"), &object).await;
    assert_eq!(warned.warnings, ["299 - \"unknown field \\\"spec.replcas\\\"\""]);
    assert!(warned.ok()["spec"]["replcas"].is_null());
    let silent = api.put(&format!("{DEPLOYMENTS}/a?fieldValidation=Ignore"), &object).await;
    assert_eq!((silent.code, silent.warnings.len()), (200, 0));
    object["spec"] = json!({"replicas": "three"});
    let typed = api.post(DEPLOYMENTS, &object).await;
    assert_eq!((typed.code, typed.failure().1), (400, "BadRequest"));
}

#[tokio::test]
async fn yaml_bodies_are_read() {
    let api = Api::start().await;
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: doc\ndata:\n  a: |\n    two\n    lines\n";
    let made = api.send(Method::POST, MAPS, "application/yaml", text).await.ok();
    assert_eq!(made["data"]["a"], "two\nlines\n");
    let applied = api
        .send(
            Method::PATCH,
            &format!("{MAPS}/z?fieldManager=m"),
            "application/apply-patch+yaml",
            text.replace("name: doc", "name: z"),
        )
        .await;
    assert_eq!(applied.code, 201);
}

#[tokio::test]
async fn every_patch_format_changes_what_it_says() {
    let api = Api::start().await;
    api.post(DEPLOYMENTS, &deployment("a")).await.ok();
    let one = format!("{DEPLOYMENTS}/a");
    let json_patch = json!([{"op": "test", "path": "/spec/replicas", "value": 2}, {"op": "replace", "path": "/spec/replicas", "value": 3}]);
    let done = api.send(Method::PATCH, &one, "application/json-patch+json", json_patch.to_string()).await.ok();
    assert_eq!(done["spec"]["replicas"], 3);
    let strategic =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "example.com/side:1"}]}}}});
    let done =
        api.send(Method::PATCH, &one, "application/strategic-merge-patch+json", strategic.to_string()).await.ok();
    assert_eq!(done["spec"]["template"]["spec"]["containers"].as_array().map(Vec::len), Some(2));
    let done = api.merge(&one, &json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
    assert_eq!(done["metadata"]["labels"]["a"], "b");
    let failing = json!([{"op": "test", "path": "/spec/replicas", "value": 9}]);
    let failed = api.send(Method::PATCH, &one, "application/json-patch+json", failing.to_string()).await;
    assert_eq!((failed.code, failed.failure().1), (422, "Invalid"));
    assert_eq!(api.send(Method::PATCH, &one, "text/plain", "{}").await.code, 415);
}

#[tokio::test]
async fn a_patch_with_an_old_version_conflicts() {
    let api = Api::start().await;
    let made = api.post(MAPS, &config_map("a")).await.ok();
    let one = format!("{MAPS}/a");
    api.merge(&one, &json!({"data": {"x": "1"}})).await.ok();
    let stale = json!({"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"x": "2"}});
    assert_eq!(api.merge(&one, &stale).await.code, 409);
}

#[tokio::test]
async fn reads_fill_defaults_that_writes_do_not_store() {
    let api = Api::start().await;
    let mut object = deployment("a");
    object["spec"].as_object_mut().expect("spec").remove("replicas");
    let made = api.post(DEPLOYMENTS, &object).await.ok();
    assert_eq!(made["spec"]["replicas"], 1);
    let one = format!("{DEPLOYMENTS}/a");
    let written_back = api.put(&one, &made).await.ok();
    assert_eq!(written_back["metadata"]["generation"], 1);
    assert_eq!(written_back["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn what_needs_a_kubelet_is_refused() {
    let api = Api::start().await;
    let pod = "/api/v1/namespaces/default/pods/a";
    for sub in ["log", "exec", "attach", "portforward", "proxy", "eviction"] {
        let refused = api.get(&format!("{pod}/{sub}")).await;
        let text = format!("pods/{sub} is not served by this embedded API server");
        assert_eq!(refused.failure(), (404, "NotFound", text.as_str()));
    }
    let review = api.post("/apis/authentication.k8s.io/v1/tokenreviews", &json!({})).await;
    assert_eq!(review.code, 404);
    assert!(review.failure().2.contains("not served"));
    assert_eq!(
        api.get("/apis/none.example/v1/things").await.failure().2,
        "the server could not find the requested resource"
    );
}

#[tokio::test]
async fn a_wrong_uid_in_a_write_or_deletion_is_a_conflict() {
    let api = Api::start().await;
    let made = api.post(MAPS, &config_map("a")).await.ok();
    let one = format!("{MAPS}/a");
    let mut other = made.clone();
    other["metadata"]["uid"] = "11111111-1111-1111-1111-111111111111".into();
    assert_eq!(api.put(&one, &other).await.code, 409);
    let options = json!({"preconditions": {"uid": "11111111-1111-1111-1111-111111111111"}});
    let refused = api.send(Method::DELETE, &one, "application/json", options.to_string()).await;
    assert_eq!((refused.code, refused.failure().1), (409, "Conflict"));
    let options = json!({"preconditions": {"resourceVersion": "1"}});
    assert_eq!(api.send(Method::DELETE, &one, "application/json", options.to_string()).await.code, 409);
    let options = json!({"kind": "DeleteOptions", "preconditions": {"uid": made["metadata"]["uid"]}, "propagationPolicy": "Foreground"});
    assert_eq!(api.send(Method::DELETE, &one, "application/json", options.to_string()).await.code, 200);
}
