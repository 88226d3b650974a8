use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use roaring::RoaringBitmap;
use serde_json::{Value, json};
use tideline_api::{Allow, Location, Placement, Selector};
use tideline_common::wire::v1::Decommission;
use tideline_common::{ApplyMode, Monotonic, ObjectKey, Prune, Reason, SpaceName, TargetId};

use super::*;
use crate::clean::{self, Destination, Labels};

mod choosing;
mod mapping;
mod oracle;
mod selecting;
mod settling;
mod summary;
mod unlisted;

/// An index with the assignments that it has told so far.
struct World {
    index: Index,
    told: BTreeMap<SourceId, Assignment>,
    choices: BTreeMap<PlacementId, RoaringBitmap>,
    now: Monotonic,
}

const SETTLED: Duration = Duration::from_secs(10);
const ALMOST_SETTLED: Duration = Duration::from_millis(9_999);

fn space() -> SpaceName {
    "default".parse().unwrap()
}

fn config_maps() -> GroupResource {
    GroupResource::new("", "configmaps")
}

fn namespaces() -> GroupResource {
    GroupResource::new("", "namespaces")
}

fn target_id(nth: u32) -> TargetId {
    format!("00000000-0000-4000-8000-{nth:012}").parse().unwrap()
}

fn target_name(nth: u32) -> Arc<str> {
    format!("target-{nth}").into()
}

fn labels(text: &str) -> Labels {
    let pairs = text.split(',').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap()).map(|(key, value)| (key.into(), value.into())).collect()
}

fn rule(spec: &Value) -> PlacementRule {
    let object =
        json!({"apiVersion": "tideline.dev/v1alpha1", "kind": "Placement", "metadata": {"name": "p"}, "spec": spec});
    let placement: Placement = tideline_api::decode(object).unwrap();
    PlacementRule::try_from(&placement.spec).unwrap()
}

fn selector(text: &str) -> Selector {
    let object = json!({
        "apiVersion": "tideline.dev/v1alpha1", "kind": "Location", "metadata": {"name": "l"},
        "spec": {"instanceSelector": {"matchLabels": labels(text)}}
    });
    let location: Location = tideline_api::decode(object).unwrap();
    Selector::try_from(&location.spec.instance_selector).unwrap()
}

/// All ConfigMaps that carry these labels, to all targets that carry those.
fn simple(objects: &str, targets: &str) -> Value {
    json!({
        "targets": [{"matchLabels": labels(targets)}],
        "objects": [{"resources": ["configmaps"], "objectSelectors": [{"matchLabels": labels(objects)}]}]
    })
}

fn config_map(name: &str, uid: &str, with: &str, data: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "shop", "uid": uid, "labels": labels(with)},
        "data": {"value": data}
    })
}

impl World {
    /// Everything listed, nothing there but the namespace `shop` and `targets` targets, all labelled `n=<their number>`
    /// and `all=yes`.
    fn new(targets: u32) -> Self {
        let mut world = Self::unlisted();
        for nth in 0..targets {
            world.target(nth, &format!("n={nth},all=yes"));
        }
        world.namespace("shop", "team=a");
        world.list();
        world.drain();
        world
    }

    fn unlisted() -> Self {
        let index = Index::default();
        let mut world = Self { index, told: BTreeMap::new(), choices: BTreeMap::new(), now: Monotonic::START };
        world.index.apply_space(&space(), SpaceRule::try_from(&Allow::everything()).unwrap());
        world
    }

    /// As after a restart: the ledger has what was told before, and nothing is listed.
    fn restarted(told: BTreeMap<SourceId, Assignment>) -> Self {
        let mut world = Self::unlisted();
        world.index.restore(told.values().cloned());
        world.told = told;
        world
    }

    fn list(&mut self) {
        self.list_but(None);
    }

    /// Everything is listed, of this part but what has a key that nobody can read.
    fn list_but(&mut self, unlisted: Option<Part<'_>>) {
        let (space, namespaces, config_maps) = (space(), namespaces(), config_maps());
        for part in [
            Part::Targets,
            Part::Locations,
            Part::Spaces,
            Part::Placements(&space),
            Part::Objects(&space, &namespaces),
            Part::Objects(&space, &config_maps),
        ] {
            if Some(part) == unlisted {
                self.index.unlisted(part);
            } else {
                self.index.listed(part);
            }
        }
    }

