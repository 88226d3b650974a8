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

/// One source: its claims, if it is assigned anywhere, and what of it targets have not confirmed to be gone.
struct Whole<'a> {
    source: SourceRef,
    views: Vec<SourceView<'a>>,
    removals: Vec<RemovalView<'a>>,
}

impl Engine {
    /// Every placed object of a space. First those that are only to be removed by now, so that what was made anew in such
    /// a place is the last word about it.
    pub fn outlines(&self, space: &str) -> impl Iterator<Item = SourceOutline> {
        self.wholes(space).into_iter().map(|whole| self.outline(&whole))
    }

    /// What every target says of every object of a space that it has or should have, or has not removed yet; in the
    /// order of [`Engine::outlines`].
    pub fn report_lines(&self, space: &str) -> impl Iterator<Item = ReportLine> {
        self.wholes(space).into_iter().flat_map(|whole| self.lines(&whole))
    }

    /// One of [`Engine::outlines`], at the cost of one.
    pub fn outline_of(&self, space: &SpaceName, key: &ObjectKey) -> Option<SourceOutline> {
        self.wholes_at(space, key).last().map(|whole| self.outline(whole))
    }

    /// One of [`Engine::report_lines`], at the cost of those of its object. `name` is what tells it apart from these, see
    /// [`ReportLine::name`].
    pub fn report_line_of(&self, space: &SpaceName, key: &ObjectKey, name: &str) -> Option<ReportLine> {
        let mut lines: Vec<_> = self.wholes_at(space, key).iter().flat_map(|whole| self.lines(whole)).collect();
        lines.reverse();
        lines.into_iter().find(|line| line.name() == name)
    }

    /// The kinds of all of these.
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

    /// Every source of a space, those last that are assigned anywhere.
    fn wholes(&self, space: &str) -> Vec<Whole<'_>> {
        let Ok(space) = space.parse::<SpaceName>() else { return Vec::new() };
        let views = self.ledger.sources_of(&space);
        self.joined(&space, self.ledger.removals().collect(), views)
    }

    /// The same of one place.
    fn wholes_at(&self, space: &SpaceName, key: &ObjectKey) -> Vec<Whole<'_>> {
        let views = self.ledger.sources_from(space, key);
        let mut wholes = self.joined(space, self.ledger.removals_from(space, key).collect(), views);
        wholes.retain(|whole| whole.place().as_ref() == Some(key));
        wholes
    }

    fn joined<'a>(
        &self,
        space: &SpaceName,
        removals: Vec<RemovalView<'a>>,
        views: impl Iterator<Item = SourceView<'a>>,
    ) -> Vec<Whole<'a>> {
        let mut leaving: BTreeMap<Uid, Whole<'a>> = BTreeMap::new();
        for (removal, source) in self.with_sources(removals, space) {
            let whole = || Whole { source: source.clone(), views: Vec::new(), removals: Vec::new() };
            leaving.entry(source.uid.clone()).or_insert_with(whole).removals.push(removal);
        }
        let mut placed: Vec<Whole<'a>> = Vec::new();
        for view in views.filter(|view| !view.assigned().is_empty()) {
            let source = view.source();
            if let Some(whole) = placed.last_mut().filter(|whole| whole.source.uid == source.uid) {
                whole.views.push(view);
            } else {
                let removals = leaving.remove(&source.uid).map(|whole| whole.removals).unwrap_or_default();
                placed.push(Whole { source: source.clone(), views: vec![view], removals });
            }
        }
        let mut wholes: Vec<_> = leaving.into_values().collect();
        wholes.append(&mut placed);
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

    fn outline(&self, whole: &Whole<'_>) -> SourceOutline {
        let expected = whole.views.iter().flat_map(|view| self.expected(*view));
        let leaving = whole.removals.iter().flat_map(|removal| {
            let targets = removal.targets.iter().filter_map(|index| self.ledger.target_at(index));
            targets.map(|target| (target, removal.key))
        });
        let destinations: BTreeSet<_> = whole.destinations().cloned().collect();
        SourceOutline {
            key: whole.place().expect("a source that is nowhere is none"),
            destinations: destinations.into_iter().collect(),
            generation: whole.views.first().map_or(0, SourceView::generation),
            overview: overview(&self.summary, &whole.source.uid, expected, leaving),
            source: whole.source.clone(),
        }
    }

    fn expected<'a>(&'a self, view: SourceView<'a>) -> impl Iterator<Item = Expectation<'a>> + use<'a> {
        let (held, key) = (view.held(), view.key());
        view.entries().filter(|(entry, _)| !entry.implied).flat_map(move |(entry, targets)| {
            targets.iter().filter_map(move |index| {
                let target = self.ledger.target_at(index)?;
                let missing = view.too_old_for(&self.ledger, index);
                let due = match entry.state {
                    _ if !held.contains(index) => Due::Another,
                    _ if !missing.is_empty() => Due::TooOld(upgrade(&missing)),
                    EntryState::Apply => Due::Input(entry.input),
                    EntryState::Hold(_) | EntryState::Withheld(_) => Due::NothingNew,
                };
                Some(Expectation { target, key, due, freshness: self.freshness(target) })
            })
        })
    }

    /// First of what is to be removed, so that what is assigned there is the last word about it.
    fn lines(&self, whole: &Whole<'_>) -> Vec<ReportLine> {
        let at = |targets: RoaringBitmap| targets.into_iter().filter_map(|index| self.ledger.target_at(index));
        let leaving = whole.removals.iter().flat_map(|removal| {
            at(removal.targets.clone()).map(|target| {
                let line = self.line(&whole.source, removal.key, target);
                // What was said while it was assigned does not hold any more.
                let removing =
                    |report: &Arc<ObjectReport>| matches!(report.progress, Progress::Deleting | Progress::DeletionHeld);
                ReportLine { leaving: true, report: line.report.filter(removing), made: None, ..line }
            })
        });
        let placed = whole.views.iter().flat_map(|view| {
            let placed = (view.assigned() & view.held()).into_iter();
            placed.filter_map(|index| Some(self.placed_line(*view, index, self.ledger.target_at(index)?)))
        });
        let waiting = whole.views.iter().flat_map(|view| {
            let report = Arc::new(withheld_for_another(view.key(), &view.source().uid));
            at(view.waiting()).map(move |target| ReportLine {
                report: Some(Arc::clone(&report)),
                made: None,
                ..self.line(view.source(), view.key(), target)
            })
        });
        leaving.chain(placed).chain(waiting).collect()
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
