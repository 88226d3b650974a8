//! The hub as a whole, without its edges.

use serde_json::{Value, json};
use tideline_api::{Allow, Placement};
use tideline_common::limits::POLL_WAIT_SECONDS_MAX;
use tideline_common::signature::SigningKey;
use tideline_common::wire::v1::{
    ApprovedHeld, BodiesRequest, Continuity, DesiredPage, DesiredRequest, Handover, Instance, SessionRequest, Terminal,
    TerminalFact,
};
use tideline_common::{
    Capabilities, GroupKind, InstanceId, PrunePolicy, Revision, SessionId, SessionName, SessionNumber, SpaceName,
};

use super::*;
use crate::clean;
use crate::committer;
use crate::link::core::Sets as _;
use crate::placement::{GroupResource, Part, PlacementRule, SpaceRule, Target};
use crate::removal_guards::UNASSIGN_LIMIT;

mod capabilities;
mod choices;
mod clock;
mod history;
mod keys;
mod meanwhile;
mod names;
mod no_news;
mod pages;
mod quarantine;
mod returning;
mod stolen_key;
mod unreadable;
mod view_changes;

const SETTLE: Duration = Duration::from_secs(10);

struct Hub {
    engine: Engine,
    now: Monotonic,
    read: Option<view_changes::Read>,
}

fn space() -> SpaceName {
    "default".parse().unwrap()
}

fn config_maps() -> GroupResource {
    GroupResource::new("", "configmaps")
}

fn key(nth: usize) -> ObjectKey {
    ObjectKey::new(GroupKind::new("", "ConfigMap"), "shop", format!("c{nth}"))
}

fn target() -> TargetId {
    "00000000-0000-4000-8000-000000000000".parse().unwrap()
}

fn in_service(is: bool) -> Target {
    let labels = [("tier".to_owned(), "shop".to_owned())].into();
    let decommission = if is { Decommission::No } else { Decommission::Remove };
    Target { id: target(), name: "target".into(), labels, unschedulable: false, decommission }
}

impl Hub {
    /// One target that has so many ConfigMaps by one Placement.
    fn with(objects: usize) -> Self {
        let fuse = Fuse::new(UNASSIGN_LIMIT);
        let engine = Engine::new(link::Config::default(), SETTLE, fuse, Ledger::default(), BTreeMap::new());
        let mut hub = Self { engine, now: Monotonic::START, read: None };
        hub.engine.target_seen(hub.now, in_service(true), None);
        hub.engine.targets_listed(hub.now);
        hub.reads_spaces(objects);
        hub.persist();
        assert_eq!(hub.engine.ledger.assigned(), objects as u64);
        hub
    }

    /// All but the inventory's targets is read.
    fn reads_spaces(&mut self, objects: usize) {
        let (space, config_maps) = (space(), config_maps());
        let namespaces = GroupResource::new("", "namespaces");
        let index = &mut self.engine.index;
        index.apply_space(&space, SpaceRule::try_from(&Allow::everything()).unwrap());
        for nth in 0..objects {
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("c{nth}"), "namespace": "shop", "uid": format!("u{nth}")},
            });
            index.apply(&space, &config_maps, clean::read(clean::SpaceServer::Embedded, &object).unwrap());
        }
        for part in [Part::Locations, Part::Spaces, Part::Objects(&space, &namespaces), Part::Placements(&space)] {
            index.listed(part);
        }
        index.listed(Part::Objects(&space, &config_maps));
        self.place("p", "shop");
    }

    fn place(&mut self, name: &str, tier: &str) {
        self.place_with(name, tier, &json!({}));
    }

    /// The same, and what returns of the status.
    fn place_with(&mut self, name: &str, tier: &str, status: &Value) {
        let object = json!({
            "apiVersion": "tideline.dev/v1alpha1", "kind": "Placement", "metadata": {"name": name},
            "spec": {
                "targets": [{"matchLabels": {"tier": tier}}],
                "objects": [{"resources": ["configmaps"], "status": status}],
            },
        });
        let placement: Placement = tideline_api::decode(object).unwrap();
        let rule = PlacementRule::try_from(&placement.spec).unwrap();
        self.engine.index.apply_placement(&space(), name, name.parse().unwrap(), Ok(rule));
    }

    fn delete(&mut self, nth: usize) {
        self.engine.index.delete(&space(), &config_maps(), &key(nth));
    }

    /// Persists what there is to persist, as the committer does.
    fn persist(&mut self) {
        loop {
            self.reads_views();
            self.believes_what_the_link_does();
            let work = self.engine.work(committer::fresh(self.now));
            if work.is_empty() {
                return;
            }
            self.engine.committed(self.now, work);
        }
    }

    /// Time passes, and everything that is due is done when it is.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.engine.timer().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.engine.tick(self.now);
            self.persist();
        }
        self.now = end;
    }

    fn removals(&self) -> usize {
        self.engine.ledger.removals().count()
    }

    /// What the target is told of everything that it is to remove.
    fn tombstones(&self) -> Vec<PrunePolicy> {
        let view = self.engine.ledger.target(target()).expect("it is registered");
        view.tombstones().map(|unassignment| unassignment.policy).collect()
    }

    fn kept(&self) -> u64 {
        self.engine.kept_counts().of_space(&space())
    }
}

