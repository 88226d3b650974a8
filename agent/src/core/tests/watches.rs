//! What the agent's watches say of the cluster, and in which order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tideline_common::{GroupKind, Reason};

use crate::core::{Event, ListId, Served};
use crate::simulated_cluster::{Cluster, News};

#[derive(Debug, Default)]
pub(in crate::core) struct Watches {
    watched: BTreeMap<GroupKind, Arc<str>>,
    /// What they will say.
    pub(in crate::core) feed: VecDeque<Event>,
    /// Kinds of which nothing is ever heard.
    pub(in crate::core) silent: BTreeSet<GroupKind>,
    /// How often a kind was listed.
    pub(in crate::core) lists: u64,
}

impl Watches {
    pub(super) fn watch(&mut self, kinds: BTreeMap<GroupKind, Arc<str>>, cluster: &mut Cluster) {
        self.hear(cluster);
        for kind in kinds.keys() {
            if !self.watched.contains_key(kind) && !self.silent.contains(kind) {
                self.begin(kind, cluster);
            }
        }
        self.watched = kinds;
    }

    pub(super) fn restart(&mut self, cluster: &mut Cluster) {
        cluster.news.clear();
        self.feed.clear();
        self.watched.clear();
    }

    /// Takes what the cluster has to tell, of what is watched by now.
    pub(super) fn hear(&mut self, cluster: &mut Cluster) {
        for news in std::mem::take(&mut cluster.news) {
            let (kind, event) = match news {
                News::Served(kind) => {
                    if self.watched.contains_key(&kind) {
                        self.begin(&kind, cluster);
                    }
                    continue;
                }
                News::Put(observed) => (observed.key.kind.clone(), Event::Observed(observed)),
                News::Gone(key, uid) => (key.kind.clone(), Event::Gone { key, uid }),
            };
            if self.watched.contains_key(&kind) {
                self.feed.push_back(event);
            }
        }
    }

    pub(super) fn lose(&mut self, kind: &GroupKind, cluster: &mut Cluster) {
        self.hear(cluster);
        if self.watched.contains_key(kind) {
            self.feed.retain(|event| !matches!(event, Event::Observed(observed) if observed.key.kind == *kind));
            self.feed.retain(|event| !matches!(event, Event::Gone { key, .. } if key.kind == *kind));
            let message = "cut".to_owned();
            self.feed.push_back(Event::WatchLost { kind: kind.clone(), reason: Reason::Unavailable, message });
            self.list(kind, cluster);
        }
    }

    pub(super) fn list(&mut self, kind: &GroupKind, cluster: &mut Cluster) {
        self.hear(cluster);
        self.lists += 1;
        if cluster.faults.unreadable.iter().any(|key| key.kind == *kind) {
            let (reason, message) = (Reason::Forbidden, "no".to_owned());
            return self.feed.push_back(Event::WatchLost { kind: kind.clone(), reason, message });
        }
        self.feed.push_back(Event::Listed { kind: kind.clone(), objects: cluster.list(kind) });
    }

    /// What discovery says of a kind, and what there is of it.
    fn begin(&mut self, kind: &GroupKind, cluster: &mut Cluster) {
        let served = cluster.served(kind);
        self.feed.push_back(Event::Kind { kind: kind.clone(), served });
        if served != Served::No {
            self.list(kind, cluster);
        }
    }
}

/// A list of metadata as it comes: in pages of two, or why not.
pub(super) fn list_in_pages(cluster: &Cluster, id: ListId, kind: &GroupKind) -> Vec<Event> {
    match cluster.list_metadata(kind) {
        Err(failure) => vec![Event::ListEnded { list: id, result: Err(failure) }],
        Ok(items) => {
            let pages = items.chunks(2).map(|page| Event::ListPage { list: id, objects: page.to_vec() });
            pages.chain([Event::ListEnded { list: id, result: Ok(()) }]).collect()
        }
    }
}
