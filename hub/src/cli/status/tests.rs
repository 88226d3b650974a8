use expect_test::{Expect, expect};

use super::*;

fn target(name: &str, status: &Value) -> Value {
    json!({
        "apiVersion": "tideline.dev/v1alpha1", "kind": "SyncTarget",
        "metadata": {"name": name}, "spec": {}, "status": status,
    })
}

fn ready(name: &str) -> Value {
    let status = json!({
        "phase": "Ready", "agentVersion": "0.1.0", "kubernetesVersion": "v1.35.4",
        "lastContact": "2026-03-01T09:59:48Z",
    });
    target(name, &status)
}

fn rollup(source: &Value, counts: &Value, worst: &Value) -> Value {
    json!({"metadata": {"name": "r"}, "source": source, "counts": counts, "worst": worst})
}

fn deployment(counts: &Value, worst: &Value) -> Value {
    let source = json!({
        "space": "default", "apiGroup": "apps", "kind": "Deployment", "namespace": "shop", "name": "storefront",
        "uid": "u", "generation": 3,
    });
    rollup(&source, counts, worst)
}

fn check(targets: Vec<Value>, rollups: Vec<Value>, expected: &Expect) {
    let now = "2026-03-01T10:00:00Z".parse().unwrap();
    expected.assert_eq(&Status::of("default", targets, rollups).unwrap().text(now));
}

