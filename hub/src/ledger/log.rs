use std::collections::{BTreeMap, VecDeque};

use roaring::RoaringBitmap;
use tideline_common::limits::DESIRED_OBJECTS_MAX;
use tideline_common::{ObjectKey, PrunePolicy, Revision, Uid};

use super::{Retention, TargetIndex};

/// Changes that deltas are made from. Two whole sets, so that a target that reads a snapshot of the largest set page by
/// page still gets a delta afterwards while another such set is placed.
pub const LOG_ENTRIES_MAX: usize = 2 * DESIRED_OBJECTS_MAX;
/// Bytes of all bitmaps in the log. A bitmap of 10,000 targets takes up to 8 KiB, so this is the last 8,000 changes that
/// concern all of them, or all of [`LOG_ENTRIES_MAX`] where they concern a few (about 50 bytes each).
pub const LOG_BYTES_MAX: u64 = 64 << 20;

/// One destination key that changed in one commit.
#[derive(Clone, Debug)]
pub(super) struct LogEntry {
    pub(super) revision: Revision,
    pub(super) key: ObjectKey,
    /// What these targets had at the key, where they have nothing there any more.
    pub(super) left: Option<Left>,
    pub(super) targets: RoaringBitmap,
}

/// What left a place, and what becomes of what stands there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) source: Uid,
    pub(super) policy: PrunePolicy,
    pub(super) at: Revision,
}

/// The last changes of all desired sets, in order. In memory only; after a load it holds the last change of each thing
/// that is still there.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    entries: VecDeque<LogEntry>,
    bytes: u64,
    /// Changes up to here may be missing.
    floor: Revision,
}

impl Log {
    /// `entry` must not be older than the last.
    pub(super) fn push(&mut self, entry: LogEntry, retention: Retention) {
        self.bytes += weight(&entry);
        self.entries.push_back(entry);
        while self.entries.len() > retention.log_entries || self.bytes > LOG_BYTES_MAX {
            let Some(dropped) = self.entries.pop_front() else { break };
            self.bytes -= weight(&dropped);
            self.floor = dropped.revision;
        }
    }

    /// The keys after `after` that changed for `target` since `since`, each with what left it last, if anything did: its
    /// tombstone speaks for whichever source the agent still has there, where it is to have nothing. None where the log does
    /// not reach back that far.
    pub(super) fn changes(
        &self,
        target: TargetIndex,
        since: Revision,
        after: Option<&ObjectKey>,
    ) -> Option<BTreeMap<&ObjectKey, Option<&Left>>> {
        if since < self.floor {
            return None;
        }
        let first = self.entries.partition_point(|entry| entry.revision <= since);
        let concerns =
            |entry: &&LogEntry| entry.targets.contains(target) && after.is_none_or(|after| entry.key > *after);
        let mut changes: BTreeMap<_, Option<&Left>> = BTreeMap::new();
        for entry in self.entries.range(first..).filter(concerns) {
            let left = changes.entry(&entry.key).or_default();
            *left = entry.left.as_ref().or(*left);
        }
        Some(changes)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

fn weight(entry: &LogEntry) -> u64 {
    entry.targets.serialized_size() as u64
}
