use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Response;
use kube::Api;
use kube::api::PostParams;
use kube::client::Body;
use proptest::prelude::*;
use tideline_api::{SyncTarget, SyncTargetSpec};
use tideline_common::signature::SigningKey;

use super::*;
use crate::engine::TargetRecord;
use crate::ledger::Ledger;
use crate::link::core::Config;
use crate::placement::{PlacementRule, SpaceRule, Target};
use crate::removal_guards::Fuse;
use crate::token::tests::Root;

/// One SyncTarget, which is told of a thousand times at once, and as often in ten seconds, at an API server that always answers so:
/// the number of requests, at once and in all.
async fn requests(code: u16, reason: &'static str) -> (usize, usize) {
    let fuse = Fuse::new(20);
    let shared = Shared::new(Engine::new(Config::default(), Duration::ZERO, fuse, Ledger::default(), BTreeMap::new()));
    let id: TargetId = "00000000-0000-4000-8000-000000000000".parse().unwrap();
    let record = TargetRecord {
        name: "t".to_owned(),
        key: SigningKey::from_seed([1; 32]).public(),
        cluster: None,
        decommission: Decommission::No,
        accepted: None,
        released: None,
        adopts: None,
        without_effect: Vec::new(),
    };
    let told = || {
        let target = Target::plain(id);
        shared.step(|engine, now| engine.target_seen(now, target, Some(record.clone())));
    };
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let service = tower::service_fn(move |_: http::Request<Body>| {
        counted.fetch_add(1, Ordering::Relaxed);
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "", "code": code, "reason": reason,
        });
        let answer = Response::builder().status(code).body(Body::from(status.to_string().into_bytes())).unwrap();
        async move { Ok::<_, Infallible>(answer) }
    });
    let clients = BTreeMap::from([(SpaceName::root(), Client::new(service, "default"))]);
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(run(shared.clone(), clients, shutdown.clone()));
    let mut counts = [0; 2];
    for (count, pause) in counts.iter_mut().zip([Duration::ZERO, Duration::from_millis(10)]) {
        for _ in 0..1_000 {
            told();
            tokio::time::advance(pause).await;
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
        *count = asked.load(Ordering::Relaxed);
    }
    shutdown.cancel();
    running.await.unwrap().unwrap();
    (counts[0], counts[1])
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_tried_again_when_it_is_due_however_often_it_is_told_of() {
    for code in [500, 503, 429] {
        let (at_once, in_ten_seconds) = requests(code, "").await;
        assert_eq!(at_once, 1, "{code}");
        assert!((3..50).contains(&in_ten_seconds), "{code}: {in_ten_seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_not_tried_again() {
    for code in [400, 404, 405, 409, 413, 422] {
        assert_eq!(requests(code, "").await, (1, 1), "{code}");
    }
    assert_eq!(requests(500, "StorageReadError").await, (1, 1), "the object cannot be read");
}

/// What is told of one write makes none of another wait, or come earlier.
#[tokio::test(start_paused = true)]
async fn each_write_waits_for_itself() {
    let mut retries = Retries::default();
    let begun = Instant::now();
    let mut tries = [0; 2];
    for milliseconds in 0..60_000 {
        let now = begun + Duration::from_millis(milliseconds);
        for key in retries.due(now, [0_usize, 1]) {
            tries[key] += 1;
            if key == 0 {
                retries.failed(now, key);
            } else {
                retries.ended(&key);
            }
        }
        assert!(retries.next().is_some_and(|at| at > now));
    }
    assert_eq!(tries[1], 60_000);
    assert!((4..60).contains(&tries[0]), "{}", tries[0]);
    assert!(retries.is_due(begun, &1) && !retries.is_due(begun, &0));
    retries.retain(|_| false);
    assert_eq!(retries.next(), None);
}

proptest! {
    /// With any type twice, the list would be refused.
    #[test]
    fn a_list_of_conditions_has_each_type_once_as_it_was_said_first(said in prop::collection::vec(0..6u8, 0..20)) {
        let conditions = said.iter().enumerate().map(|(nth, of)| json!({"type": format!("T{of}"), "message": nth}));
        let listed = by_type(conditions.clone());
        for condition in conditions {
            let same: Vec<_> = listed.iter().filter(|listed| listed["type"] == condition["type"]).collect();
            prop_assert_eq!(same.len(), 1);
            prop_assert!(same[0]["message"].as_u64() <= condition["message"].as_u64());
        }
    }
}

#[test]
fn no_message_is_longer_than_its_field() {
    for letter in ["a", "ä", "\u{1f30a}"] {
        let long = condition("Ready", ("False", Reason::HistoryLost), &letter.repeat(CONDITION_MESSAGE_MAX));
        let message = long["message"].as_str().unwrap();
        assert!(message.len() <= CONDITION_MESSAGE_MAX && message.len() > CONDITION_MESSAGE_MAX - letter.len());
    }
}

/// A hub of one SyncTarget, and writes into its status.
struct Writes {
    shared: Shared,
    made: Arc<AtomicUsize>,
}

impl Writes {
    /// At an API server that takes everything.
    fn new() -> (Self, Clients) {
        let fuse = Fuse::new(20);
        let shared =
            Shared::new(Engine::new(Config::default(), Duration::ZERO, fuse, Ledger::default(), BTreeMap::new()));
        let made = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&made);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            counted.fetch_add(usize::from(request.method() == http::Method::PATCH), Ordering::Relaxed);
            async move { Ok::<_, Infallible>(Response::new(Body::from(b"{}".to_vec()))) }
        });
        (Self { shared, made }, BTreeMap::from([(SpaceName::root(), Client::new(service, "default"))]))
    }

    /// Changes what its status says.
    fn change(&self, nth: u64) {
        let id: TargetId = "00000000-0000-4000-8000-000000000000".parse().unwrap();
        let decommission = if nth.is_multiple_of(2) { Decommission::Keep } else { Decommission::Remove };
        let record = TargetRecord {
            name: "t".to_owned(),
            key: SigningKey::from_seed([1; 32]).public(),
            cluster: None,
            decommission,
            accepted: None,
            released: None,
            adopts: None,
            without_effect: Vec::new(),
        };
        let target = Target { decommission, ..Target::plain(id) };
        self.shared.step(|engine, now| engine.target_seen(now, target, Some(record)));
    }

    async fn pass(&self, time: Duration) -> usize {
        // Who was woken says first how long it waits.
        for pause in [Duration::ZERO, time] {
            tokio::time::advance(pause).await;
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
        }
        self.made.load(Ordering::Relaxed)
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_changes_all_the_time_is_written_once_in_five_seconds_and_as_it_is_last() {
    let (writes, clients) = Writes::new();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(run(writes.shared.clone(), clients, shutdown.clone()));
    writes.pass(Duration::from_secs(1)).await;
    writes.change(0);
    assert_eq!(writes.pass(SETTLES_IN).await, 1, "the first goes at once");
    let mut made = 1;
    for nth in 1..=300 {
        writes.change(nth);
        made = writes.pass(SETTLES_IN).await;
    }
    assert!((6..=7).contains(&made), "{made}");
    // The last word is written, and nothing after it.
    assert_eq!(writes.pass(pace::EVERY).await, 7);
    assert_eq!(writes.pass(pace::EVERY * 10).await, 7);
    writes.change(301);
    assert_eq!(writes.pass(SETTLES_IN).await, 8, "after a quiet time one goes at once");
    shutdown.cancel();
    running.await.unwrap().unwrap();
}

#[test]
fn what_comes_during_a_round_has_its_turn_after_all_of_it() {
    let id = |nth: u32| SourceId {
        space: SpaceName::root(),
        resource: crate::placement::GroupResource::new("", "configmaps"),
        uid: format!("u{nth}").parse().unwrap(),
    };
    let mut backlog = backlog::Backlog::default();
    backlog.add((0..4).map(id));
    assert_eq!(backlog.take(2), [id(0), id(1)]);
    backlog.add([id(0), id(3)]);
    assert_eq!(backlog.take(3), [id(2), id(3)]);
    assert_eq!(backlog.take(3), [id(0), id(3)]);
    assert!(backlog.is_empty());
}

#[test]
fn a_space_says_what_cannot_be_read_in_it_and_in_the_root_space() {
    let mut engine = Engine::new(Config::default(), Duration::ZERO, Fuse::new(20), Ledger::default(), BTreeMap::new());
    let spaces = ["one", "two"].map(|name| name.parse::<SpaceName>().unwrap());
    for space in &spaces {
        engine.index.apply_space(space, SpaceRule::default());
    }
    let said = |engine: &Engine| -> Vec<String> {
        let statuses = space_statuses(engine, &Clients::new(), &engine.kept_counts());
        let message = |(_, status): &(Described, Value)| {
            let conditions = status["conditions"].as_array().unwrap();
            let unreadable = conditions.iter().find(|condition| condition["type"] == "Unreadable")?;
            assert_eq!((&unreadable["status"], &unreadable["reason"]), (&json!("True"), &json!("Undecodable")));
            unreadable["message"].as_str().map(str::to_owned)
        };
        statuses.iter().map(|status| message(status).unwrap_or_default()).collect()
    };
    assert_eq!(said(&engine), ["", ""]);
    engine.unreadable_in(spaces[0].clone(), Some("configmaps shop/a".to_owned()));
    assert_eq!(said(&engine), ["configmaps shop/a", ""]);
    engine.unreadable_in(SpaceName::root(), Some("synctargets t".to_owned()));
    assert_eq!(
        said(&engine),
        ["configmaps shop/a; in the space root: synctargets t", "in the space root: synctargets t"]
    );
    for space in [&spaces[0], &SpaceName::root()] {
        engine.unreadable_in(space.clone(), None);
    }
    assert_eq!(said(&engine), ["", ""]);
}

#[test]
fn fields_without_effect_are_told_where_they_were_set() {
    let told = |status: &Value| {
        let all = status["conditions"].as_array().unwrap();
        let told = all.iter().find(|condition| condition["type"] == "NotServed")?;
        told["message"].as_str().map(str::to_owned)
    };
    let clause = |status: Value| json!({"resources": ["configmaps"], "status": status});
    let placement = |clauses: Vec<Value>| {
        let spec = json!({"targets": [{}], "objects": clauses});
        let placement =
            json!({"apiVersion": "tideline.dev/v1alpha1", "kind": "Placement", "metadata": {}, "spec": spec});
        let placement: tideline_api::Placement = tideline_api::decode(placement).unwrap();
        let PlacementRule { without_effect, .. } = PlacementRule::try_from(&placement.spec).unwrap();
        told(&placement_status(&PlacementSummary { without_effect, ..PlacementSummary::default() }, 0))
    };
    assert_eq!(placement(vec![clause(json!({"return": "Never", "whenStale": "Keep"}))]), None);
    let unserved = clause(json!({"whenStale": "Unknown", "collectors": ["c"]}));
    assert_eq!(
        placement(vec![clause(json!({})), unserved.clone()]).as_deref(),
        Some(
            "without effect in this version of the hub: spec.objects[1].status.whenStale, \
             spec.objects[1].status.collectors"
        )
    );
    assert!(placement(vec![unserved; 4]).unwrap().ends_with(" and 3 more"));
}

#[tokio::test]
async fn a_contact_is_stored_with_other_changes_and_by_itself_once_in_ten_minutes() {
    let root = Root::new().await;
    let api = Api::<SyncTarget>::all(root.client.clone());
    api.create(&PostParams::default(), &SyncTarget::new("t", SyncTargetSpec::default())).await.unwrap();
    let what = Described { space: SpaceName::root(), resource: "synctargets", name: "t".to_owned() };
    let begun: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let stored = async || api.get("t").await.unwrap().status.and_then(|status| status.last_contact).map(|at| at.0);
    let says = async |phase: &str, minutes: Option<u64>| {
        let contact = minutes.map(|minutes| begun + Duration::from_mins(minutes));
        describe(&root.client, &what, &json!({"phase": phase}), contact).await.unwrap()
    };
    assert_eq!((says("Pending", None).await, stored().await), (Outcome::Written, None));
    assert_eq!((says("Ready", Some(0)).await, stored().await), (Outcome::Written, Some(begun)));
    assert_eq!((says("Ready", Some(5)).await, stored().await), (Outcome::Same, Some(begun)));
    let minutes = |minutes| Some(begun + Duration::from_mins(minutes));
    assert_eq!((says("Ready", Some(10)).await, stored().await), (Outcome::Written, minutes(10)));
    // It fell silent: what was heard last is kept.
    assert_eq!((says("Stale", Some(13)).await, stored().await), (Outcome::Written, minutes(13)));
    assert_eq!((says("Stale", Some(13)).await, stored().await), (Outcome::Same, minutes(13)));
    // The hub was started again, and has heard nothing yet.
    assert_eq!((says("Unknown", None).await, stored().await), (Outcome::Written, minutes(13)));
    assert_eq!((says("Ready", Some(14)).await, stored().await), (Outcome::Written, minutes(14)));
    assert_eq!((says("Stale", Some(12)).await, stored().await), (Outcome::Written, minutes(14)), "it goes back never");
}
