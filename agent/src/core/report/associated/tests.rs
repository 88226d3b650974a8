use tideline_common::associated::Phase;
use tideline_common::health::Health;
use tideline_common::wire::v1::{
    Accepted, ClusterFacts, HubAddresses, PollSettings, ReportedAnswer, ReportedRequest, SessionAnswer,
};
use tideline_common::{ApplyPolicy, DesiredSet, Entry, Epoch, Formers, GroupKind, Mark, Origin, SessionName, Version};

use super::*;
use crate::core::decide::plan::mark_of;
use crate::core::interface::effect::{Request, RequestId};
use crate::core::interface::event::{Answer, Event};
use crate::core::interface::observed::{Associate, Condition, Observed, ObservedStatus, Owner, Served};
use crate::core::model::object::Me;
use crate::core::tests::{attested, entry, hub_id, key, target_id, uid};
use crate::core::{Config, Enrolled, FuseLimits, Loaded};
use crate::namespaces::Namespaces;

/// A core that restarted with these entries, and with a session.
struct Scene {
    core: Core,
    now: Monotonic,
    effects: Effects,
    follow: BTreeMap<AssociatedKind, Follow>,
    reports: Vec<AssociatedReport>,
    conditions: Vec<TargetCondition>,
    /// The request under way.
    in_flight: Option<RequestId>,
    memory: u64,
}

fn asking(kinds: &[AssociatedKind]) -> Arc<ApplyPolicy> {
    Arc::new(ApplyPolicy { associated: kinds.iter().copied().collect(), ..ApplyPolicy::default() })
}

fn placed(name: &str, policy: &ApplyPolicy) -> Entry {
    Entry { policy: policy.digest(), ..entry(&key("apps", "Deployment", name), 1, 1) }
}

impl Scene {
    fn new(entries: Vec<Entry>, policies: &[&Arc<ApplyPolicy>]) -> Self {
        Self::within(Namespaces::All, entries, policies)
    }

    fn within(namespaces: Namespaces, entries: Vec<Entry>, policies: &[&Arc<ApplyPolicy>]) -> Self {
        let entries: Vec<Arc<Entry>> = entries.into_iter().map(Arc::new).collect();
        let set: DesiredSet = entries.iter().cloned().collect();
        let loaded = Loaded {
            enrolled: Some(Enrolled { target: target_id(), name: "store".into() }),
            accepted: Some(attested(Accepted { version: Version::default(), digest: set.digest() })),
            bodies: entries.iter().map(|entry| entry.input).collect(),
            policies: policies.iter().map(|policy| (policy.digest(), Arc::clone(policy))).collect(),
            entries: entries.clone(),
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
            namespaces,
            capabilities: tideline_common::Capabilities::all(),
        };
        let mut scene = Self {
            core: Core::new(config, loaded.clone()),
            now: Monotonic::START,
            effects: Effects::new(),
            follow: BTreeMap::new(),
            reports: Vec::new(),
            conditions: Vec::new(),
            in_flight: None,
            memory: 1,
        };
        scene.step(Event::Started);
        let kinds: BTreeSet<GroupKind> = entries.iter().map(|entry| entry.key.kind.clone()).collect();
        for kind in kinds {
            scene.step(Event::Kind { kind: kind.clone(), served: Served::Yes { namespaced: true, status: true } });
            let of_kind = entries.iter().filter(|entry| entry.key.kind == kind);
            let objects = of_kind.map(|entry| observed(entry, &loaded.policies[&entry.policy])).collect();
            scene.step(Event::Listed { kind, objects });
        }
        scene
    }

