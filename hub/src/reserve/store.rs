use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tideline_store::{Commit, CommitOutcome, Error, Item, KeyRange, Page, Revision, Store, WatchStream};
use tokio::task::spawn_blocking;

use super::Reserve;

/// A store whose reserve is given up when its disk is full: what has met that is written then.
pub(crate) struct Reserving {
    store: Arc<dyn Store>,
    reserve: Arc<Reserve>,
}

impl Reserving {
    pub(crate) fn new(store: Arc<dyn Store>, reserve: &Arc<Reserve>) -> Self {
        Self { store, reserve: Arc::clone(reserve) }
    }

    async fn give_up(&self) {
        let reserve = Arc::clone(&self.reserve);
        // Where it failed, the disk is as full as it was, and the next try says so.
        let _ = spawn_blocking(move || reserve.give_up()).await;
    }
}

impl Store for Reserving {
    fn revision(&self) -> Revision {
        self.store.revision()
    }

    fn get(&self, key: Bytes) -> BoxFuture<'_, Result<Option<Item>, Error>> {
        self.store.get(key)
    }

    fn range(&self, range: KeyRange, at: Option<Revision>, limit: usize) -> BoxFuture<'_, Result<Page, Error>> {
        self.store.range(range, at, limit)
    }

    fn count(&self, range: KeyRange, at: Revision) -> BoxFuture<'_, Result<u64, Error>> {
        self.store.count(range, at)
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<CommitOutcome, Error>> {
        async move {
            // Of a commit that met a full disk nothing is written.
            match self.store.commit(commit.clone()).await {
                Err(Error::Full { .. }) => {}
                done => return done,
            }
            self.give_up().await;
            self.store.commit(commit).await
        }
        .boxed()
    }

    fn failure(&self) -> Option<Error> {
        self.store.failure()
    }

    fn shortage(&self) -> Option<Error> {
        self.reserve.health.is_short().then(|| Error::Full {
            operation: "make or change anything in",
            path: self.reserve.dir.display().to_string(),
            reason: "its disk is full; free some space. Deletions are carried out".to_owned(),
        })
    }

    fn watch(&self, range: KeyRange, after: Revision) -> Result<WatchStream, Error> {
        self.store.watch(range, after)
    }

    fn compact(&self, before: Revision) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            match self.store.compact(before).await {
                Err(Error::Full { .. }) => {}
                done => return done,
            }
            self.give_up().await;
            self.store.compact(before).await
        }
        .boxed()
    }
}
