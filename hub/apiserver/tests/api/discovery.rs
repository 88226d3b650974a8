use serde_json::json;

use super::harness::*;

#[tokio::test]
async fn clients_find_groups_and_resources_in_both_forms() {
    let api = Api::start().await;
    assert_eq!(api.get("/api").await.ok()["versions"], json!(["v1"]));
    let groups = api.get("/apis").await.ok();
    assert_eq!(
        (&groups["kind"], &groups["groups"][0]["name"]),
        (&json!("APIGroupList"), &json!("apiregistration.k8s.io"))
    );
    let core = api.get("/api/v1").await.ok();
    let maps =
        core["resources"].as_array().expect("resources").iter().find(|one| one["name"] == "configmaps").expect("there");
    assert_eq!((&maps["shortNames"], &maps["namespaced"]), (&json!(["cm"]), &json!(true)));
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    for path in ["/api", "/apis"] {
        let list = api.get_as(path, accept).await.ok();
        assert_eq!(list["kind"], "APIGroupDiscoveryList");
        assert!(list["items"][0]["versions"][0]["resources"].as_array().is_some_and(|all| !all.is_empty()));
    }
    assert_eq!(api.get("/apis/none.example").await.code, 404);
    assert_eq!(api.get("/version").await.ok()["gitVersion"], "v1.35.4");
    for path in ["/livez", "/readyz", "/healthz", "/livez/ping"] {
        assert_eq!(api.get(path).await.body, json!("ok"));
    }
}

#[tokio::test]
async fn every_resource_of_discovery_can_be_listed() {
    let api = Api::start().await;
    let groups = api.get("/apis").await.ok();
    let mut versions = vec!["/api/v1".to_owned()];
    for group in groups["groups"].as_array().expect("groups") {
        for version in group["versions"].as_array().expect("versions") {
            versions.push(format!("/apis/{}", version["groupVersion"].as_str().expect("text")));
        }
    }
    let mut listed = 0;
    for version in versions {
        for resource in api.get(&version).await.ok()["resources"].as_array().expect("resources") {
            let name = resource["name"].as_str().expect("name");
            if resource["verbs"].as_array().is_some_and(|verbs| verbs.contains(&json!("list"))) {
                let list = api.get(&format!("{version}/{name}")).await;
                assert_eq!(list.code, 200, "{version}/{name}");
                listed += 1;
            }
        }
    }
    assert!(listed > 45, "{listed}");
}

#[tokio::test]
async fn open_api_documents_are_where_the_index_says() {
    let api = Api::start().await;
    let index = api.get("/openapi/v3").await.ok();
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().expect("a URL").to_owned();
    let document = api.get(&url).await.ok();
    assert!(document["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"].is_object());
    assert_eq!(api.get("/openapi/v3/apis/none/v1").await.code, 404);
    assert_eq!(api.get("/openapi/v2").await.ok()["swagger"], "2.0");
    assert_eq!(api.get_as("/openapi/v2", "application/yaml").await.code, 406);
}
