//! The one background task: it finishes what takes more than one write.
//!
//! - A namespace that is being deleted is emptied, then let go.
//! - A definition that is being deleted is emptied of its objects, then let go.
//! - A space whose erasure was interrupted is erased.
//! - Catalogs and the list of spaces follow what other processes on the same store write.
//!
//! It follows one watch over everything and holds a list of duties; a duty is looked at again when something that
//! it waits for changes, and all of them once a minute.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use serde_json::{Value, json};
use tideline_store::{Commit, CommitOutcome, Compare, Event, Item, KeyRange, Op, Revision, WatchStream};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::catalog::{CRD_GROUP, CRDS, CUSTOM_CLEANUP, NAMESPACES, set_condition};
use crate::keys::Key;
use crate::object::CONTENT_FINALIZER;
use crate::state::{Inner, is_deleting};
use crate::status::ApiError;
use crate::write::{begin_deletion, holds_content};
use crate::{keys, long_work, object};

/// How often every open duty is looked at without a reason.
const RESYNC: Duration = Duration::from_mins(1);
/// How long the task waits after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// Objects removed in one commit.
const BATCH: usize = tideline_store::MAX_COMMIT_OPS;

/// Finalizers that the condition of a namespace names, each of 317 bytes at most: with all of them it might be too large to store,
/// and the namespace stayed for ever.
const FINALIZERS_TOLD_MAX: usize = 100;

/// Something that is left to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Duty {
    EraseSpace(String),
    EmptyNamespace { space: String, namespace: String },
    EmptyDefinition { space: String, definition: String },
}

/// Whether a duty wants to be looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Due,
    /// Until something it depends on changes.
    Waiting,
}

pub(crate) async fn run(inner: Arc<Inner>, cancel: CancellationToken) {
    let mut controller = Controller { inner, duties: BTreeMap::new() };
    while !cancel.is_cancelled() {
        let Some(ended) = cancel.run_until_cancelled(controller.follow()).await else { return };
        match ended {
            Err(tideline_store::Error::Closed) => return,
            Err(error) => tracing::info!(%error, "the controller reads everything again"),
            Ok(()) => {}
        }
        if cancel.run_until_cancelled(sleep(RETRY)).await.is_none() {
            return;
        }
    }
}

struct Controller {
    inner: Arc<Inner>,
    duties: BTreeMap<Duty, State>,
}

impl Controller {
    /// Reads the present state, then follows the changes; ends with the watch.
    async fn follow(&mut self) -> Result<(), tideline_store::Error> {
        let at = self.inner.store.revision();
        self.survey(at).await?;
        let mut stream = self.inner.store.watch(keys::everything(), at)?;
        let mut resync = Instant::now() + RESYNC;
        loop {
            self.work().await?;
            if !self.observe(&mut stream, resync).await? {
                return Ok(());
            }
            if Instant::now() >= resync {
                resync = Instant::now() + RESYNC;
                self.duties.values_mut().for_each(|state| *state = State::Due);
            }
        }
    }

    /// Waits for a change, and takes in those that are there already. False when the watch has ended.
    async fn observe(&mut self, stream: &mut WatchStream, resync: Instant) -> Result<bool, tideline_store::Error> {
        let retry = self.duties.values().any(|state| *state == State::Due);
        let wait = if retry { resync.min(Instant::now() + RETRY) } else { resync };
        let mut event = tokio::select! {
            biased;
            event = stream.next() => event,
            () = sleep_until(wait) => return Ok(true),
        };
        loop {
            match event {
                None => return Ok(false),
                Some(event) => self.take(event?).await?,
            }
            match futures::FutureExt::now_or_never(stream.next()) {
                Some(more) => event = more,
                None => return Ok(true),
            }
        }
    }

