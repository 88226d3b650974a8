//! One stream of everything: all objects of all resources of all spaces, from one watcher on the store.
//!
//! ```text
//!            ┌──────────────(history gone, or too slow)──────────────┐
//!            ▼                                                       │
//!   Begin ─▶ Round ─▶ Space 1 … Space n ─▶ Progress ─▶ live events ──┘
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use serde_json::Value;
use tideline_store::{Event, Item, KeyRange, Revision, Store, WatchStream};

use crate::catalog::{CRD_GROUP, CRDS, Catalog, Definition, ResourceKind};
use crate::keys::Key;
use crate::server::{ApiServer, spaces_at};
use crate::{keys, object};

/// Objects read at once in a round.
const PAGE: usize = 128;
/// How long a feed waits before it tries a failing store again.
const RETRY: Duration = Duration::from_secs(1);

/// One step of a feed. The objects are as they were written: without defaults, in their storage version, with
/// `metadata.resourceVersion` set.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedEvent {
    /// A full list begins. What comes up to the next [`FeedEvent::Progress`] replaces all that the consumer holds;
    /// what does not come again is gone.
    Round,
    SpaceAdded {
        space: Arc<str>,
    },
    SpaceRemoved {
        space: Arc<str>,
    },
    Object {
        space: Arc<str>,
        resource: Arc<ResourceKind>,
        value: Arc<Value>,
        revision: Revision,
    },
    /// An object is there, and what is stored of it cannot be read. It is not gone, and neither is what it defines.
    Unreadable {
        space: Arc<str>,
        resource: Arc<ResourceKind>,
        name: String,
    },
    Deleted {
        space: Arc<str>,
        resource: Arc<ResourceKind>,
        namespace: Option<String>,
        name: String,
        uid: String,
        revision: Revision,
    },
    /// All objects of the resource in this space have come; also when there are none, and when a definition
    /// makes a resource. It does not come in a round in which one of them is unreadable.
    Listed {
        space: Arc<str>,
        resource: Arc<ResourceKind>,
    },
    /// The resource is gone with its definition; its objects were deleted before.
    ResourceRemoved {
        space: Arc<str>,
        resource: Arc<ResourceKind>,
    },
    /// Everything up to this revision has been delivered; a feed may be resumed after it.
    Progress(Revision),
}

impl ApiServer {
    /// Feeds all changes after a revision, or begins with a round.
    ///
    /// The stream ends only when the store is closed. History that is gone, or falling too far behind, begins a new
    /// round.
    pub fn feed(&self, after: Option<Revision>) -> BoxStream<'static, FeedEvent> {
        let feeder = Feeder {
            store: Arc::clone(&self.inner().store),
            kinds: Kinds::default(),
            phase: Phase::Begin(after),
            ready: VecDeque::new(),
            unreadable: BTreeSet::new(),
        };
        stream::unfold(feeder, |mut feeder| async move {
            let event = feeder.next().await?;
            Some((event, feeder))
        })
        .boxed()
    }
}

struct Feeder {
    store: Arc<dyn Store>,
    kinds: Kinds,
    phase: Phase,
    /// Events that wait to be taken: those of one page, or of one space's resources.
    ready: VecDeque<FeedEvent>,
    /// Resources of the space that is being listed of which an object is unreadable, by group and plural.
    unreadable: BTreeSet<(String, String)>,
}

enum Phase {
    Begin(Option<Revision>),
    /// Lists the spaces that are left at one revision.
    Round {
        at: Revision,
        left: VecDeque<Arc<str>>,
    },
    /// Lists one space.
    Space {
        at: Revision,
        left: VecDeque<Arc<str>>,
        space: Arc<str>,
        range: KeyRange,
    },
    Live(WatchStream),
    Over,
}

/// Which custom resources each space has.
#[derive(Default)]
struct Kinds {
    built_in: BTreeMap<(String, String), Arc<ResourceKind>>,
    custom: BTreeMap<Arc<str>, BTreeMap<String, Arc<ResourceKind>>>,
}

impl Kinds {
    fn built_in(&mut self) -> &BTreeMap<(String, String), Arc<ResourceKind>> {
        if self.built_in.is_empty() {
            let all = Catalog::default();
            self.built_in =
                all.stored().map(|one| ((one.group.clone(), one.plural.clone()), Arc::clone(one))).collect();
        }
        &self.built_in
    }