#[test]
fn the_deletion_of_a_few_goes_unasked() {
    let mut hub = Hub::with(200);
    for nth in 0..3 {
        hub.delete(nth);
    }
    hub.persist();
    hub.pass(SETTLE);
    assert_eq!((hub.removals(), hub.kept()), (3, 0));
}

#[test]
fn of_a_namespace_that_goes_object_by_object_nothing_goes_unasked() {
    let mut hub = Hub::with(300);
    for nth in 0..300 {
        hub.delete(nth);
        hub.persist();
        hub.pass(Duration::from_millis(5));
    }
    hub.pass(SETTLE);
    assert_eq!((hub.removals(), hub.kept()), (0, 300));
    // What is deleted later is another change.
    hub.pass(Duration::from_mins(2));
    let revisions: BTreeSet<Revision> = hub.engine.kept_sources_after(None).map(|(_, kept)| kept.revision).collect();
    hub.engine.release(&revisions);
    hub.persist();
    assert_eq!((hub.removals(), hub.kept()), (300, 0));
}

#[test]
fn a_placement_that_selects_another_tier_by_mistake_takes_nothing_away_and_can_be_put_right() {
    let mut hub = Hub::with(300);
    hub.place("p", "shops");
    hub.persist();
    hub.pass(SETTLE * 2);
    assert_eq!((hub.removals(), hub.kept()), (0, 300));
    // Every Placement that selects it says so, whether it has placed it or not.
    hub.place("q", "shops");
    let counts = hub.engine.kept_counts();
    assert_eq!(["p", "q", "r"].map(|name| counts.of_placement(&space(), name)), [300, 300, 0]);
    hub.place("p", "shop");
    hub.persist();
    assert_eq!((hub.removals(), hub.kept()), (0, 0));
}

#[test]
fn what_is_held_at_a_target_goes_with_it_out_of_service() {
    let mut hub = Hub::with(300);
    hub.place("p", "shops");
    hub.persist();
    hub.pass(SETTLE * 2);
    assert_eq!((hub.removals(), hub.kept()), (0, 300));
    let key = SigningKey::from_seed([7; 32]).public();
    let record = TargetRecord {
        name: "t".to_owned(),
        key,
        cluster: None,
        decommission: Decommission::Remove,
        accepted: None,
        released: None,
        adopts: None,
        without_effect: Vec::new(),
    };
    hub.engine.target_seen(hub.now, in_service(false), Some(record));
    hub.persist();
    assert_eq!((hub.removals(), hub.kept(), hub.engine.ledger.assigned()), (300, 0, 0));
}

/// The target says that the first object has run.
fn says_finished(hub: &mut Hub) {
    let report = json!({
        "session": "1.0000000000000001", "seq": 0, "inSync": true,
        "objects": [{
            "group": "", "kind": "ConfigMap", "namespace": "shop", "name": "c1", "sourceUid": "u1",
            "progress": "Applied", "health": "Ready", "terminal": "Finished",
        }],
    });
    hub.engine.report(hub.now, target(), serde_json::from_value(report).unwrap());
}

