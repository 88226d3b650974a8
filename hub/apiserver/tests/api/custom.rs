use serde_json::{Value, json};
use tideline_apiserver::{Identity, SpaceConfig};

use super::harness::*;

pub(crate) fn widgets() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["size"], "properties": {
                        "size": {"type": "integer", "minimum": 1},
                        "color": {"type": "string", "default": "red", "enum": ["red", "blue"]},
                    }},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}},
            }],
        },
    })
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 3}})
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

#[tokio::test]
async fn a_definition_serves_its_resource_at_once() {
    let api = Api::start().await;
    assert_eq!(api.get(WIDGETS).await.code, 404);
    let made = api.post(CRDS, &widgets()).await.ok();
    assert_eq!(made["status"]["acceptedNames"]["singular"], "widget");
    assert_eq!(made["status"]["storedVersions"], json!(["v1"]));
    let conditions = made["status"]["conditions"].as_array().expect("conditions");
    for kind in ["NamesAccepted", "Established"] {
        assert!(conditions.iter().any(|one| one["type"] == kind && one["status"] == "True"), "{conditions:?}");
    }
    let made = api.post(WIDGETS, &widget("a")).await.ok();
    assert_eq!(made["spec"]["color"], "red");
    assert_eq!(made["metadata"]["generation"], 1);
    let table = api.get_as(WIDGETS, "application/json;as=Table;v=v1;g=meta.k8s.io").await.ok();
    assert_eq!(table["rows"][0]["cells"], json!(["a", 3]));
    let discovered = api.get("/apis/example.com/v1").await.ok();
    let names: Vec<&str> =
        discovered["resources"].as_array().expect("list").iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, ["widgets", "widgets/status", "widgets/scale"]);
}

#[tokio::test]
async fn custom_objects_are_pruned_and_validated() {
    let api = Api::start().await;
    api.post(CRDS, &widgets()).await.ok();
    let mut object = widget("a");
    object["spec"]["extra"] = 1.into();
    let strict = api.post(&format!("{WIDGETS}?fieldValidation=Strict"), &object).await;
    assert_eq!(strict.failure(), (400, "BadRequest", "strict decoding error: unknown field \"spec.extra\""));
    let made = api.post(WIDGETS, &object).await.ok();
    assert!(made["spec"]["extra"].is_null());
    object["metadata"]["name"] = "b".into();
    object["spec"] = json!({"size": 0, "color": "green"});
    let refused = api.post(WIDGETS, &object).await;
    assert_eq!((refused.code, refused.failure().1), (422, "Invalid"));
    let causes = refused.body["details"]["causes"].as_array().expect("causes");
    let fields: Vec<&str> = causes.iter().filter_map(|cause| cause["field"].as_str()).collect();
    assert_eq!(fields, ["spec.color", "spec.size"], "{causes:?}");
    let made = api.put(&format!("{WIDGETS}/a"), &widget("a")).await;
    assert!(
        made.failure().2.ends_with("metadata.resourceVersion: Invalid value: 0: must be specified for an update"),
        "{made:?}"
    );
}

