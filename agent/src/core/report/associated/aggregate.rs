//! The aggregate: of each object that belongs to a placed one, its counted facts and its owner. Counts are made by walking
//! down from the placed object, so that no order of events can make them wrong.
//!
//! ```text
//!  root (placed, by key and UID) ◀── owner ── ReplicaSet, Job ◀── owner ── Pod
//!                                ◀── owner or service-name ─────── EndpointSlice
//! ```
//!
//! Two watches are not ordered against each other: a Pod may be seen before its ReplicaSet, and that before the UID of its
//! Deployment is known. So an object that may belong to a placed one is kept until it is gone: by UID where the owner is
//! known, else by the name of the owner, as controllers derive it (`web-5d4f…` is made of `web`). Objects kept by name are
//! counted by UID only. Where Kubernetes had to cut a name (beyond 240 characters), a Pod that is seen before its ReplicaSet
//! is counted with its next change. Everything else is dropped at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tideline_common::associated::{Example, Made, Phase, Tally};
use tideline_common::{AssociatedKind, GroupKind, ObjectKey, Uid};

use super::wanted::{Wanted, is_link};
use crate::core::interface::observed::{Associate, Condition, Owner};

/// Objects that are kept: every Pod of the largest cluster that Kubernetes supports (150,000), and their ReplicaSets and Jobs.
/// About 300 bytes each, so 60 MB if one target were placed as full as that.
pub(super) const KEPT_MAX: usize = 200_000;

#[derive(Debug, Default)]
pub(super) struct Aggregate {
    roots: BTreeMap<Arc<ObjectKey>, Root>,
    /// Roots by the UID of the present object.
    bound: BTreeMap<Uid, Arc<ObjectKey>>,
    /// Roots with ReplicaSets or Jobs between them and their Pods, by namespace and name.
    named: BTreeMap<Name, BTreeSet<Arc<ObjectKey>>>,
    kept: BTreeMap<Uid, Kept>,
    owned: BTreeMap<Parent, BTreeSet<Uid>>,
    /// The number of the present list of each kind.
    lists: BTreeMap<AssociatedKind, u32>,
    overflown: bool,
}

/// Namespace and name.
type Name = (Arc<str>, Arc<str>);

#[derive(Debug)]
struct Root {
    follows: Wanted,
    uid: Option<Uid>,
}

/// What is kept of one object.
#[derive(Debug)]
struct Kept {
    kind: AssociatedKind,
    parent: Parent,
    /// The root that it is kept for: it belongs to it, or may.
    root: Arc<ObjectKey>,
    name: Box<str>,
    condition: Condition,
    /// The list of its kind that it was in last, or after which it was seen.
    list: u32,
}

/// The owner that an object names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Parent {
    Uid(Uid),
    /// By name only.
    Key(Arc<ObjectKey>),
}

/// The roots whose counts may have changed.
pub(super) type Touched = BTreeSet<Arc<ObjectKey>>;

impl Aggregate {
    /// Follows what is made of an object, which need not exist yet.
    pub(super) fn ask(&mut self, key: &ObjectKey, follows: Wanted) {
        let key = self.roots.get_key_value(key).map_or_else(|| Arc::new(key.clone()), |(key, _)| Arc::clone(key));
        if follows.keys().any(|kind| is_link(*kind)) {
            self.named.entry(name_of(&key)).or_default().insert(Arc::clone(&key));
        }
        let uid = self.roots.remove(&key).and_then(|root| root.uid);
        self.roots.insert(key, Root { follows, uid });
    }

    /// Follows it no longer. What is kept for it is dropped with the next [`Aggregate::sweep`].
    pub(super) fn dismiss(&mut self, key: &ObjectKey) {
        self.bind(key, None);
        let Some((key, _)) = self.roots.remove_entry(key) else { return };
        let key_of_owner = name_of(&key);
        if let Some(named) = self.named.get_mut(&key_of_owner) {
            named.remove(&key);
            if named.is_empty() {
                self.named.remove(&key_of_owner);
            }
        }
        if self.roots.is_empty() {
            self.kept.clear();
            self.owned.clear();
        }
    }

    /// Says which object a root is, if it exists. Returns whether that is new.
    pub(super) fn bind(&mut self, key: &ObjectKey, uid: Option<&Uid>) -> bool {
        let Some((key, root)) = self.roots.get_key_value(key) else { return false };
        if root.uid.as_ref() == uid {
            return false;
        }
        let key = Arc::clone(key);
        if let Some(former) = self.roots.get_mut(&key).and_then(|root| std::mem::replace(&mut root.uid, uid.cloned())) {
            self.bound.remove(&former);
        }
        if let Some(uid) = uid {
            self.rehome(&Parent::Uid(uid.clone()), &key);
            self.bound.insert(uid.clone(), key);
        }
        true
    }

