//! The one task that writes the ledger: takes what is to be persisted, writes it, and makes it visible.

mod store_health;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryFutureExt, TryStreamExt, stream};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tideline_common::{Monotonic, RevisionId, SegmentId, TargetId};
use tideline_runtime::retry::{self, Failure};
use tideline_runtime::{Backoff, exit};
use tideline_store::{Commit, CommitOutcome, Error as StoreError, KeyRange, Op, Store};
use tokio::time::{MissedTickBehavior, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use uuid::Uuid;

use crate::engine::{Engine, Gathered, Work};
use crate::ledger::{self, Batch, Fresh, Ledger, Retention, Write, chunked};
use crate::link::core::Config;
use crate::removal_guards::Fuse;
use crate::shared::Shared;

pub(crate) use self::store_health::{StoreHealth, StoreState};

/// What every record of who holds a target begins with; the rest is the target id, the value JSON.
const HOLDER_PREFIX: &str = "holder/";
/// What every record of a target that has or had an agent begins with; the rest is the target id, the value JSON.
const TARGET_PREFIX: &str = "target/";
/// What every record of a SyncTarget as it was read last begins with; the rest is the target id, the value JSON.
const INVENTORY_PREFIX: &str = "inventory/";
/// How long a revision can be read and watched from, at least: as a kube-apiserver on etcd has it by default.
const HISTORY: Duration = Duration::from_mins(5);
/// The first and the longest wait before a failed write is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// Chunks that are written at once. Beside them another write waits for a hundredth of a second: a chunk is a megabyte at most,
/// and far less where it is full of records.
const CHUNKS_AT_ONCE: usize = 16;
const _: () = assert!(ledger::CHUNK_BYTES_MAX <= tideline_store::MAX_COMMIT_BYTES);
const _: () = assert!(ledger::CHUNK_OPS_MAX <= tideline_store::MAX_COMMIT_OPS);
/// How often a store is looked at that nothing of the ledger is written to.
const FAILURE_LOOK_EVERY: Duration = Duration::from_secs(5);
/// Objects whose targets are worked out at once: some twenty milliseconds, in which nobody else gets to the engine.
const OBJECTS_AT_ONCE: usize = 5_000;
/// From one such part to the next.
const BETWEEN_PARTS: Duration = Duration::from_millis(1);
/// Keys read at once when the ledger is loaded.
const LOAD_PAGE: usize = 1_000;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read the ledger from the store")]
    Store(#[from] StoreError),
    #[error(transparent)]
    Ledger(#[from] ledger::Error),
    #[error("the record of who holds a target {key:?} is damaged; restore the store from a backup")]
    Holder { key: String },
    #[error("the record of a target {key:?} is damaged; restore the store from a backup")]
    Target { key: String },
    #[error(
        "the store takes no more writes. Check its disk, and start the hub again; if it does not start, move the data directory \
         away and restore a backup: tideline-hub restore FILE --data-dir DIR"
    )]
    Failed(#[source] StoreError),
}

/// Reads what earlier runs persisted, and begins a segment of the ledger's history for this one.
pub(crate) async fn load(store: &dyn Store, config: Config, settle: Duration, fuse: Fuse) -> Result<Engine, Error> {
    let mut ledger = Ledger::load(read_all(store, ledger::KEY_PREFIX).await?, Retention::default())?;
    let batch = ledger.begin_run(fresh(Monotonic::from_millis(0)));
    write_batch(store, &batch).await?;
    ledger.commit(batch).expect("nothing else was committed since it was loaded");
    let mut holders = BTreeMap::new();
    for (key, value) in read_all(store, HOLDER_PREFIX).await? {
        let (target, holder) = parse(HOLDER_PREFIX, &key, &value).ok_or_else(|| Error::Holder { key: lossy(&key) })?;
        holders.insert(target, holder);
    }
    let mut remembered = BTreeMap::new();
    for (key, value) in read_all(store, TARGET_PREFIX).await? {
        let (target, record) = parse(TARGET_PREFIX, &key, &value).ok_or_else(|| Error::Target { key: lossy(&key) })?;
        remembered.insert(target, record);
    }
    let mut inventory = BTreeMap::new();
    for (key, value) in read_all(store, INVENTORY_PREFIX).await? {
        if let Some((target, record)) = parse(INVENTORY_PREFIX, &key, &value) {
            inventory.insert(target, record);
        } else {
            // It is written anew once the SyncTarget is read.
            warn!(key = lossy(&key), "what was last known of a SyncTarget is damaged, and left out");
        }
    }
    let mut engine = Engine::new(config, settle, fuse, ledger, holders);
    engine.remember(remembered);
    engine.know(inventory);
    Ok(engine)
}

/// Persists until `shutdown`. A write that the store does not take is tried again for as long as it takes: what is not
/// persisted is not told, and all else goes on. `health` says so meanwhile.
///
/// # Errors
///
/// The store failed for good, and only a new process can open it again.
pub(crate) async fn run(
    shared: Shared,
    store: Arc<dyn Store>,
    health: StoreHealth,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let mut looks = tokio::time::interval(FAILURE_LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let (gathered, now) = gather(&shared).await;
        let work = apart(move || gathered.plan(fresh(now))).await;
        if !work.is_empty() {
            match persist(store.as_ref(), &work, &health, &shutdown).await {
                Ok(()) => {}
                Err(retry::Error::Cancelled) => return Ok(()),
                Err(retry::Error::Permanent(error)) => return Err(Error::Failed(error)),
            }
            let work = apart(move || work.written()).await;
            let former = shared.step(|engine, now| engine.committed(now, work));
            apart(move || drop(former)).await;
            continue;
        }
        let timer = shared.read(Engine::timer).map(|at| shared.instant(at));
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            () = shared.work() => {}
            () = async { sleep_until(timer.expect("the arm is off without a timer")).await }, if timer.is_some() => {}
            _ = looks.tick() => {
                // Where others write, the ledger may have nothing to.
                if let Some(error) = store.failure()
                    && let Failure::Permanent(error) = health.judge(error)
                {
                    return Err(Error::Failed(error));
                }
            }
        }
    }
}

