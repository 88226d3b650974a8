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
                SyncError::OtherHistory => (Reason::HistoryLost, "the hub has another set of the accepted version"),
                SyncError::TooLarge => (Reason::TooLarge, "the set has more entries than a target may have"),
                SyncError::Incomplete => (Reason::Unknown, "digest mismatch in a received set; it is fetched again"),
                SyncError::Unrelated => {
                    (Reason::Unknown, "the hub's answer did not match the request; it was rejected")
                }
                SyncError::PolicyMissing => (Reason::Unknown, "an entry named a policy that was not sent"),
            };
            TargetCondition { reason, count: *count, message: message.to_owned() }
        };
        self.0.iter().map(name).collect()
    }
}