    pub(super) fn follows(&self, key: &ObjectKey) -> Option<&Wanted> {
        self.roots.get(key).map(|root| &root.follows)
    }

    pub(super) fn is_bound(&self, key: &ObjectKey) -> bool {
        self.roots.get(key).is_some_and(|root| root.uid.is_some())
    }

    /// Every root, with the kinds that are followed for it.
    pub(super) fn roots(&self) -> impl Iterator<Item = (&Arc<ObjectKey>, &Wanted)> {
        self.roots.iter().map(|(key, root)| (key, &root.follows))
    }

    /// A complete list of a kind begins: what is not in it is gone.
    pub(super) fn listing(&mut self, kind: AssociatedKind) {
        *self.lists.entry(kind).or_default() += 1;
    }

    /// Takes in the present state of one object.
    pub(super) fn seen(&mut self, kind: AssociatedKind, associate: Associate, touched: &mut Touched) {
        let Associate { uid, namespace, name, owner, condition } = associate;
        let parent_and_root = owner.and_then(|owner| self.parent_and_root(kind, &namespace, owner));
        let Some((parent, root)) = parent_and_root else { return self.gone(kind, &uid, touched) };
        let list = self.lists.get(&kind).copied().unwrap_or_default();
        if let Some(known) = self.kept.get_mut(&uid)
            && known.parent == parent
        {
            known.list = list;
            if known.condition != condition || known.root != root {
                touched.insert(std::mem::replace(&mut known.root, Arc::clone(&root)));
                touched.insert(root);
                known.condition = condition;
            }
            return;
        }
        self.gone(kind, &uid, touched);
        if self.kept.len() >= KEPT_MAX {
            self.overflown = true;
            return;
        }
        if is_link(kind) {
            self.rehome(&Parent::Uid(uid.clone()), &root);
        }
        self.owned.entry(parent.clone()).or_default().insert(uid.clone());
        touched.insert(Arc::clone(&root));
        self.kept.insert(uid, Kept { kind, parent, root, name: name.into(), condition, list });
    }

    /// An object is gone.
    pub(super) fn gone(&mut self, kind: AssociatedKind, uid: &Uid, touched: &mut Touched) {
        if self.kept.get(uid).is_none_or(|kept| kept.kind != kind) {
            return;
        }
        let Some(Kept { parent, root, .. }) = self.kept.remove(uid) else { return };
        if let Some(siblings) = self.owned.get_mut(&parent) {
            siblings.remove(uid);
            if siblings.is_empty() {
                self.owned.remove(&parent);
            }
        }
        touched.insert(root);
    }

    /// The list of a kind is complete.
    pub(super) fn listed(&mut self, kind: AssociatedKind, touched: &mut Touched) {
        let list = self.lists.get(&kind).copied().unwrap_or_default();
        self.forget(|kept| kept.kind == kind && kept.list != list, touched);
    }

    /// A kind is not followed any more.
    pub(super) fn stop(&mut self, kind: AssociatedKind) {
        self.forget(|kept| kept.kind == kind, &mut Touched::new());
        self.lists.remove(&kind);
    }

    /// Drops what was kept for roots that are dismissed, or are followed less far.
    pub(super) fn sweep(&mut self) {
        let roots = std::mem::take(&mut self.roots);
        let wanted = |kept: &Kept| roots.get(&kept.root).is_some_and(|root| root.follows.contains_key(&kept.kind));
        self.forget(|kept| !wanted(kept), &mut Touched::new());
        self.roots = roots;
    }

    /// Whether something could not be kept; only a list can repair that. Once there is room again it is asked for.
    pub(super) fn is_overflown(&self) -> bool {
        self.overflown
    }

    /// Whether there is room again for what could not be kept.
    pub(super) fn take_room(&mut self) -> bool {
        let room = self.overflown && self.kept.len() < KEPT_MAX / 10 * 9;
        self.overflown &= !room;
        room
    }

