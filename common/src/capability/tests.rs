use expect_test::expect;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{CAPABILITIES_MAX, Capabilities, Capability, needs, upgrade, withheld};
use crate::desired::{DesiredSet, Entry, EntryState, Impersonation};
use crate::digest::Digest;
use crate::object::{GroupKind, ObjectKey, SourceRef};
use crate::policy::{ApplyPolicy, PrunePolicy, tests::policy};
use crate::reason::Reason;
use std::sync::Arc;

fn entry() -> impl Strategy<Value = (Entry, ApplyPolicy)> {
    let kind = prop::sample::select(vec![("batch", "Job"), ("batch", "CronJob"), ("", "ConfigMap")]);
    let state = prop::sample::select(vec![
        EntryState::Apply,
        EntryState::Hold(Reason::Settling),
        EntryState::Withheld(Reason::Conflict),
    ]);
    (kind, "[a-z]{1,4}", state, policy(), any::<bool>(), any::<bool>(), 0..9_i64).prop_map(
        |((group, kind), name, state, policy, impersonate, implied, generation)| {
            let key = ObjectKey::new(GroupKind::new(group, kind), "shop", name.as_str());
            let account = Impersonation { namespace: "shop".into(), name: "deployer".into() };
            let source = SourceRef {
                space: "retail".parse().unwrap(),
                uid: "u-1".parse().unwrap(),
                namespace: "shop".into(),
                name: name.as_str().into(),
            };
            let entry = Entry {
                key,
                version: "v1".into(),
                source,
                generation,
                state,
                input: Digest::of(name.as_bytes()),
                policy: policy.digest(),
                wave: 3,
                impersonate: impersonate.then(|| Arc::new(account)),
                implied,
            };
            (entry, policy)
        },
    )
}

/// What of this a message needs, found independently of [`needs`].
fn speaks_of(capability: Capability, entry: &Value, policy: &Value) -> bool {
    let differs = |field: &str, usual: &str| policy[field].as_str() != Some(usual);
    match capability {
        Capability::RunOnce => {
            let job = entry["kind"] == "Job" && entry["group"] == "batch" && entry["state"] != "Withheld";
            job || differs("mode", "Continuous")
        }
        Capability::Additions => policy.get("additions").is_some(),
        Capability::ConflictReports => differs("conflicts", "Force"),
        Capability::Takeover => differs("takeover", "IfUnmanaged"),
        Capability::Recreate => differs("recreate", "Never"),
        Capability::DriftReports => differs("drift", "Correct"),
        Capability::FieldPolicies => policy.get("fields").is_some(),
        Capability::Gates => policy.get("gates").is_some(),
        Capability::AssociatedCounts => policy.get("associated").is_some(),
        Capability::Impersonation => entry.get("impersonate").is_some(),
        Capability::Decommission | Capability::Approvals | Capability::Releases | Capability::Handover => false,
    }
}

proptest! {
    #[test]
    fn entries_that_an_agent_does_not_understand_are_withheld_and_all_others_sent(
        entries in prop::collection::vec(entry(), 1..6),
        lacks in prop::sample::subsequence(Capability::ALL, 0..Capability::ALL.len()),
    ) {
        let understands = lacks.iter().fold(Capabilities::all(), |all, lacked| all.without(*lacked));
        let mut told = DesiredSet::default();
        for (entry, policy) in &entries {
            let needed = needs(entry, policy);
            let missing: Vec<_> = lacks.iter().filter(|lacked| needed.contains(lacked)).collect();
            if missing.is_empty() {
                told.insert(Arc::new(entry.clone()));
                continue;
            }
            let instead = withheld(entry, policy);
            let (json, by) = (json!(instead.entry), json!(instead.policy));
            for capability in Capability::ALL {
                prop_assert!(!speaks_of(*capability, &json, &by), "{} in {} and {}", capability, json, by);
            }
            prop_assert_eq!(instead.entry.state, EntryState::Withheld(Reason::AgentTooOld));
            prop_assert_eq!(instead.entry.policy, instead.policy.digest());
            prop_assert!(needs(&instead.entry, &instead.policy).is_empty());
            // It keeps its key, and what becomes of it when it is removed.
            let same = (&instead.entry.key, &instead.entry.source) == (&entry.key, &entry.source);
            prop_assert!(same && instead.entry.prune_policy(&instead.policy) == entry.prune_policy(policy));
            prop_assert_eq!(PrunePolicy::of(&instead.policy), PrunePolicy::of(policy));
            told.insert(Arc::new(instead.entry));
        }
        let told = |entry: &Entry| told.get(&entry.key).is_some_and(|it| **it == *entry);
        for (entry, policy) in entries.iter().filter(|(entry, _)| !entry.implied && told(entry)) {
            for lacked in &lacks {
                prop_assert!(!speaks_of(*lacked, &json!(entry), &json!(policy)), "{} is told", lacked);
            }
        }
        prop_assert_eq!(understands.missing().into_iter().collect::<Vec<_>>(), lacks);
    }
}

#[test]
fn names_that_are_not_known_are_kept_and_mean_nothing() {
    let newer: Capabilities = serde_json::from_value(json!(["gates", "teleport"])).unwrap();
    assert!(newer.has(Capability::Gates) && !newer.has(Capability::RunOnce));
    assert_eq!(json!(newer), json!(["gates", "teleport"]));
    let long = "x".repeat(100);
    let mut many: Vec<String> = (0..1000).map(|nth| format!("a-{nth}")).collect();
    many.extend([long, "takeover".to_owned()]);
    let read: Capabilities = serde_json::from_value(json!(many)).unwrap();
    let names: Vec<String> = serde_json::from_value(json!(read)).unwrap();
    assert_eq!(names.len(), CAPABILITIES_MAX);
    assert!(read.has(Capability::Takeover), "what is known is not crowded out by what is not");
    assert!(names.iter().all(|name| name.len() < 100));
}

#[test]
fn a_withheld_entry_names_the_version_to_upgrade_to() {
    expect!["its agent is too old for run-once, gates: upgrade the agent to at least 0.1.0"]
        .assert_eq(&upgrade(&[Capability::RunOnce, Capability::Gates]));
}

#[test]
fn every_capability_has_a_name_of_its_own() {
    let names: std::collections::BTreeSet<_> = Capability::ALL.iter().map(|capability| capability.as_str()).collect();
    assert_eq!(names.len(), Capability::ALL.len());
    assert_eq!(Capabilities::all().missing(), std::collections::BTreeSet::new());
}
