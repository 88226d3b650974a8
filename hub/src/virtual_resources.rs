//! `rollups` and `reports`: what the hub knows of placed objects, read as Kubernetes objects of their space.
//!
//! Namespaced sources have theirs in their namespace; those of cluster-scoped sources are `clusterrollups` and
//! `clusterreports`. Names are `<kind>.<group>.<name>`, and `….<target>` for reports, all in lower case but the names. Where
//! a namespace is called otherwise at a target, that is `….<target>.<namespace>`: the object may be there in several.

mod of_root;

use std::sync::Arc;

use kube::ResourceExt;
use kube::api::DynamicObject;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tideline_apiserver::{
    Changed, ChangedGroup, Column, Listed, Page, PageRequest, ResourceKind, UnknownKey, VirtualResource,
};
use tideline_common::wire::v1::Progress;
use tideline_common::{GroupKind, ObjectKey, SpaceName};
use tokio::sync::watch;

use crate::engine::{
    self, ChangedPlace, ChangedPlaces, Engine, PageBound, PagePosition, ReportLine, SourceOutline, Within, renamed,
};
use crate::ledger::PlaceChange;
use crate::limits::VIRTUAL_PAGE_LOOKS_MAX;
use crate::shared::Shared;
use crate::summary::{Worst, waiting};

/// The group of everything that is computed.
pub(crate) use of_root::{RootKind, resource};

pub const GROUP: &str = "summary.tideline.dev";
pub(crate) const VERSION: &str = "v1alpha1";

/// Where a report has the name of its target.
const TARGET: &str = "target.name";

/// A kind of this group.
pub(crate) fn kind(kind: &str, plural: &str, namespaced: bool) -> ResourceKind {
    let [group, version, kind, plural] = [GROUP, VERSION, kind, plural].map(str::to_owned);
    ResourceKind { group, version, kind, plural, namespaced }
}

/// What a hub shows and this command cannot read. One that is left out would be none.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the {kind} {name}; use the tideline-hub of the hub's version")]
pub struct Unreadable {
    kind: &'static str,
    name: String,
    source: serde_json::Error,
}

/// Reads an object of this kind, as a client.
pub(crate) fn decode<T: DeserializeOwned>(kind: &'static str, object: DynamicObject) -> Result<T, Unreadable> {
    let name = object.name_any();
    serde_json::from_value(object.data).map_err(|source| Unreadable { kind, name, source })
}

/// What `kubectl get` shows in a column: its name, path, type and priority.
pub(crate) type ColumnText = (&'static str, &'static str, &'static str, i32);

pub(crate) fn columns(columns: &[ColumnText]) -> Vec<Column> {
    let column = |&(name, path, kind, priority): &ColumnText| Column {
        name: name.to_owned(),
        path: path.to_owned(),
        kind: kind.to_owned(),
        priority,
    };
    columns.iter().map(column).collect()
}

/// What one virtual resource shows.
#[derive(Clone, Copy, Debug)]
enum View {
    Rollups,
    Reports,
}

/// Whether its objects are in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Namespaced,
    Cluster,
}

#[derive(Debug)]
struct Resource {
    shared: Shared,
    view: View,
    scope: Scope,
}

/// All of them, for a workload space.
pub(crate) fn all(shared: &Shared) -> Vec<std::sync::Arc<dyn VirtualResource>> {
    let mut all: Vec<std::sync::Arc<dyn VirtualResource>> = Vec::new();
    for view in [View::Rollups, View::Reports] {
        for scope in [Scope::Namespaced, Scope::Cluster] {
            all.push(std::sync::Arc::new(Resource { shared: shared.clone(), view, scope }));
        }
    }
    all
}

impl VirtualResource for Resource {
    fn resource(&self) -> ResourceKind {
        let (kind, plural) = match (self.view, self.scope) {
            (View::Rollups, Scope::Namespaced) => ("Rollup", "rollups"),
            (View::Rollups, Scope::Cluster) => ("ClusterRollup", "clusterrollups"),
            (View::Reports, Scope::Namespaced) => ("Report", "reports"),
            (View::Reports, Scope::Cluster) => ("ClusterReport", "clusterreports"),
        };
        self::kind(kind, plural, self.scope == Scope::Namespaced)
    }

    fn columns(&self) -> Vec<Column> {
        let columns: &[ColumnText] = match self.view {
            View::Rollups => &[
                ("Expected", ".counts.expected", "integer", 0),
                ("Applied", ".counts.applied", "integer", 0),
                ("Ready", ".counts.ready", "integer", 0),
                ("Progressing", ".counts.progressing", "integer", 0),
                ("Failed", ".counts.failed", "integer", 0),
                ("Withheld", ".counts.withheld", "integer", 0),
                ("Stale", ".counts.stale", "integer", 0),
                ("Unknown", ".counts.unknown", "integer", 0),
                ("Pods", ".associated.pods.total", "integer", 1),
                ("Pods Ready", ".associated.pods.ready", "integer", 1),
            ],
            View::Reports => &[
                ("Target", ".target.name", "string", 0),
                ("Progress", ".progress", "string", 0),
                ("Health", ".health", "string", 0),
                ("Reason", ".reason", "string", 0),
                ("Message", ".message", "string", 0),
                ("Waiting", ".waiting", "string", 1),
            ],
        };
        self::columns(columns)
    }

