//! What the ledger is told of other histories.

use std::collections::BTreeSet;

use tideline_common::{ObjectKey, SegmentId, Shown, TargetId, Uid, Version};

/// What becomes known of other histories, or is said of them.
#[derive(Clone, Debug, PartialEq)]
pub enum HistoryChange {
    /// A target's agent shows a set that is not of this history.
    Shown { target: TargetId, shown: Shown, proof: Proof },
    /// A person accepts that history was lost, by this object. It is told again at every start, and heeded once.
    Accept { object: Uid, accepted: Box<Accepted> },
    /// The object is gone, and is told no more.
    AcceptanceGone(Uid),
    /// The target is in service: that it was to leave before the accept means nothing any more.
    Stays(TargetId),
    /// What the target's agent claimed is of no account any more: whoever claimed it is shut out, or shows a set of this history.
    Unclaimed(TargetId),
    /// Something was assigned at these places since the approval was given.
    Assigned { approval: Uid, at: BTreeSet<ObjectKey> },
    /// What was approved at these places was done: their agents know that, and what comes back there was not approved.
    Spent { approval: Uid, at: BTreeSet<ObjectKey> },
    /// The approval has ended or could not be read, and approves nothing any more.
    Over(Uid),
    /// The approval is gone, and need not be remembered.
    ApprovalGone(Uid),
}

/// What a person who accepts has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    pub shown: Vec<(SegmentId, Version)>,
    pub restored: Option<String>,
    /// Targets that are to leave service, by what was said before.
    pub leaving: BTreeSet<TargetId>,
    /// Approvals of deletions that were given before.
    pub approvals: BTreeSet<Uid>,
}

/// How an agent shows the newest set that it knows of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proof {
    /// With the hub's own signed word of it.
    OwnWord,
    /// On its own word.
    #[default]
    Claim,
}
