//! Watches: a line of JSON for every change.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::Value;
use tideline_store::{Event, Item, KeyRange, Revision, Store, WatchStream};
use tokio::time::{Instant, sleep_until};

use crate::catalog::{Served, Source};
use crate::filled_field::FilledField;
use crate::negotiate::{self, Shape};
use crate::query::ListOptions;
use crate::render::Renderer;
use crate::server::{Call, Place, Reply};
use crate::status::ApiError;
use crate::table::Include;
use crate::{fields, keys, object, read, virtual_watch};

/// How long a watch lives that names no timeout; real servers take between 30 and 60 minutes.
const LIFETIME: Duration = Duration::from_mins(45);
/// Longest timeout that a client may ask for.
const LIFETIME_MAX: Duration = Duration::from_hours(24);
/// Objects read at once for the initial state.
const PAGE: usize = 128;

pub(crate) fn watch(call: &Call, place: &Place, options: ListOptions) -> Result<Reply, ApiError> {
    let shape = negotiate::shape(&call.headers)?;
    fields::check(&place.served, &options)?;
    let renderer = Renderer::new(call, &place.served, shape);
    let (include, filled) = (renderer.include, renderer.filled.cloned());
    let deadline = Instant::now() + options.timeout.unwrap_or(LIFETIME).min(LIFETIME_MAX);
    let view = View { served: Arc::clone(&place.served), shape, include, filled, first: true, options };
    if let Source::Virtual(source) = &place.served.source {
        return virtual_watch::watch(call, place, source, view, deadline);
    }
    let store = Arc::clone(&call.inner.store);
    let range = read::range(call, place, &view.options);
    let asked = view.options.resource_version.unwrap_or(0);
    let wants_state = view.options.send_initial_events.unwrap_or(asked == 0);
    if asked > store.revision().0 {
        let current = store.revision();
        return Err(tideline_store::Error::Future { asked: Revision(asked), current }.into());
    }
    let marks_end = view.options.send_initial_events == Some(true) && view.options.bookmarks;
    let phase = if wants_state {
        let at = store.revision();
        Phase::State { range: range.clone(), at, marks_end }
    } else {
        // Without a version, and without the state, a watch starts from now.
        let after = if asked == 0 { store.revision() } else { Revision(asked) };
        Phase::Live(store.watch(range.clone(), after)?)
    };
    let next_bookmark = Instant::now() + call.inner.config.bookmark_interval;
    let interval = call.inner.config.bookmark_interval;
    let watching = Watching {
        store,
        range,
        phase,
        view,
        deadline,
        interval,
        next_bookmark,
        ready: VecDeque::new(),
        seen: Revision(0),
        told: Revision(0),
    };
    Ok(Reply::stream(Body::from_stream(stream::unfold(watching, |mut watching| async move {
        let line = watching.next().await?;
        Some((Ok::<_, std::convert::Infallible>(line), watching))
    }))))
}

/// How one watch turns objects into lines.
pub(crate) struct View {
    pub(crate) served: Arc<Served>,
    shape: Shape,
    include: Include,
    filled: Option<Arc<dyn FilledField>>,
    first: bool,
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
    fn added(&mut self, mut objects: Vec<Value>) -> impl Iterator<Item = Bytes> {
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
    fn event(&mut self, event: Event) -> Option<Bytes> {
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

    fn present(&self, item: &Item) -> Value {
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

/// A watch over stored objects.
///
/// ```text
/// State ──(read to the end)──▶ Live ──(error, or the deadline)──▶ Over
/// ```
struct Watching {
    store: Arc<dyn Store>,
    range: KeyRange,
    phase: Phase,
    view: View,
    deadline: Instant,
    interval: Duration,
    next_bookmark: Instant,
    /// Lines that are waiting to be sent: at most those of one page.
    ready: VecDeque<Bytes>,
    /// Everything up to here has been looked at.
    seen: Revision,
    /// The last version that the client was told.
    told: Revision,
}

enum Woken {
    Deadline,
    Event(Option<Result<Event, tideline_store::Error>>),
    Bookmark,
}

enum Phase {
    /// Reading what there is, at one revision.
    State {
        range: KeyRange,
        at: Revision,
        marks_end: bool,
    },
    Live(WatchStream),
    Over,
}

impl Watching {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            match std::mem::replace(&mut self.phase, Phase::Over) {
                Phase::Over => return None,
                Phase::State { range, at, marks_end } => match self.state(range, at, marks_end).await {
                    Ok(phase) => self.phase = phase,
                    Err(error) => return Some(error_line(&error)),
                },
                Phase::Live(stream) => {
                    if let Some(line) = self.live(stream).await? {
                        return Some(line);
                    }
                }
            }
        }
    }

    /// Reads one page of the state; the live phase follows from the revision it was read at.
    async fn state(&mut self, mut range: KeyRange, at: Revision, marks_end: bool) -> Result<Phase, ApiError> {
        let page = self.store.range(range.clone(), Some(at), PAGE).await?;
        let mut objects = Vec::new();
        for item in &page.items {
            let object = self.view.present(item);
            if self.view.matches(&object) {
                objects.push(object);
            }
        }
        self.ready.extend(self.view.added(objects));
        if let Some(last) = page.items.last().filter(|_| page.more) {
            range.start = keys::successor(&last.key);
            return Ok(Phase::State { range, at, marks_end });
        }
        if marks_end {
            self.ready.push_back(self.view.bookmark(at, true));
        }
        self.seen = at;
        self.told = at;
        Ok(Phase::Live(self.store.watch(self.range.clone(), at)?))
    }

    /// Waits for one event; `None` ends the watch, `Some(None)` goes on without a line.
    async fn live(&mut self, mut stream: WatchStream) -> Option<Option<Bytes>> {
        let bookmark_due = self.view.options.bookmarks && self.seen > self.told;
        let woken = tokio::select! {
            biased;
            () = sleep_until(self.deadline) => Woken::Deadline,
            event = stream.next() => Woken::Event(event),
            () = sleep_until(self.next_bookmark), if bookmark_due => Woken::Bookmark,
        };
        let line = match woken {
            // A last bookmark lets the client go on from here.
            Woken::Deadline => return bookmark_due.then(|| Some(self.view.bookmark(self.seen, false))),
            Woken::Bookmark => {
                self.told = self.seen;
                self.next_bookmark = Instant::now() + self.interval;
                Some(self.view.bookmark(self.seen, false))
            }
            Woken::Event(None) => return None,
            Woken::Event(Some(Err(error))) => return Some(Some(error_line(&error.into()))),
            Woken::Event(Some(Ok(event))) => {
                self.seen = event.revision();
                let line = self.view.event(event);
                if line.is_some() {
                    self.told = self.seen;
                }
                line
            }
        };
        self.phase = Phase::Live(stream);
        Some(line)
    }
}
