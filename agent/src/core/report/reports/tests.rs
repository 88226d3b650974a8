//! What the hub is told of objects that nothing explains, where that is lost on the way.

use std::time::Duration;

use tideline_common::{ApplyPolicy, EntryState, Gate};

use super::*;
use crate::core::tests::world::{World, config};
use crate::core::tests::{attested, key};
use crate::core::{FuseLimits, Loaded};

#[test]
fn an_agent_without_any_set_does_not_say_that_it_sees_its_cluster_as_it_is() {
    let config = config(1, FuseLimits::default());
    let empty = attested(Accepted { version: Version::default(), digest: Digest::of(b"") });
    for (accepted, in_sync) in [(None, false), (Some(empty), true)] {
        let core = Core::new(config.clone(), Loaded { accepted, ..Loaded::default() });
        assert_eq!(core.facts().in_sync, in_sync);
    }
}

#[test]
fn what_the_hub_would_refuse_of_a_status_is_not_sent() {
    let status = |text: String| RawValue::from_string(text).unwrap();
    let deep = |levels: usize| status("[".repeat(levels) + &"]".repeat(levels));
    let long = |bytes: usize| status(format!("\"{}\"", "x".repeat(bytes - 2)));
    assert!(!is_too_large(&long(STATUS_BYTES_MAX)) && is_too_large(&long(STATUS_BYTES_MAX + 1)));
    assert!(!is_too_large(&deep(STATUS_LEVELS_MAX)) && is_too_large(&deep(STATUS_LEVELS_MAX + 1)));
}

/// A Deployment that was told with its status.
fn placed() -> (World, ObjectKey) {
    let deployment = key("apps", "Deployment", "d0");
    let mut world = World::new(5);
    world.hub.put(&deployment, 1, 1);
    world.heal();
    world.quiesce();
    (world, deployment)
}

/// A controller that may create what it may not look at.
#[test]
fn what_cannot_be_read_is_told_without_its_status_and_not_asked_for_again_and_again() {
    let (mut world, deployment) = placed();
    let known = |world: &World| world.hub.reports.get(&deployment).map(|(_, _, report)| report.status.is_some());
    assert_eq!(known(&world), Some(true));
    world.cluster.unreadable.insert(deployment.clone());
    world.hub.forget_reports();
    world.quiesce();
    assert_eq!(known(&world), Some(false));
    // In half an hour, with waits that double up to five minutes.
    assert!((1..30).contains(&world.cluster.refused_reads), "{}", world.cluster.refused_reads);
    world.cluster.unreadable.clear();
    world.quiesce();
    assert_eq!(known(&world), Some(true));
}

/// It was told with its status, and all rights are withdrawn since.
#[test]
fn that_something_failed_is_told_though_its_status_cannot_be_read_any_more() {
    let (mut world, deployment) = placed();
    world.cluster.unreadable.insert(deployment.clone());
    world.hub.set_state(&deployment, EntryState::Withheld(Reason::AgentTooOld));
    world.quiesce();
    let (_, _, report) = &world.hub.reports[&deployment];
    assert_eq!((report.reason, report.status.is_some()), (Some(Reason::AgentTooOld), false));
    // As it was before, which it was told.
    world.cluster.unreadable.clear();
    world.hub.set_state(&deployment, EntryState::Apply);
    world.quiesce();
    let (_, _, report) = &world.hub.reports[&deployment];
    assert_eq!((report.reason, report.status.is_some()), (None, true));
    assert!((1..30).contains(&world.cluster.refused_reads), "{}", world.cluster.refused_reads);
}

/// It has a status, which was reported and dropped.
#[test]
fn on_a_quiet_cluster_what_is_said_anew_waits_for_nothing() {
    let (mut world, deployment) = placed();
    world.hub.set_state(&deployment, EntryState::Withheld(Reason::AgentTooOld));
    world.run_for(Duration::from_secs(2));
    let (_, _, report) = &world.hub.reports[&deployment];
    assert_eq!(report.reason, Some(Reason::AgentTooOld));
}

/// Webhooks say much, and the hub takes what is longer than it should be for somebody else's word.
#[test]
fn no_condition_is_longer_than_a_message_may_be() {
    let (mut world, ..) = world();
    let gate = Gate { placement: "retail/shop".into(), deadline_seconds: 1 };
    world.hub.policy = ApplyPolicy { gates: vec![gate], ..ApplyPolicy::default() };
    world.cluster.slow = true;
    let (first, after) = (key("", "ConfigMap", "first"), key("", "ConfigMap", "after"));
    world.hub.waves.insert(after.clone(), 10);
    for key in [&first, &after] {
        world.hub.put(key, 1, 1);
    }
    world.run_for(Duration::from_secs(30));
    if let Some(object) = world.core.objects.get_mut(&first) {
        object.outcome.progress = Progress::Failed;
        object.outcome.message = "x".repeat(MESSAGE_BYTES_MAX);
    }
    let conditions = world.core.facts().conditions;
    assert!(conditions.iter().any(|condition| condition.reason == Reason::WaitingForWave), "{conditions:?}");
    assert!(conditions.iter().all(|condition| condition.message.len() <= MESSAGE_BYTES_MAX), "{conditions:?}");
}

/// Where an object stands that is ours by its mark, and that nobody assigned. The hub was told.
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

/// Whose object the hub believes stands there.
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
fn what_bore_another_mark_before_it_went_is_not_reported_for_ever() {
    let (mut world, assigned, stray) = world();
    apart(&mut world, |world| world.cluster.plant_of(&stray, &assigned, "s98"));
    world.cluster.delete(&stray);
    world.reconnect();
    world.quiesce();
    assert_eq!(told(&world, &stray), None);
}

#[test]
fn what_bears_another_mark_is_reported_as_that_one_s() {
    let (mut world, assigned, stray) = world();
    apart(&mut world, |world| world.cluster.plant_of(&stray, &assigned, "s98"));
    world.reconnect();
    world.quiesce();
    assert_eq!(told(&world, &stray).as_deref(), Some("s98"));
}

#[test]
fn what_lost_its_mark_while_nothing_reached_the_hub_is_not_reported_for_ever() {
    let (mut world, _, stray) = world();
    apart(&mut world, |world| world.cluster.unmark(&stray));
    world.reconnect();
    world.quiesce();
    assert_eq!(told(&world, &stray), None);
}

#[test]
fn what_went_and_came_again_while_nothing_reached_the_hub_is_reported() {
    let (mut world, assigned, stray) = world();
    apart(&mut world, |world| world.cluster.delete(&stray));
    world.cluster.plant(&stray, &assigned);
    world.reconnect();
    world.quiesce();
    assert_eq!(told(&world, &stray).as_deref(), Some("s99"));
}
