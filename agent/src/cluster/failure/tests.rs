use std::time::Duration;

use kube::core::Status;
use serde_json::{Value, json};
use tideline_common::{Reason, Recreate};

use super::{Failure, Refused, classify};
use crate::core::{Fate, FieldConflict};

fn status(value: Value) -> Status {
    serde_json::from_value(value).expect("a Status")
}

fn refused(code: u16, value: Value) -> Refused {
    Refused::Status { code, status: Box::new(status(value)), retry_after: None }
}

fn check(code: u16, value: Value, expected: Reason) {
    let status = status(value);
    assert_eq!(classify(code, &status, None).reason, expected, "{code} {status:?}");
}

#[test]
fn a_404_is_about_the_namespace_the_kind_or_the_object() {
    let namespace = json!({"message": "namespaces \"shop\" not found", "reason": "NotFound",
        "details": {"name": "shop", "kind": "namespaces"}});
    let kind =
        json!({"message": "the server could not find the requested resource", "reason": "NotFound", "details": {}});
    let object = json!({"message": "deployments.apps \"web\" not found", "reason": "NotFound",
        "details": {"name": "web", "group": "apps", "kind": "deployments"}});
    check(404, namespace.clone(), Reason::NamespaceUnavailable);
    check(404, kind.clone(), Reason::KindMissing);
    check(404, json!({"message": "404 page not found"}), Reason::KindMissing);
    check(404, object.clone(), Reason::Conflict);
    assert!(refused(404, object).is_object_missing());
    // A webhook hands on the answer to a question of its own.
    let denied = json!({"message": "admission webhook \"a.b\" denied the request: configmaps \"c\" not found", "reason": "NotFound",
        "details": {"name": "c", "kind": "configmaps"}});
    check(404, denied.clone(), Reason::Denied);
    assert!(!refused(404, denied).is_object_missing());
    assert!(!refused(404, namespace).is_object_missing());
    assert!(refused(404, kind).is_kind_missing());
}

/// What is refused was not done. Of an error from behind admission, or from a proxy, nobody knows.
#[test]
fn only_an_error_that_may_have_come_after_the_write_leaves_its_fate_unknown() {
    let of = |code: u16, reason: &str, message: &str| {
        classify(code, &status(json!({"reason": reason, "message": message})), None).fate
    };
    for (code, reason, message) in [
        (400, "BadRequest", "no"),
        (401, "Unauthorized", "no"),
        (403, "Forbidden", "no"),
        (409, "AlreadyExists", "no"),
        (422, "Invalid", "no"),
        (429, "TooManyRequests", "no"),
        (500, "InternalError", "failed calling webhook \"a.b\": connection refused"),
        (500, "InternalError", "etcdserver: mvcc: database space exceeded"),
        (500, "InternalError", "etcdserver: request is too large"),
        (503, "ServiceUnavailable", "the server is currently unable to handle the request"),
    ] {
        assert_eq!(of(code, reason, message), Fate::NotDone, "{code} {reason}: {message}");
    }
    for (code, reason, message) in [
        (500, "InternalError", "no"),
        (500, "InternalError", "etcdserver: request timed out"),
        (500, "InternalError", "etcdserver: leader changed"),
        (502, "Bad Gateway", "<html>no route</html>"),
        (503, "Service Unavailable", "<html>no route</html>"),
        (504, "Timeout", "context deadline exceeded"),
    ] {
        assert_eq!(of(code, reason, message), Fate::Unknown, "{code} {reason}: {message}");
    }
}

