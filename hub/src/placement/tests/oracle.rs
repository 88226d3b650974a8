//! After any changes in any order, assignments are what resolving everything from scratch gives.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tideline_common::ApplyPolicy;

use super::*;

/// The world as plain data.
#[derive(Clone, Debug, Default)]
struct Plain {
    targets: BTreeMap<u32, u8>,
    locations: BTreeMap<u8, (u8, u8)>,
    namespaces: BTreeMap<u8, u8>,
    /// By namespace and name: incarnation, label, body.
    objects: BTreeMap<(u8, u8), (u8, u8, u8)>,
    placements: BTreeMap<u8, Plan>,
}

#[derive(Clone, Debug, PartialEq)]
struct Plan {
    objects: Option<u8>,
    namespace_label: Option<u8>,
    namespaces_too: bool,
    targets: Option<u8>,
    locations: Option<u8>,
    create_only: bool,
    orphan: bool,
    mapping: Mapping,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mapping {
    Same,
    Prefix,
    /// The first namespace is called as the second, and the second as itself whatever the prefix.
    Joined,
}

#[derive(Clone, Debug)]
enum Op {
    Target(u32, Option<u8>),
    Location(u8, Option<(u8, u8)>),
    Namespace(u8, u8),
    Object((u8, u8), Option<(u8, u8, u8)>),
    Placement(u8, Option<Plan>),
    /// Of what there is, the metadata cannot be read from now on: no assignment is another for that.
    Unreadable(Unread),
    Drain,
    Relist,
    Restart,
}

#[derive(Clone, Copy, Debug)]
enum Unread {
    Location(u8),
    Namespace(u8),
    Object((u8, u8)),
}

fn op() -> impl Strategy<Value = Op> {
    let label = 0..3_u8;
    let plan = (
        prop::option::of(label.clone()),
        prop::option::of(label.clone()),
        any::<bool>(),
        prop::option::of(label.clone()),
        prop::option::of(label.clone()),
        any::<bool>(),
        any::<bool>(),
        prop_oneof![Just(Mapping::Same), Just(Mapping::Prefix), Just(Mapping::Joined)],
    )
        .prop_map(
            |(objects, namespace_label, namespaces_too, targets, locations, create_only, orphan, mapping)| Plan {
                objects,
                namespace_label,
                namespaces_too,
                targets,
                locations,
                create_only,
                orphan,
                mapping,
            },
        );
    let object = (label.clone(), label.clone(), label.clone());
    prop_oneof![
        4 => (0..5_u32, prop::option::weighted(0.8, label.clone())).prop_map(|(nth, label)| Op::Target(nth, label)),
        2 => (0..3_u8, prop::option::weighted(0.8, (label.clone(), label.clone())))
            .prop_map(|(nth, labels)| Op::Location(nth, labels)),
        2 => (0..2_u8, label).prop_map(|(nth, label)| Op::Namespace(nth, label)),
        8 => ((0..2_u8, 0..4_u8), prop::option::weighted(0.8, object)).prop_map(|(key, object)| Op::Object(key, object)),
        5 => (0..3_u8, prop::option::weighted(0.8, plan)).prop_map(|(nth, plan)| Op::Placement(nth, plan)),
        3 => prop_oneof![
            (0..3_u8).prop_map(Unread::Location),
            (0..2_u8).prop_map(Unread::Namespace),
            (0..2_u8, 0..4_u8).prop_map(Unread::Object),
        ].prop_map(Op::Unreadable),
        4 => Just(Op::Drain),
        1 => Just(Op::Relist),
        1 => Just(Op::Restart),
    ]
}

impl Plan {
    fn spec(&self) -> Value {
        let by = |label: u8| json!([{"matchLabels": {"l": label.to_string()}}]);
        let mut clause = json!({"resources": ["configmaps"], "apply": {
            "mode": if self.create_only { "CreateOnly" } else { "Continuous" },
            "prune": if self.orphan { "Orphan" } else { "Delete" },
        }});
        if self.namespaces_too {
            clause["resources"] = json!(["*"]);
        }
        if let Some(label) = self.objects {
            clause["objectSelectors"] = by(label);
        }
        if let Some(label) = self.namespace_label {
            clause["namespaceSelectors"] = by(label);
        }
        let mut spec = json!({"objects": [clause]});
        match self.mapping {
            Mapping::Same => {}
            Mapping::Prefix => spec["namespaceMapping"] = json!({"prefix": "x-"}),
            Mapping::Joined => {
                spec["namespaceMapping"] = json!({"prefix": "y-", "map": {"ns0": "ns1", "ns1": "ns1"}});
            }
        }
        if let Some(label) = self.targets {
            spec["targets"] = by(label);
        }
        if let Some(label) = self.locations {
            spec["locations"] = by(label);
        }
        spec
    }

