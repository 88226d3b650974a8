use std::collections::VecDeque;

use super::*;
use crate::core::decide::plan;
use crate::core::decide::plan::mark_of;
use crate::core::decide::set_back::LIST_FIRST_MAX;
use crate::core::interface::effect::{Earlier, Op};
use crate::core::interface::event::Event;
use crate::core::interface::observed::{Observed, ObservedStatus, Served};
use crate::core::interface::op_result::{Created, Failure, NotDone, OpResult};
use crate::core::interface::write::{AppliedRecord, FreezeReason, RemovalPolicy, Write};
use crate::core::model::object::Me;
use crate::core::model::seen::Seen;
use crate::core::sync::mode::HubVerdict;
use crate::core::tests::world::World;
use crate::core::tests::{attested, entry, hub_id, key, me, policies, target_id, uid};
use crate::core::work::conclude::{RETRY, TRIES_MAX};
use crate::core::{Config, Enrolled, FuseLimits, Loaded};

use tideline_common::wire::v1::{Accepted, ClusterFacts, Progress, Terminal};
use tideline_common::{ApplyPolicy, DesiredSet, Formers, Origin, Prune, PrunePolicy, Takeover, Version};

mod jobs;
mod refused;
mod unanswered;

use jobs::{Disk, creation, keep};

/// A core that restarted offline with these entries accepted and an empty cluster.
struct Offline {
    core: Core,
    loaded: Loaded,
    now: Monotonic,
    begun: Vec<(OpId, ObjectKey)>,
    /// What was known of earlier requests when the last creation was begun.
    earlier: Option<Earlier>,
    /// How long the disk takes.
    disk: Disk,
    stopped: bool,
}

fn config() -> Config {
    Config {
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
    }
}

impl Offline {
    fn new(entries: Vec<Entry>) -> Self {
        Self::within(crate::Namespaces::All, entries)
    }

    fn within(namespaces: crate::Namespaces, entries: Vec<Entry>) -> Self {
        let entries: Vec<Arc<Entry>> = entries.into_iter().map(Arc::new).collect();
        let set: DesiredSet = entries.iter().cloned().collect();
        let loaded = Loaded {
            enrolled: Some(Enrolled { target: target_id(), name: "store".into() }),
            accepted: Some(attested(Accepted { version: Version::default(), digest: set.digest() })),
            bodies: entries.iter().map(|entry| entry.input).collect(),
            policies: policies(),
            entries: entries.clone(),
            ..Loaded::default()
        };
        let mut offline = Self {
            core: Core::new(Config { namespaces, ..config() }, loaded.clone()),
            loaded,
            now: Monotonic::START,
            begun: Vec::new(),
            earlier: None,
            disk: Disk::Quick,
            stopped: false,
        };
        offline.step(Event::Started);
        offline.list();
        offline
    }

    fn list(&mut self) {
        let entries = self.loaded.entries.clone();
        let kinds: BTreeSet<_> = entries.iter().map(|entry| entry.key.kind.clone()).collect();
        for kind in kinds {
            let served = Served::Yes { namespaced: true, status: false };
            self.step(Event::Kind { kind: kind.clone(), served });
            self.step(Event::Listed { kind, objects: Vec::new() });
        }
    }

    /// The process ends and is started again; the cluster is empty by then.
    fn restart(&mut self) {
        self.restart_without_lists();
        self.list();
    }

    fn restart_without_lists(&mut self) {
        self.begun.clear();
        self.core = Core::new(config(), self.loaded.clone());
        self.step(Event::Started);
    }

    fn step(&mut self, event: Event) {
        let mut out = Vec::new();
        self.core.step(self.now, event, &mut out);
        for effect in out {
            match effect {
                Effect::Execute { id, op: Op::Create { entry, earlier, .. } } => {
                    let job = entry.key.kind.is_job();
                    assert!(!job || self.loaded.creating.contains(&creation(&entry)), "the journal does not have it");
                    self.earlier = Some(earlier);
                    self.begun.push((id, entry.key.clone()));
                }
                Effect::Persist { .. } if self.disk == Disk::Silent => {}
                Effect::Persist { id, writes } => {
                    keep(&mut self.loaded, &writes);
                    self.step(Event::Persisted { id, result: Ok(()) });
                }
                Effect::Stopped => self.stopped = true,
                _ => {}
            }
        }
    }

