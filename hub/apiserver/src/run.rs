//! One run of the server, and the versions of what it computes.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::virtual_resource::VirtualResource;

/// One run of the server. What it computes is comparable with nothing that another run computed.
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) began: Instant,
    /// The version at which all counters are zero: the microseconds from 1970 to the start. So versions rise from run to run,
    /// for no counter moves a million times a second.
    first: u64,
}

impl Run {
    pub(crate) fn begin() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let first = u64::try_from(since.as_micros()).unwrap_or_default().max(1);
        Self { id: uuid::Uuid::new_v4().to_string(), began: Instant::now(), first }
    }

    /// The version of what is computed while the counter is at `number`.
    pub(crate) fn version(&self, number: u64) -> u64 {
        self.first + number
    }

    /// The version of what is computed now.
    pub(crate) fn current(&self, source: &dyn VirtualResource, space: &str) -> u64 {
        self.version(source.changes(space).map_or(0, |counter| *counter.borrow()))
    }

    /// Where the counter was at a version; none of what an earlier run computed.
    pub(crate) fn number(&self, version: u64) -> Option<u64> {
        version.checked_sub(self.first)
    }
}
