//! Every bound of the SQLite engine.

use crate::{MAX_COMMIT_BYTES, MAX_COMMIT_OPS};
use std::time::Duration;

/// Commits waiting for the writer; more wait in their callers, which hold the bytes anyway. Twice the 64
/// concurrent committers the hub runs with, and at most 192 MiB.
pub(super) const QUEUE_COMMITS: usize = 128;
/// Bytes after which a group of commits is closed: one transaction stays far below the WAL's size
/// target, whatever the queue holds.
pub(super) const GROUP_BYTES: usize = 8 * MAX_COMMIT_BYTES;

/// Connections for readers. Reads are short and mostly from the page cache; a fifth would wait for a core.
pub(super) const READERS: usize = 4;
/// Page cache of one connection. Five connections make 20 MiB.
pub(super) const CACHE_KIB: usize = 4 * 1024;
/// Size to which the write-ahead log is cut back after a checkpoint. It is checkpointed every 1,000 pages
/// (4 MiB); only a burst under a long read makes it larger.
pub(super) const WAL_BYTES: usize = 32 << 20;

/// Events one live watcher may have undelivered: forty full commits. An event is about 200 bytes beside
/// its values, which watchers share, so a stuck watcher costs under 1 MiB before it is cut off.
pub(super) const WATCH_EVENTS: usize = 4096;
/// Commits a new watcher may be behind when it goes live; farther behind it reads history, which needs no
/// buffer. A quarter of its buffer at most.
pub(super) const HANDOVER_COMMITS: u64 = 10;
const _: () = assert!(HANDOVER_COMMITS * (MAX_COMMIT_OPS as u64) * 4 <= WATCH_EVENTS as u64);
/// The least time between two rounds of `Event::Progress`.
pub(super) const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Events read from history at once, a little more to end with a whole commit.
pub(super) const REPLAY_EVENTS: usize = 256;
/// Bytes of values read from history at once, exceeded by at most one commit and its previous values.
pub(super) const REPLAY_BYTES: usize = 4 * MAX_COMMIT_BYTES;
/// Commits scanned at once for a watcher of few keys, so that no read transaction holds the WAL for long:
/// at most 102,400 rows.
pub(super) const REPLAY_COMMITS: u64 = 1024;

/// Index entries one step of a compaction looks at; a step takes a few milliseconds, and commits go
/// between steps. At least two, so that every step gets somewhere.
pub(super) const COMPACTION_SCAN: usize = 500;
const _: () = assert!(COMPACTION_SCAN >= 2);
/// Pages given back to the file system in one step: 1 MiB.
pub(super) const RELEASE_PAGES: i64 = 256;
/// Free pages are given back while they are more than one in this many; the rest is reused.
pub(super) const FREE_SHARE: i64 = 8;
