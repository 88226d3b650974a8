use std::collections::BTreeMap;

use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use tideline_api::{SyncTarget, SyncTargetSpec};
use tideline_apiserver::{MASTERS, SpaceConfig};

use super::*;
use crate::ledger::Ledger;
use crate::link::core::{Config, Origin, Request};
use crate::removal_guards::Fuse;
use crate::token::tests::Root;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn engine() -> Engine {
    Engine::new(Config::default(), Duration::ZERO, Fuse::new(20), Ledger::default(), BTreeMap::new())
}

fn asks(engine: &mut Engine, now: Monotonic, target: TargetId) {
    drop(engine.request(now, target, Request::Session(Box::default(), Origin::default())));
}

#[test]
fn a_contact_stays_when_it_was_while_time_goes_on() {
    let target: TargetId = "00000000-0000-4000-8000-000000000000".parse().unwrap();
    let (mut engine, hour) = (engine(), Duration::from_hours(1));
    let begun = at("2026-11-27T10:00:00Z");
    let heard = |engine: &Engine, after| heard(engine, target, Monotonic::START + after, begun + after);
    assert_eq!(heard(&engine, hour), None);
    asks(&mut engine, Monotonic::START + hour, target);
    for after in [hour, hour * 2, hour * 48] {
        assert_eq!(heard(&engine, after), Some(begun + hour));
    }
}

#[test]
fn a_contact_is_later_than_an_earlier_one_and_than_one_that_cannot_have_been() {
    let (contact, clock) = (at("2026-11-27T10:00:30Z"), at("2026-11-27T10:01:00Z"));
    let ahead = |stored: &str| ahead(contact, &json!(stored), clock);
    assert_eq!(ahead("2026-11-27T10:00:00Z"), Some(Duration::from_secs(30)));
    assert_eq!(ahead("2026-11-27T10:00:30Z"), None);
    assert_eq!(ahead("2026-11-27T10:00:45Z"), None);
    for no_contact in ["2027-01-01T00:00:00Z", "", "yesterday"] {
        assert_eq!(ahead(no_contact), Some(Duration::MAX), "{no_contact}");
    }
    assert_eq!(super::ahead(contact, &Value::Null, clock), Some(Duration::MAX));
}

#[tokio::test]
async fn people_are_shown_the_last_contact_and_the_hub_alone_stores_it() {
    let (root, shared) = (Root::new().await, Shared::new(engine()));
    let config = SpaceConfig { filled_fields: vec![field(&shared)], ..SpaceConfig::default() };
    root.server.create_space("root", config).await.unwrap();
    let as_user = |user: &str| {
        let user = Identity::new(user, [MASTERS.to_owned()]);
        Api::<SyncTarget>::all(Client::new(root.server.service("root", user), "default"))
    };
    let (people, hub) = (as_user("admin"), as_user(FIELD_MANAGER_HUB));
    for name in ["heard", "silent"] {
        people.create(&PostParams::default(), &SyncTarget::new(name, SyncTargetSpec::default())).await.unwrap();
        let stored = json!({"status": {"phase": "Ready", "lastContact": "2026-01-01T00:00:00Z"}});
        hub.patch_status(name, &PatchParams::default(), &Patch::Merge(stored)).await.unwrap();
    }
    let read = async |api: &Api<SyncTarget>, name: &str| {
        let target = api.get(name).await.unwrap();
        let status = target.status.clone().unwrap_or_default();
        (target, status.last_contact.map(|time| time.0).unwrap())
    };
    let stored = at("2026-01-01T00:00:00Z");
    let (mut target, contact) = read(&people, "heard").await;
    assert_eq!(contact, stored, "in this run nothing was heard yet");
    shared.step(|engine, now| asks(engine, now, target.uid().unwrap().parse().unwrap()));
    let version = target.resource_version();
    let begun = Timestamp::now();
    for (name, shown) in [("heard", true), ("silent", false)] {
        let (_, contact) = read(&people, name).await;
        assert_eq!(begun.duration_since(contact).as_secs() < 60, shown, "{contact}");
        assert_eq!(read(&hub, name).await.1, stored);
    }
    let listed = people.list(&ListParams::default()).await.unwrap().items;
    let recent = |target: &SyncTarget| {
        target.status.as_ref().is_some_and(|status| status.last_contact.as_ref().is_some_and(|at| at.0 > stored))
    };
    assert_eq!(listed.iter().map(recent).collect::<Vec<_>>(), [true, false]);
    target = read(&people, "heard").await.0;
    assert_eq!(target.resource_version(), version);
    // What was read is written back.
    let written = people.replace_status("heard", &PostParams::default(), &target).await.unwrap();
    assert_eq!(written.resource_version(), version);
    target.labels_mut().insert("site".to_owned(), "kiel".to_owned());
    people.replace("heard", &PostParams::default(), &target).await.unwrap();
    assert_eq!(read(&hub, "heard").await.1, stored);
}
