use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::assess;
use crate::GroupKind;

fn check(kind: (&str, &str), object: &Value, expected: &Expect) {
    let found = assess(&GroupKind::new(kind.0, kind.1), object);
    let terminal = found.terminal.map_or(String::new(), |terminal| format!(" {terminal:?}"));
    expected.assert_eq(&format!("{:?}{terminal} {}", found.health, found.message));
}

const DEPLOYMENT: (&str, &str) = ("apps", "Deployment");

#[test]
fn deployment_without_status_is_unknown_not_ready() {
    check(DEPLOYMENT, &json!({"spec": {"replicas": 0}}), &expect!["Unknown it has no status yet"]);
}

#[test]
fn deployment_is_ready_when_updated_and_available() {
    let status = json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3});
    check(
        DEPLOYMENT,
        &json!({"metadata": {"generation": 2}, "spec": {"replicas": 3}, "status": status}),
        &expect!["Ready "],
    );
    check(
        DEPLOYMENT,
        &json!({"metadata": {"generation": 3}, "spec": {"replicas": 3}, "status": status}),
        &expect!["Progressing its controller has not seen the latest change"],
    );
    check(
        DEPLOYMENT,
        &json!({"metadata": {"generation": 2}, "spec": {"replicas": 4}, "status": status}),
        &expect!["Progressing 3 of 4 replicas are updated"],
    );
}

#[test]
fn deployment_past_its_deadline_has_failed() {
    let condition = json!({"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"});
    check(
        DEPLOYMENT,
        &json!({"status": {"observedGeneration": 1, "conditions": [condition]}}),
        &expect!["Failed ProgressDeadlineExceeded"],
    );
}

#[test]
fn finished_job_is_terminal_either_way() {
    let job = |kind: &str| json!({"status": {"conditions": [{"type": kind, "status": "True", "reason": "Because"}]}});
    check(("batch", "Job"), &job("Complete"), &expect!["Ready Finished "]);
    check(("batch", "Job"), &job("Failed"), &expect!["Failed Finished Because"]);
    check(("batch", "Job"), &json!({"status": {"active": 1}}), &expect!["Progressing 1 Pods active, 0 succeeded"]);
}

#[test]
fn claim_without_report_is_unknown_and_lost_has_failed() {
    let claim = ("", "PersistentVolumeClaim");
    check(claim, &json!({}), &expect!["Unknown it has no status yet"]);
    check(claim, &json!({"status": {"phase": "Pending"}}), &expect!["Progressing Pending"]);
    check(claim, &json!({"status": {"phase": "Lost"}}), &expect!["Failed Lost"]);
}

#[test]
fn custom_resource_follows_the_agreed_conditions() {
    let kind = ("example.com", "Widget");
    let with = |kind: &str, status: &str| json!({"status": {"conditions": [{"type": kind, "status": status}]}});
    check(kind, &json!({"spec": {}}), &expect!["Ready "]);
    check(kind, &with("Ready", "False"), &expect!["Progressing its condition Ready says so"]);
    check(kind, &with("Stalled", "True"), &expect!["Failed its condition Stalled says so"]);
    check(kind, &with("Reconciling", "True"), &expect!["Progressing its condition Reconciling says so"]);
}

#[test]
fn partition_of_a_stateful_set_need_not_be_updated() {
    let status = json!({"observedGeneration": 1, "readyReplicas": 3, "updatedReplicas": 1});
    let spec = json!({"replicas": 3, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}});
    check(("apps", "StatefulSet"), &json!({"spec": spec, "status": status}), &expect!["Ready "]);
}

#[test]
fn object_being_deleted_is_never_ready() {
    check(
        ("", "ConfigMap"),
        &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        &expect!["Progressing it is being deleted"],
    );
}
