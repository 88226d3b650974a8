//! One space: its catalog, what the embedder configured, and its life in the store.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, Weak};

use bytes::Bytes;
use ring::digest;
use serde_json::{Value, json};
use tideline_store::{Commit, KeyRange, Op, Revision, Store};
use tokio::sync::watch;

use super::{Inner, SpaceConfig};
use crate::catalog::{CRD_GROUP, CRDS, Catalog, Definition};
use crate::filled_field::FilledField;
use crate::identity::{Admission, Authorizer};
use crate::virtual_resource::VirtualResource;
use crate::{keys, long_work, object};

/// Definitions read from the store at once.
const DEFINITIONS_PAGE: usize = 100;
/// Keys of a space erased in one commit, below the store's bound on operations.
const ERASE_BATCH: usize = 100;
const _: () = assert!(ERASE_BATCH <= tideline_store::MAX_COMMIT_OPS);
/// Entries of the table of compiled definitions at which those that nobody uses are dropped: 40 bytes each.
const COMPILED_SWEEP: usize = 4_096;
/// A space as requests see it.
pub(crate) struct Space {
    pub(crate) name: Arc<str>,
    /// Followed by the watches of custom resources, each with the client's own reading.
    catalog: watch::Sender<Arc<Catalog>>,
    virtuals: Vec<Arc<dyn VirtualResource>>,
    pub(crate) filled_fields: Vec<Arc<dyn FilledField>>,
    pub(crate) authorizer: Option<Arc<dyn Authorizer>>,
    pub(crate) admission: Option<Arc<dyn Admission>>,
    /// Names of the definitions that clients may not touch.
    protected: Vec<String>,
    deleting: AtomicBool,
    /// Serializes [`Inner::refresh`], so that an older reading never replaces a newer one.
    refreshing: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    Deleting,
}

impl State {
    /// The value of the record of a space in this state.
    pub(crate) fn record(self) -> Bytes {
        let state = match self {
            Self::Ready => "Ready",
            Self::Deleting => "Deleting",
        };
        Bytes::from(json!({"schema": 1, "state": state}).to_string())
    }
}

/// Whether a stored record says that its space is going.
pub(crate) fn is_deleting(record: &[u8]) -> bool {
    serde_json::from_slice::<Value>(record).is_ok_and(|record| record["state"] == "Deleting")
}

impl Space {
    pub(crate) fn new(name: &str, config: SpaceConfig, deleting: bool) -> Arc<Self> {
        let SpaceConfig { crds, virtual_resources, filled_fields, authorizer, admission } = config;
        Arc::new(Self {
            name: name.into(),
            catalog: watch::Sender::new(Arc::new(Catalog::new(Vec::new(), &virtual_resources))),
            virtuals: virtual_resources,
            filled_fields,
            authorizer,
            admission,
            protected: crds.iter().map(|crd| object::name(crd).to_owned()).collect(),
            deleting: AtomicBool::new(deleting),
            refreshing: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.borrow())
    }

    /// The catalogs that follow, and the present one as the first: a request may have found what it is about in an earlier one.
    pub(crate) fn catalogs(&self) -> watch::Receiver<Arc<Catalog>> {
        let mut catalogs = self.catalog.subscribe();
        catalogs.mark_changed();
        catalogs
    }

    pub(crate) fn is_protected(&self, definition: &str) -> bool {
        self.protected.iter().any(|name| name == definition)
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.deleting.load(Ordering::Acquire)
    }

    pub(crate) fn set_deleting(&self) {
        self.deleting.store(true, Ordering::Release);
    }
}

/// The spaces at a revision, and whether each is being deleted: one read for each, whatever they hold.
pub(crate) async fn spaces_at(
    store: &dyn Store,
    at: Option<Revision>,
) -> Result<Vec<(String, bool)>, tideline_store::Error> {
    let (mut range, mut found) = (keys::everything(), Vec::new());
    loop {
        let page = store.range(range.clone(), at, 1).await?;
        let Some(first) = page.items.first() else { return Ok(found) };
        match keys::Key::parse(&first.key) {
            Some(keys::Key::Space(space)) => {
                found.push((space.to_owned(), is_deleting(&first.value)));
                range.start = keys::after_space(space);
            }
            // Objects without a record are the rest of an erased space; the record goes last, so there are none.
            Some(keys::Key::Object { space, .. }) => range.start = keys::after_space(space),
            None => range.start = keys::successor(&first.key),
        }
    }
}

impl Inner {
    /// Rebuilds the catalog of a space from its stored definitions.
    pub(crate) async fn refresh(&self, space: &Space) -> Result<(), tideline_store::Error> {
        let _one_at_a_time = space.refreshing.lock().await;
        let definitions = self.definitions(&space.name, None).await?;
        let catalog = Arc::new(Catalog::new(definitions, &space.virtuals));
        space.catalog.send_replace(catalog);
        Ok(())
    }

