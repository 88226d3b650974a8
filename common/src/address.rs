use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::base64_bytes;
use crate::limits::{AUTHORITY_BYTES_MAX, HUB_URL_BYTES_MAX};

/// The URL of a hub: `https://HOST[:PORT][/PATH]`, without a slash at its end, so that paths of requests follow it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HubUrl(String);

/// Why a text is no [`HubUrl`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it must be https://HOST, https://HOST:PORT or https://HOST/PATH, of at most {HUB_URL_BYTES_MAX} bytes")]
pub struct InvalidHubUrl;

impl HubUrl {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name or address in it, an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        let authority = self.0[SCHEME.len()..].split('/').next().unwrap_or_default();
        match authority.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => authority.split(':').next().unwrap_or_default(),
        }
    }
}

const SCHEME: &str = "https://";

impl FromStr for HubUrl {
    type Err = InvalidHubUrl;

    fn from_str(text: &str) -> Result<Self, InvalidHubUrl> {
        let rest = text.strip_prefix(SCHEME).ok_or(InvalidHubUrl)?;
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#@\"<>\\^`{|}".contains(&byte);
        if text.len() > HUB_URL_BYTES_MAX || !rest.bytes().all(is_plain) {
            return Err(InvalidHubUrl);
        }
        let url = Self(text.trim_end_matches('/').to_owned());
        let authority = rest.split('/').next().unwrap_or_default();
        let after_host = match authority.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or(InvalidHubUrl)?.1,
            None => &authority[authority.find(':').unwrap_or(authority.len())..],
        };
        let port_is_valid = match after_host.strip_prefix(':') {
            Some(port) => port.parse::<u16>().is_ok_and(|port| port != 0),
            None => after_host.is_empty(),
        };
        if url.0.len() <= SCHEME.len() || url.host().is_empty() || !port_is_valid {
            return Err(InvalidHubUrl);
        }
        Ok(url)
    }
}

impl TryFrom<String> for HubUrl {
    type Error = InvalidHubUrl;

    fn try_from(text: String) -> Result<Self, InvalidHubUrl> {
        text.parse()
    }
}

impl From<HubUrl> for String {
    fn from(url: HubUrl) -> Self {
        url.0
    }
}

impl fmt::Display for HubUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The certificate of an authority that is trusted for TLS servers on the way to a hub. DER; whether it can be read is for TLS
/// to say.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Authority(#[serde(with = "base64_bytes")] Vec<u8>);

impl Authority {
    /// None for what no certificate can be: nothing, or more than [`AUTHORITY_BYTES_MAX`].
    pub fn from_der(der: impl Into<Vec<u8>>) -> Option<Self> {
        let der = der.into();
        (1..=AUTHORITY_BYTES_MAX).contains(&der.len()).then_some(Self(der))
    }

    pub fn der(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is of a size that is kept; what came over the wire may not be.
    pub fn is_bounded(&self) -> bool {
        (1..=AUTHORITY_BYTES_MAX).contains(&self.0.len())
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authority({} bytes, {})", self.0.len(), crate::Digest::of(&self.0))
    }
}

#[cfg(test)]
mod tests;
