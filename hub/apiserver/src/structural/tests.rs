use serde_json::{Value, json};

use super::*;
use crate::schema::validate::validate;

fn compiled(spec: &Value) -> CustomType {
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    CustomType::compile(Some(&schema), "schema").unwrap()
}

fn check(spec: &Value, value: &Value) -> Vec<String> {
    let ty = compiled(spec);
    let errors = validate(ty.root(), &json!({"spec": value}));
    errors.into_iter().map(|error| format!("{}: {}", error.path, error.kind.reason())).collect()
}

fn refused(schema: &Value) -> Vec<String> {
    let errors = CustomType::compile(Some(schema), "schema").unwrap_err();
    errors.into_iter().map(|error| format!("{}: {}", error.path, error.kind.reason())).collect()
}

#[test]
fn undeclared_fields_are_pruned() {
    let ty = compiled(&json!({
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "object", "properties": {}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"k": {"type": "string"}}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}}},
        },
    }));
    let mut object = json!({
        "apiVersion": "e/v1", "kind": "W", "metadata": {"name": "w", "odd": 1}, "stray": 1,
        "spec": {
            "a": 1, "b": 2,
            "free": {"x": {"y": 1}, "known": {"z": 1}},
            "map": {"one": {"k": "", "x": 1}},
            "list": [{"k": "", "x": 1}],
        },
    });
    let pruned = prune(ty.root(), &mut object);
    assert_eq!(pruned, ["stray", "metadata.odd", "spec.b", "spec.free.known.z", "spec.list[0].x", "spec.map.one.x"]);
    assert_eq!(object["spec"]["free"], json!({"x": {"y": 1}, "known": {}}));
}

#[test]
fn defaults_fill_what_is_absent_and_nest() {
    let ty = compiled(&json!({
        "type": "object",
        "default": {},
        "properties": {
            "n": {"type": "integer", "default": 3},
            "s": {"type": "string", "nullable": true, "default": "x"},
        },
    }));
    let filled = |mut object: Value| {
        apply_defaults(ty.root(), &mut object);
        object
    };
    assert_eq!(filled(json!({})), json!({"spec": {"n": 3, "s": "x"}}));
    assert_eq!(filled(json!({"spec": {"n": null, "s": null}})), json!({"spec": {"n": 3, "s": null}}));
}

#[test]
fn values_are_checked() {
    let spec = json!({
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 3},
            "size": {"type": "integer", "minimum": 1, "maximum": 5, "exclusiveMaximum": true},
            "mode": {"type": "string", "enum": ["A", "B"]},
            "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "when": {"type": "string", "format": "date-time"},
            "keys": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "pair": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                     "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        },
    });
    let fine = json!({"name": "abc", "size": 4, "mode": "A", "port": "http", "when": "2026-01-02T03:04:05Z",
                      "keys": ["a"], "pair": {"a": ""}});
    assert_eq!(check(&spec, &fine), Vec::<String>::new());
    let wrong =
        json!({"size": 5, "mode": "C", "port": true, "when": "noon", "keys": ["a", "a"], "pair": {"a": "", "b": ""}});
    assert_eq!(
        check(&spec, &wrong),
        [
            "spec.name: FieldValueRequired",
            "spec.keys[1]: FieldValueDuplicate",
            "spec.mode: FieldValueNotSupported",
            "spec.pair: FieldValueInvalid",
            "spec.port: FieldValueTypeInvalid",
            "spec.size: FieldValueInvalid",
            "spec.when: FieldValueInvalid",
        ]
    );
    assert_eq!(check(&spec, &json!({"name": "ABCD"})), ["spec.name: FieldValueInvalid"; 2]);
    assert_eq!(check(&spec, &json!({"name": null})), ["spec.name: FieldValueTypeInvalid"]);
}

#[test]
fn a_factor_that_is_not_positive_refuses_every_number() {
    for factor in [json!(-1), json!(0), json!(-0.5)] {
        let spec = json!({"type": "integer", "multipleOf": factor});
        for number in [json!(i64::MIN), json!(0), json!(u64::MAX)] {
            assert_eq!(check(&spec, &number), ["spec: FieldValueInvalid"], "{number} by {factor}");
        }
    }
    assert_eq!(check(&json!({"type": "integer", "multipleOf": 2}), &json!(i64::MIN)), Vec::<String>::new());
}

#[test]
fn negation_holds() {
    let spec = json!({"type": "string", "not": {"enum": ["bad"]}});
    assert_eq!(check(&spec, &json!("bad")), ["spec: FieldValueInvalid"]);
    assert_eq!(check(&spec, &json!("good")), Vec::<String>::new());
}

#[test]
fn schemas_that_are_not_structural_are_refused() {
    assert_eq!(refused(&json!({"type": "string"})), ["schema.type: FieldValueInvalid"]);
    assert_eq!(
        refused(&json!({"type": "object", "properties": {"spec": {}}})),
        ["schema.properties[spec].type: FieldValueRequired"]
    );
    assert_eq!(
        refused(&json!({"type": "object", "properties": {"l": {"type": "array"}}})),
        ["schema.properties[l].items: FieldValueRequired"]
    );
    assert_eq!(
        refused(&json!({"type": "object", "$ref": "#/x", "additionalProperties": false})),
        ["schema.$ref: FieldValueForbidden", "schema.additionalProperties: FieldValueForbidden"]
    );
    assert_eq!(
        refused(&json!({"type": "object", "properties": {"s": {"type": "string", "pattern": "("}}})),
        ["schema.properties[s].pattern: FieldValueInvalid"]
    );
    assert_eq!(
        refused(&json!({"type": "object", "properties": {"s": {"type": "string", "default": 1}}})),
        ["schema.properties[s].default: FieldValueTypeInvalid"]
    );
}

#[test]
fn a_schema_that_is_too_deep_is_refused() {
    let deep =
        (0..120).fold(json!({"type": "string"}), |inner, _| json!({"type": "object", "properties": {"a": inner}}));
    assert_eq!(refused(&deep).len(), 1);
}

#[test]
fn rules_in_cel_are_taken_with_a_warning() {
    let ty = compiled(&json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.a > 1"}]}));
    assert_eq!(
        ty.warnings(),
        ["schema.properties[spec].x-kubernetes-validations: rules are not evaluated by this server"]
    );
}

#[test]
fn without_a_schema_everything_is_kept() {
    let ty = CustomType::compile(None, "schema").unwrap();
    let mut object = json!({"apiVersion": "e/v1", "kind": "W", "metadata": {"name": "w"}, "anything": {"goes": [1]}});
    assert_eq!(prune(ty.root(), &mut object), Vec::<String>::new());
    assert_eq!(validate(ty.root(), &object), Vec::new());
}
