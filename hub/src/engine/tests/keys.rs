//! Who is served, whatever people and tools do to SyncTargets, in any order: only what was said in so many words revokes a key,
//! what was revoked is served nowhere, an agent is handed over only by who adopts it, with its place, and a hub that restarts
//! judges as before.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tideline_common::Formers;
use tideline_common::signature::VerifyingKey;

use super::*;
use crate::agents::{self, Agent};
use crate::enrol::{adopts, read_adopts};
use crate::link::exchange::{Unverified, find_target};

/// The SyncTargets that there are at first.
const FIRST: u8 = 3;
/// With those that are made from saved manifests.
const TARGETS: u8 = 6;
const KEYS: u8 = 3;

#[derive(Clone, Copy, Debug)]
enum Act {
    /// The annotation with the key is that; by hand, or from an old manifest.
    Key(u8, Option<u8>),
    /// `targets revoke`.
    Revoke(u8),
    /// An agent enrols with a token for a SyncTarget that has none, and a key of its own.
    Enrol(Nth, u8),
    Delete(Nth),
    /// `targets adopt`, of the agent of one that was deleted.
    Adopt(Nth, Nth),
    /// `kubectl create`, from what was saved of another SyncTarget, be that deleted or not.
    Recreate(Nth),
    /// The agent with this key opens a session and uses it, or becomes what it is handed to.
    Ask(u8),
    /// Whoever applies an old manifest drops what was revoked.
    DropRevoked(u8),
    Restart,
}

/// One of those that there are for an act, so that few acts are in vain.
#[derive(Clone, Copy, Debug)]
struct Nth(u8);

impl Nth {
    fn of(self, all: impl IntoIterator<Item = u8>) -> Option<u8> {
        let all: Vec<_> = all.into_iter().collect();
        all.get(usize::from(self.0) % all.len().max(1)).copied()
    }
}

/// A SyncTarget.
#[derive(Clone, Debug, Default)]
struct Shown {
    key: Option<u8>,
    revoked: BTreeSet<u8>,
    adopts: Option<String>,
}

/// An agent, by what it has in its home.
#[derive(Clone, Debug)]
struct Home {
    target: u8,
    formers: Formers,
    session: SessionName,
}

struct Site {
    hub: Hub,
    /// What the hub has persisted.
    disk: BTreeMap<TargetId, RememberedTarget>,
    holders: BTreeMap<TargetId, HolderRecord>,
    /// The agents that enrolled, by key.
    homes: BTreeMap<u8, Home>,
    /// Whose agent a person handed to whom.
    adopted: BTreeSet<(TargetId, TargetId)>,
    /// The last manifest of every SyncTarget.
    saved: BTreeMap<u8, Shown>,
    /// Those that there are. A deleted one does not come back.
    shown: BTreeMap<u8, Shown>,
    gone: BTreeSet<u8>,
    /// Said of a target and a key.
    revoked: BTreeSet<(u8, u8)>,
    /// Keys that a target was served with.
    had: BTreeSet<(u8, u8)>,
}

fn id(target: u8) -> TargetId {
    format!("00000000-0000-4000-8000-{target:012}").parse().unwrap()
}

fn act() -> impl Strategy<Value = Act> {
    let (target, key) = (0..TARGETS, 0..KEYS);
    let nth = (0..TARGETS).prop_map(Nth);
    prop_oneof![
        2 => (target.clone(), proptest::option::of(key.clone())).prop_map(|(target, key)| Act::Key(target, key)),
        1 => target.clone().prop_map(Act::Revoke),
        3 => (nth.clone(), key.clone()).prop_map(|(target, key)| Act::Enrol(target, key)),
        3 => nth.clone().prop_map(Act::Delete),
        4 => (nth.clone(), nth.clone()).prop_map(|(heir, former)| Act::Adopt(heir, former)),
        3 => nth.prop_map(Act::Recreate),
        3 => key.prop_map(Act::Ask),
        1 => target.prop_map(Act::DropRevoked),
        1 => Just(Act::Restart),
    ]
}

