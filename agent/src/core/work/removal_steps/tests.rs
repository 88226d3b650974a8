//! Removals of objects that are not what was seen.

use expect_test::expect;
use tideline_common::health::Health;
use tideline_common::wire::v1::{Accepted, ClusterFacts};
use tideline_common::{ApplyMode, ApplyPolicy, DesiredSet, Gate, Origin, Prune, PrunePolicy, Takeover, Version};

use super::*;
use crate::core::decide::plan::{mark_of, record_of};
use crate::core::interface::effect::{Effect, OpId};
use crate::core::interface::event::Event;
use crate::core::interface::observed::{Observed, ObservedStatus, Served};
use crate::core::interface::op_result::{Deleted, Failure, Inspected, NotDone, OpResult};
use crate::core::interface::write::{Enrolled, RemovalPolicy};
use crate::core::model::removal::RemovalState;
use crate::core::tests::world::World;
use crate::core::tests::{attested, entry, hub_id, key, me, target_id, uid};
use crate::core::{Config, FuseLimits, Loaded};
use crate::simulated_cluster::{Means, Stripped};

/// An agent that restarted with a removal to do, and the operations that it begins.
struct Removing {
    core: Core,
    begun: Vec<(OpId, String)>,
}

impl Removing {
    fn step(&mut self, event: Event) {
        let mut out = Vec::new();
        self.core.step(Monotonic::START, event, &mut out);
        for effect in out {
            match effect {
                Effect::Execute { id, op: Op::Delete { uid, .. } } => self.begun.push((id, format!("Delete {uid}"))),
                Effect::Execute { id, op: Op::Get { .. } } => self.begun.push((id, "Get".to_owned())),
                Effect::Execute { id, op: Op::Inspect { .. } } => self.begun.push((id, "Inspect".to_owned())),
                Effect::Execute { op, .. } => panic!("{op:?}"),
                Effect::Persist { id, .. } => self.step(Event::Persisted { id, result: Ok(()) }),
                _ => {}
            }
        }
    }

    /// The one operation in flight ends so. Returns what that was.
    fn ends(&mut self, result: OpResult) -> String {
        assert_eq!(self.begun.len(), 1, "{:?}", self.begun);
        let (id, what) = self.begun.remove(0);
        self.step(Event::Executed { id, result });
        what
    }
}

/// The object of an entry with this UID, marked for the entry's source.
fn standing(uid: &str, source: u64) -> Observed {
    standing_at(&key("", "ConfigMap", "c"), uid, source)
}

fn standing_at(key: &ObjectKey, uid: &str, source: u64) -> Observed {
    let entry = entry(key, source, 1);
    let mark = mark_of(me(), &entry, &ApplyPolicy::default(), Origin::Created);
    Observed {
        key: entry.key,
        uid: uid.parse().unwrap(),
        resource_version: "5".into(),
        generation: 0,
        managed: None,
        mark: Some(Arc::new(mark)),
        labelled: true,
        deleting: false,
        health: Health::Ready,
        health_message: String::new(),
        observed_generation: None,
        terminal: None,
        template: None,
        status: ObservedStatus::None,
        others: None,
        illegible: false,
        managed_elsewhere: false,
    }
}

const SAID: PrunePolicy = PrunePolicy { prune: tideline_common::Prune::Delete, ..PrunePolicy::LEAST };

/// It was placed, removed, placed again and removed again, and the list is from the first time.
fn listed_as_before(recorded: bool) -> Removing {
    let mut removing = begin(RemovalPolicy::Absence(Some(SAID)), recorded, Hub::IsHeard, standing("u1", 1));
    assert_eq!(removing.ends(OpResult::Delete(Err(NotDone::Stale))), "Delete u1");
    removing
}

#[derive(Clone, Copy, PartialEq)]
enum Hub {
    IsHeard,
    IsAway,
}

