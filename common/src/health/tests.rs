//! One table per kind, of statuses as the controllers of Kubernetes 1.35 write them.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::excerpt::{FIELD_BYTES_MAX, FIELD_LEVELS_MAX};
use super::{Assessment, Health, Subject};
use crate::GroupKind;
use crate::limits::MESSAGE_BYTES_MAX;

/// Judges an object as it is sent.
fn assess(kind: &GroupKind, object: &Value) -> Assessment {
    let part = |name: &str| object.get(name).map(|part| to_raw_value(part).expect("it is JSON"));
    let (spec, status) = (part("spec"), part("status"));
    let subject = Subject {
        generation: object["metadata"]["generation"].as_i64(),
        deleting: !object["metadata"]["deletionTimestamp"].is_null(),
        spec: spec.as_deref(),
        status: status.as_deref(),
    };
    super::assess(kind, subject)
}

/// Judges each object, under its name.
fn check(kind: (&str, &str), table: &[(&str, Value)], expected: &Expect) {
    let mut lines = String::new();
    for (name, object) in table {
        let found = assess(&GroupKind::new(kind.0, kind.1), object);
        let terminal = found.terminal.map_or(String::new(), |terminal| format!(" ({terminal:?})"));
        let message = if found.message.is_empty() { String::new() } else { format!(" – {}", found.message) };
        writeln!(lines, "{name}: {:?}{terminal}{message}", found.health).unwrap();
    }
    expected.assert_eq(&lines);
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    let time = "2026-11-21T08:00:00Z";
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": time})
}

/// An object of generation 2 whose spec and status are these.
fn object(spec: &Value, status: &Value) -> Value {
    json!({"metadata": {"name": "web", "namespace": "shop", "generation": 2}, "spec": spec, "status": status})
}

fn of_status(status: &Value) -> Value {
    object(&json!({}), status)
}

