use serde_json::{Value, json};

use super::*;
use crate::schema::validate::validate;

fn compiled(spec: &Value) -> CustomType {
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    CustomType::compile(Some(&schema), &FieldPath::Text("schema"), &mut Compilation::default()).unwrap()
}

fn check(spec: &Value, value: &Value) -> Vec<String> {
    let ty = compiled(spec);
    let errors = validate(ty.root(), &json!({"spec": value}));
    told(&errors)
}

fn told(errors: &FieldErrors) -> Vec<String> {
    errors.iter().map(|error| format!("{}: {}", error.path, error.kind.reason())).collect()
}

fn refused(schema: &Value) -> Vec<String> {
    let mut definition = Compilation::default();
    assert!(CustomType::compile(Some(schema), &FieldPath::Text("schema"), &mut definition).is_none());
    told(&definition.errors)
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
fn nulls_that_no_schema_allows_are_pruned_but_from_lists() {
    let text = json!({"type": "string"});
    let ty = compiled(&json!({
        "type": "object",
        "properties": {
            "plain": text, "object": {"type": "object", "properties": {"plain": text}},
            "nullable": {"type": "string", "nullable": true},
            "defaulted": {"type": "string", "default": "x"},
            "typeless": {"x-kubernetes-preserve-unknown-fields": true},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "map": {"type": "object", "additionalProperties": text},
            "any": {"type": "object", "additionalProperties": true},
            "list": {"type": "array", "items": text},
            "objects": {"type": "array", "items": {"type": "object", "properties": {"plain": text}}},
            "inner": {"type": "object", "x-kubernetes-embedded-resource": true},
        },
    }));
    let mut object = json!({"metadata": null, "spec": {
        "plain": null, "object": {"plain": null}, "nullable": null, "defaulted": null, "typeless": null, "free": {"a": null},
        "map": {"a": null, "b": "c"}, "any": {"a": null}, "list": [null], "objects": [{"plain": null}, null],
        "inner": {"metadata": null, "kind": null},
    }});
    prune_nulls(ty.root(), &mut object);
    assert_eq!(
        object,
        json!({"metadata": null, "spec": {
            "object": {}, "nullable": null, "defaulted": null, "free": {"a": null},
            "map": {"b": "c"}, "any": {"a": null}, "list": [null], "objects": [{}, null],
            "inner": {"metadata": null},
        }})
    );
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
        apply_defaults(ty.root(), &mut object).unwrap();
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
    let ty = CustomType::compile(None, &FieldPath::Text("schema"), &mut Compilation::default()).unwrap();
    let mut object = json!({"apiVersion": "e/v1", "kind": "W", "metadata": {"name": "w"}, "anything": {"goes": [1]}});
    assert_eq!(prune(ty.root(), &mut object), Vec::<String>::new());
    assert!(validate(ty.root(), &object).is_empty());
}

#[test]
fn of_many_errors_the_first_are_told_and_the_others_counted() {
    let branches = vec![json!({"maxLength": 1}); 3_000];
    let ty = compiled(&json!({"type": "string", "allOf": branches}));
    let errors = validate(ty.root(), &json!({"spec": "x".repeat(100_000)}));
    assert_eq!((errors.iter().count(), errors.more()), (100, 2_900));
    let longest = errors.iter().map(|error| error.to_string().len()).max();
    assert!(longest < Some(5_000), "{longest:?}");
    assert!(errors.to_string().ends_with(", and 2900 more"));
}

#[test]
fn of_branches_that_are_tried_no_errors_are_made() {
    let wrong: Vec<Value> = (0..3_000).map(|at| json!({"enum": [at]})).collect();
    assert_eq!(check(&json!({"type": "string", "anyOf": wrong}), &json!("x")), ["spec: FieldValueInvalid"]);
    assert_eq!(check(&json!({"type": "string", "not": {"allOf": wrong}}), &json!("x")), Vec::<String>::new());
}

#[test]
fn a_validation_that_takes_too_long_is_given_up() {
    let ty = compiled(&json!({"type": "array", "items": {"type": "string", "pattern": "^(a|b)+$"}}));
    let object = json!({"spec": vec!["ab".repeat(50); 100]});
    let checked = |steps: u64| {
        let mut errors = FieldErrors::with_steps(steps);
        validate_at(ty.root(), &object, &FieldPath::ROOT, &mut errors);
        errors.finished()
    };
    assert!(checked(1_000_000).is_empty());
    let given_up = checked(100_000);
    assert_eq!(told(&given_up), [": FieldValueInvalid"]);
    assert!(given_up.to_string().contains("validation was given up after"), "{given_up}");
}

#[test]
fn the_patterns_of_a_definition_are_bounded_in_sum_and_each_counts_once() {
    let patterns = |pattern: &dyn Fn(usize) -> String| {
        let fields = (0..500).map(|at| (format!("f{at}"), json!({"type": "string", "pattern": pattern(at)})));
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields.collect::<serde_json::Map<_, _>>()}}})
    };
    let alike = patterns(&|_| "\\w{20}".to_owned());
    assert!(CustomType::compile(Some(&alike), &FieldPath::Text("schema"), &mut Compilation::default()).is_some());
    let errors = refused(&patterns(&|at| format!("\\w{{20}}{at}")));
    let [error] = errors.as_slice() else { panic!("{errors:?}") };
    assert!(error.ends_with(".pattern: FieldValueInvalid"), "{error}");
}