/// A start with one removal, and with a list that shows this.
fn begin(policy: RemovalPolicy, recorded: bool, hub: Hub, listed: Observed) -> Removing {
    let entry = entry(&listed.key, 1, 1);
    let record = record_of(&entry, &Seen::from(&standing_at(&listed.key, "u2", 1)), Origin::Created, true);
    let loaded = Loaded {
        enrolled: Some(Enrolled { target: target_id(), name: "store".into() }),
        accepted: Some(attested(Accepted { version: Version::default(), digest: DesiredSet::default().digest() })),
        applied: recorded.then(|| (entry.key.clone(), record)).into_iter().collect(),
        removing: vec![(Tombstone { key: entry.key.clone(), source: uid("s1") }, policy)],
        ..Loaded::default()
    };
    let config = Config {
        hub: hub_id(),
        facts: ClusterFacts::default(),
        answered: true,
        instance: tideline_common::wire::v1::Instance::default(),
        enrolment: None,
        seed: 1,
        fuse: FuseLimits::default(),
        patrol: Duration::from_mins(10),
        namespaces: crate::Namespaces::All,
        capabilities: tideline_common::Capabilities::all(),
    };
    let mut removing = Removing { core: Core::new(config, loaded), begun: Vec::new() };
    if hub == Hub::IsHeard {
        removing.core.history_whole(Monotonic::START);
    }
    let kind = entry.key.kind.clone();
    removing.step(Event::Started);
    removing.step(Event::Kind { kind: kind.clone(), served: Served::Yes { namespaced: true, status: false } });
    removing.step(Event::Listed { kind, objects: vec![listed] });
    removing
}

fn found(observed: Observed) -> OpResult {
    OpResult::Get(Ok(Some(Box::new(observed))))
}

#[test]
fn an_object_recreated_after_the_list_is_removed_too() {
    for recorded in [true, false] {
        let mut removing = listed_as_before(recorded);
        assert_eq!(removing.ends(found(standing("u2", 1))), "Get");
        assert_eq!(removing.ends(OpResult::Delete(Ok(Deleted::Gone))), "Delete u2");
        assert!(removing.begun.is_empty());
        assert!(removing.core.model.removals.values().all(Removal::is_done));
    }
}

/// It was made anew by hand, or restored, as soon as its finalizers had ended.
#[test]
fn what_has_the_place_of_what_finalized_is_deleted_for_itself_and_a_refusal_told() {
    let mut removing = begin(RemovalPolicy::Absence(Some(SAID)), true, Hub::IsHeard, standing("u2", 1));
    assert_eq!(removing.ends(OpResult::Delete(Ok(Deleted::Finalizing))), "Delete u2");
    assert!(removing.core.model.removals.values().all(Removal::is_finalizing));
    removing.step(Event::Gone { key: key("", "ConfigMap", "c"), uid: uid("u2") });
    // Once as what finalizes, and once as what is to be deleted.
    assert_eq!(removing.ends(found(standing("u3", 1))), "Get");
    assert_eq!(removing.ends(found(standing("u3", 1))), "Get");
    let refused = NotDone::Failed(Failure::new(Reason::Denied, "not on a Friday"));
    assert_eq!(removing.ends(OpResult::Delete(Err(refused))), "Delete u3");
    let held = RemovalState::Held(Reason::Denied, "not on a Friday".to_owned());
    assert!(removing.core.model.removals.values().all(|removal| *removal.state() == held));
}

#[test]
fn an_object_that_has_another_owner_by_now_is_left_alone() {
    let unmarked = Observed { mark: None, labelled: false, ..standing("u3", 1) };
    for there in [found(unmarked), found(standing("u3", 2)), OpResult::Get(Ok(None))] {
        let mut removing = listed_as_before(true);
        assert_eq!(removing.ends(there), "Get");
        assert!(removing.begun.is_empty());
        assert!(removing.core.model.removals.values().all(Removal::is_done));
    }
}