    fn step(&mut self, event: Event) {
        let mut out = Effects::new();
        self.core.step(self.now, event, &mut out);
        for effect in out {
            match effect {
                Effect::Follow(follow) => self.follow = follow,
                Effect::Send { id, request: Request::Session(_) } => {
                    let poll = PollSettings { wait_seconds: 40, stale_after_seconds: 3600 };
                    let session = SessionName::new(7, 1);
                    let (epoch, addresses) = (Epoch::default(), HubAddresses::default());
                    let history = tideline_common::wire::v1::Continuity::Whole;
                    let answer = SessionAnswer {
                        session,
                        outdated: false,
                        epoch,
                        poll,
                        addresses,
                        history,
                        cluster: None,
                        handover: None,
                    };
                    self.step(Event::Answered { id, result: Ok(Answer::Session(answer)) });
                }
                Effect::KeepSession { session, .. } => self.step(Event::SessionKept { result: Ok(session) }),
                Effect::Send { id, request: Request::Reported(request) } => self.reported(id, request),
                // Journal and cluster are as slow as can be.
                other => self.effects.push(other),
            }
        }
    }

    fn reported(&mut self, id: RequestId, request: ReportedRequest) {
        self.reports.extend(request.associated);
        self.conditions = request.conditions;
        self.in_flight = Some(id);
        let answer = ReportedAnswer { seq: request.seq, memory: self.memory, stands: false };
        self.step(Event::Answered { id, result: Ok(Answer::Reported(answer)) });
    }

    /// Lets time pass, with everything that is due in it.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now = self.now + Duration::from_millis(100);
            self.step(Event::Timer(Timer::Associated));
            self.step(Event::Timer(Timer::Report));
        }
    }

    fn hear(&mut self, kind: AssociatedKind, news: AssociatedNews) {
        let run = self.follow[&kind].run;
        self.step(Event::Followed { kind, run, news });
    }

    fn list(&mut self, kind: AssociatedKind, objects: Vec<Associate>) {
        self.hear(kind, AssociatedNews::Listing);
        self.hear(kind, AssociatedNews::Seen(objects));
        self.hear(kind, AssociatedNews::Listed);
    }

    /// The counts of Pods reported since the last call: total, ready, restarts.
    fn said(&mut self) -> Vec<Option<(u64, u64, u64)>> {
        let reports = std::mem::take(&mut self.reports);
        let pods = reports.iter().map(|report| report.made.get(&AssociatedKind::Pods));
        pods.map(|made| made.map(|Made { tally, .. }| (tally.total, tally.ready, tally.restarts))).collect()
    }
}

fn observed(entry: &Entry, policy: &ApplyPolicy) -> Observed {
    let me = Me { hub: hub_id(), target: target_id(), formers: Formers::default() };
    let mark: Mark = mark_of(me, entry, policy, Origin::Created);
    Observed {
        key: entry.key.clone(),
        uid: uid(&format!("uid-{}", entry.key.name)),
        resource_version: "1".into(),
        generation: 1,
        managed: None,
        mark: Some(Arc::new(mark)),
        labelled: true,
        deleting: false,
        health: Health::Ready,
        health_message: String::new(),
        observed_generation: Some(1),
        terminal: None,
        template: None,
        status: ObservedStatus::None,
        illegible: false,
        managed_elsewhere: false,
        others: None,
    }
}

fn replica_set(of: &str) -> Associate {
    let owner =
        Owner { kind: GroupKind::new("apps", "Deployment"), name: of.to_owned(), uid: Some(uid(&format!("uid-{of}"))) };
    let uid = uid(&format!("rs-{of}"));
    let (namespace, name) = ("shop".to_owned(), format!("{of}-1"));
    Associate { uid, namespace, name, owner: Some(owner), condition: Condition::default() }
}

fn pod(of: &str, nth: u32, restarts: u32) -> Associate {
    let owner = Owner {
        kind: GroupKind::new("apps", "ReplicaSet"),
        name: format!("{of}-1"),
        uid: Some(uid(&format!("rs-{of}"))),
    };
    let (namespace, name) = ("shop".to_owned(), format!("{of}-1-{nth}"));
    let condition = Condition { phase: Phase::Running, ready: restarts == 0, restarts, ..Condition::default() };
    Associate { uid: uid(&format!("{of}-{nth}")), namespace, name, owner: Some(owner), condition }
}

const PODS: AssociatedKind = AssociatedKind::Pods;
const SETS: AssociatedKind = AssociatedKind::ReplicaSets;

