//! What people do at the hub: objects come, change, go and come again, in two spaces that may want the same key.

use std::collections::BTreeMap;
use std::sync::Arc;

use roaring::RoaringBitmap;
use tideline_agent::simulated_cluster::widget;
use tideline_common::{
    ApplyMode, ApplyPolicy, AssociatedKind, DriftPolicy, Gate, ObjectKey, Prune, SourceRef, SpaceName, Takeover,
    TargetId,
};
use tideline_hub::clean::Input;
use tideline_hub::ledger::Ledger;
use tideline_hub::placement::{Assignment, Change, GroupResource, SourceId, Variant};

use crate::hub::in_advance;
use crate::ids::{OTHER_TARGET, key, parse};
use crate::random::Random;

/// One object of one space.
type Place = (SpaceName, ObjectKey);

#[derive(Clone, Debug)]
struct Source {
    uid: u64,
    generation: i64,
    text: u64,
    policy: Arc<ApplyPolicy>,
    targets: Targets,
    /// Its namespace and name at the targets, by its Placements.
    at: Reach,
}

/// Which targets have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Targets {
    /// The one with an agent.
    Here,
    Both,
    There,
}

/// What the namespace of an object is called at its targets.
#[derive(Clone, Copy, Debug)]
enum Reach {
    Same,
    Mapped,
    Both,
}

impl Reach {
    /// In order, as an assignment has them.
    fn destinations(self) -> &'static [Option<&'static str>] {
        match self {
            Self::Same => &[None],
            Self::Mapped => &[Some(MAPPED)],
            Self::Both => &[None, Some(MAPPED)],
        }
    }
}

/// The namespace's name where it is mapped; others place objects there under its own name.
const MAPPED: &str = "yard";

/// What is placed, as the spaces and their Placements say. It outlives the hub's process.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    sources: BTreeMap<Place, Source>,
    /// Explicitly placed namespaces.
    namespaces: BTreeMap<Arc<str>, bool>,
    places: Vec<Place>,
    pub(crate) keys: Vec<ObjectKey>,
    policies: Vec<Arc<ApplyPolicy>>,
    /// Numbers that no line of history gives twice.
    last: u64,
    /// The cluster is out of service, and gets nothing.
    pub(crate) retired: bool,
}

impl Workload {
    pub(crate) fn new(size: u64) -> Self {
        let mut keys = Vec::new();
        for i in 0..size {
            let namespace = if i % 3 == 2 { "yard" } else { "shop" };
            keys.push(key("", "ConfigMap", namespace, &format!("c{i}")));
        }
        keys.push(key("apps", "Deployment", "shop", "d0"));
        keys.push(key("apps", "Deployment", "yard", "d1"));
        keys.push(key("example.com", "Widget", "shop", "w0"));
        keys.push(key("apiextensions.k8s.io", "CustomResourceDefinition", "", "widgets.example.com"));
        let mut places: Vec<Place> = keys.iter().map(|key| (SpaceName::root(), key.clone())).collect();
        places.extend(keys.iter().take(3).map(|key| (parse("retail"), key.clone())));
        let default = Arc::new(ApplyPolicy::default());
        let gate = Gate { placement: "retail/shop".to_owned(), deadline_seconds: 60 };
        let gated = Arc::new(ApplyPolicy { gates: vec![gate], ..ApplyPolicy::default() });
        let associated = [AssociatedKind::ReplicaSets, AssociatedKind::Pods].into();
        let counted = Arc::new(ApplyPolicy { associated, ..ApplyPolicy::default() });
        let policies = vec![
            Arc::clone(&default),
            Arc::clone(&default),
            counted,
            Arc::clone(&default),
            Arc::new(ApplyPolicy { prune: Prune::Orphan, ..ApplyPolicy::default() }),
            Arc::new(ApplyPolicy { takeover: Takeover::Always, ..ApplyPolicy::default() }),
            Arc::new(ApplyPolicy { takeover: Takeover::Never, ..ApplyPolicy::default() }),
            Arc::new(ApplyPolicy { mode: ApplyMode::CreateOnly, ..ApplyPolicy::default() }),
            Arc::new(ApplyPolicy { drift: DriftPolicy::Report, ..ApplyPolicy::default() }),
            Arc::clone(&gated),
            gated,
            Arc::new(in_advance()),
        ];
        for key in keys.clone().into_iter().filter(|key| &*key.namespace == "shop") {
            keys.push(ObjectKey { namespace: MAPPED.into(), ..key });
        }
        for name in ["shop", MAPPED] {
            keys.push(key("", "Namespace", "", name));
        }
        let namespaces = [("shop".into(), true), ("yard".into(), false)].into();
        Self { sources: BTreeMap::new(), namespaces, places, keys, policies, last: 0, retired: false }
    }