/// A data directory that was set back has removals of long ago. The key may have been assigned since, to another source or to
/// the same.
#[test]
fn an_object_unknown_to_the_journal_is_removed_only_after_the_hub_was_heard() {
    for (policy, source) in [
        (RemovalPolicy::Tombstone(SAID), 2),
        (RemovalPolicy::Tombstone(SAID), 1),
        (RemovalPolicy::Absence(Some(SAID)), 1),
    ] {
        let mut removing = begin(policy, true, Hub::IsAway, standing("u5", source));
        assert!(removing.begun.is_empty(), "{policy:?}: nobody has said what is to be there now");
        let held = RemovalState::Held(Reason::Unavailable, String::new());
        assert!(removing.core.model.removals.values().all(|removal| *removal.state() == held));
        // The hub says that nothing is new: what the journal says is current.
        removing.core.history_whole(Monotonic::START);
        removing.step(Event::ApiServerProbe { answers: true });
        assert_eq!(removing.ends(OpResult::Delete(Ok(Deleted::Gone))), "Delete u5");
        let core = &removing.core;
        assert!(core.model.removals.values().all(Removal::is_done));
        assert_eq!(core.model.recorded, 0, "what was deleted is not known of any more, whatever source it was of");
    }
}

/// What it holds takes seconds to list, and the watch tells meanwhile that it left our label.
#[test]
fn a_namespace_that_changes_owner_while_it_is_inspected_is_left_alone() {
    let yard = key("", "Namespace", "yard");
    let mark = |hub: &str, there: &Observed| {
        let mut mark = (**there.mark.as_ref().unwrap()).clone();
        mark.hub = hub.parse().unwrap();
        Some(Arc::new(mark))
    };
    for taken in [true, false] {
        let listed = standing_at(&yard, "u2", 1);
        let mut removing = begin(RemovalPolicy::Absence(Some(SAID)), true, Hub::IsHeard, listed.clone());
        removing.step(Event::Gone { key: yard.clone(), uid: uid("u2") });
        let mut itself = Box::new(Observed { labelled: false, ..listed });
        if taken {
            itself.mark = mark("33333333-3333-4333-8333-333333333333", &itself);
        }
        let there = found((*itself).clone());
        let empty = OpResult::Inspect(Ok(Inspected::Holds { foreign: 0, example: None, ours: 0, itself }));
        assert_eq!(removing.ends(empty.clone()), "Inspect");
        if !taken {
            // It has passed the fuse, and is judged once more when that is on disk.
            assert_eq!(removing.ends(there), "Get");
            assert_eq!(removing.ends(empty), "Inspect");
            assert_eq!(removing.ends(OpResult::Delete(Ok(Deleted::Gone))), "Delete u2");
        }
        assert!(removing.begun.is_empty(), "{:?}", removing.begun);
        assert!(removing.core.model.removals.values().all(Removal::is_done));
    }
}

/// The target was removed from a Placement and added again while its agent was offline.
fn comes_back(world: &mut World, key: &ObjectKey, policy: ApplyPolicy) {
    world.hub_is_away();
    world.run_for(Duration::from_mins(1));
    world.hub.remove(key);
    world.hub.policy = policy;
    world.hub.put(key, 1, 1);
    world.reconnect();
    world.quiesce();
    assert!(world.hub.tombstones.is_empty(), "{:?}", world.hub.tombstones);
}

#[test]
fn a_create_only_object_that_is_gone_is_created_anew_when_assigned_again() {
    let once = ApplyPolicy { mode: ApplyMode::CreateOnly, ..ApplyPolicy::default() };
    for (restarts, lost) in [(false, false), (true, false), (true, true)] {
        let mut world = World::new(3);
        let [gone, stands] = ["gone", "stands"].map(|name| key("", "ConfigMap", name));
        world.hub.policy = once.clone();
        world.hub.put(&gone, 1, 1);
        world.hub.put(&stands, 1, 1);
        world.quiesce();
        let uid = world.cluster.objects[&stands].uid.clone();
        world.cluster.delete(&gone);
        world.quiesce();
        assert!(!world.cluster.objects.contains_key(&gone), "gone it stays gone");
        if restarts {
            world.hub_is_away();
            world.crash();
        }
        if lost {
            world.lose_journal();
        }
        comes_back(&mut world, &gone, once.clone());
        comes_back(&mut world, &stands, once.clone());
        assert!(world.cluster.objects.contains_key(&gone));
        assert_eq!(world.cluster.objects[&stands].uid, uid, "what stands is not made anew");
        // And from now on it is as at first.
        world.cluster.delete(&gone);
        world.quiesce();
        assert!(!world.cluster.objects.contains_key(&gone));
    }
}

