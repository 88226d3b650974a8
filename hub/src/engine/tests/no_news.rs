//! What says only that all is as it was costs its readers nothing.

use tideline_common::health::Health;
use tideline_common::wire::v1::{ObjectReport, Progress};

use super::*;
use crate::shared::Shared;
use crate::summary::{tests::all_is_well, withheld_for_another};

fn source(nth: usize) -> SourceId {
    SourceId { space: space(), resource: config_maps(), uid: format!("u{nth}").parse().unwrap() }
}

fn applied(nth: usize, health: Health) -> ObjectReport {
    let report = withheld_for_another(&key(nth), &source(nth).uid);
    ObjectReport { progress: Progress::Applied, reason: None, message: String::new(), health, ..report }
}

#[test]
fn a_report_is_read_again_only_if_it_says_anything_new() {
    let mut hub = Hub::with(2);
    let version = hub.engine.ledger.target(target()).map(|view| view.version());
    let mut reads_again = |report: ReportedRequest| {
        let before = hub.engine.view_changes.number();
        hub.engine.report(hub.now, target(), report);
        hub.engine.view_changes.number() > before
    };
    let of = |objects: Vec<ObjectReport>| ReportedRequest { objects, ..all_is_well() };
    reads_again(all_is_well());
    assert!(!reads_again(all_is_well()), "a heartbeat");
    assert!(reads_again(of(vec![applied(0, Health::Ready)])));
    assert!(!reads_again(of(vec![applied(0, Health::Ready)])), "the same again");
    assert!(reads_again(of(vec![applied(0, Health::Failed)])));
    assert!(reads_again(of(vec![applied(1, Health::Ready)])), "of another object");
    assert!(reads_again(ReportedRequest { applied: version, ..all_is_well() }));
}

#[test]
fn a_status_that_came_into_a_space_is_looked_at_and_shown_by_nothing() {
    let mut hub = Hub::with(1);
    let shows = |phase: &str| {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c0", "namespace": "shop"},
            "status": {"phase": phase},
        });
        SourceSeen::of(&object).unwrap()
    };
    hub.engine.source_seen(source(0), shows("a"));
    hub.engine.take_dirty();
    let before = hub.engine.view_changes.number();
    hub.engine.source_seen(source(0), shows("b"));
    assert_eq!((hub.engine.view_changes.number(), hub.engine.statuses_to_write()), (before, 1));
    hub.engine.take_dirty();
    hub.engine.source_seen(source(0), shows("b"));
    assert_eq!(hub.engine.statuses_to_write(), 0);
    hub.engine.source_seen(source(0), SourceSeen { version: "v2".into(), ..shows("b") });
    assert_eq!((hub.engine.view_changes.number(), hub.engine.statuses_to_write()), (before + 2, 1));
}

/// As a space shows it after this hub has written its status.
#[test]
fn an_object_that_is_placed_as_before_makes_nothing_be_described_again() {
    let Hub { engine, now, .. } = Hub::with(1);
    let shared = Shared::new(engine);
    let shows = |object: &Value| {
        shared.read_mut(Engine::take_dirty);
        shared.ingest_news(|engine, _| {
            engine.index.apply(&space(), &config_maps(), clean::read(clean::SpaceServer::Embedded, object).unwrap())
        });
        shared.step(|engine, _| engine.work(committer::fresh(now)));
        shared.read(Engine::is_redescribed)
    };
    let object = |revision: &str, content: &str, status: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": content}, "status": {"phase": status},
            "metadata": {"name": "c0", "namespace": "shop", "uid": "u0", "resourceVersion": revision},
        })
    };
    assert!(shows(&object("7", "1", "a")));
    assert!(!shows(&object("8", "1", "b")));
    assert!(shows(&object("9", "2", "b")));
}
