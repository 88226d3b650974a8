//! A cluster in memory: as much of an API server, its controllers and its users as an agent's core can tell from one.
//!
//! The core's own tests and the simulation of both cores drive the same one. It has no time and calls nobody: what watches
//! are to be told waits in [`Cluster::news`], and what controllers do in their own time in [`Cluster::chores`]. Whoever
//! drives it delivers the news and has the chores done, when it likes.
//!
//! Compiled for tests alone: those of this crate, and those of others by the feature `simulated-cluster`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tideline_common::{GroupKind, ObjectKey, Owner, Ownership, Reason, Uid};
use uuid::Uuid;

use crate::core::{ListFailure, ListedItem, Observed, Served};

mod controllers;
mod faults;
mod objects;
mod operations;
mod users;

pub use controllers::Chore;
pub use faults::Faults;
pub use objects::{Local, has_ttl, is_deployment, widget};
pub use users::{Means, Stripped};

/// What an API server has in its store, at one time.
#[derive(Clone, Debug)]
pub struct Backup {
    objects: BTreeMap<ObjectKey, Local>,
    versions: u64,
}

/// What watches are told.
#[derive(Clone, Debug)]
pub enum News {
    Put(Box<Observed>),
    Gone(ObjectKey, Uid),
    /// The kind is served, or is not any more.
    Served(GroupKind),
}

#[derive(Debug)]
pub struct Cluster {
    pub objects: BTreeMap<ObjectKey, Local>,
    /// Namespaces that are there beside those among the objects, as `default` is in every cluster.
    pub namespaces: BTreeSet<Arc<str>>,
    /// Whose marks are the agent's own.
    pub agent: Owner,
    /// Counts every write that changed anything.
    pub versions: u64,
    /// How many objects were ever made: each has a UID of its own, also after the cluster was set back.
    pub made: u128,
    /// How often an object was read, was asked for and refused, and was compared.
    pub reads: u64,
    pub refused_reads: u64,
    pub comparisons: u64,
    /// What was not told yet, in order.
    pub news: Vec<News>,
    /// What is not done yet.
    pub chores: Vec<Chore>,
    pub faults: Faults,
    /// Sources whose Jobs ended here.
    pub finished: BTreeSet<Uid>,
    /// Those that a person lets run again.
    pub released: BTreeSet<Uid>,
}

impl Cluster {
    pub fn new(agent: Owner) -> Self {
        Self {
            objects: BTreeMap::new(),
            namespaces: BTreeSet::new(),
            agent,
            versions: 0,
            made: 0,
            reads: 0,
            refused_reads: 0,
            comparisons: 0,
            news: Vec::new(),
            chores: Vec::new(),
            faults: Faults::default(),
            finished: BTreeSet::new(),
            released: BTreeSet::new(),
        }
    }

    pub fn served(&self, kind: &GroupKind) -> Served {
        if self.faults.unserved.contains(kind) {
            return Served::No;
        }
        let defined = |key: &ObjectKey, local: &Local| key.kind.is_definition() && !local.deleting;
        if *kind == widget() && !self.objects.iter().any(|(key, local)| defined(key, local)) {
            return Served::No;
        }
        Served::Yes { namespaced: !kind.is_namespace() && !kind.is_definition(), status: is_deployment(kind) }
    }

    pub fn has_namespace(&self, name: &str) -> bool {
        let stands = |key: &ObjectKey, local: &Local| key.kind.is_namespace() && &*key.name == name && !local.deleting;
        self.namespaces.contains(name) || self.objects.iter().any(|(key, local)| stands(key, local))
    }

    pub fn observed(&self, key: &ObjectKey) -> Option<Observed> {
        Some(self.objects.get(key)?.observed(key, &self.agent))
    }

    /// Everything of a kind whose label names the agent, as a watch begins with it.
    pub fn list(&self, kind: &GroupKind) -> Vec<Observed> {
        let labelled =
            self.objects.iter().filter(|(key, local)| key.kind == *kind && local.is_labelled_for(&self.agent));
        labelled.map(|(key, local)| local.observed(key, &self.agent)).collect()
    }

