//! Watches over computed objects.
//!
//! What a client knows is kept, and compared with what is computed anew: of the groups that the resource says have changed, or of
//! all if it cannot say.
//!
//! A client that is cut off goes on from the version of the last event that it read, so this must come before whatever it was not
//! told. Of groups that have changed, each has the version of its last change, but for the events before its last one. What went
//! from a group may have done so long before its last change; so that is told first of all, with a version from before anything
//! that is told. Of a scan of everything all events but the last have the version before which nothing is known to be told: who is
//! cut off among them reads everything anew.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use serde_json::{Value, json};
use tideline_store::Revision;
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until};

use crate::call::{Call, Place, Reply};
use crate::state::Inner;
use crate::status::ApiError;
use crate::virtual_list::{not_in_the_future, too_old};
use crate::virtual_read::{Next, Reader, complete};
use crate::virtual_resource::{Changed, ChangedGroup, Listed, VirtualResource};
use crate::watch_view::{View, error_line};
use crate::{fields, object};

/// Shortest pause from one computation to the next: what changes all the time is told once a second.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The pause is so many times what the last computation took, so that a watch of many objects takes a twentieth of a core.
const PAUSE_FACTOR: u32 = 20;
/// It may only have waited for others.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Group, namespace and name. Names alone may be ambiguous.
type Id = (Arc<str>, String, String);

/// ```text
/// Scan ──(read to the end)──▶ Groups ──(all told)──▶ Idle ──(something changed)──▶ Groups, or Scan ──▶ …
/// ```
struct VirtualWatch {
    source: Arc<dyn VirtualResource>,
    space: Arc<str>,
    reader: Reader,
    changes: Receiver<u64>,
    inner: Arc<Inner>,
    view: View,
    deadline: Instant,
    next_bookmark: Instant,
    /// What the client knows.
    known: BTreeMap<Id, Value>,
    /// Lines that are waiting to be sent: those of one part at most.
    ready: VecDeque<Bytes>,
    phase: Phase,
    /// Where the counter was when everything up to then was told.
    at: u64,
    /// The last version that the client was told.
    told: u64,
}

enum Phase {
    /// All objects are read, part by part.
    Scan(Scan),
    /// These groups have changed.
    Groups(Groups),
    /// Nothing is computed before this moment.
    Idle(Instant),
    Over,
}

struct Scan {
    tells: Tells,
    fresh: BTreeMap<Id, Value>,
    events: Events,
    /// Where the counter was at the beginning.
    at: u64,
    then: Then,
    begun: Instant,
}

/// What a scan leads to.
enum Then {
    Nothing,
    /// A bookmark says that the state was told.
    Bookmark,
    /// The client has read the state when the counter was there: what changed since is told.
    Resume(u64),
}

