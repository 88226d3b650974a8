//! Watching: who must hear of a change, the bounded mailbox of each, and the stream its reader polls.
//!
//! ```text
//!  Replaying ──near the newest commit──▶ Joining ──history read──▶ Live ──too slow, or closed──▶ Ended
//!      └──────── its history was compacted ──┴───────────────────────────────────────────────────▲
//! ```
//!
//! A watcher far behind reads history and has no mailbox, so replay of any length costs no memory. Near
//! the end it gets a mailbox (what is committed from then on goes there), reads the little that is left,
//! and turns to the mailbox: no gap, no duplicate.
//!
//! Watchers are found by the longest common prefix of their range's two ends, which every key of the range
//! shares. A change looks up each prefix length in use: O(key length) look-ups whatever the number of
//! watchers, plus the watchers that share a prefix with the key; of disjoint ranges at most 255 share one,
//! since they differ in the byte after it.

use super::limits::{HANDOVER_COMMITS, REPLAY_COMMITS, WATCH_EVENTS};
use super::readers::Readers;
use super::{locked, rows};
use crate::{Error, Event, KeyRange, Revision, WatchStream};
use bytes::Bytes;
use futures::StreamExt;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Where the store stands, and everyone who watches it go on.
pub(super) struct Watchers {
    /// The newest readable commit. Raised before its events are delivered, so that whoever has an event can
    /// read at its revision.
    revision: AtomicU64,
    /// The newest commit whose events are in every mailbox.
    delivered: AtomicU64,
    /// The oldest readable revision. Raised before compaction takes anything.
    floor: AtomicU64,
    directory: Mutex<Directory>,
}

#[derive(Default)]
struct Directory {
    by_prefix: HashMap<Bytes, Vec<Arc<Mailbox>>>,
    /// How many prefixes there are of each length.
    lengths: BTreeMap<usize, usize>,
    closed: bool,
}

impl Watchers {
    pub(super) fn new(position: rows::Position) -> Self {
        Self {
            revision: AtomicU64::new(position.revision.0),
            delivered: AtomicU64::new(position.revision.0),
            floor: AtomicU64::new(position.floor.0),
            directory: Mutex::default(),
        }
    }

    pub(super) fn revision(&self) -> Revision {
        Revision(self.revision.load(Ordering::Acquire))
    }

    pub(super) fn floor(&self) -> Revision {
        Revision(self.floor.load(Ordering::Acquire))
    }

    pub(super) fn raise_floor(&self, floor: Revision) {
        self.floor.fetch_max(floor.0, Ordering::AcqRel);
    }

    /// Whether a reader that asks for `asked` can be served. After reading, this also says whether what was
    /// read was whole, because the floor rises before anything is taken.
    pub(super) fn check(&self, asked: Revision) -> Result<(), Error> {
        let (oldest, current) = (self.floor(), self.revision());
        if asked > current {
            return Err(Error::Future { asked, current });
        }
        if asked < oldest {
            return Err(Error::Compacted { asked, oldest });
        }
        Ok(())
    }

