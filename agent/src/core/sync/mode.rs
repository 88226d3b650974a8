//! Whether this agent may act, as far as the hub has said. In every mode but `Active` it asks again by itself, until the hub
//! accepts its request in the next session: nobody has to come to the site.
//!
//! ```text
//!            fenced, quarantined, deleted, revoked
//!   Active ─────────────────────────────────────────▶ Frozen ◀─┐ asks after a minute,
//!    ▲ │                                              ▲ │  └───┘ backing off to ten
//!    │ └── the hub does not know this target ─▶ UnknownToHub ◀─┐
//!    │                                                │  └─────┘ the same
//!    └────────── a session is used ◀──────────────────┴── either
//! ```
//!
//! Frozen, it changes nothing at its cluster. A hub that does not know the target cannot judge it: the accepted set is kept as
//! without a hub, and no removal begins. Anybody who asks in the name of a target gets the answer that it is unknown, before
//! any signature can be verified; so that answer lifts no restriction, and ends no freeze. Only an answer to a request that
//! the hub has verified does.
//!
//! The journal keeps the mode: a process that is restarted knows what the one before it was told.

use std::time::Duration;

use tideline_common::Monotonic;
use tideline_common::wire::v1::{Refusal, RefusalKind};

use super::HubSync;
use crate::core::interface::effect::{Effect, Effects};
use crate::core::interface::write::{AgentMode, FreezeReason, Write};
use crate::core::{Core, Phase};

/// When an agent that is not active asks again: after the first, doubled up to the second, each time at least half of it. The
/// hub answers 10,000 frozen agents some thirty times a second then.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_mins(1), Duration::from_mins(10));

/// A restriction that the hub told the agent, or that the agent found out by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::core) enum HubVerdict {
    /// For this agent alone: its request was verified, or it found that out by itself.
    Frozen(FreezeReason),
    /// For whoever asks in the name of this target. Nothing was verified.
    UnknownTarget,
}

impl HubVerdict {
    /// The restriction that a refusal means, if it means one.
    pub(in crate::core) fn of(refusal: &Refusal) -> Option<Self> {
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

impl AgentMode {
    /// The mode that follows this one upon a verdict.
    fn after(self, verdict: HubVerdict) -> Self {
        match (self, verdict) {
            (_, HubVerdict::Frozen(reason)) | (Self::Frozen(reason), HubVerdict::UnknownTarget) => Self::Frozen(reason),
            (Self::Active | Self::UnknownToHub, HubVerdict::UnknownTarget) => Self::UnknownToHub,
        }
    }

    /// The mode of a core that begins with this one, after a core without the journal has heard the other.
    pub(in crate::core) fn having_heard(self, heard: Self) -> Self {
        match heard {
            Self::UnknownToHub => self.after(HubVerdict::UnknownTarget),
            Self::Frozen(reason) => Self::Frozen(reason),
            Self::Active => self,
        }
    }

    /// Whether anything may be changed at the cluster.
    const fn may_change(&self) -> bool {
        match self {
            Self::Active | Self::UnknownToHub => true,
            Self::Frozen(_) => false,
        }
    }

    /// Whether removals may begin. A hub that does not know the target does not know either what was meant for it.
    const fn may_remove(&self) -> bool {
        match self {
            Self::Active => true,
            Self::UnknownToHub | Self::Frozen(_) => false,
        }
    }

    /// Whether the hub has said that it refuses this target, so that a token may make the agent another.
    pub(in crate::core) const fn may_be_replaced(&self) -> bool {
        match self {
            Self::UnknownToHub | Self::Frozen(FreezeReason::TargetGone(_) | FreezeReason::Revoked(_)) => true,
            Self::Active | Self::Frozen(FreezeReason::Fenced(_) | FreezeReason::Quarantined(_)) => false,
        }
    }

    fn is_alike(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Frozen(a), Self::Frozen(b)) => std::mem::discriminant(a) == std::mem::discriminant(b),
            (Self::Active, Self::Active) | (Self::UnknownToHub, Self::UnknownToHub) => true,
            (Self::Active | Self::UnknownToHub | Self::Frozen(_), _) => false,
        }
    }
}

impl Core {
    /// The mode that follows from the last verdict.
    pub fn mode(&self) -> &AgentMode {
        &self.sync.mode
    }

    /// Whether anything may be changed at the cluster now.
    pub(in crate::core) fn may_change(&self) -> bool {
        self.phase == Phase::Running
            && self.sync.is_own_cluster()
            && self.sync.mode.may_change()
            && !self.model.is_set_back()
    }

    /// Whether anything may be deleted or orphaned now. Every step of a removal asks again: a freeze stops removals that were
    /// begun before it.
    pub(in crate::core) fn may_remove(&self) -> bool {
        self.may_change() && self.sync.mode.may_remove()
    }

    /// Begins in the mode of the process before this one.
    pub(in crate::core) fn recall_mode(&self, out: &mut Effects) {
        out.extend(self.sync.mode_effect());
    }

    /// A verdict was heard. The agent asks again after a while, whatever it was.
    pub(in crate::core) fn take_verdict(&mut self, now: Monotonic, verdict: HubVerdict, out: &mut Effects) {
        self.sync.session.hub_unknown = verdict == HubVerdict::UnknownTarget;
        let proves_fenced = std::mem::take(&mut self.sync.session.proves_fenced);
        let former = std::mem::take(&mut self.sync.mode);
        let mode = former.clone().after(verdict);
        if former.is_alike(&mode) {
            self.sync.mode = former;
            if !proves_fenced {
                self.sync.asked = self.sync.asked.saturating_add(1);
            }
        } else {
            self.sync.mode = mode;
            self.sync.asked = 1;
            out.extend(self.sync.mode_effect());
            self.model.disk.write(Write::Mode(self.sync.mode.clone()));
        }
        // A token that was not shown yet, or not for long, need not wait. That the agent's next key was refused, too, is no
        // reason to hurry.
        let wait = if self.may_enrol_anew(now) && !self.sync.session.is_enrolling() {
            Duration::ZERO
        } else {
            self.jitter.half(self.sync.asked, ASK_AGAIN.0 * 2, ASK_AGAIN.1)
        };
        self.ask_again(now + wait, out);
    }

    /// The hub has accepted a request in a session: former restrictions are over.
    pub(in crate::core) fn reactivate(&mut self, out: &mut Effects) {
        self.sync.asked = 0;
        self.sync.session.hub_unknown = false;
        // An agent that the hub does not quarantine any more is active only where its identity is of this cluster. It named
        // another once: that it may not ask now proves nothing.
        let quarantined = matches!(self.sync.mode, AgentMode::Frozen(FreezeReason::Quarantined(_)));
        if quarantined && !self.sync.is_proven_own_cluster() {
            return;
        }
        if std::mem::take(&mut self.sync.mode) != AgentMode::Active {
            out.push(Effect::Thaw);
            self.model.disk.write(Write::Mode(AgentMode::Active));
        }
    }
}

impl HubSync {
    fn mode_effect(&self) -> Option<Effect> {
        match &self.mode {
            AgentMode::Frozen(reason) => Some(Effect::Freeze(reason.clone())),
            AgentMode::UnknownToHub => Some(Effect::UnknownToHub),
            AgentMode::Active => None,
        }
    }
}

#[cfg(test)]
mod tests;
