use serde_json::json;

use super::text::is_quantity;
use super::validate::{NameRule, check_types, decode, drop_nulls, unknown_fields, validate_object};
use super::*;

fn deployment() -> TypeRef<'static> {
    builtin().type_of("apps", "v1", "Deployment").unwrap()
}

fn at<'a>(ty: TypeRef<'a>, path: &str) -> TypeRef<'a> {
    path.split('.').fold(ty, |ty, step| match step {
        "[]" => ty.items(),
        name => ty.child(name).unwrap_or_else(|| panic!("no {name} in {path}")),
    })
}

#[test]
fn every_stored_resource_has_a_type() {
    let table = builtin();
    assert!(table.version().starts_with("v1.35."));
    for resource in table.resources() {
        let found = table.type_of(&resource.group, &resource.version, &resource.kind);
        assert!(found.is_some(), "{resource:?}");
    }
}

#[test]
fn no_alpha_or_beta_version_is_served() {
    let unstable = |resource: &&Resource| resource.version.contains("alpha") || resource.version.contains("beta");
    assert_eq!(builtin().resources().iter().find(unstable), None);
}

#[test]
fn the_table_is_small() {
    let nodes = builtin().object_meta().schema.nodes.len();
    assert!(nodes * size_of::<Node>() < 1 << 20, "{nodes} nodes of {} bytes", size_of::<Node>());
}

#[test]
fn a_resource_is_described_as_discovery_does() {
    let resource = builtin().resource("apps", "v1", "deployments").unwrap();
    assert_eq!(resource.short_names, ["deploy"]);
    assert_eq!(resource.categories, ["all"]);
    assert_eq!(resource.api_version(), "apps/v1");
    assert_eq!(resource.subresource("scale").unwrap().kind, "Scale");
    assert!(resource.subresource("status").is_some() && resource.namespaced);
}

#[test]
fn merge_semantics_are_those_of_the_go_types() {
    let ports = at(deployment(), "spec.template.spec.containers.[].ports");
    let keys: [Box<str>; 2] = ["containerPort".into(), "protocol".into()];
    assert_eq!(ports.node().list, ListType::Map(Box::new(keys)));
    assert_eq!(ports.node().merge_key.as_deref(), Some("containerPort"));
    assert_eq!(at(ports, "[].protocol").node().default.as_deref(), Some(&json!("TCP")));
    assert_eq!(at(ports, "[].protocol").node().enumeration.len(), 3);
    assert_eq!(at(deployment(), "spec.strategy").node().patch_strategy, PatchStrategy::RetainKeys);
    assert!(at(deployment(), "spec.selector").node().atomic);
    assert!(at(deployment(), "spec.template.spec.nodeSelector").node().atomic);
    assert_eq!(
        *at(deployment(), "spec.template.spec.containers.[].resources.limits.cpu").shape(),
        Shape::Scalar(ScalarType::Quantity)
    );
    assert_eq!(at(deployment(), "metadata.finalizers").node().list, ListType::Set);
}

#[test]
fn unknown_fields_are_named_by_path() {
    let object = json!({"metadata": {"labelz": {}}, "spec": {"replica": 1, "template": {"spec": {"containers": [{"nam": ""}]}}}});
    assert_eq!(
        unknown_fields(deployment(), &object),
        ["metadata.labelz", "spec.replica", "spec.template.spec.containers[0].nam"]
    );
}

#[test]
fn free_form_values_have_no_unknown_fields() {
    let crd = builtin().type_of("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
    let schema =
        json!({"type": "object", "default": {"any": 1}, "properties": {"a": {"type": "object", "example": []}}});
    let object = json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}});
    assert_eq!(unknown_fields(crd, &object), Vec::<String>::new());
}

