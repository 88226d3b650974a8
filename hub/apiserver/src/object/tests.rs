use super::*;
use crate::catalog::built_in;

#[test]
fn a_written_back_read_stores_no_defaults() {
    let cases = [
        ("", "v1", "namespaces", json!({"metadata": {"name": "a"}})),
        ("", "v1", "namespaces", json!({"metadata": {"name": "a", "labels": {}}, "spec": {}})),
        ("apps", "v1", "deployments", json!({"metadata": {"name": "a"}, "spec": {"template": {}}})),
        (
            "",
            "v1",
            "services",
            json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}, {"port": 81, "protocol": "TCP"}]}}),
        ),
        ("", "v1", "secrets", json!({"metadata": {"name": "a"}})),
    ];
    for (group, version, plural, mut stored) in cases {
        let served = built_in(group, version, plural).expect(plural);
        stored["apiVersion"] = served.api_version.clone().into();
        let mut seen = present(served, stored.clone());
        assert_ne!(seen, stored, "{plural}");
        strip_defaults(served, &stored, &mut seen);
        assert_eq!(seen, stored, "{plural}");
    }
}

#[test]
fn a_default_that_was_written_stays() {
    let served = built_in("", "v1", "secrets").expect("secrets");
    let stored = json!({"apiVersion": "v1", "metadata": {"name": "a"}, "type": "Opaque"});
    let mut seen = present(served, stored.clone());
    strip_defaults(served, &stored, &mut seen);
    assert_eq!(seen, stored);
}

#[test]
fn what_is_stored_and_no_object_is_refused() {
    for stored in ["[]", "42", "null", "\"a\"", "{}", r#"{"metadata": null}"#, r#"{"metadata": [1]}"#, "{"] {
        assert!(read_at(stored.as_bytes(), Revision(7)).is_err(), "{stored}");
    }
    let read = read_at(br#"{"metadata": {}}"#, Revision(7)).ok();
    assert_eq!(read, Some(json!({"metadata": {"resourceVersion": "7"}})));
}