    fn selectable(&self) -> &'static [(&'static str, &'static str)] {
        match self.view {
            View::Rollups => &[],
            View::Reports => {
                &[("target", TARGET), ("health", "health"), ("progress", "progress"), ("reason", "reason")]
            }
        }
    }

    fn list(&self, space: &str, request: &PageRequest<'_>) -> Result<Page, UnknownKey> {
        let after: Option<PagePosition> =
            request.after.map(serde_json::from_str).transpose().map_err(|_| UnknownKey)?;
        let Ok(space) = space.parse() else { return Ok(Page::default()) };
        let place: Option<ObjectKey> = request.group.map(serde_json::from_str).transpose().map_err(|_| UnknownKey)?;
        let within = match (&place, self.scope, request.namespace) {
            (Some(place), ..) => Within::Place(place),
            (None, Scope::Cluster, _) => Within::Cluster,
            (None, Scope::Namespaced, None) => Within::Namespaces,
            (None, Scope::Namespaced, Some(namespace)) => Within::Namespace(namespace),
        };
        let bound = PageBound { rows: request.rows, looks: VIRTUAL_PAGE_LOOKS_MAX };
        // What is read is written as JSON when others may have the engine again.
        Ok(match self.view {
            View::Rollups => {
                let (rows, next) = self.shared.read(|engine| {
                    let engine::Page { rows, next } = engine.outline_page(&space, within, after.as_ref(), bound);
                    let named = rows.into_iter().map(|(at, outline)| (at, Named::of(engine, outline)));
                    (named.collect::<Vec<_>>(), next)
                });
                page(&rows, next.as_ref(), rollup)
            }
            View::Reports => {
                let target = request.wanted.iter().find(|(path, _)| *path == TARGET).map(|(_, name)| name.as_str());
                let lines = self.shared.read(|engine| engine.line_page(&space, within, target, after.as_ref(), bound));
                page(&lines.rows, lines.next.as_ref(), report)
            }
        })
    }

    fn get(&self, space: &str, namespace: Option<&str>, name: &str) -> Option<Value> {
        let space = space.parse().ok()?;
        let found = self.shared.read(|engine| self.object(engine, &space, namespace.unwrap_or(""), name))?;
        Some(match found {
            Found::Rollup(named) => rollup(&named),
            Found::Report(line) => report(&line),
        })
    }

    fn changes(&self, _space: &str) -> Option<watch::Receiver<u64>> {
        Some(self.shared.version())
    }

    fn changed(&self, space: &str, namespace: Option<&str>, since: u64) -> Option<Changed> {
        let Ok(space) = space.parse() else { return Some(Changed::Groups(Vec::new())) };
        let mut places = match self.shared.read(|engine| engine.view_changes.since(&space, since)) {
            ChangedPlaces::Any { until, change } => {
                return Some(Changed::Any { until, gone: change == PlaceChange::Diminished });
            }
            ChangedPlaces::These(places) => places,
        };
        places.retain(|ChangedPlace { place, .. }| match self.scope {
            Scope::Cluster => !place.is_namespaced(),
            Scope::Namespaced => {
                place.is_namespaced() && namespace.is_none_or(|namespace| *place.namespace == *namespace)
            }
        });
        let groups = places.into_iter().map(|ChangedPlace { at, place, change }| {
            let gone = match (change, self.view) {
                (PlaceChange::Reads, _) => Some(Vec::new()),
                (PlaceChange::Diminished, View::Rollups) => {
                    let namespace = place.is_namespaced().then(|| place.namespace.to_string());
                    Some(vec![(namespace, object_name(&place))])
                }
                // Which copies were there is not kept.
                (PlaceChange::Diminished, View::Reports) => None,
            };
            ChangedGroup { at, group: text(&place), gone }
        });
        Some(Changed::Groups(groups.collect()))
    }
}

/// An object as the engine has it.
enum Found {
    Rollup(Box<Named>),
    Report(Box<ReportLine>),
}

/// An outline with what the targets are called that it names.
struct Named {
    outline: SourceOutline,
    /// In the order of the worst.
    targets: Vec<String>,
}

impl Named {
    fn of(engine: &Engine, outline: SourceOutline) -> Self {
        let targets = outline.overview.worst.iter().map(|worst| engine.target_name_at(worst.target)).collect();
        Self { outline, targets }
    }
}

fn page<T>(rows: &[(PagePosition, T)], next: Option<&PagePosition>, object: impl Fn(&T) -> Value) -> Page {
    let listed =
        |(at, row): &(PagePosition, T)| Listed { key: text(at), group: text(at.place()).into(), object: object(row) };
    Page { objects: rows.iter().map(listed).collect(), next: next.map(text) }
}