#[test]
fn a_duplicate_field_is_noted_and_the_last_counts() {
    let decoded = decode(br#"{"spec": {"a": 1, "a": 2}, "list": [{"b": 1, "b": 1}]}"#).unwrap();
    assert_eq!(decoded.duplicates, ["spec.a", "list[0].b"]);
    assert_eq!(decoded.value["spec"]["a"], json!(2));
}

#[test]
fn hostile_json_is_refused() {
    let deep = "[".repeat(10_000);
    assert!(decode(deep.as_bytes()).unwrap_err().to_string().contains("recursion limit"));
    let keys: Vec<String> = (0..100_000).map(|key| format!("\"{key}\":1")).collect();
    assert!(decode(format!("{{{}}}", keys.join(",")).as_bytes()).is_err());
    assert!(decode(b"{\"a\":\"\xff\"}").is_err());
    assert!(decode(b"{} {}").is_err());
}

#[test]
fn a_wrong_type_is_named_by_path() {
    let object = json!({"spec": {"replicas": "3"}});
    assert_eq!(
        check_types(deployment(), &object).unwrap_err().to_string(),
        "json: cannot unmarshal string into field spec.replicas of type int32"
    );
    let secret = builtin().type_of("", "v1", "Secret").unwrap();
    assert!(check_types(secret, &json!({"data": {"a": "not base64!"}})).is_err());
    assert_eq!(check_types(secret, &json!({"data": {"a": "aGk="}, "immutable": null})), Ok(()));
}

#[test]
fn quantities_are_told_from_text() {
    for good in ["1", "500m", "1Gi", "1.5", ".5", "1e3", "-2Ki", "+1E"] {
        assert!(is_quantity(good), "{good}");
    }
    for bad in ["", "m", "1 Gi", "1gi", "1.2.3", "1e", "0x10"] {
        assert!(!is_quantity(bad), "{bad}");
    }
}

#[test]
fn nulls_in_declared_fields_are_dropped() {
    let mut object = json!({"metadata": {"creationTimestamp": null, "labels": {"a": null}}, "status": {}});
    drop_nulls(deployment(), &mut object);
    assert_eq!(object, json!({"metadata": {"labels": {"a": ""}}, "status": {}}));
}

#[test]
fn a_null_in_a_list_or_map_is_the_zero_of_its_type() {
    let mut object = json!({
        "metadata": {"finalizers": [null]},
        "spec": {"template": {"spec": {"containers": [null, {"name": "a", "resources": {"limits": {"cpu": null}}}]}}},
    });
    drop_nulls(deployment(), &mut object);
    assert_eq!(
        object,
        json!({
            "metadata": {"finalizers": [""]},
            "spec": {"template": {"spec": {"containers": [{}, {"name": "a", "resources": {"limits": {"cpu": "0"}}}]}}},
        })
    );
}

#[test]
fn missing_and_unsupported_values_are_reported() {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "A", "labels": {"a": "b c"}},
        "spec": {"template": {"spec": {"restartPolicy": "Sometimes", "containers": [{"image": "x"}]}}},
        "status": {"conditions": [{}]},
    });
    let errors: Vec<String> = validate_object(deployment(), &object, true).iter().map(ToString::to_string).collect();
    let heads: Vec<&str> = errors.iter().map(|error| error.split(": ").next().unwrap()).collect();
    assert_eq!(
        heads,
        [
            "metadata.name",
            "metadata.labels",
            "spec.selector",
            "spec.template.spec.containers[0].name",
            "spec.template.spec.restartPolicy",
        ]
    );
    assert_eq!(errors[3], "spec.template.spec.containers[0].name: Required value");
    assert!(errors[4].contains("Unsupported value: \"Sometimes\": supported values: \"Always\""), "{}", errors[4]);
}

#[test]
fn names_are_checked_by_kind() {
    let check = |rule: NameRule, name: &str| rule.problem(name).is_none();
    assert!(check(NameRule::Subdomain, &"a".repeat(253)) && !check(NameRule::Subdomain, &"a".repeat(254)));
    assert!(check(NameRule::Label, &"a".repeat(63)) && !check(NameRule::Label, "a.b"));
    assert!(check(NameRule::of("rbac.authorization.k8s.io/v1", "Role"), "system:node"));
    assert!(!check(NameRule::of("v1", "Service"), "1a"));
}

#[test]
fn metadata_at_its_limits_is_taken() {
    let map = builtin().type_of("", "v1", "ConfigMap").unwrap();
    let check = |metadata: serde_json::Value| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        validate_object(map, &object, true).iter().map(|error| error.path.clone()).collect::<Vec<_>>()
    };
    let label = "a".repeat(63);
    assert_eq!(check(json!({"name": "a", "labels": {label.clone(): label}})), Vec::<String>::new());
    assert_eq!(check(json!({"name": "a", "labels": {"a": "a".repeat(64)}})), ["metadata.labels"]);
    assert_eq!(check(json!({"generateName": "a-"})), Vec::<String>::new());
    assert_eq!(check(json!({"name": "a", "annotations": {"a": "x".repeat(256 << 10)}})), ["metadata.annotations"]);
    assert_eq!(check(json!({})), ["metadata.name"]);
}