    fn fail(&mut self, reason: Reason) -> ObjectKey {
        let (id, key) = self.begun.remove(0);
        let result = OpResult::Create(Err(Failure::new(reason, "no")));
        self.step(Event::Executed { id, result });
        key
    }

    fn names(&self) -> Vec<&str> {
        self.begun.iter().map(|(_, key)| &*key.name).collect()
    }
}

fn config_map(name: &str, wave: i32) -> Entry {
    Entry { wave, ..entry(&key("", "ConfigMap", name), 1, 1) }
}

#[test]
fn a_bounded_number_of_operations_is_under_way() {
    let offline = Offline::new((0..100).map(|i| config_map(&format!("c{i}"), 0)).collect());
    assert_eq!(offline.begun.len(), 32);
}

#[test]
fn an_agent_that_is_asked_to_end_finishes_what_is_under_way_and_begins_nothing() {
    let mut offline = Offline::new((0..100).map(|i| config_map(&format!("c{i}"), 0)).collect());
    let under_way = std::mem::take(&mut offline.begun);
    offline.step(Event::Stop);
    for (id, key) in &under_way {
        assert!(!offline.stopped);
        let written = made(created(key, None));
        offline.step(Event::Executed { id: *id, result: written });
    }
    assert!(offline.stopped && offline.begun.is_empty());
    let recorded: BTreeSet<_> = offline.loaded.applied.iter().map(|(key, _)| key).collect();
    assert_eq!(recorded, under_way.iter().map(|(_, key)| key).collect());
}

#[test]
fn other_kinds_begin_while_one_kind_uses_its_share() {
    let mut entries: Vec<Entry> = (0..100).map(|i| config_map(&format!("c{i}"), 0)).collect();
    entries.push(entry(&key("apps", "Deployment", "d"), 1, 1));
    let offline = Offline::new(entries);
    assert_eq!(offline.names().len(), 33);
    assert!(offline.names().contains(&"d"));
}

#[test]
fn a_throttled_attempt_does_not_count_and_pauses_everything_for_the_retry_after() {
    let mut offline = Offline::new(vec![config_map("early", 0), config_map("late", 1)]);
    let (id, early) = offline.begun.remove(0);
    let retry_after = Some(Duration::from_secs(3));
    offline.step(Event::Executed { id, result: throttled(retry_after) });
    let outcome = &offline.core.model.objects.get(&early).unwrap().outcome;
    assert_eq!((outcome.progress, outcome.reason), (Progress::Pending, Some(Reason::Throttled)));
    offline.now = offline.now + Duration::from_secs(2);
    offline.core.enqueue(&early);
    offline.step(Event::Timer(Timer::Retry));
    assert!(offline.begun.is_empty(), "whatever asks for it");
    offline.now = offline.now + Duration::from_secs(1);
    offline.step(Event::Timer(Timer::Retry));
    assert_eq!(offline.names(), ["early"]);
    for _ in 0..TRIES_MAX {
        let (id, _) = offline.begun.remove(0);
        let result = throttled(None);
        offline.step(Event::Executed { id, result });
        offline.now = offline.now + Duration::from_mins(1);
        offline.step(Event::Timer(Timer::Retry));
    }
    assert_eq!(offline.names(), ["early"], "one at a time by now");
    offline.fail(Reason::Throttled);
    offline.now = offline.now + Duration::from_secs(30);
    offline.core.dequeue(&early);
    offline.step(Event::Timer(Timer::Retry));
    assert_eq!(offline.names(), ["late"], "in the end later waves wait no longer");
}