/// A name for clients, who give it back.
fn text(of: &impl Serialize) -> String {
    serde_json::to_string(of).expect("it holds texts and numbers")
}

impl Resource {
    /// One object, at the cost of one.
    fn object(&self, engine: &Engine, space: &SpaceName, namespace: &str, name: &str) -> Option<Found> {
        let kinds = engine.outlined_kinds(space);
        let mut meanings = kinds.iter().flat_map(|kind| meanings(kind, namespace, name));
        meanings.find_map(|(key, target)| match (self.view, target) {
            (View::Rollups, None) => Some(Found::Rollup(Box::new(Named::of(engine, engine.outline_of(space, &key)?)))),
            (View::Reports, Some(target)) => Some(Found::Report(Box::new(engine.report_line_of(space, &key, target)?))),
            (View::Rollups, Some(_)) | (View::Reports, None) => None,
        })
    }
}

/// What a name may mean in a kind: the key of an object, and what follows its name. Both may have dots, so that only what
/// is placed tells them apart.
fn meanings<'a>(
    kind: &GroupKind,
    namespace: &str,
    name: &'a str,
) -> impl Iterator<Item = (ObjectKey, Option<&'a str>)> + use<'a> {
    let rest = name.strip_prefix(&kind.to_string().to_lowercase()).and_then(|rest| rest.strip_prefix('.'));
    let split = |rest: &'a str| rest.match_indices('.').map(move |(dot, _)| (&rest[..dot], Some(&rest[dot + 1..])));
    let split = rest.into_iter().flat_map(split);
    let (kind, namespace): (GroupKind, Arc<str>) = (kind.clone(), namespace.into());
    rest.into_iter()
        .map(|whole| (whole, None))
        .chain(split)
        .map(move |(name, target)| (ObjectKey::new(kind.clone(), namespace.clone(), name), target))
}

fn rollup(Named { outline, targets }: &Named) -> Value {
    let SourceOutline { source, key, destinations, generation, overview } = outline;
    let name = object_name(key);
    let worst: Vec<_> = overview
        .worst
        .iter()
        .zip(targets)
        .map(|(worst, target)| {
            let Worst { key: at, reason, message, .. } = worst;
            let mut worst = json!({"target": target, "reason": reason, "message": message});
            if let Some(namespace) = renamed(key, at) {
                worst["namespace"] = json!(namespace);
            }
            worst
        })
        .collect();
    let mut object = json!({
        "metadata": metadata(key, &name),
        "source": {
            "space": source.space, "apiGroup": key.kind.group, "kind": key.kind.kind,
            "namespace": source.namespace, "name": source.name, "uid": source.uid, "generation": generation,
        },
        "counts": overview.counts,
        "worst": worst,
    });
    if destinations.iter().any(|at| at != key) {
        object["namespaces"] = destinations.iter().map(|at| json!(renamed(key, at).unwrap_or(own(key)))).collect();
    }
    if !overview.made.is_empty() {
        let mut made = overview.made.clone();
        made.0.values_mut().for_each(|sum| sum.tally.bound_reasons());
        object["associated"] = json!(made);
    }
    object
}

fn report(line: &ReportLine) -> Value {
    let ReportLine { source, key, destination, target, target_name, leaving, report, made } = line;
    let name = format!("{}.{}", object_name(key), line.name());
    let mut object = json!({
        "metadata": metadata(key, &name),
        "source": {
            "space": source.space, "apiGroup": key.kind.group, "kind": key.kind.kind,
            "namespace": source.namespace, "name": source.name, "uid": source.uid,
        },
        "target": {"name": target_name, "uid": target},
        "progress": "Unknown",
        "health": "Unknown",
    });
    if let Some(namespace) = renamed(key, destination) {
        object["target"]["namespace"] = json!(namespace);
    }
    if *leaving {
        object["progress"] = json!(Progress::Deleting);
    }
    if let Some(report) = report {
        object["progress"] = json!(report.progress);
        object["health"] = json!(report.health);
        if let Some(reason) = report.reason {
            object["reason"] = json!(reason);
        }
        if !report.message.is_empty() {
            object["message"] = json!(report.message);
        }
        if let Some(generation) = report.observed_generation {
            object["observedGeneration"] = json!(generation);
        }
        if let Some(status) = &report.status {
            object["status"] = serde_json::from_str(status.get()).unwrap_or_default();
        }
    }
    if let Some(made) = made {
        object["associated"] = json!(made.made);
        let waiting = waiting(made);
        if !waiting.is_empty() {
            object["waiting"] = json!(waiting);
        }
    }
    object
}

/// The namespace that an object is in, or is.
fn own(key: &ObjectKey) -> &str {
    if key.is_namespaced() { &key.namespace } else { &key.name }
}

fn object_name(key: &ObjectKey) -> String {
    format!("{}.{}", key.kind.to_string().to_lowercase(), key.name)
}

fn metadata(key: &ObjectKey, name: &str) -> Value {
    let mut metadata = json!({"name": name});
    if key.is_namespaced() {
        metadata["namespace"] = json!(key.namespace);
    }
    metadata
}
