//! What requests and tasks share: the store, the configuration, and the open spaces.

mod space;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, RwLock, Weak};
use std::time::Duration;

use serde_json::Value;
use tideline_store::Store;
use tokio::sync::Semaphore;

pub(crate) use self::space::{Space, State, is_deleting, spaces_at};
use crate::catalog::Definition;
use crate::filled_field::FilledField;
use crate::identity::{Admission, Authorizer};
use crate::long_work;
use crate::run::Run;
use crate::status::ApiError;
use crate::virtual_resource::VirtualResource;

/// What holds for the whole server.
#[derive(Clone, Debug)]
pub struct Config {
    /// What `/version` says; clients decide by it what the server can do.
    pub git_version: String,
    /// The least time between two bookmarks of one watch.
    pub bookmark_interval: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self { git_version: crate::schema::builtin().version().to_owned(), bookmark_interval: BOOKMARK_INTERVAL }
    }
}

/// Real servers send a bookmark a minute. A quarter of that keeps an idle watch far from compaction at no cost.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(15);

/// What is particular to one space. Not stored: the embedder says it at every start.
#[derive(Clone, Default)]
pub struct SpaceConfig {
    /// CustomResourceDefinitions that the space always has. Clients can neither delete nor change them.
    pub crds: Vec<Value>,
    pub virtual_resources: Vec<Arc<dyn VirtualResource>>,
    pub filled_fields: Vec<Arc<dyn FilledField>>,
    /// Decides for every identity but `system:masters`. Without one, everybody who is authenticated may do all.
    pub authorizer: Option<Arc<dyn Authorizer>>,
    /// Asked about every deletion, whoever's it is.
    pub admission: Option<Arc<dyn Admission>>,
}

/// What requests and tasks share.
pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: Config,
    spaces: RwLock<BTreeMap<Arc<str>, Arc<Space>>>,
    /// Definitions by digest, for as long as a catalog holds them.
    compiled: Mutex<HashMap<[u8; 32], Weak<Definition>>>,
    pub(crate) run: Run,
    /// Room for requests that take long.
    pub(crate) long_work: Arc<Semaphore>,
}

impl Inner {
    pub(crate) fn new(store: Arc<dyn Store>, config: Config) -> Self {
        let (spaces, compiled) = (RwLock::default(), Mutex::default());
        Self { store, config, spaces, compiled, run: Run::begin(), long_work: long_work::room() }
    }

    pub(crate) fn space(&self, name: &str) -> Option<Arc<Space>> {
        self.spaces.read().unwrap_or_else(std::sync::PoisonError::into_inner).get(name).cloned()
    }

    /// Every open space, those included that are being deleted.
    pub(crate) fn all_spaces(&self) -> Vec<Arc<Space>> {
        self.spaces.read().unwrap_or_else(std::sync::PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn spaces_mut(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<Arc<str>, Arc<Space>>> {
        self.spaces.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Opens a space that another process made.
    pub(crate) async fn adopt(&self, name: &str) -> Result<(), tideline_store::Error> {
        if self.space(name).is_some() {
            return Ok(());
        }
        let space = Space::new(name, SpaceConfig::default(), false);
        self.refresh(&space).await?;
        // In the meantime the embedder may have opened it itself, with its configuration.
        self.spaces_mut().entry(Arc::clone(&space.name)).or_insert(space);
        Ok(())
    }

    /// Closes a space that is gone, and none that was made by its name since.
    pub(crate) fn forget(&self, gone: &Arc<Space>) {
        let mut spaces = self.spaces_mut();
        if spaces.get(&gone.name).is_some_and(|open| Arc::ptr_eq(open, gone)) {
            spaces.remove(&gone.name);
        }
    }

    /// Finds the space of a request.
    pub(crate) fn open(&self, name: &str) -> Result<Arc<Space>, ApiError> {
        self.space(name).filter(|space| !space.is_deleting()).ok_or_else(|| ApiError::not_found("", "spaces", name))
    }
}