    /// The definitions of a space, compiled. One that no longer compiles is left out and logged.
    pub(crate) async fn definitions(
        &self,
        space: &str,
        at: Option<Revision>,
    ) -> Result<Vec<Arc<Definition>>, tideline_store::Error> {
        let mut range = keys::resource(space, CRD_GROUP, CRDS, None);
        let (mut at, mut found) = (at, Vec::new());
        loop {
            let page = self.store.range(range.clone(), at, DEFINITIONS_PAGE).await?;
            for item in &page.items {
                let read = || object::read(item).map_err(|error| error.message).and_then(|crd| self.compile(&crd));
                match long_work::for_bytes(item.value.len(), read) {
                    Ok(definition) => found.push(definition),
                    Err(why) => {
                        let key = String::from_utf8_lossy(&item.key).into_owned();
                        tracing::warn!(key, why, "a stored definition is not served");
                    }
                }
            }
            match page.items.last() {
                Some(last) if page.more => range.start = keys::successor(&last.key),
                Some(_) | None => return Ok(found),
            }
            at = Some(page.revision);
        }
    }

    /// Compiles a definition, or finds it compiled: a thousand spaces of one class share their definitions.
    fn compile(&self, crd: &Value) -> Result<Arc<Definition>, String> {
        let mut key = digest::Context::new(&digest::SHA256);
        let state = [object::is_terminating(crd), Definition::kind_of(crd).is_some()];
        for part in [&crd["metadata"]["name"], &crd["spec"], &json!(state)] {
            key.update(part.to_string().as_bytes());
        }
        let key: [u8; 32] = key.finish().as_ref().try_into().expect("SHA-256 has 32 bytes");
        let lock = || self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&key).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let compiled = Arc::new(Definition::compile(crd).map_err(|errors| errors.to_string())?);
        let mut all = lock();
        if all.len() >= COMPILED_SWEEP {
            all.retain(|_, one| one.strong_count() > 0);
        }
        all.insert(key, Arc::downgrade(&compiled));
        Ok(compiled)
    }

    pub(crate) async fn spaces_at(&self, at: Option<Revision>) -> Result<Vec<(String, bool)>, tideline_store::Error> {
        spaces_at(&*self.store, at).await
    }

    /// Removes everything of a space; the record goes last, so that an interrupted erasure is taken up again.
    pub(crate) async fn erase_space(&self, name: &str) -> Result<(), tideline_store::Error> {
        let record_key = keys::space_record(name);
        let mark = Commit { compare: Vec::new(), ops: vec![Op::Put(record_key.clone(), State::Deleting.record())] };
        self.store.commit(mark).await?;
        let objects = KeyRange { start: keys::successor(&record_key), ..keys::space(name) };
        loop {
            let page = self.store.range(objects.clone(), None, ERASE_BATCH).await?;
            if page.items.is_empty() {
                break;
            }
            let ops = page.items.into_iter().map(|item| Op::Delete(item.key)).collect();
            self.store.commit(Commit { compare: Vec::new(), ops }).await?;
        }
        self.store.commit(Commit { compare: Vec::new(), ops: vec![Op::Delete(record_key)] }).await?;
        Ok(())
    }
}