    /// The metadata of everything of a kind with the label, whomever it names, that is the agent's or was copied from
    /// another target of its hub.
    ///
    /// # Errors
    ///
    /// In an outage, and where the kind is not served or may not be listed.
    pub fn list_metadata(&self, kind: &GroupKind) -> Result<Vec<ListedItem>, ListFailure> {
        let refused = match self.faults.outage {
            Some(reason) => Some(reason),
            None if self.served(kind) == Served::No => Some(Reason::KindMissing),
            None => self.faults.unlistable.contains(kind).then_some(Reason::Forbidden),
        };
        if let Some(reason) = refused {
            return Err(ListFailure { reason, message: "no".to_owned() });
        }
        let of_interest = |local: &Local| {
            let same_hub = local.mark.as_ref().is_some_and(|mark| mark.hub == self.agent.hub);
            local.is_labelled_for(&self.agent) || (local.label.is_some() && same_hub)
        };
        let listed = self.objects.iter().filter(|(key, local)| key.kind == *kind && of_interest(local));
        Ok(listed.map(|(key, local)| ListedItem::from(local.observed(key, &self.agent))).collect())
    }

    /// What is in a namespace, or of the kind that is defined.
    pub fn contents(&self, key: &ObjectKey) -> impl Iterator<Item = &ObjectKey> {
        self.objects.keys().filter(|inner| {
            (key.kind.is_namespace() && inner.namespace == key.name)
                || (key.kind.is_definition() && inner.kind == widget())
        })
    }

    pub fn ownership(&self, key: &ObjectKey) -> Option<Ownership> {
        let mark = self.objects.get(key)?.mark.as_ref()?;
        Some(mark.ownership(self.agent, key))
    }

    /// The definition of a kind serves no version, or does again. Its objects stay.
    pub fn serve(&mut self, kind: &GroupKind, serves: bool) {
        self.faults.unserved.remove(kind);
        if !serves {
            self.faults.unserved.insert(kind.clone());
        }
        self.news.push(News::Served(kind.clone()));
    }

    pub fn back_up(&self) -> Backup {
        Backup { objects: self.objects.clone(), versions: self.versions }
    }

    /// Its store is restored from a backup. No watch goes on from before; what ran has run all the same.
    pub fn set_back(&mut self, to: Backup) {
        (self.objects, self.versions) = (to.objects, to.versions);
        self.news.clear();
        self.chores.clear();
        for (key, local) in &self.objects {
            if local.deleting {
                self.chores.push(Chore::Finalize(key.clone()));
            } else if local.lags(key) {
                self.chores.push(Chore::Observe(key.clone()));
            }
        }
    }

    /// One that is not there yet.
    fn new_object(&mut self) -> Local {
        self.versions += 1;
        self.made += 1;
        Local::new(Uid::from_uuid(Uuid::from_u128(self.made)))
    }

    /// Changes an object, if it is there, and tells whoever watches it.
    fn change(&mut self, key: &ObjectKey, what: impl FnOnce(&mut Local)) {
        if let Some(mut local) = self.objects.get(key).cloned() {
            what(&mut local);
            self.put(key, local);
        }
    }

    fn put(&mut self, key: &ObjectKey, mut local: Local) -> Box<Observed> {
        self.versions += 1;
        local.version = self.versions;
        if local.lags(key) {
            self.chores.push(Chore::Observe(key.clone()));
        }
        let observed = Box::new(local.observed(key, &self.agent));
        let former = self.objects.insert(key.clone(), local);
        if key.kind.is_definition() {
            self.news.push(News::Served(widget()));
        }
        if observed.labelled {
            self.tell(News::Put(observed.clone()));
        } else if former.is_some_and(|former| former.is_labelled_for(&self.agent)) {
            self.tell(News::Gone(key.clone(), observed.uid.clone()));
        }
        observed
    }

    /// It is gone at once, whatever would hold it.
    fn remove(&mut self, key: &ObjectKey) {
        let Some(local) = self.objects.remove(key) else { return };
        self.versions += 1;
        if key.kind.is_definition() {
            self.news.push(News::Served(widget()));
        }
        if local.is_labelled_for(&self.agent) {
            self.tell(News::Gone(key.clone(), local.uid));
        }
    }

    fn tell(&mut self, news: News) {
        if !self.faults.deaf {
            self.news.push(news);
        }
    }
}