    fn find(&mut self, space: &str, group: &str, plural: &str) -> Option<Arc<ResourceKind>> {
        if let Some(found) = self.built_in().get(&(group.to_owned(), plural.to_owned())) {
            return Some(Arc::clone(found));
        }
        self.custom.get(space)?.get(&format!("{plural}.{group}")).cloned()
    }

    fn stored(&mut self, space: &str) -> Vec<Arc<ResourceKind>> {
        let mut all: Vec<_> = self.built_in().values().cloned().collect();
        all.extend(self.custom.get(space).into_iter().flat_map(|custom| custom.values().cloned()));
        all
    }
}

impl Feeder {
    async fn next(&mut self) -> Option<FeedEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let phase = std::mem::replace(&mut self.phase, Phase::Over);
            let next = match phase {
                Phase::Over => return None,
                Phase::Begin(after) => self.begin(after).await,
                Phase::Round { at, left } => self.round(at, left).await,
                Phase::Space { at, left, space, range } => self.space(at, left, space, range).await,
                Phase::Live(stream) => self.live(stream).await,
            };
            match next {
                Ok(phase) => self.phase = phase,
                Err(tideline_store::Error::Closed) => return None,
                Err(
                    error @ (tideline_store::Error::Compacted { .. }
                    | tideline_store::Error::Future { .. }
                    | tideline_store::Error::Lagged(_)),
                ) => {
                    tracing::info!(%error, "the feed lists everything again");
                    self.ready.clear();
                    self.phase = Phase::Begin(None);
                }
                Err(error) => {
                    tracing::warn!(%error, "the feed cannot read the store, retrying");
                    tokio::time::sleep(RETRY).await;
                    self.ready.clear();
                    self.phase = Phase::Begin(None);
                }
            }
        }
    }

    async fn begin(&mut self, after: Option<Revision>) -> Result<Phase, tideline_store::Error> {
        let at = after.unwrap_or_else(|| self.store.revision());
        let spaces = spaces_at(&*self.store, Some(at)).await?;
        self.kinds.custom.clear();
        let left: VecDeque<Arc<str>> = spaces.into_iter().map(|(space, _)| space.into()).collect();
        if after.is_some() {
            for space in left {
                self.learn(&space, at).await?;
            }
            return Ok(Phase::Live(self.store.watch(keys::everything(), at)?));
        }
        self.ready.push_back(FeedEvent::Round);
        Ok(Phase::Round { at, left })
    }

    /// Reads the definitions of a space, so that its custom objects can be told apart.
    async fn learn(&mut self, space: &Arc<str>, at: Revision) -> Result<(), tideline_store::Error> {
        let mut range = keys::resource(space, CRD_GROUP, CRDS, None);
        let mut custom = BTreeMap::new();
        loop {
            let page = self.store.range(range.clone(), Some(at), PAGE).await?;
            for item in &page.items {
                if let Some((name, Some(kind))) = object::read(item).ok().map(|crd| Definition::kind_of(&crd)) {
                    custom.insert(name, Arc::new(kind));
                }
            }
            match page.items.last() {
                Some(last) if page.more => range.start = keys::successor(&last.key),
                Some(_) | None => break,
            }
        }
        self.kinds.custom.insert(Arc::clone(space), custom);
        Ok(())
    }

    async fn round(&mut self, at: Revision, mut left: VecDeque<Arc<str>>) -> Result<Phase, tideline_store::Error> {
        let Some(space) = left.pop_front() else {
            let stream = self.store.watch(keys::everything(), at)?;
            self.ready.push_back(FeedEvent::Progress(at));
            return Ok(Phase::Live(stream));
        };
        self.learn(&space, at).await?;
        self.ready.push_back(FeedEvent::SpaceAdded { space: Arc::clone(&space) });
        let range = keys::space(&space);
        self.unreadable.clear();
        Ok(Phase::Space { at, left, space, range })
    }

    async fn space(
        &mut self,
        at: Revision,
        left: VecDeque<Arc<str>>,
        space: Arc<str>,
        mut range: KeyRange,
    ) -> Result<Phase, tideline_store::Error> {
        let page = self.store.range(range.clone(), Some(at), PAGE).await?;
        for item in &page.items {
            if let Some(Key::Object { group, plural, name, .. }) = Key::parse(&item.key)
                && let Some(resource) = self.kinds.find(&space, group, plural)
                && !self.object(&space, resource, name, item)
            {
                self.unreadable.insert((group.to_owned(), plural.to_owned()));
            }
        }
        if let Some(last) = page.items.last().filter(|_| page.more) {
            range.start = keys::successor(&last.key);
            return Ok(Phase::Space { at, left, space, range });
        }
        self.listed(&space);
        Ok(Phase::Round { at, left })
    }

    fn listed(&mut self, space: &Arc<str>) {
        let unreadable = std::mem::take(&mut self.unreadable);
        let stored = self.kinds.stored(space).into_iter();
        for resource in stored.filter(|one| !unreadable.contains(&(one.group.clone(), one.plural.clone()))) {
            self.ready.push_back(FeedEvent::Listed { space: Arc::clone(space), resource });
        }
    }

    /// Says whether it can be read.
    fn object(&mut self, space: &Arc<str>, resource: Arc<ResourceKind>, name: &str, item: &Item) -> bool {
        let read = object::read(item);
        let is_readable = read.is_ok();
        match read {
            Ok(mut value) => {
                value["apiVersion"] = resource.api_version().into();
                let (space, value) = (Arc::clone(space), Arc::new(value));
                self.ready.push_back(FeedEvent::Object { space, resource, value, revision: item.modified });
            }
            Err(error) => {
                let key = String::from_utf8_lossy(&item.key).into_owned();
                tracing::error!(key, %error, "an object in the store is unreadable; what was known of it stays");
                let (space, name) = (Arc::clone(space), name.to_owned());
                self.ready.push_back(FeedEvent::Unreadable { space, resource, name });
            }
        }
        is_readable
    }

    async fn live(&mut self, mut stream: WatchStream) -> Result<Phase, tideline_store::Error> {
        match stream.next().await {
            None => return Ok(Phase::Begin(None)),
            Some(Err(error)) => return Err(error),
            Some(Ok(Event::Progress(at))) => self.ready.push_back(FeedEvent::Progress(at)),
            Some(Ok(Event::Put { item, previous })) => self.put(&item, previous.as_ref()),
            Some(Ok(Event::Delete { key, at, previous })) => self.delete(&key, at, &previous),
        }
        Ok(Phase::Live(stream))
    }

    fn put(&mut self, item: &Item, previous: Option<&Item>) {
        match Key::parse(&item.key) {
            Some(Key::Space(space)) if previous.is_none() => {
                let space: Arc<str> = space.into();
                self.kinds.custom.entry(Arc::clone(&space)).or_default();
                self.ready.push_back(FeedEvent::SpaceAdded { space: Arc::clone(&space) });
                self.listed(&space);
            }
            Some(Key::Object { space, group, plural, name, .. }) => {
                let space: Arc<str> = space.into();
                let Some(resource) = self.kinds.find(&space, group, plural) else { return };
                self.object(&space, resource, name, item);
                if (group, plural) == (CRD_GROUP, CRDS) {
                    self.defined(&space, item);
                }
            }
            Some(Key::Space(_)) | None => {}
        }
    }

    /// A definition was written: its resource may be new, or stored in another version.
    fn defined(&mut self, space: &Arc<str>, item: &Item) {
        let Ok(crd) = object::read(item) else { return };
        let (name, Some(kind)) = Definition::kind_of(&crd) else { return };
        let custom = self.kinds.custom.entry(Arc::clone(space)).or_default();
        match custom.get(&name) {
            Some(known) if **known == kind => {}
            known => {
                let new = known.is_none();
                let resource = Arc::new(kind);
                custom.insert(name, Arc::clone(&resource));
                if new {
                    self.ready.push_back(FeedEvent::Listed { space: Arc::clone(space), resource });
                }
            }
        }
    }

    fn delete(&mut self, key: &[u8], at: Revision, previous: &Item) {
        match Key::parse(key) {
            Some(Key::Space(space)) => {
                self.kinds.custom.remove(space);
                self.ready.push_back(FeedEvent::SpaceRemoved { space: space.into() });
            }
            Some(Key::Object { space, group, plural, namespace, name }) => {
                let space: Arc<str> = space.into();
                let Some(resource) = self.kinds.find(&space, group, plural) else { return };
                let uid = object::read(previous).map(|object| object::uid(&object).to_owned()).unwrap_or_default();
                self.ready.push_back(FeedEvent::Deleted {
                    space: Arc::clone(&space),
                    resource,
                    namespace: namespace.map(str::to_owned),
                    name: name.to_owned(),
                    uid,
                    revision: at,
                });
                if (group, plural) == (CRD_GROUP, CRDS)
                    && let Some(resource) = self.kinds.custom.get_mut(&space).and_then(|custom| custom.remove(name))
                {
                    self.ready.push_back(FeedEvent::ResourceRemoved { space, resource });
                }
            }
            None => {}
        }
    }
}