#[test]
fn a_403_is_a_terminating_namespace_a_denial_or_a_missing_permission() {
    check(
        403,
        json!({"message": "configmaps \"a\" is forbidden: unable to create new content in namespace shop because it is being terminated",
            "reason": "Forbidden", "details": {"name": "a", "kind": "configmaps", "causes": [{"reason": "NamespaceTerminating",
            "message": "namespace shop is being terminated", "field": "metadata.namespace"}]}}),
        Reason::NamespaceUnavailable,
    );
    check(
        403,
        json!({"message": "admission webhook \"policy.example\" denied the request: no", "reason": "Forbidden"}),
        Reason::Denied,
    );
    for text in [
        "pods \"a\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1",
        "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\": runAsNonRoot != true",
        "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'no-a' with binding 'everywhere' denied request: no a",
    ] {
        check(403, json!({"message": text, "reason": "Forbidden"}), Reason::Denied);
    }
    let escalation = "roles.rbac.authorization.k8s.io \"a\" is forbidden: user \"x\" (groups=[\"y\"]) is attempting to grant RBAC permissions not currently held";
    let aggregation = "clusterroles.rbac.authorization.k8s.io \"a\" is forbidden: must have cluster-admin privileges to use the aggregationRule";
    let owner = "configmaps \"a\" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>";
    for text in [escalation, aggregation, owner] {
        check(403, json!({"message": text, "reason": "Forbidden"}), Reason::Forbidden);
    }
    check(
        403,
        json!({"message": "deployments.apps is forbidden: User \"x\" cannot create resource", "reason": "Forbidden"}),
        Reason::Forbidden,
    );
    check(401, json!({"message": "Unauthorized", "reason": "Unauthorized"}), Reason::Unavailable);
}

#[test]
fn a_422_is_immutable_by_its_text_alone() {
    let invalid = |message: &str| json!({"message": message, "reason": "Invalid"});
    for text in [
        "Deployment.apps \"web\" is invalid: spec.selector: Invalid value: {}: field is immutable",
        "StatefulSet.apps \"db\" is invalid: spec: Forbidden: updates to statefulset spec for fields other than 'replicas' are forbidden",
        "Service \"web\" is invalid: spec.clusterIPs[0]: Invalid value: []: may not change once set",
        "PersistentVolumeClaim \"d\" is invalid: spec: Forbidden: spec is immutable after creation except resources.requests",
        "Pod \"p\" is invalid: spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`",
        "RoleBinding.rbac.authorization.k8s.io \"r\" is invalid: roleRef: Invalid value: cannot change roleRef",
    ] {
        check(422, invalid(text), Reason::Immutable);
    }
    check(
        422,
        invalid("Deployment.apps \"web\" is invalid: spec.replicas: must be greater than or equal to 0"),
        Reason::Invalid,
    );
}

/// Each of its causes may be. Whether the others would be wrong with a new object as well is found out by a dry run.
#[test]
fn a_422_is_immutable_if_any_of_its_causes_is() {
    let immutable = json!({"reason": "FieldValueInvalid", "message": "Invalid value: {}: field is immutable", "field": "spec.selector"});
    let invalid = json!({"reason": "FieldValueInvalid", "message": "Invalid value: -1: must be greater than or equal to 0", "field": "spec.replicas"});
    let message = "Deployment.apps \"web\" is invalid: [spec.selector: field is immutable, spec.replicas: must be …]";
    for (causes, reason) in [
        (json!([immutable]), Reason::Immutable),
        (json!([immutable, immutable]), Reason::Immutable),
        (json!([invalid, immutable]), Reason::Immutable),
        (json!([invalid]), Reason::Invalid),
    ] {
        check(422, json!({"message": message, "reason": "Invalid", "details": {"causes": causes}}), reason);
    }
}

