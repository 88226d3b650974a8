//! Faults of the hub's answers since the last complete set, which ends them all.

use std::collections::BTreeMap;

use tideline_common::Reason;
use tideline_common::wire::v1::TargetCondition;

use crate::core::sync::gather::SyncError;

/// How often each was found.
#[derive(Debug, Default)]
pub(super) struct SyncErrors(BTreeMap<SyncError, u64>);

impl SyncErrors {
    pub(super) fn found(&mut self, error: SyncError) {
        *self.0.entry(error).or_default() += 1;
    }

    /// The faults of the hub's answers, counted.
    pub(super) fn conditions(&self) -> Vec<TargetCondition> {
        let name = |(error, count): (&SyncError, &u64)| {
            let (reason, message) = match error {
                SyncError::Older => (Reason::HistoryLost, "the hub answered with an older set; it was refused"),
                SyncError::OtherHistory => (
                    Reason::HistoryLost,
                    "the hub's set differs from the accepted one of the same version; it was refused. Was the hub restored from \
                     a backup?",
                ),
                SyncError::TooLarge => (
                    Reason::TooLarge,
                    "the set has more entries than a target may have; it was refused, and the accepted one stays. Assign fewer \
                     objects to this target",
                ),
                SyncError::Incomplete => (Reason::Unknown, "digest mismatch in a received set; it is fetched again"),
                SyncError::Unrelated => {
                    (Reason::Unknown, "the hub's answer did not match the request; it was rejected")
                }
                SyncError::PolicyMissing => {
                    (Reason::Unknown, "an entry named a policy that was not sent; the set is fetched again")
                }
            };
            TargetCondition { reason, count: *count, message: message.to_owned() }
        };
        self.0.iter().map(name).collect()
    }
}