    /// Finds what was left undone, and what nobody told of: the list of spaces, their catalogs, and one pass over the
    /// namespaces and definitions of each. The watch tells only what comes after `at`.
    async fn survey(&mut self, at: Revision) -> Result<(), tideline_store::Error> {
        self.duties.clear();
        for open in self.inner.all_spaces() {
            if self.inner.store.get(keys::space_record(&open.name)).await?.is_none() {
                self.inner.forget(&open);
            }
        }
        for (space, deleting) in self.inner.spaces_at(Some(at)).await? {
            if deleting {
                self.duties.insert(Duty::EraseSpace(space), State::Due);
                continue;
            }
            match self.inner.space(&space) {
                Some(open) => self.inner.refresh(&open).await?,
                None => self.inner.adopt(&space).await?,
            }
            for (group, plural) in [("", NAMESPACES), (CRD_GROUP, CRDS)] {
                let mut range = keys::resource(&space, group, plural, None);
                loop {
                    let page = self.inner.store.range(range.clone(), Some(at), BATCH).await?;
                    for item in &page.items {
                        self.consider(item);
                    }
                    match page.items.last() {
                        Some(last) if page.more => range.start = keys::successor(&last.key),
                        Some(_) | None => break,
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes a namespace or definition a duty if it is being deleted.
    fn consider(&mut self, item: &Item) {
        let Some(Key::Object { space, group, plural, name, .. }) = Key::parse(&item.key) else { return };
        let duty = match (group, plural) {
            ("", NAMESPACES) => Duty::EmptyNamespace { space: space.to_owned(), namespace: name.to_owned() },
            (CRD_GROUP, CRDS) => Duty::EmptyDefinition { space: space.to_owned(), definition: name.to_owned() },
            _ => return,
        };
        if object::read(item).is_ok_and(|object| object::is_terminating(&object)) {
            self.duties.insert(duty, State::Due);
        }
    }

    async fn take(&mut self, event: Event) -> Result<(), tideline_store::Error> {
        let (key, item) = match &event {
            Event::Put { item, .. } => (&item.key, Some(item)),
            Event::Delete { key, .. } => (key, None),
            Event::Progress(_) => return Ok(()),
        };
        match (Key::parse(key), item) {
            (Some(Key::Space(space)), Some(item)) if is_deleting(&item.value) => {
                // The process that erases a space needs no help; if it stops half way, the next survey takes over.
                if self.inner.space(space).is_some_and(|open| !open.is_deleting()) {
                    self.duties.insert(Duty::EraseSpace(space.to_owned()), State::Waiting);
                }
            }
            (Some(Key::Space(space)), Some(_)) => self.inner.adopt(space).await?,
            (Some(Key::Space(space)), None) => {
                let open = self.inner.space(space);
                // Told late, it may have been made again by now.
                if let Some(open) = open
                    && self.inner.store.get(key.clone()).await?.is_none()
                {
                    self.inner.forget(&open);
                }
            }
            (Some(Key::Object { space, group: CRD_GROUP, plural: CRDS, .. }), item) => {
                if let Some(space) = self.inner.space(space) {
                    self.inner.refresh(&space).await?;
                }
                if let Some(item) = item {
                    self.consider(item);
                }
            }
            (Some(Key::Object { group: "", plural: NAMESPACES, .. }), Some(item)) => self.consider(item),
            (Some(Key::Object { space, group, plural, namespace, .. }), None) => {
                if !self.duties.is_empty() {
                    self.awaken(space, group, plural, namespace);
                }
            }
            (Some(Key::Object { .. }), Some(_)) | (None, _) => {}
        }
        Ok(())
    }

    /// An object is gone: whoever waited for it looks again.
    fn awaken(&mut self, space: &str, group: &str, plural: &str, namespace: Option<&str>) {
        let definition = format!("{plural}.{group}");
        for duty in [
            namespace.map(|namespace| Duty::EmptyNamespace { space: space.into(), namespace: namespace.into() }),
            Some(Duty::EmptyDefinition { space: space.into(), definition }),
        ] {
            if let Some(state) = duty.and_then(|duty| self.duties.get_mut(&duty)) {
                *state = State::Due;
            }
        }
    }

    /// Does what is due. A duty that fails stays due.
    async fn work(&mut self) -> Result<(), tideline_store::Error> {
        let due: Vec<Duty> =
            self.duties.iter().filter(|(_, state)| **state == State::Due).map(|(duty, _)| duty.clone()).collect();
        for duty in due {
            let done = match &duty {
                Duty::EraseSpace(space) => self.inner.finish_erasure(space).await,
                Duty::EmptyNamespace { space, namespace } => self.inner.empty_namespace(space, namespace).await,
                Duty::EmptyDefinition { space, definition } => self.inner.empty_definition(space, definition).await,
            };
            match done {
                Ok(Progress::Done) => {
                    self.duties.remove(&duty);
                }
                Ok(Progress::Waits) => {
                    self.duties.insert(duty, State::Waiting);
                }
                Ok(Progress::Again) => {}
                Err(error) => tracing::warn!(?duty, %error, "cannot finish a deletion, retrying"),
            }
        }
        Ok(())
    }
}

enum Progress {
    Done,
    /// Something else has to happen first.
    Waits,
    /// Another writer was at the same object.
    Again,
}

/// What is left of a range after an attempt to empty it.
#[derive(Default)]
struct Left {
    objects: usize,
    finalizers: BTreeMap<String, usize>,
}

impl Inner {
    /// Deletes all objects of a range, as their finalizers allow.
    async fn empty(&self, mut range: KeyRange, left: &mut Left) -> Result<(), ApiError> {
        let now = object::now();
        loop {
            let page = self.store.range(range.clone(), None, BATCH).await?;
            let mut free = Vec::new();
            for item in &page.items {
                // Until somebody deletes it as it is: its finalizers are not known.
                let Ok(mut object) = long_work::for_bytes(item.value.len(), || object::read(item)) else {
                    left.objects += 1;
                    continue;
                };
                let mut held = false;
                for finalizer in object::finalizers(&object) {
                    *left.finalizers.entry(finalizer.to_owned()).or_default() += 1;
                    held = true;
                }
                if !held {
                    free.push(item);
                    continue;
                }
                left.objects += 1;
                if !object::is_terminating(&object) {
                    begin_deletion(&mut object, &now);
                    object::metadata(&mut object).remove("resourceVersion");
                    // A conflict means that somebody writes the object: its next event brings us back.
                    self.put_if(item, &object).await?;
                }
            }
            left.objects += self.remove(&free).await?;
            match page.items.last() {
                Some(last) if page.more => range.start = keys::successor(&last.key),
                Some(_) | None => return Ok(()),
            }
        }
    }

    async fn put_if(&self, item: &Item, object: &Value) -> Result<bool, ApiError> {
        let compare = vec![Compare::Modified(item.key.clone(), item.modified)];
        let ops = vec![Op::Put(item.key.clone(), encode(object, item)?)];
        Ok(matches!(self.store.commit(Commit { compare, ops }).await?, CommitOutcome::Committed(_)))
    }

    /// Deletes these objects as they are; gives the number of those that were written in the meantime.
    async fn remove(&self, items: &[&Item]) -> Result<usize, ApiError> {
        let condition = |item: &Item| Compare::Modified(item.key.clone(), item.modified);
        let all = Commit {
            compare: items.iter().map(|item| condition(item)).collect(),
            ops: items.iter().map(|item| Op::Delete(item.key.clone())).collect(),
        };
        if items.is_empty() || matches!(self.store.commit(all).await?, CommitOutcome::Committed(_)) {
            return Ok(0);
        }
        let mut kept = 0;
        for item in items {
            let one = Commit { compare: vec![condition(item)], ops: vec![Op::Delete(item.key.clone())] };
            if let CommitOutcome::Conflict { found: Some(_), .. } = self.store.commit(one).await? {
                kept += 1;
            }
        }
        Ok(kept)
    }

    /// Erases a space that is still being deleted: meanwhile it may be gone, and made again.
    async fn finish_erasure(&self, space: &str) -> Result<Progress, ApiError> {
        let record = self.store.get(keys::space_record(space)).await?;
        if record.is_some_and(|record| is_deleting(&record.value)) {
            self.erase_space(space).await?;
        }
        Ok(Progress::Done)
    }

    async fn empty_namespace(&self, space: &str, namespace: &str) -> Result<Progress, ApiError> {
        let key = keys::object(space, "", NAMESPACES, None, namespace);
        let Some(item) = self.store.get(key.clone()).await? else { return Ok(Progress::Done) };
        let mut object = object::read(&item)?;
        if !object::is_terminating(&object) {
            return Ok(Progress::Done);
        }
        let Some(open) = self.space(space) else { return Ok(Progress::Done) };
        let mut left = Left::default();
        for resource in open.catalog().stored().filter(|resource| resource.namespaced) {
            self.empty(keys::resource(space, &resource.group, &resource.plural, Some(namespace)), &mut left).await?;
        }
        object::metadata(&mut object).remove("resourceVersion");
        let before = object.clone();
        if left.objects > 0 {
            tell(&mut object, &left);
            let stored = object == before || self.put_if(&item, &object).await?;
            return Ok(if stored { Progress::Waits } else { Progress::Again });
        }
        if let Some(list) = object.pointer_mut("/spec/finalizers").and_then(Value::as_array_mut) {
            list.retain(|one| one != CONTENT_FINALIZER);
        }
        let held = holds_content(&object) || object::finalizers(&object).next().is_some();
        if held {
            let stored = object == before || self.put_if(&item, &object).await?;
            return Ok(if stored { Progress::Waits } else { Progress::Again });
        }
        let commit =
            Commit { compare: vec![Compare::Modified(key.clone(), item.modified)], ops: vec![Op::Delete(key)] };
        Ok(match self.store.commit(commit).await? {
            CommitOutcome::Committed(_) => Progress::Done,
            CommitOutcome::Conflict { .. } => Progress::Again,
        })
    }

    async fn empty_definition(&self, space: &str, definition: &str) -> Result<Progress, ApiError> {
        let key = keys::object(space, CRD_GROUP, CRDS, None, definition);
        let Some(item) = self.store.get(key.clone()).await? else { return Ok(Progress::Done) };
        let mut object = object::read(&item)?;
        if !object::is_terminating(&object) {
            return Ok(Progress::Done);
        }
        let (group, plural) = (object::text(&object, "/spec/group"), object::text(&object, "/spec/names/plural"));
        let mut left = Left::default();
        self.empty(keys::resource(space, group, plural, None), &mut left).await?;
        if left.objects > 0 {
            return Ok(Progress::Waits);
        }
        let metadata = object::metadata(&mut object);
        metadata.remove("resourceVersion");
        if let Some(list) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) {
            list.retain(|one| one != CUSTOM_CLEANUP);
        }
        let op = match object::finalizers(&object).next() {
            Some(_) => Op::Put(key.clone(), encode(&object, &item)?),
            None => Op::Delete(key.clone()),
        };
        let commit = Commit { compare: vec![Compare::Modified(key, item.modified)], ops: vec![op] };
        if let CommitOutcome::Conflict { .. } = self.store.commit(commit).await? {
            return Ok(Progress::Again);
        }
        if let Some(open) = self.space(space) {
            self.refresh(&open).await?;
        }
        Ok(Progress::Done)
    }
}

fn encode(object: &Value, instead_of: &Item) -> Result<Bytes, ApiError> {
    object::encode(object, &instead_of.value).map_err(|too_deep| ApiError::internal(too_deep.to_string()))
}

/// Says in a namespace's conditions what keeps it.
fn tell(namespace: &mut Value, left: &Left) {
    let now = object::now();
    if !namespace.get("status").is_some_and(Value::is_object) {
        namespace["status"] = json!({});
    }
    let content = format!("Some resources are remaining: {} resource instances", left.objects);
    set_condition(namespace, "NamespaceContentRemaining", "True", "SomeResourcesRemain", &content, &now);
    let told = left.finalizers.iter().take(FINALIZERS_TOLD_MAX);
    let mut finalizers: Vec<String> =
        told.map(|(name, count)| format!("{name} in {count} resource instances")).collect();
    if left.finalizers.len() > finalizers.len() {
        finalizers.push(format!("and {} more", left.finalizers.len() - finalizers.len()));
    }
    if !finalizers.is_empty() {
        let text = format!("Some content in the namespace has finalizers remaining: {}", finalizers.join(", "));
        set_condition(namespace, "NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", &text, &now);
    }
}
