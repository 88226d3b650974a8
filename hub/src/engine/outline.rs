use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use roaring::RoaringBitmap;
use serde_json::Value;
use tideline_common::wire::v1::{AssociatedReport, ObjectReport, Progress};
use tideline_common::{EntryState, GroupKind, ObjectKey, SourceRef, SpaceName, TargetId, Uid, upgrade};

use super::Engine;
use crate::ledger::{RemovalView, SourceView, TargetIndex};
use crate::placement::SourceId;
use crate::summary::{Due, Expectation, Overview, exact_status, overview, withheld_for_another, withheld_from_too_old};

/// One placed object with the state of its copies.
#[derive(Clone, Debug)]
pub struct SourceOutline {
    pub source: SourceRef,
    /// The place in the space.
    pub key: ObjectKey,
    /// The places at targets, in order.
    pub destinations: Vec<ObjectKey>,
    /// Zero of a source that is placed nowhere any more.
    pub generation: i64,
    pub overview: Overview,
}

/// What one target says of one placed object.
#[derive(Clone, Debug)]
pub struct ReportLine {
    pub source: SourceRef,
    /// The place in the space.
    pub key: ObjectKey,
    /// The place at the target.
    pub destination: ObjectKey,
    pub target: TargetId,
    pub target_name: String,
    /// It is to be removed there, and the target has not confirmed that.
    pub leaving: bool,
    pub report: Option<Arc<ObjectReport>>,
    /// What was made of it there.
    pub made: Option<Arc<AssociatedReport>>,
}

/// Removals with their sources, by the places of these.
pub(super) type Unnamed<'a> = BTreeMap<ObjectKey, Vec<(RemovalView<'a>, SourceRef)>>;

/// What targets have or should have of one object, or have not removed yet.
pub(super) struct Copies<'a> {
    removals: Vec<(&'a SourceRef, &'a RemovalView<'a>)>,
    /// With the targets that each is assigned to.
    placed: Vec<(SourceView<'a>, RoaringBitmap)>,
    /// All of their targets.
    pub(super) targets: RoaringBitmap,
}

/// One source: its claims, if it is assigned anywhere, and what of it targets have not confirmed to be gone.
pub(super) struct Whole<'a> {
    source: SourceRef,
    views: Vec<SourceView<'a>>,
    removals: Vec<RemovalView<'a>>,
}

impl Engine {
    /// The object at a place of a space, with the state of its copies.
    pub fn outline_of(&self, space: &SpaceName, key: &ObjectKey) -> Option<SourceOutline> {
        self.wholes_at(space, key, &self.unnamed(space, Some(&key.kind))).last().map(|whole| self.outline(whole))
    }

    /// What one target says of the object at a place of a space, see [`ReportLine::name`].
    pub fn report_line_of(&self, space: &SpaceName, key: &ObjectKey, name: &str) -> Option<ReportLine> {
        let wholes = self.wholes_at(space, key, &self.unnamed(space, Some(&key.kind)));
        let copies = Copies::of(&wholes);
        let mut meant = copies.targets.iter().filter(|index| {
            self.ledger.target_at(*index).is_some_and(|target| name.starts_with(&self.target_name(target)))
        });
        meant.find_map(|index| self.lines_at(&copies, index).remove(name))
    }

    /// The kinds of all objects that have an outline.
    pub fn outlined_kinds(&self, space: &SpaceName) -> BTreeSet<&GroupKind> {
        self.ledger.kinds_of(space)
    }

    /// The status that a source should have in its space: its one target's where it is to come back, or none. Outer none: it
    /// is not known yet.
    pub fn status_of(&self, id: &SourceId) -> Option<Option<Value>> {
        let views: Vec<_> = self.ledger.source(id).collect();
        let places = views.iter().flat_map(|view| view.assigned().into_iter().map(move |target| (view, target)));
        let mut places = places.take(2);
        match (places.next(), places.next()) {
            (None, _) | (Some(_), Some(_)) => Some(None),
            // An agent that is too old to know sends it all the same.
            (Some((view, only)), None) if !view.returns_status(only) => Some(None),
            (Some((view, only)), None) => {
                let target = self.ledger.target_at(only)?;
                let report = self.summary.report(target, view.key(), &view.source().uid)?;
                exact_status(report).map(Some)
            }
        }
    }

