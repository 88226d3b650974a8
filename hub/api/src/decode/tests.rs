use expect_test::{Expect, expect};
use serde_json::json;

use super::*;
use crate::{EnrolmentToken, Placement, SyncTarget};

fn check<K: Resource<DynamicType = ()> + DeserializeOwned + std::fmt::Debug>(object: Value, expected: &Expect) {
    expected.assert_eq(&decode::<K>(object).unwrap_err().to_string());
}

fn placement(spec: &Value) -> Value {
    json!({"apiVersion": "tideline.dev/v1alpha1", "kind": "Placement", "metadata": {"name": "shop"}, "spec": spec})
}

#[test]
fn an_unknown_value_is_named_with_its_field_and_the_values_there_are() {
    check::<Placement>(
        placement(&json!({"objects": [{}, {"apply": {"mode": "Sometimes"}}]})),
        &expect![[
            r#"Placement "shop" cannot be read: spec.objects[1].apply.mode: unknown variant `Sometimes`, expected `Continuous` or `CreateOnly`"#
        ]],
    );
}

#[test]
fn a_wrong_type_is_named_with_its_field() {
    check::<Placement>(
        placement(&json!({"numberOfTargets": -1})),
        &expect![[
            r#"Placement "shop" cannot be read: spec.numberOfTargets: invalid value: integer `-1`, expected u32"#
        ]],
    );
}

#[test]
fn a_missing_field_is_named() {
    check::<EnrolmentToken>(
        json!({"metadata": {"name": "t"}, "spec": {"targetName": "store-1"}}),
        &expect![[r#"EnrolmentToken "t" cannot be read: spec: missing field `expires`"#]],
    );
}

#[test]
fn what_is_no_object_at_all_is_an_error() {
    assert!(decode::<SyncTarget>(json!([1, 2])).is_err());
    assert!(decode::<SyncTarget>(Value::Null).is_err());
}

#[test]
fn unknown_fields_of_a_newer_version_are_ignored() {
    let read: Placement = decode(placement(&json!({"ordering": {"readinessGate": true, "newer": 1}}))).unwrap();
    assert!(read.spec.ordering.readiness_gate);
}
