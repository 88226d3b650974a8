//! Watches: a line of JSON for every change.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::Value;
use tideline_store::{Event, Item, KeyRange, Revision, Store, WatchStream};
use tokio::time::{Instant, sleep_until};

use crate::catalog::{Served, Source};
use crate::negotiate::{self, Shape};
use crate::query::ListOptions;
use crate::render::Renderer;
use crate::server::{Call, Place, Reply};
use crate::status::ApiError;
use crate::table::Include;
use crate::virtual_resource::{Next, Reader, VirtualResource, complete};
use crate::{fields, keys, object, read};

/// How long a watch lives that names no timeout; real servers take between 30 and 60 minutes.
const LIFETIME: Duration = Duration::from_mins(45);
/// Longest timeout that a client may ask for.
const LIFETIME_MAX: Duration = Duration::from_hours(24);
/// Objects read at once for the initial state.
const PAGE: usize = 128;
/// Shortest pause from one computation of virtual objects to the next: what changes all the time is told ten times a second.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The pause is so many times what the last computation took, so that a watch of many objects takes a twentieth of a core.
const PAUSE_FACTOR: u32 = 20;
/// It may only have waited for others.
const PAUSE_MAX: Duration = Duration::from_secs(5);

pub(crate) fn watch(call: &Call, place: &Place, options: ListOptions) -> Result<Reply, ApiError> {
    let shape = negotiate::shape(&call.headers)?;
    fields::check(&place.served, &options)?;
    let include = Renderer::new(call, &place.served, shape).include;
    let deadline = Instant::now() + options.timeout.unwrap_or(LIFETIME).min(LIFETIME_MAX);
    let view = View { served: Arc::clone(&place.served), shape, include, first: true, options };
    if let Source::Virtual(source) = &place.served.source {
        return watch_virtual(call, place, Arc::clone(source), view, deadline);
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
struct View {
    served: Arc<Served>,
    shape: Shape,
    include: Include,
    first: bool,
    options: ListOptions,
}

impl View {
    fn renderer(&self) -> Renderer<'_> {
        Renderer { served: &self.served, shape: self.shape, include: self.include }
    }

    fn matches(&self, object: &Value) -> bool {
        self.options.labels.matches(object) && self.options.fields.matches(object)
    }

    fn line(&mut self, kind: &str, object: Value) -> Bytes {
        let first = std::mem::take(&mut self.first);
        line(kind, &self.renderer().event(object, first))
    }

    fn bookmark(&self, at: Revision, initial_events_end: bool) -> Bytes {
        line("BOOKMARK", &self.renderer().bookmark(at.0, initial_events_end))
    }

    /// The event that a client with these selectors sees, if any.
    fn event(&mut self, event: Event) -> Result<Option<Bytes>, ApiError> {
        match event {
            Event::Put { item, previous } => {
                let now = self.present(&item)?;
                let matched = match &previous {
                    Some(previous) => self.matches(&self.present(previous)?),
                    None => false,
                };
                Ok(match (matched, self.matches(&now)) {
                    (false, true) => Some(self.line("ADDED", now)),
                    (true, true) => Some(self.line("MODIFIED", now)),
                    // The object as it was when it matched, with the version that took it out.
                    (true, false) => {
                        let previous = previous.unwrap_or_else(|| item.clone());
                        Some(self.deleted(&previous, item.modified)?)
                    }
                    (false, false) => None,
                })
            }
            Event::Delete { at, previous, .. } => {
                let matched = self.matches(&self.present(&previous)?);
                matched.then(|| self.deleted(&previous, at)).transpose()
            }
            Event::Progress(_) => Ok(None),
        }
    }

    fn present(&self, item: &Item) -> Result<Value, ApiError> {
        Ok(object::present(&self.served, object::read(item)?))
    }

    fn deleted(&mut self, previous: &Item, at: Revision) -> Result<Bytes, ApiError> {
        let object = object::present(&self.served, object::read_at(&previous.value, at)?);
        Ok(self.line("DELETED", object))
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"))
}

fn error_line(error: &ApiError) -> Bytes {
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
        for item in &page.items {
            let object = self.view.present(item)?;
            if self.view.matches(&object) {
                let line = self.view.line("ADDED", object);
                self.ready.push_back(line);
            }
        }
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
                match self.view.event(event) {
                    Ok(line) => {
                        if line.is_some() {
                            self.told = self.seen;
                        }
                        line
                    }
                    Err(error) => return Some(Some(error_line(&error))),
                }
            }
        };
        self.phase = Phase::Live(stream);
        Some(line)
    }
}

