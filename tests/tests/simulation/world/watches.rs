//! What the watches of the cluster show, and when.

use tideline_agent::core::{Event, ListFailure, ListId, Served};
use tideline_agent::simulated_cluster::{Chore, News};
use tideline_common::{GroupKind, Reason};

use super::{Happening, Stream, World};
use crate::faults::WATCH;

impl World {
    pub(super) fn is_served(&self, kind: &GroupKind) -> bool {
        !matches!(self.cluster.served(kind), Served::No)
    }

    pub(super) fn watch(&mut self, kind: &GroupKind) {
        self.streams += 1;
        self.agent.streams.insert(kind.clone(), Stream { number: self.streams, last: self.now, lost: false });
        if !self.starts_stale(kind) {
            self.tell_served(kind);
        }
    }

    /// A list of metadata, in pages.
    pub(super) fn list_metadata(&mut self, id: ListId, kind: &GroupKind) {
        let listed = self.cluster.list_metadata(kind).and_then(|items| {
            let failure = || ListFailure { reason: Reason::Unavailable, message: "no time".to_owned() };
            if self.random.chance(self.faults.operation) { Err(failure()) } else { Ok(items) }
        });
        let items = match listed {
            Ok(items) => items,
            Err(failure) => return self.agent_steps(Event::ListEnded { list: id, result: Err(failure) }),
        };
        let run = self.agent.run;
        for page in items.chunks(3) {
            self.agent_steps(Event::ListPage { list: id, objects: page.to_vec() });
            // It may end at any step.
            if run != self.agent.run {
                return;
            }
        }
        self.agent_steps(Event::ListEnded { list: id, result: Ok(()) });
    }

    /// The answer of discovery, and the list if there is something.
    pub(super) fn tell_served(&mut self, kind: &GroupKind) {
        let served = self.cluster.served(kind);
        self.tell(kind, Event::Kind { kind: kind.clone(), served });
        if self.is_served(kind) {
            let objects = self.cluster.list(kind);
            self.tell(kind, Event::Listed { kind: kind.clone(), objects });
        }
    }

    pub(super) fn relist(&mut self, kind: &GroupKind, number: u64) {
        if let Some(stream) = self.agent.streams.get_mut(kind)
            && stream.number == number
        {
            stream.lost = false;
            self.tell_served(kind);
        }
    }

    /// Adds an event to the stream of a watch.
    pub(super) fn tell(&mut self, kind: &GroupKind, event: Event) {
        let delay = self.random.within(WATCH);
        let Some(stream) = self.agent.streams.get_mut(kind) else { return };
        stream.last = stream.last.max(self.now + delay);
        let (number, after) = (stream.number, stream.last - self.now);
        let run = self.agent.run;
        let happening = Happening::Watch { run, kind: kind.clone(), stream: number, event: Box::new(event) };
        self.schedule(after, happening);
    }

    pub(super) fn cluster_changed(&mut self) {
        for chore in std::mem::take(&mut self.cluster.chores) {
            let slow = if matches!(chore, Chore::Finalize(_)) { 20_000 } else { 2_000 };
            let after = 50 + self.random.below(slow);
            self.schedule(after, Happening::Chore(chore));
        }
        let news = std::mem::take(&mut self.cluster.news);
        self.for_each_agent(|world| {
            world.associates_changed();
            world.tell_news(&news);
        });
    }

    fn tell_news(&mut self, news: &[News]) {
        for news in news {
            let (kind, event) = match news {
                News::Served(kind) => {
                    if self.agent.streams.get(kind).is_some_and(|stream| !stream.lost) {
                        self.tell_served(kind);
                    }
                    continue;
                }
                News::Put(observed) => (observed.key.kind.clone(), Event::Observed(observed.clone())),
                News::Gone(key, uid) => (key.kind.clone(), Event::Gone { key: key.clone(), uid: uid.clone() }),
            };
            let deaf = self.random.chance(self.faults.deaf) || self.tells_otherwise(&event);
            if !deaf && self.agent.streams.get(&kind).is_some_and(|stream| !stream.lost) {
                self.tell(&kind, event);
            }
        }
    }
}