struct Groups {
    tells: Tells,
    /// What went from them, first, and then the order of their last changes.
    left: VecDeque<ChangedGroup>,
    /// Where the counter was when everything up to then was told.
    since: u64,
    /// Where the counter was at the beginning.
    at: u64,
    begun: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tells {
    /// The client has it already.
    Nothing,
    /// What differs from what the client knows.
    Differences,
    /// Whatever is there, and what may be gone: what the client knows is not known.
    All,
}

/// Events that belong together: the last one has the version of what they were computed from.
struct Events {
    /// The version of all others.
    before: u64,
    last: Option<(&'static str, Value)>,
}

pub(crate) fn watch(
    call: &Call,
    place: &Place,
    source: &Arc<dyn VirtualResource>,
    mut view: View,
    deadline: Instant,
) -> Result<Reply, ApiError> {
    let (space, run) = (&call.space.name, &call.inner.run);
    let mut changes = source
        .changes(space)
        .ok_or_else(|| ApiError::method_not_allowed(format!("{} cannot be watched", place.served.resource.plural)))?;
    view.options = fields::located(source.as_ref(), view.options);
    let reader = Reader::new(source, space, place.namespace.as_deref(), &view.options);
    let at = *changes.borrow_and_update();
    let asked = view.options.resource_version.unwrap_or(0);
    not_in_the_future(asked, run.version(at))?;
    let (tells, then) = match view.options.send_initial_events {
        Some(true) if view.options.bookmarks => (Tells::All, Then::Bookmark),
        Some(true) => (Tells::All, Then::Nothing),
        None if asked == 0 => (Tells::All, Then::Nothing),
        Some(false) if asked == 0 => (Tells::Nothing, Then::Nothing),
        Some(false) | None => {
            let since = run.number(asked).ok_or_else(|| too_old(asked, run.version(at)))?;
            match changed(source.as_ref(), space, &reader, since) {
                Some(changed) if !is_told(&changed, &view) => return Err(too_old(asked, run.version(at))),
                Some(_) => (Tells::Nothing, Then::Resume(since)),
                None if since == at => (Tells::Nothing, Then::Resume(since)),
                None => (Tells::All, Then::Nothing),
            }
        }
    };
    // Who is told the state, and is cut off, begins anew: nothing has the version before the first.
    let resumes = asked != 0 && view.options.send_initial_events != Some(true);
    let before = if resumes { run.version(at) } else { run.version(0) } - 1;
    let interval = call.inner.config.bookmark_interval;
    let watch = VirtualWatch {
        source: Arc::clone(source),
        space: Arc::clone(space),
        changes,
        inner: Arc::clone(&call.inner),
        view,
        deadline,
        next_bookmark: Instant::now() + interval,
        known: BTreeMap::new(),
        ready: VecDeque::new(),
        phase: Phase::Scan(Scan {
            tells,
            fresh: BTreeMap::new(),
            events: Events::new(before),
            at,
            then,
            begun: Instant::now(),
        }),
        reader,
        at,
        told: run.version(at),
    };
    Ok(Reply::stream(Body::from_stream(stream::unfold(watch, |mut watch| async move {
        let line = watch.next().await?;
        Some((Ok::<_, std::convert::Infallible>(line), watch))
    }))))
}

/// None where the resource does not say, or one object is all that is asked for, which costs no more than to ask.
fn changed(source: &dyn VirtualResource, space: &str, reader: &Reader, since: u64) -> Option<Changed> {
    if reader.one().is_some() {
        return None;
    }
    source.changed(space, reader.namespace(), since)
}

/// Whether all that changed can be told to a client of which is not known what it knows. Where anything may have changed, it is
/// told whatever there is; which of it is not selected any more, nobody knows.
fn is_told(changed: &Changed, view: &View) -> bool {
    match changed {
        Changed::Any { gone, .. } => !gone && view.selects_everything(),
        Changed::Groups(groups) => groups.iter().all(|group| group.gone.is_some()),
    }
}

/// How long after a computation the next may begin.
fn pause_after(took: Duration) -> Duration {
    took.saturating_mul(PAUSE_FACTOR).clamp(PAUSE_MIN, PAUSE_MAX)
}

impl Events {
    fn new(before: u64) -> Self {
        Self { before, last: None }
    }
}

impl VirtualWatch {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            self.phase = match std::mem::replace(&mut self.phase, Phase::Over) {
                Phase::Over => return None,
                Phase::Scan(scan) => self.scan(scan),
                Phase::Groups(groups) => self.groups(groups).await,
                Phase::Idle(pause_ends) => self.wait(pause_ends).await?,
            };
            tokio::task::yield_now().await;
        }
    }

    /// Waits for a change, and for the end of the pause.
    async fn wait(&mut self, pause_ends: Instant) -> Option<Phase> {
        let bookmark_due = self.view.options.bookmarks && self.version() > self.told;
        tokio::select! {
            biased;
            () = sleep_until(self.deadline) => {
                if bookmark_due {
                    self.bookmark(false);
                }
                return Some(Phase::Over);
            }
            // Also while something changes all the time.
            () = sleep_until(self.next_bookmark), if bookmark_due => {
                self.bookmark(false);
                return Some(Phase::Idle(pause_ends));
            }
            changed = self.changes.changed() => changed.ok()?,
        }
        sleep_until(pause_ends.min(self.deadline)).await;
        let at = *self.changes.borrow_and_update();
        Some(match changed(self.source.as_ref(), &self.space, &self.reader, self.at) {
            Some(Changed::Groups(groups)) => Phase::Groups(Groups::new(Tells::Differences, groups, self.at, at)),
            Some(Changed::Any { until, .. }) => self.rescan(Tells::Differences, until, at.max(until)),
            None => self.rescan(Tells::Differences, at, at),
        })
    }