/// Nothing is begun, so that nothing would notice that the pause is over.
#[test]
fn a_frozen_agent_is_not_woken_again_and_again_for_a_pause_that_is_over() {
    let mut offline = Offline::new(vec![config_map("early", 0)]);
    let (id, _) = offline.begun.remove(0);
    let retry_after = Some(Duration::from_secs(3));
    let result = throttled(retry_after);
    offline.step(Event::Executed { id, result });
    let verdict = HubVerdict::Frozen(FreezeReason::Fenced("another".into()));
    offline.core.take_verdict(offline.now, verdict, &mut Vec::new());
    offline.now = offline.now + Duration::from_secs(3);
    let mut out = Vec::new();
    offline.core.step(offline.now, Event::Timer(Timer::Retry), &mut out);
    let is_due = |effect: &Effect| matches!(effect, Effect::SetTimer { timer: Timer::Retry, at } if *at <= offline.now);
    assert!(!out.iter().any(is_due), "{out:?}");
}

/// Lists that nobody could answer count for nothing: the wait is for the first of them, and not since the start.
#[test]
fn an_old_journal_is_not_acted_upon_while_the_api_server_is_away() {
    let mut offline = Offline::new(vec![config_map("a", 0)]);
    offline.restart_without_lists();
    let kind = offline.loaded.entries[0].key.kind.clone();
    let lost = || Event::WatchLost { kind: kind.clone(), reason: Reason::Unavailable, message: "refused".into() };
    offline.step(Event::Kind { kind: kind.clone(), served: Served::Unknown });
    offline.step(lost());
    offline.now = offline.now + Duration::from_mins(5);
    offline.step(Event::Kind { kind: kind.clone(), served: Served::Yes { namespaced: true, status: false } });
    offline.step(lost());
    assert!(offline.begun.is_empty(), "it has just come");
    offline.now = offline.now + Duration::from_secs(31);
    offline.step(Event::Timer(Timer::Retry));
    assert_eq!(offline.names(), ["a"]);
}

#[test]
fn an_object_with_a_long_backoff_delays_no_later_wave() {
    let mut offline = Offline::new(vec![config_map("early", 0), config_map("late", 1)]);
    let (id, early) = offline.begun.remove(0);
    let retry_after = Some(Duration::from_hours(1));
    let result = throttled(retry_after);
    offline.step(Event::Executed { id, result });
    offline.now = offline.now + Duration::from_mins(1);
    offline.step(Event::Timer(Timer::Retry));
    assert_eq!(offline.names(), ["late"]);
    offline.now = offline.now + Duration::from_hours(1);
    offline.step(Event::Timer(Timer::Retry));
    assert_eq!(offline.names(), ["late", &*early.name], "it waits as long as it was told");
}

#[test]
fn an_object_behind_a_webhook_delays_neither_siblings_nor_later_waves() {
    let mut entries: Vec<Entry> = (0..100).map(|i| config_map(&format!("c{i:03}"), 0)).collect();
    entries.push(Entry { wave: 0, ..entry(&key("", "Secret", "sibling"), 1, 1) });
    // Behind all of its kind that wait.
    let elsewhere = ObjectKey { namespace: "zoo".into(), ..key("", "ConfigMap", "elsewhere") };
    entries.push(Entry { wave: 0, ..entry(&elsewhere, 1, 1) });
    entries.push(Entry { wave: 5, ..entry(&key("apps", "Deployment", "later"), 1, 1) });
    let mut offline = Offline::new(entries);
    assert!(offline.names().contains(&"sibling"));
    offline.begun.retain(|(_, key)| &*key.name != "sibling");
    let sibling = key("", "Secret", "sibling");
    let id = offline.core.model.objects.get(&sibling).unwrap().work.in_flight().expect("it is under way");
    let written = made(created(&sibling, None));
    offline.step(Event::Executed { id, result: written });

    offline.now = offline.now + Duration::from_secs(10);
    let before: Vec<_> = offline.begun.drain(..).collect();
    assert_eq!(before.len(), 32);
    for (id, _) in &before {
        let message = "failed calling webhook \"a.b\": context deadline exceeded";
        let result = OpResult::Create(Err(Failure::new(Reason::Webhook, message)));
        offline.step(Event::Executed { id: *id, result });
    }
    assert_eq!(offline.names(), ["elsewhere", "c032", "c033"], "the webhook is not asked about the first");
    let (id, _) = offline.begun.remove(0);
    let written = made(created(&elsewhere, None));
    offline.step(Event::Executed { id, result: written });
    assert_eq!(offline.names(), ["c032", "c033", "later"]);
    let waiting = &offline.core.model.objects.get(&key("", "ConfigMap", "c099")).unwrap().outcome;
    assert_eq!((waiting.progress, waiting.reason), (Progress::Pending, Some(Reason::Webhook)));
    assert!(waiting.message.contains("a.b"));

    // More are not due: these are enough to find out.
    offline.now = offline.now + Duration::from_mins(1);
    offline.step(Event::Timer(Timer::Retry));
    assert_eq!(offline.names(), ["c032", "c033", "later"]);

    // It answers again: all get through, two by two, and nothing waits for its own retry.
    let mut through = 0;
    while let Some(at) = offline.begun.iter().position(|(_, key)| &*key.kind.kind == "ConfigMap") {
        assert!(offline.names().len() <= 5, "{:?}", offline.names());
        let (id, key) = offline.begun.remove(at);
        let (me, entry) = (offline.core.model.me().unwrap(), offline.core.model.desired.get(&key).unwrap());
        let mark = Some(Arc::new(plan::mark_of(me, entry, &ApplyPolicy::default(), Origin::Created)));
        let managed = Some(tideline_common::Digest::of(b"managed"));
        offline.step(Event::Executed { id, result: made(Observed { managed, mark, ..created(&key, None) }) });
        through += 1;
    }
    assert_eq!(through, 100);
}

