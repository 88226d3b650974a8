use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn pod() -> Value {
    json!({
        "metadata": {"annotations": {"a/b": "1", "c~d": "2", "0": "3"}},
        "spec": {
            "replicas": 2,
            "containers": [
                {"name": "web", "image": "w", "ports": [{"containerPort": 80, "primary": true}]},
                {"name": "side", "image": "s"},
            ],
        },
    })
}

fn found(path: &str) -> Vec<String> {
    let elements = FieldPath::parse(path).unwrap_or_else(|error| panic!("{path}: {error}")).find(&pod());
    elements.iter().map(ToString::to_string).collect()
}

#[test]
fn pointers_and_json_paths_name_the_same_fields() {
    for (pointer, json_path, expected) in [
        ("/spec/replicas", "$.spec.replicas", vec![".spec.replicas"]),
        ("/metadata/annotations/a~1b", "$.metadata.annotations['a/b']", vec![".metadata.annotations.a/b"]),
        ("/metadata/annotations/c~0d", r#"$["metadata"].annotations["c~d"]"#, vec![".metadata.annotations.c~d"]),
        ("/metadata/annotations/0", "$.metadata.annotations['0']", vec![".metadata.annotations.0"]),
        ("/spec/containers/1/image", "$.spec.containers[1].image", vec![".spec.containers[1].image"]),
        ("/spec/containers/9/image", "$.spec.containers[9].image", vec![]),
        ("/spec/nothing/at/all", "$.spec.nothing.at.all", vec![]),
    ] {
        assert_eq!(found(pointer), expected, "{pointer}");
        assert_eq!(found(json_path), expected, "{json_path}");
    }
}

#[test]
fn json_paths_name_several_fields_and_those_that_meet_a_filter() {
    for (path, expected) in [
        ("$.spec.containers[*].image", vec![".spec.containers[0].image", ".spec.containers[1].image"]),
        ("$.spec.*", vec![".spec.containers", ".spec.replicas"]),
        ("$.spec.containers[?(@.name=='side')].image", vec![".spec.containers[1].image"]),
        (r#"$.spec.containers[?@.name == "web"].image"#, vec![".spec.containers[0].image"]),
        ("$.spec.containers[*].ports[?(@.containerPort==80)]", vec![".spec.containers[0].ports[0]"]),
        ("$.spec.containers[*].ports[?(@['primary']==true)].primary", vec![".spec.containers[0].ports[0].primary"]),
        ("$.spec.containers[?(@.name=='db')].image", vec![]),
    ] {
        assert_eq!(found(path), expected, "{path}");
    }
}

#[test]
fn a_malformed_path_error_names_the_byte_and_what_was_expected() {
    for (path, message) in [
        ("spec.replicas", "begins with neither"),
        ("", "begins with neither"),
        ("$", "the whole object"),
        ("/spec/~2", "~ at byte 6"),
        ("$.spec..image", "byte 7: expected a name"),
        ("$.spec[", "byte 7: expected a quoted name"),
        ("$.spec['a", "byte 8: expected the closing quote"),
        ("$.spec[?(@.a>1)]", "byte 12: expected =="),
        ("$.spec[?(@.a==[1])]", "expected a quoted text"),
        ("$.spec[?(@.a==1]", "expected )"),
        ("$spec", "expected .name"),
    ] {
        let error = FieldPath::parse(path).expect_err(path).to_string();
        assert!(error.contains(message), "{path}: {error}");
    }
}

#[test]
fn a_field_that_is_removed_leaves_no_empty_map() {
    let mut object = json!({"spec": {"a": {"b": 1}, "list": [{"x": 1}, {"x": 2, "y": 3}]}});
    for path in ["/spec/a/b", "/spec/list/1/x", "/spec/list/7/x", "/nothing"] {
        for way in FieldPath::parse(path).expect("a path").find(&object.clone()) {
            way.remove(&mut object);
        }
    }
    assert_eq!(object, json!({"spec": {"list": [{"x": 1}, {"y": 3}]}}));
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic_and_every_path_found_exists(text in "[$/][a-z~01.\\[\\]?@='\"*() \\\\ü]{0,24}") {
        if let Ok(path) = FieldPath::parse(&text) {
            let pod = pod();
            for way in path.find(&pod) {
                let value = way.read(&pod).cloned();
                prop_assert!(value.is_some());
                let mut same = pod.clone();
                prop_assert!(way.put(&mut same, value.unwrap_or_default()));
                prop_assert_eq!(&same, &pod);
                way.remove(&mut same);
                prop_assert_ne!(&same, &pod);
            }
        }
    }
}
