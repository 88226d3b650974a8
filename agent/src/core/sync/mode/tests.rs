use std::time::Duration;

use tideline_common::ObjectKey;
use tideline_common::wire::v1::ClusterFacts;

use super::*;
use crate::core::interface::write::AgentMode;
use crate::core::tests::world::{World, config};
use crate::core::tests::{key, uid};
use crate::core::{Event, FuseLimits, Heard, Loaded};
use crate::simulated_cluster::Stripped;

const REFUSALS: [RefusalKind; 5] = [
    RefusalKind::Fenced,
    RefusalKind::Quarantined,
    RefusalKind::TargetGone,
    RefusalKind::Revoked,
    RefusalKind::UnknownTarget,
];

/// An agent that keeps two objects.
fn at_work() -> (World, [ObjectKey; 2]) {
    let mut world = World::new(21);
    let keys = [key("", "ConfigMap", "c"), key("", "ConfigMap", "d")];
    for key in &keys {
        world.hub.put(key, 1, 1);
    }
    world.heal();
    world.quiesce();
    (world, keys)
}

#[test]
fn every_freeze_ends_by_itself_when_the_hub_opens_a_session_again() {
    for refusal in REFUSALS {
        let (mut world, [kept, removed]) = at_work();
        world.hub.refuses = Some(refusal);
        world.hub.remove(&removed);
        world.run_for(Duration::from_mins(30));
        world.cluster.delete(&kept);
        world.run_for(Duration::from_hours(2));
        let keeps = refusal == RefusalKind::UnknownTarget;
        assert_eq!(world.cluster.objects.contains_key(&kept), keeps, "{refusal:?}");
        assert!(world.cluster.objects.contains_key(&removed), "{refusal:?}: it was never told");
        world.hub.refuses = None;
        world.quiesce();
        assert!(world.cluster.objects.contains_key(&kept), "{refusal:?}");
        assert!(!world.cluster.objects.contains_key(&removed), "{refusal:?}");
        assert_eq!(world.modes.len(), 2, "{refusal:?}: {:?}", world.modes);
        assert_eq!(world.modes[1], "Thaw");
    }
}

#[test]
fn an_agent_without_standing_asks_after_a_minute_backing_off_to_ten() {
    for refusal in REFUSALS {
        let (mut world, _) = at_work();
        world.hub.refuses = Some(refusal);
        world.run_for(Duration::from_mins(1));
        let asked = world.hub.sessions_asked;
        world.run_for(Duration::from_mins(3));
        let soon = world.hub.sessions_asked - asked;
        assert!((1..=3).contains(&soon), "{refusal:?}: {soon} in the first minutes");
        world.run_for(Duration::from_hours(2));
        let asked = world.hub.sessions_asked;
        world.run_for(Duration::from_hours(2));
        let later = world.hub.sessions_asked - asked;
        assert!((12..=25).contains(&later), "{refusal:?}: {later} in two hours");
    }
}

/// The key with which it would enrol was revoked, too.
#[test]
fn an_agent_whose_next_key_is_refused_shows_its_token_no_more_often_than_it_asks() {
    let (mut world, _) = at_work();
    world.hub.refuses = Some(RefusalKind::Revoked);
    world.run_for(Duration::from_mins(30));
    world.give_token();
    world.run_for(Duration::from_mins(1));
    let soon = world.hub.enrolments_asked;
    assert!((1..=2).contains(&soon), "{soon} in the first minute");
    world.run_for(Duration::from_hours(2));
    let later = world.hub.enrolments_asked - soon;
    assert!((10..=30).contains(&later), "{later} in two hours");
}

/// A removal is on disk, and could not begin yet; then the hub does not know the target any more.
#[test]
fn while_the_hub_does_not_know_the_target_no_removal_begins() {
    let (mut world, [_, removed]) = at_work();
    let of = |cluster: &str| ClusterFacts { cluster: Some(uid(cluster)), ..ClusterFacts::default() };
    world.begin_in(uid("here"), Some(of("elsewhere")));
    world.quiesce();
    world.hub.remove(&removed);
    world.run_for(Duration::from_mins(5));
    world.hub.refuses = Some(RefusalKind::UnknownTarget);
    world.run_for(Duration::from_mins(5));
    world.learn(of("here"));
    world.run_for(Duration::from_hours(1));
    assert!(world.cluster.objects.contains_key(&removed));
    world.hub.refuses = None;
    world.quiesce();
    assert!(!world.cluster.objects.contains_key(&removed));
}