#[tokio::test]
async fn a_null_that_the_schema_does_not_allow_is_as_if_nothing_was_written() {
    let api = Api::start().await;
    let mut crd = widgets();
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let properties = crd.pointer_mut(spec).expect("properties");
    properties["note"] = json!({"type": "string"});
    properties["open"] = json!({"type": "string", "nullable": true});
    properties["list"] = json!({"type": "array", "items": {"type": "string"}});
    api.post(CRDS, &crd).await.ok();
    let mut nulls = widget("a");
    nulls["spec"] = json!({"size": 3, "color": null, "note": null, "open": null, "list": null});
    let kept = json!({"size": 3, "color": "red", "open": null});
    let made = api.post(&format!("{WIDGETS}?fieldValidation=Strict"), &nulls).await.ok();
    assert_eq!(made["spec"], kept);
    nulls["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
    assert_eq!(api.put(&format!("{WIDGETS}/a"), &nulls).await.ok(), made);
    let patch = json!([{"op": "add", "path": "/spec/note", "value": null}]).to_string();
    let patched = api.send(http::Method::PATCH, &format!("{WIDGETS}/a"), "application/json-patch+json", patch).await;
    assert_eq!(patched.ok(), made);
    nulls["metadata"] = json!({"name": "b"});
    assert_eq!(api.apply(&format!("{WIDGETS}/b?fieldManager=x"), &nulls).await.ok()["spec"], kept);
    for (spec, field) in [(json!({"size": null}), "spec.size"), (json!({"size": 3, "list": [null]}), "spec.list[0]")] {
        nulls["metadata"] = json!({"name": "c"});
        nulls["spec"] = spec;
        let refused = api.post(WIDGETS, &nulls).await;
        assert_eq!((refused.code, &refused.body["details"]["causes"][0]["field"]), (422, &json!(field)));
    }
}

#[tokio::test]
async fn a_changed_schema_takes_effect() {
    let api = Api::start().await;
    let mut crd = api.post(CRDS, &widgets()).await.ok();
    api.post(WIDGETS, &widget("a")).await.ok();
    let one = format!("{CRDS}/widgets.example.com");
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["shape"] =
        json!({"type": "string", "default": "round"});
    let changed = api.put(&one, &crd).await.ok();
    assert_eq!(changed["metadata"]["generation"], 2);
    assert_eq!(api.get(&format!("{WIDGETS}/a")).await.ok()["spec"]["shape"], "round");
    let crd = changed;
    for (field, value) in [("/spec/scope", "Cluster"), ("/spec/names/kind", "Gadget")] {
        let mut other = crd.clone();
        *other.pointer_mut(field).expect(field) = value.into();
        assert_eq!(api.put(&one, &other).await.code, 422, "{field}");
    }
}

#[tokio::test]
async fn a_watch_ends_with_the_schema_that_it_began_with() {
    let api = Api::start().await;
    api.post(CRDS, &widgets()).await.ok();
    let one = format!("{CRDS}/widgets.example.com");
    let mut events = api.watch(&format!("{WIDGETS}?watch=1")).await;
    api.post(WIDGETS, &widget("a")).await.ok();
    assert_eq!(events.short().await, pair("ADDED", "a"));
    // Another definition, and labels of this one, are no other schema.
    let mut gadgets = widgets();
    gadgets["metadata"]["name"] = "gadgets.example.com".into();
    gadgets["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget"});
    api.post(CRDS, &gadgets).await.ok();
    api.merge(&one, &json!({"metadata": {"labels": {"x": "y"}}})).await.ok();
    let made = api.post(WIDGETS, &widget("b")).await.ok();
    assert_eq!(events.short().await, pair("ADDED", "b"));
    let version = made["metadata"]["resourceVersion"].as_str().expect("a version");

    let mut crd = api.get(&one).await.ok();
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    crd.pointer_mut(spec).expect("properties")["shape"] = json!({"type": "string"});
    api.put(&one, &crd).await.ok();
    api.merge(&format!("{WIDGETS}/a"), &json!({"spec": {"shape": "round"}})).await.ok();
    assert_eq!(events.next().await, None);
    let mut events = api.watch(&format!("{WIDGETS}?watch=1&resourceVersion={version}")).await;
    let event = events.next().await.expect("an event");
    assert_eq!((&event["type"], &event["object"]["spec"]["shape"]), (&json!("MODIFIED"), &json!("round")));
    // A definition on its way out has its objects told as gone.
    api.delete(&one).await.ok();
    let mut gone = [events.short().await, events.short().await];
    gone.sort();
    assert_eq!(gone, [pair("DELETED", "a"), pair("DELETED", "b")]);
}

#[tokio::test]
async fn objects_are_served_in_every_version_of_their_definition() {
    let api = Api::start().await;
    let mut crd = widgets();
    let mut second = crd["spec"]["versions"][0].clone();
    second["name"] = "v2".into();
    second["storage"] = false.into();
    crd["spec"]["versions"].as_array_mut().expect("versions").push(second);
    let made = api.post(CRDS, &crd).await.ok();
    api.post(WIDGETS, &widget("a")).await.ok();
    let two = "/apis/example.com/v2/namespaces/default/widgets";
    let seen = api.get(&format!("{two}/a")).await.ok();
    assert_eq!(seen["apiVersion"], "example.com/v2");
    assert_eq!(api.get(two).await.ok()["items"][0]["apiVersion"], "example.com/v2");
    assert_eq!(api.get("/apis/example.com").await.ok()["preferredVersion"]["version"], "v2");
    let mut crd = made;
    crd["spec"]["versions"][0]["storage"] = false.into();
    crd["spec"]["versions"][1]["storage"] = true.into();
    let moved = api.put(&format!("{CRDS}/widgets.example.com"), &crd).await.ok();
    assert_eq!(moved["status"]["storedVersions"], json!(["v1", "v2"]));
    assert_eq!(api.get(&format!("{WIDGETS}/a")).await.ok()["apiVersion"], "example.com/v1");
}

