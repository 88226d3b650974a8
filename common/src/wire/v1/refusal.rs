use serde::{Deserialize, Serialize};

use crate::ids::SessionName;

/// A signed "no". Unsigned ones come from something between hub and agent and say nothing about the agent's standing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    pub refusal: RefusalKind,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
    /// The session in use, for which another is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fenced_by: Option<SessionName>,
}

impl Refusal {
    /// Says why, and nothing else.
    pub fn new(refusal: RefusalKind, message: impl Into<String>) -> Self {
        Self { refusal, message: message.into(), retry_after_seconds: None, fenced_by: None }
    }

    /// Says when to come back, too.
    #[must_use]
    pub fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after_seconds: Some(seconds), ..self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RefusalKind {
    /// 400: the message cannot be read.
    Malformed,
    /// 401: the signature is missing or wrong, or there is no such token. Anybody can provoke this answer, so it says nothing
    /// about an agent.
    Unauthenticated,
    /// 404: this hub has no record of such a target, so it cannot verify the sender, and judges nobody.
    UnknownTarget,
    /// 409: the request names no number that is free in this run of the hub. The answer names the run, and the next
    /// number: sign the same request again with that.
    BadRequestNumber,
    /// 403: the token is used, expired, or for another hub.
    TokenRefused,
    /// 403: this identity is used where it does not belong.
    Quarantined,
    /// 403: this key was revoked. A new token lets the agent in again, with a new key.
    Revoked,
    /// 409: another session is in use, which `fenced_by` names. An agent that does not find it in its own session store says
    /// so when it asks for a session: then two live with one identity.
    Fenced,
    /// 409: the hub never gave this session, as far as it knows: it lost history. Open another.
    SessionUnknown,
    /// 410: the SyncTarget was deleted. Said to the key that it had, and to nobody else.
    TargetGone,
    /// 413.
    TooLarge,
    /// 429 or 503: come back later.
    Busy,
    #[serde(other)]
    Unknown,
}

impl RefusalKind {
    /// The HTTP status code it travels under.
    pub const fn status(self) -> u16 {
        match self {
            Self::Malformed | Self::Unknown => 400,
            Self::Unauthenticated => 401,
            Self::TokenRefused | Self::Quarantined | Self::Revoked => 403,
            Self::UnknownTarget => 404,
            Self::BadRequestNumber | Self::Fenced | Self::SessionUnknown => 409,
            Self::TargetGone => 410,
            Self::TooLarge => 413,
            Self::Busy => 503,
        }
    }
}
