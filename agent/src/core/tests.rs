//! A whole core against a cluster and a hub in memory, with faults and crashes between any two effects, by seed.

use std::collections::BTreeMap;
use std::time::Duration;

use tideline_common::wire::v1::{Accepted, Attested, Progress};
use tideline_common::{
    ApplyMode, ApplyPolicy, Attestation, Digest, Entry, EntryState, Formers, GroupKind, HubId, ObjectKey, Reason,
    RevisionPoint, Shown, SourceRef, SpaceName, TargetId, Uid, Version,
};

use super::model::object::Me;
use crate::simulated_cluster::Stripped;

pub(crate) mod hub;
mod watches;
pub(crate) mod world;

use world::World;

const SEEDS: u64 = 100;

/// A hub's attestation that nobody signed.
pub(super) fn attestation(version: Version) -> Attestation {
    Attestation::unsigned(target_id(), Shown { version, point: RevisionPoint::NOWHERE })
}

pub(crate) fn attested(set: Accepted) -> Attested {
    Attested { set, attestation: attestation(set.version) }
}

/// An object is to be left behind, and the API server refuses that: it is still marked, and the journal knows that it was begun.
pub(super) fn with_refused_orphaning(seed: u64, key: &ObjectKey) -> World {
    let mut world = World::new(seed);
    world.hub.put(key, 1, 1);
    world.heal();
    world.quiesce();
    world.cluster.faults.unwritable.insert(key.clone());
    world.hub.order_orphaning(key);
    world.quiesce();
    assert!(world.journal.applied.iter().any(|(_, record)| record.orphaning), "it was begun");
    world
}

#[test]
fn the_cluster_converges_on_the_hub_s_set_whatever_fails_on_the_way() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for _ in 0..40 {
            world.mishap();
            world.run_with_faults(20);
        }
        world.heal();
        world.quiesce();
        world.check_converged();
        world.check_reported();
        world.check_at_rest();
    }
}

#[test]
fn without_the_hub_the_accepted_set_is_kept_across_restarts() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for _ in 0..10 {
            world.mishap();
            world.run_with_faults(20);
        }
        world.heal();
        world.quiesce();
        world.cut_off();
        for _ in 0..10 {
            world.disturb_cluster();
            world.run_with_faults(10);
            world.crash();
        }
        world.heal_cluster();
        world.quiesce();
        world.check_converged();
    }
}

#[test]
fn a_large_set_is_created_once_and_in_order() {
    let mut world = World::new(7);
    world.hub.page = 100;
    for i in 0..2_000 {
        world.hub.put(&key("", "ConfigMap", &format!("c{i:04}")), 1, 0);
    }
    world.heal();
    world.quiesce();
    world.check_converged();
    world.check_reported();
    assert_eq!(world.ops, 2_000);
    world.check_at_rest();
}

#[test]
fn after_a_hub_lost_its_history_nothing_is_deleted_until_it_is_assigned_again() {
    let mut world = World::new(3);
    let keys: Vec<ObjectKey> = (0..20).map(|i| key("apps", "Deployment", &format!("d{i:02}"))).collect();
    for key in &keys {
        world.hub.put(key, 1, 1);
    }
    world.heal();
    world.quiesce();
    world.check_converged();
    world.hub = world.hub.restored_empty();
    for restart in [false, true] {
        if restart {
            world.crash();
        }
        world.quiesce();
        assert_eq!(world.cluster.objects.len(), keys.len());
        assert_eq!(world.hub.reports.len(), keys.len());
        for (_, _, report) in world.hub.reports.values() {
            assert_eq!((report.progress, report.reason), (Progress::DeletionHeld, Some(Reason::HistoryLost)));
        }
    }
    let ops = world.ops;
    for key in &keys {
        world.hub.put(key, 1, 1);
    }
    world.quiesce();
    world.check_converged();
    world.check_reported();
    assert_eq!(world.ops - ops, 20, "each is read once for its status, and not written");
}

/// Somebody deletes what is held for lost history, or it ends by itself, and no removal of ours is under way.
#[test]
fn what_is_held_for_lost_history_and_goes_by_itself_is_held_no_more_and_does_not_widen_the_fuse() {
    for (seed, restart) in [(3, false), (4, true)] {
        let mut world = World::with_fuse(seed, super::FuseLimits::default());
        let keys: Vec<ObjectKey> = (0..60).map(|i| key("", "ConfigMap", &format!("c{i:02}"))).collect();
        for key in &keys {
            world.hub.put(key, 1, 1);
        }
        world.heal();
        world.quiesce();
        let (gone, rest) = keys.split_at(40);
        let (unlabelled, kept) = rest.split_first().expect("there are twenty");
        world.hub = world.hub.restored_empty();
        for key in kept {
            world.hub.put(key, 1, 1);
        }
        world.quiesce();
        assert_eq!(world.hub.held(Reason::HistoryLost).count(), gone.len() + 1);
        world.cluster.strip(unlabelled, Stripped::Label);
        for key in gone {
            world.cluster.delete(key);
        }
        if restart {
            world.crash();
        }
        world.quiesce();
        assert_eq!(world.hub.held(Reason::HistoryLost).collect::<Vec<_>>(), [unlabelled], "restart: {restart}");
        assert_eq!(world.journal.applied.len(), rest.len(), "restart: {restart}");
        assert_eq!(world.core.model.recorded, rest.len(), "restart: {restart}");
        // Eleven of twenty are too many, and were few of sixty.
        for key in &kept[..11] {
            world.hub.remove(key);
        }
        world.quiesce();
        assert_eq!(world.hub.held(Reason::FuseHeld).count(), 11, "restart: {restart}");
        // The one that lost its label is looked for until it is gone, too.
        world.cluster.delete(unlabelled);
        world.quiesce();
        assert_eq!(world.hub.held(Reason::HistoryLost).count(), 0, "restart: {restart}");
    }
}