#[test]
fn only_an_agent_fenced_by_a_session_that_it_does_not_find_in_its_store_reports_that() {
    for refusal in REFUSALS {
        let (mut world, _) = at_work();
        world.hub.refuses = Some(refusal);
        world.run_for(Duration::from_mins(30));
        let by = world.hub.proved.map(|fenced| fenced.by.number.0);
        assert_eq!(by, (refusal == RefusalKind::Fenced).then_some(99), "{refusal:?}");
    }
}

fn modes() -> Vec<AgentMode> {
    let said = || "said".to_owned();
    let reasons = [
        FreezeReason::Fenced(said()),
        FreezeReason::Quarantined(said()),
        FreezeReason::TargetGone(said()),
        FreezeReason::Revoked(said()),
    ];
    [AgentMode::Active, AgentMode::UnknownToHub].into_iter().chain(reasons.map(AgentMode::Frozen)).collect()
}

#[test]
fn no_unverified_answer_lifts_a_restriction() {
    for mode in modes() {
        let after = mode.clone().after(HubVerdict::UnknownTarget);
        assert!(mode.may_change() || !after.may_change(), "{mode:?}");
        assert!(!after.may_remove(), "{mode:?}");
        if mode != AgentMode::Active {
            assert_eq!(after, mode, "what was said before stands");
        }
    }
}

/// The hub runs on an old copy of its directory for a while, which does not know the target.
#[test]
fn a_freeze_outlasts_a_hub_that_does_not_know_the_target() {
    for refusal in [RefusalKind::Fenced, RefusalKind::TargetGone, RefusalKind::Revoked, RefusalKind::Quarantined] {
        let (mut world, [kept, _]) = at_work();
        world.shut_out(refusal);
        world.run_for(Duration::from_mins(1));
        world.cluster.delete(&kept);
        world.shut_out(RefusalKind::UnknownTarget);
        world.run_for(Duration::from_hours(1));
        assert!(!world.cluster.objects.contains_key(&kept), "{refusal:?}");
        world.crash();
        world.run_for(Duration::from_hours(1));
        assert!(!world.cluster.objects.contains_key(&kept), "{refusal:?}: after a restart too");
        world.hub.refuses = None;
        world.quiesce();
        world.check_converged();
    }
}

/// Removals of a namespace that is inspected first, of an object whose mark was stripped, and of one that is orphaned.
#[test]
fn after_a_freeze_no_step_of_a_removal_begins() {
    for refusal in REFUSALS {
        for steps in (0..80).step_by(3) {
            let mut world = World::new(steps % 5);
            let keys = [key("", "Namespace", "yard"), key("", "ConfigMap", "c0"), key("apps", "Deployment", "d0")];
            for key in &keys {
                world.hub.put(key, 1, 1);
            }
            world.heal();
            world.quiesce();
            world.cluster.strip(&keys[1], Stripped::Both);
            for key in &keys {
                world.hub.remove(key);
            }
            // What begins later is checked against the last verdict by then.
            for _ in 0..steps {
                world.advance();
            }
            world.shut_out(refusal);
            world.run_for(Duration::from_mins(2));
            let stand: Vec<_> = keys.iter().filter(|key| world.cluster.objects.contains_key(key)).cloned().collect();
            world.crash();
            world.run_for(Duration::from_mins(30));
            for key in &stand {
                assert!(
                    world.cluster.objects.contains_key(key),
                    "{refusal:?} after {steps} steps, and a restart: {key}"
                );
            }
            world.hub.refuses = None;
            world.quiesce();
            world.check_converged();
        }
    }
}