/// It is known to have been created, and is created anew: what waits for it does not go before that.
#[test]
fn the_next_wave_waits_for_what_is_made_anew() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        let [first, after, other] = ["first", "after", "other"].map(|name| key("", "ConfigMap", name));
        let gates = vec![Gate { placement: "retail/shop".to_owned(), deadline_seconds: 600 }];
        let once = ApplyPolicy { mode: ApplyMode::CreateOnly, gates, ..ApplyPolicy::default() };
        world.hub.policy = once;
        world.hub.put(&first, 1, 1);
        world.hub.put(&other, 1, 1);
        world.heal();
        world.quiesce();
        world.cluster.delete(&first);
        world.quiesce();
        world.hub_is_away();
        world.run_for(Duration::from_mins(1));
        world.hub.remove(&first);
        world.hub.waves.insert(after.clone(), 10);
        world.hub.put(&after, 1, 1);
        world.hub.put(&first, 1, 1);
        world.reconnect();
        let there = |world: &World, key| world.cluster.objects.contains_key(key);
        for _ in 0..400 {
            world.advance();
            assert!(there(&world, &first) || !there(&world, &after), "seed {seed}: the next wave went before");
        }
        world.quiesce();
        assert!(there(&world, &first) && there(&world, &after), "seed {seed}");
    }
}

/// An adopted object is orphaned when it leaves, whatever becomes of created ones.
#[test]
fn an_adopted_object_that_is_assigned_again_is_kept_only_by_a_policy_that_may_take_it_over() {
    let by_force = ApplyPolicy { takeover: Takeover::Always, ..ApplyPolicy::default() };
    for takeover in [Takeover::Always, Takeover::Never] {
        let mut world = World::new(5);
        let key = key("", "ConfigMap", "c");
        world.hub.policy = by_force.clone();
        world.cluster.intrude(&key, Means::Declaratively);
        world.hub.put(&key, 1, 1);
        world.quiesce();
        let local = world.cluster.objects.get_mut(&key).unwrap();
        assert_eq!(local.mark.as_ref().unwrap().origin, Origin::Adopted);
        local.declarative = false;
        let uid = local.uid.clone();
        comes_back(&mut world, &key, ApplyPolicy { takeover, ..ApplyPolicy::default() });
        assert_eq!(world.cluster.objects[&key].uid, uid);
        assert_eq!(world.cluster.objects[&key].mark.is_some(), takeover == Takeover::Always, "{takeover:?}");
    }
}

/// Its webhook hangs, say.
#[test]
fn a_removal_that_gets_no_answer_keeps_lower_waves_for_a_while_and_that_is_told() {
    let (mut world, [low, high]) = to_remove();
    let deletion = world.until_deletion_of(&high);
    world.run_just(Duration::from_secs(20));
    assert!(world.hub.conditions().is_empty(), "most deletions are over by then");
    world.run_just(Duration::from_secs(80));
    assert!(world.cluster.objects.contains_key(&low), "it waits for the higher wave");
    expect!["WaitingForWave 1: 1 removals of lower waves wait for 1 removals of wave 10 that are not answered, such as that of Secret shop/high"]
        .assert_eq(&world.hub.conditions().join("\n"));
    world.run_just(Duration::from_secs(40));
    assert!(!world.cluster.objects.contains_key(&low));
    assert!(world.hub.conditions().is_empty());
    world.deletion_fails(deletion);
    world.quiesce();
    assert_eq!(world.removals(), 0);
}

