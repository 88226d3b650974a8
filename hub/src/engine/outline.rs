use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use roaring::RoaringBitmap;
use serde_json::Value;
use tideline_common::wire::v1::{ObjectReport, Progress};
use tideline_common::{EntryState, GroupKind, ObjectKey, SourceRef, SpaceName, TargetId, Uid};

use super::Engine;
use crate::ledger::{RemovalView, SourceView};
use crate::placement::SourceId;
use crate::summary::{Expectation, Overview, exact_status, overview};

/// One placed object with the state of its copies.
#[derive(Clone, Debug)]
pub struct SourceOutline {
    pub source: SourceRef,
    pub key: ObjectKey,
    /// Zero of a source that is placed nowhere any more.
    pub generation: i64,
    pub overview: Overview,
}

/// What one target says of one placed object.
#[derive(Clone, Debug)]
pub struct ReportLine {
    pub source: SourceRef,
    pub key: ObjectKey,
    pub target: TargetId,
    pub target_name: String,
    /// It is to be removed there, and the target has not confirmed that.
    pub leaving: bool,
    pub report: Option<Arc<ObjectReport>>,
}

impl Engine {
    /// Every placed object of a space. First those that are only to be removed by now, so that what was made anew in such
    /// a place is the last word about it.
    pub fn outlines(&self, space: &str) -> impl Iterator<Item = SourceOutline> {
        let leaving = self.leaving(space).into_iter().filter(|(removal, _)| !self.is_placed(removal));
        let leaving = leaving.map(|(removal, source)| self.leaving_outline(removal, source));
        leaving.chain(self.placed(space).map(|view| self.outline(view)))
    }

    /// What every target says of every object of a space that it has or should have, or has not removed yet; in the
    /// order of [`Engine::outlines`].
    pub fn report_lines(&self, space: &str) -> impl Iterator<Item = ReportLine> {
        let leaving = self.leaving(space).into_iter();
        let leaving = leaving.flat_map(|(removal, source)| {
            let targets = removal.targets.iter().filter_map(|index| self.ledger.target_at(index));
            targets.map(|target| self.leaving_line(&source, removal.key, target)).collect::<Vec<_>>()
        });
        leaving.chain(self.placed(space).flat_map(|view| {
            let targets = view.assigned();
            let targets = targets.iter().filter_map(|index| self.ledger.target_at(index));
            targets.map(|target| self.line(view.source(), view.key(), target)).collect::<Vec<_>>()
        }))
    }

    /// One of [`Engine::outlines`], at the cost of one.
    pub fn outline_of(&self, space: &SpaceName, key: &ObjectKey) -> Option<SourceOutline> {
        if let Some(view) = self.placed_as(space, key) {
            return Some(self.outline(view));
        }
        let (removal, source) = self.leaving_from(space, key).pop()?;
        Some(self.leaving_outline(removal, source))
    }

    /// One of [`Engine::report_lines`], at the cost of those of its object.
    pub fn report_line_of(&self, space: &SpaceName, key: &ObjectKey, target_name: &str) -> Option<ReportLine> {
        let named = |indexes: &RoaringBitmap| {
            let targets = indexes.iter().filter_map(|index| self.ledger.target_at(index));
            targets.into_iter().find(|target| self.targets.name(*target) == target_name)
        };
        let placed = self.placed_as(space, key);
        if let Some((view, target)) = placed.and_then(|view| Some((view, named(&view.assigned())?))) {
            return Some(self.line(view.source(), key, target));
        }
        let leaving = self.leaving_from(space, key).into_iter().rev();
        let mut lines =
            leaving.filter_map(|(removal, source)| Some(self.leaving_line(&source, key, named(removal.targets)?)));
        lines.next()
    }

    /// The kinds of all of these.
    pub fn outlined_kinds(&self, space: &SpaceName) -> BTreeSet<&GroupKind> {
        self.ledger.kinds_of(space)
    }

    /// The status that a source should have in its space: its one target's, or none. Outer none: it is not known yet.
    pub fn status_of(&self, id: &SourceId) -> Option<Option<Value>> {
        let Some(view) = self.ledger.source(id) else { return Some(None) };
        let mut targets = view.assigned().into_iter();
        match (targets.next(), targets.next()) {
            (None, _) | (Some(_), Some(_)) => Some(None),
            (Some(only), None) => {
                let target = self.ledger.target_at(only)?;
                let report = self.summary.report(target, view.key(), &view.source().uid)?;
                exact_status(report).map(Some)
            }
        }
    }