#[test]
fn no_kind_is_watched_unless_a_policy_asks() {
    let silent = Arc::new(ApplyPolicy::default());
    let scene = Scene::new(vec![placed("web", &silent)], &[&silent]);
    assert_eq!(scene.follow, BTreeMap::new());
    let policy = asking(&[PODS]);
    let scene = Scene::new(vec![placed("web", &policy)], &[&policy]);
    let followed: Vec<_> = scene.follow.iter().map(|(kind, follow)| (*kind, follow.depth)).collect();
    assert_eq!(followed, [(SETS, Depth::Links), (PODS, Depth::Whole)]);
    assert!(scene.follow.values().all(|follow| follow.namespace.as_deref() == Some("shop")), "{:?}", scene.follow);
}

#[test]
fn counts_are_said_once_they_are_complete() {
    let policy = asking(&[PODS]);
    let mut scene = Scene::new(vec![placed("web", &policy)], &[&policy]);
    scene.list(PODS, vec![pod("web", 1, 0), pod("web", 2, 3), pod("other", 1, 9)]);
    scene.pass(Duration::from_secs(30));
    assert_eq!(scene.said(), [], "whose they are is not known yet");
    scene.list(SETS, vec![replica_set("web")]);
    scene.pass(Duration::from_secs(30));
    assert_eq!(scene.said(), [Some((2, 1, 3))]);
    scene.pass(Duration::from_hours(1));
    assert_eq!(scene.said(), [], "at rest nothing is said");
}

#[test]
fn a_pod_that_crashes_all_the_time_is_said_twice_a_minute() {
    let policy = asking(&[PODS]);
    let mut scene = Scene::new(vec![placed("web", &policy)], &[&policy]);
    scene.list(SETS, vec![replica_set("web")]);
    scene.list(PODS, vec![pod("web", 1, 0)]);
    scene.pass(Duration::from_mins(1));
    scene.said();
    for restarts in 1..=600 {
        scene.hear(PODS, AssociatedNews::Seen(vec![pod("web", 1, restarts)]));
        scene.pass(Duration::from_millis(100));
    }
    scene.pass(Duration::from_secs(31));
    let said = scene.said();
    assert!((2..=4).contains(&said.len()), "{said:?}");
    assert_eq!(said.last(), Some(&Some((1, 0, 600))));
}

#[test]
fn the_first_counts_are_reported_at_once_however_long_they_were_unknown() {
    let policy = asking(&[PODS]);
    let mut scene = Scene::new(vec![placed("web", &policy)], &[&policy]);
    scene.list(PODS, vec![pod("web", 1, 0)]);
    scene.pass(Duration::from_secs(2));
    scene.list(SETS, vec![replica_set("web")]);
    scene.pass(Duration::from_secs(1));
    assert_eq!(scene.said(), [Some((1, 1, 0))]);
}

#[test]
fn counts_are_reported_again_in_another_session_and_to_a_hub_that_forgot() {
    let policy = asking(&[PODS]);
    let mut scene = Scene::new(vec![placed("web", &policy)], &[&policy]);
    scene.list(SETS, vec![replica_set("web")]);
    scene.list(PODS, vec![pod("web", 1, 0)]);
    scene.pass(Duration::from_mins(1));
    assert_eq!(scene.said(), [Some((1, 1, 0))]);
    scene.memory = 2;
    scene.hear(PODS, AssociatedNews::Seen(vec![pod("web", 1, 5)]));
    scene.pass(Duration::from_mins(1));
    assert_eq!(scene.said(), [Some((1, 0, 5)), Some((1, 0, 5))]);
}

