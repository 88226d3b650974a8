use super::{LOG_ENTRIES_MAX, REVISION_IDS_MAX};

/// How much a ledger remembers of what it was. What is forgotten costs agents a snapshot, and never an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Changes that deltas are made from.
    pub log_entries: usize,
    /// Newest revisions of which the ids are kept.
    pub revision_ids: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { log_entries: LOG_ENTRIES_MAX, revision_ids: REVISION_IDS_MAX }
    }
}
