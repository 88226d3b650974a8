//! The server itself: spaces, and the way of a request.

mod http;
mod space;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, RwLock, Weak};
use std::time::Duration;

use axum::body::Body;
use serde_json::Value;
use tideline_store::{Commit, CommitOutcome, Compare, Op, Store};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub(crate) use self::http::{Call, Content, Place, Reply, failure};
pub(crate) use self::space::{Space, is_deleting, spaces_at};
use crate::catalog::Definition;
use crate::controllers;
use crate::filled_field::FilledField;
use crate::identity::{Admission, Authorizer, Identity};
use crate::keys;
use crate::schema::validate::is_dns_label;
use crate::status::ApiError;
use crate::virtual_list::Run;
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

/// Why the server or a space could not be set up.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("the store failed: {0}")]
    Store(#[from] tideline_store::Error),
    #[error("{0:?} is not the name of a space: a lower case DNS label of at most 63 characters is needed")]
    SpaceName(String),
    #[error("the space {0:?} is being deleted")]
    SpaceDeleting(String),
    #[error("the definition {name:?} of space {space:?} is refused: {why}")]
    Definition { space: String, name: String, why: String },
    /// An object that the server itself made was refused.
    #[error("space {space:?} cannot be prepared: {why}")]
    Prepare { space: String, why: String },
}

/// An embedded Kubernetes API server over a store.
///
/// Dropping it stops its one task; running watches end with their store.
pub struct ApiServer {
    inner: Arc<Inner>,
    tasks: TaskTracker,
    cancel: CancellationToken,
    _guard: DropGuard,
}

/// What requests and tasks share.
pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: Config,
    spaces: RwLock<BTreeMap<Arc<str>, Arc<Space>>>,
    /// Definitions by digest, for as long as a catalog holds them.
    compiled: Mutex<HashMap<[u8; 32], Weak<Definition>>>,
    pub(crate) run: Run,
}

impl ApiServer {
    /// Opens all spaces that the store holds and starts the controller task.
    ///
    /// # Errors
    ///
    /// The store failed, or a record in it cannot be read.
    pub async fn new(store: Arc<dyn Store>, config: Config) -> Result<Arc<Self>, Error> {
        let (spaces, compiled) = (RwLock::default(), Mutex::default());
        let inner = Arc::new(Inner { store, config, spaces, compiled, run: Run::begin() });
        for (name, deleting) in inner.spaces_at(None).await? {
            let space = Space::new(&name, SpaceConfig::default(), deleting);
            inner.refresh(&space).await?;
            inner.spaces_mut().insert(Arc::clone(&space.name), space);
        }
        let (tasks, cancel) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(controllers::run(Arc::clone(&inner), cancel.clone()));
        let guard = cancel.clone().drop_guard();
        Ok(Arc::new(Self { inner, tasks, cancel, _guard: guard }))
    }

    /// Stops the controller task and waits for it.
    pub async fn shutdown(&self) {
        self.cancel.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Makes a space, or opens an existing one with this configuration: the namespaces `default` and `kube-system`
    /// and the configured definitions are there when this returns.
    ///
    /// # Errors
    ///
    /// The store failed, or a configured definition is not valid.
    pub async fn create_space(&self, name: &str, config: SpaceConfig) -> Result<(), Error> {
        if !is_dns_label(name) {
            return Err(Error::SpaceName(name.to_owned()));
        }
        let inner = &self.inner;
        if inner.space(name).is_some_and(|space| space.is_deleting()) {
            return Err(Error::SpaceDeleting(name.to_owned()));
        }
        let record = keys::space_record(name);
        let new = Commit {
            compare: vec![Compare::Absent(record.clone())],
            ops: vec![Op::Put(record, space::record(space::State::Ready))],
        };
        match inner.store.commit(new).await? {
            CommitOutcome::Committed(_) => tracing::info!(space = name, "space created"),
            CommitOutcome::Conflict { .. } => {}
        }
        let crds = config.crds.clone();
        let space = Space::new(name, config, false);
        inner.refresh(&space).await?;
        inner.spaces_mut().insert(Arc::clone(&space.name), Arc::clone(&space));
        self.prepare(&space, &crds).await
    }

    /// Deletes a space with all that is in it. Its objects' finalizers are not waited for.
    ///
    /// # Errors
    ///
    /// There is no such space, or the store failed.
    pub async fn delete_space(&self, name: &str) -> Result<(), Error> {
        let Some(space) = self.inner.space(name) else { return Ok(()) };
        space.set_deleting();
        self.inner.erase_space(name).await?;
        self.inner.spaces_mut().remove(name);
        tracing::info!(space = name, "space deleted");
        Ok(())
    }

    /// The names of all spaces, in order.
    pub fn spaces(&self) -> Vec<Arc<str>> {
        let spaces = self.inner.spaces.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        spaces.values().filter(|space| !space.is_deleting()).map(|space| Arc::clone(&space.name)).collect()
    }

    /// Answers one request, whose path starts below the space, such as `/api/v1/namespaces`.
    pub async fn call(
        &self,
        space: &str,
        identity: Identity,
        request: ::http::Request<Body>,
    ) -> ::http::Response<Body> {
        self.inner.answer(space, identity, request).await
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl Inner {
    pub(crate) fn space(&self, name: &str) -> Option<Arc<Space>> {
        self.spaces.read().unwrap_or_else(std::sync::PoisonError::into_inner).get(name).cloned()
    }

    /// Every open space, those included that are being deleted.
    pub(crate) fn all_spaces(&self) -> Vec<Arc<Space>> {
        self.spaces.read().unwrap_or_else(std::sync::PoisonError::into_inner).values().cloned().collect()
    }

    fn spaces_mut(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<Arc<str>, Arc<Space>>> {
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

    /// Closes a space that is gone.
    pub(crate) fn forget(&self, name: &str) {
        self.spaces_mut().remove(name);
    }

    /// Finds the space of a request.
    pub(crate) fn open(&self, name: &str) -> Result<Arc<Space>, ApiError> {
        self.space(name).filter(|space| !space.is_deleting()).ok_or_else(|| ApiError::not_found("", "spaces", name))
    }
}
