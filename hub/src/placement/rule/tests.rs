use std::error::Error as _;

use expect_test::{Expect, expect};
use serde_json::{Value, json};
use tideline_api::Placement;
use tideline_common::{AssociatedKind, ReportClass};

use super::*;

fn read(spec: &Value) -> Result<PlacementRule, RuleError> {
    let object =
        json!({"apiVersion": "tideline.dev/v1alpha1", "kind": "Placement", "metadata": {"name": "p"}, "spec": spec});
    let placement: Placement = tideline_api::decode(object).expect("a Placement");
    PlacementRule::try_from(&placement.spec)
}

fn refused(spec: &Value, expected: &Expect) {
    let error = read(spec).expect_err("it is refused");
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    expected.assert_eq(&format!("{error}{cause}"));
}

#[test]
fn a_rule_that_cannot_hold_is_refused_with_its_place() {
    refused(
        &json!({"objects": [{"names": ["web"]}, {"apply": {"fields": [{"path": "$.spec[", "mode": "Initial"}]}}]}),
        &expect![[
            r#"spec.objects[1].apply.fields: "$.spec[" is not the path of a field: byte 7: expected a quoted name, an index, * or a filter"#
        ]],
    );
    refused(
        &json!({"additions": {"labels": {"tideline.dev/agent": "me"}}}),
        &expect!["spec.additions: tideline.dev/agent is for the agent alone to set"],
    );
}

#[test]
fn a_clause_that_does_not_say_what_it_means_is_refused() {
    for clause in
        [json!({}), json!({"name": "all", "apply": {"prune": "Orphan"}}), json!({"resources": [], "names": []})]
    {
        refused(
            &json!({"objects": [{"apiGroup": "*"}, clause]}),
            &expect![[
                r#"spec.objects[1] does not say which objects it means; give it one of apiGroup, resources, namespaces, namespaceSelectors, objectSelectors and names, or apiGroup: "*" for every object"#
            ]],
        );
    }
}

#[test]
fn a_clause_is_called_by_its_name_or_by_its_number_and_first_criterion() {
    let rule = read(&json!({"objects": [
        {"name": "web", "apiGroup": "*"}, {"apiGroup": "*"}, {"apiGroup": "apps"}, {"apiGroup": ""},
        {"apiGroup": "apps", "resources": ["deployments"]}, {"resources": ["configmaps"], "names": ["a"]},
        {"namespaces": ["shop"], "names": ["a"]}, {"names": ["a"]}, {"objectSelectors": [{}]},
    ]}));
    let called: Vec<_> = rule.expect("it is a rule").objects.into_iter().map(|clause| clause.called).collect();
    assert_eq!(
        called,
        [
            "the clause \"web\"",
            "spec.objects[1] (every object)",
            "spec.objects[2] (the group apps)",
            "spec.objects[3] (the core group)",
            "spec.objects[4] (deployments.apps)",
            "spec.objects[5] (configmaps)",
            "spec.objects[6] (namespace shop)",
            "spec.objects[7] (name a)",
            "spec.objects[8] (by labels)",
        ]
    );
}

#[test]
fn what_is_to_be_counted_is_part_of_its_clauses_policy() {
    let associated = json!(["pods", "replicasets", "pods"]);
    let rule = read(&json!({"objects": [{"apiGroup": "", "status": {"associated": associated}}, {"apiGroup": ""}]}))
        .expect("it is a rule");
    let asked: Vec<Vec<_>> = rule.objects.iter().map(|clause| clause.policy.associated.iter().collect()).collect();
    assert_eq!(asked, [vec![&AssociatedKind::ReplicaSets, &AssociatedKind::Pods], vec![]]);
}

#[test]
fn what_returns_is_part_of_its_clauses_policy_and_who_wants_the_status_gets_it() {
    let rule = read(&json!({"objects": [
        {"apiGroup": "", "status": {"return": "Never"}}, {"apiGroup": ""}, {"apiGroup": "", "status": {"return": "Auto"}}
    ]}));
    let clauses = rule.expect("it is a rule").objects;
    let classes: Vec<_> = clauses.iter().map(|clause| clause.policy.report.clone()).collect();
    assert_eq!(classes, [ReportClass::Health, ReportClass::Status, ReportClass::Status]);
    let both = clauses[0].policy.merge(&clauses[1].policy);
    assert_eq!(both.report, ReportClass::Status);
    assert!(clauses[0].policy.disagrees_with(&clauses[1].policy));
}

#[test]
fn what_a_placement_adds_is_part_of_every_clauses_policy() {
    let rule = read(&json!({"additions": {"labels": {"team": "a"}}, "objects": [
        {"apiGroup": "*"}, {"apiGroup": "*", "apply": {"prune": "Orphan"}}
    ]}));
    let clauses = rule.expect("it is a rule").objects;
    assert!(clauses.iter().all(|clause| clause.policy.additions.labels["team"] == "a"), "{clauses:?}");
}

#[test]
fn what_takes_too_much_room_in_the_ledger_is_refused_with_its_place() {
    let annotations = |count: usize| {
        let annotations = (0..count).map(|nth| (format!("a{nth:02}"), json!("x".repeat(4_096))));
        json!({"objects": [{"apiGroup": "*"}], "additions": {"annotations": annotations.collect::<serde_json::Map<_, _>>()}})
    };
    assert!(read(&annotations(15)).is_ok());
    refused(
        &annotations(16),
        &expect![
            "spec.objects[0]: how its objects are kept takes 65854 bytes with spec.additions, and may take 65536; add less, or have fewer or shorter fields"
        ],
    );
}