    /// Makes `revision` the current one and delivers `events`, which led to it, in order.
    pub(super) fn publish(&self, events: &[Event], revision: Revision) {
        let mut wakers = Vec::new();
        {
            let directory = locked(&self.directory);
            self.revision.store(revision.0, Ordering::Release);
            for event in events {
                directory.deliver(event, &mut wakers);
            }
            self.delivered.store(revision.0, Ordering::Release);
        }
        // Outside the lock: waking may drop a task, and with it a stream that wants to leave.
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Wakes watchers that the store has moved past, for their `Event::Progress`. Visits every watcher.
    pub(super) fn tell_progress(&self) {
        let mut wakers = Vec::new();
        let delivered = Revision(self.delivered.load(Ordering::Acquire));
        for mailbox in locked(&self.directory).by_prefix.values().flatten() {
            wakers.extend(mailbox.tell_progress(delivered));
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends every stream, present and to come, with `Error::Closed`.
    pub(super) fn close(&self) {
        let mut wakers = Vec::new();
        {
            let mut directory = locked(&self.directory);
            directory.closed = true;
            for mailbox in directory.by_prefix.values().flatten() {
                let mut contents = locked(&mailbox.contents);
                contents.ended.get_or_insert(Error::Closed);
                wakers.extend(contents.waker.take());
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let directory = locked(&self.directory);
        directory.by_prefix.is_empty() && directory.lengths.is_empty()
    }

    fn is_closed(&self) -> bool {
        locked(&self.directory).closed
    }

    /// Gives a mailbox to a watcher that has everything up to `position`, if that is near enough.
    fn join(self: &Arc<Self>, range: &KeyRange, position: Revision) -> Result<Joined, Error> {
        let mut directory = locked(&self.directory);
        if directory.closed {
            return Err(Error::Closed);
        }
        // Publishing takes the lock, so this is also what has been delivered.
        let current = self.revision();
        if current.0 - position.0 > HANDOVER_COMMITS {
            return Ok(Joined::Behind { current });
        }
        let mailbox = Arc::new(Mailbox {
            range: range.clone(),
            contents: Mutex::new(Contents { told: current, ..Contents::default() }),
        });
        directory.add(Arc::clone(&mailbox));
        drop(directory);
        Ok(Joined::Member(Membership { mailbox, watchers: Arc::clone(self), since: current }))
    }
}

impl Directory {
    fn add(&mut self, mailbox: Arc<Mailbox>) {
        let prefix = common_prefix(&mailbox.range);
        let here = self.by_prefix.entry(prefix.clone()).or_default();
        if here.is_empty() {
            *self.lengths.entry(prefix.len()).or_default() += 1;
        }
        here.push(mailbox);
    }

    fn remove(&mut self, mailbox: &Arc<Mailbox>) {
        let prefix = common_prefix(&mailbox.range);
        let Some(here) = self.by_prefix.get_mut(&prefix) else {
            return;
        };
        here.retain(|other| !Arc::ptr_eq(other, mailbox));
        if !here.is_empty() {
            return;
        }
        self.by_prefix.remove(&prefix);
        if let Some(count) = self.lengths.get_mut(&prefix.len()) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&prefix.len());
            }
        }
    }

    fn deliver(&self, event: &Event, wakers: &mut Vec<Waker>) {
        let key = match event {
            Event::Put { item, .. } => &item.key,
            Event::Delete { key, .. } => key,
            Event::Progress(_) => return,
        };
        for length in self.lengths.keys().take_while(|length| **length <= key.len()) {
            for mailbox in self.by_prefix.get(&key[..*length]).into_iter().flatten() {
                if mailbox.range.start <= *key && *key < mailbox.range.end {
                    wakers.extend(mailbox.push(event));
                }
            }
        }
    }
}

/// What every key of the range begins with.
fn common_prefix(range: &KeyRange) -> Bytes {
    let length = range.start.iter().zip(&range.end).take_while(|(a, b)| a == b).count();
    range.start.slice(..length)
}

/// The undelivered events of one live watcher.
struct Mailbox {
    range: KeyRange,
    contents: Mutex<Contents>,
}

#[derive(Default)]
struct Contents {
    events: VecDeque<Event>,
    /// The highest revision that the reader knows of.
    told: Revision,
    progress_due: bool,
    ended: Option<Error>,
    waker: Option<Waker>,
}

impl Mailbox {
    fn push(&self, event: &Event) -> Option<Waker> {
        let mut contents = locked(&self.contents);
        if contents.ended.is_some() {
            return None;
        }
        if contents.events.len() >= WATCH_EVENTS {
            contents.events = VecDeque::new();
            contents.ended = Some(Error::Lagged(WATCH_EVENTS));
        } else {
            contents.events.push_back(event.clone());
        }
        contents.waker.take()
    }

    fn tell_progress(&self, delivered: Revision) -> Option<Waker> {
        let mut contents = locked(&self.contents);
        if contents.told >= delivered {
            return None;
        }
        contents.progress_due = true;
        contents.waker.take()
    }

    fn poll(&self, watchers: &Watchers, context: &Context<'_>) -> Poll<Result<Event, Error>> {
        let mut contents = locked(&self.contents);
        // Read under the mailbox's lock: all events up to here were put in before, so if there are none now,
        // the reader has had them.
        let delivered = Revision(watchers.delivered.load(Ordering::Acquire));
        if let Some(event) = contents.events.pop_front() {
            contents.told = event.revision();
            return Poll::Ready(Ok(event));
        }
        if let Some(error) = &contents.ended {
            return Poll::Ready(Err(error.clone()));
        }
        if std::mem::take(&mut contents.progress_due) && contents.told < delivered {
            contents.told = delivered;
            return Poll::Ready(Ok(Event::Progress(delivered)));
        }
        contents.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

enum Joined {
    Member(Membership),
    Behind { current: Revision },
}

/// A place in the directory, given up on drop.
struct Membership {
    mailbox: Arc<Mailbox>,
    watchers: Arc<Watchers>,
    /// The mailbox gets every event after this.
    since: Revision,
}

impl Drop for Membership {
    fn drop(&mut self) {
        locked(&self.watchers.directory).remove(&self.mailbox);
    }
}

enum Phase {
    Replaying,
    Joining(Membership),
    Live(Membership),
    Ended,
}

struct Watch {
    watchers: Arc<Watchers>,
    readers: Arc<Readers>,
    range: KeyRange,
    /// Everything up to here was read from history.
    position: Revision,
    read: VecDeque<Event>,
    phase: Phase,
}

/// Opens a stream of the changes of `range` after `after`.
pub(super) fn open(
    watchers: &Arc<Watchers>,
    readers: &Arc<Readers>,
    range: KeyRange,
    after: Revision,
) -> Result<WatchStream, Error> {
    watchers.check(after)?;
    let phase = match watchers.join(&range, after)? {
        Joined::Member(membership) => Phase::Joining(membership),
        Joined::Behind { .. } => Phase::Replaying,
    };
    let watch = Watch {
        watchers: Arc::clone(watchers),
        readers: Arc::clone(readers),
        range,
        position: after,
        read: VecDeque::new(),
        phase,
    };
    let stream = futures::stream::unfold(watch, |mut watch| async move {
        let next = watch.next().await.transpose()?;
        Some((next, watch))
    });
    Ok(stream.boxed())
}

impl Watch {
    /// The next event; after an error, nothing.
    async fn next(&mut self) -> Result<Option<Event>, Error> {
        let next = self.advance().await;
        if next.is_err() {
            self.phase = Phase::Ended;
            self.read = VecDeque::new();
        }
        next
    }

    async fn advance(&mut self) -> Result<Option<Event>, Error> {
        loop {
            if let Some(event) = self.read.pop_front() {
                return Ok(Some(event));
            }
            match std::mem::replace(&mut self.phase, Phase::Ended) {
                Phase::Replaying => match self.watchers.join(&self.range, self.position)? {
                    Joined::Member(membership) => self.phase = Phase::Joining(membership),
                    Joined::Behind { current } => {
                        self.phase = Phase::Replaying;
                        self.replay(current).await?;
                    }
                },
                Phase::Joining(membership) if membership.since == self.position => {
                    let caught_up = Event::Progress(membership.since);
                    self.phase = Phase::Live(membership);
                    return Ok(Some(caught_up));
                }
                Phase::Joining(membership) => {
                    let since = membership.since;
                    self.phase = Phase::Joining(membership);
                    self.replay(since).await?;
                }
                Phase::Live(membership) => {
                    let mailbox = Arc::clone(&membership.mailbox);
                    self.phase = Phase::Live(membership);
                    return poll_fn(|context| mailbox.poll(&self.watchers, context)).await.map(Some);
                }
                Phase::Ended => return Ok(None),
            }
        }
    }

    /// Reads history from the position towards `upto`.
    async fn replay(&mut self, upto: Revision) -> Result<(), Error> {
        if self.watchers.is_closed() {
            return Err(Error::Closed);
        }
        self.watchers.check(self.position)?;
        let (range, after) = (self.range.clone(), self.position);
        let upto = upto.min(Revision(after.0 + REPLAY_COMMITS));
        let replayed = self.readers.run(move |conn| rows::replay(conn, &range, after, upto)).await;
        self.watchers.check(after)?;
        let replayed = replayed?;
        self.read = replayed.events.into();
        self.position = replayed.through;
        Ok(())
    }
}
