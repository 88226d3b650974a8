use std::collections::BTreeMap;
use std::time::Duration;

use tideline_apiserver::Identity;
use tideline_common::SessionName;
use tideline_common::signature::SigningKey;
use tideline_common::wire::v1::{Decommission, ReportedRequest};

use super::*;
use crate::committer;
use crate::engine::TargetRecord;
use crate::fuse::Fuse;
use crate::ledger::Ledger;
use crate::link::core::{Config, Origin, Request};
use crate::placement::Target;

const TARGET: &str = "00000000-0000-4000-8000-000000000000";

fn persist(shared: &Shared) {
    loop {
        let work = shared.step(|engine, now| engine.work(committer::fresh(now)));
        if work.is_empty() {
            return;
        }
        shared.step(|engine, now| engine.committed(now, work));
    }
}

/// One target whose agent has said that all is well.
fn at_work() -> Shared {
    let fuse = Fuse::new(20);
    let shared = Shared::new(Engine::new(Config::default(), Duration::ZERO, fuse, Ledger::default(), BTreeMap::new()));
    let id = TARGET.parse().unwrap();
    let key = SigningKey::from_seed([1; 32]).public();
    let record = TargetRecord {
        name: "t".to_owned(),
        key,
        cluster: None,
        decommission: Decommission::No,
        accepted: None,
        adopts: None,
    };
    let target = Target { id, labels: BTreeMap::new(), unschedulable: false, decommissioned: false };
    shared.step(|engine, now| {
        engine.target_seen(now, target, Some(record));
        engine.targets_listed(now);
    });
    persist(&shared);
    let asked = shared.step(|engine, now| engine.request(now, id, Request::Session(Box::default(), Origin::default())));
    persist(&shared);
    let report = ReportedRequest {
        session: SessionName::new(1, 0),
        seq: 1,
        accepted: None,
        applied: None,
        in_sync: true,
        conditions: Vec::new(),
        objects: Vec::new(),
        associated: Vec::new(),
        removed: Vec::new(),
        overtaken: Vec::new(),
        decommission: None,
        goodbye: false,
    };
    let told = shared.step(|engine, now| engine.request(now, id, Request::Reported(Box::new(report))));
    drop((asked, told));
    shared
}

fn deletes(shared: &Shared, annotations: &Value) -> Result<(), String> {
    let object = json!({"metadata": {"name": "t", "uid": TARGET, "annotations": annotations}});
    let identity = Identity::new("admin", []);
    let deletion = Deletion { identity: &identity, group: "tideline.dev", resource: "synctargets", object: &object };
    Guard::new(shared).deletes(&deletion)
}

#[test]
fn the_sync_target_of_an_agent_at_work_is_deleted_by_force_or_after_revocation_only() {
    let shared = at_work();
    let refused = deletes(&shared, &json!({})).unwrap_err();
    assert!(refused.contains("targets revoke t") && refused.contains("--force"), "{refused}");
    deletes(&shared, &json!({FORCE_ANNOTATION: "force"})).unwrap();
    let id: TargetId = TARGET.parse().unwrap();
    let target = Target { id, labels: BTreeMap::new(), unschedulable: false, decommissioned: false };
    shared.step(|engine, now| engine.target_seen(now, target.clone(), None));
    deletes(&shared, &json!({})).unwrap_err();
    let agent = shared.read(|engine| Agent::of(engine, id, engine.remembered(id).unwrap(), &shared));
    assert_eq!(agent.standing, Standing::Withdrawn, "a key that is lost is not revoked");
    shared.step(|engine, now| {
        engine.keys_revoked(id, "t", &[SigningKey::from_seed([1; 32]).public()]);
        engine.target_seen(now, target, None);
    });
    deletes(&shared, &json!({})).unwrap();
    shared.step(|engine, now| engine.target_gone(now, id, crate::engine::Deletion::default()));
    let agent = shared.read(|engine| Agent::of(engine, id, engine.remembered(id).unwrap(), &shared));
    assert_eq!((agent.standing, agent.deleted_by.as_deref()), (Standing::Deleted, Some("admin")));
    assert_eq!(agent.key, None, "a revoked key is not to be adopted");
}

#[test]
fn what_is_no_sync_target_is_nobodys_business() {
    let shared = at_work();
    let object = json!({"metadata": {"name": "t", "uid": TARGET}});
    let identity = Identity::new("admin", []);
    let deletion = Deletion { identity: &identity, group: "tideline.dev", resource: "locations", object: &object };
    assert_eq!(Guard::new(&shared).deletes(&deletion), Ok(()));
}
