//! What an identity is, and its one text, alike in file and Secret.

use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tideline_common::signature::{SigningKey, VerifyingKey};
use tideline_common::wire::v1::Attested;
use tideline_common::{Digest, EnrolmentToken, Formers, HubId, SessionName, TargetId, Uid};

use super::Error;
use crate::addresses::Addresses;

/// The layout of [`Contents`]. Raised when an older build would misread it, or lose what it does not know.
pub(super) const SCHEMA: u32 = 1;
/// Bytes of a version's name; more is no version.
const VERSION_BYTES_MAX: usize = 64;

/// The hub, pinned at enrolment: its id and key, not its address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HubPin {
    pub hub: HubId,
    /// Hexadecimal bytes of the Ed25519 public key.
    pub key: Digest,
}

/// The target this agent was enrolled as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TargetName {
    pub target: TargetId,
    pub name: String,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Contents {
    /// The seed of the agent's Ed25519 key: a secret.
    pub(super) seed: Digest,
    pub(super) pin: HubPin,
    /// Where that hub is asked.
    pub(super) addresses: Addresses,
    #[serde(default)]
    pub(super) enrolled: Option<TargetName>,
    /// Counts how often what it is was changed: its target, or its key.
    #[serde(default)]
    pub(super) generation: u64,
    /// Its former targets, whose marks are its own; the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) formers: Vec<TargetId>,
    /// The key that it will have once a token is taken, for the present one was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) next_seed: Option<Digest>,
    /// Names the token by which it was enrolled last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<Digest>,
    /// The newest set that was accepted as one of the former targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) inherited: Option<Attested>,
    /// The cluster whose sessions the hub accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cluster: Option<Uid>,
    /// The newest session that was offered to this session store. A copy of a data directory is a store of its own, which does
    /// not learn of sessions offered to the first from then on.
    #[serde(default)]
    pub(super) session: SessionName,
    /// The newest set that was accepted. Written now and then, so it may be behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) floor: Option<Attested>,
}

/// The contents are hashed as the text they are. Every version, however old, reads the envelope.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    schema: u32,
    /// The version of the agent.
    #[serde(default)]
    written_by: String,
    sha256: Digest,
    #[serde(borrow)]
    identity: &'a RawValue,
}

/// Why a text is no identity.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    Damaged(String),
    /// A version of the agent wrote it that has another layout.
    Newer {
        found: u32,
        by: String,
    },
}

impl Contents {
    /// A new identity, with a key of its own.
    pub(super) fn new(pin: HubPin, addresses: Addresses) -> Result<Self, Error> {
        Ok(Self {
            seed: Self::random_seed()?,
            pin,
            addresses,
            enrolled: None,
            generation: 0,
            formers: Vec::new(),
            next_seed: None,
            token: None,
            inherited: None,
            cluster: None,
            session: SessionName::default(),
            floor: None,
        })
    }

    pub(super) fn random_seed() -> Result<Digest, Error> {
        let mut seed = [0; 32];
        SystemRandom::new().fill(&mut seed).map_err(|_| Error::Random)?;
        Ok(Digest::from_bytes(seed))
    }

    /// Becomes this target, by a token or by a handover. With a token, a revoked key is replaced; an agent that is handed over
    /// keeps the key that the hub knows.
    pub(super) fn become_target(&mut self, enrolled: TargetName, token: Option<Digest>) {
        if let Some(former) = self.enrolled.as_ref().map(|former| former.target).filter(|it| *it != enrolled.target) {
            let formers = self.formers.iter().copied().collect::<Formers>().with(former).without(enrolled.target);
            self.formers = formers.iter().collect();
            // An epoch is of one target.
            self.inherited = self.floor.take().or(self.inherited);
        }
        let next = token.and_then(|_| self.next_seed.take());
        if self.enrolled.as_ref() != Some(&enrolled) || next.is_some() {
            self.generation += 1;
        }
        self.seed = next.unwrap_or(self.seed);
        self.enrolled = Some(enrolled);
        self.token = token.or(self.token);
    }

    /// The hub accepts this key no more, so the next one takes its place when a token is taken. A next key that was refused
    /// as well is given up; another stays, for it may be on its way to the hub.
    pub(super) fn replace_key(&mut self, refused: &VerifyingKey, next: Digest) {
        let is_refused = |seed: &Digest| SigningKey::from_seed(*seed.as_bytes()).public() == *refused;
        if is_refused(self.next_seed.as_ref().unwrap_or(&self.seed)) {
            self.next_seed = Some(next);
        }
    }

    pub(super) fn key(&self) -> SigningKey {
        SigningKey::from_seed(*self.seed.as_bytes())
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let text = serde_json::to_string(self).expect("an identity has only strings and numbers");
        let envelope = Envelope {
            schema: SCHEMA,
            written_by: env!("CARGO_PKG_VERSION").to_owned(),
            sha256: Digest::of(text.as_bytes()),
            identity: serde_json::from_str(&text).expect("it was written as JSON just now"),
        };
        serde_json::to_vec(&envelope).expect("an envelope has only strings and numbers")
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        let damaged = |error: serde_json::Error| Unreadable::Damaged(error.to_string());
        let envelope: Envelope<'_> = serde_json::from_slice(bytes).map_err(damaged)?;
        if Digest::of(envelope.identity.get().as_bytes()) != envelope.sha256 {
            return Err(Unreadable::Damaged("its checksum is wrong".to_owned()));
        }
        match envelope.schema {
            // Here an older layout becomes one of this schema, from the first release on; none was released yet.
            SCHEMA => serde_json::from_str(envelope.identity.get()).map_err(damaged),
            found => {
                let by = envelope.written_by.chars().filter(char::is_ascii_graphic).take(VERSION_BYTES_MAX).collect();
                Err(Unreadable::Newer { found, by })
            }
        }
    }
}

impl HubPin {
    pub(crate) fn verifying_key(&self) -> VerifyingKey {
        VerifyingKey::from_bytes(self.key.as_bytes()).expect("a digest has the 32 bytes of an Ed25519 key")
    }

    pub(crate) fn of(token: &EnrolmentToken) -> Result<Self, Error> {
        let key = <[u8; 32]>::try_from(token.hub_key.as_slice()).map_err(|_| Error::Token(token.hub_key.len()))?;
        Ok(Self { hub: token.hub, key: Digest::from_bytes(key) })
    }
}

/// Without the seed.
impl std::fmt::Debug for Contents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contents")
            .field("pin", &self.pin)
            .field("addresses", &self.addresses)
            .field("enrolled", &self.enrolled)
            .field("cluster", &self.cluster)
            .field("session", &self.session)
            .field("floor", &self.floor)
            .finish_non_exhaustive()
    }
}