    /// The spaces are set back with the hub; numbers given since are not given again.
    pub(crate) fn restore(&mut self, backup: Self) {
        let last = self.last;
        *self = Self { last, ..backup };
    }

    /// The spaces are lost with the hub.
    pub(crate) fn lose(&mut self) {
        self.sources.clear();
    }

    /// An object is created in a space for the first time, or again after it was deleted there.
    pub(crate) fn create(&mut self, space: &SpaceName, key: &ObjectKey, policy: ApplyPolicy) {
        self.last += 1;
        let (uid, policy) = (self.last, Arc::new(policy));
        let source = Source { uid, generation: 1, text: uid, policy, targets: Targets::Here, at: Reach::Same };
        self.sources.insert((space.clone(), key.clone()), source);
    }

    /// Every existing object of a space that `which` names gets other content.
    pub(crate) fn update(&mut self, which: impl Fn(&ObjectKey) -> bool) {
        for ((_, key), source) in &mut self.sources {
            if which(key) {
                self.last += 1;
                source.generation += 1;
                source.text = self.last;
            }
        }
    }

    /// It is deleted, and created again as it was.
    pub(crate) fn renew(&mut self, which: impl Fn(&ObjectKey) -> bool) {
        for ((_, key), source) in &mut self.sources {
            if which(key) {
                self.last += 1;
                source.uid = self.last;
            }
        }
    }

    pub(crate) fn set_policy(&mut self, which: impl Fn(&ObjectKey) -> bool, policy: ApplyPolicy) {
        let policy = Arc::new(policy);
        let chosen = self.sources.iter_mut().filter(|((_, key), _)| which(key));
        chosen.for_each(|(_, source)| source.policy = Arc::clone(&policy));
    }

    pub(crate) fn move_to(&mut self, which: impl Fn(&ObjectKey) -> bool, targets: Targets) {
        let chosen = self.sources.iter_mut().filter(|((_, key), _)| which(key));
        chosen.for_each(|(_, source)| source.targets = targets);
    }

    pub(crate) fn delete(&mut self, which: impl Fn(&ObjectKey) -> bool) {
        self.sources.retain(|(_, key), _| !which(key));
    }

    pub(crate) fn delete_in(&mut self, from: &SpaceName, which: impl Fn(&ObjectKey) -> bool) {
        self.sources.retain(|(space, key), _| space != from || !which(key));
    }

    /// A namespace is placed itself, or only if something in it is.
    pub(crate) fn place_namespace(&mut self, name: &str, placed: bool) {
        self.namespaces.insert(name.into(), placed);
    }

    /// Something changes. Returns a word for the trace.
    pub(crate) fn mutate(&mut self, random: &mut Random) -> String {
        match random.below(12) {
            0..=6 => {
                let place = random.pick(&self.places).clone();
                self.mutate_one(&place, random)
            }
            7 => {
                let namespace = if random.chance(500) { "shop" } else { "yard" };
                let placed = self.namespaces.entry(namespace.into()).or_default();
                *placed = !*placed;
                format!("namespace {namespace} placed: {placed}")
            }
            8 => {
                let share = 100 + random.below(500);
                self.sources.retain(|_, _| !random.chance(share));
                "mass deletion".to_owned()
            }
            _ => {
                for place in self.places.clone() {
                    if random.chance(300) {
                        self.mutate_one(&place, random);
                    }
                }
                "many changes".to_owned()
            }
        }
    }

