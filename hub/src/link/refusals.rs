//! How many requests were refused, and what for.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tideline_common::wire::v1::RefusalKind;

/// What a refused request counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusedAs {
    /// Its signature is missing or wrong, or of a target or token that nobody knows here.
    Unverified,
    /// Its number is not free. An agent has one such for each run of the hub that it meets; more were heard before.
    Replayed,
    /// Its key sends much too fast, and goes on so.
    Flood,
    /// It may come back later.
    Busy,
    TooLarge,
    Malformed,
    TokenRefused,
    /// Its agent was shut out: the key was revoked or replaced, the SyncTarget deleted, or the identity is used elsewhere.
    ShutOut,
    /// Its session is over, or of a history that this hub does not have.
    SessionOver,
}

impl RefusedAs {
    pub const ALL: [Self; 9] = [
        Self::Unverified,
        Self::Replayed,
        Self::Flood,
        Self::Busy,
        Self::TooLarge,
        Self::Malformed,
        Self::TokenRefused,
        Self::ShutOut,
        Self::SessionOver,
    ];
}

impl From<RefusalKind> for RefusedAs {
    fn from(kind: RefusalKind) -> Self {
        match kind {
            RefusalKind::Unauthenticated | RefusalKind::UnknownTarget => Self::Unverified,
            RefusalKind::BadRequestNumber => Self::Replayed,
            RefusalKind::Busy => Self::Busy,
            RefusalKind::TooLarge => Self::TooLarge,
            RefusalKind::Malformed | RefusalKind::Unknown => Self::Malformed,
            RefusalKind::TokenRefused => Self::TokenRefused,
            RefusalKind::Revoked | RefusalKind::TargetGone | RefusalKind::Quarantined => Self::ShutOut,
            RefusalKind::Fenced | RefusalKind::SessionUnknown => Self::SessionOver,
        }
    }
}

/// Counts since the hub's start.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<BTreeMap<RefusedAs, u64>>);

impl Refusals {
    pub(super) fn count(&self, refused: RefusedAs) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(refused).or_default() += 1;
    }

    /// What was never refused is not in it.
    pub fn counts(&self) -> BTreeMap<RefusedAs, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
