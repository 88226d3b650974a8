use serde_json::{Value, json};
use tideline_common::health::Health;
use tideline_common::limits::STATUS_BYTES_MAX;
use tideline_common::wire::v1::Terminal;
use tideline_common::{GroupKind, HubId, Origin, Prune, PruneAdopted, SourceRef, SpaceName, TargetId};
use uuid::Uuid;

use super::*;

fn scope() -> Scope {
    Scope {
        hub: HubId::from_uuid(Uuid::from_u128(1)),
        target: TargetId::from_uuid(Uuid::from_u128(2)),
        formers: tideline_common::Formers::default(),
    }
}

fn resource(group: &str, kind: &str, status: bool) -> Resource {
    Resource {
        kind: GroupKind::new(group, kind),
        version: "v1".into(),
        plural: "things".to_owned(),
        namespaced: true,
        status,
    }
}

/// With `rest` beside the metadata, or null.
fn decoded(resource: &Resource, metadata: &Value, rest: Value) -> Observed {
    let mut object = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u-1", "resourceVersion": "9"}});
    object["metadata"].as_object_mut().expect("it is one").extend(metadata.as_object().cloned().unwrap_or_default());
    if let (Some(object), Value::Object(rest)) = (object.as_object_mut(), rest) {
        object.extend(rest);
    }
    read(resource, &object.to_string())
}

fn read(resource: &Resource, text: &str) -> Observed {
    let object = serde_json::from_str(text).expect("an object");
    decode(&scope(), resource, object).expect("it has a name and a UID")
}

fn managed(time: &str, fields: &Value) -> Value {
    json!({"managedFields": [
        {"manager": "tideline", "operation": "Apply", "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1", "fieldsV1": fields},
        {"manager": "someone", "operation": "Update", "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1", "fieldsV1": {}}]})
}

/// Metadata with a mark that was written for the object of this name, whose source is called `web`.
fn marked(resource: &Resource, local: &str) -> Value {
    let mark = Mark {
        v: 1,
        hub: scope().hub,
        target: scope().target,
        source: SourceRef {
            space: SpaceName::root(),
            uid: "source".parse().expect("a UID"),
            namespace: "shop".into(),
            name: "web".into(),
        },
        local: ObjectKey::new(resource.kind.clone(), "shop", local),
        generation: 1,
        input: Digest::of(b"input"),
        policy: None,
        prune: Prune::Delete,
        prune_adopted: PruneAdopted::Orphan,
        origin: Origin::Created,
    };
    json!({"annotations": {MARK_ANNOTATION: mark.encode()}})
}

fn text_of(observed: &Observed) -> Option<&str> {
    match &observed.status {
        ObservedStatus::Text(text) => Some(text.get()),
        ObservedStatus::None | ObservedStatus::TooLarge | ObservedStatus::Left => None,
    }
}

#[test]
fn the_managed_digest_changes_with_our_fields_and_not_with_time() {
    let of = |metadata: &Value| decoded(&resource("", "ConfigMap", false), metadata, Value::Null).managed;
    let first = of(&managed("2026-01-01T00:00:00Z", &json!({"f:data": {}})));
    assert!(first.is_some());
    assert_eq!(first, of(&managed("2027-01-01T00:00:00Z", &json!({"f:data": {}}))));
    assert_ne!(first, of(&managed("2026-01-01T00:00:00Z", &json!({"f:data": {"f:a": {}}}))));
    assert_eq!(of(&json!({})), None);
}

#[test]
fn an_object_without_status_is_ready_by_being_there() {
    let observed = decoded(&resource("", "ConfigMap", false), &json!({}), Value::Null);
    assert_eq!(
        (observed.health, matches!(observed.status, ObservedStatus::None), observed.generation),
        (Health::Ready, true, 0)
    );
    assert!(!observed.labelled && observed.mark.is_none() && !observed.deleting && !observed.managed_elsewhere);
}

#[test]
fn status_goes_out_whole_and_a_finished_job_is_terminal() {
    let status = json!({"conditions": [{"type": "Complete", "status": "True"}], "succeeded": 1});
    let observed = decoded(&resource("batch", "Job", true), &json!({"generation": 1}), json!({"status": status}));
    assert_eq!(observed.terminal, Some(Terminal::Finished));
    assert_eq!(text_of(&observed).and_then(|text| serde_json::from_str::<Value>(text).ok()), Some(status));
}

