use serde_json::{Value, json};

use super::*;
use crate::schema::builtin;

fn apps() -> Vec<Endpoint<'static>> {
    let table = builtin();
    let resources = table.resources().iter().filter(|resource| resource.group == "apps");
    resources
        .map(|resource| Endpoint {
            resource,
            source: Source::Builtin(table.type_of("apps", "v1", &resource.kind).unwrap()),
        })
        .collect()
}

fn references(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(target) if name == "$ref" => out.push(target.clone()),
                    _ => references(value, out),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, out)),
        _ => {}
    }
}

#[test]
fn every_reference_resolves() {
    for document in [v3("apps", "v1", &apps()), v2("v1.35.4", &apps())] {
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > 100);
        for target in found {
            let schema = document.pointer(target.trim_start_matches('#')).unwrap();
            assert!(schema.is_object(), "{target}");
        }
    }
}

#[test]
fn patch_says_what_kubectl_looks_for() {
    let document = v3("apps", "v1", &apps());
    let path = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"];
    let patch = &path["patch"];
    let names: Vec<&str> =
        patch["parameters"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "apps", "version": "v1", "kind": "Deployment"})
    );
    assert_eq!(patch["x-kubernetes-action"], "patch");
    assert!(document["paths"].get("/apis/apps/v1/namespaces/{namespace}/deployments/{name}/status").is_some());
}

#[test]
fn merge_metadata_is_there() {
    let table = builtin();
    let endpoint = Endpoint {
        resource: table.resource("", "v1", "pods").unwrap(),
        source: Source::Builtin(table.type_of("", "v1", "Pod").unwrap()),
    };
    let document = v3("", "v1", &[endpoint]);
    let containers = &document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
}

#[test]
fn a_custom_resource_is_published_with_its_own_schema() {
    let mut resource = builtin().resource("apps", "v1", "deployments").unwrap().clone();
    resource.group = "shop.example.com".to_owned();
    resource.kind = "Widget".to_owned();
    resource.plural = "widgets".to_owned();
    resource.subresources.clear();
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "description": "What to make.", "nullable": true, "properties": {"a": {"type": "string"}}},
    }});
    let endpoint = Endpoint { resource: &resource, source: Source::Custom(Some(&schema)) };
    let document = v3("shop.example.com", "v1", &[endpoint]);
    let widget = &document["components"]["schemas"]["com.example.shop.v1.Widget"];
    assert_eq!(widget["properties"]["spec"]["description"], "What to make.");
    assert_eq!(widget["x-kubernetes-group-version-kind"][0]["kind"], "Widget");
    assert_eq!(widget["properties"]["kind"], json!({"type": "string"}));
    let old = v2("v1.35.4", &[endpoint]);
    assert_eq!(old["definitions"]["com.example.shop.v1.Widget"]["properties"]["spec"].get("type"), None);
}

#[test]
fn the_index_leads_to_the_documents() {
    let documents = BTreeMap::from([("apis/apps/v1".to_owned(), "ABC".to_owned())]);
    assert_eq!(
        v3_index("/spaces/a", &documents)["paths"]["apis/apps/v1"]["serverRelativeURL"],
        "/spaces/a/openapi/v3/apis/apps/v1?hash=ABC"
    );
}
