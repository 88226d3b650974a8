//! Enrolment: a token makes this agent a target, or another than it was.

use std::time::Duration;

use tideline_common::Monotonic;
use tideline_common::wire::v1::{EnrolAnswer, Refusal, RefusalKind};

use super::state::{Link, Next, RETRY_REFUSED};
use crate::core::Core;
use crate::core::interface::effect::{Effect, Effects, Request};
use crate::core::interface::event::LinkFailure;
use crate::core::interface::write::{AgentMode, Enrolled, FreezeReason};

/// How long a token that was refused is not shown. The cause may have been removed at the hub since, as where its name was
/// another agent's; nobody has to come to the site for that.
const SHOWN_AGAIN: Duration = Duration::from_hours(1);

/// What is known of the token that the agent was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum Token {
    Untried,
    /// The hub refused it; until then it is not shown again.
    Refused {
        until: Monotonic,
    },
    /// The agent was enrolled by it. It lets nobody in again.
    Spent,
}

impl Token {
    fn may_be_shown(self, now: Monotonic) -> bool {
        match self {
            Self::Untried => true,
            Self::Refused { until } => until <= now,
            Self::Spent => false,
        }
    }
}

impl Core {
    pub(super) fn enrol(&mut self, out: &mut Effects) {
        let Some(request) = self.config.enrolment.clone() else { return };
        let id = self.sync.session.request();
        self.sync.session.link = Link::Enrolling(id);
        out.push(Effect::Send { id, request: Request::Enrol(request) });
    }

    /// Where the hub has said that it refuses this target, a token may make the agent another.
    pub(in crate::core) fn may_enrol_anew(&self, now: Monotonic) -> bool {
        // An agent that was fenced or quarantined as a target that the hub does not know hears nothing else from anybody.
        let frozen =
            matches!(self.sync.mode, AgentMode::Frozen(FreezeReason::Fenced(_) | FreezeReason::Quarantined(_)));
        let replaced = self.sync.mode.may_be_replaced() || (frozen && self.sync.session.hub_unknown);
        replaced && self.may_show_its_token(now)
    }

    fn may_show_its_token(&self, now: Monotonic) -> bool {
        self.config.enrolment.is_some() && self.sync.token.may_be_shown(now)
    }

    /// A hub that knows this agent by another key, as one that was set back does, can only say that it cannot verify the
    /// signature. A token proves more.
    pub(super) fn may_prove_more(&self, now: Monotonic, failure: Option<&LinkFailure>) -> bool {
        let unverified =
            matches!(failure, Some(LinkFailure::Refused(Refusal { refusal: RefusalKind::Unauthenticated, .. })));
        unverified && self.may_show_its_token(now)
    }

    pub(super) fn enrolment_failed(&mut self, now: Monotonic, failure: Option<&LinkFailure>, out: &mut Effects) {
        let refused = matches!(
            failure,
            Some(LinkFailure::Refused(Refusal {
                refusal: RefusalKind::TokenRefused | RefusalKind::Unauthenticated,
                ..
            }))
        );
        if self.model.target.is_some() && refused {
            // It is asked again under the former name.
            self.sync.token = Token::Refused { until: now + SHOWN_AGAIN };
            return self.ask_again(now + RETRY_REFUSED.0, out);
        }
        self.failed(now, Next::Enrol, failure, out);
    }

    pub(super) fn enrolled(&mut self, now: Monotonic, answer: EnrolAnswer, out: &mut Effects) {
        self.sync.session.succeeded();
        self.sync.token = Token::Spent;
        let EnrolAnswer { hub: _, target, name } = answer;
        if self.model.target != Some(target) {
            // The session that fenced it did so at its former target.
            self.sync.session.fenced = None;
        }
        self.become_target(now, Enrolled { target, name }, out);
    }
}