    fn target(&mut self, nth: u32, with: &str) {
        self.index.apply_target(
            nth,
            Target {
                id: target_id(nth),
                name: target_name(nth),
                labels: labels(with),
                unschedulable: false,
                decommission: Decommission::No,
            },
        );
    }

    fn unschedulable(&mut self, nth: u32, with: &str) {
        self.index.apply_target(
            nth,
            Target {
                id: target_id(nth),
                name: target_name(nth),
                labels: labels(with),
                unschedulable: true,
                decommission: Decommission::No,
            },
        );
    }

    fn location(&mut self, name: &str, with: &str, instances: &str) {
        self.index.apply_location(name, Ok((labels(with), selector(instances))));
    }

    fn placement(&mut self, name: &str, spec: &Value) {
        self.index.apply_placement(&space(), name, name.parse().unwrap(), Ok(rule(spec)));
    }

    fn namespace(&mut self, name: &str, with: &str) {
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "uid": format!("ns-{name}"), "labels": labels(with)}
        });
        self.index.apply(&space(), &namespaces(), clean::read(clean::SpaceServer::Embedded, &object).unwrap());
    }

    /// The namespace `shop`, with a label that is no string.
    fn odd_namespace(&mut self) {
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "shop", "uid": "ns-shop", "labels": {"team": 1}}
        });
        self.index.apply(&space(), &namespaces(), clean::read(clean::SpaceServer::Embedded, &object).unwrap());
    }

    fn apply(&mut self, object: &Value) {
        self.index.apply(&space(), &config_maps(), clean::read(clean::SpaceServer::Embedded, object).unwrap());
    }

    /// A ConfigMap of the namespace `shop` whose UID is its name.
    fn object(&mut self, name: &str, with: &str) {
        self.apply(&config_map(name, name, with, "1"));
    }

    fn delete(&mut self, name: &str) {
        self.index.delete(&space(), &config_maps(), &key(name));
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    /// Drains, in parts, and takes in what is told. Returns how many changes there were.
    fn drain(&mut self) -> usize {
        let changes = loop {
            if let Some(changes) = self.index.drain_some(self.now, 2) {
                break changes;
            }
        };
        let count = changes.len();
        for change in changes {
            match change {
                Change::Assign(assignment) => {
                    let mut taken = BTreeMap::<Destination, RoaringBitmap>::new();
                    for variant in &assignment.variants {
                        let taken = taken.entry(variant.destination.clone()).or_default();
                        assert!(!variant.targets.is_empty() && variant.targets.is_disjoint(taken));
                        *taken |= &variant.targets;
                    }
                    self.told.insert(assignment.id.clone(), *assignment);
                }
                Change::Remove(id) => {
                    assert!(self.told.remove(&id).is_some(), "{id:?} was told before");
                }
                Change::Choose { placement, chosen } if chosen.is_empty() => {
                    self.choices.remove(&placement);
                }
                Change::Choose { placement, chosen } => {
                    self.choices.insert(placement, chosen);
                }
                other => panic!("{other:?}"),
            }
        }
        count
    }

    /// Drains, and says what is where: `name@targets`, a `~` before what is implied, `namespace/` before what is mapped.
    fn shown(&mut self) -> Vec<String> {
        self.drain();
        let mut lines = Vec::new();
        for assignment in self.told.values() {
            for variant in &assignment.variants {
                let implied = if variant.implied { "~" } else { "" };
                let targets: Vec<_> = variant.targets.iter().map(|nth| nth.to_string()).collect();
                let mapped = variant.destination.as_ref().map_or_else(String::new, |namespace| format!("{namespace}/"));
                lines.push(format!("{implied}{mapped}{}@{}", assignment.key.name, targets.join(",")));
            }
        }
        lines.sort();
        lines
    }

    /// The same, of ConfigMaps alone.
    fn placed(&mut self) -> Vec<String> {
        let mut lines = self.shown();
        lines.retain(|line| !line.starts_with('~'));
        lines
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(tideline_common::GroupKind::new("", "ConfigMap"), "shop", name)
}
