use serde_json::json;

use super::*;

fn secret(rest: &Value) -> Value {
    let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
    for (field, value) in rest.as_object().unwrap() {
        secret[field] = value.clone();
    }
    secret
}

fn entry(operation: &str, time: &str, fields: &Value) -> Value {
    json!({"manager": time, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields,
        "time": format!("2026-01-02T03:04:{time}Z")})
}

#[test]
fn strings_become_data_and_win() {
    for (written, becomes) in [
        (json!({"stringData": {"b": "two", "c": "é"}, "data": {"a": "MQ==", "b": "Mg=="}}), {
            json!({"data": {"a": "MQ==", "b": "dHdv", "c": "w6k="}})
        }),
        (json!({"stringData": {"a": "1"}}), json!({"data": {"a": "MQ=="}})),
        (json!({"stringData": {"a": "1"}, "data": null}), json!({"data": {"a": "MQ=="}})),
        (json!({"stringData": {}}), json!({})),
        (json!({"stringData": null, "data": {"a": "MQ=="}}), json!({"data": {"a": "MQ=="}})),
    ] {
        let mut object = secret(&written);
        for _ in 0..2 {
            encode(&mut object);
            assert_eq!(object, secret(&becomes), "{written}");
        }
    }
}

#[test]
fn other_kinds_keep_a_field_of_that_name() {
    for (version, kind) in [("example.com/v1", "Secret"), ("v1", "ConfigMap")] {
        let object = json!({"apiVersion": version, "kind": kind, "metadata": {}, "stringData": {"a": "1"}});
        let (mut written, mut stored) = (object.clone(), object.clone());
        encode(&mut written);
        encode_stored(&mut stored);
        assert_eq!((&written, &stored), (&object, &object));
    }
}

#[test]
fn of_what_is_stored_twice_the_later_counts() {
    let stored = |strings_at: Option<&str>, data_at: Option<&str>| {
        let entries: Vec<Value> = [(strings_at, "f:stringData"), (data_at, "f:data")]
            .into_iter()
            .filter_map(|(at, field)| Some(entry("Update", at?, &json!({field: {"f:a": {}}}))))
            .collect();
        let metadata = json!({"name": "a", "managedFields": entries});
        let mut object =
            secret(&json!({"metadata": metadata, "stringData": {"a": "strings", "b": "1"}, "data": {"a": "ZGF0YQ=="}}));
        encode_stored(&mut object);
        assert_eq!((object.get("stringData"), &object["data"]["b"]), (None, &json!("MQ==")));
        object["data"]["a"].clone()
    };
    let (strings, data) = (json!("c3RyaW5ncw=="), json!("ZGF0YQ=="));
    assert_eq!(stored(Some("06"), Some("05")), strings);
    assert_eq!(stored(Some("05"), None), strings);
    assert_eq!(stored(Some("05"), Some("06")), data);
    // Targets were sent the strings.
    assert_eq!(stored(Some("05"), Some("05")), strings);
    assert_eq!(stored(None, Some("05")), strings);
    assert_eq!(stored(None, None), strings);
}

/// One request had both, or one manager wrote first the one and then the other.
#[test]
fn of_what_one_manager_stored_twice_the_strings_count() {
    let fields = json!({"f:data": {"f:a": {}}, "f:stringData": {"f:a": {}}});
    let metadata = json!({"name": "a", "managedFields": [entry("Update", "05", &fields)]});
    let mut object = secret(&json!({"metadata": metadata, "stringData": {"a": "strings"}, "data": {"a": "ZGF0YQ=="}}));
    encode_stored(&mut object);
    assert_eq!(object["data"], json!({"a": "c3RyaW5ncw=="}));
}

#[test]
fn who_wrote_strings_owns_the_data_that_they_became() {
    let mut object = secret(&json!({
        "metadata": {"name": "a", "managedFields": [
            entry("Apply", "01", &json!({"f:stringData": {"f:a": {}}})),
            entry("Update", "02", &json!({"f:data": {"f:a": {}}})),
            entry("Update", "03", &json!({"f:data": {".": {}, "f:b": {}, "f:c": {}}, "f:type": {}})),
            entry("Update", "04", &json!({"f:stringData": {".": {}, "f:a": {}, "f:c": {}}})),
        ]},
        "stringData": {"a": "1", "c": "3"}, "data": {"a": "", "b": "", "c": ""},
    }));
    encode_stored(&mut object);
    assert_eq!(object["data"], json!({"a": "MQ==", "b": "", "c": "Mw=="}));
    assert_eq!(
        object["metadata"]["managedFields"],
        json!([
            entry("Apply", "01", &json!({"f:stringData": {"f:a": {}}})),
            entry("Update", "03", &json!({"f:data": {".": {}, "f:b": {}}, "f:type": {}})),
            entry("Update", "04", &json!({"f:data": {".": {}, "f:a": {}, "f:c": {}}})),
        ])
    );
}
