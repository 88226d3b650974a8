//! Reports of unexplained objects, where they are lost on the way.

use std::time::Duration;

use serde_json::value::RawValue;
use tideline_common::limits::{STATUS_BYTES_MAX, STATUS_LEVELS_MAX};
use tideline_common::{ApplyPolicy, EntryState, Gate, ReportClass, StatusPaths};

use super::page::LOOKED_AT_MAX;
use super::*;
use crate::core::model::live_status::Status;
use crate::core::tests::world::{World, config};
use crate::core::tests::{attested, key};
use crate::core::{Event, FuseLimits, Loaded, ObservedStatus};
use crate::simulated_cluster::Stripped;

#[test]
fn an_agent_without_any_set_does_not_say_that_it_sees_its_cluster_as_it_is() {
    let config = config(1, FuseLimits::default());
    let empty = attested(Accepted { version: Version::default(), digest: Digest::of(b"") });
    for (accepted, in_sync) in [(None, false), (Some(empty), true)] {
        let core = Core::new(config.clone(), Loaded { accepted, ..Loaded::default() });
        assert_eq!(core.facts(Monotonic::START).in_sync, in_sync);
    }
}

#[test]
fn a_journal_that_cannot_be_written_is_reported_with_its_cause_once_and_with_what_follows() {
    let mut world = World::new(3);
    world.heal();
    world.quiesce();
    world.no_journal = true;
    world.hub.put(&key("", "ConfigMap", "c0"), 1, 1);
    world.run_just(Duration::from_mins(2));
    let said = "Unavailable 1: cannot write to the journal: No space left on device; retrying. Until a write succeeds, no new \
                set is accepted";
    assert_eq!(world.hub.conditions(), [said]);
}

/// What a hub hears in an hour at rest: reports, and polls that say that the last one stands.
fn heard_in_an_hour(hears_polls: bool) -> (u64, u64) {
    let mut world = World::new(3);
    world.hub.hears_polls = hears_polls;
    world.hub.put(&key("", "ConfigMap", "c0"), 1, 1);
    world.heal();
    world.quiesce();
    world.hub.heard = (0, 0);
    world.run_just(Duration::from_hours(1));
    world.hub.heard
}

#[test]
fn an_agent_at_rest_sends_nothing_beside_its_polls() {
    let (reports, polls) = heard_in_an_hour(true);
    assert!(polls >= 60 * 60 / 45, "{polls}");
    assert!(reports <= polls / POLLS_OF_A_REPORT + 1, "{reports} beside {polls}");
    let (reports, polls) = heard_in_an_hour(false);
    assert_eq!(polls, 0, "a hub that does not read polls is told nothing in them");
    assert!(reports >= 60 * 60 / 45, "{reports}");
}

#[test]
fn a_hub_that_does_not_know_the_report_that_stands_is_told_all_again_at_once() {
    let mut world = World::new(3);
    world.hub.hears_polls = true;
    let key = key("", "ConfigMap", "c0");
    world.hub.put(&key, 1, 1);
    world.heal();
    world.quiesce();
    world.hub.forget_reports();
    world.run_just(Duration::from_secs(2));
    assert!(world.hub.reports.contains_key(&key));
    world.hub.heard = (0, 0);
    world.run_just(Duration::from_mins(10));
    assert!(world.hub.heard.0 <= 1, "once");
}

#[test]
fn a_hub_that_became_an_older_version_between_two_polls_is_told_by_reports_in_time() {
    let mut world = World::new(3);
    world.hub.hears_polls = true;
    world.hub.put(&key("", "ConfigMap", "c0"), 1, 1);
    world.heal();
    world.quiesce();
    // It answers none of the polls otherwise, and remembers nothing.
    world.hub.hears_polls = false;
    world.run_just(Duration::from_mins(20));
    world.hub.heard = (0, 0);
    world.run_just(Duration::from_hours(1));
    let (reports, polls) = world.hub.heard;
    assert!(polls == 0 && reports >= 60 * 60 / 45, "{reports} and {polls}");
}

