use serde_json::json;

use super::*;

#[test]
fn label_requirements_match_as_in_kubernetes() {
    let object = json!({"metadata": {"labels": {"app": "web", "tier": "front", "n": "5", "empty": ""}}});
    let check = |text: &str, expected: bool| {
        let selector = LabelSelector::parse(text).expect(text);
        assert_eq!(selector.matches(&object), expected, "{text}");
    };
    check("", true);
    check("app=web", true);
    check("app==web,tier!=back", true);
    check("app=api", false);
    check("missing!=x", true);
    check("app in (web, api),tier notin (back)", true);
    check("app notin (web)", false);
    check("missing notin (web)", true);
    check("app", true);
    check("!app", false);
    check("!missing", true);
    check("n>4,n<6", true);
    check("n>5", false);
    check("empty=", true);
    check("example.com/a.b_c", false);
}

#[test]
fn malformed_label_selectors_are_refused() {
    for text in ["a in (b", "a)", "a=b,", "=b", "a in", "a b", "a=b c", "n>x", &format!("a={}", "x".repeat(64))] {
        assert!(LabelSelector::parse(text).is_err(), "{text}");
    }
}

#[test]
fn field_comparisons_match_text_and_escapes() {
    let object = json!({"metadata": {"name": "a,b"}, "spec": {"n": 3, "b": true}});
    let check = |text: &str, expected: bool| {
        let selector = FieldSelector::parse(text).expect(text);
        assert_eq!(selector.matches(&object), expected, "{text}");
    };
    check(r"metadata.name=a\,b", true);
    check("metadata.name!=a", true);
    check("spec.n=3,spec.b==true", true);
    check("spec.missing=", true);
    check("spec.missing=x", false);
    check("spec.hostNetwork=false", true);
    assert!(FieldSelector::parse("metadata.name").is_err());
}
