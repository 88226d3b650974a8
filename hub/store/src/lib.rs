//! Ordered, revisioned key-value storage behind the hub.
//!
//! [`Store`] is the whole contract: ordered keys, multi-version reads, an atomic
//! compare-and-commit, a watch from a revision, and compaction. The semantics are those
//! of etcd's `Range`, `Txn`, `Watch` and `Compact`, narrowed to what the hub needs, so
//! that an engine on etcd is a thin translation.
//!
//! Engines: [`SqliteStore`] (embedded default).

mod model;
mod sqlite;

pub use model::{
    Commit, CommitOutcome, Compare, Error, Event, Item, KeyRange, MAX_COMMIT_BYTES, MAX_COMMIT_OPS, Op, Page, Revision,
    Store, WatchStream,
};
pub use sqlite::SqliteStore;
pub use sqlite::backup::{Restore, backup};