#[test]
fn deployment_is_ready_when_every_replica_is_updated_and_available_and_no_old_one_is_left() {
    let spec = json!({"replicas": 3, "progressDeadlineSeconds": 600});
    let available = condition("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.");
    let rolled = condition("Progressing", "True", "NewReplicaSetAvailable", "ReplicaSet \"web-6d4\" has progressed.");
    let late = condition(
        "Progressing",
        "False",
        "ProgressDeadlineExceeded",
        "ReplicaSet \"web-7f9\" has timed out progressing.",
    );
    let quota = condition("ReplicaFailure", "True", "FailedCreate", "pods \"web-7f9-\" is forbidden: exceeded quota");
    let counts = |observed: i64, total: i64, updated: i64, available: i64| {
        json!({"observedGeneration": observed, "replicas": total, "updatedReplicas": updated,
               "readyReplicas": available, "availableReplicas": available})
    };
    let with = |mut status: Value, conditions: &[&Value]| {
        status["conditions"] = json!(conditions);
        status
    };
    let paused = json!({"replicas": 3, "paused": true});
    check(
        ("apps", "Deployment"),
        &[
            ("new", object(&spec, &json!({}))),
            ("scaled to zero and never looked at", json!({"spec": {"replicas": 0}})),
            ("complete", object(&spec, &with(counts(2, 3, 3, 3), &[&available, &rolled]))),
            ("not observed", object(&spec, &with(counts(1, 3, 3, 3), &[&available, &rolled]))),
            ("rolling out", object(&spec, &counts(2, 4, 2, 3))),
            ("old replicas", object(&spec, &counts(2, 4, 3, 3))),
            ("starting", object(&spec, &counts(2, 3, 3, 1))),
            ("past its deadline", object(&spec, &with(counts(2, 4, 1, 3), &[&available, &late]))),
            ("over quota", object(&spec, &with(counts(2, 2, 2, 2), &[&quota]))),
            ("paused", object(&paused, &counts(2, 3, 1, 3))),
            ("zero", object(&json!({"replicas": 0}), &json!({"observedGeneration": 2}))),
            ("default replicas", of_status(&counts(2, 1, 1, 1))),
        ],
        &expect![[r#"
            new: Unknown – it has no status yet
            scaled to zero and never looked at: Unknown – it has no status yet
            complete: Ready
            not observed: Progressing – its controller has not seen the latest change
            rolling out: Progressing – 2 of 3 replicas are updated
            old replicas: Progressing – 1 old replicas are still there
            starting: Progressing – 1 of 3 replicas are available
            past its deadline: Failed – ProgressDeadlineExceeded: ReplicaSet "web-7f9" has timed out progressing.
            over quota: Failed – FailedCreate: pods "web-7f9-" is forbidden: exceeded quota
            paused: Progressing – it is paused with 1 of 3 replicas updated
            zero: Ready
            default replicas: Ready
        "#]],
    );
}

#[test]
fn replica_set_is_ready_when_it_has_as_many_as_it_wants_and_no_more() {
    let spec = json!({"replicas": 2});
    let failure = condition("ReplicaFailure", "True", "FailedCreate", "serviceaccount \"web\" not found");
    check(
        ("apps", "ReplicaSet"),
        &[
            ("new", object(&spec, &json!({"replicas": 0}))),
            (
                "complete",
                object(
                    &spec,
                    &json!({"observedGeneration": 2, "replicas": 2, "fullyLabeledReplicas": 2, "readyReplicas": 2,
                            "availableReplicas": 2}),
                ),
            ),
            ("one ready", object(&spec, &json!({"observedGeneration": 2, "replicas": 2, "readyReplicas": 1}))),
            (
                "ready for too short a time",
                object(
                    &spec,
                    &json!({"observedGeneration": 2, "replicas": 2, "readyReplicas": 2, "availableReplicas": 1}),
                ),
            ),
            (
                "scaling down",
                object(
                    &spec,
                    &json!({"observedGeneration": 2, "replicas": 5, "readyReplicas": 5, "availableReplicas": 5}),
                ),
            ),
            ("cannot create", object(&spec, &json!({"observedGeneration": 2, "conditions": [failure]}))),
        ],
        &expect![[r#"
            new: Unknown – it has no status yet
            complete: Ready
            one ready: Progressing – 1 of 2 replicas are ready
            ready for too short a time: Progressing – 1 of 2 replicas are available
            scaling down: Progressing – 3 replicas are still to go
            cannot create: Failed – FailedCreate: serviceaccount "web" not found
        "#]],
    );
}

#[test]
fn stateful_set_need_not_update_what_its_strategy_leaves() {
    let spec = |strategy: &Value| json!({"replicas": 3, "updateStrategy": strategy});
    let rolling = spec(&json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}));
    let partition = spec(&json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}));
    let on_delete = spec(&json!({"type": "OnDelete"}));
    let status = |ready: i64, updated: i64, total: i64| {
        json!({"observedGeneration": 2, "replicas": total, "readyReplicas": ready, "availableReplicas": ready,
               "currentReplicas": total - updated, "updatedReplicas": updated,
               "currentRevision": "db-5f", "updateRevision": "db-7c", "collisionCount": 0})
    };
    check(
        ("apps", "StatefulSet"),
        &[
            ("new", object(&rolling, &json!({"replicas": 0, "availableReplicas": 0}))),
            ("complete", object(&rolling, &status(3, 3, 3))),
            ("first of three", object(&rolling, &status(0, 1, 1))),
            ("updating", object(&rolling, &status(3, 1, 3))),
            ("partition reached", object(&partition, &status(3, 1, 3))),
            ("partition not reached", object(&partition, &status(3, 0, 3))),
            ("on delete", object(&on_delete, &status(3, 0, 3))),
            ("scaling down", object(&rolling, &status(3, 4, 4))),
        ],
        &expect![[r#"
            new: Unknown – it has no status yet
            complete: Ready
            first of three: Progressing – 0 of 3 replicas are ready
            updating: Progressing – 1 of 3 replicas are updated
            partition reached: Ready
            partition not reached: Progressing – 0 of 1 replicas are updated
            on delete: Ready
            scaling down: Progressing – 1 replicas are still to go
        "#]],
    );
}

#[test]
fn daemon_set_is_ready_when_it_runs_updated_on_every_node() {
    let rolling = json!({"updateStrategy": {"type": "RollingUpdate"}});
    let on_delete = json!({"updateStrategy": {"type": "OnDelete"}});
    let status = |scheduled: i64, updated: i64, available: i64| {
        json!({"observedGeneration": 2, "desiredNumberScheduled": 3, "currentNumberScheduled": scheduled,
               "updatedNumberScheduled": updated, "numberReady": available, "numberAvailable": available,
               "numberMisscheduled": 0})
    };
    check(
        ("apps", "DaemonSet"),
        &[
            ("new", object(&rolling, &json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0}))),
            ("complete", object(&rolling, &status(3, 3, 3))),
            ("a node without", object(&rolling, &status(2, 2, 2))),
            ("updating", object(&rolling, &status(3, 1, 3))),
            ("starting", object(&rolling, &status(3, 3, 2))),
            ("on delete", object(&on_delete, &status(3, 0, 3))),
            (
                "no node wanted",
                object(&rolling, &json!({"observedGeneration": 2, "desiredNumberScheduled": 0, "numberReady": 0})),
            ),
        ],
        &expect![[r#"
            new: Unknown – it has no status yet
            complete: Ready
            a node without: Progressing – 2 of 3 Pods are scheduled
            updating: Progressing – 1 of 3 Pods are updated
            starting: Progressing – 2 of 3 Pods are available
            on delete: Ready
            no node wanted: Ready
        "#]],
    );
}

#[test]
fn job_is_ready_when_it_is_complete_and_finished_either_way() {
    let complete = [
        condition("SuccessCriteriaMet", "True", "CompletionsReached", "Reached expected number of succeeded pods"),
        condition("Complete", "True", "CompletionsReached", "Reached expected number of succeeded pods"),
    ];
    let failing = [condition("FailureTarget", "True", "BackoffLimitExceeded", "Job has reached the specified limit")];
    let failed = [
        condition("FailureTarget", "True", "BackoffLimitExceeded", "Job has reached the specified backoff limit"),
        condition("Failed", "True", "BackoffLimitExceeded", "Job has reached the specified backoff limit"),
    ];
    let suspended = [condition("Suspended", "True", "JobSuspended", "Job suspended")];
    check(
        ("batch", "Job"),
        &[
            ("new", object(&json!({"completions": 1}), &json!({}))),
            ("running", of_status(&json!({"startTime": "2026-11-21T08:00:00Z", "active": 1, "ready": 1}))),
            ("tried again", of_status(&json!({"active": 1, "failed": 2}))),
            ("complete", of_status(&json!({"succeeded": 1, "conditions": complete}))),
            ("about to fail", of_status(&json!({"active": 1, "failed": 6, "conditions": failing}))),
            ("failed", of_status(&json!({"failed": 7, "conditions": failed}))),
            ("suspended", object(&json!({"suspend": true}), &json!({"conditions": suspended}))),
            ("to be deleted once it ended", object(&json!({"ttlSecondsAfterFinished": 0}), &json!({"active": 1}))),
            (
                "the same, and it ended",
                object(&json!({"ttlSecondsAfterFinished": 0}), &json!({"conditions": complete})),
            ),
        ],
        &expect![[r#"
            new: Unknown – it has no status yet
            running: Progressing – 1 Pods active, 0 succeeded
            tried again: Progressing – 1 Pods active, 0 succeeded, 2 failed
            complete: Ready (Finished)
            about to fail: Progressing – 1 Pods active, 0 succeeded, 6 failed
            failed: Failed (Finished) – BackoffLimitExceeded: Job has reached the specified backoff limit
            suspended: Progressing – it is suspended
            to be deleted once it ended: Progressing (Started) – 1 Pods active, 0 succeeded
            the same, and it ended: Ready (Finished)
        "#]],
    );
}

#[test]
fn cron_job_has_nothing_to_wait_for() {
    check(
        ("batch", "CronJob"),
        &[
            ("never ran", object(&json!({"schedule": "0 3 * * *", "suspend": false}), &json!({}))),
            ("ran", of_status(&json!({"lastScheduleTime": "2026-11-21T03:00:00Z"}))),
            ("suspended", object(&json!({"suspend": true}), &json!({}))),
        ],
        &expect![[r#"
            never ran: Ready
            ran: Ready
            suspended: Ready – it is suspended
        "#]],
    );
}

#[test]
fn pod_is_ready_when_it_says_so_or_has_succeeded() {
    let conditions =
        |ready: &str| json!([condition("PodScheduled", "True", "", ""), condition("Ready", ready, "", "")]);
    let not_ready = json!([condition("Ready", "False", "ContainersNotReady", "containers with unready status: [web]")]);
    let nowhere =
        json!([condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available: 3 Insufficient cpu.")]);
    let waiting = |reason: &str| json!([{"name": "web", "state": {"waiting": {"reason": reason}}}]);
    check(
        ("", "Pod"),
        &[
            ("new", of_status(&json!({}))),
            ("pending", of_status(&json!({"phase": "Pending"}))),
            ("unschedulable", of_status(&json!({"phase": "Pending", "conditions": nowhere}))),
            ("creating", of_status(&json!({"phase": "Pending", "containerStatuses": waiting("ContainerCreating")}))),
            (
                "no such image",
                of_status(&json!({"phase": "Pending", "containerStatuses": waiting("ImagePullBackOff")})),
            ),
            ("ready", of_status(&json!({"phase": "Running", "conditions": conditions("True")}))),
            ("not ready", of_status(&json!({"phase": "Running", "conditions": not_ready}))),
            (
                "crashing",
                of_status(
                    &json!({"phase": "Running", "conditions": not_ready, "containerStatuses": waiting("CrashLoopBackOff")}),
                ),
            ),
            (
                "init crashing",
                of_status(&json!({"phase": "Pending", "initContainerStatuses": waiting("CrashLoopBackOff")})),
            ),
            ("succeeded", of_status(&json!({"phase": "Succeeded", "conditions": not_ready}))),
            (
                "evicted",
                of_status(&json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."})),
            ),
            ("node lost", of_status(&json!({"phase": "Unknown", "reason": "NodeLost"}))),
        ],
        &expect![[r#"
            new: Unknown – it has no status yet
            pending: Progressing – Pending
            unschedulable: Progressing – Unschedulable: 0/3 nodes are available: 3 Insufficient cpu.
            creating: Progressing – Pending
            no such image: Failed – container web: ImagePullBackOff
            ready: Ready
            not ready: Progressing – ContainersNotReady: containers with unready status: [web]
            crashing: Failed – container web: CrashLoopBackOff
            init crashing: Failed – container web: CrashLoopBackOff
            succeeded: Ready
            evicted: Failed – Failed: The node was low on memory.
            node lost: Progressing – Unknown: NodeLost
        "#]],
    );
}

#[test]
fn claims_and_volumes_follow_their_phase() {
    check(
        ("", "PersistentVolumeClaim"),
        &[
            ("new", of_status(&json!({}))),
            ("pending", of_status(&json!({"phase": "Pending"}))),
            ("bound", of_status(&json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"]}))),
            ("lost", of_status(&json!({"phase": "Lost"}))),
        ],
        &expect![[r#"
            new: Unknown – it has no status yet
            pending: Progressing – Pending
            bound: Ready
            lost: Failed – Lost
        "#]],
    );
    check(
        ("", "PersistentVolume"),
        &[
            ("available", of_status(&json!({"phase": "Available"}))),
            ("released", of_status(&json!({"phase": "Released"}))),
            ("failed", of_status(&json!({"phase": "Failed", "message": "error deleting volume"}))),
        ],
        &expect![[r#"
            available: Ready
            released: Ready
            failed: Failed – Failed: error deleting volume
        "#]],
    );
}

#[test]
fn service_waits_only_for_a_load_balancer() {
    let balancer = json!({"type": "LoadBalancer", "clusterIP": "10.0.0.7"});
    check(
        ("", "Service"),
        &[
            ("cluster IP", object(&json!({"type": "ClusterIP"}), &json!({"loadBalancer": {}}))),
            ("headless", object(&json!({"clusterIP": "None"}), &json!({"loadBalancer": {}}))),
            ("external name", object(&json!({"type": "ExternalName"}), &json!({"loadBalancer": {}}))),
            ("load balancer pending", object(&balancer, &json!({"loadBalancer": {}}))),
            ("load balancer", object(&balancer, &json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}))),
        ],
        &expect![[r#"
            cluster IP: Ready
            headless: Ready
            external name: Ready
            load balancer pending: Progressing – it has no load balancer address yet
            load balancer: Ready
        "#]],
    );
}

#[test]
fn ingress_is_ready_with_and_without_an_address() {
    check(
        ("networking.k8s.io", "Ingress"),
        &[
            ("no address", of_status(&json!({"loadBalancer": {}}))),
            ("address", of_status(&json!({"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}]}}))),
        ],
        &expect![[r#"
            no address: Ready
            address: Ready
        "#]],
    );
}

#[test]
fn autoscaler_is_ready_when_it_can_read_its_metrics() {
    let able = condition("AbleToScale", "True", "SucceededGetScale", "the HPA controller was able to get the scale");
    let unable = condition("AbleToScale", "False", "FailedGetScale", "deployments.apps \"web\" not found");
    let active = |status: &str, reason: &str| condition("ScalingActive", status, reason, "");
    let with = |conditions: &[&Value]| of_status(&json!({"currentReplicas": 1, "conditions": conditions}));
    check(
        ("autoscaling", "HorizontalPodAutoscaler"),
        &[
            ("new", of_status(&json!({}))),
            ("no target", with(&[&unable])),
            ("no metrics", with(&[&able, &active("False", "FailedGetResourceMetric")])),
            ("scaling", with(&[&able, &active("True", "ValidMetricFound")])),
            ("turned off", with(&[&able, &active("False", "ScalingDisabled")])),
            ("ambiguous", with(&[&able, &active("False", "AmbiguousSelector")])),
        ],
        &expect![[r#"
            new: Unknown – it has no status yet
            no target: Progressing – FailedGetScale: deployments.apps "web" not found
            no metrics: Progressing – FailedGetResourceMetric
            scaling: Ready
            turned off: Ready – ScalingDisabled
            ambiguous: Failed – AmbiguousSelector
        "#]],
    );
}

#[test]
fn disruption_budget_is_ready_once_it_is_computed() {
    let synced = condition("DisruptionAllowed", "True", "SufficientPods", "");
    let few = condition("DisruptionAllowed", "False", "InsufficientPods", "");
    let failed = condition("DisruptionAllowed", "False", "SyncFailed", "found no controller ref for pod \"web-0\"");
    let with = |condition: &Value| {
        of_status(&json!({"observedGeneration": 2, "currentHealthy": 1, "desiredHealthy": 2, "expectedPods": 2,
                          "disruptionsAllowed": 0, "conditions": [condition]}))
    };
    check(
        ("policy", "PodDisruptionBudget"),
        &[
            ("new", of_status(&json!({"currentHealthy": 0, "desiredHealthy": 0}))),
            ("enough Pods", with(&synced)),
            ("too few Pods", with(&few)),
            ("cannot be computed", with(&failed)),
        ],
        &expect![[r#"
            new: Unknown – it has no status yet
            enough Pods: Ready
            too few Pods: Ready
            cannot be computed: Failed – SyncFailed: found no controller ref for pod "web-0"
        "#]],
    );
}

#[test]
fn definition_is_ready_when_its_kind_is_served() {
    let accepted = condition("NamesAccepted", "True", "NoConflicts", "no conflicts found");
    let taken = condition("NamesAccepted", "False", "PluralConflict", "\"widgets\" is already in use");
    let established = |status: &str, reason: &str, message: &str| condition("Established", status, reason, message);
    let with = |conditions: &[&Value]| of_status(&json!({"conditions": conditions, "storedVersions": ["v1"]}));
    check(
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        &[
            ("new", of_status(&json!({"storedVersions": ["v1"]}))),
            ("names taken", with(&[&taken, &established("False", "NotAccepted", "not all names are accepted")])),
            (
                "installing",
                with(&[&accepted, &established("False", "Installing", "the initial names have been accepted")]),
            ),
            (
                "established",
                with(&[
                    &accepted,
                    &established("True", "InitialNamesAccepted", "the initial names have been accepted"),
                ]),
            ),
        ],
        &expect![[r#"
            new: Unknown – it has no status yet
            names taken: Failed – PluralConflict: "widgets" is already in use
            installing: Progressing – Installing: the initial names have been accepted
            established: Ready
        "#]],
    );
}

#[test]
fn api_service_is_ready_when_it_is_available() {
    let with = |status: &str, reason: &str, message: &str| {
        of_status(&json!({"conditions": [condition("Available", status, reason, message)]}))
    };
    check(
        ("apiregistration.k8s.io", "APIService"),
        &[
            ("new", of_status(&json!({}))),
            ("available", with("True", "Passed", "all checks passed")),
            (
                "no endpoints",
                with("False", "MissingEndpoints", "endpoints for service/metrics-server have no addresses"),
            ),
        ],
        &expect![[r#"
            new: Unknown – it has no status yet
            available: Ready
            no endpoints: Progressing – MissingEndpoints: endpoints for service/metrics-server have no addresses
        "#]],
    );
}

#[test]
fn namespace_is_ready_when_it_is_active() {
    check(
        ("", "Namespace"),
        &[("new", of_status(&json!({}))), ("active", of_status(&json!({"phase": "Active"})))],
        &expect![[r#"
            new: Unknown – it has no status yet
            active: Ready
        "#]],
    );
}

#[test]
fn any_other_kind_follows_the_agreed_conditions() {
    let with = |conditions: &[Value]| of_status(&json!({"observedGeneration": 2, "conditions": conditions}));
    let plain = |kind: &str, status: &str| condition(kind, status, "Because", "");
    let mut outdated = plain("Ready", "True");
    outdated["observedGeneration"] = json!(1);
    let mut outdated_stall = plain("Stalled", "True");
    outdated_stall["observedGeneration"] = json!(1);
    check(
        ("example.com", "Widget"),
        &[
            ("no status", json!({"metadata": {"generation": 1}, "spec": {}})),
            ("conditions of its own", with(&[plain("Programmed", "False")])),
            ("ready", with(&[plain("Ready", "True")])),
            ("not ready", with(&[plain("Ready", "False")])),
            ("nobody knows", with(&[plain("Ready", "Unknown")])),
            ("available", with(&[plain("Available", "True")])),
            ("ready counts before available", with(&[plain("Available", "True"), plain("Ready", "False")])),
            ("reconciling", with(&[plain("Reconciling", "True"), plain("Ready", "True")])),
            ("stalled", with(&[plain("Stalled", "True"), plain("Ready", "False")])),
            ("no longer stalled", with(&[plain("Stalled", "False"), plain("Ready", "True")])),
            ("ready of an older generation", with(&[outdated])),
            ("stalled at an older generation", with(&[outdated_stall, plain("Ready", "True")])),
            ("not observed", of_status(&json!({"observedGeneration": 1, "conditions": [plain("Ready", "True")]}))),
            ("conditions of no known form", of_status(&json!({"conditions": "Ready"}))),
        ],
        &expect![[r#"
            no status: Ready
            conditions of its own: Ready
            ready: Ready
            not ready: Progressing – Because
            nobody knows: Progressing – Because
            available: Ready
            ready counts before available: Progressing – Because
            reconciling: Progressing – Because
            stalled: Failed – Because
            no longer stalled: Ready
            ready of an older generation: Progressing – Because
            stalled at an older generation: Ready
            not observed: Progressing – its controller has not seen the latest change
            conditions of no known form: Ready
        "#]],
    );
    check(
        ("", "ConfigMap"),
        &[("data", json!({"data": {"a": "b"}}))],
        &expect![[r#"
        data: Ready
    "#]],
    );
}

#[test]
fn object_being_deleted_is_never_ready() {
    for kind in [("", "ConfigMap"), ("apps", "Deployment"), ("batch", "Job"), ("example.com", "Widget")] {
        let object = json!({"metadata": {"deletionTimestamp": "2026-11-21T08:00:00Z"}});
        assert_eq!(assess(&GroupKind::new(kind.0, kind.1), &object).health, Health::Progressing);
    }
}

#[test]
fn message_is_cut_between_characters() {
    let long = "ü".repeat(MESSAGE_BYTES_MAX);
    let object = json!({"status": {"conditions": [{"type": "Stalled", "status": "True", "message": long}]}});
    let found = assess(&GroupKind::new("example.com", "Widget"), &object);
    assert_eq!((found.message.len(), found.health), (MESSAGE_BYTES_MAX, Health::Failed));
}

fn widget(status: &str) -> Assessment {
    let status = RawValue::from_string(status.to_owned()).expect("it is JSON");
    super::assess(
        &GroupKind::new("example.com", "Widget"),
        Subject { generation: Some(2), status: Some(&status), ..Subject::default() },
    )
}

fn nested(levels: usize) -> String {
    "[".repeat(levels) + &"]".repeat(levels)
}

#[test]
fn what_no_rule_reads_of_a_status_may_be_of_any_depth_and_size() {
    let ready = r#"{"type":"Ready","status":"False","reason":"Because"}"#;
    let aside = format!(r#"{{"a":{},"conditions":[{ready}],"b":[{}0]}}"#, nested(5000), r#"{"a":0},"#.repeat(100_000));
    let found = widget(&aside);
    assert_eq!((found.health, &*found.message), (Health::Progressing, "Because"));
}

#[test]
fn an_object_of_which_a_rule_cannot_read_a_field_is_unknown_and_says_why() {
    let with = |conditions: &str| widget(&format!(r#"{{"observedGeneration":2,"conditions":{conditions}}}"#));
    let said = |conditions: &str| {
        let found = with(conditions);
        format!("{:?}, {:?}: {}", found.health, found.observed_generation, found.message)
    };
    expect![[r#"
        Unknown, Some(2): its .status.conditions is nested deeper than 127 levels and cannot be judged
        Unknown, Some(2): its .status.conditions has 200 KiB, more than the 128 KiB that are read to judge it
        Unknown, Some(2): its .status.conditions cannot be read: number out of range at line 1 column 6"#]]
    .assert_eq(
        &[&nested(FIELD_LEVELS_MAX + 1), &format!("\"{}\"", "x".repeat(200 << 10)), "[1e999]"].map(said).join("\n"),
    );
    let most = format!("\"{}\"", "x".repeat(FIELD_BYTES_MAX - 2));
    for readable in [&nested(FIELD_LEVELS_MAX), &most, "7", "null"] {
        assert_eq!(with(readable).health, Health::Ready);
    }
}

#[test]
fn a_status_that_cannot_be_read_hides_no_deletion_and_no_newer_generation() {
    let deep = format!(r#"{{"observedGeneration":1,"conditions":{}}}"#, nested(200));
    assert_eq!(widget(&deep).health, Health::Progressing);
    let status = RawValue::from_string(deep).expect("it is JSON");
    let subject = Subject { deleting: true, status: Some(&status), ..Subject::default() };
    assert_eq!(super::assess(&GroupKind::new("batch", "Job"), subject).health, Health::Progressing);
}