#[test]
fn patterns_that_are_too_large_are_not_all_tried() {
    let fields =
        (0..20_000).map(|at| (format!("f{at}"), json!({"type": "string", "pattern": format!("\\w{{200}}{at}")})));
    let fields = fields.collect::<serde_json::Map<_, _>>();
    let errors = refused(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}));
    assert!(errors.len() < 50, "{}", errors.len());
}

#[test]
fn many_small_objects_of_many_fields_take_no_product_of_both() {
    let mut fields: serde_json::Map<_, _> =
        (0..20_000).map(|at| (format!("f{at}"), json!({"type": "string"}))).collect();
    fields.insert("d".to_owned(), json!({"type": "string", "default": "x"}));
    let ty = compiled(&json!({"type": "array", "items": {"type": "object", "properties": fields}}));
    let mut object = json!({"spec": vec![json!({}); 50_000]});
    assert_eq!(apply_defaults(ty.root(), &mut object), Ok(()));
    assert_eq!(object["spec"][49_999], json!({"d": "x"}));
}

#[test]
fn versions_of_a_definition_share_what_their_patterns_may_take() {
    let schema = |version: usize| {
        // Of letters alone, which take the same room however much of Unicode is compiled in: the least that is counted.
        let fields =
            (0..150).map(|at| (format!("f{at}"), json!({"type": "string", "pattern": format!("of{version}at{at}")})));
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields.collect::<serde_json::Map<_, _>>()}}})
    };
    let mut definition = Compilation::default();
    let mut compile =
        |version| CustomType::compile(Some(&schema(version)), &FieldPath::Text("schema"), &mut definition);
    assert!(compile(1).is_some() && compile(1).is_some());
    assert!(compile(2).is_none());
}

#[test]
fn a_definition_of_very_many_schemas_is_refused() {
    let spec = json!({"type": "string", "allOf": vec![json!({}); 100_001]});
    let errors = refused(&json!({"type": "object", "properties": {"spec": spec}}));
    assert_eq!(errors, ["schema.properties[spec].allOf[99998]: FieldValueForbidden"]);
}

#[test]
fn defaults_must_satisfy_their_schema() {
    let object =
        json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string", "pattern": "^x$"}}});
    let with = |default: Value| {
        let mut spec = object.clone();
        spec["default"] = default;
        spec
    };
    let whole = |spec: &Value| json!({"type": "object", "properties": {"spec": spec}});
    for (default, wrong) in [
        (json!([]), "default: FieldValueTypeInvalid"),
        (json!({}), "default.a: FieldValueRequired"),
        (json!({"a": 1}), "default.a: FieldValueTypeInvalid"),
        (json!({"a": "y"}), "default.a: FieldValueInvalid"),
        (json!({"a": "x", "b": 1}), "default: FieldValueInvalid"),
    ] {
        assert_eq!(refused(&whole(&with(default))), [format!("schema.properties[spec].{wrong}")]);
    }
    compiled(&with(json!({"a": "x"})));
    let items = json!({"type": "array", "items": with(json!({}))});
    assert_eq!(refused(&whole(&items)), ["schema.properties[spec].items.default.a: FieldValueRequired"]);
    let values = json!({"type": "object", "additionalProperties": with(json!({}))});
    assert_eq!(
        refused(&whole(&values)),
        ["schema.properties[spec].additionalProperties.default.a: FieldValueRequired"]
    );
    // What preserves unknown fields has none.
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "default": {"b": 1}});
    compiled(&open);
}

#[test]
fn defaults_that_make_an_object_too_large_are_refused() {
    let item = json!({"type": "object", "properties": {"a": {"type": "string", "default": "x".repeat(1_000)}}});
    let ty = compiled(&json!({"type": "array", "items": item}));
    let with = |items: usize| json!({"spec": vec![json!({}); items]});
    assert_eq!(apply_defaults(ty.root(), &mut with(1_000)), Ok(()));
    let mut many = with(100_000);
    assert_eq!(apply_defaults(ty.root(), &mut many), Err(TooManyDefaults));
    assert!(many.to_string().len() < 2 << 20);
}