    /// Anything may have changed until the counter was at `until`.
    fn rescan(&mut self, tells: Tells, until: u64, at: u64) -> Phase {
        self.reader.rewind();
        Phase::Scan(Scan {
            tells,
            fresh: BTreeMap::new(),
            events: Events::new(self.inner.run.version(until) - 1),
            at,
            then: Then::Nothing,
            begun: Instant::now(),
        })
    }

    /// Reads one part of all. What changes behind it moves the counter, which was taken before the first part: the next
    /// computation tells it.
    fn scan(&mut self, mut scan: Scan) -> Phase {
        for listed in self.reader.read(usize::MAX).expect("all keys are the resource's own") {
            let id = id(&listed);
            // Of two with one name, the first counts.
            if scan.fresh.contains_key(&id) {
                continue;
            }
            if let Some(object) = self.compare(&id, listed.object, scan.tells, &mut scan.events) {
                scan.fresh.insert(id, object);
            }
        }
        if *self.reader.next() != Next::End {
            return Phase::Scan(scan);
        }
        let Scan { tells, fresh, mut events, at, then, begun } = scan;
        let is_first = self.known.is_empty();
        for (id, object) in std::mem::replace(&mut self.known, fresh) {
            if !self.known.contains_key(&id) {
                self.tell(&mut events, "DELETED", object);
            }
        }
        if tells == Tells::All
            && let (Some((namespace, name)), true) = (self.reader.one(), is_first && self.known.is_empty())
            && self.view.options.resource_version.is_some_and(|version| version != 0)
            && self.view.options.send_initial_events.is_none()
        {
            let object = nothing_but_a_name(namespace, name);
            self.tell(&mut events, "DELETED", object);
        }
        self.end(events, at);
        let pause_ends = Instant::now() + pause_after(begun.elapsed());
        match then {
            Then::Nothing => {}
            Then::Bookmark => self.bookmark(true),
            Then::Resume(since) => {
                return match changed(self.source.as_ref(), &self.space, &self.reader, since) {
                    Some(changed) if is_told(&changed, &self.view) => match changed {
                        Changed::Groups(groups) => Phase::Groups(Groups::new(Tells::All, groups, since, at)),
                        Changed::Any { until, .. } => self.rescan(Tells::All, until, at.max(until)),
                    },
                    None if *self.changes.borrow() == since => Phase::Idle(pause_ends),
                    None => self.rescan(Tells::All, at, at),
                    Some(_) => {
                        let error = too_old(self.inner.run.version(since), self.version());
                        self.ready.push_back(error_line(&error));
                        Phase::Over
                    }
                };
            }
        }
        Phase::Idle(pause_ends)
    }

