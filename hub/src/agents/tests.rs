use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use kube::api::{Patch, PatchParams, PostParams};
use kube::client::Body;
use serde_json::{Value, json};
use tideline_api::SyncTargetSpec;
use tideline_apiserver::{Admission, Identity};
use tideline_common::signature::SigningKey;
use tideline_common::wire::v1::{Decommission, Instance, ReportedRequest, SessionRequest};
use tideline_common::{Capabilities, InstanceId, SessionName, SessionNumber};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::committer;
use crate::deletion_guard::DeletionGuard;
use crate::engine::TargetRecord;
use crate::ledger::Ledger;
use crate::link::core::{Config, Origin, Request};
use crate::placement::Target;
use crate::removal_guards::Fuse;
use crate::shared;
use crate::statuses::target_status;
use crate::summary::Breach;
use crate::summary::tests::all_is_well;
use crate::sync_target::ATTEMPTS_MAX;
use crate::token::tests::Root;

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

fn record() -> TargetRecord {
    TargetRecord {
        name: "t".to_owned(),
        key: SigningKey::from_seed([1; 32]).public(),
        cluster: None,
        decommission: Decommission::No,
        accepted: None,
        released: None,
        adopts: None,
        without_effect: Vec::new(),
    }
}

/// One target whose agent has said that all is well.
fn at_work() -> Shared {
    let fuse = Fuse::new(20);
    let shared = Shared::new(Engine::new(Config::default(), Duration::ZERO, fuse, Ledger::default(), BTreeMap::new()));
    let id = TARGET.parse().unwrap();
    let target = Target::plain(id);
    shared.step(|engine, now| {
        engine.target_seen(now, target, Some(record()));
        engine.targets_listed(now);
    });
    persist(&shared);
    let asked = shared.step(|engine, now| engine.request(now, id, Request::Session(Box::default(), Origin::default())));
    persist(&shared);
    let report = ReportedRequest { session: SessionName::new(1, 0), ..all_is_well() };
    let told = shared.step(|engine, now| engine.request(now, id, Request::Reported(Box::new(report))));
    drop((asked, told));
    shared
}

fn deletes(shared: &Shared, annotations: &Value) -> Result<(), String> {
    tries_to_delete(shared, annotations, false)
}

fn tries_to_delete(shared: &Shared, annotations: &Value, dry_run: bool) -> Result<(), String> {
    let object = json!({"metadata": {"name": "t", "uid": TARGET, "annotations": annotations}});
    let identity = Identity::new("admin", []);
    let (group, resource, object) = ("tideline.dev", "synctargets", &object);
    let deletion = Deletion { identity: &identity, group, resource, object, dry_run };
    DeletionGuard::new(shared, &[]).deletes(&deletion)
}

/// Nobody reports anything at that moment, and the agent that keeps the cluster may have nothing to report for long.
#[test]
fn that_a_second_agent_has_the_identity_is_written_at_once() {
    let shared = at_work();
    let id: TargetId = TARGET.parse().unwrap();
    let written = |shared: &Shared| {
        shared.read_mut(Engine::take_dirty);
        shared.statuses().now_or_never()
    };
    written(&shared);
    assert!(shared.statuses().now_or_never().is_none(), "nothing is to be written");
    let copy = SessionRequest {
        instance: Instance { id: InstanceId(2), host: "copy".to_owned() },
        // It was told of the session in use, and its home does not know it.
        last: SessionNumber(1),
        capabilities: Capabilities::all(),
        ..SessionRequest::default()
    };
    shared.step(|engine, now| drop(engine.request(now, id, Request::Session(Box::new(copy), Origin::default()))));
    assert!(shared.statuses().now_or_never().is_some());
    let dirty = shared.read_mut(Engine::take_dirty);
    let (_, status) = shared.read(|engine| target_status(engine, id)).unwrap();
    assert_eq!((dirty.targets.contains(&id), &status["phase"]), (true, &json!("DuplicateAgent")));
    // And so is that it says too much.
    shared.step(|engine, now| engine.breached(now, id, Breach::Rate));
    assert!(shared.statuses().now_or_never().is_some());
}

