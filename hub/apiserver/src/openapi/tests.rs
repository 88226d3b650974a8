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

/// Read by the numbers of `OpenAPIv2.proto`, down one path: the last value of each field, as text or as a number.
fn read(bytes: &[u8], path: &[u32]) -> Vec<Vec<u8>> {
    let Some((wanted, rest)) = path.split_first() else { return vec![bytes.to_vec()] };
    let varint = |at: &mut usize| {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = bytes[*at];
            *at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    };
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        let tag = varint(&mut at);
        let begin = at;
        let value = match tag & 7 {
            0 => varint(&mut at).to_string().into_bytes(),
            1 => {
                at += 8;
                bytes[begin..at].to_vec()
            }
            _ => {
                let length = usize::try_from(varint(&mut at)).unwrap();
                at += length;
                bytes[at - length..at].to_vec()
            }
        };
        if tag >> 3 == u64::from(*wanted) {
            found.extend(read(&value, rest));
        }
    }
    found
}

/// That real clients read all of it is held where kubectl is at hand.
#[test]
fn protobuf_says_what_json_says() {
    let document = v2("v1.35.4", &apps());
    let bytes = protobuf::encode(&document);
    let texts = |path: &[u32]| -> Vec<String> {
        read(&bytes, path).into_iter().map(|text| String::from_utf8(text).unwrap()).collect()
    };
    assert_eq!(texts(&[1]), ["2.0"]);
    assert_eq!(texts(&[2, 2]), ["v1.35.4"]);
    let names = |field: &str| document[field].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(texts(&[8, 2, 1]), names("paths"));
    assert_eq!(texts(&[9, 1, 1]), names("definitions"));
    // All that refers to another schema from a property, from items and from the values of a map.
    let mut wanted = Vec::new();
    references(&document["definitions"], &mut wanted);
    let properties = [9, 1, 2, 25, 1, 2];
    let mut found: Vec<_> =
        [&[1][..], &[23, 1, 1], &[21, 1, 1]].iter().flat_map(|rest| texts(&[&properties[..], rest].concat())).collect();
    wanted.sort();
    found.sort();
    assert_eq!(found, wanted);
    // What strategic merge needs stands in an extension, as YAML.
    let extensions = [&properties[..], &[31]].concat();
    let (keys, values) = (texts(&[&extensions[..], &[1]].concat()), texts(&[&extensions[..], &[2, 2]].concat()));
    let merge_keys = keys.iter().zip(&values).filter(|(key, _)| *key == "x-kubernetes-patch-merge-key");
    assert!(merge_keys.clone().count() > 10);
    assert!(merge_keys.into_iter().any(|(_, value)| value == "\"containerPort\""));
    // A PATCH takes `fieldValidation` in its query.
    let parameters = texts(&[8, 2, 2, 8, 8, 1, 2, 3, 4]);
    assert!(parameters.contains(&"fieldValidation".to_owned()), "{parameters:?}");
}

#[test]
fn protobuf_holds_every_keyword_of_a_custom_resource() {
    let schema = json!({"type": "object", "properties": {"size": {
        "type": "integer", "default": -3, "minimum": 1.5, "maxLength": 300, "exclusiveMinimum": true, "enum": [1, null],
        "additionalProperties": false, "x-kubernetes-int-or-string": true,
    }}});
    let document = json!({"definitions": {"com.example.v1.Widget": schema}});
    let bytes = protobuf::encode(&document);
    let at = |path: &[u32]| read(&bytes, &[&[9, 1, 2, 25, 1, 2][..], path].concat());
    assert_eq!(at(&[22, 1]), [b"integer"]);
    assert_eq!(at(&[5, 2]), [b"-3"]);
    assert_eq!(at(&[9]), [1.5_f64.to_le_bytes()]);
    assert_eq!(at(&[11]), [b"300"]);
    assert_eq!(at(&[10]), [b"1"]);
    assert_eq!(at(&[20, 2]), [&b"1"[..], b"null"]);
    assert_eq!(at(&[21, 2]), [b"0"]);
    assert_eq!(at(&[31, 1]), [b"x-kubernetes-int-or-string"]);
}
