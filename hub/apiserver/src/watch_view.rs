//! What of a watch is the same for stored and for computed objects.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use tideline_store::{Event, Item, Revision};

use crate::catalog::Served;
use crate::filled_field::FilledField;
use crate::negotiate::Shape;
use crate::object;
use crate::query::ListOptions;
use crate::render::Renderer;
use crate::status::ApiError;
use crate::table::Include;

/// How one watch turns objects into lines.
pub(crate) struct View {
    pub(crate) served: Arc<Served>,
    pub(crate) shape: Shape,
    pub(crate) include: Include,
    pub(crate) filled: Option<Arc<dyn FilledField>>,
    pub(crate) first: bool,
    pub(crate) options: ListOptions,
}

impl View {
    fn renderer(&self) -> Renderer<'_> {
        let filled = self.filled.as_ref();
        Renderer { served: &self.served, shape: self.shape, include: self.include, filled }
    }

    /// Whether every object is selected.
    pub(crate) fn selects_everything(&self) -> bool {
        self.options.labels.is_everything() && self.options.fields.is_everything()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.options.labels.matches(object) && self.options.fields.matches(object)
    }

    pub(crate) fn line(&mut self, kind: &str, mut object: Value) -> Bytes {
        self.renderer().fill(std::slice::from_mut(&mut object));
        self.filled_line(kind, object)
    }

    /// The lines of objects that were read together.
    pub(crate) fn added(&mut self, mut objects: Vec<Value>) -> impl Iterator<Item = Bytes> {
        self.renderer().fill(&mut objects);
        objects.into_iter().map(|object| self.filled_line("ADDED", object))
    }

    fn filled_line(&mut self, kind: &str, object: Value) -> Bytes {
        let first = std::mem::take(&mut self.first);
        line(kind, &self.renderer().event(object, first))
    }

    pub(crate) fn bookmark(&self, at: Revision, initial_events_end: bool) -> Bytes {
        line("BOOKMARK", &self.renderer().bookmark(at.0, initial_events_end))
    }

    /// The event that a client with these selectors sees, if any.
    pub(crate) fn event(&mut self, event: Event) -> Option<Bytes> {
        match event {
            Event::Put { item, previous } => {
                let now = self.present(&item);
                let matched = previous.as_ref().is_some_and(|previous| self.matches(&self.present(previous)));
                match (matched, self.matches(&now)) {
                    (false, true) => Some(self.line("ADDED", now)),
                    (true, true) => Some(self.line("MODIFIED", now)),
                    // The object as it was when it matched, with the version that took it out.
                    (true, false) => {
                        let previous = previous.unwrap_or_else(|| item.clone());
                        Some(self.deleted(&previous, item.modified))
                    }
                    (false, false) => None,
                }
            }
            Event::Delete { at, previous, .. } => {
                let matched = self.matches(&self.present(&previous));
                matched.then(|| self.deleted(&previous, at))
            }
            Event::Progress(_) => None,
        }
    }

    pub(crate) fn present(&self, item: &Item) -> Value {
        object::present_any(&self.served, item, item.modified)
    }

    fn deleted(&mut self, previous: &Item, at: Revision) -> Bytes {
        let object = object::present_any(&self.served, previous, at);
        self.line("DELETED", object)
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"))
}

pub(crate) fn error_line(error: &ApiError) -> Bytes {
    line("ERROR", &error.to_value())
}