#[test]
fn a_target_is_told_what_it_said_happened_once() {
    let mut hub = Hub::with(2);
    says_finished(&mut hub);
    hub.persist();
    let told = |engine: &Engine, since| {
        let desk = LedgerView { ledger: &engine.ledger, approvals: &engine.approvals };
        desk.page(target(), since, None, 10).unwrap().terminal
    };
    let fact = TerminalFact { key: key(1), source_uid: "u1".parse().unwrap(), fact: Terminal::Finished };
    assert_eq!(told(&hub.engine, None), std::slice::from_ref(&fact));
    // Another run of the hub has heard nothing yet.
    let ledger = hub.engine.ledger.clone();
    let next = Engine::new(link::Config::default(), SETTLE, Fuse::new(20), ledger, BTreeMap::new());
    assert_eq!(told(&next, None), [fact]);
    // Another source of the same name has not run.
    hub.delete(1);
    let again = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c1", "namespace": "shop", "uid": "other"},
    });
    hub.engine.index.apply(&space(), &config_maps(), clean::read(clean::SpaceServer::Embedded, &again).unwrap());
    hub.persist();
    assert_eq!(told(&hub.engine, None), []);
}

fn agent(seed: u8) -> TargetRecord {
    let key = SigningKey::from_seed([seed; 32]).public();
    TargetRecord {
        name: "shop".to_owned(),
        key,
        cluster: None,
        decommission: Decommission::No,
        accepted: None,
        released: None,
        adopts: None,
        without_effect: Vec::new(),
    }
}

fn asks(instance: u64) -> link::Request {
    let request = SessionRequest {
        instance: Instance { id: InstanceId(instance), host: "store".to_owned() },
        capabilities: Capabilities::all(),
        ..SessionRequest::default()
    };
    link::Request::Session(Box::new(request), link::Origin::default())
}

/// What the agent of the one target is refused with at once.
fn told(hub: &mut Hub) -> Option<RefusalKind> {
    let request = asks(1);
    let (_, mut answer) = hub.engine.request(hub.now, target(), request);
    answer.try_recv().ok()?.err().map(|refusal| refusal.refusal)
}

#[test]
fn a_revoked_key_ends_what_waits_and_is_refused_until_another_is_there() {
    let mut hub = Hub::with(1);
    hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
    assert_eq!(told(&mut hub), None, "a session is being written");
    let (_, mut waiting) = hub.engine.request(hub.now, target(), asks(1));
    hub.engine.keys_revoked(target(), "shop", &[agent(1).key]);
    hub.engine.target_seen(hub.now, in_service(true), None);
    assert_eq!(waiting.try_recv().unwrap().unwrap_err().refusal, RefusalKind::Revoked);
    assert_eq!(told(&mut hub), Some(RefusalKind::Revoked));
    assert_eq!(hub.engine.key_of(target()), Some(agent(1).key), "so that it can be told");
    assert!(hub.engine.is_revoked(&agent(1).key));
    // Whoever writes the annotation back gives it back nothing.
    hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
    assert_eq!(told(&mut hub), Some(RefusalKind::Revoked));
    hub.engine.target_seen(hub.now, in_service(true), Some(agent(2)));
    assert_eq!(told(&mut hub), None);
    assert_eq!(hub.engine.key_of(target()), Some(agent(2).key));
}

/// Nothing is due at that moment: it is the revocation that ends the poll, and not the end of its wait.
#[test]
fn a_poll_that_is_open_ends_with_the_revocation_of_its_key() {
    let mut hub = Hub::with_agent();
    let polls = |since: Option<&DesiredPage>| {
        link::Request::Desired(DesiredRequest {
            session: SessionName::new(1, 0),
            since: since.map(|page| page.at),
            digest: since.map(|page| page.digest),
            after: None,
            wait_seconds: POLL_WAIT_SECONDS_MAX,
            approved: ApprovedHeld::default(),
            decommission: Decommission::No,
            shown: None,
            history: Continuity::Whole,
            stands: None,
        })
    };
    let (_, mut first) = hub.engine.request(hub.now, target(), polls(None));
    let page = match first.try_recv().unwrap().unwrap() {
        Reply::Core(link::Answer::Desired(DesiredAnswer::Page(page))) => page,
        other => panic!("{other:?}"),
    };
    let (_, mut open) = hub.engine.request(hub.now, target(), polls(Some(&page)));
    assert!(open.try_recv().is_err(), "there is nothing new");
    hub.engine.keys_revoked(target(), "shop", &[agent(1).key]);
    hub.engine.target_seen(hub.now, in_service(true), None);
    assert_eq!(open.try_recv().unwrap().unwrap_err().refusal, RefusalKind::Revoked);
}

