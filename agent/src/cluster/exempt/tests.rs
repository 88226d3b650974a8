use serde_json::json;
use tideline_common::{Digest, FieldPolicy};

use super::*;

const READ: &str = "fields that can be read";

fn policy(fields: &[(&str, FieldMode)]) -> ApplyPolicy {
    let fields = fields.iter().map(|(path, mode)| FieldPolicy { path: (*path).to_owned(), mode: *mode }).collect();
    ApplyPolicy { fields, ..ApplyPolicy::default() }
}

fn managed(entries: &[(&str, &str, Value)]) -> Vec<ManagedFields> {
    let entries = entries.iter().map(|(manager, operation, fields)| {
        let entry = json!({"manager": manager, "operation": operation, "fieldsV1": fields});
        serde_json::from_str(&entry.to_string()).expect("an entry of managedFields")
    });
    entries.collect()
}

fn exempt(fields: &[(&str, FieldMode)]) -> Exempt {
    Exempt::new(&policy(fields), &Value::Null, Scaled::BySource).expect("paths")
}

fn deployment(replicas: i64, image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"app": "web", MARK_LABEL: "t"}},
        "spec": {"replicas": replicas, "paused": true, "containers": [{"name": "web", "image": image}]},
    })
}

/// As after it was applied whole.
fn whole() -> Value {
    json!({
        "f:metadata": {"f:labels": {"f:app": {}, format!("f:{MARK_LABEL}"): {}}},
        "f:spec": {"f:replicas": {}, "f:paused": {}, "f:containers": {
            r#"k:{"name":"web"}"#: {".": {}, "f:name": {}, "f:image": {}}}},
    })
}

#[test]
fn a_field_no_longer_applied_passes_to_the_second_manager() {
    let image = "$.spec.containers[?(@.name=='web')].image";
    let exempt = exempt(&[("/spec/replicas", FieldMode::Initial), (image, FieldMode::Initial)]);
    let mut sent = deployment(2, "new");
    let kept =
        exempt.take_out(&mut sent, &deployment(5, "old"), &managed(&[("tideline", "Apply", whole())])).expect(READ);
    assert_eq!(sent["spec"], json!({"paused": true, "containers": [{"name": "web"}]}));
    let image = json!({"f:image": {}});
    assert_eq!(kept, Some(json!({"f:spec": {"f:replicas": {}, "f:containers": {r#"k:{"name":"web"}"#: image}}})));
}

#[test]
fn fields_taken_by_others_stay_theirs_and_fields_dropped_by_the_source_are_released() {
    let exempt = exempt(&[("/spec/replicas", FieldMode::Initial), ("/spec/paused", FieldMode::Initial)]);
    let entries = managed(&[
        ("tideline", "Apply", json!({"f:spec": {"f:containers": {}}})),
        ("tideline-initial", "Apply", json!({"f:spec": {"f:paused": {}}})),
        ("autoscaler", "Update", json!({"f:spec": {"f:replicas": {}}})),
    ]);
    let mut sent = deployment(2, "new");
    sent["spec"]["paused"].take();
    sent["spec"].as_object_mut().expect("a map").remove("paused");
    assert_eq!(exempt.take_out(&mut sent, &deployment(5, "old"), &entries).expect(READ), None);
    assert_eq!(sent["spec"], json!({"containers": [{"name": "web", "image": "new"}]}));
}

#[test]
fn an_ignored_field_stays_when_its_source_drops_it() {
    let exempt = exempt(&[("/spec/paused", FieldMode::Ignored)]);
    let mut sent = deployment(2, "new");
    sent["spec"].as_object_mut().expect("a map").remove("paused");
    let kept =
        exempt.take_out(&mut sent, &deployment(2, "new"), &managed(&[("tideline", "Apply", whole())])).expect(READ);
    assert_eq!(kept, Some(json!({"f:spec": {"f:paused": {}}})));

    let mut created = deployment(2, "new");
    exempt.take_ignored(&mut created);
    assert_eq!(created["spec"], json!({"replicas": 2, "containers": [{"name": "web", "image": "new"}]}));
}

#[test]
fn a_part_of_what_is_applied_as_one_is_applied_as_it_is() {
    let exempt = exempt(&[("/spec/selector/version", FieldMode::Initial), ("/spec/selector/zone", FieldMode::Ignored)]);
    let entries = managed(&[("helper", "Update", json!({"f:spec": {"f:selector": {}}}))]);
    let live = json!({"spec": {"selector": {"app": "a", "version": "live", "zone": "live"}}});
    let mut sent = json!({"spec": {"selector": {"app": "b", "version": "source"}}});
    assert_eq!(exempt.take_out(&mut sent, &live, &entries).expect(READ), None);
    assert_eq!(sent, json!({"spec": {"selector": {"app": "b", "version": "live", "zone": "live"}}}));
}

#[test]
fn the_mark_stays_with_the_first_manager() {
    let exempt = exempt(&[("/metadata/labels", FieldMode::Initial)]);
    let live = deployment(2, "new");
    let kept = exempt.take_out(&mut live.clone(), &live, &managed(&[("tideline", "Apply", whole())])).expect(READ);
    assert_eq!(kept, Some(json!({"f:metadata": {"f:labels": {"f:app": {}}}})));
}

#[test]
fn replicas_are_left_to_an_autoscaler_unless_something_else_was_said() {
    let object = deployment(2, "new");
    let paths = |fields: &[(&str, FieldMode)], scaled| {
        let exempt = Exempt::new(&policy(fields), &object, scaled).expect("paths");
        (exempt.initial.len(), exempt.ignored.len())
    };
    assert_eq!(paths(&[], Scaled::BySource), (0, 0));
    assert_eq!(paths(&[], Scaled::ByAutoscaler), (1, 0));
    assert_eq!(paths(&[("$.spec.replicas", FieldMode::Continuous)], Scaled::ByAutoscaler), (0, 0));
    assert_eq!(paths(&[("/spec/replicas", FieldMode::Ignored)], Scaled::ByAutoscaler), (0, 1));
    assert!(is_left_to_presets(&policy(&[]), &object, REPLICAS));
    assert!(!is_left_to_presets(&policy(&[]), &json!({"spec": {}}), REPLICAS));
}

#[test]
fn a_claim_keeps_the_volume_it_is_bound_to() {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {"volumeName": "pv-1"}});
    let exempt = Exempt::new(&policy(&[]), &claim, Scaled::BySource).expect("paths");
    let mut created = claim.clone();
    exempt.take_ignored(&mut created);
    assert_eq!(created, claim);
    let bound = managed(&[("controller", "Update", json!({"f:spec": {"f:volumeName": {}}}))]);
    let mut sent = claim.clone();
    assert_eq!(exempt.take_out(&mut sent, &claim, &bound).expect(READ), None);
    assert_eq!(sent["spec"], Value::Null);
}

#[test]
fn a_service_that_has_other_addresses_keeps_them_and_follows_its_source_in_the_rest() {
    let service = |address: &str| {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "spec": {
                "clusterIP": address, "clusterIPs": [address], "ipFamilies": ["IPv4"], "healthCheckNodePort": 31000,
                "ports": [{"port": 80, "nodePort": 30080}]
            }
        })
    };
    let wanted = service("10.0.0.1");
    let exempt = Exempt::new(&policy(&[]), &wanted, Scaled::BySource).expect("paths");
    let mut created = wanted.clone();
    exempt.take_ignored(&mut created);
    assert_eq!(created, wanted);
    let mut sent = wanted;
    assert_eq!(exempt.take_out(&mut sent, &service("10.9.9.9"), &[]).expect(READ), None);
    assert_eq!(sent["spec"], json!({"ports": [{"port": 80, "nodePort": 30080}]}));
    let headless =
        json!({"apiVersion": "v1", "kind": "Service", "spec": {"clusterIP": "None", "ipFamilies": ["IPv4"]}});
    assert!(Exempt::new(&policy(&[]), &headless, Scaled::BySource).expect("paths").is_empty());
}

#[test]
fn a_path_that_cannot_be_read_fails_the_object() {
    let refused = Exempt::new(&policy(&[("spec.replicas", FieldMode::Initial)]), &Value::Null, Scaled::BySource);
    let failure = refused.expect_err("no path");
    assert!(failure.message.contains("\"spec.replicas\""), "{failure:?}");
}

#[test]
fn a_local_change_is_left_until_its_source_changes_the_field() {
    let digest = |value: Value| Digest::of(value.to_string().as_bytes());
    let local = |field: &str, assigned: Value| LocalField { field: field.into(), assigned: digest(assigned) };
    let changed = [local("/spec/replicas", json!(2)), local("/spec/containers/0/image", json!("old"))];
    let taken = managed(&[
        (
            "tideline",
            "Apply",
            json!({"f:spec": {"f:paused": {}, "f:containers": {
            r#"k:{"name":"web"}"#: {".": {}, "f:name": {}}}}}),
        ),
        (
            "helper",
            "Update",
            json!({"f:spec": {"f:replicas": {}, "f:containers": {
            r#"k:{"name":"web"}"#: {"f:image": {}}}}}),
        ),
    ]);
    let mut sent = deployment(2, "new");
    let mut exempt = Exempt::default();
    exempt.leave(&changed, &sent);
    let kept = exempt.take_out(&mut sent, &deployment(7, "theirs"), &taken).expect(READ);
    assert_eq!(sent["spec"], json!({"paused": true, "containers": [{"name": "web", "image": "new"}]}));
    assert_eq!(kept, None, "what is theirs is not ours by another name");
}