    /// Computes one of the groups that have changed.
    async fn groups(&mut self, mut groups: Groups) -> Phase {
        let Some(group) = groups.left.pop_front() else {
            self.at = groups.at.max(self.at);
            return Phase::Idle(Instant::now() + pause_after(groups.begun.elapsed()));
        };
        let (before, ends) =
            if is_diminished(&group) { (groups.since | 1, groups.since | 1) } else { (group.at - 1, group.at) };
        let mut events = Events::new(self.inner.run.version(before));
        let first: Id = (group.group.as_str().into(), String::new(), String::new());
        let mut left: BTreeSet<Id> =
            self.known.range(first.clone()..).map(|(id, _)| id).take_while(|id| id.0 == first.0).cloned().collect();
        let mut gone = group.gone.unwrap_or_default();
        let mut seen = BTreeSet::new();
        for listed in self.reader.group(&group.group).await.expect("the group is the resource's own") {
            let id = id(&listed);
            if !seen.insert(id.clone()) {
                continue;
            }
            left.remove(&id);
            gone.retain(|(namespace, name)| (namespace.as_deref().unwrap_or_default(), name) != (&id.1, &id.2));
            if let Some(object) = self.compare(&id, listed.object, groups.tells, &mut events) {
                self.known.insert(id, object);
                continue;
            }
            // Of a client of which is not known what it knows: it may know one that was selected before.
            let perhaps = (groups.tells == Tells::All).then(|| nothing_but_a_name(Some(&id.1), &id.2));
            if let Some(object) = self.known.remove(&id).or(perhaps) {
                self.tell(&mut events, "DELETED", object);
            }
        }
        for id in left {
            if let Some(object) = self.known.remove(&id) {
                self.tell(&mut events, "DELETED", object);
            }
        }
        if groups.tells == Tells::All {
            for (namespace, name) in gone {
                self.tell(&mut events, "DELETED", nothing_but_a_name(namespace.as_deref(), &name));
            }
        }
        self.end(events, ends);
        Phase::Groups(groups)
    }

    /// Tells how one object differs from what the client knows. Returns what it is to know.
    fn compare(&mut self, id: &Id, object: Value, tells: Tells, events: &mut Events) -> Option<Value> {
        let whole = complete(&self.view.served, object.clone(), events.before);
        if !self.view.matches(&whole) {
            return None;
        }
        let known = self.known.get(id);
        match tells {
            Tells::Nothing => {}
            Tells::Differences if known.is_some_and(|known| *known == object) => {}
            Tells::Differences | Tells::All => {
                let kind = if known.is_some() { "MODIFIED" } else { "ADDED" };
                self.tell(events, kind, object.clone());
            }
        }
        Some(object)
    }

    fn tell(&mut self, events: &mut Events, kind: &'static str, object: Value) {
        if let Some((kind, object)) = events.last.replace((kind, object)) {
            self.line(kind, object, events.before);
        }
    }

    /// All is told that was computed when the counter was at `at`.
    fn end(&mut self, events: Events, at: u64) {
        self.at = at;
        if let Some((kind, object)) = events.last {
            self.line(kind, object, self.version());
        }
    }

    fn line(&mut self, kind: &str, object: Value, version: u64) {
        let whole = complete(&self.view.served, object, version);
        self.ready.push_back(self.view.line(kind, whole));
        self.told = version;
    }

    fn bookmark(&mut self, initial_events_end: bool) {
        self.ready.push_back(self.view.bookmark(Revision(self.version()), initial_events_end));
        self.told = self.version();
        self.next_bookmark = Instant::now() + self.inner.config.bookmark_interval;
    }

    /// The version of what the client knows, once it has read what is ready.
    fn version(&self) -> u64 {
        self.inner.run.version(self.at)
    }
}

impl Groups {
    fn new(tells: Tells, mut groups: Vec<ChangedGroup>, since: u64, at: u64) -> Self {
        groups.sort_by_key(|group| !is_diminished(group));
        Self { tells, left: groups.into(), since, at, begun: Instant::now() }
    }
}

/// Whether anything may have gone from it.
fn is_diminished(group: &ChangedGroup) -> bool {
    group.gone.as_ref().is_none_or(|gone| !gone.is_empty())
}

fn id(listed: &Listed) -> Id {
    let namespace = object::namespace(&listed.object).unwrap_or_default();
    (Arc::clone(&listed.group), namespace.to_owned(), object::name(&listed.object).to_owned())
}

/// What is known of an object that was gone before the watch began.
fn nothing_but_a_name(namespace: Option<&str>, name: &str) -> Value {
    match namespace.filter(|namespace| !namespace.is_empty()) {
        Some(namespace) => json!({"metadata": {"namespace": namespace, "name": name}}),
        None => json!({"metadata": {"name": name}}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_to_compute_is_computed_more_rarely() {
        let pause = |milliseconds| pause_after(Duration::from_millis(milliseconds)).as_millis();
        assert_eq!([0, 50, 60, 300].map(pause), [1_000, 1_000, 1_200, 5_000]);
    }
}
