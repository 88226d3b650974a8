//! Whether this agent may act, as far as the hub has said. Everything but `Good` asks again by itself, and ends when the hub
//! takes what it says in the next session: nobody has to come to the site.
//!
//! ```text
//!            fenced, quarantined, deleted, revoked
//!   Good ───────────────────────────────────────────▶ Frozen ◀─┐ asks after a minute,
//!    ▲ │                                              ▲ │  └───┘ backing off to ten
//!    │ └── the hub does not know this target ─▶ UnknownToHub ◀─┐
//!    │                                              │ │  └─────┘ the same
//!    └────────── a session is used ◀────────────────┴─┘
//! ```
//!
//! Frozen, it changes nothing at its cluster. A hub that does not know the target cannot judge it: the accepted set is kept as
//! without a hub, and no removal begins.

use std::time::Duration;

use tideline_common::Monotonic;
use tideline_common::wire::v1::{Refusal, RefusalKind};

use super::Core;
use super::effect::{Effect, Effects, FreezeReason};

/// When an agent without standing asks again: after the first, doubled up to the second, each time at least half of it. The
/// hub answers 10,000 frozen agents some thirty times a second then.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_mins(1), Duration::from_mins(10));

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// As far as is known.
    #[default]
    Good,
    UnknownToHub,
    Frozen(FreezeReason),
}

impl Standing {
    /// What a refusal says of the agent's standing, if it says anything.
    pub(super) fn told_by(refusal: &Refusal) -> Option<Self> {
        let message = || refusal.message.clone();
        match refusal.refusal {
            RefusalKind::Fenced => Some(Self::Frozen(FreezeReason::Fenced(message()))),
            RefusalKind::Quarantined => Some(Self::Frozen(FreezeReason::Quarantined(message()))),
            RefusalKind::TargetGone => Some(Self::Frozen(FreezeReason::TargetGone(message()))),
            RefusalKind::Revoked => Some(Self::Frozen(FreezeReason::Revoked(message()))),
            RefusalKind::UnknownTarget => Some(Self::UnknownToHub),
            RefusalKind::Malformed
            | RefusalKind::Unauthenticated
            | RefusalKind::BadRequestNumber
            | RefusalKind::TokenRefused
            | RefusalKind::TooLarge
            | RefusalKind::Busy
            | RefusalKind::SessionUnknown
            | RefusalKind::Unknown => None,
        }
    }

    fn is_alike(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Frozen(a), Self::Frozen(b)) => std::mem::discriminant(a) == std::mem::discriminant(b),
            (Self::Good, Self::Good) | (Self::UnknownToHub, Self::UnknownToHub) => true,
            (Self::Good | Self::UnknownToHub | Self::Frozen(_), _) => false,
        }
    }
}

impl Core {
    pub(super) const fn is_frozen(&self) -> bool {
        matches!(self.standing, Standing::Frozen(_))
    }

    /// Whether removals may begin. A hub that does not know the target knows nothing of what was meant for it either.
    pub(super) const fn may_remove(&self) -> bool {
        matches!(self.standing, Standing::Good)
    }

    /// The hub said what becomes of this agent. It asks again after a while, whatever it was.
    pub(super) fn lose_standing(&mut self, now: Monotonic, standing: Standing, out: &mut Effects) {
        if self.standing.is_alike(&standing) {
            self.asked = self.asked.saturating_add(1);
        } else {
            self.asked = 1;
            out.push(match &standing {
                Standing::Frozen(reason) => Effect::Freeze(reason.clone()),
                Standing::UnknownToHub => Effect::UnknownToHub,
                Standing::Good => Effect::Thaw,
            });
            self.standing = standing;
        }
        // A token that was not tried yet need not wait.
        let wait = if self.may_enrol_anew() {
            Duration::ZERO
        } else {
            self.jitter.half(self.asked, ASK_AGAIN.0 * 2, ASK_AGAIN.1)
        };
        self.ask_again(now + wait, out);
    }

    /// The hub has taken what was said in a session: whatever stood against that is over.
    pub(super) fn regain_standing(&mut self, out: &mut Effects) {
        self.asked = 0;
        if std::mem::take(&mut self.standing) != Standing::Good {
            out.push(Effect::Thaw);
        }
    }
}

#[cfg(test)]
mod tests;
