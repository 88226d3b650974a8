//! What does not do as it is asked.

use std::collections::BTreeSet;

use tideline_common::{GroupKind, ObjectKey, Reason};

use crate::core::{Failure, Op};

#[derive(Debug, Default)]
pub struct Faults {
    /// Nothing can be asked of the API server.
    pub outage: Option<Reason>,
    /// The watches say nothing, and do not know it.
    pub deaf: bool,
    /// What is created does not become ready by itself.
    pub slow: bool,
    /// Kinds that cannot be listed.
    pub unlistable: BTreeSet<GroupKind>,
    /// Kinds whose definitions serve no version for a while.
    pub unserved: BTreeSet<GroupKind>,
    /// What may not be read, nor its kind watched.
    pub unreadable: BTreeSet<ObjectKey>,
    /// Whose metadata may not be written.
    pub unwritable: BTreeSet<ObjectKey>,
    /// Whose creation or removal is done, and not answered, the next time.
    pub unanswered: BTreeSet<ObjectKey>,
    /// Whose mark somebody puts back at once.
    pub keeps_marks: BTreeSet<ObjectKey>,
    /// What is not finalized while it is in here.
    pub unfinalized: BTreeSet<ObjectKey>,
    /// Of what an agent deletes, one in so many has a finalizer, by its version.
    pub finalizer_on_one_in: Option<u64>,
}

impl Faults {
    /// Why an operation is refused before anything is done.
    pub(super) fn refuses(&self, op: &Op) -> Option<Failure> {
        if let Some(reason) = self.outage {
            return Some(Failure::new(reason, "an outage"));
        }
        if self.unserved.contains(&op.key().kind) {
            return Some(Failure::new(Reason::KindMissing, "its definition is there"));
        }
        let forbidden = match op {
            Op::Get { key, .. } => self.unreadable.contains(key),
            Op::ReTarget { key, .. } | Op::Delete { key, .. } | Op::Orphan { key, .. } => self.unwritable.contains(key),
            Op::TransferOwnership { entry, .. } => self.unwritable.contains(&entry.key) && !entry.implied,
            Op::Create { .. }
            | Op::DryRunCreate { .. }
            | Op::Apply { .. }
            | Op::Inspect { .. }
            | Op::Compare { .. } => false,
        };
        forbidden.then(|| Failure::new(Reason::Forbidden, "no"))
    }

    /// Whether the answer to an operation that was done gets lost.
    pub(super) fn loses_answer(&mut self, op: &Op) -> bool {
        match op {
            Op::Create { entry, .. } => self.unanswered.remove(&entry.key),
            Op::Delete { key, .. } | Op::Orphan { key, .. } => self.unanswered.remove(key),
            Op::DryRunCreate { .. }
            | Op::Apply { .. }
            | Op::TransferOwnership { .. }
            | Op::ReTarget { .. }
            | Op::Inspect { .. }
            | Op::Get { .. }
            | Op::Compare { .. } => false,
        }
    }
}
