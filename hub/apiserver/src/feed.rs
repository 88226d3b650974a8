//! One stream of everything: all objects of all resources of all spaces, from one watcher on the store.
//!
//! ```text
//!            ┌──────────────(history gone, or too slow)──────────────┐
//!            ▼                                                       │
//!   Begin ─▶ Round ─▶ Space 1 … Space n ─▶ Progress ─▶ live events ──┘
//! ```
//!
//! What is stored and cannot be read is there: it is told by the place that its key names. A definition that cannot be read,
//! or makes nothing at the moment, makes what it made last.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use serde_json::Value;
use tideline_store::{Event, Item, KeyRange, Revision, Store, WatchStream};

use crate::catalog::{CRD_GROUP, CRDS, Catalog, Definition};
use crate::keys::Key;
use crate::resource_kind::ResourceKind;
use crate::server::ApiServer;
use crate::state::spaces_at;
use crate::{keys, object};

/// Objects read at once in a round.
const PAGE: usize = 128;
/// How long a feed waits before it tries a failing store again.
const RETRY: Duration = Duration::from_secs(1);

/// One step of a feed. The objects are as they were written: without defaults, in their storage version, with
/// `metadata.resourceVersion` set; kind, name and namespace are those that the object is stored under.
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
    /// An object is there, and what is stored of it cannot be read: it is not gone.
    Unreadable {
        space: Arc<str>,
        resource: Arc<ResourceKind>,
        namespace: Option<String>,
        name: String,
        why: String,
    },
    Deleted {
        space: Arc<str>,
        resource: Arc<ResourceKind>,
        namespace: Option<String>,
        name: String,
        /// Empty where what was stored could not be read.
        uid: String,
        revision: Revision,
    },
    /// All objects of the resource in this space have come, readable or not; also when there are none, and when a new
    /// definition makes a resource.
    Listed {
        space: Arc<str>,
        resource: Arc<ResourceKind>,
    },
    /// In place of [`FeedEvent::Listed`]: a key of the resource cannot be read, so that nobody can say what is not there.
    Unlisted {
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
            nameless: BTreeSet::new(),
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
    /// Resources of the space that is being listed of which a key is unreadable, by group and plural.
    nameless: BTreeSet<(String, String)>,
}

/// Where an object is stored.
struct Place<'a> {
    space: &'a Arc<str>,
    resource: Arc<ResourceKind>,
    namespace: Option<&'a str>,
    name: &'a str,
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

