use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::address::{Authority, HubUrl};
use crate::base64_bytes;
use crate::digest::Digest;
use crate::ids::HubId;

const PREFIX: &str = "tideline1.";

/// What lets one agent join: where the hub is, what to pin, and a private key that proves possession of the token.
///
/// The hub keeps only the token's public key; the secret never crosses the wire, so a proxy that ends TLS cannot enrol
/// in the agent's place.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnrolmentToken {
    /// The name of the EnrolmentToken in the root space.
    pub name: String,
    /// Where the hub is reached, in the order in which they are to be tried; at least one.
    pub urls: Vec<HubUrl>,
    pub hub: HubId,
    /// The hub's Ed25519 public key, which signs every response.
    #[serde(with = "base64_bytes")]
    pub hub_key: Vec<u8>,
    /// The authorities of the hub's TLS, besides those of the system.
    pub authorities: Vec<Authority>,
    /// The seed of the token's Ed25519 key.
    #[serde(with = "base64_bytes")]
    pub seed: Vec<u8>,
}

impl EnrolmentToken {
    /// What tells one token from all others, whatever they are called; says nothing of its secret.
    pub fn id(&self) -> Digest {
        Digest::of([b"tideline token ", self.seed.as_slice()].concat().as_slice())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("this is not an enrolment token: it must begin with {PREFIX:?}; make one with `tideline-hub token create`")]
    Prefix,
    #[error("the enrolment token is damaged or cut; copy it again, whole")]
    Damaged,
}

impl fmt::Display for EnrolmentToken {
    /// The token itself, secret included.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = serde_json::to_vec(self).map_err(|_| fmt::Error)?;
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(json))
    }
}

impl fmt::Debug for EnrolmentToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnrolmentToken").field("name", &self.name).field("urls", &self.urls).finish_non_exhaustive()
    }
}

impl FromStr for EnrolmentToken {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let payload = text.trim().strip_prefix(PREFIX).ok_or(TokenError::Prefix)?;
        let json = URL_SAFE_NO_PAD.decode(payload).map_err(|_| TokenError::Damaged)?;
        let token: Self = serde_json::from_slice(&json).map_err(|_| TokenError::Damaged)?;
        if token.urls.is_empty() { Err(TokenError::Damaged) } else { Ok(token) }
    }
}
