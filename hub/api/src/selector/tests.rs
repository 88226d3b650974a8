use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use proptest::collection::{btree_map, vec};
use proptest::prelude::{Strategy, prop_assert_eq, proptest};
use proptest::sample::select;
use serde_json::json;

use super::*;

fn parse(selector: serde_json::Value) -> Result<Selector, SelectorError> {
    Selector::try_from(&serde_json::from_value::<LabelSelector>(selector).unwrap())
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[test]
fn an_empty_selector_selects_everything() {
    let selector = parse(json!({})).unwrap();
    assert_eq!(selector.requirements().len(), 0);
    assert!(selector.matches(&labels(&[])) && selector.matches(&labels(&[("a", "b")])));
}

#[test]
fn labels_and_expressions_must_all_hold() {
    let selector = parse(json!({
        "matchLabels": {"tier": "shop"},
        "matchExpressions": [{"key": "region", "operator": "In", "values": ["eu", "uk"]}],
    }))
    .unwrap();
    assert!(selector.matches(&labels(&[("tier", "shop"), ("region", "uk")])));
    assert!(!selector.matches(&labels(&[("tier", "shop"), ("region", "us")])));
    assert!(!selector.matches(&labels(&[("region", "uk")])));
}

#[test]
fn an_absent_label_is_not_in_anything() {
    let selector = parse(json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]})).unwrap();
    assert!(selector.matches(&labels(&[])));
    assert!(selector.matches(&labels(&[("a", "c")])));
    assert!(!selector.matches(&labels(&[("a", "b")])));
}

#[test]
fn what_cannot_be_meant_is_refused_with_a_reason() {
    let message = |key: &str, operator: &str, values: &[&str]| {
        parse(json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        message("a", "in", &["b"]),
        "\"in\" is no operator of a label selector; write In, NotIn, Exists or DoesNotExist"
    );
    assert_eq!(message("a", "In", &[]), "the operator In on \"a\" needs at least one value");
    assert_eq!(message("a", "Exists", &["b"]), "the operator Exists on \"a\" takes no values");
    assert_eq!(message("a b", "Exists", &[]), "\"a b\" cannot be the key of a label");
    assert_eq!(message("a", "In", &["b c"]), "\"b c\" cannot be the value of the label \"a\"");
}

#[test]
fn keys_and_values_are_held_to_the_rules_of_labels() {
    let key = |key: &str| parse(json!({"matchLabels": {key: ""}})).is_ok();
    let long = "x".repeat(63);
    assert!(key("app.kubernetes.io/name") && key("A_b.c-d") && key(&long) && key(&format!("a.b/{long}")));
    let too_long = "x".repeat(64);
    for bad in ["", "/a", "a/", "a/b/c", "-a", "a-", "A.b/c", "a..b/c", "-a/b", too_long.as_str()] {
        assert!(!key(bad), "{bad:?}");
    }
}

/// The rules as the Kubernetes documentation states them, on the unchecked type.
fn documented(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let holds = |expression: &LabelSelectorRequirement| {
        let value = labels.get(&expression.key);
        let listed = value.is_some_and(|value| expression.values.iter().flatten().any(|other| other == value));
        match expression.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            other => panic!("{other} is not generated"),
        }
    };
    equal && selector.match_expressions.iter().flatten().all(holds)
}

fn word() -> impl Strategy<Value = String> {
    select(vec!["a", "b", "c"]).prop_map(str::to_owned)
}

fn expression() -> impl Strategy<Value = LabelSelectorRequirement> {
    let with = (select(vec!["In", "NotIn"]), vec(word(), 1..3));
    let without = select(vec!["Exists", "DoesNotExist"]);
    let parts = proptest::prop_oneof![
        with.prop_map(|(operator, values)| (operator, Some(values))),
        without.prop_map(|operator| (operator, None)),
    ];
    (word(), parts).prop_map(|(key, (operator, values))| LabelSelectorRequirement {
        key,
        operator: operator.to_owned(),
        values,
    })
}

fn any_selector() -> impl Strategy<Value = LabelSelector> {
    (btree_map(word(), word(), 0..3), vec(expression(), 0..3)).prop_map(|(labels, expressions)| LabelSelector {
        match_labels: Some(labels),
        match_expressions: Some(expressions),
    })
}

proptest! {
    #[test]
    fn matches_as_documented(selector in any_selector(), labels in btree_map(word(), word(), 0..4)) {
        prop_assert_eq!(Selector::try_from(&selector).unwrap().matches(&labels), documented(&selector, &labels));
    }

    #[test]
    fn order_and_repetition_do_not_matter(selector in any_selector()) {
        let mut other = selector.clone();
        if let Some(expressions) = &mut other.match_expressions {
            let again = expressions.clone();
            expressions.reverse();
            expressions.extend(again);
        }
        prop_assert_eq!(Selector::try_from(&selector), Selector::try_from(&other));
    }

    #[test]
    fn hostile_input_is_refused_or_read_and_never_panics(key in ".{0,80}", operator in ".{0,12}", value in ".{0,80}") {
        let expression = LabelSelectorRequirement { key, operator, values: Some(vec![value]) };
        let selector = LabelSelector { match_labels: None, match_expressions: Some(vec![expression]) };
        if let Ok(parsed) = Selector::try_from(&selector) {
            prop_assert_eq!(parsed.requirements().len(), 1);
        }
    }
}
