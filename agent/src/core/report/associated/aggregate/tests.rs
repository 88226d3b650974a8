use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::core::interface::effect::Depth;
use crate::core::report::associated::wanted::follows;
use crate::core::tests::{key, uid};

const KINDS: [AssociatedKind; 4] = AssociatedKind::ALL;

/// What may be placed, and what of it may be asked for.
fn roots() -> Vec<(ObjectKey, &'static [AssociatedKind])> {
    use AssociatedKind::{EndpointSlices, Jobs, Pods, ReplicaSets};
    vec![
        (key("apps", "Deployment", "web"), &[ReplicaSets, Pods]),
        (key("apps", "Deployment", "web-a"), &[Pods]),
        (key("apps", "StatefulSet", "db"), &[Pods]),
        (key("batch", "CronJob", "backup"), &[Jobs, Pods]),
        (key("batch", "Job", "backup-1"), &[Pods]),
        (key("", "Service", "web"), &[EndpointSlices, Pods]),
        (key("argoproj.io", "Rollout", "web"), &[Pods]),
    ]
}

fn owner(key: &ObjectKey, uid: Option<&Uid>) -> Owner {
    Owner { kind: key.kind.clone(), name: key.name.to_string(), uid: uid.cloned() }
}

fn associate(uid: &Uid, name: &str, owner: Option<Owner>, turn: u8) -> Associate {
    let phase = [Phase::Pending, Phase::Running, Phase::Failed][usize::from(turn) % 3];
    let reason = turn.is_multiple_of(2).then(|| "CrashLoopBackOff".into());
    let condition =
        Condition { phase, ready: turn.is_multiple_of(5), reason, restarts: turn.into(), ..Condition::default() };
    Associate { uid: uid.clone(), namespace: "shop".to_owned(), name: name.to_owned(), owner, condition }
}

fn kind_of(kind: AssociatedKind) -> GroupKind {
    match kind {
        AssociatedKind::ReplicaSets => GroupKind::new("apps", "ReplicaSet"),
        AssociatedKind::Jobs => GroupKind::new("batch", "Job"),
        AssociatedKind::Pods => GroupKind::new("", "Pod"),
        AssociatedKind::EndpointSlices | AssociatedKind::Unknown => GroupKind::new("discovery.k8s.io", "EndpointSlice"),
    }
}

/// A cluster, its watches, and an aggregate that learns of it through them.
#[derive(Default)]
struct Scene {
    aggregate: Aggregate,
    asked: BTreeMap<ObjectKey, Wanted>,
    /// The objects that the roots are.
    there: BTreeMap<ObjectKey, Uid>,
    objects: BTreeMap<AssociatedKind, BTreeMap<Uid, Associate>>,
    watches: BTreeMap<AssociatedKind, VecDeque<(Uid, Option<Associate>)>>,
    bindings: VecDeque<ObjectKey>,
    made: u32,
}

impl Scene {
    fn uid(&mut self) -> Uid {
        self.made += 1;
        uid(&format!("u{}", self.made))
    }

    fn act(&mut self, action: u8, which: u8, turn: u8) {
        let all = roots();
        let (root, may) = &all[usize::from(which) % all.len()];
        let kind = KINDS[usize::from(turn) % 4];
        match action % 12 {
            0 => self.ask(root, &may[..=usize::from(turn) % may.len()]),
            1 => self.dismiss(root),
            2 => {
                let uid = self.uid();
                self.there.insert(root.clone(), uid);
                self.bindings.push_back(root.clone());
            }
            3 => {
                self.there.remove(root);
                self.bindings.push_back(root.clone());
            }
            4..=6 => self.make(root, kind, turn),
            7 => {
                let objects = self.objects.entry(kind).or_default();
                let at = usize::from(which) % objects.len().max(1);
                if let Some((uid, object)) = objects.iter().nth(at) {
                    let (uid, changed) = (uid.clone(), associate(uid, &object.name, object.owner.clone(), turn));
                    self.put(kind, uid, Some(changed));
                }
            }
            8 => {
                let objects = self.objects.entry(kind).or_default();
                let at = usize::from(which) % objects.len().max(1);
                if let Some(uid) = objects.keys().nth(at).cloned() {
                    self.put(kind, uid, None);
                }
            }
            9 => self.relist(kind),
            10 => self.aggregate.sweep(),
            _ => {
                self.hear(usize::from(which));
            }
        }
    }

