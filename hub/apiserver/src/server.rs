//! The server itself: spaces, and the way of a request.

mod http;
mod prepare;

use std::sync::Arc;

use axum::body::Body;
use tideline_store::{Commit, CommitOutcome, Compare, Op, Store};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub(crate) use self::http::failure;
use crate::controllers;
use crate::identity::Identity;
use crate::keys;
use crate::schema::validate::is_dns_label;
use crate::state::{Config, Inner, Space, SpaceConfig, State};

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

impl ApiServer {
    /// Opens all spaces that the store holds and starts the controller task.
    ///
    /// # Errors
    ///
    /// The store failed, or a record in it cannot be read.
    pub async fn new(store: Arc<dyn Store>, config: Config) -> Result<Arc<Self>, Error> {
        let inner = Arc::new(Inner::new(store, config));
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
            ops: vec![Op::Put(record, State::Ready.record())],
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
        let spaces = self.inner.all_spaces();
        spaces.iter().filter(|space| !space.is_deleting()).map(|space| Arc::clone(&space.name)).collect()
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
