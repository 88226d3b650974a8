use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

/// Operations one [`Commit`] may hold; etcd's default bound is 128.
pub const MAX_COMMIT_OPS: usize = 100;
/// Bytes of keys and values one [`Commit`] may hold: etcd's default bound of a request, 1.5 MiB. A Secret may have 1 MiB of data, which
/// as base64 is a third more.
pub const MAX_COMMIT_BYTES: usize = 3 << 19;
const _: () = assert!(MAX_COMMIT_BYTES > (1 << 20) * 4 / 3 + (128 << 10));

/// A store-wide, strictly increasing commit number. Zero is before the first commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// A half-open range of keys, `start..end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub start: Bytes,
    pub end: Bytes,
}

/// One live key at the revision it was read at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub key: Bytes,
    pub value: Bytes,
    /// The commit that created this incarnation of the key.
    pub created: Revision,
    /// The commit that last wrote it.
    pub modified: Revision,
}

/// Part of a range, read at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The revision the whole page was read at; pass it on to read the next page consistently.
    pub revision: Revision,
    pub items: Vec<Item>,
    /// Whether the range has keys after the last item.
    pub more: bool,
}

/// A condition on one key. Every compare of a commit must hold for its operations to apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The key does not exist.
    Absent(Bytes),
    /// The key exists and was last written by exactly this commit.
    Modified(Bytes, Revision),
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Put(Bytes, Bytes),
    /// Deleting an absent key is no error and makes no event.
    Delete(Bytes),
}

/// An atomic compare-and-write. A key may appear in at most one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    pub compare: Vec<Compare>,
    pub ops: Vec<Op>,
}

/// What became of a [`Commit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// Durable (fsynced) at this revision. A commit without effect keeps the current revision.
    Committed(Revision),
    /// The first compare that did not hold, by index, and the item found there, if any.
    Conflict { compare: usize, found: Option<Item> },
}

/// One change of one key, in commit order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Put {
        item: Item,
        previous: Option<Item>,
    },
    Delete {
        key: Bytes,
        at: Revision,
        previous: Item,
    },
    /// Everything up to this revision has been delivered. Sent when the watcher has caught up with the
    /// history that existed when it was opened, and again whenever it is idle and the store has moved on.
    Progress(Revision),
}

impl Event {
    pub fn revision(&self) -> Revision {
        match self {
            Event::Put { item, .. } => item.modified,
            Event::Delete { at, .. } | Event::Progress(at) => *at,
        }
    }
}

/// Ends with one `Err` (`Compacted`, `Lagged`) and then `None`; the reader lists again.
pub type WatchStream = BoxStream<'static, Result<Event, Error>>;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The history asked for is gone; list again and continue from there.
    #[error("revision {asked} is compacted; the oldest readable one is {oldest}", asked = asked.0, oldest = oldest.0)]
    Compacted { asked: Revision, oldest: Revision },
    /// A revision this store has not reached: a client that talked to another, or a restored, store.
    #[error("revision {asked} is in the future; the store is at {current}", asked = asked.0, current = current.0)]
    Future { asked: Revision, current: Revision },
    /// The watcher read too slowly and was cut off to bound memory.
    #[error("the watcher fell behind by more than {0} events")]
    Lagged(usize),
    #[error(
        "a commit of {ops} operations and {bytes} bytes exceeds {MAX_COMMIT_OPS} operations or {MAX_COMMIT_BYTES} bytes"
    )]
    TooLarge { ops: usize, bytes: usize },
    /// Another process holds the data directory.
    #[error("{path} is in use by another process; stop it, or choose another --data-dir")]
    Locked { path: String },
    #[error(
        "{path} has schema version {found}, this build knows {known}; run the version that wrote it, or a newer one"
    )]
    Schema { path: String, found: i64, known: i64 },
    #[error("cannot {operation} {path}: {reason}")]
    Io { operation: &'static str, path: String, reason: String },
    /// The disk has no room. Nothing written so far is lost, and commits succeed again once there is some.
    #[error("cannot {operation} {path}: {reason}")]
    Full { operation: &'static str, path: String, reason: String },
    /// The disk failed, or the file is damaged. No commit succeeds until the store is opened again, and perhaps not then.
    #[error("cannot {operation} {path}: {reason}")]
    Failed { operation: &'static str, path: String, reason: String },
    #[error("the store is closed")]
    Closed,
}

/// Ordered, revisioned storage. All methods are cancel-safe: a dropped commit either happened whole or not at all.
pub trait Store: Send + Sync + 'static {
    /// The newest committed revision.
    fn revision(&self) -> Revision;

    fn get(&self, key: Bytes) -> BoxFuture<'_, Result<Option<Item>, Error>>;

    /// Reads at most `limit` keys of `range` in order, at `at` or at the newest revision.
    fn range(&self, range: KeyRange, at: Option<Revision>, limit: usize) -> BoxFuture<'_, Result<Page, Error>>;

    /// Counts the keys of `range` at `at`. It looks at each of them: to read on, [`Page::more`] is enough.
    fn count(&self, range: KeyRange, at: Revision) -> BoxFuture<'_, Result<u64, Error>>;

    /// Applies all operations if all compares hold; returns once durable.
    ///
    /// An `Io` or `Failed` error leaves open whether the commit happened, unless it names a fault of the commit itself.
    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<CommitOutcome, Error>>;

    /// Why the store takes no commit any more before it is opened again; none while it does.
    fn failure(&self) -> Option<Error>;

    /// Why it is to be given nothing that can wait, if there is a reason: what room is left on its disk is for deletions. It takes
    /// what it is given all the same.
    fn shortage(&self) -> Option<Error> {
        None
    }

    /// Delivers every change of `range` committed after `after`, in order, without gaps.
    ///
    /// `after` is usable from the compaction floor on: after `floor` everything is there; after `floor - 1`
    /// the changes of `floor` itself would be due, whose tombstones and previous values are gone, so that is
    /// `Compacted`. The stream itself says `Compacted` if history goes while it is still being read.
    ///
    /// # Errors
    ///
    /// `Compacted` where the changes after `after` are not all kept any more, `Future` where there are none yet.
    fn watch(&self, range: KeyRange, after: Revision) -> Result<WatchStream, Error>;

    /// Forgets history before `before`; live values stay.
    ///
    /// `before` becomes the floor: the oldest revision at which one can read, and after which one can watch.
    /// A floor already reached is no error.
    fn compact(&self, before: Revision) -> BoxFuture<'_, Result<(), Error>>;
}