#[test]
fn a_status_that_the_hub_would_refuse_is_not_sent() {
    let status = |text: String| RawValue::from_string(text).unwrap();
    let deep = |levels: usize| status("[".repeat(levels) + &"]".repeat(levels));
    let long = |bytes: usize| status(format!("\"{}\"", "x".repeat(bytes - 2)));
    let is_kept = |status| matches!(ObservedStatus::of(Some(status)), ObservedStatus::Text(_));
    let is_too_large = |status| matches!(ObservedStatus::of(Some(status)), ObservedStatus::TooLarge);
    assert!(is_kept(long(STATUS_BYTES_MAX)) && is_too_large(long(STATUS_BYTES_MAX + 1)));
    assert!(is_kept(deep(STATUS_LEVELS_MAX)) && is_too_large(deep(STATUS_LEVELS_MAX + 1)));
}

/// A Deployment that was reported with its status.
fn placed() -> (World, ObjectKey) {
    let deployment = key("apps", "Deployment", "d0");
    let mut world = World::new(5);
    world.hub.put(&deployment, 1, 1);
    world.heal();
    world.quiesce();
    (world, deployment)
}

/// Whatever else is reported of the object, nothing more is to be known of its status.
#[test]
fn a_status_that_is_too_large_is_said_to_be_and_not_read_again() {
    let (mut world, deployment) = placed();
    let mut observed = world.cluster.list(&deployment.kind).remove(0);
    observed.status = ObservedStatus::TooLarge;
    world.step(Event::Observed(Box::new(observed)));
    world.quiesce();
    let said = |world: &World| {
        let (_, _, report) = &world.hub.reports[&deployment];
        (report.reason, report.status.is_some())
    };
    assert_eq!(said(&world), (Some(Reason::StatusTooLarge), false));
    let before = (world.cluster.reads, world.watches.lists);
    world.hub.set_state(&deployment, EntryState::Withheld(Reason::AgentTooOld));
    world.quiesce();
    assert_eq!(said(&world), (Some(Reason::AgentTooOld), false));
    world.hub.set_state(&deployment, EntryState::Apply);
    world.hub.forget_reports();
    world.quiesce();
    assert_eq!(said(&world), (Some(Reason::StatusTooLarge), false));
    assert_eq!((world.cluster.reads, world.watches.lists), before);
    // What nobody asks for is not too large for anybody.
    ask(&mut world, &deployment, ReportClass::Health);
    world.quiesce();
    assert_eq!(said(&world), (None, false));
}

/// A controller that may create objects and not read them.
#[test]
fn an_unreadable_object_is_reported_without_status_and_not_read_over_and_over() {
    let (mut world, deployment) = placed();
    let known = |world: &World| world.hub.reports.get(&deployment).map(|(_, _, report)| report.status.is_some());
    assert_eq!(known(&world), Some(true));
    world.cluster.faults.unreadable.insert(deployment.clone());
    world.hub.forget_reports();
    world.quiesce();
    assert_eq!(known(&world), Some(false));
    // In half an hour, with waits that double up to five minutes.
    assert!((1..30).contains(&world.cluster.refused_reads), "{}", world.cluster.refused_reads);
    world.cluster.faults.unreadable.clear();
    world.quiesce();
    assert_eq!(known(&world), Some(true));
}

/// An outage of the API server within one of the hub.
#[test]
fn a_status_that_could_not_be_read_while_the_hub_was_away_is_read_again() {
    let (mut world, deployment) = placed();
    world.cluster.faults.unreadable.insert(deployment.clone());
    world.hub.set_state(&deployment, EntryState::Withheld(Reason::AgentTooOld));
    while world.cluster.refused_reads == 0 {
        world.advance();
    }
    world.hub_is_away();
    world.run_just(Duration::from_mins(10));
    assert!(world.cluster.refused_reads > 1, "it is retried");
    world.cluster.faults.unreadable.clear();
    world.reconnect();
    world.quiesce();
    let (_, _, report) = &world.hub.reports[&deployment];
    assert_eq!((report.reason, report.status.is_some()), (Some(Reason::AgentTooOld), true));
}