/// Takes what is to be planned and persisted, part by part, and says when.
async fn gather(shared: &Shared) -> (Gathered, Monotonic) {
    loop {
        let (gathered, now) = shared.step(|engine, now| {
            engine.tick(now);
            (engine.gather(now, OBJECTS_AT_ONCE), now)
        });
        if let Some(gathered) = gathered {
            return (gathered, now);
        }
        // A lock is handed on to nobody: who waits gets it while this sleeps.
        sleep(BETWEEN_PARTS).await;
    }
}

/// Does what may take seconds where no other task waits for it.
async fn apart<T: Send + 'static>(does: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(does).await {
        Ok(done) => done,
        Err(failed) => match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends, and this with it.
            Err(_cancelled) => std::future::pending().await,
        },
    }
}

/// Writes all of it, in order.
async fn persist(
    store: &dyn Store,
    work: &Work,
    health: &StoreHealth,
    shutdown: &CancellationToken,
) -> Result<(), retry::Error<StoreError>> {
    let backoff = Backoff::new(RETRY.0, RETRY.1);
    // A write that was begun is seen through: half of it is recovered from, and costs every agent a look at all its set.
    let write = || write(store, work).map_err(|error| health.judge(error));
    retry::retry("write the ledger", backoff, shutdown, write).await?;
    health.written();
    Ok(())
}

async fn write(store: &dyn Store, work: &Work) -> Result<(), StoreError> {
    // A later record of the same target is the only one that counts, and a commit names a key once.
    let holders: BTreeMap<_, _> = work.holders.iter().map(|write| (write.target, &*write.record)).collect();
    let holders = holders.into_iter().map(|(target, record)| put(HOLDER_PREFIX, target, record));
    let remembered = work.remembered.iter().map(|(target, record)| put(TARGET_PREFIX, *target, record));
    let inventory = work.inventory.iter().map(|(target, record)| match record {
        Some(record) => put(INVENTORY_PREFIX, *target, record),
        None => Write { key: format!("{INVENTORY_PREFIX}{target}").into(), value: None },
    });
    // Holders before what says that their keys were replaced: a crash in between would leave the former holder in its place.
    // And both before the batch: once that has forgotten a target, nobody else knows what ran there.
    for chunk in chunked(holders.chain(remembered).chain(inventory).map(|write| vec![write]).collect()) {
        write_chunks(store, &[chunk]).await?;
    }
    if let Some(batch) = &work.batch {
        write_batch(store, batch).await?;
    }
    Ok(())
}