#[test]
fn the_sync_target_of_an_agent_at_work_is_deleted_by_force_or_after_revocation_only() {
    let shared = at_work();
    let refused = deletes(&shared, &json!({})).unwrap_err();
    assert!(refused.contains("targets revoke t") && refused.contains("--force"), "{refused}");
    tries_to_delete(&shared, &json!({FORCE_ANNOTATION: TARGET}), true).unwrap();
    deletes(&shared, &json!({FORCE_ANNOTATION: "11111111-0000-4000-8000-000000000000"})).unwrap_err();
    let id: TargetId = TARGET.parse().unwrap();
    let target = Target::plain(id);
    shared.step(|engine, now| engine.target_seen(now, target.clone(), None));
    deletes(&shared, &json!({})).unwrap_err();
    let agent = shared.read(|engine| Agent::of(engine, id, engine.remembered(id).unwrap(), shared.now()));
    assert_eq!(agent.state, AgentState::Withdrawn, "a key that is lost is not revoked");
    let ready = || shared.read(|engine| target_status(engine, id)).unwrap().1["conditions"][0].clone();
    assert_eq!(ready()["reason"], json!("Withdrawn"));
    assert!(!ready()["message"].to_string().contains("token create"), "that would revoke it: {}", ready());
    shared.step(|engine, now| {
        engine.keys_revoked(id, "t", &[SigningKey::from_seed([1; 32]).public()]);
        engine.target_seen(now, target, None);
    });
    assert_eq!(ready()["reason"], json!("Revoked"));
    assert!(ready()["message"].to_string().contains("tideline-hub token create t"), "{}", ready());
    deletes(&shared, &json!({})).unwrap();
    shared.step(|engine, now| engine.target_gone(now, id, crate::engine::Deletion::default()));
    let agent = shared.read(|engine| Agent::of(engine, id, engine.remembered(id).unwrap(), shared.now()));
    assert_eq!((agent.state, agent.deleted_by.as_deref()), (AgentState::Deleted, Some("admin")));
    assert_eq!(agent.key, None, "a revoked key is not to be adopted");
}

#[test]
fn who_deletes_what_is_being_deleted_is_not_who_deleted_it() {
    let shared = at_work();
    deletes(&shared, &json!({FORCE_ANNOTATION: TARGET})).unwrap();
    let metadata = json!({
        "name": "t", "uid": TARGET, "annotations": {FORCE_ANNOTATION: TARGET}, "deletionTimestamp": "2026-11-23T03:00:00Z",
    });
    let (identity, object) = (Identity::new("somebody else", []), json!({"metadata": metadata}));
    let (group, resource, object) = ("tideline.dev", "synctargets", &object);
    let deletion = Deletion { identity: &identity, group, resource, object, dry_run: false };
    DeletionGuard::new(&shared, &[]).deletes(&deletion).unwrap();
    let id: TargetId = TARGET.parse().unwrap();
    shared.step(|engine, now| engine.target_gone(now, id, crate::engine::Deletion::default()));
    let deleted = shared.read(|engine| engine.remembered(id).and_then(|it| it.deleted.clone()));
    assert_eq!(deleted.and_then(|deletion| deletion.by).as_deref(), Some("admin"));
}

#[test]
fn the_deletion_guard_concerns_sync_targets_only() {
    let shared = at_work();
    let object = json!({"metadata": {"name": "t", "uid": TARGET}});
    let identity = Identity::new("admin", []);
    let (group, resource, object) = ("tideline.dev", "locations", &object);
    let deletion = Deletion { identity: &identity, group, resource, object, dry_run: false };
    assert_eq!(DeletionGuard::new(&shared, &[]).deletes(&deletion), Ok(()));
}

#[test]
fn who_was_not_heard_since_the_hub_was_started_may_be_at_work() {
    let shared = at_work();
    let id: TargetId = TARGET.parse().unwrap();
    let start = Monotonic::START;
    let after = |started: Duration| shared.read(|engine| super::at_work(engine, id, start + started));
    assert_eq!(after(Duration::ZERO), Some("its agent is at work"));
    // Another start: what the engine remembers of it is there before the inventory was read.
    let known = shared
        .read(|engine| engine.all_remembered_after(None).map(|(id, it)| (id, it.clone())).collect::<BTreeMap<_, _>>());
    let mut started = Engine::new(Config::default(), Duration::ZERO, Fuse::new(20), Ledger::default(), BTreeMap::new());
    started.remember(known);
    assert!(super::at_work(&started, id, start + Duration::from_mins(1)).is_some());
    assert_eq!(super::at_work(&started, id, start + Duration::from_mins(3)), None);
}