    /// An object is made for a root, or for one that belongs to it.
    fn make(&mut self, root: &ObjectKey, kind: AssociatedKind, turn: u8) {
        let name = format!("{}-{}", root.name, turn % 3);
        let by_label = kind == AssociatedKind::EndpointSlices && turn.is_multiple_of(2);
        let link = KINDS.into_iter().filter(|kind| is_link(*kind)).nth(usize::from(turn) % 2).unwrap();
        let links = self.objects.get(&link).into_iter().flatten().map(|(uid, object)| (uid, &object.name));
        let link = links
            .map(|(uid, name)| owner(&ObjectKey::new(kind_of(link), "shop", name.as_str()), Some(uid)))
            .next_back();
        let direct = self.there.get(root).map(|uid| owner(root, Some(uid)));
        let owner = match (kind, link) {
            (AssociatedKind::Pods, Some(link)) if !turn.is_multiple_of(4) => Some(link),
            (AssociatedKind::EndpointSlices, _) if by_label => Some(owner(root, None)),
            _ => direct,
        };
        let uid = self.uid();
        let made = associate(&uid, &name, owner, turn);
        self.put(kind, uid, Some(made));
    }

    fn put(&mut self, kind: AssociatedKind, uid: Uid, object: Option<Associate>) {
        let objects = self.objects.entry(kind).or_default();
        match &object {
            Some(object) => objects.insert(uid.clone(), object.clone()),
            None => objects.remove(&uid),
        };
        self.watches.entry(kind).or_default().push_back((uid, object));
    }

    /// A kind that is asked for later is listed again.
    fn ask(&mut self, root: &ObjectKey, kinds: &[AssociatedKind]) {
        let follows = follows(&root.kind, &kinds.iter().copied().collect());
        if !follows.is_empty() {
            self.asked.insert(root.clone(), follows.clone());
            self.aggregate.ask(root, follows);
            self.aggregate.bind(root, self.there.get(root));
            for kind in KINDS {
                self.relist(kind);
            }
        }
    }

    fn dismiss(&mut self, root: &ObjectKey) {
        self.asked.remove(root);
        self.aggregate.dismiss(root);
    }

    /// A watch breaks: events that it had not shown yet are in the list.
    fn relist(&mut self, kind: AssociatedKind) {
        self.watches.remove(&kind);
        self.aggregate.listing(kind);
        for object in self.objects.get(&kind).into_iter().flatten().map(|(_, object)| object.clone()) {
            self.aggregate.seen(kind, object, &mut Touched::new());
        }
        self.aggregate.listed(kind, &mut Touched::new());
    }

    /// One of the watches shows an event.
    fn hear(&mut self, which: usize) -> bool {
        if let Some(root) = self.bindings.pop_front() {
            self.aggregate.bind(&root, self.there.get(&root));
            return true;
        }
        self.watches.retain(|_, news| !news.is_empty());
        let Some(kind) = self.watches.keys().nth(which % self.watches.len().max(1)).copied() else { return false };
        let news = self.watches.get_mut(&kind).and_then(VecDeque::pop_front);
        match news {
            Some((_, Some(object))) => self.aggregate.seen(kind, object, &mut Touched::new()),
            Some((uid, None)) => self.aggregate.gone(kind, &uid, &mut Touched::new()),
            None => return false,
        }
        true
    }

    /// The owner of an object, from a full scan.
    fn root_of(&self, object: &Associate) -> Option<&ObjectKey> {
        let owner = object.owner.as_ref()?;
        let Some(uid) = &owner.uid else {
            let key_of_owner = ObjectKey::new(owner.kind.clone(), "shop", owner.name.as_str());
            return self.asked.get_key_value(&key_of_owner).map(|(key, _)| key);
        };
        if let Some((key, _)) = self.there.iter().find(|(_, there)| *there == uid) {
            return Some(key);
        }
        let (kind, link) = self.objects.iter().find_map(|(kind, objects)| Some((kind, objects.get(uid)?)))?;
        self.root_of(link).filter(|root| self.asked.get(*root).is_some_and(|follows| follows.contains_key(kind)))
    }

