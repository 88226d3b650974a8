//! Who is served, whatever people and tools do to SyncTargets, in any order: only what was said in so many words revokes a key,
//! what was revoked is served nowhere, and a hub that restarts judges as before.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const TARGETS: u8 = 3;
const KEYS: u8 = 3;

#[derive(Clone, Copy, Debug)]
enum Act {
    /// The annotation with the key is that; by hand, or from an old manifest.
    Key(u8, Option<u8>),
    /// `targets revoke`.
    Revoke(u8),
    /// An agent enrols with a token for this SyncTarget, and a key of its own.
    Enrol(u8, u8),
    Delete(u8),
    /// `targets adopt`, of the agent of that one.
    Adopt(u8, u8),
    /// Whoever applies an old manifest drops what was revoked.
    DropRevoked(u8),
    Restart,
}

/// A SyncTarget.
#[derive(Clone, Debug, Default)]
struct Shown {
    key: Option<u8>,
    revoked: BTreeSet<u8>,
    adopts: Option<u8>,
}

struct Site {
    hub: Hub,
    /// What the hub has persisted.
    disk: BTreeMap<TargetId, RememberedTarget>,
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
    prop_oneof![
        3 => (target.clone(), proptest::option::of(key.clone())).prop_map(|(target, key)| Act::Key(target, key)),
        2 => target.clone().prop_map(Act::Revoke),
        3 => (target.clone(), key).prop_map(|(target, key)| Act::Enrol(target, key)),
        1 => target.clone().prop_map(Act::Delete),
        2 => (target.clone(), target.clone()).prop_map(|(heir, former)| Act::Adopt(heir, former)),
        1 => target.prop_map(Act::DropRevoked),
        1 => Just(Act::Restart),
    ]
}

impl Site {
    fn new() -> Self {
        let shown = (0..TARGETS).map(|target| (target, Shown::default())).collect();
        let (disk, gone, revoked, had) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        Self { hub: Hub::with(0), disk, shown, gone, revoked, had }
    }

    fn may_have(&self, target: u8, key: u8) -> bool {
        let elsewhere = self.revoked.iter().any(|(_, revoked)| *revoked == key);
        !self.revoked.contains(&(target, key)) && (self.had.contains(&(target, key)) || !elsewhere)
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Key(target, key) => self.edit(target, |shown| shown.key = key),
            Act::Revoke(target) => {
                let remembered = self.hub.engine.unrevoked_keys(id(target));
                let known = (0..KEYS).filter(|key| remembered.contains(&text(*key)));
                let keys: BTreeSet<u8> = known.chain(self.shown.get(&target).and_then(|shown| shown.key)).collect();
                self.revoke(target, &keys, None);
            }
            Act::Enrol(target, key) => {
                let free = self.shown.get(&target).is_some_and(|shown| shown.key.is_none());
                if free && !self.hub.engine.is_revoked(&agent(key + 1).key) {
                    let remembered = self.hub.engine.unrevoked_keys(id(target));
                    let former = (0..KEYS).filter(|it| *it != key && remembered.contains(&text(*it))).collect();
                    self.revoke(target, &former, Some(key));
                }
            }
            Act::Delete(target) => {
                if self.shown.remove(&target).is_some() {
                    self.gone.insert(target);
                    self.hub.engine.target_gone(self.hub.now, id(target), Deletion::default());
                }
            }
            Act::Adopt(heir, former) => {
                let remembered = self.hub.engine.remembered(id(former));
                let key =
                    remembered.filter(|it| it.deleted.is_some() && !it.is_revoked()).and_then(|it| it.key.clone());
                let key = key.and_then(|key| (0..KEYS).find(|it| text(*it) == key));
                let free = self.shown.get(&heir).is_some_and(|shown| shown.key.is_none());
                if let (Some(key), true) = (key, free) {
                    self.edit(heir, |shown| (shown.key, shown.adopts) = (Some(key), Some(former)));
                }
            }
            Act::DropRevoked(target) => self.edit(target, |shown| shown.revoked.clear()),
            Act::Restart => self.restart(),
        }
        self.hub.engine.work(committer::fresh(self.hub.now)).remembered.into_iter().for_each(|(id, remembered)| {
            self.disk.insert(id, remembered);
        });
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
        if let Some(key) = key.filter(|key| self.may_have(target, *key)) {
            self.had.insert((target, key));
        }
        let revoked: Vec<_> = revoked.iter().map(|key| agent(key + 1).key).collect();
        let record = key.map(|key| TargetRecord { adopts: adopts.map(id), ..agent(key + 1) });
        self.hub.engine.keys_revoked(id(target), "shop", &revoked);
        let target = Target { id: id(target), ..in_service(true) };
        self.hub.engine.target_seen(self.hub.now, target, record);
    }

    fn restart(&mut self) {
        self.hub = Hub::with(0);
        self.hub.engine.remember(self.disk.clone());
        self.hub.engine.targets_reset();
        for target in self.shown.keys().copied().collect::<Vec<_>>() {
            self.show(target);
        }
        self.hub.engine.targets_listed(self.hub.now);
    }

    fn check(&mut self) {
        for (target, shown) in &self.shown {
            let served = self.hub.engine.targets.get(id(*target)).map(|outline| outline.record.key.clone());
            let expected = shown.key.filter(|key| self.may_have(*target, *key)).map(|key| agent(key + 1).key);
            assert_eq!(served, expected, "SyncTarget {target} {shown:?}, revoked {:?}", self.revoked);
        }
        for target in 0..TARGETS {
            let handed = self.hub.engine.remembered(id(target)).is_some_and(|it| it.heir.is_some());
            let known = self.hub.engine.key_of(id(target)).is_some();
            let (_, mut answer) = self.hub.engine.request(self.hub.now, id(target), asks(u64::from(target)));
            let told = answer.try_recv().ok().and_then(Result::err).map(|refusal| refusal.refusal);
            let served = self.hub.engine.targets.get(id(target)).is_some();
            match told {
                Some(RefusalKind::TargetGone) => assert!(self.gone.contains(&target)),
                Some(RefusalKind::Revoked) => assert!(!served && !self.gone.contains(&target)),
                // It waits for the disk; or it is another by now; or there never was an agent.
                Some(RefusalKind::Busy) | None => {
                    assert!(served || handed || !known, "SyncTarget {target} is told nothing");
                }
                Some(other) => panic!("SyncTarget {target} is told {other:?}"),
            }
        }
    }
}

fn text(key: u8) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(agent(key + 1).key.as_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_key_is_served_where_it_stands_and_nobody_revoked_it(acts in proptest::collection::vec(act(), 1..25)) {
        let mut site = Site::new();
        for act in acts {
            site.act(act);
            site.check();
            let before: Vec<_> = (0..TARGETS).map(|target| site.hub.engine.key_of(id(target))).collect();
            site.restart();
            site.check();
            let after: Vec<_> = (0..TARGETS).map(|target| site.hub.engine.key_of(id(target))).collect();
            prop_assert_eq!(before, after, "a restarted hub knows other keys, after {:?}", act);
        }
    }
}