/// It is what a person compares before the agent is handed over.
#[test]
fn when_the_agent_of_a_deleted_sync_target_was_heard_last_outlives_the_hub_s_process() {
    let shared = at_work();
    let id: TargetId = TARGET.parse().unwrap();
    let (heard, at): (_, Timestamp) =
        (Monotonic::START + Duration::from_hours(1), "2026-11-23T04:00:00Z".parse().unwrap());
    shared.step(|engine, _| {
        drop(engine.request(heard, id, Request::Session(Box::default(), Origin::default())));
        let deletion = crate::engine::Deletion { at: Some(at), ..crate::engine::Deletion::default() };
        engine.target_gone(heard + Duration::from_mins(5), id, deletion);
    });
    let known = shared.read(|engine| engine.remembered(id).unwrap().clone());
    let known = serde_json::from_value(serde_json::to_value(known).unwrap()).unwrap();
    let mut next = Engine::new(Config::default(), Duration::ZERO, Fuse::new(20), Ledger::default(), BTreeMap::new());
    next.remember([(id, known)].into());
    let last = |engine: &Engine, now| Agent::of(engine, id, engine.remembered(id).unwrap(), now).last_contact;
    assert_eq!(last(&next, Monotonic::START), Some("2026-11-23T03:55:00Z".parse().unwrap()));
    // It asks again, frozen.
    drop(next.request(Monotonic::START, id, Request::Session(Box::default(), Origin::default())));
    assert!(
        last(&next, Monotonic::START)
            .is_some_and(|last| last != at && Timestamp::now().duration_since(last).as_secs() < 3600)
    );
}

/// The hub has run for long, and the annotation with the key is taken away and put back, or changed.
#[test]
fn whose_key_was_changed_by_a_slip_is_at_work_as_long_as_it_was_heard_a_moment_ago() {
    let id: TargetId = TARGET.parse().unwrap();
    let target = Target::plain(id);
    for shown in [&[None, Some(1)][..], &[Some(2)], &[Some(2), Some(1)], &[None]] {
        let shared = at_work();
        let heard = Monotonic::START + Duration::from_hours(1);
        shared.step(|engine, _| {
            drop(engine.request(heard, id, Request::Session(Box::default(), Origin::default())));
            for seed in shown {
                let key = seed.map(|seed| SigningKey::from_seed([seed; 32]).public());
                engine.target_seen(heard, target.clone(), key.map(|key| TargetRecord { key, ..record() }));
            }
        });
        let after = |mins| shared.read(|engine| super::at_work(engine, id, heard + Duration::from_mins(mins)));
        assert_eq!([after(1), after(3)], [Some("its agent is at work"), None], "{shown:?}");
    }
}

#[test]
fn a_dry_run_says_nothing_of_who_deleted_what() {
    let shared = at_work();
    tries_to_delete(&shared, &json!({FORCE_ANNOTATION: TARGET}), true).unwrap();
    let id: TargetId = TARGET.parse().unwrap();
    shared.step(|engine, now| engine.target_gone(now, id, crate::engine::Deletion::default()));
    let agent = shared.read(|engine| Agent::of(engine, id, engine.remembered(id).unwrap(), shared.now()));
    assert_eq!((agent.state, agent.deleted_by), (AgentState::Deleted, None));
}

fn an_agent(nth: u128, name: &str, state: AgentState, key: &str) -> Agent {
    Agent {
        name: name.to_owned(),
        target: TargetId::from_uuid(uuid::Uuid::from_u128(nth)),
        state,
        fingerprint: format!("of {key}"),
        key: (state != AgentState::Revoked).then(|| key.to_owned()),
        former_keys: Vec::new(),
        cluster: None,
        last_contact: None,
        deleted_at: None,
        reported: false,
        deleted_by: None,
        adopted_by: None,
        upgrade: None,
    }
}