async fn write_batch(store: &dyn Store, batch: &Batch) -> Result<(), StoreError> {
    for stage in batch.stages() {
        write_chunks(store, stage).await?;
    }
    Ok(())
}

fn put(prefix: &str, target: TargetId, record: &impl Serialize) -> Write {
    let value = serde_json::to_vec(record).expect("a record has only strings and numbers");
    Write { key: format!("{prefix}{target}").into(), value: Some(value) }
}

/// Writes chunks, several at once: the store brings to the disk together what waits for it.
async fn write_chunks(store: &dyn Store, chunks: &[Vec<Write>]) -> Result<(), StoreError> {
    let written = stream::iter(0..chunks.len()).map(|nth| {
        let ops = chunks[nth].iter().map(|write| match &write.value {
            Some(value) => Op::Put(write.key.clone().into(), value.clone().into()),
            None => Op::Delete(write.key.clone().into()),
        });
        commit(store, ops.collect())
    });
    written.buffered(CHUNKS_AT_ONCE).try_collect().await
}

/// Ids that no other batch has, of this hub or of a copy of it: so they come from the system each time, and not from a
/// state of this process that a machine which is set back would have twice.
pub(crate) fn fresh(now: Monotonic) -> Fresh {
    let (revision, segment) = (RevisionId::from_uuid(Uuid::new_v4()), SegmentId::from_uuid(Uuid::new_v4()));
    Fresh { now, revision, segment }
}

async fn commit(store: &dyn Store, ops: Vec<Op>) -> Result<(), StoreError> {
    match store.commit(Commit { compare: Vec::new(), ops }).await? {
        CommitOutcome::Committed(_) => Ok(()),
        CommitOutcome::Conflict { .. } => unreachable!("a commit without compares has no conflict"),
    }
}

/// Forgets history that no reader should still need, until `shutdown`. A store that does not move is left alone.
pub(crate) async fn compact(store: Arc<dyn Store>, shutdown: CancellationToken) -> Result<(), Infallible> {
    let mut keep = store.revision();
    let mut compacted = keep;
    loop {
        if shutdown.run_until_cancelled(tokio::time::sleep(HISTORY)).await.is_none() {
            return Ok(());
        }
        if keep > compacted {
            match store.compact(keep).await {
                Ok(()) => compacted = keep,
                Err(error) => warn!(error = exit::chain(&error), "cannot compact the store; trying again later"),
            }
        }
        keep = store.revision();
    }
}

async fn read_all(store: &dyn Store, prefix: &str) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
    let mut all = Vec::new();
    let mut range = prefix_range(prefix);
    let mut at = None;
    loop {
        let page = store.range(range.clone(), at, LOAD_PAGE).await?;
        at = Some(page.revision);
        let Some(last) = page.items.last() else { return Ok(all) };
        range.start = [last.key.as_ref(), &[0]].concat().into();
        all.extend(page.items.into_iter().map(|item| (item.key, item.value)));
        if !page.more {
            return Ok(all);
        }
    }
}

/// All keys that begin with an ASCII prefix.
fn prefix_range(prefix: &str) -> KeyRange {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    KeyRange { start: prefix.to_owned().into(), end: end.into() }
}

fn parse<T: DeserializeOwned>(prefix: &str, key: &[u8], value: &[u8]) -> Option<(TargetId, T)> {
    let target = std::str::from_utf8(key).ok()?.strip_prefix(prefix)?.parse().ok()?;
    Some((target, serde_json::from_slice(value).ok()?))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests;