#[test]
fn a_wave_begins_when_all_before_it_was_tried_however_it_ended() {
    let mut offline = Offline::new(vec![config_map("late", 5), config_map("a", -1), config_map("b", -1)]);
    assert_eq!(offline.names(), ["a", "b"]);
    offline.fail(Reason::Invalid);
    assert_eq!(offline.names(), ["b"]);
    offline.fail(Reason::Invalid);
    assert_eq!(offline.names(), ["late"]);
}

#[test]
fn a_failing_object_is_retried_with_growing_pauses() {
    let mut offline = Offline::new(vec![config_map("a", 0)]);
    let mut waits = Vec::new();
    for _ in 0..12 {
        offline.fail(Reason::Invalid);
        assert!(offline.begun.is_empty(), "it is not tried again at once");
        let at = offline.core.work.retries.first().unwrap().0;
        waits.push(at.since(offline.now).as_secs());
        offline.now = at;
        offline.step(Event::Timer(Timer::Retry));
    }
    assert!(waits.windows(2).all(|pair| pair[1] + 1 >= pair[0] || pair[1] >= 150), "{waits:?}");
    assert!(waits.iter().all(|wait| *wait <= 300), "{waits:?}");
}

/// By a webhook, say, that answers at once. Each has a wait of its own, and all of them together would be requested all the
/// time.
#[test]
fn many_denied_objects_are_retried_seldom_and_all_of_them_once_one_is_admitted() {
    for (reason, refused) in [(Reason::Invalid, false), (Reason::Forbidden, true), (Reason::Denied, true)] {
        let mut offline = Offline::new((0..200).map(|i| config_map(&format!("c{i:03}"), 0)).collect());
        while !offline.begun.is_empty() {
            offline.fail(reason);
        }
        let waits = offline.core.work.retries.iter().map(|(at, _)| at.since(offline.now));
        assert_eq!(waits.max().is_some_and(|longest| longest > RETRY.0), refused, "{reason:?}");

        offline.now = offline.core.work.retries.first().unwrap().0;
        offline.step(Event::Timer(Timer::Retry));
        let (id, key) = offline.begun.remove(0);
        let written = made(created(&key, None));
        offline.step(Event::Executed { id, result: written });
        assert_eq!(!offline.begun.is_empty(), refused, "{reason:?}");
    }
}

#[test]
fn an_object_that_waits_for_its_namespace_is_created_when_it_appears() {
    let namespace = entry(&key("", "Namespace", "shop"), 1, 1);
    let mut offline = Offline::new(vec![namespace, config_map("a", 0)]);
    let (create_namespace, _) = offline.begun.remove(0);
    assert!(offline.begun.is_empty());
    let failed = OpResult::Create(Err(Failure::new(Reason::Forbidden, "quota")));
    offline.step(Event::Executed { id: create_namespace, result: failed });
    offline.fail(Reason::NamespaceUnavailable);
    assert!(offline.begun.is_empty());
    offline.core.wake_namespace(&"shop".into());
    offline.step(Event::Timer(Timer::Retry));
    assert_eq!(offline.names(), ["a"]);
}

