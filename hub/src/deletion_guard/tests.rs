use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tideline_api::{Allow, Placement};
use tideline_apiserver::{Admission, Deletion, Identity};

use super::{DeletionGuard, FORCE_ANNOTATION};
use crate::clean;
use crate::engine::Engine;
use crate::ledger::Ledger;
use crate::link::core::Config;
use crate::placement::{GroupResource, Part, PlacementRule, SpaceRule};
use crate::removal_guards::Fuse;
use crate::shared::Shared;

const UID: &str = "00000000-0000-4000-8000-000000000001";

fn hub() -> Shared {
    let fuse = Fuse::new(20);
    let shared = Shared::new(Engine::new(Config::default(), Duration::ZERO, fuse, Ledger::default(), BTreeMap::new()));
    shared.read_mut(|engine| {
        engine.index.apply_space(&"default".parse().unwrap(), SpaceRule::try_from(&Allow::everything()).unwrap());
    });
    has(&shared, "Namespace", &json!({"name": "default", "uid": "n1"}));
    has(&shared, "Namespace", &json!({"name": "kube-system", "uid": "n2"}));
    let refused = deletes(&shared, "default", &json!({})).unwrap_err();
    assert!(refused.contains("not read to the end yet"), "{refused}");
    shared.read_mut(|engine| {
        let space = "default".parse().unwrap();
        engine.index.listed(Part::Placements(&space));
        engine.index.listed(Part::Objects(&space, &GroupResource::new("", "namespaces")));
    });
    shared
}

fn has(shared: &Shared, kind: &str, metadata: &Value) {
    let resource = GroupResource::new("", format!("{}s", kind.to_lowercase()));
    let object = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
    let source = clean::read(clean::SpaceServer::Embedded, &object).unwrap();
    shared.read_mut(|engine| engine.index.apply(&"default".parse().unwrap(), &resource, source));
}

fn deletes(shared: &Shared, space: &str, annotations: &Value) -> Result<(), String> {
    let object = json!({"metadata": {"name": space, "uid": UID, "annotations": annotations}});
    let (identity, object) = (Identity::new("admin", []), &object);
    let (group, resource) = ("tideline.dev", "spaces");
    DeletionGuard::new(shared, &["root", "default"]).deletes(&Deletion {
        identity: &identity,
        group,
        resource,
        object,
        dry_run: false,
    })
}

#[test]
fn a_space_is_deleted_when_nothing_of_anybody_is_in_it() {
    let shared = hub();
    deletes(&shared, "default", &json!({})).unwrap();
    has(&shared, "ConfigMap", &json!({"name": "menu", "namespace": "shop", "uid": "c1"}));
    let refused = deletes(&shared, "default", &json!({})).unwrap_err();
    assert!(refused.contains("it holds ConfigMap shop/menu") && refused.contains("Delete first"), "{refused}");
    // Nobody serves it.
    deletes(&shared, "other", &json!({})).unwrap();
    // A manifest that was said to be meant for another object says nothing of this one.
    deletes(&shared, "default", &json!({FORCE_ANNOTATION: "00000000-0000-4000-8000-000000000002"})).unwrap_err();
    deletes(&shared, "default", &json!({FORCE_ANNOTATION: UID})).unwrap();
}

#[test]
fn a_space_with_a_placement_alone_is_in_use() {
    let shared = hub();
    let placement = json!({
        "apiVersion": "tideline.dev/v1alpha1", "kind": "Placement", "metadata": {"name": "shops"},
        "spec": {"targets": [{"matchLabels": {"tier": "shop"}}], "objects": [{"resources": ["configmaps"]}]},
    });
    let placement: Placement = tideline_api::decode(placement).unwrap();
    let rule = PlacementRule::try_from(&placement.spec).unwrap();
    shared.read_mut(|engine| {
        engine.index.apply_placement(&"default".parse().unwrap(), "shops", "p1".parse().unwrap(), Ok(rule));
    });
    let refused = deletes(&shared, "default", &json!({})).unwrap_err();
    assert!(refused.contains("it holds Placement shops"), "{refused}");
}