/// As after `kubectl apply` of an old manifest: dropped, unreadable, or the key of an agent before it.
#[test]
fn a_key_that_is_gone_for_a_moment_ends_what_waits_and_is_the_agents_again() {
    for slip in [None, Some(agent(2))] {
        let mut hub = Hub::with(1);
        hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
        assert_eq!(told(&mut hub), None, "a session is being written");
        let (_, mut waiting) = hub.engine.request(hub.now, target(), asks(1));
        hub.engine.target_seen(hub.now, in_service(true), slip.clone());
        assert_eq!(waiting.try_recv().unwrap().unwrap_err().refusal, RefusalKind::Revoked, "{slip:?}");
        if slip.is_none() {
            assert_eq!(told(&mut hub), Some(RefusalKind::Revoked));
        }
        hub.persist();
        hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
        assert_eq!(told(&mut hub), None, "{slip:?}");
        assert_eq!(hub.engine.key_of(target()), Some(agent(1).key));
        assert!(!hub.engine.is_revoked(&agent(1).key));
    }
}

/// The hub restarts while the key is away.
#[test]
fn a_key_that_was_gone_over_a_restart_is_the_agents_again() {
    let mut hub = Hub::with(1);
    hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
    hub.engine.target_seen(hub.now, in_service(true), None);
    let remembered = hub.engine.work(committer::fresh(hub.now)).remembered;
    let mut next = Hub::with(1);
    next.engine.remember(remembered);
    next.engine.target_seen(next.now, in_service(true), None);
    assert_eq!(told(&mut next), Some(RefusalKind::Revoked));
    next.engine.target_seen(next.now, in_service(true), Some(agent(1)));
    assert_eq!(told(&mut next), None);
}

#[test]
fn a_deleted_target_is_remembered_by_the_key_that_it_had() {
    let mut hub = Hub::with(1);
    hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
    hub.persist();
    hub.engine.target_deleting(target(), "admin");
    hub.engine.target_gone(hub.now, target(), Deletion::default());
    assert_eq!(told(&mut hub), Some(RefusalKind::TargetGone));
    assert_eq!(hub.engine.key_of(target()), Some(agent(1).key));
    let work = hub.engine.work(committer::fresh(hub.now));
    let deleted = work.remembered[&target()].deleted.clone();
    assert_eq!(deleted, Some(Deletion { by: Some("admin".to_owned()), ..Deletion::default() }));
    // The next run lists an inventory without it.
    let fuse = Fuse::new(UNASSIGN_LIMIT);
    let mut next = Engine::new(link::Config::default(), SETTLE, fuse, Ledger::default(), BTreeMap::new());
    next.remember(work.remembered.clone());
    next.targets_listed(hub.now);
    assert_eq!(next.key_of(target()), Some(agent(1).key));
}