#[test]
fn a_namespace_that_is_on_its_way_out_has_nothing_tried_and_its_successor_has() {
    let namespace = entry(&key("", "Namespace", "shop"), 1, 1);
    let there = Observed { generation: 0, ..standing(&namespace, &ApplyPolicy::default(), "5") };
    let mut offline = Offline::new(vec![namespace, config_map("a", 0)]);
    let (create, _) = offline.begun.remove(0);
    offline.step(Event::Executed { id: create, result: made(there.clone()) });
    offline.fail(Reason::NamespaceUnavailable);
    for version in ["6", "7", "8"] {
        let leaving = Observed { deleting: true, resource_version: version.into(), ..there.clone() };
        offline.step(Event::Observed(Box::new(leaving)));
        assert!(offline.begun.is_empty(), "at {version}");
    }
    let next = Observed { uid: "u2".parse().unwrap(), resource_version: "9".into(), ..there };
    offline.step(Event::Observed(Box::new(next)));
    assert_eq!(offline.names(), ["a"]);
}

#[test]
fn a_kind_that_cannot_be_listed_does_not_hold_up_the_others() {
    let deployment = entry(&key("apps", "Deployment", "d"), 1, 1);
    let mut offline = Offline::new(vec![config_map("a", 0), deployment.clone()]);
    let kind = tideline_common::GroupKind::new("", "ConfigMap");
    offline.restart_without_lists();
    offline.step(Event::WatchLost { kind, reason: Reason::Forbidden, message: "no".into() });
    assert!(offline.begun.is_empty(), "what stands there is looked at first");
    offline.now = offline.now + LIST_FIRST_MAX;
    offline.step(Event::Timer(Timer::Retry));
    assert_eq!(offline.names(), ["a"], "a creation needs no list, and finds out");
    offline.step(Event::Listed { kind: deployment.key.kind, objects: Vec::new() });
    assert_eq!(offline.names(), ["a", "d"]);
    assert!(offline.core.model.kinds.in_sync(), "that one is denied, and is said apart");
}

#[test]
fn a_kind_that_may_be_listed_and_not_watched_is_maintained_and_reported_steadily() {
    let (entry, policy) = (config_map("a", 0), ApplyPolicy::default());
    let written = |version: &str| made(standing(&entry, &policy, version));
    let mut offline = Offline::new(vec![entry.clone()]);
    let (id, key) = offline.begun.remove(0);
    let kind = key.kind;
    let mut said = Vec::new();
    let mut note = |offline: &Offline| {
        let conditions = offline.core.model.kinds.conditions(&offline.core.model.forbidden_kinds);
        said.push(conditions.into_iter().map(|it| (it.reason, it.message)).collect::<Vec<_>>());
    };
    offline.step(Event::Executed { id, result: written("7") });
    note(&offline);
    for version in ["8", "9"] {
        offline.step(Event::Unwatched { kind: kind.clone(), message: "cannot watch".into() });
        note(&offline);
        assert!(!offline.core.model.kinds.is_forbidden(&kind), "how it does is known");
        assert!(offline.core.model.kinds.in_sync());
        // A list without it counts.
        offline.step(Event::Listed { kind: kind.clone(), objects: Vec::new() });
        note(&offline);
        assert_eq!(offline.names(), ["a"]);
        let (id, _) = offline.begun.remove(0);
        offline.step(Event::Executed { id, result: written(version) });
    }
    offline.step(Event::Watched { kind });
    note(&offline);
    let denied = vec![(Reason::Forbidden, "no permission for ConfigMap: cannot watch".to_owned())];
    assert_eq!(said, [vec![], denied.clone(), denied.clone(), denied.clone(), denied, vec![]]);
}

