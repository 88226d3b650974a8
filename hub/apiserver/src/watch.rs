//! Watches: a line of JSON for every change.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::{StreamExt, stream};
use tideline_store::{Event, KeyRange, Revision, Store, WatchStream};
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until};

use crate::call::{Call, Place, Reply};
use crate::catalog::{Catalog, Source};
use crate::negotiate;
use crate::query::ListOptions;
use crate::render::Renderer;
use crate::status::ApiError;
use crate::watch_view::{View, error_line};
use crate::{fields, keys, long_work, read, virtual_watch};

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
    // Only the schemas of custom resources change.
    let catalogs = place.served.is_custom().then(|| call.space.catalogs());
    let watching = Watching {
        store,
        catalogs,
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

/// A watch over stored objects.
///
/// ```text
/// State ──(read to the end)──▶ Live ──(error, another schema, or the deadline)──▶ Over
/// ```
struct Watching {
    store: Arc<dyn Store>,
    /// Those of the space, for a resource whose schema may change.
    catalogs: Option<Receiver<Arc<Catalog>>>,
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
    /// Something is served otherwise than before.
    Catalog,
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
                // Without a bookmark the client begins with what is there again.
                Phase::State { .. } if self.is_outdated() => return None,
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
        let bytes = page.items.iter().map(|item| item.value.len()).sum();
        let view = &mut self.view;
        let lines: Vec<Bytes> = long_work::for_bytes(bytes, || {
            let objects = page.items.iter().map(|item| view.present(item));
            let objects = objects.filter(|object| view.matches(object)).collect();
            view.added(objects).collect()
        });
        self.ready.extend(lines);
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
        let bookmark_due = self.is_bookmark_due();
        let woken = tokio::select! {
            biased;
            () = sleep_until(self.deadline) => Woken::Deadline,
            () = another(&mut self.catalogs) => Woken::Catalog,
            event = stream.next() => Woken::Event(event),
            () = sleep_until(self.next_bookmark), if bookmark_due => Woken::Bookmark,
        };
        let line = match woken {
            Woken::Deadline => return self.last_line().map(Some),
            // What was written by another schema is not shown by this one, which would take the new fields out of it.
            Woken::Catalog | Woken::Event(Some(Ok(_))) if self.is_outdated() => return self.last_line().map(Some),
            Woken::Catalog => None,
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

    /// A bookmark lets the client go on from where the watch ends.
    fn last_line(&self) -> Option<Bytes> {
        self.is_bookmark_due().then(|| self.view.bookmark(self.seen, false))
    }

    fn is_bookmark_due(&self) -> bool {
        self.view.options.bookmarks && self.seen > self.told
    }

    /// Whether the resource is no longer served as this watch shows it.
    fn is_outdated(&mut self) -> bool {
        let Some(catalogs) = &mut self.catalogs else { return false };
        match catalogs.has_changed() {
            Ok(false) => false,
            Ok(true) => !catalogs.borrow_and_update().still_serves(&self.view.served),
            // The space is gone, or was opened anew.
            Err(_closed) => true,
        }
    }
}

/// Waits for a catalog that was not looked at yet, and leaves that to be done.
async fn another(catalogs: &mut Option<Receiver<Arc<Catalog>>>) {
    match catalogs {
        Some(catalogs) => {
            if catalogs.changed().await.is_ok() {
                catalogs.mark_changed();
            }
        }
        None => pending().await,
    }
}