    /// The removals of which an older hub did not say whose they are, by the place of their source.
    pub(super) fn unnamed(&self, space: &SpaceName, of: Option<&GroupKind>) -> Unnamed<'_> {
        let removals = self.ledger.removals_unnamed().filter(|removal| of.is_none_or(|kind| removal.key.kind == *kind));
        let mut unnamed = Unnamed::new();
        for (removal, source) in self.with_sources(removals.collect(), space) {
            unnamed.entry(source.key(&removal.key.kind)).or_default().push((removal, source));
        }
        unnamed
    }

    /// The sources at a place of a space. First those that are only to be removed by now, so that what was made anew in their
    /// place is the last word about it.
    pub(super) fn wholes_at<'a>(&'a self, space: &SpaceName, key: &ObjectKey, unnamed: &Unnamed<'a>) -> Vec<Whole<'a>> {
        let removals = self.ledger.removals_from(space, key);
        let named = removals.filter_map(|removal| Some((removal.origin?.clone(), removal)));
        let named = named.map(|(source, removal)| (removal, source));
        let removals = named.chain(unnamed.get(key).into_iter().flatten().cloned());
        let mut wholes = joined(removals, self.ledger.sources_from(space, key));
        wholes.retain(|whole| whole.place().as_ref() == Some(key));
        wholes
    }

    fn with_sources<'a>(&self, removals: Vec<RemovalView<'a>>, space: &SpaceName) -> Vec<(RemovalView<'a>, SourceRef)> {
        let sought: BTreeSet<&Uid> =
            removals.iter().filter(|removal| removal.origin.is_none()).map(|removal| removal.source).collect();
        let found = self.sources_named(&sought);
        let named = removals.into_iter().filter_map(|removal| {
            let source = removal.origin.or_else(|| found.get(removal.source))?.clone();
            Some((removal, source))
        });
        named.filter(|(_, source)| source.space == *space).collect()
    }

    /// Of a removal that an earlier run of the hub began only the UID is known; its source may be there still.
    fn sources_named(&self, sought: &BTreeSet<&Uid>) -> BTreeMap<Uid, SourceRef> {
        if sought.is_empty() {
            return BTreeMap::new();
        }
        let found = self.sources.iter().filter(|(id, _)| sought.contains(&id.uid));
        let named = found.map(|(SourceId { space, resource: _, uid }, seen)| {
            let (namespace, name) = (seen.namespace.clone(), seen.name.clone());
            (uid.clone(), SourceRef { space: space.clone(), uid: uid.clone(), namespace, name })
        });
        named.collect()
    }

    pub(super) fn outline(&self, whole: &Whole<'_>) -> SourceOutline {
        let expected = whole.views.iter().flat_map(|view| self.expected(*view));
        let leaving = whole.removals.iter().map(|removal| (removal.key, &removal.targets & self.ledger.registered()));
        let destinations: BTreeSet<_> = whole.destinations().cloned().collect();
        SourceOutline {
            key: whole.place().expect("a source that is nowhere is none"),
            destinations: destinations.into_iter().collect(),
            generation: whole.views.first().map_or(0, SourceView::generation),
            overview: overview(&self.summary, &self.heard, &whole.source.uid, expected, leaving),
            source: whole.source.clone(),
        }
    }

    /// How much an outline looks at: sets of copies, and single ones.
    pub(super) fn looks(&self, whole: &Whole<'_>) -> usize {
        let apart = |key| self.summary.kept_apart(key, &whole.source.uid);
        let placed = whole.views.iter().map(|view| view.entries().count() * (1 + apart(view.key())));
        placed.sum::<usize>() + whole.removals.iter().map(|removal| 1 + apart(removal.key)).sum::<usize>()
    }

    fn expected<'a>(&'a self, view: SourceView<'a>) -> impl Iterator<Item = Expectation<'a>> + use<'a> {
        let (held, key) = (view.held(), view.key());
        view.entries().filter(|entry| !entry.entry().implied).flat_map(move |entry| {
            let targets = entry.targets() & self.ledger.registered();
            let another = &targets - held;
            let mut told = targets - &another;
            let mut parts = vec![(Due::Another, another)];
            for (missing, too_old) in entry.too_old(&self.ledger, &told) {
                told -= &too_old;
                parts.push((Due::TooOld(upgrade(&missing)), too_old));
            }
            let due = match entry.entry().state {
                EntryState::Apply => Due::Input(entry.entry().input),
                EntryState::Hold(_) | EntryState::Withheld(_) => Due::NothingNew,
            };
            parts.push((due, told));
            let parts = parts.into_iter().filter(|(_, targets)| !targets.is_empty());
            parts.map(move |(due, targets)| Expectation { key, due, targets })
        })
    }

    /// What one target says of its copies, by their names. First of what is to be removed, so that what is assigned there is
    /// the last word about it.
    pub(super) fn lines_at(&self, copies: &Copies<'_>, index: TargetIndex) -> BTreeMap<String, ReportLine> {
        let Some(target) = self.ledger.target_at(index) else { return BTreeMap::new() };
        let mut lines = BTreeMap::new();
        for (source, removal) in copies.removals.iter().filter(|(_, removal)| removal.targets.contains(index)) {
            let line = self.line(source, removal.key, target);
            // What was said while it was assigned does not hold any more.
            let removing =
                |report: &Arc<ObjectReport>| matches!(report.progress, Progress::Deleting | Progress::DeletionHeld);
            let line = ReportLine { leaving: true, report: line.report.filter(removing), made: None, ..line };
            lines.insert(line.name(), line);
        }
        for (view, _) in copies.placed.iter().filter(|(_, assigned)| assigned.contains(index)) {
            let line = if view.held().contains(index) {
                self.placed_line(*view, index, target)
            } else {
                let report = Arc::new(withheld_for_another(view.key(), &view.source().uid));
                ReportLine { report: Some(report), made: None, ..self.line(view.source(), view.key(), target) }
            };
            lines.insert(line.name(), line);
        }
        lines
    }

    fn placed_line(&self, view: SourceView<'_>, index: TargetIndex, target: TargetId) -> ReportLine {
        let line = self.line(view.source(), view.key(), target);
        let missing = view.too_old_for(&self.ledger, index);
        if missing.is_empty() {
            return line;
        }
        let known = line.report.as_deref().cloned();
        let report = withheld_from_too_old(known, view.key(), &view.source().uid, upgrade(&missing));
        ReportLine { report: Some(Arc::new(report)), made: None, ..line }
    }

    fn line(&self, source: &SourceRef, key: &ObjectKey, target: TargetId) -> ReportLine {
        ReportLine {
            source: source.clone(),
            key: source.key(&key.kind),
            destination: key.clone(),
            target,
            target_name: self.target_name(target),
            leaving: false,
            report: self.summary.report(target, key, &source.uid).cloned(),
            made: self.summary.made(target, key, &source.uid).cloned(),
        }
    }
}