#[test]
fn a_kind_that_may_not_be_watched_is_reported_and_the_others_counted() {
    let policy = asking(&[PODS, SETS]);
    let mut scene = Scene::new(vec![placed("web", &policy)], &[&policy]);
    scene.list(SETS, vec![replica_set("web")]);
    scene.hear(PODS, AssociatedNews::Lost { reason: Reason::Forbidden, message: "no".to_owned() });
    scene.pass(Duration::from_mins(1));
    let report = scene.reports.pop().expect("a report");
    assert_eq!(report.made.keys().collect::<Vec<_>>(), [&SETS]);
    let said: Vec<_> =
        scene.conditions.iter().map(|condition| (condition.reason, condition.message.as_str())).collect();
    assert_eq!(said, [(Reason::Forbidden, "cannot watch pods, which a Placement asks to count: no")]);
    // Objects that existed when the API server went away still count.
    scene.list(PODS, vec![pod("web", 1, 0)]);
    scene.hear(PODS, AssociatedNews::Lost { reason: Reason::Unavailable, message: "away".to_owned() });
    scene.pass(Duration::from_mins(1));
    assert_eq!(scene.said().last(), Some(&Some((1, 1, 0))));
    scene.list(PODS, vec![]);
    scene.pass(Duration::from_mins(1));
    assert_eq!((scene.said(), scene.conditions.len()), (vec![Some((0, 0, 0))], 0));
}

#[test]
fn a_kind_that_may_only_be_listed_is_counted_by_lists_and_that_is_reported() {
    let policy = asking(&[PODS, SETS]);
    let mut scene = Scene::new(vec![placed("web", &policy)], &[&policy]);
    scene.list(SETS, vec![replica_set("web")]);
    for pods in [vec![pod("web", 1, 0)], vec![]] {
        let total = pods.len() as u64;
        scene.hear(PODS, AssociatedNews::Listing);
        scene.hear(PODS, AssociatedNews::Seen(pods));
        scene.hear(PODS, AssociatedNews::Unwatched { message: "no".to_owned() });
        scene.pass(Duration::from_mins(1));
        assert_eq!(scene.said().last(), Some(&Some((total, total, 0))));
        let said: Vec<_> = scene.conditions.iter().map(|condition| condition.reason).collect();
        assert_eq!(said, [Reason::Forbidden]);
    }
    scene.list(PODS, vec![]);
    scene.pass(Duration::from_mins(1));
    assert_eq!(scene.conditions.len(), 0);
}

#[test]
fn a_policy_that_asks_later_causes_a_list_and_one_that_stops_asking_is_dropped() {
    let (silent, policy) = (Arc::new(ApplyPolicy::default()), asking(&[PODS]));
    let entries = vec![placed("web", &policy), placed("api", &silent)];
    let mut scene = Scene::new(entries, &[&policy, &silent]);
    scene.list(SETS, vec![replica_set("web"), replica_set("api")]);
    scene.list(PODS, vec![pod("web", 1, 0), pod("api", 1, 0), pod("api", 2, 0)]);
    scene.pass(Duration::from_mins(1));
    assert_eq!(scene.said(), [Some((1, 1, 0))]);
    let runs = |scene: &Scene| scene.follow.values().map(|follow| follow.run).max();
    let before = runs(&scene);

    scene.core.put_entry(Arc::new(placed("api", &policy)));
    scene.pass(Duration::from_secs(1));
    assert!(runs(&scene) > before, "{:?}", scene.follow);
    scene.list(SETS, vec![replica_set("web"), replica_set("api")]);
    scene.list(PODS, vec![pod("web", 1, 0), pod("api", 1, 0), pod("api", 2, 0)]);
    scene.pass(Duration::from_mins(1));
    assert_eq!(scene.said(), [Some((2, 2, 0))]);

    for name in ["web", "api"] {
        scene.core.put_entry(Arc::new(placed(name, &silent)));
    }
    scene.pass(Duration::from_mins(1));
    assert_eq!(scene.follow, BTreeMap::new());
    assert_eq!(scene.said(), [None, None]);
    let Associates { needs, namespaces, watches, rate, told, .. } = &scene.core.reporting.associates;
    let left = (needs.len(), namespaces.len(), watches.len(), told.len());
    assert_eq!((left, scene.core.reporting.associates.aggregate.size(), rate.is_empty()), ((0, 0, 0, 0), (0, 0), true));
}