impl Site {
    fn new() -> Self {
        let shown: BTreeMap<_, _> = (0..FIRST).map(|target| (target, Shown::default())).collect();
        Self {
            hub: Hub::with(0),
            disk: BTreeMap::new(),
            holders: BTreeMap::new(),
            homes: BTreeMap::new(),
            adopted: BTreeSet::new(),
            saved: shown.clone(),
            shown,
            gone: BTreeSet::new(),
            revoked: BTreeSet::new(),
            had: BTreeSet::new(),
        }
    }

    fn may_have(&self, target: u8, key: u8) -> bool {
        let elsewhere = self.revoked.iter().any(|(_, revoked)| *revoked == key);
        !self.revoked.contains(&(target, key)) && (self.had.contains(&(target, key)) || !elsewhere)
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Key(target, key) => self.edit(target, |shown| shown.key = key),
            Act::Revoke(target) => {
                let (engine, now) = (&self.hub.engine, self.hub.now);
                let agent = engine.remembered(id(target)).map(|it| Agent::of(engine, id(target), it, now));
                let key = self.shown.get(&target).and_then(|shown| shown.key).map(text);
                let keys = agents::unrevoked(agent.as_ref(), key.as_ref());
                let keys = (0..KEYS).filter(|key| keys.contains(&text(*key))).collect();
                self.revoke(target, &keys, None);
                self.edit(target, |shown| shown.adopts = None);
                let left = self.hub.engine.unrevoked_keys(id(target));
                assert!(left.is_empty() || self.gone.contains(&target), "SyncTarget {target} has {left:?}");
            }
            Act::Enrol(target, key) => {
                let free = self.shown.iter().filter(|(_, shown)| shown.key.is_none()).map(|(target, _)| *target);
                if let Some(target) = target.of(free)
                    && !self.hub.engine.is_revoked(&agent(key + 1).key)
                {
                    let remembered = self.hub.engine.unrevoked_keys(id(target));
                    let former = (0..KEYS).filter(|it| *it != key && remembered.contains(&text(*it))).collect();
                    self.revoke(target, &former, Some(key));
                    self.becomes(key, target);
                }
            }
            Act::Delete(target) => {
                if let Some(target) = target.of(self.shown.keys().copied()) {
                    self.shown.remove(&target);
                    self.gone.insert(target);
                    self.hub.engine.target_gone(self.hub.now, id(target), Deletion::default());
                }
            }
            Act::Adopt(heir, former) => {
                let heir = heir.of(self.shown.keys().copied());
                if let (Some(heir), Some(former)) = (heir, former.of(self.gone.iter().copied())) {
                    self.adopt(heir, former);
                }
            }
            Act::Recreate(of) => {
                let new = (0..TARGETS).find(|target| !self.saved.contains_key(target));
                if let (Some(new), Some(of)) = (new, of.of(self.saved.keys().copied())) {
                    let manifest = self.saved[&of].clone();
                    self.revoked.extend(manifest.revoked.iter().map(|key| (new, *key)));
                    self.shown.insert(new, manifest);
                    self.show(new);
                }
            }
            Act::Ask(key) => self.ask(key),
            Act::DropRevoked(target) => self.edit(target, |shown| shown.revoked.clear()),
            Act::Restart => self.restart(),
        }
        self.persist();
    }

    fn persist(&mut self) {
        loop {
            let work = self.hub.engine.work(committer::fresh(self.hub.now));
            if work.is_empty() {
                return;
            }
            self.disk.extend(work.remembered.clone());
            self.holders.extend(work.holders.iter().map(|write| (write.target, (*write.record).clone())));
            self.hub.engine.committed(self.hub.now, work);
        }
    }

    /// As the command does it.
    fn adopt(&mut self, heir: u8, former: u8) {
        let Some(shown) = self.shown.get(&heir) else { return };
        let (engine, now) = (&self.hub.engine, self.hub.now);
        let agents: Vec<_> = engine.all_remembered_after(None).map(|(id, it)| Agent::of(engine, id, it, now)).collect();
        let key = shown.key.map(text);
        let Ok(agent) = agents::choose(&agents, "shop", (key.as_ref(), Some(id(heir))), Some(id(former))) else {
            return;
        };
        let (last, key) = (agent.target, (0..KEYS).find(|key| agent.key == Some(text(*key))));
        let place = self.hub.engine.targets.holder(last);
        let had = self.hub.engine.remembered(last).unwrap().heir;
        self.adopted.insert((last, id(heir)));
        self.edit(heir, |shown| (shown.key, shown.adopts) = (key, Some(adopts(last, id(heir)))));
        let has = self.hub.engine.remembered(last).unwrap().heir;
        if (had, has) == (None, Some(id(heir))) {
            assert_eq!(self.hub.engine.targets.holder(id(heir)), place, "who held its last SyncTarget holds this one");
        }
    }

    /// Those, and who took over their agents by the word of a person.
    fn heirs(&self, of: impl IntoIterator<Item = TargetId>) -> BTreeSet<TargetId> {
        let mut all: BTreeSet<_> = of.into_iter().collect();
        for _ in 0..TARGETS {
            let heirs = self.adopted.iter().filter(|(former, _)| all.contains(former)).map(|(_, heir)| *heir);
            all.extend(heirs.collect::<Vec<_>>());
        }
        all
    }

    /// As the link does it.
    fn ask(&mut self, key: u8) {
        let Some(Home { target, formers, session }) = self.homes.get(&key).cloned() else { return };
        let known = |target| self.hub.engine.key_of(target).ok_or(Unverified::UnknownTarget);
        let named: Vec<_> = formers.iter().collect();
        let Ok((found, known)) = find_target(id(target), &named, known) else { return };
        if known != agent(key + 1).key {
            return;
        }
        let request = SessionRequest {
            instance: Instance { id: InstanceId(u64::from(key)), host: "store".to_owned() },
            persisted: session,
            last: session.number,
            formers: named,
            asked_as: Some(id(target)),
            capabilities: Capabilities::all(),
            ..SessionRequest::default()
        };
        let request = link::Request::Session(Box::new(request), link::Origin::default());
        let (_, mut answer) = self.hub.engine.request(self.hub.now, found, request);
        self.persist();
        let Ok(Ok(Reply::Core(link::Answer::Session(answer)))) = answer.try_recv() else { return };
        if let Some(Handover { target: heir, former, .. }) = answer.handover {
            assert_eq!(former, id(target));
            let may_be = self.heirs(formers.iter().chain([id(target)]));
            assert!(may_be.contains(&heir), "the agent of SyncTarget {target} is handed to {heir}, adopted {may_be:?}");
            let heir = (0..TARGETS).find(|it| id(*it) == heir).unwrap();
            self.becomes(key, heir);
        } else if !answer.outdated {
            self.homes.get_mut(&key).unwrap().session = answer.session;
            let used = BodiesRequest { session: answer.session, wanted: Vec::new() };
            let (_, _answer) = self.hub.engine.request(self.hub.now, id(target), link::Request::Bodies(used));
        }
    }

    fn becomes(&mut self, key: u8, target: u8) {
        let home = Home { target, formers: Formers::default(), session: SessionName::default() };
        let home = self.homes.entry(key).or_insert(home);
        home.formers = home.formers.with(id(home.target)).without(id(target));
        home.target = target;
    }

    fn revoke(&mut self, target: u8, keys: &BTreeSet<u8>, key: Option<u8>) {
        if self.shown.contains_key(&target) {
            self.revoked.extend(keys.iter().map(|key| (target, *key)));
            self.edit(target, |shown| {
                shown.key = key;
                shown.revoked.extend(keys);
            });
        }
    }

    fn edit(&mut self, target: u8, edit: impl FnOnce(&mut Shown)) {
        if let Some(shown) = self.shown.get_mut(&target) {
            edit(shown);
            self.show(target);
        }
    }

    /// As the inventory is read.
    fn show(&mut self, target: u8) {
        let Shown { key, revoked, adopts } = self.shown[&target].clone();
        self.saved.insert(target, self.shown[&target].clone());
        if let Some(key) = key.filter(|key| self.may_have(target, *key)) {
            self.had.insert((target, key));
        }
        let revoked: Vec<_> = revoked.iter().map(|key| agent(key + 1).key).collect();
        let adopts = adopts.and_then(|word| read_adopts(&word, id(target)));
        let record = key.map(|key| TargetRecord { adopts, ..agent(key + 1) });
        self.hub.engine.keys_revoked(id(target), "shop", &revoked);
        let target = Target { id: id(target), ..in_service(true) };
        self.hub.engine.target_seen(self.hub.now, target, record);
    }

    fn restart(&mut self) {
        self.hub = Hub::with(0);
        self.hub.engine.remember(self.disk.clone());
        for (target, record) in &self.holders {
            self.hub.engine.targets.held(*target, record.clone());
        }
        self.hub.engine.targets_reset();
        for target in self.shown.keys().copied().collect::<Vec<_>>() {
            self.show(target);
        }
        self.hub.engine.targets_listed(self.hub.now);
        self.persist();
    }

    fn check(&mut self) {
        for (target, shown) in &self.shown {
            let served = self.hub.engine.targets.get(id(*target)).map(|outline| outline.record.key.clone());
            let expected = shown.key.filter(|key| self.may_have(*target, *key)).map(|key| agent(key + 1).key);
            assert_eq!(served, expected, "SyncTarget {target} {shown:?}, revoked {:?}", self.revoked);
        }
        for (former, remembered) in self.hub.engine.all_remembered_after(None) {
            let handed = remembered.heir.is_none_or(|heir| self.adopted.contains(&(former, heir)));
            assert!(handed, "the agent of {former} was handed to {:?}, and nobody asked for that", remembered.heir);
        }
        for target in 0..TARGETS {
            let known = self.hub.engine.key_of(id(target)).is_some();
            let polls = BodiesRequest { session: SessionName::default(), wanted: Vec::new() };
            let (_, mut answer) = self.hub.engine.request(self.hub.now, id(target), link::Request::Bodies(polls));
            let told = answer.try_recv().ok().and_then(Result::err).map(|refusal| refusal.refusal);
            let served = self.hub.engine.targets.get(id(target)).is_some();
            match told {
                Some(RefusalKind::TargetGone) => assert!(self.gone.contains(&target)),
                Some(RefusalKind::Revoked) => assert!(!served && !self.gone.contains(&target)),
                // It has no session; or there never was an agent.
                Some(RefusalKind::Fenced | RefusalKind::SessionUnknown | RefusalKind::Busy) => {
                    assert!(served || !known, "SyncTarget {target} is told {told:?}");
                }
                other => panic!("SyncTarget {target} is told {other:?}"),
            }
        }
    }

    /// What must outlive the process.
    fn kept(&self) -> Vec<(Option<VerifyingKey>, HolderRecord)> {
        let engine = &self.hub.engine;
        (0..TARGETS).map(|target| (engine.key_of(id(target)), engine.targets.holder(id(target)))).collect()
    }
}

fn text(key: u8) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(agent(key + 1).key.as_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_key_is_served_where_it_stands_and_nobody_revoked_it(acts in proptest::collection::vec(act(), 1..40)) {
        let mut site = Site::new();
        for act in acts {
            site.act(act);
            site.check();
            let before = site.kept();
            site.restart();
            site.check();
            prop_assert_eq!(before, site.kept(), "a restarted hub knows other keys or holders, after {:?}", act);
        }
    }
}