#[test]
fn what_may_be_adopted_is_the_agent_of_a_deleted_sync_target_and_of_no_other() {
    let gone = an_agent(1, "store", AgentState::Deleted, "k1");
    let chosen = |others: &[Agent], key: Option<&str>, from: Option<u128>| {
        let agents: Vec<_> = std::iter::once(gone.clone()).chain(others.to_vec()).collect();
        let heir = (key.map(str::to_owned), Some(TargetId::from_uuid(uuid::Uuid::from_u128(9))));
        let from = from.map(|from| TargetId::from_uuid(uuid::Uuid::from_u128(from)));
        let chosen = choose(&agents, "store", (heir.0.as_ref(), heir.1), from);
        let nth = |agent: &Agent| (1..10).find(|nth| agent.target == TargetId::from_uuid(uuid::Uuid::from_u128(*nth)));
        chosen.map(|agent| nth(agent).unwrap()).map_err(|error| error.to_string())
    };
    let says = |outcome: Result<u128, String>, what: &str| {
        assert!(outcome.clone().is_err_and(|error| error.contains(what)), "{outcome:?}");
    };
    assert_eq!(chosen(&[], None, None), Ok(1));
    // Made again from what was saved of it, which has its key.
    assert_eq!(chosen(&[an_agent(9, "store", AgentState::Enrolled, "k1")], Some("k1"), None), Ok(1));
    says(chosen(&[], Some("k2"), None), "has an agent");
    says(chosen(&[], None, Some(3)), "remembers no deleted SyncTarget");
    let before = an_agent(2, "store", AgentState::Deleted, "k2");
    says(chosen(std::slice::from_ref(&before), None, None), "several agents");
    assert_eq!(chosen(std::slice::from_ref(&before), None, Some(2)), Ok(2));
    assert_eq!(chosen(&[before], Some("k2"), None), Ok(2));
    says(chosen(&[an_agent(3, "other", AgentState::Enrolled, "k1")], None, None), "belongs to SyncTarget other");
    says(chosen(&[an_agent(3, "other", AgentState::Withdrawn, "k1")], None, None), "belongs to SyncTarget other");
    says(chosen(&[an_agent(3, "other", AgentState::Revoked, "k1")], None, None), "revoked at SyncTarget other");
}

/// The SyncTarget that took the agent over had another name, and was deleted, too.
#[test]
fn the_agent_of_a_sync_target_is_adopted_from_where_it_went_on() {
    let heir = TargetId::from_uuid(uuid::Uuid::from_u128(9));
    let [first, second] = [(1, "store", 2), (2, "other", 3)].map(|(nth, name, by)| Agent {
        adopted_by: Some(TargetId::from_uuid(uuid::Uuid::from_u128(by))),
        ..an_agent(nth, name, AgentState::Adopted, "k1")
    });
    let third = an_agent(3, "other", AgentState::Deleted, "k1");
    let agents = [first.clone(), second, third.clone()];
    for from in [None, Some(first.target), Some(third.target)] {
        assert_eq!(choose(&agents, "store", (None, Some(heir)), from).unwrap().target, third.target);
    }
    let third = Agent { state: AgentState::Enrolled, ..third };
    let agents = [agents[0].clone(), agents[1].clone(), third];
    assert!(matches!(choose(&agents, "store", (None, Some(heir)), None), Err(Error::NoFormer(_))));
}

#[test]
fn a_sync_target_that_is_adopted_twice_has_its_agent_already() {
    let heir = TargetId::from_uuid(uuid::Uuid::from_u128(9));
    let agents = [
        Agent { adopted_by: Some(heir), ..an_agent(1, "store", AgentState::Adopted, "k1") },
        an_agent(9, "store", AgentState::Enrolled, "k1"),
    ];
    let has = |key: &str, uid: TargetId, from: Option<TargetId>| {
        let (key, heir) = (key.to_owned(), Some(uid));
        adopted(&agents, (Some(&key), heir), from).map(|agent| agent.target)
    };
    let first = Some(agents[0].target);
    assert_eq!([has("k1", heir, None), has("k1", heir, first)], [first, first]);
    assert_eq!(has("k2", heir, None), None, "it has another agent by now");
    assert_eq!(has("k1", heir, Some(heir)), None, "another is asked for");
    assert_eq!(has("k1", agents[0].target, None), None, "another SyncTarget has it");
    assert_eq!(adopted(&agents, (None, Some(heir)), None), None, "it was revoked since");
}

/// What somebody else writes to the SyncTarget.
#[derive(Clone, Copy)]
enum Others {
    /// Its status, as the hub does with what an agent says.
    Status,
    /// Its key.
    Key,
}

/// A client of the root space, to which somebody else writes the SyncTarget right before each of the first patches of it.
fn with_others(root: &Client, others: Others, writes: usize) -> Client {
    let left = Arc::new(AtomicUsize::new(writes));
    let inner = root.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (inner, left) = (inner.clone(), Arc::clone(&left));
        async move {
            let writes = request.method() == http::Method::PATCH
                && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
            if writes {
                let (api, params) = (Api::<SyncTarget>::all(inner.clone()), PatchParams::default());
                let left = left.load(Ordering::Relaxed).to_string();
                match others {
                    Others::Status => {
                        let status = json!({"status": {"agentVersion": left}});
                        api.patch_status("t", &params, &Patch::Merge(&status)).await?
                    }
                    Others::Key => {
                        let key = json!({"metadata": {"annotations": {AGENT_KEY_ANNOTATION: format!("key{left}")}}});
                        api.patch("t", &params, &Patch::Merge(&key)).await?
                    }
                };
            }
            inner.send(request).await
        }
    });
    Client::new(service, "default")
}

