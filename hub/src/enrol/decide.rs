//! What becomes of a request to enrol, by the token alone.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use tideline_api::EnrolmentToken;
use tideline_common::signature::VerifyingKey;
use tideline_common::wire::v1::{EnrolRequest, Refusal, RefusalKind};
use tideline_common::{HubId, TargetId};

/// An enrolment token as far as enrolment goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenState {
    /// What the token is for.
    pub(crate) target: NewTarget,
    pub(crate) expires: Timestamp,
    pub(crate) usage: Usage,
}

/// The SyncTarget that a token makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewTarget {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
}

/// How far a token was used. Keys are in standard base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Usage {
    Unused,
    /// An agent has it, and its target was not recorded yet.
    Claimed {
        key: String,
    },
    /// An agent has it and its target.
    Spent {
        key: String,
        target: TargetId,
    },
    /// It was used, and by whom cannot be read.
    Unclear,
}

/// What becomes of a request whose signature proves the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Give the token to this agent, then go on as with [`Decision::Make`].
    Claim(NewTarget),
    /// The agent has the token: make its target, or find it made.
    Make(NewTarget),
    /// The agent was told before: tell it again, if the target still exists.
    Again {
        name: String,
        target: TargetId,
    },
    Refuse(Refusal),
}

impl From<&EnrolmentToken> for TokenState {
    fn from(token: &EnrolmentToken) -> Self {
        let spec = &token.spec;
        let status = token.status.clone().unwrap_or_default();
        let usage = match status.used_by {
            Some(by) => match by.target_uid.map(|uid| uid.parse::<TargetId>()) {
                None => Usage::Claimed { key: by.key },
                Some(Ok(target)) => Usage::Spent { key: by.key, target },
                Some(Err(_)) => Usage::Unclear,
            },
            None if status.used => Usage::Unclear,
            None => Usage::Unused,
        };
        let target = NewTarget { name: spec.target_name.clone(), labels: spec.labels.clone() };
        Self { target, expires: spec.expires.0, usage }
    }
}

/// Decides. The agent that used a token may repeat itself for ever, also past the token's end; nobody else may use it.
///
/// Refusals tell the bearer what to do, and nothing about the agent that was first.
pub(crate) fn decide(token: Option<&TokenState>, request: &EnrolRequest, hub: HubId, now: Timestamp) -> Decision {
    if request.hub != hub {
        return Decision::Refuse(refused("the token is for another hub; make one at this hub"));
    }
    if let Err(refusal) = proven_key(request) {
        return Decision::Refuse(refusal);
    }
    let Some(TokenState { target, expires, usage }) = token else {
        return Decision::Refuse(refused("the hub knows no such token; make another with `tideline-hub token create`"));
    };
    let agent = STANDARD.encode(&request.agent_key);
    match usage {
        Usage::Unused if *expires <= now => {
            Decision::Refuse(refused("the token has expired; make another with `tideline-hub token create`"))
        }
        Usage::Unused => Decision::Claim(target.clone()),
        Usage::Claimed { key } if *key == agent => Decision::Make(target.clone()),
        Usage::Spent { key, target: id } if *key == agent => Decision::Again { name: target.name.clone(), target: *id },
        Usage::Claimed { .. } | Usage::Spent { .. } | Usage::Unclear => Decision::Refuse(refused(
            "the token was used by another agent; each agent needs its own: make another with `tideline-hub token create`",
        )),
    }
}

/// The key that an agent enrols with, which it has shown that it has: or else whoever has a token could have somebody else's
/// key revoked with its own SyncTarget.
///
/// # Errors
///
/// The request does not show that the agent has the key.
pub(crate) fn proven_key(request: &EnrolRequest) -> Result<VerifyingKey, Refusal> {
    request.proven_key().ok_or_else(|| {
        Refusal::new(RefusalKind::Malformed, "the request does not prove that its sender has the agent's key")
    })
}

pub(super) fn refused(message: impl Into<String>) -> Refusal {
    Refusal::new(RefusalKind::TokenRefused, message)
}

#[cfg(test)]
mod tests;