    fn mutate_one(&mut self, place: &Place, random: &mut Random) -> String {
        self.last += 1;
        let last = self.last;
        let policy =
            if place.1.kind.is_definition() { self.policies[0].clone() } else { random.pick(&self.policies).clone() };
        let at = match random.below(10) {
            0 if &*place.1.namespace == "shop" => Reach::Mapped,
            1 if &*place.1.namespace == "shop" => Reach::Both,
            _ => Reach::Same,
        };
        let targets = if random.chance(300) { Targets::Both } else { Targets::Here };
        let fresh = Source { uid: last, generation: 1, text: last, policy, targets, at };
        let what = match self.sources.get_mut(place) {
            None => {
                self.sources.insert(place.clone(), fresh);
                "created"
            }
            Some(source) => match random.below(9) {
                0..=3 => {
                    source.generation += 1;
                    source.text = last;
                    "updated"
                }
                4 => {
                    source.policy = fresh.policy;
                    "policy of"
                }
                5 => {
                    *source = fresh;
                    "recreated"
                }
                6 => {
                    source.at = fresh.at;
                    "mapping of"
                }
                _ => {
                    self.sources.remove(place);
                    "deleted"
                }
            },
        };
        format!("{what} {}/{}", place.0, place.1)
    }

    /// Everything as it should be, whatever the ledger has by now.
    pub(crate) fn changes(&self, ledger: &Ledger, target: TargetId) -> Vec<Change> {
        let index = |target| ledger.index_of(target).expect("targets are registered");
        let (here, there) = (index(target), index(parse(OTHER_TARGET)));
        let retired: RoaringBitmap = self.retired.then_some(here).into_iter().collect();
        let targets = |which| -> RoaringBitmap {
            let all: RoaringBitmap = match which {
                Targets::Here => [here].into_iter().collect(),
                Targets::Both => [here, there].into_iter().collect(),
                Targets::There => [there].into_iter().collect(),
            };
            all - &retired
        };
        let mut assignments: Vec<Assignment> = Vec::new();
        for ((space, key), source) in &self.sources {
            assignments.push(assignment(space, key, source, false, &targets(source.targets)));
        }
        for (namespace, placed) in &self.namespaces {
            let inside = self.sources.iter().any(|((_, key), source)| {
                key.is_namespaced()
                    && source.at.destinations().iter().any(|at| at.unwrap_or(&key.namespace) == &**namespace)
            });
            if *placed || inside {
                let place = key("", "Namespace", "", namespace);
                let policy = Arc::clone(&self.policies[0]);
                let targets = targets(Targets::Both);
                let source = Source { uid: 0, generation: 0, text: 0, policy, targets: Targets::Both, at: Reach::Same };
                let mut made = assignment(&SpaceName::root(), &place, &source, !placed, &targets);
                made.source.uid = parse(&format!("source-{namespace}"));
                made.id.uid = made.source.uid.clone();
                assignments.push(made);
            }
        }
        assignments.retain(|assignment| assignment.variants.iter().any(|variant| !variant.targets.is_empty()));
        let gone = ledger.sources().map(|source| source.id().clone());
        let gone = gone.filter(|id| !assignments.iter().any(|assignment| assignment.id == *id)).map(Change::Remove);
        let mut changes: Vec<Change> = gone.collect();
        changes.extend(assignments.into_iter().map(|assignment| Change::Assign(Box::new(assignment))));
        changes
    }
}

fn assignment(
    space: &SpaceName,
    key: &ObjectKey,
    source: &Source,
    implied: bool,
    targets: &RoaringBitmap,
) -> Assignment {
    let uid = parse(&format!("source-{}", source.uid));
    let resource = key.kind.kind.to_lowercase() + "s";
    let variant = |at: Option<&str>| {
        let ObjectKey { kind, namespace, name } = key;
        let namespace = at.unwrap_or(namespace);
        let (kind, body) = (&kind.kind, source.text);
        let text = format!(r#"{{"kind":"{kind}","name":"{name}","namespace":"{namespace}","text":{body}}}"#);
        let (destination, policy, input) = (at.map(Into::into), Arc::clone(&source.policy), Input::new(text));
        Variant { destination, policy, input, implied, targets: targets.clone() }
    };
    Assignment {
        id: SourceId { space: space.clone(), resource: GroupResource::new(Arc::clone(&key.kind.group), resource), uid },
        source: SourceRef {
            space: space.clone(),
            uid: parse(&format!("source-{}", source.uid)),
            namespace: Arc::clone(&key.namespace),
            name: Arc::clone(&key.name),
        },
        key: key.clone(),
        version: "v1".into(),
        generation: source.generation,
        wave: match &key.kind {
            kind if kind.is_namespace() || kind.is_definition() => -10,
            kind if *kind == widget() => 10,
            _ => 0,
        },
        impersonate: None,
        variants: source.at.destinations().iter().copied().map(variant).collect(),
    }
}