#[test]
fn after_a_restart_what_is_in_no_kept_namespace_holds_up_no_later_wave() {
    let namespace = Entry { wave: -100, implied: true, ..entry(&key("", "Namespace", "shop"), 1, 1) };
    let role = Entry { wave: -60, ..entry(&key("", "ClusterRole", "web"), 1, 1) };
    let role = Entry { key: ObjectKey { namespace: "".into(), ..role.key.clone() }, ..role };
    let kept = crate::Namespaces::only(["shop".parse().expect("a namespace")]);
    let offline = Offline::within(kept, vec![namespace, role, config_map("a", 0)]);
    assert_eq!(offline.names(), ["a"]);
}

fn made(observed: Observed) -> OpResult {
    OpResult::Create(Ok(Created::Made(Box::new(observed))))
}

fn throttled(retry_after: Option<Duration>) -> OpResult {
    OpResult::Create(Err(Failure { retry_after, ..Failure::new(Reason::Throttled, "too many") }))
}

fn created(key: &ObjectKey, terminal: Option<Terminal>) -> Observed {
    Observed {
        key: key.clone(),
        uid: crate::core::tests::uid("u1"),
        resource_version: "7".into(),
        generation: 1,
        managed: None,
        mark: None,
        labelled: true,
        deleting: false,
        health: tideline_common::health::Health::Ready,
        health_message: String::new(),
        observed_generation: None,
        terminal,
        template: None,
        status: ObservedStatus::None,
        illegible: false,
        managed_elsewhere: false,
        others: None,
    }
}

#[test]
fn after_a_restart_removals_go_in_reverse_though_their_entries_are_gone() {
    let mut offline = Offline::new(vec![config_map("late", 5), config_map("early", -5)]);
    for _ in 0..2 {
        let (id, key) = offline.begun.remove(0);
        let written = made(created(&key, None));
        offline.step(Event::Executed { id, result: written });
    }
    let removing = offline
        .loaded
        .entries
        .drain(..)
        .map(|entry| Tombstone { key: entry.key.clone(), source: entry.source.uid.clone() });
    let removing = removing.map(|removal| (removal, RemovalPolicy::default()));
    offline.loaded.removing = removing.collect();
    let core = Core::new(config(), offline.loaded.clone());
    let waves: BTreeMap<_, _> =
        core.model.removals.iter().map(|(gone, removal)| (&*gone.key.name, removal.wave())).collect();
    assert_eq!(waves, BTreeMap::from([("early", -5), ("late", 5)]));
}

/// What a core begins and writes after a restart with this record, where the cluster has this under an entry's key.
fn after_restart(entry: &Entry, policy: &ApplyPolicy, seen: &Observed, record: Option<AppliedRecord>) -> Vec<Effect> {
    restarted(entry, policy, seen, record).1
}

fn restarted(
    entry: &Entry,
    policy: &ApplyPolicy,
    seen: &Observed,
    record: Option<AppliedRecord>,
) -> (Core, Vec<Effect>) {
    let entry = Arc::new(Entry { policy: policy.digest(), ..entry.clone() });
    let set: DesiredSet = [Arc::clone(&entry)].into_iter().collect();
    let loaded = Loaded {
        enrolled: Some(Enrolled { target: target_id(), name: "store".into() }),
        accepted: Some(attested(Accepted { version: Version::default(), digest: set.digest() })),
        bodies: [entry.input].into(),
        policies: [(policy.digest(), Arc::new(policy.clone()))].into(),
        applied: record.map(|record| (entry.key.clone(), record)).into_iter().collect(),
        entries: vec![Arc::clone(&entry)],
        ..Loaded::default()
    };
    let (mut core, mut out) = (Core::new(config(), loaded), Vec::new());
    let kind = entry.key.kind.clone();
    core.step(Monotonic::START, Event::Started, &mut out);
    let served = Served::Yes { namespaced: true, status: false };
    core.step(Monotonic::START, Event::Kind { kind: kind.clone(), served }, &mut out);
    core.step(Monotonic::START, Event::Listed { kind, objects: vec![seen.clone()] }, &mut out);
    (core, out)
}

