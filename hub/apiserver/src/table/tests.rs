use serde_json::json;

use super::*;

#[test]
fn durations_are_as_kubectl_prints_them() {
    let check = |seconds: i64, expected: &str| assert_eq!(duration(seconds), expected);
    check(-5, "<invalid>");
    check(0, "0s");
    check(119, "119s");
    check(120, "2m");
    check(125, "2m5s");
    check(3600, "60m");
    check(10_860, "3h1m");
    check(36_000, "10h");
    check(180_000, "2d2h");
    check(864_000, "10d");
    check(70_000_000, "2y80d");
    check(400_000_000, "12y");
}

#[test]
fn printer_columns_find_their_values() {
    let object = json!({"spec": {"n": 3, "list": [{"name": "a"}, {"name": "b"}], "x.y": "dot"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]}});
    let check =
        |path: &str, kind: &str, expected: Value| assert_eq!(path_cell(path, kind, &object), expected, "{path}");
    check(".spec.n", "integer", json!(3));
    check(".spec.list[1].name", "string", json!("b"));
    check(".spec.list[-1].name", "string", json!("b"));
    check(".spec.list[*].name", "string", json!("a,b"));
    check(r".spec.x\.y", "string", json!("dot"));
    check(".spec['x.y']", "string", json!("dot"));
    check(".status.conditions[?(@.type==\"Ready\")].status", "string", json!("True"));
    check(".status.conditions[?(@.type=='None')].status", "string", Value::Null);
    check(".missing", "string", Value::Null);
    check(".spec[", "string", Value::Null);
}

#[test]
fn every_row_has_a_cell_for_every_column() {
    for served in crate::catalog::Catalog::default().served() {
        let columns = columns(served).as_array().map(Vec::len);
        let row = row(served, json!({"metadata": {"name": "a"}}), Include::None);
        assert_eq!(row["cells"].as_array().map(Vec::len), columns, "{}", served.resource.plural);
    }
}

#[test]
fn a_cell_of_a_whole_object_is_cut() {
    let object = json!({"spec": {"text": "é".repeat(100_000), "list": vec!["é"; 100_000]}});
    for path in [".spec", ".spec.text", ".spec.list[*]"] {
        let cell = path_cell(path, "string", &object);
        assert!(cell.as_str().is_some_and(|text| text.len() < 5_000 && text.ends_with('…')), "{path}");
    }
}
