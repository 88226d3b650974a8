use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::ids::{InvalidId, RevisionId, SegmentId, TargetId, Version};
use crate::signature::{SigningKey, VerifyingKey};

/// What tells a revision from any other of the same number: the segment of history in which it was made, and its own id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RevisionPoint {
    pub segment: SegmentId,
    pub id: RevisionId,
}

impl RevisionPoint {
    /// A random UUID is never nil, so this is in no history.
    pub const NOWHERE: Self =
        Self { segment: SegmentId::from_uuid(uuid::Uuid::nil()), id: RevisionId::from_uuid(uuid::Uuid::nil()) };
}

/// The newest set that an agent knows of, as it shows it to a hub: is this part of your history?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shown {
    pub version: Version,
    pub point: RevisionPoint,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, point: RevisionPoint { segment, id } } = self;
        write!(f, "{version}.{segment}.{id}")
    }
}

impl FromStr for Shown {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = || InvalidId {
            what: "revision shown",
            value: text.chars().take(120).collect(),
            why: "it must be EPOCH.REVISION.SEGMENT.ID",
        };
        let (rest, id) = text.rsplit_once('.').ok_or_else(invalid)?;
        let (version, segment) = rest.rsplit_once('.').ok_or_else(invalid)?;
        Ok(Self { version: version.parse()?, point: RevisionPoint { segment: segment.parse()?, id: id.parse()? } })
    }
}

/// The hub's signed statement that it gave a target the set of this revision. A hub that was set back, or moved to a copy of
/// its data directory, knows by its own signature that it once said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attestation {
    pub target: TargetId,
    pub version: Version,
    pub point: RevisionPoint,
    signature: Signature,
}

/// Ed25519, by the hub's key; in base64.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Signature([u8; 64]);

impl Attestation {
    /// Unsigned, as the one who decides makes it: to be signed before it is sent.
    pub const fn unsigned(target: TargetId, Shown { version, point }: Shown) -> Self {
        Self { target, version, point, signature: Signature([0; 64]) }
    }

    #[must_use]
    pub fn sign(self, key: &SigningKey) -> Self {
        let Self { target, version, point, signature: _ } = self;
        Self { signature: Signature(key.sign_statement(&statement(target, version, point))), ..self }
    }

    /// Whether this key signed it.
    pub fn is_by(&self, key: &VerifyingKey) -> bool {
        let Self { target, version, point, signature } = self;
        key.verify_statement(&statement(*target, *version, *point), &signature.0)
    }

    pub const fn shown(&self) -> Shown {
        Shown { version: self.version, point: self.point }
    }
}

impl TryFrom<String> for Signature {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = STANDARD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or("a signature is 64 bytes in base64")
    }
}

impl From<Signature> for String {
    fn from(Signature(bytes): Signature) -> Self {
        STANDARD.encode(bytes)
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 == [0; 64] { "Signature(none)" } else { "Signature(…)" })
    }
}

/// The signed statement. Its first line is in no base of an HTTP message signature, so neither passes for the other.
fn statement(target: TargetId, version: Version, point: RevisionPoint) -> String {
    format!("tideline/history/v1\n{target}\n{}\n", Shown { version, point })
}

#[cfg(test)]
mod tests;