/// Two objects, of which the second is in a higher wave and so is to go first, as a custom resource before its operator.
fn to_remove() -> (World, [ObjectKey; 2]) {
    let mut world = World::new(9);
    let both = [key("", "ConfigMap", "low"), key("", "Secret", "high")];
    world.hub.waves.insert(both[1].clone(), 10);
    for key in &both {
        world.hub.put(key, 1, 1);
    }
    world.heal();
    world.quiesce();
    for key in &both {
        world.hub.remove(key);
    }
    (world, both)
}

/// The connection broke, say.
#[test]
fn a_deletion_that_is_tried_again_soon_keeps_lower_waves() {
    let (mut world, [low, high]) = to_remove();
    for _ in 0..3 {
        let deletion = world.until_deletion_of(&high);
        world.deletion_fails(deletion);
        assert!(world.cluster.objects.contains_key(&low), "it waits for the next try");
    }
    while world.cluster.objects.contains_key(&high) {
        assert!(world.cluster.objects.contains_key(&low), "it waits for the higher wave");
        world.advance();
    }
    world.quiesce();
    assert_eq!(world.removals(), 0);
}

/// The API server restarts, and refuses connections at once.
#[test]
fn lower_waves_wait_for_an_outage_of_half_a_minute() {
    let (mut world, [low, high]) = to_remove();
    let deletion = world.until_deletion_of(&high);
    world.deletion_fails(deletion);
    world.cluster.faults.outage = Some(Reason::Unavailable);
    world.run_just(Duration::from_secs(30));
    world.cluster.faults.outage = None;
    while world.cluster.objects.contains_key(&high) {
        assert!(world.cluster.objects.contains_key(&low), "it waits for the higher wave");
        world.advance();
    }
    world.quiesce();
    assert_eq!(world.removals(), 0);
}

/// What is above finalizes, and meanwhile somebody disturbs how it is seen, until after all that ends.
fn finalizes_while(disturb: fn(&mut World, &ObjectKey), mend: fn(&mut World)) {
    let (mut world, [low, high]) = to_remove();
    world.cluster.faults.unfinalized.insert(high.clone());
    world.run_just(Duration::from_secs(10));
    assert!(world.core.model.removals.values().any(Removal::is_finalizing));
    disturb(&mut world, &high);
    assert!(world.core.model.removals.values().any(Removal::is_finalizing));
    assert!(world.cluster.objects.contains_key(&low), "it waits for the finalizers of the higher wave");
    mend(&mut world);
    world.cluster.faults.unfinalized.clear();
    world.quiesce();
    assert_eq!(world.removals(), 0);
}

/// Nothing is listed of it for a moment.
#[test]
fn what_finalizes_keeps_lower_waves_though_its_kind_is_not_served_for_a_while() {
    let not_served = |world: &mut World, high: &ObjectKey| {
        world.cluster.serve(&high.kind, false);
        world.run_just(Duration::from_secs(20));
        world.cluster.serve(&high.kind, true);
        world.run_just(Duration::from_secs(40));
    };
    finalizes_while(not_served, |_| {});
}

/// Its conversion webhook is away, say, for a moment.
#[test]
fn what_finalizes_keeps_lower_waves_though_it_cannot_be_looked_at() {
    let unreadable = |world: &mut World, high: &ObjectKey| {
        world.cluster.faults.unreadable.insert(high.clone());
        world.lose_watch(&high.kind);
        world.run_just(Duration::from_mins(1));
    };
    finalizes_while(unreadable, |world| world.cluster.faults.unreadable.clear());
}