/// A root space that shows no agent, with a SyncTarget that has this key.
async fn root_with(key: Option<&str>) -> (Root, Api<SyncTarget>) {
    let root = Root::new().await;
    let api = Api::<SyncTarget>::all(root.client.clone());
    let mut target = SyncTarget::new("t", SyncTargetSpec::default());
    target.metadata.annotations = key.map(|key| [(AGENT_KEY_ANNOTATION.to_owned(), key.to_owned())].into());
    api.create(&PostParams::default(), &target).await.unwrap();
    (root, api)
}

/// An agent makes the hub write its status as often as it likes, and so does whoever stole its key.
#[tokio::test]
async fn what_an_agent_says_keeps_no_command_from_its_sync_target() {
    let (root, api) = root_with(None).await;
    let always = with_others(&root.client, Others::Status, usize::MAX);
    let key = "a2V5".to_owned();
    let agent = Agent { key: Some(key.clone()), ..an_agent(1, "t", AgentState::Deleted, "k1") };
    adopt(&always, "t", &agent).await.unwrap();
    let target = api.get("t").await.unwrap();
    assert_eq!(target.annotations().get(AGENT_KEY_ANNOTATION), Some(&key));
    let (heir, word) = (target.uid().unwrap().parse().unwrap(), &target.annotations()[ADOPTS_ANNOTATION]);
    assert_eq!(crate::enrol::read_adopts(word, heir), Some(agent.target));
    assert_eq!(crate::enrol::read_adopts(word, agent.target), None, "in a copy of the manifest");
    revoke_of(&always, "t", &[]).await.unwrap();
    let target = api.get("t").await.unwrap();
    assert_eq!(target.annotations().get(REVOKED_KEYS_ANNOTATION), Some(&key));
    assert_eq!(target.annotations().get(AGENT_KEY_ANNOTATION), None);
    assert!(target.status.is_some_and(|status| status.agent_version.is_some()), "nothing that others wrote is lost");
    remove(&always, "t", true).await.unwrap();
    assert!(api.get_opt("t").await.unwrap().is_none());
}

/// A key that was replaced by hand is served again where an old manifest is applied.
#[tokio::test]
async fn revoking_leaves_no_key_that_a_sync_target_ever_had() {
    let (root, api) = root_with(Some("present")).await;
    let uid = api.get("t").await.unwrap().uid().unwrap().parse().unwrap();
    let former_keys = vec!["first".to_owned(), "second".to_owned()];
    let agent = Agent { target: uid, former_keys, ..an_agent(1, "t", AgentState::Enrolled, "remembered") };
    revoke_of(&root.client, "t", &[agent]).await.unwrap();
    let target = api.get("t").await.unwrap();
    let revoked = target.annotations().get(REVOKED_KEYS_ANNOTATION).map(String::as_str);
    assert_eq!(revoked, Some("first second remembered present"));
    assert_eq!(target.annotations().get(AGENT_KEY_ANNOTATION), None);
}

/// Somebody pasted the annotation of another SyncTarget here once, and took it away again.
#[tokio::test]
async fn revoking_leaves_the_key_of_another_agent_at_work_unless_the_sync_target_has_that_one_now() {
    for (present, expected) in
        [("present", "first gone remembered present"), ("pasted", "first gone remembered pasted")]
    {
        let (root, api) = root_with(Some(present)).await;
        let uid = api.get("t").await.unwrap().uid().unwrap().parse().unwrap();
        let former_keys = ["first", "pasted", "gone"].map(str::to_owned).to_vec();
        let agents = [
            an_agent(1, "other", AgentState::Enrolled, "pasted"),
            an_agent(2, "deleted", AgentState::Deleted, "gone"),
            Agent { target: uid, former_keys, ..an_agent(3, "t", AgentState::Enrolled, "remembered") },
        ];
        revoke_of(&root.client, "t", &agents).await.unwrap();
        let target = api.get("t").await.unwrap();
        let revoked = target.annotations().get(REVOKED_KEYS_ANNOTATION).map(String::as_str);
        assert_eq!(revoked, Some(expected));
    }
    // It has nothing else that could be revoked.
    let (root, api) = root_with(None).await;
    let uid = api.get("t").await.unwrap().uid().unwrap().parse().unwrap();
    let agents = [
        an_agent(1, "other", AgentState::Enrolled, "pasted"),
        Agent {
            target: uid,
            key: None,
            former_keys: vec!["pasted".to_owned()],
            ..an_agent(2, "t", AgentState::Revoked, "")
        },
    ];
    let error = revoke_of(&root.client, "t", &agents).await.unwrap_err();
    assert!(matches!(error, Error::NoAgent(_)), "{error}");
}