#[test]
fn every_other_status_code_has_one_reason() {
    check(400, json!({"message": "strict decoding error", "reason": "BadRequest"}), Reason::Invalid);
    check(409, json!({"message": "the object has been modified", "reason": "Conflict"}), Reason::Conflict);
    check(413, json!({"message": "Request entity too large"}), Reason::TooLarge);
    check(429, json!({"message": "too many requests", "reason": "TooManyRequests"}), Reason::Throttled);
    check(500, json!({"message": "etcdserver: request is too large"}), Reason::TooLarge);
    check(
        500,
        json!({"message": "Internal error occurred: failed calling webhook \"a.b\": context deadline exceeded"}),
        Reason::Webhook,
    );
    check(500, json!({"message": "Internal error occurred: boom"}), Reason::Unavailable);
    check(503, json!({}), Reason::Unavailable);
    check(503, json!({"message": "service unavailable", "reason": "Service Unavailable"}), Reason::Unavailable);
    check(503, json!({"message": "the server is shutting down", "reason": "ServiceUnavailable"}), Reason::Throttled);
    check(504, json!({"message": "Timeout", "reason": "Timeout"}), Reason::Throttled);
    check(500, json!({"message": "try again", "reason": "ServerTimeout"}), Reason::Throttled);
    check(500, json!({"message": "etcdserver: request timed out"}), Reason::Throttled);
    check(429, json!({"message": "admission webhook \"quota.example\" denied the request: too many"}), Reason::Denied);
    let policy =
        "deployments.apps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: too many";
    check(422, json!({"message": policy, "reason": "Invalid"}), Reason::Denied);
    let changed = "admission webhook \"a.b\" attempted to modify the object, which is not supported for this operation";
    check(400, json!({"message": changed, "reason": "BadRequest"}), Reason::Webhook);
    let throttled = classify(429, &status(json!({})), Some(Duration::from_secs(7)));
    assert_eq!(throttled.retry_after, Some(Duration::from_secs(7)));
    assert_eq!(throttled.message, "the API server answered 429 ");
}

#[test]
fn a_field_conflict_names_manager_and_field_and_is_not_stale() {
    let conflict = refused(
        409,
        json!({"message": "Apply failed with 1 conflict", "reason": "Conflict", "details": {"causes": [
            {"reason": "FieldManagerConflict", "message": "conflict with \"kubectl-edit\" using apps/v1", "field": ".spec.replicas"},
            {"reason": "FieldManagerConflict", "message": "conflict with \"hpa\" with subresource \"scale\" using apps/v1", "field": ".spec.replicas"}]}}),
    );
    let expected = ["kubectl-edit", "hpa"]
        .map(|manager| FieldConflict { manager: manager.to_owned(), field: ".spec.replicas".to_owned() });
    assert_eq!(conflict.field_conflicts(), expected);
    assert_eq!(conflict.failure().reason, Reason::FieldConflict);
    assert!(!conflict.is_stale());
    let server = "Operation cannot be fulfilled on configmaps \"a\": Precondition failed: UID in precondition: 1, UID in object meta: 2";
    assert!(refused(409, json!({"message": server, "reason": "Conflict"})).is_stale());
    let webhook = "admission webhook \"objects.hnc.x-k8s.io\" denied the request: namespace \"a\" is locked";
    let denied = refused(409, json!({"message": webhook, "reason": "Conflict"}));
    assert_eq!((denied.is_stale(), denied.failure().reason), (false, Reason::Denied));
    let other = json!({"message": "invalid", "reason": "Invalid", "details": {"causes": [
        {"reason": "FieldValueInvalid", "message": "field is immutable", "field": "metadata.uid"}]}});
    assert!(refused(422, other).is_stale());
    assert!(!refused(422, json!({"message": "invalid", "reason": "Invalid"})).is_stale());
    assert!(refused(409, json!({"message": "there", "reason": "AlreadyExists"})).is_already_there());
}

#[test]
fn messages_are_cut_between_characters() {
    let message = classify(500, &status(json!({"message": "é".repeat(2000)})), None).message;
    assert!(message.len() <= 1024 && message.len() > 1020, "{}", message.len());
}

#[test]
fn an_immutable_field_error_names_the_policy_to_set() {
    let failure = Failure::new(Reason::Immutable, "spec.selector: field is immutable");
    let advised = failure.clone().with_advice(Recreate::Never).message;
    assert!(advised.contains("apply.recreate to OnImmutable") && advised.ends_with("field is immutable"), "{advised}");
    let refused = failure.with_advice(Recreate::OnImmutable).message;
    assert!(refused.contains("never deleted for that") && refused.ends_with("field is immutable"), "{refused}");
    assert!(refused.contains("Jobs that have run") && refused.contains("delete it"), "{refused}");
    let other = Failure::invalid("no");
    assert_eq!(other.clone().with_advice(Recreate::Never), other);
}