/// A watch over computed objects: after every change of the counter the list is read again, page by page, and compared.
struct VirtualWatch {
    source: Arc<dyn VirtualResource>,
    space: Arc<str>,
    namespace: Option<String>,
    changes: tokio::sync::watch::Receiver<u64>,
    store: Arc<dyn Store>,
    view: View,
    deadline: Instant,
    known: BTreeMap<(String, String), Value>,
    ready: VecDeque<Bytes>,
    /// When the objects may be computed again; none before the first time.
    pause_ends: Option<Instant>,
}

/// How long after a computation the next may begin.
fn pause_after(took: Duration) -> Duration {
    took.saturating_mul(PAUSE_FACTOR).clamp(PAUSE_MIN, PAUSE_MAX)
}

fn watch_virtual(
    call: &Call,
    place: &Place,
    source: Arc<dyn VirtualResource>,
    view: View,
    deadline: Instant,
) -> Result<Reply, ApiError> {
    let changes = source
        .changes(&call.space.name)
        .ok_or_else(|| ApiError::method_not_allowed(format!("{} cannot be watched", place.served.resource.plural)))?;
    let view = View { options: fields::located(source.as_ref(), view.options), ..view };
    let watch = VirtualWatch {
        source,
        space: Arc::clone(&call.space.name),
        namespace: place.namespace.clone(),
        changes,
        store: Arc::clone(&call.inner.store),
        view,
        deadline,
        known: BTreeMap::new(),
        ready: VecDeque::new(),
        pause_ends: None,
    };
    Ok(Reply::stream(Body::from_stream(stream::unfold(watch, |mut watch| async move {
        let line = watch.next().await?;
        Some((Ok::<_, std::convert::Infallible>(line), watch))
    }))))
}

impl VirtualWatch {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            if let Some(pause_ends) = self.pause_ends {
                tokio::select! {
                    biased;
                    () = sleep_until(self.deadline) => return None,
                    changed = self.changes.changed() => changed.ok()?,
                }
                sleep_until(pause_ends.min(self.deadline)).await;
                self.changes.mark_unchanged();
                self.refresh(false).await;
            } else {
                let asked = self.view.options.resource_version.unwrap_or(0);
                let state = self.view.options.send_initial_events.unwrap_or(asked == 0);
                self.changes.mark_unchanged();
                self.refresh(!state).await;
                if self.view.options.send_initial_events == Some(true) && self.view.options.bookmarks {
                    self.ready.push_back(self.view.bookmark(self.store.revision(), true));
                }
            }
        }
    }

    /// Reads the objects page by page. What changes behind a page moves the counter, which was taken before the first one: the
    /// next refresh tells it.
    async fn refresh(&mut self, silent: bool) {
        let begun = Instant::now();
        let version = self.store.revision().0;
        let mut fresh = BTreeMap::new();
        let mut reader = Reader::new(&self.source, &self.space, self.namespace.as_deref(), &self.view.options);
        while *reader.next() != Next::End {
            let objects = reader.read(usize::MAX).expect("all keys are the resource's own");
            for (_, object) in objects {
                self.compare(object, version, silent, &mut fresh);
            }
            tokio::task::yield_now().await;
        }
        for (id, object) in std::mem::replace(&mut self.known, fresh) {
            if !self.known.contains_key(&id) {
                let whole = complete(&self.view.served, object, version);
                self.ready.push_back(self.view.line("DELETED", whole));
            }
        }
        self.pause_ends = Some(Instant::now() + pause_after(begun.elapsed()));
    }

    /// Tells how one object differs from what the client knows. Of two with one name, the first counts.
    fn compare(&mut self, object: Value, version: u64, silent: bool, fresh: &mut BTreeMap<(String, String), Value>) {
        let id = (object::namespace(&object).unwrap_or_default().to_owned(), object::name(&object).to_owned());
        let whole = complete(&self.view.served, object.clone(), version);
        if fresh.contains_key(&id) || !self.view.matches(&whole) {
            return;
        }
        match self.known.get(&id) {
            Some(known) if *known == object => {}
            Some(_) if !silent => self.ready.push_back(self.view.line("MODIFIED", whole)),
            None if !silent => self.ready.push_back(self.view.line("ADDED", whole)),
            Some(_) | None => {}
        }
        fresh.insert(id, object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_to_compute_is_computed_more_rarely() {
        let pause = |milliseconds| pause_after(Duration::from_millis(milliseconds)).as_millis();
        assert_eq!([0, 1, 5, 6, 300].map(pause), [100, 100, 100, 120, 5_000]);
    }
}