    /// The objects that belong to a root.
    pub(super) fn made(&self, key: &ObjectKey) -> BTreeMap<AssociatedKind, Made> {
        let mut made = BTreeMap::new();
        let Some((key, root)) = self.roots.get_key_value(key) else { return made };
        let mut open = vec![Parent::Key(Arc::clone(key))];
        open.extend(root.uid.clone().map(Parent::Uid));
        // Each has one parent, so that no circle leads down from a root.
        while let Some(parent) = open.pop() {
            for uid in self.owned.get(&parent).into_iter().flatten() {
                // By its name it may have been kept for another root, which follows more.
                let Some(kept) = self.kept.get(uid).filter(|kept| root.follows.contains_key(&kept.kind)) else {
                    continue;
                };
                count(made.entry(kept.kind).or_default(), kept);
                if is_link(kept.kind) {
                    open.push(Parent::Uid(uid.clone()));
                }
            }
        }
        for made in made.values_mut() {
            made.tally.bound_reasons();
        }
        made
    }

    /// The parent of an object, and the root for which it is kept; none if it belongs to nothing that is placed.
    fn parent_and_root(&self, kind: AssociatedKind, namespace: &str, owner: Owner) -> Option<(Parent, Arc<ObjectKey>)> {
        let Owner { kind: owner_kind, name, uid } = owner;
        let follows =
            |root: &&Arc<ObjectKey>| self.roots.get(*root).is_some_and(|root| root.follows.contains_key(&kind));
        let known = uid.as_ref().and_then(|uid| {
            let link = || self.kept.get(uid).map(|link| &link.root);
            self.bound.get(uid).or_else(link)
        });
        let root = if known.is_some() {
            known.filter(follows)
        } else {
            let key_of_owner = ObjectKey::new(owner_kind.clone(), namespace, name.as_str());
            let owner = self.roots.get_key_value(&key_of_owner).map(|(key, _)| key);
            owner.filter(follows).or_else(|| self.makers(&owner_kind, namespace, &name).find(follows))
        };
        let root = Arc::clone(root?);
        let parent = uid.map_or_else(|| Parent::Key(Arc::clone(&root)), Parent::Uid);
        Some((parent, root))
    }

    /// Possible owners of a ReplicaSet or Job that is not known yet: controllers put a dash and a hash or a time behind the
    /// name.
    fn makers(&self, kind: &GroupKind, namespace: &str, name: &str) -> impl Iterator<Item = &Arc<ObjectKey>> {
        let link = kind.is("apps", "ReplicaSet") || kind.is_job();
        let stem = name.rsplit_once('-').filter(|_| link).map(|(stem, _)| stem);
        let named = stem.and_then(|stem| self.named.get(&(namespace.into(), stem.into())));
        named.into_iter().flatten()
    }

    /// An object that was kept by name for another root turns out to belong to this one.
    fn rehome(&mut self, parent: &Parent, root: &Arc<ObjectKey>) {
        for uid in self.owned.get(parent).into_iter().flatten() {
            if let Some(kept) = self.kept.get_mut(uid) {
                kept.root = Arc::clone(root);
            }
        }
    }

    fn forget(&mut self, which: impl Fn(&Kept) -> bool, touched: &mut Touched) {
        let gone: Vec<_> =
            self.kept.iter().filter(|(_, kept)| which(kept)).map(|(uid, kept)| (kept.kind, uid.clone())).collect();
        for (kind, uid) in gone {
            self.gone(kind, &uid, touched);
        }
    }

    /// Objects kept, and owners that they name.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        (self.kept.len(), self.owned.len())
    }
}

fn name_of(key: &ObjectKey) -> Name {
    (Arc::clone(&key.namespace), Arc::clone(&key.name))
}

fn count(made: &mut Made, kept: &Kept) {
    let Condition { phase, ready, reason, restarts, node, endpoints, endpoints_ready } = &kept.condition;
    let (restarts, reason) = (u64::from(*restarts), reason.as_deref().map(str::to_owned));
    made.tally += &Tally {
        total: 1,
        ready: u64::from(*ready),
        phases: [(*phase, 1)].into(),
        reasons: reason.iter().map(|reason| (reason.clone(), 1)).collect(),
        restarts,
        endpoints: u64::from(*endpoints),
        endpoints_ready: u64::from(*endpoints_ready),
    };
    let well = *ready || matches!(phase, Phase::Succeeded | Phase::Idle);
    if !well || reason.is_some() || restarts > 0 {
        let node = node.as_deref().map(str::to_owned);
        made.name(Example { name: kept.name.as_ref().to_owned(), phase: *phase, reason, restarts, node });
    }
}

#[cfg(test)]
mod tests;