    fn expected(&self, root: &ObjectKey) -> BTreeMap<AssociatedKind, (u64, u64, u64)> {
        let mut expected = BTreeMap::new();
        for (kind, objects) in &self.objects {
            if !self.asked.get(root).is_some_and(|follows| follows.contains_key(kind)) {
                continue;
            }
            for object in objects.values().filter(|object| self.root_of(object) == Some(root)) {
                let (total, ready, restarts) = expected.entry(*kind).or_default();
                *total += 1;
                *ready += u64::from(object.condition.ready);
                *restarts += u64::from(object.condition.restarts);
            }
        }
        expected
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn counts_equal_a_recomputation_whatever_the_order_of_events_and_lists(
        actions in prop::collection::vec((any::<u8>(), any::<u8>(), any::<u8>()), 0..80),
    ) {
        let mut scene = Scene::default();
        for (root, may) in roots() {
            scene.ask(&root, may);
        }
        for (action, which, turn) in actions {
            scene.act(action, which, turn);
        }
        while scene.hear(3) {}
        for (root, _) in roots() {
            let made = scene.aggregate.made(&root);
            let counts = made.iter().map(|(kind, Made { tally, .. })| (*kind, (tally.total, tally.ready, tally.restarts)));
            prop_assert_eq!(counts.collect::<BTreeMap<_, _>>(), scene.expected(&root), "{}", root);
        }
        // Objects that came and went leave no trace.
        for kind in KINDS {
            for uid in scene.objects.entry(kind).or_default().keys().cloned().collect::<Vec<_>>() {
                scene.put(kind, uid, None);
            }
        }
        while scene.hear(5) {}
        prop_assert_eq!(scene.aggregate.size(), (0, 0));
    }
}

fn deployment() -> (ObjectKey, Aggregate) {
    let root = key("apps", "Deployment", "web");
    let mut aggregate = Aggregate::default();
    aggregate.ask(&root, follows(&root.kind, &[AssociatedKind::Pods].into()));
    aggregate.bind(&root, Some(&uid("d")));
    (root, aggregate)
}

fn replica_set(name: &str, of: &str) -> Associate {
    let owner = owner(&key("apps", "Deployment", of), Some(&uid("d")));
    Associate { condition: Condition::default(), ..associate(&uid(&format!("rs-{name}")), name, Some(owner), 0) }
}

fn pod(nth: u32, of: &str, turn: u8) -> Associate {
    let set = owner(&key("apps", "ReplicaSet", of), Some(&uid(&format!("rs-{of}"))));
    associate(&uid(&format!("p{nth}")), &format!("{of}-{nth}"), Some(set), turn)
}

fn total(aggregate: &Aggregate, root: &ObjectKey) -> u64 {
    aggregate.made(root).get(&AssociatedKind::Pods).map_or(0, |made| made.tally.total)
}

#[test]
fn memory_is_flat_while_68_000_pods_come_and_go() {
    let (root, mut aggregate) = deployment();
    let mut touched = Touched::new();
    aggregate.seen(AssociatedKind::ReplicaSets, replica_set("web-1", "web"), &mut touched);
    let before = aggregate.size();
    // Twenty at a time, each seen as it starts, fails and ends.
    for nth in 0..68_000_u32 {
        for turn in 0..3 {
            aggregate.seen(AssociatedKind::Pods, pod(nth, "web-1", turn), &mut touched);
        }
        if let Some(old) = nth.checked_sub(20) {
            aggregate.gone(AssociatedKind::Pods, &uid(&format!("p{old}")), &mut touched);
        }
        assert!(aggregate.size().0 <= before.0 + 21);
    }
    assert_eq!(total(&aggregate, &root), 20);
    for nth in 67_980..68_000 {
        aggregate.gone(AssociatedKind::Pods, &uid(&format!("p{nth}")), &mut touched);
    }
    assert_eq!(aggregate.size(), before);
    assert_eq!(touched.len(), 1);
}

#[test]
fn pods_of_others_are_not_kept() {
    let (root, mut aggregate) = deployment();
    let mut touched = Touched::new();
    for nth in 0..68_000 {
        aggregate.seen(AssociatedKind::Pods, pod(nth, "shop-1", 0), &mut touched);
        let stranger = Associate { namespace: "other".to_owned(), ..pod(nth, "web-1", 0) };
        aggregate.seen(AssociatedKind::Pods, stranger, &mut touched);
    }
    let others = Associate { owner: None, ..replica_set("web-1", "web") };
    aggregate.seen(AssociatedKind::ReplicaSets, others, &mut touched);
    assert_eq!((aggregate.size(), total(&aggregate, &root), touched.len()), ((0, 0), 0, 0));
}

#[test]
fn an_object_that_arrives_before_its_owner_is_counted_once_the_owner_is_known() {
    let (root, mut aggregate) = deployment();
    aggregate.bind(&root, None);
    let mut touched = Touched::new();
    aggregate.seen(AssociatedKind::Pods, pod(1, "web-1", 1), &mut touched);
    assert_eq!((aggregate.size().0, total(&aggregate, &root)), (1, 0));
    aggregate.seen(AssociatedKind::ReplicaSets, replica_set("web-1", "web"), &mut touched);
    assert_eq!((aggregate.size().0, total(&aggregate, &root)), (2, 0));
    assert!(aggregate.bind(&root, Some(&uid("d"))));
    assert_eq!(total(&aggregate, &root), 1);
    // The same name, and another object.
    assert!(aggregate.bind(&root, Some(&uid("d2"))));
    assert_eq!(total(&aggregate, &root), 0);
}

#[test]
fn a_list_takes_what_is_not_in_it_and_counts_nothing_twice() {
    let (root, mut aggregate) = deployment();
    let mut touched = Touched::new();
    aggregate.seen(AssociatedKind::ReplicaSets, replica_set("web-1", "web"), &mut touched);
    for nth in 0..3 {
        aggregate.seen(AssociatedKind::Pods, pod(nth, "web-1", 1), &mut touched);
    }
    aggregate.listing(AssociatedKind::Pods);
    aggregate.seen(AssociatedKind::Pods, pod(0, "web-1", 1), &mut touched);
    assert_eq!(total(&aggregate, &root), 3, "nothing is gone before the list is complete");
    aggregate.seen(AssociatedKind::Pods, pod(2, "web-1", 1), &mut touched);
    touched.clear();
    aggregate.listed(AssociatedKind::Pods, &mut touched);
    assert_eq!((total(&aggregate, &root), touched.len()), (2, 1));
    aggregate.stop(AssociatedKind::Pods);
    assert_eq!(aggregate.size().0, 1, "the ReplicaSet");
}

#[test]
fn a_change_that_does_not_affect_counts_touches_no_root() {
    let (_, mut aggregate) = deployment();
    let mut touched = Touched::new();
    aggregate.seen(AssociatedKind::Pods, pod(0, "web-1", 1), &mut touched);
    assert_eq!(std::mem::take(&mut touched).len(), 1);
    aggregate.seen(AssociatedKind::Pods, pod(0, "web-1", 1), &mut touched);
    assert_eq!(touched.len(), 0);
    aggregate.seen(AssociatedKind::Pods, pod(0, "web-1", 2), &mut touched);
    assert_eq!(touched.len(), 1);
}

#[test]
fn only_kinds_on_the_owner_chain_of_an_asked_kind_are_followed() {
    use AssociatedKind::{EndpointSlices, Jobs, Pods, ReplicaSets};
    let of = |group: &str, kind: &str, asked: &[AssociatedKind]| {
        let follows = follows(&GroupKind::new(group, kind), &asked.iter().copied().collect());
        follows.into_iter().map(|(kind, depth)| format!("{kind} {depth:?}")).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(of("apps", "Deployment", &[Pods]), "replicasets Links, pods Whole");
    assert_eq!(of("apps", "Deployment", &KINDS), "replicasets Whole, pods Whole");
    assert_eq!(of("apps", "Deployment", &[ReplicaSets]), "replicasets Whole");
    assert_eq!(of("apps", "DaemonSet", &[Pods, Jobs]), "pods Whole");
    assert_eq!(of("batch", "CronJob", &[Pods]), "pods Whole, jobs Links");
    assert_eq!(of("", "Service", &KINDS), "endpointslices Whole");
    assert_eq!(of("", "ConfigMap", &KINDS), "");
    assert_eq!(of("argoproj.io", "Rollout", &[Pods, EndpointSlices]), "replicasets Links, pods Whole, jobs Links");
    assert!(Depth::Links < Depth::Whole);
}