/// It was reported with its status, and all rights are withdrawn since.
#[test]
fn a_failure_is_reported_though_the_status_can_no_longer_be_read() {
    let (mut world, deployment) = placed();
    world.cluster.faults.unreadable.insert(deployment.clone());
    world.hub.set_state(&deployment, EntryState::Withheld(Reason::AgentTooOld));
    world.quiesce();
    let (_, _, report) = &world.hub.reports[&deployment];
    assert_eq!((report.reason, report.status.is_some()), (Some(Reason::AgentTooOld), false));
    // As it was reported before.
    world.cluster.faults.unreadable.clear();
    world.hub.set_state(&deployment, EntryState::Apply);
    world.quiesce();
    let (_, _, report) = &world.hub.reports[&deployment];
    assert_eq!((report.reason, report.status.is_some()), (None, true));
    assert!((1..30).contains(&world.cluster.refused_reads), "{}", world.cluster.refused_reads);
}

/// It has a status, which was reported and dropped.
#[test]
fn on_a_quiet_cluster_a_change_is_reported_at_once() {
    let (mut world, deployment) = placed();
    world.hub.set_state(&deployment, EntryState::Withheld(Reason::AgentTooOld));
    world.run_for(Duration::from_secs(2));
    let (_, _, report) = &world.hub.reports[&deployment];
    assert_eq!(report.reason, Some(Reason::AgentTooOld));
}

#[test]
fn what_has_nothing_new_to_say_is_looked_at_some_at_a_time_and_to_the_end() {
    let mut world = World::new(7);
    for number in 0..5 * LOOKED_AT_MAX {
        world.hub.put(&key("", "ConfigMap", &format!("c{number}")), 1, 1);
    }
    world.heal();
    world.quiesce();
    let names: Vec<KeyRef> = world.core.model.objects.names().cloned().collect();
    world.core.reporting.reports.everything(names.iter(), Monotonic::START);
    world.step(Event::Timer(Timer::Retry));
    // Well before the next heartbeat.
    world.run_just(Duration::from_secs(2));
    assert!(world.core.reporting.reports.is_empty());
}

/// A new status every second, each different from the one before.
fn flip(world: &mut World, deployment: &ObjectKey, seconds: u64) {
    for second in 0..seconds {
        world.cluster.set_status(deployment, second + 1);
        world.run_just(Duration::from_secs(1));
    }
}

fn status(world: &World, key: &ObjectKey) -> Option<String> {
    world.hub.reports[key].2.status.as_ref().map(|status| status.get().to_owned())
}

/// From now on so much is asked for of placed objects, and nothing else changes.
fn ask(world: &mut World, key: &ObjectKey, report: ReportClass) {
    world.hub.policy = ApplyPolicy { report, ..ApplyPolicy::default() };
    world.hub.put(key, 1, 1);
}

fn paths(paths: &[&str]) -> ReportClass {
    ReportClass::Paths(StatusPaths::new(paths.iter().copied()).unwrap())
}

