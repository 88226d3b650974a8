use std::sync::Arc;

use serde_json::Value;
use tideline_common::wire::v1::ObjectReport;
use tideline_common::{EntryState, ObjectKey, SourceRef, TargetId};

use super::Engine;
use crate::ledger::SourceView;
use crate::placement::SourceId;
use crate::summary::{Expectation, Overview, exact_status, overview};

/// One placed object with the state of its copies.
#[derive(Clone, Debug)]
pub struct SourceOutline {
    pub id: SourceId,
    pub source: SourceRef,
    pub key: ObjectKey,
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
    pub report: Option<Arc<ObjectReport>>,
}

impl Engine {
    /// Every placed object of a space.
    pub fn outlines(&self, space: &str) -> impl Iterator<Item = SourceOutline> {
        self.placed(space).map(|view| self.outline(view))
    }

    /// What every target says of every placed object of a space.
    pub fn report_lines(&self, space: &str) -> impl Iterator<Item = ReportLine> {
        self.placed(space).flat_map(|view| self.lines(view))
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
        let space = space.to_owned();
        self.ledger.sources().filter(move |view| view.id().space.as_str() == space && !view.assigned().is_empty())
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
        let deleting = self.ledger.removals().filter(|(stone, _)| stone.source == view.source().uid);
        let deleting = deleting.map(|(_, targets)| targets.len()).sum();
        SourceOutline {
            id: view.id().clone(),
            source: view.source().clone(),
            key: view.key().clone(),
            generation: view.generation(),
            overview: overview(&self.summary, view.key(), &view.source().uid, expected, deleting),
        }
    }

    fn lines(&self, view: SourceView<'_>) -> Vec<ReportLine> {
        let targets = view.assigned();
        let targets = targets.iter().filter_map(|index| self.ledger.target_at(index));
        targets
            .map(|target| ReportLine {
                source: view.source().clone(),
                key: view.key().clone(),
                target,
                target_name: self.targets.name(target),
                report: self.summary.report(target, view.key(), &view.source().uid).cloned(),
            })
            .collect()
    }
}
