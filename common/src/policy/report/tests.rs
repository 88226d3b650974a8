use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Paths that lead somewhere, and some that lead nowhere.
const PATHS: &[&str] = &[
    "/status/replicas",
    "/status/a~1b",
    "/status/conditions/1/status",
    "$.status.conditions[?(@.type=='Ready')].status",
    "$.status.conditions[?(@.type=='Ready')]",
    "$.status.conditions[*].type",
    "$.status.list[1]",
    "$.status.list[*].ip",
    "/status/none/there",
];

pub(crate) fn class() -> impl Strategy<Value = ReportClass> {
    let paths = prop::collection::btree_set(prop::sample::select(PATHS), 1..4);
    prop_oneof![
        Just(ReportClass::Status),
        Just(ReportClass::Health),
        Just(ReportClass::Nothing),
        paths.prop_map(|paths| ReportClass::Paths(StatusPaths::new(paths).expect("they are paths"))),
    ]
}

fn paths(paths: &[&str]) -> ReportClass {
    ReportClass::Paths(StatusPaths::new(paths.iter().copied()).expect("they are paths"))
}

fn status() -> impl Strategy<Value = Value> {
    let condition = ("[A-Z]|Ready", "True|False", any::<bool>())
        .prop_map(|(kind, status, null)| if null { Value::Null } else { json!({"type": kind, "status": status}) });
    let item = prop_oneof![Just(json!(null)), Just(json!({"ip": "10.0.0.1", "port": 1})), Just(json!([1]))];
    (0..3_u8, prop::collection::vec(condition, 0..4), prop::collection::vec(item, 0..4)).prop_map(
        |(replicas, conditions, list)| {
            json!({"replicas": replicas, "a/b": {"c": 1}, "conditions": conditions, "list": list, "other": [1, 2]})
        },
    )
}

proptest! {
    /// Where several ask for one object, each finds what it asked for in the report.
    #[test]
    fn along_the_asked_paths_the_cut_is_like_the_whole(asked in prop::collection::btree_set(prop::sample::select(PATHS), 1..4), status in status()) {
        let cut = json!({"status": StatusPaths::new(asked.iter().copied()).expect("they are paths").cut(status.clone())});
        let whole = json!({"status": status});
        for path in asked {
            let path = FieldPath::parse(path).expect("it is one");
            let values = |object: &Value| path.find(object).iter().map(|way| way.read(object).cloned()).collect::<Vec<_>>();
            prop_assert_eq!(values(&cut), values(&whole));
        }
    }
}

#[test]
fn only_the_asked_paths_of_a_status_are_left() {
    let status = json!({
        "replicas": 3, "readyReplicas": 2, "other": {"deep": [1, 2, 3]},
        "conditions": [
            {"type": "Progressing", "status": "True", "message": "m"},
            {"type": "Ready", "status": "False", "message": "m"},
            {"type": "Late", "status": "False"},
        ],
    });
    let cut = |asked: &[&str]| StatusPaths::new(asked.iter().copied()).expect("they are paths").cut(status.clone());
    assert_eq!(cut(&["/status/replicas", "/status/missing"]), json!({"replicas": 3}));
    assert_eq!(
        cut(&["$.status.conditions[?(@.type=='Ready')].status"]),
        json!({"conditions": [null, {"type": "Ready", "status": "False"}]})
    );
    assert_eq!(cut(&["/status/other", "/status/other/deep/0"]), json!({"other": {"deep": [1, 2, 3]}}));
    assert_eq!(cut(&["/status/missing"]), json!({}));
}

#[test]
fn a_class_that_is_not_known_asks_for_the_whole_status() {
    let read = |text: &str| serde_json::from_str::<ReportClass>(text).expect("it is a class");
    assert_eq!(read(r#"{"class": "Digest", "of": 3}"#), ReportClass::Status);
    assert_eq!(read("{}"), ReportClass::Status);
    assert_eq!(read(r#"{"class": "Paths", "paths": ["/status/a", "jq: .status.b"]}"#), ReportClass::Status);
    assert_eq!(read(r#"{"class": "Paths", "paths": []}"#), ReportClass::Status);
    assert_eq!(read(r#"{"class": "Health", "later": 1}"#), ReportClass::Health);
    assert_eq!(read(r#"{"class": "Paths", "paths": ["/status/a"]}"#), paths(&["/status/a"]));
}

#[test]
fn the_most_that_is_asked_for_is_sent() {
    let (a, b) = (paths(&["/status/a"]), paths(&["/status/b"]));
    assert_eq!(ReportClass::Health.merge(&ReportClass::Nothing), ReportClass::Health);
    assert_eq!(a.merge(&ReportClass::Health), a);
    assert_eq!(a.merge(&b), paths(&["/status/a", "/status/b"]));
    assert_eq!(a.merge(&ReportClass::Status), ReportClass::Status);
    let many: Vec<String> = (0..REPORT_PATHS_MAX).map(|n| format!("/status/{n}")).collect();
    let many = ReportClass::Paths(StatusPaths::new(many.iter().map(String::as_str)).expect("they are paths"));
    assert_eq!(many.merge(&a), ReportClass::Status);
}

#[test]
fn a_path_is_one_below_the_status() {
    for (path, refused) in [
        ("/status/replicas", false),
        ("$.status['a b'][0]", false),
        ("/status", true),
        ("$.status", true),
        ("/spec/replicas", true),
        ("$[*].status", true),
        ("status.replicas", true),
    ] {
        assert_eq!(StatusPaths::new([path]).is_err(), refused, "{path}");
    }
    let long = format!("/status/{}", "x".repeat(REPORT_PATH_BYTES_MAX));
    assert_eq!(StatusPaths::new([&*long]), Err(StatusPathError::Long(long.len())));
}