#[test]
fn a_hub_without_clusters_says_how_one_joins() {
    check(
        vec![],
        vec![],
        &expect![[r"
        No cluster has joined yet. Let one join with the output of: tideline-hub token create NAME

        Nothing of the space default is placed on a cluster.
    "]],
    );
}

#[test]
fn columns_are_as_wide_as_what_is_in_them() {
    let namespace = json!({"space": "default", "apiGroup": "", "kind": "Namespace", "name": "shop", "uid": "n"});
    let all = json!({"expected": 312, "reported": 312, "applied": 312, "ready": 312});
    let rollups = vec![deployment(&all, &json!([])), rollup(&namespace, &all, &json!([]))];
    check(
        vec![ready("store-0002"), ready("a-store-with-a-longer-name")],
        rollups,
        &expect![[r"
        TARGET                       PHASE   AGENT   KUBERNETES   LAST CONTACT
        a-store-with-a-longer-name   Ready   0.1.0   v1.35.4      12s ago
        store-0002                   Ready   0.1.0   v1.35.4      12s ago

        KIND              NAMESPACE   NAME         EXPECTED   APPLIED   READY   PROGRESSING   FAILED   WITHHELD   DELETING   STALE   UNKNOWN
        Namespace         -           shop         312        312       312     0             0        0          0          0       0
        Deployment.apps   shop        storefront   312        312       312     0             0        0          0          0       0
    "]],
    );
}

#[test]
fn what_is_stale_or_failed_is_said_below() {
    let stale = json!({"phase": "Stale", "agentVersion": "0.1.0", "lastContact": "2026-03-01T03:00:00Z"});
    let targets =
        vec![ready("store-0001"), target("store-0002", &stale), target("store-0003", &json!({"phase": "Pending"}))];
    let counts = json!({"expected": 3, "reported": 2, "applied": 1, "failed": 1, "stale": 1, "unknown": 1});
    let worst = json!([
        {"target": "store-0001", "reason": "Conflict", "message": "spec.replicas belongs to\nkubectl\u{1b}[2J"},
        {"target": "store-0002", "reason": "Stale", "message": ""},
    ]);
    check(
        targets,
        vec![deployment(&counts, &worst)],
        &expect![[r"
        TARGET       PHASE     AGENT   KUBERNETES   LAST CONTACT
        store-0001   Ready     0.1.0   v1.35.4      12s ago
        store-0002   Stale     0.1.0   -            7h ago
        store-0003   Pending   -       -            -

        KIND              NAMESPACE   NAME         EXPECTED   APPLIED   READY   PROGRESSING   FAILED   WITHHELD   DELETING   STALE   UNKNOWN
        Deployment.apps   shop        storefront   3          1         0       0             1        0          0          1       1

        store-0002: not heard of in time; what it last reported is counted as stale. Is its agent running, and can it reach the hub?
        store-0003: it enrolled, and its agent has not opened a session yet.
        Deployment.apps shop/storefront on store-0001: Conflict: spec.replicas belongs to kubectl [2J
    "]],
    );
}

/// A token revokes the key of an agent that only waits for its annotation to be put back.
#[test]
fn who_is_shut_out_is_let_in_again_as_the_hub_says() {
    let shut_out = |name: &str, reason: &str, message: &str| {
        let ready = json!({
            "type": "Ready", "status": "False", "reason": reason, "message": message,
            "lastTransitionTime": "2026-03-01T03:00:00Z",
        });
        target(name, &json!({"phase": "Revoked", "conditions": [ready]}))
    };
    let revoked = shut_out("one", "Revoked", "the key was revoked. To let it in again: tideline-hub token create one");
    let withdrawn = shut_out("two", "Withdrawn", "its annotation was removed. The agent goes on when that is put back");
    check(
        vec![revoked, withdrawn],
        vec![],
        &expect![[r"
        TARGET   PHASE     AGENT   KUBERNETES   LAST CONTACT
        one      Revoked   -       -            -
        two      Revoked   -       -            -

        Nothing of the space default is placed on a cluster.

        one: its agent is shut out: the key was revoked. To let it in again: tideline-hub token create one
        two: its agent is shut out: its annotation was removed. The agent goes on when that is put back
    "]],
    );
}

#[test]
fn no_agent_writes_to_the_terminal_by_the_name_of_its_host() {
    let instances = json!([{"id": "1", "host": "a\u{1b}[2J\u{202e}", "holds": true}, {"id": "2", "host": "b"}]);
    let status = json!({"phase": "DuplicateAgent", "instances": instances});
    let status = Status::of("default", vec![target("store", &status)], Vec::new()).unwrap();
    let text = status.text("2026-03-01T10:00:00Z".parse().unwrap());
    assert!(text.contains("1 on a [2J  keeps the cluster"), "{text:?}");
}

#[test]
fn what_was_made_is_shown_where_it_was_asked_for() {
    let mut sent = deployment(&json!({"expected": 2, "reported": 2, "applied": 2, "progressing": 2}), &json!([]));
    sent["associated"] = json!({
        "pods": {
            "targets": 2, "total": 6, "ready": 3, "phases": {"Pending": 2, "Running": 4}, "restarts": 17,
            "reasons": {"CrashLoopBackOff": 1, "Unschedulable": 2},
        },
        "endpointslices": {"targets": 2, "total": 2, "ready": 2, "phases": {"Running": 2}, "endpoints": 4, "endpointsReady": 3},
        "leases": {"targets": 2},
    });
    check(
        vec![ready("store-0001")],
        vec![sent],
        &expect![[r#"
        TARGET       PHASE   AGENT   KUBERNETES   LAST CONTACT
        store-0001   Ready   0.1.0   v1.35.4      12s ago

        KIND              NAMESPACE   NAME         EXPECTED   APPLIED   READY   PROGRESSING   FAILED   WITHHELD   DELETING   STALE   UNKNOWN
        Deployment.apps   shop        storefront   2          2         0       2             0        0          0          0       0

        KIND              NAMESPACE   NAME         MADE             TARGETS   TOTAL   READY   PHASES                   RESTARTS   WAITING
        Deployment.apps   shop        storefront   pods             2         6       3       2 Pending, 4 Running     17         2 Unschedulable, 1 CrashLoopBackOff
        Deployment.apps   shop        storefront   endpointslices   2         2       2       3 of 4 endpoints ready   0          -
        Deployment.apps   shop        storefront   unknown          2         0       0       -                        0          -
    "#]],
    );
}

#[test]
fn a_long_tail_of_trouble_is_counted() {
    let targets = (0..13).map(|n| target(&format!("store-{n:02}"), &json!({"phase": "Stale"}))).collect();
    check(
        targets,
        vec![],
        &expect![[r"
        TARGET     PHASE   AGENT   KUBERNETES   LAST CONTACT
        store-00   Stale   -       -            -
        store-01   Stale   -       -            -
        store-02   Stale   -       -            -
        store-03   Stale   -       -            -
        store-04   Stale   -       -            -
        store-05   Stale   -       -            -
        store-06   Stale   -       -            -
        store-07   Stale   -       -            -
        store-08   Stale   -       -            -
        store-09   Stale   -       -            -
        store-10   Stale   -       -            -
        store-11   Stale   -       -            -
        store-12   Stale   -       -            -

        Nothing of the space default is placed on a cluster.

        store-00: not heard of in time; what it last reported is counted as stale. Is its agent running, and can it reach the hub?
        store-01: not heard of in time; what it last reported is counted as stale. Is its agent running, and can it reach the hub?
        store-02: not heard of in time; what it last reported is counted as stale. Is its agent running, and can it reach the hub?
        store-03: not heard of in time; what it last reported is counted as stale. Is its agent running, and can it reach the hub?
        store-04: not heard of in time; what it last reported is counted as stale. Is its agent running, and can it reach the hub?
        store-05: not heard of in time; what it last reported is counted as stale. Is its agent running, and can it reach the hub?
        store-06: not heard of in time; what it last reported is counted as stale. Is its agent running, and can it reach the hub?
        store-07: not heard of in time; what it last reported is counted as stale. Is its agent running, and can it reach the hub?
        store-08: not heard of in time; what it last reported is counted as stale. Is its agent running, and can it reach the hub?
        store-09: not heard of in time; what it last reported is counted as stale. Is its agent running, and can it reach the hub?
        … and 3 more; --output json shows all.
    "]],
    );
}

#[test]
fn a_record_that_cannot_be_read_is_shown_by_its_name() {
    let broken = json!({"metadata": {"name": "broken"}, "spec": 1});
    let newer = target("newer", &json!({"phase": "Hibernating"}));
    check(
        vec![broken, newer],
        vec![],
        &expect![[r"
        TARGET   PHASE     AGENT   KUBERNETES   LAST CONTACT
        broken   Unknown   -       -            -
        newer    Unknown   -       -            -

        Nothing of the space default is placed on a cluster.
    "]],
    );
}

#[test]
fn json_has_the_rollups_as_the_hub_sends_them() {
    let sent = deployment(&json!({"expected": 1, "new": 7}), &json!([]));
    let status = Status::of("default", vec![ready("store")], vec![sent.clone()]).unwrap();
    assert_eq!(status.json()["rollups"], json!([sent]));
    expect![[r#"[{"agentVersion":"0.1.0","heldDeletions":0,"instances":[],"kubernetesVersion":"v1.35.4","lastContact":"2026-03-01T09:59:48Z","name":"store","phase":"Ready"}]"#]].assert_eq(&status.json()["targets"].to_string());
}

#[test]
fn ages_are_in_the_unit_that_says_most() {
    let now = Timestamp::from_second(1_000_000).unwrap();
    let ages: Vec<_> = [-5, 0, 119, 120, 7_199, 7_200, 172_799, 172_800]
        .map(|age| ago(Timestamp::from_second(1_000_000 - age).unwrap(), now))
        .into();
    expect!["0s ago, 0s ago, 119s ago, 2m ago, 119m ago, 2h ago, 47h ago, 2d ago"].assert_eq(&ages.join(", "));
}

#[test]
fn continue_tokens_are_encoded() {
    assert_eq!(percent_encoded("a+b/c=&~"), "a%2Bb%2Fc%3D%26~");
}

#[test]
fn what_is_called_otherwise_at_targets_says_so() {
    let counts = json!({"expected": 2, "reported": 2, "applied": 1, "failed": 1});
    let worst = json!([{"target": "east", "namespace": "west-shop", "reason": "Forbidden", "message": "no"}]);
    let mut deployment = deployment(&counts, &worst);
    deployment["namespaces"] = json!(["east-shop", "west-shop", "yard"]);
    let namespace = json!({"space": "default", "apiGroup": "", "kind": "Namespace", "name": "shop", "uid": "n"});
    let mut namespace = rollup(&namespace, &json!({"expected": 1}), &json!([]));
    namespace["namespaces"] = json!(["east-shop"]);
    check(
        vec![ready("east")],
        vec![deployment, namespace],
        &expect![[r#"
        TARGET   PHASE   AGENT   KUBERNETES   LAST CONTACT
        east     Ready   0.1.0   v1.35.4      12s ago

        KIND              NAMESPACE                                NAME               EXPECTED   APPLIED   READY   PROGRESSING   FAILED   WITHHELD   DELETING   STALE   UNKNOWN
        Namespace         -                                        shop → east-shop   1          0         0       0             0        0          0          0       0
        Deployment.apps   shop → east-shop, west-shop and 1 more   storefront         2          1         0       0             1        0          0          0       0

        Deployment.apps shop/storefront on east as west-shop: Forbidden: no
    "#]],
    );
}

#[test]
fn a_claim_that_nothing_proves_is_said_of_its_target_and_breaks_no_history() {
    let text = |proven| {
        let unknown = HistoryBreak::SetUnknown {
            target: "west".to_owned(),
            segment: "s".to_owned(),
            epoch: tideline_common::Epoch(1),
            revision: tideline_common::Revision(90),
            after: tideline_common::Revision(70),
            proven,
        };
        let status = Status::of("default", vec![ready("east"), ready("west")], vec![]).unwrap();
        Status { breaks: vec![unknown], ..status }.text("2026-03-01T10:00:00Z".parse().unwrap())
    };
    let (proven, claimed) = (text(true), text(false));
    assert!(proven.starts_with("HISTORY IS BROKEN. ") && proven.contains("west (at 1.90)"), "{proven}");
    assert!(!claimed.contains("HISTORY") && claimed.contains("\nwest: its agent claims a set (at 1.90)"), "{claimed}");
}
