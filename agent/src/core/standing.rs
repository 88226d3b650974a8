//! Whether this agent may act, as far as the hub has said. Everything but `Good` asks again by itself, and ends when the hub
//! takes what it says in the next session: nobody has to come to the site.
//!
//! ```text
//!            fenced, quarantined, deleted, revoked
//!   Good ───────────────────────────────────────────▶ Frozen ◀─┐ asks after a minute,
//!    ▲ │                                              ▲ │  └───┘ backing off to ten
//!    │ └── the hub does not know this target ─▶ UnknownToHub ◀─┐
//!    │                                                │  └─────┘ the same
//!    └────────── a session is used ◀──────────────────┴── either
//! ```
//!
//! Frozen, it changes nothing at its cluster. A hub that does not know the target cannot judge it: the accepted set is kept as
//! without a hub, and no removal begins. That a target is not known is said to anybody who asks in its name, before any
//! signature can be verified; so it makes nothing better than it was, and ends no freeze. Only an answer to a request that
//! the hub has verified does.
//!
//! The journal keeps the standing: a process that is started anew knows what the one before it was told.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tideline_common::Monotonic;
use tideline_common::wire::v1::{Refusal, RefusalKind};

use super::effect::{Effect, Effects, FreezeReason, Write};
use super::{Core, Phase};

/// When an agent without standing asks again: after the first, doubled up to the second, each time at least half of it. The
/// hub answers 10,000 frozen agents some thirty times a second then.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_mins(1), Duration::from_mins(10));

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// As far as is known.
    #[default]
    Good,
    UnknownToHub,
    Frozen(FreezeReason),
}

/// What somebody said against the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// To the agent alone: its request was verified, or it found that out by itself.
    Frozen(FreezeReason),
    /// To whoever asks in the name of this target. Nothing was verified.
    UnknownTarget,
}

impl Word {
    /// What a refusal says of the agent's standing, if it says anything.
    pub(super) fn of(refusal: &Refusal) -> Option<Self> {
        let message = || refusal.message.clone();
        match refusal.refusal {
            RefusalKind::Fenced => Some(Self::Frozen(FreezeReason::Fenced(message()))),
            RefusalKind::Quarantined => Some(Self::Frozen(FreezeReason::Quarantined(message()))),
            RefusalKind::TargetGone => Some(Self::Frozen(FreezeReason::TargetGone(message()))),
            RefusalKind::Revoked => Some(Self::Frozen(FreezeReason::Revoked(message()))),
            RefusalKind::UnknownTarget => Some(Self::UnknownTarget),
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
}

impl Standing {
    /// The standing of an agent that had this one and hears that word.
    fn after(self, word: Word) -> Self {
        match (self, word) {
            (_, Word::Frozen(reason)) | (Self::Frozen(reason), Word::UnknownTarget) => Self::Frozen(reason),
            (Self::Good | Self::UnknownToHub, Word::UnknownTarget) => Self::UnknownToHub,
        }
    }

    /// Whether anything may be changed at the cluster.
    const fn may_change(&self) -> bool {
        match self {
            Self::Good | Self::UnknownToHub => true,
            Self::Frozen(_) => false,
        }
    }

    /// Whether removals may begin. A hub that does not know the target knows nothing of what was meant for it either.
    const fn may_remove(&self) -> bool {
        match self {
            Self::Good => true,
            Self::UnknownToHub | Self::Frozen(_) => false,
        }
    }

    /// Whether the hub has said that it does not serve what this agent is, so that a token may make it another.
    pub(super) const fn may_be_replaced(&self) -> bool {
        match self {
            Self::UnknownToHub | Self::Frozen(FreezeReason::TargetGone(_) | FreezeReason::Revoked(_)) => true,
            Self::Good | Self::Frozen(FreezeReason::Fenced(_) | FreezeReason::Quarantined(_)) => false,
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
    /// What the agent was told of its standing last.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Whether anything may be changed at the cluster now.
    pub(super) fn may_change(&self) -> bool {
        self.phase == Phase::Running && self.is_in_place() && self.standing.may_change()
    }

    /// Whether something may be deleted or let go of now. Every step of a removal asks anew: what was begun before is not
    /// gone on with.
    pub(super) fn may_remove(&self) -> bool {
        self.may_change() && self.standing.may_remove()
    }

    /// Begins as what the process before this one was told.
    pub(super) fn recall_standing(&self, out: &mut Effects) {
        out.extend(self.standing_effect());
    }

    fn standing_effect(&self) -> Option<Effect> {
        match &self.standing {
            Standing::Frozen(reason) => Some(Effect::Freeze(reason.clone())),
            Standing::UnknownToHub => Some(Effect::UnknownToHub),
            Standing::Good => None,
        }
    }

    /// Something was said against this agent. It asks again after a while, whatever it was.
    pub(super) fn lose_standing(&mut self, now: Monotonic, word: Word, out: &mut Effects) {
        self.session.hub_unknown = word == Word::UnknownTarget;
        let former = std::mem::take(&mut self.standing);
        let standing = former.clone().after(word);
        if former.is_alike(&standing) {
            self.standing = former;
            self.asked = self.asked.saturating_add(1);
        } else {
            self.standing = standing;
            self.asked = 1;
            out.extend(self.standing_effect());
            self.disk.write(Write::Standing(self.standing.clone()));
        }
        // A token that was not shown yet, or not for long, need not wait. That its agent's next key was refused, too, is no reason to hurry.
        let wait = if self.may_enrol_anew(now) && !self.session.is_enrolling() {
            Duration::ZERO
        } else {
            self.jitter.half(self.asked, ASK_AGAIN.0 * 2, ASK_AGAIN.1)
        };
        self.ask_again(now + wait, out);
    }

    /// The hub has taken what was said in a session: whatever stood against that is over.
    pub(super) fn regain_standing(&mut self, out: &mut Effects) {
        self.asked = 0;
        self.session.hub_unknown = false;
        // Whom the hub does not quarantine any more is at work only where its identity is of this cluster.
        if matches!(self.standing, Standing::Frozen(FreezeReason::Quarantined(_))) && !self.is_in_place() {
            return;
        }
        if std::mem::take(&mut self.standing) != Standing::Good {
            out.push(Effect::Thaw);
            self.disk.write(Write::Standing(Standing::Good));
        }
    }
}

#[cfg(test)]
mod tests;
