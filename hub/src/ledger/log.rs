use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use roaring::RoaringBitmap;
use tideline_common::limits::DESIRED_OBJECTS_MAX;
use tideline_common::{ObjectKey, PrunePolicy, Revision, Uid};

use super::{Retention, TargetIndex};
use crate::bitmap::fit;

/// Changes that deltas are made from. Two whole sets, so that a target that reads a snapshot of the largest set page by
/// page still gets a delta afterwards while another such set is placed.
pub const LOG_ENTRIES_MAX: usize = 2 * DESIRED_OBJECTS_MAX;
/// Bytes of all bitmaps in the log. A bitmap of 10,000 targets takes up to 8 KiB, so this is the last 8,000 changes that
/// concern all of them, or all of [`LOG_ENTRIES_MAX`] where they concern a few (about 50 bytes each).
pub const LOG_BYTES_MAX: u64 = 64 << 20;

/// Entries of one page: what a change copies at most where another copy of the log is about.
const PAGE: usize = 256;

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
    /// None of them empty; the last one grows. Copies of the log share them.
    pages: VecDeque<Arc<Vec<LogEntry>>>,
    /// Entries at the begin of the first page that are forgotten.
    forgotten: usize,
    len: usize,
    bytes: u64,
    /// Changes up to here may be missing.
    floor: Revision,
}

impl Log {
    /// `entry` must not be older than the last.
    pub(super) fn push(&mut self, mut entry: LogEntry, retention: Retention) {
        fit(&mut entry.targets);
        self.bytes += weight(&entry);
        self.len += 1;
        match self.pages.back_mut().filter(|page| page.len() < PAGE) {
            Some(page) => Arc::make_mut(page).push(entry),
            None => self.pages.push_back(Arc::new(vec![entry])),
        }
        while self.len > retention.log_entries || self.bytes > LOG_BYTES_MAX {
            let Some(page) = self.pages.front() else { break };
            let dropped = &page[self.forgotten];
            (self.bytes, self.floor) = (self.bytes - weight(dropped), dropped.revision);
            (self.len, self.forgotten) = (self.len - 1, self.forgotten + 1);
            if self.forgotten == page.len() {
                self.pages.pop_front();
                self.forgotten = 0;
            }
        }
    }

    /// The first keys after `after` that changed for `target` since `since`, at most so many, each with what left it last, if
    /// anything did: its tombstone speaks for whichever source the agent still has there, where it is to have nothing. None
    /// where the log does not reach back that far.
    pub(super) fn changes(
        &self,
        target: TargetIndex,
        since: Revision,
        after: Option<&ObjectKey>,
        most: usize,
    ) -> Option<BTreeMap<&ObjectKey, Option<&Left>>> {
        if since < self.floor {
            return None;
        }
        let is_earlier = |entry: &LogEntry| entry.revision <= since;
        let first = self.pages.partition_point(|page| page.last().is_some_and(is_earlier));
        // What is forgotten is earlier: the log would not reach back that far else.
        let later = self.pages.range(first..).flat_map(|page| &page[page.partition_point(is_earlier)..]);
        let concerns =
            |entry: &&LogEntry| entry.targets.contains(target) && after.is_none_or(|after| entry.key > *after);
        let mut changes: BTreeMap<&ObjectKey, Option<&Left>> = BTreeMap::new();
        for entry in later.filter(concerns) {
            if changes.len() == most && changes.last_key_value().is_none_or(|(last, _)| entry.key > **last) {
                continue;
            }
            let left = changes.entry(&entry.key).or_default();
            *left = entry.left.as_ref().or(*left);
            // What comes behind enough others is not among the first any more, whatever else is said of it.
            if changes.len() > most {
                changes.pop_last();
            }
        }
        Some(changes)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

fn weight(entry: &LogEntry) -> u64 {
    entry.targets.serialized_size() as u64
}