    fn called(&self, namespace: u8) -> String {
        match self.mapping {
            Mapping::Same => namespace_name(namespace),
            Mapping::Prefix => format!("x-{}", namespace_name(namespace)),
            Mapping::Joined => namespace_name(1),
        }
    }

    fn policy(&self) -> ApplyPolicy {
        ApplyPolicy {
            mode: if self.create_only { ApplyMode::CreateOnly } else { ApplyMode::Continuous },
            prune: if self.orphan { Prune::Orphan } else { Prune::Delete },
            ..ApplyPolicy::default()
        }
    }

    fn reaches(&self, plain: &Plain, label: u8) -> bool {
        let by_location = plain
            .locations
            .values()
            .any(|(location, instances)| self.locations == Some(*location) && *instances == label);
        by_location || self.targets == Some(label)
    }
}

fn namespace_name(nth: u8) -> String {
    format!("ns{nth}")
}

fn config_map_of((namespace, name): (u8, u8), (incarnation, label, body): (u8, u8, u8)) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "namespace": namespace_name(namespace), "name": format!("o{name}"),
            "uid": format!("{namespace}-{name}-{incarnation}"), "labels": {"l": label.to_string()}
        },
        "data": {"value": body.to_string()}
    })
}

/// What is where: by UID, body and target, the policy; none for an implied namespace.
type Resolved = BTreeMap<(String, String, u32), Option<ApplyPolicy>>;

impl Plain {
    fn take(&mut self, op: &Op) {
        match op.clone() {
            Op::Target(nth, label) => put(&mut self.targets, nth, label),
            Op::Location(nth, labels) => put(&mut self.locations, nth, labels),
            Op::Namespace(nth, label) => put(&mut self.namespaces, nth, Some(label)),
            Op::Object(key, object) => put(&mut self.objects, key, object),
            Op::Placement(nth, plan) => put(&mut self.placements, nth, plan),
            Op::Unreadable(_) | Op::Drain | Op::Relist | Op::Restart => {}
        }
    }

    /// Resolves everything, one (object, target) after the other.
    fn resolved(&self) -> Resolved {
        let mut resolved = Resolved::new();
        let mut brought: BTreeSet<(u8, String, u32)> = BTreeSet::new();
        for (&(namespace, name), &object) in &self.objects {
            let selects = |plan: &Plan| {
                plan.objects.is_none_or(|label| label == object.1)
                    && plan.namespace_label.is_none_or(|label| self.namespaces.get(&namespace) == Some(&label))
            };
            for ((called, target), policy) in self.wanted(namespace, selects) {
                let mut there = config_map_of((namespace, name), object);
                there["metadata"]["namespace"] = json!(called);
                let source = clean::read(clean::SpaceServer::Embedded, &there).unwrap();
                brought.insert((namespace, called, target));
                resolved.insert((source.uid.to_string(), text(&source), target), Some(policy));
            }
        }
        for (&nth, &label) in &self.namespaces {
            let there = |called: &str| {
                let mut there = namespace_object(nth, label);
                there["metadata"]["name"] = json!(called);
                clean::read(clean::SpaceServer::Embedded, &there).unwrap()
            };
            let selects = |plan: &Plan| {
                plan.namespaces_too && plan.namespace_label.is_none() && plan.objects.is_none_or(|by| by == label)
            };
            let explicit = self.wanted(nth, selects);
            for (_, called, target) in brought.iter().filter(|(namespace, ..)| *namespace == nth) {
                let source = there(called);
                resolved.insert((source.uid.to_string(), text(&source), *target), None);
            }
            for ((called, target), policy) in explicit {
                let source = there(&called);
                resolved.insert((source.uid.to_string(), text(&source), target), Some(policy));
            }
        }
        resolved
    }