fn standing(entry: &Entry, policy: &ApplyPolicy, version: &str) -> Observed {
    let me = Me { hub: hub_id(), target: target_id(), formers: Formers::default() };
    Observed {
        key: entry.key.clone(),
        uid: "u1".parse().unwrap(),
        resource_version: version.into(),
        generation: 0,
        managed: Some(tideline_common::Digest::of(version.as_bytes())),
        mark: Some(Arc::new(plan::mark_of(me, entry, policy, Origin::Created))),
        labelled: true,
        deleting: false,
        health: tideline_common::health::Health::Ready,
        health_message: String::new(),
        observed_generation: None,
        terminal: None,
        template: None,
        status: ObservedStatus::None,
        illegible: false,
        managed_elsewhere: false,
        others: None,
    }
}

/// An object that the journal does not know is read before anything follows from its mark: a list may show one that was
/// removed.
fn read(core: &mut Core, out: &Effects, there: &Observed) -> Effects {
    let get = |effect: &Effect| match effect {
        Effect::Execute { id, op: Op::Get { .. } } => Some(*id),
        _ => None,
    };
    let id = out.iter().find_map(get).unwrap_or_else(|| panic!("{out:?}"));
    let result = OpResult::Get(Ok(Some(Box::new(there.clone()))));
    let mut out = Vec::new();
    core.step(Monotonic::START, Event::Executed { id, result }, &mut out);
    out
}

#[test]
fn a_create_only_object_created_before_a_crash_is_known() {
    let policy = ApplyPolicy { mode: tideline_common::ApplyMode::CreateOnly, ..ApplyPolicy::default() };
    let entry = config_map("once", 0);
    let there = standing(&entry, &policy, "5");
    let (mut core, out) = restarted(&entry, &policy, &there, None);
    let out = read(&mut core, &out, &there);
    let writes = out
        .iter()
        .filter_map(|effect| if let Effect::Persist { writes, .. } = effect { Some(&**writes) } else { None });
    let told = writes.flatten().any(|write| matches!(write, Write::Unsent(report) if report.terminal.is_some()));
    assert!(told, "{out:?}");
}

#[test]
fn an_object_seen_older_than_our_last_write_is_read_before_it_is_written_again() {
    let (policy, entry) = (ApplyPolicy::default(), config_map("late", 0));
    let entry = Entry { policy: policy.digest(), ..entry };
    let written = Seen::from(&standing(&entry, &policy, "5"));
    let record = plan::record_of(&entry, &written, Origin::Created, false);
    let ops = |version: &str| -> Vec<String> {
        let out = after_restart(&entry, &policy, &standing(&entry, &policy, version), Some(record.clone()));
        let op = |effect: &Effect| match effect {
            Effect::Execute { op: Op::Get { .. }, .. } => Some("Get".to_owned()),
            Effect::Execute { op, .. } => Some(format!("{op:?}").chars().take(5).collect()),
            _ => None,
        };
        out.iter().filter_map(op).collect()
    };
    assert_eq!(ops("3"), ["Get"], "it may be an old list");
    assert_eq!(ops("5"), Vec::<String>::new());
    assert_eq!(ops("7"), ["Apply"], "somebody changed it since");
}

#[test]
fn an_object_seen_while_a_write_to_its_predecessor_fails_stays_known() {
    let (policy, entry) = (ApplyPolicy::default(), config_map("again", 0));
    let before = standing(&entry, &policy, "3");
    let (mut core, out) = restarted(&entry, &policy, &before, None);
    let out = read(&mut core, &out, &before);
    let apply = |effect: &Effect| match effect {
        Effect::Execute { id, op: Op::Apply { uid, .. } } => Some((*id, uid.to_string())),
        _ => None,
    };
    let (id, onto) = out.iter().find_map(apply).unwrap();
    assert_eq!(onto, "u1");
    let mut out = Vec::new();
    let key = entry.key.clone();
    core.step(Monotonic::START, Event::Gone { key, uid: before.uid.clone() }, &mut out);
    let now = Observed { uid: "u2".parse().unwrap(), ..standing(&entry, &policy, "9") };
    core.step(Monotonic::START, Event::Observed(Box::new(now.clone())), &mut out);
    core.step(Monotonic::START, Event::Executed { id, result: OpResult::Apply(Err(NotDone::Stale)) }, &mut out);
    let out = read(&mut core, &out, &now);
    assert_eq!(out.iter().find_map(apply).map(|(_, onto)| onto).as_deref(), Some("u2"), "{out:?}");
}

