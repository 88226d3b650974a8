//! What was wrong with the hub's answers since there was a whole set. Whatever that was is over then.

use std::collections::BTreeMap;

use tideline_common::Reason;
use tideline_common::wire::v1::TargetCondition;

use crate::core::sync::gather::Flaw;

/// How often each was found.
#[derive(Debug, Default)]
pub(super) struct Flaws(BTreeMap<Flaw, u64>);

impl Flaws {
    pub(super) fn found(&mut self, flaw: Flaw) {
        *self.0.entry(flaw).or_default() += 1;
    }

    /// What was wrong with the hub's answers, counted.
    pub(super) fn conditions(&self) -> Vec<TargetCondition> {
        let name = |(flaw, count): (&Flaw, &u64)| {
            let (reason, message) = match flaw {
                Flaw::Older => (Reason::HistoryLost, "the hub answered with an older set; it was refused"),
                Flaw::OtherHistory => (Reason::HistoryLost, "the hub has another set of the accepted version"),
                Flaw::TooLarge => (Reason::TooLarge, "the set has more entries than a target may have"),
                Flaw::Incomplete => (Reason::Unknown, "a set was not what its digest says; it was asked for anew"),
                Flaw::OutOfPlace => (Reason::Unknown, "an answer did not belong to its question"),
                Flaw::PolicyMissing => (Reason::Unknown, "an entry named a policy that was not sent"),
            };
            TargetCondition { reason, count: *count, message: message.to_owned() }
        };
        self.0.iter().map(name).collect()
    }
}