    /// By what the namespace is called there, and target.
    fn wanted(&self, namespace: u8, selects: impl Fn(&Plan) -> bool) -> BTreeMap<(String, u32), ApplyPolicy> {
        let mut wanted: BTreeMap<(String, u32), ApplyPolicy> = BTreeMap::new();
        for plan in self.placements.values().filter(|plan| selects(plan)) {
            for (&target, &label) in &self.targets {
                if plan.reaches(self, label) {
                    let policy = plan.policy();
                    let place = (plan.called(namespace), target);
                    wanted.entry(place).and_modify(|known| *known = known.merge(&policy)).or_insert(policy);
                }
            }
        }
        wanted
    }

    fn ops(&self) -> Vec<Op> {
        let mut ops: Vec<Op> = self.targets.iter().map(|(nth, label)| Op::Target(*nth, Some(*label))).collect();
        ops.extend(self.objects.iter().map(|(key, object)| Op::Object(*key, Some(*object))));
        ops.extend(self.placements.iter().map(|(nth, plan)| Op::Placement(*nth, Some(plan.clone()))));
        ops.extend(self.locations.iter().map(|(nth, labels)| Op::Location(*nth, Some(*labels))));
        ops.extend(self.namespaces.iter().map(|(nth, label)| Op::Namespace(*nth, *label)));
        ops
    }
}

fn put<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}

fn text(source: &clean::Source) -> String {
    match &source.content {
        clean::Content::Outbound(outbound) => outbound.input.text.to_string(),
        other => panic!("{other:?}"),
    }
}

fn namespace_object(nth: u8, label: u8) -> Value {
    let name = namespace_name(nth);
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "uid": format!("{name}-uid"), "labels": {"l": label.to_string()}}
    })
}

impl World {
    fn tell(&mut self, op: &Op) {
        match op {
            Op::Target(nth, Some(label)) => self.target(*nth, &format!("l={label}")),
            Op::Target(nth, None) => self.index.delete_target(*nth),
            Op::Location(nth, Some((label, instances))) => {
                self.location(&nth.to_string(), &format!("l={label}"), &format!("l={instances}"));
            }
            Op::Location(nth, None) => self.index.delete_location(&nth.to_string()),
            Op::Namespace(nth, label) => {
                let source = clean::read(clean::SpaceServer::Embedded, &namespace_object(*nth, *label)).unwrap();
                self.index.apply(&space(), &namespaces(), source);
            }
            Op::Object(key, Some(object)) => self.apply(&config_map_of(*key, *object)),
            Op::Object(key, None) => {
                let key = clean::read(clean::SpaceServer::Embedded, &config_map_of(*key, (0, 0, 0))).unwrap().key;
                self.index.delete(&space(), &config_maps(), &key);
            }
            Op::Placement(nth, Some(plan)) => self.placement(&nth.to_string(), &plan.spec()),
            Op::Placement(nth, None) => self.index.delete_placement(&space(), &nth.to_string()),
            Op::Unreadable(_) | Op::Drain | Op::Relist | Op::Restart => {}
        }
    }