/// Fifty objects, thirty of which are to go, and that is too many.
fn held_by_the_fuse() -> (World, Vec<ObjectKey>) {
    let mut world = World::with_fuse(3, super::FuseLimits::default());
    let keys: Vec<ObjectKey> = (0..50).map(|i| key("", "ConfigMap", &format!("c{i:02}"))).collect();
    for key in &keys {
        world.hub.put(key, 1, 1);
    }
    world.heal();
    world.quiesce();
    for key in &keys[..30] {
        world.hub.remove(key);
    }
    world.quiesce();
    assert_eq!(world.cluster.objects.len(), keys.len());
    (world, keys)
}

#[test]
fn a_removal_beyond_the_fuse_is_held_and_reported() {
    let (world, _) = held_by_the_fuse();
    let held = world.hub.reports.values().filter(|(_, _, report)| report.reason == Some(Reason::FuseHeld));
    assert_eq!(held.count(), 30);
}

/// Held removals were assigned again, and unassigned before they were evaluated: they are as many as before.
#[test]
fn the_fuse_counts_all_of_a_removal_that_was_reassigned_and_unassigned_again() {
    let (mut world, keys) = held_by_the_fuse();
    for key in &keys[..30] {
        world.hub.put(key, 1, 1);
    }
    // None is evaluated yet.
    while world.core.model.desired.len() < keys.len() {
        world.advance();
    }
    world.crash();
    for key in &keys[..30] {
        world.hub.remove(key);
    }
    world.quiesce();
    assert_eq!(world.cluster.objects.len(), keys.len(), "nothing of it goes without an approval");
}

#[test]
fn after_a_lost_journal_existing_objects_are_recorded_and_not_written_again() {
    let mut world = World::new(3);
    let keys: Vec<ObjectKey> = (0..20).map(|i| key("apps", "Deployment", &format!("d{i:02}"))).collect();
    for key in &keys {
        world.hub.put(key, 1, 1);
    }
    world.heal();
    world.quiesce();
    let (ops, versions) = (world.ops, world.cluster.versions);
    world.lose_journal();
    world.quiesce();
    world.check_converged();
    world.check_reported();
    assert_eq!(world.cluster.versions, versions, "nothing is written");
    // Each is compared once, and read once for its status.
    assert!(world.ops - ops <= 40, "{}", world.ops - ops);
    world.check_at_rest();
}

#[test]
fn a_create_only_object_changes_owner_by_its_mark_alone_and_is_removed_with_its_new_source() {
    let mut world = World::new(3);
    world.hub.policy.mode = ApplyMode::CreateOnly;
    let once = key("", "ConfigMap", "once");
    world.hub.put(&once, 1, 1);
    world.heal();
    world.quiesce();
    world.cluster.edit(&once);
    world.quiesce();
    let (before, versions) = (world.cluster.objects[&once].clone(), world.cluster.versions);

    world.hub.put(&once, 2, 2);
    world.quiesce();
    world.crash();
    world.quiesce();
    let after = &world.cluster.objects[&once];
    assert_eq!(after.mark.as_ref().map(|mark| &mark.source.uid), Some(&uid("s2")));
    assert_eq!((&after.uid, after.input), (&before.uid, None), "what somebody changed stays so");
    assert_eq!(world.cluster.versions, versions + 1, "it is written once");
    assert!(world.hub.tombstones.is_empty(), "the former source is done with");

    world.hub.remove(&once);
    world.quiesce();
    world.cluster.do_chores();
    world.quiesce();
    world.check_converged();
    world.check_reported();
    world.check_at_rest();
}

#[test]
fn a_local_change_without_a_journal_is_corrected() {
    let mut world = World::new(3);
    let keys: Vec<ObjectKey> = (0..6).map(|i| key("", "ConfigMap", &format!("c{i:02}"))).collect();
    for key in &keys {
        world.hub.put(key, 1, 1);
    }
    world.heal();
    world.quiesce();
    world.cluster.edit(&keys[0]);
    world.cluster.delete(&keys[1]);
    world.hub.put(&keys[2], 1, 2);
    world.hub.remove(&keys[3]);
    world.lose_journal();
    world.quiesce();
    world.check_converged();
    world.check_reported();
    world.check_at_rest();
}

