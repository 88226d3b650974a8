//! Who this agent is, and which hub it believes: the file `identity.json` in the data directory.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tideline_common::signature::{SigningKey, VerifyingKey};
use tideline_common::{Digest, EnrolmentToken, HubId, TargetId};

const FILE: &str = "identity.json";
/// The layout; an unknown one is refused.
const SCHEMA: u32 = 1;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} {path:?}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "{path:?} is damaged: {why}. Restore it from a backup, or remove it and enrol again with a new token: the hub then \
         treats this agent as another target"
    )]
    Damaged { path: PathBuf, why: String },
    #[error("{path:?} has schema {found}; this build reads {SCHEMA}. Run the version of the agent that wrote it")]
    Schema { path: PathBuf, found: u32 },
    #[error("the token names a hub key of {0} bytes; it is damaged, make another with `tideline-hub token create`")]
    Token(usize),
    #[error(
        "this data directory belongs to hub {pinned}, the token is for hub {token}. Use another data directory for \
         another hub"
    )]
    OtherHub { pinned: HubId, token: HubId },
    #[error("no agent is enrolled in {0:?}; give --token-file to enrol one, or the --data-dir of one that is")]
    NoToken(PathBuf),
    #[error("the operating system gives no random numbers")]
    Random,
}

/// The hub, pinned at enrolment: its id and key, not its address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HubPin {
    pub hub: HubId,
    /// Hexadecimal bytes of the Ed25519 public key.
    pub key: Digest,
    pub url: String,
    /// The CA of the hub's own certificate, as a JSON list of bytes; empty if a public one signs it.
    pub ca: Vec<u8>,
}

/// The target this agent was enrolled as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TargetName {
    pub target: TargetId,
    pub name: String,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Contents {
    /// The seed of the agent's Ed25519 key: a secret.
    seed: Digest,
    pin: HubPin,
    #[serde(default)]
    enrolled: Option<TargetName>,
}

/// The file: its contents are hashed as the text they are.
#[derive(Serialize, Deserialize)]
struct Envelope<'a> {
    schema: u32,
    sha256: Digest,
    #[serde(borrow)]
    identity: &'a RawValue,
}

/// The agent's key and what it trusts, as kept on disk.
pub(crate) struct Identity {
    path: PathBuf,
    contents: Contents,
}

impl Identity {
    /// Reads the identity in `directory`, or makes one for `token`. A token given to an agent that is not enrolled yet
    /// replaces what is pinned; an enrolled agent needs none.
    pub(crate) fn open(directory: &Path, token: Option<&EnrolmentToken>) -> Result<Self, Error> {
        let path = directory.join(FILE);
        let pin = token.map(pin).transpose()?;
        let contents = match (read(&path)?, pin) {
            (None, None) => return Err(Error::NoToken(directory.to_owned())),
            (None, Some(pin)) => Contents { seed: random_seed()?, pin, enrolled: None },
            (Some(contents), None) => return Ok(Self { path, contents }),
            (Some(contents), Some(pin)) if contents.enrolled.is_some() => {
                if contents.pin.hub != pin.hub {
                    return Err(Error::OtherHub { pinned: contents.pin.hub, token: pin.hub });
                }
                return Ok(Self { path, contents });
            }
            (Some(contents), Some(pin)) => Contents { pin, ..contents },
        };
        let identity = Self { path, contents };
        identity.save()?;
        Ok(identity)
    }

    pub(crate) fn key(&self) -> SigningKey {
        SigningKey::from_seed(*self.contents.seed.as_bytes())
    }

    pub(crate) fn pin(&self) -> &HubPin {
        &self.contents.pin
    }

    pub(crate) fn enrolled(&self) -> Option<&TargetName> {
        self.contents.enrolled.as_ref()
    }

    /// Keeps what the hub said this agent is.
    pub(crate) fn enrol(&mut self, enrolled: TargetName) -> Result<(), Error> {
        if self.contents.enrolled.as_ref() == Some(&enrolled) {
            return Ok(());
        }
        self.contents.enrolled = Some(enrolled);
        self.save()
    }

    /// Replaces the file as a whole, readable by its owner alone, and returns when it is on disk.
    fn save(&self) -> Result<(), Error> {
        let io = |action: &'static str| move |source| Error::Io { action, path: self.path.clone(), source };
        let text = serde_json::to_string(&self.contents).expect("an identity has only strings and numbers");
        let envelope = Envelope {
            schema: SCHEMA,
            sha256: Digest::of(text.as_bytes()),
            identity: serde_json::from_str(&text).expect("it was written as JSON just now"),
        };
        let bytes = serde_json::to_vec(&envelope).expect("an envelope has only strings and numbers");
        let next = self.path.with_extension("json.next");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&next)
            .map_err(io("create a file beside"))?;
        // The mode above does not reach a file that a crash left behind.
        file.set_permissions(Permissions::from_mode(0o600)).map_err(io("set the permissions of"))?;
        file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(io("write"))?;
        fs::rename(&next, &self.path).map_err(io("replace"))?;
        let directory = self.path.parent().unwrap_or(Path::new("."));
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(io("sync the directory of"))
    }
}

impl HubPin {
    pub(crate) fn verifying_key(&self) -> VerifyingKey {
        VerifyingKey::from_bytes(self.key.as_bytes()).expect("a digest has the 32 bytes of an Ed25519 key")
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity")
            .field("path", &self.path)
            .field("pin", &self.contents.pin)
            .field("enrolled", &self.contents.enrolled)
            .finish_non_exhaustive()
    }
}

fn pin(token: &EnrolmentToken) -> Result<HubPin, Error> {
    let key = <[u8; 32]>::try_from(token.hub_key.as_slice()).map_err(|_| Error::Token(token.hub_key.len()))?;
    Ok(HubPin { hub: token.hub, key: Digest::from_bytes(key), url: token.url.clone(), ca: token.ca.clone() })
}

fn read(path: &Path) -> Result<Option<Contents>, Error> {
    let damaged = |why: String| Error::Damaged { path: path.to_owned(), why };
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(damaged("it is not text".to_owned())),
        Err(source) => return Err(Error::Io { action: "read", path: path.to_owned(), source }),
    };
    let envelope: Envelope<'_> = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
    if envelope.schema != SCHEMA {
        return Err(Error::Schema { path: path.to_owned(), found: envelope.schema });
    }
    if Digest::of(envelope.identity.get().as_bytes()) != envelope.sha256 {
        return Err(damaged("its checksum is wrong".to_owned()));
    }
    serde_json::from_str(envelope.identity.get()).map(Some).map_err(|error| damaged(error.to_string()))
}

fn random_seed() -> Result<Digest, Error> {
    let mut seed = [0; 32];
    SystemRandom::new().fill(&mut seed).map_err(|_| Error::Random)?;
    Ok(Digest::from_bytes(seed))
}

#[cfg(test)]
mod tests;