    /// What is known already is told again, with labels that cannot be read.
    fn tell_unreadable(&mut self, of: Unread, plain: &Plain) {
        let unreadable = |mut object: Value| {
            object["metadata"]["labels"]["l"] = json!(1);
            clean::read(clean::SpaceServer::Embedded, &object).unwrap()
        };
        match of {
            Unread::Location(nth) if plain.locations.contains_key(&nth) => {
                self.index.apply_location(&nth.to_string(), Err("metadata.labels".to_owned()));
            }
            Unread::Namespace(nth) if plain.namespaces.contains_key(&nth) => {
                self.index.apply(&space(), &namespaces(), unreadable(namespace_object(nth, 0)));
            }
            Unread::Object(key) => {
                if let Some(object) = plain.objects.get(&key) {
                    self.index.apply(&space(), &config_maps(), unreadable(config_map_of(key, *object)));
                }
            }
            Unread::Location(_) | Unread::Namespace(_) => {}
        }
    }

    fn resolved(&self) -> Resolved {
        let mut resolved = Resolved::new();
        for told in self.told.values() {
            for variant in &told.variants {
                for target in &variant.targets {
                    let policy = (!variant.implied).then(|| (*variant.policy).clone());
                    resolved.insert((told.id.uid.to_string(), variant.input.text.to_string(), target), policy);
                }
            }
        }
        resolved
    }

    /// What the Placements' own statuses would say.
    fn summaries(&self) -> BTreeMap<String, PlacementSummary> {
        let space = space();
        let names = self.index.placements(&space);
        let summary = |name: &str| {
            let mut summary = self.index.placement_status(&space, name).expect("all is resolved");
            // Their order is that in which the objects came.
            summary.problems.sort_by_key(|problem| format!("{problem:?}"));
            (name.to_owned(), summary)
        };
        names.map(summary).collect()
    }

    /// Lets everything settle, that which settling itself sets off too.
    fn settle(&mut self) {
        for _ in 0..4 {
            self.drain();
            self.wait(SETTLED);
        }
        self.drain();
        assert_eq!(self.index.next_deadline(), None);
    }
}

fn reset_all(index: &mut Index) {
    let (space, namespaces, config_maps) = (space(), namespaces(), config_maps());
    for part in [
        Part::Targets,
        Part::Locations,
        Part::Placements(&space),
        Part::Objects(&space, &namespaces),
        Part::Objects(&space, &config_maps),
    ] {
        index.reset(part);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn assignments_are_what_resolving_from_scratch_gives(ops in prop::collection::vec(op(), 1..40)) {
        let mut plain = Plain::default();
        let mut world = World::unlisted();
        world.list();
        for op in &ops {
            plain.take(op);
            world.tell(op);
            match op {
                Op::Unreadable(of) => world.tell_unreadable(*of, &plain),
                Op::Drain => {
                    world.settle();
                    prop_assert_eq!(world.resolved(), plain.resolved());
                }
                // All is read again, in another order, and a drain falls in the middle.
                Op::Relist => {
                    reset_all(&mut world.index);
                    for (nth, op) in plain.ops().iter().rev().enumerate() {
                        world.tell(op);
                        if nth == 3 {
                            world.drain();
                        }
                    }
                    world.list();
                }
                Op::Restart => {
                    world.settle();
                    let told = std::mem::take(&mut world.told);
                    let now = world.now;
                    world = World::restarted(told);
                    world.now = now;
                    for op in plain.ops() {
                        world.tell(&op);
                        prop_assert_eq!(world.drain(), 0);
                    }
                    world.list();
                    prop_assert_eq!(world.drain(), 0, "a restart changes nothing");
                }
                _ => {}
            }
        }
        world.settle();
        prop_assert_eq!(world.resolved(), plain.resolved());
        prop_assert_eq!(world.drain(), 0);
        for op in plain.ops() {
            world.tell(&op);
        }
        prop_assert_eq!(world.drain(), 0, "what can be read again is as it was");

        let mut fresh = World::unlisted();
        for op in plain.ops() {
            fresh.tell(&op);
        }
        fresh.list();
        fresh.settle();
        prop_assert_eq!(world.summaries(), fresh.summaries());
    }
}