/// Which custom resources each space has, by the names of their definitions: of every one that is there what it made last.
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
        let left: VecDeque<Arc<str>> = spaces.into_iter().map(|(space, _)| space.into()).collect();
        self.kinds.custom.retain(|space, _| left.contains(space));
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
        let former = self.kinds.custom.get(space).cloned().unwrap_or_default();
        let mut custom = BTreeMap::new();
        loop {
            let page = self.store.range(range.clone(), Some(at), PAGE).await?;
            for item in &page.items {
                let Some(Key::Object { name, .. }) = Key::parse(&item.key) else {
                    // It may define any of what was defined.
                    custom.extend(former.iter().map(|(name, kind)| (name.clone(), Arc::clone(kind))));
                    continue;
                };
                let kind = made_by(name, item).map(Arc::new).or_else(|| former.get(name).cloned());
                custom.extend(kind.map(|kind| (name.to_owned(), kind)));
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
        self.nameless.clear();
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
            match Key::parse(&item.key) {
                Some(Key::Object { space: _, group, plural, namespace, name }) => {
                    if let Some(resource) = self.kinds.find(&space, group, plural) {
                        self.object(&Place { space: &space, resource, namespace, name }, item);
                    }
                }
                Some(Key::Space(_)) => {}
                None => self.nameless(&item.key),
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
        let nameless = std::mem::take(&mut self.nameless);
        for resource in self.kinds.stored(space) {
            let is_whole = !nameless.contains(&(resource.group.clone(), resource.plural.clone()));
            let space = Arc::clone(space);
            self.ready.push_back(if is_whole {
                FeedEvent::Listed { space, resource }
            } else {
                FeedEvent::Unlisted { space, resource }
            });
        }
    }

    fn nameless(&mut self, key: &[u8]) {
        let text = String::from_utf8_lossy(key);
        tracing::error!(key = &*text, "a key in the store is unreadable; nothing of its kind is taken for gone");
        self.nameless.extend(keys::resource_of(key).map(|(group, plural)| (group.to_owned(), plural.to_owned())));
    }

    fn object(&mut self, place: &Place<'_>, item: &Item) {
        let (space, resource) = (Arc::clone(place.space), Arc::clone(&place.resource));
        self.ready.push_back(match object::read(item) {
            Ok(mut value) => {
                value["apiVersion"] = resource.api_version().into();
                value["kind"] = resource.kind.as_str().into();
                let metadata = object::metadata(&mut value);
                metadata.insert("name".into(), place.name.into());
                match place.namespace {
                    Some(namespace) => metadata.insert("namespace".into(), namespace.into()),
                    None => metadata.remove("namespace"),
                };
                FeedEvent::Object { space, resource, value: Arc::new(value), revision: item.modified }
            }
            Err(error) => FeedEvent::Unreadable {
                space,
                resource,
                namespace: place.namespace.map(str::to_owned),
                name: place.name.to_owned(),
                why: error.message,
            },
        });
    }

    async fn live(&mut self, mut stream: WatchStream) -> Result<Phase, tideline_store::Error> {
        match stream.next().await {
            None => return Ok(Phase::Begin(None)),
            Some(Err(error)) => return Err(error),
            Some(Ok(Event::Progress(at))) => self.ready.push_back(FeedEvent::Progress(at)),
            Some(Ok(Event::Put { item, previous })) => {
                if let Some(phase) = self.put(&item, previous.as_ref()) {
                    return Ok(phase);
                }
            }
            Some(Ok(Event::Delete { key, at, previous })) => {
                if let Some(phase) = self.delete(&key, at, &previous) {
                    return Ok(phase);
                }
            }
        }
        Ok(Phase::Live(stream))
    }

    /// Says how to go on, if not with what comes next.
    fn put(&mut self, item: &Item, previous: Option<&Item>) -> Option<Phase> {
        match Key::parse(&item.key) {
            Some(Key::Space(space)) if previous.is_none() => {
                let space: Arc<str> = space.into();
                self.kinds.custom.entry(Arc::clone(&space)).or_default();
                self.ready.push_back(FeedEvent::SpaceAdded { space: Arc::clone(&space) });
                self.listed(&space);
            }
            Some(Key::Object { space, group, plural, namespace, name }) => {
                let space: Arc<str> = space.into();
                let resource = self.kinds.find(&space, group, plural)?;
                let place = Place { space: &space, resource, namespace, name };
                self.object(&place, item);
                if (group, plural) == (CRD_GROUP, CRDS) {
                    return self.defined(&place, item, previous);
                }
            }
            Some(Key::Space(_)) | None => {}
        }
        None
    }

    /// A definition was written: its resource may be new, or stored in another version. What one makes that was there and made
    /// nothing that is known may have objects, and is not listed before they are: everything is read anew.
    fn defined(&mut self, place: &Place<'_>, item: &Item, previous: Option<&Item>) -> Option<Phase> {
        let kind = made_by(place.name, item)?;
        let custom = self.kinds.custom.entry(Arc::clone(place.space)).or_default();
        match (custom.get(place.name), previous) {
            (Some(known), _) if **known == kind => {}
            (None, Some(_)) => return Some(Phase::Begin(None)),
            (known, _) => {
                let is_new = known.is_none();
                let (space, resource) = (Arc::clone(place.space), Arc::new(kind));
                custom.insert(place.name.to_owned(), Arc::clone(&resource));
                if is_new {
                    self.ready.push_back(FeedEvent::Listed { space, resource });
                }
            }
        }
        None
    }

    /// Says how to go on, if not with what comes next.
    fn delete(&mut self, key: &[u8], at: Revision, previous: &Item) -> Option<Phase> {
        match Key::parse(key) {
            Some(Key::Space(space)) => {
                self.kinds.custom.remove(space);
                self.ready.push_back(FeedEvent::SpaceRemoved { space: space.into() });
            }
            Some(Key::Object { space, group, plural, namespace, name }) => {
                let space: Arc<str> = space.into();
                let resource = self.kinds.find(&space, group, plural)?;
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
            // What was not listed for it may be listed now.
            None => return Some(Phase::Begin(None)),
        }
        None
    }
}

/// What a stored definition makes, if its names are accepted, and the one that it is stored under.
fn made_by(name: &str, item: &Item) -> Option<ResourceKind> {
    let kind = Definition::kind_of(&object::read(item).ok()?)?;
    let ResourceKind { group, version, kind: named, plural, namespaced: _ } = &kind;
    (format!("{plural}.{group}") == name && !named.is_empty() && !version.is_empty()).then_some(kind)
}