#[test]
fn what_was_deleted_waits_for_no_gate() {
    let gates = vec![Gate { placement: "retail/shop".to_owned(), deadline_seconds: 600 }];
    let mut world = World::new(9);
    world.hub.policy = ApplyPolicy { gates, ..ApplyPolicy::default() };
    let [old, first, after] = ["old", "first", "after"].map(|name| key("apps", "Deployment", name));
    world.hub.put(&old, 1, 1);
    world.heal();
    world.quiesce();
    world.cluster.faults.unfinalized.insert(old.clone());
    world.hub.remove(&old);
    world.run_just(Duration::from_secs(10));
    let states = |world: &World| world.core.model.removals.values().map(|it| it.state().clone()).collect::<Vec<_>>();
    assert_eq!(states(&world), [RemovalState::Finalizing]);
    world.cluster.faults.slow = true;
    world.hub.waves.insert(after.clone(), 10);
    world.hub.put(&first, 1, 1);
    world.hub.put(&after, 1, 1);
    world.run_just(Duration::from_mins(2));
    assert!(world.core.guards.gates.hold_any(), "the later wave waits for the first");
    assert_eq!(states(&world), [RemovalState::Finalizing]);
    world.cluster.faults.unfinalized.clear();
    world.run_just(Duration::from_mins(1));
    assert!(states(&world).iter().all(|state| *state == RemovalState::Done), "{:?}", states(&world));
}

/// Without its label it must be read, and without the journal it is not orphaned yet.
#[test]
fn an_object_due_for_orphaning_is_not_read_over_and_over_while_the_journal_cannot_be_written() {
    let key = key("", "ConfigMap", "web");
    let mut world = World::new(3);
    world.hub.policy.prune = Prune::Orphan;
    world.hub.put(&key, 1, 1);
    world.heal();
    world.quiesce();
    world.hub.remove(&key);
    while world.removals() == 0 {
        world.advance();
    }
    world.cluster.strip(&key, Stripped::Both);
    world.no_journal = true;
    let before = world.ops;
    // It ends by itself if there is no rest.
    world.quiesce();
    let operations = world.ops - before;
    assert!(operations <= 30, "{operations} operations in half an hour");
    world.journal_opens();
    world.quiesce();
    assert_eq!((world.removals(), world.cluster.objects[&key].mark.is_none()), (0, true));
}

#[test]
fn an_entry_that_comes_during_a_deletion_is_tried_though_the_deletion_fails() {
    let mut world = World::new(0);
    world.heal();
    let [key, other] = ["c", "other"].map(|name| key("", "ConfigMap", name));
    world.hub.put(&key, 0, 1);
    world.hub.put(&other, 0, 1);
    world.quiesce();
    world.hub.remove(&key);
    let deletion = world.until_deletion_of(&key);
    world.hub.put(&key, 1, 2);
    // One that waits until everything has been tried.
    world.hub.remove(&other);
    world.run_just(Duration::from_secs(5));
    world.deletion_fails(deletion);
    world.run_just(Duration::from_secs(30));
    assert_eq!(world.cluster.objects[&key].input, Some(entry(&key, 1, 2).input));
    assert!(!world.cluster.objects.contains_key(&other), "its removal waits");
    assert_eq!(world.removals(), 0);
}

/// The objects are there all the time, and under our mark.
#[test]
fn a_removal_is_not_done_because_its_kind_is_not_served_for_a_while() {
    let [key, other] = [key("apps", "Deployment", "web"), key("", "ConfigMap", "other")];
    let mut world = World::new(3);
    world.hub.put(&key, 1, 1);
    world.hub.put(&other, 1, 1);
    world.heal();
    world.quiesce();
    world.cluster.serve(&key.kind, false);
    world.quiesce();
    world.hub.remove(&key);
    world.quiesce();
    assert_eq!(world.removals(), 1);
    assert_eq!(world.hub.held(Reason::KindMissing).collect::<Vec<_>>(), [&key]);
    world.cluster.serve(&key.kind, true);
    world.quiesce();
    assert_eq!(world.removals(), 0);
    assert!(!world.cluster.objects.contains_key(&key));
    world.check_converged();
}