/// They are listed again for an object that asks late. Its own counts are not known before that.
#[test]
fn while_a_kind_is_listed_again_the_counts_of_others_go_on() {
    let (silent, policy) = (Arc::new(ApplyPolicy::default()), asking(&[PODS]));
    let entries = vec![placed("web", &policy), placed("api", &silent)];
    let mut scene = Scene::new(entries, &[&policy, &silent]);
    let sets = || vec![replica_set("web"), replica_set("api")];
    scene.list(SETS, sets());
    scene.list(PODS, vec![pod("web", 1, 0), pod("api", 1, 0)]);
    scene.pass(Duration::from_mins(1));
    assert_eq!(scene.said(), [Some((1, 1, 0))]);
    let before = scene.follow[&PODS].run;
    scene.core.put_entry(Arc::new(placed("api", &policy)));
    scene.pass(Duration::from_secs(1));
    assert_ne!(scene.follow[&PODS].run, before);
    scene.list(SETS, sets());
    scene.hear(PODS, AssociatedNews::Listing);
    scene.hear(PODS, AssociatedNews::Seen(vec![pod("web", 1, 2)]));
    scene.pass(Duration::from_mins(1));
    assert_eq!(scene.said(), [Some((1, 0, 2))], "of the one that asked late nothing is known");
    // The list fails: what was counted before still holds.
    scene.hear(PODS, AssociatedNews::Lost { reason: Reason::Unavailable, message: "away".to_owned() });
    scene.pass(Duration::from_mins(1));
    assert_eq!((scene.said(), scene.conditions.len()), (vec![], 1));
    scene.hear(PODS, AssociatedNews::Seen(vec![pod("web", 1, 3)]));
    scene.pass(Duration::from_mins(1));
    assert_eq!(scene.said(), [Some((1, 0, 3))]);
    scene.list(PODS, vec![pod("web", 1, 3), pod("api", 1, 0)]);
    scene.pass(Duration::from_mins(1));
    assert_eq!((scene.said(), scene.conditions.len()), (vec![Some((1, 1, 0))], 0));
    assert!(scene.core.reporting.associates.behind.is_empty());
}

#[test]
fn a_watch_that_was_ended_is_not_believed() {
    let policy = asking(&[PODS]);
    let mut scene = Scene::new(vec![placed("web", &policy)], &[&policy]);
    let old = scene.follow[&PODS].run;
    scene.core.reporting.associates.missed.insert(PODS);
    scene.pass(Duration::from_secs(1));
    assert_ne!(scene.follow[&PODS].run, old);
    scene.step(Event::Followed { kind: PODS, run: old, news: AssociatedNews::Seen(vec![pod("web", 1, 0)]) });
    assert_eq!(scene.core.reporting.associates.aggregate.size(), (0, 0));
}

#[test]
fn objects_in_an_excluded_namespace_are_neither_counted_nor_read() {
    let asked = asking(&[AssociatedKind::ReplicaSets, AssociatedKind::Pods]);
    let mut elsewhere = placed("web", &asked);
    elsewhere.key.namespace = "elsewhere".into();
    let kept = || Namespaces::only(["shop".parse().expect("a namespace")]);
    let mut scene = Scene::within(kept(), vec![elsewhere.clone()], &[&asked]);
    scene.pass(Duration::from_secs(20));
    assert!(scene.follow.is_empty(), "{:?}", scene.follow);

    let mut scene = Scene::within(kept(), vec![elsewhere, placed("web", &asked)], &[&asked]);
    let follow = scene.follow.clone();
    assert_eq!(follow[&AssociatedKind::Pods].namespace.as_deref(), Some("shop"));
    for (kind, Follow { run, .. }) in follow {
        scene.step(Event::Followed { kind, run, news: AssociatedNews::Listing });
        scene.step(Event::Followed { kind, run, news: AssociatedNews::Listed });
    }
    scene.pass(Duration::from_secs(20));
    let said: BTreeSet<_> = scene.reports.iter().map(|report| report.key.namespace.to_string()).collect();
    assert_eq!(said, BTreeSet::from(["shop".to_owned()]));
}