/// A read that no decision has made use of.
#[test]
fn a_read_is_dropped_once_its_object_is_written() {
    let mut world = World::new(1);
    let key = key("", "ConfigMap", "c");
    world.hub.put(&key, 1, 1);
    world.quiesce();
    let object = world.core.model.objects.get_mut(&key).unwrap();
    let seen = object.seen().cloned().expect("it stands");
    object.presence.probe(seen);
    world.hub.remove(&key);
    while !world.core.model.objects.get(&key).unwrap().work.is_in_flight() {
        world.advance();
    }
    assert!(world.core.model.objects.get_mut(&key).unwrap().presence.take_probe().is_none());
}

/// Nothing shows it but its creation, which is refused.
#[test]
fn an_object_due_for_orphaning_that_may_not_be_taken_over_is_orphaned_without_its_label_too() {
    let never = ApplyPolicy { takeover: Takeover::Never, ..ApplyPolicy::default() };
    let former = config_map("c", 0);
    let assigned = Entry { policy: never.digest(), ..entry(&former.key, 2, 2) };
    let mark = mark_of(me(), &former, &ApplyPolicy::default(), Origin::Created);
    let standing = Observed { mark: Some(Arc::new(mark)), labelled: false, ..created(&former.key, None) };
    let record = plan::record_of(&former, &Seen::from(&standing), Origin::Created, true);
    let removal = Tombstone { key: former.key.clone(), source: former.source.uid.clone() };
    let orphan = PrunePolicy::of(&ApplyPolicy { prune: Prune::Orphan, ..ApplyPolicy::default() });
    let set: DesiredSet = std::iter::once(Arc::new(assigned.clone())).collect();
    let loaded = Loaded {
        enrolled: Some(Enrolled { target: target_id(), name: "store".into() }),
        accepted: Some(attested(Accepted { version: Version::default(), digest: set.digest() })),
        bodies: std::iter::once(assigned.input).collect(),
        policies: std::iter::once((never.digest(), Arc::new(never))).collect(),
        entries: vec![Arc::new(assigned)],
        applied: vec![(former.key.clone(), record)],
        removing: vec![(removal, RemovalPolicy::Tombstone(orphan))],
        ..Loaded::default()
    };
    let mut core = Core::new(config(), loaded);
    let mut asked = Vec::new();
    let served = Served::Yes { namespaced: true, status: false };
    let kind = former.key.kind.clone();
    let mut events = VecDeque::from([
        Event::Started,
        Event::Kind { kind: kind.clone(), served },
        Event::Listed { kind, objects: Vec::new() },
    ]);
    while let Some(event) = events.pop_front() {
        let mut out = Vec::new();
        core.step(Monotonic::START, event, &mut out);
        for effect in out {
            match effect {
                Effect::Persist { id, .. } => events.push_back(Event::Persisted { id, result: Ok(()) }),
                Effect::Execute { id, op: Op::Create { .. } } => {
                    asked.push("Create");
                    let result = OpResult::Create(Ok(Created::Exists(Box::new(standing.clone()))));
                    events.push_back(Event::Executed { id, result });
                }
                Effect::Execute { id, op: Op::Get { .. } } => {
                    asked.push("Get");
                    let result = OpResult::Get(Ok(Some(Box::new(standing.clone()))));
                    events.push_back(Event::Executed { id, result });
                }
                Effect::Execute { op: Op::Orphan { uid, .. }, .. } => {
                    assert_eq!(uid, standing.uid);
                    asked.push("Orphan");
                }
                Effect::Execute { op, .. } => panic!("{op:?}"),
                _ => {}
            }
        }
    }
    // It is read once more when the journal knows that it is due for orphaning.
    assert_eq!((asked.first(), asked.last()), (Some(&"Create"), Some(&"Orphan")), "{asked:?}");
    assert!(asked.len() <= 5, "{asked:?}");
}