/// A process asks for a session, and again with what it was told, as agents do; its first use makes the session its own.
fn begins(hub: &mut Hub, instance: u64, persisted: SessionName) -> Result<SessionName, RefusalKind> {
    let link::Request::Session(request, _) = asks(instance) else { unreachable!("it is one") };
    let mut request = SessionRequest { persisted, last: persisted.number, ..*request };
    for id in 0..3 {
        let from = link::Origin { id: SessionId(10 * instance + id), ..link::Origin::default() };
        let asked = link::Request::Session(Box::new(request.clone()), from);
        let (_, mut answer) = hub.engine.request(hub.now, target(), asked);
        hub.persist();
        match answer.try_recv().unwrap().map_err(|refusal| refusal.refusal)? {
            Reply::Core(link::Answer::Session(answer)) if answer.outdated => request.last = answer.session.number,
            Reply::Core(link::Answer::Session(answer)) => {
                let bodies = BodiesRequest { session: answer.session, wanted: Vec::new() };
                let (_, _answer) = hub.engine.request(hub.now, target(), link::Request::Bodies(bodies));
                hub.persist();
                return Ok(answer.session);
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("it is told of one session after another");
}

/// An agent in place makes the new key itself; a machine that replaces it has no home at all.
#[test]
fn who_enrols_in_place_of_a_revoked_key_goes_on_at_once() {
    for revoked in [true, false] {
        for restarts in [true, false] {
            for in_place in [true, false] {
                let mut hub = Hub::with(1);
                hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
                hub.persist();
                let first = begins(&mut hub, 1, SessionName::default()).unwrap();
                if revoked {
                    hub.engine.keys_revoked(target(), "shop", &[agent(1).key]);
                }
                hub.engine.target_seen(hub.now, in_service(true), None);
                if restarts {
                    let (remembered, holders) = (hub.engine.memory.clone(), hub.engine.targets.clone());
                    hub = Hub::with(1);
                    hub.engine.memory = remembered;
                    hub.engine.targets.held(target(), holders.holder(target()));
                }
                hub.engine.target_seen(hub.now, in_service(true), Some(agent(2)));
                hub.persist();
                let context = format!("revoked {revoked}, restarted {restarts}, in place {in_place}");
                let (instance, persisted) = if in_place { (1, first) } else { (9, SessionName::default()) };
                let next = begins(&mut hub, instance, persisted);
                match next {
                    Ok(next) => assert!(next.number > first.number && (revoked || in_place), "{context}"),
                    Err(refused) => {
                        assert!(!revoked && !in_place, "{context}");
                        assert_eq!(refused, RefusalKind::Fenced, "nobody's word says that this one is meant");
                    }
                }
                if revoked && !in_place {
                    // From now on it is the holder, as any other.
                    assert_eq!(begins(&mut hub, 7, SessionName::default()), Err(RefusalKind::Fenced), "{context}");
                }
            }
        }
    }
}

fn heir() -> TargetId {
    "77777777-0000-4000-8000-000000000000".parse().unwrap()
}

/// The one target was deleted while its agent was at work in its first session, and one of its name was made.
fn recreated() -> Hub {
    recreated_after(asks(1), None)
}

/// The same, where it asked so for its session, and what was made showed this.
fn recreated_after(session: link::Request, record: Option<TargetRecord>) -> Hub {
    let mut hub = Hub::with(1);
    hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
    hub.persist();
    let (_, _answer) = hub.engine.request(hub.now, target(), session);
    hub.persist();
    let bodies = BodiesRequest { session: SessionName::new(1, 0), wanted: Vec::new() };
    let (_, _answer) = hub.engine.request(hub.now, target(), link::Request::Bodies(bodies));
    hub.persist();
    hub.engine.target_gone(hub.now, target(), Deletion::default());
    hub.engine.target_seen(hub.now, Target { id: heir(), ..in_service(true) }, record);
    hub.persist();
    hub
}

fn adopts(hub: &mut Hub, seed: u8) {
    let record = TargetRecord { adopts: Some(target()), ..agent(seed) };
    hub.engine.target_seen(hub.now, Target { id: heir(), ..in_service(true) }, Some(record));
    hub.persist();
}

/// To what an agent is handed that asks as this, being found by the hub as that.
fn handed(hub: &mut Hub, asked_as: TargetId, found: TargetId, formers: &[TargetId]) -> Result<TargetId, String> {
    let request = SessionRequest {
        instance: Instance { id: InstanceId(1), host: "store".to_owned() },
        persisted: SessionName::new(1, 0),
        last: SessionNumber(1),
        formers: formers.to_vec(),
        asked_as: Some(asked_as),
        capabilities: Capabilities::all(),
        ..SessionRequest::default()
    };
    answered(hub, found, request, asked_as)
}

fn answered(hub: &mut Hub, found: TargetId, request: SessionRequest, asked_as: TargetId) -> Result<TargetId, String> {
    let (_, mut answer) =
        hub.engine.request(hub.now, found, link::Request::Session(Box::new(request), link::Origin::default()));
    hub.persist();
    match answer.try_recv().unwrap() {
        Ok(Reply::Core(link::Answer::Session(answer))) => match answer.handover {
            Some(Handover { target, former, key, .. }) => {
                assert_eq!(former, asked_as);
                assert_eq!(key, agent(1).key.as_bytes());
                Ok(target)
            }
            None => Err(format!("session {}", answer.session.number)),
        },
        Ok(other) => Err(format!("{other:?}")),
        Err(refusal) => Err(format!("{:?}", refusal.refusal)),
    }
}

#[test]
fn an_adopted_agent_is_handed_over_and_its_sessions_go_on() {
    // By who deleted it, or by who keeps its manifest, with what the hub wrote there.
    for made in [None, Some(agent(1))] {
        let mut hub = recreated_after(asks(1), made);
        assert_eq!(handed(&mut hub, target(), target(), &[]), Err("TargetGone".to_owned()));
        adopts(&mut hub, 1);
        let older = SessionRequest { asked_as: Some(target()), ..SessionRequest::default() };
        let told = answered(&mut hub, target(), older, target());
        assert_eq!(told, Err("TargetGone".to_owned()), "it does not know what a handover is");
        assert_eq!(handed(&mut hub, target(), target(), &[]), Ok(heir()));
        // So does who holds it: a copy of the agent without that session is none of its restarts.
        let link::Request::Session(copy, from) = asks(9) else { unreachable!("it is one") };
        let copy = Box::new(SessionRequest { last: SessionNumber(1), ..*copy });
        let (_, mut copy) = hub.engine.request(hub.now, heir(), link::Request::Session(copy, from));
        hub.persist();
        let refused = copy.try_recv().unwrap().map(drop).unwrap_err().refusal;
        assert_eq!(refused, RefusalKind::Fenced);
        assert_eq!(handed(&mut hub, heir(), heir(), &[target()]), Err("session 2".to_owned()));
    }
}

#[test]
fn only_the_key_that_a_deleted_target_had_is_adopted() {
    let mut hub = recreated();
    adopts(&mut hub, 2);
    assert_eq!(handed(&mut hub, target(), target(), &[]), Err("TargetGone".to_owned()), "another's key");

    let mut hub = Hub::with(1);
    hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
    hub.engine.keys_revoked(target(), "shop", &[agent(1).key]);
    hub.engine.target_gone(hub.now, target(), Deletion::default());
    hub.persist();
    adopts(&mut hub, 1);
    assert_eq!(handed(&mut hub, target(), target(), &[]), Err("TargetGone".to_owned()), "it was revoked");
    assert!(hub.engine.is_revoked(&agent(1).key));
}

/// The hub runs on a copy of its directory from before the adoption, and then on one from before the deletion.
#[test]
fn a_hub_from_before_an_adoption_finds_its_agent_by_what_it_was() {
    let mut hub = recreated();
    assert_eq!(handed(&mut hub, heir(), target(), &[target()]), Err("TargetGone".to_owned()));
    adopts(&mut hub, 1);
    assert_eq!(handed(&mut hub, heir(), target(), &[target()]), Ok(heir()), "adopting twice works");

    let mut hub = Hub::with(1);
    hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
    hub.persist();
    assert_eq!(handed(&mut hub, heir(), target(), &[target()]), Ok(target()), "it is what it was again");
}

/// It is the last SyncTarget that had the agent whose agent is handed on.
#[test]
fn an_agent_that_was_adopted_once_is_adopted_again_from_where_it_was_last() {
    let mut hub = recreated();
    adopts(&mut hub, 1);
    assert_eq!(handed(&mut hub, heir(), heir(), &[target()]), Err("session 2".to_owned()));
    let bodies = BodiesRequest { session: SessionName::new(2, 0), wanted: Vec::new() };
    let (_, _answer) = hub.engine.request(hub.now, heir(), link::Request::Bodies(bodies));
    hub.persist();
    let last: TargetId = "88888888-0000-4000-8000-000000000000".parse().unwrap();
    let says = |hub: &mut Hub, former: TargetId| {
        let record = TargetRecord { adopts: Some(former), ..agent(1) };
        hub.engine.target_seen(hub.now, Target { id: last, ..in_service(true) }, Some(record));
        hub.persist();
    };
    says(&mut hub, heir());
    assert_eq!(handed(&mut hub, target(), target(), &[]), Ok(heir()), "it is there");
    hub.engine.target_gone(hub.now, heir(), Deletion::default());
    says(&mut hub, target());
    for (asked_as, formers) in [(target(), &[][..]), (heir(), &[target()])] {
        let told = handed(&mut hub, asked_as, asked_as, formers);
        assert_eq!(told, Err("TargetGone".to_owned()), "it was not there last");
    }
    assert_eq!(hub.engine.targets.holder(last), HolderRecord::default());
    let place = hub.engine.targets.holder(heir());
    assert_eq!(place.session().number, SessionNumber(2));
    says(&mut hub, heir());
    assert_eq!(hub.engine.targets.holder(last), place);
    for (asked_as, formers) in [(target(), &[][..]), (heir(), &[target()])] {
        assert_eq!(handed(&mut hub, asked_as, asked_as, formers), Ok(last));
    }
}

/// That it was handed over is on disk, and who holds it is not.
#[test]
fn a_hub_that_ends_within_an_adoption_carries_the_holder_over_when_it_starts() {
    let mut hub = recreated();
    let record = TargetRecord { adopts: Some(target()), ..agent(1) };
    let mut disk: BTreeMap<TargetId, RememberedTarget> =
        hub.engine.all_remembered_after(None).map(|(id, it)| (id, it.clone())).collect();
    let holders = BTreeMap::from([(target(), hub.engine.targets.holder(target()))]);
    hub.engine.target_seen(hub.now, Target { id: heir(), ..in_service(true) }, Some(record.clone()));
    disk.extend(hub.engine.work(committer::fresh(hub.now)).remembered);
    let fuse = Fuse::new(UNASSIGN_LIMIT);
    hub.engine = Engine::new(link::Config::default(), SETTLE, fuse, Ledger::default(), holders.clone());
    hub.engine.remember(disk);
    hub.engine.target_seen(hub.now, Target { id: heir(), ..in_service(true) }, Some(record));
    hub.engine.targets_listed(hub.now);
    hub.persist();
    assert_eq!(hub.engine.targets.holder(heir()), holders[&target()]);
    assert_eq!(handed(&mut hub, heir(), heir(), &[target()]), Err("session 2".to_owned()), "it goes on");
}

/// Whether it was adopted, or enrolled anew by its key: its agent may have lost its journal besides.
#[test]
fn what_ran_does_not_run_again_where_the_agent_goes_on_as_another_target() {
    for adopted in [true, false] {
        let mut hub = Hub::with(2);
        hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
        hub.persist();
        says_finished(&mut hub);
        hub.persist();
        hub.engine.target_gone(hub.now, target(), Deletion::default());
        hub.persist();
        if adopted {
            adopts(&mut hub, 1);
        } else {
            hub.engine.target_seen(hub.now, Target { id: heir(), ..in_service(true) }, Some(agent(1)));
            hub.persist();
            // Who says that it was another, and has another key, was not.
            let _refused = handed(&mut hub, heir(), heir(), &[heir()]);
            hub.persist();
            assert_eq!(hub.engine.ledger.target(heir()).unwrap().facts().len(), 0);
            let _opened = handed(&mut hub, heir(), heir(), &[target()]);
            hub.persist();
        }
        let fact = TerminalFact { key: key(1), source_uid: "u1".parse().unwrap(), fact: Terminal::Finished };
        let desk = LedgerView { ledger: &hub.engine.ledger, approvals: &hub.engine.approvals };
        let page = desk.page(heir(), None, None, 10).unwrap();
        assert_eq!((page.entries.len(), page.terminal), (2, vec![fact]), "adopted: {adopted}");
        let remembered = |hub: &Hub| hub.engine.remembered(target()).unwrap().ran.len();
        assert_eq!(remembered(&hub), usize::from(adopted), "until its agent came as the other");
        let _opened = handed(&mut hub, heir(), heir(), &[target()]);
        hub.persist();
        assert_eq!((remembered(&hub), hub.engine.has_work()), (0, false));
        assert_eq!(hub.engine.ledger.target(heir()).unwrap().facts().len(), 1);
    }
}

#[test]
fn what_ran_is_not_remembered_of_a_target_that_had_gone_out_of_service() {
    for leaves in [true, false] {
        let mut hub = Hub::with(2);
        hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
        hub.persist();
        says_finished(&mut hub);
        hub.persist();
        let leaving = TargetRecord { decommission: Decommission::Remove, ..agent(1) };
        hub.engine.target_seen(hub.now, in_service(false), Some(leaving));
        hub.persist();
        hub.pass(SETTLE * 2);
        let view = hub.engine.ledger.target(target()).unwrap();
        let gone: Vec<_> =
            view.tombstones().map(|it| Change::Confirm(target(), view.version(), it.tombstone)).collect();
        hub.engine.changes.extend(gone);
        hub.persist();
        if leaves {
            let report = json!({
                "session": "1.0000000000000001", "seq": 1, "inSync": true, "objects": [],
                "decommission": {"how": "Remove", "left": 0},
            });
            hub.engine.report(hub.now, target(), serde_json::from_value(report).unwrap());
        }
        hub.engine.target_gone(hub.now, target(), Deletion::default());
        assert_eq!(hub.engine.remembered(target()).unwrap().ran.len(), usize::from(!leaves));
    }
}
