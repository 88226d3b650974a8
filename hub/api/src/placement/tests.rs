use serde_json::json;

use super::*;
use crate::decode;

fn example() -> serde_json::Value {
    json!({
        "apiVersion": "tideline.dev/v1alpha1",
        "kind": "Placement",
        "metadata": {"name": "storefront"},
        "spec": {
            "locations": [{"matchLabels": {"continent": "europe"}}],
            "targets": [{"matchLabels": {"tier": "shop"}}, {"names": ["store-0042"]}],
            "numberOfTargets": 3,
            "objects": [{
                "name": "storefront",
                "apiGroup": "apps",
                "resources": ["deployments"],
                "namespaces": ["shop"],
                "objectSelectors": [{"matchLabels": {"app": "storefront"}}],
                "apply": {
                    "mode": "Continuous", "conflicts": "Force", "takeover": "IfUnmanaged", "recreate": "Never",
                    "prune": "Delete", "pruneAdopted": false, "drift": "Correct", "approveDeletions": "Ask",
                    "fields": [{"path": "/spec/replicas", "mode": "Initial"}]
                },
                "status": {
                    "return": "Auto", "whenStale": "Keep",
                    "collectors": ["by-region"], "associated": ["replicasets", "pods"]
                }
            }],
            "additions": {"labels": {"team": "shop"}, "annotations": {"cost/centre": "42"}},
            "namespaceMapping": {"prefix": "store-", "map": {"shop": "storefront"}},
            "ordering": {"readinessGate": false, "readinessDeadlineSeconds": 600}
        }
    })
}

#[test]
fn the_documented_example_survives_a_round_trip() {
    let placement: Placement = decode(example()).unwrap();
    assert_eq!(serde_json::to_value(&placement).unwrap(), example());
}

#[test]
fn an_empty_clause_has_the_documented_defaults() {
    let clause: ObjectClause = serde_json::from_value(json!({})).unwrap();
    let expected = json!({
        "apply": {
            "mode": "Continuous", "conflicts": "Force", "takeover": "IfUnmanaged", "recreate": "Never",
            "prune": "Delete", "pruneAdopted": false, "drift": "Correct", "approveDeletions": "Ask"
        },
        "status": {"return": "Auto", "whenStale": "Keep"}
    });
    assert_eq!(serde_json::to_value(&clause).unwrap(), expected);
}

#[test]
fn the_default_policy_is_the_default_of_the_wire() {
    assert_eq!(common::ApplyPolicy::from(ApplyPolicy::default()), common::ApplyPolicy::default());
}

#[test]
fn every_value_reaches_the_wire_under_its_own_name() {
    let policy = json!({
        "mode": "CreateOnly", "conflicts": "Report", "takeover": "Always", "recreate": "OnImmutable",
        "prune": "Orphan", "pruneAdopted": true, "drift": "Report", "approveDeletions": "InAdvance"
    });
    let wire = common::ApplyPolicy::from(serde_json::from_value::<ApplyPolicy>(policy).unwrap());
    let expected = common::ApplyPolicy {
        additions: common::Additions::default(),
        mode: common::ApplyMode::CreateOnly,
        conflicts: common::ConflictPolicy::Report,
        takeover: common::Takeover::Always,
        recreate: common::Recreate::OnImmutable,
        prune: common::Prune::Orphan,
        prune_adopted: common::PruneAdopted::AsCreated,
        drift: common::DriftPolicy::Report,
        approve_deletions: common::ApproveDeletions::InAdvance,
        fields: Vec::new(),
        gates: Vec::new(),
        associated: BTreeSet::new(),
        report: common::ReportClass::Status,
    };
    assert_eq!(wire, expected);
}

#[test]
fn field_exceptions_are_ordered_and_the_least_destructive_of_a_path_holds() {
    let field = |path: &str, mode| FieldPolicy { path: path.to_owned(), mode };
    let policy = ApplyPolicy {
        fields: vec![
            field("/spec/z", FieldMode::Initial),
            field("/spec/a", FieldMode::Continuous),
            field("/spec/a", FieldMode::Ignored),
        ],
        ..ApplyPolicy::default()
    };
    let wire = common::ApplyPolicy::from(policy);
    let fields: Vec<_> = wire.fields.iter().map(|field| (field.path.as_str(), field.mode)).collect();
    assert_eq!(fields, [("/spec/a", common::FieldMode::Ignored), ("/spec/z", common::FieldMode::Initial)]);
}