pub(super) fn me() -> Me {
    Me { hub: hub_id(), target: target_id(), formers: Formers::default() }
}

pub(crate) fn hub_id() -> HubId {
    "11111111-1111-4111-8111-111111111111".parse().unwrap()
}

pub(crate) fn target_id() -> TargetId {
    "22222222-2222-4222-8222-222222222222".parse().unwrap()
}

/// A target that the agent becomes.
pub(super) fn heir(number: u128) -> TargetId {
    TargetId::from_uuid(uuid::Uuid::from_u128(77 + number))
}

pub(crate) fn uid(text: &str) -> Uid {
    text.parse().unwrap()
}

pub(crate) fn key(group: &str, kind: &str, name: &str) -> ObjectKey {
    let namespace = if kind == "Namespace" { "" } else { "shop" };
    ObjectKey::new(GroupKind::new(group, kind), namespace, name)
}

/// An entry whose source and input are told apart by numbers.
pub(super) fn entry(key: &ObjectKey, source: u64, input: u64) -> Entry {
    Entry {
        key: key.clone(),
        version: "v1".into(),
        source: SourceRef {
            space: SpaceName::root(),
            uid: uid(&format!("s{source}")),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
        },
        generation: i64::try_from(input).unwrap(),
        state: EntryState::Apply,
        input: Digest::of(format!("{key} {source} {input}").as_bytes()),
        policy: ApplyPolicy::default().digest(),
        wave: if &*key.kind.kind == "Namespace" { -1 } else { 0 },
        impersonate: None,
        implied: false,
    }
}

/// A stream of numbers that a seed determines.
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound as u64).unwrap()
    }

    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(super) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

pub(crate) type Policies = BTreeMap<Digest, std::sync::Arc<ApplyPolicy>>;

pub(super) fn policies() -> Policies {
    let policy = ApplyPolicy::default();
    [(policy.digest(), policy.into())].into()
}

#[test]
fn an_object_that_another_hub_took_over_is_never_deleted() {
    for restart in [false, true] {
        let mut world = World::new(8);
        let keys = [key("", "ConfigMap", "c0"), key("", "ConfigMap", "c1")];
        for key in &keys {
            world.hub.put(key, 1, 1);
        }
        world.heal();
        world.quiesce();
        let before = world.cluster.objects[&keys[0]].uid.clone();
        world.cluster.seize(&keys[0]);
        world.quiesce();
        if restart {
            world.crash();
        }
        for key in &keys {
            world.hub.remove(key);
        }
        world.quiesce();
        assert_eq!(world.cluster.objects.keys().collect::<Vec<_>>(), [&keys[0]], "restart: {restart}");
        assert_eq!(world.cluster.objects[&keys[0]].uid, before);
        assert!(world.hub.tombstones.is_empty(), "the hub knows that nothing of ours is left");
    }
}

#[test]
fn the_fuse_counts_existing_objects_and_not_those_only_assigned() {
    let mut world = World::with_fuse(3, super::FuseLimits::default());
    let keys: Vec<ObjectKey> = (0..100).map(|i| key("", "ConfigMap", &format!("c{i:02}"))).collect();
    for key in &keys[..20] {
        world.hub.put(key, 1, 1);
    }
    world.heal();
    world.quiesce();
    // Eighty keys belong to others: of what exists, 15 objects are more than a fifth.
    for key in &keys[20..] {
        let like = keys[0].clone();
        world.cluster.carry(key, &like);
        world.hub.put(key, 1, 1);
    }
    world.quiesce();
    for key in &keys[..15] {
        world.hub.remove(key);
    }
    world.quiesce();
    assert_eq!(world.cluster.objects.len(), keys.len());
}

#[test]
fn a_controller_stays_until_what_it_finalizes_is_gone_or_had_its_time() {
    for finalized in [true, false] {
        let mut world = World::new(9);
        let (controller, resource) = (key("apps", "Deployment", "operator"), key("example.org", "Widget", "w"));
        world.hub.waves.insert(resource.clone(), 10);
        let both = [controller.clone(), resource.clone()];
        for key in &both {
            world.hub.put(key, 1, 1);
        }
        world.heal();
        world.quiesce();
        world.cluster.faults.unfinalized.insert(resource.clone());
        for key in &both {
            world.hub.remove(key);
        }
        world.run_for(Duration::from_secs(90));
        assert!(world.cluster.objects[&resource].deleting);
        assert!(world.cluster.objects.contains_key(&controller) && !world.cluster.objects[&controller].deleting);
        if finalized {
            world.cluster.faults.unfinalized.clear();
            world.cluster.do_chores();
        }
        world.run_for(Duration::from_secs(if finalized { 5 } else { 60 }));
        let gone = |key| world.cluster.objects.get(key).is_none_or(|local| local.deleting);
        assert!(gone(&controller), "finalized: {finalized}");
        assert_eq!(world.cluster.objects.contains_key(&resource), !finalized);
    }
}