/// Its machine was restored from a snapshot, and then the hub was: it does not know the target, and never will.
#[test]
fn a_token_ends_a_freeze_at_a_hub_that_does_not_know_who_was_fenced() {
    for restarts in [false, true] {
        let (mut world, keys) = at_work();
        world.shut_out(RefusalKind::Fenced);
        world.run_for(Duration::from_mins(1));
        world.shut_out(RefusalKind::UnknownTarget);
        world.run_for(Duration::from_hours(1));
        if restarts {
            world.crash();
            world.run_for(Duration::from_hours(1));
        }
        let uids = keys.clone().map(|key| world.cluster.objects[&key].uid.clone());
        world.hub.begin_epoch(1);
        world.hub.enrols_as = Some(crate::core::tests::heir(0));
        world.give_token();
        world.quiesce();
        assert_eq!(keys.map(|key| world.cluster.objects[&key].uid.clone()), uids);
        world.check_converged();
    }
}

/// Its cluster was built anew under it. Then the hub was lost, and began again with its keys only.
#[test]
fn a_token_ends_a_quarantine_only_at_a_hub_that_does_not_know_the_target() {
    for restarts in [false, true] {
        let (mut world, _) = at_work();
        let facts = ClusterFacts { cluster: Some(uid("anew")), ..ClusterFacts::default() };
        world.begin_in(uid("before"), Some(facts));
        world.shut_out(RefusalKind::Quarantined);
        let asked = world.hub.enrolments_asked;
        world.give_token();
        world.run_for(Duration::from_hours(1));
        assert_eq!(world.hub.enrolments_asked, asked, "the SyncTarget is there, and a person has to say what is meant");
        world.hub.begin_epoch(1);
        world.hub.enrols_as = Some(crate::core::tests::heir(0));
        world.hub.cluster = Some(uid("anew"));
        world.shut_out(RefusalKind::UnknownTarget);
        if restarts {
            world.crash();
        }
        world.run_for(Duration::from_hours(1));
        world.quiesce();
        world.check_converged();
    }
}

/// There is news that was not reported.
#[test]
fn an_agent_that_has_no_session_ends_at_once_when_it_is_asked_to() {
    for refusal in REFUSALS {
        let (mut world, [kept, _]) = at_work();
        world.shut_out(refusal);
        world.run_for(Duration::from_mins(1));
        world.cluster.set_status(&kept, 77);
        world.run_for(Duration::from_secs(30));
        assert!(world.ends_at_once(), "{refusal:?}");
    }
}

#[test]
fn a_verdict_heard_while_the_journal_was_unavailable_is_known_after_the_next_restart() {
    for refusal in REFUSALS {
        let (mut world, _) = at_work();
        world.no_journal = true;
        world.shut_out(refusal);
        world.run_for(Duration::from_mins(1));
        let mode = world.core.mode().clone();
        assert_ne!(mode, AgentMode::Active, "{refusal:?}");
        assert_eq!(world.journal.mode, AgentMode::Active, "{refusal:?}");
        world.cut_off();
        world.heal_cluster();
        world.journal_opens();
        world.run_for(Duration::from_mins(1));
        world.crash();
        assert_eq!(*world.core.mode(), mode, "{refusal:?}");
    }
}

/// The core that runs while the disk cannot be read knows nothing of the freeze, and hears of a hub that does not know the
/// target.
#[test]
fn no_freeze_in_the_journal_ends_by_what_was_heard_without_it() {
    for known in modes() {
        for heard in modes().into_iter().filter(|mode| *mode != AgentMode::Active) {
            let loaded = Loaded { mode: known.clone(), ..Loaded::default() };
            let having = Heard { mode: Some(heard.clone()), history: None };
            let mut core = Core::new(config(1, FuseLimits::default()), loaded).having(having);
            let stays = matches!(known, AgentMode::Frozen(_)) && heard == AgentMode::UnknownToHub;
            let expected = if stays { &known } else { &heard };
            assert_eq!(core.mode(), expected, "{known:?}, and {heard:?} was heard");
            let mut out = Vec::new();
            core.step(Monotonic::START, Event::Started, &mut out);
            let writes = out.iter().filter_map(|effect| match effect {
                Effect::Persist { writes, .. } => Some(&**writes),
                _ => None,
            });
            let written = writes.flatten().find_map(|write| match write {
                Write::Mode(mode) => Some(mode),
                _ => None,
            });
            assert_eq!(written, (known != *expected).then_some(expected), "{known:?}, and {heard:?} was heard");
        }
    }
}