#[tokio::test]
async fn a_deleted_definition_takes_its_objects_along() {
    let api = Api::start().await;
    api.post(CRDS, &widgets()).await.ok();
    let mut held = widget("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    api.post(WIDGETS, &widget("free")).await.ok();
    api.post(WIDGETS, &held).await.ok();
    let one = format!("{CRDS}/widgets.example.com");
    api.delete(&one).await.ok();
    api.until(&format!("{WIDGETS}/free"), |answer| answer.code == 404).await;
    let refused = api.post(WIDGETS, &widget("new")).await;
    assert_eq!(refused.failure().0, 405);
    assert_eq!(api.get(&one).await.code, 200);
    api.merge(&format!("{WIDGETS}/held"), &json!({"metadata": {"finalizers": null}})).await.ok();
    api.until(&one, |answer| answer.code == 404).await;
    // The definition goes first, and what it served a moment later, as on a real server.
    api.until(WIDGETS, |answer| answer.code == 404).await;
    api.post(CRDS, &widgets()).await.ok();
    assert_eq!(api.get(WIDGETS).await.ok()["items"], json!([]));
}

#[tokio::test]
async fn the_definitions_of_a_space_are_protected() {
    let api = Api::with(SpaceConfig { crds: vec![widgets()], ..SpaceConfig::default() }).await;
    let one = format!("{CRDS}/widgets.example.com");
    let user = Identity::new("anna", Vec::new());
    let send = |method: &str, body: String| {
        let request = http::Request::builder()
            .method(method)
            .uri(&one)
            .header("content-type", "application/merge-patch+json")
            .body(axum::body::Body::from(body))
            .expect("a request");
        let (api, user) = (&api, user.clone());
        async move { answer(api.server.call("test", user, request).await).await }
    };
    assert_eq!(send("DELETE", String::new()).await.code, 403);
    assert_eq!(send("PATCH", json!({"spec": {"names": {"shortNames": ["x"]}}}).to_string()).await.code, 403);
    assert_eq!(send("PATCH", json!({"metadata": {"labels": {"x": "y"}}}).to_string()).await.code, 200);
    // Opened again with another definition, the space has that one.
    let mut changed = widgets();
    changed["spec"]["names"]["shortNames"] = json!(["wg"]);
    api.server
        .create_space("test", SpaceConfig { crds: vec![changed], ..SpaceConfig::default() })
        .await
        .expect("opened");
    assert_eq!(api.get(&one).await.ok()["spec"]["names"]["shortNames"], json!(["wg"]));
}

#[tokio::test]
async fn malformed_definitions_are_refused() {
    let api = Api::start().await;
    let mut wrong = widgets();
    wrong["metadata"]["name"] = "gadgets.example.com".into();
    assert_eq!(api.post(CRDS, &wrong).await.failure().1, "Invalid");
    let mut wrong = widgets();
    wrong["spec"]["versions"][0]["storage"] = false.into();
    assert_eq!(api.post(CRDS, &wrong).await.failure().1, "Invalid");
    let mut wrong = widgets();
    wrong["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["type"] = "objct".into();
    assert_eq!(api.post(CRDS, &wrong).await.failure().1, "Invalid");
}

#[tokio::test]
async fn definitions_are_bounded_in_what_each_object_costs() {
    let api = Api::start().await;
    let refused = async |change: &dyn Fn(&mut Value)| {
        let mut definition = widgets();
        change(&mut definition["spec"]["versions"]);
        let refused = api.post(CRDS, &definition).await;
        assert_eq!((refused.code, refused.failure().1), (422, "Invalid"));
        refused.body["details"]["causes"][0]["field"].clone()
    };
    let column = json!({"name": "a", "type": "string", "jsonPath": ".spec"});
    let columns = |versions: &mut Value| versions[0]["additionalPrinterColumns"] = vec![column.clone(); 65].into();
    assert_eq!(refused(&columns).await, "spec.versions[0].additionalPrinterColumns");
    let long = |versions: &mut Value| {
        versions[0]["additionalPrinterColumns"][0]["jsonPath"] = format!(".{}", "x".repeat(2_000)).into();
    };
    assert_eq!(refused(&long).await, "spec.versions[0].additionalPrinterColumns[0].jsonPath");
    let many = |versions: &mut Value| {
        let first = versions[0].clone();
        *versions = (0..101)
            .map(|at| json!({"name": format!("v{at}"), "served": true, "storage": at == 0, "schema": first["schema"]}))
            .collect();
    };
    assert_eq!(refused(&many).await, "spec.versions");
}
