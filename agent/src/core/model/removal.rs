//! What is known of one removal.

use std::sync::Arc;

use tideline_common::{Digest, Monotonic, ObjectKey, PrunePolicy, Reason, Tombstone, Version};

use crate::core::interface::write::RemovalPolicy;

/// A removal under way.
#[derive(Debug, Default)]
pub(in crate::core) struct Removal {
    pub(in crate::core) cause: Cause,
    pub(in crate::core) wave: i32,
    pub(in crate::core) version: Option<Arc<str>>,
    /// Names the policy that the set had last for it, if that is still known: whose gates it waits for.
    pub(in crate::core) last: Option<Digest>,
    pub(in crate::core) policy: RemovalPolicy,
    /// Which removal of this source it is: the set in which it was taken out, as its tombstone says.
    pub(in crate::core) left: Option<Version>,
    pub(in crate::core) failures: u32,
    pub(in crate::core) retry_at: Option<Monotonic>,
    pub(in crate::core) state: RemovalState,
}

impl Removal {
    /// Whether it ends when it was looked at once more.
    pub(in crate::core) fn is_spared(&self) -> bool {
        self.cause == Cause::Spared && self.state != RemovalState::Done
    }
}

/// Why something is to be removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::core) enum Cause {
    /// It is not assigned any more: the hub says so, or a set of the same epoch lacks it. The journal keeps that until
    /// the removal is done.
    #[default]
    Unassigned,
    /// Nothing explains that it is in no set, and a person has approved its removal. Ends with the approval.
    Approved,
    /// Nothing explains that it is in no set, and the cluster goes out of service. Ends if it stays in service.
    Retired,
    /// Was `Retired`, and the cluster is in service again. One live read shows what was already done; then it ends.
    Spared,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::core) enum RemovalState {
    #[default]
    Waiting,
    /// A wave is to be ready before it goes; which, for people.
    WaitingForWave(String),
    /// The last look or try came to this.
    Held(Reason, String),
    /// Deletion was accepted.
    Finalizing,
    /// Done; the hub is to be told, and the journal forgets it when the hub knows.
    Done,
}

/// How old what the journal says of removals may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum JournalAge {
    /// The hub has said in this run what the target is to hold.
    Current,
    /// Nobody has: the data directory may have been set back, and a removal in it may be of years ago.
    Unknown,
    /// Not yet, and the journal is older than the cluster: a later one applied what is there.
    SetBack,
}

/// Of what is to be let go of, whatever was said of it before.
pub(in crate::core) const ORPHAN: RemovalPolicy = RemovalPolicy::Tombstone(PrunePolicy::LEAST);

/// Where the tombstones of a place begin: no UID is shorter than one character.
pub(in crate::core) fn before_all_of(key: &ObjectKey) -> Tombstone {
    Tombstone { key: key.clone(), source: "\u{0}".parse().expect("it is one byte long") }
}