#[test]
fn a_deployment_behind_its_generation_is_not_ready() {
    let metadata = json!({"generation": 2});
    let status = json!({"observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1, "availableReplicas": 1});
    let observed =
        decoded(&resource("apps", "Deployment", true), &metadata, json!({"spec": {"replicas": 1}, "status": status}));
    assert_eq!((observed.health, observed.observed_generation), (Health::Progressing, Some(1)));
}

#[test]
fn the_label_must_name_this_target() {
    let labelled = |target: TargetId| {
        let metadata = json!({"labels": {"tideline.dev/agent": target.to_string()}});
        decoded(&resource("", "ConfigMap", false), &metadata, Value::Null).labelled
    };
    assert!(labelled(scope().target));
    assert!(!labelled(TargetId::from_uuid(Uuid::from_u128(3))));
}

#[test]
fn objects_of_other_declarative_tools_are_recognised() {
    let foreign =
        |metadata: Value| decoded(&resource("", "ConfigMap", false), &metadata, Value::Null).managed_elsewhere;
    assert!(foreign(json!({"labels": {"app.kubernetes.io/managed-by": "Helm"}})));
    assert!(!foreign(json!({"labels": {"app.kubernetes.io/managed-by": "me"}})));
    assert!(foreign(json!({"annotations": {"argocd.argoproj.io/tracking-id": "a:b"}})));
    assert!(foreign(json!({"annotations": {MARK_ANNOTATION: "{\"v\":2}"}})), "a mark that this build cannot read");
    assert!(foreign(json!({"labels": {"kustomize.toolkit.fluxcd.io/name": "a"}})));
    assert!(foreign(json!({"managedFields": [{"manager": "kubectl", "operation": "Apply"}]})));
    assert!(!foreign(json!({"managedFields": [{"manager": "kubectl", "operation": "Update"}]})));
    assert!(!foreign(
        json!({"managedFields": [{"manager": "controller", "operation": "Apply", "subresource": "status"}]})
    ));
}

/// Perhaps it is of a later build of this very agent.
#[test]
fn a_mark_that_cannot_be_read_is_not_taken_for_none() {
    let of = |annotations: Value| {
        let metadata = json!({"name": "a", "uid": "u-1", "annotations": annotations});
        let told = decoded(&resource("", "ConfigMap", false), &metadata, Value::Null);
        let found = listed(&metadata).expect("it can be read").expect("it has a name and a UID");
        assert_eq!(found.details().map(|details| details.illegible), Some(told.illegible));
        assert!(told.mark.is_none());
        told.illegible
    };
    assert!(of(json!({MARK_ANNOTATION: "{\"v\":2}"})));
    assert!(!of(json!({"example.com/other": "{\"v\":2}"})));
}

fn listed(metadata: &Value) -> serde_json::Result<Option<ListedItem>> {
    decode_listed(&scope(), &resource("", "ConfigMap", false), metadata.to_string().into())
}

#[test]
fn a_listed_item_decodes_like_a_watched_object() {
    let mut metadata = managed("2026-01-01T00:00:00Z", &json!({"f:data": {"f:a": {}}}));
    let more = json!({"name": "a\"b", "namespace": "shop", "uid": "u-1", "resourceVersion": "9", "generation": 4,
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"tideline.dev/agent": scope().target.to_string(), "app.kubernetes.io/managed-by": "Helm"}});
    if let (Some(metadata), Value::Object(more)) = (metadata.as_object_mut(), more) {
        metadata.extend(more);
    }
    let told = decoded(&resource("", "ConfigMap", false), &metadata, Value::Null);
    let found = listed(&metadata).expect("it can be read").expect("it has a name and a UID");
    assert_eq!(format!("{:?}", found.details()), format!("{:?}", ListedItem::from(told.clone()).details()));
    assert_eq!(
        (found.key, found.uid, found.resource_version, found.labelled),
        (told.key, told.uid, told.resource_version, true)
    );
}

#[test]
fn an_undecodable_owner_of_a_listed_item_is_unknown_and_not_absent() {
    let metadata = json!({"name": "web", "uid": "u-1", "resourceVersion": "9", "managedFields": "none"});
    let found = listed(&metadata).expect("so far").expect("it has a name and a UID");
    assert!(found.details().is_none());
    assert!(listed(&json!({"name": 7})).is_err());
    assert!(listed(&json!({"name": "web"})).expect("it can be read").is_none());
}

/// An entry of managedFields with `fields`, as text.
fn managed_text(manager: &str, fields: &str) -> String {
    format!(
        r#"{{"manager":"{manager}","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{fields}}}"#
    )
}

fn metadata_text(entries: &[String]) -> String {
    format!(r#"{{"name":"web","uid":"u-1","resourceVersion":"9","managedFields":[{}]}}"#, entries.join(","))
}

#[test]
fn in_what_order_fields_are_written_is_no_change_of_them() {
    let of = |fields: &str| {
        let metadata = metadata_text(&[managed_text("tideline", fields)]);
        read(&resource("", "ConfigMap", false), &format!(r#"{{"metadata":{metadata}}}"#)).managed
    };
    assert!(of(r#"{"f:a":{},"f:b":{}}"#).is_some());
    assert_eq!(of(r#"{"f:a":{},"f:b":{}}"#), of(r#"{"f:b": {}, "f:a": {}}"#));
}

/// However deep or large what somebody manages is, it can be told whether it is the same as before, in a watch and in a list.
#[test]
fn managed_fields_of_any_depth_and_size_are_told_apart() {
    let deep = |last: &str| format!("{}{last}{}", r#"{"f:a":"#.repeat(200), "}".repeat(200));
    let long = |last: &str| format!(r#"{{{}"f:z":{last}}}"#, r#""f:a":{},"#.repeat(FIELDS_BYTES_MAX / 9));
    let mut seen = Vec::new();
    for fields in [deep("{}"), deep(r#"{"f:b":{}}"#), long("{}"), long(r#"{"f:b":{}}"#)] {
        let metadata = metadata_text(&[managed_text("tideline", &fields), managed_text("someone", &fields)]);
        let told = read(&resource("", "ConfigMap", false), &format!(r#"{{"metadata":{metadata}}}"#));
        let found = decode_listed(&scope(), &resource("", "ConfigMap", false), metadata.into());
        let found = found.expect("it can be read").expect("it has a name and a UID");
        assert_eq!(format!("{:?}", found.details()), format!("{:?}", ListedItem::from(told.clone()).details()));
        assert!(told.managed_elsewhere && told.managed.is_some() && told.others.is_some());
        assert!(!seen.contains(&told.managed));
        seen.push(told.managed);
    }
}

#[test]
fn a_status_is_kept_in_full_only_where_it_may_be_reported() {
    let kind = resource("example.com", "Thing", true);
    let marked = |local: &str| marked(&kind, local);
    let watched = |metadata: &Value, bytes: usize| {
        let mut object = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u-1"}});
        object["metadata"]
            .as_object_mut()
            .expect("it is one")
            .extend(metadata.as_object().cloned().unwrap_or_default());
        object["status"] = json!("x".repeat(bytes - 2));
        let object = serde_json::from_str(&object.to_string()).expect("an object");
        let observed = decode_watched(&scope(), &kind, object).expect("it has a name and a UID");
        match observed.status {
            ObservedStatus::Text(text) => format!("{} bytes", text.get().len()),
            other => format!("{other:?}"),
        }
    };
    let (few, most) = (STRANGERS_STATUS_BYTES_MAX, STATUS_BYTES_MAX);
    let strangers = [json!({}), json!({"annotations": {MARK_ANNOTATION: "{}"}}), marked("another")];
    for stranger in strangers {
        let kept = [few, few + 1, most, most + 1].map(|bytes| watched(&stranger, bytes));
        assert_eq!(kept, ["1024 bytes", "Left", "Left", "TooLarge"], "{stranger}");
    }
    let kept = [few + 1, most, most + 1].map(|bytes| watched(&marked("web"), bytes));
    assert_eq!(kept, ["1025 bytes", "262144 bytes", "TooLarge"]);
}

/// A list of tens of thousands is in memory at once.
#[test]
fn a_mark_shares_the_texts_of_its_object() {
    let kind = resource("example.com", "Thing", true);
    let Observed { key, mark, .. } = decoded(&kind, &marked(&kind, "web"), Value::Null);
    let mark = mark.expect("there is one");
    assert!(Arc::ptr_eq(&mark.local.kind.kind, &kind.kind.kind) && Arc::ptr_eq(&mark.local.name, &key.name));
    assert!(Arc::ptr_eq(&mark.source.namespace, &key.namespace) && Arc::ptr_eq(&mark.source.name, &key.name));
    // That of a copy says something else.
    let copied = decoded(&kind, &marked(&kind, "another"), Value::Null).mark.expect("there is one");
    assert_eq!(copied.local, ObjectKey::new(kind.kind.clone(), "shop", "another"));
}