    fn placed<'a>(&'a self, space: &str) -> impl Iterator<Item = SourceView<'a>> + use<'a> {
        let space: Option<SpaceName> = space.parse().ok();
        let views = space.into_iter().flat_map(|space| self.ledger.sources_of(&space));
        views.filter(|view| !view.assigned().is_empty())
    }

    fn placed_as(&self, space: &SpaceName, key: &ObjectKey) -> Option<SourceView<'_>> {
        let mut claimants = self.ledger.claimants(key);
        claimants.find(|view| view.id().space == *space && !view.assigned().is_empty())
    }

    /// The removals of a space that some target has not confirmed, with their sources.
    fn leaving(&self, space: &str) -> Vec<(RemovalView<'_>, SourceRef)> {
        self.with_sources(self.ledger.open_removals().collect(), space)
    }

    fn leaving_from(&self, space: &SpaceName, key: &ObjectKey) -> Vec<(RemovalView<'_>, SourceRef)> {
        self.with_sources(self.ledger.open_removals_from(key).collect(), space.as_str())
    }

    fn with_sources<'a>(&self, removals: Vec<RemovalView<'a>>, space: &str) -> Vec<(RemovalView<'a>, SourceRef)> {
        let sought: BTreeSet<&Uid> =
            removals.iter().filter(|removal| removal.origin.is_none()).map(|removal| removal.source).collect();
        let found = self.sources_named(&sought);
        let named = removals.into_iter().filter_map(|removal| {
            let source = removal.origin.or_else(|| found.get(removal.source))?.clone();
            Some((removal, source))
        });
        named.filter(|(_, source)| source.space.as_str() == space).collect()
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

    fn is_placed(&self, removal: &RemovalView<'_>) -> bool {
        let mut claimants = self.ledger.claimants(removal.key);
        claimants.any(|view| view.source().uid == *removal.source && !view.assigned().is_empty())
    }

    fn outline(&self, view: SourceView<'_>) -> SourceOutline {
        let expected = view.entries().filter(|(entry, _)| !entry.implied).flat_map(|(entry, targets)| {
            targets.iter().filter_map(move |index| {
                let target = self.ledger.target_at(index)?;
                let holds = view.held().contains(index) && entry.state == EntryState::Apply;
                let input = holds.then_some(entry.input);
                Some(Expectation { target, input, freshness: self.freshness(target) })
            })
        });
        SourceOutline {
            source: view.source().clone(),
            key: view.key().clone(),
            generation: view.generation(),
            overview: self.overview(view.key(), &view.source().uid, expected),
        }
    }

    fn leaving_outline(&self, removal: RemovalView<'_>, source: SourceRef) -> SourceOutline {
        let overview = self.overview(removal.key, removal.source, std::iter::empty());
        SourceOutline { source, key: removal.key.clone(), generation: 0, overview }
    }

    fn overview(&self, key: &ObjectKey, source: &Uid, expected: impl Iterator<Item = Expectation>) -> Overview {
        let leaving = self.ledger.removing(key, source).into_iter().flatten();
        let leaving = leaving.filter_map(|index| self.ledger.target_at(index));
        overview(&self.summary, key, source, expected, leaving)
    }

    fn leaving_line(&self, source: &SourceRef, key: &ObjectKey, target: TargetId) -> ReportLine {
        let line = self.line(source, key, target);
        // What was said while it was assigned does not hold any more.
        let removing =
            |report: &Arc<ObjectReport>| matches!(report.progress, Progress::Deleting | Progress::DeletionHeld);
        ReportLine { leaving: true, report: line.report.filter(removing), ..line }
    }

    fn line(&self, source: &SourceRef, key: &ObjectKey, target: TargetId) -> ReportLine {
        ReportLine {
            source: source.clone(),
            key: key.clone(),
            target,
            target_name: self.targets.name(target),
            leaving: false,
            report: self.summary.report(target, key, &source.uid).cloned(),
        }
    }
}