#[test]
fn a_status_that_flips_all_the_time_is_told_at_once_and_then_every_five_seconds() {
    let (mut world, deployment) = placed();
    world.hub.told_objects = 0;
    world.cluster.set_status(&deployment, 100);
    world.run_just(Duration::from_secs(1));
    assert_eq!(world.hub.told_objects, 1);
    flip(&mut world, &deployment, 60);
    assert!((11..=14).contains(&world.hub.told_objects), "{}", world.hub.told_objects);
    // The last one is reported, and then it is quiet, and nothing is remembered of it.
    world.quiesce();
    assert_eq!(status(&world, &deployment).as_deref(), Some(r#"{"n":60}"#));
    assert!(world.core.reporting.reports.rate.is_empty());
    let told = world.hub.told_objects;
    world.quiesce();
    assert_eq!(world.hub.told_objects, told);
}

#[test]
fn a_conclusion_is_reported_at_once_whatever_was_reported_before() {
    let (mut world, deployment) = placed();
    world.cluster.set_status(&deployment, 100);
    world.run_just(Duration::from_secs(1));
    world.hub.set_state(&deployment, EntryState::Withheld(Reason::AgentTooOld));
    world.run_just(Duration::from_secs(1));
    assert_eq!(world.hub.reports[&deployment].2.reason, Some(Reason::AgentTooOld));
    world.hub.remove(&deployment);
    world.run_just(Duration::from_secs(1));
    assert!(!world.hub.reports.contains_key(&deployment));
}

#[test]
fn a_hub_that_forgot_is_told_again_at_once() {
    let (mut world, deployment) = placed();
    world.cluster.set_status(&deployment, 100);
    world.run_just(Duration::from_secs(1));
    world.hub.forget_reports();
    // It is noticed with the next report, of something else.
    world.hub.put(&key("", "ConfigMap", "c0"), 1, 1);
    world.run_just(Duration::from_secs(2));
    assert_eq!(status(&world, &deployment).as_deref(), Some(r#"{"n":100}"#));
}

#[test]
fn waiting_reports_are_sent_before_the_process_ends() {
    let (mut world, deployment) = placed();
    for n in [100, 101] {
        world.cluster.set_status(&deployment, n);
        world.run_just(Duration::from_secs(1));
    }
    assert_eq!(status(&world, &deployment).as_deref(), Some(r#"{"n":100}"#));
    world.stop();
    assert_eq!(status(&world, &deployment).as_deref(), Some(r#"{"n":101}"#));
}

/// With each class: the report; nothing is written for it at the cluster, and the object is read only where a status is
/// missing.
#[test]
fn another_report_class_causes_one_report_and_no_apply() {
    let (mut world, deployment) = placed();
    world.cluster.set_status(&deployment, 7);
    world.quiesce();
    let before = (world.cluster.versions, world.cluster.reads);
    let classes = [
        (ReportClass::Health, None, Health::Ready, 0),
        (ReportClass::Nothing, None, Health::Unknown, 0),
        (paths(&["/status/n"]), Some(r#"{"n":7}"#), Health::Ready, 1),
        (paths(&["/status/none"]), Some("{}"), Health::Ready, 2),
        (ReportClass::Status, Some(r#"{"n":7}"#), Health::Ready, 3),
    ];
    for (class, expected, health, reads) in classes {
        world.hub.told_objects = 0;
        ask(&mut world, &deployment, class.clone());
        world.quiesce();
        let report = &world.hub.reports[&deployment].2;
        assert_eq!((report.progress, report.health), (Progress::Applied, health), "{class:?}");
        assert_eq!(status(&world, &deployment).as_deref(), expected, "{class:?}");
        assert_eq!((world.cluster.versions, world.cluster.reads), (before.0, before.1 + reads), "{class:?}");
        assert_eq!(world.hub.told_objects, 1, "{class:?}");
        // After a restart it is as it was, and so it is for an agent without its journal.
        world.crash();
        world.quiesce();
        world.lose_journal();
        world.quiesce();
        assert_eq!(world.cluster.versions, before.0, "{class:?}");
        world.cluster.reads = before.1 + reads;
    }
}

#[test]
fn changes_outside_the_report_class_are_neither_reported_nor_read_nor_kept() {
    let (mut world, deployment) = placed();
    world.cluster.set_status(&deployment, 7);
    for (class, other) in [(ReportClass::Health, 8), (paths(&["/status/none"]), 9)] {
        ask(&mut world, &deployment, class.clone());
        world.quiesce();
        (world.hub.told_objects, world.cluster.reads) = (0, 0);
        world.cluster.set_status(&deployment, other);
        world.quiesce();
        assert_eq!((world.hub.told_objects, world.cluster.reads), (0, 0), "{class:?}");
        let object = world.core.model.objects.get(&deployment).unwrap();
        assert!(matches!(object.live.status.get(), Status::Dropped { .. }), "{class:?}");
    }
    // A hub that forgot everything causes no read either.
    ask(&mut world, &deployment, ReportClass::Health);
    world.quiesce();
    (world.cluster.reads, world.watches.lists) = (0, 0);
    world.hub.forget_reports();
    world.quiesce();
    assert_eq!((status(&world, &deployment), world.cluster.reads, world.watches.lists), (None, 0, 0));
    assert_eq!(world.hub.reports[&deployment].2.health, Health::Ready);
    // Nor is anything kept while nothing can be reported.
    world.hub_is_away();
    world.cluster.set_status(&deployment, 10);
    world.run_for(Duration::from_secs(1));
    let object = world.core.model.objects.get(&deployment).unwrap();
    assert!(matches!(object.live.status.get(), Status::Dropped { .. }), "{:?}", object.live.status);
}

#[test]
fn counts_cause_no_write_to_the_cluster() {
    let (mut world, deployment) = placed();
    let before = world.cluster.versions;
    let associated = [tideline_common::AssociatedKind::Pods].into();
    world.hub.policy = ApplyPolicy { associated, ..ApplyPolicy::default() };
    world.hub.put(&deployment, 1, 1);
    world.quiesce();
    assert_eq!(world.cluster.versions, before);
    assert_eq!(world.hub.reports[&deployment].2.progress, Progress::Applied);
}

/// Webhooks write long messages, and the hub takes those that are too long for another's.
#[test]
fn no_condition_is_longer_than_a_message_may_be() {
    let (mut world, ..) = world();
    let gate = Gate { placement: "retail/shop".into(), deadline_seconds: 1 };
    world.hub.policy = ApplyPolicy { gates: vec![gate], ..ApplyPolicy::default() };
    world.cluster.faults.slow = true;
    let (first, after) = (key("", "ConfigMap", "first"), key("", "ConfigMap", "after"));
    world.hub.waves.insert(after.clone(), 10);
    for key in [&first, &after] {
        world.hub.put(key, 1, 1);
    }
    world.run_for(Duration::from_secs(30));
    if let Some(object) = world.core.model.objects.get_mut(&first) {
        object.outcome.progress = Progress::Failed;
        object.outcome.message = "x".repeat(MESSAGE_BYTES_MAX);
    }
    let conditions = world.core.facts(Monotonic::START).conditions;
    assert!(conditions.iter().any(|condition| condition.reason == Reason::WaitingForWave), "{conditions:?}");
    assert!(conditions.iter().all(|condition| condition.message.len() <= MESSAGE_BYTES_MAX), "{conditions:?}");
}

/// An object that is ours by its mark, and that nobody assigned. The hub was told.
fn world() -> (World, ObjectKey, ObjectKey) {
    let (assigned, stray) = (key("apps", "Deployment", "d0"), key("apps", "Deployment", "d1"));
    let mut world = World::new(5);
    world.hub.put(&assigned, 1, 1);
    world.heal();
    world.quiesce();
    world.cluster.plant(&stray, &assigned);
    world.quiesce();
    assert_eq!(told(&world, &stray).as_deref(), Some("s99"));
    (world, assigned, stray)
}

/// The source of the object that the hub believes to exist.
fn told(world: &World, key: &ObjectKey) -> Option<String> {
    world.hub.reports.get(key).map(|(_, _, report)| report.source_uid.to_string())
}

/// Something happens while nothing reaches the hub.
fn apart(world: &mut World, happens: impl FnOnce(&mut World)) {
    world.cut_off();
    happens(world);
    world.run_for(Duration::from_secs(1));
}

#[test]
fn a_deleted_object_that_had_another_mark_is_not_reported_for_ever() {
    let (mut world, assigned, stray) = world();
    apart(&mut world, |world| world.cluster.plant_of(&stray, &assigned, "s98"));
    world.cluster.delete(&stray);
    world.reconnect();
    world.quiesce();
    assert_eq!(told(&world, &stray), None);
}

#[test]
fn an_object_with_another_mark_is_reported_for_that_source() {
    let (mut world, assigned, stray) = world();
    apart(&mut world, |world| world.cluster.plant_of(&stray, &assigned, "s98"));
    world.reconnect();
    world.quiesce();
    assert_eq!(told(&world, &stray).as_deref(), Some("s98"));
}

#[test]
fn an_object_that_lost_its_mark_while_offline_is_not_reported_for_ever() {
    let (mut world, _, stray) = world();
    apart(&mut world, |world| world.cluster.strip(&stray, Stripped::Mark));
    world.reconnect();
    world.quiesce();
    assert_eq!(told(&world, &stray), None);
}

#[test]
fn an_object_deleted_and_recreated_while_offline_is_reported() {
    let (mut world, assigned, stray) = world();
    apart(&mut world, |world| {
        world.cluster.delete(&stray);
    });
    world.cluster.plant(&stray, &assigned);
    world.reconnect();
    world.quiesce();
    assert_eq!(told(&world, &stray).as_deref(), Some("s99"));
}