#[tokio::test]
async fn what_is_written_to_a_sync_target_is_decided_by_the_key_that_it_has_then() {
    let (root, api) = root_with(Some("key")).await;
    revoke_of(&with_others(&root.client, Others::Key, 2), "t", &[]).await.unwrap();
    let target = api.get("t").await.unwrap();
    assert_eq!(target.annotations().get(REVOKED_KEYS_ANNOTATION).map(String::as_str), Some("key0"), "the last of them");
    // Where an agent enrols meanwhile, it is not put out by an adoption.
    let agent = Agent { key: Some("other".to_owned()), ..an_agent(1, "t", AgentState::Deleted, "k1") };
    let error = adopt(&with_others(&root.client, Others::Key, 1), "t", &agent).await.unwrap_err();
    assert!(matches!(error, Error::HasAgent(_)), "{error}");
    let error = revoke_of(&with_others(&root.client, Others::Key, ATTEMPTS_MAX), "t", &[]).await.unwrap_err();
    let in_vain = matches!(error, Error::SyncTarget(sync_target::Error::Request { operation: "revoke the key", .. }));
    assert!(in_vain, "{error}");
}

/// A hub of another version, which shows what this one does not know.
pub(crate) fn answering(root: &Client, plural: &'static str, items: Value) -> Client {
    let inner = root.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (inner, items) = (inner.clone(), items.clone());
        async move {
            if !request.uri().path().ends_with(plural) {
                return inner.send(request).await;
            }
            let kind = format!("{GROUP}/{VERSION}");
            let list = json!({"apiVersion": kind, "kind": "List", "metadata": {}, "items": items});
            Ok(http::Response::new(Body::from(list.to_string().into_bytes())))
        }
    });
    Client::new(service, "default")
}

/// Its key is one to be revoked with the others.
#[tokio::test]
async fn the_key_of_an_agent_in_a_state_that_is_not_known_is_revoked() {
    let (root, api) = root_with(None).await;
    let target = api.get("t").await.unwrap().uid().unwrap();
    let mut agent = json!(an_agent(1, "t", AgentState::Enrolled, "remembered"));
    (agent["state"], agent["target"]) = (json!("Suspended"), json!(target));
    agent["metadata"] = json!({"name": target});
    let newer = answering(&root.client, PLURAL, json!([agent]));
    assert_eq!(list(&newer).await.unwrap()[0].state, AgentState::Unknown);
    revoke(&newer, "t").await.unwrap();
    let target = api.get("t").await.unwrap();
    assert_eq!(target.annotations().get(REVOKED_KEYS_ANNOTATION).map(String::as_str), Some("remembered"));
}

#[tokio::test]
async fn an_agent_that_cannot_be_read_is_named_and_not_passed_over() {
    let (root, api) = root_with(Some("present")).await;
    let agent = json!({"metadata": {"name": "of-a-newer-hub"}, "name": "t", "target": "another form"});
    let newer = answering(&root.client, PLURAL, json!([agent]));
    let refused = revoke(&newer, "t").await.unwrap_err();
    assert!(refused.to_string().contains("Agent of-a-newer-hub"), "{refused}");
    assert!(api.get("t").await.unwrap().annotations().contains_key(AGENT_KEY_ANNOTATION), "nothing is done by halves");
}

/// The committer does nothing, as while it plans or waits for the store.
#[tokio::test(start_paused = true)]
async fn silence_becomes_stale_whatever_is_planned_or_written() {
    let (shared, shutdown) = (at_work(), CancellationToken::new());
    let target: TargetId = TARGET.parse().unwrap();
    let mut ticking = pin!(shared::tick(shared.clone(), shutdown.clone()));
    for (seconds, then) in [(119, Freshness::Fresh), (2, Freshness::Stale)] {
        assert!(timeout(Duration::from_secs(seconds), &mut ticking).await.is_err(), "it goes on");
        assert_eq!(shared.read(|engine| engine.freshness(target)), then);
    }
    shutdown.cancel();
    ticking.await.unwrap();
}