/// Puts together what belongs to one source.
fn joined<'a>(
    removals: impl Iterator<Item = (RemovalView<'a>, SourceRef)>,
    views: impl Iterator<Item = SourceView<'a>>,
) -> Vec<Whole<'a>> {
    let mut leaving: BTreeMap<Uid, Whole<'a>> = BTreeMap::new();
    for (removal, source) in removals {
        let whole = || Whole { source: source.clone(), views: Vec::new(), removals: Vec::new() };
        leaving.entry(source.uid.clone()).or_insert_with(whole).removals.push(removal);
    }
    let mut placed: Vec<Whole<'a>> = Vec::new();
    for view in views.filter(|view| !view.assigned().is_empty()) {
        let source = view.source();
        if let Some(whole) = placed.iter_mut().find(|whole| whole.source.uid == source.uid) {
            whole.views.push(view);
        } else {
            let removals = leaving.remove(&source.uid).map(|whole| whole.removals).unwrap_or_default();
            placed.push(Whole { source: source.clone(), views: vec![view], removals });
        }
    }
    leaving.into_values().chain(placed).collect()
}

impl<'a> Copies<'a> {
    pub(super) fn of(wholes: &'a [Whole<'a>]) -> Self {
        let mut copies = Self { removals: Vec::new(), placed: Vec::new(), targets: RoaringBitmap::new() };
        for whole in wholes {
            copies.removals.extend(whole.removals.iter().map(|removal| (&whole.source, removal)));
            copies.placed.extend(whole.views.iter().map(|view| (*view, view.assigned())));
        }
        let removed = copies.removals.iter().map(|(_, removal)| &removal.targets);
        let placed = copies.placed.iter().map(|(_, assigned)| assigned);
        copies.targets = removed.chain(placed).fold(RoaringBitmap::new(), |all, targets| all | targets);
        copies
    }
}

impl Whole<'_> {
    fn place(&self) -> Option<ObjectKey> {
        self.destinations().next().map(|key| self.source.key(&key.kind))
    }

    fn destinations(&self) -> impl Iterator<Item = &ObjectKey> {
        self.views.iter().map(SourceView::key).chain(self.removals.iter().map(|removal| removal.key))
    }
}

impl ReportLine {
    /// What tells it apart from the others of its object: the target's name, and what the namespace is called there, if
    /// that is not as in the space.
    pub fn name(&self) -> String {
        match renamed(&self.key, &self.destination) {
            None => self.target_name.clone(),
            Some(namespace) => format!("{}.{namespace}", self.target_name),
        }
    }
}

/// What the namespace of an object is called at a target, or a namespace itself, if that is not as in the space.
pub fn renamed<'a>(place: &ObjectKey, destination: &'a ObjectKey) -> Option<&'a str> {
    let differs = place != destination;
    differs.then_some(if destination.is_namespaced() { &destination.namespace } else { &destination.name })
}
